//! The render as a job: what a worker process does with artifacts and a recipe, and what goes over the pipe.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, BufReader, Read, Write as _};
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use roadstead_api::KindId;
use roadstead_finish::first_warnings;
use roadstead_kustomize::{Fetched, FileTree, MemoryTree, Recorder, RemoteUrl, TreePath};
use roadstead_model::{Digest, Hasher, chain};
use roadstead_sources::{Entry, TreeLimits, unpack_from};
use roadstead_worker::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::reads::{self, WhatWasRead};
use crate::delivery::applier::{Given, GivenRemote, Inputs, MAX_NEEDS, Need, Objects, Render, applier};
use crate::delivery::decryption::{MAX_WRAPPED_BYTES, wrapped_keys};
use crate::delivery::placing;

/// The kind of this job.
pub(super) const KIND: &str = "render";
/// Before an artifact's digest: the question for its bytes.
pub(crate) const ARTIFACT: &[u8] = b"artifact ";
/// More than this is not a render that an agent takes: bytes of all groups, as JSON.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Bytes of a packed group: agents are sent no more.
pub(super) const MAX_PACKED_BYTES: usize = 16 << 20;
/// What an answer begins with: the sizes of what follows, a reason, or what else is needed.
const MAX_HEAD_BYTES: usize = 4 << 20;
/// What a file is called that was fetched by itself.
const SINGLE_FILE: &str = "resource.yaml";
/// Groups of a render. Agents take no more.
const MAX_GROUPS: usize = 64;
/// Trees that were unpacked last: the appliers of one source are rendered one after the other.
const CACHED_TREES: usize = 4;
const CACHED_TREE_BYTES: usize = 32 << 20;

/// What a worker is asked to render.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The kind of the applier.
    pub(crate) kind: KindId,
    /// What it renders by.
    pub(crate) recipe: Value,
    /// The artifacts of its sources.
    pub(crate) artifacts: Vec<Digest>,
    /// Objects of kinds that go to the hub and that stay in the cluster.
    pub(crate) stays: BTreeSet<String>,
    /// What it asked for in the rounds before.
    pub(crate) given: Vec<Given>,
    /// Where what comes of it is sealed: what its digests depend on besides, so that nobody can tell by them what it holds.
    pub(crate) salt: Option<String>,
}

impl Order {
    /// The artifacts and files that its worker may ask for.
    pub(super) fn blobs(&self) -> Vec<Digest> {
        let remotes = self.given.iter().filter_map(|given| Some(given.remote()?.1.digest));
        self.artifacts.iter().copied().chain(remotes).collect()
    }

    /// The key of what comes of it: a digest of all that it depends on.
    pub(in super::super) fn key(&self) -> Result<Digest, serde_json::Error> {
        self.key_of(Some(&self.artifacts))
    }

    /// A digest of all that it depends on besides its artifacts.
    pub(super) fn recipe_key(&self) -> Result<Digest, serde_json::Error> {
        self.key_of(None)
    }

    fn key_of(&self, artifacts: Option<&[Digest]>) -> Result<Digest, serde_json::Error> {
        #[derive(Serialize)]
        struct Key<'a> {
            engine: &'static str,
            kind: KindId,
            recipe: &'a Value,
            artifacts: Option<&'a [Digest]>,
            stays: &'a BTreeSet<String>,
            given: Vec<(&'a Need, &'a str)>,
        }
        // The salt follows from the rest.
        let Self { kind, recipe, artifacts: _, stays, given, salt: _ } = self;
        let engine = applier(*kind).map_or("", |applier| applier.engine());
        let given = given.iter().map(|given| (&given.need, given.identity.as_str())).collect();
        serde_json::to_vec(&Key { engine, kind: *kind, recipe, artifacts, stays, given })
            .map(|encoded| Digest::of(&encoded))
    }
}

/// What came of it: the head of an answer, before the bytes of which it tells the lengths.
#[derive(Serialize, Deserialize)]
enum Head {
    /// Why nothing is rendered: for the object's condition.
    Refused(String),
    /// The same, where the source does not have what is to be rendered.
    NotInSource(String),
    Needs(Vec<Need>),
    Rendered {
        groups: Vec<GroupHead>,
        children: Option<usize>,
        reads: Option<ReadsHead>,
        #[serde(default)]
        warnings: Vec<String>,
    },
}

#[derive(Serialize, Deserialize)]
struct ReadsHead {
    answers: Digest,
    packed: usize,
}

#[derive(Serialize, Deserialize)]
struct GroupHead {
    label: String,
    digest: Digest,
    objects: usize,
    secret: bool,
    labels: usize,
    packed: usize,
    #[serde(default)]
    wrapped_keys: Option<usize>,
}

/// What a worker made of an order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It needs these for it.
    Needs(Vec<Need>),
    /// It is done.
    Rendered(Rendered),
    /// The source does not have what is to be rendered; why.
    NotInSource(String),
}

/// A render, packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rendered {
    /// What goes to the cluster; one at least.
    pub(super) groups: Vec<Packed>,
    /// What goes to the hub, as a JSON list; none where nothing does.
    pub(super) children: Option<Bytes>,
    /// What it read of its artifacts; none where that is not known, or not to be.
    pub(super) reads: Option<WhatWasRead>,
    /// What of its inputs somebody should look at.
    pub(super) warnings: Vec<String>,
}

/// A group, packed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Its name, for people.
    pub(super) label: String,
    /// The digest of the JSON that is packed.
    pub(super) digest: Digest,
    pub(super) objects: usize,
    /// Whether one of them is a Secret, or may hold what a Secret said.
    pub(super) secret: bool,
    /// What is remembered of the objects' labels, as JSON.
    pub(super) labels: Bytes,
    /// A JSON list, as gzip.
    pub(super) packed: Bytes,
    /// What the data keys of encrypted objects are wrapped as; none where none is encrypted.
    pub(super) wrapped_keys: Option<Bytes>,
}

/// What a worker keeps from one render to the next.
#[derive(Default)]
pub(crate) struct Builder {
    trees: VecDeque<(Digest, Arc<MemoryTree>)>,
}

impl Builder {
    /// Does the job.
    pub(crate) fn job(&mut self, context: &mut Context, input: &[u8]) -> Vec<u8> {
        let made = serde_json::from_slice(input)
            .map_err(|error| format!("the render job cannot be parsed: {error}"))
            .and_then(|order| self.render(context, &order));
        encode(made)
    }

    fn render(&mut self, context: &mut Context, order: &Order) -> Result<Made, String> {
        let trees = order.artifacts.iter().map(|artifact| self.tree(context, *artifact));
        let kept = trees.collect::<Result<Vec<_>, _>>()?;
        let recorders: Vec<Recorder<'_>> = kept.iter().map(|tree| Recorder::new(tree)).collect();
        let trees: Vec<&dyn FileTree> = recorders.iter().map(|tree| tree as &dyn FileTree).collect();
        let applier = applier(order.kind).ok_or_else(|| format!("a {} deploys nothing", order.kind))?;
        let remotes = self.remotes(context, &order.given)?;
        let inputs = Inputs { trees: &trees, given: &order.given, remotes: &remotes };
        match applier.render(&order.recipe, &inputs)? {
            Render::Needs(needs) => Ok(Made::Needs(needs)),
            Render::NotInSource(why) => Ok(Made::NotInSource(why)),
            Render::Rendered { groups, warnings } => {
                let secret = order.given.iter().any(Given::is_secret);
                let rendered = pack(groups, &order.stays, secret, order.salt.as_deref())?;
                drop(trees);
                // What is sealed is not stored, and what it was read from not either.
                let reads = if order.salt.is_none() { reads::pack(recorders, &kept) } else { None };
                let warnings = first_warnings(warnings);
                Ok(Made::Rendered(Rendered { reads, warnings, ..rendered }))
            }
        }
    }

    /// What URLs led to.
    fn remotes(
        &mut self,
        context: &mut Context,
        given: &[Given],
    ) -> Result<BTreeMap<String, Fetched>, String> {
        let mut remotes = BTreeMap::new();
        // Directories of one repository share its tree.
        let mut trees: BTreeMap<Digest, Arc<dyn FileTree>> = BTreeMap::new();
        for (url, GivenRemote { digest, is_file, bytes: _ }) in given.iter().filter_map(Given::remote) {
            let tree = match trees.get(&digest) {
                Some(tree) => Arc::clone(tree),
                None if is_file => single_file(context, digest)?,
                None => self.tree(context, digest)?,
            };
            trees.insert(digest, Arc::clone(&tree));
            let of_repository = || RemoteUrl::parse(url)?.repository.map(|repository| repository.path);
            let path = if is_file { TreePath::new(SINGLE_FILE) } else { of_repository() };
            let path = path.ok_or_else(|| "a remote resource is given that cannot be one".to_owned())?;
            remotes.insert(url.to_owned(), Fetched { tree, path });
        }
        Ok(remotes)
    }

    /// What is at which path of an artifact; the job of [`reads::INDEX_JOB`].
    pub(crate) fn index_job(&mut self, context: &mut Context, input: &[u8]) -> Vec<u8> {
        let artifact = <[u8; 32]>::try_from(input).map(Digest::from_bytes);
        let tree = artifact
            .map_err(|_| "the job names no artifact".to_owned())
            .and_then(|artifact| self.tree(context, artifact));
        // None of it is known then, and it is built.
        tree.map(|tree| reads::encode_index(&tree)).unwrap_or_default()
    }

    /// The tree of an artifact: one that was kept, or of bytes that are asked for.
    fn tree(&mut self, context: &mut Context, artifact: Digest) -> Result<Arc<MemoryTree>, String> {
        if let Some(index) = self.trees.iter().position(|(held, _)| *held == artifact)
            && let Some(kept) = self.trees.remove(index)
        {
            // The one that was used last goes last.
            let tree = Arc::clone(&kept.1);
            self.trees.push_back(kept);
            return Ok(tree);
        }
        // Room for this one first.
        while self.trees.len() >= CACHED_TREES {
            self.trees.pop_front();
        }
        let bytes =
            context.ask(&[ARTIFACT, artifact.as_bytes()].concat()).map_err(|error| error.to_string())?;
        let (tree, size) = load(artifact, bytes)?;
        let tree = Arc::new(tree);
        if size <= CACHED_TREE_BYTES {
            self.trees.push_back((artifact, Arc::clone(&tree)));
        }
        Ok(tree)
    }
}

/// A file that was fetched by itself.
fn single_file(context: &mut Context, digest: Digest) -> Result<Arc<dyn FileTree>, String> {
    let mut bytes = Vec::new();
    let question = [ARTIFACT, digest.as_bytes()].concat();
    let answer = context.ask(&question).map_err(|error| error.to_string())?;
    // The hub takes none that is larger.
    answer.take(MAX_BYTES as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if Digest::of(&bytes) != digest {
        return Err(format!("file {digest} does not have the content that its digest names"));
    }
    let mut tree = MemoryTree::new();
    tree.insert_file(TreePath::new(SINGLE_FILE).unwrap_or_default(), bytes);
    Ok(Arc::new(tree))
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

/// Separates what goes to the hub from the groups, and packs both. `secret` where the groups may hold what a Secret said.
fn pack(
    groups: Vec<Objects>,
    stays: &BTreeSet<String>,
    secret: bool,
    salt: Option<&str>,
) -> Result<Rendered, String> {
    if groups.is_empty() || groups.len() > MAX_GROUPS {
        let count = groups.len();
        return Err(format!("the render has {count} groups: between one and {MAX_GROUPS} are applied"));
    }
    let (mut packed, mut children, mut left) = (Vec::with_capacity(groups.len()), Vec::new(), MAX_BYTES);
    for Objects { label, objects } in groups {
        let (of_hub, objects) = placing::split(objects, stays);
        children.extend(of_hub);
        packed.push(pack_group(label, &objects, secret, salt, &mut left)?);
    }
    let text = |error: serde_json::Error| error.to_string();
    let children = (!children.is_empty()).then(|| serde_json::to_vec(&children)).transpose().map_err(text)?;
    Ok(Rendered { groups: packed, children: children.map(Bytes::from), reads: None, warnings: Vec::new() })
}

/// Packs a group, for which `left` bytes are left.
fn pack_group(
    label: String,
    objects: &[Value],
    secret: bool,
    salt: Option<&str>,
    left: &mut usize,
) -> Result<Packed, String> {
    let text = |error: serde_json::Error| error.to_string();
    // Secret objects in a stored build are encrypted like the hub's own.
    let secret = secret || objects.iter().any(|object| object["kind"] == "Secret");
    let mut json = serde_json::to_vec(&objects).map_err(text)?;
    json.extend(salt.into_iter().flat_map(white_space));
    *left =
        left.checked_sub(json.len()).ok_or_else(|| format!("the build has more than {MAX_BYTES} bytes"))?;
    let mut packed = GzEncoder::new(Vec::with_capacity(json.len() / 4), Compression::fast());
    let packed = packed.write_all(&json).and_then(|()| packed.finish()).map_err(|error| error.to_string())?;
    if packed.len() > MAX_PACKED_BYTES {
        return Err(format!("the build has {} bytes compressed, more than {MAX_PACKED_BYTES}", packed.len()));
    }
    let mut labels: Vec<Value> = objects.iter().map(labels).collect();
    if salt.is_some() {
        // A decrypted patch may have set them.
        for labels in labels.iter_mut().filter_map(Value::as_object_mut) {
            labels.remove("l");
        }
    }
    let wrapped_keys = wrapped_keys(objects)?.map(Bytes::from);
    Ok(Packed {
        label,
        digest: Digest::of(&json),
        objects: objects.len(),
        secret,
        labels: serde_json::to_vec(&labels).map_err(text)?.into(),
        packed: packed.into(),
        wrapped_keys,
    })
}

/// A text in white space, which JSON may end in: it changes the digest of what it stands behind, and nothing else.
fn white_space(salt: &str) -> impl Iterator<Item = u8> {
    let bits = salt.bytes().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1));
    bits.map(|bit| if bit == 0 { b' ' } else { b'\t' })
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

fn encode(made: Result<Made, String>) -> Vec<u8> {
    let mut parts = Vec::new();
    let head = match made {
        Err(why) => Head::Refused(why),
        Ok(Made::NotInSource(why)) => Head::NotInSource(why),
        Ok(Made::Needs(needs)) => Head::Needs(needs),
        Ok(Made::Rendered(Rendered { groups, children, reads, warnings })) => {
            let sized = children.as_ref().map(Bytes::len);
            let groups = groups.into_iter().map(|group| {
                let Packed { label, digest, objects, secret, labels, packed, wrapped_keys } = group;
                let sizes = (labels.len(), packed.len(), wrapped_keys.as_ref().map(Bytes::len));
                parts.extend([labels, packed]);
                parts.extend(wrapped_keys);
                let (labels, packed, wrapped_keys) = sizes;
                GroupHead { label, digest, objects, secret, labels, packed, wrapped_keys }
            });
            let groups = groups.collect();
            parts.extend(children);
            let read = reads.map(|WhatWasRead { answers, packed }| {
                let head = ReadsHead { answers, packed: packed.len() };
                parts.push(packed);
                head
            });
            Head::Rendered { groups, children: sized, reads: read, warnings }
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

/// Reads what a worker answered. It is untrusted: what it says of each group is compared with the group.
///
/// The outer error says that the answer is none; the inner one is for the object's condition.
pub(super) fn decode(mut rest: Bytes) -> Result<Result<Made, String>, &'static str> {
    const SHORT: &str = "it is cut short";
    let length = *rest.first_chunk::<4>().ok_or("it has no head")?;
    rest.advance(length.len());
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_HEAD_BYTES {
        return Err("its head is too long");
    }
    let head = take(&mut rest, length).ok_or("its head is cut short")?;
    let head = serde_json::from_slice(&head).map_err(|_| "its head is not readable")?;
    let (heads, children, reads, warnings) = match head {
        Head::Refused(why) => return Ok(Err(why)),
        Head::NotInSource(why) => return Ok(Ok(Made::NotInSource(why))),
        Head::Needs(needs) if needs.is_empty() || needs.len() > MAX_NEEDS => {
            return Err("it asks for nothing, or for too much");
        }
        Head::Needs(needs) => return Ok(Ok(Made::Needs(needs))),
        Head::Rendered { groups, children, reads, warnings } => (groups, children, reads, warnings),
    };
    if heads.is_empty() || heads.len() > MAX_GROUPS {
        return Err("it has no groups, or too many");
    }
    let (mut groups, mut left) = (Vec::with_capacity(heads.len()), MAX_BYTES);
    for GroupHead { label, digest, objects, secret, labels, packed, wrapped_keys } in heads {
        let labels = take(&mut rest, labels).ok_or(SHORT)?;
        let packed = take(&mut rest, packed).ok_or(SHORT)?;
        let wrapped_keys = match wrapped_keys {
            Some(length) if length > MAX_WRAPPED_BYTES => {
                return Err("a group of it has too many wrapped keys");
            }
            Some(length) => Some(take(&mut rest, length).ok_or(SHORT)?),
            None => None,
        };
        let (found, bytes) = packed_digest(&packed, left).ok_or("a group of it is damaged or too large")?;
        if found != digest {
            return Err("a group of it does not have the digest that it claims");
        }
        left -= bytes;
        groups.push(Packed { label, digest, objects, secret, labels, packed, wrapped_keys });
    }
    let children = match children {
        Some(length) => Some(take(&mut rest, length).ok_or(SHORT)?),
        None => None,
    };
    let reads = match reads {
        Some(ReadsHead { packed, .. }) if packed > reads::MAX_PACKED_BYTES => {
            return Err("what it read is too much");
        }
        Some(ReadsHead { answers, packed }) => {
            Some(WhatWasRead { answers, packed: take(&mut rest, packed).ok_or(SHORT)? })
        }
        None => None,
    };
    if !rest.is_empty() {
        return Err("it goes on behind its end");
    }
    let warnings = first_warnings(warnings);
    Ok(Ok(Made::Rendered(Rendered { groups, children, reads, warnings })))
}

/// The next bytes, which stay where they are; none where there are not so many.
fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

/// The digest of what is packed, and its bytes, without keeping it; none where it is damaged or has more than `most`.
fn packed_digest(packed: &[u8], most: usize) -> Option<(Digest, usize)> {
    let mut unpacked = flate2::bufread::GzDecoder::new(packed).take(most as u64 + 1);
    let mut hasher = Hasher::default();
    let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match unpacked.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
                bytes += count;
            }
            Err(_) => return None,
        }
    }
    let whole = unpacked.limit() > 0 && unpacked.into_inner().into_inner().is_empty();
    whole.then(|| (hasher.finish(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gzip(bytes: &[u8]) -> Bytes {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap().into()
    }

    fn group(json: &[u8]) -> Packed {
        Packed {
            label: "first".to_owned(),
            digest: Digest::of(json),
            objects: 1,
            secret: true,
            labels: Bytes::from_static(b"[{}]"),
            packed: gzip(json),
            wrapped_keys: (json.len() > 2).then(|| Bytes::from_static(b"[]")),
        }
    }

    fn rendered() -> Rendered {
        let groups = vec![group(br#"[{"kind":"ConfigMap"}]"#), group(b"[]")];
        let reads = WhatWasRead { answers: Digest::of(b"answers"), packed: Bytes::from_static(b"reads") };
        Rendered {
            groups,
            children: Some(Bytes::from_static(b"[1]")),
            reads: Some(reads),
            warnings: vec!["look".to_owned()],
        }
    }

    fn back(made: Result<Made, String>) -> Result<Result<Made, String>, &'static str> {
        decode(encode(made).into())
    }

    #[test]
    fn what_a_worker_answers_arrives() {
        assert_eq!(back(Ok(Made::Rendered(rendered()))), Ok(Ok(Made::Rendered(rendered()))));
        let without = || Made::Rendered(Rendered { children: None, reads: None, ..rendered() });
        assert_eq!(back(Ok(without())), Ok(Ok(without())));
        assert_eq!(back(Err("why".to_owned())), Ok(Err("why".to_owned())));
        let nowhere = || Made::NotInSource("not there".to_owned());
        assert_eq!(back(Ok(nowhere())), Ok(Ok(nowhere())));
        let needs = || Made::Needs(vec![Need::Object { kind: KindId::Secret, name: "a".to_owned() }]);
        assert_eq!(back(Ok(needs())), Ok(Ok(needs())));
    }

    #[test]
    fn a_worker_is_not_believed() {
        let whole = Bytes::from(encode(Ok(Made::Rendered(rendered()))));
        for length in 0..whole.len() {
            assert!(decode(whole.slice(..length)).is_err(), "cut at {length}");
        }
        assert!(decode([&whole[..], &[0]].concat().into()).is_err());
        let with = |spoil: fn(&mut Rendered)| {
            let mut rendered = rendered();
            spoil(&mut rendered);
            back(Ok(Made::Rendered(rendered)))
        };
        // Another's digest, so that its build would be taken for this one.
        assert!(with(|rendered| rendered.groups[0].digest = Digest::of(b"other")).is_err());
        assert!(
            with(|rendered| rendered.groups[1].packed = [&gzip(b"[]")[..], &[0]].concat().into()).is_err()
        );
        assert!(with(|rendered| rendered.groups.clear()).is_err());
        // What unpacks to more than a build may have.
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        io::copy(&mut io::repeat(0).take(MAX_BYTES as u64 + 1), &mut bomb).unwrap();
        let bomb = Bytes::from(bomb.finish().unwrap());
        let groups = vec![Packed { packed: bomb, ..group(b"[]") }];
        let rendered = Rendered { groups, children: None, reads: None, warnings: Vec::new() };
        assert!(back(Ok(Made::Rendered(rendered))).is_err());
        // One that asks for nothing would be asked again and again.
        assert!(back(Ok(Made::Needs(Vec::new()))).is_err());
        let much = vec![Need::Object { kind: KindId::Secret, name: "a".to_owned() }; MAX_NEEDS + 1];
        assert!(back(Ok(Made::Needs(much))).is_err());
    }

    #[test]
    fn the_key_is_of_what_a_render_depends_on() {
        let order = || Order {
            kind: KindId::Kustomization,
            recipe: json!({ "path": "a" }),
            artifacts: vec![Digest::of(b"artifact")],
            stays: BTreeSet::new(),
            given: Vec::new(),
            salt: None,
        };
        let key = |spoil: fn(&mut Order)| {
            let mut order = order();
            spoil(&mut order);
            order.key().unwrap()
        };
        let given = |found: &str, identity: &str| Given {
            need: Need::Object { kind: KindId::Secret, name: "a".to_owned() },
            found: Some(json!(found)),
            identity: identity.to_owned(),
        };
        let same = order().key().unwrap();
        assert_eq!(key(|_| ()), same);
        assert_ne!(key(|order| order.recipe = json!({ "path": "b" })), same);
        assert_ne!(key(|order| order.artifacts[0] = Digest::of(b"other")), same);
        assert_ne!(key(|order| order.stays = ["a".to_owned()].into()), same);
        let of = |given| Order { given: vec![given], ..order() }.key().unwrap();
        assert_ne!(of(given("x", "1")), of(given("x", "2")));
        // Without the artifacts it is the same for all of them, and for nothing else.
        let recipe = |order: Order| order.recipe_key().unwrap();
        let other = || Order { artifacts: vec![Digest::of(b"other")], ..order() };
        assert_eq!(recipe(order()), recipe(other()));
        assert_ne!(recipe(Order { recipe: json!({ "path": "b" }), ..other() }), recipe(order()));
        assert_ne!(recipe(order()), order().key().unwrap());
        // Of what is secret nothing shows in the key.
        assert_eq!(of(given("x", "1")), of(given("y", "1")));
    }
}
