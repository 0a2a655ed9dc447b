//! What this process counts as it does it, for monitoring: one [`Meters`], held by whoever does something that is counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use roadstead_model::{Queue, ResourceUid};

/// Objects of which it is counted how long they take: each is eleven lines.
pub(crate) const MOST_TIMED: usize = 2_000;
/// The upper ends of what is told apart, in seconds.
const BUCKETS: [f64; 8] = [0.05, 0.2, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0];

/// What is counted as it happens. One for the whole process.
pub(crate) struct Meters {
    pub(crate) passes: Family<OfQueue, Histogram, Durations>,
    pub(crate) failures: Family<OfQueue, Counter>,
    /// How long reconciliations took. By uid, so that what is gone is gone from here, too.
    objects: Mutex<BTreeMap<ResourceUid, Histogram>>,
}

impl Default for Meters {
    fn default() -> Self {
        let failures = Family::<OfQueue, Counter>::default();
        // A rate is known from the first failure on where there was a zero before it.
        for queue in Queue::ALL {
            let _ = failures.get_or_create(&OfQueue { queue: queue.as_str() });
        }
        Self { passes: Family::new_with_constructor(Durations), failures, objects: Mutex::default() }
    }
}

impl Meters {
    /// A pass over an object of a queue took so long.
    pub(crate) fn passed(&self, queue: Queue, uid: ResourceUid, took: Duration, failed: bool) {
        let of = OfQueue { queue: queue.as_str() };
        self.passes.get_or_create(&of).observe(took.as_secs_f64());
        if failed {
            self.failures.get_or_create(&of).inc();
        }
        // Of an applier a pass is the beginning only, and other queues are of no pipeline.
        if matches!(queue, Queue::Source | Queue::Generator) {
            self.reconciled(uid, took);
        }
    }

    /// A reconciliation of an object took so long, whoever took part in it.
    pub(crate) fn reconciled(&self, uid: ResourceUid, took: Duration) {
        let mut objects = self.objects();
        if objects.len() < MOST_TIMED || objects.contains_key(&uid) {
            objects.entry(uid).or_insert_with(|| Durations.new_metric()).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, BTreeMap<ResourceUid, Histogram>> {
        // Nothing under the lock can panic half-way through a change.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gauge of a real number.
pub(crate) type Real = Gauge<f64, std::sync::atomic::AtomicU64>;

/// As a gauge has it.
pub(crate) fn signed<T: TryInto<i64>>(count: T) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Histograms of how long something took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durations;

impl MetricConstructor<Histogram> for Durations {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The labels of what is of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OfQueue {
    pub(crate) queue: &'static str,
}
