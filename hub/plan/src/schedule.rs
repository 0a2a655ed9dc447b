//! When the next pass over an object is due.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::ApplierUid;

/// So much later than now is nothing that has happened, by the clock of any replica: where it is noted of something, the clock was put back since.
pub const MOST_APART: Duration = Duration::from_secs(60);

/// Whether something can have happened when it is noted to have: else the clock was put back since, and what is to follow it so long after is held up by that.
#[must_use]
pub fn has_happened(at: Timestamp, now: Timestamp) -> bool {
    at <= now + MOST_APART
}

/// `interval`, up to a tenth longer, by an amount that depends on the uid only: a thousand Kustomizations that were
/// created together do not fire together, and each keeps its own rhythm.
#[must_use]
pub fn jittered(interval: Duration, uid: ApplierUid) -> Duration {
    interval + spread(interval / 10, uid)
}

/// A part of `time` that depends on the uid only.
pub(crate) fn spread(time: Duration, uid: ApplierUid) -> Duration {
    let bytes = uid.0.as_bytes();
    // Random uids: any two bytes spread evenly.
    let part = u32::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    time * part / u32::from(u16::MAX)
}
