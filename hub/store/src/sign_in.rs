//! Sessions of people who are signed in to the dashboard, of whose cookies only hashes are kept; and MACs for sign-ins that are under
//! way, which are kept nowhere: whoever asks for one costs the database nothing.

use ::time::OffsetDateTime;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, TokenHash, TokenKind, TokenText, Tx};

/// That a session is used is noted so often, not at each use.
const USE_NOTED: SignedDuration = SignedDuration::from_mins(1);

/// A session that is to begin.
pub struct NewSession<'a> {
    /// Whose it is: of one owner there are so many at most, and the oldest go.
    pub owner: &'a str,
    /// So many.
    pub most: i64,
    /// What it stands for.
    pub kept: &'a [u8],
    /// The sign-in that led to it, and until when that could be used; it leads to no other session.
    pub sign_in: Option<(&'a [u8], Timestamp)>,
    /// When it begins.
    pub begins: Timestamp,
    /// When it ends at the latest.
    pub ends: Timestamp,
}

/// A session. What it stands for does not print.
pub struct StoredSession {
    /// Its id.
    pub id: Uuid,
    /// What it stands for.
    pub kept: Zeroizing<Vec<u8>>,
    /// How often that was renewed.
    pub version: i64,
}

impl std::fmt::Debug for StoredSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSession")
            .field("id", &self.id)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What a session's contents are sealed for: its cookie. `rekey/sealed.rs` has the same in SQL.
fn place(hash: &TokenHash) -> Vec<u8> {
    [b"sign_in_session\0", hash.bytes()].concat()
}

impl Store {
    /// A MAC over what a sign-in says, which only hubs with this key can make; for what it is comes first.
    #[must_use]
    pub fn sign_in_mac(&self, what: &str, parts: &[&[u8]]) -> Vec<u8> {
        let row = Row::of("sign_in").text(what);
        self.sealer.sign_stably(&parts.iter().fold(row, |row, part| row.bytes(part)))
    }

    /// The session of a cookie, and that it is used; none where it has ended, was not used since `unused`, or was not written by a hub
    /// with this key.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn sign_in_session(
        &self,
        hash: &TokenHash,
        now: Timestamp,
        unused: Timestamp,
    ) -> Result<Option<StoredSession>, StoreError> {
        let Some((session, used)) = self.read_session(hash, now, unused).await? else { return Ok(None) };
        if now.duration_since(used) >= USE_NOTED {
            sqlx::query("UPDATE sign_in_session SET used_at = $2 WHERE hash = $1")
                .bind(hash.bytes())
                .bind(to_sql(now))
                .execute(&self.pool)
                .await
                .map_err(StoreError::query("note that a session is used"))?;
        }
        Ok(Some(session))
    }

    /// The same, without it being used by that.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn unused_sign_in_session(
        &self,
        hash: &TokenHash,
        now: Timestamp,
        unused: Timestamp,
    ) -> Result<Option<StoredSession>, StoreError> {
        Ok(self.read_session(hash, now, unused).await?.map(|(session, _)| session))
    }

    /// The session, and when it was last used.
    async fn read_session(
        &self,
        hash: &TokenHash,
        now: Timestamp,
        unused: Timestamp,
    ) -> Result<Option<(StoredSession, Timestamp)>, StoreError> {
        let what = "look a session up";
        type Found = (Uuid, Vec<u8>, i64, OffsetDateTime);
        let found: Option<Found> = sqlx::query_as(
            "SELECT id, sealed, version, used_at FROM sign_in_session \
             WHERE hash = $1 AND expires_at > $2 AND used_at > $3",
        )
        .bind(hash.bytes())
        .bind(to_sql(now))
        .bind(to_sql(unused))
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let Some((id, sealed, version, used)) = found else { return Ok(None) };
        let Ok(kept) = self.sealer.open(what, &place(hash), &sealed) else {
            tracing::error!(session = %id, "a session was not written by a hub with this key: it is ignored");
            return Ok(None);
        };
        Ok(Some((StoredSession { id, kept, version }, from_sql(what, used)?)))
    }

    /// Whether this replica may renew what a session stands for, until a time: not while another one does, and not
    /// where it is of another version.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn may_renew_sign_in_session(
        &self,
        hash: &TokenHash,
        version: i64,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let taken = sqlx::query(
            "UPDATE sign_in_session SET renewing_until = $4 \
             WHERE hash = $1 AND version = $2 AND (renewing_until IS NULL OR renewing_until <= $3)",
        )
        .bind(hash.bytes())
        .bind(version)
        .bind(to_sql(now))
        .bind(to_sql(until))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("begin to renew a session"))?;
        Ok(taken.rows_affected() == 1)
    }

    /// Writes what a session stands for from now on, where it is still of this version. Whether it was.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn renew_sign_in_session(
        &self,
        hash: &TokenHash,
        version: i64,
        kept: &[u8],
    ) -> Result<bool, StoreError> {
        let what = "renew a session";
        let sealed = self.sealer.seal(what, &place(hash), kept)?;
        let renewed = sqlx::query(
            "UPDATE sign_in_session SET sealed = $3, version = version + 1, renewing_until = NULL \
             WHERE hash = $1 AND version = $2",
        )
        .bind(hash.bytes())
        .bind(version)
        .bind(sealed)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Leaves it to others to renew a session: this replica could not.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn release_sign_in_session(&self, hash: &TokenHash, version: i64) -> Result<(), StoreError> {
        sqlx::query("UPDATE sign_in_session SET renewing_until = NULL WHERE hash = $1 AND version = $2")
            .bind(hash.bytes())
            .bind(version)
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("leave a session to others"))?;
        Ok(())
    }

    /// Drops sessions that have ended or were not used since `unused`, and what is known of sign-ins that nobody can use any more. Returns
    /// how many sessions.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn drop_ended_sessions(&self, now: Timestamp, unused: Timestamp) -> Result<u64, StoreError> {
        let what = "drop sessions that have ended";
        let gone = sqlx::query("DELETE FROM sign_in_session WHERE expires_at <= $1 OR used_at <= $2")
            .bind(to_sql(now))
            .bind(to_sql(unused))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        sqlx::query("DELETE FROM sign_in_used WHERE expires_at <= $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        Ok(gone.rows_affected())
    }
}

impl Tx {
    /// Begins a session, and gives the text of its cookie and its id; none where the sign-in has led to one before.
    ///
    /// # Errors
    /// Where the database or the operating system's randomness fails.
    pub async fn begin_sign_in_session(
        &mut self,
        new: &NewSession<'_>,
    ) -> Result<Option<(Uuid, TokenText)>, StoreError> {
        let what = "begin a session";
        if let Some((state, until)) = new.sign_in {
            let used = sqlx::query(
                "INSERT INTO sign_in_used (state, expires_at) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            )
            .bind(state)
            .bind(to_sql(until))
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query(what))?;
            if used.rows_affected() == 0 {
                return Ok(None);
            }
        }
        let text = self.sealer.tokens().make(TokenKind::Session)?;
        let (id, hash) = (Uuid::new_v4(), TokenHash::of(text.expose()));
        let sealed = self.sealer.seal(what, &place(&hash), new.kept)?;
        sqlx::query(
            "INSERT INTO sign_in_session (hash, id, owner, sealed, created_at, used_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $5, $6)",
        )
        .bind(hash.bytes())
        .bind(id)
        .bind(new.owner)
        .bind(sealed)
        .bind(to_sql(new.begins))
        .bind(to_sql(new.ends))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query(
            "DELETE FROM sign_in_session WHERE hash IN (SELECT hash FROM sign_in_session \
             WHERE owner = $1 AND hash <> $3 ORDER BY created_at DESC, hash OFFSET $2)",
        )
        .bind(new.owner)
        .bind(new.most.saturating_sub(1).max(0))
        .bind(hash.bytes())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("end the oldest sessions of a user"))?;
        Ok(Some((id, text)))
    }

    /// Ends a session. Returns its id; none where there is none.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end_sign_in_session(&mut self, hash: &TokenHash) -> Result<Option<Uuid>, StoreError> {
        sqlx::query_scalar("DELETE FROM sign_in_session WHERE hash = $1 RETURNING id")
            .bind(hash.bytes())
            .fetch_optional(self.written().await?)
            .await
            .map_err(StoreError::query("end a session"))
    }
}
