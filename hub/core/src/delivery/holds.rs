//! The guard, as the hub has a part in it: which bounds hold for an applier, what goes with its children, what waits, and how a person
//! confirms it. What goes on a cluster is counted by that cluster's agent.

use jiff::Timestamp;
use roadstead_api::kustomization::{GuardMode as Mode, GuardSpec};
use roadstead_api::{ApplierSpec, Cluster};
use roadstead_hub_store::{Child, Descendants, HeldDeletion};
use roadstead_model::guard::{MAX_HELD_NAMED, SHORT_DIGEST, digest_of, digest_of_all};
use roadstead_model::{
    ApplierRef, AttemptKind, Digest, DispatchSpec, Guard, GuardMode, Held, ObjectRef, PendingDeletion, Queue,
    Reason, ResourceUid,
};
use serde_json::Value;

use crate::HubError;
use crate::address::Address;
use crate::delivery::Delivery;
use crate::delivery::children::{Children, reference};
use crate::delivery::results::{DispatchFailure, DispatchResult};
use crate::delivery::seen::SeenApplier;
use crate::identity::{Identity, audit};
use crate::objects::events;

/// A child that owns so many objects, with those below it, does not go without a confirmation, whatever its parent owns besides.
const LARGE_CHILD: usize = 250;

/// Objects that a condition names.
const NAMED: usize = 5;

/// The bounds for an applier: its own, those of its cluster and those of the hub, of each the stricter one. None: all may go.
pub(super) fn bounds(spec: &ApplierSpec, cluster: Option<&Cluster>, of_hub: Option<&Guard>) -> Option<Guard> {
    let own = spec.guard.as_ref().map(guard);
    let of_cluster = cluster.and_then(|cluster| cluster.spec.guard.as_ref()).map(guard);
    [own, of_cluster, of_hub.cloned()].into_iter().flatten().reduce(Guard::and)
}

fn guard(spec: &GuardSpec) -> Guard {
    let GuardSpec { mode, max_deletion_percent, max_deletions } = spec;
    let default = Guard::default();
    Guard {
        mode: match mode {
            Some(Mode::Stop) => GuardMode::Stop,
            Some(Mode::Deletions) | None => GuardMode::Deletions,
        },
        max_percent: max_deletion_percent.unwrap_or(default.max_percent),
        max_deletions: *max_deletions,
        required: true,
        confirmed: Vec::new(),
    }
}

/// What waits after an attempt.
pub(super) struct Waits {
    /// For the condition.
    pub(super) failure: DispatchFailure,
    /// For the person who confirms it.
    pub(super) held: HeldDeletion,
}

impl Delivery {
    /// The bounds that a dispatch is sent with, and what a person has confirmed of it.
    pub(super) fn guard_of(&self, seen: &SeenApplier, dispatch: &DispatchSpec) -> Option<Guard> {
        let mut guard = seen.guard.clone()?;
        if let Some(held) = seen.held.as_ref().filter(|held| held.confirmed.is_some())
            && held.dispatch == dispatch.digest()
        {
            guard.confirmed.clone_from(&held.parts);
        }
        Some(guard)
    }

    /// What waits after an attempt, on its cluster and on the hub; none where nothing does, or where something else went wrong first.
    pub(super) async fn waits_after(
        &self,
        result: &DispatchResult,
        spec: &DispatchSpec,
        kind: AttemptKind,
        children: &Children,
    ) -> Result<Option<Waits>, HubError> {
        let Some(guard) = &spec.guard else { return Ok(None) };
        let stopped = match &result.failure {
            None => false,
            // The agent says so where nothing was applied, since its deletions would have to wait.
            Some(failure) if failure.reason == Reason::PruneFailed && !result.held.is_empty() => true,
            Some(_) => return Ok(None),
        };
        let mut held = result.held.clone();
        if kind == AttemptKind::Apply {
            held.extend(self.held_children(guard, result.inventory.len(), children).await?);
        }
        if held.is_empty() {
            return Ok(None);
        }
        let parts: Vec<Digest> = held.iter().map(|held| held.digest).collect();
        let waits = HeldDeletion {
            digest: digest_of_all(&parts),
            parts,
            dispatch: spec.digest(),
            total: held.iter().map(|held| held.total).sum(),
            confirmed: None,
        };
        let message = told(&spec.applier, &held, &waits, kind, stopped);
        let failure = DispatchFailure { step: None, reason: Reason::DeletionHeld, message, cancelled: false };
        Ok(Some(Waits { failure, held: waits }))
    }

    /// Whether the children that left the build have to wait: with them goes what they own. `own` is what their parent owns on its
    /// cluster.
    async fn held_children(
        &self,
        guard: &Guard,
        own: usize,
        children: &Children,
    ) -> Result<Option<Held>, HubError> {
        let Children { wanted, dropped } = children;
        let is_made = |child: &&Child| !child.kept && child.object.is_some();
        let goes: Vec<&Child> = dropped.iter().filter(is_made).collect();
        if goes.is_empty() {
            return Ok(None);
        }
        let all = goes.iter().copied().chain(wanted.iter().filter(is_made));
        let uids: Vec<ResourceUid> = all.filter_map(|child| child.object).collect();
        let mut below = self.store.descendants(&uids).await?;
        let stays = below.split_off(goes.len());
        let deletions: Vec<PendingDeletion> = goes
            .iter()
            .zip(&below)
            .map(|(child, below)| PendingDeletion {
                object: reference(child.kind, &child.namespace, &child.name),
                uid: child.object.map(|uid| uid.to_string()).unwrap_or_default(),
                risk: risk(*below),
            })
            .collect();
        let digest = digest_of(&deletions);
        if guard.confirmed.contains(&digest) {
            return Ok(None);
        }
        let count = |below: &[Descendants]| below.iter().map(|below| 1 + below.objects).sum::<usize>();
        let (total, stays) = (count(&below), own + count(&stays));
        let owned = stays + total;
        let is_all = stays == 0;
        let mut why: Vec<String> = guard.exceeded(total, owned, is_all).into_iter().collect();
        why.extend(
            deletions
                .iter()
                .filter_map(|one| Some(format!("{} {}", one.object, one.risk.as_ref()?)))
                .take(NAMED),
        );
        if why.is_empty() {
            return Ok(None);
        }
        let objects = deletions.into_iter().map(|one| one.object).take(MAX_HELD_NAMED).collect();
        Ok(Some(Held { digest, why: why.join("; "), objects, total }))
    }

    /// Takes a person's confirmation of the deletions that wait: just those of this digest, or of one that begins so. They are done at once.
    ///
    /// # Errors
    /// `NotFound` where there is no such object; `Conflict` where nothing waits, or something else does.
    pub async fn confirm_deletion(
        &self,
        who: &Identity,
        address: &Address,
        given: &str,
    ) -> Result<Value, HubError> {
        let Address { kind, namespace, name, .. } = address;
        let what = || crate::address::named(kind.get(), name);
        let Some(stored) = self.store.get(*kind, namespace, name).await? else {
            return Err(HubError::NotFound { what: what() });
        };
        let digits = given.trim().trim_start_matches("sha256:").to_ascii_lowercase();
        if digits.len() < SHORT_DIGEST {
            return Err(HubError::BadRequest(format!(
                "digest: want at least {SHORT_DIGEST} hexadecimal digits, as the object's Ready condition has them"
            )));
        }
        let conflict = |why: &str| HubError::Conflict { what: what(), why: why.to_owned() };
        let Some(held) = self.store.held_deletion(stored.uid.into()).await? else {
            return Err(conflict("no deletions of it are held"));
        };
        let other = "other deletions are held than those of this digest; see its Ready condition";
        if !held.digest.hex().starts_with(&digits) {
            return Err(conflict(other));
        }
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let by = who.recorded();
        if !tx.confirm_deletion(stored.uid.into(), held.digest, &by, now).await? {
            return Err(conflict(other));
        }
        let mut entry = audit::about(who, "create", *kind, namespace, name);
        entry.kind.push_str("/confirm");
        entry.detail = format!("{} deletions, {}", held.total, held.digest);
        tx.note(&entry).await?;
        let message = format!("{by} confirmed the deletion of {} ({})", objects(held.total), held.digest);
        events::note(&mut tx, &stored, "Normal", "DeletionConfirmed", &message, now).await?;
        tx.enqueue(Queue::Applier, &[stored.uid]).await?;
        tx.commit().await?;
        Ok(serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "message": format!("confirmed: {} will be deleted", objects(held.total)),
            "details": { "name": name, "kind": kind.get().plural, "uid": stored.uid.to_string() },
        }))
    }
}

/// What is lost with a child.
fn risk(below: Descendants) -> Option<String> {
    if below.has_volumes {
        return Some("owns PersistentVolumes or claims, whose data may be lost".to_owned());
    }
    (below.objects >= LARGE_CHILD)
        .then(|| format!("owns {} objects, which would be deleted with it", below.objects))
}

fn objects(count: usize) -> String {
    if count == 1 { "1 object".to_owned() } else { format!("{count} objects") }
}

/// For the condition: why they wait, which they are, what was done all the same, and how they are confirmed.
fn told(about: &ApplierRef, held: &[Held], waits: &HeldDeletion, kind: AttemptKind, stopped: bool) -> String {
    let why: Vec<&str> = held.iter().map(|held| held.why.as_str()).collect();
    let named: Vec<String> =
        held.iter().flat_map(|held| &held.objects).take(NAMED).map(ObjectRef::to_string).collect();
    let more = waits.total.saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let otherwise = match (kind, stopped) {
        (AttemptKind::Delete, _) => {
            "Nothing was deleted, and nothing is applied to the new cluster until that is confirmed"
        }
        (_, true) => "Nothing was applied or deleted",
        (_, false) => "Nothing was deleted; all else was applied",
    };
    let ApplierRef { kind, namespace, name } = about;
    let kind = kind.to_lowercase();
    let digest: String = waits.digest.hex().chars().take(SHORT_DIGEST).collect();
    format!(
        "{}: {}{more}. {otherwise}. To have {} deleted: roadstead confirm {kind}/{name} -n {namespace} {digest}",
        why.join("; "),
        named.join(", "),
        if waits.total == 1 { "it" } else { "them" },
    )
}

/// Whether the deletions that wait were confirmed after the newest attempt began, which went without that.
pub(super) fn is_confirmed_since(held: Option<&HeldDeletion>, began: Option<Timestamp>) -> bool {
    let confirmed = held.and_then(|held| held.confirmed);
    confirmed.is_some_and(|at| began.is_none_or(|began| at >= began))
}

#[cfg(test)]
mod tests {
    use roadstead_hub_store::Descendants;

    use super::risk;

    #[test]
    fn a_child_with_many_objects_or_with_volumes_is_held() {
        let of = |objects, has_volumes| risk(Descendants { objects, has_volumes });
        assert_eq!(of(249, false), None);
        assert_eq!(of(500, false).as_deref(), Some("owns 500 objects, which would be deleted with it"));
        assert_eq!(of(1, true).as_deref(), Some("owns PersistentVolumes or claims, whose data may be lost"));
    }
}
