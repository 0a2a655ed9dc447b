//! What a kustomization changes in its objects, in kustomize's order.

mod image;
mod json6902;
mod label;
mod merge;
mod name;
mod patch;
mod select;

pub(crate) mod finish;
pub(crate) mod reference;

pub use select::LabelSelector;

use crate::error::Error;
use crate::fields::Site;
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::resources::Resources;
use crate::specs::SPECS;
use crate::value::Value;

/// Runs all transformers of a kustomization.
pub(crate) fn run(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
    objects: &mut Resources,
) -> Result<(), Error> {
    let k = kustomization;
    patch::strategic_merge_files(loader, site, &k.patches_strategic_merge, objects)?;
    for (i, patch) in k.patches.iter().enumerate() {
        patch::apply(loader, site, &format!("patches[{i}]"), patch, objects)?;
    }
    if !k.namespace.is_empty() {
        name::namespace(&k.namespace, objects).map_err(|message| site.error("namespace", message))?;
    }
    name::prefix(&k.name_prefix, objects);
    name::suffix(&k.name_suffix, objects);
    for (i, label) in k.labels.iter().enumerate() {
        label::labels(label, objects).map_err(|message| site.error(format!("labels[{i}]"), message))?;
    }
    label::set(&k.common_labels, &SPECS.common_labels, objects)
        .map_err(|message| site.error("commonLabels", message))?;
    label::set(&k.common_annotations, &SPECS.annotations, objects)
        .map_err(|message| site.error("commonAnnotations", message))?;
    for (i, patch) in k.patches_json6902.iter().enumerate() {
        let field = format!("patchesJson6902[{i}]");
        if patch.target.is_none() {
            return Err(site.error(field, "target is missing"));
        }
        patch::apply(loader, site, &field, patch, objects)?;
    }
    for (i, replica) in k.replicas.iter().enumerate() {
        replicas(&replica.name, replica.count, objects)
            .map_err(|message| site.error(format!("replicas[{i}]"), message))?;
    }
    for (i, image) in k.images.iter().enumerate() {
        image::apply(image, loader.limits.regex_bytes, objects)
            .map_err(|message| site.error(format!("images[{i}]"), message))?;
    }
    Ok(())
}

fn replicas(name: &str, count: i64, objects: &mut Resources) -> Result<(), String> {
    let mut found = false;
    for at in objects.by_name(name).to_vec() {
        let resource = objects.get_mut(at);
        for spec in &SPECS.replicas {
            if !resource.all_ids().any(|id| &*id.name == name && spec.matches(&id.gvk)) {
                continue;
            }
            found = true;
            resource.edit(|object| {
                spec.apply(object, crate::fieldspec::Create::Scalar, &mut |value| {
                    *value = Value::int(count);
                    Ok(())
                })
            })?;
        }
    }
    if found {
        Ok(())
    } else {
        Err(format!("no Deployment, StatefulSet, ReplicaSet or ReplicationController has the name {name:?}"))
    }
}
