//! The reading of what a registry sent: lists of tags, manifests, a layer. It needs no network and knows neither the
//! repository's URL nor credentials, so that it can be done where there are none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::layer;
use super::manifest::{Descriptor, Manifest, layer as layer_of};
use super::request::OciLimits;
use super::tags::Range;
use super::unread::Unread;
use super::verify::reading as signatures;
use crate::attempt::{AnswerReader, Line, Note, bring_file};
use crate::tree::Measure;

/// An index may lead to another one, and that to a manifest.
const MOST_MANIFESTS: usize = 3;
/// Bytes of an artifact's annotations and of what else a reply has are far below the bound of replies.
const READING: usize = 256 << 10;

/// What a reader is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Pick a tag: the answer is the repository's lists of them.
    Tags(Range),
    /// Go from a manifest to the layer: the answers are a manifest, those that it leads to, and then the layer.
    Artifact {
        /// How many of the answers are there, and whether the last one is the layer.
        manifests: usize,
        has_layer: bool,
        /// The media type of the layer that is meant.
        media_type: Option<String>,
        ignore: Option<String>,
        limits: OciLimits,
    },
    /// Look for signatures: the answers are the image's manifest, and what may lead to them or is some.
    Signatures(Box<signatures::Order>),
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The newest tag of the range, where there is one.
    Tag(Option<String>),
    /// This manifest is wanted, and then to be begun again.
    Manifest(Descriptor),
    /// This layer is the one that is meant.
    Layer {
        layer: Descriptor,
        /// Of the manifest that names it.
        annotations: BTreeMap<String, String>,
    },
    /// The artifact was brought.
    Read { files: usize, unpacked_bytes: u64, notes: Vec<Note> },
    /// What was found of signatures.
    Signatures(signatures::Reply),
    /// It cannot be read.
    Unread(Unread),
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let reply = match order {
        Order::Tags(range) => tag(range, line),
        Order::Signatures(order) => signatures::read(order, line).map(Reply::Signatures),
        Order::Artifact { manifests, has_layer: false, media_type, limits, .. } => {
            find(*manifests, media_type.as_deref(), limits, line)
        }
        Order::Artifact { manifests, ignore, limits, .. } => {
            extract(*manifests, ignore.as_deref(), limits, folder, line, stop)
        }
    };
    // Texts, numbers and flags: they always become JSON.
    serde_json::to_vec(&reply.unwrap_or_else(Reply::Unread)).unwrap_or_default()
}

fn tag(range: &Range, line: &Line) -> Result<Reply, Unread> {
    let picker = range.compile().map_err(|detail| Unread::Internal { detail })?;
    picker.pick(BufReader::with_capacity(READING, AnswerReader::new(line, 0, 0))).map(Reply::Tag)
}

/// Reads the manifests, each of which the one before it named.
fn find(
    manifests: usize,
    media_type: Option<&str>,
    limits: &OciLimits,
    line: &Line,
) -> Result<Reply, Unread> {
    let last =
        manifests.checked_sub(1).ok_or_else(|| Unread::Internal { detail: "nothing to read".to_owned() })?;
    let mut bytes = Vec::new();
    let most = limits.manifest_bytes;
    let read = AnswerReader::new(line, last, 0).take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Unread::Internal { detail: error.to_string() })?;
    if bytes.len() as u64 > most {
        return Err(Unread::TooLarge { measure: Measure::ManifestBytes, limit: most });
    }
    match Manifest::parse(&bytes)? {
        Manifest::Index(_) if manifests >= MOST_MANIFESTS => {
            Err(Unread::Corrupt { detail: "its index leads to an index of indexes".to_owned() })
        }
        Manifest::Index(meant) => {
            meant.digest()?;
            Ok(Reply::Manifest(meant))
        }
        Manifest::Image { layers, annotations } => {
            let layer = layer_of(&layers, media_type)?.clone();
            layer.digest()?;
            Ok(Reply::Layer { layer, annotations })
        }
    }
}

fn extract(
    manifests: usize,
    ignore: Option<&str>,
    limits: &OciLimits,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Reply, Unread> {
    let unpacked = layer::unpack(AnswerReader::new(line, manifests, 0), &limits.tree, folder, stop)?;
    let mut packed = unpacked.pack(ignore, &limits.tree, folder, stop)?;
    send(&mut packed.file, limits.artifact_bytes, line)?;
    let layer::Packed { files, unpacked_bytes, notes, .. } = packed;
    Ok(Reply::Read { files, unpacked_bytes, notes })
}

fn send(file: &mut File, limit: u64, line: &Line) -> Result<(), Unread> {
    let internal = |error: io::Error| Unread::Internal { detail: error.to_string() };
    let size = file.metadata().map_err(internal)?.len();
    if size > limit {
        return Err(Unread::TooLarge { measure: Measure::ArtifactBytes, limit });
    }
    bring_file(file, size, line).map_err(internal)
}
