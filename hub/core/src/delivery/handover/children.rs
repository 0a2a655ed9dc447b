//! The same of what a build has on the hub: a child goes from one Kustomization to another as it is, with all that it applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_plan::Target;
use roadstead_hub_store::{Child, Leaving, Parent};
use roadstead_model::{
    Action, ApplierUid, ChangeSet, ClusterUid, ObjectRef, ObjectResult, Queue, ResourceUid,
};
use serde_json::Value;

use super::{Going, SOON, named, root};
use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::children::reference;
use crate::delivery::placing::Placed;
use crate::delivery::render::{Rendered, Rendering};
use crate::delivery::seen::SeenApplier;
use crate::objects::events;

/// A child by its kind, namespace and name on the hub.
type Key = (KindId, String, String);

/// What came of giving children away.
pub(in crate::delivery) enum Given {
    /// These stay.
    Left(Vec<Child>),
    /// Something else has to end first.
    Later(Duration),
}

/// The children that an applier would make now.
enum Makes {
    These(BTreeSet<Key>),
    Later(Duration),
    Nothing,
}

impl Delivery {
    /// Gives children of `owner` to the appliers that build them now.
    pub(in crate::delivery) async fn give_children(
        &self,
        owner: &SeenApplier,
        mut children: Vec<Child>,
        going: Going,
        now: Timestamp,
    ) -> Result<Given, HubError> {
        children.retain(|child| !child.kept && child.object.is_some());
        if children.is_empty() {
            return Ok(Given::Left(children));
        }
        let source = self.first_source(owner)?;
        let root = root(owner);
        let leaving = Leaving {
            applier: owner.situation.uid,
            namespace: &owner.stored.namespace,
            root: (&root.0, &root.1),
            source: source.as_ref().filter(|_| going == Going::Objects),
        };
        for uid in self.store.parents_to_be(&leaving).await? {
            let Some(heir) = self.see(uid).await? else { continue };
            let Some(cluster) = chosen(&heir) else { continue };
            if !self.may_take_over(&heir, owner, cluster, going).await? {
                continue;
            }
            let makes = match self.would_make(&heir).await? {
                Makes::These(makes) => makes,
                Makes::Later(later) => return Ok(Given::Later(later)),
                Makes::Nothing => continue,
            };
            let (theirs, left): (Vec<Child>, Vec<Child>) =
                children.into_iter().partition(|child| makes.contains(&key(child)));
            if !theirs.is_empty() {
                let Some(took) = self.write_children(owner, &heir, &theirs, now).await? else {
                    return Ok(Given::Later(SOON));
                };
                self.note_changes(&heir, &took).await?;
            }
            children = left;
            if children.is_empty() {
                break;
            }
        }
        Ok(Given::Left(children))
    }

    /// Takes over those of `placed` that others own, and do not build any more; gives what it took, or when it is to be looked again.
    pub(in crate::delivery) async fn take_children(
        &self,
        heir: &SeenApplier,
        placed: &[Placed],
        now: Timestamp,
    ) -> Result<Result<ChangeSet, Duration>, HubError> {
        let wanted: Vec<Child> = placed.iter().map(|one| one.child.clone()).collect();
        let mut by_owner: BTreeMap<ApplierUid, Vec<Child>> = BTreeMap::new();
        for (owner, child) in self.store.contested_children(heir.situation.uid, &wanted).await? {
            by_owner.entry(owner).or_default().push(child);
        }
        let mut changes = ChangeSet::new();
        let Some(cluster) = chosen(heir) else { return Ok(Ok(changes)) };
        for (owner, children) in by_owner.into_iter().take(super::MAX_OWNERS) {
            let Some(owner) = self.see(owner.into()).await? else { continue };
            if owner.situation.suspended {
                continue;
            }
            let going = self.going(&owner, None).await?;
            if !self.may_take_over(heir, &owner, cluster, going).await? {
                continue;
            }
            let keeps = match going {
                Going::Applier => BTreeSet::new(),
                Going::Objects => match self.would_make(&owner).await? {
                    Makes::These(makes) => makes,
                    Makes::Later(later) => return Ok(Err(later)),
                    Makes::Nothing => continue,
                },
            };
            let theirs: Vec<Child> =
                children.into_iter().filter(|child| !keeps.contains(&key(child))).collect();
            if theirs.is_empty() {
                continue;
            }
            match self.write_children(&owner, heir, &theirs, now).await? {
                None => return Ok(Err(SOON)),
                Some(took) => changes.extend(took),
            }
        }
        Ok(Ok(changes))
    }

    /// The children of what an applier is to apply now.
    async fn would_make(&self, seen: &SeenApplier) -> Result<Makes, HubError> {
        let Some(cluster) = chosen(seen).filter(|_| !seen.artifacts.is_empty()) else {
            return Ok(Makes::Nothing);
        };
        let Rendered { rendering, .. } = self.render(seen, cluster).await?;
        let built = match rendering {
            Rendering::Built(built) => built,
            Rendering::Later(later) => return Ok(Makes::Later(later)),
            Rendering::Failed(..) | Rendering::Reads(_) => return Ok(Makes::Nothing),
        };
        let children: Vec<Value> = match built.children.as_deref().map(serde_json::from_slice).transpose() {
            Ok(children) => children.unwrap_or_default(),
            Err(error) => return Err(HubError::Internal(format!("a stored build is not readable: {error}"))),
        };
        Ok(match self.place_children(seen, children).await? {
            Ok(placed) => Makes::These(placed.iter().map(|one| key(&one.child)).collect()),
            Err(_) => Makes::Nothing,
        })
    }

    /// Writes that `heir` owns what `owner` did; gives what it took. None where either of them has changed meanwhile.
    async fn write_children(
        &self,
        owner: &SeenApplier,
        heir: &SeenApplier,
        children: &[Child],
        now: Timestamp,
    ) -> Result<Option<ChangeSet>, HubError> {
        let (from, to) = (&owner.stored, &heir.stored);
        let (by, with) = (named(owner), named(heir));
        let Some(mut tx) = self.both_unchanged(owner, heir).await? else { return Ok(None) };
        let (name, account) = (format!("{}/{}", to.namespace, to.name), heir.standing.account_text());
        let writer = Parent { uid: heir.situation.uid, name: &name, account: &account };
        let went = tx.hand_children_over(owner.situation.uid, &writer, children).await?;
        let of = |child: &Child| reference(child.kind, &child.namespace, &child.name);
        let objects: Vec<ObjectRef> = went.iter().map(of).collect();
        let told = |action, other: &String| -> ChangeSet {
            let result = |object: &ObjectRef| ObjectResult {
                object: object.clone(),
                action,
                other: Some(other.clone()),
            };
            objects.iter().map(result).collect()
        };
        if !went.is_empty() {
            let what: Vec<String> = objects.iter().take(super::NAMED).map(ObjectRef::to_string).collect();
            let what = super::some(&what, objects.len());
            let (gave, took) =
                (format!("{what} handed over to {with}"), format!("{what} taken over from {by}"));
            events::note(&mut tx, from, "Normal", "HandedOver", &gave, now).await?;
            events::note(&mut tx, to, "Normal", "TakenOver", &took, now).await?;
            tx.add_changes(owner.situation.uid, &told(Action::HandedOver, &with)).await?;
            let appliers = went.iter().filter(|child| child.kind.is_applier());
            let concerned: Vec<ResourceUid> =
                appliers.filter_map(|child| child.object).chain([to.uid]).collect();
            tx.enqueue(Queue::Applier, &concerned).await?;
            tracing::info!(from = %from, to = %to, children = went.len(), "handed children over");
        }
        tx.commit().await?;
        Ok(Some(told(Action::TakenOver, &by)))
    }
}

fn key(child: &Child) -> Key {
    (child.kind, child.namespace.clone(), child.name.clone())
}

fn chosen(seen: &SeenApplier) -> Option<ClusterUid> {
    match seen.situation.target {
        Target::Cluster { uid, .. } => Some(uid),
        Target::Leaving { .. } | Target::NotFound(_) => None,
    }
}
