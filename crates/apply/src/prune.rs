//! Deleting what is no longer wanted: only what is ours, only what was looked at, in reverse order.

use std::collections::BTreeSet;

use roadstead_model::{Action, ApplierUid, ObjectRef, Stage};
use serde_json::Value;
use tokio::time::Instant;

use crate::directives::{Directives, Ssa};
use crate::engine::Engine;
use crate::error::{FailureKind, ObjectFailure};
use crate::flux;
use crate::run::{Event, Outcome, Run};
use crate::side_by_side::side_by_side;
use crate::{Error, FIELD_MANAGER, OWNER_LABEL, order, stage};

/// How often an object is looked at that is replaced between look and deletion.
const TRIES: usize = 3;

pub(crate) async fn prune(
    engine: &Engine,
    owner: ApplierUid,
    inventory: &[ObjectRef],
    keep: &[ObjectRef],
    run: &mut Run<'_>,
) -> Outcome {
    let began = Instant::now();
    let kept: BTreeSet<&ObjectRef> = keep.iter().collect();
    let stale: BTreeSet<ObjectRef> =
        inventory.iter().filter(|object| !kept.contains(object)).cloned().collect();
    let mut remaining = stale.clone();
    let mut outcome = Outcome::default();
    let mut failures = Vec::new();
    let owner = owner.to_string();
    for group in order::for_deletion(stale.into_iter().collect(), &engine.options.custom_stage_kinds) {
        let owner = owner.as_str();
        let work = group.into_iter().map(|object| async move {
            let result = prune_one(engine, owner, &object).await;
            (object, result)
        });
        let Run { cancel, events, .. } = &mut *run;
        side_by_side(engine.options.concurrency, work, &|| !cancel.is_cancelled(), &mut |(
            object,
            result,
        )| {
            match result {
                Ok(action) => {
                    remaining.remove(&object);
                    if let Some(action) = action {
                        events(Event::Pruned(outcome.changed(object, action)));
                    }
                }
                Err(failure) => failures.push(failure),
            }
        })
        .await;
        if let Err(error) = run.check(Stage::Prune) {
            outcome.error = Some(error);
            break;
        }
    }
    if !failures.is_empty() {
        outcome.error = Some(Error::objects(Stage::Prune, failures));
    }
    remaining.extend(keep.iter().cloned());
    outcome.inventory = remaining.into_iter().collect();
    outcome.spent(Stage::Prune, began);
    outcome
}

/// Deletes one object if it is ours and does not say otherwise. `None`: it was gone already.
async fn prune_one(
    engine: &Engine,
    owner: &str,
    object: &ObjectRef,
) -> Result<Option<Action>, ObjectFailure> {
    let mut tries = 0;
    loop {
        let Some((resource, live)) = engine.find(object).await? else { return Ok(None) };
        if !is_prunable(&live, owner) {
            return Ok(Some(Action::Skipped));
        }
        tries += 1;
        match stage::delete(engine, object, resource.path(object), &live).await {
            Ok(()) => return Ok(Some(Action::Deleted)),
            // Another object of that name came in between; it may be someone else's.
            Err(failure) if failure.kind == FailureKind::Conflict && tries < TRIES => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Whether `live` is ours and does not ask to be left alone. A copy that somebody made of an object that was ours bears its label, too, but
/// has no fields that we applied.
pub(crate) fn is_prunable(live: &Value, owner: &str) -> bool {
    let label = live.get("metadata").and_then(|metadata| metadata.get("labels")?.get(OWNER_LABEL)?.as_str());
    let asked = Directives::of(live);
    // What shields it from a Flux is nobody's wish to keep it.
    let never_prune = asked.never_prune && !flux::is_shielded(live);
    label == Some(owner)
        && is_applied_by_us(live)
        && !never_prune
        && !asked.never_reconcile
        && asked.ssa != Ssa::Ignore
}

fn is_applied_by_us(live: &Value) -> bool {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .any(|entry| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_prunable;
    use crate::{FIELD_MANAGER, OWNER_LABEL};

    #[test]
    fn only_ours_and_only_where_nothing_says_otherwise() {
        let ours = json!([{"manager": FIELD_MANAGER, "operation": "Apply"}]);
        let live = |labels: serde_json::Value| json!({"metadata": {"labels": labels, "managedFields": ours}});
        assert!(is_prunable(&live(json!({OWNER_LABEL: "u"})), "u"));
        assert!(!is_prunable(&live(json!({OWNER_LABEL: "other"})), "u"));
        assert!(!is_prunable(&live(json!({})), "u"));
        assert!(!is_prunable(&json!({}), "u"));
        for (key, value, want) in [
            ("prune", "disabled", false),
            ("reconcile", "disabled", false),
            ("ssa", "Ignore", false),
            ("ssa", "ignore", false),
            ("ssa", "Merge", true),
            ("ssa", "IfNotPresent", true),
        ] {
            let key = format!("kustomize.toolkit.fluxcd.io/{key}");
            let labelled = live(json!({OWNER_LABEL: "u", key.as_str(): value}));
            assert_eq!(is_prunable(&labelled, "u"), want, "{key}: {value}");
            let annotated = json!({"metadata": {"labels": {OWNER_LABEL: "u"}, "annotations": {key.as_str(): value}, "managedFields": ours}});
            assert_eq!(is_prunable(&annotated, "u"), want, "{key}: {value}");
        }
        // Copies.
        for fields in [json!([{"manager": "kubectl", "operation": "Apply"}]), json!([]), json!(null)] {
            let copy = json!({"metadata": {"labels": {OWNER_LABEL: "u"}, "managedFields": fields}});
            assert!(!is_prunable(&copy, "u"), "{copy}");
        }
    }
}
