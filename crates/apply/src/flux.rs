//! A Flux in the same cluster: whose an object is by its labels, what one of its Kustomizations says that it has applied, and how
//! objects come from it and go back to it.

use std::collections::BTreeSet;

use roadstead_model::{
    Action, ApplierUid, FluxKustomization, MAX_OBJECTS, ObjectRef, PendingDeletion, Stage,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::deletions::uid;
use crate::directives::{Directives, Ssa};
use crate::engine::{Engine, is_secret};
use crate::error::{FailureKind, ObjectFailure};
use crate::failure::explain;
use crate::run::{Event, Outcome, Run};
use crate::side_by_side::side_by_side;
use crate::stage::json_patch;
use crate::takeover::{Adopts, Restarts, merged, takeover};
use crate::{Error, FIELD_MANAGER, OWNER_LABEL};

/// As Flux's controller for Kustomizations is called among the managers of fields.
pub(crate) const FLUX: &str = "kustomize-controller";

/// The labels by which Flux knows what is its own: a Kustomization's name and namespace.
pub(crate) const OWNER_LABELS: [&str; 2] =
    ["kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace"];

/// Says that [`PRUNE`] is ours: it keeps a Flux that still runs from deleting what was adopted, and nobody else.
const ADOPTED_FROM: (&str, &str) = ("fleet.roadstead.dev/adopted-from", "Flux");

/// What a Flux that prunes leaves alone.
const PRUNE: (&str, &str) = ("kustomize.toolkit.fluxcd.io/prune", "disabled");

/// How often an object is looked at again that others change meanwhile.
const TRIES: usize = 4;

/// What separates the parts of an inventory's ids, and what stands in them for the colon in names.
const SEPARATOR: char = '_';
const COLON: &str = "__";

/// Why an inventory of Flux's cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// More entries than there may be objects.
    #[error("its inventory has {count} entries, and {MAX_OBJECTS} are the most that are read in")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// An entry that names no object.
    #[error("entry {index} of its inventory, {id:?}, does not name an object")]
    Entry {
        /// Which one, from 0.
        index: usize,
        /// Its beginning.
        id: String,
    },
}

/// A Kustomization of Flux, as an object.
#[must_use]
pub fn reference(of: &FluxKustomization) -> ObjectRef {
    ObjectRef {
        group: "kustomize.toolkit.fluxcd.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Kustomization".to_owned(),
        namespace: of.namespace.clone(),
        name: of.name.clone(),
    }
}

/// What a Kustomization of Flux says that it has applied.
///
/// # Errors
/// Where that is more than is read in, or an entry is not one.
pub fn inventory(kustomization: &Value) -> Result<Vec<ObjectRef>, InventoryError> {
    let entries = kustomization.pointer("/status/inventory/entries").and_then(Value::as_array);
    let entries = entries.map(Vec::as_slice).unwrap_or_default();
    if entries.len() > MAX_OBJECTS {
        return Err(InventoryError::TooMany { count: entries.len() });
    }
    let read = |(index, entry): (usize, &Value)| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let id = text("id");
        parse_id(id, text("v"))
            .ok_or_else(|| InventoryError::Entry { index, id: id.chars().take(100).collect() })
    };
    entries.iter().enumerate().map(read).collect()
}

/// The object that an id of an inventory names: `namespace_name_group_kind`, where a colon of the name is `__`.
#[must_use]
pub fn parse_id(id: &str, version: &str) -> Option<ObjectRef> {
    let (namespace, rest) = id.split_once(SEPARATOR)?;
    let (rest, kind) = rest.rsplit_once(SEPARATOR)?;
    let (name, group) = rest.rsplit_once(SEPARATOR)?;
    let name = name.replace(COLON, ":");
    let plain = |text: &str| {
        text.len() <= 253 && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.')
    };
    let filled = |text: &str| plain(text) && !text.is_empty() && !text.starts_with('.');
    let is_name = !name.is_empty()
        && name.len() <= 253
        && name != "."
        && name != ".."
        && !name.contains([SEPARATOR, '/', '%']);
    (is_name && plain(namespace) && plain(group) && filled(kind) && filled(version)).then(|| ObjectRef {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name,
    })
}

/// The Kustomization of Flux that an object's labels say it is of.
pub(crate) fn owner(object: &Value) -> Option<FluxKustomization> {
    let labels = object.get("metadata")?.get("labels")?;
    let text = |key: &str| labels.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(FluxKustomization { name: text(OWNER_LABELS[0])?, namespace: text(OWNER_LABELS[1])? })
}

/// Has an object that is to be applied say that a Flux does not prune it: one that still runs puts its labels on again when it
/// reconciles, and would delete it with its Kustomization. An object that says itself whether it is pruned stays as it is.
pub(crate) fn shield(object: &mut Value) {
    let says_itself = ["annotations", "labels"].iter().any(|map| {
        let map = object.get("metadata").and_then(|metadata| metadata.get(map));
        map.is_some_and(|map| map.get(PRUNE.0).is_some())
    });
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata.filter(|_| !says_itself) else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    let Some(annotations) = annotations.as_object_mut() else { return };
    for (key, value) in [PRUNE, ADOPTED_FROM] {
        annotations.insert(key.to_owned(), value.into());
    }
}

/// Whether what keeps a Flux from pruning this object is ours.
pub(crate) fn is_shielded(live: &Value) -> bool {
    let annotation = |key: &str| live.get("metadata")?.get("annotations")?.get(key)?.as_str();
    annotation(ADOPTED_FROM.0) == Some(ADOPTED_FROM.1)
}

/// Whether an object is part of Flux itself: what it applies others by, and its own installation. It is not read in.
fn is_flux_itself(object: &ObjectRef, live: &Value) -> bool {
    let is_group = |group: &str| group.ends_with(".fluxcd.io") || group.ends_with("fluxcd.controlplane.io");
    let is_definition = object.kind == "CustomResourceDefinition" && is_group(&object.name);
    let label = live.pointer("/metadata/labels/app.kubernetes.io~1part-of").and_then(Value::as_str);
    is_group(&object.group) || is_definition || label == Some("flux")
}

/// Whether an object is still that Kustomization's, and may become ours to prune.
fn is_claimable(object: &ObjectRef, live: &Value, of: &FluxKustomization) -> bool {
    let asked = Directives::of(live);
    let is_owned = live.pointer("/metadata/labels").is_some_and(|labels| labels.get(OWNER_LABEL).is_some());
    let stays = asked.never_prune || asked.never_reconcile || asked.ssa == Ssa::Ignore;
    owner(live).as_ref() == Some(of) && !is_owned && !stays && !is_flux_itself(object, live)
}

/// The JSON patch that makes an object of Flux ours, whatever it holds.
fn claim(live: &Value, by: ApplierUid) -> Option<Value> {
    let adopts = Adopts { flux: true, ..Adopts::default() };
    let mut patch = takeover(live, Restarts::Stay, &adopts)?;
    let label = OWNER_LABEL.replace('/', "~1");
    let own = json!({"op": "add", "path": format!("/metadata/labels/{label}"), "value": by.to_string()});
    patch.as_array_mut()?.push(own);
    Some(patch)
}

/// The JSON patch that gives an object of ours to Flux, as if its controller had applied it; none where it is not `by`'s.
fn give_back(live: &Value, by: ApplierUid) -> Option<Value> {
    let metadata = live.get("metadata")?;
    if metadata.get("labels")?.get(OWNER_LABEL)?.as_str() != Some(by.to_string().as_str()) {
        return None;
    }
    let mut patch = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion")?}),
        json!({"op": "remove", "path": format!("/metadata/labels/{}", OWNER_LABEL.replace('/', "~1"))}),
    ];
    let mut gone = vec![("f:labels", OWNER_LABEL)];
    if is_shielded(live) {
        for (key, _) in [PRUNE, ADOPTED_FROM] {
            gone.push(("f:annotations", key));
            if metadata.get("annotations").is_some_and(|annotations| annotations.get(key).is_some()) {
                let path = format!("/metadata/annotations/{}", key.replace('/', "~1"));
                patch.push(json!({"op": "remove", "path": path}));
            }
        }
    }
    let entries = metadata.get("managedFields").and_then(Value::as_array);
    let is_ours = |entry: &&Value| {
        entry.get("manager").is_some_and(|manager| manager == FIELD_MANAGER)
            && entry.get("subresource").and_then(Value::as_str).unwrap_or_default().is_empty()
    };
    let (ours, kept): (Vec<&Value>, Vec<&Value>) = entries.into_iter().flatten().partition(is_ours);
    if !ours.is_empty() {
        let mut entries = merged(live, &ours, &kept, FLUX);
        for entry in entries.as_array_mut().into_iter().flatten().filter(|entry| entry["manager"] == FLUX) {
            for (map, key) in &gone {
                let map =
                    entry.pointer_mut(&format!("/fieldsV1/f:metadata/{map}")).and_then(Value::as_object_mut);
                map.map(|map| map.remove(&format!("f:{key}")));
            }
        }
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": entries}));
    }
    Some(Value::Array(patch))
}

impl Engine {
    /// Those of `objects` that are still what a Kustomization of Flux has applied, and may become ours to prune: not what another
    /// applier of ours owns, nor what says that it is not pruned, nor what Flux itself is made of.
    ///
    /// # Errors
    /// [`Error::Objects`] where one cannot be read.
    pub async fn claimable(
        &self,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Result<Vec<PendingDeletion>, Error> {
        let engine = &self.until(run);
        let distinct: BTreeSet<ObjectRef> = objects.iter().cloned().collect();
        let work = distinct.into_iter().map(|object| async move {
            let live = engine.find(&object).await?.map(|(_, live)| live);
            let live = live.filter(|live| is_claimable(&object, live, of));
            Ok(live.map(|live| PendingDeletion { uid: uid(&live), object, risk: None }))
        });
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        let Run { cancel, .. } = &mut *run;
        let concurrency = engine.options.concurrency;
        side_by_side(concurrency, work, &|| !cancel.is_cancelled(), &mut |looked| match looked {
            Ok(one) => found.extend(one),
            Err(failure) => failures.push(failure),
        })
        .await;
        run.check(Stage::Prune)?;
        if !failures.is_empty() {
            return Err(Error::objects(Stage::Prune, failures));
        }
        found.sort_by(|a: &PendingDeletion, b| a.object.cmp(&b.object));
        Ok(found)
    }

    /// Makes objects of a Kustomization of Flux ours: they bear our label in place of its own, and nothing else of them changes. The
    /// outcome's inventory is those that are.
    pub async fn claim(
        &self,
        owner: ApplierUid,
        of: &FluxKustomization,
        objects: &[ObjectRef],
        run: &mut Run<'_>,
    ) -> Outcome {
        let patch = |object: &ObjectRef, live: &Value| {
            is_claimable(object, live, of).then(|| claim(live, owner)).flatten()
        };
        let mut outcome = self.until(run).change_hands(objects, &patch, Action::Adopted, run).await;
        outcome.inventory = changed(&outcome).cloned().collect();
        outcome
    }

    /// Lets go of everything in `inventory` that is `owner`'s: its label goes, and the fields that we have applied are Flux's
    /// controller's. Nothing else changes. The outcome's inventory is what could not be given back.
    pub async fn give_back(&self, owner: ApplierUid, inventory: &[ObjectRef], run: &mut Run<'_>) -> Outcome {
        let patch = |_: &ObjectRef, live: &Value| give_back(live, owner);
        let mut outcome = self.until(run).change_hands(inventory, &patch, Action::Configured, run).await;
        if outcome.error.is_some() {
            let done: BTreeSet<&ObjectRef> = outcome.changes.iter().map(|change| &change.object).collect();
            outcome.inventory = inventory.iter().filter(|object| !done.contains(object)).cloned().collect();
        }
        outcome
    }

    /// Patches those objects for which there is a patch; the others are skipped, or are gone.
    async fn change_hands(
        &self,
        objects: &[ObjectRef],
        patch: &(dyn Fn(&ObjectRef, &Value) -> Option<Value> + Sync),
        action: Action,
        run: &mut Run<'_>,
    ) -> Outcome {
        let began = Instant::now();
        let (mut outcome, mut failures) = (Outcome::default(), Vec::new());
        let objects: Vec<ObjectRef> = objects.to_vec();
        let work = objects.into_iter().map(|object| async move {
            let changed = self.change_hands_of(&object, patch).await;
            (object, changed)
        });
        let Run { cancel, events, .. } = &mut *run;
        side_by_side(self.options.concurrency, work, &|| !cancel.is_cancelled(), &mut |(object, changed)| {
            match changed {
                Ok(changed) => {
                    let action = if changed { action } else { Action::Skipped };
                    events(Event::Applied(outcome.changed(object, action)));
                }
                Err(failure) => failures.push(failure),
            }
        })
        .await;
        if let Err(error) = run.check(Stage::Prune) {
            outcome.error = Some(error);
        } else if !failures.is_empty() {
            outcome.error = Some(Error::objects(Stage::Prune, failures));
        }
        outcome.spent(Stage::Prune, began);
        outcome
    }

    /// Patches one object, with a fresh look where it changed since. False where there is nothing to be done.
    async fn change_hands_of(
        &self,
        object: &ObjectRef,
        patch: &(dyn Fn(&ObjectRef, &Value) -> Option<Value> + Sync),
    ) -> Result<bool, ObjectFailure> {
        for _ in 0..TRIES {
            let Some((resource, live)) = self.find(object).await? else { return Ok(false) };
            let path = resource.path(object);
            let Some(patch) = patch(object, &live) else { return Ok(false) };
            match self.transport.send(&json_patch(&path, &patch)).await {
                Ok(_) => return Ok(true),
                Err(refusal) if refusal.is_not_found() => return Ok(false),
                // The patch's test of the resource version fails as 422.
                Err(refusal) if matches!(refusal.code(), Some(409 | 422)) => {}
                Err(refusal) => return Err(explain(object, &refusal, is_secret(object))),
            }
        }
        let message = "other clients keep changing it while it changes hands".to_owned();
        Err(ObjectFailure { object: object.clone(), kind: FailureKind::Conflict, message })
    }
}

/// What was written.
fn changed(outcome: &Outcome) -> impl Iterator<Item = &ObjectRef> {
    outcome.changes.iter().filter(|change| change.action.wrote()).map(|change| &change.object)
}

#[cfg(test)]
mod tests;
