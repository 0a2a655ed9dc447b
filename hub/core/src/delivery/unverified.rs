//! What was decrypted though its MAC does not fit, where `spec.decryption.mac` or `--sops-mac` is `Warn`: how that is told.
//!
//! What the hub decrypted it notes with the dispatch, and what its agent decrypted comes with the result. Both are told with the result:
//! by a Warning Event, and behind the revision in the attempt's message and in Ready, for as long as that is what is applied.

use jiff::Timestamp;
use roadstead_api::ApplierStatus;
use roadstead_finish::first_warnings;
use roadstead_hub_store::{StoreError, Stored, Tx};
use roadstead_model::{DispatchSpec, Reason};

use crate::delivery::results::DispatchResult;
use crate::objects::{conditions, events};

const LEAD: &str = "decrypted though the MAC does not fit";

/// What of a dispatch was decrypted so: one text for all of it; none where nothing was.
pub(super) fn told(spec: &DispatchSpec, result: &DispatchResult) -> Option<String> {
    let all: Vec<String> = spec.warnings.iter().chain(&result.warnings).cloned().collect();
    let told = (!all.is_empty()).then(|| format!("{LEAD}: {}", first_warnings(all).join("; ")));
    told.map(|told| conditions::shortened(&told))
}

/// What says that a revision is applied.
pub(super) fn applied(revision: &str, unverified: Option<&str>) -> String {
    let applied = format!("Applied revision: {revision}");
    match unverified {
        Some(unverified) => format!("{applied}; {unverified}"),
        None => applied,
    }
}

/// What Ready says of it of what is applied, which stays so where another revision turns out to be the same.
pub(super) fn still(status: &ApplierStatus) -> Option<&str> {
    let message = &conditions::ready(&status.conditions)?.message;
    let rest = message.strip_prefix(&*applied(status.last_applied_revision.as_deref()?, None))?;
    rest.strip_prefix("; ").filter(|rest| rest.starts_with(LEAD))
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
