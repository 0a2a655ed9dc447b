//! The builds that an applier's attempts dispatched, for comparing them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roadstead_model::{ApplierUid, Attempt, Digest};
use serde_json::Value;
use sqlx::types::Json;

use crate::blob::digest;
use crate::mac::Row;
use crate::time::from_sql;
use crate::{Sealer, Store, StoreError, Tx};

/// Attempts that are looked at: no more are kept.
const MOST: i64 = 100;
/// Bytes of a keyed hash that are shown: enough to tell values apart, and no more.
const HASH_BYTES: usize = 8;

/// What an attempt was built for and of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparableBuild {
    /// Which attempt.
    pub attempt: Attempt,
    /// The source's revision.
    pub revision: Option<String>,
    /// When it began.
    pub started: Timestamp,
    /// The groups' digests, in their order.
    pub groups: Vec<Digest>,
    /// Whether the attempt used Secrets: for its render, or for the variables that are substituted later.
    pub by_secrets: bool,
}

impl Store {
    /// The builds of an applier's attempts, the newest first. Whether they are still stored is not looked at.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn comparable_builds(&self, applier: ApplierUid) -> Result<Vec<ComparableBuild>, StoreError> {
        type Found = (
            i64,
            Option<String>,
            time::OffsetDateTime,
            Vec<u8>,
            Option<Value>,
            Option<Json<BTreeMap<String, String>>>,
        );
        let what = "list the builds of an applier";
        let rows: Vec<Found> = sqlx::query_as(
            "SELECT attempt, revision, started_at, build_digest, dispatch -> 'groups', rendered_by
             FROM reconciliation WHERE applier = $1 AND build_digest IS NOT NULL AND NOT deletes
             ORDER BY attempt DESC LIMIT $2",
        )
        .bind(applier.0)
        .bind(MOST)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        rows.into_iter()
            .map(|(attempt, revision, started, build, groups, by)| {
                let groups = groups.as_ref().and_then(Value::as_array).into_iter().flatten();
                let digests = groups.filter_map(|group| group["objects"].as_str()?.parse().ok());
                let mut digests: Vec<Digest> = digests.collect();
                if digests.is_empty() {
                    // An attempt that sent nothing has what the one before it had: of one group, which is its build.
                    digests.push(digest(what, &build)?);
                }
                let by_secrets = by.is_some_and(|Json(by)| by.keys().any(|key| key.starts_with("Secret/")));
                Ok(ComparableBuild {
                    attempt: Attempt(attempt),
                    revision,
                    started: from_sql(what, started)?,
                    groups: digests,
                    by_secrets,
                })
            })
            .collect()
    }

    /// What the digests of a sealed build of these inputs depend on besides its content, in hexadecimal: without this hub's key nobody can
    /// hold a guess of the content against them. It is the same after a rotation of keys, so that no build is sent again for that.
    #[must_use]
    pub fn salt(&self, inputs: &Digest) -> String {
        let mac = self.sealer.sign_stably(&Row::of("sealed build").bytes(inputs.as_bytes()));
        mac.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A hash of these texts under a key of this hub, in hexadecimal: equal texts have equal hashes, and without the key nobody can
    /// test a guess.
    #[must_use]
    pub fn keyed_hash(&self, texts: &[&str]) -> String {
        keyed_hash(&self.sealer, texts)
    }
}

impl Tx {
    /// As [`Store::keyed_hash`].
    #[must_use]
    pub fn keyed_hash(&self, texts: &[&str]) -> String {
        keyed_hash(&self.sealer, texts)
    }
}

fn keyed_hash(sealer: &Sealer, texts: &[&str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let mac = sealer.sign_stably(&Row::of("value in a diff").texts(&texts));
    mac.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}
