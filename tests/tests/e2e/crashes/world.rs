//! What the tests of crashes have in common: one Kustomization that goes back and forth between two commits, and blows in the middle of that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{
    Fleet, HubProcess, HubSetup, Kubectl, PATIENCE, Proxy, TestCluster, TestNamespace, config_map,
    eventually, kustomization,
};
use serde_json::Value;
use sqlx::PgConnection;

pub(super) const OWNER: &str = "fleet.roadstead.dev/owner";

/// How long each piece on the way between agent and apiserver is held while something is to be met in its middle.
pub(super) const SLOWLY: Duration = Duration::from_millis(15);

/// ConfigMaps of one commit, and how many of them the other one does not have.
pub(super) const MAPS: usize = 54;
pub(super) const MOVED: usize = 18;

/// How often a blow may come too late.
pub(super) const TRIES: usize = 4;

/// The two commits that it goes back and forth between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Port,
    Starboard,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Port => Self::Starboard,
            Self::Starboard => Self::Port,
        }
    }

    /// Some sixty objects in `namespace`, one of them of a kind that comes with them.
    pub(super) fn manifests(self, namespace: &str, group: &str) -> String {
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
pub(super) enum Point {
    /// The attempt is in the database.
    Dispatched,
    /// So many ConfigMaps were created or changed.
    Written(usize),
    /// So many were pruned.
    Pruned(usize),
}

/// What is hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Hub,
    Agent,
    Both,
}

/// What has happened to the ConfigMaps of a namespace: (written, deleted).
pub(super) type Counts = (usize, usize);

/// Counts that. It lists, as a watch that an apiserver with much to do has ended may not be able to go on.
pub(super) struct Counted {
    pub(super) kubectl: Kubectl,
    pub(super) namespace: String,
    /// By name, at which version each was seen last.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) counts: Counts,
}

impl Counted {
    pub(super) fn new(kubectl: &Kubectl, namespace: &str) -> Self {
        Self {
            kubectl: kubectl.clone(),
            namespace: namespace.to_owned(),
            versions: BTreeMap::new(),
            counts: (0, 0),
        }
    }

    pub(super) async fn now(&mut self) -> Result<Counts> {
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
    pub(super) async fn reaches(&mut self, before: Counts, point: Point) -> Result<()> {
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
pub(super) type Ends = BTreeMap<String, Value>;

/// A fleet with one large Kustomization, `app`.
pub(super) struct World {
    pub(super) fleet: Fleet,
    /// Between agent and apiserver.
    pub(super) apiserver: Proxy,
    pub(super) namespace: TestNamespace,
    pub(super) group: String,
    pub(super) repository: Repository,
    pub(super) uid: String,
    pub(super) counted: Counted,
    pub(super) database: PgConnection,
    pub(super) side: Side,
    /// What comes of each commit without a blow.
    pub(super) ends: BTreeMap<Side, Ends>,
}

impl World {
    pub(super) async fn new(name: &str) -> Result<Self> {
        let setup = HubSetup::new(name).await?;
        let database = setup.database().connect().await?;
        Self::on(setup, database, name).await
    }

    /// The same with a hub on this database.
    pub(super) async fn on(setup: HubSetup, database: PgConnection, name: &str) -> Result<Self> {
        let cluster = TestCluster::first()?;
        Self::by_way(setup, database, name, &cluster).await
    }

    /// The same with an agent that reaches the first cluster by a way of its own.
    pub(super) async fn by_way(
        setup: HubSetup,
        database: PgConnection,
        name: &str,
        way: &TestCluster,
    ) -> Result<Self> {
        let cluster = TestCluster::first()?;
        let (proxied, apiserver) = way.through_proxy().await?;
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
    pub(super) async fn turn(&mut self) -> Result<String> {
        self.side = self.side.other();
        let manifests = self.side.manifests(self.namespace.name(), &self.group);
        let commit =
            self.repository.commit("main", "Turn", &Commit::new().file("app/all.yaml", manifests))?;
        self.fleet.request("gitrepository/app").await?;
        Ok(commit)
    }

    /// Everything in the cluster that bears the owner's label, and a check that nothing else is left there.
    pub(super) async fn end(&self) -> Result<Ends> {
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
    pub(super) async fn round(&mut self, victim: Victim, point: Point) -> Result<()> {
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
    pub(super) async fn strike(&mut self, victim: Victim, point: Point) -> Result<(String, bool)> {
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

    pub(super) async fn restart(&mut self, victim: Victim) -> Result<()> {
        if victim != Victim::Agent {
            self.fleet.hub = HubProcess::start(&self.fleet.setup).await?;
        }
        if victim != Victim::Hub {
            self.fleet.agent.restart()?;
        }
        Ok(())
    }

    /// The end state is that of a run without a blow; the hub knows what is there; one attempt has won.
    pub(super) async fn is_as_without(&mut self, commit: &str) -> Result<()> {
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
    pub(super) async fn attempts(&mut self, commit: &str) -> Result<Vec<Option<String>>> {
        let query = "SELECT CASE WHEN finished_at IS NOT NULL THEN reason END FROM reconciliation \
                     WHERE applier = $1::uuid AND revision LIKE '%' || $2 ORDER BY attempt";
        sqlx::query_scalar(query)
            .bind(&self.uid)
            .bind(commit)
            .fetch_all(&mut self.database)
            .await
            .context("read attempts")
    }

    pub(super) async fn dispatched(&mut self, commit: &str) -> Result<()> {
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
    pub(super) async fn deletion_in_the_middle(&mut self) -> Result<()> {
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
pub(super) fn lasting(object: &Value) -> Value {
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
