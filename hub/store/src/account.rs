//! Service accounts: the keys by which tokens of theirs are signed, which tokens were taken back, and whether all that a token stands on is
//! still there.
//!
//! A row of a key counts with what is sealed in it only, so that who can write the database can neither put in a key of his own
//! nor prolong one.

use std::sync::Arc;

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use sqlx::PgExecutor;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::time::to_sql;
use crate::{Sealer, Store, StoreError, Tx};

/// A key that signs tokens of service accounts. The key does not print.
pub struct AccountKey {
    /// Its place among them: each supersedes those with smaller numbers.
    pub number: i64,
    /// The name that its tokens say.
    pub id: String,
    /// When it was made.
    pub made: Timestamp,
    /// From then on tokens are signed with it.
    pub signs_from: Timestamp,
    /// The key (PKCS #8).
    pub key: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccountKey")
            .field("number", &self.number)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a token of a service account says of itself.
#[derive(Debug, Clone, Copy)]
pub struct ShownAccountToken<'a> {
    /// The uid of its account.
    pub account: ResourceUid,
    /// The account's namespace, which is also that of a Secret that it is bound to.
    pub namespace: &'a str,
    /// The account's name.
    pub name: &'a str,
    /// The name of the key that signed it.
    pub key: &'a str,
    /// The token's name for itself.
    pub jti: Uuid,
    /// The name and the uid of the Secret that it is bound to.
    pub secret: Option<(&'a str, ResourceUid)>,
}

/// What there is of that which a token of a service account stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct AccountStanding {
    /// The account is there, under this very uid, and is not being deleted.
    pub account: bool,
    /// The key that signed it has not been dropped.
    pub key: bool,
    /// It was taken back.
    pub revoked: bool,
    /// What it is bound to is there, under this very uid, and is not being deleted; also where it is bound to nothing.
    pub bound: bool,
}

/// What a key is sealed for: its name, so that it cannot be put in the place of another one. `rekey/sealed.rs` has the same in SQL.
fn place(id: &str) -> Vec<u8> {
    [b"account_key\0", id.as_bytes()].concat()
}

impl AccountKey {
    /// What is sealed: three numbers of eight bytes, and the key.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(24 + self.key.len()));
        for number in [self.number, self.made.as_second(), self.signs_from.as_second()] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.key);
        bytes
    }

    fn from_bytes(id: String, bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (made, rest) = rest.split_first_chunk()?;
        let (signs_from, key) = rest.split_first_chunk()?;
        let time = |bytes: &[u8; 8]| Timestamp::from_second(i64::from_be_bytes(*bytes)).ok();
        Some(Self {
            number: i64::from_be_bytes(*number),
            id,
            made: time(made)?,
            signs_from: time(signs_from)?,
            key: Zeroizing::new(key.to_vec()),
        })
    }
}

impl Store {
    /// The keys by which tokens of service accounts are signed, the oldest first, and the greatest number that is taken. A row that no
    /// hub with this key wrote is passed over.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn account_keys(&self) -> Result<(Vec<AccountKey>, i64), StoreError> {
        let what = "read the keys of service accounts' tokens";
        let rows: Vec<(i64, String, Vec<u8>)> =
            sqlx::query_as("SELECT number, id, key_sealed FROM account_key ORDER BY number")
                .fetch_all(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
        let last = rows.last().map_or(0, |(number, ..)| *number);
        let mut keys = Vec::with_capacity(rows.len());
        for (number, id, sealed) in rows {
            let opened = self.sealer.open(what, &place(&id), &sealed).ok();
            match opened.and_then(|bytes| AccountKey::from_bytes(id.clone(), &bytes)) {
                Some(key) if key.number == number => keys.push(key),
                _ => tracing::error!(
                    id,
                    number,
                    "a key of service accounts' tokens was not written by a hub with this key: it is ignored"
                ),
            }
        }
        Ok((keys, last))
    }

    /// Adds a key. False where its number is taken: another replica was first.
    ///
    /// # Errors
    /// Where the database or the operating system's randomness fails.
    pub async fn add_account_key(&self, key: &AccountKey) -> Result<bool, StoreError> {
        add_key(&self.pool, &self.sealer, key).await
    }

    /// Drops keys with smaller numbers than this. Returns how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_account_keys(&self, before: i64) -> Result<u64, StoreError> {
        drop_keys(&self.pool, before).await
    }

    /// What there is of that which a token stands on, all from one moment.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn account_standing(
        &self,
        shown: &ShownAccountToken<'_>,
    ) -> Result<AccountStanding, StoreError> {
        sqlx::query_as(
            "SELECT EXISTS (SELECT 1 FROM resource WHERE uid = $1 AND api_group = '' AND kind = 'ServiceAccount' \
             AND namespace = $2 AND name = $3 AND deletion_timestamp IS NULL) AS account, \
             EXISTS (SELECT 1 FROM account_key WHERE id = $4) AS key, \
             EXISTS (SELECT 1 FROM revoked_account_token WHERE account_uid = $1 AND jti = $5) AS revoked, \
             ($6::uuid IS NULL OR EXISTS (SELECT 1 FROM resource WHERE uid = $6::uuid AND api_group = '' AND kind = 'Secret' \
             AND namespace = $2 AND name = $7 AND deletion_timestamp IS NULL)) AS bound",
        )
        .bind(shown.account.0)
        .bind(shown.namespace)
        .bind(shown.name)
        .bind(shown.key)
        .bind(shown.jti)
        .bind(shown.secret.map(|(_, uid)| uid.0))
        .bind(shown.secret.map(|(name, _)| name))
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query("look a service account up"))
    }

    /// Forgets the tokens that were taken back and have ended since. Returns how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_ended_revocations(&self, now: Timestamp) -> Result<u64, StoreError> {
        let dropped = sqlx::query("DELETE FROM revoked_account_token WHERE expires_at <= $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget service accounts' tokens that have ended"))?;
        Ok(dropped.rows_affected())
    }
}

impl Tx {
    /// Adds a key, as [`Store::add_account_key`] does.
    ///
    /// # Errors
    /// Where the database or the operating system's randomness fails.
    pub async fn add_account_key(&mut self, key: &AccountKey) -> Result<bool, StoreError> {
        let sealer = Arc::clone(&self.sealer);
        add_key(self.written().await?, &sealer, key).await
    }

    /// Drops keys, as [`Store::drop_account_keys`] does.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_account_keys(&mut self, before: i64) -> Result<u64, StoreError> {
        drop_keys(self.written().await?, before).await
    }

    /// Takes a token of an account back, for as long as it may last. False where `most` others of that account are kept already.
    /// Whoever calls this holds the account, so that no two are counted at once.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn revoke_account_token(
        &mut self,
        account: ResourceUid,
        jti: Uuid,
        until: Timestamp,
        most: i64,
    ) -> Result<bool, StoreError> {
        let kept = sqlx::query(
            "INSERT INTO revoked_account_token (account_uid, jti, expires_at) \
             SELECT $1::uuid, $2::uuid, $3::timestamptz WHERE (SELECT count(*) FROM revoked_account_token \
             WHERE account_uid = $1::uuid AND jti <> $2::uuid) < $4::bigint \
             ON CONFLICT (account_uid, jti) DO UPDATE SET expires_at = EXCLUDED.expires_at",
        )
        .bind(account.0)
        .bind(jti)
        .bind(to_sql(until))
        .bind(most)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("take a service account's token back"))?;
        Ok(kept.rows_affected() == 1)
    }
}

async fn add_key<'c>(on: impl PgExecutor<'c>, sealer: &Sealer, key: &AccountKey) -> Result<bool, StoreError> {
    let what = "store a key of service accounts' tokens";
    let sealed = sealer.seal(what, &place(&key.id), &key.to_bytes())?;
    let added = sqlx::query(
        "INSERT INTO account_key (number, id, key_sealed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(key.number)
    .bind(&key.id)
    .bind(sealed)
    .execute(on)
    .await
    .map_err(StoreError::query(what))?;
    Ok(added.rows_affected() == 1)
}

async fn drop_keys<'c>(on: impl PgExecutor<'c>, before: i64) -> Result<u64, StoreError> {
    let dropped = sqlx::query("DELETE FROM account_key WHERE number < $1")
        .bind(before)
        .execute(on)
        .await
        .map_err(StoreError::query("drop keys of service accounts' tokens"))?;
    Ok(dropped.rows_affected())
}
