//! Service accounts: the keys by which tokens of theirs are signed, and whether an account is still there.
//!
//! A row of a key counts with what is sealed in it only, so that who can write the database can neither put in a key of his own
//! nor prolong one.

use jiff::Timestamp;
use roadstead_model::ResourceUid;
use zeroize::Zeroizing;

use crate::{Store, StoreError};

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
        let what = "store a key of service accounts' tokens";
        let sealed = self.sealer.seal(what, &place(&key.id), &key.to_bytes())?;
        let added = sqlx::query(
            "INSERT INTO account_key (number, id, key_sealed) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(key.number)
        .bind(&key.id)
        .bind(sealed)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(added.rows_affected() == 1)
    }

    /// Drops keys with smaller numbers than this. Returns how many.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_account_keys(&self, before: i64) -> Result<u64, StoreError> {
        let dropped = sqlx::query("DELETE FROM account_key WHERE number < $1")
            .bind(before)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("drop keys of service accounts' tokens"))?;
        Ok(dropped.rows_affected())
    }

    /// Whether a service account is there, under this very uid, and is not being deleted.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn has_account(
        &self,
        uid: ResourceUid,
        namespace: &str,
        name: &str,
    ) -> Result<bool, StoreError> {
        let found: Option<bool> = sqlx::query_scalar(
            "SELECT deletion_timestamp IS NULL FROM resource WHERE uid = $1 AND api_group = '' AND kind = 'ServiceAccount' \
             AND namespace = $2 AND name = $3",
        )
        .bind(uid.0)
        .bind(namespace)
        .bind(name)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look a service account up"))?;
        Ok(found == Some(true))
    }
}
