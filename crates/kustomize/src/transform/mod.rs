//! What a kustomization changes in its objects, in kustomize's order.

mod add;
mod image;
mod json6902;
mod label;
mod merge;
mod name;
mod patch;
mod path;
mod replace;
mod replica;
mod select;
mod shared;
mod step;
mod structured;
mod tangle;

pub(crate) mod finish;
pub(crate) mod reference;

pub(crate) use add::{Addition, ValueAdd};
pub(crate) use finish::check_characters;
pub(crate) use shared::{Group, leave_groups};
pub(crate) use step::{Affix, Namespace, Step, Subjects};
pub(crate) use tangle::Tangles;

use std::borrow::Cow;

use crate::error::Error;
use crate::fields::Site;
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::origin::{Origin, note_transformed};
use crate::resources::Resources;
use crate::specs::Specs;

/// Runs the steps that the fields of a kustomization ask for.
pub(crate) fn run(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
    specs: &Specs,
    origin: Option<&Origin>,
    objects: &mut Resources,
) -> Result<(), Error> {
    for (field, step) in steps(site, kustomization, specs)? {
        step.run(loader, site, &field, objects)?;
        if let Some(origin) = origin {
            let note = origin.of_builtin(&site.file, step.kind(&field));
            // For kustomize, each image is a step of its own.
            for _ in 0..step.count() {
                let noted = note_transformed(&note, objects, &loader.budget);
                noted.map_err(|message| loader.fail(site, &field, message))?;
            }
        }
    }
    Ok(())
}

/// The steps of a kustomization in kustomize's order, each with the field that asks for it.
fn steps<'k>(site: &Site, k: &'k Kustomization, specs: &'k Specs) -> Result<Vec<(String, Step<'k>)>, Error> {
    let mut out: Vec<(String, Step<'k>)> = Vec::new();
    let mut add = |field: String, step| out.push((field, step));
    if !k.patches_strategic_merge.is_empty() {
        let entries = k.patches_strategic_merge.as_slice().into();
        add("patchesStrategicMerge".into(), Step::StrategicMerge(entries));
    }
    for (i, patch) in k.patches.iter().enumerate() {
        add(format!("patches[{i}]"), Step::Patch(Cow::Borrowed(patch)));
    }
    if !k.namespace.is_empty() {
        let namespace = Namespace {
            namespace: k.namespace.as_str().into(),
            fields: Cow::Borrowed(&specs.namespace),
            unset_only: false,
            subjects: Subjects::default(),
        };
        add("namespace".into(), Step::Namespace(namespace));
    }
    let affix = |text, fields: &'k Vec<_>| Affix { text: Cow::Borrowed(text), fields: fields.into() };
    if !k.name_prefix.is_empty() {
        add("namePrefix".into(), Step::Prefix(affix(k.name_prefix.as_str(), &specs.name_prefix)));
    }
    if !k.name_suffix.is_empty() {
        add("nameSuffix".into(), Step::Suffix(affix(k.name_suffix.as_str(), &specs.name_suffix)));
    }
    for (i, label) in k.labels.iter().enumerate() {
        let field = format!("labels[{i}]");
        let fields = label::fields(label, specs).map_err(|message| site.error(field.as_str(), message))?;
        add(field, Step::Pairs(label.pairs.as_slice().into(), fields.into()));
    }
    // Where there is an entry of labels, kustomize runs the transformer of commonLabels too: its notes show it.
    if !k.labels.is_empty() || !k.common_labels.is_empty() {
        let fields = specs.common_labels.as_slice().into();
        add("commonLabels".into(), Step::Pairs(k.common_labels.as_slice().into(), fields));
    }
    if !k.common_annotations.is_empty() {
        let fields = specs.annotations.as_slice().into();
        add("commonAnnotations".into(), Step::Pairs(k.common_annotations.as_slice().into(), fields));
    }
    for (i, patch) in k.patches_json6902.iter().enumerate() {
        add(format!("patchesJson6902[{i}]"), Step::JsonPatch(Cow::Borrowed(patch)));
    }
    for (i, replica) in k.replicas.iter().enumerate() {
        let fields = specs.replicas.as_slice().into();
        add(format!("replicas[{i}]"), Step::Replicas(Cow::Borrowed(replica), fields));
    }
    if !k.images.is_empty() {
        add("images".into(), Step::Images(k.images.as_slice().into(), specs.images.as_slice().into()));
    }
    if !k.replacements.is_empty() {
        add("replacements".into(), Step::Replacements(k.replacements.as_slice().into()));
    }
    Ok(out)
}
