//! Builds on their way to an agent: one after the other, in parts, each out of memory that was reserved for it.

use std::time::Duration;

use roadstead_hub_core::{BuildReader, Hub, HubError, Session};
use roadstead_model::Digest;
use roadstead_proto::limits::{BUILD_CHUNK_BYTES, MAX_BUILD_COMPRESSED_BYTES, bounded};
use roadstead_proto::v1::BuildChunk;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::status;

/// Builds that one agent waits for at once. An agent asks for one per dispatch that it works on.
const ASKED: usize = 1024;
/// A build has arrived within this time, or the session is cut: the memory is needed for others.
const TRANSFER: Duration = Duration::from_secs(120);

/// What an agent is told of a build that it may not have, whether there is one or not.
const NOT_THERE: &str = "the hub does not have this build any more; it builds it anew at the next attempt";

/// A part of a build, or why the session cannot go on.
pub(crate) type Part = Result<BuildChunk, Status>;

/// The builds that a session has asked for.
pub(crate) struct Builds {
    asked: mpsc::Sender<String>,
    task: JoinHandle<()>,
}

impl Drop for Builds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Builds {
    /// None yet; what is to be sent comes out of the receiver.
    pub(crate) fn start(hub: Hub, session: Session) -> (Self, mpsc::Receiver<Part>) {
        let (asked, mut digests) = mpsc::channel::<String>(ASKED);
        let (parts, received) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            while let Some(digest) = digests.recv().await {
                let sent = tokio::time::timeout(TRANSFER, send(&hub, &session, &digest, &parts)).await;
                let failed = match sent {
                    Ok(Ok(())) => continue,
                    Ok(Err(failed)) => failed,
                    Err(_) => Status::deadline_exceeded(format!("a build was not taken within {TRANSFER:?}")),
                };
                // Where nobody listens, the session has ended.
                let _ = parts.send(Err(failed)).await;
                return;
            }
        });
        (Self { asked, task }, received)
    }

    /// Asks for a build. False where too many are asked for already.
    pub(crate) fn ask(&self, digest: String) -> bool {
        self.asked.try_send(digest).is_ok()
    }
}

async fn send(hub: &Hub, session: &Session, digest: &str, parts: &mpsc::Sender<Part>) -> Result<(), Status> {
    let failed = |error: HubError| status(&error);
    let say = async |chunk: BuildChunk| {
        let gone = |_| Status::cancelled("the session has ended");
        parts.send(Ok(chunk)).await.map_err(gone)
    };
    let refusal = |error: String| BuildChunk { digest: bounded(digest), error, ..BuildChunk::default() };
    let Ok(parsed) = digest.parse::<Digest>() else {
        return say(refusal("not a digest".to_owned())).await;
    };
    let Some(mut build) = hub.open_build(session, parsed).await.map_err(failed)? else {
        return say(refusal(NOT_THERE.to_owned())).await;
    };
    let total = build.size();
    if total > MAX_BUILD_COMPRESSED_BYTES {
        let most = MAX_BUILD_COMPRESSED_BYTES;
        return say(refusal(format!("it has {total} bytes compressed, at most {most} are sent"))).await;
    }
    let mut offset = 0;
    while offset < total {
        let Some(part) = next(&mut build).await.map_err(failed)? else {
            return say(refusal(NOT_THERE.to_owned())).await;
        };
        for data in part.chunks(BUILD_CHUNK_BYTES) {
            let end = offset + data.len();
            say(BuildChunk {
                digest: parsed.to_string(),
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
