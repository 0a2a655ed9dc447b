//! One fetch of one OCI repository: an artifact of a registry, pushed by `flux push artifact`, `oras` or `helm`, say.
//!
//! [`fetch_with`] asks which manifest a tag, a range of versions or a digest names, and unless it is the one that the caller
//! already has, brings what its layer holds as an artifact. It ends within [`OciRequest::timeout`], whatever the registry does.
//!
//! Two sides share the work, as for Git. One has the network, the credentials and the time (`wire`): it sends requests, keeps what is
//! answered without looking at it, and compares it with the digest that it was asked for by. The other (`reader`) has what
//! was answered, and nothing else: it reads lists of tags, manifests and the layer. An [`Engine`] says where the second
//! one runs; it is begun when an answer is there, so that it never waits for a registry.
//!
//! The chain of digests is held here: what a tag names is a manifest with that digest, and a manifest or layer that the reader
//! asks for is one with the digest that it asks for. So a registry can refuse or delay; of what it once named it cannot pass
//! off something else. Where signatures are asked for, they are verified (`verify`) before the layer is asked for.

mod asking;
mod authority;
mod challenge;
mod error;
mod known;
mod layer;
mod login;
mod manifest;
mod name;
pub(crate) mod reader;
mod request;
mod signatures;
mod tags;
mod unread;
mod verify;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

pub use error::OciError;
pub use known::KnownRegistry;
pub use login::{RegistryLogin, RegistryLogins};
pub(crate) use request::{CHART, PROVENANCE};
pub use request::{LayerOperation, OciLimits, OciReference, OciRequest};
pub use verify::{CosignKeys, Identity, Keyless, NotationTrust, TrustedRoot, Verification};

use crate::artifact::Artifact;
use crate::attempt::{
    Answer, Body, Desk, Ended, Engine, Limited, MOST_NOTES, Note, Progress, Room, Stop, TrustedBy,
};
use crate::ignore::Ignore;
use crate::reading::Job;
use crate::source::{Facts, Failed, Fetched, Outcome, Source};
use crate::tree::Measure;
use asking::Asking;
use manifest::Descriptor;
use name::{RepositoryName, is_tag};
use reader::{Order, Reply};
use request::revision;
use tags::Range;
use unread::Unread;
use verify::Proof;
use wire::Wire;

/// An index, one that it leads to, and a manifest.
const MOST_MANIFESTS: usize = 3;

/// The artifact of what the request's reference names now, or `Unchanged` if the caller has it. What the registry sends is read
/// where `engine` says.
///
/// # Errors
/// An [`OciError`], within the request's timeout. Whatever artifact the caller has stays as good as it was.
pub async fn fetch_with(
    request: OciRequest,
    engine: &dyn Engine,
    cancel: &CancellationToken,
) -> Result<Outcome, OciError> {
    fetch_noting(request, engine, (cancel, &Progress::default())).await
}

async fn fetch_noting(
    request: OciRequest,
    engine: &dyn Engine,
    (cancel, progress): (&CancellationToken, &Progress),
) -> Result<Outcome, OciError> {
    Ignore::new(request.ignore.as_deref())
        .map_err(|error| OciError::tree(request.shown_url(), "spec.ignore", error))?;
    let stop = Stop::new(Instant::now() + request.timeout, cancel.child_token()).noting(progress);
    let work = async {
        let mut asking = Asking::new(&request)?;
        loop {
            let asked = asking.asked(&stop).await?;
            let outcome = Attempt::new(&asked, engine, &stop)?.run().await;
            if let Some(outcome) = asking.settled(outcome) {
                return outcome;
            }
        }
    };
    limited(&request, &stop, cancel).run(work).await
}

/// The tag that the request's reference means.
///
/// # Errors
/// As [`fetch_with`].
pub(crate) async fn choose_tag(
    request: &OciRequest,
    engine: &dyn Engine,
    cancel: &CancellationToken,
) -> Result<String, OciError> {
    let stop = Stop::new(Instant::now() + request.timeout, cancel.child_token());
    let work = async {
        let mut asking = Asking::new(request)?;
        loop {
            let asked = asking.asked(&stop).await?;
            let target = Attempt::new(&asked, engine, &stop)?.target().await;
            if let Some(target) = asking.settled(target) {
                return target;
            }
        }
    };
    let target = limited(request, &stop, cancel).run(work).await?;
    Ok(target.tag)
}

fn limited<'a>(request: &OciRequest, stop: &'a Stop, cancel: &'a CancellationToken) -> Limited<'a> {
    let (url, timeout, trust) = (request.shown_url(), request.timeout, TrustedBy::CertSecretRef);
    Limited { kind: "OCI", url, trust, timeout, stop, cancel }
}

/// A fetch of one repository: what is asked for, and how far it is.
struct Attempt<'a> {
    request: &'a OciRequest,
    engine: &'a dyn Engine,
    stop: &'a Stop,
    wire: Wire<'a>,
    desk: Desk,
}

/// What the reference names.
struct Target {
    /// Empty where it is named by its digest.
    tag: String,
    /// None where the registry says so only together with the manifest.
    digest: Option<Digest>,
}

impl<'a> Attempt<'a> {
    fn new(request: &'a OciRequest, engine: &'a dyn Engine, stop: &'a Stop) -> Result<Self, OciError> {
        let name = RepositoryName::parse(&request.url, request.insecure);
        let name = name.map_err(|why| OciError::UrlRefused { url: request.shown_url(), why })?;
        let wire = Wire::new(request, name, stop)?;
        let desk = Desk::new(request.limits.artifact_bytes, request.room.clone(), stop);
        Ok(Self { request, engine, stop, wire, desk })
    }
}

impl Attempt<'_> {
    async fn run(mut self) -> Result<Outcome, OciError> {
        let mut target = self.target().await?;
        if target.digest.is_none() {
            target.digest = self.wire.head(&target.tag).await?;
            let found = target.digest.and_then(|digest| revision(&target.tag, digest));
            found.into_iter().for_each(|found| self.stop.progress().learn(found));
        }
        if let Some(unchanged) = target.digest.and_then(|digest| self.unchanged(&target.tag, digest)) {
            return Ok(unchanged);
        }
        let reference = target.digest.map_or_else(|| target.tag.clone(), |digest| digest.to_string());
        self.admit(&reference).await?;
        let (digest, manifest) = self.wire.manifest(&reference, target.digest).await?;
        if let Some(unchanged) = self.unchanged(&target.tag, digest) {
            return Ok(unchanged);
        }
        let revision = revision(&target.tag, digest).ok_or_else(|| self.internal("no revision"))?;
        // That the registry has what the spec names by its digest is known only now.
        self.stop.progress().learn(revision.clone());
        self.desk.answers.push(manifest);
        let proof = self.verify(digest).await?;
        let (layer, metadata) = self.layer(digest, &revision).await?;
        let mut fetched = self.bring(&layer, revision, metadata).await?;
        let told = |revision: &Revision| format!("verified signature of revision {revision}");
        match proof {
            Proof::NotAsked => {}
            Proof::Proven => fetched.verified = Some(told(&fetched.revision)),
            Proof::Unproven(why) => fetched.notes.insert(0, Note::Unproven { why }),
        }
        Ok(Outcome::Fetched(Box::new(fetched)))
    }

    /// What is to be looked at. A digest names what it names, whatever the registry says.
    async fn target(&mut self) -> Result<Target, OciError> {
        let refused = |why: String| OciError::ReferenceRefused { url: self.request.shown_url(), why };
        match &self.request.reference {
            OciReference::Digest(text) => {
                let digest =
                    text.parse().map_err(|error: roadstead_model::DigestError| refused(error.to_string()))?;
                Ok(Target { tag: String::new(), digest: Some(digest) })
            }
            OciReference::Tag(tag) if is_tag(tag) => Ok(Target { tag: tag.clone(), digest: None }),
            OciReference::Tag(tag) => Err(refused(format!("`{}` is not a tag", crate::tree::shown(tag)))),
            OciReference::SemVer { range, filter } => {
                let asked = Range {
                    semver: range.clone(),
                    filter: filter.clone(),
                    is_of_charts: self.request.media_type.as_deref() == Some(CHART),
                    most: self.request.limits.tags,
                };
                // Pure, and so that nothing is asked of anyone for what can bring nothing.
                asked.compile().map_err(refused)?;
                let none =
                    || OciError::NoTag { url: self.request.shown_url(), range: crate::tree::shown(range) };
                self.admit("tags").await?;
                let lists = self.wire.tags().await?;
                self.desk.answers = vec![lists];
                let reply = self.read("tags", &Order::Tags(asked)).await?;
                self.desk.answers.clear();
                match reply {
                    Reply::Tag(Some(tag)) if is_tag(&tag) => Ok(Target { tag, digest: None }),
                    Reply::Tag(None) => Err(none()),
                    Reply::Unread(unread) => Err(unread.of(self.request, "")),
                    _ => Err(self.internal("the reader answers another question")),
                }
            }
        }
    }

    fn unchanged(&self, tag: &str, digest: Digest) -> Option<Outcome> {
        let found = revision(tag, digest)?;
        (self.request.known.as_ref() == Some(&found)).then_some(Outcome::Unchanged(found))
    }

    /// Goes from the manifest that is there to the layer that is meant.
    async fn layer(
        &mut self,
        digest: Digest,
        revision: &Revision,
    ) -> Result<(Descriptor, BTreeMap<String, String>), OciError> {
        let mut about = digest.to_string();
        loop {
            let manifests = self.desk.answers.len();
            match self.read(&about, &self.order(manifests, false)).await? {
                Reply::Manifest(meant) if manifests < MOST_MANIFESTS => {
                    let digest = self.digest_of(&meant)?;
                    about = digest.to_string();
                    self.admit(&about).await?;
                    let (_, manifest) = self.wire.manifest(&about, Some(digest)).await?;
                    self.desk.answers.push(manifest);
                }
                Reply::Layer { layer, mut annotations } => {
                    // It came from a process that read untrusted bytes.
                    manifest::keep_small(&mut annotations);
                    return Ok((layer, annotations));
                }
                Reply::Unread(unread) => return Err(unread.of(self.request, &revision.to_string())),
                _ => return Err(self.internal("the reader answers another question")),
            }
        }
    }

    /// Has the layer become the artifact.
    async fn bring(
        mut self,
        layer: &Descriptor,
        revision: Revision,
        metadata: BTreeMap<String, String>,
    ) -> Result<Fetched, OciError> {
        let digest = self.digest_of(layer)?;
        let about = digest.to_string();
        self.admit(&about).await?;
        let blob = self.wire.blob(digest, layer.size).await?;
        let mut notes = Vec::new();
        if self.request.insecure && self.request.has_credentials() {
            notes.push(Note::CredentialsInTheClear);
        }
        if self.request.operation == LayerOperation::Copy {
            let (bytes, room) = self.copy(&blob, layer.size).await?;
            let artifact = Artifact { digest, bytes, files: 1, unpacked_bytes: layer.size };
            return Ok(fetched(revision, metadata, (artifact, room), notes));
        }
        let manifests = self.desk.answers.len();
        self.desk.answers.push(blob);
        self.stop.enter("reading the layer's files");
        match self.read(&about, &self.order(manifests, true)).await? {
            Reply::Read { files, unpacked_bytes, notes: more } => {
                let brought = self.desk.take_artifact();
                let brought =
                    brought.ok_or_else(|| self.internal("the reader returned an incomplete artifact"))?;
                notes.extend(more.into_iter().take(MOST_NOTES));
                let digest = Digest::of(&brought.bytes);
                let artifact = Artifact { digest, bytes: brought.bytes, files, unpacked_bytes };
                let room = brought.held;
                Ok(fetched(revision, metadata, (artifact, room), notes))
            }
            Reply::Unread(unread) => Err(unread.of(self.request, &revision.to_string())),
            _ => Err(self.internal("the reader answers another question")),
        }
    }

    /// The layer as it is, which nobody reads.
    async fn copy(
        &self,
        blob: &Answer,
        size: u64,
    ) -> Result<(Vec<u8>, Option<roadstead_budget::Reservation>), OciError> {
        let limit = self.request.limits.artifact_bytes;
        if size > limit {
            let (url, measure) = (self.request.shown_url(), Measure::ArtifactBytes);
            return Err(OciError::TooLarge { url, measure, limit, path: None });
        }
        let room = match &self.request.room {
            None => None,
            Some(room) => {
                self.stop.enter("waiting for other sources to be stored");
                Some(room.reserve(size).await.map_err(|error| self.internal(&error.to_string()))?)
            }
        };
        let length = usize::try_from(size).map_err(|error| self.internal(&error.to_string()))?;
        let bytes = match &blob.body {
            Body::Memory(bytes) => bytes.clone(),
            Body::File(file) => {
                let file = std::sync::Arc::clone(file);
                let read = move || -> io::Result<Vec<u8>> {
                    let mut bytes = vec![0; length];
                    file.read_exact_at(&mut bytes, 0)?;
                    Ok(bytes)
                };
                let read = tokio::task::spawn_blocking(read).await.map_err(io::Error::other).flatten();
                read.map_err(|error| self.internal(&format!("temporary folder: {error}")))?
            }
        };
        Ok((bytes, room))
    }

    fn order(&self, manifests: usize, has_layer: bool) -> Order {
        Order::Artifact {
            manifests,
            has_layer,
            media_type: self.request.media_type.clone(),
            ignore: self.request.ignore.clone(),
            limits: self.request.limits.clone(),
        }
    }

    async fn admit(&self, about: &str) -> Result<(), OciError> {
        self.engine.admit(about).await.map_err(|ended| self.ended(ended))
    }

    async fn read(&mut self, about: &str, order: &Order) -> Result<Reply, OciError> {
        let order = Job::Oci(order).encode().map_err(|error| self.internal(&error.to_string()))?;
        let reply = self.engine.run(about, order, &mut self.desk).await;
        let reply = reply.map_err(|ended| self.ended(ended))?;
        serde_json::from_slice(&reply).map_err(|_| self.internal("the reader's reply cannot be parsed"))
    }

    fn digest_of(&self, descriptor: &Descriptor) -> Result<Digest, OciError> {
        descriptor.digest().map_err(|unread| unread.of(self.request, ""))
    }

    fn internal(&self, detail: &str) -> OciError {
        Unread::Internal { detail: detail.to_owned() }.of(self.request, "")
    }

    fn ended(&self, Ended { why, transient }: Ended) -> OciError {
        OciError::Ended { url: self.request.shown_url(), why, transient }
    }
}

#[async_trait]
impl Source for OciRequest {
    async fn fetch(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        stop: &CancellationToken,
    ) -> Result<Outcome, Failed> {
        let request = Self { known: known.cloned(), ..self.clone() };
        let progress = Progress::default();
        let outcome = fetch_noting(request, engine, (stop, &progress)).await;
        outcome.map_err(|error| progress.failed(error))
    }

    fn shown_url(&self) -> String {
        self.shown_url()
    }

    fn has_credentials(&self) -> bool {
        let has_login = |name: RepositoryName| self.logins.of(&name).is_some();
        self.cloud.is_some() || RepositoryName::parse(&self.url, self.insecure).is_ok_and(has_login)
    }

    fn tolerated(&self) -> Option<Refusal> {
        self.guard.tolerated()
    }

    fn reserve_in(&mut self, room: Room) {
        self.room = Some(room);
    }
}

/// What a layer came to, which nobody has verified yet.
fn fetched(
    revision: Revision,
    metadata: BTreeMap<String, String>,
    (artifact, room): (Artifact, Option<roadstead_budget::Reservation>),
    notes: Vec<Note>,
) -> Fetched {
    Fetched { revision, artifact, notes, metadata, verified: None, facts: Facts::Manifest, room, turn: None }
}
