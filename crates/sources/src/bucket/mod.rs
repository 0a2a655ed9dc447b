//! One fetch of one bucket of an object store: S3 and all that speak it, Google Cloud Storage, Azure Blob Storage.
//!
//! [`fetch_with`] lists the bucket's objects, and unless they are those that the caller already has, receives them and brings them as an
//! artifact. What they are is told by the revision: a digest over keys and etags. So a bucket that has not changed costs a list.
//! A fetch ends within [`BucketRequest::timeout`], whatever the server does.
//!
//! Two sides share the work, as for Git and OCI. One has the network, the credentials and the time (`wire`, `login`): it sends requests and
//! keeps what is answered without looking at it. The other (`reader`) has what was answered, and nothing else: it reads pages of lists and
//! patterns, and packs what was received. An [`Engine`] says where the second one runs; it is begun when an answer is there.
//!
//! Between the list and the last object the bucket may change. Each object is asked for as it was listed, by its etag or generation, and
//! what comes is compared; where it was replaced, all is listed again. Keys become names in an artifact, and never names of files here.

mod error;
mod index;
mod known;
mod listing;
mod login;
mod place;
pub(crate) mod reader;
mod received;
mod request;
mod sign;
mod wire;

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

pub use error::{BucketError, Step, Why};
pub use known::KnownBucket;
pub use request::{AzureProof, BucketLimits, BucketLogin, BucketRequest, BucketStore, GoogleKey, LdapLogin};

use crate::artifact::Artifact;
use crate::attempt::{Desk, Ended, Engine, Limited, Progress, Room, Stop, TrustedBy};
use crate::cloud::OnceMore;
use crate::ignore::Ignore;
use crate::reading::Job;
use crate::source::{Facts, Failed, Fetched, Outcome, Source};
use crate::tree::Measure;
use index::{Listed, Span, decode, encode, revision};
use login::Login;
use place::Place;
use reader::{Order, Reply, What};
use received::Received;
use wire::{Came, Got, Wire};

/// How often a bucket is listed in one attempt, where it changes meanwhile.
const ROUNDS: usize = 3;

/// The artifact of what the bucket holds now, or `Unchanged` if the caller has it. What the server sends is read where `engine`
/// says.
///
/// # Errors
/// A [`BucketError`], within the request's timeout. Whatever artifact the caller has stays as good as it was.
pub async fn fetch_with(
    request: BucketRequest,
    engine: &dyn Engine,
    cancel: &CancellationToken,
) -> Result<Outcome, BucketError> {
    fetch_noting(request, engine, (cancel, &Progress::default())).await
}

async fn fetch_noting(
    request: BucketRequest,
    engine: &dyn Engine,
    (cancel, progress): (&CancellationToken, &Progress),
) -> Result<Outcome, BucketError> {
    let url = request.shown_url();
    let timeout = request.timeout;
    Ignore::without_defaults(request.ignore.as_deref())
        .map_err(|error| Why::from(error).at(Step::Attempt))?;
    let stop = Stop::new(Instant::now() + timeout, cancel.child_token()).noting(progress);
    let attempt = Attempt { request: &request, engine, stop: &stop };
    let trust = TrustedBy::CertSecretRef;
    let limited = Limited { kind: "bucket", url, trust, timeout, stop: &stop, cancel };
    limited.run(attempt.run()).await
}

/// A fetch of one bucket.
struct Attempt<'a> {
    request: &'a BucketRequest,
    engine: &'a dyn Engine,
    stop: &'a Stop,
}

/// What is known of the bucket after its list was read.
struct Index {
    objects: Vec<Listed>,
    /// The file with patterns.
    patterns: Option<Span>,
    /// Held while the objects are in memory.
    _held: Option<roadstead_budget::Reservation>,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Outcome, BucketError> {
        let setup = |why: Why| why.at(Step::Attempt);
        let request = self.request;
        let place = Place::of(request, request.known_bucket.region().as_deref());
        let place = place.map_err(|why| setup(Why::Refused(why)))?;
        let idle = request.limits.at_once;
        let client = wire::client(request, request.ca.as_deref(), request.identity.as_ref(), idle);
        let client = client.map_err(setup)?;
        self.stop.hide_behind(client.veil());
        let mut once = OnceMore::default();
        for round in 1.. {
            let login = Login { request, place: &place, client: &client, stop: self.stop };
            let signer = login.signer().await?;
            let mut wire = Wire::new(request, client.clone(), place.clone(), signer).map_err(setup)?;
            let error = match self.round(&mut wire).await {
                Err(error) => error,
                done => return done,
            };
            let has_changed = matches!(*error.why, Why::Changed) && round < ROUNDS;
            if !has_changed && !once.may(login.forget(&error.why)) {
                return Err(error);
            }
        }
        Err(setup(Why::Changed))
    }

    /// Lists the bucket, and fetches what is in it if it is something else than the caller has.
    async fn round(&self, wire: &mut Wire<'_>) -> Result<Outcome, BucketError> {
        let request = self.request;
        let mut received = Received::new(request);
        let Index { objects, patterns, _held } = self.list(wire, &mut received).await?;
        let of = |objects: &[Listed]| {
            let found = revision(objects.iter().map(|object| (object.key.as_str(), object.etag.as_str())));
            found.ok_or_else(|| self.internal("no revision"))
        };
        let found = of(&objects)?;
        if let Some(wanted) = request.pinned.as_ref().filter(|wanted| wanted.content() != found.content()) {
            let (found, wanted) = (found.to_string(), wanted.to_string());
            return Err(Why::OtherRevision { found, wanted }.at(self.index()));
        }
        self.stop.progress().learn(found.clone());
        if request.known.as_ref() == Some(&found) {
            return Ok(Outcome::Unchanged(found));
        }
        self.admit(&found.to_string()).await?;
        let objects = self.receive(wire, objects, &mut received).await?;
        let found = of(&objects)?;
        self.stop.progress().learn(found.clone());
        if request.known.as_ref() == Some(&found) {
            return Ok(Outcome::Unchanged(found));
        }
        let at = received.end();
        received.append(Bytes::from(encode(objects.iter()))).await.map_err(|why| why.at(self.index()))?;
        let index = received.since(at);
        // The packed artifact needs room of the same share.
        drop((objects, _held));
        self.pack(found, index, patterns, &received).await
    }

    async fn list(&self, wire: &mut Wire<'_>, received: &mut Received) -> Result<Index, BucketError> {
        let limits = &self.request.limits;
        let too_large = |measure, limit| Err(Why::TooLarge { measure, limit, path: None }.at(self.index()));
        let mut pages: Vec<Span> = Vec::new();
        let mut next: Option<String> = None;
        // Of a part of the bucket the list does not say whether there are patterns at its root.
        let mut may_have_patterns = self.request.prefix.as_ref().is_some_and(|prefix| !prefix.is_empty());
        loop {
            self.stop.enter("listing the bucket");
            self.admit("list").await?;
            let offset = received.end();
            let step =
                if pages.is_empty() { Step::Confirm(self.request.bucket.clone()) } else { self.index() };
            match wire.page(next.as_deref(), received).await.map_err(|why| why.at(step.clone()))? {
                Came::Whole => pages.push(received.since(offset)),
                Came::Gone => {
                    return Err(Why::NoBucket { bucket: self.request.bucket.clone() }.at(Step::Attempt));
                }
                Came::No { status, answer } => {
                    return Err(self.no(wire, status, answer, received, step).await);
                }
            }
            if received.end() > limits.list_bytes {
                return too_large(Measure::ObjectListBytes, limits.list_bytes);
            }
            let page = What::Page(received.since(offset));
            let Reply::Next { next: follows, has_patterns } = self.read("list", page, received).await? else {
                return Err(self.internal("the reader answers another question"));
            };
            may_have_patterns |= has_patterns;
            match follows {
                None => break,
                Some(follows) if next.as_ref() == Some(&follows) => {
                    return Err(Why::Corrupt("its list of objects does not end".to_owned()).at(self.index()));
                }
                Some(_) if pages.len() >= limits.pages => {
                    return too_large(Measure::ObjectListPages, limits.pages as u64);
                }
                follows => next = follows,
            }
        }
        let patterns = if may_have_patterns { self.patterns(wire, received).await? } else { None };
        self.indexed(pages, patterns, received).await
    }

    /// The bucket's own file with patterns, of its root whatever the prefix is.
    async fn patterns(&self, wire: &Wire<'_>, received: &mut Received) -> Result<Option<Span>, BucketError> {
        self.stop.enter("receiving .sourceignore");
        let offset = received.end();
        match wire.patterns(received).await.map_err(|why| why.at(Step::Patterns))? {
            Came::Whole => Ok(Some(received.since(offset))),
            Came::Gone => Ok(None),
            Came::No { status, answer } => Err(self.no(wire, status, answer, received, Step::Patterns).await),
        }
    }

    async fn indexed(
        &self,
        pages: Vec<Span>,
        patterns: Option<Span>,
        received: &Received,
    ) -> Result<Index, BucketError> {
        let limits = &self.request.limits;
        let prefix = self.request.prefix.clone().unwrap_or_default();
        let what = What::Index { pages, prefix, ignore: self.request.ignore.clone(), patterns };
        let mut desk = Desk::new(limits.index_bytes, self.request.room.clone(), self.stop);
        desk.answers.push(received.answer());
        let Reply::Indexed = self.read_at("list", what, &mut desk).await? else {
            return Err(self.internal("the reader answers another question"));
        };
        let brought = desk.take_artifact();
        let brought = brought.ok_or_else(|| self.internal("the reader returned an incomplete list"))?;
        let objects = decode(&brought.bytes, limits).map_err(|why| why.at(self.index()))?;
        Ok(Index { objects, patterns, _held: brought.held })
    }

    /// Receives the objects, some at once. Those that are gone leave the list.
    async fn receive(
        &self,
        wire: &Wire<'_>,
        objects: Vec<Listed>,
        received: &mut Received,
    ) -> Result<Vec<Listed>, BucketError> {
        self.stop.enter("receiving the bucket's objects");
        let total = objects.iter().map(|object| object.size).sum();
        let place = received.place(total).await.map_err(|why| why.at(self.index()))?;
        let mut at = 0;
        let placed = objects.into_iter().map(|object| {
            let from = at;
            at += object.size;
            (object, from)
        });
        let place = &place;
        let coming = placed.map(|(object, at)| async move {
            match wire.object(&object, place, at).await {
                Ok(Some(())) => Ok(Some(Listed { offset: place.offset() + at, ..object })),
                Ok(None) => Ok(None),
                Err(got) => Err((object.key, got)),
            }
        });
        let coming = futures::stream::iter(coming).buffered(self.request.limits.at_once);
        let came: Result<Vec<Option<Listed>>, (String, Got)> = coming.try_collect().await;
        match came {
            Ok(objects) => Ok(objects.into_iter().flatten().collect()),
            Err((key, got)) => {
                let step = Step::Get(self.request.bucket.clone(), key);
                let why = match got {
                    Got::Failed(why) => why,
                    Got::No(response) => match wire.refusal(response, received).await {
                        Ok(Came::No { status, answer }) => {
                            return Err(self.no(wire, status, answer, received, step).await);
                        }
                        Ok(Came::Whole | Came::Gone) => Why::Corrupt("it is not there".to_owned()),
                        Err(why) => why,
                    },
                };
                Err(why.at(step))
            }
        }
    }

    async fn pack(
        &self,
        revision: Revision,
        index: Span,
        patterns: Option<Span>,
        received: &Received,
    ) -> Result<Outcome, BucketError> {
        self.stop.enter("packing the bucket's objects");
        let mut desk = Desk::new(self.request.limits.artifact_bytes, self.request.room.clone(), self.stop);
        desk.answers.push(received.answer());
        let reply = self.read_at(&revision.to_string(), What::Pack { index, patterns }, &mut desk).await?;
        let Reply::Packed { files, unpacked_bytes } = reply else {
            return Err(self.internal("the reader answers another question"));
        };
        let brought = desk.take_artifact();
        let brought = brought.ok_or_else(|| self.internal("the reader returned an incomplete artifact"))?;
        let digest = Digest::of(&brought.bytes);
        let artifact = Artifact { digest, bytes: brought.bytes, files, unpacked_bytes };
        let (notes, metadata, room) = (Vec::new(), std::collections::BTreeMap::new(), brought.held);
        Ok(Outcome::Fetched(Box::new(Fetched {
            revision,
            artifact,
            notes,
            metadata,
            room,
            turn: None,
            verified: None,
            facts: Facts::Objects(files),
        })))
    }

    /// What it means that a server says no.
    async fn no(
        &self,
        wire: &Wire<'_>,
        status: u16,
        answer: Span,
        received: &Received,
        step: Step,
    ) -> BucketError {
        let code = match self.read("list", What::Refusal(answer), received).await {
            // It came from a process that read untrusted bytes.
            Ok(Reply::Code(code)) => code.as_deref().and_then(listing::known_code).map(str::to_owned),
            Ok(_) => None,
            Err(error) => return error,
        };
        let had_credentials = wire.is_someone();
        let why = match status {
            401 | 403 => Why::Denied { status, code, had_credentials },
            _ => Why::Status { status, code },
        };
        why.at(step)
    }

    async fn read(&self, about: &str, what: What, received: &Received) -> Result<Reply, BucketError> {
        let mut desk = Desk::new(0, None, self.stop);
        desk.answers.push(received.answer());
        self.read_at(about, what, &mut desk).await
    }

    async fn read_at(&self, about: &str, what: What, desk: &mut Desk) -> Result<Reply, BucketError> {
        let order = Order { store: self.request.store, limits: self.request.limits.clone(), what };
        let order = Job::Bucket(&order).encode().map_err(|error| self.internal(&error.to_string()))?;
        let reply = self.engine.run(about, order, desk).await.map_err(|ended| self.ended(ended))?;
        match serde_json::from_slice(&reply) {
            Ok(Reply::Unread(unread)) => Err(unread.why(self.request.shown_url()).at(self.index())),
            Ok(reply) => Ok(reply),
            Err(_) => Err(self.internal("the reader's reply cannot be parsed")),
        }
    }

    async fn admit(&self, about: &str) -> Result<(), BucketError> {
        self.engine.admit(about).await.map_err(|ended| self.ended(ended))
    }

    fn index(&self) -> Step {
        Step::Index(self.request.bucket.clone())
    }

    fn ended(&self, Ended { why, transient }: Ended) -> BucketError {
        Why::Ended { why, transient }.at(self.index())
    }

    fn internal(&self, detail: &str) -> BucketError {
        Why::Internal(detail.to_owned()).at(self.index())
    }
}

#[async_trait]
impl Source for BucketRequest {
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
        !matches!(self.login, BucketLogin::Anonymous)
    }

    fn tolerated(&self) -> Option<Refusal> {
        self.guard.tolerated()
    }

    fn reserve_in(&mut self, room: Room) {
        self.room = Some(room);
    }
}
