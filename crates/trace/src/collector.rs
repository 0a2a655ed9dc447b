//! Where spans go when they have ended: a queue, which drops what it has no room for and never holds anybody up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::Finished;

/// Spans that wait to be sent: of some 4 KiB at most each, 8 MiB.
const MOST_WAITING: usize = 2_048;

static COLLECTOR: OnceLock<Collector> = OnceLock::new();

/// Which of the traces that begin here are recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling(f64);

/// What collects the process's spans.
pub(crate) struct Collector {
    sampling: Sampling,
    queue: mpsc::Sender<Finished>,
    dropped: AtomicU64,
}

/// The spans that were collected, for whoever sends them.
#[derive(Debug)]
pub struct Collected(mpsc::Receiver<Finished>);

impl Sampling {
    /// All of them.
    pub const ALL: Self = Self(1.0);

    /// This part of them, from 0 to 1; none for what is not between these.
    #[must_use]
    pub fn new(ratio: f64) -> Option<Self> {
        (0.0..=1.0).contains(&ratio).then_some(Self(ratio))
    }

    /// The part.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.0
    }
}

/// Has traces made in this process from now on. None where that was said before.
#[must_use]
pub fn start(sampling: Sampling) -> Option<Collected> {
    let (collector, collected) = Collector::new(sampling, MOST_WAITING);
    COLLECTOR.set(collector).ok()?;
    Some(collected)
}

pub(crate) fn get() -> Option<&'static Collector> {
    COLLECTOR.get()
}

impl Collector {
    pub(crate) fn new(sampling: Sampling, most: usize) -> (Self, Collected) {
        let (queue, collected) = mpsc::channel(most);
        (Self { sampling, queue, dropped: AtomicU64::new(0) }, Collected(collected))
    }

    pub(crate) fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Takes spans, or drops them where too many wait.
    pub(crate) fn take(&self, spans: Vec<Finished>) {
        for span in spans.into_iter().filter(|span| span.context.sampled) {
            if self.queue.try_send(span).is_err() {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Collected {
    /// The next spans, so many at most; it waits for the first. None will come once this says so.
    pub async fn next(&mut self, most: usize) -> Vec<Finished> {
        let mut spans = Vec::new();
        self.0.recv_many(&mut spans, most).await;
        spans
    }

    /// Those that wait already.
    pub fn ready(&mut self, most: usize) -> Vec<Finished> {
        std::iter::from_fn(|| self.0.try_recv().ok()).take(most).collect()
    }

    /// How many were dropped until now since there was no room for them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        get().map_or(0, Collector::dropped)
    }
}
