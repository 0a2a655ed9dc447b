//! ExternalArtifacts, which are not fetched: how their artifacts are named, and passes over them, which look whether what a status names
//! is stored, and is its own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_api::{AnySource, Artifact, ConditionStatus, KindId, PipelineRole, Time};
use roadstead_hub_store::{Stored, Tx};
use roadstead_model::{Digest, Queue, Reason, ResourceUid, Revision};

use crate::HubError;
use crate::address::named;
use crate::objects::conditions::{self, READY};
use crate::objects::triggers::generator_of;
use crate::objects::{quota, status};
use crate::sources::pass::{LOGGER, LONG};
use crate::sources::{Sources, addresses};

/// What becomes the artifact of an ExternalArtifact. Its bytes are stored already.
pub(super) struct Named<'a> {
    pub(super) revision: &'a Revision,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// What else is known of it.
    pub(super) metadata: BTreeMap<String, String>,
    /// What Ready says.
    pub(super) message: String,
}

/// What naming an artifact came to, in the transaction.
pub(super) struct Naming {
    /// As the status has it now.
    pub(super) artifact: Artifact,
    /// It is another one than before.
    pub(super) is_new: bool,
    /// Nothing has changed, and nothing was written.
    pub(super) is_idle: bool,
    /// Users who are processed again.
    pub(super) users: Option<Vec<ResourceUid>>,
}

/// The refusal of an artifact for which a quota of the namespace has no room.
pub(super) fn forbidden(stored: &Stored, why: &str) -> HubError {
    HubError::Forbidden(format!("{} is forbidden: {why}", named(stored.kind.get(), &stored.name)))
}

impl Sources {
    /// Makes it the artifact that the status names. `stored` was read in `tx`; `is_kept`: the artifact is its own already.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where a quota of the namespace has no room for it.
    pub(super) async fn name_artifact(
        &self,
        tx: &mut Tx,
        stored: &mut Stored,
        named: Named<'_>,
        is_kept: bool,
    ) -> Result<Naming, HubError> {
        let now = self.clock.now();
        let Named { revision, digest, size, metadata, message } = named;
        let mut artifact = Artifact {
            digest: digest.to_string(),
            path: String::new(),
            url: String::new(),
            revision: revision.to_string(),
            last_update_time: Time(now),
            size: i64::try_from(size).ok(),
            metadata,
        };
        addresses::put(&self.options.api_url, stored, &mut artifact);
        let before = stored.decode::<AnySource>()?.status.unwrap_or_default().source.artifact;
        let before = before.filter(|before| before.digest == artifact.digest);
        let is_same = before.as_ref().is_some_and(|before| before.revision == artifact.revision);
        if !is_kept {
            let room = quota::admit_artifact(tx, &stored.namespace, stored.uid, size).await?;
            room.map_err(|why| forbidden(stored, &why))?;
        }
        if !(is_same && is_kept) {
            tx.keep_artifact(stored.uid, revision, Ok(digest), now).await?;
        }
        // As it says since this file was stored first.
        if let Some(before) = before {
            artifact.last_update_time = before.last_update_time;
        }
        let written = status::write::<AnySource>(tx, stored, now, |status, generation| {
            status.source.artifact = Some(artifact.clone());
            let (ready, reason) = (ConditionStatus::True, Reason::Succeeded);
            let conditions = &mut status.source.conditions;
            conditions::set(conditions, READY, ready, reason, &message, generation, now);
        })
        .await?;
        let is_idle = written.is_none() && is_same && is_kept;
        let users = written.and_then(|written| written.users);
        Ok(Naming { artifact, is_new: !is_same, is_idle, users })
    }

    /// Makes a pass over an ExternalArtifact, and tells when the next one is due.
    pub(super) async fn process_external(&self, stored: &Stored) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        self.refuse_wanted(stored, now).await?;
        let status = stored.decode::<AnySource>()?.status.unwrap_or_default().source;
        let digest = status.artifact.as_ref().map(|artifact| artifact.digest.parse::<Digest>());
        let is_there = match digest {
            Some(Ok(digest)) => self.store.source_artifact_of(stored.uid, digest).await?.is_some(),
            _ => false,
        };
        let judged = status.artifact.map(|artifact| artifact.digest);
        let changed = self
            .write_any_status(stored, |status, generation| {
                // Another one has come meanwhile: nothing is known of that.
                if status.source.artifact.as_ref().map(|artifact| &artifact.digest) != judged.as_ref() {
                    return;
                }
                if is_there {
                    addresses::note(&self.options.api_url, stored, status);
                    return;
                }
                let lost = status.source.artifact.take();
                let conditions = &mut status.source.conditions;
                let why = match lost {
                    Some(artifact) => format!(
                        "artifact {} is not stored, or no longer stored: upload it again",
                        artifact.digest
                    ),
                    // Whoever writes it says what it waits for.
                    None if conditions::ready(conditions).is_some() => return,
                    None => "no artifact has been uploaded yet".to_owned(),
                };
                let reason = Reason::NoArtifact;
                conditions::set(conditions, READY, ConditionStatus::False, reason, &why, generation, now);
            })
            .await?;
        if changed && !is_there {
            let full = format!("{}/{}", stored.namespace, stored.name);
            tracing::info!(target: LOGGER, kind = %stored.kind, source = full, "it has no artifact");
        }
        // What an ArtifactGenerator makes, it has looked at once its own sources were.
        let maker = match generator_of(stored) {
            Some(maker) => {
                self.store.get_by_uid(maker).await?.filter(|maker| maker.kind == KindId::ArtifactGenerator)
            }
            None => None,
        };
        if let Some(maker) = maker {
            if changed && !is_there {
                let mut tx = self.store.begin().await?;
                tx.enqueue(Queue::Generator, &[maker.uid]).await?;
                tx.commit().await?;
            }
            return Ok(now + LONG);
        }
        if self.store.source_is_seen(stored.uid, stored.generation).await? {
            self.wake_new_users(stored, &[]).await?;
        }
        Ok(now + LONG)
    }

    /// Says of revisions that appliers are pinned to, and that are not stored, that nobody fetches them.
    async fn refuse_wanted(&self, stored: &Stored, now: Timestamp) -> Result<(), HubError> {
        while let Some(revision) = self.store.wanted_artifact(stored.uid).await? {
            let why =
                "it was not uploaded or is no longer kept, and the hub does not fetch ExternalArtifacts";
            let mut tx = self.store.begin().await?;
            tx.keep_artifact(stored.uid, &revision, Err(why), now).await?;
            let users = tx.users(stored.kind, &stored.namespace, &stored.name, PipelineRole::Applier).await?;
            tx.enqueue(Queue::Applier, &users).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
