//! A process that is killed, frozen, cut off or ended at any moment leads to the same end state; and two hubs on one
//! database are one hub.
//!
//! One Kustomization goes back and forth between two commits, so that each time objects are created, changed and pruned.
//! The way from the agent to its apiserver is slow meanwhile, so that the middle is long enough to be met.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roadstead_devpostgres::create_state_parent;
use roadstead_tests::gitserver::{Commit, GitServer, Options, Repository, install_crypto};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, Kubectl, PATIENCE, Proxy, TestCluster, TestNamespace,
    config_map, eventually, git_repository, kill9, kustomization, start_postgres, unique,
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const OWNER: &str = "fleet.roadstead.dev/owner";

/// How long each piece on the way between agent and apiserver is held while something is to be met in its middle.
const SLOWLY: Duration = Duration::from_millis(15);

/// ConfigMaps of one commit, and how many of them the other one does not have.
const MAPS: usize = 54;
const MOVED: usize = 18;

/// How often a blow may come too late.
const TRIES: usize = 4;

/// The two commits that it goes back and forth between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Port,
    Starboard,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Port => Self::Starboard,
            Self::Starboard => Self::Port,
        }
    }

    /// Some sixty objects in `namespace`, one of them of a kind that comes with them.
    fn manifests(self, namespace: &str, group: &str) -> String {
        let (first, word, size) = match self {
            Self::Port => (0, "port", 2),
            Self::Starboard => (MOVED, "starboard", 3),
        };
        let mut documents: Vec<String> = (first..first + MAPS)
            .map(|number| config_map(namespace, &format!("map-{number:03}"), word))
            .collect();
        documents.push(format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: buoys.{group}}}\n\
             spec:\n  group: {group}\n  scope: Namespaced\n  names: {{plural: buoys, singular: buoy, kind: Buoy}}\n  \
             versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        \
             type: object\n        properties:\n          spec:\n            type: object\n            properties: \
             {{size: {{type: integer}}}}\n"
        ));
        for name in ["mark", word] {
            documents.push(format!(
                "apiVersion: {group}/v1\nkind: Buoy\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{size: {size}}}\n"
            ));
        }
        documents.push(format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {namespace}}}\nspec:\n  replicas: \
             {size}\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
             spec: {{containers: [{{name: web, image: web, env: [{{name: SIDE, value: {word}}}]}}]}}\n"
        ));
        documents.push(format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\nspec: {{selector: {{app: \
             web}}, ports: [{{port: 80}}]}}\n"
        ));
        documents.join("---\n")
    }
}

/// When a blow comes, counted from the new commit.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// The attempt is in the database.
    Dispatched,
    /// So many ConfigMaps were created or changed.
    Written(usize),
    /// So many were pruned.
    Pruned(usize),
}

/// What is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Hub,
    Agent,
    Both,
}

/// What has happened to the ConfigMaps of a namespace: (written, deleted).
type Counts = (usize, usize);

/// Counts that. It lists, as a watch that an apiserver with much to do has ended may not be able to go on.
struct Counted {
    kubectl: Kubectl,
    namespace: String,
    /// By name, at which version each was seen last.
    versions: BTreeMap<String, String>,
    counts: Counts,
}

impl Counted {
    fn new(kubectl: &Kubectl, namespace: &str) -> Self {
        Self {
            kubectl: kubectl.clone(),
            namespace: namespace.to_owned(),
            versions: BTreeMap::new(),
            counts: (0, 0),
        }
    }

    async fn now(&mut self) -> Result<Counts> {
        let list = self.kubectl.get(&["configmaps", "-n", &self.namespace]).await?;
        let mut versions = BTreeMap::new();
        for object in list["items"].as_array().context("a list")? {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            versions.insert(text("name"), text("resourceVersion"));
        }
        let written =
            versions.iter().filter(|(name, version)| self.versions.get(*name) != Some(version)).count();
        let deleted = self.versions.keys().filter(|name| !versions.contains_key(*name)).count();
        self.versions = versions;
        self.counts = (self.counts.0 + written, self.counts.1 + deleted);
        Ok(self.counts)
    }

    /// Waits until so much has happened since `before`.
    async fn reaches(&mut self, before: Counts, point: Point) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = self.now().await?;
            let is_reached = match point {
                Point::Dispatched => true,
                Point::Written(count) => now.0 >= before.0 + count,
                Point::Pruned(count) => now.1 >= before.1 + count,
            };
            if is_reached {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{point:?} is not reached: {now:?} after {before:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An end state: objects by kind and name, without what differs from run to run.
type Ends = BTreeMap<String, Value>;

/// A fleet with one large Kustomization, `app`.
struct World {
    fleet: Fleet,
    /// Between agent and apiserver.
    apiserver: Proxy,
    namespace: TestNamespace,
    group: String,
    repository: Repository,
    uid: String,
    counted: Counted,
    database: PgConnection,
    side: Side,
    /// What comes of each commit without a blow.
    ends: BTreeMap<Side, Ends>,
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let setup = HubSetup::new(name).await?;
        let database = setup.database().connect().await?;
        Self::on(setup, database, name).await
    }

    /// The same with a hub on this database.
    async fn on(setup: HubSetup, database: PgConnection, name: &str) -> Result<Self> {
        let cluster = TestCluster::first()?;
        let (proxied, apiserver) = cluster.through_proxy().await?;
        let namespace = cluster.namespace(name).await?;
        let counted = Counted::new(cluster.kubectl(), namespace.name());
        let fleet = Fleet::start_in(setup, cluster, &proxied).await?;
        let group = format!("{}.example.com", namespace.name());
        let first = Commit::new().file("app/all.yaml", Side::Port.manifests(namespace.name(), &group));
        let repository = fleet.repository("app", &first).await?;
        fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 2s", "wait: true"])).await?;
        fleet.ready("kustomization/app").await?;
        let uid =
            fleet.get("kustomization/app").await?["metadata"]["uid"].as_str().context("a uid")?.to_owned();
        let side = Side::Port;
        let mut world = Self {
            fleet,
            apiserver,
            namespace,
            group,
            repository,
            uid,
            counted,
            database,
            side,
            ends: BTreeMap::new(),
        };
        let port = world.end().await?;
        world.ends.insert(Side::Port, port);
        let commit = world.turn().await?;
        world.fleet.applied("app", &commit).await?;
        let starboard = world.end().await?;
        ensure!(starboard != world.ends[&Side::Port], "the two commits are one");
        ensure!(starboard.len() == MAPS + 5, "{} objects: {:?}", starboard.len(), starboard.keys());
        world.ends.insert(Side::Starboard, starboard);
        Ok(world)
    }

    /// Commits the other side, and asks for it to be fetched.
    async fn turn(&mut self) -> Result<String> {
        self.side = self.side.other();
        let manifests = self.side.manifests(self.namespace.name(), &self.group);
        let commit =
            self.repository.commit("main", "Turn", &Commit::new().file("app/all.yaml", manifests))?;
        self.fleet.request("gitrepository/app").await?;
        Ok(commit)
    }

    /// Everything in the cluster that bears the owner's label, and a check that nothing else is left there.
    async fn end(&self) -> Result<Ends> {
        let kubectl = self.fleet.cluster.kubectl();
        let selector = format!("{OWNER}={}", self.uid);
        let kinds = format!("configmaps,services,deployments,buoys.{}", self.group);
        let namespaced = ["--namespace", self.namespace.name()];
        let labelled = kubectl.get(&[&[&*kinds, "-l", &selector], &namespaced[..]].concat()).await?;
        let definitions = kubectl.get(&["customresourcedefinitions", "-l", &selector]).await?;
        let mut ends = Ends::new();
        for list in [labelled, definitions] {
            for object in list["items"].as_array().context("a list")? {
                let (kind, name) = (object["kind"].as_str(), object["metadata"]["name"].as_str());
                let key = format!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
                ends.insert(key, lasting(object));
            }
        }
        let all = kubectl.get(&[&[&*kinds], &namespaced[..]].concat()).await?;
        for object in all["items"].as_array().context("a list")? {
            let (kind, name) = (object["kind"].as_str(), object["metadata"]["name"].as_str());
            let key = format!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
            ensure!(ends.contains_key(&key) || key == "ConfigMap/kube-root-ca.crt", "{key} was left behind");
        }
        Ok(ends)
    }

    /// Brings the other commit about with a blow in the middle: `strike` at `point`, then `mend`.
    async fn round(&mut self, victim: Victim, point: Point) -> Result<()> {
        for _ in 0..TRIES {
            let what = format!("{victim:?} killed at {point:?}");
            let (commit, in_the_middle) = self.strike(victim, point).await.with_context(|| what.clone())?;
            let began = Instant::now();
            self.restart(victim).await.with_context(|| what.clone())?;
            let restarted = began.elapsed();
            let applied = self.fleet.applied("app", &commit).await;
            if let Err(error) = applied {
                let attempts = self.attempts(&commit).await?;
                let logs = self.fleet.agent.logs();
                return Err(error)
                    .with_context(|| format!("{what}; attempts {attempts:?}; the agent:\n{logs}"));
            }
            println!(
                "measured: {what}: started again after {restarted:?}, Ready after {:?}{}",
                began.elapsed(),
                if in_the_middle { "" } else { " (too late, done once more)" }
            );
            self.is_as_without(&commit).await.with_context(|| what.clone())?;
            if in_the_middle {
                return Ok(());
            }
        }
        bail!("{victim:?} at {point:?}: the blow came too late each time")
    }

    /// Kills, and tells whether that was in the middle: the attempt's end had not been recorded.
    async fn strike(&mut self, victim: Victim, point: Point) -> Result<(String, bool)> {
        let before = self.counted.now().await?;
        self.apiserver.slow(SLOWLY);
        let commit = self.turn().await?;
        self.dispatched(&commit).await?;
        self.counted.reaches(before, point).await?;
        if victim != Victim::Agent {
            self.fleet.hub.kill9().await?;
        }
        if victim != Victim::Hub {
            self.fleet.agent.kill9().await?;
        }
        let open = self.attempts(&commit).await?.iter().any(Option::is_none);
        self.apiserver.open();
        Ok((commit, open))
    }

    async fn restart(&mut self, victim: Victim) -> Result<()> {
        if victim != Victim::Agent {
            self.fleet.hub = HubProcess::start(&self.fleet.setup).await?;
        }
        if victim != Victim::Hub {
            self.fleet.agent.restart()?;
        }
        Ok(())
    }

    /// The end state is that of a run without a blow; the hub knows what is there; one attempt has won.
    async fn is_as_without(&mut self, commit: &str) -> Result<()> {
        let end = self.end().await?;
        let expected = &self.ends[&self.side];
        for (key, object) in expected {
            ensure!(end.get(key) == Some(object), "{key} is {:?}, without a blow {object}", end.get(key));
        }
        let more: Vec<_> = end.keys().filter(|key| !expected.contains_key(*key)).collect();
        ensure!(more.is_empty(), "left over: {more:?}");

        let told = self.fleet.inventory("app").await?;
        let there: BTreeSet<String> = end.keys().cloned().collect();
        ensure!(
            told == there,
            "only one of inventory and cluster has {:?}",
            told.symmetric_difference(&there)
        );
        let query = "SELECT kind || '/' || name, intended FROM inventory WHERE applier = $1::uuid";
        let rows: Vec<(String, bool)> =
            sqlx::query_as(query).bind(&self.uid).fetch_all(&mut self.database).await?;
        ensure!(rows.iter().all(|(_, intended)| !intended), "still intended: {rows:?}");
        let stored: BTreeSet<String> = rows.into_iter().map(|(name, _)| name).collect();
        ensure!(stored == there, "the database has {stored:?}");

        let attempts = self.attempts(commit).await?;
        let won = attempts.iter().flatten().filter(|reason| *reason == "ReconciliationSucceeded").count();
        ensure!(won == 1 && attempts.iter().all(Option::is_some), "the attempts at {commit}: {attempts:?}");
        Ok(())
    }

    /// The attempts at a commit: how each ended, if it has.
    async fn attempts(&mut self, commit: &str) -> Result<Vec<Option<String>>> {
        let query = "SELECT CASE WHEN finished_at IS NOT NULL THEN reason END FROM reconciliation \
                     WHERE applier = $1::uuid AND revision LIKE '%' || $2 ORDER BY attempt";
        sqlx::query_scalar(query)
            .bind(&self.uid)
            .bind(commit)
            .fetch_all(&mut self.database)
            .await
            .context("read attempts")
    }

    async fn dispatched(&mut self, commit: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.attempts(commit).await?.is_empty() {
            if Instant::now() > deadline {
                let source = self.fleet.get("gitrepository/app").await?;
                let app = self.fleet.get("kustomization/app").await?;
                bail!("{commit} is not dispatched: {source:#}\n{app:#}\n{}", self.fleet.hub.logs());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Deletes the Kustomization, kills both in the middle of the pruning, and waits until nothing is left of it.
    async fn deletion_in_the_middle(&mut self) -> Result<()> {
        let before = self.counted.now().await?;
        self.apiserver.slow(SLOWLY);
        self.fleet.run(&["delete", "kustomization", "app", "--wait=false"]).await?;
        self.counted.reaches(before, Point::Pruned(5)).await?;
        self.fleet.hub.kill9().await?;
        self.fleet.agent.kill9().await?;
        self.apiserver.open();
        let left = self.end().await?;
        self.restart(Victim::Both).await?;
        eventually("the Kustomization is gone", PATIENCE, || async {
            let seen = self.fleet.run(&["get", "kustomizations", "-o", "yaml"]).await?;
            ensure!(!seen.contains("kind: Kustomization\n"), "{seen}");
            Ok(())
        })
        .await?;
        println!("measured: killed while it deleted, with {} objects left to delete", left.len());
        ensure!(!left.is_empty(), "the blow came too late");
        let kubectl = self.fleet.cluster.kubectl();
        let line = ["get", "configmaps,services,deployments", "-n", self.namespace.name(), "-o", "name"];
        let rest = kubectl.run(&line).await?;
        ensure!(rest.trim() == "configmap/kube-root-ca.crt", "left over:\n{rest}");
        let definition = format!("buoys.{}", self.group);
        let line = ["get", "customresourcedefinition", &definition, "--ignore-not-found", "-o", "name"];
        let rest = kubectl.run(&line).await?;
        ensure!(rest.is_empty(), "left over: {rest}");
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM inventory").fetch_one(&mut self.database).await?;
        ensure!(count == 0, "{count} rows of inventory are left");
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // It has no namespace to go with, should the test end before the Kustomization does.
        let name = format!("buoys.{}", self.group);
        let line = ["delete", "customresourcedefinition", &name, "--ignore-not-found", "--wait=false"];
        let mut command = self.fleet.cluster.kubectl().command(&line).into_std();
        let _ = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status();
    }
}

/// What is the same in each run: data, spec, and our labels.
fn lasting(object: &Value) -> Value {
    let mut lasting = object.clone();
    if let Some(fields) = lasting.as_object_mut() {
        fields.remove("status");
        fields.insert("metadata".to_owned(), object["metadata"]["labels"].clone());
    }
    if object["kind"] == "Service"
        && let Some(spec) = lasting["spec"].as_object_mut()
    {
        spec.retain(|key, _| !key.starts_with("clusterIP"));
    }
    lasting
}

#[tokio::test]
async fn the_hub_is_killed_in_the_middle_of_an_apply() -> Result<()> {
    let mut world = World::new("kill-hub").await?;
    for point in [Point::Dispatched, Point::Written(1), Point::Written(30), Point::Pruned(1)] {
        world.round(Victim::Hub, point).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_agent_is_killed_in_the_middle_of_an_apply_and_both_are() -> Result<()> {
    let mut world = World::new("kill-agent").await?;
    for point in [Point::Dispatched, Point::Written(1), Point::Written(30), Point::Pruned(1)] {
        world.round(Victim::Agent, point).await?;
    }
    for point in [Point::Written(10), Point::Pruned(MOVED - 1)] {
        world.round(Victim::Both, point).await?;
    }
    world.deletion_in_the_middle().await
}

#[tokio::test]
async fn what_is_frozen_or_cut_off_or_ended_goes_on_where_it_was() -> Result<()> {
    let mut world = World::new("freeze").await?;

    // The agent stands still; the hub tells what it did until then.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    world.fleet.agent.freeze()?;
    world.apiserver.open();
    let path = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
    eventually("what was done so far is shown", PATIENCE, || async {
        let view: Value = serde_json::from_str(&world.fleet.kubectl().run(&["get", "--raw", path]).await?)?;
        let done = view["underWay"]["results"].as_array().map_or(0, Vec::len);
        ensure!(done > 0 && view["items"][0].get("took").is_none(), "{done} results: {view}");
        Ok(())
    })
    .await?;
    eventually("the Cluster says so", PATIENCE, || async {
        let seen = world.fleet.condition("cluster/edge", "Ready").await?;
        ensure!(seen.0 == "False" && seen.1 == "AgentDisconnected", "{seen:?}");
        Ok(())
    })
    .await?;
    world.fleet.agent.thaw()?;
    let began = Instant::now();
    world.fleet.applied("app", &commit).await?;
    println!("measured: a frozen agent's Kustomization was Ready {:?} after its thaw", began.elapsed());
    world.is_as_without(&commit).await.context("the agent was frozen")?;

    // The hub stands still; the agent notices, goes on, and tells it later.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    world.fleet.hub.freeze()?;
    world.apiserver.open();
    let lines = world.fleet.agent.logs().len();
    eventually("the agent has noticed", PATIENCE, || async {
        let logs = world.fleet.agent.logs();
        ensure!(logs[lines..].contains("the connection was closed"), "{}", &logs[lines..]);
        Ok(())
    })
    .await?;
    world.counted.reaches(before, Point::Pruned(MOVED)).await.context("the agent goes on without its hub")?;
    world.fleet.hub.thaw()?;
    let began = Instant::now();
    world.fleet.applied("app", &commit).await?;
    println!("measured: a frozen hub's Kustomization was Ready {:?} after its thaw", began.elapsed());
    world.is_as_without(&commit).await.context("the hub was frozen")?;

    // The hub is ended in the middle, and started again.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    let began = Instant::now();
    let status = world.fleet.hub.sigterm(PATIENCE).await?;
    println!("measured: after SIGTERM the hub had ended within {:?}", began.elapsed());
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", world.fleet.hub.logs());
    world.apiserver.open();
    world.restart(Victim::Hub).await?;
    world.fleet.applied("app", &commit).await?;
    world.is_as_without(&commit).await.context("the hub was ended")?;

    // The agent is ended in the middle, and started again.
    let before = world.counted.now().await?;
    world.apiserver.slow(SLOWLY);
    let commit = world.turn().await?;
    world.counted.reaches(before, Point::Written(20)).await?;
    let status = world.fleet.agent.sigterm(PATIENCE).await?;
    ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", world.fleet.agent.logs());
    world.apiserver.open();
    world.restart(Victim::Agent).await?;
    world.fleet.applied("app", &commit).await?;
    world.is_as_without(&commit).await.context("the agent was ended")?;
    Ok(())
}

#[tokio::test]
async fn an_apiserver_that_is_frozen_or_away_for_a_moment_is_got_over() -> Result<()> {
    let mut world = World::new("apiserver").await?;
    for away in [false, true] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.counted.reaches(before, Point::Written(20)).await?;
        if away {
            world.apiserver.cut();
        } else {
            world.apiserver.freeze();
        }
        // So long the outage lasts: nothing is waited for.
        tokio::time::sleep(Duration::from_secs(3)).await;
        // The link is another way: the hub still hears the agent.
        let seen = world.fleet.condition("cluster/edge", "Ready").await?;
        ensure!(seen.0 == "True", "the Cluster has {seen:?}");
        world.apiserver.open();
        let began = Instant::now();
        world.fleet.applied("app", &commit).await?;
        let what = if away { "away" } else { "frozen" };
        println!("measured: Ready {:?} after the apiserver that was {what} was there again", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| what.to_owned())?;
    }
    Ok(())
}

#[tokio::test]
async fn the_database_is_killed_in_the_middle_of_an_apply() -> Result<()> {
    let folder = roadstead_tests::folder()?;
    create_state_parent(folder.path())?;
    let state = folder.path().join("postgres");
    let mut server = start_postgres(&state).await?;
    let setup = HubSetup::new("kill-db").await?.at(server.url().to_owned());
    let database = PgConnection::connect(server.url()).await?;
    let mut world = World::on(setup, database, "kill-db").await?;
    for point in [Point::Dispatched, Point::Written(20), Point::Pruned(1)] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.dispatched(&commit).await?;
        world.counted.reaches(before, point).await?;
        kill9(server.id())?;
        world.apiserver.open();
        // The agent goes on with what it was given; the hub says what is missing.
        eventually("requests are answered 503", PATIENCE, || async {
            let asked = world.fleet.run(&["get", "kustomizations"]).await;
            let answer = asked.err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(answer.contains("database"), "{answer}");
            Ok(())
        })
        .await?;
        let began = Instant::now();
        // It holds the folder.
        drop(server);
        server = eventually("the server is started again", PATIENCE, || start_postgres(&state)).await?;
        world.database = PgConnection::connect(server.url()).await?;
        world.fleet.applied("app", &commit).await?;
        println!("measured: database killed at {point:?}: Ready {:?} after its start", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("killed at {point:?}"))?;
    }
    world.fleet.hub.kill9().await?;
    tokio::task::spawn_blocking(move || server.stop()).await??;
    Ok(())
}

/// A database that fails each write as one whose disk is full does: with that error, whatever is written.
struct FullDisk {
    tables: Vec<String>,
}

impl FullDisk {
    async fn fill(database: &mut PgConnection) -> Result<Self> {
        let refuse = "CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION \
                      'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$";
        database.execute(refuse).await?;
        let tables =
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE '\\_%'";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *database).await?;
        for table in &tables {
            let trigger = format!(
                "CREATE TRIGGER disk_is_full BEFORE INSERT OR UPDATE OR DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION \
                 disk_is_full()"
            );
            database.execute(AssertSqlSafe(trigger)).await.with_context(|| table.clone())?;
        }
        Ok(Self { tables })
    }

    async fn empty(self, database: &mut PgConnection) -> Result<()> {
        for table in &self.tables {
            database.execute(AssertSqlSafe(format!("DROP TRIGGER disk_is_full ON {table}"))).await?;
        }
        database.execute("DROP FUNCTION disk_is_full()").await?;
        Ok(())
    }
}

#[tokio::test]
async fn the_databases_disk_is_full_in_the_middle_of_an_apply() -> Result<()> {
    let mut world = World::new("full-db").await?;
    for point in [Point::Dispatched, Point::Written(20), Point::Pruned(1)] {
        let before = world.counted.now().await?;
        world.apiserver.slow(SLOWLY);
        let commit = world.turn().await?;
        world.dispatched(&commit).await?;
        world.counted.reaches(before, point).await?;
        let full = FullDisk::fill(&mut world.database).await?;
        world.apiserver.open();
        for _ in 0..3 {
            eventually("a write is refused, with the reason", PATIENCE, || async {
                let asked = world.fleet.run(&["create", "configmap", "more"]).await;
                let answer = asked.err().map(|error| error.to_string()).unwrap_or_default();
                ensure!(answer.contains("disk is full"), "{answer:?}");
                Ok(())
            })
            .await?;
            // Long enough for the end of the dispatch to be told, and not to be taken.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        full.empty(&mut world.database).await?;
        let began = Instant::now();
        world.fleet.applied("app", &commit).await?;
        println!("measured: disk full at {point:?}: Ready {:?} after there was room", began.elapsed());
        world.is_as_without(&commit).await.with_context(|| format!("full at {point:?}"))?;
    }
    Ok(())
}

/// Two hubs on one database, and an agent whose way leads to the first.
struct Pair {
    first: HubProcess,
    second: HubProcess,
    link: Proxy,
    agent: AgentProcess,
    git: GitServer,
    cluster: TestCluster,
    setup: HubSetup,
}

impl Pair {
    async fn new() -> Result<Self> {
        install_crypto();
        let setup = HubSetup::new("pair").await?;
        let first = HubProcess::start(&setup).await?;
        let second = HubProcess::start_another(&setup).await?;
        let cluster = TestCluster::second()?;
        let link = Proxy::start(first.link_port()).await?;
        let agent = AgentProcess::join_through(&first, "edge", &cluster, &link).await?;
        let git = GitServer::start(Options { tls: false, ..Options::default() }).await?;
        first.kubectl().run(&["create", "namespace", "apps"]).await?;
        let pair = Self { first, second, link, agent, git, cluster, setup };
        eventually("the agent is connected, as the second hub sees it", PATIENCE, || async {
            let seen = pair.second.kubectl().condition(&["cluster", "edge"], "Ready").await?;
            ensure!(seen.0 == "True", "{seen:?}");
            Ok(())
        })
        .await?;
        Ok(pair)
    }

    /// Waits until a Kustomization is Ready and its request was answered, as `hub` sees it.
    async fn is_ready(hub: &HubProcess, name: &str, request: Option<&str>) -> Result<()> {
        eventually(&format!("{name} is Ready"), PATIENCE, || async {
            let object = hub.kubectl().get(&["kustomization", name, "-n", "apps"]).await?;
            let ready = hub.kubectl().condition(&["kustomization", name, "-n", "apps"], "Ready").await?;
            ensure!(ready.0 == "True", "{ready:?}");
            let handled = object["status"]["lastHandledReconcileAt"].as_str();
            ensure!(request.is_none_or(|request| handled == Some(request)), "handled: {handled:?}");
            Ok(())
        })
        .await
    }

    async fn request(hub: &HubProcess, name: &str) -> Result<String> {
        let at = unique("request");
        let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
        hub.kubectl()
            .run(&["annotate", "--overwrite", "kustomization", name, "-n", "apps", &annotation])
            .await?;
        Ok(at)
    }

    /// As the agent tells it, no two dispatches of one Kustomization were carried out at the same time. Gives how many
    /// there were.
    fn nothing_ran_twice(&self) -> Result<usize> {
        let logs = self.agent.logs();
        let mut ended: BTreeMap<&str, jiff::Timestamp> = BTreeMap::new();
        let mut count = 0;
        for line in logs.lines().filter(|line| line.contains("dispatch finished")) {
            let end: jiff::Timestamp = line.split_whitespace().next().context("a time")?.parse()?;
            let field = |name: &str| line.split_once(name)?.1.split('"').next();
            let app = field("applier=\"").with_context(|| line.to_owned())?;
            let duration: jiff::SignedDuration =
                field("duration=\"").with_context(|| line.to_owned())?.parse()?;
            if let Some(before) = ended.insert(app, end) {
                ensure!(end - duration >= before, "{app} was carried out twice at the same time:\n{logs}");
            }
            count += 1;
        }
        Ok(count)
    }
}

#[tokio::test]
async fn two_hubs_on_one_database_are_one() -> Result<()> {
    const APPS: [&str; 4] = ["app-0", "app-1", "app-2", "app-3"];
    let mut pair = Pair::new().await?;
    let namespace = pair.cluster.namespace("pair").await?;
    let mut commit = Commit::new();
    for app in APPS.iter().chain(&["alone", "after"]) {
        commit = commit.file(&format!("{app}/map.yaml"), config_map(namespace.name(), app, "ahoy"));
    }
    pair.git.add_repository("app.git")?.commit("main", "First", &commit)?;

    // What is made through the second hub reaches the agent, which is connected to the first.
    let second = &pair.second;
    let manifest = git_repository("app", &pair.git.url("app.git"), "timeout: 20s");
    second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    for app in APPS {
        let manifest = kustomization(app, "app", &format!("./{app}"), &[]);
        second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    }
    for app in APPS {
        Pair::is_ready(second, app, None).await?;
    }
    let began = Instant::now();
    let request = Pair::request(second, APPS[0]).await?;
    Pair::is_ready(second, APPS[0], Some(&request)).await?;
    println!(
        "measured: asked through one hub, answered through the other's agent after {:?}",
        began.elapsed()
    );
    let mut connection = pair.setup.database().connect().await?;
    let query = "SELECT extract(epoch FROM finished_at - started_at)::float8 FROM reconciliation ORDER BY 1";
    let took: Vec<Option<f64>> = sqlx::query_scalar(query).fetch_all(&mut connection).await?;
    println!("measured: seconds from an attempt's beginning to its end: {took:?}");

    // A watch on the second sees what is changed through the first.
    let mut watching = second.kubectl().spawn(&["get", "namespaces", "--watch", "-o", "name"])?;
    let mut lines = BufReader::new(watching.stdout.take().context("a pipe")?).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "namespace/apps" {
            break;
        }
    }
    let began = Instant::now();
    pair.first.kubectl().run(&["create", "namespace", "from-first"]).await?;
    let seen = async {
        while let Some(line) = lines.next_line().await? {
            if line == "namespace/from-first" {
                return Ok(());
            }
        }
        bail!("the watch has ended")
    };
    tokio::time::timeout(PATIENCE, seen).await.context("the watch does not tell")??;
    println!("measured: created through one hub, seen in a watch on the other after {:?}", began.elapsed());

    // Asked through both at once, nothing is done twice at once.
    for _ in 0..5 {
        for app in APPS {
            tokio::try_join!(Pair::request(&pair.first, app), Pair::request(second, app))?;
        }
    }
    for app in APPS {
        let request = Pair::request(second, app).await?;
        Pair::is_ready(second, app, Some(&request)).await?;
    }
    let count = pair.nothing_ran_twice()?;
    ensure!(count > APPS.len(), "the agent tells of {count} dispatches");
    println!("measured: {count} dispatches, none of them beside another of the same Kustomization");

    // The first is gone at a blow; the agent's way leads to the second now.
    pair.link.lead_to(pair.second.link_port());
    let began = Instant::now();
    pair.first.kill9().await?;
    let manifest = kustomization("alone", "app", "./alone", &[]);
    pair.second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    Pair::is_ready(&pair.second, "alone", None).await?;
    println!(
        "measured: made at the hub that is left, Ready {:?} after the other was killed",
        began.elapsed()
    );
    for app in APPS {
        let request = Pair::request(&pair.second, app).await?;
        Pair::is_ready(&pair.second, app, Some(&request)).await?;
    }

    // It comes back, and is one of two again.
    pair.first = HubProcess::start(&pair.setup).await?;
    let manifest = kustomization("after", "app", "./after", &[]);
    pair.first.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    Pair::is_ready(&pair.first, "after", None).await?;
    pair.cluster.has_word(namespace.name(), "after", Some("ahoy")).await?;
    pair.nothing_ran_twice()?;
    Ok(())
}

#[tokio::test]
async fn a_hub_that_is_ended_and_started_again_turns_nothing_not_ready() -> Result<()> {
    const APPS: [&str; 3] = ["app-0", "app-1", "app-2"];
    let mut fleet = Fleet::start("drain").await?;
    let namespace = fleet.cluster.namespace("drain").await?;
    let mut commit = Commit::new();
    for app in APPS {
        let child = format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: {app}}}\nspec: {{type: slack, \
             channel: alerts}}\n"
        );
        commit = commit.file(&format!("{app}/map.yaml"), config_map(namespace.name(), app, "ahoy"));
        commit = commit.file(&format!("{app}/child.yaml"), child);
    }
    fleet.repository("app", &commit).await?;
    for app in APPS {
        // Due again and again, also in the moment between the hub's start and the agent's return: each has something on the hub, which
        // no agent watches.
        fleet.apply(&kustomization(app, "app", &format!("./{app}"), &["interval: 1s"])).await?;
    }
    for app in APPS {
        fleet.ready(&format!("kustomization/{app}")).await?;
    }
    let mut database = fleet.setup.database().connect().await?;
    let newest = "SELECT max(resource_version) FROM resource_event";
    let before: i64 = sqlx::query_scalar(newest).fetch_one(&mut database).await?;

    for _ in 0..2 {
        let began = Instant::now();
        let status = fleet.hub.sigterm(PATIENCE).await?;
        println!("measured: after SIGTERM the hub had ended within {:?}", began.elapsed());
        ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", fleet.hub.logs());
        let began = Instant::now();
        fleet.hub = HubProcess::start(&fleet.setup).await?;
        fleet.ready("cluster/edge").await?;
        println!("measured: the agent was back {:?} after the hub's start began", began.elapsed());
        let attempts =
            "SELECT min(newest) FROM (SELECT max(attempt) AS newest FROM reconciliation GROUP BY applier) n";
        let then: i64 = sqlx::query_scalar(attempts).fetch_one(&mut database).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now: i64 = sqlx::query_scalar(attempts).fetch_one(&mut database).await?;
            if now > then + 1 {
                break;
            }
            ensure!(Instant::now() < deadline, "not each of them is reconciled again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let query = "SELECT name || ' ' || (c ->> 'status') || ' ' || (c ->> 'reason') || ': ' || (c ->> 'message') \
                 FROM resource_event, jsonb_array_elements(object #> '{status,conditions}') AS c \
                 WHERE resource_version > $1 AND kind = 'Kustomization' AND c ->> 'type' = 'Ready' \
                 AND c ->> 'status' <> 'True' ORDER BY resource_version";
    let blinks: Vec<String> = sqlx::query_scalar(query).bind(before).fetch_all(&mut database).await?;
    ensure!(blinks.is_empty(), "not Ready meanwhile:\n{}", blinks.join("\n"));
    Ok(())
}
