//! A database that was restored, or lost: nothing older is applied over something newer, and nothing is deleted.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use roadstead_devpostgres::{PrivatePostgres, create_state_parent};
use roadstead_tests::gitserver::{Commit, Fault};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, config_map, copy_folder, git_repository, kill9,
    kustomization, start_postgres,
};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

/// A ConfigMap's metadata on the cluster.
async fn metadata(fleet: &Fleet, ns: &str, name: &str) -> Result<Value> {
    let object = fleet.cluster.kubectl().get(&[&format!("configmap/{name}"), "-n", ns]).await?;
    Ok(object["metadata"].clone())
}

/// What changes with each write.
async fn version(fleet: &Fleet, ns: &str, name: &str) -> Result<String> {
    let metadata = metadata(fleet, ns, name).await?;
    metadata["resourceVersion"].as_str().map(str::to_owned).context("a resource version")
}

#[tokio::test]
async fn a_backup_is_not_obeyed_blindly() -> Result<()> {
    let mut fleet = Fleet::start("restore").await?;
    let space = fleet.cluster.namespace("restore").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| {
        Commit::new()
            .file("app/map.yaml", config_map(&ns, "map", word))
            .file("a/own.yaml", config_map(&ns, "own", "a"))
            .file("b/own.yaml", config_map(&ns, "own", "b"))
            .file("later/later.yaml", config_map(&ns, "later", word))
    };
    let repository = fleet.repository("app", &files("one")).await?;
    fleet
        .apply(&(kustomization("app", "app", "./app", &[]) + &kustomization("own", "app", "./a", &[])))
        .await?;
    fleet.ready("kustomization/app").await?;
    fleet.ready("kustomization/own").await?;
    fleet.hub.kill9().await?;
    let backup = fleet.setup.database().back_up().await?;
    fleet.hub = HubProcess::start(&fleet.setup).await?;

    // What comes after the backup: a commit, another spec, another Kustomization.
    let fresh = files("two").file("app/fresh.yaml", config_map(&ns, "fresh", "new"));
    let head = repository.commit("main", "Second", &fresh)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    fleet.run(&["patch", "kustomization/own", "--type=merge", "-p", r#"{"spec":{"path":"./b"}}"#]).await?;
    fleet.cluster.has_word(&ns, "own", Some("b")).await?;
    fleet.apply(&kustomization("later", "app", "./later", &[])).await?;
    fleet.applied("own", &head).await?;
    fleet.applied("later", &head).await?;
    let mut before = Vec::new();
    for name in ["map", "own", "later"] {
        before.push((name, version(&fleet, &ns, name).await?));
    }

    // The backup is put back, while the Git server is away.
    fleet.git.fault(Fault::Status(500));
    fleet.hub.kill9().await?;
    fleet.setup.database().restore(backup).await?;
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    fleet.hub.says("the database is another one than before", PATIENCE).await?;
    fleet.ready("cluster/edge").await?;
    fleet.fails("kustomization/app", "Progressing", &["has not been fetched since"]).await?;
    // The agent goes on meanwhile.
    let patch = r#"{"data":{"word":"by hand"}}"#;
    fleet.cluster.kubectl().run(&["patch", "configmap/map", "-n", &ns, "--type=merge", "-p", patch]).await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await?;
    before[0].1 = version(&fleet, &ns, "map").await?;

    // Git is back: what is new is found there, and nothing older was written in between. What has left it by now goes, though the backup
    // does not know of it.
    let head = repository.commit("main", "Without", &files("two").remove("app/fresh.yaml"))?;
    fleet.git.fault(Fault::None);
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    fleet.cluster.has_word(&ns, "fresh", None).await?;
    fleet.fails("kustomization/own", "DatabaseRestored", &["was given generation 2 of this object"]).await?;
    for (name, before) in &before {
        let now = version(&fleet, &ns, name).await?;
        ensure!(now == *before, "{name} was written: {now} after {before}");
    }
    // What nobody knows any more rests, and stays.
    fleet.cluster.kubectl().run(&["delete", "configmap/later", "-n", &ns]).await?;

    // Somebody says that the spec is what is wanted.
    fleet.request("kustomization/own").await?;
    fleet.cluster.has_word(&ns, "own", Some("a")).await?;
    fleet.applied("own", &head).await?;
    fleet.cluster.has_word(&ns, "later", None).await?;
    // From here on all is as ever.
    let head = repository.commit("main", "Third", &files("three"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    fleet.cluster.has_word(&ns, "map", Some("three")).await
}

#[tokio::test]
async fn a_hub_whose_database_is_lost_is_made_again_from_git() -> Result<()> {
    let mut fleet = Fleet::start("lost").await?;
    let space = fleet.cluster.namespace("lost").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| Commit::new().file("app/map.yaml", config_map(&ns, "map", word));
    let more = files("one").file("app/gone.yaml", config_map(&ns, "gone", "git"));
    let repository = fleet.repository("app", &more).await?;
    let manifest = kustomization("app", "app", "./app", &[]);
    fleet.apply(&manifest).await?;
    fleet.ready("kustomization/app").await?;
    let (map, gone) =
        (fleet.cluster.uid(&ns, "configmap/map").await?, fleet.cluster.uid(&ns, "configmap/gone").await?);

    fleet.hub.kill9().await?;
    fleet.setup.database().lose().await?;
    let head = repository.commit("main", "Second", &files("two").remove("app/gone.yaml"))?;
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    let join = fleet.setup.folder().join("again.yaml");
    std::fs::write(&join, AgentProcess::invited(&fleet.hub, "edge").await?)?;
    fleet.agent.kill9().await?;
    fleet.agent.restart_with_join(join)?;
    fleet.kubectl().run(&["create", "namespace", "apps"]).await?;
    fleet.trust("git", &fleet.git, &[]).await?;
    fleet.apply(&git_repository("app", &fleet.git.url("app.git"), "secretRef: {name: git}")).await?;
    fleet.apply(&manifest).await?;
    fleet.ready("cluster/edge").await?;
    fleet.applied("app", &head).await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await?;
    ensure!(fleet.cluster.uid(&ns, "configmap/map").await? == map, "it was created again");
    ensure!(fleet.cluster.uid(&ns, "configmap/gone").await? == gone, "what this hub did not apply stays");
    // Nobody corrects what the old hub had applied.
    fleet.cluster.kubectl().run(&["delete", "configmap/gone", "-n", &ns]).await?;
    fleet.run(&["delete", "kustomization/app", "--timeout=60s"]).await?;
    fleet.cluster.has_word(&ns, "map", None).await?;
    fleet.cluster.has_word(&ns, "gone", None).await
}

/// Makes of a server's data what a standby has of them that hears nothing from now on: started, it is promoted.
async fn standby(primary: &PrivatePostgres, from: &Path, to: &Path) -> Result<()> {
    let mut connection = PgConnection::connect(primary.url()).await?;
    sqlx::query("SELECT pg_backup_start('standby', true)").execute(&mut connection).await?;
    create_state_parent(to)?;
    copy_folder(&from.join("data"), to)?;
    let label: String =
        sqlx::query_scalar("SELECT labelfile FROM pg_backup_stop(false)").fetch_one(&mut connection).await?;
    let data = to.join("data");
    std::fs::remove_file(data.join("postmaster.pid"))?;
    std::fs::remove_dir_all(data.join("pg_wal"))?;
    copy_folder(&from.join("data/pg_wal"), &data)?;
    std::fs::write(data.join("backup_label"), label)?;
    std::fs::write(data.join("recovery.signal"), "")?;
    std::fs::write(data.join("postgresql.auto.conf"), "restore_command = 'false'\n")?;
    // All of it belongs to the server's user.
    let owned =
        Command::new("chown").arg("-R").arg("--reference").arg(from.join("data")).arg(&data).status()?;
    ensure!(owned.success(), "chown");
    Ok(())
}

/// Has `link` lead to where a server listens; gives the URL by that way.
fn lead(link: &Path, server: &PrivatePostgres) -> Result<String> {
    let (base, host) = server.url().split_once("host=").context("a URL with a socket")?;
    let (socket, rest) =
        host.split_once('&').map_or((host, String::new()), |(host, rest)| (host, format!("&{rest}")));
    let socket = socket.replace("%2F", "/");
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(link)?;
    }
    std::os::unix::fs::symlink(&socket, link)?;
    Ok(format!("{base}host={}{rest}", link.display().to_string().replace('/', "%2F")))
}

#[tokio::test]
async fn a_standby_that_lacks_the_newest_is_promoted_under_a_running_hub() -> Result<()> {
    let folder = roadstead_tests::folder()?;
    let (first, second, link) =
        (folder.path().join("first"), folder.path().join("second"), folder.path().join("db"));
    create_state_parent(folder.path())?;
    let primary = start_postgres(&first).await?;
    let setup = HubSetup::new("promoted").await?.at(lead(&link, &primary)?);
    let mut fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("promoted").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| Commit::new().file("app/map.yaml", config_map(&ns, "map", word));
    let repository = fleet.repository("app", &files("one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    standby(&primary, &first, &second).await?;
    let head = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    let before = version(&fleet, &ns, "map").await?;

    fleet.git.fault(Fault::Status(500));
    kill9(primary.id())?;
    let promoted = start_postgres(&second).await?;
    lead(&link, &promoted)?;
    fleet.hub.says("the database is another one than before", PATIENCE).await?;
    fleet.fails("kustomization/app", "Progressing", &["has not been fetched since"]).await?;
    fleet.ready("cluster/edge").await?;
    fleet.git.fault(Fault::None);
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    ensure!(version(&fleet, &ns, "map").await? == before, "nothing older was written, and nothing twice");
    let head = repository.commit("main", "Third", &files("three"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    fleet.cluster.has_word(&ns, "map", Some("three")).await?;
    fleet.hub.kill9().await?;
    tokio::task::spawn_blocking(move || promoted.stop()).await??;
    Ok(())
}
