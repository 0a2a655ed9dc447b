//! Sends events: sorts them to the Alerts that they are for, and makes passes over these.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_core::{Hub, HubError};
use roadstead_model::{Queue, ResourceUid, Topic};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::controllers::Controller;

/// The timer under the signals.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// Last messages of incidents that are sent at once, each to another Provider.
const CLOSINGS: usize = 4;

/// Says what of Providers is missing.
pub(crate) struct Providers;

impl Controller for Providers {
    const QUEUE: Queue = Queue::Provider;
    const CONCURRENCY: usize = 2;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.notify.process_provider(uid).await
    }
}

/// Sends what Alerts are for.
pub(crate) struct Alerts;

impl Controller for Alerts {
    const QUEUE: Queue = Queue::Alert;
    // Each sends one event at a time, so as many events are in memory and on their way at once. A namespace has three quarters of these
    // at most, whatever its Providers do.
    const CONCURRENCY: usize = 16;

    async fn process(&self, hub: &Hub, uid: ResourceUid) -> Result<Timestamp, HubError> {
        hub.notify.process_alert(uid).await
    }
}

/// Sorts events to Alerts until `stop`.
pub(crate) async fn sort(hub: Hub, stop: CancellationToken) {
    let mut signals = hub.signals().subscribe(Topic::News);
    while !stop.is_cancelled() {
        signals.mark_unchanged();
        let sorted = hub.attempt("could not sort events to Alerts", hub.notify.sort());
        let more = tokio::select! {
            more = sorted => more,
            () = stop.cancelled() => break,
        };
        if more == Some(true) {
            continue;
        }
        tokio::select! {
            _ = tokio::time::timeout(LONGEST_NAP, signals.changed()) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Tells what became of deliveries until `stop`.
pub(crate) async fn tally(hub: Hub, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let told = hub.attempt("could not tell what became of deliveries", hub.notify.tally());
        let more = tokio::select! {
            more = told => more,
            () = stop.cancelled() => break,
        };
        if more == Some(true) {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(LONGEST_NAP) => {}
            () = stop.cancelled() => {}
        }
    }
}

/// Tells incidents for the last time that their Alerts tell no more, until `stop`; then waits for what is being sent.
pub(crate) async fn close(hub: Hub, stop: CancellationToken) {
    let mut under_way = JoinSet::new();
    while !stop.is_cancelled() {
        while under_way.try_join_next().is_some() {}
        let free = CLOSINGS.saturating_sub(under_way.len());
        let due = hub.attempt("could not look for incidents to be closed", hub.notify.closings(free));
        let due = tokio::select! {
            due = due => due.unwrap_or_default(),
            () = stop.cancelled() => break,
        };
        for closing in due {
            let hub = hub.clone();
            under_way.spawn(async move {
                let told = hub.notify.send_closing(&closing);
                hub.attempt("could not note what came of the last message of an incident", told).await;
            });
        }
        tokio::select! {
            () = tokio::time::sleep(LONGEST_NAP) => {}
            // The next one of its Provider may be due.
            Some(_) = under_way.join_next() => {}
            () = stop.cancelled() => {}
        }
    }
    while under_way.join_next().await.is_some() {}
}
