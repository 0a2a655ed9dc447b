//! Builds on their way to an agent: one after the other, in parts, each out of memory that was reserved for it.

use std::time::Duration;

use roadstead_hub_core::clusters::Session;
use roadstead_hub_core::delivery::BuildReader;
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::Digest;
use roadstead_proto::limits::{BUILD_CHUNK_BYTES, MAX_BUILD_COMPRESSED_BYTES, bounded};
use roadstead_proto::v1::BuildChunk;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Status;

use crate::status;

/// Builds that one agent waits for at once. An agent asks for one per dispatch that it works on.
const ASKED: usize = 1024;

/// What an agent is told of a build that it may not have, whether there is one or not.
const NOT_THERE: &str = "the hub no longer has this build; it builds it again at the next attempt";

/// A part of a build, or why the session cannot go on.
pub(crate) type Part = Result<BuildChunk, Status>;

/// The builds that a session has asked for.
pub(crate) struct Builds {
    asked: mpsc::Sender<Digest>,
    task: JoinHandle<()>,
}

impl Drop for Builds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Builds {
    /// None yet; what is to be sent comes out of the receiver. A part that is not taken for `transfer` ends the session:
    /// its memory is needed for others. What the hub itself takes, also to wait for memory, does not count.
    pub(crate) fn start(hub: Hub, session: Session, transfer: Duration) -> (Self, mpsc::Receiver<Part>) {
        let (asked, mut digests) = mpsc::channel::<Digest>(ASKED);
        let (parts, received) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            while let Some(digest) = digests.recv().await {
                let Err(failed) = send(&hub, &session, digest, &parts, transfer).await else { continue };
                // Where nobody listens, the session has ended.
                let _ = parts.send(Err(failed)).await;
                return;
            }
        });
        (Self { asked, task }, received)
    }

    /// Asks for a build. False where too many are asked for already.
    pub(crate) fn ask(&self, digest: Digest) -> bool {
        self.asked.try_send(digest).is_ok()
    }
}

/// What an agent is told of a build that it does not get.
pub(crate) fn refusal(digest: &str, error: String) -> BuildChunk {
    BuildChunk { digest: bounded(digest), error, ..BuildChunk::default() }
}

async fn send(
    hub: &Hub,
    session: &Session,
    digest: Digest,
    parts: &mpsc::Sender<Part>,
    transfer: Duration,
) -> Result<(), Status> {
    let failed = |error: HubError| status(&error);
    let say = async |chunk: BuildChunk| match timeout(transfer, parts.send(Ok(chunk))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the session has ended")),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "nothing of a build was received by the agent for {transfer:?}"
        ))),
    };
    let refusal = |error: String| refusal(&digest.to_string(), error);
    let mut build = match hub.delivery.open_build(session, digest, MAX_BUILD_COMPRESSED_BYTES).await {
        Ok(Some(build)) => build,
        Ok(None) => return say(refusal(NOT_THERE.to_owned())).await,
        // It will not be smaller the next time: what is dispatched beside it goes on.
        Err(HubError::TooLarge(why)) => return say(refusal(why)).await,
        Err(error) => return Err(failed(error)),
    };
    let total = build.size();
    let mut offset = 0;
    while offset < total {
        let Some(part) = next(&mut build).await.map_err(failed)? else {
            return say(refusal(NOT_THERE.to_owned())).await;
        };
        for data in part.chunks(BUILD_CHUNK_BYTES) {
            let end = offset + data.len();
            say(BuildChunk {
                digest: digest.to_string(),
                total_bytes: total as u64,
                offset: offset as u64,
                data: data.to_vec(),
                last: end == total,
                error: String::new(),
            })
            .await?;
            offset = end;
        }
    }
    Ok(())
}

/// The next bytes; none where they are not stored any more.
async fn next(build: &mut BuildReader) -> Result<Option<Vec<u8>>, HubError> {
    let part = build.next().await?;
    Ok(part.filter(|part| !part.is_empty()))
}
