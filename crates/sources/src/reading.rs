//! The reading of what servers sent, whatever the kind of source: for a process that has no network.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::attempt::Line;
use crate::bucket;
use crate::generate;
use crate::git;
use crate::helm;
use crate::oci;
use crate::upload;

/// What a reader is to do, on its way to it.
#[derive(Serialize)]
pub(crate) enum Job<'a> {
    Git(&'a git::reader::Order),
    Oci(&'a oci::reader::Order),
    Bucket(&'a bucket::reader::Order),
    Helm(&'a helm::reader::Order),
    Upload(&'a upload::Order),
    Generate(&'a generate::reader::Order),
}

/// The same where it arrives.
#[derive(Deserialize)]
enum Arrived {
    Git(Box<git::reader::Order>),
    Oci(oci::reader::Order),
    Bucket(bucket::reader::Order),
    Helm(Box<helm::reader::Order>),
    Upload(upload::Order),
    Generate(generate::reader::Order),
}

impl Job<'_> {
    pub(crate) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes; none to an order that cannot be read.
#[must_use]
pub fn read(order: &[u8], folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    match serde_json::from_slice(order) {
        Ok(Arrived::Git(order)) => git::reader::read(&order, folder, line, stop),
        Ok(Arrived::Oci(order)) => oci::reader::read(&order, folder, line, stop),
        Ok(Arrived::Bucket(order)) => bucket::reader::read(&order, folder, line, stop),
        Ok(Arrived::Helm(order)) => helm::reader::read(&order, folder, line, stop),
        Ok(Arrived::Upload(order)) => upload::read(&order, line),
        Ok(Arrived::Generate(order)) => generate::reader::read(&order, folder, line, stop),
        Err(_) => Vec::new(),
    }
}
