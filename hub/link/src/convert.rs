//! Between the protocol's checked values and the hub's own.

use roadstead_hub_core::clusters::UpgradeReport;
use roadstead_hub_core::delivery::{DispatchFailure, DispatchResult};
use roadstead_proto::limits::bounded;
use roadstead_proto::{Finished, v1};

/// What came of a dispatch.
pub(crate) fn finished(finished: Finished) -> DispatchResult {
    DispatchResult {
        key: finished.key,
        failure: finished.failure.map(|failure| DispatchFailure {
            step: failure.position.step,
            reason: failure.position.stage.failure(),
            message: failure.message,
            cancelled: failure.cancelled,
        }),
        change_set: finished.change_set,
        inventory: finished.inventory,
        timings: finished.timings,
        reads: finished.reads,
        found: finished.found,
    }
}

/// What an agent says of an upgrade; none where it is in a state that this version does not know.
pub(crate) fn upgrade_report(report: &v1::UpgradeReport) -> Option<UpgradeReport> {
    let state = report.state();
    let failed = match state {
        v1::UpgradeState::UnderWay => None,
        v1::UpgradeState::Failed | v1::UpgradeState::Refused => Some(bounded(&report.message)),
        v1::UpgradeState::Unspecified => return None,
    };
    let is_refused = state == v1::UpgradeState::Refused;
    Some(UpgradeReport { image: bounded(&report.image), failed, is_refused })
}
