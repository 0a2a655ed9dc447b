//! The log lines of reconciliations. Those of Kustomizations are as Flux's kustomize-controller wrote them in v1alpha1, with exactly
//! its keys: `kustomization`, `output`, `error`. Those of other kinds have the same form, and name the kind.

use std::time::Duration;

use roadstead_api::KindId;
use roadstead_hub_store::Stored;
use roadstead_model::{ChangeSet, GoDuration};

/// Logs a line about an applier: a level, the applier, its fields, and the text.
macro_rules! line {
    ($level:ident, $stored:expr, { $($fields:tt)* } $(, $text:literal)?) => {
        if $stored.kind == KindId::Kustomization {
            tracing::$level!(
                target: "controllers.Kustomization", kustomization = name($stored), $($fields)* $($text)?
            );
        } else {
            tracing::$level!(
                target: "controllers.Applier", kind = %$stored.kind, applier = name($stored), $($fields)* $($text)?
            );
        }
    };
}

fn name(stored: &Stored) -> String {
    format!("{}/{}", stored.namespace, stored.name)
}

/// An apply went through.
pub(crate) fn applier_applied(stored: &Stored, took: Duration, change_set: &ChangeSet) {
    done(stored, "applied", took, change_set);
}

/// All that an applier owned on a cluster was deleted there.
pub(crate) fn applier_pruned(stored: &Stored, took: Duration, change_set: &ChangeSet) {
    done(stored, "pruned", took, change_set);
}

fn done(stored: &Stored, what: &str, took: Duration, change_set: &ChangeSet) {
    let output: serde_json::Map<String, serde_json::Value> = change_set
        .iter()
        .map(|result| (result.object.kubectl_name(), result.action.as_str().into()))
        .collect();
    let output = serde_json::Value::Object(output).to_string();
    let (kind, took) = (stored.kind, GoDuration(took));
    line!(info, stored, { output, }, "{kind} {what} in {took}");
}

/// An attempt failed. The text is the condition's.
pub(crate) fn applier_failed(stored: &Stored, error: &str) {
    line!(error, stored, { error });
}

/// Something stands in the way of an attempt, in the condition's text. What it `waits` for comes by itself, or tells of its
/// own failures.
pub(crate) fn applier_held(stored: &Stored, message: &str, waits: bool) {
    if waits {
        line!(info, stored, {}, "{message}");
    } else {
        applier_failed(stored, message);
    }
}

/// A deleted applier is gone; `orphaned` tells why objects stay, where any do.
pub(crate) fn applier_released(stored: &Stored, orphaned: Option<&str>) {
    let kind = stored.kind;
    match orphaned {
        None => line!(info, stored, {}, "{kind} deleted"),
        Some(why) => line!(warn, stored, {}, "{kind} deleted; {why}"),
    }
}
