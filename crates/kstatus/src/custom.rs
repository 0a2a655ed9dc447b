//! Kinds that run nothing themselves, and kinds that kstatus knows nothing about.

use crate::Health;
use crate::fields::Fields;

pub(crate) fn persistent_volume_claim(fields: &Fields<'_>) -> Health {
    match fields.text("/status/phase") {
        "Bound" => Health::current("PVC is Bound"),
        "" => Health::in_progress("PVC is not Bound, it has no phase yet"),
        phase => Health::in_progress(format!("PVC is not Bound, its phase is {phase}")),
    }
}

pub(crate) fn service(fields: &Fields<'_>) -> Health {
    if fields.text("/spec/type") == "LoadBalancer" && fields.text("/spec/clusterIP").is_empty() {
        return Health::in_progress("ClusterIP not set, Service type: LoadBalancer");
    }
    Health::current("Service is ready")
}

pub(crate) fn custom_resource_definition(fields: &Fields<'_>) -> Health {
    for condition in fields.conditions() {
        match condition.kind {
            "NamesAccepted" if condition.is_false() => return Health::failed(condition.explain()),
            "Established" if condition.is_false() && condition.reason != "Installing" => {
                return Health::failed(condition.explain());
            }
            "Established" if condition.is_true() => return Health::current("CRD is established"),
            _ => {}
        }
    }
    Health::in_progress("Install in progress")
}

/// A kind without rules of its own: its `Ready` condition decides, and without one it is what its spec says.
pub(crate) fn by_ready_condition(fields: &Fields<'_>) -> Health {
    match fields.condition("Ready") {
        Some(ready) if ready.is_true() => Health::current("Resource is Ready"),
        Some(ready) => Health::in_progress(ready.explain()),
        None => Health::current("Resource is current"),
    }
}
