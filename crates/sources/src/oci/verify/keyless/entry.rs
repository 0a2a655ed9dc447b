//! Entries of a transparency log: that the log signed them, and has them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::root::Log;
use super::{Unfit, hash, merkle, note};

/// An entry, as a signature has it beside itself.
#[derive(Default)]
pub(super) struct Entry {
    /// What the log is called.
    pub(super) log: Vec<u8>,
    /// Where it is, over all of the log's parts.
    pub(super) index: u64,
    /// When the log had it: good for something only where it is signed.
    pub(super) time: i64,
    /// What kind of entry it is said to be, and of which version; the old form does not say that.
    pub(super) kind: Option<(String, String)>,
    pub(super) body: Vec<u8>,
    /// The log's signature of all of that.
    pub(super) promise: Option<Vec<u8>>,
    pub(super) proof: Option<Proof>,
}

/// That an entry is in the log's whole.
pub(super) struct Proof {
    pub(super) index: u64,
    pub(super) size: u64,
    pub(super) root: Vec<u8>,
    pub(super) hashes: Vec<Vec<u8>>,
    pub(super) checkpoint: String,
}

/// That the log has an entry: it signed it, or proves it, or must do the latter. Gives the time that the log tells, where it signed that.
pub(super) fn check(entry: &Entry, log: &Log, needs_proof: bool) -> Result<Option<i64>, Unfit> {
    let key = log.key()?;
    let mut time = None;
    if let Some(promise) = &entry.promise {
        if !key.made(promise, promised(entry).as_bytes()) {
            return Err(Unfit::new("its entry is not signed by the transparency log"));
        }
        if !log.valid.has(entry.time) {
            let why = "it was logged at a time at which the log's key was not valid";
            return Err(Unfit::new(why));
        }
        time = Some(entry.time);
    }
    match &entry.proof {
        Some(proof) => {
            let root = merkle::root(proof.index, proof.size, &entry.body, &proof.hashes)?;
            let checkpoint = note::read(&proof.checkpoint, &key)?;
            if checkpoint.root != root || checkpoint.size != proof.size {
                return Err(Unfit::new("its inclusion proof is for another checkpoint"));
            }
            if proof.root != root {
                return Err(Unfit::new("its inclusion proof is not valid"));
            }
        }
        None if needs_proof || entry.promise.is_none() => {
            return Err(Unfit::new("it has no inclusion proof of the transparency log"));
        }
        None => {}
    }
    Ok(time)
}

/// What the log signs of an entry: JSON in the one form that is canonical.
fn promised(entry: &Entry) -> String {
    let (body, log) = (STANDARD.encode(&entry.body), hash::hex(&entry.log));
    let Entry { time, index, .. } = entry;
    format!("{{\"body\":\"{body}\",\"integratedTime\":{time},\"logID\":\"{log}\",\"logIndex\":{index}}}")
}
