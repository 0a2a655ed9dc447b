//! Administrators' and programs' tokens: made, listed and taken back by those who run the hub.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::FieldError;
use roadstead_hub_store::{TokenHash, TokenInfo, TokenText};
use roadstead_model::AuditEntry;
use roadstead_oidc::{check_name, is_reserved};
use serde::Serialize;
use uuid::Uuid;

use crate::HubError;
use crate::identity::audit::{self, authorize_path};
use crate::identity::impersonate::may_be;
use crate::identity::{Authenticator, Identity, MASTERS};

/// How long a token lasts where nobody says.
pub(crate) const DEFAULT_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
const SHORTEST: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
const MAX_NAME: usize = 253;
const MAX_GROUPS: usize = 32;
/// Whom an administrator's token stands for where nobody says.
const ADMINISTRATOR: &str = "roadstead-admin";

/// A token that is to be made.
#[derive(Debug, Clone, Default)]
pub struct TokenOrder {
    /// Whom it stands for; the administrator where empty.
    pub username: String,
    /// With which groups; of those who may do all where neither these nor a name are given.
    pub groups: Vec<String>,
    /// How long; 90 days where nothing is said, and 366 at most.
    pub lasts: Option<Duration>,
    /// What else is to stand in the audit log: how it came about, where that is not by a request.
    pub why: String,
}

/// A token that was made.
#[derive(Debug)]
pub struct MadeToken {
    /// Its id, by which it is taken back.
    pub id: String,
    /// Its text, which is given out once.
    pub token: TokenText,
    /// When it ends.
    pub expires: Timestamp,
}

/// A token as it is listed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenItem {
    /// Its id.
    pub id: String,
    /// Whom it stands for.
    pub username: String,
    /// With which groups.
    pub groups: Vec<String>,
    /// When it was made.
    pub created: String,
    /// When it ends; none for one that does not.
    pub expires: Option<String>,
    /// When it was used last, to the hour.
    pub last_used: Option<String>,
    /// It had no end when an older version made it: it is to be replaced.
    pub had_no_end: bool,
    /// It is a service account's, and ends with that.
    pub service_account: bool,
    /// Whether it is taken: somebody who is not a hub with this key may have written it into the database.
    pub valid: bool,
}

impl From<TokenInfo> for TokenItem {
    fn from(info: TokenInfo) -> Self {
        Self {
            id: info.id.to_string(),
            username: info.username,
            groups: info.groups,
            created: info.created.to_string(),
            expires: info.expires.map(|at| at.to_string()),
            last_used: info.last_used.map(|at| at.to_string()),
            had_no_end: info.had_no_end,
            service_account: info.account,
            valid: info.signed,
        }
    }
}

impl Authenticator {
    /// Makes a token.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not, or who may not impersonate that user and those groups;
    /// [`HubError::Invalid`].
    pub async fn order_token(&self, who: &Identity, order: TokenOrder) -> Result<MadeToken, HubError> {
        authorize_path(who, "post", "/fleet/v1/tokens")?;
        let lasts = order.lasts.unwrap_or(DEFAULT_LIFE);
        let mut causes = Vec::new();
        if !(SHORTEST..=LONGEST).contains(&lasts) {
            let why = "want 10 minutes to 366 days";
            causes.push(FieldError::invalid("expirationSeconds", &lasts.as_secs().into(), why));
        }
        let sound = |name: &str| name.len() <= MAX_NAME && check_name("name", name).is_ok();
        if !sound(&order.username) || is_reserved(&order.username) {
            let why = "must be a name of at most 253 bytes, without characters that are not seen, that does not begin with system:";
            causes.push(FieldError::invalid("username", &order.username.as_str().into(), why));
        }
        if order.groups.len() > MAX_GROUPS
            || !order.groups.iter().all(|group| sound(group) && !group.is_empty() && !is_disguised(group))
        {
            let why = "want at most 32 names of at most 253 bytes, without characters that are not seen";
            causes.push(FieldError::invalid("groups", &order.groups.clone().into(), why));
        }
        if !causes.is_empty() {
            return Err(HubError::Invalid { what: "token".to_owned(), causes });
        }
        // Only who is not named at all is the administrator: nobody becomes a master by what was left out.
        let (username, groups) = match (order.username.as_str(), order.groups) {
            ("", groups) if groups.is_empty() => (ADMINISTRATOR, vec![MASTERS.to_owned()]),
            ("", groups) => (ADMINISTRATOR, groups),
            (username, groups) => (username, groups),
        };
        // A token of somebody is to be able to act as them.
        may_be(who, username, &groups)?;
        let expires = self.clock.now() + SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
        let (id, token) = self.make_token(who, (username, &groups), Some(expires), &order.why).await?;
        Ok(MadeToken { id: id.to_string(), token, expires })
    }

    /// Makes a token, which the audit log tells of before anybody has it.
    pub(crate) async fn make_token(
        &self,
        who: &Identity,
        (username, groups): (&str, &[String]),
        expires: Option<Timestamp>,
        why: &str,
    ) -> Result<(Uuid, TokenText), HubError> {
        let (id, token) = self.store.create_token(username, groups, expires, None).await?;
        let until = expires.map_or("for ever".to_owned(), |at| format!("until {at}"));
        let why = if why.is_empty() { String::new() } else { format!(", {why}") };
        let detail = format!("stands for {username:?} with groups {groups:?} {until}{why}");
        self.store.note(&[about_token(who, "create", id, detail)]).await?;
        Ok((id, token))
    }

    /// All tokens, the oldest first; without those of service accounts, unless they are wanted.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not.
    pub async fn list_tokens(&self, who: &Identity, accounts: bool) -> Result<Vec<TokenItem>, HubError> {
        authorize_path(who, "get", "/fleet/v1/tokens")?;
        Ok(self.store.list_tokens(accounts).await?.into_iter().map(TokenItem::from).collect())
    }

    /// Takes a token back; it may be taken for two seconds more. Returns whom it stood for.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not, [`HubError::NotFound`].
    pub async fn revoke_token(&self, who: &Identity, id: &str) -> Result<String, HubError> {
        authorize_path(who, "delete", &format!("/fleet/v1/tokens/{id}"))?;
        let not_found = || HubError::NotFound { what: format!("token \"{id}\"") };
        let uid: Uuid = id.parse().map_err(|_| not_found())?;
        let mut tx = self.store.begin().await?;
        let username = tx.revoke_token(uid).await?.ok_or_else(not_found)?;
        tx.note(&about_token(who, "delete", uid, format!("stood for {username:?}"))).await?;
        tx.commit().await?;
        Ok(username)
    }

    /// How long a token is still taken: none where it is not, and no end where it has none.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn token_end(&self, token: &str) -> Result<Option<Option<Timestamp>>, HubError> {
        Ok(self.store.token_user(&TokenHash::of(token), self.clock.now()).await?.map(|user| user.expires_at))
    }
}

/// Whether a name looks like one of Kubernetes' own groups and is another.
fn is_disguised(group: &str) -> bool {
    is_reserved(group) && !group.starts_with("system:")
}

fn about_token(who: &Identity, verb: &str, id: Uuid, detail: String) -> AuditEntry {
    AuditEntry {
        verb: verb.to_owned(),
        kind: "AccessToken".to_owned(),
        name: id.to_string(),
        detail,
        ..audit::by(who)
    }
}
