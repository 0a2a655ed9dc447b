//! GitRepositories that include others: they wait for them, hold what they hold, and change with them.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, git_repository, kustomization};
use serde_json::Value;

/// The condition IncludeUnavailable, null where there is none.
async fn unavailable(fleet: &Fleet, name: &str) -> Result<Value> {
    let source = fleet.get(&format!("gitrepository/{name}")).await?;
    let conditions = source["status"]["conditions"].as_array().context("no conditions")?;
    Ok(conditions.iter().find(|one| one["type"] == "IncludeUnavailable").cloned().unwrap_or_default())
}

async fn waits(fleet: &Fleet, name: &str, reason: &str, parts: &[&str]) -> Result<()> {
    let message = fleet.fails(&format!("gitrepository/{name}"), reason, parts).await?;
    let condition = unavailable(fleet, name).await?;
    ensure!(condition["status"] == "True" && condition["reason"] == reason, "{condition}");
    ensure!(condition["message"] == message, "{condition}");
    Ok(())
}

#[tokio::test]
async fn what_is_included_is_waited_for_applied_and_followed() -> Result<()> {
    let fleet = Fleet::start("includes").await?;
    let space = fleet.cluster.namespace("includes").await?;
    let app = fleet.git.add_repository("app.git")?;
    let map = |name: &str, word: &str| config_map(space.name(), name, word);
    let first = app.commit("main", "App", &Commit::new().file("app.yaml", map("app", "one")))?;
    let spec = "secretRef: {name: git}\n  include: [{repository: {name: shared}, fromPath: base, toPath: ../from/shared}]";
    let url = fleet.git.url("app.git");
    fleet.apply(&git_repository("app", &url, spec)).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    waits(&fleet, "app", "NotFound", &["could not get resource for include 'shared'"]).await?;
    // Suspended from its beginning, it has no artifact.
    let shared = fleet.git.add_repository("shared.git")?;
    let base = |word: &str| {
        Commit::new().file("base/lib.yaml", map("lib", word)).file("other.yaml", map("other", word))
    };
    shared.commit("main", "Shared", &base("one"))?;
    let included = |more: &str| {
        git_repository("shared", &fleet.git.url("shared.git"), &format!("secretRef: {{name: git}}\n  {more}"))
    };
    fleet.apply(&included("suspend: true")).await?;
    waits(&fleet, "app", "NoArtifact", &["no artifact available for include 'shared'"]).await?;
    fleet.cluster.has_word(space.name(), "app", None).await?;

    // Once it has one, nobody needs to ask: both are looked at once an hour.
    fleet.apply(&included("suspend: false")).await?;
    fleet.ready("gitrepository/app").await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "app", Some("one")).await?;
    fleet.cluster.has_word(space.name(), "lib", Some("one")).await?;
    fleet.cluster.has_word(space.name(), "other", None).await?;
    ensure!(unavailable(&fleet, "app").await?.is_null());
    let holds_it = async || -> Result<()> {
        let (app, shared) = (fleet.get("gitrepository/app").await?, fleet.get("gitrepository/shared").await?);
        let (told, artifact) = (&app["status"]["includedArtifacts"], &shared["status"]["artifact"]);
        ensure!(told.as_array().is_some_and(|all| all.len() == 1), "{told:#}");
        ensure!(
            told[0]["digest"] == artifact["digest"] && told[0]["revision"] == artifact["revision"],
            "{told:#}"
        );
        ensure!(app["status"]["observedInclude"] == app["spec"]["include"], "{app:#}");
        Ok(())
    };
    holds_it().await?;

    // The same revision with another digest is applied.
    let before = fleet.get("gitrepository/app").await?["status"]["artifact"].clone();
    shared.commit("main", "Newer", &base("two"))?;
    fleet.fetch("shared").await?;
    fleet.cluster.has_word(space.name(), "lib", Some("two")).await?;
    let after = fleet.get("gitrepository/app").await?["status"]["artifact"].clone();
    ensure!(
        before["revision"] == after["revision"] && before["digest"] != after["digest"],
        "{before} {after}"
    );
    holds_it().await?;

    // What is suspended or gone is used as it was; what is gone is said to be.
    fleet.apply(&included("suspend: true")).await?;
    app.commit("main", "Two", &Commit::new().file("app.yaml", map("app", "two")))?;
    fleet.fetch("app").await?;
    fleet.cluster.has_word(space.name(), "app", Some("two")).await?;
    fleet.run(&["delete", "gitrepository", "shared"]).await?;
    waits(&fleet, "app", "NotFound", &["shared"]).await?;
    fleet.cluster.has_word(space.name(), "lib", Some("two")).await?;
    fleet.apply(&included("suspend: false")).await?;
    fleet.ready("gitrepository/app").await?;

    fleet.apply(&git_repository("app", &url, &spec.replace("base", "none"))).await?;
    waits(&fleet, "app", "CopyFailure", &["include 'shared'", "has no `none`"]).await?;
    fleet.apply(&git_repository("app", &url, &spec.replace("from/shared", ".git/hooks"))).await?;
    waits(&fleet, "app", "IllegalPath", &["include 'shared'", "toPath"]).await?;
    // Without it, nothing of it stays.
    fleet.apply(&git_repository("app", &url, "secretRef: {name: git}\n  include: []")).await?;
    fleet.ready("gitrepository/app").await?;
    fleet.cluster.has_word(space.name(), "lib", None).await?;
    let status = fleet.get("gitrepository/app").await?["status"].clone();
    ensure!(status["includedArtifacts"].is_null() && status["observedInclude"].is_null(), "{status:#}");
    Ok(())
}

#[tokio::test]
async fn what_includes_itself_is_refused() -> Result<()> {
    let fleet = Fleet::start("include-cycle").await?;
    for name in ["a", "b", "c"] {
        fleet.repository(name, &Commit::new().file(name, name)).await?;
        fleet.ready(&format!("gitrepository/{name}")).await?;
    }
    let including = |name: &str, other: &str| {
        let more = format!("secretRef: {{name: git}}\n  include: [{{repository: {{name: {other}}}}}]");
        git_repository(name, &fleet.git.url(&format!("{name}.git")), &more)
    };
    fleet.apply(&including("a", "a")).await?;
    waits(&fleet, "a", "IncludeCycle", &["a -> a"]).await?;
    fleet.apply(&including("a", "b")).await?;
    fleet.ready("gitrepository/a").await?;
    fleet.apply(&including("b", "c")).await?;
    fleet.ready("gitrepository/b").await?;
    fleet.apply(&including("c", "a")).await?;
    waits(&fleet, "c", "IncludeCycle", &["c -> a -> b -> c"]).await?;
    // Once nothing leads back any more it goes on.
    fleet.repository("d", &Commit::new().file("d", "d")).await?;
    fleet.apply(&including("c", "d")).await?;
    eventually("all are Ready", PATIENCE, || async {
        for name in ["a", "b", "c"] {
            let source = fleet.get(&format!("gitrepository/{name}")).await?;
            let held = source["status"]["includedArtifacts"].as_array().map_or(0, Vec::len);
            ensure!(held == 1 && unavailable(&fleet, name).await?.is_null(), "{source:#}");
        }
        Ok(())
    })
    .await
}
