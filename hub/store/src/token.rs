//! Bearer tokens, of which only a hash is kept; and the audit log.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_model::ResourceUid;
use sqlx::Row;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::time::to_sql;
use crate::{Store, StoreError, Tx};

/// Whom a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// The token's id, by which it is revoked.
    pub id: Uuid,
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

/// A new token's text. Does not print.
pub struct TokenText(Zeroizing<String>);

impl TokenText {
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

/// 256 random bits have no need of a slow hash.
fn hash(text: &str) -> Vec<u8> {
    digest(&SHA256, text.as_bytes()).as_ref().to_vec()
}

impl Store {
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
        use std::fmt::Write as _;
        let mut bytes = Zeroizing::new([0_u8; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| StoreError::Seal { what: "make a token" })?;
        let mut text = Zeroizing::new(String::with_capacity(69));
        text.push_str("rsdt_");
        for byte in bytes.iter() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        let id = Uuid::new_v4();
        sqlx::query(
            "INSERT INTO access_token (id, hash, username, groups, expires_at, account_uid) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id)
        .bind(hash(&text))
        .bind(username)
        .bind(groups)
        .bind(expires_at.map(to_sql))
        .bind(account.map(|account| account.0))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("make a token"))?;
        Ok((id, TokenText(text)))
    }

    /// Whom a token stands for; none where it is not known, revoked or expired.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn token_user(&self, text: &str, now: Timestamp) -> Result<Option<TokenUser>, StoreError> {
        let what = "look a token up";
        let row = sqlx::query(
            "SELECT id, username, groups FROM access_token WHERE hash = $1 AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(hash(text))
        .bind(to_sql(now))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        row.map(|row| {
            Ok(TokenUser {
                id: row.try_get("id")?,
                username: row.try_get("username")?,
                groups: row.try_get("groups")?,
            })
        })
        .transpose()
        .map_err(StoreError::query(what))
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

    /// Takes a token back. Returns whether there was one.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn revoke_token(&self, id: Uuid) -> Result<bool, StoreError> {
        let gone = sqlx::query("DELETE FROM access_token WHERE id = $1")
            .bind(id)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("revoke a token"))?;
        Ok(gone.rows_affected() > 0)
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
