//! Two hubs on one database are one hub, and a hub that is ended and started again is the same one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_tests::gitserver::{Commit, GitServer, Options, install_crypto};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, Proxy, TestCluster, config_map, eventually,
    git_repository, kustomization, unique,
};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

/// Two hubs on one database, and an agent whose way leads to the first.
struct Pair {
    first: HubProcess,
    second: HubProcess,
    link: Proxy,
    agent: AgentProcess,
    git: GitServer,
    cluster: TestCluster,
    setup: HubSetup,
}

impl Pair {
    async fn new() -> Result<Self> {
        install_crypto();
        let setup = HubSetup::new("pair").await?;
        let first = HubProcess::start(&setup).await?;
        let second = HubProcess::start_another(&setup).await?;
        let cluster = TestCluster::second()?;
        let link = Proxy::start(first.link_port()).await?;
        let agent = AgentProcess::join_through(&first, "edge", &cluster, &link).await?;
        let git = GitServer::start(Options { tls: false, ..Options::default() }).await?;
        first.kubectl().run(&["create", "namespace", "apps"]).await?;
        let pair = Self { first, second, link, agent, git, cluster, setup };
        eventually("the agent is connected, as the second hub sees it", PATIENCE, || async {
            let seen = pair.second.kubectl().condition(&["cluster", "edge"], "Ready").await?;
            ensure!(seen.0 == "True", "{seen:?}");
            Ok(())
        })
        .await?;
        Ok(pair)
    }

    /// Waits until a Kustomization is Ready and its request was answered, as `hub` sees it.
    async fn is_ready(hub: &HubProcess, name: &str, request: Option<&str>) -> Result<()> {
        eventually(&format!("{name} is Ready"), PATIENCE, || async {
            let object = hub.kubectl().get(&["kustomization", name, "-n", "apps"]).await?;
            let ready = hub.kubectl().condition(&["kustomization", name, "-n", "apps"], "Ready").await?;
            ensure!(ready.0 == "True", "{ready:?}");
            let handled = object["status"]["lastHandledReconcileAt"].as_str();
            ensure!(request.is_none_or(|request| handled == Some(request)), "handled: {handled:?}");
            Ok(())
        })
        .await
    }

    async fn request(hub: &HubProcess, name: &str) -> Result<String> {
        let at = unique("request");
        let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
        hub.kubectl()
            .run(&["annotate", "--overwrite", "kustomization", name, "-n", "apps", &annotation])
            .await?;
        Ok(at)
    }

    /// As the agent tells it, no two dispatches of one Kustomization were carried out at the same time. Gives how many
    /// there were.
    fn nothing_ran_twice(&self) -> Result<usize> {
        let logs = self.agent.logs();
        let mut ended: BTreeMap<&str, jiff::Timestamp> = BTreeMap::new();
        let mut count = 0;
        for line in logs.lines().filter(|line| line.contains("dispatch finished")) {
            let end: jiff::Timestamp = line.split_whitespace().next().context("a time")?.parse()?;
            let field = |name: &str| line.split_once(name)?.1.split('"').next();
            let app = field("applier=\"").with_context(|| line.to_owned())?;
            let duration: jiff::SignedDuration =
                field("duration=\"").with_context(|| line.to_owned())?.parse()?;
            if let Some(before) = ended.insert(app, end) {
                ensure!(end - duration >= before, "{app} was carried out twice at the same time:\n{logs}");
            }
            count += 1;
        }
        Ok(count)
    }
}

#[tokio::test]
async fn two_hubs_on_one_database_are_one() -> Result<()> {
    const APPS: [&str; 4] = ["app-0", "app-1", "app-2", "app-3"];
    let mut pair = Pair::new().await?;
    let namespace = pair.cluster.namespace("pair").await?;
    let mut commit = Commit::new();
    for app in APPS.iter().chain(&["alone", "after"]) {
        commit = commit.file(&format!("{app}/map.yaml"), config_map(namespace.name(), app, "ahoy"));
    }
    pair.git.add_repository("app.git")?.commit("main", "First", &commit)?;

    // What is made through the second hub reaches the agent, which is connected to the first.
    let second = &pair.second;
    let manifest = git_repository("app", &pair.git.url("app.git"), "timeout: 20s");
    second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    for app in APPS {
        let manifest = kustomization(app, "app", &format!("./{app}"), &[]);
        second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    }
    for app in APPS {
        Pair::is_ready(second, app, None).await?;
    }
    let began = Instant::now();
    let request = Pair::request(second, APPS[0]).await?;
    Pair::is_ready(second, APPS[0], Some(&request)).await?;
    println!(
        "measured: asked through one hub, answered through the other's agent after {:?}",
        began.elapsed()
    );
    let mut connection = pair.setup.database().connect().await?;
    let query = "SELECT extract(epoch FROM finished_at - started_at)::float8 FROM reconciliation ORDER BY 1";
    let took: Vec<Option<f64>> = sqlx::query_scalar(query).fetch_all(&mut connection).await?;
    println!("measured: seconds from an attempt's beginning to its end: {took:?}");

    // A watch on the second sees what is changed through the first.
    let mut watching = second.kubectl().spawn(&["get", "namespaces", "--watch", "-o", "name"])?;
    let mut lines = BufReader::new(watching.stdout.take().context("a pipe")?).lines();
    while let Some(line) = lines.next_line().await? {
        if line == "namespace/apps" {
            break;
        }
    }
    let began = Instant::now();
    pair.first.kubectl().run(&["create", "namespace", "from-first"]).await?;
    let seen = async {
        while let Some(line) = lines.next_line().await? {
            if line == "namespace/from-first" {
                return Ok(());
            }
        }
        bail!("the watch has ended")
    };
    tokio::time::timeout(PATIENCE, seen).await.context("the watch does not tell")??;
    println!("measured: created through one hub, seen in a watch on the other after {:?}", began.elapsed());

    // Asked through both at once, nothing is done twice at once.
    for _ in 0..5 {
        for app in APPS {
            tokio::try_join!(Pair::request(&pair.first, app), Pair::request(second, app))?;
        }
    }
    for app in APPS {
        let request = Pair::request(second, app).await?;
        Pair::is_ready(second, app, Some(&request)).await?;
    }
    let count = pair.nothing_ran_twice()?;
    ensure!(count > APPS.len(), "the agent tells of {count} dispatches");
    println!("measured: {count} dispatches, none of them beside another of the same Kustomization");

    // The first is gone at a blow; the agent's way leads to the second now.
    pair.link.lead_to(pair.second.link_port());
    let began = Instant::now();
    pair.first.kill9().await?;
    let manifest = kustomization("alone", "app", "./alone", &[]);
    pair.second.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    Pair::is_ready(&pair.second, "alone", None).await?;
    println!(
        "measured: made at the hub that is left, Ready {:?} after the other was killed",
        began.elapsed()
    );
    for app in APPS {
        let request = Pair::request(&pair.second, app).await?;
        Pair::is_ready(&pair.second, app, Some(&request)).await?;
    }

    // It comes back, and is one of two again.
    pair.first = HubProcess::start(&pair.setup).await?;
    let manifest = kustomization("after", "app", "./after", &[]);
    pair.first.kubectl().run_with(&["apply", "-n", "apps", "-f", "-"], &manifest).await?;
    Pair::is_ready(&pair.first, "after", None).await?;
    pair.cluster.has_word(namespace.name(), "after", Some("ahoy")).await?;
    pair.nothing_ran_twice()?;
    Ok(())
}

#[tokio::test]
async fn a_hub_that_is_ended_and_started_again_turns_nothing_not_ready() -> Result<()> {
    const APPS: [&str; 3] = ["app-0", "app-1", "app-2"];
    let mut fleet = Fleet::start("drain").await?;
    let namespace = fleet.cluster.namespace("drain").await?;
    let mut commit = Commit::new();
    for app in APPS {
        let child = format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: {app}}}\nspec: {{type: slack, \
             channel: alerts}}\n"
        );
        commit = commit.file(&format!("{app}/map.yaml"), config_map(namespace.name(), app, "ahoy"));
        commit = commit.file(&format!("{app}/child.yaml"), child);
    }
    fleet.repository("app", &commit).await?;
    for app in APPS {
        // Due again and again, also in the moment between the hub's start and the agent's return: each has something on the hub, which
        // no agent watches.
        fleet.apply(&kustomization(app, "app", &format!("./{app}"), &["interval: 1s"])).await?;
    }
    for app in APPS {
        fleet.ready(&format!("kustomization/{app}")).await?;
    }
    let mut database = fleet.setup.database().connect().await?;
    let newest = "SELECT max(resource_version) FROM resource_event";
    let before: i64 = sqlx::query_scalar(newest).fetch_one(&mut database).await?;

    for _ in 0..2 {
        let began = Instant::now();
        let status = fleet.hub.sigterm(PATIENCE).await?;
        println!("measured: after SIGTERM the hub had ended within {:?}", began.elapsed());
        ensure!(status.success(), "after SIGTERM it ended with {status}:\n{}", fleet.hub.logs());
        let began = Instant::now();
        fleet.hub = HubProcess::start(&fleet.setup).await?;
        fleet.ready("cluster/edge").await?;
        println!("measured: the agent was back {:?} after the hub's start began", began.elapsed());
        let attempts =
            "SELECT min(newest) FROM (SELECT max(attempt) AS newest FROM reconciliation GROUP BY applier) n";
        let then: i64 = sqlx::query_scalar(attempts).fetch_one(&mut database).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now: i64 = sqlx::query_scalar(attempts).fetch_one(&mut database).await?;
            if now > then + 1 {
                break;
            }
            ensure!(Instant::now() < deadline, "not each of them is reconciled again");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let query = "SELECT name || ' ' || (c ->> 'status') || ' ' || (c ->> 'reason') || ': ' || (c ->> 'message') \
                 FROM resource_event, jsonb_array_elements(object #> '{status,conditions}') AS c \
                 WHERE resource_version > $1 AND kind = 'Kustomization' AND c ->> 'type' = 'Ready' \
                 AND c ->> 'status' <> 'True' ORDER BY resource_version";
    let blinks: Vec<String> = sqlx::query_scalar(query).bind(before).fetch_all(&mut database).await?;
    ensure!(blinks.is_empty(), "not Ready meanwhile:\n{}", blinks.join("\n"));
    Ok(())
}

/// Reads what a watch tells until it is this.
async fn told(lines: &mut Lines<BufReader<ChildStdout>>, wanted: &str) -> Result<()> {
    let read = async {
        while let Some(line) = lines.next_line().await? {
            if line == wanted {
                return Ok(());
            }
        }
        bail!("the watch ended before it told of {wanted}")
    };
    tokio::time::timeout(PATIENCE, read).await?
}

/// A replica that is ended and started again while the others are of the next version already: that one has made another migration, and
/// stores objects of another kind.
#[tokio::test]
async fn a_hub_starts_again_on_the_database_of_the_next_version() -> Result<()> {
    let setup = HubSetup::new("behind").await?;
    let mut first = HubProcess::start(&setup).await?;
    first.sigterm(PATIENCE).await?;
    drop(first);
    let mut database = setup.database().connect().await?;
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (5001, 'of the next version', true, 'other', 1)",
    )
    .execute(&mut database)
    .await?;
    let hub = HubProcess::start(&setup).await?;
    hub.kubectl().run(&["create", "configmap", "before"]).await?;
    let mut watching = hub.kubectl().spawn(&["get", "configmaps", "--watch", "-o", "name"])?;
    let mut lines = BufReader::new(watching.stdout.take().context("a pipe")?).lines();
    told(&mut lines, "configmap/before").await?;
    for name in ["one", "two", "three"] {
        sqlx::query(
            "WITH counter AS (UPDATE hub_state SET last_version = last_version + 1 RETURNING last_version AS last),
                  made AS (INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
                           SELECT gen_random_uuid(), 'Ferry', 'future.roadstead.dev', 'default', $1, 1, last, now(), '{}' FROM counter
                           RETURNING *)
             INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation, created_at, object)
             SELECT resource_version, 'ADDED', uid, api_group, kind, namespace, name, generation, created_at, object FROM made",
        )
        .bind(name)
        .execute(&mut database)
        .await?;
    }
    hub.kubectl().run(&["create", "configmap", "after"]).await?;
    told(&mut lines, "configmap/after").await?;
    let logs = hub.logs();
    for said in
        ["the database's schema is of a newer version", "objects of a kind that this version does not know"]
    {
        let count = logs.lines().filter(|line| line.contains(said)).count();
        ensure!(count == 1, "'{said}' {count} times:\n{logs}");
    }
    ensure!(!logs.contains("ERROR"), "{logs}");
    Ok(())
}
