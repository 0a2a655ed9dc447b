//! One fetch of one Git repository, over HTTPS, HTTP, SSH or (where the operator allows it) the local file system.
//!
//! [`resolve`] asks which commit a reference points to; [`fetch`] does that and, unless it is the one that the caller
//! already has, brings its files as an artifact. Each ends within [`GitRequest::timeout`], whatever the server does: it hangs
//! before, in or after an answer, sends a byte a minute, sends without end, or sends something other than it promised.
//!
//! Two sides share the work. One has the network, the credentials and the time (`guarded`): it sends requests and keeps what
//! is answered, without looking at it. The other (`reader`) has what was answered, and nothing else: it speaks Git's
//! protocol, takes the pack apart and packs the files. An [`Engine`] says where the second one runs; it is begun when an
//! answer is there, so that it never waits for a server.
//!
//! What arrives is checked by its content: Git objects are found by hashes computed from the bytes that came, starting at
//! the commit that was asked for or advertised. So a server can refuse or delay; it cannot pass off one tree as another.

mod error;
mod greeting;
mod guarded;
mod http;
mod intake;
mod local;
mod own_runtime;
pub(crate) mod reader;
mod remote;
mod request;
mod sparse;
mod ssh;
mod unread;
mod url;
mod verify;
mod walk;
mod wire;

use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

pub use error::GitError;
pub use greeting::KnownServer;
pub use request::{Credentials, GitLimits, GitReference, GitRequest};
pub use ssh::{SshCredentials, known_hosts};
pub use verify::{PublicKeys, TrustedKeys, Verification, VerificationMode};

use crate::artifact::Artifact;
use crate::attempt::{
    Answer, Desk, Ended, Engine, InProcess, Limited, MOST_NOTES, Note, Room, Scratch, Stop, TrustedBy,
    on_a_thread,
};
use crate::ignore::Ignore;
use crate::reading::Job;
use crate::source::{FetchError, Fetched, Outcome, Source};
use greeting::Advertisement;
use reader::{Order, Reply};
use unread::{Phase, Unread};
use url::Location;
use wire::{Ask, What, Wire};

/// The greeting, the references, the pack.
const MOST_REQUESTS: usize = 3;

/// Which commit the request's reference points to now. A cheap poll: two small requests, one where the server is known.
///
/// # Errors
/// A [`GitError`], within the request's timeout.
pub async fn resolve(request: GitRequest, cancel: &CancellationToken) -> Result<Revision, GitError> {
    let engine = InProcess { scratch: request.scratch.clone() };
    match in_time(request, &engine, cancel, true).await? {
        Outcome::Unchanged(revision) => Ok(revision),
        Outcome::Fetched(fetched) => Ok(fetched.revision),
    }
}

/// The artifact of the commit that the request's reference points to now, or `Unchanged` if the caller has it. All is read
/// in this process.
///
/// # Errors
/// A [`GitError`], within the request's timeout. Whatever artifact the caller has stays as good as it was.
pub async fn fetch(request: GitRequest, cancel: &CancellationToken) -> Result<Outcome, GitError> {
    let engine = InProcess { scratch: request.scratch.clone() };
    fetch_with(request, &engine, cancel).await
}

/// As [`fetch`]; what servers send is read where `engine` says. (A local repository is the operator's own, and is read in
/// this process: its bytes were put there by the operator, and no confined process could open it.)
///
/// # Errors
/// As [`fetch`], and [`GitError::Ended`].
pub async fn fetch_with(
    request: GitRequest,
    engine: &dyn Engine,
    cancel: &CancellationToken,
) -> Result<Outcome, GitError> {
    // A pinned commit never changes: a server that is away need not be asked about one that is here.
    if let (GitReference::Commit { .. }, Some(known)) = (&request.reference, &request.known)
        && request.reference.pinned().as_ref() == Some(known)
    {
        Location::parse(&request)?;
        return Ok(Outcome::Unchanged(known.clone()));
    }
    Ignore::new(request.ignore.as_deref()).map_err(|error| GitError::tree(&request, None, error))?;
    in_time(request, engine, cancel, false).await
}

/// A fetch of one repository: what is asked for, and how far it is.
struct Attempt<'a> {
    request: &'a GitRequest,
    engine: &'a dyn Engine,
    stop: &'a Stop,
    order: Order,
    desk: Desk,
}

impl Attempt<'_> {
    /// Over the network: asks, and has the answers read, until there is nothing more to ask.
    async fn over_network(mut self, mut wire: Wire) -> Result<Outcome, GitError> {
        let known_server = &self.request.known_server;
        let mut known = known_server.take();
        let mut is_known = false;
        let mut ask = Ask::Greeting;
        if let Some(advertisement) = known.take_if(|_| !wire.always_greets()) {
            let (answer, next) = advertisement.into_parts();
            self.take_answer(answer);
            (is_known, ask) = (true, next);
        }
        let mut second = is_known.then(|| ask.clone());
        while self.desk.answers.len() < MOST_REQUESTS {
            let about = about(&ask);
            let answer;
            (wire, answer) = self.ask(wire, ask, &about).await?;
            let reply = match answer {
                Ok(answer) => {
                    // What comes of the same words is known.
                    let same = known.take().filter(|known| known.is_still(&answer));
                    self.take_answer(answer);
                    if let Some(known) = same {
                        ask = known.into_next();
                        second = Some(ask.clone());
                        continue;
                    }
                    Ok(self.read(&about).await?)
                }
                Err(error) => Err(error),
            };
            match reply {
                Ok(Reply::Ask(next)) if next.is_sound() && next != Ask::Greeting => {
                    second.get_or_insert_with(|| next.clone());
                    ask = next;
                }
                // The advertisement may be out of date.
                Ok(Reply::Unread(unread)) if is_known && unread.is_of_the_conversation() => {
                    (is_known, second, ask) = (false, None, self.start_over());
                }
                Err(error) if is_known && error.is_an_answer() => {
                    (is_known, second, ask) = (false, None, self.start_over());
                }
                reply => {
                    // A repository that was redirected is asked each time where it is.
                    let first = self.desk.answers.first().filter(|_| !wire.was_redirected());
                    let advertisement =
                        first.zip(second).and_then(|(answer, next)| Advertisement::new(answer, &next));
                    let outcome = self.done(reply?)?;
                    if let Some(advertisement) = advertisement {
                        known_server.keep(advertisement);
                    }
                    return Ok(outcome);
                }
            }
        }
        Err(self.internal("the reader asks too many questions"))
    }

    /// Asks the server.
    async fn ask(
        &mut self,
        mut wire: Wire,
        ask: Ask,
        about: &str,
    ) -> Result<(Wire, Result<Answer, GitError>), GitError> {
        self.engine.admit(about).await.map_err(|ended| self.ended(ended))?;
        let asked = tokio::task::spawn_blocking(move || {
            let answer = wire.ask(&ask);
            (wire, answer)
        });
        asked.await.map_err(|error| self.internal(&error.to_string()))
    }

    fn take_answer(&mut self, answer: Answer) {
        self.order.headings.push(answer.heading.clone());
        self.desk.answers.push(answer);
    }

    /// Forgets all answers; gives what to ask first.
    fn start_over(&mut self) -> Ask {
        self.order.headings.clear();
        self.desk.answers.clear();
        Ask::Greeting
    }

    async fn read(&mut self, about: &str) -> Result<Reply, GitError> {
        if wire::is_object_id(about) {
            self.stop.enter(Phase::Reading.text());
        }
        let order = Job::Git(&self.order).encode().map_err(|error| self.internal(&error.to_string()))?;
        let reply = self.engine.run(about, order, &mut self.desk).await;
        let reply = reply.map_err(|ended| self.ended(ended))?;
        serde_json::from_slice(&reply).map_err(|_| self.internal("the reader's reply cannot be parsed"))
    }

    /// A repository of this machine.
    async fn on_disk(mut self, path: std::path::PathBuf) -> Result<Outcome, GitError> {
        self.stop.enter(Phase::Reading.text());
        let internal = |error: std::io::Error| self.internal(&format!("temporary folder: {error}"));
        let folder = Scratch::new(self.request.scratch.as_deref()).map_err(internal)?;
        let (request, order) = (self.request.clone(), self.order);
        let read = on_a_thread(&mut self.desk, move |line, stop| {
            let local = local::Local::open(&path, &request)?;
            let target = local.find(&order)?;
            if order.find_only {
                return Ok::<_, GitError>((Reply::Found { commit: target.commit }, order));
            }
            let reply = reader::bring(local.objects(), &target, &order, folder.path(), line, stop);
            Ok((reply.unwrap_or_else(Reply::Unread), order))
        });
        let reply;
        let url = self.request.shown_url();
        (reply, self.order) =
            read.await.map_err(|error| GitError::Internal { url, detail: error.to_string() })??;
        self.done(reply)
    }

    /// What a reader's last word comes to. It is untrusted: what can be known without it is not taken from it.
    fn done(mut self, reply: Reply) -> Result<Outcome, GitError> {
        let revision = |commit: String| {
            let reference = self.request.reference.label();
            Revision::git(&reference, &commit).ok().filter(|_| wire::is_object_id(&commit))
        };
        match reply {
            Reply::Unread(unread) => Err(unread.of(self.request)),
            Reply::Found { commit } => match revision(commit) {
                Some(found) if self.order.find_only || self.request.known.as_ref() == Some(&found) => {
                    Ok(Outcome::Unchanged(found))
                }
                _ => {
                    Err(self.internal("the reader reports a revision as unchanged that is not the known one"))
                }
            },
            Reply::Read { commit, files, unpacked_bytes, mut notes, verified } => {
                let verified = match &self.request.verify {
                    None => None,
                    Some(_) => match verify::told(&verified, self.request, &commit) {
                        None => return Err(self.internal("the reader returned what it did not verify")),
                        told => told,
                    },
                };
                let (Some(revision), Some(brought)) = (revision(commit), self.desk.take_artifact()) else {
                    return Err(self.internal("the reader returned an incomplete artifact"));
                };
                notes.truncate(MOST_NOTES);
                if self.request.credentials.is_some() && self.request.url.starts_with("http://") {
                    notes.insert(0, Note::CredentialsInTheClear);
                }
                let digest = Digest::of(&brought.bytes);
                let artifact = Artifact { digest, bytes: brought.bytes, files, unpacked_bytes };
                Ok(Outcome::Fetched(Box::new(Fetched {
                    revision,
                    artifact,
                    notes,
                    metadata: std::collections::BTreeMap::new(),
                    verified,
                    room: brought.held,
                })))
            }
            Reply::Ask(_) => Err(self.internal("the reader asks a question where its result was expected")),
        }
    }

    fn internal(&self, detail: &str) -> GitError {
        Unread::Internal { detail: detail.to_owned() }.of(self.request)
    }

    fn ended(&self, Ended { why, transient }: Ended) -> GitError {
        GitError::Ended { url: self.request.shown_url(), why, transient }
    }
}

/// What a question is about, for those who decide whether its answer is read.
fn about(ask: &Ask) -> String {
    match ask {
        Ask::Greeting => "greeting",
        Ask::UploadPack { what: What::References, .. } => "references",
        Ask::UploadPack { what: What::Pack(id), .. } => id,
    }
    .to_owned()
}

#[async_trait]
impl Source for GitRequest {
    async fn fetch(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        stop: &CancellationToken,
    ) -> Result<Outcome, FetchError> {
        let request = Self { known: known.cloned(), ..self.clone() };
        Ok(fetch_with(request, engine, stop).await?)
    }

    fn shown_url(&self) -> String {
        self.shown_url()
    }

    fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    fn tolerated(&self) -> Option<Refusal> {
        self.guard.tolerated()
    }

    fn reserve_in(&mut self, room: Room) {
        self.room = Some(room);
    }
}

/// Looks until it is done, the time is up, `cancel` is called or the caller goes away; what is under way on other threads
/// and in other processes notices each of these and ends.
async fn in_time(
    request: GitRequest,
    engine: &dyn Engine,
    cancel: &CancellationToken,
    find_only: bool,
) -> Result<Outcome, GitError> {
    let location = Location::parse(&request)?;
    let url = request.shown_url();
    let timeout = request.timeout;
    let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
    let _ends_the_threads = stop.clone().on_drop();
    let trust = match location {
        Location::Ssh(_) => TrustedBy::KnownHosts,
        Location::Http(_) | Location::File(_) => TrustedBy::SecretRef,
    };
    let attempt = Attempt {
        request: &request,
        engine,
        stop: &stop,
        order: Order {
            reference: request.reference.clone(),
            known: request.known.clone(),
            ignore: request.ignore.clone(),
            verify: request.verify.clone(),
            sparse: request.sparse.clone(),
            now: verify::now(),
            limits: request.limits.clone(),
            find_only,
            headings: Vec::new(),
        },
        desk: Desk::new(request.limits.artifact_bytes, request.room.clone(), &stop),
    };
    let work = async {
        match location {
            Location::Http(to) => {
                let wire = guarded::GuardedWire::new(&to, &request, &stop)?;
                attempt.over_network(Wire::Http(wire)).await
            }
            Location::Ssh(to) => {
                let wire = ssh::SshWire::new(&to, &request, &stop)?;
                attempt.over_network(Wire::Ssh(wire)).await
            }
            Location::File(path) => attempt.on_disk(path).await,
        }
    };
    let limited = Limited { kind: "Git", url, trust, timeout, stop: &stop, cancel };
    limited.run(work).await
}
