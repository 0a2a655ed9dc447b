//! What is known of all that is followed, and by what it is watched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use roadstead_apply::{HealthRules, Scope};
use roadstead_model::{ApplierUid, DispatchKey, ObjectRef, ServiceAccount};
use tokio::time::Instant;

use super::course::Course;
use crate::tend::Watch;

/// How a watch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Opening,
    Live,
    Forbidden(Instant),
}

/// The scope of a kind.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Asked,
    Known(Arc<Scope>),
    Unknown(Instant),
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the hub can be told.
    pub(super) is_allowed: bool,
    /// Whether a hub has said so.
    pub(super) is_told: bool,
    pub(super) appliers: HashMap<ApplierUid, Followed>,
    /// Who waits for an object.
    pub(super) interested: HashMap<ObjectRef, BTreeSet<ApplierUid>>,
    pub(super) kinds: HashMap<(String, String), Kind>,
    /// Kinds that are to be asked about once more.
    pub(super) doubted: BTreeSet<(String, String)>,
    pub(super) standings: HashMap<Watch, Standing>,
    /// Those of which something was seen since it was looked whether there is something to tell.
    pub(super) dirty: BTreeSet<ApplierUid>,
    /// When it is to be looked again.
    pub(super) wakes: BTreeMap<ApplierUid, Instant>,
}

/// What is known of one applier.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) key: DispatchKey,
    pub(super) account: Option<ServiceAccount>,
    pub(super) is_asked: bool,
    pub(super) rules: Option<Arc<HealthRules>>,
    pub(super) rule_bytes: usize,
    /// While a dispatch waits.
    pub(super) waiting: Option<Course>,
    /// After that.
    pub(super) course: Course,
    /// By what each object is watched; none: not now.
    pub(super) watches: HashMap<ObjectRef, Option<Watch>>,
    /// The objects that were not applied by the dispatch.
    pub(super) foreign: BTreeSet<ObjectRef>,
    /// A dispatch is under way.
    pub(super) is_busy: bool,
    /// A dispatch has begun, and has not waited yet: the objects are those of the one before.
    pub(super) is_before: bool,
    /// Nothing is to be told any more.
    pub(super) is_over: bool,
    /// As it was last known while no dispatch was under way.
    pub(super) is_fine: bool,
}

impl State {
    /// Nothing is followed of an applier any more.
    pub(super) fn forget(&mut self, applier: ApplierUid) {
        self.leave(applier);
        self.appliers.remove(&applier);
        self.dirty.remove(&applier);
        self.wakes.remove(&applier);
    }

    pub(super) fn leave(&mut self, applier: ApplierUid) {
        self.interested.retain(|_, appliers| {
            appliers.remove(&applier);
            !appliers.is_empty()
        });
    }

    /// Says by what each object is watched, and gives all of that, with whether any of it is asked for.
    pub(super) fn settle_watches(&mut self, now: Instant) -> BTreeMap<Watch, bool> {
        let Self { appliers, kinds, standings, dirty, .. } = self;
        let is_forbidden = |watch: &Watch| matches!(standings.get(watch), Some(Standing::Forbidden(_)));
        let mut wanted = BTreeMap::new();
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
                if let Some(watch) = watch {
                    *wanted.entry(watch).or_default() |= followed.is_asked;
                }
            }
        }
        wanted
    }

    /// Who is interested in an object that this watch tells of, and how they judge it.
    pub(super) fn interested_in(
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
    pub(super) fn objects_of(&self, watch: &Watch) -> BTreeSet<ObjectRef> {
        let watched = self.appliers.values().flat_map(|followed| &followed.watches);
        watched.filter(|(_, by)| by.as_ref() == Some(watch)).map(|(object, _)| object.clone()).collect()
    }

    pub(super) fn gone(&mut self, watch: &Watch, object: &ObjectRef, now: Instant) {
        for (applier, _) in self.interested_in(watch, object) {
            if let Some(followed) = self.appliers.get_mut(&applier) {
                followed.course.gone(object, now);
                self.dirty.insert(applier);
            }
        }
    }

    /// A watch tells all changes from now on, or does not any more.
    pub(super) fn looks(&mut self, watch: &Watch, is_live: bool, now: Instant) {
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
    pub(super) fn watch_of(
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
