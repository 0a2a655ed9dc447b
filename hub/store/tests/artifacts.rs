//! Which artifacts of a source are kept: by number and by age, and never one that somebody reads.

mod support;

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_api::{KindId, Reference};
use roadstead_hub_store::{AtRest, Key, Sealer, Store};
use roadstead_model::{ApplierUid, ClusterUid, Digest, ResourceUid, Revision};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};

struct Site {
    database: TestDatabase,
    store: Store,
    start: Timestamp,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        Ok(Self { database, store, start: "2026-11-26T12:00:00Z".parse()? })
    }

    fn at(&self, hours: u64) -> Timestamp {
        self.start + Duration::from_secs(hours * 3600)
    }

    async fn object(&self, kind: KindId, name: &str, object: Value) -> Result<ResourceUid> {
        let uid = uuid::Uuid::new_v4();
        let references: Vec<String> = kind.references(&object, "apps").iter().map(Reference::key).collect();
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object, \
             refers_to) VALUES ($1, $2, $3, 'apps', $4, 1, 1, now(), $5, $6)",
        )
        .bind(uid)
        .bind(kind.get().kind)
        .bind(kind.get().group())
        .bind(name)
        .bind(object)
        .bind(references)
        .execute(&mut self.database.connect().await?)
        .await?;
        Ok(ResourceUid(uid))
    }

    /// A source that had one artifact each hour: its own number is its revision.
    async fn source(&self, name: &str, count: u64) -> Result<ResourceUid> {
        let uid = self.object(KindId::GitRepository, name, json!({ "spec": {} })).await?;
        for hour in 0..count {
            let bytes = format!("{name} {hour}").into_bytes();
            let digest = Digest::of(&bytes);
            self.store.put_blob(digest, &bytes, AtRest::Sealed, self.at(hour)).await?;
            let mut tx = self.store.begin().await?;
            tx.keep_artifact(uid, &revision(hour)?, Ok(digest), self.at(hour)).await?;
            tx.commit().await?;
            self.name(uid, digest).await?;
        }
        Ok(uid)
    }

    /// Has its status name an artifact.
    async fn name(&self, source: ResourceUid, digest: Digest) -> Result<()> {
        let artifact = json!({ "artifact": { "digest": digest.to_string() } });
        sqlx::query("UPDATE resource SET object = jsonb_set(object, '{status}', $2) WHERE uid = $1")
            .bind(source.0)
            .bind(artifact)
            .execute(&mut self.database.connect().await?)
            .await?;
        Ok(())
    }

    async fn kept(&self, name: &str, count: u64) -> Result<Vec<u64>> {
        let mut kept = Vec::new();
        for hour in 0..count {
            if self.store.has_blob(Digest::of(format!("{name} {hour}").as_bytes())).await? {
                kept.push(hour);
            }
        }
        Ok(kept)
    }
}

fn revision(number: u64) -> Result<Revision> {
    Ok(format!("main@sha1:{number:040x}").parse()?)
}

#[tokio::test]
async fn the_newest_of_each_source_are_kept_and_those_that_somebody_reads() -> Result<()> {
    let site = Site::new().await?;
    site.source("web", 10).await?;
    site.source("db", 3).await?;
    // A Kustomization is pinned to the third of them, another one to a revision that there never was.
    let pinned = |revision: String| json!({ "spec": { "sourceRef": { "kind": "GitRepository", "name": "web" }, "pin": { "revision": revision } } });
    site.object(KindId::Kustomization, "pinned", pinned(format!("other@sha1:{:040x}", 2))).await?;
    site.object(KindId::Kustomization, "nowhere", pinned("1.2.3".to_owned())).await?;
    // One is pinned to the second by its annotation.
    let by_annotation = json!({
        "metadata": { "annotations": { "fleet.roadstead.dev/pin": revision(1)?.to_string() } },
        "spec": { "sourceRef": { "kind": "GitRepository", "name": "web" } },
    });
    site.object(KindId::Kustomization, "annotated", by_annotation).await?;
    // An attempt that is open was rendered of the fifth.
    let mut tx = site.store.begin().await?;
    let (cluster, applier) = (ClusterUid::random(), ApplierUid::random());
    let spec = support::dispatch("open", Digest::of(b"a build"));
    let attempt = support::open(&mut tx, cluster, applier, &spec, site.at(9)).await?;
    tx.commit().await?;
    sqlx::query("UPDATE reconciliation SET artifact_digest = $1 WHERE applier = $2")
        .bind(Digest::of(b"web 4").as_bytes().as_slice())
        .bind(applier.0)
        .execute(&mut site.database.connect().await?)
        .await?;
    ensure!(attempt.0 > 0);

    // Nothing that was used within the time in which somebody may be at it goes.
    site.store.trim_artifacts(3, site.start).await?;
    ensure!(site.kept("web", 10).await?.len() == 10, "{:?}", site.kept("web", 10).await?);
    site.store.trim_artifacts(3, site.at(100)).await?;
    let kept = site.kept("web", 10).await?;
    ensure!(kept == [1, 2, 4, 7, 8, 9], "{kept:?}");
    ensure!(site.kept("db", 3).await?.len() == 3, "another source's went");
    // By age: only what a status names, and what somebody reads.
    site.store.drop_unused_blobs(site.start, site.at(100)).await?;
    let kept = site.kept("web", 10).await?;
    ensure!(kept == [1, 2, 4, 9], "{kept:?}");
    ensure!(site.kept("db", 3).await? == [2], "{:?}", site.kept("db", 3).await?);
    // Once nobody does, they go.
    let mut connection = site.database.connect().await?;
    sqlx::query("DELETE FROM resource WHERE kind = 'Kustomization'").execute(&mut connection).await?;
    sqlx::query("UPDATE reconciliation SET finished_at = now()").execute(&mut connection).await?;
    site.store.drop_unused_blobs(site.start, site.at(100)).await?;
    let kept = site.kept("web", 10).await?;
    ensure!(kept == [9], "{kept:?}");
    Ok(())
}

#[tokio::test]
async fn what_was_superseded_was_used_until_then() -> Result<()> {
    let site = Site::new().await?;
    // Each was stored an hour before the next one took its place.
    site.source("web", 3).await?;
    site.store.drop_unused_blobs(site.start, site.at(2)).await?;
    let kept = site.kept("web", 3).await?;
    ensure!(kept == [1, 2], "{kept:?}: the second was the newest until hour 2");
    // A status that names nonsense keeps nothing from being recorded.
    let uid = site.source("odd", 1).await?;
    let bad = json!({ "artifact": { "digest": "sha256:nonsense" } });
    sqlx::query("UPDATE resource SET object = jsonb_set(object, '{status}', $2) WHERE uid = $1")
        .bind(uid.0)
        .bind(bad)
        .execute(&mut site.database.connect().await?)
        .await?;
    let digest = Digest::of(b"odd 0");
    let mut tx = site.store.begin().await?;
    tx.keep_artifact(uid, &revision(1)?, Ok(digest), site.at(5)).await?;
    tx.commit().await?;
    ensure!(site.store.source_artifact_at(uid, &revision(1)?).await?.is_some(), "it was not recorded");
    Ok(())
}

#[tokio::test]
async fn the_newest_builds_of_each_applier_can_be_compared_however_old_they_are() -> Result<()> {
    let site = Site::new().await?;
    let build = |applier: usize, number: u64| Digest::of(format!("build {number} of {applier}").as_bytes());
    // The first applier has applied one of its builds twice in a row, the other one has one build.
    for (place, numbers) in [vec![0, 1, 1, 2], vec![0]].into_iter().enumerate() {
        let (cluster, applier) = (ClusterUid::random(), ApplierUid::random());
        for number in numbers {
            let bytes = format!("build {number} of {place}");
            site.store.put_blob(build(place, number), bytes.as_bytes(), AtRest::Sealed, site.start).await?;
            let mut tx = site.store.begin().await?;
            let spec = support::dispatch(&format!("app-{place}"), build(place, number));
            support::open(&mut tx, cluster, applier, &spec, site.at(number)).await?;
            tx.commit().await?;
            sqlx::query("UPDATE reconciliation SET finished_at = now() WHERE finished_at IS NULL")
                .execute(&mut site.database.connect().await?)
                .await?;
        }
    }
    site.store.drop_unused_blobs(site.at(100), site.at(100)).await?;
    let mut kept = Vec::new();
    for (applier, number) in [(0, 0), (0, 1), (0, 2), (1, 0)] {
        kept.push(site.store.has_blob(build(applier, number)).await?);
    }
    ensure!(kept == [false, true, true, true], "{kept:?}");
    Ok(())
}
