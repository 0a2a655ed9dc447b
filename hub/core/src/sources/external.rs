//! Passes over ExternalArtifacts, which are not fetched: what their statuses name is to be stored, and to be their own.

use jiff::Timestamp;
use roadstead_api::{AnySource, ConditionStatus, KindId, PipelineRole};
use roadstead_hub_store::Stored;
use roadstead_model::{Digest, Queue, Reason};

use crate::HubError;
use crate::objects::conditions::{self, READY};
use crate::objects::triggers::generator_of;
use crate::sources::pass::{LOGGER, LONG};
use crate::sources::{Sources, addresses};

impl Sources {
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
                        "artifact {} is not stored here, or not any more: upload it again",
                        artifact.digest
                    ),
                    // Whoever writes it says what it waits for.
                    None if conditions::ready(conditions).is_some() => return,
                    None => "nothing was uploaded yet".to_owned(),
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
            let why = "it was not uploaded, or is not kept any more, and an ExternalArtifact is not fetched";
            let mut tx = self.store.begin().await?;
            tx.keep_artifact(stored.uid, &revision, Err(why), now).await?;
            let users = tx.users(stored.kind, &stored.namespace, &stored.name, PipelineRole::Applier).await?;
            tx.enqueue(Queue::Applier, &users).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
