//! Service accounts: the tokens by which programs act as them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::{FieldError, KindId};
use roadstead_hub_store::TokenText;

use crate::HubError;
use crate::address::{Address, named};
use crate::identity::audit::about;
use crate::identity::{Identity, account_user};
use crate::objects::Objects;

/// As kube-apiserver has it: a shorter one is refused.
const SHORTEST: Duration = Duration::from_secs(600);
const DEFAULT: Duration = Duration::from_secs(3600);
/// A longer one is cut to this; the answer says until when it lasts.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A new token of a service account.
#[derive(Debug)]
pub struct AccountToken {
    /// Its text, which is given out once.
    pub token: TokenText,
    /// When it ends; it ends earlier where its account is deleted.
    pub expires: Timestamp,
}

impl Objects {
    /// Makes a token of the service account at `address`.
    ///
    /// # Errors
    /// [`HubError::NotFound`] without such an account, [`HubError::Invalid`] where it is to last too short.
    pub async fn create_account_token(
        &self,
        who: &Identity,
        address: &Address,
        lasts: Option<Duration>,
    ) -> Result<AccountToken, HubError> {
        let kind = address.kind.get();
        who.authorize("create", kind, "token", &address.namespace, &address.name)?;
        let lasts = lasts.unwrap_or(DEFAULT);
        if lasts < SHORTEST {
            let value = lasts.as_secs().into();
            let why = "may not specify a duration less than 10 minutes";
            return Err(HubError::Invalid {
                what: "TokenRequest.authentication.k8s.io \"\"".to_owned(),
                causes: vec![FieldError::invalid("spec.expirationSeconds", &value, why)],
            });
        }
        let account = self.store.get(KindId::ServiceAccount, &address.namespace, &address.name).await?;
        let account = account.ok_or_else(|| HubError::NotFound { what: named(kind, &address.name) })?;
        if account.deletion_timestamp.is_some() {
            return Err(HubError::Forbidden(format!("{} is being deleted", named(kind, &address.name))));
        }
        let seconds = i64::try_from(lasts.min(LONGEST).as_secs()).unwrap_or(i64::MAX);
        let expires = self.clock.now() + SignedDuration::from_secs(seconds);
        let user = account_user(&address.namespace, &address.name);
        let (id, token) =
            self.store.create_token(&user.username, &user.groups, Some(expires), Some(account.uid)).await?;
        let mut entry = about(who, "create", address.kind, &address.namespace, &address.name);
        entry.kind.push_str("/token");
        entry.detail = format!("token {id} until {expires}");
        self.store.note(&[entry]).await?;
        Ok(AccountToken { token, expires })
    }
}
