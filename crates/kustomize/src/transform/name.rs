//! Namespace, name prefix and name suffix.

use crate::budget::{Budget, weight};
use crate::fieldspec::{Create, FieldSpec};
use crate::resource::{KEPT_ID, Resource, metadata};
use crate::resources::Resources;
use crate::value::{Map, Str, Text, TextStyle, Value};

use super::step::{Affix, Namespace, Subjects};

/// Sets the namespace of all objects that have one.
pub(super) fn namespace(
    step: &Namespace<'_>,
    budget: &Budget,
    objects: &mut Resources,
) -> Result<(), String> {
    if step.namespace.is_empty() {
        return Ok(());
    }
    budget.keep(objects.len().saturating_mul(KEPT_ID))?;
    for resource in objects.list_mut() {
        resource.store_id()?;
        set_namespace(step, resource)?;
        resource.refresh();
    }
    objects.check_unique()
}

/// Sets the namespace of one object.
pub(super) fn set_namespace(step: &Namespace<'_>, resource: &mut Resource) -> Result<(), String> {
    let text: Str = (&*step.namespace).into();
    let id = resource.id().clone();
    let api_version_v1 = id.gvk.group.is_empty() && &*id.gvk.version == "v1";
    let role_binding = matches!(&*id.gvk.kind, "RoleBinding" | "ClusterRoleBinding");
    let result = resource.edit(|object| {
        if !id.gvk.cluster_scoped {
            let slot = metadata(object).get_or_insert_with("namespace", || Value::string(""));
            set_text(slot, &text, step.unset_only)
                .map_err(|message| format!("metadata.namespace: {message}"))?;
        }
        if role_binding {
            subjects(object.get_mut("subjects"), &text, step)?;
        }
        for spec in step.fields.iter().filter(|spec| spec.matches(&id.gvk)) {
            // A Namespace takes the name itself, if it is Kubernetes' own; the rest is done above.
            let elsewhere = spec.is(&["metadata", "namespace"])
                || (spec.is(&["metadata", "name"]) && !api_version_v1)
                || (role_binding && spec.is(&["subjects", "namespace"]) && *spec.kind == *id.gvk.kind);
            if elsewhere {
                continue;
            }
            spec.apply(object, Create::Scalar, &mut |value| set_text(value, &text, step.unset_only))?;
        }
        Ok(())
    });
    result.map_err(|message: String| format!("{id}: {message}"))
}

fn set_text(value: &mut Value, namespace: &Str, unset_only: bool) -> Result<(), String> {
    if matches!(value, Value::Map(_) | Value::List(_)) {
        return Err(format!("a string is needed, not {}", value.type_name()));
    }
    let unset = value.is_null() || value.as_str() == Some("");
    if unset || !unset_only {
        *value = Value::string(namespace.clone());
    }
    Ok(())
}

/// Subjects of a role binding that belong to the namespace.
fn subjects(subjects: Option<&mut Value>, namespace: &Str, step: &Namespace<'_>) -> Result<(), String> {
    let belongs = |subject: &Map| match step.subjects {
        Subjects::Default => subject.get("name").and_then(Value::as_str) == Some("default"),
        Subjects::Accounts => subject.get("kind").and_then(Value::as_str) == Some("ServiceAccount"),
        Subjects::None => false,
    };
    match subjects {
        _ if step.subjects == Subjects::None => Ok(()),
        None | Some(Value::Null(_)) => Ok(()),
        Some(Value::List(subjects)) => {
            for subject in subjects.iter_mut().filter_map(Value::as_map_mut) {
                if belongs(subject) {
                    let slot = subject.get_or_insert_with("namespace", || Value::string(""));
                    set_text(slot, namespace, step.unset_only)
                        .map_err(|message| format!("subjects.namespace: {message}"))?;
                }
            }
            Ok(())
        }
        Some(other) => Err(format!("subjects must be a list, not {}", other.type_name())),
    }
}

/// Objects whose names other things depend on keep them.
fn keeps_name(resource: &Resource) -> bool {
    let gvk = &resource.original_id().gvk;
    matches!(&*gvk.kind, "CustomResourceDefinition" | "Namespace")
        || (&*gvk.kind == "APIService" && &*gvk.group == "apiregistration.k8s.io")
}

pub(super) fn prefix(prefix: &Affix<'_>, budget: &Budget, objects: &mut Resources) -> Result<(), String> {
    let text = &prefix.text;
    rename(prefix, budget, objects, |resource| &mut resource.prefixes, |name| format!("{text}{name}"))
}

pub(super) fn suffix(suffix: &Affix<'_>, budget: &Budget, objects: &mut Resources) -> Result<(), String> {
    let text = &suffix.text;
    rename(suffix, budget, objects, |resource| &mut resource.suffixes, |name| format!("{name}{text}"))
}

fn rename(
    affix: &Affix<'_>,
    budget: &Budget,
    objects: &mut Resources,
    parts: impl Fn(&mut Resource) -> &mut Vec<Str>,
    new_name: impl Fn(&str) -> String,
) -> Result<(), String> {
    if affix.text.is_empty() {
        return Ok(());
    }
    let text: Str = (&*affix.text).into();
    for resource in objects.list_mut() {
        if keeps_name(resource) {
            continue;
        }
        let (original, current) = (resource.original_id().gvk.clone(), resource.id().clone());
        let selected = |spec: &&FieldSpec| spec.matches(&original);
        for spec in affix.fields.iter().filter(selected) {
            if spec.is(&["metadata", "name"]) {
                parts(resource).push(text.clone());
                resource.store_id()?;
            }
            if !spec.matches(&current.gvk) {
                continue;
            }
            let result = resource.edit(|object| {
                spec.apply(object, Create::Scalar, &mut |value| {
                    let Some(name) = value.scalar_text() else {
                        return Err(format!("a string is needed, not {}", value.type_name()));
                    };
                    // The name before stays among the earlier ids.
                    budget.make(name.len() + affix.text.len() + weight::TEXT + KEPT_ID)?;
                    let name = new_name(&name);
                    // It keeps its quotes, if it has some, and loses its tag: without quotes it may be a number from then on.
                    let style = match value {
                        Value::String(text) if text.kept_style() == TextStyle::Quoted => TextStyle::Quoted,
                        _ => TextStyle::Untagged,
                    };
                    *value = Value::String(Text::new(name, style));
                    Ok(())
                })
            });
            result.map_err(|message| format!("{current}: {message}"))?;
        }
        resource.refresh();
    }
    Ok(())
}
