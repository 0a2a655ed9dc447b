//! What a worker says on standard error: read, so that it never waits for that, and bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStderr;

/// Bytes that are read of it; a worker that writes more is ended.
pub(crate) const MOST: usize = 1 << 20;
/// Bytes that are kept, of the end.
const KEPT: usize = 4 << 10;

/// What a worker writes to standard error, read as it comes so that it never waits, and bounded.
#[derive(Debug, Clone)]
pub(crate) struct Stderr(Arc<Mutex<Tail>>);

#[derive(Debug, Default)]
struct Tail {
    kept: VecDeque<u8>,
    read: usize,
    ended: bool,
}

impl Stderr {
    pub(crate) fn follow(mut from: ChildStderr) -> Self {
        let stderr = Self(Arc::default());
        let follower = stderr.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                let count = from.read(&mut buffer).await.unwrap_or(0);
                let mut tail = follower.lock();
                if count == 0 || tail.read > MOST {
                    tail.ended = true;
                    return;
                }
                tail.read += count;
                tail.kept.extend(&buffer[..count]);
                let excess = tail.kept.len().saturating_sub(KEPT);
                tail.kept.drain(..excess);
            }
        });
        stderr
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().read > MOST
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.lock().kept.make_contiguous()).trim().to_owned()
    }

    /// Waits until all is read that was written, for a moment.
    pub(crate) async fn end(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while !self.lock().ended && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
