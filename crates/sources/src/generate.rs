//! Artifacts that are composed of the files of others: copied by paths and patterns, merged, extracted.
//!
//! What is asked is pure and is checked without any source ([`check`]). The composing reads untrusted bytes, and runs where an
//! [`Engine`] says: the artifacts of all sources lie in one temporary file, from which the reader takes those that it needs. It brings
//! what it makes, a part after the other where that is much, and nothing of what the caller has already: so a change of one file of a
//! large repository moves one artifact.

mod copy;
mod merge;
pub(crate) mod reader;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roadstead_budget::{Pool, Reservation};
use roadstead_model::Digest;
use tokio_util::sync::CancellationToken;

pub use crate::glob::GlobError;
pub use reader::Limits as GenerateLimits;
pub use spec::{Copy, MOST_PRODUCTS, Output, SpecError, Strategy, check, is_name};

use crate::attempt::{Answer, Body, Desk, Ended, Engine, Room, Spool, Stop, plain};
use crate::reading::Job;
use reader::{Lying, Made, Order, Reply};

/// All of it takes no longer than this, waiting for places included.
const WHOLE: Duration = Duration::from_secs(600);

/// Why an artifact is not made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// What is asked cannot be done, whatever is tried: its text says of which artifact.
    #[error("{}{why}", of(name))]
    Spec {
        /// Of which artifact.
        name: Option<String>,
        /// What is wrong.
        why: String,
    },
    /// It cannot be made of what the sources hold now.
    #[error("{}{why}", of(name))]
    Failed {
        /// Of which artifact.
        name: Option<String>,
        /// What is wrong.
        why: String,
    },
    /// All the disk space for fetches is in use.
    #[error("all the disk space for sources is in use; it is tried again")]
    NoDisk,
    /// What made it was ended.
    #[error("the artifacts were not made: {why}")]
    Ended {
        /// What ended it.
        why: String,
        /// Whether the same may go well the next time.
        transient: bool,
    },
    /// Our own machine, or a bug.
    #[error("making artifacts failed inside Roadstead: {0}")]
    Internal(String),
}

fn of(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!("artifact '{name}': "))
}

fn internal(error: &dyn std::fmt::Display) -> GenerateError {
    GenerateError::Internal(error.to_string())
}

/// What is made.
#[derive(Debug, Clone)]
pub struct Generate {
    /// Folders of a source for each of which all is made.
    pub pattern: Option<String>,
    /// The artifacts.
    pub outputs: Vec<Output>,
    /// Artifacts that the caller has.
    pub known: BTreeSet<Digest>,
    /// Bounds.
    pub limits: GenerateLimits,
    /// Where room for artifacts is reserved.
    pub room: Option<Room>,
    /// What all fetches may have of the disk.
    pub disk: Option<Pool>,
    /// Where temporary folders are made; the system's place for such if `None`.
    pub scratch: Option<PathBuf>,
}

/// Artifacts that are being made.
pub struct Generation {
    what: Generate,
    spool: Spool,
    file: Arc<File>,
    end: u64,
    sources: Vec<Lying>,
    done: usize,
    names: BTreeSet<String>,
    deadline: Instant,
}

/// An artifact that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// Its name, which can be an object's.
    pub name: String,
    /// Which of those that were asked for it is of.
    pub output: usize,
    /// What its folder's name gives for each name in braces, in lower case.
    pub labels: BTreeMap<String, String>,
    /// The digest of its bytes.
    pub digest: Digest,
    /// How many it has.
    pub size: u64,
    /// They themselves, where the caller does not have them.
    pub bytes: Option<Vec<u8>>,
}

/// Some artifacts that were made.
#[derive(Debug)]
pub struct Batch {
    /// They.
    pub products: Vec<Product>,
    /// Whether these were the last.
    pub is_last: bool,
    /// Symbolic links of the sources, which are left out.
    pub links: u64,
    /// What is reserved for their bytes.
    pub held: Option<Reservation>,
}

impl Generation {
    /// Begins: next the sources are to be added.
    ///
    /// # Errors
    /// Where there is no place for a temporary file.
    pub fn new(what: Generate) -> Result<Self, GenerateError> {
        let mut spool = Spool::new(what.scratch.clone(), what.disk.clone());
        let file = Arc::new(spool.file().map_err(|error| internal(&error))?);
        let (sources, names) = (Vec::new(), BTreeSet::new());
        let deadline = Instant::now() + WHOLE;
        Ok(Self { what, spool, file, end: 0, sources, done: 0, names, deadline })
    }

    /// Adds the artifact of a source.
    ///
    /// # Errors
    /// Where there is no disk for it.
    pub async fn add(&mut self, alias: &str, bytes: Vec<u8>) -> Result<(), GenerateError> {
        let (size, offset) = (bytes.len() as u64, self.end);
        self.spool.make_room(bytes.len()).map_err(|_| GenerateError::NoDisk)?;
        let file = Arc::clone(&self.file);
        let write = move || file.write_all_at(&bytes, offset);
        let written = tokio::task::spawn_blocking(write).await.map_err(|error| internal(&error))?;
        written.map_err(|error| internal(&error))?;
        self.sources.push(Lying { alias: alias.to_owned(), offset, size });
        self.end += size;
        Ok(())
    }

    /// The next of the artifacts. `about` names what they are made of.
    ///
    /// # Errors
    /// Why one of them cannot be made.
    pub async fn next(
        &mut self,
        about: &str,
        engine: &dyn Engine,
        cancel: &CancellationToken,
    ) -> Result<Batch, GenerateError> {
        let ended = |Ended { why, transient }| GenerateError::Ended { why, transient };
        engine.admit(about).await.map_err(ended)?;
        let stop = Stop::new(self.deadline, cancel.child_token());
        let order = Order {
            sources: self.sources.clone(),
            pattern: self.what.pattern.clone(),
            outputs: self.what.outputs.clone(),
            known: self.what.known.clone(),
            skip: self.done,
            limits: self.what.limits.clone(),
        };
        let order = Job::Generate(&order).encode().map_err(|error| internal(&error))?;
        let mut desk = Desk::new(self.what.limits.artifact_bytes, self.what.room.clone(), &stop);
        let body = Body::File(Arc::clone(&self.file));
        desk.answers.push(Answer { heading: String::new(), body });
        let reply = tokio::select! {
            reply = engine.run(about, order, &mut desk) => reply.map_err(ended)?,
            () = stop.stopped() => {
                return Err(GenerateError::Ended { why: "they were not made in time".to_owned(), transient: true });
            }
        };
        // It came from a process that read untrusted bytes.
        let name = |name: Option<String>| name.map(|name| plain(&name));
        match serde_json::from_slice(&reply) {
            Ok(Reply::Made { made, total, links }) => self.take(made, total, links, &mut desk),
            Ok(Reply::Failed { name: of, why, is_spec: true }) => {
                Err(GenerateError::Spec { name: name(of), why: plain(&why) })
            }
            Ok(Reply::Failed { name: of, why, is_spec: false }) => {
                Err(GenerateError::Failed { name: name(of), why: plain(&why) })
            }
            Ok(Reply::Stopped) => {
                Err(GenerateError::Ended { why: "it was told to stop".to_owned(), transient: true })
            }
            Err(_) => Err(GenerateError::Internal("the reader's reply cannot be parsed".to_owned())),
        }
    }

    /// What a reader made, as far as it is what it may be.
    fn take(
        &mut self,
        made: Vec<Made>,
        total: usize,
        links: u64,
        desk: &mut Desk,
    ) -> Result<Batch, GenerateError> {
        let wrong =
            |why: &str| Err(GenerateError::Internal(format!("the reader's reply is not valid: {why}")));
        self.done += made.len();
        if total > MOST_PRODUCTS || self.done > total || made.is_empty() && self.done < total {
            return wrong("the number of artifacts");
        }
        let (mut brought, held) = match desk.take_artifact() {
            Some(artifact) => (artifact.bytes, artifact.held),
            None => (Vec::new(), None),
        };
        let mut products = Vec::with_capacity(made.len());
        for Made { name, output, labels, digest, size, brought: is_brought } in made {
            if output >= self.what.outputs.len() || !is_name(&name) || !self.names.insert(name.clone()) {
                return wrong("the name of an artifact");
            }
            let bytes = if is_brought {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if size > brought.len() {
                    return wrong("the size of an artifact");
                }
                let rest = brought.split_off(size);
                let bytes = std::mem::replace(&mut brought, rest);
                if Digest::of(&bytes) != digest {
                    return wrong("the digest of an artifact");
                }
                Some(bytes)
            } else if self.what.known.contains(&digest) {
                None
            } else {
                return wrong("an artifact that is not known was not brought");
            };
            products.push(Product { name, output, labels, digest, size, bytes });
        }
        if !brought.is_empty() {
            return wrong("bytes that are of no artifact");
        }
        Ok(Batch { products, is_last: self.done == total, links, held })
    }
}

#[cfg(test)]
mod tests;
