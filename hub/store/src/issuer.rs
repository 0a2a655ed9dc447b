//! What issuers of tokens said of themselves the last time: for a replica that starts while one of them does not answer.
//!
//! Their keys decide whom the hub believes, so a row counts only with its MAC: who can write the database cannot put in keys of his own,
//! nor prolong those that were. It is nothing but a memory, which no rekey keeps: a row that an older key has signed is ignored once
//! that key is gone, and written again with the next answer.

use jiff::Timestamp;
use roadstead_model::Digest;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError};

/// Bytes of a configuration, or of keys, that are stored, and that are read back: whoever writes the database may write more.
const MAX_BYTES: usize = 64 << 10;

/// What an issuer said of itself, as it said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerAnswer {
    /// Its OpenID configuration.
    pub configuration: Vec<u8>,
    /// Its keys.
    pub keys: Vec<u8>,
    /// When it said so.
    pub received: Timestamp,
}

/// What of a row is signed.
fn row(site: Digest, configuration: &[u8], keys: &[u8], received: time::OffsetDateTime) -> Row {
    Row::of("issuer_answer").bytes(site.as_bytes()).bytes(configuration).bytes(keys).time(received)
}

impl Store {
    /// What an issuer said the last time, by the digest of where and how it is asked; none where nothing is stored that this hub wrote.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn issuer_answer(&self, site: Digest) -> Result<Option<IssuerAnswer>, StoreError> {
        type Found = (Vec<u8>, Vec<u8>, time::OffsetDateTime, Vec<u8>);
        let what = "read what an issuer said";
        let found: Option<Found> = sqlx::query_as(
            "SELECT configuration, keys, received_at, substr(mac, 1, 64) FROM issuer_answer
                 WHERE site = $1 AND octet_length(configuration) <= $2 AND octet_length(keys) <= $2",
        )
        .bind(site.as_bytes().as_slice())
        .bind(i32::try_from(MAX_BYTES).unwrap_or(i32::MAX))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some((configuration, keys, received, mac)) = found else { return Ok(None) };
        if !self.sealer.is_signed(what, &row(site, &configuration, &keys, received), Some(&mac)) {
            return Ok(None);
        }
        Ok(Some(IssuerAnswer { configuration, keys, received: from_sql(what, received)? }))
    }

    /// Keeps what an issuer said, unless it is larger than 64 KiB or another replica has a newer answer, and forgets the answers
    /// of other issuers that came before `oldest`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn keep_issuer_answer(
        &self,
        site: Digest,
        issuer: &str,
        answer: &IssuerAnswer,
        oldest: Timestamp,
    ) -> Result<(), StoreError> {
        if answer.configuration.len().max(answer.keys.len()) > MAX_BYTES {
            return Ok(());
        }
        let received = to_sql(answer.received);
        let mac = self.sealer.sign(&row(site, &answer.configuration, &answer.keys, received));
        sqlx::query(
            "WITH forgotten AS (DELETE FROM issuer_answer WHERE received_at < $7 AND site <> $1)
             INSERT INTO issuer_answer (site, issuer, configuration, keys, received_at, mac) VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (site) DO UPDATE
             SET configuration = $3, keys = $4, received_at = $5, mac = $6 WHERE issuer_answer.received_at < $5",
        )
        .bind(site.as_bytes().as_slice())
        .bind(issuer)
        .bind(&answer.configuration)
        .bind(&answer.keys)
        .bind(received)
        .bind(mac)
        .bind(to_sql(oldest))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("keep what an issuer said"))?;
        Ok(())
    }
}
