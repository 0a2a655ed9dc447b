//! Health goes on after Ready: what fails, or is on its way for too long, turns Healthy False, and back; Ready and whoever goes by it
//! stay as they are.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    Fleet, HubProcess, PATIENCE, TestNamespace, config_map, eventually, kustomization, unique,
};
use serde_json::{Value, json};

use crate::kept::{kept_of, uid};

/// Within which a change of health is told, on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(5);

/// The least time between two reports, and so how long a second one may take.
const EVERY: Duration = Duration::from_secs(10);

/// Waits until Healthy of `app` has this status and reason, and gives its message.
async fn healthy(fleet: &Fleet, status: &str, reason: &str) -> Result<String> {
    eventually(&format!("app is Healthy {status} {reason}"), PATIENCE, || async {
        let (is, why, message) = fleet.condition("kustomization/app", "Healthy").await?;
        ensure!(is == status && why == reason, "{is} {why}: {message}");
        Ok(message)
    })
    .await
}

/// Whether Ready of a Kustomization is True, by an attempt that went well.
async fn stays_ready(fleet: &Fleet, name: &str) -> Result<()> {
    let ready = fleet.condition(&format!("kustomization/{name}"), "Ready").await?;
    ensure!(ready.0 == "True" && ready.1 == "ReconciliationSucceeded", "{name}: {ready:?}");
    Ok(())
}

/// The condition Ready of `app`.
async fn ready_of(fleet: &Fleet) -> Result<Value> {
    let app = fleet.get("kustomization/app").await?;
    let conditions = app["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    ready.cloned().with_context(|| format!("no condition Ready: {app:#}"))
}

/// The events of `app`, each as `Warning HealthCheckFailed: …`.
async fn events(fleet: &Fleet) -> Result<Vec<String>> {
    let list: Value = serde_json::from_str(&fleet.run(&["get", "events", "-o", "json"]).await?)?;
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let of_app = list["items"].as_array().into_iter().flatten();
    let of_app = of_app.filter(|event| event["involvedObject"]["name"] == "app");
    let line = |event: &Value| {
        format!("{} {}: {}", text(event, "type"), text(event, "reason"), text(event, "message"))
    };
    Ok(of_app.map(line).collect())
}

/// A Deployment of two pods, which are ready after a while and fail where they take longer.
fn deployment(ns: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {ns}}}\nspec:\n  replicas: 2\n  \
         progressDeadlineSeconds: 10\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata:\n      \
         labels: {{app: web}}\n      annotations: {{devcluster.roadstead.dev/ready-after: 6s}}\n    \
         spec: {{containers: [{{name: web, image: web}}]}}\n"
    )
}

#[tokio::test]
async fn a_deployment_that_fails_after_ready_is_told_and_that_it_is_well_again() -> Result<()> {
    let fleet = Fleet::start("sick").await?;
    let space = fleet.cluster.namespace("sick").await?;
    let ns = space.name();
    let files = Commit::new().file("app/web.yaml", deployment(ns));
    fleet.repository("app", &files.file("behind/map.yaml", config_map(ns, "map", "git"))).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["wait: true"])).await?;
    fleet.apply(&kustomization("behind", "app", "./behind", &["dependsOn: [{name: app}]"])).await?;
    // Progress in words, while it is waited.
    let waits = eventually("it says what it waits for", PATIENCE, || async {
        let (is, why, message) = fleet.condition("kustomization/app", "Healthy").await?;
        ensure!(is == "Unknown" && why == "Progressing" && message.contains("Deployment web: "), "{message}");
        Ok(message)
    })
    .await?;
    ensure!(waits.starts_with("Running health checks for revision main@sha1:"), "{waits}");
    ensure!(waits.ends_with(" of 2 available") || waits.ends_with(" of 2 ready"), "{waits}");
    fleet.ready("kustomization/app").await?;
    let passed = healthy(&fleet, "True", "Succeeded").await?;
    ensure!(passed.starts_with("Health check passed in "), "{passed}");
    fleet.ready("kustomization/behind").await?;
    let ready = ready_of(&fleet).await?;

    // A roll-out by another, which never ends: progress at first, and then it has failed.
    let patch = |reason: &str| {
        format!(
            r#"{{"spec":{{"template":{{"metadata":{{"annotations":{{"devcluster.roadstead.dev/never-ready":{reason}}}}}}}}}}}"#
        )
    };
    let roll = async |reason: &str| {
        let patch = patch(reason);
        let args = ["patch", "deployment/web", "--namespace", ns, "--field-manager=tester", "-p", &patch];
        fleet.cluster.kubectl().run(&args).await.map(drop)
    };
    roll(r#""ImagePullBackOff""#).await?;
    let progress = healthy(&fleet, "Unknown", "Progressing").await?;
    ensure!(progress.starts_with("Deployment web: "), "{progress}");
    ensure!(
        !events(&fleet).await?.iter().any(|event| event.contains("Deployment web")),
        "there is an event of progress"
    );
    let failed = healthy(&fleet, "False", "HealthCheckFailed").await?;
    ensure!(failed.starts_with("Deployment web has failed: ") && failed.contains("progress"), "{failed}");
    let now = ready_of(&fleet).await?;
    ensure!(ready == now, "Ready was {ready}, and is {now}");
    stays_ready(&fleet, "behind").await?;
    let told = events(&fleet).await?;
    let warning = format!("Warning HealthCheckFailed: {failed}");
    ensure!(told.contains(&warning), "no {warning} in {told:#?}");

    roll("null").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    let told = events(&fleet).await?;
    ensure!(told.iter().any(|event| event.starts_with("Normal Succeeded: All objects")), "{told:#?}");
    stays_ready(&fleet, "app").await
}

/// A kind of the test's own, of which one object `one` is in Git.
struct Things {
    group: String,
    api: Api<DynamicObject>,
}

impl Things {
    async fn make(fleet: &Fleet, space: &TestNamespace) -> Result<Self> {
        let group = format!("{}.example.com", unique("t"));
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        let cluster = fleet.cluster.kubectl();
        cluster.apply(&definition.to_string()).await?;
        let name = format!("crd/things.{group}");
        cluster.run(&["wait", "--for=condition=Established", "--timeout=60s", &name]).await?;
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.proxy_url = None;
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Thing"), "things");
        let api = Api::namespaced_with(Client::try_from(config)?, space.name(), &resource);
        Ok(Self { group, api })
    }

    fn files(&self, ns: &str) -> Commit {
        let thing = format!(
            "apiVersion: {}/v1\nkind: Thing\nmetadata: {{name: one, namespace: {ns}}}\nspec: {{size: 1}}\n",
            self.group
        );
        Commit::new().file("app/thing.yaml", thing).file("behind/map.yaml", config_map(ns, "map", "git"))
    }

    /// Ready is healthy, Broken is stuck, all else is on its way.
    fn expressions(&self) -> String {
        format!(
            "healthCheckExprs: [{{apiVersion: {}/v1, kind: Thing, failed: \"status.phase == 'Broken'\", current: \
             \"status.phase == 'Ready'\"}}]",
            self.group
        )
    }

    /// The object is like that from now on.
    async fn are(&self, phase: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"status": {"phase": phase}}));
        self.api.patch_status("one", &PatchParams::default(), &patch).await.context("set a status")?;
        Ok(())
    }

    /// Waits until the object is there, and makes it like that.
    async fn become_once_applied(&self, phase: &str) -> Result<()> {
        eventually("the object is there", PATIENCE, || self.are(phase)).await
    }

    async fn remove(self, fleet: &Fleet) -> Result<()> {
        let name = format!("crd/things.{}", self.group);
        fleet.cluster.kubectl().run(&["delete", &name, "--wait=false"]).await.map(drop)
    }
}

/// A fleet with a Kustomization `app` of a Thing that is Ready.
async fn with_things(name: &str) -> Result<(Fleet, TestNamespace, Things)> {
    let fleet = Fleet::start(name).await?;
    let space = fleet.cluster.namespace(name).await?;
    let things = Things::make(&fleet, &space).await?;
    fleet.repository("app", &things.files(space.name())).await?;
    let lines = [&things.expressions(), "wait: true"];
    fleet.apply(&kustomization("app", "app", "./app", &lines)).await?;
    things.become_once_applied("Ready").await?;
    fleet.ready("kustomization/app").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    Ok((fleet, space, things))
}

/// What views show of the Thing's health.
async fn shown(fleet: &Fleet) -> Result<String> {
    let path = "/fleet/v1/inventory?kind=Thing&applier=app";
    let view: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", path]).await?)?;
    Ok(view["items"][0]["health"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn health_by_expressions_goes_on_while_suspended_and_after_it() -> Result<()> {
    let (fleet, _space, things) = with_things("things").await?;
    fleet.apply(&kustomization("behind", "app", "./behind", &["dependsOn: [{name: app}]"])).await?;
    fleet.ready("kustomization/behind").await?;
    let began = Instant::now();
    things.are("Broken").await?;
    let message = healthy(&fleet, "False", "HealthCheckFailed").await?;
    let took = began.elapsed();
    println!("measured: told {took:?} after it had failed");
    ensure!(took < WITHIN, "it took {took:?}");
    ensure!(message == "Thing one has failed: by the health check expression failed", "{message}");
    stays_ready(&fleet, "app").await?;
    stays_ready(&fleet, "behind").await?;
    eventually("views show it", PATIENCE, || async {
        let shown = shown(&fleet).await?;
        ensure!(shown == "Failed: by the health check expression failed", "{shown}");
        Ok(())
    })
    .await?;
    let began = Instant::now();
    things.are("Ready").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    println!("measured: told {:?} after it was well again", began.elapsed());
    ensure!(began.elapsed() < EVERY + WITHIN, "it took {:?}", began.elapsed());
    ensure!(shown(&fleet).await? == "Current", "{}", shown(&fleet).await?);

    // Suspended, it is left alone, and looked at all the same.
    fleet.suspend("app", true).await?;
    eventually("it says that it is suspended", PATIENCE, || async {
        let (status, ..) = fleet.condition("kustomization/app", "Suspended").await?;
        ensure!(status == "True", "{status}");
        Ok(())
    })
    .await?;
    things.are("Broken").await?;
    healthy(&fleet, "False", "HealthCheckFailed").await?;
    let (suspended, ..) = fleet.condition("kustomization/app", "Suspended").await?;
    ensure!(suspended == "True", "{suspended}");
    // Resumed, it is reconciled, and that waits for health as always.
    things.are("Ready").await?;
    fleet.suspend("app", false).await?;
    healthy(&fleet, "True", "Succeeded").await?;
    fleet.ready("kustomization/app").await?;
    things.are("Broken").await?;
    healthy(&fleet, "False", "HealthCheckFailed").await?;
    things.remove(&fleet).await
}

#[tokio::test]
async fn what_flaps_costs_one_status_in_ten_seconds() -> Result<()> {
    let (fleet, _space, things) = with_things("flaps").await?;
    let (began, span) = (Instant::now(), 3 * EVERY);
    let versions = async {
        let mut versions = BTreeSet::new();
        while began.elapsed() < span {
            let object = fleet.get("kustomization/app").await?;
            versions.insert(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(versions)
    };
    let flaps = async {
        let mut count = 0_u32;
        while began.elapsed() < span {
            things.are(if count.is_multiple_of(2) { "Broken" } else { "Ready" }).await?;
            count += 1;
            tokio::time::sleep(
                (began + Duration::from_millis(20) * count).saturating_duration_since(Instant::now()),
            )
            .await;
        }
        anyhow::Ok(count)
    };
    let (versions, flaps) = tokio::try_join!(versions, flaps)?;
    println!("measured: {flaps} changes in {span:?}, {} versions of the Kustomization", versions.len());
    ensure!(flaps > 100, "{flaps} changes are not many");
    // The one that it had, one at once, and one for each ten seconds.
    ensure!((2..=5).contains(&versions.len()), "{versions:?}");
    // What it comes to is told in the end.
    things.are("Broken").await?;
    healthy(&fleet, "False", "HealthCheckFailed").await?;
    things.are("Ready").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    stays_ready(&fleet, "app").await?;
    things.remove(&fleet).await
}

#[tokio::test]
async fn only_the_last_health_is_told_to_a_hub_that_was_away() -> Result<()> {
    let (fleet, _space, things) = with_things("later").await?;
    let before = events(&fleet).await?;
    let Fleet { agent, hub, git, cluster, setup } = fleet;
    drop(hub);
    // One after the other, each for longer than it takes to be noticed.
    for phase in ["Broken", "Ready", "Broken"] {
        things.are(phase).await?;
        tokio::time::sleep(EVERY + Duration::from_secs(2)).await;
    }
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    let message = healthy(&fleet, "False", "HealthCheckFailed").await?;
    ensure!(message.starts_with("Thing one has failed"), "{message}");
    let after = events(&fleet).await?;
    let new: Vec<&String> = after.iter().filter(|event| !before.contains(event)).collect();
    let of_health =
        new.iter().filter(|event| event.contains("HealthCheckFailed") || event.contains("All objects"));
    ensure!(of_health.count() == 1, "{new:#?}");
    stays_ready(&fleet, "app").await?;
    things.remove(&fleet).await
}

#[tokio::test]
async fn health_goes_on_with_an_agent_that_was_started_without_its_hub() -> Result<()> {
    let (mut fleet, _space, things) = with_things("restarted").await?;
    let (uid, attempt) = (uid(&fleet, "app").await?, newest(&fleet).await?);
    eventually("that it ended well is kept", PATIENCE, || async {
        let kept = kept_of(&fleet, &uid).await?;
        ensure!(kept.contains("\"isWell\":true"), "{kept}");
        Ok(())
    })
    .await?;
    // It breaks while neither is there.
    fleet.hub.kill9().await?;
    fleet.agent.kill9().await?;
    things.are("Broken").await?;
    fleet.agent.restart()?;
    fleet.agent.says("going on with what was applied before", PATIENCE).await?;
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    let message = healthy(&fleet, "False", "HealthCheckFailed").await?;
    ensure!(message.starts_with("Thing one has failed"), "{message}");
    things.are("Ready").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    // By what the agent watches, and not by another attempt.
    ensure!(newest(&fleet).await? == attempt, "there was another attempt");
    stays_ready(&fleet, "app").await?;
    things.remove(&fleet).await
}

#[tokio::test]
async fn a_job_that_is_removed_after_its_end_stays_healthy() -> Result<()> {
    let fleet = Fleet::start("job").await?;
    let space = fleet.cluster.namespace("job").await?;
    let ns = space.name();
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: once, namespace: {ns}}}\nspec:\n  ttlSecondsAfterFinished: 5\n  \
         template: {{spec: {{restartPolicy: Never, containers: [{{name: web, image: web}}]}}}}\n"
    );
    fleet.repository("app", &Commit::new().file("job.yaml", job)).await?;
    fleet.apply(&kustomization("app", "app", "./", &["wait: true"])).await?;
    fleet.ready("kustomization/app").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    let version = fleet.get("kustomization/app").await?["metadata"]["resourceVersion"].clone();
    let gone = async || {
        let jobs = fleet.cluster.kubectl().run(&["get", "jobs", "--namespace", ns, "-o", "name"]).await?;
        ensure!(jobs.trim().is_empty(), "{jobs}");
        Ok(())
    };
    eventually("the Job is removed", PATIENCE, gone).await?;
    // For as long as it would take to be told.
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        let now = fleet.get("kustomization/app").await?;
        ensure!(now["metadata"]["resourceVersion"] == version, "{:#}", now["status"]["conditions"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // It is not run again before the next reconciliation.
    gone().await
}

#[tokio::test]
async fn what_nobody_waits_for_is_shown_in_views_only() -> Result<()> {
    let fleet = Fleet::start("shown").await?;
    let space = fleet.cluster.namespace("shown").await?;
    let things = Things::make(&fleet, &space).await?;
    fleet.repository("app", &things.files(space.name())).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[&things.expressions()])).await?;
    fleet.ready("kustomization/app").await?;
    for (phase, health) in [("Broken", "Failed: "), ("Ready", "Current"), ("Other", "InProgress: ")] {
        things.are(phase).await?;
        eventually(&format!("it is shown as {health}"), PATIENCE, || async {
            let shown = shown(&fleet).await?;
            ensure!(shown.starts_with(health), "{shown}");
            Ok(())
        })
        .await?;
    }
    ensure!(fleet.condition("kustomization/app", "Healthy").await.is_err(), "nobody asks for it");
    stays_ready(&fleet, "app").await?;
    things.remove(&fleet).await
}

/// The number of the newest attempt.
async fn newest(fleet: &Fleet) -> Result<i64> {
    let view = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/reconciliations?applier=app"]).await?;
    let view: Value = serde_json::from_str(&view)?;
    view["items"][0]["attempt"].as_i64().with_context(|| format!("{view:#}"))
}

#[tokio::test]
async fn what_is_seen_to_be_healthy_is_left_alone_at_its_interval() -> Result<()> {
    let (fleet, _space, things) = with_things("rests").await?;
    fleet.run(&["patch", "kustomization/app", "--type=merge", "-p", r#"{"spec":{"interval":"2s"}}"#]).await?;
    fleet.ready("kustomization/app").await?;
    eventually("it rests", PATIENCE, || async {
        let (before, until) = (newest(&fleet).await?, Instant::now() + 3 * WITHIN);
        while Instant::now() < until {
            let now = newest(&fleet).await?;
            ensure!(now == before, "from {before} to {now}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    })
    .await?;
    // What is not healthy is looked at as always: that becomes Ready, too.
    things.are("Broken").await?;
    fleet.fails("kustomization/app", "HealthCheckFailed", &["Thing"]).await?;
    things.are("Ready").await?;
    fleet.ready("kustomization/app").await?;
    healthy(&fleet, "True", "Succeeded").await?;
    things.remove(&fleet).await
}
