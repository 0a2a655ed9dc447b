//! Builds by digest: kept as they came, fetched from the hub where they are not there, never used unverified.

use std::collections::{HashMap, VecDeque};
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flate2::read::GzDecoder;
use roadstead_budget::Reservation;
use roadstead_model::Digest;
use roadstead_proto::limits::{MAX_BUILD_BYTES, MAX_BUILD_COMPRESSED_BYTES, MAX_OBJECTS, bounded};
use roadstead_proto::v1::BuildChunk;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::memory::{BuildMemory, TooLarge};
use crate::outbox::Outbox;

/// How many compressed bytes are kept in memory for the next time.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// How many compressed bytes are kept for whoever corrects what was applied.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Why a build cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The hub does not have it.
    #[error("the hub did not send build {digest}: {why}")]
    NotGiven {
        /// Which build.
        digest: Digest,
        /// What the hub said.
        why: String,
    },
    /// The hub's chunks do not make up a build.
    #[error("build {digest} arrived incomplete or damaged: {why}")]
    Broken {
        /// Which build.
        digest: Digest,
        /// What is wrong.
        why: String,
    },
    /// The bytes are not those that the digest names.
    #[error("build {wanted} arrived with digest {got}: none of it was applied")]
    WrongDigest {
        /// What was asked for.
        wanted: Digest,
        /// What came.
        got: Digest,
    },
    /// The bytes are not a list of objects.
    #[error("build {digest} is not a JSON array of objects: {why}")]
    Malformed {
        /// Which build.
        digest: Digest,
        /// What is wrong.
        why: String,
    },
    /// It has more objects than an inventory may have.
    #[error("build {digest} has {count} objects, more than the limit of {MAX_OBJECTS}")]
    TooMany {
        /// Which build.
        digest: Digest,
        /// How many there are.
        count: usize,
    },
    /// Its objects do not fit into the agent's memory.
    #[error("build {digest} {why}")]
    TooLarge {
        /// Which build.
        digest: Digest,
        /// How large it is, and how much there is.
        why: TooLarge,
    },
    /// The agent goes down.
    #[error("the agent stopped waiting for build {digest}")]
    Abandoned {
        /// Which build.
        digest: Digest,
    },
}

type Packed = Arc<Vec<u8>>;
type Waiter = oneshot::Sender<Result<Packed, BuildError>>;

/// The builds that this agent has, and those that it waits for.
#[derive(Debug)]
pub struct Builds {
    outbox: Arc<Outbox>,
    memory: BuildMemory,
    state: Mutex<State>,
}

/// The objects of a build, and the memory that is set aside for them and what is made of them.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub(crate) objects: Vec<Value>,
    pub(crate) memory: Reservation,
}

/// A build that is there for as long as this is.
#[derive(Debug)]
pub(crate) struct Kept {
    _packed: Packed,
}

#[derive(Debug, Default)]
struct State {
    cache: Cache,
    /// Those that somebody keeps.
    kept: HashMap<Digest, Weak<Vec<u8>>>,
    wanted: HashMap<Digest, Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    waiters: Vec<Waiter>,
    received: Vec<u8>,
}

/// Least recently used first.
#[derive(Debug, Default)]
struct Cache {
    entries: VecDeque<(Digest, Packed)>,
    bytes: usize,
}

impl Cache {
    fn get(&mut self, digest: &Digest) -> Option<Packed> {
        let at = self.entries.iter().position(|(held, _)| held == digest)?;
        let entry = self.entries.remove(at)?;
        let packed = entry.1.clone();
        self.entries.push_back(entry);
        Some(packed)
    }

    fn insert(&mut self, digest: Digest, packed: Packed) {
        if packed.len() > CACHE_BYTES || self.get(&digest).is_some() {
            return;
        }
        self.bytes += packed.len();
        self.entries.push_back((digest, packed));
        while self.bytes > CACHE_BYTES {
            let Some((_, dropped)) = self.entries.pop_front() else { break };
            self.bytes -= dropped.len();
        }
    }
}

impl State {
    fn find(&mut self, digest: &Digest) -> Option<Packed> {
        self.cache.get(digest).or_else(|| self.kept.get(digest)?.upgrade())
    }
}

impl Builds {
    /// None yet; what is lacking is asked for through `outbox`, and unpacked where there is `memory` for it.
    pub(crate) fn new(outbox: Arc<Outbox>, memory: BuildMemory) -> Self {
        Self { outbox, memory, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects of a build, once there is memory for them. Whoever has some of another build must not ask: two that do so would
    /// wait for each other. Dropping the future stops waiting for it.
    ///
    /// # Errors
    /// [`BuildError`] names the build and what is wrong with it.
    pub(crate) async fn objects(&self, digest: Digest) -> Result<Unpacked, BuildError> {
        let coming = self.memory.coming().await;
        let packed = self.packed(digest).await?;
        let memory = self.memory.unpack(unpacked_bytes(&packed)).await;
        let memory = memory.map_err(|why| BuildError::TooLarge { digest, why })?;
        drop(coming);
        let kept = packed.clone();
        let unpacked = tokio::task::spawn_blocking(move || unpack(digest, &packed)).await;
        let objects = unpacked.map_err(|_| BuildError::Abandoned { digest })??;
        self.state().cache.insert(digest, kept);
        Ok(Unpacked { objects, memory })
    }

    /// Keeps a build that is there; none where it is not any more, or too much is kept already.
    pub(crate) fn keep(&self, digest: Digest) -> Option<Kept> {
        let mut state = self.state();
        let packed = state.find(&digest)?;
        state.kept.retain(|_, kept| kept.strong_count() > 0);
        if !state.kept.contains_key(&digest) {
            let bytes: usize = state.kept.values().filter_map(Weak::upgrade).map(|kept| kept.len()).sum();
            if bytes + packed.len() > KEPT_BYTES {
                return None;
            }
            state.kept.insert(digest, Arc::downgrade(&packed));
        }
        Some(Kept { _packed: packed })
    }

    /// The compressed bytes of a build that is there; none where these are more than `most`.
    pub(crate) fn compressed(&self, digest: Digest, most: usize) -> Option<Vec<u8>> {
        let found = self.state().find(&digest);
        found.filter(|packed| packed.len() <= most).map(|packed| packed.to_vec())
    }

    /// Takes a build that was kept, and keeps it; none where too much is kept already.
    pub(crate) fn restore(&self, digest: Digest, compressed: Vec<u8>) -> Option<Kept> {
        self.state().cache.insert(digest, Arc::new(compressed));
        self.keep(digest)
    }

    async fn packed(&self, digest: Digest) -> Result<Packed, BuildError> {
        let answer = {
            let mut state = self.state();
            if let Some(packed) = state.find(&digest) {
                return Ok(packed);
            }
            let (tell, answer) = oneshot::channel();
            state.wanted.entry(digest).or_default().waiters.push(tell);
            answer
        };
        self.outbox.want_build(digest);
        let stop = StopWanting { builds: self, digest };
        let packed = answer.await.unwrap_or(Err(BuildError::Abandoned { digest }));
        drop(stop);
        packed
    }

    /// A new session: what had come of any build will come again from its beginning.
    pub fn begin_session(&self) {
        for wanted in self.state().wanted.values_mut() {
            wanted.received = Vec::new();
        }
    }

    /// Takes a part of a build. What nobody waits for is dropped.
    pub fn take(&self, chunk: &BuildChunk) {
        let Ok(digest) = chunk.digest.parse::<Digest>() else {
            tracing::warn!("the hub sent a part of a build without a digest: dropped");
            return;
        };
        let mut state = self.state();
        let Some(wanted) = state.wanted.get_mut(&digest) else { return };
        let answer = match append(digest, &mut wanted.received, chunk) {
            Ok(false) => return,
            Ok(true) => Ok(Arc::new(std::mem::take(&mut wanted.received))),
            Err(error) => Err(error),
        };
        let waiters = state.wanted.remove(&digest).map(|wanted| wanted.waiters).unwrap_or_default();
        drop(state);
        self.outbox.have_build(&digest);
        for waiter in waiters {
            // Who does not wait any more does not hear it.
            let _ = waiter.send(answer.clone());
        }
    }
}

/// Takes back the wish when nobody waits any more.
struct StopWanting<'a> {
    builds: &'a Builds,
    digest: Digest,
}

impl Drop for StopWanting<'_> {
    fn drop(&mut self) {
        let mut state = self.builds.state();
        let Some(wanted) = state.wanted.get_mut(&self.digest) else { return };
        wanted.waiters.retain(|waiter| !waiter.is_closed());
        if wanted.waiters.is_empty() {
            state.wanted.remove(&self.digest);
            drop(state);
            self.builds.outbox.have_build(&self.digest);
        }
    }
}

/// Adds a chunk to what came before; true when that was the last one.
fn append(digest: Digest, received: &mut Vec<u8>, chunk: &BuildChunk) -> Result<bool, BuildError> {
    if !chunk.error.is_empty() {
        return Err(BuildError::NotGiven { digest, why: bounded(&chunk.error) });
    }
    let broken = |why: String| Err(BuildError::Broken { digest, why });
    let total = usize::try_from(chunk.total_bytes).unwrap_or(usize::MAX);
    if total > MAX_BUILD_COMPRESSED_BYTES {
        return broken(format!(
            "it has {} bytes compressed, more than the limit of {MAX_BUILD_COMPRESSED_BYTES}",
            chunk.total_bytes
        ));
    }
    if u64::try_from(received.len()) != Ok(chunk.offset) {
        return broken(format!(
            "a part starts at byte {}, but {} bytes have arrived",
            chunk.offset,
            received.len()
        ));
    }
    let length = received.len() + chunk.data.len();
    if length > total || (chunk.last && length != total) {
        return broken(format!("{length} bytes arrived, but {total} were announced"));
    }
    received.extend_from_slice(&chunk.data);
    Ok(chunk.last)
}

/// How many bytes gzip says that come of these.
fn unpacked_bytes(packed: &[u8]) -> usize {
    let size = packed.last_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size));
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The objects in `packed`, once its digest is found right.
fn unpack(digest: Digest, packed: &[u8]) -> Result<Vec<Value>, BuildError> {
    let broken = |why: String| BuildError::Broken { digest, why };
    // For more than it says no memory is set aside.
    let said = unpacked_bytes(packed);
    if said > MAX_BUILD_BYTES {
        return Err(broken(format!("it decompresses to more than the limit of {MAX_BUILD_BYTES} bytes")));
    }
    let mut json = Vec::with_capacity(said);
    GzDecoder::new(packed)
        .take(u64::try_from(said).unwrap_or(u64::MAX).saturating_add(1))
        .read_to_end(&mut json)
        .map_err(|error| broken(format!("it cannot be decompressed: {error}")))?;
    if json.len() != said {
        return Err(broken(format!("it does not decompress to the {said} bytes that it says")));
    }
    let got = Digest::of(&json);
    if got != digest {
        return Err(BuildError::WrongDigest { wanted: digest, got });
    }
    // The parser's message may quote content; its place is enough.
    let malformed = |error: serde_json::Error| {
        let why = format!("line {} column {}", error.line(), error.column());
        BuildError::Malformed { digest, why }
    };
    let objects: Vec<Value> = serde_json::from_slice(&json).map_err(malformed)?;
    if objects.len() > MAX_OBJECTS {
        return Err(BuildError::TooMany { digest, count: objects.len() });
    }
    if let Some(at) = objects.iter().position(|object| !object.is_object()) {
        return Err(BuildError::Malformed { digest, why: format!("entry {} is not an object", at + 1) });
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::{BuildError, Builds, append, unpack};
    use crate::memory::BuildMemory;
    use crate::outbox::Outbox;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use roadstead_model::Digest;
    use roadstead_proto::limits::{MAX_BUILD_BYTES, MAX_OBJECTS};
    use roadstead_proto::v1::BuildChunk;
    use std::io::Write as _;
    use std::sync::Arc;

    fn pack(json: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(json).expect("in memory");
        encoder.finish().expect("in memory")
    }

    fn chunks(digest: Digest, packed: &[u8], size: usize) -> Vec<BuildChunk> {
        let count = packed.len().div_ceil(size);
        let chunk = |(index, data): (usize, &[u8])| BuildChunk {
            digest: digest.to_string(),
            total_bytes: packed.len() as u64,
            offset: (index * size) as u64,
            data: data.to_vec(),
            last: index + 1 == count,
            error: String::new(),
        };
        packed.chunks(size).enumerate().map(chunk).collect()
    }

    #[tokio::test]
    async fn a_build_comes_in_parts_is_kept_and_a_cut_begins_it_again() {
        let json = br#"[{"kind":"ConfigMap"}]"#;
        let (digest, packed) = (Digest::of(json), pack(json));
        let builds = Arc::new(Builds::new(Arc::new(Outbox::default()), BuildMemory::default()));
        let task = tokio::spawn({
            let builds = builds.clone();
            async move { builds.objects(digest).await }
        });
        while builds.state().wanted.is_empty() {
            tokio::task::yield_now().await;
        }
        builds.take(&chunks(digest, &packed, 7)[0]);
        builds.begin_session();
        for chunk in chunks(digest, &packed, 5) {
            builds.take(&chunk);
        }
        assert_eq!(task.await.expect("no panic").expect("sound").objects.len(), 1);
        assert_eq!(builds.objects(digest).await.expect("kept").objects.len(), 1);
    }

    #[test]
    fn hostile_builds_are_refused() {
        let json = b"[{}]";
        let packed = pack(json);
        let other = Digest::of(b"[]");
        assert_eq!(
            unpack(other, &packed),
            Err(BuildError::WrongDigest { wanted: other, got: Digest::of(json) })
        );
        let bomb = vec![b' '; MAX_BUILD_BYTES + 1];
        let error = unpack(Digest::of(&bomb), &pack(&bomb)).expect_err("a bomb");
        assert!(error.to_string().contains("it decompresses to more than"), "{error}");
        for bad in [&b"{}"[..], b"[1]", b"[", b"", &[b'['; 100_000]] {
            let error = unpack(Digest::of(bad), &pack(bad)).expect_err("no array of objects");
            assert!(matches!(error, BuildError::Malformed { .. }), "{error}");
        }
        assert!(unpack(other, b"no gzip").is_err());
        let many = format!("[{}]", vec!["{}"; MAX_OBJECTS + 1].join(","));
        let error = unpack(Digest::of(many.as_bytes()), &pack(many.as_bytes())).expect_err("too many");
        assert!(error.to_string().ends_with(" has 20001 objects, more than the limit of 20000"), "{error}");
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let (digest, packed) = (Digest::of(b"[]"), pack(b"[]"));
        let good = &chunks(digest, &packed, 8)[0];
        let refuse = |spoil: fn(&mut BuildChunk)| {
            let mut chunk = good.clone();
            spoil(&mut chunk);
            append(digest, &mut Vec::new(), &chunk).expect_err("taken").to_string()
        };
        assert!(refuse(|c| c.offset = 3).contains("a part starts at byte 3"));
        assert!(refuse(|c| c.total_bytes = u64::MAX).contains("more than the limit of"));
        assert!(refuse(|c| c.total_bytes = 1).contains("1 were announced"));
        assert!(refuse(|c| c.last = true).contains("were announced"));
        assert!(refuse(|c| c.error = "gone".to_owned()).contains("did not send build"));
    }
}
