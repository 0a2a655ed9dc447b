//! The loop behind all scheduled looks: claim what is due, look side by side, give back.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_core::{Claim, Hub, HubError, Look, Topic};
use roadstead_model::{ResourceUid, chain};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The timer under the signals.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// A database that is away is not asked in a hot loop.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// A look that is under way when the database goes is given up after this.
const TOO_LONG: Duration = Duration::from_secs(30);
/// A look that would end the process does so while it reads what others wrote, which does not take longer than this. What
/// goes on for longer waits for somebody, and does not keep the place for suspects from others.
const DANGEROUS: Duration = Duration::from_secs(90);
/// A look that failed for a reason of the hub's own is taken again after this.
const RETRY: Duration = Duration::from_secs(5);

/// One kind of look.
pub(crate) trait Looker: Send + Sync + 'static {
    /// Which.
    const LOOK: Look;
    /// How many at once; and one more, of those that may end the process.
    const CONCURRENCY: usize;
    /// How long one that may end the process has its place for itself.
    const DANGEROUS: Duration = DANGEROUS;

    /// Looks, and tells when to look again.
    fn look(&self, hub: &Hub, uid: ResourceUid) -> impl Future<Output = Result<Timestamp, HubError>> + Send;
}

/// Looks at Kustomizations.
pub(crate) struct Kustomizations;

impl Looker for Kustomizations {
    const LOOK: Look = Look::Kustomization;
    // Of these, twelve at most build or wait for a build (`build::places`).
    const CONCURRENCY: usize = 16;

    async fn look(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.look_at_kustomization(uid).await
    }
}

/// Empties namespaces that are being deleted.
pub(crate) struct Namespaces;

impl Looker for Namespaces {
    const LOOK: Look = Look::Namespace;
    const CONCURRENCY: usize = 2;

    async fn look(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.look_at_namespace(uid).await
    }
}

/// Makes Clusters of Secrets that are kubeconfigs.
pub(crate) struct KubeConfigs;

impl Looker for KubeConfigs {
    const LOOK: Look = Look::KubeConfig;
    const CONCURRENCY: usize = 2;

    async fn look(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.look_at_kubeconfig(uid).await
    }
}

/// Runs until `stop`; then waits for the looks that are under way.
pub(crate) async fn run<L: Looker>(hub: Hub, stop: CancellationToken, looker: L) {
    let looker = Arc::new(looker);
    let mut signals = hub.signals().subscribe(Topic::Due(L::LOOK));
    let mut under_way = JoinSet::new();
    while !stop.is_cancelled() {
        signals.mark_unchanged();
        while under_way.try_join_next().is_some() {}
        let free = L::CONCURRENCY.saturating_sub(under_way.len());
        let mut alone = hub.place_for_suspects();
        let claimed =
            hub.attempt("due looks could not be claimed", hub.claim_due(L::LOOK, free, alone.is_some()));
        let claimed = tokio::select! {
            claimed = claimed => claimed,
            () = stop.cancelled() => break,
        };
        let nap = match claimed {
            Some(due) => {
                let full = due.claims.len() >= free;
                for claim in due.claims {
                    let (hub, looker, stop) = (hub.clone(), Arc::clone(&looker), stop.clone());
                    let place = if claim.is_suspect() { alone.take() } else { None };
                    under_way.spawn(async move { look(&hub, looker.as_ref(), claim, &stop, place).await });
                }
                drop(alone);
                if full {
                    // More may be due than there were places: go on as soon as one is free.
                    tokio::select! {
                        _ = under_way.join_next() => {}
                        () = stop.cancelled() => {}
                    }
                    continue;
                }
                due.next.map_or(LONGEST_NAP, |next| until(&hub, next))
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

/// Until something may be due: after `nap`, or sooner where a look that ends meanwhile wants its next one sooner.
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

/// Takes a look, and tells when the next one is due.
async fn look<L: Looker>(
    hub: &Hub,
    looker: &L,
    claim: Claim,
    stop: &CancellationToken,
    mut place: Option<OwnedSemaphorePermit>,
) -> Timestamp {
    let looked = async {
        match hub.leave_alone(L::LOOK, claim).await? {
            None => Ok((true, looker.look(hub, claim.uid).await?)),
            Some(next) => Ok((false, next)),
        }
    };
    // A connection to a server that is gone without a word would be waited for, for ever.
    let looked = async {
        tokio::select! {
            looked = looked => looked,
            () = hub.database().lost_for(TOO_LONG) => Err(HubError::Unavailable("the database is away".to_owned())),
        }
    };
    tokio::pin!(looked);
    let looked = tokio::select! {
        looked = &mut looked => looked,
        () = tokio::time::sleep(L::DANGEROUS) => {
            drop(place.take());
            looked.await
        }
    };
    let (taken, next) = looked.unwrap_or_else(|error: HubError| {
        // What the database's outage has cut is no fault of the object's.
        if error.outage().is_none() && !matches!(error, HubError::Unavailable(_)) {
            tracing::error!(look = ?L::LOOK, uid = %claim.uid, error = chain(&error), "a look failed");
        }
        (true, hub.now() + RETRY)
    });
    let release = || give_back(hub, claim, taken, next);
    // Before the claim: who is told of that finds the place free.
    drop(place);
    // A claim that is kept by mistake keeps its object from being looked at until the lease is over, which is long.
    loop {
        tokio::select! {
            given = hub.attempt("a claim was not given back", release()) => if given.is_some() { return next },
            // Given back all the same where the database answers; else others take it over once this replica is dead.
            () = stop.cancelled() => {
                if hub.database().outage().is_none()
                    && let Err(error) = release().await
                {
                    tracing::error!(look = ?L::LOOK, uid = %claim.uid, error = chain(&error), "a claim was not given back");
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

async fn give_back(hub: &Hub, claim: Claim, taken: bool, next: Timestamp) -> Result<(), HubError> {
    if taken { hub.release_claim(claim, next).await } else { hub.release_untaken(claim, next).await }
}
