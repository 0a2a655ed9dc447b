//! Identities of clouds, as sources have them: what they are asked for, and what it means where there is nothing.

use roadstead_cloud::{CloudIdentity, ServiceError};
use roadstead_model::Reason;

/// The `reason` of the condition that this becomes.
pub(crate) fn reason(error: &ServiceError) -> Reason {
    match error {
        ServiceError::NotOfCloud { .. } => Reason::InvalidProviderConfiguration,
        _ => Reason::AuthenticationFailed,
    }
}

/// An identity that is asked once more, where what it gave before was refused: it may have been taken back.
pub(crate) struct AskedTwice<'i> {
    identity: Option<&'i CloudIdentity>,
    again: bool,
}

impl<'i> AskedTwice<'i> {
    pub(crate) fn new(identity: Option<&'i CloudIdentity>) -> Self {
        Self { identity, again: true }
    }

    /// Whether it is to be tried once more, with something new.
    pub(crate) fn may(&mut self, is_refused: bool) -> bool {
        match self.identity {
            Some(identity) if is_refused && self.again => {
                self.again = false;
                identity.forget();
                true
            }
            _ => false,
        }
    }
}
