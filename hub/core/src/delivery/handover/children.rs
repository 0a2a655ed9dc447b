//! The same of what a build has on the hub: a child goes from one Kustomization to another as it is, with all that it applied.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{Break, Continue};

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Child, Parent};
use roadstead_model::{Action, ApplierUid, ChangeSet, ObjectRef, Queue, ResourceUid};
use serde_json::Value;

use super::{MAX_OWNERS, Released, SOON, Soon, changes, chosen, first_source, relatives, root, tell};
use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::children::reference;
use crate::delivery::placing::Placed;
use crate::delivery::seen::SeenApplier;

/// A child by its kind, namespace and name on the hub.
type Key = (KindId, String, String);

/// The children that an applier is to make.
#[derive(Default)]
struct Made(BTreeSet<Key>);

impl Made {
    fn has(&self, child: &Child) -> bool {
        self.0.contains(&(child.kind, child.namespace.clone(), child.name.clone()))
    }

    /// Whether this is one of them, or may be: of some a name is not known before variables are substituted.
    fn may_have(&self, child: &Child) -> bool {
        let is_unknown = |(kind, namespace, name): &Key| {
            *kind == child.kind && (namespace.contains('$') || name.contains('$'))
        };
        self.has(child) || self.0.iter().any(is_unknown)
    }
}

impl Delivery {
    /// Gives children of `owner` to the appliers that build them now; gives those that stay.
    pub(in crate::delivery) async fn give_children(
        &self,
        owner: &SeenApplier,
        mut children: Vec<Child>,
        released: Released,
        now: Timestamp,
    ) -> Result<Soon<Vec<Child>>, HubError> {
        children.retain(|child| !child.kept && child.object.is_some());
        if children.is_empty() {
            return Ok(Continue(children));
        }
        let source = first_source(owner)?;
        let root = root(owner);
        let relatives = relatives(owner, &root, source.as_ref(), released);
        for uid in self.store.possible_parents(&relatives).await? {
            let Some(new) = self.see(uid).await? else { continue };
            let Some(cluster) = chosen(&new) else { continue };
            if !self.may_take_over(&new, owner, cluster, released).await? {
                continue;
            }
            let made = match self.wanted_children(&new).await? {
                Break(later) => return Ok(Break(later)),
                Continue(None) => continue,
                Continue(Some(made)) => made,
            };
            let (theirs, left) = children.into_iter().partition(|child| made.has(child));
            match self.hand_children_over(owner, &new, theirs, now).await? {
                Break(later) => return Ok(Break(later)),
                Continue(moved) => self.note_changes(&new, &moved).await?,
            }
            children = left;
            if children.is_empty() {
                break;
            }
        }
        Ok(Continue(children))
    }

    /// Takes over those of `placed` that others own, and do not build any more; gives what it took, for its change set.
    pub(in crate::delivery) async fn take_children(
        &self,
        new: &SeenApplier,
        placed: &[Placed],
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        let mut taken = ChangeSet::new();
        let Some(cluster) = chosen(new) else { return Ok(Continue(taken)) };
        let wanted: Vec<Child> = placed.iter().map(|one| one.child.clone()).collect();
        let mut by_owner: BTreeMap<ApplierUid, Vec<Child>> = BTreeMap::new();
        for (owner, child) in self.store.contested_children(new.situation.uid, &wanted).await? {
            by_owner.entry(owner).or_default().push(child);
        }
        for (owner, mut children) in by_owner.into_iter().take(MAX_OWNERS) {
            let Some(owner) = self.see(owner.into()).await? else { continue };
            let released = self.released(&owner, None).await?;
            if owner.situation.suspended || !self.may_take_over(new, &owner, cluster, released).await? {
                continue;
            }
            if released == Released::Unbuilt {
                match self.wanted_children(&owner).await? {
                    Break(later) => return Ok(Break(later)),
                    Continue(None) => continue,
                    Continue(Some(kept)) => children.retain(|child| !kept.may_have(child)),
                }
            }
            match self.hand_children_over(&owner, new, children, now).await? {
                Break(later) => return Ok(Break(later)),
                Continue(moved) => taken.extend(moved),
            }
        }
        Ok(Continue(taken))
    }

    /// The children of what an applier is to apply now; none where that is not known.
    async fn wanted_children(&self, seen: &SeenApplier) -> Result<Soon<Option<Made>>, HubError> {
        let Some(cluster) = chosen(seen) else { return Ok(Continue(None)) };
        let built = match self.built_now(seen, cluster).await? {
            Break(later) => return Ok(Break(later)),
            Continue(None) => return Ok(Continue(None)),
            Continue(Some(built)) => built,
        };
        let children: Vec<Value> = match built.children.as_deref().map(serde_json::from_slice).transpose() {
            Ok(children) => children.unwrap_or_default(),
            Err(error) => return Err(HubError::Internal(format!("a stored build is not readable: {error}"))),
        };
        let placed = self.place_children(seen, children).await?.ok();
        let made = |placed: Vec<Placed>| {
            let key = |Placed { child, .. }| (child.kind, child.namespace, child.name);
            Made(placed.into_iter().map(key).collect())
        };
        Ok(Continue(placed.map(made)))
    }

    /// Has `new` own these children of `owner`; gives what moved, for the history of `new`.
    async fn hand_children_over(
        &self,
        owner: &SeenApplier,
        new: &SeenApplier,
        children: Vec<Child>,
        now: Timestamp,
    ) -> Result<Soon<ChangeSet>, HubError> {
        if children.is_empty() {
            return Ok(Continue(ChangeSet::new()));
        }
        let to = &new.stored;
        let Some(mut tx) = self.both_unchanged(owner, new).await? else { return Ok(Break(SOON)) };
        let (name, account) = (format!("{}/{}", to.namespace, to.name), new.standing.account_text());
        let parent = Parent { uid: new.situation.uid, name: &name, account: &account };
        let moved = tx.hand_children_over(owner.situation.uid, &parent, &children).await?;
        if moved.is_empty() {
            return Ok(Continue(ChangeSet::new()));
        }
        let reference = |child: &Child| reference(child.kind, &child.namespace, &child.name);
        let objects: Vec<ObjectRef> = moved.iter().map(reference).collect();
        tell(&mut tx, owner, new, &objects, now).await?;
        tx.add_changes(owner.situation.uid, &changes(&objects, Action::HandedOver, new)).await?;
        // Their rights are others now.
        let appliers = moved.iter().filter(|child| child.kind.is_applier());
        let concerned: Vec<ResourceUid> = appliers.filter_map(|child| child.object).chain([to.uid]).collect();
        tx.enqueue(Queue::Applier, &concerned).await?;
        tx.commit().await?;
        Ok(Continue(changes(&objects, Action::TakenOver, owner)))
    }

    /// Adds to the history of an applier what was done outside its attempts.
    pub(in crate::delivery) async fn note_changes(
        &self,
        seen: &SeenApplier,
        changes: &ChangeSet,
    ) -> Result<(), HubError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut tx = self.store.begin().await?;
        tx.add_changes(seen.situation.uid, changes).await?;
        tx.commit().await?;
        Ok(())
    }
}
