//! Who wrote what of an object, as its `managedFields` say: enough to see from its metadata alone whether it still stands as it
//! was applied.
//!
//! Values are not in it. The apiserver takes a field from its manager's entry when another writes another value there, so a change
//! of what was applied always changes our entry, and a change of anything else never does.

use roadstead_model::ApplierUid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::flux;
use crate::keyed::{HashKey, Hasher};
use crate::takeover::{is_restart, is_taken};
use crate::{FIELD_MANAGER, OWNER_LABEL};

/// How many managers of one object are told apart. The apiserver merges the entries of plain updates beyond ten.
const MAX_MANAGERS: usize = 64;

/// What an object's metadata says of who wrote it. Hashes are keyed: none can be made to collide from outside, and none can be
/// compared with one by another key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Footprint {
    /// Whose it is by its label.
    owner: Option<ApplierUid>,
    uid: u64,
    /// The resource version, as a number; 0 where it is not a number.
    version: u64,
    /// Counts changes of what is wanted of it; 0 for kinds that do not have that.
    generation: u64,
    deleting: bool,
    /// The Kustomization of a Flux that it is of by its labels; 0 where it is of none.
    flux: u64,
    /// Our fields, and when we changed any of them last; 0 where we have none.
    ours: u64,
    /// The fields that are taken over from kubectl and the like, all together; 0 where there are none.
    edits: u64,
    others: Vec<Other>,
}

/// The fields of another manager. Those of the status are nobody's concern.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Other {
    manager: Box<str>,
    fields: u64,
    /// It applied them, or set the scale: whoever does that means to have them.
    claims: bool,
}

/// How an object stands, compared with how it was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// As it was applied, whatever happened to its status or to fields of others.
    AsApplied,
    /// It is being deleted: nothing can be done before it is gone.
    Leaving,
    /// It bears another owner's label, or fields of ours were taken by whoever applies them too, or by a scale (say, an
    /// autoscaler's): it is for the next reconciliation to settle that.
    Taken,
    /// It was changed.
    Changed,
}

impl Footprint {
    /// The resource version, as a number; 0 where it is not a number.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Of an object, or of its metadata as a `PartialObjectMetadata` has them.
    #[must_use]
    pub fn of(object: &Value, key: &HashKey) -> Self {
        let metadata = &object["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let mut footprint = Self {
            owner: metadata["labels"][OWNER_LABEL].as_str().and_then(|uid| uid.parse().ok()),
            uid: hash(key, |hasher| hasher.text(text("uid"))),
            version: text("resourceVersion").parse().unwrap_or(0),
            generation: metadata["generation"].as_u64().unwrap_or(0),
            deleting: !metadata["deletionTimestamp"].is_null(),
            flux: flux::owner(object).map_or(0, |owner| hash(key, |hasher| hasher.text(&owner.to_string()))),
            ours: 0,
            edits: 0,
            others: Vec::new(),
        };
        let entries = metadata["managedFields"].as_array().into_iter().flatten();
        for entry in entries.take(MAX_MANAGERS) {
            footprint.take(entry, key);
        }
        footprint.others.sort_by(|a, b| (&a.manager, a.fields).cmp(&(&b.manager, b.fields)));
        footprint
    }

    fn take(&mut self, entry: &Value, key: &HashKey) {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        let (manager, operation, subresource) = (text("manager"), text("operation"), text("subresource"));
        let fields = hash(key, |hasher| hasher.value(&entry["fieldsV1"]));
        if (manager, operation, subresource) == (FIELD_MANAGER, "Apply", "") {
            // The time is that of our last change: of an object that comes from a backup the fields may be the same, and their values
            // older.
            self.ours = hash(key, |hasher| {
                hasher.number(fields);
                hasher.text(text("time"));
            });
        } else if is_restart(entry) || subresource == "status" {
            // It stays, or changes all the time.
        } else if is_taken(entry) {
            self.edits = hash(key, |hasher| {
                hasher.number(self.edits);
                hasher.text(manager);
                hasher.text(operation);
                hasher.number(fields);
            });
            self.others.push(Other { manager: manager.into(), fields, claims: false });
        } else {
            let claims = operation == "Apply" || subresource == "scale";
            self.others.push(Other { manager: manager.into(), fields, claims });
        }
    }

    /// Whose it is by its label.
    #[must_use]
    pub fn owner(&self) -> Option<ApplierUid> {
        self.owner
    }

    /// Whether it has fields that we applied; a copy of an object has its labels, and the fields of whoever made the copy.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.ours != 0
    }

    /// Whether it was seen before `other` was: resource versions count up. One that is not a number is not older than any.
    #[must_use]
    pub fn is_older_than(&self, other: &Self) -> bool {
        self.version != 0 && self.version < other.version
    }

    /// Whether no field has another value in `other`, as far as can be told: who has a field already may change it without a trace in
    /// `managedFields`. Its generation tells that then; of a kind that has none any write may have.
    #[must_use]
    pub fn has_same_values(&self, other: &Self) -> bool {
        let has_generation = self.generation != 0;
        let without_version =
            |one: &Self| Self { version: if has_generation { 0 } else { one.version }, ..one.clone() };
        without_version(self) == without_version(other)
    }

    /// Whether our fields on the object that was `self`, and when we changed any of them last, are as they were.
    #[must_use]
    pub(crate) fn has_same_of_ours(&self, now: &Self) -> bool {
        self.uid == now.uid && self.ours != 0 && self.ours == now.ours
    }

    /// Whether the object that was `self` is the one in `now`, with the same owner and no fields to be taken over, and ours are others.
    #[must_use]
    pub(crate) fn differs_in_ours(&self, now: &Self) -> bool {
        let is_same = self.uid == now.uid && self.owner.is_some() && self.owner == now.owner;
        is_same && now.edits == 0 && self.ours != 0 && now.ours != 0 && self.ours != now.ours
    }

    /// How an object that was applied as `self` stands, now that it is `now`.
    #[must_use]
    pub fn compare(&self, now: &Self) -> Standing {
        if now.deleting {
            return Standing::Leaving;
        }
        if now.owner != self.owner && now.owner.is_some() {
            return Standing::Taken;
        }
        if self.uid != now.uid || self.owner != now.owner || self.edits != now.edits {
            return Standing::Changed;
        }
        // A Flux takes it for its own, and would delete it with its Kustomization.
        if self.flux != now.flux && now.flux != 0 {
            return Standing::Changed;
        }
        if self.ours == now.ours {
            return Standing::AsApplied;
        }
        let mut changed = now.others.iter().filter(|other| !self.others.contains(other)).peekable();
        if changed.peek().is_some() && changed.all(|other| other.claims) {
            return Standing::Taken;
        }
        Standing::Changed
    }

    /// Who has written since it was as `self`, as far as `now` tells: whoever only removed something is not in it.
    #[must_use]
    pub fn writers_since<'a>(&self, now: &'a Self) -> Vec<&'a str> {
        let changed = now.others.iter().filter(|other| !self.others.contains(other));
        let mut writers: Vec<&str> = changed.map(|other| &*other.manager).collect();
        writers.dedup();
        writers
    }
}

fn hash(key: &HashKey, take: impl FnOnce(&mut Hasher)) -> u64 {
    let mut hasher = key.hasher();
    take(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Footprint, HashKey, Standing};

    const OWNER: &str = "5f0c2a0e-5a53-4d0c-9d2a-000000000001";

    fn footprint(object: &Value) -> Footprint {
        Footprint::of(object, &HashKey::of_secret(b"tests"))
    }

    fn ours(fields: &Value) -> Value {
        json!({"manager": "roadstead", "operation": "Apply", "fieldsV1": fields})
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {
            "uid": "u", "resourceVersion": "7", "labels": {"fleet.roadstead.dev/owner": OWNER},
            "managedFields": entries,
        }})
    }

    fn update(manager: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "fieldsV1": fields})
    }

    #[test]
    fn what_others_write_beside_us_is_nothing() {
        let data = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let applied = footprint(&object(&[ours(&data)]));
        let status = json!({"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}});
        let annotation = update("controller", &json!({"f:metadata": {"f:annotations": {"f:x": {}}}}));
        let now = footprint(&object(&[ours(&data), status, annotation]));
        assert_eq!(applied.compare(&now), Standing::AsApplied);
        assert_eq!(applied.writers_since(&now), ["controller"]);
        let reordered = json!({"f:data": {"f:b": {}, "f:a": {}}});
        assert_eq!(applied.compare(&footprint(&object(&[ours(&reordered)]))), Standing::AsApplied);
    }

    #[test]
    fn what_is_taken_from_us_is_a_change() {
        let applied = footprint(&object(&[ours(&json!({"f:data": {"f:a": {}, "f:b": {}}}))]));
        let taken = json!({"f:data": {"f:b": {}}});
        let without = footprint(&object(&[ours(&taken)]));
        assert_eq!(applied.compare(&without), Standing::Changed, "removed");
        let by_update = [ours(&taken), update("python", &json!({"f:data": {"f:a": {}}}))];
        let now = footprint(&object(&by_update));
        assert_eq!(applied.compare(&now), Standing::Changed);
        assert_eq!(applied.writers_since(&now), ["python"]);
        let applied_by_another =
            json!({"manager": "argo", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}});
        let now = footprint(&object(&[ours(&taken), applied_by_another.clone()]));
        assert_eq!(applied.compare(&now), Standing::Taken);
        let both = [ours(&taken), applied_by_another, update("python", &json!({"f:data": {"f:c": {}}}))];
        assert_eq!(applied.compare(&footprint(&object(&both))), Standing::Changed);
        let scaled = json!({"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale",
                            "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        assert_eq!(applied.compare(&footprint(&object(&[ours(&taken), scaled]))), Standing::Taken);
    }

    #[test]
    fn edits_by_kubectl_count_but_for_restarts() {
        let data = json!({"f:spec": {"f:a": {}}});
        let applied = footprint(&object(&[ours(&data)]));
        let edit = update("kubectl-edit", &json!({"f:data": {"f:new": {}}}));
        assert_eq!(applied.compare(&footprint(&object(&[ours(&data), edit]))), Standing::Changed);
        let restart = json!({"f:spec": {"f:template": {"f:metadata": {"f:annotations": {
            ".": {}, "f:kubectl.kubernetes.io/restartedAt": {}}}}}});
        let restarted = footprint(&object(&[ours(&data), update("kubectl-rollout", &restart)]));
        assert_eq!(applied.compare(&restarted), Standing::AsApplied);
    }

    #[test]
    fn the_same_fields_of_another_time_are_a_change() {
        let at = |time: &str| {
            let entry = json!({"manager": "roadstead", "operation": "Apply", "time": time, "fieldsV1": {"f:data": {}}});
            footprint(&object(&[entry]))
        };
        let applied = at("2026-01-01T00:00:02Z");
        assert_eq!(applied.compare(&applied.clone()), Standing::AsApplied);
        assert_eq!(applied.compare(&at("2026-01-01T00:00:01Z")), Standing::Changed);
    }

    #[test]
    fn another_object_another_owner_and_one_that_goes() {
        let data = json!({"f:data": {}});
        let before = object(&[ours(&data)]);
        let applied = footprint(&before);
        let with = |pointer: &str, key: &str, value: Value| {
            let mut now = before.clone();
            now.pointer_mut(pointer).expect("it is there")[key] = value;
            footprint(&now)
        };
        assert_eq!(applied.compare(&with("/metadata", "uid", json!("other"))), Standing::Changed);
        assert_eq!(applied.compare(&with("/metadata", "labels", json!({}))), Standing::Changed);
        let handed_over =
            with("/metadata", "labels", json!({"fleet.roadstead.dev/owner": OWNER.replace('1', "2")}));
        assert_eq!(applied.compare(&handed_over), Standing::Taken);
        let leaving = with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert_eq!(applied.compare(&leaving), Standing::Leaving);
        let older = with("/metadata", "resourceVersion", json!("6"));
        assert!(older.is_older_than(&applied) && !applied.is_older_than(&older));
        let no_number = with("/metadata", "resourceVersion", json!("x"));
        assert!(!no_number.is_older_than(&applied));
    }

    #[test]
    fn values_may_change_without_a_trace_but_for_the_generation() {
        let with = |version: &str, generation: Option<u64>| {
            let mut object = object(&[update("kubectl-patch", &json!({"f:data": {"f:a": {}}}))]);
            object["metadata"]["resourceVersion"] = version.into();
            object["metadata"]["generation"] = generation.into();
            footprint(&object)
        };
        assert!(with("7", Some(1)).has_same_values(&with("8", Some(1))), "its status was written");
        assert!(!with("7", Some(1)).has_same_values(&with("8", Some(2))));
        assert!(with("7", None).has_same_values(&with("7", None)));
        assert!(!with("7", None).has_same_values(&with("8", None)));
    }

    #[test]
    fn what_a_flux_takes_for_its_own_is_changed() {
        let labelled = |labels: Value| {
            footprint(&json!({ "metadata": { "uid": "u", "resourceVersion": "1", "labels": labels } }))
        };
        let flux = |name: &str| {
            labelled(json!({
                "kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
            }))
        };
        let plain = labelled(json!({}));
        assert_eq!(plain.compare(&flux("apps")), Standing::Changed);
        assert_eq!(flux("apps").compare(&flux("apps")), Standing::AsApplied, "Git has these labels");
        assert_eq!(flux("apps").compare(&flux("other")), Standing::Changed);
        assert_eq!(flux("apps").compare(&plain), Standing::AsApplied);
    }
}
