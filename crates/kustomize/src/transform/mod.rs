//! What a kustomization changes in its objects, in kustomize's order.

mod image;
mod json6902;
mod label;
mod merge;
mod name;
mod patch;
mod replica;
mod select;
mod step;

pub(crate) mod finish;
pub(crate) mod reference;

pub use select::LabelSelector;
pub(crate) use step::{Affix, Namespace, Step, Subjects};

use std::borrow::Cow;

use crate::error::Error;
use crate::fields::Site;
use crate::kustomization::Kustomization;
use crate::load::Loader;
use crate::resources::Resources;
use crate::specs::SPECS;

/// Runs the steps that the fields of a kustomization ask for.
pub(crate) fn run(
    loader: &Loader<'_>,
    site: &Site,
    kustomization: &Kustomization,
    objects: &mut Resources,
) -> Result<(), Error> {
    for (i, patch) in kustomization.patches_json6902.iter().enumerate() {
        if patch.target.is_none() {
            return Err(site.error(format!("patchesJson6902[{i}]"), "target is missing"));
        }
    }
    for (field, step) in steps(kustomization) {
        step.run(loader, site, &field, objects)?;
    }
    Ok(())
}

/// The steps of a kustomization in kustomize's order, each with the field that asks for it.
fn steps(k: &Kustomization) -> Vec<(String, Step<'_>)> {
    let mut out: Vec<(String, Step<'_>)> = Vec::new();
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
            fields: Cow::Borrowed(&SPECS.namespace),
            unset_only: false,
            subjects: Subjects::default(),
        };
        add("namespace".into(), Step::Namespace(namespace));
    }
    let affix = |text| Affix { text: Cow::Borrowed(text), fields: Cow::Borrowed(&SPECS.names) };
    if !k.name_prefix.is_empty() {
        add("namePrefix".into(), Step::Prefix(affix(k.name_prefix.as_str())));
    }
    if !k.name_suffix.is_empty() {
        add("nameSuffix".into(), Step::Suffix(affix(k.name_suffix.as_str())));
    }
    for (i, label) in k.labels.iter().enumerate() {
        add(format!("labels[{i}]"), Step::Pairs(label.pairs.as_slice().into(), label::fields(label).into()));
    }
    for (field, pairs, specs) in [
        ("commonLabels", &k.common_labels, &SPECS.common_labels),
        ("commonAnnotations", &k.common_annotations, &SPECS.annotations),
    ] {
        add(field.into(), Step::Pairs(pairs.as_slice().into(), specs.as_slice().into()));
    }
    for (i, patch) in k.patches_json6902.iter().enumerate() {
        add(format!("patchesJson6902[{i}]"), Step::JsonPatch(Cow::Borrowed(patch)));
    }
    for (i, replica) in k.replicas.iter().enumerate() {
        let specs = SPECS.replicas.as_slice().into();
        add(format!("replicas[{i}]"), Step::Replicas(Cow::Borrowed(replica), specs));
    }
    for (i, image) in k.images.iter().enumerate() {
        add(format!("images[{i}]"), Step::Image(Cow::Borrowed(image), SPECS.images.as_slice().into()));
    }
    out
}
