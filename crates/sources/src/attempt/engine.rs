//! Where readers run: in this process, or wherever its owner has them run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::desk::{Desk, Line};
use super::scratch::Scratch;

/// Why a reader gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Ended {
    /// What ended it, for the source's condition.
    pub why: String,
    /// Whether the same may go well the next time.
    pub transient: bool,
}

/// Runs readers. One that ends, however it ends, is an error of the fetch that it was at and of nothing else.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Whether something may be read: asked before the server is, so that what ended a reader is not brought again. `about`
    /// names what it is, of this repository.
    ///
    /// # Errors
    /// Why not.
    async fn admit(&self, about: &str) -> Result<(), Ended>;

    /// Has [`crate::read`] do what `order` says, with its questions answered by `desk`, and gives its reply. Dropped, it ends
    /// the reader.
    ///
    /// # Errors
    /// What ended the reader.
    async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended>;
}

/// Readers in this process, each on a blocking thread: for programs that fetch what their own user named.
#[derive(Debug, Clone, Default)]
pub struct InProcess {
    /// Where temporary folders are made; the system's place for such if `None`.
    pub scratch: Option<std::path::PathBuf>,
}

type Asked = (Vec<u8>, oneshot::Sender<Result<Bytes, String>>);

#[async_trait]
impl Engine for InProcess {
    async fn admit(&self, _about: &str) -> Result<(), Ended> {
        Ok(())
    }

    async fn run(&self, _about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        let ended = |error: &dyn std::fmt::Display| Ended { why: error.to_string(), transient: true };
        let folder = Scratch::new(self.scratch.as_deref()).map_err(|error| ended(&error))?;
        let work =
            move |line: &Line, stop: &AtomicBool| crate::reading::read(&order, folder.path(), line, stop);
        on_a_thread(desk, work).await.map_err(|error| ended(&error))
    }
}

/// Runs `work` on a blocking thread with a line to `desk`. Where this is dropped, `work` is told to stop.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    desk: &mut Desk,
    work: impl FnOnce(&Line, &AtomicBool) -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    let (sender, mut questions) = mpsc::channel::<Asked>(1);
    let line = Line::new(move |question| {
        let gone = || std::io::Error::other("nobody answers any more");
        let (answer, answered) = oneshot::channel();
        sender.blocking_send((question.to_vec(), answer)).map_err(|_| gone())?;
        let answer = answered.blocking_recv().map_err(|_| gone())?;
        answer.map(Vec::from).map_err(std::io::Error::other)
    });
    let stop = StopOnDrop(Arc::default());
    let for_thread = Arc::clone(&stop.0);
    desk.begin();
    let task = tokio::task::spawn_blocking(move || work(&line, &for_thread));
    // It ends with the line, which ends with the work.
    while let Some((question, answer)) = questions.recv().await {
        // Who does not wait for it is being stopped.
        let _ = answer.send(desk.answer(&question).await);
    }
    task.await
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
