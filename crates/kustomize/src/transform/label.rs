//! Labels and annotations.

use crate::budget::Budget;
use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Label;
use crate::resources::Resources;
use crate::specs::{Specs, merge_fields};
use crate::value::{Str, Value};
use crate::yaml::is_text;

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
    for resource in objects.iter_mut() {
        let id = resource.id().clone();
        let result = resource.edit(|object| {
            specs.iter().filter(|spec| spec.matches(&id.gvk)).try_for_each(|spec| {
                spec.apply(object, Create::Mapping, &mut |value| {
                    // A null that stands where nothing is to be made stays one.
                    if value.is_null() {
                        return Ok(());
                    }
                    let Value::Map(map) = value else {
                        return Err(format!("a mapping is needed, not {}", value.type_name()));
                    };
                    // A key that is new moves those after it.
                    budget.work(pairs.len().saturating_mul(1 + map.len() / 16))?;
                    for (key, text) in pairs {
                        // kustomize writes new keys without quotes and then finds that they are no strings.
                        if !map.contains_key(key) && !is_text(key) {
                            return Err(format!(
                                "a key must be a string, and {key:?} without quotes is none"
                            ));
                        }
                        map.insert(key.clone(), Value::String(text.clone()));
                    }
                    Ok(())
                })
            })
        });
        result.map_err(|message| format!("{id}: {message}"))?;
    }
    Ok(())
}
