//! Git's protocol with a server whose answers are there: its references, and the pack of one commit.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::bstr::BString;
use gix::odb::pack;
use gix::protocol::fetch::{Arguments, Context, Negotiate, Options, Response, Shallow, Tags, negotiate};
use gix::protocol::handshake::Ref;
use gix::protocol::ls_refs::RefPrefixes;
use gix::protocol::transport::client::blocking_io::http::Transport;
use gix::protocol::transport::{Protocol, Service};
use gix::protocol::{Handshake, LsRefsCommand};

use super::error::{detail, git_chain};
use super::http::Client;
use super::reader::{Order, Pointed};
use super::request::{GitReference, is_valid};
use super::unread::{Phase, Unread};
use super::versions::Tag;
use super::wire::What;
use crate::tree::Measure;

/// gix wants a URL; nothing is sent to it.
const NOWHERE: &str = "https://repository.invalid/";

const TAGS: &str = "refs/tags/";
const BRANCHES: &str = "refs/heads/";

/// What a reference points to.
pub(super) struct Target {
    /// A commit, or an annotated tag of one.
    pub(super) object: ObjectId,
    /// Its commit, as far as the server says: of a tag that it did not peel this is `object`.
    pub(super) commit: String,
    /// Of a range of versions, the tag that was chosen.
    pub(super) tag: Option<String>,
}

impl Target {
    pub(super) fn of_tag(tag: Tag) -> Self {
        Self { object: tag.object, commit: tag.commit.to_string(), tag: Some(tag.name) }
    }

    /// What can be told of it before its objects are there.
    pub(super) fn pointed(&self) -> Pointed {
        Pointed { commit: self.commit.clone(), tag: self.tag.clone() }
    }
}

/// A conversation with one server about one repository.
pub(super) struct Session<'a> {
    transport: Transport<Client>,
    client: &'a Client,
    handshake: Handshake,
    order: &'a Order,
}

impl<'a> Session<'a> {
    /// Learns what the server can do.
    pub(super) fn open(client: &'a Client, order: &'a Order) -> Result<Self, Unread> {
        let nowhere =
            gix::url::parse(NOWHERE).map_err(|error| Unread::Internal { detail: git_chain(&error) })?;
        let mut transport = Transport::new_http(client.clone(), nowhere, Protocol::V2, false);
        let handshake = gix::protocol::handshake(
            &mut transport,
            Service::UploadPack,
            // Never asked: whoever sends the requests adds the credentials.
            |_| Ok(None),
            Vec::new(),
            &mut gix::progress::Discard,
        )
        .map_err(|error| failed(Phase::Connecting, &error))?;
        let format = handshake.capabilities.capability("object-format").and_then(|format| format.value());
        if format.is_some_and(|format| format != "sha1") {
            return Err(Unread::Sha256);
        }
        Ok(Self { transport, client, handshake, order })
    }

    /// What `reference` points to.
    pub(super) fn find(&mut self, reference: &GitReference) -> Result<Target, Unread> {
        let missing = |detail| Unread::ReferenceNotFound { detail };
        if let GitReference::Commit { id, .. } = reference {
            let object = ObjectId::from_hex(id.as_bytes()).map_err(|_| missing(String::new()))?;
            return Ok(Target { object, commit: id.clone(), tag: None });
        }
        let names = reference.full_names();
        // Servers that speak the old protocol have listed all; others list what they are asked for.
        let is_all = self.handshake.refs.is_some();
        let refs = self.references(names.iter().map(String::as_str))?;
        let mut found = names.iter().filter_map(|name| refs.iter().find_map(|found| points_to(found, name)));
        let Some((object, commit)) = found.next() else {
            if matches!(reference, GitReference::Branch(_))
                && refs.is_empty()
                && (is_all || self.references([BRANCHES].into_iter())?.is_empty())
            {
                return Err(Unread::Empty);
            }
            // In the words of Git, by which tools know it.
            let named = names.first().map(|name| format!("couldn't find remote ref \"{name}\""));
            let named = named.unwrap_or_default();
            let by_default = refs.is_empty() && names == ["refs/heads/master"];
            return Err(missing(if by_default {
                format!("{named}; name the branch in `spec.ref.branch`")
            } else {
                named
            }));
        };
        Ok(Target { object, commit: commit.to_string(), tag: None })
    }

    /// All tags.
    pub(super) fn tags(&mut self) -> Result<Vec<Tag>, Unread> {
        let refs = self.references([TAGS].into_iter())?;
        let tag = |found: &Ref| {
            let (name, object, commit) = parts(found)?;
            let name = std::str::from_utf8(name).ok().filter(|name| is_valid(name))?;
            Some(Tag { name: name.strip_prefix(TAGS)?.to_owned(), object, commit })
        };
        Ok(refs.iter().filter_map(tag).collect())
    }

    fn references<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> Result<Vec<Ref>, Unread> {
        // Servers that speak the old protocol have sent them all with their greeting.
        if let Some(refs) = self.handshake.refs.take() {
            return Ok(refs);
        }
        self.client.asks_for(What::References);
        let mut prefixes = RefPrefixes::new();
        prefixes.extend(names.map(BString::from));
        LsRefsCommand::new(Some(prefixes), &self.handshake.capabilities, agent())
            .invoke_blocking(&mut self.transport, &mut gix::progress::Discard, false)
            .map_err(|error| failed(Phase::Listing, &error))
    }

    /// Takes objects, without their history, out of the pack that the server sent, into a folder that is not there yet.
    pub(super) fn fetch(
        &mut self,
        wanted: &[ObjectId],
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<gix::odb::Handle, Unread> {
        let internal =
            |error: std::io::Error| Unread::Internal { detail: format!("temporary folder: {error}") };
        let objects = folder.join("objects");
        let packs = objects.join("pack");
        std::fs::create_dir_all(&packs).map_err(internal)?;

        self.client.asks_for(What::Pack(wanted.first().map(ToString::to_string).unwrap_or_default()));
        let shallow =
            if self.can_be_shallow() { Shallow::DepthAtRemote(NonZeroU32::MIN) } else { Shallow::NoChange };
        let mut too_many = None;
        let outcome = gix::protocol::fetch(
            &mut WithoutHistory(wanted),
            |pack, progress, interrupt| {
                too_many = index(pack, &packs, progress, interrupt, self.order)?;
                Ok(too_many.is_none())
            },
            gix::progress::Discard,
            stop,
            Context {
                handshake: &mut self.handshake,
                transport: &mut self.transport,
                user_agent: agent(),
                trace_packetlines: false,
            },
            Options {
                shallow_file: folder.join("shallow"),
                shallow: &shallow,
                tags: Tags::None,
                reject_shallow_remote: false,
            },
        );
        if let Some(error) = too_many {
            return Err(error);
        }
        match outcome {
            Ok(Some(_)) => {}
            Ok(None) => {
                let detail = "the server sent no pack".to_owned();
                return Err(Unread::Corrupt { phase: Phase::Receiving, detail });
            }
            Err(error) => return Err(self.not_fetched(&error)),
        }
        gix::odb::at(objects, gix::hash::Kind::Sha1).map_err(internal)
    }

    fn can_be_shallow(&self) -> bool {
        let capabilities = &self.handshake.capabilities;
        match self.handshake.server_protocol_version {
            Protocol::V2 => {
                capabilities.capability("fetch").and_then(|fetch| fetch.supports("shallow")).unwrap_or(false)
            }
            Protocol::V0 | Protocol::V1 => capabilities.contains("shallow"),
        }
    }

    fn not_fetched(&self, error: &gix::Error) -> Unread {
        let text = git_chain(error);
        // Git's servers say so in words only.
        if matches!(self.order.reference, GitReference::Commit { .. })
            && (text.contains("not our ref") || text.contains("unadvertised object"))
        {
            return Unread::ReferenceNotFound { detail: detail(&text) };
        }
        failed(Phase::Receiving, error)
    }
}

/// Writes the pack and its index, computing each object's hash from its bytes. Gives an error that is ours, if it is.
fn index(
    pack: &mut dyn std::io::BufRead,
    packs: &Path,
    progress: &mut dyn gix::DynNestedProgress,
    interrupt: &AtomicBool,
    order: &Order,
) -> gix::Result<Option<Unread>> {
    let too_large = |measure, limit| Unread::TooLarge { measure, limit };
    // `PACK`, a version, and the number of objects, for which gix reserves memory.
    let mut header = [0; 12];
    pack.read_exact(&mut header).map_err(gix::Error::from_error)?;
    let count = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    if count > order.limits.objects {
        return Ok(Some(too_large(Measure::Objects, u64::from(order.limits.objects))));
    }
    let mut pack = std::io::Read::chain(header.as_slice(), pack);
    let options = pack::bundle::write::Options {
        // One repository is one thread's work.
        thread_limit: Some(1),
        alloc_limit_bytes: Some(usize::try_from(order.limits.object_bytes).unwrap_or(usize::MAX)),
        ..Default::default()
    };
    let written = pack::Bundle::write_to_directory(
        &mut pack,
        Some(packs),
        progress,
        interrupt,
        None::<gix::odb::Handle>,
        gix::hash::Kind::Sha1,
        options,
    );
    match written {
        Ok(_) => Ok(None),
        Err(error) if error.is_resource_exhausted() => {
            Ok(Some(too_large(Measure::ObjectBytes, order.limits.object_bytes)))
        }
        Err(error) => Err(error),
    }
}

/// What went wrong in a conversation: what the protocol says of the server's words.
fn failed(phase: Phase, error: &gix::Error) -> Unread {
    Unread::Corrupt { phase, detail: detail(&git_chain(error)) }
}

fn agent() -> gix::protocol::command::Feature {
    ("agent", Some(gix::protocol::agent(concat!("roadstead/", env!("CARGO_PKG_VERSION")))))
}

/// The object, and its commit, if `found` is the reference `name`.
fn points_to(found: &Ref, name: &str) -> Option<(ObjectId, ObjectId)> {
    parts(found)
        .filter(|(full_ref_name, ..)| *full_ref_name == name.as_bytes())
        .map(|(_, object, commit)| (object, commit))
}

/// A reference's name, its object, and its commit.
fn parts(found: &Ref) -> Option<(&[u8], ObjectId, ObjectId)> {
    Some(match found {
        Ref::Peeled { full_ref_name, tag, object } => (full_ref_name, *tag, *object),
        Ref::Direct { full_ref_name, object } => (full_ref_name, *object, *object),
        Ref::Symbolic { full_ref_name, tag, object, .. } => (full_ref_name, tag.unwrap_or(*object), *object),
        Ref::Unborn { .. } => return None,
    })
}

/// Asks for objects and tells of none that we have.
struct WithoutHistory<'a>(&'a [ObjectId]);

impl Negotiate for WithoutHistory<'_> {
    fn mark_complete_and_common_ref(&mut self) -> gix::Result<negotiate::Action> {
        Ok(negotiate::Action::MustNegotiate { remote_ref_target_known: Vec::new() })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _remote_ref_target_known: &[bool]) -> bool {
        self.0.iter().for_each(|id| arguments.want(id));
        true
    }

    fn one_round(
        &mut self,
        _state: &mut negotiate::one_round::State,
        _arguments: &mut Arguments,
        _previous_response: Option<&Response>,
    ) -> gix::Result<(negotiate::Round, bool)> {
        let round = negotiate::Round {
            haves_sent: 0,
            in_vain: 0,
            haves_to_send: 0,
            previous_response_had_at_least_one_in_common: false,
        };
        Ok((round, true))
    }
}
