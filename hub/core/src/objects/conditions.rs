//! How the hub writes conditions, so that all say the same thing in the same way.

use jiff::Timestamp;
use roadstead_api::{Condition, ConditionStatus, Time, set_condition};
use roadstead_model::Reason;

/// Conditions are read by people and kept in every watcher's memory.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// The type of the condition that says whether all is well.
pub(crate) const READY: &str = "Ready";
/// The type of the condition that says that `spec.suspend` is set.
pub(crate) const SUSPENDED: &str = "Suspended";

/// The type of the condition that says that a reconciliation is under way, or is tried again. Absent else.
pub(crate) const RECONCILING: &str = "Reconciling";
/// The type of the condition that says that nothing happens until someone changes something. Absent else.
pub(crate) const STALLED: &str = "Stalled";
/// The type of the condition that says whether what was applied is healthy, where that is asked for.
pub(crate) const HEALTHY: &str = "Healthy";

/// The type of the condition that says that objects differ from what was applied, and go on doing so. Absent else.
pub(crate) const DRIFTED: &str = "Drifted";
/// The type of the condition that says that what is applied was decrypted although MACs do not match. Absent else.
pub(crate) const MAC_NOT_VERIFIED: &str = "MacNotVerified";
/// The type of the condition that says that somebody changes objects each time they are corrected. Absent else.
pub(crate) const CONTENDED: &str = "Contended";

/// The type of a Cluster's condition that says that an operator there has paused its agent. Absent else.
pub(crate) const PAUSED: &str = "Paused";
/// The type of a Cluster's condition that says that not all that was applied can be watched. Absent else.
pub(crate) const WATCHED: &str = "Watched";

/// Reasons for which trying again is of no use.
const STALLS: [Reason; 3] = [Reason::AccessDenied, Reason::FeatureGateDisabled, Reason::InvalidCELExpression];

/// Whether a reconciliation with this outcome is not tried again by itself, as Flux has it.
pub(crate) fn is_stalled(ready: ConditionStatus, reason: Reason) -> bool {
    ready == ConditionStatus::False && STALLS.contains(&reason)
}

/// Sets a condition of `conditions`.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: Reason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    set_condition(
        conditions,
        Condition {
            type_: type_.to_owned(),
            status,
            last_transition_time: Time(now),
            reason: reason.as_str().to_owned(),
            message: shortened(message),
            observed_generation: Some(generation),
        },
    );
}

/// Sets Ready and, as Flux has them, Reconciling and Stalled, which are there only while they are true.
pub(crate) fn set_ready(
    conditions: &mut Vec<Condition>,
    ready: ConditionStatus,
    reason: Reason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    set(conditions, READY, ready, reason, message, generation, now);
    let (type_, reason) = match ready {
        ConditionStatus::True => (None, reason),
        _ if is_stalled(ready, reason) => (Some(STALLED), reason),
        ConditionStatus::False if reason != Reason::Progressing => {
            (Some(RECONCILING), Reason::ProgressingWithRetry)
        }
        _ => (Some(RECONCILING), Reason::Progressing),
    };
    set_outlook(conditions, type_.map(|type_| (type_, reason, message)), generation, now);
}

/// Sets Ready to False, and Reconciling or Stalled with its reason to True: the one that `outlook` names.
pub(crate) fn set_not_ready(
    conditions: &mut Vec<Condition>,
    (reason, message): (Reason, &str),
    (type_, because): (&str, Reason),
    generation: i64,
    now: Timestamp,
) {
    set(conditions, READY, ConditionStatus::False, reason, message, generation, now);
    set_outlook(conditions, Some((type_, because, message)), generation, now);
}

/// Of Reconciling and Stalled, one is there or none.
fn set_outlook(
    conditions: &mut Vec<Condition>,
    outlook: Option<(&str, Reason, &str)>,
    generation: i64,
    now: Timestamp,
) {
    let type_ = outlook.map(|(type_, ..)| type_);
    let lapsed = |condition: &Condition| {
        let own = condition.type_.as_str();
        [RECONCILING, STALLED].contains(&own) && Some(own) != type_
    };
    conditions.retain(|condition| !lapsed(condition));
    if let Some((type_, reason, message)) = outlook {
        set(conditions, type_, ConditionStatus::True, reason, message, generation, now);
    }
}

/// Says that `spec.suspend` is set, and what stays as it is because of that.
pub(crate) fn set_suspended(
    conditions: &mut Vec<Condition>,
    what_stays: &str,
    generation: i64,
    now: Timestamp,
) {
    let message = format!("spec.suspend is set: {what_stays} stays as it is");
    set(conditions, SUSPENDED, ConditionStatus::True, Reason::Suspended, &message, generation, now);
}

/// The condition of this type.
pub(crate) fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The Ready condition.
pub(crate) fn ready(conditions: &[Condition]) -> Option<&Condition> {
    find(conditions, READY)
}

/// Whether the condition of this type is True for this generation.
pub(crate) fn is_true(conditions: &[Condition], type_: &str, generation: i64) -> bool {
    find(conditions, type_).is_some_and(|condition| {
        condition.status == ConditionStatus::True
            && condition.observed_generation.is_none_or(|observed| observed == generation)
    })
}

/// `message`, cut where it is longer than anyone reads.
pub(crate) fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", &message[..end]),
    }
}
