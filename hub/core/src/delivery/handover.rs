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

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Reference, annotated};
use roadstead_hub_plan::Target;
use roadstead_hub_store::{BuiltObjects, CachedBuild, OldOwner, Relatives, Tx};
use roadstead_model::{
    Action, ApplierUid, ChangeSet, ClusterUid, Digest, DispatchSpec, ObjectRef, ObjectResult, Queue,
};

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::render::{Rendered, Rendering};
use crate::delivery::seen::SeenApplier;
use crate::objects::events;

/// How soon it is looked again where something else has to end first.
const SOON: Duration = Duration::from_millis(500);
/// Owners that one applier takes over from at once. Of others it is told that they own what it builds.
const MAX_OWNERS: usize = 16;
/// Objects that an Event names.
const NAMED: usize = 3;

/// What came of looking; or when it is to be looked again, since something else has to end first.
pub(super) type Soon<T> = ControlFlow<Duration, T>;

/// What an owner lets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    /// What it does not build any more.
    Unbuilt,
    /// All that it has: it is being deleted, or leaves the cluster or its parent's build.
    All,
}

/// Whose pass it is in which an owner lets objects go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Its own: what was done stands in the attempt that it opens next, which supersedes one that is under way.
    Own,
    /// Another's: one that is under way goes on.
    Others,
}

/// What an applier builds.
struct Build {
    digests: Vec<Digest>,
    substituted: bool,
    namespace: String,
}

impl Build {
    fn of(dispatch: &DispatchSpec) -> Self {
        Self {
            digests: dispatch.groups.iter().map(|group| group.objects).collect(),
            substituted: dispatch.groups.iter().any(|group| group.substitute.is_some()),
            namespace: dispatch.default_namespace().to_owned(),
        }
    }

    fn objects(&self) -> BuiltObjects<'_> {
        BuiltObjects {
            builds: &self.digests,
            substituted: self.substituted,
            default_namespace: &self.namespace,
        }
    }
}

/// An owner that lets objects go on a cluster.
struct Owner<'a> {
    seen: &'a SeenApplier,
    cluster: ClusterUid,
    /// What it builds now; none where it lets all go.
    build: Option<Build>,
}

impl Owner<'_> {
    fn as_stored(&self) -> OldOwner<'_> {
        OldOwner {
            applier: self.seen.situation.uid,
            cluster: self.cluster,
            built: self.build.as_ref().map(Build::objects),
        }
    }

    fn released(&self) -> Released {
        if self.build.is_some() { Released::Unbuilt } else { Released::All }
    }
}

impl Delivery {
    /// Before `dispatch` is sent: what of its build others do not build any more becomes `seen`'s, and what it does not hold any more
    /// goes to those who build it. Gives what was done, for the attempt's change set.
    pub(super) async fn change_owners(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        dispatch: &DispatchSpec,
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        if let Break(later) = self.release_children(seen, now).await? {
            return Ok(Break(later));
        }
        if seen.has_applied(cluster, dispatch) {
            return Ok(Continue(ChangeSet::new()));
        }
        let build = Build::of(dispatch);
        let moves = self.store.moves(cluster, seen.situation.uid, &build.objects()).await?;
        for owner in moves.owners.into_iter().take(MAX_OWNERS) {
            if let Break(later) = self.take_over(seen, &build, cluster, owner, now).await? {
                return Ok(Break(later));
            }
        }
        if !moves.leaves {
            return Ok(Continue(ChangeSet::new()));
        }
        self.give_away(&Owner { seen, cluster, build: Some(build) }, Pass::Own, now).await
    }

    /// Before all that an applier owns on a cluster is deleted: what others build goes to them.
    pub(super) async fn release_all(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        self.give_away(&Owner { seen, cluster, build: None }, Pass::Own, now).await
    }

    /// Before a build's deletions are counted: its children that it does not hold any more, and what those applied, go to the appliers that
    /// build them now.
    async fn release_children(&self, parent: &SeenApplier, now: Timestamp) -> Result<Soon<()>, HubError> {
        // What was seen of them is from before this build was begun with.
        if !parent.situation.prune || parent.children.is_empty() {
            return Ok(Continue(()));
        }
        let mut dropped = self.store.children(parent.situation.uid).await?;
        dropped.retain(|child| !child.wanted);
        let dropped = match self.give_children(parent, dropped, Released::Unbuilt, now).await? {
            Break(later) => return Ok(Break(later)),
            Continue(left) => left,
        };
        let appliers = dropped.into_iter().filter(|child| child.kind.is_applier());
        for uid in appliers.filter_map(|child| child.object) {
            let Some(child) = self.see(uid).await? else { continue };
            let below = child.children.clone();
            if let Break(later) = self.give_children(&child, below, Released::All, now).await? {
                return Ok(Break(later));
            }
            for owned in child.situation.owns_on.iter().filter(|owned| owned.exists) {
                let owner = Owner { seen: &child, cluster: owned.cluster, build: None };
                if let Break(later) = self.give_away(&owner, Pass::Others, now).await? {
                    return Ok(Break(later));
                }
            }
        }
        Ok(Continue(()))
    }

    /// Gives what an owner lets go to those who build it, the first of them by namespace and name.
    async fn give_away(
        &self,
        owner: &Owner<'_>,
        pass: Pass,
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        let mut changes = ChangeSet::new();
        let source = first_source(owner.seen)?;
        let root = root(owner.seen);
        let relatives = relatives(owner.seen, &root, source.as_ref(), owner.released());
        for uid in self.store.possible_owners(&relatives, &owner.as_stored()).await? {
            let Some(new) = self.see(uid).await? else { continue };
            if !self.may_take_over(&new, owner.seen, owner.cluster, owner.released()).await? {
                continue;
            }
            let build = match self.wanted_build(&new, owner.cluster).await? {
                Break(later) => return Ok(Break(later)),
                Continue(None) => continue,
                Continue(Some(build)) => build,
            };
            match self.hand_over(owner, &new, &build, pass, now).await? {
                Break(later) => return Ok(Break(later)),
                Continue(moved) => changes.extend(moved),
            }
        }
        Ok(Continue(changes))
    }

    /// Takes over what of `build` another one owns, and does not build any more.
    async fn take_over(
        &self,
        new: &SeenApplier,
        build: &Build,
        cluster: ClusterUid,
        owner: ApplierUid,
        now: Timestamp,
    ) -> Result<Soon<()>, HubError> {
        let Some(owner) = self.see(owner.into()).await? else { return Ok(Continue(())) };
        let released = self.released(&owner, Some(cluster)).await?;
        if owner.situation.suspended || !self.may_take_over(new, &owner, cluster, released).await? {
            return Ok(Continue(()));
        }
        let kept = match released {
            Released::All => None,
            Released::Unbuilt => match self.wanted_build(&owner, cluster).await? {
                Break(later) => return Ok(Break(later)),
                Continue(None) => return Ok(Continue(())),
                Continue(kept) => kept,
            },
        };
        let owner = Owner { seen: &owner, cluster, build: kept };
        Ok(self.hand_over(&owner, new, build, Pass::Others, now).await?.map_continue(drop))
    }

    /// What an owner lets go on `cluster`, or on the hub.
    async fn released(&self, owner: &SeenApplier, cluster: Option<ClusterUid>) -> Result<Released, HubError> {
        let left = match (&owner.situation.target, cluster) {
            (Target::Cluster { uid, .. }, Some(cluster)) => *uid != cluster,
            _ => false,
        };
        let goes = left || owner.situation.deleting || self.store.is_dropped(owner.situation.uid).await?;
        Ok(if goes { Released::All } else { Released::Unbuilt })
    }

    /// Whether what `owner` lets go on this cluster may become `new`'s.
    async fn may_take_over(
        &self,
        new: &SeenApplier,
        owner: &SeenApplier,
        cluster: ClusterUid,
        released: Released,
    ) -> Result<bool, HubError> {
        let situation = &new.situation;
        if chosen(new) != Some(cluster)
            || situation.deleting
            || situation.suspended
            || !situation.denials.is_empty()
        {
            return Ok(false);
        }
        if new.stored.namespace == owner.stored.namespace || root(new) == root(owner) {
            let has_same = first_source(new)? == first_source(owner)? && new.artifacts == owner.artifacts;
            if released == Released::All || has_same {
                return Ok(true);
            }
        }
        let at = (owner.stored.namespace.as_str(), owner.stored.name.as_str());
        // Checked when it was written; an older version took anything.
        if !annotated::takes_over(&new.stored.object).unwrap_or_default().contains(&at) {
            return Ok(false);
        }
        Ok(self.access.may_refer_to(&new.stored, &new.standing, owner.stored.kind, at).await?.is_ok())
    }

    /// What an applier is to apply on a cluster now; none where it cannot be built.
    async fn wanted_build(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
    ) -> Result<Soon<Option<Build>>, HubError> {
        let built = match self.built_now(seen, cluster).await? {
            Break(later) => return Ok(Break(later)),
            Continue(None) => return Ok(Continue(None)),
            Continue(Some(built)) => built,
        };
        let work = seen.kind.steps(&seen.stored, &seen.standing.home, &built.groups)?;
        Ok(Continue(work.ok().map(|work| Build::of(&seen.dispatch(work.groups, work.steps)))))
    }

    /// What an applier's render comes to now: it is rendered where it was not yet.
    async fn built_now(
        &self,
        seen: &SeenApplier,
        cluster: ClusterUid,
    ) -> Result<Soon<Option<CachedBuild>>, HubError> {
        if seen.artifacts.is_empty() {
            return Ok(Continue(None));
        }
        let Rendered { rendering, .. } = self.render(seen, cluster).await?;
        Ok(match rendering {
            Rendering::Built(built) => Continue(Some(built)),
            Rendering::Later(later) | Rendering::Waits(later, _) => Break(later),
            Rendering::Failed(..) | Rendering::Reads(_) => Continue(None),
        })
    }

    /// Has `new` own what the owner lets go of its build; gives what moved, for the owner's history.
    async fn hand_over(
        &self,
        owner: &Owner<'_>,
        new: &SeenApplier,
        build: &Build,
        pass: Pass,
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        let (old, build) = (owner.as_stored(), build.objects());
        // What is being deleted at this moment is applied again once that is over.
        if pass == Pass::Others && self.store.deletes_what_moves(&old, &build).await? {
            return Ok(Break(SOON));
        }
        let Some(mut tx) = self.both_unchanged(owner.seen, new).await? else { return Ok(Break(SOON)) };
        let moved = tx.hand_over(&old, &named(owner.seen), new.situation.uid, &build).await?;
        if moved.is_empty() {
            return Ok(Continue(ChangeSet::new()));
        }
        let changes = changes(&moved, Action::HandedOver, new);
        tell(&mut tx, owner.seen, new, &moved, now).await?;
        if pass == Pass::Others {
            tx.add_changes(old.applier, &changes).await?;
        }
        tx.enqueue(Queue::Applier, &[new.stored.uid]).await?;
        tx.commit().await?;
        Ok(Continue(changes))
    }

    /// A unit of work in which both are as they were seen, and stay so; none where they are not.
    async fn both_unchanged(&self, owner: &SeenApplier, new: &SeenApplier) -> Result<Option<Tx>, HubError> {
        let mut tx = self.store.begin().await?;
        // In one order everywhere.
        let mut both = [owner, new];
        both.sort_unstable_by_key(|seen| seen.stored.uid);
        for seen in both {
            if seen.unchanged(&mut tx).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(tx))
    }
}

/// Tells both of what moved, by Events, and the operator.
async fn tell(
    tx: &mut Tx,
    owner: &SeenApplier,
    new: &SeenApplier,
    moved: &[ObjectRef],
    now: Timestamp,
) -> Result<(), HubError> {
    let first: Vec<String> = moved.iter().take(NAMED).map(ObjectRef::to_string).collect();
    let what = match moved.len() - first.len() {
        0 => first.join(", "),
        1 => format!("{} and 1 more object", first.join(", ")),
        more => format!("{} and {more} more objects", first.join(", ")),
    };
    let gave = format!("{what} handed over to {}", named(new));
    events::note(tx, &owner.stored, "Normal", "HandedOver", &gave, now).await?;
    let took = format!("{what} taken over from {}", named(owner));
    events::note(tx, &new.stored, "Normal", "TakenOver", &took, now).await?;
    tracing::info!(from = %owner.stored, to = %new.stored, objects = moved.len(), "handed objects over");
    Ok(())
}

/// What moved, as it stands in a history; `other` is whom it went to, or came from.
fn changes(moved: &[ObjectRef], action: Action, other: &SeenApplier) -> ChangeSet {
    let other = named(other);
    let change =
        |object: &ObjectRef| ObjectResult { object: object.clone(), action, other: Some(other.clone()) };
    moved.iter().map(change).collect()
}

/// To whom things of an applier may go.
fn relatives<'a>(
    seen: &'a SeenApplier,
    root: &'a (String, String),
    source: Option<&'a Reference>,
    released: Released,
) -> Relatives<'a> {
    Relatives {
        of: seen.situation.uid,
        namespace: &seen.stored.namespace,
        root: (&root.0, &root.1),
        source: source.filter(|_| released == Released::Unbuilt),
    }
}

fn first_source(seen: &SeenApplier) -> Result<Option<Reference>, HubError> {
    Ok(seen.kind.sources(&seen.stored)?.into_iter().next())
}

/// The cluster that an applier chooses.
fn chosen(seen: &SeenApplier) -> Option<ClusterUid> {
    match seen.situation.target {
        Target::Cluster { uid, .. } => Some(uid),
        Target::Leaving { .. } | Target::NotFound(_) => None,
    }
}

/// The Kustomization that a person made, from which this one has its rights.
fn root(seen: &SeenApplier) -> (String, String) {
    match &seen.standing.rights {
        Ok(rights) => rights.root.clone(),
        Err(_) => (seen.stored.namespace.clone(), seen.stored.name.clone()),
    }
}

/// For people.
fn named(seen: &SeenApplier) -> String {
    seen.stored.applier_ref().to_string()
}
