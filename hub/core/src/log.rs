//! The log lines of reconciliations, as Flux's kustomize-controller wrote them in v1alpha1, with exactly its keys:
//! `kustomization`, `output`, `error`.

use std::time::Duration;

use roadstead_hub_store::Stored;
use roadstead_model::{ChangeSet, GoDuration};

/// The `logger` of these lines.
macro_rules! logger {
    () => {
        "controllers.Kustomization"
    };
}

fn name(stored: &Stored) -> String {
    format!("{}/{}", stored.namespace, stored.name)
}

/// An apply went through.
pub(crate) fn applier_applied(stored: &Stored, took: Duration, change_set: &ChangeSet) {
    done(stored, "applied", took, change_set);
}

/// All that a Kustomization owned on a cluster was deleted there.
pub(crate) fn applier_pruned(stored: &Stored, took: Duration, change_set: &ChangeSet) {
    done(stored, "pruned", took, change_set);
}

fn done(stored: &Stored, what: &str, took: Duration, change_set: &ChangeSet) {
    let output: serde_json::Map<String, serde_json::Value> = change_set
        .iter()
        .map(|result| (result.object.kubectl_name(), result.action.as_str().into()))
        .collect();
    tracing::info!(
        target: logger!(),
        kustomization = name(stored),
        output = serde_json::Value::Object(output).to_string(),
        "Kustomization {what} in {}",
        GoDuration(took)
    );
}

/// An attempt failed. The text is the condition's.
pub(crate) fn applier_failed(stored: &Stored, error: &str) {
    tracing::error!(target: logger!(), kustomization = name(stored), error);
}

/// Something stands in the way of an attempt, in the condition's text. What it `waits` for comes by itself, or tells of its
/// own failures.
pub(crate) fn applier_held(stored: &Stored, message: &str, waits: bool) {
    if waits {
        tracing::info!(target: logger!(), kustomization = name(stored), "{message}");
    } else {
        applier_failed(stored, message);
    }
}

/// A deleted Kustomization is gone; `orphaned` tells why objects stay, where any do.
pub(crate) fn applier_released(stored: &Stored, orphaned: Option<&str>) {
    match orphaned {
        None => tracing::info!(target: logger!(), kustomization = name(stored), "Kustomization deleted"),
        Some(why) => {
            tracing::warn!(target: logger!(), kustomization = name(stored), "Kustomization deleted; {why}");
        }
    }
}
