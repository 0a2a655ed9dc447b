//! Sources: what is to be fetched, and what came of it. The fetching itself is a task's.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{
    AnySource, AnySourceStatus, Artifact, KindId, PipelineRole, SourceSpec, SourceStatus, Time,
};
use roadstead_budget::PoolName;
use roadstead_hub_store::{StoreError, Stored, Tx};
use roadstead_model::{ApplierUid, Queue, Reason, ResourceUid, Revision, chain};
use roadstead_outbound::{Authority, Refusal};
use roadstead_sources::{Failed, Fetched, Learned, Note, Outcome, Source};
use serde_json::{Map, Value};
use url::Url;

use crate::HubError;
use crate::objects::conditions;
use crate::objects::{events, quota, status, triggers};
use crate::sources::charts::Origin;
use crate::sources::includes::{self, IncludedArtifact};
use crate::sources::limits::Limiter;
use crate::sources::outdated::Known;
use crate::sources::verdicts::{self, ARTIFACT_IN_STORAGE, Failure, SOURCE_VERIFIED};
use crate::sources::{
    Asked, Misfit, SourceKind, Sources, addresses, charts, failed, fetch, kind, limits, notes,
};

/// The name under which passes are logged.
pub(super) const LOGGER: &str = "controllers.Source";
/// Where nothing is to be done for a source, and the interval of one that has none.
pub(super) const LONG: Duration = Duration::from_secs(3600);
/// A source that fails is tried again after this, or after a tenth of its interval, where that is longer.
const RETRY: Duration = Duration::from_secs(10);
/// One that waits for what it includes is looked at again after this, at the latest. (It is told when that comes.)
const WAITING: Duration = Duration::from_secs(30);

/// A fetch to be done, or why there is none.
pub enum FetchPlan {
    /// The source is gone, suspended, or of a kind that is not fetched: the next pass is due then.
    Nothing(Timestamp),
    /// Fetch, and hand the outcome to [`Sources::record_fetch`].
    Fetch(Box<FetchJob>),
}

/// A fetch.
pub struct FetchJob {
    /// What to fetch.
    pub source: Box<dyn Source>,
    /// The revision to which an applier is pinned, where it is fetched for that; the source's status does not change then.
    pinned: Option<Revision>,
    /// The revision that need not be fetched again.
    known: Option<Revision>,
    /// What the status notes of how it was verified, and of what it includes.
    verdict: Vec<(&'static str, Value)>,
    /// What it notes of each fetch that went well.
    looked: Vec<(&'static str, Value)>,
    pub(super) seen: Stored,
    spec: SourceSpec,
    handles: Option<String>,
    /// Whether somebody asked for it since the last one.
    asked: bool,
    /// Until when it is fetched wherever it leads.
    grace: Option<Timestamp>,
    /// Whether something else is to be included than what is in the artifact.
    pub(super) includes_changed: bool,
}

impl FetchJob {
    /// The host that it is fetched from, whatever the port and the notation, for keeping one that is slow from holding up
    /// others. Empty for a URL without one.
    #[must_use]
    pub fn host(&self) -> String {
        authority(&self.spec.url).map_or_else(String::new, |authority| authority.host.to_string())
    }

    /// The namespace of the source.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.seen.namespace
    }

    /// Which source it is, for its trace.
    pub fn tell(&self, mut each: impl FnMut(&'static str, &str)) {
        each("kind", &self.seen.kind.to_string());
        each("namespace", &self.seen.namespace);
        each("name", &self.seen.name);
    }

    /// The revision that need not be fetched again.
    pub(crate) fn known(&self) -> Option<&Revision> {
        self.known.as_ref()
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
        self.source.tolerated().zip(self.grace)
    }
}

/// A source, and what is known of it.
struct About<'a> {
    stored: &'a Stored,
    spec: &'a SourceSpec,
    origin: Option<&'a Origin>,
}

/// What Events are to say of an artifact that was stored.
#[derive(Default)]
struct Telling {
    /// What of the source is not in it.
    left_out: Option<String>,
    /// What it is, where Ready says something else.
    stored: Option<String>,
}

/// A source that is to be fetched.
struct Wanted {
    source: Box<dyn Source>,
    /// What its status notes of how it is verified.
    verdict: Vec<(&'static str, Value)>,
    /// What it notes of each fetch that went well.
    looked: Vec<(&'static str, Value)>,
    included: Vec<IncludedArtifact>,
}

impl Wanted {
    /// What its status notes of all of that.
    fn noted(&self) -> Vec<(&'static str, Value)> {
        let mut all = self.verdict.clone();
        all.push((includes::INCLUDED_ARTIFACTS, includes::told(&self.included)));
        all
    }
}

/// Why an artifact was not stored.
pub(super) struct NotKept {
    pub(super) why: String,
    /// The same may go well soon, with nothing changed.
    pub(super) may_pass: bool,
}

/// When what has failed and may go well with nothing changed is tried again.
fn soon(next: Timestamp, now: Timestamp, spec: &SourceSpec) -> Timestamp {
    next.min(now + RETRY.max(interval(spec).min(LONG) / 10))
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
        if stored.kind == KindId::ExternalArtifact && stored.deletion_timestamp.is_none() {
            return Ok(FetchPlan::Nothing(self.process_external(&stored).await?));
        }
        let Some(kind) = kind(stored.kind).filter(|_| stored.deletion_timestamp.is_none()) else {
            return Ok(FetchPlan::Nothing(now + LONG));
        };
        if kind.is_static(&stored)? {
            // What an older version, or another spec, left there.
            self.write_any_status(&stored, |status, _| *status = AnySourceStatus::default()).await?;
            return Ok(FetchPlan::Nothing(now + LONG));
        }
        let AnySource { mut spec, status, .. } = stored.decode()?;
        if let Some(url) = kind.url(&stored)? {
            spec.url = url;
        }
        spec.interval = spec.interval.or_else(|| kind.default_interval());
        let status = status.unwrap_or_default();
        if spec.suspend {
            let handles = triggers::request(&stored);
            self.write_source_status(&stored, |status, generation| {
                conditions::set_suspended(&mut status.conditions, "the artifact", generation, now);
                status.last_handled_reconcile_at = handles.or(status.last_handled_reconcile_at.take());
                status.observed_generation = Some(generation);
                verdicts::observe_ready(&mut status.conditions, generation);
            })
            .await?;
            return Ok(FetchPlan::Nothing(now + LONG));
        }
        let handles = triggers::request(&stored);
        let origin = match self.origin_of(&stored, Some(&status)).await? {
            Ok(origin) => origin,
            Err(why) => return self.cannot_plan(&stored, &spec, handles, &why.into()).await,
        };
        if let Some(origin) = &origin {
            origin.lend(&mut spec)?;
        }
        if let Some(until) = self.limits.until(&stored, &spec, now) {
            self.note_limit(&stored, Limiter::Server, (until, now), &Known::default()).await?;
            return Ok(FetchPlan::Nothing(limits::again(&stored, until)));
        }
        let grace = self.store.source_grace(uid, &spec.url, now).await?;
        let pinned = self.store.wanted_artifact(uid).await?;
        let asked = handles.is_some() && handles != status.source.last_handled_reconcile_at;
        let about = About { stored: &stored, spec: &spec, origin: origin.as_ref() };
        match self.asked_for(kind, &about, pinned.as_ref(), (grace, asked)).await? {
            Ok(wanted) if pinned.is_some() => {
                let verdict = wanted.noted();
                let job = FetchJob {
                    source: wanted.source,
                    pinned,
                    known: None,
                    verdict,
                    looked: wanted.looked,
                    seen: stored,
                    spec,
                    handles: None,
                    asked: true,
                    grace,
                    includes_changed: false,
                };
                Ok(FetchPlan::Fetch(Box::new(job)))
            }
            Ok(wanted) => {
                let progress = verdicts::progress(&status.source.conditions, stored.generation);
                if notes::is_capped(&spec) || progress.is_some() {
                    // Before it is fetched, which takes as long as it may.
                    self.write_source_status(&stored, |status, generation| {
                        notes::note_timeout(&mut status.conditions, &spec, generation, now);
                        verdicts::write_progress(status, generation, now);
                    })
                    .await?;
                }
                let known = self.known_revision(&stored, &status, &wanted).await?;
                let noted = status.more.get(includes::INCLUDED_ARTIFACTS);
                let includes_changed = includes::have_changed(&wanted.included, noted);
                let verdict = wanted.noted();
                let Wanted { source, looked, .. } = wanted;
                let job = FetchJob {
                    source,
                    pinned,
                    known,
                    verdict,
                    looked,
                    seen: stored,
                    spec,
                    handles,
                    asked,
                    grace,
                    includes_changed,
                };
                Ok(FetchPlan::Fetch(Box::new(job)))
            }
            Err(why) => self.cannot_plan(&stored, &spec, handles, &why).await,
        }
    }

    /// Says why a source cannot be fetched as its spec asks for it.
    async fn cannot_plan(
        &self,
        stored: &Stored,
        spec: &SourceSpec,
        handles: Option<String>,
        failure: &Failure,
    ) -> Result<FetchPlan, HubError> {
        self.source_failed(stored, spec, handles, failure).await?;
        let later = interval(spec).max(RETRY);
        let later = if waits(failure.reason) { later.min(WAITING) } else { later };
        Ok(FetchPlan::Nothing(self.clock.now() + later))
    }

    /// The source as its spec and its Secret have it, with how it is verified, or why it cannot be fetched.
    async fn asked_for(
        &self,
        kind: &dyn SourceKind,
        about: &About<'_>,
        pinned: Option<&Revision>,
        (grace, afresh): (Option<Timestamp>, bool),
    ) -> Result<Result<Wanted, Failure>, HubError> {
        let About { stored, spec, origin } = *about;
        if let Some(field) = kind.unsupported(stored)? {
            let message = format!(
                "{field} is not supported by this version of Roadstead; nothing was fetched. Remove it to go on"
            );
            return Ok(Err(Failure::retried(kind.failed(), message)));
        }
        // A chart is sent its repository's.
        let whose = origin.map_or(stored, |origin| &origin.stored);
        let secrets = match self.secrets_of(stored, whose, spec).await? {
            Ok(secrets) => secrets,
            Err(why) => return Ok(Err(why.into())),
        };
        if let Some(Misfit { message, is_stalled }) = kind.misfit(stored, &secrets)? {
            let failure = Failure::retried(Reason::InvalidProviderConfiguration, message);
            return Ok(Err(failure.stalled(is_stalled)));
        }
        let included = match self.includes_of(stored).await? {
            Ok(included) => included,
            // Of what is denied there is no reason that only this has.
            Err(why) => return Ok(Err(Failure::from(why).of_include())),
        };
        let mut known = self.known_servers.of(stored.uid, (stored.generation, secrets.versions()));
        // What is fetched wherever it leads must not become the answer for others.
        if stored.kind == KindId::HelmRepository && grace.is_none() {
            known.index = self.known_servers.index(&stored.namespace, &spec.url, &secrets.versions());
        }
        if afresh {
            known.git.forget_verdict();
        }
        let most_bytes = self.most_of_a_source();
        let asked = Asked {
            stored,
            spec,
            pinned,
            origin,
            secrets: &secrets,
            tolerated: grace.and_then(|_| authority(&spec.url)),
            include: included.iter().map(|one| one.include(self, &stored.namespace, most_bytes)).collect(),
            most_bytes,
            options: &self.options,
            app_tokens: &self.app_tokens,
            known,
            indexes: (stored.kind == KindId::HelmRepository).then(|| charts::stored_indexes(self)),
        };
        let source = kind.source(asked)?.map_err(|why| Failure::retried(Reason::AuthenticationFailed, why));
        let verdict = kind.verdict(stored, &secrets)?;
        Ok(source.map(|mut source| {
            if let Some(workers) = &self.options.workers {
                source.reserve_in(fetch::room(workers));
            }
            let looked = origin.map_or_else(Vec::new, Origin::told);
            Wanted { source, verdict, looked, included }
        }))
    }

    /// Bytes of the files of one source: what a builder holds of them, and what it makes of them, is to fit into its memory.
    pub(super) fn most_of_a_source(&self) -> u64 {
        self.options.budget.pool(PoolName::Workers).size() / 4
    }

    /// The revision that need not be fetched again: that of the artifact, if it is still stored and was made from the
    /// spec as it is now with what it includes as that is now, and verified by the keys that are there now.
    async fn known_revision(
        &self,
        stored: &Stored,
        status: &AnySourceStatus,
        wanted: &Wanted,
    ) -> Result<Option<Revision>, HubError> {
        let (status, more) = (&status.source, &status.more);
        let verdict = &wanted.verdict;
        if !includes::are_those_of(&wanted.included, more.get(includes::INCLUDED_ARTIFACTS)) {
            return Ok(None);
        }
        let is_verified = verdict.is_empty()
            || conditions::is_true(&status.conditions, SOURCE_VERIFIED, stored.generation)
                && verdict.iter().all(|(field, value)| more.get(*field) == Some(value));
        if !is_verified {
            return Ok(None);
        }
        let Some(artifact) = &status.artifact else { return Ok(None) };
        if !conditions::is_true(&status.conditions, ARTIFACT_IN_STORAGE, stored.generation) {
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
        outcome: Result<Outcome, Failed>,
    ) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        if let Err(Failed { error, learned }) = &outcome
            && let Some(until) = error.rate_limited_until()
        {
            let whose = if error.is_of_the_api() {
                // It is noted where tokens are: whoever has one goes on.
                Limiter::Api
            } else {
                self.limits.note(&job.seen, &job.spec, until, now);
                Limiter::Server
            };
            let known = Known::of(job, learned.as_deref().cloned(), None);
            self.note_limit(&job.seen, whose, (until, now), &known).await?;
            return Ok(limits::again(&job.seen, until));
        }
        if let Some(revision) = &job.pinned {
            self.record_pinned(job, revision, outcome).await?;
            // What the source's reference points to is looked at now.
            return Ok(now);
        }
        let uid = ApplierUid::from(job.seen.uid);
        let next = now + roadstead_hub_plan::jittered(interval(&job.spec), uid);
        match outcome {
            Ok(Outcome::Unchanged(revision)) => self.source_ready(job, &revision, None).await?,
            Ok(Outcome::Fetched(fetched)) => {
                let artifact = &fetched.artifact;
                let mut tx = match self.keep(&job.seen, artifact, now).await? {
                    Ok(tx) => tx,
                    Err(NotKept { why, may_pass }) => {
                        let known = Known::of(job, Some(Learned::from(&*fetched)), Some(&fetched));
                        let failure = Failure::retried(Reason::StorageOperationFailed, why).knowing(known);
                        self.source_failed(&job.seen, &job.spec, job.handles.clone(), &failure).await?;
                        return Ok(if may_pass { soon(next, now, &job.spec) } else { next });
                    }
                };
                tx.keep_artifact(job.seen.uid, &fetched.revision, Ok(artifact.digest), now).await?;
                tx.commit().await?;
                self.source_ready(job, &fetched.revision, Some(&fetched)).await?;
            }
            Err(Failed { error, learned }) => {
                let reason = error.reason().unwrap_or_else(|| failed(job.seen.kind));
                let begin = kind(job.seen.kind).map_or("", |kind| kind.failed_at(reason));
                let mut message = format!("{begin}{}", chain(&error));
                if error.is_for_want_of_memory() {
                    message.push_str("; more fit with more memory (--memory-budget)");
                }
                let known = Known::of(job, learned.map(|learned| *learned), None);
                let failure = Failure::retried(reason, message).stalled(error.is_stalled()).knowing(known);
                self.source_failed(&job.seen, &job.spec, job.handles.clone(), &failure).await?;
                if error.is_transient() {
                    return Ok(soon(next, now, &job.spec));
                }
            }
        }
        Ok(next)
    }

    /// Stores an artifact, and begins the transaction that makes it the source's; or says which quota of the namespace has no room for
    /// it, or that the artifact store does not take it now.
    pub(super) async fn keep(
        &self,
        source: &Stored,
        artifact: &roadstead_sources::Artifact,
        now: Timestamp,
    ) -> Result<Result<Tx, NotKept>, HubError> {
        let (namespace, bytes) = (&source.namespace, artifact.bytes.len() as u64);
        let is_limited = match quota::has_room(&self.store, namespace, Some(source.uid), bytes).await? {
            Ok(is_limited) => is_limited,
            Err(why) => return Ok(Err(NotKept { why, may_pass: false })),
        };
        match self.store.put_artifact(artifact.digest, &artifact.bytes, now).await {
            Ok(()) => {}
            Err(error @ StoreError::ArtifactStore(_)) => {
                return Ok(Err(NotKept { why: format!("{error}; it is tried again"), may_pass: true }));
            }
            Err(error) => return Err(error.into()),
        }
        let mut tx = self.store.begin().await?;
        if is_limited && let Err(why) = quota::admit_artifact(&mut tx, namespace, source.uid, bytes).await? {
            return Ok(Err(NotKept { why, may_pass: false }));
        }
        Ok(Ok(tx))
    }

    async fn source_ready(
        &self,
        job: &FetchJob,
        revision: &Revision,
        fetched: Option<&Fetched>,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let tolerated = job.tolerated();
        let Some(kind) = kind(job.seen.kind) else { return Ok(()) };
        let told = kind.succeeded(revision, fetched);
        let mut observed = kind.observed(&job.seen)?;
        observed.extend(fetched.map_or_else(Vec::new, |fetched| kind.observed_of(fetched)));
        observed.extend(job.verdict.iter().cloned());
        let looked = job.looked.clone();
        if job.grace.is_some() && tolerated.is_none() {
            // It needs none, and is not to need one later: where a name leads may change.
            self.store.end_source_grace(job.seen.uid).await?;
        }
        let telling = Telling {
            left_out: fetched.and_then(|fetched| notes::left_out(&fetched.notes)),
            stored: fetched.and_then(|fetched| kind.told(&job.seen, fetched)),
        };
        let changed = self
            .write_status_telling(&job.seen, telling, |status, generation| {
                let of_all = &mut status.source;
                of_all.last_handled_reconcile_at =
                    job.handles.clone().or(of_all.last_handled_reconcile_at.take());
                if let Some(fetched) = fetched {
                    let artifact = &fetched.artifact;
                    of_all.artifact = Some(Artifact {
                        digest: artifact.digest.to_string(),
                        path: String::new(),
                        url: String::new(),
                        revision: revision.to_string(),
                        last_update_time: Time(now),
                        size: i64::try_from(artifact.size()).ok(),
                        metadata: fetched.metadata.clone(),
                    });
                    note_observed(&mut status.more, observed);
                    verdicts::note_verdict(
                        &mut of_all.conditions,
                        fetched.verified.as_deref(),
                        generation,
                        now,
                    );
                }
                note_observed(&mut status.more, looked);
                addresses::note(&self.options.api_url, &job.seen, status);
                let status = &mut status.source;
                let kept = || verdicts::in_storage(&status.conditions);
                let (reason, message) =
                    told.or_else(kept).unwrap_or_else(|| (Reason::Succeeded, kind.stored_message(revision)));
                verdicts::write_success(status, (reason, &message), generation, now);
                notes::note(&mut status.conditions, &job.spec, tolerated.as_ref(), generation, now);
            })
            .await?;
        if self.store.source_is_seen(job.seen.uid, job.seen.generation).await? {
            // Who waited for that need not any more, though nothing has changed.
            self.wake_new_users(&job.seen, &[]).await?;
        }
        if changed && fetched.is_some() {
            tracing::info!(
                target: LOGGER,
                kind = %job.seen.kind,
                source = format!("{}/{}", job.seen.namespace, job.seen.name),
                revision = revision.to_string(),
                "stored artifact"
            );
        }
        for note in fetched.iter().flat_map(|fetched| &fetched.notes) {
            if matches!(note, Note::Unproven { .. }) {
                let source = format!("{}/{}", job.seen.namespace, job.seen.name);
                tracing::warn!(target: LOGGER, kind = %job.seen.kind, source, %note, "stored without proof");
            }
        }
        Ok(())
    }

    /// The artifact stays, and with it everything that uses it.
    async fn source_failed(
        &self,
        seen: &Stored,
        spec: &SourceSpec,
        handles: Option<String>,
        failure: &Failure,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let changed = self
            .write_any_status(seen, |status, generation| {
                failure.known.write(status, generation, now);
                let status = &mut status.source;
                // Nothing is tolerated where nothing is fetched.
                notes::note(&mut status.conditions, spec, None, generation, now);
                status.last_handled_reconcile_at = handles.or(status.last_handled_reconcile_at.take());
                failure.write(status, seen.kind, generation, now);
            })
            .await?;
        if changed {
            tracing::error!(
                target: LOGGER,
                kind = %seen.kind,
                source = format!("{}/{}", seen.namespace, seen.name),
                error = failure.message
            );
        }
        Ok(())
    }

    pub(super) async fn write_source_status(
        &self,
        seen: &Stored,
        change: impl FnOnce(&mut SourceStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        self.write_any_status(seen, |status, generation| change(&mut status.source, generation)).await
    }

    pub(super) async fn write_any_status(
        &self,
        seen: &Stored,
        change: impl FnOnce(&mut AnySourceStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        self.write_status_telling(seen, Telling::default(), change).await
    }

    /// The same, with Events of what was stored.
    async fn write_status_telling(
        &self,
        seen: &Stored,
        telling: Telling,
        change: impl FnOnce(&mut AnySourceStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(seen.uid).await? else { return Ok(false) };
        // What was fetched for another spec says nothing about this one; a pass over this one is scheduled.
        if stored.generation != seen.generation || stored.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let Telling { left_out, stored: told } = telling;
        let news = |before: &AnySourceStatus, after: &AnySourceStatus| {
            verdicts::news(&before.source, &after.source, told)
        };
        let written = status::write_telling::<AnySource>(&mut tx, &mut stored, now, change, news).await?;
        let Some(written) = written else { return Ok(false) };
        if let Some(message) = left_out {
            events::warn(&mut tx, &stored, Reason::FilesLeftOut, &message, now).await?;
        }
        tx.commit().await?;
        if let Some(users) = written.users {
            self.wake_new_users(&stored, &users).await?;
        }
        Ok(true)
    }

    /// Enqueues those Kustomizations that came between the look-up of the source's users and the commit of its status:
    /// they may have processed the source as it was before.
    pub(super) async fn wake_new_users(
        &self,
        source: &Stored,
        known: &[ResourceUid],
    ) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        let mut users = tx.users(source.kind, &source.namespace, &source.name, PipelineRole::Applier).await?;
        users.retain(|user| !known.contains(user));
        // Those that compose artifacts find out by themselves whether anything is new.
        let others = tx.users(source.kind, &source.namespace, &source.name, PipelineRole::Other).await?;
        if !users.is_empty() || !others.is_empty() {
            tx.enqueue(Queue::Applier, &users).await?;
            tx.enqueue(Queue::Generator, &others).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

/// Whether a reason goes away without anyone changing the spec.
fn waits(reason: Reason) -> bool {
    includes::is_waiting(reason) || matches!(reason, Reason::NoSourceArtifact | Reason::SourceUnavailable)
}

/// Notes what an artifact was made from in what a kind's status has besides.
fn note_observed(status: &mut Map<String, Value>, observed: Vec<(&'static str, Value)>) {
    for (field, value) in observed {
        if value.is_null() {
            status.remove(field);
        } else {
            status.insert(field.to_owned(), value);
        }
    }
}

/// How often it is looked at.
fn interval(spec: &SourceSpec) -> Duration {
    spec.interval.map_or(LONG, |interval| interval.0)
}

pub(super) fn authority(url: &str) -> Option<Authority> {
    // Its own scheme says nothing about ports.
    let url = match url.strip_prefix("oci://") {
        Some(rest) => Url::parse(&format!("https://{rest}")),
        None => Url::parse(url),
    };
    url.ok().as_ref().and_then(Authority::of_url)
}
