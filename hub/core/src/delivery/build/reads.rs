//! What builds read of their artifacts. Where all of that is the same in a later revision's artifact, the earlier build is used again, so
//! that a changed file of a repository is built only by those who read it.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use roadstead_hub_store::{BuildReads, CachedBuild};
use roadstead_kustomize::{MemoryTree, Node, Reads, Recorder, TreeIndex, TreePath, content_digest};
use roadstead_model::{Digest, Hasher};
use roadstead_worker::{Job, JobLimits};

use super::{Builds, CPU, For, Order, WALL};
use crate::HubError;

/// The kind of the job that tells what is at which path of an artifact.
pub(crate) const INDEX_JOB: &str = "index";

/// What a build read, packed, in bytes. Where it is more, it is not kept.
pub(super) const MAX_PACKED_BYTES: usize = 64 << 10;
/// The same as text, of all its artifacts.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// An index as a worker sends it, in bytes. An artifact with more than some hundred thousand files has none.
const MAX_INDEX_BYTES: usize = 8 << 20;
/// Indexes that are kept, of the artifacts that were asked for last: so many, and together this part of the process's memory.
const MOST_KEPT: usize = 64;
const PART_OF_MEMORY: u64 = 64;
/// Earlier builds of one recipe that are compared.
const MOST_COMPARED: i64 = 3;

/// What a build read of its artifacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WhatWasRead {
    /// A digest of the answers.
    pub(super) answers: Digest,
    /// The questions: a text for each artifact, with an empty line between two, as gzip.
    pub(super) packed: Bytes,
}

/// Packs what was recorded of these trees; none where it is not known, or too much to be kept.
pub(super) fn pack(recorders: Vec<Recorder<'_>>, trees: &[Arc<MemoryTree>]) -> Option<WhatWasRead> {
    let (mut texts, mut answers) = (Vec::new(), Hasher::default());
    for (recorder, tree) in recorders.into_iter().zip(trees) {
        let reads = recorder.finish()?;
        answers.update(&reads.answers_of(tree));
        texts.push(reads.to_text()?);
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packed.write_all(texts.join("\n").as_bytes()).and_then(|()| packed.finish()).ok()?;
    let packed = Some(packed).filter(|packed| packed.len() <= MAX_PACKED_BYTES)?;
    Some(WhatWasRead { answers: answers.finish(), packed: packed.into() })
}

/// Reads what [`pack`] wrote, for so many artifacts; none where it is something else.
fn unpack(packed: &[u8], artifacts: usize) -> Option<Vec<Reads>> {
    let mut text = String::new();
    let mut unpacked = GzDecoder::new(packed).take(MAX_TEXT_BYTES as u64 + 1);
    unpacked.read_to_string(&mut text).ok()?;
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    // Each ends with the end of its last line, so that an empty line stands between two.
    let mut all = vec![String::new()];
    for line in text.split_inclusive('\n') {
        match all.last_mut() {
            Some(last) if line != "\n" => last.push_str(line),
            _ => all.push(String::new()),
        }
    }
    let reads: Vec<Reads> = all.iter().map(|text| Reads::from_text(text)).collect::<Option<_>>()?;
    (reads.len() == artifacts).then_some(reads)
}

/// What trees with these indexes answer.
fn answers(reads: &[Reads], indexes: &[Arc<TreeIndex>]) -> Digest {
    let mut answers = Hasher::default();
    for (reads, index) in reads.iter().zip(indexes) {
        answers.update(&reads.answers_by(index));
    }
    answers.finish()
}

/// The index of a tree: for each entry the length of its path, the path, and `f` with the content's digest or `l` with the length of the
/// target and the target. Empty where that is too much.
pub(super) fn encode_index(tree: &MemoryTree) -> Vec<u8> {
    let mut out = Vec::new();
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    for (path, node) in tree.iter() {
        match node {
            Node::File(bytes) => {
                text(&mut out, path.as_str());
                out.push(b'f');
                out.extend_from_slice(&content_digest(bytes));
            }
            Node::Symlink(target) => {
                text(&mut out, path.as_str());
                out.push(b'l');
                text(&mut out, target);
            }
            // An artifact has none that is empty.
            Node::Directory => {}
        }
        if out.len() > MAX_INDEX_BYTES {
            return Vec::new();
        }
    }
    out
}

/// Reads what [`encode_index`] wrote; none where it is something else. A worker that lies here could as well lie about what it builds.
fn decode_index(mut rest: &[u8]) -> Option<TreeIndex> {
    fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
        let length = usize::try_from(u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?)).ok()?;
        std::str::from_utf8(rest.split_off(..length)?).ok()
    }
    let mut index = TreeIndex::new();
    while !rest.is_empty() {
        let path = TreePath::new(text(&mut rest)?)?;
        match rest.split_off_first()? {
            b'f' => index.insert_file(path, *rest.split_off(..32)?.first_chunk()?),
            b'l' => index.insert_symlink(path, text(&mut rest)?),
            _ => return None,
        }
    }
    Some(index)
}

/// Indexes of artifacts that were asked for last; none of those that cannot be had.
pub(super) struct Indexes {
    most_bytes: usize,
    kept: Mutex<VecDeque<Kept>>,
}

type Kept = (Digest, Option<Arc<TreeIndex>>);

impl Indexes {
    /// Keeps none yet, in a process that may use so many bytes.
    pub(super) fn new(memory: u64) -> Self {
        let most_bytes = usize::try_from(memory / PART_OF_MEMORY).unwrap_or(usize::MAX);
        Self { most_bytes, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        // Whole at any time.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of an artifact; the inner none where it has no index.
    fn get(&self, artifact: Digest) -> Option<Option<Arc<TreeIndex>>> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(digest, _)| *digest == artifact)?;
        let found = kept.remove(at)?;
        let index = found.1.clone();
        kept.push_back(found);
        Some(index)
    }

    /// Keeps an index, and gives it back; one that has no room counts as none, so that it is not made for each that asks.
    fn put(&self, artifact: Digest, index: Option<Arc<TreeIndex>>) -> Option<Arc<TreeIndex>> {
        let size = |(_, index): &Kept| index.as_ref().map_or(0, |index| index.size());
        let index = index.filter(|index| index.size() <= self.most_bytes);
        let mut kept = self.kept();
        kept.push_back((artifact, index.clone()));
        let mut bytes: usize = kept.iter().map(size).sum();
        while (bytes > self.most_bytes || kept.len() > MOST_KEPT)
            && let Some(dropped) = kept.pop_front()
        {
            bytes -= size(&dropped);
        }
        index
    }
}

impl Builds {
    /// What would be built, where all that an earlier build of the same recipe read is the same in the artifacts of this order.
    pub(super) async fn by_what_it_read(
        &self,
        whom: For<'_>,
        order: &Order,
        recipe: Digest,
        inputs: Digest,
    ) -> Result<Option<CachedBuild>, HubError> {
        let namespace = whom.namespace;
        if order.salt.is_some() {
            return Ok(None);
        }
        let earlier = self.store.built_by_recipe(recipe, MOST_COMPARED).await?;
        if earlier.is_empty() {
            return Ok(None);
        }
        let mut indexes = Vec::with_capacity(order.artifacts.len());
        for artifact in &order.artifacts {
            match self.index(namespace, *artifact).await? {
                Some(index) => indexes.push(index),
                None => return Ok(None),
            }
        }
        for BuildReads { inputs: of, answers: then, reads } in earlier {
            let Some(reads) = unpack(&reads, indexes.len()) else { continue };
            if answers(&reads, &indexes) == then
                && let Some(build) = self.at_hand(of, whom).await?.build
            {
                self.store.remember_same_build(inputs, of, self.clock.now()).await?;
                tracing::debug!(kind = %order.kind, namespace, "nothing that was read has changed: not built again");
                return Ok(Some(build));
            }
        }
        Ok(None)
    }

    /// What is at which path of an artifact; none where that is not to be had.
    async fn index(&self, namespace: &str, artifact: Digest) -> Result<Option<Arc<TreeIndex>>, HubError> {
        if let Some(known) = self.indexes.get(artifact) {
            return Ok(known);
        }
        // Whoever asks for the same waits for the first.
        let turn = self.under_way.of(artifact);
        let _turn = turn.lock().await;
        if let Some(known) = self.indexes.get(artifact) {
            return Ok(known);
        }
        let job = Job {
            kind: INDEX_JOB,
            input: artifact.as_bytes().to_vec(),
            affinity: Some(*artifact.as_bytes()),
            limits: JobLimits {
                cpu: CPU,
                wall: WALL,
                output: MAX_INDEX_BYTES as u64,
                ..JobLimits::default()
            },
        };
        let outcome = {
            let _at_work = self.places.worker(namespace).await;
            self.run_on_blobs(job, &[artifact]).await?
        };
        // What is wrong with the artifact, the build will say. An index that could not be made is not tried again for each that asks: that
        // may have ended the worker.
        let index = match outcome {
            Ok((answer, _room)) if !answer.is_empty() => decode_index(&answer).map(Arc::new),
            _ => None,
        };
        Ok(self.indexes.put(artifact, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadstead_kustomize::FileTree as _;

    fn path(text: &str) -> TreePath {
        TreePath::new(text).unwrap()
    }

    fn tree(files: &[(&str, &str)]) -> Arc<MemoryTree> {
        let mut tree = MemoryTree::new();
        for (name, text) in files {
            tree.insert_file(path(name), *text);
        }
        tree.insert_symlink(path("link"), "a/b");
        Arc::new(tree)
    }

    fn index(tree: &MemoryTree) -> Arc<TreeIndex> {
        Arc::new(decode_index(&encode_index(tree)).unwrap())
    }

    #[test]
    fn what_was_read_of_each_artifact_is_compared_with_each() {
        let (one, two) = (tree(&[("a/b", "1"), ("c", "2")]), tree(&[("a/b", "3")]));
        let recorders = vec![Recorder::new(&one), Recorder::new(&two)];
        recorders[0].read(&path("a/b"), 10).unwrap();
        recorders[0].kind(&path("link")).unwrap();
        recorders[1].entries(&path("a")).unwrap();
        let read = pack(recorders, &[Arc::clone(&one), Arc::clone(&two)]).unwrap();
        let reads = unpack(&read.packed, 2).unwrap();
        assert_eq!(answers(&reads, &[index(&one), index(&two)]), read.answers);
        // Of the first only one file counts, of the second only which there are.
        let (first, second) = (tree(&[("a/b", "1"), ("c", "9")]), tree(&[("a/b", "9"), ("z", "1")]));
        assert_eq!(answers(&reads, &[index(&first), index(&second)]), read.answers);
        assert_ne!(answers(&reads, &[index(&two), index(&one)]), read.answers);
        let more = tree(&[("a/b", "3"), ("a/c", "")]);
        assert_ne!(answers(&reads, &[index(&one), index(&more)]), read.answers);
        assert_eq!(unpack(&read.packed, 1), None);
    }

    #[test]
    fn one_that_read_nothing_of_an_artifact_is_told_apart() {
        let one = tree(&[]);
        let recorders = vec![Recorder::new(&one), Recorder::new(&one)];
        recorders[1].kind(&path("x")).unwrap();
        let read = pack(recorders, &[Arc::clone(&one), Arc::clone(&one)]).unwrap();
        let reads = unpack(&read.packed, 2).unwrap();
        assert_eq!(answers(&reads, &[index(&one), index(&one)]), read.answers);
    }

    #[test]
    fn what_no_worker_says_is_refused() {
        let whole = encode_index(&tree(&[("a/b", "1"), ("c", "2")]));
        let entries = decode_index(&whole).unwrap().size();
        for length in 1..whole.len() {
            // Where it is cut between two entries it is a smaller one.
            let cut = decode_index(&whole[..length]);
            assert!(cut.is_none_or(|index| index.size() < entries), "cut at {length}");
        }
        let mut outside = 7_u32.to_le_bytes().to_vec();
        outside.extend_from_slice(b"../../x");
        outside.push(b'f');
        outside.extend_from_slice(&[0; 32]);
        assert!(decode_index(&outside).is_none());
        assert!(unpack(b"no gzip", 1).is_none());
    }

    #[test]
    fn those_asked_for_last_are_kept() {
        let of = |number: u8| Digest::of(&[number]);
        let mut one = TreeIndex::new();
        one.insert_file(path("file"), [0; 32]);
        let one = Arc::new(one);
        // Room for two.
        let indexes = Indexes::new(one.size() as u64 * 5 / 2 * PART_OF_MEMORY);
        for number in 0..3 {
            assert!(indexes.put(of(number), Some(Arc::clone(&one))).is_some());
        }
        assert!(indexes.get(of(0)).is_none() && indexes.get(of(1)).is_some());
        // Since it was asked for, the other one goes.
        indexes.put(of(3), Some(Arc::clone(&one)));
        assert!(indexes.get(of(2)).is_none() && indexes.get(of(1)).is_some());
        // Those that cannot be had are known, too.
        let mut large = TreeIndex::new();
        for number in 0..10 {
            large.insert_file(path(&format!("file-{number}")), [0; 32]);
        }
        assert!(indexes.put(of(4), Some(Arc::new(large))).is_none());
        assert!(indexes.put(of(5), None).is_none());
        assert!(indexes.get(of(4)).is_some_and(|index| index.is_none()));
        for number in 10..10 + u8::try_from(MOST_KEPT).unwrap() {
            indexes.put(of(number), None);
        }
        assert!(indexes.get(of(5)).is_none() && indexes.kept().len() == MOST_KEPT);
    }
}
