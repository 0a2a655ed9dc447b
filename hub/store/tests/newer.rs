//! What a replica of a newer version wrote about objects of a kind that this one does not know: it is passed over wherever rows are
//! read, in order, and left as it is.

mod support;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use roadstead_api::{KindId, PipelineRole};
use roadstead_hub_store::{
    AgentSession, Child, Concerned, Key, Parent, Sealer, Store, Stored, Watcher, Whom,
};
use roadstead_model::{
    ApplierRef, ApplierUid, Attempt, Capabilities, ClusterUid, Digest, DispatchKey, Generation, Queue,
    ReplicaId, ResourceUid, Room, SessionId,
};
use roadstead_tests::{PATIENCE, TestDatabase, eventually};
use serde_json::json;
use uuid::Uuid;

struct Site {
    database: TestDatabase,
    store: Store,
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
        Ok(Self { database, store })
    }

    /// Writes an object as the newer version does, so many times.
    async fn newer(&self, name: &str, times: i64) -> Result<ResourceUid> {
        let uid: Uuid = sqlx::query_scalar(
            "WITH counter AS (UPDATE hub_state SET last_version = last_version + $2 RETURNING last_version AS last),
                  made AS (INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
                           SELECT gen_random_uuid(), 'Ferry', 'future.roadstead.dev', 'apps', $1, 1, last, now(), '{}' FROM counter
                           RETURNING *),
                  told AS (INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation,
                                                       created_at, object)
                           SELECT resource_version - number, 'ADDED', uid, api_group, kind, namespace, name, generation, created_at,
                                  object
                           FROM made, generate_series(0, $2 - 1) AS number)
             SELECT uid FROM made",
        )
        .bind(name)
        .bind(times)
        .fetch_one(&mut self.database.connect().await?)
        .await
        .context("write as a newer version does")?;
        Ok(ResourceUid(uid))
    }

    /// Writes an object of a kind that is known.
    async fn known(&self, name: &str) -> Result<ResourceUid> {
        let stored = Stored::new(KindId::Kustomization, "apps", name, Timestamp::now(), json!({}));
        let (uid, mut tx) = (stored.uid, self.store.begin().await?);
        tx.put(stored).await?;
        tx.commit().await?;
        Ok(uid)
    }

    /// Waits until a watcher, which has nothing more to tell, has come as far as the log.
    async fn is_at_the_end(&self, watcher: &mut Watcher) -> Result<()> {
        let watcher = tokio::sync::Mutex::new(watcher);
        eventually("the watcher is at the end", PATIENCE, || async {
            let (mut watcher, last) = (watcher.lock().await, self.store.last_version().await?);
            match tokio::time::timeout(Duration::from_millis(300), watcher.next()).await {
                Err(_) => ensure!(watcher.version() == last, "{} of {last}", watcher.version()),
                Ok(event) => bail!("it told of {}", event?.object()),
            }
            Ok(())
        })
        .await
    }
}

/// The names of the next changes.
async fn told(watcher: &mut Watcher, count: usize) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(tokio::time::timeout(PATIENCE, watcher.next()).await??.object().name.clone());
    }
    Ok(names)
}

#[tokio::test]
async fn watches_go_on_over_changes_of_a_newer_kind() -> Result<()> {
    let site = Site::new().await?;
    let from = site.store.last_version().await?;
    let mut followers =
        [site.store.watch_all(from).await?, site.store.watch(KindId::Kustomization, from).await?];
    // What one watcher reads of the log at once holds nothing else.
    for (known, newer) in [("first", 250), ("second", 1), ("third", 1)] {
        site.known(known).await?;
        site.newer(known, newer).await?;
    }
    for follower in &mut followers {
        ensure!(told(follower, 3).await? == ["first", "second", "third"]);
    }
    // The last of all changes is one of those. Whoever waits until all is known that is stored waits for it.
    site.is_at_the_end(&mut followers[0]).await?;
    site.newer("later", 1).await?;
    site.is_at_the_end(&mut followers[0]).await?;
    // And from the log, by whoever comes late.
    let mut late = site.store.watch_all(from).await?;
    ensure!(told(&mut late, 3).await? == ["first", "second", "third"]);
    site.is_at_the_end(&mut late).await?;
    // All of them still follow.
    site.known("last").await?;
    let [all, one] = &mut followers;
    for watcher in [all, one, &mut late] {
        ensure!(told(watcher, 1).await? == ["last"]);
    }
    Ok(())
}

#[tokio::test]
async fn an_object_of_a_newer_kind_is_not_found_and_stays() -> Result<()> {
    let site = Site::new().await?;
    let uid = site.newer("ferry", 1).await?;
    ensure!(site.store.get_by_uid(uid).await?.is_none());
    let mut tx = site.store.begin().await?;
    ensure!(tx.get_by_uid(uid).await?.is_none());
    // Nobody removes what they cannot read.
    tx.remove(uid).await?;
    tx.commit().await?;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM resource WHERE kind = 'Ferry'")
        .fetch_one(&mut site.database.connect().await?)
        .await?;
    ensure!(left == 1, "{left}");
    let mut tx = site.store.begin().await?;
    ensure!(tx.has_newer_kinds("apps").await? && !tx.has_newer_kinds("other").await?);
    Ok(())
}

#[tokio::test]
async fn passes_over_objects_of_a_newer_kind_are_left_to_a_replica_that_knows_it() -> Result<()> {
    let site = Site::new().await?;
    let mut connection = site.database.connect().await?;
    for (name, lost) in [("newest", 0), ("suspect", 5)] {
        let uid = site.newer(name, 1).await?;
        sqlx::query("INSERT INTO schedule (uid, kind, due_at, lost) VALUES ($1, 'applier', '-infinity', $2)")
            .bind(uid.0)
            .bind(lost)
            .execute(&mut connection)
            .await?;
    }
    let known = site.known("known").await?;
    let mut tx = site.store.begin().await?;
    tx.enqueue(Queue::Applier, &[known]).await?;
    tx.commit().await?;
    let (replica, now, lease) = (ReplicaId::random(), site.store.now().await?, Duration::from_secs(60));
    // They take no place of those that can be made, whether or not other namespaces have all their places.
    let spent = Room { of_one: 1, held: [("greedy".to_owned(), 1)].into(), ..Room::of(1, true) };
    for room in [Room::of(1, true), spent] {
        let due = site.store.claim_due(Queue::Applier, replica, now, lease, &room).await?;
        ensure!(due.claims.iter().map(|claim| claim.uid).eq([known]), "{due:?}");
        let [claim] = due.claims.as_slice() else { bail!("{due:?}") };
        site.store.release(replica, *claim, now, now).await?;
    }
    let untouched: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM schedule WHERE due_at = '-infinity' AND claimed_by IS NULL AND lost IN (0, 5)",
    )
    .fetch_one(&mut connection)
    .await?;
    ensure!(untouched == 2, "{untouched}");
    Ok(())
}

#[tokio::test]
async fn what_refers_to_an_object_that_changed_is_due_also_where_its_kind_is_newer() -> Result<()> {
    let site = Site::new().await?;
    let mut connection = site.database.connect().await?;
    for (name, queue) in [("applier", "applier"), ("source", "source"), ("neither", "alert")] {
        let uid = site.newer(name, 1).await?;
        sqlx::query("UPDATE resource SET refers_to = ARRAY['GitRepository/apps/used'] WHERE uid = $1")
            .bind(uid.0)
            .execute(&mut connection)
            .await?;
        sqlx::query(
            "INSERT INTO schedule (uid, kind, namespace, due_at) VALUES ($1, $2, 'apps', 'infinity')",
        )
        .bind(uid.0)
        .bind(queue)
        .execute(&mut connection)
        .await?;
    }
    let named = |name: &'static str| {
        sqlx::query_scalar::<_, Uuid>("SELECT uid FROM resource WHERE kind = 'Ferry' AND name = $1")
            .bind(name)
    };
    let applier = ResourceUid(named("applier").fetch_one(&mut connection).await?);
    let source = ResourceUid(named("source").fetch_one(&mut connection).await?);
    let mut tx = site.store.begin().await?;
    for (role, wanted) in [
        (PipelineRole::Applier, vec![applier]),
        (PipelineRole::Source, vec![source]),
        (PipelineRole::Other, vec![]),
    ] {
        let users = tx.users(KindId::GitRepository, "apps", "used", role).await?;
        ensure!(users == wanted, "{role:?}: {users:?}");
    }
    let whom = Whom { users: true, sources: true, parent: true };
    let concerned = tx.concerned(KindId::GitRepository, "apps", "used", whom).await?;
    ensure!(
        concerned == Concerned { users: vec![applier], sources: vec![source], ..Concerned::default() },
        "{concerned:?}"
    );
    Ok(())
}

#[tokio::test]
async fn children_of_a_newer_kind_stay_wanted() -> Result<()> {
    let site = Site::new().await?;
    let root = ApplierUid::from(site.known("root").await?);
    let mut connection = site.database.connect().await?;
    sqlx::query(
        "INSERT INTO child (kind, namespace, name, parent, wanted, git_namespace, kept, origin, account)
         VALUES ('Ferry', 'apps', 'ferry', $1, true, '', false, 'apps/root', '')",
    )
    .bind(root.0)
    .execute(&mut connection)
    .await?;
    let child = |name: &str| Child {
        kind: KindId::Kustomization,
        namespace: "apps".to_owned(),
        name: name.to_owned(),
        wanted: true,
        git_namespace: String::new(),
        kept: false,
        adopted: false,
        object: None,
    };
    let parent = Parent { uid: root, name: "apps/root", account: "" };
    // This version does not find the ferry in the build, and a moment later neither the first of what it found.
    for names in [&["one", "two"] as &[&str], &["two"]] {
        let children: Vec<Child> = names.iter().map(|name| child(name)).collect();
        let mut tx = site.store.begin().await?;
        ensure!(tx.own_children(&parent, &children).await?.is_empty());
        tx.commit().await?;
    }
    let children = site.store.children(root).await?;
    let found: Vec<_> = children.iter().map(|child| (child.name.as_str(), child.wanted)).collect();
    ensure!(found == [("one", false), ("two", true)], "{found:?}");
    let wanted: bool = sqlx::query_scalar("SELECT wanted FROM child WHERE kind = 'Ferry'")
        .fetch_one(&mut connection)
        .await?;
    ensure!(wanted, "the newer version would delete it");
    Ok(())
}

#[tokio::test]
async fn a_dispatch_of_a_newer_kind_waits_for_a_replica_that_records_its_result() -> Result<()> {
    let site = Site::new().await?;
    let (cluster, replica, session) = (ClusterUid::random(), ReplicaId::random(), SessionId::random());
    let now = site.store.now().await?;
    let mut connection = site.database.connect().await?;
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         VALUES ($1, 'Cluster', 'fleet.roadstead.dev', '', 'edge', 1, 1, now(), '{}')",
    )
    .bind(cluster.0)
    .execute(&mut connection)
    .await?;
    let agent = AgentSession {
        session,
        replica,
        agent_version: "0.1.0".to_owned(),
        image: None,
        kubernetes_version: "v1.36.0".to_owned(),
        capabilities: Capabilities::of_this_agent(),
        connected: now,
        disconnected: None,
        unreachable: None,
    };
    let mut tx = site.store.begin().await?;
    tx.begin_session(cluster, &agent).await?;
    let applier = ApplierUid::from(site.newer("ferry", 1).await?);
    let mut spec = support::dispatch("ferry", Digest::of(b"ferry"));
    spec.applier = ApplierRef { kind: "Ferry".to_owned(), ..spec.applier };
    let attempt = support::open(&mut tx, cluster, applier, &spec, now).await?;
    tx.commit().await?;

    ensure!(site.store.sessions_with_dispatches(replica).await?.is_empty());
    ensure!(site.store.take_to_send(cluster, session, 10).await?.dispatches.is_empty());
    // The agent tells of what a newer replica sent: it changes nothing.
    let epoch = site.store.epoch().await?;
    let key = DispatchKey { epoch, applier, generation: Generation(1), attempt, digest: Some(spec.digest()) };
    ensure!(site.store.open_attempt(&key, cluster, session).await?.is_none());
    let mut tx = site.store.begin().await?;
    ensure!(tx.hold_open_attempt(&key, cluster, session).await?.is_none());
    drop(tx);
    let newest = site.store.newest_reconciliation(applier).await?.context("an attempt")?;
    ensure!(newest.attempt == Attempt(1) && newest.finished.is_none());
    Ok(())
}
