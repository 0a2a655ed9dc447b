//! What is asked of an apiserver and by whom, as its audit log has it: for Kustomizations that changed, for those that did not, in a minute
//! in which nothing happens, and while others write the status of what was applied.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, OwnCluster, TestNamespace, eventually, kustomization};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::Api;
use crate::figures::{Figure, Report};

const PATIENCE: Duration = Duration::from_secs(300);
/// As many as one commit changes.
const KUSTOMIZATIONS: usize = 50;
const OBJECTS: usize = 4;
/// Objects of which others write the status, how often each, and how many of them at once.
const CHURNING: usize = 100;
const WRITES: usize = 10;
const AT_ONCE: usize = 8;
/// How the name begins that our agent gives itself.
const AGENT: &str = "roadstead-agent";

/// Measures all of it on a cluster of its own.
pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let own = OwnCluster::start_audited("bench-requests").await?;
    let cluster = own.as_test_cluster()?;
    let fleet = Fleet::start_in(HubSetup::new("bench-requests").await?, cluster.clone(), &cluster).await?;
    let scene = Scene {
        space: cluster.namespace("bench").await?,
        api: Api::of(cluster.kubectl()).await?,
        log: Log(own.audit_log()?),
        fleet,
    };
    scene.changes(report).await?;
    scene.churn(report).await
}

struct Scene {
    fleet: Fleet,
    space: TestNamespace,
    api: Api,
    log: Log,
}

impl Scene {
    fn files(&self, value: &str) -> Commit {
        let object = |index: usize, object: usize| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": format!("map-{index}-{object}"), "namespace": self.space.name() },
                "data": { "value": value } })
            .to_string()
        };
        (0..KUSTOMIZATIONS).fold(Commit::new().file("readme", value), |commit, index| {
            let objects: Vec<String> = (0..OBJECTS).map(|number| object(index, number)).collect();
            commit.file(&format!("k{index}/objects.yaml"), objects.join("\n---\n"))
        })
    }

    /// One commit that changes all, one that changes none, and a minute at rest.
    async fn changes(&self, report: &mut Report) -> Result<()> {
        let repository = self.fleet.repository("app", &self.files("first")).await?;
        let name = |index: usize| format!("app-{index}");
        let all: Vec<String> = (0..KUSTOMIZATIONS)
            .map(|index| kustomization(&name(index), "app", &format!("./k{index}"), &["timeout: 5m"]))
            .collect();
        self.fleet.apply(&all.concat()).await?;
        for index in 0..KUSTOMIZATIONS {
            self.fleet.ready(&format!("kustomization/{}", name(index))).await?;
        }
        self.is_tended(KUSTOMIZATIONS).await?;
        let each = KUSTOMIZATIONS as f64;
        // What is kept for a restart has its place after the first change.
        for value in ["second", "third"] {
            let from = self.log.now()?;
            let head = repository.commit("main", value, &self.files(value))?;
            self.all_applied(&head, &name).await?;
            if value == "third" {
                self.add(report, "requests of a changed reconciliation (4 objects)", &from, each)?;
            }
        }
        let from = self.log.now()?;
        let head = repository.commit("main", "none", &self.files("third").file("readme", "another"))?;
        self.all_applied(&head, &name).await?;
        self.add(report, "requests of an unchanged reconciliation (4 objects)", &from, each)?;
        let from = self.log.now()?;
        sleep(Duration::from_secs(60)).await;
        self.add(report, &format!("requests in an idle minute, {KUSTOMIZATIONS} Kustomizations"), &from, 1.0)
    }

    /// Waits until all have applied a commit, and what follows that is done.
    async fn all_applied(&self, head: &str, name: &impl Fn(usize) -> String) -> Result<()> {
        self.fleet.request("gitrepository/app").await?;
        for index in 0..KUSTOMIZATIONS {
            self.fleet.applied(&name(index), head).await?;
        }
        self.is_tended(KUSTOMIZATIONS).await?;
        // What was applied is kept some seconds later.
        sleep(Duration::from_secs(10)).await;
        Ok(())
    }

    /// Deployments whose status is written again and again, as controllers do.
    async fn churn(&self, report: &mut Report) -> Result<()> {
        let object = |index: usize| {
            json!({ "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": format!("churn-{index}"), "namespace": self.space.name() },
                "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "churn" } },
                    "template": { "metadata": { "labels": { "app": "churn" } },
                        "spec": { "containers": [{ "name": "app", "image": "registry/app:1" }] } } } })
            .to_string()
        };
        let objects: Vec<String> = (0..CHURNING).map(object).collect();
        let commit = Commit::new().file("churn/objects.yaml", objects.join("\n---\n"));
        self.fleet.repository("churn", &commit).await?;
        self.fleet.apply(&kustomization("churn", "churn", "./churn", &["timeout: 5m"])).await?;
        self.fleet.ready("kustomization/churn").await?;
        self.is_tended(KUSTOMIZATIONS + 1).await?;
        sleep(Duration::from_secs(10)).await;
        let (from, began) = (self.log.now()?, Instant::now());
        futures::stream::iter((0..WRITES).flat_map(|round| (0..CHURNING).map(move |index| (round, index))))
            .map(|(round, index)| self.write_status(round, index))
            .buffer_unordered(AT_ONCE)
            .try_for_each(async |()| Ok(()))
            .await?;
        // What they lead to follows within this.
        sleep(Duration::from_secs(15)).await;
        let name = format!(
            "requests while {CHURNING} objects' status is written {WRITES} times, {:.0} s",
            began.elapsed().as_secs_f64()
        );
        self.add(report, &name, &from, 1.0)
    }

    async fn write_status(&self, round: usize, index: usize) -> Result<()> {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/churn-{index}/status", self.space.name());
        let condition = json!({ "type": "Progressing", "status": "True", "reason": format!("Round{round}") });
        let patch = json!({ "status": { "conditions": [condition] } }).to_string();
        self.api.ask(Method::PATCH, &path, "application/merge-patch+json", patch).await.map(drop)
    }

    /// Waits until so many Kustomizations are watched whole.
    async fn is_tended(&self, wanted: usize) -> Result<()> {
        eventually("all of it is watched", PATIENCE, || async {
            let mut database = self.fleet.setup.database().connect().await?;
            let tended = "SELECT count(*) FROM tended WHERE until IS NULL";
            let count: i64 = sqlx::query_scalar(tended).fetch_one(&mut database).await?;
            ensure!(usize::try_from(count)? == wanted, "{count} of {wanted} are");
            Ok(())
        })
        .await
    }

    /// The requests since then by who asked, divided by `each`. Those of the agent are told by verb, too.
    fn add(&self, report: &mut Report, name: &str, from: &Moment, each: f64) -> Result<()> {
        let counted = self.log.since(from)?;
        let agent: usize = counted.iter().filter(|((who, _), _)| who == AGENT).map(|(_, count)| count).sum();
        let mut values = vec![(format!("by {AGENT}").into(), agent as f64 / each)];
        let mut others = BTreeMap::<&str, usize>::new();
        for ((who, verb), count) in &counted {
            if who == AGENT {
                values.push((format!("of these {verb}").into(), *count as f64 / each));
            } else {
                *others.entry(who).or_default() += count;
            }
        }
        values
            .extend(others.into_iter().map(|(who, count)| (format!("by {who}").into(), count as f64 / each)));
        report.add("roadstead-hub", Figure { name: name.to_owned(), values });
        Ok(())
    }
}

/// An apiserver's audit log.
struct Log(PathBuf);

/// How long it was.
struct Moment(usize);

impl Log {
    fn now(&self) -> Result<Moment> {
        let length = std::fs::metadata(&self.0).context("look at the audit log")?.len();
        Ok(Moment(usize::try_from(length)?))
    }

    /// How many requests there were since then, by who asked and what for. A watch counts when it begins and when it ends, once.
    fn since(&self, from: &Moment) -> Result<BTreeMap<(String, String), usize>> {
        let text = std::fs::read(&self.0).context("read the audit log")?;
        let (mut seen, mut counted) = (BTreeSet::new(), BTreeMap::new());
        // The line that was being written counts for the next moment.
        let lines = text.get(from.0..).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            let entry: Value = serde_json::from_slice(line).context("read a line of the audit log")?;
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            if !seen.insert(text("auditID")) {
                continue;
            }
            let agent = text("userAgent");
            let who = agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
            let verb = match (text("verb"), text("requestURI").contains("dryRun=All")) {
                (verb, true) => format!("{verb} (dry run)"),
                (verb, false) => verb,
            };
            *counted.entry((who, verb)).or_default() += 1;
        }
        Ok(counted)
    }
}
