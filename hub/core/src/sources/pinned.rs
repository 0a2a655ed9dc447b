//! What came of fetching a revision to which an applier is pinned: the source's own status has nothing of it.

use roadstead_api::PipelineRole;
use roadstead_model::{Queue, Revision, chain};
use roadstead_sources::{Failed, Outcome};

use crate::HubError;
use crate::objects::conditions;
use crate::sources::Sources;
use crate::sources::pass::{FetchJob, LOGGER, NotKept};

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
        outcome: Result<Outcome, Failed>,
    ) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut kept = None;
        let failure = match outcome {
            Ok(Outcome::Fetched(fetched)) if is_the_same(&fetched.revision, revision) => {
                match self.keep(&job.seen, &fetched.artifact, now).await? {
                    Ok(tx) => {
                        kept = Some((tx, fetched.artifact.digest));
                        String::new()
                    }
                    // It stays wanted.
                    Err(NotKept { why, may_pass: true }) => return Err(HubError::Unavailable(why)),
                    Err(NotKept { why, .. }) => why,
                }
            }
            Ok(Outcome::Fetched(fetched)) => {
                format!("it was asked for, and revision {} came", fetched.revision)
            }
            Ok(Outcome::Unchanged(_)) => "it was asked for, and nothing came".to_owned(),
            // A server may have said a lot.
            Err(failed) => conditions::shortened(&chain(&failed.error)),
        };
        let (mut tx, artifact) = match kept {
            Some((tx, artifact)) => (tx, Some(artifact)),
            None => (self.store.begin().await?, None),
        };
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
