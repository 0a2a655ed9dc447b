//! What is held after the database was restored, because what it says may be older than what clusters have.

use roadstead_api::Reference;
use roadstead_hub_store::{LostAttempt, Stored};

use crate::delivery::situation::shown;
use crate::objects::triggers;

/// For people: why a source is waited for that has an artifact.
pub(super) fn waits_for(reference: &Reference) -> String {
    format!(
        "the database was restored, and {} has not been fetched since: it may have a newer revision",
        shown(reference)
    )
}

/// Why an applier is not reconciled although its source was looked at: its spec, or its suspended source, may be older than what the
/// cluster was given. Whoever writes the spec or asks for a reconciliation says that it is what is wanted.
pub(super) fn older_than_applied(
    stored: &Stored,
    lost: &LostAttempt,
    suspended: Option<&Reference>,
    cluster: &str,
) -> Option<String> {
    let LostAttempt { generation, found_generation, found_request } = lost;
    if stored.generation != found_generation.0 || triggers::request(stored) != *found_request {
        return None;
    }
    let (kind, namespace, name) = (stored.kind.get().plural, &stored.namespace, &stored.name);
    let otherwise = format!(
        "to have this one applied: kubectl annotate {kind} {name} -n {namespace} --overwrite \
         reconcile.fluxcd.io/requestedAt=\"$(date +%s)\""
    );
    if generation.0 > stored.generation {
        return Some(format!(
            "the database was restored: the agent of cluster {cluster} was given generation {generation} of this object, and the database has \
             generation {}. Apply its newest manifest again, or, {otherwise}",
            stored.generation
        ));
    }
    let suspended = suspended?;
    Some(format!(
        "the database was restored: the agent of cluster {cluster} was given something newer, and {} is suspended, so its artifact may be \
         older. Resume it, or, {otherwise}",
        shown(suspended)
    ))
}
