//! What an agent does about drift while it cannot hear its hub.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is done about drift while the hub is away, from when on, and what is kept in the cluster for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offline {
    /// What is done once the hub has been away for [`after`](Self::after).
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: OfflinePolicy,
    /// Until then all is as if it were there.
    #[serde(
        rename = "afterMillis",
        default,
        with = "crate::dispatch::millis",
        skip_serializing_if = "Duration::is_zero"
    )]
    pub after: Duration,
    /// Values that the hub gave or decrypted are kept in the cluster, too, so that a restarted agent goes on with them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_secrets: bool,
}

/// What is done about drift while the hub is away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OfflinePolicy {
    /// It is corrected.
    #[default]
    Correct,
    /// It is noticed, and reported once the hub is back.
    Report,
    /// Nothing.
    Stop,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
