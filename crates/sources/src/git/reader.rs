//! The reading of what a server sent: Git's protocol, the pack, the commit's files. It needs no network and knows neither
//! the repository's URL nor credentials, so that it can be done where there are none.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::objs::{Find, FindHeader};
use roadstead_model::Revision;
use serde::{Deserialize, Serialize};

use super::http::Client;
use super::remote::{Session, Target};
use super::request::{GitLimits, GitReference};
use super::unread::Unread;
use super::verify::{self, Verification, Verified};
use super::walk;
use super::wire::Ask;
use crate::artifact::{ArtifactError, pack_to};
use crate::attempt::{Line, Note, bring_file};
use crate::ignore::Ignore;
use crate::tree::Measure;

/// What a reader is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) reference: GitReference,
    /// The revision that needs not be read.
    pub(super) known: Option<Revision>,
    pub(super) ignore: Option<String>,
    /// The folders that are taken; all where there are none.
    pub(super) sparse: Vec<String>,
    pub(super) limits: GitLimits,
    /// What is to be signed, and by whom.
    pub(super) verify: Option<Verification>,
    /// Seconds since 1970.
    pub(super) now: u64,
    /// Whether the commit is all that is wanted.
    pub(super) find_only: bool,
    /// The content types of the server's answers, as far as they are there.
    pub(super) headings: Vec<String>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// This is to be asked, and then begun again.
    Ask(Ask),
    /// The reference's commit: the known one, or all that was wanted.
    Found { commit: String },
    /// The artifact was brought.
    Read { commit: String, files: usize, unpacked_bytes: u64, notes: Vec<Note>, verified: Vec<Verified> },
    /// It cannot be read.
    Unread(Unread),
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let reply = read_answers(order, folder, line, stop).unwrap_or_else(Reply::Unread);
    // Texts, numbers and flags: they always become JSON.
    serde_json::to_vec(&reply).unwrap_or_default()
}

fn read_answers(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Result<Reply, Unread> {
    let client = Client::new(order.headings.clone(), line.clone());
    let reply = converse(order, &client, folder, line, stop);
    // Where something is still to be asked, all else follows from that.
    client.take_wanted().map_or(reply, |ask| Ok(Reply::Ask(ask)))
}

fn converse(
    order: &Order,
    client: &Client,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Reply, Unread> {
    let mut session = Session::open(client, order)?;
    let target = session.find(&order.reference)?;
    if order.find_only || order.knows(&target.commit) {
        return Ok(Reply::Found { commit: target.commit });
    }
    let objects = session.fetch(&target, folder, stop)?;
    bring(&objects, &target, order, folder, line, stop)
}

/// Finds the commit's files, packs them, and brings the artifact.
pub(super) fn bring(
    objects: &(impl Find + FindHeader),
    target: &Target,
    order: &Order,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Reply, Unread> {
    let ignore = Ignore::new(order.ignore.as_deref()).map_err(|error| Unread::tree(None, error))?;
    let commit = walk::commit_of(objects, target, order)?;
    if order.knows(&commit.to_string()) {
        return Ok(Reply::Found { commit: commit.to_string() });
    }
    // Before anything of its files is looked at.
    let verified = verify::verify(objects, target, commit, order)?;
    let walked = walk::walk(objects, commit, order, ignore, stop)?;
    let mut unread = None;
    let packed = file(folder).map_err(|error| internal(&error)).and_then(|file| {
        pack_to(BufWriter::new(file), &walked.tree, |blob| {
            let content = walk::content(objects, blob, stop);
            content.map(Cow::Owned).map_err(|error| {
                let text = error.to_string();
                unread = Some(error);
                io::Error::other(text)
            })
        })
        .map_err(not_packed)
    });
    if let Some(unread) = unread {
        return Err(unread);
    }
    let mut file = packed?.into_inner().map_err(|error| internal(&error.into_error()))?;
    let size = file.stream_position().map_err(|error| internal(&error))?;
    let limit = order.limits.artifact_bytes;
    if size > limit {
        return Err(Unread::TooLarge { measure: Measure::ArtifactBytes, limit });
    }
    bring_file(&mut file, size, line).map_err(|error| internal(&error))?;
    let (files, unpacked_bytes) = (walked.tree.len(), walked.tree.bytes());
    let commit = commit.to_string();
    Ok(Reply::Read { commit, files, unpacked_bytes, notes: walked.notes, verified })
}

impl Order {
    fn knows(&self, commit: &str) -> bool {
        let known = self.known.as_ref();
        known.is_some() && known == Revision::git(&self.reference.label(), commit).ok().as_ref()
    }
}

/// A file for the artifact, to be written and read.
fn file(folder: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).open(folder.join("artifact"))
}

fn internal(error: &io::Error) -> Unread {
    Unread::Internal { detail: error.to_string() }
}

fn not_packed(error: ArtifactError) -> Unread {
    match error {
        ArtifactError::Pack { path, source } => Unread::Pack { path, detail: source.to_string() },
        other => Unread::Internal { detail: other.to_string() },
    }
}
