//! Passes over ArtifactGenerators: what their sources hold is composed to artifacts, each in an ExternalArtifact of its own.
//!
//! A pass whose sources hold what they held before finds that out from their statuses, and does nothing. Else a worker composes
//! all artifacts, and what has another digest than before is stored, and named by its ExternalArtifact: those who deploy the others
//! learn nothing of it.

mod gather;
mod products;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{
    ArtifactGenerator, ArtifactGeneratorSpec, ArtifactGeneratorStatus, ConditionStatus, CopyStrategy, KindId,
};
use roadstead_hub_store::{Store, Stored};
use roadstead_model::{ApplierUid, Digest, Reason, ResourceUid};
use roadstead_sources::generate::{Copy, GenerateError, Output, Strategy, check};

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::AccessRules;
use crate::objects::conditions;
use crate::objects::triggers::{GENERATOR, GENERATOR_FINALIZER, is_disabled, let_go_of, request};
use crate::objects::{Objects, events, status};
use crate::sources::Sources;
use gather::{Found, Gathered};

/// The name under which passes are logged.
const LOGGER: &str = "controllers.ArtifactGenerator";
/// Where nothing has changed, it is looked whether all that was made is still there, once in so long.
const INTERVAL: Duration = Duration::from_secs(3600);
/// One that waits for a source is looked at again after this, at the latest. (It is told when that comes.)
const WAITING: Duration = Duration::from_secs(30);
/// One that cannot be made is tried again after this.
const RETRY: Duration = Duration::from_secs(60);

/// Why nothing was made: for the condition.
struct Failure {
    reason: Reason,
    why: String,
}

impl Failure {
    fn new(reason: Reason, why: impl Into<String>) -> Self {
        Self { reason, why: why.into() }
    }

    /// When it is tried again.
    fn again(&self) -> Duration {
        match self.reason {
            Reason::SourceFetchFailed => WAITING,
            // Somebody has to change something.
            Reason::ValidationFailed | Reason::AccessDenied => INTERVAL,
            _ => RETRY,
        }
    }
}

/// ArtifactGenerators, and what is made of them.
pub struct Generators {
    store: Store,
    clock: Arc<dyn Clock>,
    access: Arc<AccessRules>,
    objects: Arc<Objects>,
    sources: Arc<Sources>,
}

impl Generators {
    pub(crate) fn new(
        context: &Context,
        access: &Arc<AccessRules>,
        objects: &Arc<Objects>,
        sources: &Arc<Sources>,
    ) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            access: Arc::clone(access),
            objects: Arc::clone(objects),
            sources: Arc::clone(sources),
        }
    }

    /// Makes a pass over an ArtifactGenerator, and tells when the next one is due.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the ArtifactGenerator becomes its condition.
    pub async fn process_generator(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let Some(stored) = self.store.get_by_uid(uid).await? else { return Ok(now + INTERVAL) };
        if stored.kind != KindId::ArtifactGenerator {
            return Ok(now + INTERVAL);
        }
        if stored.deletion_timestamp.is_some() {
            self.finish(&stored).await?;
            return Ok(now + WAITING);
        }
        if is_disabled(&stored) {
            let mut tx = self.store.begin().await?;
            let why = "reconciliation is disabled: what was made stays as it is";
            events::note(&mut tx, &stored, "Warning", Reason::ReconciliationDisabled.as_str(), why, now)
                .await?;
            tx.commit().await?;
            return Ok(now + INTERVAL);
        }
        match self.make(&stored).await? {
            Ok(()) => Ok(now + roadstead_hub_plan::jittered(INTERVAL, ApplierUid::from(uid))),
            Err(failure) => {
                let again = failure.again();
                self.fail(&stored, failure).await?;
                Ok(now + again)
            }
        }
    }

    /// Makes what is to be made; the inner error is for the condition.
    async fn make(&self, stored: &Stored) -> Result<Result<(), Failure>, HubError> {
        let ArtifactGenerator { spec, status, .. } = stored.decode()?;
        let status = status.unwrap_or_default();
        let outputs = outputs(&spec);
        let aliases: Vec<&str> = spec.sources.iter().map(|source| source.alias.as_str()).collect();
        if let Some(twice) = twice(&aliases) {
            let why = format!("duplicate source alias '{twice}' found");
            return Ok(Err(Failure::new(Reason::ValidationFailed, why)));
        }
        let named = named_revisions(&spec, &aliases);
        let checked =
            check(&aliases, spec.path_pattern.as_deref(), &outputs).map_err(|error| error.to_string());
        if let Err(why) = named.and(checked) {
            return Ok(Err(Failure::new(Reason::ValidationFailed, why)));
        }
        let found = match self.gather(stored, &spec).await? {
            Ok(found) => found,
            Err(failure) => return Ok(Err(failure)),
        };
        let observed = observed(&found);
        let before = status.observed_sources_digest.as_deref();
        let is_done = before == Some(observed.as_str())
            && conditions::is_true(&status.conditions, conditions::READY, stored.generation);
        let asked = request(stored);
        let is_asked = asked.is_some() && asked != status.last_handled_reconcile_at;
        let is_seen = found.iter().all(|one| one.is_seen);
        if is_done && !is_asked && self.is_whole(stored, &status, is_seen).await? {
            return Ok(Ok(()));
        }
        let made = match self.products(stored, &spec, outputs, &found, &status).await? {
            Ok(made) => made,
            Err(failure) => return Ok(Err(failure)),
        };
        self.prune(stored, &status.inventory, &made.inventory).await?;
        let message = match made.links {
            0 => format!("reconciliation succeeded, generated {} artifact(s)", made.inventory.len()),
            links => format!(
                "reconciliation succeeded, generated {} artifact(s); {links} symbolic link(s) of the sources were left out",
                made.inventory.len()
            ),
        };
        self.write(stored, |status, generation| {
            status.inventory = made.inventory;
            status.observed_sources_digest = Some(observed);
            status.last_handled_reconcile_at = asked.or(status.last_handled_reconcile_at.take());
            let (ready, reason) = (ConditionStatus::True, Reason::Succeeded);
            let now = self.clock.now();
            conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, now);
        })
        .await?;
        tracing::info!(
            target: LOGGER,
            generator = format!("{}/{}", stored.namespace, stored.name),
            stored = made.stored,
            "artifacts were generated"
        );
        Ok(Ok(()))
    }

    async fn fail(&self, stored: &Stored, failure: Failure) -> Result<(), HubError> {
        let Failure { reason, why } = failure;
        let asked = request(stored);
        let changed = self
            .write(stored, |status, generation| {
                status.last_handled_reconcile_at = asked.or(status.last_handled_reconcile_at.take());
                let now = self.clock.now();
                let conditions = &mut status.conditions;
                conditions::set_ready(conditions, ConditionStatus::False, reason, &why, generation, now);
                // What is wrong with a spec is not tried again before it is another one.
                if reason == Reason::ValidationFailed {
                    conditions.retain(|condition| condition.type_ != conditions::RECONCILING);
                    let (type_, holds) = (conditions::STALLED, ConditionStatus::True);
                    conditions::set(conditions, type_, holds, reason, &why, generation, now);
                }
            })
            .await?;
        if changed {
            let generator = format!("{}/{}", stored.namespace, stored.name);
            tracing::error!(target: LOGGER, generator, error = why);
        }
        Ok(())
    }

    /// Lets it go, once what it made is gone.
    async fn finish(&self, stored: &Stored) -> Result<(), HubError> {
        let status = stored.decode::<ArtifactGenerator>()?.status.unwrap_or_default();
        self.prune(stored, &status.inventory, &[]).await?;
        let mut tx = self.store.begin().await?;
        let Some(before) = tx.get_by_uid(stored.uid).await? else { return Ok(()) };
        let_go_of(&mut tx, &before, GENERATOR_FINALIZER, self.clock.now()).await?;
        tx.commit().await?;
        Ok(())
    }

    async fn write(
        &self,
        seen: &Stored,
        change: impl FnOnce(&mut ArtifactGeneratorStatus, i64) + Send,
    ) -> Result<bool, HubError> {
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = tx.get_by_uid(seen.uid).await? else { return Ok(false) };
        // Another spec is another pass's.
        if stored.generation != seen.generation || stored.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let now = self.clock.now();
        let written = status::write::<ArtifactGenerator>(&mut tx, &mut stored, now, change).await?;
        if written.is_some() {
            tx.commit().await?;
        }
        Ok(written.is_some())
    }
}

fn twice<'a>(names: &[&'a str]) -> Option<&'a str> {
    let mut seen = std::collections::BTreeSet::new();
    names.iter().find(|name| !seen.insert(**name)).copied()
}

/// Whether the revisions that artifacts take over are those of sources.
fn named_revisions(spec: &ArtifactGeneratorSpec, aliases: &[&str]) -> Result<(), String> {
    for artifact in &spec.artifacts {
        for (field, alias) in
            [("revision", &artifact.revision), ("originRevision", &artifact.origin_revision)]
        {
            let alias = alias.as_deref().map(|alias| alias.trim_start_matches('@'));
            if let Some(alias) = alias.filter(|alias| !aliases.contains(alias)) {
                return Err(format!("artifact {} {field} source alias '{alias}' not found", artifact.name));
            }
        }
    }
    Ok(())
}

/// What is composed, as the composing takes it.
fn outputs(spec: &ArtifactGeneratorSpec) -> Vec<Output> {
    let artifacts = spec.artifacts.iter().map(|artifact| {
        let copy = artifact.copy.iter().map(|copy| Copy {
            from: copy.from.clone(),
            to: copy.to.clone(),
            exclude: copy.exclude.clone(),
            strategy: match copy.strategy.unwrap_or_default() {
                CopyStrategy::Overwrite => Strategy::Overwrite,
                CopyStrategy::Merge => Strategy::Merge,
                CopyStrategy::Extract => Strategy::Extract,
            },
        });
        Output { name: artifact.name.clone(), copy: copy.collect() }
    });
    artifacts.collect()
}

/// The digest of what the sources hold, as Flux computes it.
fn observed(found: &Found) -> String {
    let part = |Gathered { alias, digest, revision, url, .. }: &Gathered| {
        format!("{alias}=[digest={digest},revision={revision},url={url}]")
    };
    let mut parts: Vec<String> = found.iter().map(part).collect();
    parts.sort_unstable();
    Digest::of(parts.join("|").as_bytes()).to_string()
}

/// What went wrong with the composing, as a condition says it.
fn failed(error: &GenerateError) -> Failure {
    match error {
        GenerateError::Spec { .. } => Failure::new(Reason::ValidationFailed, error.to_string()),
        GenerateError::Failed { .. } | GenerateError::Ended { .. } => {
            Failure::new(Reason::BuildFailed, error.to_string())
        }
        GenerateError::NoDisk | GenerateError::Internal(_) => {
            Failure::new(Reason::ReconciliationFailed, error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sources_hold_has_the_digest_that_flux_computes() {
        let gathered = |alias: &str| Gathered {
            alias: alias.to_owned(),
            digest: Digest::of(alias.as_bytes()),
            revision: "main@sha1:abc".to_owned(),
            url: format!("https://hub/{alias}"),
            origin: None,
            is_seen: true,
        };
        let found = vec![gathered("b"), gathered("a")];
        let text = format!(
            "a=[digest={},revision=main@sha1:abc,url=https://hub/a]|b=[digest={},revision=main@sha1:abc,url=https://hub/b]",
            Digest::of(b"a"),
            Digest::of(b"b")
        );
        assert_eq!(observed(&found), Digest::of(text.as_bytes()).to_string());
    }
}
