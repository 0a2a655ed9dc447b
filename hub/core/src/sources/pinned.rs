//! What came of fetching a revision to which an applier is pinned: the source's own status has nothing of it.

use roadstead_api::PipelineRole;
use roadstead_hub_store::AtRest;
use roadstead_model::{Queue, Revision, chain};
use roadstead_sources::{FetchError, Outcome};

use crate::HubError;
use crate::objects::conditions;
use crate::sources::Sources;
use crate::sources::pass::{FetchJob, LOGGER};

/// Whether a revision is the one that is wanted, by whatever name: by its content, where it has one.
fn is_the_same(found: &Revision, wanted: &Revision) -> bool {
    found.content() == wanted.content() && (found.content().is_some() || found == wanted)
}

impl Sources {
    /// Records what came of fetching a revision to which an applier is pinned, and has those that use the source look at it.
    pub(super) async fn record_pinned(
        &self,
        job: &FetchJob,
        revision: &Revision,
        outcome: Result<Outcome, FetchError>,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let (failure, artifact) = match outcome {
            Ok(Outcome::Fetched(fetched)) if is_the_same(&fetched.revision, revision) => {
                let artifact = &fetched.artifact;
                match self.has_room(&job.seen, artifact.bytes.len()).await? {
                    Ok(()) => {
                        self.store.put_blob(artifact.digest, &artifact.bytes, AtRest::Sealed, now).await?;
                        (String::new(), Some(artifact.digest))
                    }
                    Err(why) => (why, None),
                }
            }
            Ok(Outcome::Fetched(fetched)) => {
                (format!("it was asked for, and revision {} came", fetched.revision), None)
            }
            Ok(Outcome::Unchanged(_)) => ("it was asked for, and nothing came".to_owned(), None),
            // A server may have said a lot.
            Err(error) => (conditions::shortened(&chain(&error)), None),
        };
        let mut tx = self.store.begin().await?;
        tx.keep_artifact(job.seen.uid, revision, artifact.ok_or(failure.as_str()), now).await?;
        let source = &job.seen;
        let users = tx.users(source.kind, &source.namespace, &source.name, PipelineRole::Applier).await?;
        tx.enqueue(Queue::Applier, &users).await?;
        tx.commit().await?;
        let full = format!("{}/{}", source.namespace, source.name);
        let revision = revision.to_string();
        match artifact {
            Some(_) => tracing::info!(
                target: LOGGER, kind = %source.kind, source = full, revision, "stored artifact of a pinned revision"
            ),
            None => {
                tracing::error!(target: LOGGER, kind = %source.kind, source = full, revision, error = failure);
            }
        }
        Ok(())
    }
}
