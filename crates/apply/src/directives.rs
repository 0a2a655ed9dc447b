//! What an object says itself about how it is to be dealt with, in a label or annotation under
//! `kustomize.toolkit.fluxcd.io/`.

use serde_json::Value;

const PREFIX: &str = "kustomize.toolkit.fluxcd.io/";

/// `ssa`: what to do about fields and objects of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ssa {
    /// Revert what kubectl and other tools did to the object.
    #[default]
    Override,
    /// Keep fields that other tools added.
    Merge,
    /// Create, never change.
    IfNotPresent,
    /// Do nothing.
    Ignore,
}

/// What an object asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Directives {
    pub(crate) never_prune: bool,
    pub(crate) never_reconcile: bool,
    pub(crate) force: bool,
    pub(crate) ssa: Ssa,
}

impl Directives {
    /// What `object` asks for; annotations go before labels, values are taken in any case.
    pub(crate) fn of(object: &Value) -> Self {
        let says = |key: &str, wanted: &str| {
            value(object, key).is_some_and(|value| value.eq_ignore_ascii_case(wanted))
        };
        let ssa = match value(object, "ssa").map(str::to_ascii_lowercase).as_deref() {
            Some("merge") => Ssa::Merge,
            Some("ifnotpresent") => Ssa::IfNotPresent,
            Some("ignore") => Ssa::Ignore,
            _ => Ssa::Override,
        };
        Self {
            never_prune: says("prune", "disabled"),
            never_reconcile: says("reconcile", "disabled"),
            force: says("force", "enabled"),
            ssa,
        }
    }

    /// Whether `object` says anything about how it is to be applied.
    pub(crate) fn are_said(object: &Value) -> bool {
        ["ssa", "reconcile"].iter().any(|key| value(object, key).is_some())
    }
}

fn value<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    let metadata = object.get("metadata")?;
    let key = format!("{PREFIX}{key}");
    ["annotations", "labels"].iter().find_map(|map| metadata.get(map)?.get(&key)?.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Directives, Ssa};

    #[test]
    fn labels_and_annotations_in_any_case() {
        let object = json!({"metadata": {
            "labels": {"kustomize.toolkit.fluxcd.io/prune": "Disabled", "kustomize.toolkit.fluxcd.io/ssa": "merge"},
            "annotations": {
                "kustomize.toolkit.fluxcd.io/reconcile": "disabled",
                "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent",
            },
        }});
        let wanted =
            Directives { never_prune: true, never_reconcile: true, force: false, ssa: Ssa::IfNotPresent };
        assert_eq!(Directives::of(&object), wanted);
        assert_eq!(Directives::of(&json!({"metadata": {"labels": null}})), Directives::default());
    }
}
