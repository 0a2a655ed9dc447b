//! Waiting for objects: each is looked at once, and those that are not there yet are watched.

use std::collections::BTreeMap;
use std::future::Future;

use jiff::Timestamp;
use roadstead_kstatus::{Health, Status, compute_for_kustomization};
use roadstead_model::{ObjectRef, Stage, StageTiming};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::run::{Event, Run};
use crate::side_by_side::side_by_side;
use crate::watch::{Start, first_look, follow};
use crate::{Error, HealthRules};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Every object is current.
    Healthy,
    /// No object is there.
    Gone,
    /// Every object is current, and what runs has run to its end.
    Done,
}

impl Goal {
    /// What an object (or its absence) means; `rules` go before what kstatus knows of its kind.
    pub(crate) fn judge(self, object: Option<&Value>, rules: Option<&HealthRules>) -> Seen {
        // What is to be gone need not be healthy.
        let rules = rules.filter(|_| self != Self::Gone);
        let health = object.map_or_else(Health::not_found, |object| judge(object, rules, Timestamp::now()));
        let end = match (self, health.status) {
            // A Pod is current as soon as it is ready.
            (Self::Done, Status::Current) if object.is_some_and(|object| !has_ended(object)) => End::Open,
            (Self::Healthy | Self::Done, Status::Current) | (Self::Gone, Status::NotFound) => End::Reached,
            (Self::Healthy | Self::Done, Status::Failed) => End::Failed,
            _ => End::Open,
        };
        Seen { health, end }
    }
}

/// The health of an object as a wait counts it: `rules` go before what kstatus knows of its kind. `now` decides how long a Pod has been
/// unschedulable.
#[must_use]
pub fn judge(object: &Value, rules: Option<&HealthRules>, now: Timestamp) -> Health {
    let by_rules = rules.and_then(|rules| rules.judge(object));
    by_rules.unwrap_or_else(|| compute_for_kustomization(object, now))
}

/// Whether a Pod has run to its end; what is none has nothing to run.
fn has_ended(object: &Value) -> bool {
    object["kind"] != "Pod" || object["apiVersion"] != "v1" || object["status"]["phase"] == "Succeeded"
}

/// What was seen of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) health: Health,
    pub(crate) end: End,
}

/// Whether an object is still waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Reached,
    Failed,
}

/// What a wait saw.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a wait may have ended with an error"]
pub struct Waited {
    /// The health of every object when it was last seen, in the objects' order.
    pub health: Vec<(ObjectRef, Health)>,
    /// How long it took.
    pub timing: StageTiming,
    /// Why the objects are not what was waited for.
    pub error: Option<Error>,
}

pub(crate) async fn wait(engine: &Engine, objects: &[ObjectRef], goal: Goal, run: &mut Run<'_>) -> Waited {
    let began = Instant::now();
    let mut seen: BTreeMap<ObjectRef, Seen> = objects
        .iter()
        .map(|object| {
            (object.clone(), Seen { health: Health::in_progress("not looked at yet"), end: End::Open })
        })
        .collect();
    let error = look_and_watch(engine, goal, run, &mut seen).await.err();
    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    Waited {
        error,
        health: seen.into_iter().map(|(object, seen)| (object, seen.health)).collect(),
        timing: StageTiming { stage: Stage::Wait, micros },
    }
}

/// First one look at everything, then watches on what is still open, until nothing is or something failed.
async fn look_and_watch(
    engine: &Engine,
    goal: Goal,
    run: &mut Run<'_>,
    seen: &mut BTreeMap<ObjectRef, Seen>,
) -> Result<(), Error> {
    let (tell, mut told) = mpsc::channel(64);
    let objects: Vec<ObjectRef> = seen.keys().cloned().collect();
    let looks = objects.into_iter().map(|object| first_look(engine, object, goal, tell.clone()));
    let mut open = Vec::new();
    let mut keep = |left: Option<(ObjectRef, Option<Start>)>| open.extend(left);
    let looking = side_by_side(engine.options.concurrency, looks, &|| true, &mut keep);
    drive(looking, &mut told, run, seen, false).await?;
    if seen.values().any(|seen| seen.end == End::Failed) {
        return Err(unhealthy(seen, false));
    }
    if open.is_empty() {
        return Ok(());
    }
    let follows = open.into_iter().map(|(object, start)| follow(engine, object, goal, start, tell.clone()));
    let mut ignore = |()| ();
    let following = side_by_side(engine.options.watches, follows, &|| true, &mut ignore);
    drive(following, &mut told, run, seen, true).await
}

/// Runs `work` to its end and notes what it tells; ends early on cancellation, at the deadline and, if `fail_early`,
/// when an object failed.
async fn drive(
    work: impl Future<Output = ()>,
    told: &mut mpsc::Receiver<(ObjectRef, Seen)>,
    run: &mut Run<'_>,
    seen: &mut BTreeMap<ObjectRef, Seen>,
    fail_early: bool,
) -> Result<(), Error> {
    tokio::pin!(work);
    let deadline = tokio::time::sleep_until(run.deadline);
    tokio::pin!(deadline);
    let mut ended = false;
    // What was told before the end is still taken after it.
    while !ended || !told.is_empty() {
        tokio::select! {
            biased;
            () = run.cancel.cancelled() => return Err(Error::Cancelled { stage: Stage::Wait }),
            Some((object, now)) = told.recv() => {
                let failed = now.end == End::Failed;
                note(run, seen, object, now);
                if failed && fail_early {
                    return Err(unhealthy(seen, false));
                }
            }
            () = &mut deadline => return Err(unhealthy(seen, true)),
            () = &mut work, if !ended => ended = true,
        }
    }
    Ok(())
}

/// Keeps what was seen, and tells it where it is news.
fn note(run: &mut Run<'_>, seen: &mut BTreeMap<ObjectRef, Seen>, object: ObjectRef, now: Seen) {
    let Some(before) = seen.get_mut(&object) else { return };
    if *before != now {
        run.tell(Event::Health { object, health: now.health.clone() });
        *before = now;
    }
}

/// The error that names what is not as it was waited for; failed ones first.
fn unhealthy(seen: &BTreeMap<ObjectRef, Seen>, timed_out: bool) -> Error {
    let mut open: Vec<(&ObjectRef, &Seen)> =
        seen.iter().filter(|(_, seen)| seen.end != End::Reached).collect();
    open.sort_by_key(|(_, seen)| seen.end != End::Failed);
    let objects = open.into_iter().map(|(object, seen)| (object, &seen.health));
    Error::not_healthy(Stage::Wait, objects, timed_out)
}
