//! Labels and annotations.

use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Label;
use crate::resources::Resources;
use crate::specs::SPECS;
use crate::value::{Map, Str, Value};

/// Fields of an entry of `labels`: in metadata, and where it says in templates and selectors.
pub(super) fn fields(label: &Label) -> Vec<FieldSpec> {
    let mut specs = label.fields.clone();
    if label.include_selectors {
        specs.extend_from_slice(&SPECS.common_labels);
    } else if label.include_templates {
        specs.extend_from_slice(&SPECS.template_labels);
    } else {
        specs.push(FieldSpec::new("", "", "", "metadata/labels", true));
    }
    specs
}

/// Sets pairs in all mappings that the specifications lead to.
pub(super) fn set(pairs: &[(Str, Str)], specs: &[FieldSpec], objects: &mut Resources) -> Result<(), String> {
    if pairs.is_empty() {
        return Ok(());
    }
    for resource in objects.iter_mut() {
        let id = resource.id().clone();
        let result = resource.edit(|object| {
            specs.iter().filter(|spec| spec.matches(&id.gvk)).try_for_each(|spec| {
                spec.apply(object, Create::Mapping, &mut |value| {
                    if value.is_null() {
                        *value = Value::Map(Map::new());
                    }
                    let Value::Map(map) = value else {
                        return Err(format!("a mapping is needed, not {}", value.type_name()));
                    };
                    for (key, text) in pairs {
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
