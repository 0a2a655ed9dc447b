//! Whom somebody else's token stands for (TokenReview), for those who may ask that.

use jiff::Timestamp;

use crate::HubError;
use crate::identity::accounts::Refused;
use crate::identity::{Authenticator, Identity};

/// What is said of a token that stands for nobody, as kube-apiserver does.
const INVALID: &str = "invalid bearer token";

/// What is known of a token.
#[derive(Debug)]
pub enum ReviewedToken {
    /// It stands for somebody, for these of the audiences that were asked about.
    Good {
        /// Whom.
        user: Box<Identity>,
        /// For whom it is.
        audiences: Vec<String>,
    },
    /// It stands for nobody, and why.
    Bad(String),
}

impl Authenticator {
    /// Whom a token stands for, as far as it is for one of these audiences; without any, for the hub. Whoever asks must be one who may.
    ///
    /// # Errors
    /// [`HubError::TooMany`] where as many tokens are looked up as may. Where the database fails.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<ReviewedToken, HubError> {
        let now = self.clock.now();
        let own = self.accounts.audiences();
        let wanted = if audiences.is_empty() { own } else { audiences };
        if self.accounts.may_know(token) {
            return match self.accounts.verified(token, wanted, now).await {
                Ok(verified) => {
                    let (user, audiences) = (Box::new(verified.identity), verified.audiences);
                    Ok(ReviewedToken::Good { user, audiences })
                }
                Err(Refused::Hub(error)) => Err(error),
                Err(why) => Ok(ReviewedToken::Bad(format!("[{INVALID}, {why}]"))),
            };
        }
        // Those that name no audience are for the hub.
        let common: Vec<String> = own.iter().filter(|one| wanted.contains(one)).cloned().collect();
        let user = if common.is_empty() { None } else { self.of_no_account(token, now).await? };
        Ok(match user {
            Some(user) => ReviewedToken::Good { user: Box::new(user), audiences: common },
            None => ReviewedToken::Bad(INVALID.to_owned()),
        })
    }

    /// Whom a token stands for that is not one of a service account's.
    pub(super) async fn of_no_account(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Option<Identity>, HubError> {
        if self.issuers.may_know(token) {
            return self.issuers.identity(token, now).await;
        }
        self.tokens.identity(&self.store, token, now).await
    }
}
