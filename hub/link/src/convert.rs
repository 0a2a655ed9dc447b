//! Between the protocol's checked values and the hub's own.

use std::time::Duration;

use roadstead_hub_core::{AgentDispatch, DispatchFailure, DispatchResult, DispatchStep};
use roadstead_proto::{Dispatch, Finished, ServiceAccount, Step};

/// Where a namespaced object names no namespace, the cluster's `default` is meant, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// A dispatch as it is sent.
pub(crate) fn dispatch(dispatch: AgentDispatch) -> Dispatch {
    let plan = dispatch.plan;
    Dispatch {
        key: dispatch.key,
        namespace: plan.namespace,
        name: plan.name,
        service_account: plan.service_account.map(|(namespace, name)| ServiceAccount { namespace, name }),
        inventory: dispatch.inventory,
        timeout: Duration::from_millis(plan.timeout_millis),
        steps: plan.steps.into_iter().map(step).collect(),
        default_namespace: DEFAULT_NAMESPACE.to_owned(),
    }
}

fn step(step: DispatchStep) -> Step {
    match step {
        DispatchStep::Apply { force } => Step::Apply { force },
        DispatchStep::Prune => Step::Prune,
        DispatchStep::Wait { objects, all } => Step::Wait { objects, all },
        DispatchStep::Delete => Step::Delete,
    }
}

/// What came of a dispatch.
pub(crate) fn finished(finished: Finished) -> DispatchResult {
    DispatchResult {
        key: finished.key,
        failure: finished.failure.map(|failure| DispatchFailure {
            stage: failure.stage,
            message: failure.message,
            cancelled: failure.cancelled,
        }),
        change_set: finished.change_set,
        inventory: finished.inventory,
        timings: finished.timings,
    }
}
