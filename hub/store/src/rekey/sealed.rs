//! Where sealed values lie, and sealing them again.

use sqlx::PgConnection;

use crate::{KeyId, Store, StoreError};

/// A column of sealed values. Its statements find values that do not begin as `$2` does, behind the row `$1`.
///
/// Rows that somebody else works on are skipped, since whoever never waits for a lock cannot be part of a deadlock: the next
/// pass finds them.
pub(super) struct Place {
    pub(super) what: &'static str,
    /// Keys and how many values each has.
    pub(super) count: &'static str,
    /// A row, what its value is sealed for, and the value.
    batch: &'static str,
    /// Writes values (`$3`) into rows (`$1`) that still have the value that was read (`$2`).
    update: &'static str,
    /// What comes before all rows.
    start: &'static str,
}

/// All of them but blobs, of which each may be many rows.
pub(super) const PLACES: [Place; 9] = [
    Place {
        what: "keys of artifacts in the artifact store",
        count: "SELECT CASE WHEN substring(object_key FROM 1 FOR 1) = '\\x02' THEN \
                encode(substring(object_key FROM 2 FOR 4), 'hex') END, count(*) FROM blob WHERE object_name IS NOT NULL GROUP BY 1",
        batch: "SELECT object_name, convert_to('artifact', 'UTF8') || '\\x00'::bytea || digest || convert_to(object_name, 'UTF8'), object_key \
                FROM blob WHERE object_name > $1 AND substring(object_key FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY object_name LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE blob SET object_key = n.fresh FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE object_name = n.which AND object_key = n.old",
        start: "",
    },
    Place {
        what: "keys of authorities",
        count: "SELECT CASE WHEN substring(key_sealed FROM 1 FOR 1) = '\\x02' THEN \
                encode(substring(key_sealed FROM 2 FOR 4), 'hex') END, count(*) FROM authority GROUP BY 1",
        batch: "SELECT name, convert_to('authority', 'UTF8') || '\\x00'::bytea || convert_to(name, 'UTF8') || '\\x00'::bytea \
                || sha256(convert_to(certificate_pem, 'UTF8')), key_sealed FROM authority \
                WHERE name > $1 AND substring(key_sealed FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY name LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE authority SET key_sealed = n.fresh FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE name = n.which AND key_sealed = n.old",
        start: "",
    },
    Place {
        what: "keys of service accounts' tokens",
        count: "SELECT CASE WHEN substring(key_sealed FROM 1 FOR 1) = '\\x02' THEN \
                encode(substring(key_sealed FROM 2 FOR 4), 'hex') END, count(*) FROM account_key GROUP BY 1",
        batch: "SELECT number::text, convert_to('account_key', 'UTF8') || '\\x00'::bytea || convert_to(id, 'UTF8'), key_sealed \
                FROM account_key \
                WHERE number > $1::text::bigint AND substring(key_sealed FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE account_key SET key_sealed = n.fresh \
                 FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE number = n.which::bigint AND key_sealed = n.old",
        start: "0",
    },
    Place {
        what: "sessions",
        count: "SELECT CASE WHEN substring(sealed FROM 1 FOR 1) = '\\x02' THEN encode(substring(sealed FROM 2 FOR 4), 'hex') END, \
                count(*) FROM sign_in_session GROUP BY 1",
        batch: "SELECT encode(hash, 'hex'), convert_to('sign_in_session', 'UTF8') || '\\x00'::bytea || hash, sealed \
                FROM sign_in_session \
                WHERE hash > decode($1::text, 'hex') AND substring(sealed FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY hash LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE sign_in_session SET sealed = n.fresh \
                 FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE hash = decode(n.which, 'hex') AND sealed = n.old",
        start: "",
    },
    Place {
        what: "Secrets",
        count: "SELECT CASE WHEN substring(sealed FROM 1 FOR 1) = '\\x02' THEN encode(substring(sealed FROM 2 FOR 4), 'hex') END, \
                count(*) FROM resource WHERE sealed IS NOT NULL GROUP BY 1",
        batch: "SELECT uid::text, uuid_send(uid), sealed FROM resource \
                WHERE uid > $1::text::uuid AND substring(sealed FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY uid LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE resource SET sealed = n.fresh FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE uid = n.which::uuid AND sealed = n.old",
        start: "00000000-0000-0000-0000-000000000000",
    },
    Place {
        what: "past versions of Secrets",
        count: "SELECT CASE WHEN substring(sealed FROM 1 FOR 1) = '\\x02' THEN encode(substring(sealed FROM 2 FOR 4), 'hex') END, \
                count(*) FROM resource_event WHERE sealed IS NOT NULL GROUP BY 1",
        batch: "SELECT resource_version::text, uuid_send(uid), sealed FROM resource_event \
                WHERE resource_version > $1::text::bigint AND substring(sealed FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY resource_version LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE resource_event SET sealed = n.fresh \
                 FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE resource_version = n.which::bigint AND sealed = n.old",
        start: "-1",
    },
    Place {
        what: "children of builds",
        count: "SELECT CASE WHEN substring(children FROM 1 FOR 1) = '\\x02' THEN encode(substring(children FROM 2 FOR 4), 'hex') END, \
                count(*) FROM build_cache WHERE children IS NOT NULL GROUP BY 1",
        batch: "SELECT encode(inputs, 'hex'), inputs, children FROM build_cache \
                WHERE inputs > decode($1::text, 'hex') AND substring(children FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY inputs LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE build_cache SET children = n.fresh \
                 FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE inputs = decode(n.which, 'hex') AND children = n.old",
        start: "",
    },
    Place {
        what: "what was read of clusters",
        count: "SELECT CASE WHEN substring(facts FROM 1 FOR 1) = '\\x02' THEN encode(substring(facts FROM 2 FOR 4), 'hex') END, \
                count(*) FROM reconciliation WHERE facts IS NOT NULL GROUP BY 1",
        batch: "SELECT applier::text || '/' || attempt, uuid_send(applier), facts FROM reconciliation \
                WHERE (applier, attempt) > (split_part($1::text, '/', 1)::uuid, split_part($1::text, '/', 2)::bigint) \
                AND substring(facts FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY applier, attempt LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE reconciliation SET facts = n.fresh \
                 FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE applier = split_part(n.which, '/', 1)::uuid AND attempt = split_part(n.which, '/', 2)::bigint \
                 AND facts = n.old",
        start: "00000000-0000-0000-0000-000000000000/-1",
    },
    Place {
        what: "keys that are derived from keys",
        count: "SELECT CASE WHEN substring(derived FROM 1 FOR 1) = '\\x02' THEN encode(substring(derived FROM 2 FOR 4), 'hex') END, \
                count(*) FROM hub_key GROUP BY 1",
        batch: "SELECT id, convert_to('hub_key', 'UTF8') || '\\x00'::bytea || decode(id, 'hex'), derived FROM hub_key \
                WHERE id > $1 AND substring(derived FROM 1 FOR length($2::bytea)) <> $2 \
                ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED",
        update: "UPDATE hub_key SET derived = n.fresh FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS n (which, old, fresh) \
                 WHERE id = n.which AND derived = n.old",
        start: "",
    },
];

/// Sealed blobs by their first part.
pub(super) const COUNT_BLOBS: &str = "SELECT CASE WHEN substring(data FROM 1 FOR 1) = '\\x02' THEN encode(substring(data FROM 2 FOR 4), 'hex') END, count(*) \
     FROM blob JOIN blob_chunk USING (digest) WHERE sealed AND part = 0 GROUP BY 1";
/// What messages call them.
pub(super) const BLOBS: &str = "sealed blobs";

/// How far a pass is in a place.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) fresh: u64,
    /// Values that no key opens.
    pub(super) unreadable: u64,
}

/// A batch that was done, and the row that it ended with; none where there was nothing.
pub(super) type Batch = (Done, Option<String>);

impl Place {
    pub(super) fn start(&self) -> String {
        self.start.to_owned()
    }
}

impl Store {
    /// Seals some values again, from behind `after` on, in a transaction of their own.
    pub(super) async fn reseal(&self, place: &Place, after: &str, most: i64) -> Result<Batch, StoreError> {
        let what = "seal values again";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        let rows: Vec<(String, Vec<u8>, Vec<u8>)> = sqlx::query_as(place.batch)
            .bind(after)
            .bind(self.sealer.prefix())
            .bind(most)
            .fetch_all(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
        let Some(last) = rows.last().map(|(row, ..)| row.clone()) else { return Ok((Done::default(), None)) };
        let mut done = Done::default();
        let (mut which, mut old, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        for (row, context, sealed) in rows {
            let Ok(plain) = self.sealer.open(what, &context, &sealed) else {
                tracing::warn!(place = place.what, row, "a sealed value opens with none of the keys");
                done.unreadable += 1;
                continue;
            };
            fresh.push(self.sealer.seal(what, &context, &plain)?);
            which.push(row);
            old.push(sealed);
        }
        let written = sqlx::query(place.update).bind(which).bind(old).bind(fresh).execute(&mut *tx).await;
        done.fresh = written.map_err(StoreError::query(what))?.rows_affected();
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok((done, Some(last)))
    }

    /// As [`Store::reseal`], of the next blob behind `after`.
    pub(super) async fn reseal_blob(&self, after: &str) -> Result<Batch, StoreError> {
        let what = "seal a blob again";
        let mut tx = self.pool.begin().await.map_err(StoreError::query(what))?;
        let found: Option<(Vec<u8>, String)> = sqlx::query_as(
            "SELECT b.digest, encode(b.digest, 'hex') FROM blob b JOIN blob_chunk c ON c.digest = b.digest AND c.part = 0
             WHERE b.sealed AND b.digest > decode($1::text, 'hex') AND substring(c.data FROM 1 FOR length($2::bytea)) <> $2
             ORDER BY b.digest LIMIT 1 FOR UPDATE OF b SKIP LOCKED",
        )
        .bind(after)
        .bind(self.sealer.prefix())
        .fetch_optional(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
        let Some((digest, row)) = found else { return Ok((Done::default(), None)) };
        let parts: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT data FROM blob_chunk WHERE digest = $1 ORDER BY part")
                .bind(&digest)
                .fetch_all(&mut *tx)
                .await
                .map_err(StoreError::query(what))?;
        // What one opens without its other bytes is not whole anyway.
        let plain = self.sealer.open(what, &digest, &parts.concat());
        drop(parts);
        let Ok(plain) = plain else {
            tracing::warn!(digest = row, "a sealed blob opens with none of the keys");
            return Ok((Done { fresh: 0, unreadable: 1 }, Some(row)));
        };
        let sealed = self.sealer.seal(what, &digest, &plain)?;
        drop(plain);
        write_blob(&mut tx, &digest, &sealed).await?;
        tx.commit().await.map_err(StoreError::query(what))?;
        Ok((Done { fresh: 1, unreadable: 0 }, Some(row)))
    }
}

async fn write_blob(tx: &mut PgConnection, digest: &[u8], sealed: &[u8]) -> Result<(), StoreError> {
    let what = "write a blob that was sealed again";
    sqlx::query("DELETE FROM blob_chunk WHERE digest = $1")
        .bind(digest)
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
    for (part, data) in (0_i32..).zip(sealed.chunks(Store::BLOB_PART)) {
        sqlx::query("INSERT INTO blob_chunk (digest, part, data) VALUES ($1, $2, $3)")
            .bind(digest)
            .bind(part)
            .bind(data)
            .execute(&mut *tx)
            .await
            .map_err(StoreError::query(what))?;
    }
    sqlx::query("UPDATE blob SET size = $2 WHERE digest = $1")
        .bind(digest)
        .bind(i64::try_from(sealed.len()).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await
        .map_err(StoreError::query(what))?;
    Ok(())
}

/// Which key a value is sealed with, by what its beginning says.
pub(super) fn key_of(said: Option<String>, base: Option<KeyId>) -> Result<Option<KeyId>, StoreError> {
    said.map(|id| id.parse()).transpose().map(|id| id.or(base))
}
