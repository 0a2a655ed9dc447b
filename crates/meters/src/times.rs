//! How long things took: a histogram that is filled without a lock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The upper ends of what is told apart of what should take milliseconds, in seconds.
pub const QUICK: &[f64] = &[0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];
/// The same of what may take minutes.
pub const SLOW: &[f64] = &[0.05, 0.2, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0];

/// What is longer than this counts as this long, so that the sum stays true: eleven days.
const LONGEST: u64 = 1_000_000_000_000;

/// A histogram of durations. Clones share it.
#[derive(Debug, Clone)]
pub struct Times(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ends: &'static [f64],
    /// One for each end, and one for what is above.
    counts: Box<[AtomicU64]>,
    micros: AtomicU64,
}

impl Times {
    /// Empty; `ends` are [`QUICK`] or [`SLOW`].
    #[must_use]
    pub fn new(ends: &'static [f64]) -> Self {
        let counts = (0..=ends.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Inner { ends, counts, micros: AtomicU64::new(0) }))
    }

    /// Something took so long.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = self.0.ends.iter().position(|end| seconds <= *end).unwrap_or(self.0.ends.len());
        let micros = u64::try_from(took.as_micros()).unwrap_or(LONGEST).min(LONGEST);
        // Whoever reads sees each of them sooner or later; that they belong together is of no use to anybody.
        if let Some(count) = self.0.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.0.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl TypedMetric for Times {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Times {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let ends = self.0.ends.iter().copied().chain([f64::INFINITY]);
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = ends.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        #[expect(clippy::cast_precision_loss, reason = "a sum of 2^53 microseconds is 285 years")]
        let sum = self.0.micros.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::{Registry, Unit};

    #[test]
    fn durations_fall_into_their_buckets() {
        let times = Times::new(QUICK);
        for millis in [1, 3, 5, 400, 60_000] {
            times.observe(Duration::from_millis(millis));
        }
        times.observe(Duration::MAX);
        let mut registry = Registry::default();
        registry.register_with_unit("took", "How long", Unit::Seconds, times.clone());
        let text = crate::text(&registry).unwrap();
        for line in [
            "took_seconds_bucket{le=\"0.001\"} 1",
            "took_seconds_bucket{le=\"0.005\"} 3",
            "took_seconds_bucket{le=\"0.5\"} 4",
            "took_seconds_bucket{le=\"10.0\"} 4",
            "took_seconds_bucket{le=\"+Inf\"} 6",
            "took_seconds_count 6",
            "took_seconds_sum 1000060.409",
        ] {
            assert!(text.lines().any(|is| is == line), "no {line} in {text}");
        }
        assert_eq!(times.count(), 6);
    }
}
