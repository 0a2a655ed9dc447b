//! Labels and annotations.

use std::rc::Rc;

use crate::budget::{Budget, weight};
use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Label;
use crate::resources::Resources;
use crate::specs::{Specs, merge_fields};
use crate::value::{Map, Str, Text, TextStyle, Value};
use crate::yaml::{is_quoted_when_set, is_text};

use super::shared::{self, Group, Hold};

/// Fields of an entry of `labels`: in metadata, and where it says in templates and selectors.
pub(super) fn fields(label: &Label, specs: &Specs) -> Result<Vec<FieldSpec>, String> {
    let mut fields = label.fields.clone();
    merge_fields(&mut fields, &specs.labels)?;
    if label.include_selectors {
        merge_fields(&mut fields, &specs.common_labels)?;
    } else {
        if label.include_templates {
            merge_fields(&mut fields, &specs.template_labels)?;
        }
        merge_fields(&mut fields, &[FieldSpec::new("", "", "", "metadata/labels", true)])?;
    }
    Ok(fields)
}

/// Sets pairs in all mappings that the specifications lead to.
pub(super) fn set(
    pairs: &[(Str, Str)],
    specs: &[FieldSpec],
    budget: &Budget,
    objects: &mut Resources,
) -> Result<(), String> {
    if pairs.is_empty() {
        return Ok(());
    }
    // The keys tell the places where a pair is new from all others.
    let pairs: Vec<(Str, Str)> = pairs.iter().map(|(key, text)| (Str::from(&**key), text.clone())).collect();
    let mut common = pairs.iter().map(|_| None).collect::<Vec<_>>();
    let mut fields: Option<Rc<[FieldSpec]>> = None;
    for resource in objects.iter_mut() {
        let gvk = resource.id().gvk.clone();
        let groups = std::mem::take(&mut resource.shared);
        let mut setter = Setter { pairs: &pairs, budget, groups, seen: vec![Seen::default(); pairs.len()] };
        let result = resource.edit(|object| {
            specs
                .iter()
                .filter(|spec| spec.matches(&gvk))
                .try_for_each(|spec| spec.apply(object, Create::Mapping, &mut |value| setter.set(value)))?;
            setter.carry(object)
        });
        result.map_err(|message| format!("{}: {message}", resource.id()))?;
        let Setter { mut groups, seen, .. } = setter;
        for ((i, seen), (key, text)) in seen.iter().enumerate().zip(&pairs) {
            let mut group = || {
                let fields = fields.get_or_insert_with(|| specs.into()).clone();
                Rc::new(Group { key: key.clone(), value: Value::string(text.clone()), fields })
            };
            match seen.style {
                // As kustomize's one node is written in the end.
                Some(style) if seen.made > 0 => {
                    let value = Value::String(Text::new(text.clone(), style));
                    let group = group();
                    let styled =
                        |object: &mut Map| shared::set_all(object, &group, &value, &mut Hold::new(budget)?);
                    let group = resource.edit(styled);
                    let group = group.map_err(|message| format!("{}: {message}", resource.id()))?;
                    groups.extend(Some(group).filter(|_| seen.made > 1));
                }
                _ if seen.made > 1 => groups.push(common[i].get_or_insert_with(group).clone()),
                _ => {}
            }
        }
        resource.shared = groups;
    }
    Ok(())
}

/// Sets pairs in the mappings of one object.
struct Setter<'s> {
    pairs: &'s [(Str, Str)],
    budget: &'s Budget,
    /// Earlier labels and annotations of the object that stand in several places.
    groups: Vec<Rc<Group>>,
    /// By pair.
    seen: Vec<Seen>,
}

/// Where a pair was set.
#[derive(Clone, Default)]
struct Seen {
    /// The number of places where it is new.
    made: usize,
    /// Groups that have some of the others, and how these are written.
    groups: Vec<(usize, TextStyle)>,
    /// How kustomize writes its one node, once that stood where something was before.
    style: Option<TextStyle>,
}

impl Seen {
    /// The style of a place where a text is set. kustomize has one node for all places, which takes over the style of what it
    /// replaces, and is put in quotes where it has no style and needs some.
    fn take_style(&mut self, old: &Value, text: &str) -> TextStyle {
        let style = match old {
            Value::String(old) if old.is_tagged() => old.style(),
            // It has the tag of a text.
            Value::String(old) if !old.is_time() => old.kept_style(),
            _ => TextStyle::Plain,
        };
        // It has no style, where that makes no difference.
        let is_made = style == TextStyle::Plain && !is_quoted_when_set(text);
        let style = if is_made { TextStyle::Made } else { style };
        self.style = Some(style);
        style
    }

    fn set_new(&mut self) {
        self.made += 1;
        if self.style == Some(TextStyle::Plain) {
            self.style = Some(TextStyle::Quoted);
        }
    }
}

impl Setter<'_> {
    fn set(&mut self, value: &mut Value) -> Result<(), String> {
        // A null that stands where nothing is to be made stays one.
        if value.is_null() {
            return Ok(());
        }
        let Value::Map(map) = value else {
            return Err(format!("a mapping is needed, not {}", value.type_name()));
        };
        // A key that is new moves those after it.
        self.budget.work(self.pairs.len().saturating_mul(1 + map.len() / 16))?;
        for ((key, text), seen) in self.pairs.iter().zip(&mut self.seen) {
            let group =
                map.own_key(key).and_then(|key| self.groups.iter().position(|group| group.is_at(key)));
            let Some(old) = map.get_mut(key) else {
                // kustomize writes new keys without quotes and then finds that they are not strings.
                if !is_text(key) {
                    return Err(format!("a key must be a string, and {key:?} without quotes is not one"));
                }
                self.budget.keep(weight::ENTRY)?;
                map.insert(key.clone(), Value::string(text.clone()));
                seen.set_new();
                continue;
            };
            let style = seen.take_style(old, text);
            match group {
                Some(at) if seen.groups.iter().any(|(known, _)| *known == at) => {}
                Some(at) => seen.groups.push((at, style)),
                // A copy, which is not part of what changes together from now on.
                None => *old = Value::String(Text::new(&**text, style)),
            }
        }
        Ok(())
    }

    /// Sets the pairs that met a group in all of its places.
    fn carry(&mut self, object: &mut Map) -> Result<(), String> {
        let mut hold = Hold::new(self.budget)?;
        for ((_, text), seen) in self.pairs.iter().zip(&self.seen) {
            for (at, style) in &seen.groups {
                let value = Value::String(Text::new(&**text, *style));
                self.groups[*at] = shared::set_all(object, &self.groups[*at], &value, &mut hold)?;
            }
        }
        Ok(())
    }
}
