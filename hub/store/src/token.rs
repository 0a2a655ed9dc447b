//! Bearer tokens, of which only a hash is kept.

use std::sync::Arc;

use ::time::OffsetDateTime;
use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use roadstead_model::ResourceUid;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::mac::Row;
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
    /// The token's id, where it had no end when it was made: its uses are warned about.
    pub had_no_end: Option<Uuid>,
}

/// What is known of a token. Its text is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// Its id.
    pub id: Uuid,
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends; none for one that does not.
    pub expires: Option<Timestamp>,
    /// When it was used last, to the hour.
    pub last_used: Option<Timestamp>,
    /// It is a service account's.
    pub account: bool,
    /// It had no end when it was made.
    pub had_no_end: bool,
    /// Whether a hub with this key made it. One that none made stands for nobody.
    pub signed: bool,
}

/// That a token is used is noted so often, not at each use.
const USE_NOTED: std::time::Duration = std::time::Duration::from_secs(3600);

#[derive(sqlx::FromRow)]
struct Found {
    id: Uuid,
    hash: Vec<u8>,
    username: String,
    groups: Vec<String>,
    created_at: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
    last_used_at: Option<OffsetDateTime>,
    account_uid: Option<Uuid>,
    had_no_end: bool,
    mac: Option<Vec<u8>>,
}

impl Found {
    fn row(&self) -> Row {
        row(self.id, &self.hash, &self.username, &self.groups, self.expires_at, self.account_uid)
    }
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

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What of a token is signed: all that it gives a right by.
pub(crate) fn row(
    id: Uuid,
    hash: &[u8],
    username: &str,
    groups: &[String],
    expires: Option<OffsetDateTime>,
    account: Option<Uuid>,
) -> Row {
    let row = Row::of("access_token").bytes(id.as_bytes()).bytes(hash).text(username).texts(groups);
    row.optional(expires, Row::time).optional(account, |row, account| row.bytes(account.as_bytes()))
}

impl Store {
    /// Tells tokens that a hub with this key made from others.
    #[must_use]
    pub fn tokens(&self) -> Arc<TokenCheck> {
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
        let (id, expires, account) =
            (Uuid::new_v4(), expires_at.map(to_sql), account.map(|account| account.0));
        let mac = self.sealer.sign(&row(id, &hash.0, username, groups, expires, account));
        sqlx::query(
            "INSERT INTO access_token (id, hash, username, groups, expires_at, account_uid, mac) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(id)
        .bind(&hash.0[..])
        .bind(username)
        .bind(groups)
        .bind(expires)
        .bind(account)
        .bind(mac)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("make a token"))?;
        Ok((id, text))
    }

    /// Whom a token stands for; none where it is not known, has expired, or no hub with this key made it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn token_user(
        &self,
        hash: &TokenHash,
        now: Timestamp,
    ) -> Result<Option<TokenUser>, StoreError> {
        let what = "look a token up";
        let found: Option<Found> = sqlx::query_as(
            "SELECT id, hash, username, groups, created_at, expires_at, last_used_at, account_uid, had_no_end, mac \
             FROM access_token WHERE hash = $1 AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(&hash.0[..])
        .bind(to_sql(now))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some(found) = found else { return Ok(None) };
        if !self.sealer.is_signed(what, &found.row(), found.mac.as_deref()) {
            return Ok(None);
        }
        let unnoted = |last: OffsetDateTime| to_sql(now) >= last + USE_NOTED;
        if found.last_used_at.is_none_or(unnoted) {
            sqlx::query("UPDATE access_token SET last_used_at = $2 WHERE id = $1")
                .bind(found.id)
                .bind(to_sql(now))
                .execute(&self.pool)
                .await
                .map_err(StoreError::query("note that a token is used"))?;
        }
        let expires_at = found.expires_at.map(|at| from_sql(what, at)).transpose()?;
        let had_no_end = (found.had_no_end || expires_at.is_none()).then_some(found.id);
        Ok(Some(TokenUser { username: found.username, groups: found.groups, expires_at, had_no_end }))
    }

    /// All tokens, the oldest first; without those of service accounts, unless they are wanted.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn list_tokens(&self, accounts: bool) -> Result<Vec<TokenInfo>, StoreError> {
        let what = "list tokens";
        let rows: Vec<Found> = sqlx::query_as(
            "SELECT id, hash, username, groups, created_at, expires_at, last_used_at, account_uid, had_no_end, mac \
             FROM access_token WHERE $1 OR account_uid IS NULL ORDER BY created_at, id",
        )
        .bind(accounts)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter()
            .map(|found| {
                let signed = self.sealer.bears(&found.row(), found.mac.as_deref());
                Ok(TokenInfo {
                    id: found.id,
                    username: found.username,
                    groups: found.groups,
                    created: from_sql(what, found.created_at)?,
                    expires: found.expires_at.map(|at| from_sql(what, at)).transpose()?,
                    last_used: found.last_used_at.map(|at| from_sql(what, at)).transpose()?,
                    account: found.account_uid.is_some(),
                    had_no_end: found.had_no_end || found.expires_at.is_none(),
                    signed,
                })
            })
            .collect()
    }

    /// Gives tokens that have no end one. Returns how many. One that no hub with this key made stays as it is: it is ignored.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end_endless_tokens(&self, until: Timestamp) -> Result<usize, StoreError> {
        let what = "give tokens an end";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        let rows: Vec<Found> = sqlx::query_as(
            "SELECT id, hash, username, groups, created_at, expires_at, last_used_at, account_uid, had_no_end, mac \
             FROM access_token WHERE expires_at IS NULL ORDER BY id FOR UPDATE",
        )
        .fetch_all(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        let signed = |found: &Found| self.sealer.bears(&found.row(), found.mac.as_deref());
        let mut ended = 0;
        for mut found in rows.into_iter().filter(signed) {
            found.expires_at = Some(to_sql(until));
            sqlx::query("UPDATE access_token SET expires_at = $2, had_no_end = true, mac = $3 WHERE id = $1")
                .bind(found.id)
                .bind(found.expires_at)
                .bind(self.sealer.sign(&found.row()))
                .execute(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
            ended += 1;
        }
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok(ended)
    }

    /// Drops tokens that have expired, join tokens among them once nobody asks why. Returns how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_expired_tokens(&self, now: Timestamp) -> Result<u64, StoreError> {
        let gone = sqlx::query("DELETE FROM access_token WHERE expires_at <= $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("drop expired tokens"))?;
        // An agent that comes too late is told that its token has expired, for a day.
        let joined =
            sqlx::query("DELETE FROM join_token WHERE expires_at <= $1::timestamptz - interval '1 day'")
                .bind(to_sql(now))
                .execute(&self.pool)
                .await
                .map_err(StoreError::query("drop expired join tokens"))?;
        Ok(gone.rows_affected() + joined.rows_affected())
    }
}

impl Tx {
    /// Takes a token back. Returns whom it stood for; none where there is no such token.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn revoke_token(&mut self, id: Uuid) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("DELETE FROM access_token WHERE id = $1 RETURNING username")
            .bind(id)
            .fetch_optional(self.written().await?)
            .await
            .map_err(StoreError::query("take a token back"))
    }
}
