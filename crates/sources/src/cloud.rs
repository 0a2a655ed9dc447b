//! Credentials that are given out for a fetch, as clouds do: what it means where there are none, and where they are refused.

use roadstead_cloud::ServiceError;
use roadstead_model::Reason;

/// The `reason` of the condition that this becomes.
pub(crate) fn reason(error: &ServiceError) -> Reason {
    match error {
        ServiceError::NotOfCloud { .. } => Reason::InvalidProviderConfiguration,
        _ => Reason::AuthenticationFailed,
    }
}

/// Whether credentials that were given out are asked for once more in a fetch, where they were refused: they may have been taken back.
#[derive(Default)]
pub(crate) struct OnceMore {
    was_asked: bool,
}

impl OnceMore {
    pub(crate) fn may(&mut self, is_refused: bool) -> bool {
        is_refused && !std::mem::replace(&mut self.was_asked, true)
    }
}
