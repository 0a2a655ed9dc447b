//! Who asks, and whether they may.

use jiff::Timestamp;
use roadstead_api::Kind;
use roadstead_hub_store::TokenText;
use zeroize::Zeroizing;

use crate::{Hub, HubError};

/// The group that may do all.
pub const MASTERS: &str = "system:masters";

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

impl Identity {
    /// The hub itself: its background tasks.
    #[must_use]
    pub fn hub() -> Self {
        Self { username: "system:roadstead:hub".to_owned(), groups: vec![MASTERS.to_owned()] }
    }

    /// Whether this identity may do that.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where it may not, with who wanted what where.
    pub fn authorize(
        &self,
        verb: &str,
        kind: &Kind,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), HubError> {
        if self.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let resource = if subresource.is_empty() {
            kind.plural.to_owned()
        } else {
            format!("{}/{subresource}", kind.plural)
        };
        let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let place = match (kind.namespaced(), namespace) {
            (true, "") => " at the cluster scope".to_owned(),
            (true, namespace) => format!(" in the namespace \"{namespace}\""),
            (false, _) => " at the cluster scope".to_owned(),
        };
        Err(HubError::Forbidden(format!(
            "{}{object} is forbidden: User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\"{place}",
            kind.qualified(),
            self.username,
            kind.group(),
        )))
    }
}

impl Hub {
    /// Whom a bearer token stands for. One that was taken back may still be taken for two seconds.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`] where it is unknown or expired.
    pub async fn authenticate(&self, token: &str) -> Result<Identity, HubError> {
        let identity = self.tokens.identity(&self.store, token, self.now()).await?;
        identity.ok_or_else(|| HubError::Unauthenticated("Unauthorized".to_owned()))
    }

    /// Makes an administrator's token: one that may do all and does not expire.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_admin_token(&self) -> Result<Zeroizing<String>, HubError> {
        let token = self.create_access_token("roadstead-admin", &[MASTERS.to_owned()], None).await?;
        Ok(Zeroizing::new(token.expose().to_owned()))
    }

    /// Makes a bearer token. Its text is given out here and never again.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_access_token(
        &self,
        username: &str,
        groups: &[String],
        expires_at: Option<Timestamp>,
    ) -> Result<TokenText, HubError> {
        Ok(self.store.create_token(username, groups, expires_at, None).await?.1)
    }
}
