//! How the objects of one wait are, and when that is worth a report. Pure: what is seen and what time it is are given.
//!
//! An object that failed is told at once; one that is on its way is progress for as long as the dispatch may take, and has failed
//! after that. A Job that has ended stays what it was when it is removed. What changes is waited with for a moment, since much of it
//! passes; from then on there is at most one report in [`EVERY`], of how it is then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roadstead_kstatus::{Health, Status};
use roadstead_model::{GoDuration, ObjectRef};
use roadstead_proto::limits::MAX_REPORTED;
use roadstead_proto::{HealthState, ObjectHealth};
use tokio::time::Instant;

/// The least time between two reports of an applier.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// So long news are waited with after objects were healthy, and while they are waited for.
const GATHER: Duration = Duration::from_secs(1);
const GATHER_WAITING: Duration = Duration::from_secs(3);

/// How many objects a message names.
const MAX_NAMED: usize = 5;

/// How the objects are together, with words for people where not all are healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) state: HealthState,
    pub(super) message: String,
}

/// What is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct News {
    pub(super) verdict: Verdict,
    pub(super) recovered: bool,
    pub(super) objects: Vec<ObjectHealth>,
}

/// When something is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Now, and it counts as told.
    Tell(News),
    /// Not before then, as far as is known.
    At(Instant),
    /// Not before something is seen.
    Nothing,
}

/// The objects of one wait.
#[derive(Debug)]
pub(super) struct Course {
    /// Whether they are still waited for.
    waits: bool,
    /// Whether they were waited for.
    was_asked: bool,
    /// How long an object may be on its way.
    timeout: Duration,
    subjects: BTreeMap<ObjectRef, Subject>,
    told: Verdict,
    /// Since when there was something to tell that was not told.
    noticed: Option<Instant>,
    /// Not before then is anything told.
    not_before: Option<Instant>,
    /// That they are not healthy was told, and not that they are again.
    is_failing: bool,
}

/// One of them.
#[derive(Debug, Clone)]
struct Subject {
    health: Health,
    /// Since when it is not healthy.
    since: Option<Instant>,
    /// Since when nobody looks at it. That time does not count.
    unseen: Option<Instant>,
    /// How it will be from then on, where nothing happens.
    later: Option<(Instant, Health)>,
    /// Whether its health is known: nobody has waited for it, and it was not looked at yet.
    is_known: bool,
    /// What of it was told last.
    told: Option<Health>,
}

impl Subject {
    fn new(health: Health, now: Instant) -> Self {
        let since = (!health.is_current()).then_some(now);
        Self { told: Some(health.clone()), health, since, unseen: Some(now), later: None, is_known: true }
    }

    fn is_news(&self) -> bool {
        self.is_known && self.told.as_ref() != Some(&self.health)
    }

    fn becomes(&mut self, mut health: Health, now: Instant) {
        if health.is_current() {
            // It is healthy: in which words is of no interest, and of most objects is so.
            health.message = String::new();
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(now);
        }
        self.health = health;
        self.is_known = true;
    }

    /// From when on it is on its way for too long; none where it is not on its way, or nobody looks.
    fn overdue(&self, timeout: Duration) -> Option<Instant> {
        let is_on_its_way = !matches!(self.health.status, Status::Current | Status::Failed);
        let since = self.since.filter(|_| is_on_its_way && self.unseen.is_none())?;
        since.checked_add(timeout)
    }
}

/// Whether it is a Job: one that has ended is removed after a while.
fn is_job(object: &ObjectRef) -> bool {
    (object.group.as_str(), object.kind.as_str()) == ("batch", "Job")
}

impl Course {
    /// Objects that are waited for: nothing is known of them yet.
    pub(super) fn waiting(not_before: Option<Instant>) -> Self {
        let told = Verdict { state: HealthState::Waiting, message: String::new() };
        Self {
            waits: true,
            was_asked: true,
            // The dispatch itself ends in time.
            timeout: Duration::MAX,
            subjects: BTreeMap::new(),
            told,
            noticed: None,
            not_before,
            is_failing: false,
        }
    }

    /// Objects that are about to be waited for, and are told of once that has ended well: all are healthy then, except for those of
    /// which something else is seen meanwhile.
    pub(super) fn after(
        objects: impl IntoIterator<Item = ObjectRef>,
        timeout: Duration,
        not_before: Option<Instant>,
        now: Instant,
    ) -> Self {
        let current = || Health::current("");
        let subjects = objects.into_iter().map(|object| (object, Subject::new(current(), now))).collect();
        let told = Verdict { state: HealthState::Healthy, message: String::new() };
        Self { waits: false, timeout, subjects, told, ..Self::waiting(not_before) }
    }

    /// Objects that nobody has waited for: nothing is known of them but what was told `before`.
    pub(super) fn unasked(
        objects: impl IntoIterator<Item = ObjectRef>,
        timeout: Duration,
        before: Option<&Self>,
        now: Instant,
    ) -> Self {
        let mut course = Self::after(objects, timeout, before.and_then(|before| before.not_before), now);
        course.was_asked = false;
        for (object, subject) in &mut course.subjects {
            let told = before.and_then(|before| before.subjects.get(object)?.told.clone());
            (subject.is_known, subject.told) = (false, told);
        }
        course
    }

    /// Not before then is anything told.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Nothing is told before then.
    pub(super) fn hold_until(&mut self, at: Option<Instant>) {
        self.not_before = self.not_before.max(at);
    }

    /// Objects of a further step.
    pub(super) fn add(&mut self, objects: impl IntoIterator<Item = ObjectRef>, now: Instant) {
        let mut new = Subject::new(Health::current(""), now);
        if !self.was_asked {
            (new.is_known, new.told) = (false, None);
        }
        for object in objects {
            self.subjects.entry(object).or_insert_with(|| new.clone());
        }
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.subjects.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }

    /// An object is like that now; `later` is how it will be from then on, where nothing happens.
    pub(super) fn see(
        &mut self,
        object: &ObjectRef,
        health: Health,
        later: Option<(Instant, Health)>,
        now: Instant,
    ) {
        let is_job = is_job(object);
        if self.waits && !self.subjects.contains_key(object) {
            self.subjects.insert(object.clone(), Subject::new(Health::current(""), now));
        }
        let Some(subject) = self.subjects.get_mut(object) else { return };
        subject.later = later;
        if is_job && health.status == Status::Terminating && subject.health.status != Status::InProgress {
            return;
        }
        subject.becomes(health, now);
    }

    /// An object is not there any more. A Job that has ended stays what it was.
    pub(super) fn gone(&mut self, object: &ObjectRef, now: Instant) {
        let Some(subject) = self.subjects.get_mut(object) else { return };
        subject.later = None;
        let has_ended = matches!(subject.health.status, Status::Current | Status::Failed);
        if !(is_job(object) && has_ended) {
            subject.becomes(Health::not_found(), now);
        }
    }

    /// Nobody looks at an object any more.
    pub(super) fn unseen(&mut self, object: &ObjectRef, now: Instant) {
        if let Some(subject) = self.subjects.get_mut(object) {
            subject.unseen.get_or_insert(now);
        }
    }

    /// Somebody looks at it again.
    pub(super) fn seen(&mut self, object: &ObjectRef, now: Instant) {
        let Some(subject) = self.subjects.get_mut(object) else { return };
        if let Some(unseen) = subject.unseen.take()
            && let Some(since) = subject.since
        {
            // While nobody looked it may have been healthy for a time.
            subject.since = Some(since + now.saturating_duration_since(unseen.max(since)));
        }
    }

    /// Whether all are looked at, are healthy, and that was told.
    pub(super) fn is_fine(&self) -> bool {
        self.told.state == HealthState::Healthy
            && self.subjects.values().all(|subject| subject.unseen.is_none() && subject.health.is_current())
    }

    /// How they are together.
    fn verdict(&self, now: Instant) -> Verdict {
        let overdue = |subject: &Subject| subject.overdue(self.timeout).is_some_and(|at| at <= now);
        let (mut failed, mut late, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let unwell = |(_, one): &(&ObjectRef, &Subject)| one.is_known && !one.health.is_current();
        for (object, subject) in self.subjects.iter().filter(unwell) {
            match subject.health.status {
                Status::Failed => failed.push((object, subject)),
                _ if overdue(subject) => late.push((object, subject)),
                _ => others.push((object, subject)),
            }
        }
        let state = match (failed.is_empty() && late.is_empty(), others.is_empty()) {
            _ if self.waits => HealthState::Waiting,
            (true, true) => HealthState::Healthy,
            (true, false) => HealthState::Progressing,
            (false, _) => HealthState::Failing,
        };
        let namespaces: BTreeSet<&str> = self
            .subjects
            .keys()
            .map(|object| object.namespace.as_str())
            .filter(|one| !one.is_empty())
            .collect();
        let name = |object: &ObjectRef| match object.namespace.as_str() {
            namespace if !namespace.is_empty() && namespaces.len() > 1 => {
                format!("{} {namespace}/{}", object.kind, object.name)
            }
            _ => format!("{} {}", object.kind, object.name),
        };
        let took = GoDuration(self.timeout);
        let total = failed.len() + late.len() + others.len();
        let failed = failed
            .into_iter()
            .map(|(object, subject)| format!("{} has failed: {}", name(object), subject.health.in_words()));
        let late = late.into_iter().map(|(object, subject)| {
            format!("{} has not become healthy within {took}: {}", name(object), subject.health.in_words())
        });
        let others = others
            .into_iter()
            .map(|(object, subject)| format!("{}: {}", name(object), subject.health.in_words()));
        let mut named: Vec<String> = failed.chain(late).chain(others).take(MAX_NAMED).collect();
        if total > named.len() {
            named.push(format!("and {} more", total - named.len()));
        }
        Verdict { state, message: named.join("; ") }
    }

    /// What is to be told now, or when something may be.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        for subject in self.subjects.values_mut() {
            if let Some((_, health)) = subject.later.take_if(|(at, _)| *at <= now) {
                subject.becomes(health, now);
            }
        }
        let verdict = self.verdict(now);
        let is_news = verdict != self.told || self.subjects.values().any(Subject::is_news);
        let gather = if self.waits { GATHER_WAITING } else { GATHER };
        // What passes is left out; but what comes again and again is told.
        if self.noticed.is_some_and(|noticed| !is_news && noticed + gather <= now) {
            self.noticed = None;
        }
        if is_news {
            self.noticed.get_or_insert(now);
        }
        let allowed = self
            .noticed
            .map(|noticed| self.not_before.map_or(noticed + gather, |at| at.max(noticed + gather)));
        match allowed {
            Some(allowed) if is_news && allowed <= now => Next::Tell(self.tell(verdict, now)),
            _ => {
                let laters = self.subjects.values().filter_map(|one| one.later.as_ref().map(|(at, _)| *at));
                let overdues = self.subjects.values().filter_map(|one| one.overdue(self.timeout));
                let wakes = laters.chain(overdues).chain(allowed).filter(|at| *at > now);
                wakes.min().map_or(Next::Nothing, Next::At)
            }
        }
    }

    fn tell(&mut self, verdict: Verdict, now: Instant) -> News {
        let mut objects = Vec::new();
        for (object, subject) in &mut self.subjects {
            if subject.is_news() && objects.len() < MAX_REPORTED {
                subject.told = Some(subject.health.clone());
                if self.waits {
                    // Progress tells that, as it happens.
                    continue;
                }
                let Health { status, message } = subject.health.clone();
                objects.push(ObjectHealth { object: object.clone(), status, message });
            }
        }
        let recovered = self.is_failing && verdict.state == HealthState::Healthy;
        match verdict.state {
            HealthState::Failing => self.is_failing = true,
            HealthState::Healthy => self.is_failing = false,
            HealthState::Waiting | HealthState::Progressing => {}
        }
        self.told = verdict.clone();
        self.noticed = None;
        self.not_before = Some(now + EVERY);
        News { verdict, recovered, objects }
    }
}
