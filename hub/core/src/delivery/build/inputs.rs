//! What a build comes out of, and its address.

use std::collections::BTreeSet;

use roadstead_api::KustomizationSpec;
use roadstead_kustomize::{Image, Overlay, Patch, Selector};
use roadstead_model::Digest;

/// Part of every build's inputs: a change of the engine that changes results changes this.
const ENGINE: &str = concat!("roadstead-kustomize/", env!("CARGO_PKG_VERSION"), "/8");

/// What a build comes out of, besides the engine.
pub(super) struct Inputs {
    pub(super) artifact: Digest,
    pub(super) path: String,
    pub(super) overlay: Overlay,
    /// Objects of kinds that go to the hub and that stay in the cluster.
    pub(super) stays: BTreeSet<String>,
}

impl Inputs {
    pub(super) fn of(spec: &KustomizationSpec, artifact: Digest, stays: BTreeSet<String>) -> Self {
        Self { artifact, path: spec.path.clone().unwrap_or_default(), overlay: overlay(spec), stays }
    }

    pub(super) fn digest(&self) -> Digest {
        // The overlay's debug form names every field and escapes every text: equal forms are equal overlays.
        let text =
            format!("{ENGINE}\n{}\n{:?}\n{:?}\n{:?}", self.artifact, self.path, self.overlay, self.stays);
        Digest::of(text.as_bytes())
    }
}

/// The parts of a Flux Kustomization that edit the kustomization at its path.
fn overlay(spec: &KustomizationSpec) -> Overlay {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let selector = |target: &roadstead_api::kustomization::Selector| Selector {
        group: text(&target.group),
        version: text(&target.version),
        kind: text(&target.kind),
        name: text(&target.name),
        namespace: text(&target.namespace),
        label_selector: text(&target.label_selector),
        annotation_selector: text(&target.annotation_selector),
    };
    let metadata = spec.common_metadata.clone().unwrap_or_default();
    Overlay {
        namespace: text(&spec.target_namespace),
        name_prefix: text(&spec.name_prefix),
        name_suffix: text(&spec.name_suffix),
        patches: spec
            .patches
            .iter()
            .map(|patch| Patch {
                patch: Some(patch.patch.clone()),
                target: patch.target.as_ref().map(selector),
                ..Patch::default()
            })
            .collect(),
        images: spec
            .images
            .iter()
            .map(|image| Image {
                name: image.name.clone(),
                new_name: text(&image.new_name),
                new_tag: text(&image.new_tag),
                digest: text(&image.digest),
                ..Image::default()
            })
            .collect(),
        components: spec.components.clone(),
        ignore_missing_components: spec.ignore_missing_components,
        build_metadata: spec.build_metadata.iter().map(|word| word.as_str().to_owned()).collect(),
        labels: metadata.labels.into_iter().collect(),
        annotations: metadata.annotations.into_iter().collect(),
    }
}
