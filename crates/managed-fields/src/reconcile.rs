//! Sets that were written when the schema was another one: what became one whole is owned as one whole.

use crate::path::PathElement;
use crate::schema::{ListType, MapType, TypeRef};
use crate::set::Set;

/// The set as today's schema has it; none where it is the same.
pub(crate) fn reconcile(set: &Set, type_: &TypeRef) -> Option<Set> {
    let mut whole = Set::default();
    visit(Some(set), type_, false, &mut Vec::new(), &mut whole);
    if whole.is_empty() { None } else { Some(set.recursive_difference(&whole).union(&whole)) }
}

/// `is_whole`: whether the field is in the set, and nothing within it.
fn visit(set: Option<&Set>, type_: &TypeRef, is_whole: bool, path: &mut Vec<PathElement>, whole: &mut Set) {
    let Some(atom) = type_.atom() else { return };
    if let Some(map) = &atom.map {
        maps(set, map, is_whole, path, whole);
    } else if atom.scalar.is_none()
        && let Some(list) = &atom.list
    {
        lists(set, list, is_whole, path, whole);
    }
}

fn maps(set: Option<&Set>, map: &MapType, is_whole: bool, path: &mut Vec<PathElement>, whole: &mut Set) {
    if map.fields.is_empty() && map.element.is_deduced() {
        return;
    }
    if !is_whole && map.atomic {
        if set.is_some_and(|set| !set.is_empty()) {
            whole.insert(path);
        }
        return;
    }
    let Some(set) = set else { return };
    within(set, path, whole, |element| match element {
        PathElement::Field(name) => map.field(name),
        _ => &map.element,
    });
}

fn lists(set: Option<&Set>, list: &ListType, is_whole: bool, path: &mut Vec<PathElement>, whole: &mut Set) {
    if !is_whole && list.keys.is_none() {
        whole.insert(path);
        return;
    }
    let Some(set) = set else { return };
    within(set, path, whole, |_| &list.element);
}

fn within<'s>(
    set: &Set,
    path: &mut Vec<PathElement>,
    whole: &mut Set,
    type_of: impl Fn(&PathElement) -> &'s TypeRef,
) {
    let only_members = set.members.iter().filter(|member| !set.children.contains_key(member));
    for element in set.children.keys().chain(only_members) {
        let type_ = type_of(element);
        if matches!(type_, TypeRef::None) {
            continue;
        }
        let child = set.children.get(element);
        let is_whole = child.is_none() && set.members.contains(element);
        path.push(element.clone());
        visit(child, type_, is_whole, path, whole);
        path.pop();
    }
}
