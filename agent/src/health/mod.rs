//! How what was waited for is after that: watched as the service account that it was applied as, judged as a wait judges it, and
//! told to the hub where it changes.
//!
//! Objects are watched from when a dispatch begins to wait for them, so that nothing is missed between its last look and this. They
//! are told of from when it has ended well until the next one begins; in between, while a dispatch waits, what it still waits for is
//! told. Those of a dispatch that waits for nothing are followed too, as far as there is room, for what views show of them. What an
//! object holds is judged at once and kept nowhere: memory goes with the number of objects. When something is worth a report is decided
//! by [`course`], which is pure.

mod course;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_apply::{HealthRules, Scope, Sight, judge};
use roadstead_kstatus::{Health, Status};
use roadstead_model::{ApplierUid, Dispatch, DispatchKey, HealthExpr, ObjectRef, Purpose, StepKind};
use roadstead_proto::HealthReport;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::tend::Watch;
use crate::until::until;
use crate::watching::FORBIDDEN_FOR;
use course::{Course, News, Next};
use state::{Followed, Kind, Standing, State};

/// How many objects are followed: each takes about a kilobyte, and two while it is not healthy. Appliers beyond are looked at by their
/// dispatches only.
const MAX_OBJECTS: usize = 20_000;

/// How many bytes the expressions have by which they are judged. Compiled they take some times as much.
const MAX_RULE_BYTES: usize = 2 * 1024 * 1024;

/// What happens at about the same time is looked at together.
const TICK: Duration = Duration::from_millis(50);

/// So much longer than a Pod may be unschedulable: how it is then is known before.
const LATER: Duration = Duration::from_secs(20);

/// What is to be watched for the health of one dispatch.
#[derive(Debug)]
pub(crate) struct Awaited<'a> {
    pub(crate) dispatch: &'a Dispatch,
    /// Whether the dispatch waits for them. Else they are for views, and come after those that are asked for.
    pub(crate) is_asked: bool,
    /// Those that the dispatch applied.
    pub(crate) own: BTreeSet<ObjectRef>,
    /// All others.
    pub(crate) foreign: BTreeSet<ObjectRef>,
}

/// All that is followed.
#[derive(Debug, Default)]
pub(crate) struct Healths {
    state: Mutex<State>,
    /// Something was seen.
    seen: Notify,
    /// Other watches are wanted.
    watches: Notify,
    /// Whether an applier is fine may have changed.
    changed: Notify,
}

/// Whether objects of a kind have no health beyond that they are there, which those who tend them see to.
fn is_always_current(object: &ObjectRef) -> bool {
    match object.group.as_str() {
        "" => matches!(
            object.kind.as_str(),
            "ConfigMap" | "Secret" | "ServiceAccount" | "Endpoints" | "LimitRange" | "ResourceQuota"
        ),
        "batch" => object.kind == "CronJob",
        "policy" => object.kind == "PodDisruptionBudget",
        "networking.k8s.io" => object.kind == "NetworkPolicy" || object.kind == "IngressClass",
        "rbac.authorization.k8s.io" | "admissionregistration.k8s.io" | "scheduling.k8s.io" => true,
        _ => false,
    }
}

fn bytes_of(rules: &[HealthExpr]) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    rules
        .iter()
        .map(|rule| rule.current.len() + optional(&rule.failed) + optional(&rule.in_progress) + 256)
        .sum()
}

impl Healths {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the hub can be told. Without a session, the last hub's word counts.
    pub(crate) fn allow(&self, is_allowed: bool) {
        let mut state = self.state();
        (state.is_allowed, state.is_told) = (is_allowed, true);
        drop(state);
        self.watches.notify_one();
    }

    /// No hub has been heard yet: what is to be told is kept for it.
    pub(crate) fn allow_without_hub(&self) {
        if !self.state().is_told {
            self.allow(true);
        }
    }

    /// Goes on with what an agent before this one had followed, since a dispatch that had ended well.
    pub(crate) fn resume(&self, dispatch: &Dispatch, inventory: &[ObjectRef], now: Instant) {
        let (mut named, mut is_asked, mut with_all, mut has_hooks) = (BTreeSet::new(), false, false, false);
        for step in &dispatch.spec.steps {
            match &step.kind {
                StepKind::Wait { objects, groups } => {
                    is_asked = true;
                    with_all |= !groups.is_empty();
                    named.extend(objects.iter().cloned());
                }
                StepKind::Hook { .. } => has_hooks = true,
                _ => {}
            }
        }
        // What nobody waits for is followed, too, as after a dispatch.
        with_all |= !is_asked && !has_hooks;
        let owned: BTreeSet<ObjectRef> = inventory.iter().cloned().collect();
        let foreign = named.difference(&owned).cloned().collect();
        let own = if with_all { owned } else { named.intersection(&owned).cloned().collect() };
        self.awaits(Awaited { dispatch, is_asked, own, foreign }, now);
        self.end(&dispatch.key, true);
    }

    /// A dispatch of an applier begins: nothing is told of what the one before had waited for.
    pub(crate) fn begin(&self, applier: ApplierUid) {
        let mut state = self.state();
        if let Some(followed) = state.appliers.get_mut(&applier) {
            followed.is_busy = true;
            followed.is_before = true;
            followed.is_over = false;
            followed.waiting = None;
        }
    }

    /// A dispatch begins to wait. What is only planned has no health.
    pub(crate) fn awaits(&self, awaited: Awaited<'_>, now: Instant) {
        let Awaited { dispatch, is_asked, own, foreign } = awaited;
        if dispatch.spec.purpose != Purpose::Reconcile {
            return;
        }
        // They parsed when the dispatch began.
        let rules = HealthRules::new(&dispatch.spec.health).ok().filter(|rules| !rules.is_empty());
        let rules = rules.map(Arc::new);
        let key = &dispatch.key;
        let judged = |object: &ObjectRef| rules.as_ref().is_some_and(|rules| rules.applies_to(object));
        let own = own.into_iter().filter(|object| judged(object) || !is_always_current(object));
        let objects: BTreeSet<ObjectRef> = own.chain(foreign.iter().cloned()).collect();
        let mut state = self.state();
        let rule_bytes = bytes_of(&dispatch.spec.health);
        let others = state.appliers.iter().filter(|(uid, _)| **uid != key.applier);
        let (count, bytes) = others.fold((0, 0), |(count, bytes), (_, other)| {
            (count + other.course.len(), bytes + other.rule_bytes)
        });
        let (most, most_bytes) =
            if is_asked { (MAX_OBJECTS, MAX_RULE_BYTES) } else { (MAX_OBJECTS / 2, MAX_RULE_BYTES / 2) };
        if count + objects.len() > most || bytes + rule_bytes > most_bytes {
            if is_asked {
                tracing::warn!(
                    applier = %dispatch.spec.applier,
                    "its health is looked at by its dispatches only: too much is followed already"
                );
            }
            state.forget(key.applier);
            return;
        }
        let before = state.appliers.get(&key.applier);
        let again = before.filter(|before| before.key == *key && !before.is_before);
        let not_before = before.and_then(|before| {
            before.waiting.as_ref().and_then(Course::not_before).max(before.course.not_before())
        });
        if again.is_some() {
            // A further step of the same dispatch.
            if let Some(followed) = state.appliers.get_mut(&key.applier) {
                followed.course.add(objects.iter().cloned(), now);
                followed.foreign.extend(foreign);
            }
        } else {
            let (all, timeout) = (objects.iter().cloned(), dispatch.spec.timeout);
            let (waiting, course) = if is_asked {
                (Some(Course::waiting(not_before)), Course::after(all, timeout, not_before, now))
            } else {
                (None, Course::unasked(all, timeout, before.map(|before| &before.course), now))
            };
            let followed = Followed {
                key: key.clone(),
                account: dispatch.spec.service_account.clone(),
                is_asked,
                rules,
                rule_bytes,
                waiting,
                course,
                watches: HashMap::new(),
                foreign,
                is_busy: true,
                is_before: false,
                is_over: before.is_some_and(|before| before.is_over),
                is_fine: before.is_some_and(|before| before.is_fine),
            };
            state.leave(key.applier);
            state.appliers.insert(key.applier, followed);
        }
        for object in objects {
            state.interested.entry(object).or_default().insert(key.applier);
        }
        state.settle_watches(now);
        drop(state);
        self.watches.notify_one();
    }

    /// A dispatch that waits has seen an object.
    pub(crate) fn waits_for(&self, key: &DispatchKey, object: &ObjectRef, health: &Health, now: Instant) {
        let mut state = self.state();
        let Some(followed) = state.appliers.get_mut(&key.applier) else { return };
        if followed.key == *key
            && let Some(waiting) = &mut followed.waiting
        {
            waiting.see(object, health.clone(), None, now);
            state.dirty.insert(key.applier);
            drop(state);
            self.seen.notify_one();
        }
    }

    /// A dispatch has ended. Where it went well, what it waited for is told of from now on.
    pub(crate) fn end(&self, key: &DispatchKey, went_well: bool) {
        let mut state = self.state();
        if let Some(followed) = state.appliers.get_mut(&key.applier) {
            let waited = followed.waiting.take();
            followed.course.hold_until(waited.and_then(|waited| waited.not_before()));
            if went_well && !followed.is_before && followed.key == *key && !followed.is_over {
                followed.is_busy = false;
                state.dirty.insert(key.applier);
            } else {
                state.forget(key.applier);
            }
        }
        drop(state);
        self.seen.notify_one();
        self.watches.notify_one();
        self.changed.notify_one();
    }

    /// Nothing is told of an applier before the next dispatch.
    pub(crate) fn rest(&self, applier: ApplierUid) {
        let mut state = self.state();
        match state.appliers.get_mut(&applier) {
            // Of the dispatch that is under way.
            Some(followed) if followed.is_busy => followed.is_over = true,
            _ => state.forget(applier),
        }
        drop(state);
        self.watches.notify_one();
        self.changed.notify_one();
    }

    /// The same of all.
    pub(crate) fn rest_all(&self) {
        let appliers: Vec<ApplierUid> = self.state().appliers.keys().copied().collect();
        appliers.into_iter().for_each(|applier| self.rest(applier));
    }

    /// Those of these appliers of which nothing is known to be unhealthy, or unseen. One whose dispatch is under way is what it was
    /// before; `asks` says for which health was asked.
    pub(crate) fn fine_among(
        &self,
        appliers: BTreeSet<ApplierUid>,
        asks: impl Fn(ApplierUid) -> bool,
    ) -> BTreeSet<ApplierUid> {
        let mut state = self.state();
        for followed in state.appliers.values_mut().filter(|followed| !followed.is_busy) {
            let is_watched =
                followed.course.objects().all(|object| matches!(followed.watches.get(object), Some(Some(_))));
            followed.is_fine = is_watched && followed.course.is_fine();
        }
        let is_fine = |applier: &ApplierUid| match state.appliers.get(applier) {
            Some(followed) => followed.is_fine || !followed.is_asked,
            None => !asks(*applier),
        };
        appliers.into_iter().filter(is_fine).collect()
    }

    /// Resolves when whether appliers are fine may have changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is to be told next; waits until there is something.
    pub(crate) async fn next(&self) -> HealthReport {
        loop {
            let wake = match self.due(Instant::now()) {
                Ok(report) => return report,
                Err(wake) => wake,
            };
            tokio::select! {
                () = async { self.seen.notified().await; tokio::time::sleep(TICK).await } => {}
                () = until(wake) => {}
            }
        }
    }

    /// What is to be told, or when something may be.
    fn due(&self, now: Instant) -> Result<HealthReport, Option<Instant>> {
        let mut state = self.state();
        let State { appliers, dirty, wakes, is_allowed, .. } = &mut *state;
        dirty.extend(wakes.iter().filter(|(_, at)| **at <= now).map(|(applier, _)| *applier));
        let mut looked = false;
        while let Some(applier) = dirty.pop_first() {
            wakes.remove(&applier);
            let Some(followed) = appliers.get_mut(&applier) else { continue };
            let course = match (&mut followed.waiting, followed.is_busy) {
                (Some(waiting), _) => waiting,
                (None, false) => &mut followed.course,
                (None, true) => continue,
            };
            looked = true;
            match course.next(now) {
                Next::Tell(News { verdict, recovered, objects }) => {
                    dirty.insert(applier);
                    self.changed.notify_one();
                    if !*is_allowed {
                        continue;
                    }
                    let (state, message) = (verdict.state, verdict.message);
                    return Ok(HealthReport {
                        key: followed.key.clone(),
                        state,
                        message,
                        recovered,
                        objects,
                    });
                }
                Next::At(at) => {
                    wakes.insert(applier, at);
                }
                Next::Nothing => {}
            }
        }
        if looked {
            self.changed.notify_one();
        }
        Err(wakes.values().min().copied())
    }

    /// Takes what a watch sees.
    pub(crate) fn take(&self, watch: &Watch, sight: Sight<Value>, now: Instant) {
        match sight {
            Sight::Listed(object, value) | Sight::Seen(object, value) => {
                // Expressions may take a moment: others are not held up by that.
                let interested = self.state().interested_in(watch, &object);
                for (applier, rules) in interested {
                    let (health, later) = judged(&value, rules.as_deref(), now);
                    let mut state = self.state();
                    if let Some(followed) = state.appliers.get_mut(&applier) {
                        followed.course.see(&object, health, later, now);
                        state.dirty.insert(applier);
                    }
                }
            }
            Sight::Gone(object) => self.state().gone(watch, &object, now),
            Sight::Complete { all: seen, .. } => {
                let mut state = self.state();
                state.standings.insert(watch.clone(), Standing::Live);
                for object in state.objects_of(watch) {
                    if !seen.contains(&object) {
                        state.gone(watch, &object, now);
                    }
                }
                state.looks(watch, true, now);
            }
            Sight::Resumed => {
                let mut state = self.state();
                state.standings.insert(watch.clone(), Standing::Live);
                state.looks(watch, true, now);
            }
            Sight::Lost => {
                let mut state = self.state();
                state.standings.insert(watch.clone(), Standing::Opening);
                state.looks(watch, false, now);
            }
        }
        self.seen.notify_one();
    }

    /// A watch is not allowed.
    fn forbidden(&self, watch: &Watch, now: Instant) {
        let mut state = self.state();
        // Its version may not be served any more.
        for object in state.objects_of(watch) {
            state.doubted.insert((object.group, object.kind));
        }
        state.looks(watch, false, now);
        state.standings.insert(watch.clone(), Standing::Forbidden(now));
        drop(state);
        self.watches.notify_one();
        self.changed.notify_one();
    }

    /// Kinds of which it is not known how they are watched, each as an object of it.
    fn unknown_kinds(&self, now: Instant) -> Vec<ObjectRef> {
        let mut state = self.state();
        let State { interested, kinds, doubted, is_allowed, .. } = &mut *state;
        if !*is_allowed {
            return Vec::new();
        }
        let mut unknown = Vec::new();
        for object in interested.keys() {
            let key = (object.group.clone(), object.kind.clone());
            let is_due = match kinds.get(&key) {
                None => true,
                Some(Kind::Asked) => false,
                // Until that is answered it is taken to be as before.
                Some(Kind::Known(_)) => {
                    if doubted.remove(&key) {
                        unknown.push(object.clone());
                    }
                    false
                }
                Some(Kind::Unknown(since)) => now.saturating_duration_since(*since) > FORBIDDEN_FOR,
            };
            if is_due {
                kinds.insert(key, Kind::Asked);
                unknown.push(object.clone());
            }
        }
        unknown
    }

    /// How a kind is watched; none: the cluster does not know it. What could not be found out stays what it was.
    fn know_kind(&self, object: &ObjectRef, scope: Result<Option<Scope>, String>, now: Instant) {
        let mut state = self.state();
        let key = (object.group.clone(), object.kind.clone());
        let is_known = matches!(state.kinds.get(&key), Some(Kind::Known(_)));
        let kind = match scope {
            Ok(Some(scope)) => Kind::Known(Arc::new(scope)),
            Err(_) if is_known => return,
            Ok(None) | Err(_) => Kind::Unknown(now),
        };
        state.kinds.insert(key, kind);
        drop(state);
        self.watches.notify_one();
    }

    /// What is to be watched, and whether any of that is asked for. What is no longer is forgotten.
    fn wanted_watches(&self, now: Instant) -> BTreeMap<Watch, bool> {
        let mut state = self.state();
        if !state.is_allowed {
            state.standings.clear();
            return BTreeMap::new();
        }
        state.standings.retain(|_, standing| {
            !matches!(standing, Standing::Forbidden(since) if now.saturating_duration_since(*since) > FORBIDDEN_FOR)
        });
        let wanted = state.settle_watches(now);
        state.standings.retain(|watch, standing| {
            wanted.contains_key(watch) || matches!(standing, Standing::Forbidden(_))
        });
        wanted
    }

    /// These are not watched: there would be too many.
    fn left_out(&self, watches: &BTreeSet<Watch>) {
        let mut state = self.state();
        for followed in state.appliers.values_mut() {
            for watch in followed.watches.values_mut() {
                if watch.as_ref().is_some_and(|watch| watches.contains(watch)) {
                    *watch = None;
                }
            }
        }
    }
}

/// How an object is, and how it will be where nothing happens: only of a Pod that depends on the time.
fn judged(object: &Value, rules: Option<&HealthRules>, now: Instant) -> (Health, Option<(Instant, Health)>) {
    let clock = Timestamp::now();
    let health = judge(object, rules, clock);
    let is_pod = object["kind"] == "Pod" && object["apiVersion"] == "v1";
    if !is_pod || health.status != Status::InProgress {
        return (health, None);
    }
    let then = judge(object, rules, clock.saturating_add(LATER).unwrap_or(clock));
    let later = (then != health).then(|| (now + LATER, then));
    (health, later)
}
