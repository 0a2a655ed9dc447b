//! Objects that go from one applier to another without being deleted in between.
//!
//! Where a commit moves an object from the build of one applier to that of another, or renames an applier, the old owner would delete what
//! the new one applies. So before anything is pruned, and before anything is applied that others own, the hub looks at both builds as
//! they are to be now, and writes into the inventory who owns what. The next dispatch of the old owner then knows nothing of the object, and
//! the next one of the new owner gives it its label.
//!
//! By itself that happens between appliers of one namespace or of one root, on one cluster, which deploy from one source (so that both builds are of
//! one revision), or where the old owner goes. Otherwise the annotation [`takes-over`](annotated::TAKES_OVER) of the new owner asks for it. An object that the old
//! owner still builds stays its own.

mod children;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Reference, annotated};
use roadstead_hub_plan::Target;
use roadstead_hub_store::{BuiltObjects, Leaving, Tx};
use roadstead_model::{
    Action, ApplierUid, AttemptKind, ChangeSet, ClusterUid, Digest, DispatchSpec, ObjectRef, ObjectResult,
    Queue,
};

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::render::{Rendered, Rendering};
use crate::delivery::seen::SeenApplier;
use crate::objects::events;

pub(super) use children::Given;

/// How soon it is looked again where something else has to end first.
const SOON: Duration = Duration::from_millis(500);
/// Owners that one applier takes over from at once. Of others it is told that they own what it builds.
const MAX_OWNERS: usize = 16;
/// Objects that an Event names.
const NAMED: usize = 3;

/// What came of looking.
pub(super) enum Handover {
    /// All went over that could; the change set of the one that was looked at.
    Done(ChangeSet),
    /// Something else has to end first.
    Later(Duration),
}

/// What an applier's build holds.
struct BuildOf {
    digests: Vec<Digest>,
    substituted: bool,
    namespace: String,
}

impl BuildOf {
    fn objects(&self) -> BuiltObjects<'_> {
        BuiltObjects {
            builds: &self.digests,
            substituted: self.substituted,
            default_namespace: &self.namespace,
        }
    }

    fn of(dispatch: &DispatchSpec) -> Self {
        Self {
            digests: dispatch.groups.iter().map(|group| group.objects).collect(),
            substituted: dispatch.groups.iter().any(|group| group.substitute.is_some()),
            namespace: dispatch.default_namespace().to_owned(),
        }
    }
}

/// What an applier would build now.
enum Builds {
    This(BuildOf),
    Later(Duration),
    /// It cannot be built.
    Nothing,
}

impl Delivery {
    /// Before `dispatch` is sent: what of its build others do not build any more becomes `seen`'s, and what it does not hold any more
    /// goes to those who build it.
    pub(super) async fn change_owners(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        dispatch: &DispatchSpec,
        now: Timestamp,
    ) -> Result<Handover, HubError> {
        if let Some(later) = self.hand_over_from_children(seen, now).await? {
            return Ok(Handover::Later(later));
        }
        let owns_here = seen.situation.owns_on.iter().any(|owned| owned.cluster == cluster);
        if owns_here && seen.has_applied(cluster, dispatch) {
            return Ok(Handover::Done(ChangeSet::new()));
        }
        let build = BuildOf::of(dispatch);
        let (contested, left_out) = self.store.moves(cluster, seen.situation.uid, &build.objects()).await?;
        let mut by_owner: BTreeMap<ApplierUid, Vec<ObjectRef>> = BTreeMap::new();
        for one in contested {
            by_owner.entry(one.owner).or_default().push(one.object);
        }
        for (owner, objects) in by_owner.into_iter().take(MAX_OWNERS) {
            if let Some(later) = self.take_over(seen, cluster, owner, objects, now).await? {
                return Ok(Handover::Later(later));
            }
        }
        if left_out.is_empty() {
            return Ok(Handover::Done(ChangeSet::new()));
        }
        // Its own open attempt is superseded by the dispatch.
        self.give_to_heirs(seen, cluster, left_out, Going::Objects, now).await
    }

    /// Before all that an applier owns on a cluster is deleted: what others build goes to them.
    pub(super) async fn hand_all_over(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<Handover, HubError> {
        let owned = self.store.inventory(cluster, seen.situation.uid).await?;
        if owned.is_empty() {
            return Ok(Handover::Done(ChangeSet::new()));
        }
        self.give_to_heirs(seen, cluster, owned, Going::Applier, now).await
    }

    /// Before a build's deletions are counted: its children that it does not hold any more, and what those applied, go to the appliers that
    /// build them now. Gives when it is to be looked again.
    async fn hand_over_from_children(
        &self,
        parent: &SeenApplier,
        now: Timestamp,
    ) -> Result<Option<Duration>, HubError> {
        // What was seen of them is from before this build was begun with.
        if !parent.situation.prune || parent.children.is_empty() {
            return Ok(None);
        }
        let mut dropped = self.store.children(parent.situation.uid).await?;
        dropped.retain(|child| !child.wanted);
        let dropped = match self.give_children(parent, dropped, Going::Objects, now).await? {
            Given::Later(later) => return Ok(Some(later)),
            Given::Left(left) => left,
        };
        for uid in
            dropped.into_iter().filter(|child| child.kind.is_applier()).filter_map(|child| child.object)
        {
            let Some(child) = self.see(uid).await? else { continue };
            if let Given::Later(later) =
                self.give_children(&child, child.children.clone(), Going::Applier, now).await?
            {
                return Ok(Some(later));
            }
            for owned in child.situation.owns_on.iter().filter(|owned| owned.exists) {
                if let Some(later) = self.blocks(&child, owned.cluster).await? {
                    return Ok(Some(later));
                }
                match self.hand_all_over(&child, owned.cluster, now).await? {
                    Handover::Later(later) => return Ok(Some(later)),
                    Handover::Done(changes) => self.note_changes(&child, &changes).await?,
                }
            }
        }
        Ok(None)
    }

    /// Gives what goes to those who build it, the first of them by namespace and name.
    async fn give_to_heirs(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        mut objects: Vec<ObjectRef>,
        going: Going,
        now: Timestamp,
    ) -> Result<Handover, HubError> {
        let mut changes = ChangeSet::new();
        let source = self.first_source(seen)?;
        let root = root(seen);
        let leaving = Leaving {
            applier: seen.situation.uid,
            namespace: &seen.stored.namespace,
            root: (&root.0, &root.1),
            source: source.as_ref().filter(|_| going == Going::Objects),
        };
        for uid in self.store.heirs(&leaving, &objects).await? {
            let Some(heir) = self.see(uid).await? else { continue };
            if !self.may_take_over(&heir, seen, cluster, going).await? {
                continue;
            }
            let build = match self.would_build(&heir, cluster).await? {
                Builds::This(build) => build,
                Builds::Later(later) => return Ok(Handover::Later(later)),
                Builds::Nothing => continue,
            };
            let theirs = self.store.held_by_builds(&build.objects(), &objects).await?;
            if theirs.is_empty() {
                continue;
            }
            match self.write(seen, &heir, cluster, &theirs, now).await? {
                None => return Ok(Handover::Later(SOON)),
                Some(went) => changes.extend(went),
            }
            let theirs: BTreeSet<ObjectRef> = theirs.into_iter().collect();
            objects.retain(|object| !theirs.contains(object));
            if objects.is_empty() {
                break;
            }
        }
        Ok(Handover::Done(changes))
    }

    /// Takes over what of `objects` another one owns, and does not build any more. Gives when it is to be looked again.
    async fn take_over(
        &self,
        heir: &SeenApplier,
        cluster: ClusterUid,
        owner: ApplierUid,
        objects: Vec<ObjectRef>,
        now: Timestamp,
    ) -> Result<Option<Duration>, HubError> {
        let Some(owner) = self.see(owner.into()).await? else { return Ok(None) };
        if owner.situation.suspended {
            return Ok(None);
        }
        let going = self.going(&owner, Some(cluster)).await?;
        if !self.may_take_over(heir, &owner, cluster, going).await? {
            return Ok(None);
        }
        let objects = match going {
            Going::Applier => objects,
            Going::Objects => match self.would_build(&owner, cluster).await? {
                Builds::This(build) => {
                    let kept = self.store.held_by_builds(&build.objects(), &objects).await?;
                    let kept: BTreeSet<ObjectRef> = kept.into_iter().collect();
                    objects.into_iter().filter(|object| !kept.contains(object)).collect()
                }
                Builds::Later(later) => return Ok(Some(later)),
                Builds::Nothing => return Ok(None),
            },
        };
        if objects.is_empty() {
            return Ok(None);
        }
        // What is being deleted at this moment is applied again once that is over.
        if let Some(later) = self.deletes(&owner, &objects).await? {
            return Ok(Some(later));
        }
        match self.write(&owner, heir, cluster, &objects, now).await? {
            None => Ok(Some(SOON)),
            Some(changes) => {
                self.note_changes(&owner, &changes).await?;
                Ok(None)
            }
        }
    }

    /// What an owner lets go: all that it has, where it goes itself, or goes to another cluster than `cluster`.
    async fn going(&self, owner: &SeenApplier, cluster: Option<ClusterUid>) -> Result<Going, HubError> {
        let goes = owner.situation.deleting
            || matches!(owner.situation.target, Target::Cluster { uid, .. } if cluster.is_some_and(|on| on != uid))
            || self.store.is_dropped(owner.situation.uid).await?;
        Ok(if goes { Going::Applier } else { Going::Objects })
    }

    /// Whether an open attempt of an applier may delete any of these.
    async fn deletes(
        &self,
        owner: &SeenApplier,
        objects: &[ObjectRef],
    ) -> Result<Option<Duration>, HubError> {
        let Some((kind, builds)) = self.store.under_way(owner.situation.uid).await? else {
            return Ok(None);
        };
        let deletes = match kind {
            AttemptKind::Delete => true,
            AttemptKind::Read => false,
            AttemptKind::Apply => {
                let namespace = owner.standing.default_namespace.as_deref();
                let build = BuildOf {
                    digests: builds,
                    substituted: false,
                    namespace: namespace.unwrap_or(roadstead_model::DEFAULT_NAMESPACE).to_owned(),
                };
                self.store.held_by_builds(&build.objects(), objects).await?.len() < objects.len()
            }
        };
        Ok(deletes.then_some(SOON))
    }

    /// The same of all that a child owns on a cluster.
    async fn blocks(&self, child: &SeenApplier, cluster: ClusterUid) -> Result<Option<Duration>, HubError> {
        if self.store.under_way(child.situation.uid).await?.is_none() {
            return Ok(None);
        }
        let owned = self.store.inventory(cluster, child.situation.uid).await?;
        self.deletes(child, &owned).await
    }

    /// Whether what `owner` lets go on this cluster may become `heir`'s.
    async fn may_take_over(
        &self,
        heir: &SeenApplier,
        owner: &SeenApplier,
        cluster: ClusterUid,
        going: Going,
    ) -> Result<bool, HubError> {
        let situation = &heir.situation;
        let is_here = matches!(situation.target, Target::Cluster { uid, .. } if uid == cluster);
        if !is_here || situation.deleting || situation.suspended || !situation.denials.is_empty() {
            return Ok(false);
        }
        let is_related = heir.stored.namespace == owner.stored.namespace || root(heir) == root(owner);
        if is_related {
            let same = || -> Result<bool, HubError> {
                Ok(self.first_source(heir)? == self.first_source(owner)? && heir.artifacts == owner.artifacts)
            };
            if going == Going::Applier || same()? {
                return Ok(true);
            }
        }
        if !names(heir, owner) {
            return Ok(false);
        }
        let at = (owner.stored.namespace.as_str(), owner.stored.name.as_str());
        let may = self.access.may_refer_to(&heir.stored, &heir.standing, owner.stored.kind, at).await?;
        Ok(may.is_ok())
    }

    fn first_source(&self, seen: &SeenApplier) -> Result<Option<Reference>, HubError> {
        Ok(seen.kind.sources(&seen.stored)?.into_iter().next())
    }

    /// What an applier is to apply now: it is built where it was not yet.
    async fn would_build(&self, seen: &SeenApplier, cluster: ClusterUid) -> Result<Builds, HubError> {
        if seen.artifacts.is_empty() {
            return Ok(Builds::Nothing);
        }
        let Rendered { rendering, .. } = self.render(seen, cluster).await?;
        let built = match rendering {
            Rendering::Built(built) => built,
            Rendering::Later(later) => return Ok(Builds::Later(later)),
            Rendering::Failed(..) | Rendering::Reads(_) => return Ok(Builds::Nothing),
        };
        let Ok(work) = seen.kind.steps(&seen.stored, &seen.standing.home, &built.groups)? else {
            return Ok(Builds::Nothing);
        };
        Ok(Builds::This(BuildOf::of(&seen.dispatch(work.groups, work.steps))))
    }

    /// Writes that `heir` owns what `owner` did; gives what went, for the owner's history. None where either of them has changed meanwhile.
    async fn write(
        &self,
        owner: &SeenApplier,
        heir: &SeenApplier,
        cluster: ClusterUid,
        objects: &[ObjectRef],
        now: Timestamp,
    ) -> Result<Option<ChangeSet>, HubError> {
        let (from, to) = (&owner.stored, &heir.stored);
        let (by, with) = (named(owner), named(heir));
        let Some(mut tx) = self.both_unchanged(owner, heir).await? else { return Ok(None) };
        let went = tx.hand_over(cluster, (owner.situation.uid, &by), heir.situation.uid, objects).await?;
        if !went.is_empty() {
            let what: Vec<String> = went.iter().take(NAMED).map(ObjectRef::to_string).collect();
            let what = some(&what, went.len());
            let (gave, took) =
                (format!("{what} handed over to {with}"), format!("{what} taken over from {by}"));
            events::note(&mut tx, from, "Normal", "HandedOver", &gave, now).await?;
            events::note(&mut tx, to, "Normal", "TakenOver", &took, now).await?;
            tx.enqueue(Queue::Applier, &[to.uid]).await?;
            tracing::info!(from = %from, to = %to, objects = went.len(), "handed objects over");
        }
        tx.commit().await?;
        let result = |object| ObjectResult { object, action: Action::HandedOver, other: Some(with.clone()) };
        Ok(Some(went.into_iter().map(result).collect()))
    }

    /// A unit of work in which both are as they were seen, and stay so; none where they are not.
    async fn both_unchanged(&self, owner: &SeenApplier, heir: &SeenApplier) -> Result<Option<Tx>, HubError> {
        let mut tx = self.store.begin().await?;
        // In one order everywhere.
        let mut both = [owner, heir];
        both.sort_unstable_by_key(|seen| seen.stored.uid);
        for seen in both {
            if seen.unchanged(&mut tx).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(tx))
    }

    /// Adds to the history of an applier what was done outside its attempts.
    pub(super) async fn note_changes(&self, seen: &SeenApplier, changes: &ChangeSet) -> Result<(), HubError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        tx.add_changes(seen.situation.uid, changes).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// What goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// Objects that their owner does not build any more.
    Objects,
    /// The owner itself.
    Applier,
}

/// The Kustomization that a person made, from which this one has its rights.
fn root(seen: &SeenApplier) -> (String, String) {
    match &seen.standing.rights {
        Ok(rights) => rights.root.clone(),
        Err(_) => (seen.stored.namespace.clone(), seen.stored.name.clone()),
    }
}

/// Some names out of so many.
fn some(named: &[String], total: usize) -> String {
    match total - named.len() {
        0 => named.join(", "),
        1 => format!("{} and 1 more object", named.join(", ")),
        more => format!("{} and {more} more objects", named.join(", ")),
    }
}

/// For people.
fn named(seen: &SeenApplier) -> String {
    seen.stored.applier_ref().to_string()
}

/// Whether an applier's annotation names another one as one that it takes over from.
fn names(heir: &SeenApplier, owner: &SeenApplier) -> bool {
    let named = annotated::takes_over(&heir.stored.object).unwrap_or_default();
    named.contains(&(owner.stored.namespace.as_str(), owner.stored.name.as_str()))
}
