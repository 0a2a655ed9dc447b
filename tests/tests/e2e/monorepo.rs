//! One repository with many overlays: what a commit changed is built again, and nothing else.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{Fleet, HubProcess, HubSetup, config_map, kustomization};
use serde_json::Value;

const APPS: usize = 12;
const BUILT: &str = "building in a worker";
const KEPT: &str = "nothing that was read has changed: not built again";

/// A base, and overlays of it: `changed` is what one of them says.
fn files(ns: &str, changed: Option<(usize, &str)>) -> Commit {
    let base = Commit::new()
        .file("base/kustomization.yaml", "resources: [map.yaml]\n")
        .file("base/map.yaml", config_map(ns, "base", "base"))
        .file("README.md", "About the overlays.\n");
    (0..APPS).fold(base, |files, app| {
        let word = changed.filter(|(which, _)| *which == app).map_or("first", |(_, word)| word);
        let folder = format!("overlays/app-{app}");
        let kustomization = format!("resources: [../../base, own.yaml]\nnameSuffix: '-{app}'\n");
        files
            .file(&format!("{folder}/kustomization.yaml"), kustomization)
            .file(&format!("{folder}/own.yaml"), config_map(ns, "own", word))
            // Without a kustomization of its own.
            .file(&format!("plain/app-{app}/map.yaml"), config_map(ns, &format!("plain-{app}"), word))
    })
}

struct Scene {
    fleet: Fleet,
    ns: String,
    repository: Repository,
    names: BTreeSet<String>,
}

impl Scene {
    /// How often the hub has built and how often it has not since its log had so many bytes.
    fn counted(&self, since: usize) -> (usize, usize) {
        let logs = self.fleet.hub.logs();
        let count = |what: &str| logs[since..].matches(what).count();
        (count(BUILT), count(KEPT))
    }

    /// Commits, waits until every Kustomization has applied that, and gives how many were built, and how many were not.
    async fn commit(&self, files: &Commit) -> Result<(usize, usize)> {
        let since = self.fleet.hub.logs().len();
        let head = self.repository.commit("main", "next", files)?;
        self.fleet.fetch("mono").await?;
        for name in &self.names {
            self.fleet.applied(name, &head).await?;
            self.history_names(name, &head).await?;
        }
        Ok(self.counted(since))
    }

    /// Whether a Kustomization's history begins with this commit.
    async fn history_names(&self, name: &str, head: &str) -> Result<()> {
        let object = self.fleet.get(&format!("kustomization/{name}")).await?;
        let newest: &Value = &object["status"]["history"][0];
        let revision = newest["metadata"]["revision"].as_str().context("a history")?;
        ensure!(revision.ends_with(head), "{name}: {newest}");
        Ok(())
    }
}

#[tokio::test]
async fn what_a_commit_did_not_change_is_not_built_again() -> Result<()> {
    let setup = HubSetup::new("monorepo").await?.env("RUST_LOG", "info,roadstead_hub_core=debug");
    let fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("monorepo").await?;
    let ns = space.name().to_owned();
    let repository = fleet.repository("mono", &files(&ns, None)).await?;
    let mut names = BTreeSet::new();
    for app in 0..APPS {
        for (name, path) in [("app", "overlays"), ("plain", "plain")] {
            let name = format!("{name}-{app}");
            fleet.apply(&kustomization(&name, "mono", &format!("./{path}/app-{app}"), &[])).await?;
            names.insert(name);
        }
    }
    let mut scene = Scene { fleet, ns, repository, names };
    for name in &scene.names {
        scene.fleet.ready(&format!("kustomization/{name}")).await?;
    }
    let all = scene.names.len();
    ensure!(scene.counted(0) == (all, 0), "at first: {:?}", scene.counted(0));

    // A file that no build read.
    let (built, kept) = scene.commit(&files(&scene.ns, None).file("docs/more.md", "more")).await?;
    ensure!((built, kept) == (0, all), "{built} were built and {kept} not");
    // One overlay's, and one plain folder's.
    let changed = files(&scene.ns, Some((3, "second")));
    let (built, kept) = scene.commit(&changed).await?;
    ensure!((built, kept) == (2, all - 2), "{built} were built and {kept} not");
    scene.fleet.cluster.has_word(&scene.ns, "own-3", Some("second")).await?;
    scene.fleet.cluster.has_word(&scene.ns, "plain-3", Some("second")).await?;
    scene.fleet.cluster.has_word(&scene.ns, "own-4", Some("first")).await?;
    // The base of all overlays.
    let based =
        files(&scene.ns, Some((3, "second"))).file("base/map.yaml", config_map(&scene.ns, "base", "new"));
    let (built, kept) = scene.commit(&based).await?;
    ensure!((built, kept) == (APPS, APPS), "{built} were built and {kept} not");
    scene.fleet.cluster.has_word(&scene.ns, "base-7", Some("new")).await?;
    // A new file in a folder without a kustomization is part of what it builds; elsewhere it is not.
    let more = based
        .file("plain/app-5/more.yaml", config_map(&scene.ns, "more", "there"))
        .file("overlays/app-6/more.yaml", config_map(&scene.ns, "unused", "there"));
    let (built, kept) = scene.commit(&more).await?;
    ensure!((built, kept) == (1, all - 1), "{built} were built and {kept} not");
    scene.fleet.cluster.has_word(&scene.ns, "more", Some("there")).await?;

    // A hub that was started again goes by the same.
    scene.fleet.hub.kill9().await?;
    scene.fleet.hub = HubProcess::start(&scene.fleet.setup).await?;
    let (built, kept) =
        scene.commit(&more.file("plain/app-5/more.yaml", config_map(&scene.ns, "more", "here"))).await?;
    ensure!((built, kept) == (1, all - 1), "{built} were built and {kept} not");
    Ok(())
}
