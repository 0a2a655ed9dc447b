//! Sources: what is to be fetched, and what came of it. The fetching itself is a task's.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use roadstead_api::git_repository::GitProvider;
use roadstead_api::{
    Artifact, ConditionStatus, GitRepository, GitRepositorySpec, GitRepositoryStatus, KindId, PipelineRole,
    Time,
};
use roadstead_budget::PoolName;
use roadstead_hub_store::{AtRest, SecretData, Stored};
use roadstead_model::{KustomizationUid, Queue, Reason, ResourceUid, Revision, chain};
use roadstead_outbound::{Authority, Purpose, Refusal};
use roadstead_sources::{
    Credentials, Fetched, GitError, GitLimits, GitReference, GitRequest, Measure, Outcome, Secret,
};
use url::Url;

use crate::HubError;
use crate::objects::conditions::{self, READY, SUSPENDED};
use crate::objects::{status, triggers};
use crate::sources::{Sources, notes};

/// The type of the condition that says what artifact there is, and by its generation which spec it was made from. As
/// in Flux it stays as it is where a later fetch fails.
const ARTIFACT_IN_STORAGE: &str = "ArtifactInStorage";
/// A source that fails is tried again after this, then twice as long, up to its interval.
const LONG: Duration = Duration::from_secs(3600);
const RETRY: Duration = Duration::from_secs(10);

/// A fetch to be done, or why there is none.
pub enum FetchPlan {
    /// The source is gone, or suspended: the next pass is due then.
    Nothing(Timestamp),
    /// Fetch, and hand the outcome to [`Sources::record_fetch`].
    Fetch(Box<FetchJob>),
}

/// A fetch.
pub struct FetchJob {
    /// What to fetch.
    pub request: GitRequest,
    seen: Stored,
    spec: GitRepositorySpec,
    handles: Option<String>,
    /// Whether somebody asked for it since the last one.
    asked: bool,
    /// Until when it is fetched wherever it leads.
    grace: Option<Timestamp>,
}

impl FetchJob {
    /// The host that it is fetched from, whatever the port and the notation, for keeping one that is slow from holding up
    /// others. Empty for a URL without one.
    #[must_use]
    pub fn host(&self) -> String {
        let host = Url::parse(&self.spec.url).ok().as_ref().and_then(Authority::of_url);
        host.map_or_else(String::new, |authority| authority.host.to_string())
    }

    /// The namespace of the source.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.seen.namespace
    }

    /// What it is done for: the source, and which of its specs.
    pub(crate) fn identity(&self) -> (ResourceUid, i64) {
        (self.seen.uid, self.seen.generation)
    }

    /// Whether somebody asked for it by annotation, so that it is tried whatever came of it before.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.asked
    }

    /// What was connected to although it is not allowed, and until when that is so.
    fn tolerated(&self) -> Option<(Refusal, Timestamp)> {
        self.request.guard.tolerated().zip(self.grace)
    }
}

impl Sources {
    /// What is to be fetched for this source.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the source becomes its condition.
    pub async fn plan_fetch(&self, uid: ResourceUid) -> Result<FetchPlan, HubError> {
        let now = self.clock.now();
        let Some(stored) = self.store.get_by_uid(uid).await? else {
            return Ok(FetchPlan::Nothing(now + LONG));
        };
        if !stored.kind.get().reconciled {
            return Ok(FetchPlan::Nothing(now + LONG));
        }
        let source: GitRepository = stored.decode()?;
        let spec = source.spec;
        if stored.deletion_timestamp.is_some() {
            return Ok(FetchPlan::Nothing(now + LONG));
        }
        if spec.suspend {
            self.write_source_status(&stored, |status, generation| {
                conditions::set_suspended(&mut status.conditions, "the artifact", generation, now);
            })
            .await?;
            return Ok(FetchPlan::Nothing(now + LONG));
        }
        let handled = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.clone());
        let artifact = source.status.and_then(|status| status.artifact);
        match self.fetch_request(&stored, &spec, artifact.as_ref()).await? {
            Ok(mut request) => {
                if notes::is_capped(&spec) {
                    // Before it is fetched, which takes as long as it may.
                    self.write_source_status(&stored, |status, generation| {
                        notes::note_timeout(&mut status.conditions, &spec, generation, now);
                    })
                    .await?;
                }
                let handles = triggers::request(&stored);
                let grace = self.store.source_grace(uid, &spec.url, now).await?;
                let authority = Url::parse(&spec.url).ok().as_ref().and_then(Authority::of_url);
                if let (Some(_), Some(authority)) = (grace, authority) {
                    request.guard = request.guard.lenient_towards(authority);
                }
                let asked = handles.is_some() && handles != handled;
                let job = FetchJob { request, seen: stored, spec, handles, asked, grace };
                Ok(FetchPlan::Fetch(Box::new(job)))
            }
            Err((reason, message)) => {
                self.source_failed(&stored, triggers::request(&stored), reason, &message).await?;
                Ok(FetchPlan::Nothing(now + spec.interval.0.max(RETRY)))
            }
        }
    }

    async fn fetch_request(
        &self,
        stored: &Stored,
        spec: &GitRepositorySpec,
        artifact: Option<&Artifact>,
    ) -> Result<Result<GitRequest, (Reason, String)>, HubError> {
        if let Some(field) = unsupported(spec) {
            let message = format!(
                "{field} is not supported by this version of Roadstead; nothing was fetched. Remove it to go on"
            );
            return Ok(Err((Reason::GitOperationFailed, message)));
        }
        let mut request = GitRequest::new(spec.url.clone());
        let reference = spec.reference.clone().unwrap_or_default();
        request.reference = GitReference::from_spec(
            reference.branch.as_deref(),
            reference.tag.as_deref(),
            reference.semver.as_deref(),
            reference.name.as_deref(),
            reference.commit.as_deref(),
        );
        request.allow_file = self.options.allow_file_sources;
        if let Some(workers) = &self.options.workers {
            request.limits = crate::sources::fetch::limits(workers, request.limits);
            request.room = Some(crate::sources::fetch::room(workers));
            request.disk = Some(workers.disk.clone());
        }
        request.limits.tree.total_bytes = request.limits.tree.total_bytes.min(self.most_of_a_source());
        request.guard = self.options.outbound.guard(Purpose::Git);
        request.plain_http_credentials = self.options.outbound.plain_http_credentials;
        request.timeout = notes::timeout(spec);
        request.ignore.clone_from(&spec.ignore);
        request.known = self.known_revision(stored, artifact).await?;
        request.known_server = self.known_servers.of(stored.uid, stored.generation);
        if let Some(reference) = &spec.secret_ref {
            let full = format!("Secret '{}/{}'", stored.namespace, reference.name);
            let Some(secret) = self.store.get(KindId::Secret, &stored.namespace, &reference.name).await?
            else {
                return Ok(Err((
                    Reason::AuthenticationFailed,
                    format!("{full} of spec.secretRef not found"),
                )));
            };
            if let Err(why) = self.access.may_send(stored, &secret, &spec.url).await? {
                return Ok(Err((Reason::AccessDenied, why)));
            }
            let data = secret.secret.unwrap_or_else(|| SecretData::new(std::collections::BTreeMap::new()));
            match credentials(&data) {
                Ok((credentials, ca)) => (request.credentials, request.ca) = (credentials, ca),
                Err(why) => return Ok(Err((Reason::AuthenticationFailed, format!("{full}: {why}")))),
            }
        }
        Ok(Ok(request))
    }

    /// Bytes of the files of one source: what a builder holds of them, and what it makes of them, is to fit into its memory.
    fn most_of_a_source(&self) -> u64 {
        self.options.budget.pool(PoolName::Workers).size() / 4
    }

    /// The revision that need not be fetched again: that of the artifact, if it is still stored and was made from the
    /// spec as it is now.
    async fn known_revision(
        &self,
        stored: &Stored,
        artifact: Option<&Artifact>,
    ) -> Result<Option<Revision>, HubError> {
        let Some(artifact) = artifact else { return Ok(None) };
        let source: GitRepository = stored.decode()?;
        let conditions = source.status.map(|status| status.conditions).unwrap_or_default();
        if !conditions::is_true(&conditions, ARTIFACT_IN_STORAGE, stored.generation) {
            return Ok(None);
        }
        let (Ok(revision), Ok(digest)) = (artifact.revision.parse(), artifact.digest.parse()) else {
            return Ok(None);
        };
        Ok(self.store.has_blob(digest).await?.then_some(revision))
    }

    /// Whether what a fetch brings is still wanted: its source is there, with the same spec.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn wants_fetch(&self, job: &FetchJob) -> Result<bool, HubError> {
        Ok(self.store.live_generation(job.seen.uid).await? == Some(job.seen.generation))
    }

    /// Records what came of a fetch, and tells when to fetch again.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn record_fetch(
        &self,
        job: &FetchJob,
        outcome: Result<Outcome, GitError>,
    ) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let uid = KustomizationUid::from(job.seen.uid);
        let next = now + roadstead_hub_plan::jittered(job.spec.interval.0, uid);
        match outcome {
            Ok(Outcome::Unchanged(revision)) => self.source_ready(job, &revision, None).await?,
            Ok(Outcome::Fetched(fetched)) => {
                let artifact = &fetched.artifact;
                // Nobody knows what lies in a repository: a Secret in plain, or a key that should not be there.
                self.store.put_blob(artifact.digest, &artifact.bytes, AtRest::Sealed, now).await?;
                self.source_ready(job, &fetched.revision, Some(&fetched)).await?;
            }
            Err(error) => {
                let mut message = chain(&error);
                if is_for_want_of_memory(&error) {
                    message.push_str("; more fit with more memory (--memory-budget)");
                }
                self.source_failed(&job.seen, job.handles.clone(), error.reason(), &message).await?;
                if error.is_transient() {
                    return Ok(next.min(now + RETRY.max(job.spec.interval.0.min(LONG) / 10)));
                }
            }
        }
        Ok(next)
    }

    async fn source_ready(
        &self,
        job: &FetchJob,
        revision: &Revision,
        fetched: Option<&Fetched>,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let tolerated = job.tolerated();
        if job.grace.is_some() && tolerated.is_none() {
            // It needs none, and is not to need one later: where a name leads may change.
            self.store.end_source_grace(job.seen.uid).await?;
        }
        let changed = self
            .write_source_status(&job.seen, |status, generation| {
                status.conditions.retain(|condition| condition.type_ != SUSPENDED);
                status.last_handled_reconcile_at =
                    job.handles.clone().or(status.last_handled_reconcile_at.take());
                if let Some(fetched) = fetched {
                    let artifact = &fetched.artifact;
                    status.artifact = Some(Artifact {
                        digest: artifact.digest.to_string(),
                        path: format!("artifacts/{}.tar.gz", artifact.digest.hex()),
                        url: String::new(),
                        revision: revision.to_string(),
                        last_update_time: Time(now),
                        size: i64::try_from(artifact.size()).ok(),
                        metadata: std::collections::BTreeMap::new(),
                    });
                }
                let message = format!("stored artifact for revision '{revision}'");
                for condition in [READY, ARTIFACT_IN_STORAGE] {
                    conditions::set(
                        &mut status.conditions,
                        condition,
                        ConditionStatus::True,
                        Reason::Succeeded,
                        &message,
                        generation,
                        now,
                    );
                }
                notes::note(&mut status.conditions, &job.spec, tolerated.as_ref(), generation, now);
                status.observed_generation = Some(generation);
            })
            .await?;
        if changed && fetched.is_some() {
            tracing::info!(
                target: "controllers.GitRepository",
                gitrepository = format!("{}/{}", job.seen.namespace, job.seen.name),
                revision = revision.to_string(),
                "stored artifact"
            );
        }
        Ok(())
    }

    /// The artifact stays, and with it everything that uses it.
    async fn source_failed(
        &self,
        seen: &Stored,
        handles: Option<String>,
        reason: Reason,
        message: &str,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let spec: GitRepositorySpec = seen.decode::<GitRepository>()?.spec;
        let changed = self
            .write_source_status(seen, |status, generation| {
                // Nothing is tolerated where nothing is fetched.
                notes::note(&mut status.conditions, &spec, None, generation, now);
                status.last_handled_reconcile_at = handles.or(status.last_handled_reconcile_at.take());
                conditions::set(
                    &mut status.conditions,
                    READY,
                    ConditionStatus::False,
                    reason,
                    message,
                    generation,
                    now,
                );
                status.observed_generation = Some(generation);
            })
            .await?;
        if changed {
            tracing::error!(
                target: "controllers.GitRepository",
                gitrepository = format!("{}/{}", seen.namespace, seen.name),
                error = message
            );
        }
        Ok(())
    }

    async fn write_source_status(
        &self,
        seen: &Stored,
        change: impl FnOnce(&mut GitRepositoryStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(seen.uid).await? else { return Ok(false) };
        // What was fetched for another spec says nothing about this one; a pass over this one is scheduled.
        if stored.generation != seen.generation || stored.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let written = status::write::<GitRepository>(&mut tx, &mut stored, self.clock.now(), change).await?;
        let Some(written) = written else { return Ok(false) };
        tx.commit().await?;
        if let Some(users) = written.users {
            self.wake_new_users(&stored, &users).await?;
        }
        Ok(true)
    }

    /// Enqueues those Kustomizations that came between the look-up of the source's users and the commit of its status:
    /// they may have processed the source as it was before.
    async fn wake_new_users(&self, source: &Stored, known: &[ResourceUid]) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let mut users = tx.users(source.kind, &source.namespace, &source.name, PipelineRole::Applier).await?;
        users.retain(|user| !known.contains(user));
        if !users.is_empty() {
            tx.enqueue(Queue::Kustomization, &users).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

/// Whether a hub with more memory would take it.
fn is_for_want_of_memory(error: &GitError) -> bool {
    let most = GitLimits::default();
    let GitError::TooLarge { measure, limit, .. } = error else { return false };
    *limit
        < match measure {
            Measure::TotalBytes => most.tree.total_bytes,
            Measure::ArtifactBytes => most.artifact_bytes,
            Measure::ObjectBytes => most.object_bytes,
            Measure::Objects => u64::from(most.objects),
            _ => return false,
        }
}

fn unsupported(spec: &GitRepositorySpec) -> Option<&'static str> {
    let fields = [
        ("spec.verify", spec.verify.is_some()),
        ("spec.proxySecretRef", spec.proxy_secret_ref.is_some()),
        ("spec.recurseSubmodules", spec.recurse_submodules),
        ("spec.include", !spec.include.is_empty()),
        ("spec.sparseCheckout", !spec.sparse_checkout.is_empty()),
        ("spec.serviceAccountName", spec.service_account_name.is_some()),
        ("spec.provider", spec.provider.is_some_and(|provider| provider != GitProvider::Generic)),
    ];
    fields.into_iter().find(|(_, set)| *set).map(|(field, _)| field)
}

type Access = (Option<Credentials>, Option<Vec<u8>>);

/// Credentials and CA, from the keys that Flux reads.
fn credentials(data: &SecretData) -> Result<Access, String> {
    let text = |key: &str| -> Result<Option<String>, String> {
        let Some(encoded) = data.expose(key) else { return Ok(None) };
        let bytes = STANDARD.decode(encoded).map_err(|_| format!("key {key} is not base64"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("key {key} is not text"))?;
        Ok(Some(text))
    };
    for key in ["identity", "known_hosts"] {
        if data.expose(key).is_some() {
            return Err(format!("key {key}: Git over SSH is not supported by this version of Roadstead"));
        }
    }
    let ca = text("ca.crt")?.or(text("caFile")?).map(String::into_bytes);
    if let Some(token) = text("bearerToken")? {
        return Ok((Some(Credentials::Bearer(Secret::new(token.trim().to_owned()))), ca));
    }
    match (text("username")?, text("password")?) {
        (Some(username), Some(password)) => {
            Ok((Some(Credentials::Basic { username, password: Secret::new(password) }), ca))
        }
        (None, None) => Ok((None, ca)),
        (Some(_), None) => Err("has a username and no password".to_owned()),
        (None, Some(_)) => Err("has a password and no username".to_owned()),
    }
}
