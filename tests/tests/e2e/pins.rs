//! `spec.pin`: a Kustomization that stays at a revision while its source moves on.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};

async fn pin(fleet: &Fleet, name: &str, revision: &str) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"pin\":{{\"revision\":\"{revision}\"}}}}}}");
    fleet.run(&["patch", &format!("kustomization/{name}"), "--type=merge", "-p", &patch]).await.map(drop)
}

#[tokio::test]
async fn a_pinned_kustomization_stays_while_its_source_moves_on() -> Result<()> {
    let fleet = Fleet::start("pins").await?;
    let space = fleet.cluster.namespace("pins").await?;
    let ns = space.name();
    let files = |word: &str| {
        let map = |name: &str| config_map(ns, name, word);
        Commit::new().file("app/map.yaml", map("app")).file("rest/map.yaml", map("rest"))
    };
    let repository = fleet.repository("app", &files("one")).await?;
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    let app = kustomization("app", "app", "./app", &["retryInterval: 5s"]);
    fleet
        .apply(&(app.clone() + &kustomization("rest", "app", "./rest", &["dependsOn: [{name: app}]"])))
        .await?;
    fleet.applied("rest", &first).await?;
    let second = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("rest", &second).await?;

    // Back to what was there.
    pin(&fleet, "app", &format!("main@sha1:{first}")).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(ns, "app", Some("one")).await?;
    // The others go on, also one that depends on it.
    let third = repository.commit("main", "Third", &files("three"))?;
    let fourth = repository.commit("main", "Fourth", &files("four"))?;
    fleet.fetch("app").await?;
    fleet.applied("rest", &fourth).await?;
    fleet.cluster.has_word(ns, "rest", Some("four")).await?;
    fleet.cluster.has_word(ns, "app", Some("one")).await?;

    // To a revision that the hub never had, by the commit alone.
    pin(&fleet, "app", &format!("sha1:{third}")).await?;
    fleet.applied("app", &third).await?;
    fleet.cluster.has_word(ns, "app", Some("three")).await?;
    let source = fleet.get("gitrepository/app").await?;
    let revision = source["status"]["artifact"]["revision"].as_str().context("the source's revision")?;
    ensure!(revision.ends_with(&fourth), "the source itself is at {revision}");

    // To one that left the store.
    let mut database = fleet.setup.database().connect().await?;
    let dropped = sqlx::query(
        "WITH builds AS (DELETE FROM build_cache)
         DELETE FROM blob WHERE digest IN (SELECT digest FROM source_artifact WHERE revision = $1)",
    );
    let dropped = dropped.bind(&second).execute(&mut database).await?.rows_affected();
    ensure!(dropped == 1, "{dropped} artifacts were dropped");
    pin(&fleet, "app", &format!("main@sha1:{second}")).await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(ns, "app", Some("two")).await?;

    // What is not there is named, and what was applied stays.
    let nowhere = "0123456789abcdef0123456789abcdef01234567";
    pin(&fleet, "app", &format!("main@sha1:{nowhere}")).await?;
    let parts =
        [nowhere, "of GitRepository 'apps/app', which spec.pin names, cannot be had: ", "has no commit"];
    fleet.fails("kustomization/app", "ArtifactFailed", &parts).await?;
    fleet.cluster.has_word(ns, "app", Some("two")).await?;
    let refused = fleet.run(&[
        "patch",
        "kustomization/app",
        "--type=merge",
        "-p",
        "{\"spec\":{\"pin\":{\"revision\":\"main@x\"}}}",
    ]);
    let refused = format!("{:#}", refused.await.err().context("a revision that is none was taken")?);
    ensure!(refused.contains("spec.pin.revision: Invalid value"), "{refused}");

    // And it follows its source again.
    fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", "{\"spec\":{\"pin\":null}}"]).await?;
    fleet.applied("app", &fourth).await?;
    eventually("the object is as in the newest commit", PATIENCE, || async {
        fleet.cluster.has_word(ns, "app", Some("four")).await
    })
    .await
}
