//! Metrics, as Prometheus and what follows it read them: OpenMetrics.
//!
//! What this process does was counted as it happened ([`Meters`]); what the database knows is asked for when somebody reads, and is the same
//! whichever replica answers. Of objects at most [`MOST_OBJECTS`] are told apart, so that an answer has a size; no label has what a user
//! could take for a secret: no address, and no message.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use roadstead_api::{KINDS, KindId};
use roadstead_budget::{MemoryBudget, PoolName, Reservation};
use roadstead_hub_store::{ObjectInfo, Store};
use roadstead_meters::{MEDIA_TYPE, Process, Real, Times, signed, text};
use roadstead_model::{Queue, ResourceUid};

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::{Identity, authorize_path};
use crate::meters::{MOST_TIMED, Meters, OfQueue};

/// Where metrics are served.
pub const METRICS: &str = "/metrics";
/// Their media type.
pub const METRICS_TYPE: &str = MEDIA_TYPE;
/// Objects that are listed.
const MOST_OBJECTS: i64 = 10_000;
/// Entries of the audit log that are counted.
const MOST_UNSEALED: i64 = 100_000;
/// What listing one takes in memory, at worst: its row, its labels, and its line.
const OBJECT: u64 = 3 << 10;
/// What the lines of one take that is timed.
const TIMED: u64 = 2 << 10;
/// An answer serves everybody for so long.
const FRESH: Duration = Duration::from_secs(2);

/// What is read of a hub.
pub struct Metrics {
    store: Store,
    clock: Arc<dyn Clock>,
    budget: Arc<MemoryBudget>,
    meters: Arc<Meters>,
    process: Process,
    /// The last answer. Whoever makes the next one holds it, and others wait for that.
    last: tokio::sync::Mutex<Option<Answered>>,
}

impl Metrics {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            budget: Arc::clone(&context.options.budget),
            meters: Arc::clone(&context.meters),
            process: Process::this(),
            last: tokio::sync::Mutex::default(),
        }
    }

    /// A pass over an object of a queue took so long.
    pub fn passed(&self, queue: Queue, uid: ResourceUid, took: Duration, failed: bool) {
        self.meters.passed(queue, uid, took, failed);
    }

    /// Passes of a queue had been due for so long before they were taken up.
    pub fn waited(&self, queue: Queue, waited: &[Duration]) {
        self.meters.waited(queue, waited);
    }

    /// All metrics, as [`METRICS_TYPE`].
    ///
    /// # Errors
    /// [`HubError::Forbidden`], [`HubError::Unavailable`] while memory is short, or the database fails.
    pub async fn read(&self, who: &Identity) -> Result<Bytes, HubError> {
        authorize_path(who, "get", METRICS)?;
        let mut last = self.last.lock().await;
        if let Some(Answered { at, bytes, .. }) = last.as_ref()
            && at.elapsed() < FRESH
        {
            return Ok(bytes.clone());
        }
        // Before it is replaced, so that there is one.
        *last = None;
        let kinds: Vec<KindId> = KINDS.iter().map(|kind| kind.id).filter(|kind| is_shown(*kind)).collect();
        let count = self.store.object_count(&kinds, MOST_OBJECTS).await?.unsigned_abs();
        let takes = count * OBJECT + MOST_TIMED as u64 * TIMED;
        let short = |error| HubError::Unavailable(format!("metrics cannot be made now: {error}"));
        let mut room = self.budget.pool(PoolName::Decoded).try_reserve(takes).map_err(short)?;
        let bytes = Bytes::from(self.made(&kinds).await?);
        room.shrink_to(bytes.len() as u64);
        *last = Some(Answered { at: Instant::now(), bytes: bytes.clone(), _room: room });
        Ok(bytes)
    }

    async fn made(&self, kinds: &[KindId]) -> Result<String, HubError> {
        let mut registry = Registry::default();
        self.process.register(&mut registry);
        self.register_own(&mut registry);
        self.register_database(&mut registry).await?;
        self.register_objects(kinds, &mut registry).await?;
        text(&registry).map_err(|error| HubError::Internal(format!("write the metrics: {error}")))
    }

    /// What this replica does.
    fn register_own(&self, registry: &mut Registry) {
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("roadstead_hub_build_info", "The version of this replica of the hub", build);
        self.meters.register(registry);
        self.store.statements().register(registry);
        let (open, idle) = (Family::<OfPool, Gauge>::default(), Family::<OfPool, Gauge>::default());
        for (pool, count, unused) in self.store.database_connections() {
            open.get_or_create(&OfPool { pool }).set(count.into());
            idle.get_or_create(&OfPool { pool }).set(signed(unused));
        }
        registry.register(
            "roadstead_database_connections",
            "Connections of this replica to the database",
            open,
        );
        registry.register("roadstead_database_connections_idle", "Those of them that nothing uses", idle);
        let (size, used) = (Family::<OfPool, Gauge>::default(), Family::<OfPool, Gauge>::default());
        for pool in self.budget.pools() {
            size.get_or_create(&OfPool { pool: pool.name() }).set(signed(pool.size()));
            used.get_or_create(&OfPool { pool: pool.name() }).set(signed(pool.used()));
        }
        registry.register_with_unit(
            "roadstead_memory_pool_size",
            "Shares of this replica's memory budget",
            Unit::Bytes,
            size,
        );
        registry.register_with_unit(
            "roadstead_memory_pool_used",
            "What of a share is set aside",
            Unit::Bytes,
            used,
        );
    }

    /// What all replicas share.
    async fn register_database(&self, registry: &mut Registry) -> Result<(), HubError> {
        let now = self.clock.now();
        let (due, claimed) = (Family::<OfQueue, Gauge>::default(), Family::<OfQueue, Gauge>::default());
        let oldest = Family::<OfQueue, Real>::default();
        // Queues with nothing in them are there as well.
        for queue in Queue::ALL {
            let of = OfQueue { queue: queue.as_str() };
            due.get_or_create(&of).set(0);
            claimed.get_or_create(&of).set(0);
            oldest.get_or_create(&of).set(0.0);
        }
        for depth in self.store.queue_depths(now).await? {
            let Some(queue) = Queue::ALL.into_iter().find(|queue| queue.as_str() == depth.queue) else {
                continue;
            };
            let of = OfQueue { queue: queue.as_str() };
            due.get_or_create(&of).set(depth.due);
            claimed.get_or_create(&of).set(depth.claimed);
            oldest.get_or_create(&of).set(depth.oldest.max(0.0));
        }
        registry.register(
            "roadstead_queue_due",
            "Objects that a pass is due over, and that no replica has taken up",
            due,
        );
        registry.register("roadstead_queue_claimed", "Objects that a replica makes a pass over", claimed);
        registry.register_with_unit(
            "roadstead_queue_oldest",
            "For how long the oldest of those that are due has been so",
            Unit::Seconds,
            oldest,
        );
        let agents = Family::<OfVersion, Gauge>::default();
        // There where no agent is.
        agents.get_or_create(&OfVersion { version: env!("CARGO_PKG_VERSION").to_owned() }).set(0);
        for (version, count) in self.store.agents_by_version().await? {
            agents.get_or_create(&OfVersion { version }).set(count);
        }
        registry.register("roadstead_agents_connected", "Agents that are connected to any replica", agents);
        let waiting = self.store.deliveries_that_wait(now).await?;
        let (count, oldest) = (Gauge::<i64>::default(), Real::default());
        count.set(waiting.count);
        oldest.set(waiting.oldest.max(0.0));
        registry.register("roadstead_deliveries_waiting", "Events that Alerts have still to send", count);
        registry.register_with_unit(
            "roadstead_deliveries_oldest",
            "For how long the oldest of them has waited",
            Unit::Seconds,
            oldest,
        );
        let incidents = Gauge::<i64>::default();
        incidents.set(self.store.open_incidents().await?);
        registry.register("roadstead_incidents_open", "Incidents of all Alerts that go on", incidents);
        let unsealed = Gauge::<i64>::default();
        unsealed.set(self.store.unsealed_entries(MOST_UNSEALED).await?);
        registry.register(
            "roadstead_audit_unsealed",
            "Entries of the audit log that are in no batch yet",
            unsealed,
        );
        Ok(())
    }

    /// The objects of these kinds, and how long they took.
    async fn register_objects(&self, kinds: &[KindId], registry: &mut Registry) -> Result<(), HubError> {
        let infos = Family::<Info, Gauge>::default();
        for info in self.store.object_infos(kinds, MOST_OBJECTS).await? {
            infos.get_or_create(&Info::of(info)).set(1);
        }
        registry.register("gotk_resource_info", "The objects of the pipeline, and how they are", infos);
        let timed: Vec<ResourceUid> = self.meters.objects().keys().copied().collect();
        let named = self.store.names_of(&timed).await?;
        let mut durations = Vec::with_capacity(named.len());
        let mut histograms = self.meters.objects();
        let is_there = |uid: &ResourceUid| named.binary_search_by_key(uid, |(uid, _)| *uid).is_ok();
        // What began to be timed meanwhile was not asked for.
        histograms.retain(|uid, _| is_there(uid) || timed.binary_search(uid).is_err());
        for (uid, [kind, namespace, name]) in &named {
            if let Some(histogram) = histograms.get(uid) {
                let of = OfObject { kind: kind.clone(), namespace: namespace.clone(), name: name.clone() };
                durations.push((of, histogram.clone()));
            }
        }
        drop(histograms);
        registry.register_with_unit(
            "gotk_reconcile_duration",
            "How long reconciliations of an object took at this replica",
            Unit::Seconds,
            Listed(durations),
        );
        Ok(())
    }
}

/// Whether objects of a kind are listed: those that Flux lists, too.
fn is_shown(kind: KindId) -> bool {
    kind.is_in_pipeline() || kind == KindId::ArtifactGenerator
}

/// The last answer, with the memory that it takes.
struct Answered {
    at: Instant,
    bytes: Bytes,
    _room: Reservation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPool {
    pool: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVersion {
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// The labels of Flux's own metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfObject {
    kind: String,
    namespace: String,
    name: String,
}

/// Those that Flux's monitoring gives its objects, and the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Info {
    customresource_group: String,
    customresource_version: String,
    customresource_kind: String,
    exported_namespace: String,
    name: String,
    cluster: String,
    ready: String,
    suspended: String,
    revision: String,
    source_name: String,
}

impl Info {
    fn of(info: ObjectInfo) -> Self {
        let version = KindId::named(&info.kind).map_or("", |kind| kind.get().storage_version().name);
        Self {
            customresource_group: info.api_group,
            customresource_version: version.to_owned(),
            customresource_kind: info.kind,
            exported_namespace: info.namespace,
            name: info.name,
            cluster: info.cluster,
            ready: info.ready,
            suspended: info.suspended.to_string(),
            revision: info.revision,
            source_name: info.source,
        }
    }
}

/// Histograms that were filled before anybody knew what they are of.
struct Listed(Vec<(OfObject, Times)>);

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} histograms", self.0.len())
    }
}

impl EncodeMetric for Listed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|(of, histogram)| histogram.encode(encoder.encode_family(of)?))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
