//! The build as a job: what a worker process does with an artifact and a spec, and what goes over the pipe.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, BufReader, Read, Write as _};

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use roadstead_api::KustomizationSpec;
use roadstead_kustomize::{Limits, MemoryTree, Options, TreePath};
use roadstead_model::{Digest, Hasher, chain};
use roadstead_sources::{Entry, TreeLimits, unpack_from};
use roadstead_worker::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::inputs::Inputs;
use crate::delivery::placing;

/// The kind of this job.
pub(super) const KIND: &str = "build";
/// The question for the artifact's bytes.
pub(super) const ARTIFACT: &[u8] = b"artifact";
/// Steps of one build, so that a repository made to be slow does not hold a place for long: looking at 2 × 10⁸ pairs of
/// patch and object took 24 s in a release build. All of kustomize's public cases stay below half of it.
const MAX_WORK: u64 = 200_000_000;
/// Memory of one build in bytes, besides the source's tree and what is made of the objects afterwards.
const MAX_BUILD_MEMORY: usize = 200 << 20;
/// More than this is not a build that an agent takes.
pub(super) const MAX_BUILD_BYTES: usize = 64 << 20;
/// Bytes of a packed build: agents are sent no more.
const MAX_PACKED_BYTES: usize = 16 << 20;
/// Trees that were unpacked last: the Kustomizations of one source are built one after the other.
const CACHED_TREES: usize = 4;
const CACHED_TREE_BYTES: usize = 32 << 20;

/// What a worker is asked to build.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) artifact: Digest,
    pub(super) spec: KustomizationSpec,
    /// Objects of kinds that go to the hub and that stay in the cluster.
    pub(super) stays: BTreeSet<String>,
}

impl Order {
    pub(super) fn inputs(&self) -> Inputs {
        Inputs::of(&self.spec, self.artifact, self.stays.clone())
    }
}

/// What came of it: the head of an answer, before the bytes of which it tells the lengths.
#[derive(Serialize, Deserialize)]
enum Head {
    /// Why there is no build: for the Kustomization's condition.
    Refused(String),
    Built {
        digest: Digest,
        objects: usize,
        secret: bool,
        labels: usize,
        children: Option<usize>,
    },
}

/// A build, packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Built {
    /// The digest of the JSON that is packed.
    pub(super) digest: Digest,
    pub(super) objects: usize,
    /// Whether one of them is a Secret.
    pub(super) secret: bool,
    /// What is remembered of the objects' labels, as JSON.
    pub(super) labels: Bytes,
    /// What goes to the hub, as a JSON list; none where nothing does.
    pub(super) children: Option<Bytes>,
    /// What goes to the cluster: a JSON list, as gzip.
    pub(super) packed: Bytes,
}

/// What a worker keeps from one build to the next.
#[derive(Default)]
pub(crate) struct Builder {
    trees: VecDeque<(Digest, MemoryTree)>,
}

impl Builder {
    /// Does the job.
    pub(crate) fn job(&mut self, context: &mut Context, input: &[u8]) -> Vec<u8> {
        let built = serde_json::from_slice(input)
            .map_err(|error| format!("the build job cannot be parsed: {error}"))
            .and_then(|order| self.build(context, &order));
        encode(built)
    }

    fn build(&mut self, context: &mut Context, order: &Order) -> Result<Built, String> {
        let (artifact, inputs) = (order.artifact, order.inputs());
        if let Some(index) = self.trees.iter().position(|(held, _)| *held == artifact) {
            // The one that was used last goes last.
            if let Some(tree) = self.trees.remove(index) {
                self.trees.push_back(tree);
            }
            return self.trees.back().map_or_else(|| Err(String::new()), |(_, tree)| render(tree, &inputs));
        }
        // Room for this one first.
        while self.trees.len() >= CACHED_TREES {
            self.trees.pop_front();
        }
        let bytes = context.ask(ARTIFACT).map_err(|error| error.to_string())?;
        let (tree, size) = load(artifact, bytes)?;
        let built = render(&tree, &inputs);
        if size <= CACHED_TREE_BYTES {
            self.trees.push_back((artifact, tree));
        }
        built
    }
}

/// Reads an artifact as it comes.
fn load(artifact: Digest, bytes: impl Read) -> Result<(MemoryTree, usize), String> {
    let mut hashed = Hashed { inner: bytes, hasher: Hasher::default() };
    let tree = unpack_from(BufReader::with_capacity(64 << 10, &mut hashed), &TreeLimits::default());
    // Of one that is damaged, what is behind the damage belongs to what its digest names as well.
    io::copy(&mut hashed, &mut io::sink()).map_err(|error| error.to_string())?;
    if hashed.hasher.finish() != artifact {
        return Err(format!("artifact {artifact} does not have the content that its digest names"));
    }
    let tree = tree.map_err(|error| chain(&error))?;
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

struct Hashed<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
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
    let text = |error: serde_json::Error| error.to_string();
    let children = (!children.is_empty()).then(|| serde_json::to_vec(&children)).transpose().map_err(text)?;
    // Secret objects in a stored build are encrypted like the hub's own.
    let secret = build.objects.iter().any(|object| object.kind() == "Secret");
    let json = serde_json::to_vec(&objects).map_err(text)?;
    if json.len() > MAX_BUILD_BYTES {
        return Err(format!("the build has {} bytes, more than {MAX_BUILD_BYTES}", json.len()));
    }
    let mut packed = GzEncoder::new(Vec::with_capacity(json.len() / 4), Compression::fast());
    let packed = packed.write_all(&json).and_then(|()| packed.finish()).map_err(|error| error.to_string())?;
    if packed.len() > MAX_PACKED_BYTES {
        return Err(format!("the build has {} bytes compressed, more than {MAX_PACKED_BYTES}", packed.len()));
    }
    let labels: Vec<Value> = objects.iter().map(labels).collect();
    Ok(Built {
        digest: Digest::of(&json),
        objects: objects.len(),
        secret,
        labels: serde_json::to_vec(&labels).map_err(text)?.into(),
        children: children.map(Bytes::from),
        packed: packed.into(),
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

fn encode(built: Result<Built, String>) -> Vec<u8> {
    let (head, parts) = match built {
        Err(why) => (Head::Refused(why), [const { Bytes::new() }; 3]),
        Ok(Built { digest, objects, secret, labels, children, packed }) => {
            let sizes = (labels.len(), children.as_ref().map(Bytes::len));
            let head = Head::Built { digest, objects, secret, labels: sizes.0, children: sizes.1 };
            (head, [labels, children.unwrap_or_default(), packed])
        }
    };
    // Texts, numbers and flags: they always become JSON.
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let mut out = Vec::with_capacity(4 + head.len() + parts.iter().map(Bytes::len).sum::<usize>());
    out.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&head);
    for part in parts {
        out.extend_from_slice(&part);
    }
    out
}

/// Reads what a worker answered. It is untrusted: what it says of the build is compared with the build.
///
/// The outer error says that the answer is none; the inner one is for the Kustomization's condition.
pub(super) fn decode(mut rest: Bytes) -> Result<Result<Built, String>, &'static str> {
    let length = *rest.first_chunk::<4>().ok_or("it has no head")?;
    rest.advance(length.len());
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    let head = take(&mut rest, length).ok_or("its head is cut short")?;
    let head = serde_json::from_slice(&head).map_err(|_| "its head is not readable")?;
    let (digest, objects, secret, labels, children) = match head {
        Head::Refused(why) => return Ok(Err(why)),
        Head::Built { digest, objects, secret, labels, children } => {
            (digest, objects, secret, labels, children)
        }
    };
    let labels = take(&mut rest, labels).ok_or("it is cut short")?;
    let children = match children {
        Some(length) => Some(take(&mut rest, length).ok_or("it is cut short")?),
        None => None,
    };
    let packed = rest;
    if packed_digest(&packed) != Some(digest) {
        return Err("its build does not have the digest that it claims");
    }
    Ok(Ok(Built { digest, objects, secret, labels, children, packed }))
}

/// The next bytes, which stay where they are; none where there are not so many.
fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

/// The digest of what is packed, without keeping it; none where it is damaged or too large.
fn packed_digest(packed: &[u8]) -> Option<Digest> {
    let mut unpacked = flate2::bufread::GzDecoder::new(packed).take(MAX_BUILD_BYTES as u64 + 1);
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match unpacked.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hasher.update(&buffer[..count]),
            Err(_) => return None,
        }
    }
    let whole = unpacked.limit() > 0 && unpacked.into_inner().into_inner().is_empty();
    whole.then(|| hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built() -> Built {
        let json = br#"[{"kind":"ConfigMap"}]"#;
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(json).unwrap();
        Built {
            digest: Digest::of(json),
            objects: 1,
            secret: true,
            labels: Bytes::from_static(b"[{}]"),
            children: Some(Bytes::from_static(b"[1]")),
            packed: packed.finish().unwrap().into(),
        }
    }

    #[test]
    fn what_a_worker_answers_arrives() {
        let back = |built| decode(encode(built).into());
        assert_eq!(back(Ok(built())), Ok(Ok(built())));
        let without = || Built { children: None, labels: Bytes::new(), ..built() };
        assert_eq!(back(Ok(without())), Ok(Ok(without())));
        assert_eq!(back(Err("why".to_owned())), Ok(Err("why".to_owned())));
    }

    #[test]
    fn a_worker_is_not_believed() {
        let whole = Bytes::from(encode(Ok(built())));
        for length in 0..whole.len() {
            assert!(decode(whole.slice(..length)).is_err(), "cut at {length}");
        }
        // Another's digest, so that its build would be taken for this one.
        let forged = Built { digest: Digest::of(b"other"), ..built() };
        assert!(decode(encode(Ok(forged)).into()).is_err());
        let longer = Built { packed: [&built().packed[..], &[0]].concat().into(), ..built() };
        assert!(decode(encode(Ok(longer)).into()).is_err());
        // What unpacks to more than a build may have.
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(0).take(MAX_BUILD_BYTES as u64 + 1), &mut bomb).unwrap();
        let bomb = Built { packed: bomb.finish().unwrap().into(), ..built() };
        assert!(decode(encode(Ok(bomb)).into()).is_err());
    }
}
