//! One read for all who ask at about the same time.

use std::future::Future;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// What was read last, and when that was begun.
///
/// Whoever asks gets what was begun to be read after it asked, so that nobody gets what has changed since. Of many who ask
/// while one read is under way, the first begins another for all of them.
pub(crate) struct Coalesced<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Coalesced<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Coalesced<T> {
    /// What `read` gives, or gave to another since now. Where whoever reads gives up, the next one reads.
    pub(crate) async fn get<F: Future<Output = T>>(&self, read: impl FnOnce() -> F) -> T {
        let asked = Instant::now();
        let mut last = self.0.lock().await;
        if let Some((began, value)) = &*last
            && *began > asked
        {
            return value.clone();
        }
        let began = Instant::now();
        let value = read().await;
        *last = Some((began, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    const TAKES: Duration = Duration::from_millis(10);

    /// Reads a counter that it counts up, in a while.
    async fn read(counter: &AtomicUsize) -> usize {
        let value = counter.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(TAKES).await;
        value
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_at_once_shares_a_read_that_began_later() {
        let (coalesced, counter) = (Coalesced::default(), AtomicUsize::new(0));
        let ask = async || {
            tokio::time::sleep(Duration::from_millis(1)).await;
            coalesced.get(|| read(&counter)).await
        };
        let first = coalesced.get(|| read(&counter));
        assert_eq!(tokio::join!(first, ask(), ask(), ask()), (0, 1, 1, 1));
        // Whoever comes later gets what is there then.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(coalesced.get(|| read(&counter)).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_the_read_to_the_next() {
        let (coalesced, counter) = (Coalesced::default(), AtomicUsize::new(0));
        let given_up = tokio::time::timeout(TAKES / 2, coalesced.get(|| read(&counter)));
        let (given_up, next) = tokio::join!(given_up, coalesced.get(|| read(&counter)));
        assert!(given_up.is_err());
        assert_eq!(next, 1);
    }
}
