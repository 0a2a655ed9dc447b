//! What one tenant asks for, and clusters that hang, do not hold up the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{AgentProcess, EnrolledAgent, Fleet, config_map, kustomization, unique};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Clusters whose agents take what they are sent, and do nothing.
const HANGING: usize = 5;
/// Kustomizations of the greedy tenant: on the cluster of the others, and on each of those that hang.
const GREEDY: usize = 40;
const ON_EACH: usize = 4;
/// Commits that are timed.
const ROUNDS: usize = 8;
/// Tasks that ask for reconciliations as fast as they are answered.
const ASKING: usize = 4;

/// How long it takes from a commit to the cluster, each time.
async fn rounds(fleet: &Fleet, repository: &Repository, ns: &str, word: &str) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let word = format!("{word}-{round}");
        let commit = Commit::new().file("honest/map.yaml", config_map(ns, "honest", &word));
        let began = Instant::now();
        repository.commit("main", "Next", &commit)?;
        fleet.fetch("honest").await?;
        fleet.cluster.has_word(ns, "honest", Some(&word)).await?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

fn greedy(name: &str, ns: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": name, "namespace": "greedy" },
        "spec": {
            "clusterRef": { "name": cluster }, "interval": "1h", "path": "./greedy", "prune": true, "nameSuffix": format!("-{name}"), "targetNamespace": ns,
            "sourceRef": { "kind": "GitRepository", "name": "greedy", "namespace": "apps" },
        },
    })
}

#[tokio::test]
async fn a_tenant_that_never_stops_asking_holds_nobody_up() -> Result<()> {
    let fleet = Fleet::start("fairness").await?;
    let space = fleet.cluster.namespace("fairness").await?;
    let ns = space.name();
    let first = Commit::new().file("honest/map.yaml", config_map(ns, "honest", "first"));
    let repository = fleet.repository("honest", &first).await?;
    fleet
        .repository("greedy", &Commit::new().file("greedy/map.yaml", config_map("x", "map", "greedy")))
        .await?;
    fleet.apply(&kustomization("honest", "honest", "./honest", &[])).await?;
    fleet.ready("kustomization/honest").await?;
    let alone = rounds(&fleet, &repository, ns, "alone").await?;

    // Clusters that hang, and a tenant who has all of it reconciled again and again.
    let client = fleet.kubectl().client().await?;
    let mut background = JoinSet::new();
    let mut objects = Vec::new();
    for number in 0..HANGING {
        let cluster = format!("hangs-{number}");
        let agent = hanging(&fleet, &cluster).await?;
        background.spawn(async move {
            loop {
                if let Ok(mut session) = agent.session().await {
                    while session.hear().await.is_ok() {}
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        objects.extend((0..ON_EACH).map(|app| greedy(&format!("{cluster}-{app}"), ns, &cluster)));
    }
    objects.extend((0..GREEDY).map(|app| greedy(&format!("here-{app}"), ns, "edge")));
    fleet.kubectl().run(&["create", "namespace", "greedy"]).await?;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    fleet.kubectl().apply(&list.to_string()).await?;
    let asked = Arc::new(AtomicUsize::new(0));
    for task in 0..ASKING {
        let (client, asked) = (client.clone(), Arc::clone(&asked));
        let names: Vec<String> = objects
            .iter()
            .skip(task)
            .step_by(ASKING)
            .filter_map(|one| one["metadata"]["name"].as_str())
            .map(str::to_owned)
            .collect();
        background.spawn(async move {
            loop {
                for name in &names {
                    // One that is refused for now is one that was asked for.
                    let _ = ask_for(&client, name).await;
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let began = Instant::now();
    let beside = rounds(&fleet, &repository, ns, "beside").await?;
    let asked = asked.load(Ordering::Relaxed);
    println!(
        "measured: commit to cluster, median and worst: alone {:?} {:?}, beside a tenant who asked {asked} times in {:?} and {HANGING} \
         clusters that hang {:?} {:?}",
        alone[ROUNDS / 2],
        alone[ROUNDS - 1],
        began.elapsed(),
        beside[ROUNDS / 2],
        beside[ROUNDS - 1]
    );
    ensure!(asked > GREEDY, "the tenant asked {asked} times only");
    // Processors are shared, and these tests' with others: what would not be fair takes a minute.
    let bound = alone[ROUNDS - 1] * 3 + Duration::from_secs(5);
    ensure!(beside[ROUNDS - 1] < bound, "alone {alone:?}, beside others {beside:?}");
    Ok(())
}

async fn hanging(fleet: &Fleet, name: &str) -> Result<EnrolledAgent> {
    let cluster = json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name } });
    fleet.kubectl().apply(&cluster.to_string()).await?;
    let join = serde_json::from_str(&AgentProcess::token(&fleet.hub, name).await?)?;
    let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build().context("a client")?;
    let server = format!("https://127.0.0.1:{}", fleet.hub.api_port());
    EnrolledAgent::join(&http, &server, &join, &uuid::Uuid::new_v4().to_string()).await
}

async fn ask_for(client: &kube::Client, name: &str) -> Result<()> {
    let at = unique("asked");
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": at } } });
    let request = Request::new("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/greedy/kustomizations");
    let request = request.patch(name, &PatchParams::default(), &Patch::Merge(&patch))?;
    client.request::<Value>(request).await.map(|_| ()).context("ask")
}
