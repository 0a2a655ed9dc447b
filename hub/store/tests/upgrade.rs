//! A database of an older version is brought up to date, once nothing of that version runs on it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_api::{KindId, Reference};
use roadstead_hub_store::{Key, Sealer, Store, StoreError};
use roadstead_model::{ApplierUid, AttemptKind, ClusterUid, Queue, ReplicaId, Room};
use roadstead_tests::{TestDatabase, eventually};
use serde_json::json;
use sqlx::migrate::Migrator;

/// The last migration of the oldest version that people may come from.
const OLDEST: i64 = 11;

/// A database as that version left it, with one object that is due.
async fn older() -> Result<TestDatabase> {
    let database = TestDatabase::new().await?;
    let mut connection = database.connect().await?;
    let all = sqlx::migrate!("../../migrations");
    let then = all.migrations.iter().filter(|one| one.version <= OLDEST).cloned().collect();
    Migrator { migrations: Cow::Owned(then), ..Migrator::DEFAULT }.run(&mut connection).await?;
    sqlx::raw_sql(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         VALUES ('11111111-1111-1111-1111-111111111111', 'Kustomization', 'kustomize.toolkit.fluxcd.io', 'default', 'app',
                 1, 1, now(), '{\"metadata\":{\"name\":\"app\",\"namespace\":\"default\"}}');
         INSERT INTO schedule (uid, kind, due_at)
         VALUES ('11111111-1111-1111-1111-111111111111', 'kustomization', '-infinity')",
    )
    .execute(&mut connection)
    .await
    .context("write as the older version did")?;
    Ok(database)
}

async fn open(database: &TestDatabase) -> Result<Store, StoreError> {
    // The same for all who open a database.
    let sealer = Sealer::new(&Key::new([7; 32]))?;
    Store::open(database.url(), sealer, 4).await
}

#[tokio::test]
async fn an_older_database_is_brought_up_to_date_and_what_was_due_is_due() -> Result<()> {
    let database = older().await?;
    let store = open(&database).await?;
    let now = store.now().await?;
    let due = store
        .claim_due(Queue::Applier, ReplicaId::random(), now, Duration::from_secs(60), &Room::of(10, false))
        .await?;
    ensure!(due.claims.len() == 1, "{due:?}");
    store.close().await;
    Ok(())
}

/// What a Kustomization owned and attempted is the applier's.
#[tokio::test]
async fn what_was_owned_and_attempted_stays_so() -> Result<()> {
    let database = older().await?;
    let mut connection = database.connect().await?;
    sqlx::raw_sql(
        "INSERT INTO inventory (cluster_uid, api_group, kind, namespace, name, version, kustomization, intended)
         VALUES ('33333333-3333-3333-3333-333333333333', 'apps', 'Deployment', 'web', 'web', 'v1',
                 '11111111-1111-1111-1111-111111111111', false);
         INSERT INTO reconciliation (kustomization, attempt, cluster_uid, epoch, generation, revision, deletes, started_at,
                                     deadline, finished_at, reason, message)
         SELECT '11111111-1111-1111-1111-111111111111', attempt, '33333333-3333-3333-3333-333333333333', 1, 1,
                'main@sha1:' || repeat('a', 40), deletes, now(), now(), now(), 'ReconciliationSucceeded', 'it went well'
         FROM (VALUES (1, false), (2, true)) AS attempts (attempt, deletes)",
    )
    .execute(&mut connection)
    .await
    .context("write as the older version did")?;
    let store = open(&database).await?;
    let applier: ApplierUid = "11111111-1111-1111-1111-111111111111".parse()?;
    let cluster: ClusterUid = "33333333-3333-3333-3333-333333333333".parse()?;
    let owned: Vec<String> =
        store.inventory(cluster, applier).await?.iter().map(ToString::to_string).collect();
    ensure!(owned == ["Deployment/web/web"], "{owned:?}");
    let history = store.history(applier, None, 9).await?;
    let told: Vec<_> = history
        .iter()
        .map(|one| {
            let inputs = &one.reconciliation.inputs;
            (one.reconciliation.attempt.0, inputs.kind, inputs.rendered_by.len(), one.message.as_str())
        })
        .collect();
    let expected = [(2, AttemptKind::Delete, 0, "it went well"), (1, AttemptKind::Apply, 0, "it went well")];
    ensure!(told == expected, "{told:?}");
    ensure!(store.facts(applier).await?.is_empty(), "nothing was read");
    store.close().await;
    Ok(())
}

/// Dependencies on other namespaces, and taking over from them, needed no leave before: they have it.
#[tokio::test]
async fn what_was_waited_for_in_other_namespaces_is_waited_for() -> Result<()> {
    let database = older().await?;
    let mut connection = database.connect().await?;
    let object = json!({
        "metadata": { "annotations": { "fleet.roadstead.dev/takes-over": "ops/old, dev/own" } },
        "spec": {
            "sourceRef": { "kind": "GitRepository", "name": "app", "namespace": "sources" },
            "dependsOn": [{ "name": "own" }, { "name": "a", "namespace": "infra" }],
        },
    });
    sqlx::query(
        "UPDATE resource SET object = object || $1 WHERE uid = '11111111-1111-1111-1111-111111111111'",
    )
    .bind(&object)
    .execute(&mut connection)
    .await?;
    let store = open(&database).await?;
    let uid = "11111111-1111-1111-1111-111111111111".parse()?;
    let found = store.begin().await?.granted_references(uid).await?;
    let found: BTreeSet<String> = found.iter().map(Reference::key).collect();
    // Those of its own namespace and the source, which it never had, need none.
    let wanted = ["Kustomization/infra/a", "Kustomization/ops/old"].map(str::to_owned);
    ensure!(wanted.iter().all(|key| found.contains(key)), "{found:?}");
    ensure!(!found.iter().any(|key| key.starts_with("GitRepository/")), "{found:?}");
    store.close().await;
    Ok(())
}

/// Whoever deployed to a cluster before there was `spec.access` may go on, and nobody else.
#[tokio::test]
async fn who_deployed_to_a_cluster_goes_on() -> Result<()> {
    let database = older().await?;
    let mut connection = database.connect().await?;
    let of_secret = |secret: serde_json::Value| json!({ "kubeConfig": { "secretRef": secret } });
    let objects = [
        ("Cluster", "fleet.roadstead.dev", "", "edge", json!({})),
        (
            "Cluster",
            "fleet.roadstead.dev",
            "",
            "spare",
            of_secret(json!({ "namespace": "team-b", "name": "spare" })),
        ),
        ("Cluster", "fleet.roadstead.dev", "", "unused", json!({})),
        (
            "Kustomization",
            "kustomize.toolkit.fluxcd.io",
            "team-a",
            "app",
            json!({ "clusterRef": { "name": "edge" } }),
        ),
        (
            "Kustomization",
            "kustomize.toolkit.fluxcd.io",
            "team-b",
            "app",
            of_secret(json!({ "name": "spare" })),
        ),
    ];
    for (number, (kind, group, namespace, name, spec)) in objects.into_iter().enumerate() {
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             VALUES (gen_random_uuid(), $1, $2, $3, $4, 1, $5, now(), $6)",
        )
        .bind(kind)
        .bind(group)
        .bind(namespace)
        .bind(name)
        .bind(i64::try_from(number + 2)?)
        .bind(json!({ "metadata": { "name": name, "namespace": namespace }, "spec": spec }))
        .execute(&mut connection)
        .await?;
    }
    let store = open(&database).await?;
    let before = store.clusters_with_access_before().await?;
    let granted = |cluster: &str, namespace: &str| (cluster.to_owned(), vec![namespace.to_owned()]);
    ensure!(before == [granted("edge", "team-a"), granted("spare", "team-b")], "{before:?}");
    store.close().await;
    Ok(())
}

/// What objects refer to was not stored by older versions: it is what this version would have stored.
#[tokio::test]
async fn what_objects_of_an_older_database_refer_to_is_known() -> Result<()> {
    let database = older().await?;
    let objects = [
        (
            KindId::Kustomization,
            json!({
                "sourceRef": { "kind": "OCIRepository", "name": "app", "namespace": "sources" },
                "dependsOn": [{ "name": "b" }, { "name": "a", "namespace": "infra" }, { "name": "b", "namespace": "dev" }],
                "decryption": { "provider": "sops", "secretRef": { "name": "keys" } },
                "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "v" }, { "kind": "Secret", "name": "v" }] },
                "kubeConfig": { "secretRef": { "name": "kubeconfig" } },
            }),
        ),
        (
            KindId::Kustomization,
            json!({ "sourceRef": { "kind": "ExternalArtifact", "name": "app" }, "dependsOn": [] }),
        ),
        (
            KindId::GitRepository,
            json!({
                "secretRef": { "name": "login" }, "proxySecretRef": { "name": "login" },
                "verify": { "secretRef": { "name": "signers" } }, "include": [{ "repository": { "name": "shared" } }],
            }),
        ),
        (KindId::Bucket, json!({ "certSecretRef": { "name": "ca" } })),
        (
            KindId::Bucket,
            json!({
                "secretRef": { "name": "keys" },
                "sts": { "secretRef": { "name": "ldap" }, "certSecretRef": { "name": "ca" } },
            }),
        ),
        (KindId::OciRepository, json!({ "url": "oci://registry.example/app" })),
        (KindId::HelmChart, json!({ "sourceRef": { "kind": "HelmRepository", "name": "charts" } })),
        (KindId::Provider, json!({ "secretRef": { "name": "login" } })),
    ];
    let mut connection = database.connect().await?;
    for (number, (kind, spec)) in objects.iter().enumerate() {
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             VALUES (gen_random_uuid(), $1, $2, 'dev', $3, 1, $4, now(), $5)",
        )
        .bind(kind.get().kind)
        .bind(kind.get().group())
        .bind(number.to_string())
        .bind(i64::try_from(number)? + 2)
        .bind(json!({ "spec": spec }))
        .execute(&mut connection)
        .await?;
    }
    let store = open(&database).await?;
    store.close().await;
    for (number, (kind, spec)) in objects.iter().enumerate() {
        let found: Option<Vec<String>> =
            sqlx::query_scalar("SELECT refers_to FROM resource WHERE kind = $1 AND name = $2")
                .bind(kind.get().kind)
                .bind(number.to_string())
                .fetch_one(&mut connection)
                .await?;
        let references = kind.references(&json!({ "spec": spec }), "dev");
        let expected: BTreeSet<String> = references.iter().map(Reference::key).collect();
        let found: Option<BTreeSet<String>> = found.map(|keys| keys.into_iter().collect());
        ensure!(found == (!expected.is_empty()).then_some(expected), "{kind} {number}: {found:?}");
        // Kinds that were only stored, and are fetched now, are looked at.
        let due: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM schedule JOIN resource USING (uid)
                            WHERE schedule.kind = 'source' AND resource.kind = $1 AND name = $2 AND due_at <= now())",
        )
        .bind(kind.get().kind)
        .bind(number.to_string())
        .fetch_one(&mut connection)
        .await?;
        ensure!(
            due == matches!(kind, KindId::Bucket | KindId::OciRepository | KindId::HelmChart),
            "{kind} {number} is due: {due}"
        );
    }
    Ok(())
}

/// Notes migrations as another version of the hub does that made them.
async fn note(database: &TestDatabase, version: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES ($1, 'of another version', true, 'other', 1)
         ON CONFLICT (version) DO UPDATE SET checksum = excluded.checksum",
    )
    .bind(version)
    .execute(&mut database.connect().await?)
    .await?;
    Ok(())
}

/// A replica that ends and starts again while the others are of the next version already.
#[tokio::test]
async fn a_database_of_a_newer_version_is_used_as_it_is() -> Result<()> {
    let database = TestDatabase::new().await?;
    open(&database).await?.close().await;
    for version in [5_001, 5_002] {
        note(&database, version).await?;
    }
    let store = open(&database).await?;
    ensure!(store.lacks_migrations().await? == 0);
    store.replica_seen(ReplicaId::random(), store.now().await?).await?;
    store.close().await;
    let newest: i64 = sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations")
        .fetch_one(&mut database.connect().await?)
        .await?;
    ensure!(newest == 5_002, "{newest}");
    Ok(())
}

/// One that was kept running, or started by mistake, after an upgrade that waited for the end of such replicas.
#[tokio::test]
async fn a_database_that_only_newer_versions_can_work_with_is_refused() -> Result<()> {
    let database = TestDatabase::new().await?;
    open(&database).await?.close().await;
    note(&database, 5_001).await?;
    let newest =
        sqlx::migrate!("../../migrations").iter().map(|one| one.version).max().context("migrations")?;
    let mut connection = database.connect().await?;
    for (needed, is_enough) in [(newest, true), (5_001, false)] {
        sqlx::query("UPDATE hub_state SET oldest_replica = $1").bind(needed).execute(&mut connection).await?;
        match open(&database).await {
            Ok(store) if is_enough => store.close().await,
            Err(refusal @ StoreError::NewerSchema { .. }) if !is_enough => {
                let message = refusal.to_string();
                ensure!(
                    message.contains("know migration 5001") && message.contains("Start the newer version"),
                    "{message}"
                );
            }
            opened => anyhow::bail!("{needed} needed: {:?}", opened.err()),
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_database_that_other_migrations_made_is_refused() -> Result<()> {
    // One that this version has, made with another content; and one between them that it does not have.
    for version in [30, 0] {
        let database = TestDatabase::new().await?;
        open(&database).await?.close().await;
        note(&database, version).await?;
        let refusal = open(&database).await.err().context("it was opened")?;
        let message = refusal.to_string();
        let said =
            format!("migration {version} of this database is not the one that this version of the hub has");
        ensure!(message.contains(&said) && message.contains("restore a backup"), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn a_database_on_which_an_older_replica_lives_is_left_as_it_is() -> Result<()> {
    let database = older().await?;
    let mut connection = database.connect().await?;
    // It says that it lives, as hubs do.
    let alive = tokio::spawn({
        let mut connection = database.connect().await?;
        async move {
            loop {
                let said = sqlx::query(
                    "INSERT INTO hub_replica (id, started, last_seen)
                     VALUES ('22222222-2222-2222-2222-222222222222', now(), now())
                     ON CONFLICT (id) DO UPDATE SET last_seen = clock_timestamp()",
                );
                said.execute(&mut connection).await.expect("the database is there");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    });
    eventually("the older replica is known", Duration::from_secs(30), || async {
        let mut connection = database.connect().await?;
        let known: i64 =
            sqlx::query_scalar("SELECT count(*) FROM hub_replica").fetch_one(&mut connection).await?;
        ensure!(known == 1, "{known}");
        Ok(())
    })
    .await?;
    let refusal = open(&database).await.err().context("it was opened")?;
    let message = refusal.to_string();
    ensure!(
        matches!(refusal, StoreError::OlderReplicas(1)) && message.contains("Stop all of them"),
        "{message}"
    );
    let version: i64 =
        sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations").fetch_one(&mut connection).await?;
    ensure!(version == OLDEST, "migrations up to {version} were made");

    // It is killed: once it is taken for dead, the next one goes on.
    alive.abort();
    let began = Instant::now();
    // Just before that it lived, however slow this machine is.
    sqlx::query("UPDATE hub_replica SET last_seen = clock_timestamp()").execute(&mut connection).await?;
    let store = open(&database).await?;
    ensure!(began.elapsed() > Duration::from_secs(5), "it was not waited for: {:?}", began.elapsed());
    store.close().await;
    // Replicas of this version start beside each other.
    let store = open(&database).await?;
    store.replica_seen(ReplicaId::random(), store.now().await?).await?;
    let other = open(&database).await?;
    other.close().await;
    store.close().await;
    Ok(())
}
