//! The whole line: a hub, a Git server over HTTPS, a Cluster with its agent.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_test_gitserver::{Commit, GitServer, Options, Repository, install_crypto};
use serde_json::Value;

use crate::agent::AgentProcess;
use crate::cluster::TestCluster;
use crate::hub::{HubProcess, HubSetup};
use crate::kubectl::Kubectl;
use crate::unique::unique;
use crate::wait::eventually;

/// How long anything may take that takes a moment on a machine with nothing else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A hub, a Git server that it trusts by the Secret `git`, and Cluster `edge` with a connected agent. What a test makes on
/// the hub is in the namespace `apps`.
pub struct Fleet {
    /// The agent of Cluster `edge`.
    pub agent: AgentProcess,
    /// The hub.
    pub hub: HubProcess,
    /// The Git server.
    pub git: GitServer,
    /// The cluster behind `edge`.
    pub cluster: TestCluster,
    /// What the hub runs on.
    pub setup: HubSetup,
}

/// The namespace on the hub for what a test makes there.
const NAMESPACE: &str = "apps";
/// The `logger` of lines about Kustomizations.
const LOGGER: &str = "controllers.Kustomization";

impl Fleet {
    /// Starts all of it and waits until the agent is connected; `name` is for logs.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_on(HubSetup::new(name).await?).await
    }

    /// The same with a hub that has arguments of its own.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub async fn start_on(setup: HubSetup) -> Result<Self> {
        let cluster = TestCluster::first()?;
        Self::start_in(setup, cluster.clone(), &cluster).await
    }

    /// The same with another cluster, which the agent reaches by a way of its own.
    ///
    /// # Errors
    /// When a part of it does not start.
    pub async fn start_in(setup: HubSetup, cluster: TestCluster, way: &TestCluster) -> Result<Self> {
        install_crypto();
        let hub = HubProcess::start(&setup).await?;
        let agent = AgentProcess::join(&hub, "edge", way).await?;
        Self::of(setup, hub, cluster, agent).await
    }

    /// A fleet of these parts, with a Git server: `agent` is that of Cluster `edge`, and in `cluster`.
    ///
    /// # Errors
    /// When the agent does not connect.
    pub async fn of(
        setup: HubSetup,
        hub: HubProcess,
        cluster: TestCluster,
        agent: AgentProcess,
    ) -> Result<Self> {
        hub.kubectl().run(&["create", "namespace", NAMESPACE]).await?;
        let git = GitServer::start(Options::default()).await?;
        let fleet = Self { agent, hub, git, cluster, setup };
        fleet.trust("git", &fleet.git, &[]).await?;
        fleet.ready("cluster/edge").await?;
        Ok(fleet)
    }

    /// kubectl on the hub.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        self.hub.kubectl()
    }

    /// A line of kubectl on the hub, in the namespace `apps`.
    ///
    /// # Errors
    /// What it prints on stderr, when it fails.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        self.kubectl().run(&[args, &["--namespace", NAMESPACE]].concat()).await
    }

    /// `kubectl apply` on the hub, in the namespace `apps`.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        self.kubectl().run_with(&["apply", "--namespace", NAMESPACE, "-f", "-"], manifest).await
    }

    /// An object on the hub, as `kustomization/app`.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self, object: &str) -> Result<Value> {
        self.kubectl().get(&[object, "--namespace", NAMESPACE]).await
    }

    /// Keeps a Git server's certificate in a Secret on the hub, with further `--from-literal` entries.
    ///
    /// # Errors
    /// When the hub refuses, or the server speaks plain HTTP.
    pub async fn trust(&self, secret: &str, git: &GitServer, literals: &[&str]) -> Result<()> {
        let pem = git.ca_pem().context("a server over HTTPS")?;
        let file = self.setup.folder().join(format!("{}.pem", unique("ca")));
        std::fs::write(&file, pem).context("write a certificate")?;
        let file = format!("--from-file=ca.crt={}", file.display());
        let literals: Vec<String> = literals.iter().map(|entry| format!("--from-literal={entry}")).collect();
        let mut args = vec!["create", "secret", "generic", secret, &file, "--dry-run=client", "-o", "yaml"];
        args.extend(literals.iter().map(String::as_str));
        let manifest = self.run(&args).await?;
        self.apply(&manifest).await.map(|_| ())
    }

    /// A repository with a first commit, and a GitRepository of the same name on the hub for its branch `main`.
    ///
    /// # Errors
    /// When Git fails or the hub refuses.
    pub async fn repository(&self, name: &str, commit: &Commit) -> Result<Repository> {
        let repository = self.git.add_repository(&format!("{name}.git"))?;
        repository.commit("main", "First", commit)?;
        self.apply(&git_repository(name, &self.git.url(&format!("{name}.git")), "secretRef: {name: git}"))
            .await?;
        Ok(repository)
    }

    /// Asks the hub to look at a source now, and waits until it has done so.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn fetch(&self, source: &str) -> Result<()> {
        self.reconcile(&format!("gitrepository/{source}")).await
    }

    /// Asks for a reconciliation of an object, and waits until that was handled.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn reconcile(&self, object: &str) -> Result<()> {
        let at = self.request(object).await?;
        eventually(&format!("the request for {object} is handled"), PATIENCE, || async {
            let handled = self.get(object).await?["status"]["lastHandledReconcileAt"].clone();
            ensure!(handled == at, "the last request that was handled is {handled}");
            Ok(())
        })
        .await
    }

    /// Asks for a reconciliation of an object, by what is given.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn request(&self, object: &str) -> Result<String> {
        let at = unique("request");
        let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
        self.run(&["annotate", "--overwrite", object, &annotation]).await?;
        Ok(at)
    }

    /// What the inventory of a Kustomization has, as `Kind/name`. No name here has a `_`.
    ///
    /// # Errors
    /// When there is none.
    pub async fn inventory(&self, kustomization: &str) -> Result<BTreeSet<String>> {
        let object = self.get(&format!("kustomization/{kustomization}")).await?;
        let entries = object["status"]["inventory"]["entries"].as_array().context("an inventory")?;
        let name = |entry: &Value| {
            let parts: Vec<&str> = entry["id"].as_str()?.split('_').collect();
            Some(format!("{}/{}", parts.get(3)?, parts.get(1)?))
        };
        Ok(entries.iter().filter_map(name).collect())
    }

    /// Suspends a Kustomization, or resumes it.
    ///
    /// # Errors
    /// When the hub refuses.
    pub async fn suspend(&self, kustomization: &str, on: bool) -> Result<()> {
        let object = format!("kustomization/{kustomization}");
        let patch = format!(r#"{{"spec":{{"suspend":{on}}}}}"#);
        self.run(&["patch", &object, "--type=merge", "-p", &patch]).await.map(|_| ())
    }

    /// The status, reason and message of an object's condition on the hub.
    ///
    /// # Errors
    /// When there is none.
    pub async fn condition(&self, object: &str, kind: &str) -> Result<(String, String, String)> {
        self.kubectl().condition(&[object, "--namespace", NAMESPACE], kind).await
    }

    /// Waits until an object on the hub is Ready for its generation, and gives the message.
    ///
    /// # Errors
    /// When it is not in time, with the condition.
    pub async fn ready(&self, object: &str) -> Result<String> {
        self.settles(object, "True", "", "").await
    }

    /// Waits until an object is not Ready for `reason` with all of `parts` in the message, and gives the message.
    ///
    /// # Errors
    /// When it is not so in time, with the condition.
    pub async fn fails(&self, object: &str, reason: &str, parts: &[&str]) -> Result<String> {
        let message =
            self.settles(object, "False", reason, parts.first().copied().unwrap_or_default()).await?;
        for part in parts {
            ensure!(message.contains(part), "{object}: no `{part}` in: {message}");
        }
        Ok(message)
    }

    /// Waits until an object's Ready has this status and reason (any, where empty) for its generation, and holds `part`.
    async fn settles(&self, object: &str, status: &str, reason: &str, part: &str) -> Result<String> {
        eventually(&format!("{object} has Ready {status} {reason}"), PATIENCE, || async {
            let seen = self.get(object).await?;
            let conditions = seen["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
            let ready = ready.with_context(|| format!("no condition Ready: {}", seen["status"]))?;
            let message = ready["message"].as_str().unwrap_or_default();
            let is_so = ready["status"] == status
                && (reason.is_empty() || ready["reason"] == reason)
                && ready["observedGeneration"] == seen["metadata"]["generation"]
                && message.contains(part);
            ensure!(is_so, "it has {ready}");
            Ok(message.to_owned())
        })
        .await
        .with_context(|| self.tails())
    }

    /// The ends of the logs, for a test that fails.
    #[must_use]
    pub fn tails(&self) -> String {
        format!("--- hub:\n{}\n--- agent:\n{}\n---", self.hub.tail(), self.agent.tail())
    }

    /// Waits until a Kustomization is Ready at this commit.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn applied(&self, kustomization: &str, commit: &str) -> Result<()> {
        let object = format!("kustomization/{kustomization}");
        eventually(&format!("{object} has applied {commit}"), PATIENCE, || async {
            let revision = self.get(&object).await?["status"]["lastAppliedRevision"].clone();
            let is_so = revision.as_str().is_some_and(|revision| revision.ends_with(commit));
            ensure!(is_so, "it has {revision}, and Ready: {:?}", self.condition(&object, "Ready").await);
            Ok(())
        })
        .await
        .with_context(|| self.tails())?;
        self.ready(&object).await.map(|_| ())
    }

    /// Waits for a line that the hub logs of a Kustomization, as `apps/backend`: the first that `is_it` takes. The hub
    /// writes it after what it tells of is in the database, and so after others may have seen that.
    ///
    /// # Errors
    /// When there is none in time, with all of that Kustomization's lines.
    pub async fn log_line(&self, kustomization: &str, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("a log line of {kustomization}"), PATIENCE, || async {
            let logs = self.hub.logs();
            let lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let lines: Vec<Value> = lines
                .filter(|line| line["logger"] == LOGGER && line["kustomization"] == kustomization)
                .collect();
            let line = lines.iter().find(|line| is_it(line)).cloned();
            line.with_context(|| format!("the lines are {lines:#?}"))
        })
        .await
    }
}

/// A GitRepository for the branch `main`, looked at once an hour; `more` is a further line of its spec.
#[must_use]
pub fn git_repository(name: &str, url: &str, more: &str) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata:\n  name: {name}\nspec:\n  interval: 1h\n  \
         url: {url}\n  ref: {{branch: main}}\n  {more}\n"
    )
}

/// A Kustomization on Cluster `edge` for `path` of the GitRepository `source`, once an hour; `more` are further lines of
/// its spec, which replace these where they name the same field.
#[must_use]
pub fn kustomization(name: &str, source: &str, path: &str, more: &[&str]) -> String {
    let source = format!("sourceRef: {{kind: GitRepository, name: {source}}}");
    let path = format!("path: {path}");
    let mut lines =
        vec!["clusterRef: {name: edge}", &source, &path, "interval: 1h", "timeout: 1m", "prune: true"];
    let field = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    lines.retain(|line| more.iter().all(|other| field(other) != field(line)));
    lines.extend(more);
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: {name}\nspec:\n  {}\n---\n",
        lines.join("\n  ")
    )
}

/// A ConfigMap with the entry `word`.
#[must_use]
pub fn config_map(namespace: &str, name: &str, word: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  word: {word}\n"
    )
}

impl TestCluster {
    /// The uid of an object, as `configmap/map`.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn uid(&self, namespace: &str, object: &str) -> Result<String> {
        let object = self.kubectl().get(&[object, "-n", namespace]).await?;
        object["metadata"]["uid"].as_str().map(str::to_owned).context("a uid")
    }

    /// The entry `word` of a ConfigMap; none where there is no such ConfigMap.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn word(&self, namespace: &str, name: &str) -> Result<Option<String>> {
        let args = ["get", "configmap", name, "--namespace", namespace, "--ignore-not-found", "-o", "json"];
        let text = self.kubectl().run(&args).await?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let object: Value = serde_json::from_str(&text).context("read a ConfigMap")?;
        Ok(object["data"]["word"].as_str().map(str::to_owned))
    }

    /// Waits until a ConfigMap's entry `word` is this, or until there is no such ConfigMap.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn has_word(&self, namespace: &str, name: &str, word: Option<&str>) -> Result<()> {
        eventually(&format!("ConfigMap {namespace}/{name} says {word:?}"), PATIENCE, || async {
            let seen = self.word(namespace, name).await?;
            ensure!(seen.as_deref() == word, "it says {seen:?}");
            Ok(())
        })
        .await
    }
}

/// A copy of a Git server's options that serves the same again after it was dropped: same folder, port and certificate.
///
/// # Errors
/// When the folder cannot be made.
pub fn lasting_git(folder: &Path, port: u16) -> Result<Options> {
    let (root, authority) = (folder.join("git"), folder.join("git-ca"));
    std::fs::create_dir_all(&root).context("make a folder for repositories")?;
    Ok(Options {
        listen: (std::net::Ipv4Addr::LOCALHOST, port).into(),
        root: Some(root),
        authority: Some(authority),
        ..Options::default()
    })
}
