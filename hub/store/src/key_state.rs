//! Which keys the database is sealed with, and which of the key file's keys seals new values.
//!
//! A key is in use from the moment when a row of `hub_key` says so. A replica writes that row for the newest key of its file
//! once every living replica has that key, in a transaction that holds the table of replicas: whoever comes to live later
//! finds the row, and refuses to work without the key. So the order in which replicas get a new key file does not matter.

use roadstead_model::ReplicaId;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

use crate::authority::{older_place, place};
use crate::seal::{Key, KnownKey};
use crate::upgrade::DEAD_AFTER;
use crate::{KeyId, Sealer, Store, StoreError};

/// One process at a time changes the table.
pub(crate) const LOCK: i64 = 0x726f_6164_6b65_7973;
const WHAT: &str = "look which keys the database is sealed with";

/// A living replica, by what it says of its keys.
pub(crate) struct ReplicaKeys {
    pub(crate) id: ReplicaId,
    /// What it seals with first; none of a version that did not say.
    pub(crate) keys: Option<Vec<String>>,
    /// Since when that is so.
    pub(crate) since: Option<OffsetDateTime>,
}

/// Finds out which keys the database is sealed with, and refuses to go on without one of them. A new database begins with the
/// newest key of the file; one of an older version with the key that opens its authorities.
pub(crate) async fn settle(pool: &PgPool, sealer: &Sealer) -> Result<(), StoreError> {
    let mut tx = pool.begin().await.map_err(StoreError::query(WHAT))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(WHAT))?;
    let mut rows = known(&mut tx).await?;
    if rows.is_empty() {
        let base = first_key(&mut tx, sealer).await?;
        note(&mut tx, sealer, base, true).await?;
        rows = known(&mut tx).await?;
    }
    tx.commit().await.map_err(StoreError::query(WHAT))?;
    sealer.attach(&rows)
}

/// The key that the authorities are sealed with, or where there are none yet, the newest.
async fn first_key(tx: &mut PgConnection, sealer: &Sealer) -> Result<KeyId, StoreError> {
    let rows: Vec<(String, String, Vec<u8>)> =
        sqlx::query_as("SELECT name, certificate_pem, key_sealed FROM authority ORDER BY name")
            .fetch_all(tx)
            .await
            .map_err(StoreError::query(WHAT))?;
    let ids = sealer.ids();
    let held = || ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let opener = |(name, certificate, sealed): &(String, String, Vec<u8>)| {
        sealer.opener_of(&[&place(name, certificate), older_place(name)], sealed)
    };
    let found = if rows.is_empty() { ids.first().copied() } else { rows.iter().find_map(opener) };
    found.ok_or_else(|| StoreError::WrongKeys { held: held() })
}

pub(crate) async fn known(connection: &mut PgConnection) -> Result<Vec<KnownKey>, StoreError> {
    let rows: Vec<(String, bool, Vec<u8>, bool)> = sqlx::query_as(
        "SELECT id, base, derived, retired_at IS NOT NULL FROM hub_key ORDER BY in_use_since, id",
    )
    .fetch_all(connection)
    .await
    .map_err(StoreError::query(WHAT))?;
    let key = |(id, base, derived, retired): (String, bool, Vec<u8>, bool)| {
        Ok(KnownKey { id: id.parse()?, base, derived, retired })
    };
    rows.into_iter().map(key).collect()
}

async fn note(tx: &mut PgConnection, sealer: &Sealer, id: KeyId, base: bool) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO hub_key (id, base, derived) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(id.to_string())
        .bind(base)
        .bind(sealer.derived_by_itself(id)?)
        .execute(tx)
        .await
        .map_err(StoreError::query("note that a key is in use"))?;
    Ok(())
}

/// The replicas that live; until the end of the transaction none is added, and none says anything else.
pub(crate) async fn hold_replicas(tx: &mut PgConnection) -> Result<Vec<ReplicaKeys>, StoreError> {
    let what = "look which keys the replicas have";
    sqlx::raw_sql("LOCK TABLE hub_replica IN SHARE ROW EXCLUSIVE MODE")
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
    let rows: Vec<(uuid::Uuid, Option<Vec<String>>, Option<OffsetDateTime>)> = sqlx::query_as(
        "SELECT id, keys, keys_at FROM hub_replica WHERE last_seen > clock_timestamp() - make_interval(secs => $1)",
    )
    .bind(DEAD_AFTER.as_secs_f64())
    .fetch_all(tx)
    .await
    .map_err(StoreError::query(what))?;
    Ok(rows.into_iter().map(|(id, keys, since)| ReplicaKeys { id: ReplicaId(id), keys, since }).collect())
}

impl Store {
    /// The ids of the key file's keys, that which seals now first.
    #[must_use]
    pub fn key_ids(&self) -> Vec<KeyId> {
        self.sealer.ids_in_order()
    }

    /// The same, the newest first.
    #[must_use]
    pub fn file_key_ids(&self) -> Vec<KeyId> {
        self.sealer.ids()
    }

    /// The newest key of the file, while another one seals: some replica does not have it yet.
    #[must_use]
    pub fn awaited_key(&self) -> Option<KeyId> {
        self.sealer.awaited()
    }

    /// Takes in what other processes did with keys, and begins to seal with the newest key of the file once all replicas have
    /// it. To be done again and again.
    ///
    /// # Errors
    /// [`StoreError::KeysMissing`] where the database is sealed with a key that this process does not have: then it must not
    /// go on. Else where the database fails.
    pub async fn tend_keys(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(StoreError::query(WHAT))?;
        self.sealer.attach(&known(&mut connection).await?)?;
        drop(connection);
        let Some(newest) = self.sealer.awaited() else { return Ok(()) };
        let mut tx = self.pool.begin().await.map_err(StoreError::query(WHAT))?;
        let (name, replicas) = (newest.to_string(), hold_replicas(&mut tx).await?);
        let lacks = |replica: &&ReplicaKeys| !replica.keys.as_ref().is_some_and(|keys| keys.contains(&name));
        if let Some(replica) = replicas.iter().find(lacks) {
            tracing::info!(key = name, replica = %replica.id, "the newest key is used once this replica has it, too");
            return Ok(());
        }
        note(&mut tx, &self.sealer, newest, false).await?;
        let rows = known(&mut tx).await?;
        tx.commit().await.map_err(StoreError::query(WHAT))?;
        self.sealer.attach(&rows)?;
        tracing::info!(key = name, "new values are sealed with the newest key of the key file");
        Ok(())
    }

    /// Takes these keys, the newest first, in place of those that were given before.
    ///
    /// # Errors
    /// [`StoreError::KeysMissing`] where the database needs one that is not among them, or where the database fails: then the
    /// keys from before stay.
    pub async fn replace_keys(&self, keys: &[Key]) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(StoreError::query(WHAT))?;
        let rows = known(&mut connection).await?;
        self.sealer.replace(keys, &rows)
    }
}
