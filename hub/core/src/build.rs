//! From an artifact to a build: unpack, build, store. Identical inputs are built once, however many ask.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flate2::{Compression, write::GzEncoder};
use roadstead_api::KustomizationSpec;
use roadstead_hub_store::{AtRest, CachedBuild};
use roadstead_kustomize::{Image, Limits, MemoryTree, Options, Overlay, Patch, Selector, TreePath};
use roadstead_model::{Digest, chain};
use roadstead_sources::{Entry, TreeLimits, unpack};
use serde_json::{Value, json};

use crate::{Hub, HubError, placing};

/// Part of every build's inputs: a change of the engine that changes results changes this.
const ENGINE: &str = concat!("roadstead-kustomize/", env!("CARGO_PKG_VERSION"), "/4");
/// Steps of one build, so that a repository made to be slow does not hold a place for long: looking at 2 × 10⁸ pairs of
/// patch and object took 24 s in a release build. All of kustomize's public cases stay below half of it.
const MAX_WORK: u64 = 200_000_000;
/// Memory of one build in bytes, besides the source's tree and what is made of the objects afterwards.
const MAX_BUILD_MEMORY: usize = 200 << 20;
/// More than this is no build that an agent takes.
const MAX_BUILD_BYTES: usize = 64 << 20;
/// Trees that were unpacked last: the Kustomizations of one source are built one after the other.
const CACHED_TREES: usize = 4;
const CACHED_TREE_BYTES: usize = 32 << 20;

/// Unpacked artifacts.
#[derive(Default)]
pub(crate) struct TreeCache(Mutex<Vec<(Digest, Arc<MemoryTree>)>>);

impl TreeCache {
    fn get(&self, digest: Digest) -> Option<Arc<MemoryTree>> {
        // The list is whole at any time: a panic elsewhere does not spoil it.
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|(held, _)| *held == digest).map(|(_, tree)| Arc::clone(tree))
    }

    fn put(&self, digest: Digest, tree: &Arc<MemoryTree>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|(held, _)| *held == digest) {
            return;
        }
        if held.len() >= CACHED_TREES {
            held.remove(0);
        }
        held.push((digest, Arc::clone(tree)));
    }
}

/// Builds that this replica is at, by their inputs: whoever asks for the same waits for the first, and finds it stored.
#[derive(Default)]
pub(crate) struct BuildsUnderWay(Mutex<HashMap<Digest, Weak<Turn>>>);

type Turn = tokio::sync::Mutex<()>;

impl BuildsUnderWay {
    fn of(&self, inputs: Digest) -> Arc<Turn> {
        // The map is whole at any time: a panic elsewhere does not spoil it.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = held.get(&inputs).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::default();
        held.insert(inputs, Arc::downgrade(&turn));
        turn
    }
}

/// What a build comes out of, besides the engine.
struct Inputs {
    artifact: Digest,
    path: String,
    overlay: Overlay,
    /// Objects of kinds that go to the hub and that stay in the cluster.
    stays: BTreeSet<String>,
}

impl Inputs {
    fn of(spec: &KustomizationSpec, artifact: Digest, stays: BTreeSet<String>) -> Self {
        Self { artifact, path: spec.path.clone().unwrap_or_default(), overlay: overlay(spec), stays }
    }

    fn digest(&self) -> Digest {
        // The overlay's debug form names every field and escapes every text: equal forms are equal overlays.
        let text =
            format!("{ENGINE}\n{}\n{:?}\n{:?}\n{:?}", self.artifact, self.path, self.overlay, self.stays);
        Digest::of(text.as_bytes())
    }
}

/// A build, packed.
struct Built {
    build: CachedBuild,
    packed: Vec<u8>,
    objects: usize,
    labels: Value,
    at_rest: AtRest,
}

impl Hub {
    /// The build of `artifact` for `spec`; the inner error is for the Kustomization's condition.
    pub(crate) async fn build(
        &self,
        spec: &KustomizationSpec,
        artifact: Digest,
        stays: BTreeSet<String>,
    ) -> Result<Result<CachedBuild, String>, HubError> {
        let inputs = Inputs::of(spec, artifact, stays);
        let inputs_digest = inputs.digest();
        if let Some(build) = self.store.cached_build(inputs_digest, self.now()).await? {
            return Ok(Ok(build));
        }
        let turn = self.under_way.of(inputs_digest);
        let _turn = match turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = turn.lock().await;
                // Another was at it, and it is stored, unless that failed.
                if let Some(build) = self.store.cached_build(inputs_digest, self.now()).await? {
                    return Ok(Ok(build));
                }
                turn
            }
        };
        let tree = match self.tree(artifact).await? {
            Ok(tree) => tree,
            Err(why) => return Ok(Err(why)),
        };
        let permit = self.builds.acquire().await;
        // Building is CPU work of unknown length: not on a thread that others wait for.
        let built = tokio::task::spawn_blocking(move || render(&tree, &inputs))
            .await
            .map_err(|error| HubError::Internal(format!("a build was cut short: {error}")))?;
        drop(permit);
        let built = match built {
            Ok(built) => built,
            Err(why) => return Ok(Err(why)),
        };
        let now = self.now();
        self.store.put_blob(built.build.digest, &built.packed, built.at_rest, now).await?;
        self.store.remember_labels(built.build.digest, &built.labels).await?;
        self.store.remember_build(inputs_digest, &built.build, built.objects, now).await?;
        Ok(Ok(built.build))
    }

    async fn tree(&self, artifact: Digest) -> Result<Result<Arc<MemoryTree>, String>, HubError> {
        if let Some(tree) = self.trees.get(artifact) {
            return Ok(Ok(tree));
        }
        let Some(bytes) = self.store.blob(artifact).await? else {
            return Ok(Err(format!(
                "artifact {artifact} is not stored any more; the source is to be fetched again"
            )));
        };
        let unpacked = tokio::task::spawn_blocking(move || load(artifact, &bytes))
            .await
            .map_err(|error| HubError::Internal(format!("an artifact's reading was cut short: {error}")))?;
        Ok(unpacked.map(|(tree, size)| {
            let tree = Arc::new(tree);
            if size <= CACHED_TREE_BYTES {
                self.trees.put(artifact, &tree);
            }
            tree
        }))
    }
}

fn load(artifact: Digest, bytes: &[u8]) -> Result<(MemoryTree, usize), String> {
    if Digest::of(bytes) != artifact {
        return Err(format!("artifact {artifact} does not have the content that its digest names"));
    }
    let tree = unpack(bytes, &TreeLimits::default()).map_err(|error| chain(&error))?;
    let mut memory = MemoryTree::new();
    let mut size = 0;
    for (path, entry) in tree {
        let Some(path) = TreePath::new(&path) else {
            return Err(format!("path '{path}' leaves the artifact"));
        };
        match entry {
            Entry::File { bytes, .. } => {
                size += bytes.len();
                memory.insert_file(path, bytes);
            }
            Entry::Symlink { target } => memory.insert_symlink(path, target),
        }
    }
    Ok((memory, size))
}

fn render(tree: &MemoryTree, inputs: &Inputs) -> Result<Built, String> {
    let path = TreePath::new(&inputs.path)
        .ok_or_else(|| format!("spec.path '{}' leaves the source's root", inputs.path))?;
    let mut options = Options { overlay: inputs.overlay.clone(), ..Options::default() };
    options.limits = Limits::within(MAX_BUILD_MEMORY);
    options.limits.work = MAX_WORK;
    let build = roadstead_kustomize::build(tree, &path, &options).map_err(|error| chain(&error))?;
    let objects = build.objects.iter().map(roadstead_kustomize::Object::to_json).collect();
    let (children, objects) = placing::split(objects, &inputs.stays);
    let children = (!children.is_empty()).then(|| serde_json::to_vec(&children));
    // Secret objects in a stored build are encrypted like the hub's own.
    let secret = build.objects.iter().any(|object| object.kind() == "Secret");
    let json = serde_json::to_vec(&objects).map_err(|error| error.to_string())?;
    if json.len() > MAX_BUILD_BYTES {
        return Err(format!("the build has {} bytes, more than {MAX_BUILD_BYTES}", json.len()));
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(json.len() / 4), Compression::fast());
    let packed = packed.write_all(&json).and_then(|()| packed.finish()).map_err(|error| error.to_string())?;
    Ok(Built {
        build: CachedBuild {
            digest: Digest::of(&json),
            children: children.transpose().map_err(|error| error.to_string())?,
        },
        packed,
        objects: objects.len(),
        labels: objects.iter().map(labels).collect(),
        at_rest: if secret { AtRest::Sealed } else { AtRest::Plain },
    })
}

/// What is remembered of an object, so that it can be looked for by its labels.
fn labels(object: &Value) -> Value {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let mut found = json!({
        "g": group, "k": text("/kind"), "ns": text("/metadata/namespace"), "n": text("/metadata/name"),
    });
    if let Some(labels) = object.pointer("/metadata/labels").and_then(Value::as_object) {
        let texts = labels.iter().filter(|(_, value)| value.is_string());
        found["l"] = texts.map(|(key, value)| (key.clone(), value.clone())).collect();
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_inputs_share_a_turn_while_one_is_at_it() {
        let under_way = BuildsUnderWay::default();
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let first = under_way.of(one);
        assert!(Arc::ptr_eq(&first, &under_way.of(one)));
        assert!(!Arc::ptr_eq(&first, &under_way.of(other)));
        let held = first.try_lock().expect("nobody has it");
        assert!(under_way.of(one).try_lock().is_err());
        drop(held);
        drop(first);
        assert!(under_way.of(one).try_lock().is_ok());
        // What nobody is at is forgotten.
        under_way.of(other);
        assert_eq!(under_way.0.lock().expect("no panic").len(), 1);
    }
}
