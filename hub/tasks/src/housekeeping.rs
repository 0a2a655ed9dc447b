//! This replica's heartbeat, the roll-out of agents, and what is to be tidied up now and then.

use std::time::Duration;

use roadstead_hub_core::identity::{HEAD_PERIOD, REFUSALS_PERIOD, SEAL_ALL_PERIOD, SEAL_PERIOD};
use roadstead_hub_core::readiness::AUDIT_SEALER;
use roadstead_hub_core::{Hub, PutBack, UPKEEP_PERIOD};
use roadstead_model::chain;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

const HEARTBEAT: Duration = Duration::from_secs(2);
/// How often it is looked whose turn it is to run another image. One question, whatever the size of the fleet.
const ROLL_OUT: Duration = Duration::from_secs(5);
/// A replica that could not seal for so long is not ready: what it notes may be changed without a trace.
const UNSEALED: Duration = Duration::from_secs(300);
/// How often it is looked whether the keys of issuers are to be asked for. They are every few minutes, and at once where that failed.
const KEYS: Duration = Duration::from_secs(15);
/// Aggregated ClusterRoles are looked at no more often than this: a manifest may have hundreds of bindings.
const AGGREGATION_PAUSE: Duration = Duration::from_secs(1);
/// Four missed heartbeats: others take over what it held.
const DEAD_AFTER: Duration = Duration::from_secs(8);

/// How often it is looked whether this replica's clock was put back.
const CLOCK: Duration = Duration::from_secs(5);
/// And how often whether anything is planned by a clock that was: one of a replica that is gone, or this one's before it started.
const PLANNED: Duration = Duration::from_secs(60);

/// Has nothing wait for a time that the clock showed before it was put back.
pub(crate) async fn watch_clock(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(CLOCK);
    let (mut put_back, mut looked_at) = (PutBack::new(hub.now()), Instant::now());
    let (mut is_put_back, mut mended_at) = (false, None::<Instant>);
    while next(&mut timer, &stop).await {
        let passed = std::mem::replace(&mut looked_at, Instant::now()).elapsed();
        is_put_back |= put_back.since(passed, hub.now());
        if !is_put_back && mended_at.is_some_and(|at| at.elapsed() < PLANNED) {
            continue;
        }
        let mended = async {
            let mended = hub
                .attempt("what was planned before the clock was put back stays so", hub.mend_clock())
                .await?;
            mended_at = Some(Instant::now());
            if is_put_back || mended {
                // Of Alerts more is noted than when they are due.
                let looked = hub.notify.look_at_all();
                hub.attempt("could not look at Alerts after the clock was put back", looked).await?;
            }
            is_put_back = false;
            Some(())
        };
        unless(&stop, mended).await;
    }
}

/// Says that this replica lives, and buries those that do not.
pub(crate) async fn heartbeat(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(HEARTBEAT);
    while next(&mut timer, &stop).await {
        let recorded = hub.attempt(
            "the hub's heartbeat could not be recorded",
            hub.sessions.bury_dead_replicas(DEAD_AFTER),
        );
        unless(&stop, recorded).await;
    }
}

/// Says once which sources will not be fetched for long.
pub(crate) async fn tell_of_tolerated_sources(hub: Hub, stop: CancellationToken) {
    tokio::select! {
        told = hub.sources.tell_of_tolerated_sources() => {
            if let Err(error) = told {
                tracing::error!(error = chain(&error), "could not check which sources are at addresses that are not allowed");
            }
        }
        () = stop.cancelled() => {}
    }
}

/// Has agents put another image in their place, a stage after the other.
pub(crate) async fn roll_out(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(ROLL_OUT);
    while next(&mut timer, &stop).await {
        unless(&stop, hub.attempt("could not check the roll-out of agents", hub.agents.roll_out_agents()))
            .await;
    }
}

/// Writes down what was refused and what was repeated, also what was last.
pub(crate) async fn refusals(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(REFUSALS_PERIOD);
    loop {
        let goes_on = next(&mut timer, &stop).await;
        if let Err(error) = hub.audit.write_counted(!goes_on).await {
            tracing::error!(error = chain(&error), "could not write what was counted to the audit log");
        }
        if !goes_on {
            return;
        }
    }
}

/// Seals what came into the audit log: soon where this replica wrote it, and now and then in any case.
pub(crate) async fn seal_audit(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(SEAL_PERIOD);
    let running = hub.readiness.runs(AUDIT_SEALER, "sealing");
    running.worked(UNSEALED);
    let mut last = Instant::now();
    while next(&mut timer, &stop).await {
        if !hub.audit.take_unsealed() && last.elapsed() < SEAL_ALL_PERIOD {
            continue;
        }
        last = Instant::now();
        let sealed = hub.attempt("the audit log could not be sealed", hub.audit.seal());
        let sealed = async {
            // One that never gets its turn does not work.
            if sealed.await == Some(true) {
                running.worked(UNSEALED);
            }
        };
        unless(&stop, sealed).await;
    }
    running.stopped();
}

/// Tells the stream of the audit log what its newest batch is.
pub(crate) async fn tell_head(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(HEAD_PERIOD);
    while next(&mut timer, &stop).await {
        unless(
            &stop,
            hub.attempt("the audit log's newest batch could not be streamed", hub.audit.tell_head()),
        )
        .await;
    }
}

/// Knows the keys of the issuers that are trusted before somebody comes with a token, and those that are new soon after.
pub(crate) async fn refresh_issuers(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(KEYS);
    while next(&mut timer, &stop).await {
        hub.identity.refresh_issuers();
    }
}

/// Shows in aggregated ClusterRoles what they are made of, soon after a role has changed.
pub(crate) async fn aggregate_roles(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(UPKEEP_PERIOD);
    let mut changes = hub.identity.role_changes();
    loop {
        tokio::select! {
            _ = timer.tick() => {}
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        changes.mark_unchanged();
        let written = hub.objects.write_aggregated(&hub.identity);
        unless(&stop, hub.attempt("the rules of aggregated ClusterRoles could not be written", written))
            .await;
        unless(&stop, tokio::time::sleep(AGGREGATION_PAUSE)).await;
    }
}

/// Keeps tables small, and removes what killed processes left of their fetches.
pub(crate) async fn tidy(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(UPKEEP_PERIOD);
    while next(&mut timer, &stop).await {
        unless(&stop, hub.attempt("housekeeping failed", hub.tidy())).await;
        match tokio::task::spawn_blocking(|| roadstead_sources::sweep_scratch(None)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(folders)) => tracing::info!(folders, "temporary folders of killed processes removed"),
            Ok(Err(error)) => tracing::error!(error = chain(&error), "temporary folders could not be listed"),
            Err(error) => tracing::error!(%error, "removing temporary folders was interrupted"),
        }
    }
}

/// Tends the object store with the artifacts, where there is one.
pub(crate) async fn tend_artifact_store(hub: Hub, stop: CancellationToken) {
    let mut timer = timer(UPKEEP_PERIOD);
    while next(&mut timer, &stop).await {
        unless(&stop, hub.attempt("the artifact store could not be tended", hub.tend_artifact_store())).await;
    }
}

/// Waits for `work`, or for the end.
async fn unless(stop: &CancellationToken, work: impl Future) {
    tokio::select! {
        _ = work => {}
        () = stop.cancelled() => {}
    }
}

fn timer(period: Duration) -> Interval {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Waits for the next tick; false once it is time to stop.
async fn next(timer: &mut Interval, stop: &CancellationToken) -> bool {
    tokio::select! {
        _ = timer.tick() => true,
        () = stop.cancelled() => false,
    }
}
