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

mod app;
mod asking;
mod error;
mod fetching;
mod gitmodules;
mod greeting;
mod guarded;
mod http;
mod include;
mod intake;
mod known;
mod local;
mod modules;
mod objects;
mod own_runtime;
pub(crate) mod reader;
mod remote;
mod request;
mod sparse;
mod ssh;
mod subject;
mod submodule;
mod symrefs;
mod unread;
mod url;
mod verify;
mod versions;
mod walk;
mod wire;

use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::Revision;
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

pub use app::AppLogin;
pub use error::GitError;
pub use include::{Include, Stored, StoredBytes};
pub use known::KnownServer;
pub use request::{Credentials, GitLimits, GitReference, GitRequest};
pub use ssh::{SshCredentials, known_hosts};
pub use subject::subject;
pub(crate) use verify::now;
pub use verify::{PublicKeys, TrustedKeys, Verification, VerificationMode};

use crate::attempt::{Engine, InProcess, Limited, Progress, Room, Stop, TrustedBy};
use crate::ignore::Ignore;
use crate::source::{Failed, Outcome, Source};
use asking::Asking;
use fetching::Attempt;
use url::Location;

/// Which commit the request's reference points to now. A cheap poll: two small requests, one where the server is known.
///
/// # Errors
/// A [`GitError`], within the request's timeout.
pub async fn resolve(request: GitRequest, cancel: &CancellationToken) -> Result<Revision, GitError> {
    let engine = InProcess { scratch: request.scratch.clone() };
    match in_time(request, &engine, (cancel, &Progress::default()), true).await? {
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
    fetch_noting(request, engine, (cancel, &Progress::default())).await
}

async fn fetch_noting(
    request: GitRequest,
    engine: &dyn Engine,
    attempt: (&CancellationToken, &Progress),
) -> Result<Outcome, GitError> {
    // A pinned commit never changes: a server that is away need not be asked about one that is here.
    if let (GitReference::Commit { .. }, Some(known)) = (&request.reference, &request.known)
        && request.reference.pinned().as_ref() == Some(known)
    {
        Location::parse(&request)?;
        return Ok(Outcome::Unchanged(known.clone()));
    }
    Ignore::new(request.ignore.as_deref()).map_err(|error| GitError::tree(&request, None, error))?;
    check_includes(&request)?;
    in_time(request, engine, attempt, false).await
}

/// Refuses what cannot be put into an artifact, whatever is there.
fn check_includes(request: &GitRequest) -> Result<(), GitError> {
    let url = request.shown_url();
    if request.include.len() > include::MOST {
        return Err(GitError::IncludeRefused { url, why: format!("there are more than {}", include::MOST) });
    }
    match request.include.iter().find_map(Include::refusal) {
        Some(why) => Err(GitError::IncludeRefused { url, why }),
        None => Ok(()),
    }
}

#[async_trait]
impl Source for GitRequest {
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
        self.credentials.is_some() || self.cloud.is_some()
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
    (cancel, progress): (&CancellationToken, &Progress),
    find_only: bool,
) -> Result<Outcome, GitError> {
    let location = Location::parse(&request)?;
    let url = request.shown_url();
    let timeout = request.timeout;
    let stop = Stop::new(Instant::now() + timeout, cancel.child_token()).noting(progress);
    let _ends_the_threads = stop.clone().on_drop();
    let trust = match location {
        Location::Ssh(_) => TrustedBy::KnownHosts,
        Location::Http(_) | Location::File(_) => request.trusted_by,
    };
    let work = async {
        let mut asking = Asking::new(&request, &location)?;
        loop {
            let asked = asking.asked(&stop).await?;
            let outcome = Attempt::new(&asked, &location, engine, &stop, find_only).run().await;
            if let Some(outcome) = asking.settled(outcome) {
                return outcome;
            }
        }
    };
    let limited = Limited { kind: "Git", url, trust, timeout, stop: &stop, cancel };
    limited.run(work).await
}
