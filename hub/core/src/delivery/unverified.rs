//! What was decrypted although its MAC does not match, where `spec.decryption.mac` or `--sops-mac` is `Warn`: how that is told.
//!
//! What the hub decrypted it notes with the dispatch, and what its agent decrypted comes with the result. Both are told with the result: by a
//! Warning Event, in the attempt's message, and by a condition for as long as that is what is applied.

use jiff::Timestamp;
use roadstead_api::{Condition, ConditionStatus};
use roadstead_finish::first_warnings;
use roadstead_hub_store::{StoreError, Stored, Tx};
use roadstead_model::{DispatchSpec, Reason};

use crate::delivery::results::DispatchResult;
use crate::objects::conditions::{self, MAC_NOT_VERIFIED};
use crate::objects::events;

/// What of a dispatch was decrypted so: one text for all of it; none where nothing was.
pub(super) fn told(spec: &DispatchSpec, result: &DispatchResult) -> Option<String> {
    let all: Vec<String> = spec.warnings.iter().chain(&result.warnings).cloned().collect();
    let told = (!all.is_empty())
        .then(|| format!("decrypted although the MAC does not match: {}", first_warnings(all).join("; ")));
    told.map(|told| conditions::shortened(&told))
}

/// What the history says of an attempt.
pub(super) fn beside(message: &str, unverified: Option<&str>) -> String {
    match unverified {
        Some(unverified) => format!("{message}; {unverified}"),
        None => message.to_owned(),
    }
}

/// Says it of what is applied now, or that nothing of that was decrypted so.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    unverified: Option<&str>,
    generation: i64,
    now: Timestamp,
) {
    match unverified {
        Some(unverified) => {
            let (true_, reason) = (ConditionStatus::True, Reason::MacNotVerified);
            conditions::set(conditions, MAC_NOT_VERIFIED, true_, reason, unverified, generation, now);
        }
        None => conditions.retain(|condition| condition.type_ != MAC_NOT_VERIFIED),
    }
}

/// Notes the Event that tells it.
pub(super) async fn note(
    tx: &mut Tx,
    about: &Stored,
    unverified: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let why = "spec.decryption.mac or the hub's --sops-mac is Warn";
    events::warn_once(tx, about, Reason::MacNotVerified, &format!("{unverified} ({why})"), now).await
}
