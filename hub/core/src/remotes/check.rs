//! One check of a remote resource: fetched if it is another one, recorded, and told to who was rendered by it.

use roadstead_hub_store::{AtRest, HeldRemote, RemoteResource};
use roadstead_model::{Digest, Queue, chain};
use roadstead_outbound::{Guard, Purpose};
use roadstead_sources::file::{FileOutcome, FileRequest, Validator, fetch_file};
use roadstead_sources::{
    AttemptError, FetchError, GitError, GitReference, GitRequest, Outcome, Source as _, TrustedBy,
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::asked::{AsWhat, Asked, Repository, shown};
use super::{Check, Remotes, identity, name_of};
use crate::HubError;
use crate::objects::conditions;
use crate::sources::fetch::{self, Subject};

/// Bytes of a single file.
const MOST_FILE: u64 = 8 << 20;
/// Everything that a repository has is there for kustomize, whatever Flux or the repository leave out of a source.
const LEAVE_NOTHING_OUT: &str = "!*";

/// A check that is under way: once it ends, another one may be asked for.
struct UnderWay<'a> {
    remotes: &'a Remotes,
    key: &'a str,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.remotes.waiting().remove(self.key);
    }
}

impl Remotes {
    /// Checks a remote resource, and records what came of it.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the resource is recorded.
    pub async fn check(&self, check: &Check, cancel: &CancellationToken) -> Result<(), HubError> {
        let key = &check.asked.key;
        let _under_way = UnderWay { remotes: self, key };
        let began_at = self.clock.now();
        let before = self.store.remote_resources(&[key]).await?.remove(key);
        let found = self.fetch(check, before, cancel).await?;
        if cancel.is_cancelled() {
            return Ok(());
        }
        let (held, failure) = match found {
            Ok(held) => (Some(held), None),
            Err(why) => (None, Some(conditions::shortened(&why))),
        };
        let error = failure.clone().unwrap_or_default();
        let found = RemoteResource { began_at, ended_at: self.clock.now(), failure, held };
        let mut tx = self.store.begin().await?;
        let Some(before) = tx.record_remote_resource(key, &found).await? else { return Ok(()) };
        let mut woken = self.waiting().get(key).map(|waiting| waiting.by.clone()).unwrap_or_default();
        let was = before.as_ref().map(identity);
        if was != Some(identity(&found)) {
            woken.extend(tx.rendered_by_name(&name_of(&check.asked)).await?);
            let url = shown(key);
            match &found.held {
                Some(held) => {
                    tracing::info!(url, digest = %held.digest, "remote resource changed");
                }
                None => tracing::error!(url, error, "remote resource is not available"),
            }
        }
        tx.enqueue(Queue::Applier, &woken).await?;
        tx.commit().await?;
        Ok(())
    }

    /// What it holds now; the inner error is for conditions.
    async fn fetch(
        &self,
        check: &Check,
        before: Option<RemoteResource>,
        cancel: &CancellationToken,
    ) -> Result<Result<HeldRemote, String>, HubError> {
        let failed = before.as_ref().is_some_and(|before| before.failure.is_some());
        let before = before.and_then(|before| before.held);
        let guard = self.options.outbound.guard(Purpose::Git).only_to(self.hosts.clone());
        match &check.asked.as_what {
            AsWhat::Repository(repository) => self.repository(check, repository, before, guard, cancel).await,
            // It was one a moment ago. After a failure it is asked again what it is.
            AsWhat::File(_, Some(repository))
                if !failed && before.as_ref().is_some_and(|before| !before.is_file) =>
            {
                self.repository(check, repository, before, guard, cancel).await
            }
            AsWhat::File(url, repository) => {
                let (of_file, of_repository) = match before {
                    Some(before) if before.is_file => (Some(before), None),
                    before => (None, before),
                };
                let no_file = match self.file(&check.asked, url, of_file, guard.clone(), cancel).await? {
                    Ok(Ok(held)) => return Ok(Ok(held)),
                    Ok(Err(no_file)) => no_file,
                    Err(why) => return Ok(Err(why)),
                };
                let Some(repository) = repository else {
                    return Ok(Err(format!("it is not a file: its server answered with {no_file}")));
                };
                let found = self.repository(check, repository, of_repository, guard, cancel).await?;
                Ok(found.map_err(|why| format!("it is not a file ({no_file}), and as a repository: {why}")))
            }
        }
    }

    /// A file; the errors, from the outside in: the hub's own, why it cannot be had, what is there instead.
    async fn file(
        &self,
        asked: &Asked,
        url: &Url,
        before: Option<HeldRemote>,
        guard: Guard,
        cancel: &CancellationToken,
    ) -> Result<Result<Result<HeldRemote, String>, String>, HubError> {
        let workers = self.sources.workers()?;
        let room = fetch::room(workers);
        let request = FileRequest {
            url: url.clone(),
            guard,
            timeout: asked.timeout,
            most_bytes: MOST_FILE.min(self.most_bytes()).min(room.pool.size() / room.copies),
            room,
            disk: Some(workers.disk.clone()),
            known: before.as_ref().and_then(|before| Validator::of_text(&before.revision)),
        };
        let fetched = match fetch_file(&request, cancel).await {
            Err(error) => return Ok(Err(error.to_string())),
            Ok(FileOutcome::NoFile(what)) => return Ok(Ok(Err(what))),
            Ok(FileOutcome::Unchanged) => {
                return Ok(before
                    .map(Ok)
                    .ok_or_else(|| "its server says that nothing has changed".to_owned()));
            }
            Ok(FileOutcome::Fetched(fetched)) => fetched,
        };
        let digest = Digest::of(&fetched.bytes);
        self.store.put_blob(digest, &fetched.bytes, AtRest::Sealed, self.clock.now()).await?;
        let revision = fetched.validator.map(|validator| validator.to_text()).unwrap_or_default();
        Ok(Ok(Ok(HeldRemote { digest, is_file: true, revision, bytes: fetched.bytes.len() as u64 })))
    }

    async fn repository(
        &self,
        check: &Check,
        repository: &Repository,
        before: Option<HeldRemote>,
        guard: Guard,
        cancel: &CancellationToken,
    ) -> Result<Result<HeldRemote, String>, HubError> {
        let workers = self.sources.workers()?;
        let mut request = GitRequest::new(repository.url.clone());
        request.reference = GitReference::of_word(&repository.reference);
        request.guard = guard;
        request.trusted_by = TrustedBy::System;
        request.timeout = check.asked.timeout;
        request.limits = fetch::limits(workers, request.limits);
        request.limits.tree.total_bytes = request.limits.tree.total_bytes.min(self.most_bytes());
        request.disk = Some(workers.disk.clone());
        request.recurse_submodules = repository.submodules;
        request.ignore = Some(LEAVE_NOTHING_OUT.to_owned());
        request.known_server = self.known_server(&check.asked.key);
        request.reserve_in(fetch::room(workers));
        let known = before.as_ref().and_then(|before| before.revision.parse().ok());
        let what = Subject {
            namespace: &check.namespace,
            name: check.asked.key.clone(),
            is_asked_for: check.is_asked_for,
        };
        let fetched = match self.sources.fetch_as(what, &request, known.as_ref(), cancel).await? {
            Err(failed) => return Ok(Err(told(&failed.error))),
            Ok(Outcome::Unchanged(_)) => {
                return Ok(before.ok_or_else(|| "it counts as unchanged, and is not known".to_owned()));
            }
            Ok(Outcome::Fetched(fetched)) => fetched,
        };
        let artifact = &fetched.artifact;
        self.store.put_blob(artifact.digest, &artifact.bytes, AtRest::Sealed, self.clock.now()).await?;
        Ok(Ok(HeldRemote {
            digest: artifact.digest,
            is_file: false,
            revision: fetched.revision.to_string(),
            bytes: artifact.unpacked_bytes,
        }))
    }
}

/// What is told of a repository that cannot be fetched: there is no Secret whose credentials could be wrong.
fn told(error: &FetchError) -> String {
    match error {
        FetchError::Git(GitError::Auth { url, status, .. }) => {
            format!("`{url}` asks for credentials (HTTP {status}), and remote resources are fetched without")
        }
        FetchError::Git(GitError::RepositoryNotFound { url, status }) => {
            format!("there is no Git repository at `{url}` that is open to everybody (HTTP {status})")
        }
        FetchError::Git(GitError::ReferenceNotFound { url, reference, .. }) => {
            format!("`{url}` has no {reference}")
        }
        FetchError::Git(GitError::Attempt(error @ AttemptError::AddressRefused { .. })) => error.to_string(),
        error => chain(error),
    }
}
