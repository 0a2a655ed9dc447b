//! Namespace, name prefix and name suffix.

use crate::fieldspec::Create;
use crate::resource::{Resource, metadata};
use crate::resources::Resources;
use crate::specs::SPECS;
use crate::value::{Str, Value};

/// Sets the namespace of all objects that have one.
pub(super) fn namespace(namespace: &str, objects: &mut Resources) -> Result<(), String> {
    let text: Str = namespace.into();
    for resource in objects.list_mut() {
        resource.store_id();
        let id = resource.id().clone();
        let api_version_v1 = id.gvk.group.is_empty() && &*id.gvk.version == "v1";
        let result = resource.edit(|object| {
            if !id.gvk.cluster_scoped {
                metadata(object).insert("namespace", Value::String(text.clone()));
            }
            if matches!(&*id.gvk.kind, "RoleBinding" | "ClusterRoleBinding") {
                default_subjects(object.get_mut("subjects"), &text)?;
            }
            for spec in SPECS.namespace.iter().filter(|spec| spec.matches(&id.gvk)) {
                // A Namespace takes the name itself, if it is Kubernetes' own.
                if &*spec.kind == "Namespace" && !api_version_v1 {
                    continue;
                }
                spec.apply(object, Create::Scalar, &mut |value| {
                    *value = Value::String(text.clone());
                    Ok(())
                })?;
            }
            Ok(())
        });
        result.map_err(|message: String| format!("{id}: {message}"))?;
        resource.refresh();
    }
    objects.check_unique()
}

/// Subjects named `default` belong to the namespace.
fn default_subjects(subjects: Option<&mut Value>, namespace: &Str) -> Result<(), String> {
    match subjects {
        None | Some(Value::Null(_)) => Ok(()),
        Some(Value::List(subjects)) => {
            for subject in subjects.iter_mut().filter_map(Value::as_map_mut) {
                if subject.get("name").and_then(Value::as_str) == Some("default") {
                    subject.insert("namespace", Value::String(namespace.clone()));
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

pub(super) fn prefix(prefix: &str, objects: &mut Resources) {
    rename(prefix, objects, |resource| &mut resource.prefixes, |name| format!("{prefix}{name}"));
}

pub(super) fn suffix(suffix: &str, objects: &mut Resources) {
    rename(suffix, objects, |resource| &mut resource.suffixes, |name| format!("{name}{suffix}"));
}

fn rename(
    part: &str,
    objects: &mut Resources,
    parts: impl Fn(&mut Resource) -> &mut Vec<Str>,
    new_name: impl Fn(&str) -> String,
) {
    if part.is_empty() {
        return;
    }
    let text: Str = part.into();
    for resource in objects.list_mut() {
        if keeps_name(resource) {
            continue;
        }
        parts(resource).push(text.clone());
        resource.store_id();
        let name = new_name(&resource.id().name);
        resource.set_name(&name);
    }
}
