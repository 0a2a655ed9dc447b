//! How work on a blocking thread learns that it shall end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use roadstead_outbound::Veil;
use tokio_util::sync::CancellationToken;

/// A deadline and a signal, and what is being done now.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    deadline: Instant,
    token: CancellationToken,
    phase: Arc<Mutex<&'static str>>,
    veil: Arc<OnceLock<Veil>>,
}

impl Stop {
    pub(super) fn new(deadline: Instant, token: CancellationToken) -> Self {
        Self { deadline, token, phase: Arc::new(Mutex::new("starting")), veil: Arc::default() }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn is_past(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Says what is done from now on, for the text of a timeout.
    pub(super) fn enter(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    pub(super) fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the wire says of what may be told.
    pub(super) fn hide_behind(&self, veil: Veil) {
        // There is one wire for one attempt.
        let _ = self.veil.set(veil);
    }

    /// Whether it would tell too much to say how far it came.
    pub(super) fn is_veiled(&self) -> bool {
        self.veil.get().is_some_and(Veil::is_drawn)
    }

    /// Ends when the work shall end.
    pub(super) async fn stopped(&self) {
        tokio::select! {
            () = self.token.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline.into()) => {}
        }
    }

    /// Stops the work when the guard is dropped.
    pub(super) fn on_drop(self) -> StopOnDrop {
        StopOnDrop(self)
    }
}

/// Stops the work on its thread when the one who waits for it is gone.
pub(super) struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.token.cancel();
    }
}
