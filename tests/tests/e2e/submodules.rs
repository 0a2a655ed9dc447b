//! GitRepositories with submodules, and at ranges of versions: from their fetch by confined workers to the cluster.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, config_map, git_repository, kustomization};

/// `.gitmodules` with one submodule.
fn module(path: &str, url: &str) -> String {
    format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n")
}

#[tokio::test]
async fn submodules_are_applied_and_what_git_would_act_on_is_not() -> Result<()> {
    let fleet = Fleet::start("submodules").await?;
    let space = fleet.cluster.namespace("submodules").await?;
    let (app, lib, deep) = (
        fleet.git.add_repository("app.git")?,
        fleet.git.add_repository("lib.git")?,
        fleet.git.add_repository("deep.git")?,
    );
    let map = |name: &str| Commit::new().file("map.yaml", config_map(space.name(), name, "one"));
    let deepest = deep.commit("main", "Deep", &map("deep"))?;
    let in_lib = map("lib").file(".gitmodules", module("in", "../deep.git")).submodule("in", &deepest);
    let pinned = lib.commit("main", "Lib", &in_lib)?;
    lib.commit("main", "Later", &map("later"))?;
    let with = |url: &str| map("app").file(".gitmodules", module("lib", url)).submodule("lib", &pinned);
    let first = app.commit("main", "App", &with("../lib.git"))?;
    let url = fleet.git.url("app.git");
    let source = |recurse: bool| {
        git_repository("app", &url, &format!("secretRef: {{name: git}}\n  recurseSubmodules: {recurse}"))
    };
    fleet.apply(&source(false)).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "app", Some("one")).await?;
    fleet.cluster.has_word(space.name(), "lib", None).await?;

    // The same commit is another artifact then.
    fleet.apply(&source(true)).await?;
    fleet.ready("gitrepository/app").await?;
    for name in ["app", "lib", "deep"] {
        fleet.cluster.has_word(space.name(), name, Some("one")).await?;
    }
    fleet.cluster.has_word(space.name(), "later", None).await?;
    let status = fleet.get("gitrepository/app").await?["status"].clone();
    ensure!(status["observedRecurseSubmodules"] == true, "{status:#}");

    // What is there stays as it was.
    app.commit("main", "Bad", &with("ext::sh -c whoami"))?;
    fleet.fetch("app").await?;
    fleet.fails("gitrepository/app", "GitOperationFailed", &["submodule `lib`", "`ext::`"]).await?;
    // Not an address that the hub may connect to.
    app.commit("main", "Elsewhere", &with("https://169.254.169.254/latest"))?;
    fleet.fetch("app").await?;
    fleet.fails("gitrepository/app", "URLInvalid", &["submodule `lib`", "169.254.169.254"]).await?;
    fleet.cluster.has_word(space.name(), "deep", Some("one")).await
}

#[tokio::test]
async fn the_newest_tag_of_a_range_is_applied() -> Result<()> {
    let fleet = Fleet::start("semver").await?;
    let space = fleet.cluster.namespace("semver").await?;
    let repository = fleet.git.add_repository("app.git")?;
    let release = |tag: &str| -> Result<String> {
        let files = Commit::new().file("map.yaml", config_map(space.name(), "map", tag));
        let commit = repository.commit("main", tag, &files)?;
        repository.annotated_tag(tag, &commit)?;
        Ok(commit)
    };
    release("v2.0.0")?;
    let first = release("v1.2.0")?;
    let at = |reference: &str| {
        let object = git_repository("app", &fleet.git.url("app.git"), "secretRef: {name: git}");
        object.replace("{branch: main}", reference)
    };
    fleet.apply(&at("{semver: \"1.x\", branch: main}")).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    fleet.applied("app", &first).await?;
    let message = fleet.ready("gitrepository/app").await?;
    ensure!(message == format!("stored artifact for revision 'v1.2.0@sha1:{first}'"), "{message}");
    let second = release("v1.10.0")?;
    release("v1.11.0-rc.1")?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(space.name(), "map", Some("v1.10.0")).await?;
    fleet.apply(&at("{semver: \">=3\"}")).await?;
    fleet.fails("gitrepository/app", "GitOperationFailed", &["no match found for semver: >=3"]).await?;
    // A tag comes before a range.
    let told = fleet.apply(&at("{semver: \">=1\", tag: v1.2.0}")).await?;
    ensure!(told.contains("configured"), "{told}");
    fleet.applied("app", &first).await
}
