//! Labels and annotations.

use std::rc::Rc;

use crate::budget::{Budget, weight};
use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Label;
use crate::resources::Resources;
use crate::specs::{Specs, merge_fields};
use crate::value::{Map, Str, Text, TextStyle, Value};
use crate::yaml::is_text;

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
    let mut common = pairs.iter().map(|_| None).collect::<Vec<_>>();
    let mut fields: Option<Rc<[FieldSpec]>> = None;
    for resource in objects.iter_mut() {
        let gvk = resource.id().gvk.clone();
        let mut setter =
            Setter { pairs, budget, groups: std::mem::take(&mut resource.shared), seen: Vec::new() };
        setter.seen.resize(pairs.len(), Seen::default());
        let result = resource.edit(|object| {
            specs
                .iter()
                .filter(|spec| spec.matches(&gvk))
                .try_for_each(|spec| spec.apply(object, Create::Mapping, &mut |value| setter.set(value)))?;
            setter.carry(object)
        });
        result.map_err(|message| format!("{}: {message}", resource.id()))?;
        let Setter { mut groups, seen, .. } = setter;
        for (i, _) in seen.iter().enumerate().filter(|(_, seen)| seen.made > 1) {
            let (key, text) = &pairs[i];
            let group = common[i].get_or_insert_with(|| {
                let fields = fields.get_or_insert_with(|| specs.into()).clone();
                Rc::new(Group { key: key.clone(), text: text.clone(), fields })
            });
            groups.push(group.clone());
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
    /// A group that has one of the others.
    group: Option<usize>,
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
            let Some(old) = map.get_mut(key) else {
                // kustomize writes new keys without quotes and then finds that they are not strings.
                if !is_text(key) {
                    return Err(format!("a key must be a string, and {key:?} without quotes is not one"));
                }
                self.budget.keep(weight::ENTRY)?;
                map.insert(key.clone(), Value::string(text.clone()));
                seen.made += 1;
                continue;
            };
            match self.groups.iter().position(|group| group.holds(key, old)) {
                Some(at) => seen.group = Some(at),
                // A copy, which is not part of what changes together from now on.
                None => {
                    *old = match old {
                        Value::String(old) => Value::String(old.replaced(&**text)),
                        _ => Value::String(Text::new(&**text, TextStyle::Plain)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the pairs that met a group in all of its places.
    fn carry(&mut self, object: &mut Map) -> Result<(), String> {
        let mut hold = Hold::new(self.budget)?;
        for ((_, text), seen) in self.pairs.iter().zip(&self.seen) {
            let Some(at) = seen.group else { continue };
            if *self.groups[at].text != **text
                && let Some(group) =
                    shared::set_all(object, &self.groups[at], &Value::string(&**text), &mut hold)?
            {
                self.groups[at] = group;
            }
        }
        Ok(())
    }
}
