//! Sealing and signing again, with the newest key, what older keys have sealed and signed, while hubs run; and taking the
//! older keys out of use.
//!
//! What is done is told by the values themselves, so that a rekey that was cut short just goes on. Each batch is a small
//! transaction, and a value is replaced only where it is still the one that was read.

mod sealed;
mod signed;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::key_state::{self, ReplicaKeys};
use crate::seal::derived_place;
use crate::{KeyId, Store, StoreError};
use sealed::{BLOBS, COUNT_BLOBS, Done, PLACES, key_of};
use signed::Table;

/// Rows that are read at once.
const ROWS: i64 = 100;
/// Passes over everything, in case that others write meanwhile.
const PASSES: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// How a rekey is done.
#[derive(Debug, Clone, Copy)]
pub struct RekeyOptions {
    /// What was sealed with an older key before a replica began to use the newest is written after so much time at the latest.
    pub settle: Duration,
    /// So long it is waited until all replicas use the newest key.
    pub patience: Duration,
}

impl Default for RekeyOptions {
    fn default() -> Self {
        Self { settle: Duration::from_secs(30), patience: Duration::from_secs(120) }
    }
}

/// How far a rekey is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RekeyStep {
    /// It waits, and for what.
    Waits(String),
    /// So many of these values were sealed or signed again in this pass, of about so many.
    Did {
        /// Which values.
        what: &'static str,
        /// How many.
        done: u64,
        /// Of how many.
        of: u64,
    },
}

/// What a rekey has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// The key that everything is sealed with now.
    pub key: KeyId,
    /// How many of which values it has sealed or signed again.
    pub fresh: BTreeMap<&'static str, u64>,
    /// How many of which values no key opens: they stay as they are.
    pub unreadable: BTreeMap<&'static str, u64>,
    /// The keys that the key file does not need any more since now.
    pub retired: Vec<KeyId>,
}

/// How many values a key has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Which values.
    pub what: &'static str,
    /// The key; none for rows that no key of the file has signed, which are ignored.
    pub key: Option<KeyId>,
    /// How many.
    pub count: u64,
}

/// Which keys have what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCensus {
    /// The newest key that is in use.
    pub newest: KeyId,
    /// The key file's newest key, where it is not in use yet.
    pub awaited: Option<KeyId>,
    /// Older keys that the key file still needs, whether they have values or not.
    pub in_use: Vec<KeyId>,
    /// All values.
    pub sealed: Vec<Sealed>,
}

impl KeyCensus {
    /// How many values older keys have.
    #[must_use]
    pub fn older(&self) -> u64 {
        let older = |sealed: &&Sealed| sealed.key.is_some_and(|key| key != self.newest);
        self.sealed.iter().filter(older).map(|sealed| sealed.count).sum()
    }

    /// Whether the key file needs its newest key only.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.older() == 0 && self.in_use.is_empty() && self.awaited.is_none()
    }

    fn older_of(&self, what: &str) -> u64 {
        let older =
            |sealed: &&Sealed| sealed.what == what && sealed.key.is_some_and(|key| key != self.newest);
        self.sealed.iter().filter(older).map(|sealed| sealed.count).sum()
    }
}

/// What tells how far it is.
type Tell<'t> = &'t mut (dyn FnMut(RekeyStep) + Send);

impl Store {
    /// Which keys have what.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn key_census(&self) -> Result<KeyCensus, StoreError> {
        let what = "count what keys have";
        let mut sealed = Vec::new();
        let places = PLACES.iter().map(|place| (place.what, place.count));
        for (of, count) in places.chain([(BLOBS, COUNT_BLOBS)]) {
            let rows: Vec<(Option<String>, i64)> =
                sqlx::query_as(count).fetch_all(&self.pool).await.map_err(StoreError::query(what))?;
            for (said, count) in rows {
                let key = key_of(said, self.sealer.base())?;
                sealed.push(Sealed { what: of, key, count: u64::try_from(count).unwrap_or(0) });
            }
        }
        for table in Table::ALL {
            let mut counts: BTreeMap<Option<KeyId>, u64> = BTreeMap::new();
            for signer in self.signers(table, ROWS).await? {
                *counts.entry(signer).or_default() += 1;
            }
            sealed.extend(counts.into_iter().map(|(key, count)| Sealed { what: table.what(), key, count }));
        }
        let newest = self.sealer.writer();
        let mut connection = self.pool.acquire().await.map_err(StoreError::query(what))?;
        let known = key_state::known(&mut connection).await?;
        let in_use = known.iter().filter(|known| !known.retired && known.id != newest);
        let in_use = in_use.map(|known| known.id).collect();
        Ok(KeyCensus { newest, awaited: self.sealer.awaited(), in_use, sealed })
    }

    /// Seals and signs everything with the newest key of the key file, and takes the others out of use.
    ///
    /// # Errors
    /// [`StoreError::Rekey`] where it cannot be finished, and why; what was done stays. Else where the database fails.
    pub async fn rekey(&self, options: RekeyOptions, tell: Tell<'_>) -> Result<Rekeyed, StoreError> {
        self.wait_for_replicas(options, tell).await?;
        let mut rekeyed = Rekeyed {
            key: self.sealer.writer(),
            fresh: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            retired: Vec::new(),
        };
        let mut census = self.key_census().await?;
        for _ in 0..PASSES {
            self.pass(&census, &mut rekeyed, tell).await?;
            census = self.key_census().await?;
            let left = census.older().saturating_sub(rekeyed.unreadable.values().sum());
            if left == 0 {
                rekeyed.retired = self.retire().await?;
                rekeyed.fresh.retain(|_, count| *count > 0);
                rekeyed.unreadable.retain(|_, count| *count > 0);
                return Ok(rekeyed);
            }
            tell(RekeyStep::Waits(format!(
                "others work on values, or have written some meanwhile: {left} are left"
            )));
            tokio::time::sleep(PAUSE).await;
        }
        Err(StoreError::Rekey(format!(
            "older keys still have {} values, which others keep writing; run it again",
            census.older()
        )))
    }

    /// Goes once over everything.
    async fn pass(
        &self,
        census: &KeyCensus,
        rekeyed: &mut Rekeyed,
        tell: Tell<'_>,
    ) -> Result<(), StoreError> {
        for place in PLACES.iter().map(Some).chain([None]) {
            let what = place.map_or(BLOBS, |place| place.what);
            let (mut all, mut after) = (Done::default(), place.map(sealed::Place::start).unwrap_or_default());
            loop {
                let (done, last) = match place {
                    Some(place) => self.reseal(place, &after, ROWS).await?,
                    None => self.reseal_blob(&after).await?,
                };
                let Some(last) = last else { break };
                after = last;
                (all.fresh, all.unreadable) = (all.fresh + done.fresh, all.unreadable + done.unreadable);
                tell(RekeyStep::Did { what, done: all.fresh, of: census.older_of(what) });
            }
            *rekeyed.fresh.entry(what).or_default() += all.fresh;
            rekeyed.unreadable.insert(what, all.unreadable);
        }
        for table in Table::ALL {
            let (mut all, mut after, what) = (0, Uuid::nil(), table.what());
            while let (done, Some(last)) = self.resign(table, after, ROWS).await? {
                (all, after) = (all + done, last);
                if done > 0 {
                    tell(RekeyStep::Did { what, done: all, of: census.older_of(what) });
                }
            }
            *rekeyed.fresh.entry(what).or_default() += all;
        }
        Ok(())
    }

    /// Waits until the newest key is in use, and no replica seals with another one any more.
    async fn wait_for_replicas(&self, options: RekeyOptions, tell: Tell<'_>) -> Result<(), StoreError> {
        let began = tokio::time::Instant::now();
        let mut told = String::new();
        loop {
            self.tend_keys().await?;
            let Some(why) = self.why_not_yet(options).await? else { return Ok(()) };
            if began.elapsed() >= options.patience + options.settle {
                return Err(StoreError::Rekey(why));
            }
            if told != why {
                told.clone_from(&why);
                tell(RekeyStep::Waits(why));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn why_not_yet(&self, options: RekeyOptions) -> Result<Option<String>, StoreError> {
        let what = "look which keys the replicas have";
        let newest = self.sealer.awaited().unwrap_or_else(|| self.sealer.writer());
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        let replicas = key_state::hold_replicas(&mut tx).await?;
        let now: time::OffsetDateTime = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        drop(tx);
        let name = newest.to_string();
        Ok(replicas.iter().find_map(|replica| replica.why_not(&name, Some(now - options.settle))))
    }

    /// Takes all keys but the newest out of use: nothing is sealed with them. What they have signed of the audit log counts up
    /// to here.
    async fn retire(&self) -> Result<Vec<KeyId>, StoreError> {
        let what = "take older keys out of use";
        let writer = self.sealer.writer();
        let upto = self.seal_audit_up_to_now().await?;
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(key_state::LOCK)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let replicas = key_state::hold_replicas(&mut tx).await?;
        // One that came since may seal with an older key.
        let name = writer.to_string();
        if let Some(why) = replicas.iter().find_map(|replica| replica.why_not(&name, None)) {
            return Err(StoreError::Rekey(why));
        }
        let mut retired = Vec::new();
        let known = key_state::known(&mut tx).await?;
        for key in known.iter().filter(|key| !key.retired && key.id != writer) {
            let (derived, _) = self.sealer.derived_of(key)?;
            let sealed = self.sealer.seal(what, &derived_place(key.id), &derived.to_bytes(Some(upto)))?;
            sqlx::query("UPDATE hub_key SET derived = $2, retired_at = now() WHERE id = $1")
                .bind(key.id.to_string())
                .bind(sealed)
                .execute(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
            retired.push(key.id);
        }
        let known = key_state::known(&mut tx).await?;
        tx.commit().await.map_err(StoreError::query(what))?;
        self.sealer.attach(&known)?;
        Ok(retired)
    }

    /// Seals what the audit log has now. Gives the newest batch.
    async fn seal_audit_up_to_now(&self) -> Result<i64, StoreError> {
        let what = "seal the audit log";
        let newest: Option<i64> = sqlx::query_scalar("SELECT max(id) FROM audit")
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        loop {
            let sealed = self.seal_audit(Timestamp::now(), None).await?;
            let pending: bool =
                sqlx::query_scalar("SELECT EXISTS (SELECT FROM audit WHERE batch IS NULL AND id <= $1)")
                    .bind(newest.unwrap_or(0))
                    .fetch_one(&self.pool)
                    .await
                    .map_err(StoreError::query(what))?;
            match sealed {
                Some(sealed) if !pending => return Ok(sealed.newest.batch),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

impl ReplicaKeys {
    /// Why what this replica writes may still be sealed with another key than `newest`, also where it says so only since `settled`.
    fn why_not(&self, newest: &str, settled: Option<time::OffsetDateTime>) -> Option<String> {
        let id = self.id;
        match (&self.keys, self.since) {
            (None, _) => Some(format!(
                "the replica {id} is of a version that knows one key only: upgrade it, or wait until it has ended"
            )),
            (Some(keys), _) if !keys.iter().any(|key| key == newest) => Some(format!(
                "the replica {id} does not have the key {newest}: give it the same key file (it reads it again by itself)"
            )),
            (Some(keys), _) if keys.first().is_none_or(|key| key != newest) => Some(format!(
                "the replica {id} does not use the key {newest} yet: it comes first in this process' key file, and has to in that \
                 replica's"
            )),
            (_, Some(since)) if settled.is_some_and(|settled| since > settled) => {
                Some(format!("until what the replica {id} sealed before it used the key {newest} is written"))
            }
            _ => None,
        }
    }
}
