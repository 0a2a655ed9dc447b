//! The hub's API beside kube-apiserver with a CustomResourceDefinition of the same schema: the same requests by the same
//! client, one server after the other, both durable, on one machine in one run.
//!
//! It wants what `cargo xtask bench` sets up: a Postgres that waits for the disk (`ROADSTEAD_TEST_DATABASE_URL`), a
//! cluster whose etcd does (`ROADSTEAD_TEST_KUBECONFIG_1`, its folder in `ROADSTEAD_BENCH_CLUSTER`), release builds
//! (`ROADSTEAD_TEST_BIN_DIR`). Then the hub alone, asked by people whose roles decide, with fleets of simulated agents, and with simulated clusters that come on
//! board; and, where it is asked for (`ROADSTEAD_BENCH_ONLY`), the dashboard in a browser. The table goes to stdout, the same as
//! JSON to `ROADSTEAD_BENCH_OUT`.

mod api;
mod figures;
mod fleet;
mod load;
mod memory;
mod pipeline;
mod requests;
mod rights;
mod secrets;
mod telemetry;
mod watchers;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::{HubProcess, HubSetup, Kubectl};
use serde_json::{Value, json};

use api::Api;
use figures::{Figure, Report};
use fleet::alerts::Outage;
use fleet::dashboard::Scene;
use fleet::fairness::Greed;
use fleet::sources::Amount;
use memory::Processes;
use rights::People;
use secrets::Files;
use telemetry::Rounds;

/// How each server is loaded. `ROADSTEAD_BENCH_QUICK` shrinks it, to try the program itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) objects: usize,
    /// Requests under way at once.
    pub(crate) clients: usize,
    /// How long each verb is measured.
    pub(crate) time: Duration,
    pub(crate) watchers: usize,
    pub(crate) latencies: usize,
    /// Simulated agents.
    pub(crate) fleets: &'static [usize],
    /// Simulated clusters that come on board at once.
    pub(crate) clusters: usize,
    /// A tenant that asks for more than there is to do, beside others.
    pub(crate) greed: Greed,
    /// A commit that fails everywhere.
    pub(crate) outage: Outage,
    /// What the dashboard has to show.
    pub(crate) scene: Scene,
    /// Repositories and artifacts.
    pub(crate) sources: Amount,
    /// Overlays of one repository.
    pub(crate) overlays: usize,
    /// Objects of a Kustomization on a real cluster.
    pub(crate) applied: usize,
    /// How many of them are changed by others at once.
    pub(crate) edits: usize,
    /// Who asks by an issuer's tokens and roles.
    pub(crate) people: People,
    /// Files that are decrypted.
    pub(crate) secrets: Files,
    /// What is reconciled with and without traces.
    pub(crate) telemetry: Rounds,
}

impl Plan {
    fn chosen() -> Self {
        if std::env::var_os("ROADSTEAD_BENCH_QUICK").is_some() {
            let time = Duration::from_secs(1);
            let fleets = &[5, 100];
            return Self {
                objects: 200,
                clients: 8,
                time,
                watchers: 50,
                latencies: 20,
                fleets,
                clusters: 10,
                greed: Greed { clusters: 20, hanging: 2, greedy: 100, rounds: 5, asked_a_second: 200 },
                outage: Outage { clusters: 100, down: Duration::from_secs(60), relayed: 1_000 },
                scene: Scene { clusters: 40, kustomizations_of_each: 2, minutes: 1 },
                sources: Amount {
                    files: 200,
                    rounds: 2,
                    at_once: 5,
                    unchanged: 10,
                    watched: Duration::from_secs(5),
                    large: 5,
                },
                overlays: 100,
                applied: 500,
                edits: 20,
                people: People { people: 40, bindings: 100, taken: 5 },
                secrets: Files { files: 20, starts: 5 },
                telemetry: Rounds { kustomizations: 10, rounds: 2, scrapes: 5 },
            };
        }
        let time = Duration::from_secs(15);
        let fleets = &[10, 100, 1000];
        let scene = Scene { clusters: 1000, kustomizations_of_each: 10, minutes: 60 };
        Self {
            objects: 10_000,
            clients: 8,
            time,
            watchers: 1000,
            latencies: 300,
            fleets,
            clusters: 50,
            greed: Greed { clusters: 100, hanging: 10, greedy: 1000, rounds: 60, asked_a_second: 1000 },
            outage: Outage { clusters: 100, down: Duration::from_secs(600), relayed: 1_000 },
            scene,
            sources: Amount {
                files: 10_000,
                rounds: 5,
                at_once: 50,
                unchanged: 1_000,
                watched: Duration::from_secs(120),
                large: 50,
            },
            overlays: 3_000,
            applied: 5_000,
            edits: 100,
            people: People { people: 1_000, bindings: 500, taken: 50 },
            secrets: Files { files: 500, starts: 100 },
            telemetry: Rounds { kustomizations: 100, rounds: 18, scrapes: 100 },
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    roadstead_tests::gitserver::install_crypto();
    let plan = Plan::chosen();
    let mut report = Report::new(machine());
    let only = std::env::var("ROADSTEAD_BENCH_ONLY").unwrap_or_default();
    let measured = measure_parts(&mut report, &plan, &only).await?;
    ensure!(measured > 0, "the bench has no part '{only}'");
    report.print();
    if let Some(path) = std::env::var_os("ROADSTEAD_BENCH_OUT") {
        std::fs::write(&path, report.json()).context("write the figures")?;
    }
    Ok(())
}

/// Measures one part, or all that are not only measured when they are asked for; says how many.
async fn measure_parts(report: &mut Report, plan: &Plan, only: &str) -> Result<usize> {
    let mut measured = 0;
    let mut is_wanted = |part: &str, is_long: bool| {
        let is_wanted = only == part || only.is_empty() && !is_long;
        measured += usize::from(is_wanted);
        is_wanted
    };
    if is_wanted("api", false) {
        beside_an_apiserver(report, plan).await?;
    }
    if is_wanted("rights", false) {
        eprintln!("rights: {:?}", plan.people);
        rights::measure(report, plan).await?;
    }
    if is_wanted("fleet", false) {
        eprintln!("fleets of {:?} simulated agents", plan.fleets);
        fleet::measure(report, plan.fleets, plan.time).await?;
    }
    if is_wanted("onboarding", false) {
        eprintln!("{} simulated clusters", plan.clusters);
        fleet::onboarding::measure(report, plan.clusters).await?;
    }
    if is_wanted("fairness", false) {
        eprintln!("a tenant beside others: {:?}", plan.greed);
        fleet::fairness::measure(report, plan.greed).await?;
    }
    // A quarter of an hour long, so only where it is asked for.
    if is_wanted("alerts", true) {
        eprintln!("a commit that fails everywhere: {:?}", plan.outage);
        fleet::alerts::measure(report, plan.outage).await?;
    }
    if is_wanted("monorepo", false) {
        eprintln!("one repository of {} overlays", plan.overlays);
        fleet::monorepo::measure(report, plan.overlays).await?;
    }
    if is_wanted("sources", false) {
        eprintln!("sources: {:?}", plan.sources);
        fleet::sources::measure(report, plan.sources).await?;
    }
    if is_wanted("pipeline", false) {
        eprintln!("one Kustomization of {} objects", plan.applied);
        pipeline::measure(report, plan.applied, plan.edits).await?;
    }
    if is_wanted("requests", false) {
        eprintln!("requests to an apiserver, by who asks");
        requests::measure(report).await?;
    }
    if is_wanted("secrets", false) {
        eprintln!("secrets: {:?}", plan.secrets);
        secrets::measure(report, plan.secrets).await?;
    }
    if is_wanted("telemetry", false) {
        eprintln!("traces and metrics: {:?}", plan.telemetry);
        telemetry::measure(report, plan.telemetry).await?;
    }
    // An hour long, so only where it is asked for.
    if is_wanted("dashboard", true) {
        eprintln!("the dashboard: {:?}", plan.scene);
        fleet::dashboard::measure(report, plan.scene).await?;
    }
    Ok(measured)
}

async fn beside_an_apiserver(report: &mut Report, plan: &Plan) -> Result<()> {
    let setup = HubSetup::new("bench").await?;
    let hub = HubProcess::start(&setup).await?;
    let ours = Api::of(hub.kubectl()).await?;
    let theirs = {
        let kubeconfig = std::env::var("ROADSTEAD_TEST_KUBECONFIG_1").context("a cluster is wanted")?;
        Api::of(&Kubectl::new(kubeconfig.as_ref())?).await?
    };
    theirs.install(&definition(&ours).await?).await?;

    let subjects = [
        ("roadstead-hub", ours, Processes::hub(hub.id(), setup.database().url())?),
        ("kube-apiserver", theirs, Processes::cluster()?),
    ];
    for (name, api, processes) in &subjects {
        eprintln!("{name}: {} objects", plan.objects);
        let pause = Paused::others(&subjects, name)?;
        for figure in measure(api, processes, plan).await.with_context(|| (*name).to_owned())? {
            report.add(name, figure);
        }
        drop(pause);
    }
    Ok(())
}

/// The servers that are not being measured, stopped.
struct Paused(Vec<u32>);

impl Paused {
    fn others(subjects: &[(&str, Api, Processes); 2], name: &str) -> Result<Self> {
        let mut paused = Self(Vec::new());
        for (_, _, processes) in subjects.iter().filter(|subject| subject.0 != name) {
            for pid in processes.all()? {
                memory::signal(pid, rustix::process::Signal::STOP)?;
                paused.0.push(pid);
            }
        }
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        for pid in self.0.iter().rev() {
            if let Err(error) = memory::signal(*pid, rustix::process::Signal::CONT) {
                eprintln!("a server stays stopped: {error:#}");
            }
        }
    }
}

async fn measure(api: &Api, processes: &Processes, plan: &Plan) -> Result<Vec<Figure>> {
    let mut figures = vec![processes.figure("memory at the start")?];
    figures.push(load::create(api, plan).await?);
    load::settle(api).await?;
    figures.push(processes.figure("memory with all objects")?);
    figures.push(load::get(api, plan).await?);
    figures.push(load::list_all(api, plan).await?);
    figures.push(load::list_page(api, plan).await?);
    figures.push(load::list_in_pages(api, plan).await?);
    figures.push(load::merge(api, plan).await?);
    figures.extend(load::apply(api, plan).await?);
    load::settle(api).await?;
    figures.push(processes.figure("memory after reads and writes")?);
    for count in [1, 100] {
        figures.push(watchers::latency(api, plan, count).await?);
    }
    figures.push(watchers::throughput(api, plan, 100).await?);
    figures.extend(watchers::memory(api, processes, plan).await?);
    Ok(figures)
}

/// Kustomizations as the hub serves them, as a kind of a cluster's own.
async fn definition(hub: &Api) -> Result<Value> {
    let document = hub.get(&format!("/openapi/v3/apis/{}", api::GROUP_VERSION)).await?;
    let schemas = document["components"]["schemas"].as_object().context("schemas")?;
    let kind = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"][0]["kind"] == "Kustomization"
            && schema["properties"]["spec"].is_object()
    };
    let mut schema = schemas.values().find(kind).context("the schema of Kustomization")?.clone();
    schema["properties"]["metadata"] = json!({ "type": "object" });
    structural(&mut schema);
    let (group, version) = api::GROUP_VERSION.split_once('/').context("a group and a version")?;
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("kustomizations.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": "Kustomization", "listKind": "KustomizationList", "plural": "kustomizations",
                       "singular": "kustomization" },
            "versions": [{ "name": version, "served": true, "storage": true,
                           "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema } }],
        },
    }))
}

/// Takes off what a definition's schema may not have.
fn structural(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-group-version-kind");
            fields.values_mut().for_each(structural);
        }
        Value::Array(items) => items.iter_mut().for_each(structural),
        _ => {}
    }
}

/// What the figures depend on besides the code.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "cpu": model.trim_start_matches([' ', '\t', ':']),
        "load at the start": read("/proc/loadavg").split_whitespace().take(3).collect::<Vec<_>>().join(" "),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}
