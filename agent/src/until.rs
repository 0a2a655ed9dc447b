//! Sleeping until something is due that may never be.

use tokio::time::{Instant, sleep_until};

/// Resolves at this time; never where there is none.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
