//! A runtime for one server: what that one does to it is felt by nobody else.

use tokio::runtime::Runtime;

use super::error::GitError;
use crate::attempt::{AttemptError, Stop};

/// Waits for one server on a blocking thread, as long as there is time.
pub(super) struct OwnRuntime {
    /// Taken out only when dropped.
    runtime: Option<Runtime>,
    stop: Stop,
    shown_url: String,
}

impl OwnRuntime {
    pub(super) fn new(shown_url: &str, stop: &Stop) -> Result<Self, GitError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| GitError::Internal { url: shown_url.to_owned(), detail: error.to_string() })?;
        Ok(Self { runtime: Some(runtime), stop: stop.clone(), shown_url: shown_url.to_owned() })
    }

    /// Waits for `future` as long as there is time.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> Result<T, GitError> {
        let url = || self.shown_url.clone();
        let Some(runtime) = &self.runtime else {
            return Err(GitError::Internal { url: url(), detail: "the connection is gone".to_owned() });
        };
        let stopped = self.stop.stopped();
        let result = runtime.block_on(async {
            tokio::select! {
                biased;
                () = stopped => None,
                result = future => Some(result),
            }
        });
        // Becomes a timeout where that is the cause.
        result.ok_or_else(|| GitError::Attempt(AttemptError::Cancelled { url: url() }))
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // A look-up of a name may still be in the system's hands, for longer than we have time.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
