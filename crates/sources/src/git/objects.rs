//! Objects of a repository, as they came: found, measured and bounded before they are unpacked.

use std::sync::atomic::{AtomicBool, Ordering};

use gix::ObjectId;
use gix::objs::{Find, FindExt as _, FindHeader, Header, Kind};

use super::error::git_chain;
use super::reader::Order;
use super::remote::Target;
use super::unread::{Phase, Unread};
use crate::tree::Measure;

/// The commit that `target` leads to.
pub(super) fn commit_of(
    objects: &(impl Find + FindHeader),
    target: &Target,
    order: &Order,
) -> Result<ObjectId, Unread> {
    let commit = peel(objects, target.object, order)?;
    // An annotated tag is peeled by the server in its list, and by us from the objects: they must agree.
    let (promised, found, unpeeled) = (&target.commit, commit.to_string(), target.object.to_string());
    if *promised != found && *promised != unpeeled {
        return Err(corrupt(format!("{} leads to {found}, not to {promised}", order.reference)));
    }
    Ok(commit)
}

/// Follows annotated tags to their commit.
pub(super) fn peel(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    order: &Order,
) -> Result<ObjectId, Unread> {
    let commit = peel_to_commit(objects, id, order)?;
    commit.ok_or_else(|| corrupt(format!("{} leads to something other than a commit", order.reference)))
}

/// The same; none where they lead to something else.
pub(super) fn peel_to_commit(
    objects: &(impl Find + FindHeader),
    mut id: ObjectId,
    order: &Order,
) -> Result<Option<ObjectId>, Unread> {
    const MOST_TAGS: usize = 8;
    let mut buffer = Vec::new();
    for _ in 0..MOST_TAGS {
        let kind = header(objects, id, order)?.kind;
        match kind {
            Kind::Commit => return Ok(Some(id)),
            Kind::Tag => {
                id = objects
                    .find_tag(&id, &mut buffer)
                    .map(|tag| tag.target())
                    .map_err(|error| corrupt(git_chain(&error)))?;
            }
            Kind::Tree | Kind::Blob => return Ok(None),
        }
    }
    Err(corrupt(format!("{} has too many nested tags", order.reference)))
}

/// The kind of an object and its size, if that is allowed.
pub(super) fn header(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    order: &Order,
) -> Result<Header, Unread> {
    if id == ObjectId::empty_blob(id.kind()) {
        return Ok(Header { kind: Kind::Blob, size: 0 });
    }
    match objects.try_header(&id) {
        Ok(Some(header)) if header.size > order.limits.object_bytes => {
            Err(Unread::TooLarge { measure: Measure::ObjectBytes, limit: order.limits.object_bytes })
        }
        Ok(Some(header)) => Ok(header),
        Ok(None) => Err(corrupt(format!("object {id} is missing"))),
        Err(error) => Err(corrupt(git_chain(&error))),
    }
}

pub(super) fn corrupt(detail: String) -> Unread {
    Unread::Corrupt { phase: Phase::Reading, detail }
}

pub(super) fn go_on(stop: &AtomicBool) -> Result<(), Unread> {
    if stop.load(Ordering::Relaxed) { Err(Unread::Stopped) } else { Ok(()) }
}

/// The first line of a commit's message: more of it than anybody is told ([`super::subject()`]).
pub(super) fn first_line(objects: &impl Find, commit: ObjectId) -> Result<String, Unread> {
    const MOST: usize = 64;
    let mut buffer = Vec::new();
    let found = objects.find_commit(&commit, &mut buffer).map_err(|error| corrupt(git_chain(&error)))?;
    let line = found.message.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).chars().take(MOST).collect())
}

/// The tree of a commit.
pub(super) fn tree_of(
    objects: &(impl Find + FindHeader),
    commit: ObjectId,
    order: &Order,
) -> Result<ObjectId, Unread> {
    header(objects, commit, order)?;
    let mut buffer = Vec::new();
    let commit = objects.find_commit(&commit, &mut buffer);
    commit.map(|commit| commit.tree()).map_err(|error| corrupt(git_chain(&error)))
}

/// The bytes of a file whose size was looked at.
pub(super) fn bytes(
    objects: &impl Find,
    id: ObjectId,
    size: u64,
    stop: &AtomicBool,
) -> Result<Vec<u8>, Unread> {
    go_on(stop)?;
    let mut buffer = Vec::new();
    objects.find_blob(&id, &mut buffer).map_err(|error| corrupt(git_chain(&error)))?;
    if buffer.len() as u64 != size {
        return Err(corrupt(format!("object {id} does not have the size that it claims")));
    }
    Ok(buffer)
}

/// The empty tree may be absent: Git knows it without its bytes.
pub(super) fn header_of_tree(
    objects: &(impl Find + FindHeader),
    id: ObjectId,
    order: &Order,
) -> Result<(), Unread> {
    if id == ObjectId::empty_tree(id.kind()) {
        return Ok(());
    }
    header(objects, id, order).map(|_| ())
}
