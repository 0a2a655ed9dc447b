//! Agents put other versions of themselves in their place, a stage of the fleet after the other, and go back where a new one
//! does not connect; and they remove themselves, or stay, as they are told. The Deployments, their ReplicaSets and pods are
//! real; the kit's kubelet runs the agents.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::onboarding::{Installed, cluster, has, kubeconfig, secret};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, Kubectl, Kubelet, PATIENCE, Program, TestCluster,
    TestNamespace, config_map, eventually, kustomization, unique,
};
use serde_json::{Value, json};

/// Time for a roll-out: a Deployment waits ten seconds alone before it ends the old pod.
const LONG: Duration = Duration::from_secs(120);

/// Seconds that an upgrade has: none that comes about on a busy machine takes as long, and one that does not is given up.
const ENOUGH: &str = "100";
const SHORT: &str = "20";

const V1: &str = "registry.test:5000/roadstead-agent:1";
const V2: &str = "registry.test:5000/roadstead-agent:2";
const V3: &str = "registry.test:5000/roadstead-agent:3";

/// A hub that wants `image`, with short times.
async fn setup(name: &str, image: &str) -> Result<HubSetup> {
    let setup = HubSetup::new(name).await?;
    let setup = setup.arg("--allow-cluster-network=127.0.0.0/8");
    Ok(setup.arg("--agent-upgrade-soak=2").env("ROADSTEAD_AGENT_IMAGE", image))
}

/// The same hub, started again with another wish, and seconds for it.
async fn want(
    mut hub: HubProcess,
    setup: HubSetup,
    image: &str,
    seconds: &str,
) -> Result<(HubProcess, HubSetup)> {
    hub.sigterm(PATIENCE).await?;
    let setup = setup.env("ROADSTEAD_AGENT_IMAGE", image).env("ROADSTEAD_AGENT_UPGRADE_TIMEOUT", seconds);
    Ok((HubProcess::start(&setup).await?, setup))
}

/// A cluster on board, with its agent's pods.
struct Edge {
    name: &'static str,
    cluster: TestCluster,
    kubelet: Kubelet,
    home: TestNamespace,
}

impl Edge {
    async fn board(
        hub: &HubProcess,
        setup: &HubSetup,
        name: &'static str,
        target: TestCluster,
        more: &Value,
        images: &[(&str, Program)],
    ) -> Result<Self> {
        let home = target.later_namespace("agent");
        hub.kubectl().apply(&cluster(name, &home, more)).await?;
        hub.kubectl().apply(&secret("default", name, &kubeconfig(&target).await?)).await?;
        has(hub.kubectl(), name, "Installed", "True", "AgentInstalled").await?;
        let kubelet = Kubelet::run(&target, &home, setup.folder(), images).await?;
        has(hub.kubectl(), name, "Ready", "True", "AgentConnected").await?;
        let edge = Self { name, cluster: target, kubelet, home };
        edge.settles(hub.kubectl(), V1).await?;
        Ok(edge)
    }

    /// Waits until the agent of `image`, and no other, runs, is connected, and nothing is under way.
    async fn settles(&self, hub: &Kubectl, image: &str) -> Result<()> {
        eventually(&format!("{} runs {image}", self.name), LONG, || async {
            let seen = hub.get(&["cluster", self.name]).await?;
            ensure!(seen["status"]["agentImage"] == image, "{}", seen["status"]);
            let ready = hub.condition(&["cluster", self.name], "Ready").await?;
            ensure!(ready.0 == "True", "{ready:?}");
            ensure!(self.kubelet.running() == [image], "there run {:?}", self.kubelet.running());
            let deployment = self.deployment().await?;
            let annotation = &deployment["metadata"]["annotations"]["fleet.roadstead.dev/upgrade"];
            let is_over = annotation.as_str().is_none_or(|text| text.contains("failed"));
            ensure!(is_over, "under way: {annotation}");
            ensure!(self.image().await? == image, "{deployment}");
            // Before that, pods of which this kit's kubelet knows nothing may count.
            for count in ["updatedReplicas", "replicas", "availableReplicas"] {
                ensure!(deployment["status"][count] == 1, "{}", deployment["status"]);
            }
            Ok(())
        })
        .await
        .with_context(|| self.kubelet.logs())
    }

    async fn deployment(&self) -> Result<Value> {
        self.cluster.kubectl().get(&["deployment", "roadstead-agent", "-n", self.home.name()]).await
    }

    /// What the Deployment says.
    async fn image(&self) -> Result<String> {
        let deployment = self.deployment().await?;
        let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
        Ok(image.context("an image")?.to_owned())
    }

    /// Waits until the Deployment says `image`: the agent has begun.
    async fn begins(&self, hub: &HubProcess, image: &str) -> Result<()> {
        eventually(&format!("{} begins with {image}", self.name), PATIENCE, || async {
            let seen = self.image().await?;
            ensure!(seen == image, "it says {seen}");
            Ok(())
        })
        .await
        .with_context(|| format!("{}--- the hub:\n{}", self.kubelet.logs(), hub.logs()))
    }

    /// Waits until the condition `Upgraded` has this reason, and gives its message.
    async fn is(&self, hub: &Kubectl, status: &str, reason: &str) -> Result<String> {
        has(hub, self.name, "Upgraded", status, reason).await.with_context(|| self.kubelet.logs())
    }

    /// Leaves the agent the rights that it has for itself: those to apply anything go.
    async fn without_all_rights(&self) -> Result<()> {
        let target = self.cluster.kubectl();
        let admin = format!("roadstead-agent-cluster-admin-{}", self.home.name());
        target.run(&["delete", "clusterrolebinding", &admin]).await?;
        self.may_no_longer(&["create", "configmaps", "-n", "default"]).await
    }

    /// Waits until the agent's account may not do this: an apiserver goes by a binding a moment after it was written.
    async fn may_no_longer(&self, what: &[&str]) -> Result<()> {
        let account = format!("--as=system:serviceaccount:{}:roadstead-agent", self.home.name());
        eventually("the right is gone", PATIENCE, || async {
            let ask = [&["auth", "can-i"], what, &[&account]].concat();
            let answer = self.cluster.kubectl().run(&ask).await;
            ensure!(answer.is_err_and(|error| error.to_string().contains("can-i")), "it may still");
            Ok(())
        })
        .await
    }

    /// Waits until the agent has removed itself from `home`.
    async fn is_gone(&self) -> Result<()> {
        eventually("nothing is left of the agent", LONG, || async {
            let left = left(&self.cluster, self.home.name()).await?;
            ensure!(
                left.is_empty() && self.kubelet.running().is_empty(),
                "{left} {:?}",
                self.kubelet.running()
            );
            Ok(())
        })
        .await
        .with_context(|| self.kubelet.logs())
    }

    async fn remove(self) -> Result<()> {
        drop(self.kubelet);
        Installed::in_namespace(&self.cluster, &self.home).remove().await
    }
}

/// The one that is told first to run `image`, which is drawn, and the other, which is not told yet.
async fn drawn(one: Edge, other: Edge, image: &str) -> Result<(Edge, Edge)> {
    let is_first = eventually(&format!("one begins with {image}"), PATIENCE, || async {
        let images = [one.image().await?, other.image().await?];
        ensure!(images.iter().any(|seen| seen == image), "they say {images:?}");
        ensure!(images.iter().any(|seen| seen != image), "both at once");
        Ok(images[0] == image)
    })
    .await
    .with_context(|| format!("{}{}", one.kubelet.logs(), other.kubelet.logs()))?;
    Ok(if is_first { (one, other) } else { (other, one) })
}

/// How often the hub has seen an agent leave.
fn absences(hub: &HubProcess, name: &str) -> usize {
    let named = format!("\"cluster\":\"{name}\"");
    hub.logs().lines().filter(|line| line.contains("agent disconnected") && line.contains(&named)).count()
}

async fn ask(hub: &Kubectl, name: &str) -> Result<()> {
    let annotation = format!("reconcile.fluxcd.io/requestedAt={}", unique("again"));
    hub.run(&["annotate", "--overwrite", "cluster", name, &annotation]).await.map(drop)
}

#[tokio::test]
async fn an_agent_puts_the_hubs_version_in_its_place_and_is_never_away() -> Result<()> {
    let setup = setup("upgrade", V1).await?;
    let hub = HubProcess::start(&setup).await?;
    let images = [(V1, Program::Agent), (V2, Program::Agent)];
    let edge = Edge::board(&hub, &setup, "edge-1", TestCluster::first()?, &json!({}), &images).await?;
    let message = edge.is(hub.kubectl(), "True", "UpToDate").await?;
    ensure!(message.contains(V1), "{message}");
    edge.without_all_rights().await?;

    let (hub, _setup) = want(hub, setup, V2, ENOUGH).await?;
    has(hub.kubectl(), "edge-1", "Ready", "True", "AgentConnected").await?;
    let before = absences(&hub, "edge-1");
    edge.begins(&hub, V2).await?;
    edge.settles(hub.kubectl(), V2).await?;
    let message = edge.is(hub.kubectl(), "True", "UpToDate").await?;
    ensure!(message.contains(V2), "{message}");
    ensure!(absences(&hub, "edge-1") == before, "it was away:\n{}", hub.logs());
    edge.remove().await
}

#[tokio::test]
async fn a_version_that_does_not_connect_is_taken_back_and_stops_the_roll_out() -> Result<()> {
    let setup = setup("stages", V1).await?;
    let hub = HubProcess::start(&setup).await?;
    let images = [(V1, Program::Agent), (V2, Program::CutOff), (V3, Program::Agent)];
    let first = Edge::board(&hub, &setup, "edge-1", TestCluster::first()?, &json!({}), &images).await?;
    let second = Edge::board(&hub, &setup, "edge-2", TestCluster::second()?, &json!({}), &images).await?;

    // It starts, takes the Lease, and never has a session: the old one keeps its own.
    let (hub, setup) = want(hub, setup, V2, SHORT).await?;
    for name in ["edge-1", "edge-2"] {
        has(hub.kubectl(), name, "Ready", "True", "AgentConnected").await?;
    }
    let (first, second) = drawn(first, second, V2).await?;
    let before = absences(&hub, first.name);
    let message = first.is(hub.kubectl(), "False", "UpgradeFailed").await?;
    let ask_again = format!("kubectl annotate cluster {}", first.name);
    for part in [V1, V2, "has not connected to the hub", ask_again.as_str()] {
        ensure!(message.contains(part), "no `{part}` in: {message}");
    }
    first.settles(hub.kubectl(), V1).await?;
    let waits = second.is(hub.kubectl(), "False", "UpgradePending").await?;
    ensure!(waits.contains(&format!("it failed at cluster '{}'", first.name)), "{waits}");
    ensure!(second.image().await? == V1, "the second was told");
    ensure!(absences(&hub, first.name) == before, "it was away:\n{}", hub.logs());

    // Tried again on request, and it is said what the kubelet says.
    first.kubelet.set(V2, Program::Missing);
    ask(hub.kubectl(), first.name).await?;
    first.begins(&hub, V2).await?;
    eventually("the kubelet's words are passed on", LONG, || async {
        let (_, reason, message) = hub.kubectl().condition(&["cluster", first.name], "Upgraded").await?;
        ensure!(reason == "UpgradeFailed" && message.contains("ImagePullBackOff"), "{reason}: {message}");
        Ok(())
    })
    .await?;
    first.settles(hub.kubectl(), V1).await?;
    ensure!(second.image().await? == V1, "the second was told");

    // Another version starts over: one, and the other once that one has been well for a while.
    let (hub, _setup) = want(hub, setup, V3, ENOUGH).await?;
    let (first, second) = drawn(first, second, V3).await?;
    first.settles(hub.kubectl(), V3).await?;
    second.settles(hub.kubectl(), V3).await?;
    second.is(hub.kubectl(), "True", "UpToDate").await?;
    first.remove().await?;
    second.remove().await
}

#[tokio::test]
async fn whoever_is_killed_in_the_middle_of_an_upgrade_the_end_is_the_same() -> Result<()> {
    let setup = setup("killed", V1).await?;
    let hub = HubProcess::start(&setup).await?;
    let images = [(V1, Program::Agent), (V2, Program::Agent), (V3, Program::CutOff)];
    let edge = Edge::board(&hub, &setup, "edge-1", TestCluster::second()?, &json!({}), &images).await?;

    let (mut hub, setup) = want(hub, setup, V2, ENOUGH).await?;
    edge.begins(&hub, V2).await?;
    // The old one just after it has begun, the hub, and the new one as soon as it runs.
    edge.kubelet.kill9(V1)?;
    hub.kill9().await?;
    let hub = HubProcess::start(&setup).await?;
    eventually("the new one is killed", PATIENCE, || async { edge.kubelet.kill9(V2) }).await?;
    edge.settles(hub.kubectl(), V2).await?;

    // The old one is killed while the new one, which never connects, holds the Lease: it comes back, connects, goes back.
    let (hub, _setup) = want(hub, setup, V3, SHORT).await?;
    edge.begins(&hub, V3).await?;
    eventually("the new one runs", PATIENCE, || async {
        ensure!(edge.kubelet.running().iter().any(|image| image == V3), "{:?}", edge.kubelet.running());
        Ok(())
    })
    .await?;
    edge.kubelet.kill9(V2)?;
    edge.is(hub.kubectl(), "False", "UpgradeFailed").await?;
    edge.settles(hub.kubectl(), V2).await?;
    edge.remove().await
}

#[tokio::test]
async fn an_agent_is_upgraded_on_request_and_takes_no_other_program() -> Result<()> {
    let setup = setup("by-hand", V1).await?;
    let hub = HubProcess::start(&setup).await?;
    let images = [(V1, Program::Agent), (V2, Program::Agent)];
    let manual = json!({ "agent": { "upgrade": "Manual" } });
    let edge = Edge::board(&hub, &setup, "edge-1", TestCluster::first()?, &manual, &images).await?;

    let (hub, _setup) = want(hub, setup, V2, ENOUGH).await?;
    let message = edge.is(hub.kubectl(), "False", "UpgradeByHand").await?;
    ensure!(message.contains(V2) && message.contains("spec.agent.upgrade is Manual"), "{message}");
    ensure!(edge.image().await? == V1, "it was told");
    ask(hub.kubectl(), "edge-1").await?;
    edge.settles(hub.kubectl(), V2).await?;

    // The hub chooses the version, the cluster the program.
    let other = r#"{"spec":{"agent":{"image":"evil.example/roadstead-agent:2","upgrade":"Auto"}}}"#;
    hub.kubectl().run(&["patch", "cluster", "edge-1", "--type=merge", "-p", other]).await?;
    let message = edge.is(hub.kubectl(), "False", "UpgradeRefused").await?;
    ensure!(message.contains("no image from another repository"), "{message}");
    ensure!(edge.image().await? == V2, "it took another program");

    // One that was installed when agents had no such right says which it lacks.
    let target = edge.cluster.kubectl();
    let role = ["role", "roadstead-agent", "-n", edge.home.name()];
    let mut rights = target.get(&role).await?;
    let rules = rights["rules"].as_array_mut().context("rules")?;
    rules.retain(|rule| rule["resources"][0] != "deployments");
    target.run_with(&["replace", "-f", "-"], &rights.to_string()).await?;
    // With all rights, it would lack none.
    edge.without_all_rights().await?;
    edge.may_no_longer(&["patch", "deployments.apps/roadstead-agent", "-n", edge.home.name()]).await?;
    let older = format!(r#"{{"spec":{{"agent":{{"image":"{V1}"}}}}}}"#);
    hub.kubectl().run(&["patch", "cluster", "edge-1", "--type=merge", "-p", &older]).await?;
    eventually("the right that lacks is named", PATIENCE, || async {
        let (_, reason, message) = hub.kubectl().condition(&["cluster", "edge-1"], "Upgraded").await?;
        let is_so =
            message.contains("does the agent's Role allow it?") && message.contains("deployments.apps");
        ensure!(reason == "UpgradeFailed" && is_so, "{reason}: {message}");
        Ok(())
    })
    .await?;
    has(hub.kubectl(), "edge-1", "Ready", "True", "AgentConnected").await?;
    edge.remove().await
}

/// What is left of an installation in its cluster.
async fn left(target: &TestCluster, namespace: &str) -> Result<String> {
    let suffix = format!("-{namespace}");
    let names = [format!("roadstead-agent{suffix}"), format!("roadstead-agent-cluster-admin{suffix}")];
    let kubectl = target.kubectl();
    let [own, admin] = &names;
    let get = ["get", "--ignore-not-found", "-o", "name"];
    let mut left = kubectl.run(&[&get[..], &["clusterrole,clusterrolebinding", own, admin]].concat()).await?;
    left.push_str(&kubectl.run(&[&get[..], &["namespace", namespace]].concat()).await?);
    Ok(left)
}

#[tokio::test]
async fn a_cluster_that_is_deleted_is_pruned_and_then_its_agent_removes_itself() -> Result<()> {
    let setup = HubSetup::new("removed").await?.arg("--allow-cluster-network=127.0.0.0/8");
    let fleet = Fleet::start_on(setup.env("ROADSTEAD_AGENT_IMAGE", V1)).await?;
    let target = TestCluster::second()?;
    let images = [(V1, Program::Agent)];
    let more = json!({ "agent": { "removal": "Remove" } });
    let edge = Edge::board(&fleet.hub, &fleet.setup, "edge-2", target.clone(), &more, &images).await?;
    // It was brought on board from another namespace than the one that deploys to it.
    let spec = r#"{"spec":{"deletionPolicy":"Prune","access":[{"namespace":"apps","agentRights":true}]}}"#;
    fleet.run(&["patch", "cluster", "edge-2", "--type=merge", "-p", spec]).await?;
    let place = target.namespace("removed").await?;
    let commit = Commit::new().file("app/map.yaml", config_map(place.name(), "app", "one"));
    fleet.repository("app", &commit).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["clusterRef: {name: edge-2}"])).await?;
    fleet.ready("kustomization/app").await?;
    let there = left(&target, edge.home.name()).await?;
    ensure!(there.lines().count() == 4, "{there}");

    fleet.run(&["delete", "cluster", "edge-2", "--timeout=60s"]).await?;
    target.has_word(place.name(), "app", None).await?;
    edge.is_gone().await?;

    fleet.run(&["delete", "kustomization", "app"]).await?;
    // The same cluster once more, and an agent that may do no more than its own Role says.
    let edge = Edge::board(&fleet.hub, &fleet.setup, "edge-2", target.clone(), &more, &images).await?;
    edge.without_all_rights().await?;
    fleet.run(&["delete", "cluster", "edge-2", "--timeout=60s"]).await?;
    edge.is_gone().await?;
    // Another agent of this hub has not noticed.
    fleet.ready("cluster/edge").await.map(drop)
}

#[tokio::test]
async fn an_agent_that_is_away_or_not_alone_in_its_namespace_is_left_and_that_is_said() -> Result<()> {
    let mut fleet = Fleet::start("left").await?;
    let remove = r#"{"spec":{"agent":{"removal":"Remove"}}}"#;
    fleet.run(&["patch", "cluster", "edge", "--type=merge", "-p", remove]).await?;
    // Started by hand, in a namespace that nobody has called the agent's own.
    fleet.run(&["delete", "cluster", "edge", "--wait=false"]).await?;
    let why = has(fleet.kubectl(), "edge", "Retired", "False", "RemovalFailed").await?;
    for part in [fleet.agent.namespace(), "part-of=roadstead", "spec.agent.removal to Leave"] {
        ensure!(why.contains(part), "no `{part}` in: {why}");
    }
    let leave = r#"{"spec":{"agent":{"removal":"Leave"}}}"#;
    fleet.run(&["patch", "cluster", "edge", "--type=merge", "-p", leave]).await?;
    fleet.run(&["wait", "cluster/edge", "--for=delete", "--timeout=60s"]).await?;
    let namespace = fleet.agent.namespace().to_owned();
    fleet.cluster.kubectl().run(&["get", "namespace", &namespace]).await?;
    fleet.agent.check()?;
    fleet.agent.kill9().await?;

    let agent = AgentProcess::join(&fleet.hub, "gone", &fleet.cluster).await?;
    fleet.ready("cluster/gone").await?;
    fleet.run(&["patch", "cluster", "gone", "--type=merge", "-p", remove]).await?;
    drop(agent);
    has(fleet.kubectl(), "gone", "Ready", "False", "AgentDisconnected").await?;
    fleet.run(&["delete", "cluster", "gone", "--timeout=90s"]).await?;
    let events = fleet.kubectl().run(&["get", "events", "-n", "default"]).await?;
    ensure!(events.contains("AgentLeft"), "{events}");
    Ok(())
}
