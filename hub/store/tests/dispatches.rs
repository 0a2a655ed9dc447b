//! A dispatch of a form that this version does not read, as a replica of a newer version writes it, waits for that one.

mod support;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{AgentSession, Key, Sealer, Store};
use roadstead_model::{
    ApplierUid, Attempt, Capabilities, ClusterUid, Digest, DispatchKey, Generation, ReplicaId, SessionId,
};
use roadstead_tests::TestDatabase;

/// A replica with a session of a cluster's agent.
struct Site {
    store: Store,
    database: TestDatabase,
    cluster: ClusterUid,
    replica: ReplicaId,
    session: SessionId,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        let site = Self {
            store,
            database,
            cluster: ClusterUid::random(),
            replica: ReplicaId::random(),
            session: SessionId::random(),
        };
        let session = AgentSession {
            session: site.session,
            replica: site.replica,
            agent_version: "0.1.0".to_owned(),
            image: None,
            kubernetes_version: "v1.36.0".to_owned(),
            capabilities: Capabilities::of_this_agent(),
            connected: site.store.now().await?,
            disconnected: None,
            unreachable: None,
        };
        let mut connection = site.database.connect().await?;
        insert(&mut connection, site.cluster.0, "Cluster").await?;
        let mut tx = site.store.begin().await?;
        tx.begin_session(site.cluster, &session).await?;
        tx.commit().await?;
        Ok(site)
    }

    /// Opens an attempt of a Kustomization of this name; gives its key.
    async fn dispatch(&self, name: &str) -> Result<DispatchKey> {
        let now = self.store.now().await?;
        let applier = ApplierUid::random();
        let spec = support::dispatch(name, Digest::of(name.as_bytes()));
        let mut tx = self.store.begin().await?;
        let attempt = support::open(&mut tx, self.cluster, applier, &spec, now).await?;
        tx.commit().await?;
        let epoch = self.store.epoch().await?;
        let digest = Some(spec.digest());
        Ok(DispatchKey { epoch, applier, generation: Generation(1), attempt, digest })
    }

    /// The names of what is sent now.
    async fn sent(&self, limit: i64) -> Result<Vec<String>> {
        let sent = self.store.take_to_send(self.cluster, self.session, limit).await?.dispatches;
        Ok(sent.into_iter().map(|sent| sent.spec.applier.name).collect())
    }
}

/// An object, as far as others refer to it.
async fn insert(connection: &mut sqlx::PgConnection, uid: uuid::Uuid, kind: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         VALUES ($1, $2, 'test', '', 'edge', 1, 1, now(), '{\"metadata\":{\"name\":\"edge\"}}')",
    )
    .bind(uid)
    .bind(kind)
    .execute(connection)
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_dispatch_that_is_not_the_hubs_ends_no_batch() -> Result<()> {
    let site = Site::new().await?;
    site.dispatch("forged").await?;
    site.dispatch("other").await?;
    let mut connection = site.database.connect().await?;
    let forge = sqlx::query("UPDATE reconciliation SET mac = '' WHERE dispatch::text LIKE '%forged%'");
    ensure!(forge.execute(&mut connection).await?.rows_affected() == 1);
    for (names, more) in [(&[] as &[&str], true), (&["other"], true), (&[], false)] {
        let taken = site.store.take_to_send(site.cluster, site.session, 1).await?;
        let taken_names: Vec<_> = taken.dispatches.into_iter().map(|sent| sent.spec.applier.name).collect();
        ensure!(taken_names == names && taken.more == more, "{taken_names:?}, {}", taken.more);
    }
    Ok(())
}

#[tokio::test]
async fn a_dispatch_of_a_newer_form_waits_and_holds_nothing_up() -> Result<()> {
    let site = Site::new().await?;
    let newer = site.dispatch("newer").await?;
    let mut connection = site.database.connect().await?;
    let made =
        sqlx::query("UPDATE reconciliation SET dispatch_format = 1000, dispatch = '[\"of the future\"]'")
            .execute(&mut connection)
            .await?;
    ensure!(made.rows_affected() == 1);
    // Alone, it does not wake its session again and again.
    ensure!(site.store.sessions_with_dispatches(site.replica).await?.is_empty());
    let other = site.dispatch("other").await?;
    ensure!(site.store.sessions_with_dispatches(site.replica).await? == [site.session]);
    // It is older, and takes no place of those that can be sent.
    ensure!(site.sent(1).await? == ["other"] && site.sent(1).await?.is_empty());

    // An agent tells this replica of what a newer one sent: it is not an error, and changes nothing.
    ensure!(site.store.open_attempt(&newer, site.cluster, site.session).await?.is_none());
    let mut tx = site.store.begin().await?;
    ensure!(tx.hold_open_attempt(&newer, site.cluster, site.session).await?.is_none());
    drop(tx);
    // The Kustomization is planned as it was.
    let newest = site.store.newest_reconciliation(newer.applier).await?.context("an attempt")?;
    ensure!(newest.attempt == Attempt(1) && newest.finished.is_none());
    let left: (Option<String>, bool) =
        sqlx::query_as("SELECT reason, sent_in IS NULL FROM reconciliation WHERE dispatch_format = 1000")
            .fetch_one(&mut connection)
            .await?;
    ensure!(left == (None, true), "{left:?}");
    // What this version wrote is found by its key, and by what an agent of the first version calls it.
    for digest in [other.digest, Some(Digest::of(b"other"))] {
        let key = DispatchKey { digest, ..other.clone() };
        ensure!(site.store.open_attempt(&key, site.cluster, site.session).await?.is_some(), "{digest:?}");
    }
    for digest in [None, Some(Digest::of(b"another"))] {
        let key = DispatchKey { digest, ..other.clone() };
        ensure!(site.store.open_attempt(&key, site.cluster, site.session).await?.is_none(), "{digest:?}");
    }
    Ok(())
}

/// What an agent's backlog means for when a dispatch is given up: times after it was planned, in seconds.
#[tokio::test]
async fn a_deadline_counts_from_when_the_dispatch_begins() -> Result<()> {
    let site = Site::new().await?;
    let key = site.dispatch("app").await?;
    let begun = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?.inputs.started;
    let at = |seconds| Some(begun + Duration::from_secs(seconds));
    let deadline = async || -> Result<f64> {
        let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
        Ok(newest.deadline.duration_since(begun).as_secs_f64())
    };
    let (max_wait, grace) = (Duration::from_secs(3600), Duration::from_secs(30));
    let tell = async |key: &DispatchKey, session, began| {
        site.store.move_deadlines(site.cluster, session, &[(key, began)], max_wait, grace).await
    };
    ensure!(deadline().await? == 60.0);
    tell(&key, site.session, None).await?;
    ensure!(deadline().await? == 3600.0);
    tell(&key, site.session, at(100)).await?;
    ensure!(deadline().await? == 190.0, "its timeout is a minute");
    // However late it begins, it is given up.
    tell(&key, site.session, at(100_000)).await?;
    ensure!(deadline().await? == 3690.0);
    // Another session, attempt or epoch has no say.
    tell(&key, SessionId::random(), at(1)).await?;
    tell(&DispatchKey { attempt: Attempt(2), ..key.clone() }, site.session, at(1)).await?;
    tell(&DispatchKey { epoch: roadstead_model::HubEpoch(9), ..key.clone() }, site.session, at(1)).await?;
    ensure!(deadline().await? == 3690.0);
    // A pass that is planned for later is not too late.
    let mut connection = site.database.connect().await?;
    insert(&mut connection, key.applier.0, "Kustomization").await?;
    sqlx::query(
        "INSERT INTO schedule (uid, kind, due_at) VALUES ($1, 'applier', now() + interval '2 hours')",
    )
    .bind(key.applier.0)
    .execute(&mut connection)
    .await?;
    tell(&key, site.session, at(100)).await?;
    let is_due: bool = sqlx::query_scalar(
        "SELECT s.due_at = r.deadline FROM schedule s JOIN reconciliation r ON r.applier = s.uid",
    )
    .fetch_one(&mut connection)
    .await?;
    ensure!(is_due);
    Ok(())
}

/// A replica of a newer version may have ended an attempt for a reason that this one does not know.
#[tokio::test]
async fn a_reason_of_a_newer_version_is_a_failure() -> Result<()> {
    let site = Site::new().await?;
    let key = site.dispatch("app").await?;
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE reconciliation SET finished_at = now(), reason = 'OfTheFuture'")
        .execute(&mut connection)
        .await?;
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    let reason = newest.finished.map(|(_, reason)| reason);
    ensure!(reason == Some(roadstead_model::Reason::ReconciliationFailed), "{reason:?}");
    Ok(())
}
