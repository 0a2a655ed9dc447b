//! How what was waited for is after that: watched as the service account that it was applied as, judged as a wait judges it, and
//! told to the hub where it changes.
//!
//! Objects are watched from when a dispatch begins to wait for them, so that nothing is missed between its last look and this. They
//! are told of from when it has ended well until the next one begins; in between, while a dispatch waits, what it still waits for is
//! told. What an object holds is judged at once and kept nowhere: memory goes with the number of objects. When something is worth a
//! report is decided by [`course`], which is pure.

mod course;
#[cfg(test)]
mod tests;
pub(crate) mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_apply::{HealthRules, Scope, Sight, judge};
use roadstead_kstatus::{Health, Status};
use roadstead_model::{ApplierUid, Dispatch, DispatchKey, HealthExpr, ObjectRef, ServiceAccount};
use roadstead_proto::HealthReport;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::tend::Watch;
use course::{Course, News, Next};

/// How many objects are followed: each takes about a kilobyte, and two while it is not healthy. Appliers beyond are looked at by their
/// dispatches only.
const MAX_OBJECTS: usize = 20_000;

/// How many bytes the expressions have by which they are judged. Compiled they take some times as much.
const MAX_RULE_BYTES: usize = 2 * 1024 * 1024;

/// Where watching is forbidden, or a kind is not known, it is tried again after so long.
const FORBIDDEN_FOR: Duration = Duration::from_secs(300);

/// What happens at about the same time is looked at together.
const TICK: Duration = Duration::from_millis(50);

/// So much longer than a Pod may be unschedulable: how it is then is known before.
const LATER: Duration = Duration::from_secs(20);

/// What is to be watched for the health of one dispatch.
#[derive(Debug)]
pub(crate) struct Awaited<'a> {
    pub(crate) dispatch: &'a Dispatch,
    /// Those that the dispatch applied.
    pub(crate) own: BTreeSet<ObjectRef>,
    /// All others.
    pub(crate) foreign: BTreeSet<ObjectRef>,
}

/// How a watch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Opening,
    Live,
    Forbidden(Instant),
}

/// The scope of a kind.
#[derive(Debug, Clone)]
enum Kind {
    Asked,
    Known(Arc<Scope>),
    Unknown(Instant),
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

#[derive(Debug, Default)]
struct State {
    /// Whether the hub can be told.
    is_allowed: bool,
    appliers: HashMap<ApplierUid, Followed>,
    /// Who waits for an object.
    interested: HashMap<ObjectRef, BTreeSet<ApplierUid>>,
    kinds: HashMap<(String, String), Kind>,
    standings: HashMap<Watch, Standing>,
    /// Those of which something was seen since it was looked whether there is something to tell.
    dirty: BTreeSet<ApplierUid>,
    /// When it is to be looked again.
    wakes: BTreeMap<ApplierUid, Instant>,
}

/// What is known of one applier.
#[derive(Debug)]
struct Followed {
    key: DispatchKey,
    account: Option<ServiceAccount>,
    rules: Option<Arc<HealthRules>>,
    rule_bytes: usize,
    /// While a dispatch waits.
    waiting: Option<Course>,
    /// After that.
    course: Course,
    /// By what each object is watched; none: not now.
    watches: HashMap<ObjectRef, Option<Watch>>,
    /// The objects that were not applied by the dispatch.
    foreign: BTreeSet<ObjectRef>,
    /// A dispatch is under way.
    is_busy: bool,
    /// A dispatch has begun, and has not waited yet: the objects are those of the one before.
    is_before: bool,
    /// Nothing is to be told any more.
    is_over: bool,
    /// As it was last known while no dispatch was under way.
    is_fine: bool,
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
        self.state().is_allowed = is_allowed;
        self.watches.notify_one();
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

    /// A dispatch begins to wait. `rules` are those that it came with, compiled.
    pub(crate) fn awaits(&self, awaited: Awaited<'_>, rules: Option<Arc<HealthRules>>, now: Instant) {
        let Awaited { dispatch, own, foreign } = awaited;
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
        if count + objects.len() > MAX_OBJECTS || bytes + rule_bytes > MAX_RULE_BYTES {
            tracing::warn!(applier = %dispatch.spec.applier, "its health is looked at by its dispatches only: too much is followed already");
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
            let followed = Followed {
                key: key.clone(),
                account: dispatch.spec.service_account.clone(),
                rules,
                rule_bytes,
                waiting: Some(Course::waiting(not_before)),
                course: Course::after(objects.iter().cloned(), dispatch.spec.timeout, not_before, now),
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
            followed.waiting = None;
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
            Some(followed) => followed.is_fine,
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
            let sleep = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = async { self.seen.notified().await; tokio::time::sleep(TICK).await } => {}
                () = sleep => {}
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
            Sight::Complete(seen) => {
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
            state.kinds.remove(&(object.group, object.kind));
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
        let State { interested, kinds, is_allowed, .. } = &mut *state;
        if !*is_allowed {
            return Vec::new();
        }
        let mut unknown = Vec::new();
        for object in interested.keys() {
            let key = (object.group.clone(), object.kind.clone());
            let is_due = match kinds.get(&key) {
                None => true,
                Some(Kind::Asked | Kind::Known(_)) => false,
                Some(Kind::Unknown(since)) => now.saturating_duration_since(*since) > FORBIDDEN_FOR,
            };
            if is_due {
                kinds.insert(key, Kind::Asked);
                unknown.push(object.clone());
            }
        }
        unknown
    }

    /// How a kind is watched; none: it is not known.
    fn know_kind(&self, object: &ObjectRef, scope: Option<Scope>, now: Instant) {
        let kind = scope.map_or(Kind::Unknown(now), |scope| Kind::Known(Arc::new(scope)));
        self.state().kinds.insert((object.group.clone(), object.kind.clone()), kind);
        self.watches.notify_one();
    }

    /// What is to be watched. What is no longer is forgotten.
    fn wanted_watches(&self, now: Instant) -> BTreeSet<Watch> {
        let mut state = self.state();
        if !state.is_allowed {
            state.standings.clear();
            return BTreeSet::new();
        }
        state.standings.retain(|_, standing| {
            !matches!(standing, Standing::Forbidden(since) if now.saturating_duration_since(*since) > FORBIDDEN_FOR)
        });
        let wanted = state.settle_watches(now);
        state
            .standings
            .retain(|watch, standing| wanted.contains(watch) || matches!(standing, Standing::Forbidden(_)));
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

impl State {
    /// Nothing is followed of an applier any more.
    fn forget(&mut self, applier: ApplierUid) {
        self.leave(applier);
        self.appliers.remove(&applier);
        self.dirty.remove(&applier);
        self.wakes.remove(&applier);
    }

    fn leave(&mut self, applier: ApplierUid) {
        self.interested.retain(|_, appliers| {
            appliers.remove(&applier);
            !appliers.is_empty()
        });
    }

    /// Says by what each object is watched, and gives all of that.
    fn settle_watches(&mut self, now: Instant) -> BTreeSet<Watch> {
        let Self { appliers, kinds, standings, dirty, .. } = self;
        let is_forbidden = |watch: &Watch| matches!(standings.get(watch), Some(Standing::Forbidden(_)));
        let mut wanted = BTreeSet::new();
        for (applier, followed) in appliers {
            let objects: Vec<ObjectRef> = followed.course.objects().cloned().collect();
            for object in objects {
                let watch = match kinds.get(&(object.group.clone(), object.kind.clone())) {
                    Some(Kind::Known(scope)) => followed.watch_of(&object, scope, is_forbidden),
                    _ => None,
                };
                if followed.watches.get(&object) != Some(&watch) {
                    // By another one: what that does not see any more is not seen.
                    let is_live =
                        watch.as_ref().is_some_and(|watch| standings.get(watch) == Some(&Standing::Live));
                    if is_live {
                        followed.course.seen(&object, now);
                    } else {
                        followed.course.unseen(&object, now);
                    }
                    dirty.insert(*applier);
                    followed.watches.insert(object, watch.clone());
                }
                wanted.extend(watch);
            }
        }
        wanted
    }

    /// Who is interested in an object that this watch tells of, and how they judge it.
    fn interested_in(
        &self,
        watch: &Watch,
        object: &ObjectRef,
    ) -> Vec<(ApplierUid, Option<Arc<HealthRules>>)> {
        let interested = self.interested.get(object).into_iter().flatten();
        let found = interested.filter_map(|applier| {
            let followed = self.appliers.get(applier)?;
            let is_its = followed.watches.get(object)?.as_ref() == Some(watch);
            is_its.then(|| (*applier, followed.rules.clone()))
        });
        found.collect()
    }

    /// The objects that this watch tells of.
    fn objects_of(&self, watch: &Watch) -> BTreeSet<ObjectRef> {
        let watched = self.appliers.values().flat_map(|followed| &followed.watches);
        watched.filter(|(_, by)| by.as_ref() == Some(watch)).map(|(object, _)| object.clone()).collect()
    }

    fn gone(&mut self, watch: &Watch, object: &ObjectRef, now: Instant) {
        for (applier, _) in self.interested_in(watch, object) {
            if let Some(followed) = self.appliers.get_mut(&applier) {
                followed.course.gone(object, now);
                self.dirty.insert(applier);
            }
        }
    }

    /// A watch tells all changes from now on, or does not any more.
    fn looks(&mut self, watch: &Watch, is_live: bool, now: Instant) {
        for (applier, followed) in &mut self.appliers {
            let its: Vec<ObjectRef> = followed
                .watches
                .iter()
                .filter(|(_, by)| by.as_ref() == Some(watch))
                .map(|(object, _)| object.clone())
                .collect();
            for object in &its {
                if is_live {
                    followed.course.seen(object, now);
                } else {
                    followed.course.unseen(object, now);
                }
            }
            if !its.is_empty() {
                self.dirty.insert(*applier);
            }
        }
    }
}

impl Followed {
    /// By what an object is watched: with others of its kind, where it bears the owner's label.
    fn watch_of(
        &self,
        object: &ObjectRef,
        scope: &Scope,
        is_forbidden: impl Fn(&Watch) -> bool,
    ) -> Option<Watch> {
        let by = |scope: Scope| Watch { account: self.account.clone(), scope: Arc::new(scope) };
        let within = scope.within(&object.namespace);
        let mut watches = Vec::new();
        if self.foreign.contains(object) {
            watches.push(by(within.only(&object.name)));
        } else {
            // As the agent a kind is watched at once; where that is forbidden, by namespace.
            if self.account.is_none() && !object.namespace.is_empty() {
                watches.push(by(scope.everywhere()));
            }
            watches.push(by(within));
        }
        watches.into_iter().find(|watch| !is_forbidden(watch))
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
