//! One large Kustomization on a real cluster: what a commit and a foreign edit take, what is asked of the apiserver, and what the agent
//! needs for all that it watches.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{Fleet, HubProcess, TestNamespace, eventually, kustomization};
use serde_json::json;
use tokio::time::sleep;

use crate::api::Api;
use crate::figures::{Figure, Report};
use crate::memory;

const PATIENCE: Duration = Duration::from_secs(300);

/// Measures all of it with a Kustomization of so many objects, and a second one.
pub(crate) async fn measure(report: &mut Report, objects: usize, edits: usize) -> Result<()> {
    let mut scene = Scene::new(objects).await?;
    scene.add(report, memory::agent("agent that watches nothing", scene.fleet.agent.id())?);
    scene.changes(report).await?;
    scene.edits(report, edits).await?;
    scene.second(report).await?;
    scene.at_rest(report).await?;
    scene.alone(report).await
}

struct Scene {
    fleet: Fleet,
    cluster: Api,
    namespace: TestNamespace,
    repository: Repository,
    objects: usize,
    /// What the second Kustomization is applied to.
    other: Option<TestNamespace>,
}

/// Which ConfigMaps a commit changes.
#[derive(Clone, Copy)]
enum Changed {
    None,
    One,
    All,
}

impl Scene {
    async fn new(objects: usize) -> Result<Self> {
        let fleet = Fleet::start("bench-pipeline").await?;
        let cluster = Api::of(fleet.cluster.kubectl()).await?;
        let namespace = fleet.cluster.namespace("bench").await?;
        let repository = fleet.repository("app", &Commit::new().file("readme", "nothing yet")).await?;
        Ok(Self { fleet, cluster, namespace, repository, objects, other: None })
    }

    fn add(&self, report: &mut Report, figure: Figure) {
        report.add("roadstead-hub", figure);
    }

    /// So many ConfigMaps, the first of them with another value.
    fn maps(&self, first: &str, others: &str) -> Commit {
        let map = |index: usize| {
            let value = if index == 0 { first } else { others };
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("map-{index}"), "namespace": self.namespace.name() },
                "data": { "value": value, "text": "some settings that an application reads at its start" } })
            .to_string()
        };
        Commit::new().file("app/maps.yaml", (0..self.objects).map(map).collect::<Vec<_>>().join("\n---\n"))
    }

    /// How many requests for ConfigMaps the apiserver has answered, watches and lists apart.
    async fn requests(&self) -> Result<f64> {
        let metrics = self.fleet.cluster.kubectl().run(&["get", "--raw", "/metrics"]).await?;
        let is_one = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && line.contains("resource=\"configmaps\"")
                && ["GET", "PATCH", "APPLY", "DELETE", "POST", "PUT"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        };
        Ok(metrics
            .lines()
            .filter(is_one)
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// From a commit that is stored until it was applied.
    async fn commit(&self, report: &mut Report, name: &str, commit: &Commit) -> Result<()> {
        let head = self.repository.commit("main", name, commit)?;
        let asked = self.requests().await?;
        let began = Instant::now();
        self.fleet.request("gitrepository/app").await?;
        self.fleet.applied("app", &head).await?;
        let took = began.elapsed().as_secs_f64();
        let asked = self.requests().await? - asked;
        self.add(
            report,
            Figure { name: name.to_owned(), values: vec![("s".into(), took), ("requests".into(), asked)] },
        );
        Ok(())
    }

    async fn changes(&self, report: &mut Report) -> Result<()> {
        let objects = self.objects;
        let first = self.repository.commit("main", "all", &self.maps("0", "0"))?;
        self.fleet.apply(&kustomization("app", "app", "./app", &["timeout: 5m", "interval: 1h"])).await?;
        let began = Instant::now();
        self.fleet.request("gitrepository/app").await?;
        self.fleet.applied("app", &first).await?;
        let values = vec![("s".into(), began.elapsed().as_secs_f64())];
        self.add(report, Figure { name: format!("{objects} objects created"), values });
        self.is_tended(1).await?;
        self.add(report, memory::agent(&format!("agent that watches {objects}"), self.fleet.agent.id())?);
        for (changed, name) in [(Changed::None, "none"), (Changed::One, "one"), (Changed::All, "all")] {
            let commit = match changed {
                // The build is the same: another file of the repository changes.
                Changed::None => self.maps("0", "0").file("readme", "another text"),
                Changed::One => self.maps("1", "0"),
                Changed::All => self.maps("2", "2"),
            };
            self.commit(report, &format!("{name} of {objects} objects changed"), &commit).await?;
            self.is_tended(1).await?;
        }
        Ok(())
    }

    /// Waits until so many Kustomizations are watched whole.
    async fn is_tended(&self, wanted: i64) -> Result<()> {
        eventually("all of it is watched", PATIENCE, || async {
            let mut database = self.fleet.setup.database().connect().await?;
            let tended = "SELECT count(*) FROM tended WHERE until IS NULL";
            let count: i64 = sqlx::query_scalar(tended).fetch_one(&mut database).await?;
            ensure!(count == wanted, "{count} are");
            Ok(())
        })
        .await
    }

    fn path(&self, index: usize) -> String {
        format!("/api/v1/namespaces/{}/configmaps/map-{index}", self.namespace.name())
    }

    async fn edit(&self, index: usize) -> Result<()> {
        let patch = json!({"data": {"value": "by hand"}});
        let request = self.cluster.request(Method::PATCH, &self.path(index));
        let request = request.header("content-type", "application/merge-patch+json").body(patch.to_string());
        request.send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }

    async fn is_corrected(&self, index: usize) -> Result<()> {
        loop {
            let object = self.cluster.get(&self.path(index)).await?;
            if object["data"]["value"] != "by hand" {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// From a foreign edit until it is corrected: one after the other, and many at once.
    async fn edits(&self, report: &mut Report, edits: usize) -> Result<()> {
        let mut times = Vec::new();
        for index in 0..edits {
            let began = Instant::now();
            self.edit(index).await?;
            self.is_corrected(index).await?;
            times.push(began.elapsed());
        }
        self.add(report, Figure::latency("foreign edit to correction", times));
        let began = Instant::now();
        let all = (edits..2 * edits).map(|index| async move {
            self.edit(index).await?;
            let edited = Instant::now();
            self.is_corrected(index).await?;
            anyhow::Ok(edited.elapsed())
        });
        let times = futures::future::try_join_all(all).await?;
        let name = format!("foreign edits of {edits} objects at once to correction");
        let mut figure = Figure::latency(&name, times);
        figure.values.push(("s in all".into(), began.elapsed().as_secs_f64()));
        self.add(report, figure);
        Ok(())
    }

    /// As many objects once more.
    async fn second(&mut self, report: &mut Report) -> Result<()> {
        let other = self.fleet.cluster.namespace("bench-other").await?;
        let target = format!("targetNamespace: {}", other.name());
        let fields = ["timeout: 5m", "interval: 1h", &target];
        self.fleet.apply(&kustomization("other", "app", "./app", &fields)).await?;
        self.fleet.ready("kustomization/other").await?;
        self.is_tended(2).await?;
        let name = format!("agent that watches {}", 2 * self.objects);
        self.add(report, memory::agent(&name, self.fleet.agent.id())?);
        self.other = Some(other);
        Ok(())
    }

    /// What is asked of the apiserver in a minute in which nothing happens.
    async fn at_rest(&self, report: &mut Report) -> Result<()> {
        let asked = self.requests().await?;
        sleep(Duration::from_secs(60)).await;
        let asked = self.requests().await? - asked;
        let name = format!("requests in an idle minute, {} objects", 2 * self.objects);
        self.add(report, Figure { name, values: vec![("requests".into(), asked)] });
        Ok(())
    }

    /// An agent that is started again without a hub, until it has corrected what was changed meanwhile.
    async fn alone(&mut self, report: &mut Report) -> Result<()> {
        // What was applied is kept a few seconds later.
        sleep(Duration::from_secs(10)).await;
        self.fleet.hub.kill9().await?;
        self.fleet.agent.kill9().await?;
        self.edit(0).await?;
        let began = Instant::now();
        self.fleet.agent.restart()?;
        tokio::time::timeout(PATIENCE, self.is_corrected(0)).await.context("it is not corrected")??;
        let name = format!("agent's start without a hub to correction, {} objects", 2 * self.objects);
        self.add(report, Figure { name, values: vec![("s".into(), began.elapsed().as_secs_f64())] });
        self.add(report, memory::agent("agent that was started again", self.fleet.agent.id())?);
        self.fleet.hub = HubProcess::start(&self.fleet.setup).await?;
        Ok(())
    }
}
