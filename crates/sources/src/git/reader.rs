//! The reading of what a server sent: Git's protocol, the pack, the commit's files. It needs no network and knows neither
//! the repository's URL nor credentials, so that it can be done where there are none.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::objs::{Find, FindHeader};
use roadstead_model::Revision;
use serde::{Deserialize, Serialize};

use super::http::Client;
use super::remote::{Session, Target};
use super::request::{GitLimits, GitReference, GitRequest};
use super::unread::Unread;
use super::verify::{self, Verification, Verified};
use super::versions::{Remembered, Tag};
use super::walk::Wanted;
use super::wire::Ask;
use super::{include, objects, versions, walk};
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
    /// What is not signed so, and need not be read again: an object, and the tag that was chosen.
    pub(super) unverified: Option<(String, Option<String>)>,
    /// What objects of the repository are, as far as earlier readers saw them.
    pub(super) remembered: Vec<Remembered>,
    /// Seconds since 1970.
    pub(super) now: u64,
    /// Whether the commit is all that is wanted.
    pub(super) find_only: bool,
    /// Whether submodules are wanted.
    pub(super) recurse: bool,
    /// The number of the first answer.
    pub(super) first: usize,
    /// The content types of the server's answers, as far as they are there.
    pub(super) headings: Vec<String>,
    /// The submodules that are there.
    pub(super) modules: Vec<Module>,
    /// How many artifacts are put into this one.
    pub(super) includes: usize,
    /// These, once they are there.
    pub(super) include: Vec<include::Told>,
}

/// A submodule whose pack is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Module {
    /// Its folder, from the root of all.
    pub(super) path: String,
    pub(super) commit: String,
    /// The number of its server's first answer.
    pub(super) first: usize,
    pub(super) headings: Vec<String>,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// This is to be asked, and then begun again.
    Ask(Ask),
    /// These are to be had, and then begun again.
    Modules(Vec<Wanted>),
    /// So are the artifacts that are to be included.
    Include,
    /// The reference's commit: the known one, or all that was wanted.
    Found {
        commit: String,
        #[serde(default)]
        tag: Option<String>,
        #[serde(default)]
        remembered: Vec<Remembered>,
    },
    /// It is what is known not to be signed as it should be.
    StillUnverified,
    /// The artifact was brought.
    Read {
        commit: String,
        #[serde(default)]
        tag: Option<String>,
        #[serde(default)]
        remembered: Vec<Remembered>,
        /// Of the commit's message.
        #[serde(default)]
        subject: String,
        files: usize,
        unpacked_bytes: u64,
        notes: Vec<Note>,
        verified: Vec<Verified>,
    },
    /// It cannot be read.
    Unread(Unread),
}

/// The same, with what the reference was found to point to on the way, whatever it then came to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) reply: Reply,
    #[serde(default)]
    pub(super) learned: Option<Pointed>,
}

/// What a reference points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pointed {
    pub(super) commit: String,
    /// Of a range of versions, the tag that was chosen.
    #[serde(default)]
    pub(super) tag: Option<String>,
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let learned = RefCell::default();
    let reply = read_answers(order, folder, line, (stop, &learned)).unwrap_or_else(Reply::Unread);
    // Texts, numbers and flags: they always become JSON.
    serde_json::to_vec(&Answered { reply, learned: learned.into_inner() }).unwrap_or_default()
}

fn read_answers(
    order: &Order,
    folder: &Path,
    line: &Line,
    work: (&AtomicBool, &RefCell<Option<Pointed>>),
) -> Result<Reply, Unread> {
    let client = Client::new(order.first, order.headings.clone(), line.clone());
    let reply = converse(order, &client, folder, line, work);
    // Where something is still to be asked, all else follows from that.
    client.take_wanted().map_or(reply, |ask| Ok(Reply::Ask(ask)))
}

fn converse(
    order: &Order,
    client: &Client,
    folder: &Path,
    line: &Line,
    (stop, learned): (&AtomicBool, &RefCell<Option<Pointed>>),
) -> Result<Reply, Unread> {
    let mut session = Session::open(client, order)?;
    let (found, objects) = find(&mut session, order, folder, stop)?;
    // Of a commit that the spec names, the server has not said yet that it has it.
    if !matches!(order.reference, GitReference::Commit { .. }) {
        learned.replace(Some(found.target.pointed()));
    }
    if order.find_only || order.knows(&found.target, &found.target.commit) {
        let Found { target: Target { commit, tag, .. }, remembered } = found;
        return Ok(Reply::Found { commit, tag, remembered });
    }
    if order.is_unverified(&found.target) {
        return Ok(Reply::StillUnverified);
    }
    let objects = match objects {
        Some(objects) => objects,
        None => session.fetch(&[found.target.object], &folder.join("fetched"), stop)?,
    };
    let modules = order.modules.iter().enumerate();
    let modules = modules.map(|(number, module)| submodule(number, module, order, folder, line, stop));
    let modules = modules.collect::<Result<Vec<_>, _>>()?;
    let repositories: Vec<_> = std::iter::once(&objects).chain(&modules).collect();
    bring(&repositories, &found, order, folder, line, (stop, learned))
}

/// What was found of a reference.
pub(super) struct Found {
    pub(super) target: Target,
    /// What of objects is worth to be remembered.
    pub(super) remembered: Vec<Remembered>,
}

/// What the reference points to, and its objects where they had to be looked at.
fn find(
    session: &mut Session<'_>,
    order: &Order,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<(Found, Option<gix::odb::Handle>), Unread> {
    let GitReference::SemVer(range) = &order.reference else {
        let target = session.find(&order.reference)?;
        return Ok((Found { target, remembered: Vec::new() }, None));
    };
    let tags = session.tags()?;
    let mut remembered: Vec<Remembered> = Vec::new();
    let mut fetched: Option<(Vec<ObjectId>, gix::odb::Handle)> = None;
    let mut packs = 0;
    let tag = versions::newest(range, tags, |tags| {
        if let [one] = tags {
            let target = Target::of_tag(one.clone());
            if order.find_only || order.knows(&target, &target.commit) || order.is_unverified(&target) {
                return Ok(vec![Some(0)]);
            }
        }
        let known = |tag: &Tag| {
            let id = tag.object.to_string();
            order.remembered.iter().find(|known| known.object == id).cloned()
        };
        remembered.extend(tags.iter().filter_map(known));
        let mut missing: Vec<_> =
            tags.iter().filter(|tag| known(tag).is_none()).map(|tag| tag.object).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            packs += 1;
            if packs > versions::MOST_PACKS {
                let detail = "too many of the newest tags in the range lead to something other than a commit";
                return Err(Unread::ReferenceNotFound { detail: detail.to_owned() });
            }
            let objects = session.fetch(&missing, &folder.join(format!("tags-{packs}")), stop)?;
            for object in &missing {
                let made = versions::made(&objects, *object, order)?;
                remembered.push(Remembered { object: object.to_string(), made });
            }
            fetched = Some((missing, objects));
        }
        let made = |tag: &Tag| {
            let id = tag.object.to_string();
            remembered.iter().find(|known| known.object == id).and_then(|known| known.made)
        };
        Ok(tags.iter().map(made).collect())
    })?;
    let objects = fetched.filter(|(objects, _)| objects.contains(&tag.object)).map(|(_, objects)| objects);
    Ok((Found { target: Target::of_tag(tag), remembered }, objects))
}

/// The objects of a submodule, out of the pack that its server sent.
fn submodule(
    number: usize,
    module: &Module,
    order: &Order,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<gix::odb::Handle, Unread> {
    let client = Client::new(module.first, module.headings.clone(), line.clone());
    let opened = Session::open(&client, order);
    let fetched = opened.and_then(|mut session| {
        let target = session.find(&GitReference::Commit { id: module.commit.clone(), branch: None })?;
        session.fetch(&[target.object], &folder.join(format!("module-{number}")), stop)
    });
    fetched.map_err(|error| match error {
        Unread::Stopped | Unread::Internal { .. } => error,
        error => Unread::OfSubmodule { path: module.path.clone(), unread: Box::new(error) },
    })
}

/// Finds the commit's files, packs them, and brings the artifact.
pub(super) fn bring<O: Find + FindHeader>(
    repositories: &[&O],
    found: &Found,
    order: &Order,
    folder: &Path,
    line: &Line,
    (stop, learned): (&AtomicBool, &RefCell<Option<Pointed>>),
) -> Result<Reply, Unread> {
    let Found { target, remembered } = found;
    let ignore = Ignore::new(order.ignore.as_deref()).map_err(|error| Unread::tree(None, error))?;
    let Some(objects) = repositories.first().copied() else { return Err(Unread::Stopped) };
    let commit = objects::commit_of(objects, target, order)?;
    let (tag, remembered) = (target.tag.clone(), remembered.clone());
    learned.replace(Some(Pointed { commit: commit.to_string(), tag: tag.clone() }));
    if order.knows(target, &commit.to_string()) {
        return Ok(Reply::Found { commit: commit.to_string(), tag, remembered });
    }
    // Before anything of its files is looked at.
    let verified = verify::verify(objects, target, commit, order)?;
    if order.include.len() < order.includes {
        return Ok(Reply::Include);
    }
    let included = include::unpack(order, line, folder)?;
    let from = walk::From { repositories, included: &included };
    let walked = walk::walk(&from, commit, order, &ignore, stop)?;
    if !walked.wanted.is_empty() {
        return Ok(Reply::Modules(walked.wanted));
    }
    pack(&from, &walked, order, folder, line, stop)?;
    let (files, unpacked_bytes) = (walked.tree.len(), walked.tree.bytes());
    let subject = objects::first_line(objects, commit)?;
    let commit = commit.to_string();
    Ok(Reply::Read { commit, tag, remembered, subject, files, unpacked_bytes, notes: walked.notes, verified })
}

/// Packs the files that were found, and brings the artifact.
fn pack<O: Find + FindHeader>(
    from: &walk::From<'_, O>,
    walked: &walk::Walked,
    order: &Order,
    folder: &Path,
    line: &Line,
    stop: &AtomicBool,
) -> Result<(), Unread> {
    let mut unread = None;
    let packed = file(folder).map_err(|error| internal(&error)).and_then(|file| {
        pack_to(BufWriter::new(file), &walked.tree, |blob| {
            let content = walk::content(from, blob, stop);
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
    bring_file(&mut file, size, line).map_err(|error| internal(&error))
}

impl Order {
    /// As a request asks for it, where nothing is known and nothing is there.
    pub(super) fn plain(request: &GitRequest) -> Self {
        Self {
            reference: request.reference.clone(),
            known: None,
            ignore: request.ignore.clone(),
            verify: request.verify.clone(),
            unverified: None,
            remembered: Vec::new(),
            sparse: request.sparse.clone(),
            now: verify::now(),
            limits: request.limits.clone(),
            find_only: false,
            recurse: request.recurse_submodules,
            first: 0,
            headings: Vec::new(),
            modules: Vec::new(),
            includes: request.include.len(),
            include: Vec::new(),
        }
    }

    /// Whether the artifact of what `target` leads to is there.
    fn knows(&self, target: &Target, commit: &str) -> bool {
        let known = self.known.as_ref();
        known.is_some() && known == self.reference.revision(target.tag.as_deref(), commit).as_ref()
    }

    /// Whether `target` is known not to be signed as it should be.
    fn is_unverified(&self, target: &Target) -> bool {
        let known = self.unverified.as_ref();
        known == Some(&(target.object.to_string(), target.tag.clone()))
    }

    /// The repository of something that is included.
    pub(super) fn included_name(&self, number: usize) -> String {
        self.include.get(number).map(|told| told.repository.clone()).unwrap_or_default()
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
