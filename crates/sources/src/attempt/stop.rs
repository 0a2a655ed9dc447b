//! How work on a blocking thread learns that it shall end, and how it is told from outside how far it came.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use roadstead_outbound::Veil;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;

/// A deadline and a signal, what is being done now, and what was learned.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    deadline: Instant,
    token: CancellationToken,
    phase: Arc<Mutex<&'static str>>,
    veils: Arc<Mutex<Vec<Veil>>>,
    progress: Progress,
}

impl Stop {
    pub(crate) fn new(deadline: Instant, token: CancellationToken) -> Self {
        let phase = Arc::new(Mutex::new("starting"));
        Self { deadline, token, phase, veils: Arc::default(), progress: Progress::default() }
    }

    /// The same, for work whose progress is noted there.
    pub(crate) fn noting(self, progress: &Progress) -> Self {
        Self { progress: progress.clone(), ..self }
    }

    /// Where it is noted what is learned.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_past(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Says what is done from now on, for the text of a timeout.
    pub(crate) fn enter(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(crate) fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a wire says of what may be told.
    pub(crate) fn hide_behind(&self, veil: Veil) {
        self.veils.lock().unwrap_or_else(PoisonError::into_inner).push(veil);
    }

    /// Whether it would tell too much to say how far it came.
    pub(crate) fn is_veiled(&self) -> bool {
        self.veils.lock().unwrap_or_else(PoisonError::into_inner).iter().any(Veil::is_drawn)
    }

    /// Ends when the work shall end.
    pub(crate) async fn stopped(&self) {
        tokio::select! {
            () = self.token.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline.into()) => {}
        }
    }

    /// Stops the work when the guard is dropped.
    pub(crate) fn on_drop(self) -> StopOnDrop {
        StopOnDrop(self)
    }
}

/// Stops the work on its thread when the one who waits for it is gone.
pub(crate) struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.token.cancel();
    }
}
