//! One Kustomization in two hands: Flux's own kustomize-controller on one cluster, a hub and its agent on the other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{Fleet, FluxController, Kubectl, PATIENCE, eventually, git_repository, unique};
use serde_json::Value;

use super::differences::DIFFERENCES;
use super::passed::Passed;
use crate::parity::{Finding, Names, Told, told};

/// The kind, by a name that no other group has.
const KIND: &str = "kustomizations.kustomize.toolkit.fluxcd.io";
/// Flux's controller works on four Kustomizations at once, so that one may wait for others.
const WAIT: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// Both sides of one scenario. Kustomization and source have its name, in a namespace of the same name on the hub and on both clusters.
pub(super) struct Pair<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) flux: &'a FluxController,
    /// The cluster on which Flux is.
    pub(super) flux_kubectl: &'a Kubectl,
    pub(super) ns: &'a str,
    pub(super) name: &'static str,
    repository: Repository,
    files: RefCell<BTreeMap<String, String>>,
    names: RefCell<Names>,
    asked: RefCell<Option<String>>,
    /// Through which states Ready went, on Flux's side and on the hub's.
    passed: RefCell<Option<[Passed; 2]>>,
    /// What differed at each stage.
    pub(super) findings: RefCell<Vec<Finding>>,
}

impl<'a> Pair<'a> {
    pub(super) fn new(
        fleet: &'a Fleet,
        flux: &'a FluxController,
        flux_kubectl: &'a Kubectl,
        ns: &'a str,
        name: &'static str,
    ) -> Result<Self> {
        let repository = fleet.git.add_repository(&format!("{name}.git"))?;
        Ok(Self {
            fleet,
            flux,
            flux_kubectl,
            ns,
            name,
            repository,
            files: RefCell::default(),
            names: RefCell::new(Names::from([(ns.to_owned(), "NAMESPACE".to_owned())])),
            asked: RefCell::default(),
            passed: RefCell::default(),
            findings: RefCell::default(),
        })
    }

    async fn hub(&self, args: &[&str]) -> Result<String> {
        self.fleet.kubectl().run(&[args, &["--namespace", self.ns]].concat()).await
    }

    /// Changes files, or removes them, as one commit; gives its revision. Nobody is told yet.
    pub(super) fn commit(&self, changes: &[(&str, Option<String>)]) -> Result<String> {
        let mut commit = Commit::new();
        let mut files = self.files.borrow_mut();
        for (path, content) in changes {
            if let Some(content) = content {
                commit = commit.file(path, content);
                files.insert((*path).to_owned(), content.clone());
            } else {
                commit = commit.remove(path);
                files.remove(*path);
            }
        }
        let revision = format!("main@sha1:{}", self.repository.commit("main", "Change", &commit)?);
        let mut names = self.names.borrow_mut();
        let stands = format!("REVISION-{}", names.len());
        names.insert(revision.clone(), stands);
        Ok(revision)
    }

    /// Makes the source of both sides, without an artifact on Flux's.
    pub(super) async fn source(&self) -> Result<()> {
        self.flux.source(self.name).await?;
        let url = self.fleet.git.url(&format!("{}.git", self.name));
        let source = git_repository(self.name, &url, "secretRef: {name: git}");
        let apply = ["apply", "--namespace", self.ns, "-f", "-"];
        self.fleet.kubectl().run_with(&apply, &source).await.map(drop)
    }

    /// Has both sources offer a revision.
    pub(super) async fn offer(&self, revision: &str) -> Result<()> {
        let files = self.files.borrow().clone();
        self.flux.push_to(self.name, revision, &files).await?;
        let object = format!("gitrepository/{}", self.name);
        let annotation = format!("reconcile.fluxcd.io/requestedAt={}", unique("fetch"));
        self.hub(&["annotate", "--overwrite", &object, &annotation]).await?;
        eventually("the hub has fetched", PATIENCE, || async {
            let args = [object.as_str(), "--namespace", self.ns];
            let artifact = self.fleet.kubectl().get(&args).await?["status"]["artifact"].clone();
            ensure!(artifact["revision"] == revision, "its artifact is {artifact}");
            Ok(())
        })
        .await
    }

    /// Both in one: a commit that both sources offer.
    pub(super) async fn push(&self, changes: &[(&str, Option<String>)]) -> Result<String> {
        let revision = self.commit(changes)?;
        self.source().await?;
        self.offer(&revision).await?;
        Ok(revision)
    }

    /// Writes a Kustomization of this name with these lines of its spec, on both sides; on the hub it also says for which Cluster.
    pub(super) async fn kustomization(&self, annotations: &str, lines: &[&str]) -> Result<()> {
        self.kustomization_named(self.name, annotations, lines).await
    }

    pub(super) async fn kustomization_named(
        &self,
        name: &str,
        annotations: &str,
        lines: &[&str],
    ) -> Result<()> {
        let manifest = format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: {}, annotations: \
             {{{annotations}}}}}\nspec:\n  interval: 1h\n  timeout: 30s\n  prune: true\n  sourceRef: {{kind: GitRepository, name: {}}}\n  {}\n",
            self.ns,
            self.name,
            lines.join("\n  ")
        );
        self.flux_kubectl.run_with(&["apply", "-f", "-"], &manifest).await?;
        let manifest = format!("{}\n  clusterRef: {{name: edge}}\n", manifest.trim_end());
        self.fleet.kubectl().apply(&manifest).await.map(drop)
    }

    /// A line of kubectl about the Kustomization, on both sides.
    pub(super) async fn both(&self, verb: &[&str], rest: &[&str]) -> Result<()> {
        let object = format!("{KIND}/{}", self.name);
        let args = [verb, &[object.as_str()], rest].concat();
        self.flux.run(&args).await?;
        self.hub(&args).await.map(drop)
    }

    /// Writes other objects, on the hub and on both clusters: both may look for them where they are.
    pub(super) async fn everywhere(&self, manifest: &str) -> Result<()> {
        self.flux_kubectl.apply(manifest).await?;
        self.fleet.kubectl().apply(manifest).await.map(drop)
    }

    /// Asks both for a reconciliation, which the next stage waits for.
    pub(super) async fn ask(&self) -> Result<()> {
        // The same on both sides, and in each run.
        let count = self.asked.borrow().as_deref().map_or(0, str::len);
        let token = "again".to_owned() + &"!".repeat(count.saturating_sub("again".len()) + 1);
        let annotation = format!("reconcile.fluxcd.io/requestedAt={token}");
        self.both(&["annotate", "--overwrite"], &[&annotation]).await?;
        *self.asked.borrow_mut() = Some(token);
        Ok(())
    }

    /// From now on, the states through which Ready goes at each stage are compared, too.
    pub(super) fn watch(&self) -> Result<()> {
        let watch = |kubectl| Passed::watch(kubectl, self.ns, self.name);
        *self.passed.borrow_mut() = Some([watch(self.flux_kubectl)?, watch(self.fleet.kubectl())?]);
        Ok(())
    }

    pub(super) fn watch_no_more(&self) {
        self.passed.take();
    }

    async fn flux_tells(&self) -> Result<Told> {
        self.tells(self.flux_kubectl).await
    }

    async fn tells(&self, kubectl: &Kubectl) -> Result<Told> {
        let objects = kubectl.get(&[KIND, "--namespace", self.ns]).await?;
        let is_it = |one: &&Value| one["metadata"]["name"] == self.name;
        let object = objects["items"].as_array().into_iter().flatten().find(is_it).cloned();
        let events = kubectl.get(&["events", "--namespace", self.ns]).await?;
        let events = events["items"].as_array().into_iter().flatten();
        let about = |event: &&Value| {
            event["involvedObject"]["kind"] == "Kustomization" && event["involvedObject"]["name"] == self.name
        };
        let events: Vec<Value> = events.filter(about).cloned().collect();
        Ok(told(object.as_ref(), &events, &self.names.borrow()))
    }

    /// Waits until Flux has got to `ready` (`STATUS REASON`) with `part` in the message, and the hub to all that Flux tells but for what
    /// is known to differ; what differs besides is noted.
    pub(super) async fn same(&self, stage: &str, ready: &str, part: &str) -> Result<()> {
        let name = format!("Flux: {} {stage}", self.name);
        eventually(&name, WAIT, || async {
            let told = self.flux_tells().await?;
            let is = |key: &str| told.fields.get(key).map(String::as_str).unwrap_or_default();
            ensure!(is("Ready") == ready && is("Ready.message").contains(part), "it tells {told:#?}");
            if let Some(asked) = &*self.asked.borrow() {
                ensure!(is("lastHandledReconcileAt") == asked, "it has not handled {asked}: {told:#?}");
            }
            Ok(())
        })
        .await
        .with_context(|| of(&self.flux.logs(), self.name))?;
        self.compare(stage).await
    }

    /// Waits until Flux tells these parts of fields, and the hub those.
    pub(super) async fn tell(&self, flux: &[(&str, &str)], hub: &[(&str, &str)]) -> Result<()> {
        for (kubectl, wanted) in [(self.flux_kubectl, flux), (self.fleet.kubectl(), hub)] {
            eventually(&format!("{}: {wanted:?}", self.name), WAIT, || async {
                let told = self.tells(kubectl).await?;
                let is =
                    |(key, part): &(&str, &str)| told.fields.get(*key).is_some_and(|is| is.contains(part));
                ensure!(wanted.iter().all(is), "it tells {told:#?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until the Kustomization is gone on both sides.
    pub(super) async fn gone(&self, stage: &str) -> Result<()> {
        eventually(&format!("{} is gone", self.name), WAIT, || async {
            for kubectl in [self.flux_kubectl, self.fleet.kubectl()] {
                let told = self.tells(kubectl).await?;
                ensure!(!told.fields.contains_key("generation"), "it is there: {told:#?}");
            }
            Ok(())
        })
        .await?;
        self.compare(stage).await
    }

    /// Compares until nothing unexpected differs, or for as long as one has patience; then what differs is noted.
    pub(super) async fn compare(&self, stage: &str) -> Result<()> {
        let at = format!("{}/{stage}", self.name);
        let seen = RefCell::new(Vec::new());
        let alike = eventually(&at, PATIENCE / 3, || async {
            let (mut flux, mut hub) = (self.flux_tells().await?, self.tells(self.fleet.kubectl()).await?);
            if let Some(passed) = &*self.passed.borrow() {
                for (told, passed) in [&mut flux, &mut hub].into_iter().zip(passed) {
                    let of = &told.fields;
                    ensure!(!passed.states().is_empty(), "a watch has told nothing of what tells {of:#?}");
                    told.fields.insert("Ready.passed".to_owned(), passed.states());
                }
            }
            let all = Finding::all(&at, &flux, &hub);
            let unlisted: Vec<String> =
                all.iter().filter(|one| one.listed(DIFFERENCES).is_none()).map(ToString::to_string).collect();
            seen.replace(all);
            ensure!(unlisted.is_empty(), "{}", unlisted.join("\n"));
            Ok(())
        });
        let ended: Result<()> = alike.await;
        self.passed.borrow().iter().flatten().for_each(Passed::forget);
        let seen = seen.take();
        if seen.is_empty() {
            return ended.with_context(|| format!("{at}: nothing was compared"));
        }
        // That it differs is told at the end, with all else that does.
        self.findings.borrow_mut().extend(seen);
        Ok(())
    }
}

/// The lines of a log that are about a Kustomization.
fn of(log: &str, name: &str) -> String {
    let named = format!("\"name\":\"{name}\"");
    log.lines().filter(|line| line.contains(&named)).collect::<Vec<_>>().join("\n")
}
