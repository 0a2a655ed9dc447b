//! The edits that a Flux Kustomization lays over the kustomization that it builds.

use crate::kustomization::{Image, Kustomization, Patch};
use crate::resource::metadata;
use crate::resources::Resources;
use crate::tree::{self, FileTree, TreePath};
use crate::value::Value;

/// Edits of the root kustomization of a build. Empty parts change nothing.
///
/// ```
/// use roadstead_kustomize::{MemoryTree, Options, Overlay, TreePath, build};
///
/// let mut tree = MemoryTree::new();
/// let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
/// tree.insert_file(TreePath::new("pod.yaml").ok_or("no path")?, pod);
/// let overlay = Overlay { namespace: "tenant".into(), ..Overlay::default() };
/// let build = build(&tree, &TreePath::root(), &Options { overlay, ..Options::default() })?;
/// assert_eq!(build.objects[0].namespace(), "tenant");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// `targetNamespace`: replaces the namespace of the kustomization.
    pub namespace: String,
    /// Replaces the name prefix of the kustomization.
    pub name_prefix: String,
    /// Replaces the name suffix of the kustomization.
    pub name_suffix: String,
    /// Patches after those of the kustomization.
    pub patches: Vec<Patch>,
    /// Images; one with the name of an image of the kustomization takes its place.
    pub images: Vec<Image>,
    /// Components after those of the kustomization.
    pub components: Vec<String>,
    /// `ignoreMissingComponents`: components of the overlay that the tree does not have are passed over.
    pub ignore_missing_components: bool,
    /// Words of `buildMetadata`, besides those of the kustomization.
    pub build_metadata: Vec<String>,
    /// `commonMetadata.labels`: set in the metadata of every object, after the build.
    pub labels: Vec<(String, String)>,
    /// `commonMetadata.annotations`: set in the metadata of every object, after the build.
    pub annotations: Vec<(String, String)>,
}

impl Overlay {
    /// Edits the kustomization in `dir` of `tree`.
    pub(crate) fn lay_over(&self, tree: &dyn FileTree, dir: &TreePath, kustomization: &mut Kustomization) {
        let texts = [
            (&mut kustomization.namespace, &self.namespace),
            (&mut kustomization.name_prefix, &self.name_prefix),
            (&mut kustomization.name_suffix, &self.name_suffix),
        ];
        for (field, text) in texts {
            if !text.is_empty() {
                field.clone_from(text);
            }
        }
        kustomization.patches.extend_from_slice(&self.patches);
        let there = |path: &&String| match dir.join(path) {
            // What leaves the tree is not a component that is missing: it stays, and is refused.
            Some(path) if self.ignore_missing_components => tree::resolve(tree, &path).is_ok(),
            _ => true,
        };
        kustomization.components.extend(self.components.iter().filter(there).cloned());
        kustomization.build_metadata.add(&self.build_metadata);
        for image in &self.images {
            match kustomization.images.iter_mut().find(|known| known.name == image.name) {
                Some(known) => known.clone_from(image),
                None => kustomization.images.push(image.clone()),
            }
        }
    }

    /// Sets the common labels and annotations.
    pub(crate) fn mark(&self, objects: &mut Resources) {
        for (field, pairs) in [("labels", &self.labels), ("annotations", &self.annotations)] {
            if pairs.is_empty() {
                continue;
            }
            for resource in objects.iter_mut() {
                resource.edit(|object| {
                    let map = metadata(object).get_or_insert_map(field);
                    for (key, value) in pairs {
                        map.insert(key.as_str(), Value::string(value.as_str()));
                    }
                });
            }
        }
    }
}
