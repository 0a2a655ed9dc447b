//! One look at one Git repository, over HTTPS, HTTP or (where the operator allows it) the local file system.
//!
//! [`resolve`] asks which commit a reference points to; [`fetch`] does that and, unless it is the one that the caller
//! already has, brings its files as an artifact. Each runs on a blocking thread of its own and ends within
//! [`GitRequest::timeout`], whatever the server does: it hangs before, in or after an answer, sends a byte a minute, sends
//! without end, or sends something other than it promised.
//!
//! What arrives is checked by its content: Git objects are found by hashes computed from the bytes that came, starting at
//! the commit that was asked for or advertised. So a server can refuse or delay; it cannot pass off one tree as another.

mod error;
mod guarded;
mod http;
mod local;
mod remote;
mod request;
mod scratch;
mod stop;
mod url;
mod walk;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use roadstead_model::Revision;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

pub use error::GitError;
pub use request::{Credentials, GitLimits, GitReference, GitRequest};
pub use scratch::sweep_scratch;
pub use walk::Note;
pub use wire::{Wire, WireHead, WireRequest};

use crate::artifact::{Artifact, pack};
use crate::ignore::Ignore;
use stop::Stop;
use url::Location;

/// What a fetch found.
#[derive(Debug)]
pub enum Outcome {
    /// The reference still points to [`GitRequest::known`]; nothing was transferred.
    Unchanged(Revision),
    /// Another commit.
    Fetched(Box<Fetched>),
}

/// The files of one commit.
#[derive(Debug)]
pub struct Fetched {
    /// Where it was found, and the commit.
    pub revision: Revision,
    /// Its files.
    pub artifact: Artifact,
    /// What a user should know although it is no error: skipped submodules, say. At most a hundred.
    pub notes: Vec<Note>,
    /// A place of [`GitRequest::places`]: free again once this is dropped.
    pub place: Option<OwnedSemaphorePermit>,
}

/// Which commit the request's reference points to now. A cheap poll: two small requests.
///
/// # Errors
/// A [`GitError`], within the request's timeout.
pub async fn resolve(request: GitRequest, cancel: &CancellationToken) -> Result<Revision, GitError> {
    on_a_thread(request, cancel, |request, location, stop| match location {
        Location::Http(url) => {
            Ok(remote::Session::open(url, request, stop)?.find(&request.reference)?.revision)
        }
        Location::File(path) => Ok(local::Local::open(path, request)?.find()?.revision),
    })
    .await
}

/// The artifact of the commit that the request's reference points to now, or `Unchanged` if the caller has it.
///
/// # Errors
/// A [`GitError`], within the request's timeout. Whatever artifact the caller has stays as good as it was.
pub async fn fetch(request: GitRequest, cancel: &CancellationToken) -> Result<Outcome, GitError> {
    on_a_thread(request, cancel, fetch_now).await
}

fn fetch_now(request: &GitRequest, location: &Location, stop: &Stop) -> Result<Outcome, GitError> {
    // A pinned commit never changes: a server that is away need not be asked about one that is here.
    if let (GitReference::Commit { .. }, Some(known)) = (&request.reference, &request.known)
        && request.reference.pinned().as_ref() == Some(known)
    {
        return Ok(Outcome::Unchanged(known.clone()));
    }
    let ignore =
        Ignore::new(request.ignore.as_deref()).map_err(|error| GitError::tree(request, None, error))?;
    let unchanged = |revision: &Revision| request.known.as_ref() == Some(revision);
    let place;
    let (revision, walked) = match location {
        Location::Http(url) => {
            let mut session = remote::Session::open(url, request, stop)?;
            let target = session.find(&request.reference)?;
            if unchanged(&target.revision) {
                return Ok(Outcome::Unchanged(target.revision));
            }
            let store = session.fetch(&target)?;
            place = take_place(request, stop)?;
            let (commit, walked) = walk::walk(&store.objects, &target, request, ignore, stop)?;
            (Revision { commit, ..target.revision }, walked)
        }
        Location::File(path) => {
            let local = local::Local::open(path, request)?;
            let target = local.find()?;
            if unchanged(&target.revision) {
                return Ok(Outcome::Unchanged(target.revision));
            }
            place = take_place(request, stop)?;
            let (commit, walked) = walk::walk(local.objects(), &target, request, ignore, stop)?;
            (Revision { commit, ..target.revision }, walked)
        }
    };
    if unchanged(&revision) {
        return Ok(Outcome::Unchanged(revision));
    }
    stop.enter("packing the artifact");
    let artifact =
        pack(&walked.tree).map_err(|source| GitError::Pack { url: request.shown_url(), source })?;
    Ok(Outcome::Fetched(Box::new(Fetched { revision, artifact, notes: walked.notes, place })))
}

/// Waits for a place, as long as there is time.
fn take_place(request: &GitRequest, stop: &Stop) -> Result<Option<OwnedSemaphorePermit>, GitError> {
    let Some(places) = &request.places else { return Ok(None) };
    stop.enter("waiting for other sources to be packed");
    loop {
        match Arc::clone(places).try_acquire_owned() {
            Ok(place) => {
                stop.enter("reading the files");
                return Ok(Some(place));
            }
            // Becomes a timeout where that is the cause.
            Err(_) if stop.is_stopped() => return Err(GitError::Cancelled { url: request.shown_url() }),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Runs `work` on a blocking thread until it is done, the time is up, `cancel` is called or the caller goes away; the
/// thread notices each of these and ends.
async fn on_a_thread<T: Send + 'static>(
    request: GitRequest,
    cancel: &CancellationToken,
    work: impl FnOnce(&GitRequest, &Location, &Stop) -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    let location = Location::parse(&request)?;
    let url = request.shown_url();
    let timeout = request.timeout;
    let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
    let _ends_the_thread = stop.clone().on_drop();
    let for_thread = stop.clone();
    let started = Instant::now();
    let task = tokio::task::spawn_blocking(move || work(&request, &location, &for_thread));
    let result = tokio::select! {
        biased;
        result = task => Some(result),
        () = cancel.cancelled() => None,
        () = tokio::time::sleep_until(stop.deadline().into()) => None,
    };
    let result = match result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => Err(GitError::Internal { url: url.clone(), detail: panic.to_string() }),
        None => Err(GitError::Cancelled { url: url.clone() }),
    };
    tracing::debug!(
        url,
        elapsed_ms = started.elapsed().as_millis(),
        ok = result.is_ok(),
        "git source looked at"
    );
    result.map_err(|error| {
        // However the thread's work broke off: if it was told to stop, that is the cause.
        if cancel.is_cancelled() {
            GitError::Cancelled { url }
        } else if stop.is_past() && stop.is_veiled() {
            GitError::not_reached(url, &error.to_string())
        } else if stop.is_past() {
            GitError::Timeout { url, timeout, phase: stop.phase() }
        } else {
            error
        }
    })
}
