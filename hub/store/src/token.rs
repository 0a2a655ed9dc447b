//! Bearer tokens, of which only a hash is kept; and the audit log.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, TokenCheck, TokenKind, Tx};

/// Whom a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// When the token ends; none for one that does not.
    pub expires_at: Option<Timestamp>,
}

/// A new token's text. Does not print.
pub struct TokenText(Zeroizing<String>);

impl TokenText {
    pub(crate) fn new(text: Zeroizing<String>) -> Self {
        Self(text)
    }

    /// The text, to be given to the user once.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TokenText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenText(…)")
    }
}

/// What is kept of a token. 256 random bits have no need of a slow hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Of a token's text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.iter_mut().zip(digest(&SHA256, text.as_bytes()).as_ref()).for_each(|(to, from)| *to = *from);
        Self(hash)
    }
}

impl Store {
    /// Tells tokens that a hub with this key made from others.
    #[must_use]
    pub fn tokens(&self) -> &TokenCheck {
        self.sealer.tokens()
    }

    /// Makes a token of 32 random bytes; one of a service account ends with it.
    ///
    /// # Errors
    /// Where the database or the operating system's randomness fails.
    pub async fn create_token(
        &self,
        username: &str,
        groups: &[String],
        expires_at: Option<Timestamp>,
        account: Option<ResourceUid>,
    ) -> Result<(Uuid, TokenText), StoreError> {
        let text = self.sealer.tokens().make(TokenKind::Access)?;
        let hash = TokenHash::of(text.expose());
        let id = Uuid::new_v4();
        sqlx::query(
            "INSERT INTO access_token (id, hash, username, groups, expires_at, account_uid) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id)
        .bind(&hash.0[..])
        .bind(username)
        .bind(groups)
        .bind(expires_at.map(to_sql))
        .bind(account.map(|account| account.0))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("make a token"))?;
        Ok((id, text))
    }

    /// Whom a token stands for; none where it is not known, or has expired.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn token_user(
        &self,
        hash: &TokenHash,
        now: Timestamp,
    ) -> Result<Option<TokenUser>, StoreError> {
        let what = "look a token up";
        let row: Option<(String, Vec<String>, Option<time::OffsetDateTime>)> = sqlx::query_as(
            "SELECT username, groups, expires_at FROM access_token \
             WHERE hash = $1 AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(&hash.0[..])
        .bind(to_sql(now))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        row.map(|(username, groups, expires_at)| {
            let expires_at = expires_at.map(|at| from_sql(what, at)).transpose()?;
            Ok(TokenUser { username, groups, expires_at })
        })
        .transpose()
    }

    /// Drops tokens that have expired. Returns how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_expired_tokens(&self, now: Timestamp) -> Result<u64, StoreError> {
        let gone = sqlx::query("DELETE FROM access_token WHERE expires_at <= $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("drop expired tokens"))?;
        Ok(gone.rows_affected())
    }
}

impl Tx {
    /// Notes who changed what, in the same unit of work.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn audit(
        &mut self,
        username: &str,
        verb: &str,
        kind: KindId,
        namespace: &str,
        name: &str,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO audit (username, verb, api_group, kind, namespace, name) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(username)
        .bind(verb)
        .bind(kind.get().group())
        .bind(kind.get().kind)
        .bind(namespace)
        .bind(name)
        .execute(&mut *self.inner)
        .await
        .map_err(StoreError::query("write the audit log"))?;
        Ok(())
    }
}
