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
