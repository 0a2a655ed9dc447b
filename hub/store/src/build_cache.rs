//! Which build came out of which inputs, and what builds read of their artifacts.

use std::collections::HashMap;

use jiff::Timestamp;
use roadstead_api::{KindId, RUNNING_BUILDS};
use roadstead_model::{Digest, ResourceUid};

use crate::blob::digest;
use crate::build_turn::{BuildQuota, MOST_QUOTAS};
use crate::counted::Connections;
use crate::time::to_sql;
use crate::together::Answers;
use crate::{Store, StoreError};

/// What a build that is to be remembered read of its artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOfBuild<'a> {
    /// A digest of all that it was built by, besides its artifacts.
    pub recipe: Digest,
    /// A digest of what it was answered.
    pub answers: Digest,
    /// What it asked for, packed.
    pub reads: &'a [u8],
}

/// What an earlier build read of its artifacts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildReads {
    /// The key of the build.
    pub inputs: Digest,
    /// A digest of what it was answered.
    pub answers: Digest,
    /// What it asked for, packed.
    pub reads: Vec<u8>,
}

/// What is known of a build that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBuild {
    /// The build, where it was made before.
    pub build: Option<CachedBuild>,
    /// How many builds may run at once in the namespace, where a quota says so.
    pub quota: Option<BuildQuota>,
    /// The applier waits for its turn to build.
    pub waits: bool,
}

/// A build that was made before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedBuild {
    /// What goes to the cluster, in the order of the groups.
    pub groups: Vec<BuiltGroup>,
    /// What goes to the hub, as a JSON list; none where nothing does.
    pub children: Option<Vec<u8>>,
}

/// A group of objects whose bytes are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltGroup {
    /// Its name, for people; empty where it is the only one.
    pub label: String,
    /// The digest of its objects.
    pub objects: Digest,
    /// Its bytes are not stored: they were made of what a hub decrypted.
    pub sealed: bool,
    /// What the data keys of its encrypted objects are wrapped as, as JSON; none where no object is encrypted.
    pub wrapped_keys: Option<Vec<u8>>,
}

impl Store {
    /// The build that came out of these inputs, if it is still stored; and, for an applier in a namespace, how many builds may run there.
    /// Together, since most who ask for a build that is not there go on to build.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn find_build(
        &self,
        inputs: Digest,
        (namespace, applier): (&str, ResourceUid),
        now: Timestamp,
    ) -> Result<FoundBuild, StoreError> {
        let what = "look up a build";
        type Found = (
            Option<Vec<Vec<u8>>>,
            Option<Vec<String>>,
            Option<Vec<u8>>,
            Vec<Vec<u8>>,
            Vec<Vec<u8>>,
            Vec<Option<Vec<u8>>>,
            Vec<String>,
            bool,
        );
        let found: Found = sqlx::query_as(
            "WITH hit AS (UPDATE build_cache SET used_at = $2 WHERE inputs = $1 RETURNING digests, labels, children),
                  stored AS (UPDATE blob SET used_at = $2 FROM hit WHERE blob.digest = ANY(hit.digests) RETURNING blob.digest, blob.size)
             SELECT digests, labels, children, ARRAY(SELECT digest FROM stored), ARRAY(SELECT digest FROM stored WHERE size = 0),
                    ARRAY(SELECT wrapped_keys FROM unnest(digests) WITH ORDINALITY AS d (digest, place)
                          LEFT JOIN build_labels ON build_digest = d.digest ORDER BY place),
                    ARRAY(SELECT name || '=' || (object #>> $3) FROM resource
                          WHERE api_group = $4 AND kind = $5 AND namespace = $6 AND object #>> $3 IS NOT NULL
                          ORDER BY name LIMIT $7),
                    EXISTS (SELECT FROM build_turn WHERE applier = $8 AND replica IS NULL)
             FROM (VALUES (1)) AS always LEFT JOIN hit ON true",
        )
        .bind(inputs.as_bytes().as_slice())
        .bind(to_sql(now))
        .bind(["spec", "hard", RUNNING_BUILDS].as_slice())
        .bind(KindId::ResourceQuota.get().group())
        .bind(KindId::ResourceQuota.get().kind)
        .bind(namespace)
        .bind(MOST_QUOTAS)
        .bind(applier.0)
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let (digests, labels, children, stored, names, wrapped, quotas, waits) = found;
        let found = FoundBuild { build: None, quota: BuildQuota::lowest(&quotas), waits };
        let Some((digests, labels)) = digests.zip(labels) else { return Ok(found) };
        // Of a group that is not stored any more the build is made again.
        if digests.iter().any(|digest| !stored.contains(digest)) {
            return Ok(found);
        }
        let group = |((bytes, label), wrapped_keys): ((Vec<u8>, String), Option<Vec<u8>>)| {
            let (objects, sealed) = (digest(what, &bytes)?, names.contains(&bytes));
            Ok::<_, StoreError>(BuiltGroup { label, objects, sealed, wrapped_keys })
        };
        let groups = digests.into_iter().zip(labels).zip(wrapped).map(group).collect::<Result<_, _>>()?;
        let open =
            |sealed: Vec<u8>| self.sealer.open(what, inputs.as_bytes(), &sealed).map(|plain| plain.to_vec());
        let build = CachedBuild { groups, children: children.map(open).transpose()? };
        Ok(FoundBuild { build: Some(build), ..found })
    }

    /// Records which build came out of which inputs, with the labels of each group's objects, as JSON, in the groups' order
    /// (for [`Tx::settle`](crate::Tx::settle)); and what it read of its artifacts, where that is known.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn remember_build(
        &self,
        inputs: Digest,
        build: &CachedBuild,
        labels: &[&[u8]],
        objects: usize,
        read: Option<&ReadOfBuild<'_>>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // What goes to the hub may be a Secret.
        let seal = |plain: &Vec<u8>| self.sealer.seal("seal what goes to the hub", inputs.as_bytes(), plain);
        let children = build.children.as_ref().map(seal).transpose()?;
        sqlx::query(
            "WITH labelled AS (
               INSERT INTO build_labels (build_digest, objects, wrapped_keys)
               SELECT DISTINCT ON (digest) digest, convert_from(labels, 'UTF8')::jsonb, wrapped
               FROM unnest($2::bytea[], $7::bytea[], $8::bytea[]) AS g (digest, labels, wrapped)
               ON CONFLICT (build_digest) DO UPDATE SET wrapped_keys = EXCLUDED.wrapped_keys
               WHERE build_labels.wrapped_keys IS DISTINCT FROM EXCLUDED.wrapped_keys)
             INSERT INTO build_cache (inputs, digests, labels, objects, used_at, children, recipe, answers, reads)
             VALUES ($1, $2, $6, $3, $4, $5, $9, $10, $11)
             ON CONFLICT (inputs) DO UPDATE SET digests = $2, labels = $6, objects = $3, used_at = $4, children = $5,
                                                recipe = $9, answers = $10, reads = $11",
        )
        .bind(inputs.as_bytes().as_slice())
        .bind(build.groups.iter().map(|group| group.objects.as_bytes().to_vec()).collect::<Vec<_>>())
        .bind(i32::try_from(objects).unwrap_or(i32::MAX))
        .bind(to_sql(now))
        .bind(&children)
        .bind(build.groups.iter().map(|group| group.label.as_str()).collect::<Vec<_>>())
        .bind(labels)
        .bind(build.groups.iter().map(|group| group.wrapped_keys.as_deref()).collect::<Vec<_>>())
        .bind(read.map(|read| read.recipe.as_bytes().to_vec()))
        .bind(read.map(|read| read.answers.as_bytes().to_vec()))
        .bind(read.map(|read| read.reads))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("remember a build"))?;
        Ok(())
    }

    /// What builds by a recipe read, those that were used last first, `most` of them; asked [together](crate::together) with what others ask.
    /// Whether their objects are still stored is not asked.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn built_by_recipe(&self, recipe: Digest, most: i64) -> Result<Vec<BuildReads>, StoreError> {
        let ask = |this: Self, asked: Vec<_>| async move { built_by_recipes(&this.pool, &asked).await };
        Ok(self.together.built.ask(&self.health, self, (recipe, most), ask).await?.unwrap_or_default())
    }

    /// Records that the build of these inputs is that of others, too.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn remember_same_build(
        &self,
        inputs: Digest,
        others: Digest,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let what = "remember that a build is the same";
        let children: Option<Option<Vec<u8>>> =
            sqlx::query_scalar("SELECT children FROM build_cache WHERE inputs = $1")
                .bind(others.as_bytes().as_slice())
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
        // It was there a moment ago: of one that is gone nothing is remembered.
        let Some(children) = children else { return Ok(()) };
        // They are sealed for their row.
        let again = |sealed: Vec<u8>| {
            let plain = self.sealer.open(what, others.as_bytes(), &sealed)?;
            self.sealer.seal("seal what goes to the hub", inputs.as_bytes(), &plain)
        };
        let children = children.map(again).transpose()?;
        sqlx::query(
            "INSERT INTO build_cache (inputs, digests, labels, objects, used_at, children, recipe, answers, reads)
             SELECT $1, digests, labels, objects, $3, $4, recipe, answers, reads FROM build_cache WHERE inputs = $2
             ON CONFLICT (inputs) DO NOTHING",
        )
        .bind(inputs.as_bytes().as_slice())
        .bind(others.as_bytes().as_slice())
        .bind(to_sql(now))
        .bind(children)
        .execute(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        Ok(())
    }

    /// What the data keys of a group's encrypted objects are wrapped as ([`BuiltGroup::wrapped_keys`]).
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn wrapped_keys(&self, objects: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let found: Option<Option<Vec<u8>>> =
            sqlx::query_scalar("SELECT wrapped_keys FROM build_labels WHERE build_digest = $1")
                .bind(objects.as_bytes().as_slice())
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query("look up a build's wrapped keys"))?;
        Ok(found.flatten())
    }
}

/// What builds by these recipes read, up to so many of each.
async fn built_by_recipes(
    pool: &Connections,
    asked: &[(Digest, i64)],
) -> Result<Answers<(Digest, i64), Vec<BuildReads>>, StoreError> {
    type Row = (Vec<u8>, i64, Vec<u8>, Vec<u8>, Vec<u8>);
    let what = "look up what builds read";
    let (recipes, most): (Vec<_>, Vec<i64>) =
        asked.iter().map(|(recipe, most)| (recipe.as_bytes().to_vec(), *most)).unzip();
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT asked.recipe, asked.most, earlier.inputs, earlier.answers, earlier.reads
         FROM (SELECT * FROM unnest($1::bytea[], $2::bigint[]) LIMIT $3) AS asked (recipe, most)
         CROSS JOIN LATERAL (
             SELECT inputs, answers, reads, used_at FROM build_cache WHERE build_cache.recipe = asked.recipe
             ORDER BY used_at DESC LIMIT asked.most) AS earlier
         ORDER BY earlier.used_at DESC",
    )
    .bind(recipes)
    .bind(most)
    .bind(i64::try_from(asked.len()).unwrap_or(i64::MAX))
    .fetch_all(pool)
    .await
    .map_err(StoreError::query(what))?;
    let mut built: HashMap<_, Vec<BuildReads>> = HashMap::new();
    for (recipe, most, inputs, answers, reads) in rows {
        let reads = BuildReads { inputs: digest(what, &inputs)?, answers: digest(what, &answers)?, reads };
        built.entry((digest(what, &recipe)?, most)).or_default().push(reads);
    }
    Ok(built.into_iter().map(|(asked, reads)| (asked, Ok(reads))).collect())
}
