//! The loop behind all controllers: claim what is due in a queue, process it side by side, release it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::{Claim, Due, Queue, ResourceUid, Room, Topic, chain};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The timer under the signals.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// While a namespace has all the places that it may have, signals of what is due lead to a claim once in so long.
const BETWEEN_CLAIMS: Duration = Duration::from_millis(50);
/// A database that is away is not asked in a hot loop.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// A pass that is under way when the database goes is given up after this.
const TOO_LONG: Duration = Duration::from_secs(30);
/// A pass that would end the process does so while it reads what others wrote, which does not take longer than this. What
/// goes on for longer waits for somebody, and does not keep the place for suspects from others.
const DANGEROUS: Duration = Duration::from_secs(90);
/// A pass that failed for a reason of the hub's own is taken again after this.
const RETRY: Duration = Duration::from_secs(5);

/// Processes the resources of one queue.
pub(crate) trait Controller: Send + Sync + 'static {
    /// The queue.
    const QUEUE: Queue;
    /// How many at once; and one more, of those that may end the process.
    const CONCURRENCY: usize;
    /// How long one that may end the process has its place for itself.
    const DANGEROUS: Duration = DANGEROUS;

    /// Makes one pass over a resource, and tells when the next pass is due.
    fn process(
        &self,
        hub: &Hub,
        uid: ResourceUid,
    ) -> impl Future<Output = Result<Timestamp, HubError>> + Send;
}

/// Reconciles appliers.
pub(crate) struct Appliers;

impl Controller for Appliers {
    const QUEUE: Queue = Queue::Applier;
    // Of these, twenty at most build or wait for a build (`build::places`).
    const CONCURRENCY: usize = 24;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.delivery.process_applier(uid).await
    }
}

/// Empties namespaces that are being deleted.
pub(crate) struct Namespaces;

impl Controller for Namespaces {
    const QUEUE: Queue = Queue::Namespace;
    const CONCURRENCY: usize = 2;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.objects.process_namespace(uid).await
    }
}

/// Makes Clusters of Secrets that are kubeconfigs.
pub(crate) struct KubeConfigs;

impl Controller for KubeConfigs {
    const QUEUE: Queue = Queue::KubeConfig;
    const CONCURRENCY: usize = 2;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.onboarding.process_kubeconfig(uid).await
    }
}

/// Says where Receivers are called.
pub(crate) struct Receivers;

impl Controller for Receivers {
    const QUEUE: Queue = Queue::Receiver;
    const CONCURRENCY: usize = 4;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.hooks.process_receiver(uid).await
    }
}

/// Composes artifacts.
pub(crate) struct Generators;

impl Controller for Generators {
    const QUEUE: Queue = Queue::Generator;
    // What they compose is composed by the workers that read, of which there are two.
    const CONCURRENCY: usize = 4;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.generators.process_generator(uid).await
    }
}

/// The places of each namespace that has some.
#[derive(Default)]
struct Held(Mutex<BTreeMap<String, usize>>);

/// A place of a namespace; given back on drop.
struct HeldPlace(Arc<Held>, String);

impl Held {
    fn now(&self) -> BTreeMap<String, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take(self: &Arc<Self>, namespace: String) -> HeldPlace {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(namespace.clone()).or_default() += 1;
        HeldPlace(Arc::clone(self), namespace)
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let mut held = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = held.get_mut(&self.1) {
            *places -= 1;
            if *places == 0 {
                held.remove(&self.1);
            }
        }
    }
}

/// Runs until `stop`; then waits for the passes that are under way.
pub(crate) async fn run<C: Controller>(hub: Hub, stop: CancellationToken, controller: C) {
    let controller = Arc::new(controller);
    let mut signals = hub.signals().subscribe(Topic::Due(C::QUEUE));
    let mut under_way = JoinSet::new();
    let held = Arc::new(Held::default());
    while !stop.is_cancelled() {
        signals.mark_unchanged();
        while under_way.try_join_next().is_some() {}
        let free = C::CONCURRENCY.saturating_sub(under_way.len());
        let mut alone = hub.schedule.place_for_suspects();
        let mut room =
            Room { free, suspect: alone.is_some(), of_one: most_of_one(C::CONCURRENCY), held: held.now() };
        let spent = room.spent().len();
        let claim = claim_fairly(&hub, C::QUEUE, C::CONCURRENCY, &room);
        let claimed = hub.attempt("could not claim what is due", claim);
        let claimed = tokio::select! {
            claimed = claimed => claimed,
            () = stop.cancelled() => break,
        };
        let nap = match claimed {
            Some(due) => {
                let full = due.claims.len() >= free;
                hub.metrics.waited(C::QUEUE, &due.waited);
                for (claim, namespace) in due.claims.into_iter().zip(due.namespaces) {
                    *room.held.entry(namespace.clone()).or_default() += 1;
                    let (hub, controller, stop) = (hub.clone(), Arc::clone(&controller), stop.clone());
                    let place = if claim.is_suspect() { alone.take() } else { None };
                    let its = held.take(namespace);
                    under_way.spawn(async move {
                        let next = process(&hub, controller.as_ref(), claim, &stop, place).await;
                        drop(its);
                        next
                    });
                }
                drop(alone);
                if !full && room.spent().len() > spent {
                    // Others may be due behind what this one has no places for.
                    continue;
                }
                let nap = due.next.map_or(LONGEST_NAP, |next| until(&hub, next));
                if full || spent > 0 {
                    // More may be due than there were places: go on as soon as one is free, or others may have something. Who asks all
                    // the time signals all the time.
                    let others = async {
                        let _ = tokio::time::timeout(nap, signals.changed()).await;
                        tokio::time::sleep(BETWEEN_CLAIMS).await;
                    };
                    tokio::select! {
                        _ = under_way.join_next() => {}
                        () = others, if !full => {}
                        () = stop.cancelled() => {}
                    }
                    continue;
                }
                nap
            }
            None => AFTER_ERROR,
        };
        tokio::select! {
            () = doze(&hub, nap, &mut under_way) => {}
            _ = signals.changed() => {}
            () = stop.cancelled() => {}
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// One namespace never has all places, however much of it is due: what others ask for does not wait for it.
const fn most_of_one(places: usize) -> usize {
    (places * 3).div_ceil(4)
}

/// How many places a namespace has while others have some, too: as many as each of them, unless the others leave more.
fn share_of_one(places: usize, namespaces: usize) -> usize {
    places.div_ceil(namespaces.max(1)).min(most_of_one(places))
}

/// Claims what is due: first for the namespaces that have less than their share of the places. Those that have it get what is left.
async fn claim_fairly(hub: &Hub, queue: Queue, places: usize, room: &Room) -> Result<Due, HubError> {
    let share = share_of_one(places, room.held.len());
    let is_contended = room.held.values().any(|held| *held >= share);
    if share >= room.of_one || !is_contended {
        return hub.schedule.claim_due(queue, room).await;
    }
    let fair = Room { of_one: share, ..room.clone() };
    let mut due = hub.schedule.claim_due(queue, &fair).await?;
    let mut rest = Room { suspect: false, free: room.free.saturating_sub(due.claims.len()), ..room.clone() };
    if rest.free == 0 {
        return Ok(due);
    }
    for namespace in &due.namespaces {
        *rest.held.entry(namespace.clone()).or_default() += 1;
    }
    let more = hub.schedule.claim_due(queue, &rest).await;
    // What was claimed is processed, whatever comes of that.
    if let Ok(more) = more {
        due.claims.extend(more.claims);
        due.namespaces.extend(more.namespaces);
        due.waited.extend(more.waited);
        due.next = more.next;
    }
    Ok(due)
}

/// Until something may be due: after `nap`, or sooner where a pass that ends meanwhile wants its next one sooner.
async fn doze(hub: &Hub, nap: Duration, under_way: &mut JoinSet<Timestamp>) {
    let nap = tokio::time::sleep(nap);
    tokio::pin!(nap);
    loop {
        tokio::select! {
            () = &mut nap => return,
            Some(ended) = under_way.join_next() => {
                let Ok(next) = ended else { continue };
                let due = Instant::now() + until(hub, next);
                if due < nap.deadline() {
                    nap.as_mut().reset(due);
                }
            }
        }
    }
}

fn until(hub: &Hub, due: Timestamp) -> Duration {
    Duration::try_from(due.duration_since(hub.now())).unwrap_or_default().min(LONGEST_NAP)
}

/// Makes the pass of a claim, and tells when the next one is due.
async fn process<C: Controller>(
    hub: &Hub,
    controller: &C,
    claim: Claim,
    stop: &CancellationToken,
    mut place: Option<OwnedSemaphorePermit>,
) -> Timestamp {
    let began = Instant::now();
    let processed = async {
        match hub.schedule.leave_alone(C::QUEUE, claim).await? {
            None => {
                let pass = controller.process(hub, claim.uid);
                let (next, left) = roadstead_trace::pass(span_of(C::QUEUE), claim.trace, pass).await;
                // What is left to be done is part of the same trace.
                Ok((true, next?, left))
            }
            Some(next) => Ok((false, next, claim.trace)),
        }
    };
    // A connection to a server that is gone without a word would be waited for, for ever.
    let processed = async {
        tokio::select! {
            processed = processed => processed,
            () = hub.database().lost_for(TOO_LONG) => Err(HubError::Unavailable("the database is not available".to_owned())),
        }
    };
    tokio::pin!(processed);
    let processed = tokio::select! {
        processed = &mut processed => processed,
        () = tokio::time::sleep(C::DANGEROUS) => {
            drop(place.take());
            processed.await
        }
    };
    if !matches!(processed, Ok((false, ..))) {
        hub.metrics.passed(C::QUEUE, claim.uid, began.elapsed(), processed.is_err());
    }
    let (taken, next, trace) = processed.unwrap_or_else(|error: HubError| {
        // What the database's outage has cut is not a fault of the object's.
        if error.outage().is_none() && !matches!(error, HubError::Unavailable(_)) {
            tracing::error!(queue = ?C::QUEUE, uid = %claim.uid, error = chain(&error), "processing an object failed");
        }
        (true, hub.now() + RETRY, claim.trace)
    });
    let claim = Claim { trace, ..claim };
    let release = || give_back(hub, claim, taken, next);
    // Before the claim: who is told of that finds the place free.
    drop(place);
    // A claim that is kept by mistake keeps its object from being processed until the lease is over, which is long.
    loop {
        tokio::select! {
            given = hub.attempt("could not release a claim", release()) => if given.is_some() { return next },
            // Given back all the same where the database answers; else others take it over once this replica is dead.
            () = stop.cancelled() => {
                if hub.database().outage().is_none()
                    && let Err(error) = release().await
                {
                    tracing::error!(queue = ?C::QUEUE, uid = %claim.uid, error = chain(&error), "could not release a claim");
                }
                return next;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(AFTER_ERROR) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// What a pass is called in a trace.
fn span_of(queue: Queue) -> &'static str {
    match queue {
        Queue::Source | Queue::Generator => "source",
        Queue::Applier => "reconcile",
        Queue::Alert => "alert",
        _ => "pass",
    }
}

async fn give_back(hub: &Hub, claim: Claim, taken: bool, next: Timestamp) -> Result<(), HubError> {
    if taken {
        hub.schedule.release_claim(claim, next).await
    } else {
        hub.schedule.release_untaken(claim, next).await
    }
}

#[cfg(test)]
mod tests {
    use super::{most_of_one, share_of_one};

    #[test]
    fn namespaces_share_the_places() {
        assert_eq!([1, 2, 4, 24].map(most_of_one), [1, 2, 3, 18]);
        // Alone, with another one, and with many.
        assert_eq!(
            [0, 1, 2, 3, 24, 100].map(|namespaces| share_of_one(24, namespaces)),
            [18, 18, 12, 8, 1, 1]
        );
        assert_eq!([1, 2].map(|namespaces| share_of_one(2, namespaces)), [2, 1]);
    }
}
