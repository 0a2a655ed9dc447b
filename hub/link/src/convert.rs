//! Between the protocol's checked values and the hub's own.

use std::time::Duration;

use roadstead_hub_core::clusters::{AgentState, SeenAttempt, UpgradeReport};
use roadstead_hub_core::delivery::{
    AgentCorrection, CorrectedObject, DispatchFailure, DispatchResult, HealthReport, HealthState,
};
use roadstead_model::DispatchKey;
use roadstead_proto::limits::bounded;
use roadstead_proto::{ConvertError, Corrected, Correction, Finished, ObjectHealth, Unwatched, v1};

/// How long ago a correction may be said to have begun.
const MAX_AGO: Duration = Duration::from_secs(30 * 24 * 3600);

/// No hub counts so far: such a number would leave none that is newer.
const MAX_COUNT: i64 = 1 << 53;

/// The newest dispatches that an agent has seen.
pub(crate) fn seen(keys: Vec<v1::DispatchKey>) -> Result<Vec<SeenAttempt>, ConvertError> {
    let keys = roadstead_proto::convert::keys("seen", keys)?;
    let seen = keys.into_iter().map(|DispatchKey { epoch, applier, generation, attempt, .. }| SeenAttempt {
        applier,
        epoch,
        attempt,
        generation,
    });
    Ok(seen.filter(|seen| seen.epoch.0 < MAX_COUNT && seen.attempt.0 < MAX_COUNT).collect())
}

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
        held: finished.held,
        warnings: finished.warnings,
        decrypted_with: finished.decrypted_with,
    }
}

/// What an agent corrected by itself.
pub(crate) fn correction(correction: Correction) -> AgentCorrection {
    let Correction { key, ago, took, objects, forgotten } = correction;
    let object = |corrected| {
        let Corrected { object, action, managers, fields } = corrected;
        CorrectedObject { object, action, managers, fields }
    };
    // Longer ago than any agent runs without its hub: what it says of time is not believed beyond that.
    let ago = ago.min(MAX_AGO);
    AgentCorrection { key, ago, took, objects: objects.into_iter().map(object).collect(), forgotten }
}

/// What an agent does not do.
pub(crate) fn state(state: roadstead_proto::AgentState) -> AgentState {
    let roadstead_proto::AgentState { paused, unwatched, total, corrected, watched } = state;
    let unwatched = unwatched.into_iter().map(|Unwatched { what, account, why }| {
        let account = account.map(|account| format!(" as service account {account}")).unwrap_or_default();
        format!("{what}{account} ({why})")
    });
    AgentState { paused, unwatched: unwatched.collect(), total, corrected, watched }
}

/// What an agent tells of health.
pub(crate) fn health(report: roadstead_proto::HealthReport) -> HealthReport {
    let roadstead_proto::HealthReport { key, state, message, recovered, objects } = report;
    let state = match state {
        roadstead_proto::HealthState::Waiting => HealthState::Waiting,
        roadstead_proto::HealthState::Healthy => HealthState::Healthy,
        roadstead_proto::HealthState::Progressing => HealthState::Progressing,
        roadstead_proto::HealthState::Failing => HealthState::Failing,
    };
    let health = |one: ObjectHealth| {
        let ObjectHealth { object, status, message } = one;
        let text = if message.is_empty() { status.to_string() } else { format!("{status}: {message}") };
        (object, text)
    };
    HealthReport { key, state, message, recovered, objects: objects.into_iter().map(health).collect() }
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
