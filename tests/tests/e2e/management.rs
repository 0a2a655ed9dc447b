//! Clusters of Cluster API: a management cluster shows them, with Cluster API's own definition of its kind, and the hub
//! brings them on board, follows them, and lets them go.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_tests::onboarding::{self, Installed, has, kubeconfig};
use roadstead_tests::{
    AgentProcess, HubProcess, HubSetup, Kubectl, PATIENCE, TestCluster, TestNamespace, clients, eventually,
    unique,
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// A management cluster, and a hub that follows one namespace of it with the rights that `deploy/` gives.
struct Management {
    cluster: TestCluster,
    place: TestNamespace,
    hub: HubProcess,
    _setup: HubSetup,
}

/// The tests here share their cluster: two that find an object absent cannot both create it.
static INSTALLING: Mutex<()> = Mutex::const_new(());

/// Installs Cluster API's definition of its kind Cluster, and what `deploy/` has for a management cluster.
async fn install(admin: &Kubectl) -> Result<()> {
    let _alone = INSTALLING.lock().await;
    let definition = std::fs::read_to_string(clients()?.join("cluster-api/clusters.yaml"))?;
    admin.run_with(&["apply", "--server-side", "-f", "-"], &definition).await?;
    eventually("Clusters are served", PATIENCE, || async {
        admin.run(&["get", "clusters.cluster.x-k8s.io", "-A"]).await
    })
    .await?;
    admin.apply(include_str!("../../../deploy/management/rbac.yaml")).await.map(drop)
}

impl Management {
    async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[]).await
    }

    /// With a hub that is started with these arguments, too.
    async fn start_with(name: &str, args: &[&str]) -> Result<Self> {
        let cluster = TestCluster::first()?;
        let admin = cluster.kubectl();
        install(admin).await?;
        let place = cluster.namespace(name).await?;
        let (setup, hub) = onboarding::hub_with(name, args).await?;
        let made = Self { cluster, place, hub, _setup: setup };
        made.offer_management(&made.cluster).await?;
        Ok(made)
    }

    fn hub(&self) -> &Kubectl {
        self.hub.kubectl()
    }

    /// What is done in the management cluster itself.
    fn capi(&self) -> ClusterApi<'_> {
        ClusterApi { admin: self.cluster.kubectl(), place: self.place.name() }
    }

    /// Gives the hub a kubeconfig of the ServiceAccount that `deploy/` makes, in this cluster.
    async fn offer_management(&self, cluster: &TestCluster) -> Result<()> {
        self.offer_management_as("management", cluster).await
    }

    async fn offer_management_as(&self, name: &str, cluster: &TestCluster) -> Result<()> {
        let account = ["create", "token", "roadstead-hub", "-n", "roadstead-management", "--duration=1h"];
        let token = cluster.kubectl().run(&account).await?;
        let mut config: Value = serde_json::from_str(&cluster.inline_kubeconfig("json").await?)?;
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": { "value": STANDARD.encode(config.to_string()) },
        });
        self.hub().apply(&secret.to_string()).await.map(drop)
    }

    /// Has the hub follow the test's namespace.
    async fn follow(&self, template: &Value) -> Result<()> {
        self.follow_as("capi", "management", template).await
    }

    async fn follow_as(&self, name: &str, secret: &str, template: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "ManagementCluster",
            "metadata": { "name": name },
            "spec": {
                "kubeConfig": { "secretRef": { "name": secret } },
                "namespaces": [self.place.name()],
                "template": template,
            },
        });
        self.hub().apply(&object.to_string()).await.map(drop)
    }

    async fn create(&self, version: &str, name: &str, labels: &Value) -> Result<()> {
        self.capi().create(version, name, labels).await
    }

    async fn patch(&self, name: &str, patch: &Value, more: &[&str]) -> Result<()> {
        self.capi().patch(name, patch, more).await
    }

    async fn provision(&self, name: &str, kubeconfig: &str) -> Result<()> {
        self.capi().provision(name, kubeconfig).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.capi().delete(name).await
    }

    async fn finalize(&self, name: &str) -> Result<()> {
        self.capi().finalize(name).await
    }

    /// Waits until the ManagementCluster's Ready condition is this and its message has all of these parts.
    async fn says(&self, status: &str, reason: &str, parts: &[&str]) -> Result<()> {
        self.one_says("capi", status, reason, parts).await
    }

    async fn one_says(&self, name: &str, status: &str, reason: &str, parts: &[&str]) -> Result<()> {
        eventually(&format!("ManagementCluster {name} says {parts:?}"), PATIENCE, || async {
            let seen = self.hub().condition(&["managementcluster", name], "Ready").await?;
            ensure!((seen.0.as_str(), seen.1.as_str()) == (status, reason), "it has {seen:?}");
            ensure!(parts.iter().all(|part| seen.2.contains(part)), "it says {}", seen.2);
            Ok(())
        })
        .await
    }

    async fn gone(&self, what: &[&str]) -> Result<()> {
        eventually(&format!("{what:?} is gone"), PATIENCE, || async {
            let found = self.hub().run(&[&["get", "--ignore-not-found"], what].concat()).await?;
            ensure!(found.trim().is_empty(), "{found}");
            Ok(())
        })
        .await
    }

    /// Waits until there is a Cluster on the hub that is as it should be.
    async fn shows(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("Cluster {name}: {what}"), PATIENCE, || async {
            let cluster = self.hub().get(&["cluster", name]).await?;
            ensure!(is(&cluster), "{cluster}");
            Ok(cluster)
        })
        .await
    }
}

/// A namespace of a management cluster, and what users and Cluster API's controllers do there.
struct ClusterApi<'a> {
    admin: &'a Kubectl,
    place: &'a str,
}

impl ClusterApi<'_> {
    /// Makes a Cluster of Cluster API, as a user does.
    async fn create(&self, version: &str, name: &str, labels: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "Cluster",
            "metadata": { "name": name, "namespace": self.place, "labels": labels,
                "finalizers": ["cluster.cluster.x-k8s.io"] },
            "spec": { "paused": false },
        });
        self.admin.apply(&object.to_string()).await.map(drop)
    }

    async fn patch(&self, name: &str, patch: &Value, more: &[&str]) -> Result<()> {
        let patch = patch.to_string();
        let mut args = vec!["patch", "clusters.cluster.x-k8s.io", name, "-n", self.place];
        args.extend(["--type=merge", "-p", &patch]);
        args.extend(more);
        self.admin.run(&args).await.map(drop)
    }

    /// What Cluster API's controllers write once the control plane answers.
    async fn provision(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let ca = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": format!("{name}-ca"), "namespace": self.place,
                "labels": { "cluster.x-k8s.io/cluster-name": name } },
            "data": { "tls.key": STANDARD.encode("a key") },
        });
        for secret in [ca.to_string(), onboarding::secret(self.place, name, kubeconfig)] {
            self.admin.apply(&secret).await?;
        }
        let initialized = json!({ "status": { "initialization": { "controlPlaneInitialized": true } } });
        self.patch(name, &initialized, &["--subresource=status"]).await
    }

    /// Deletes a Cluster, and waits for no controller, of which there is none.
    async fn delete(&self, name: &str) -> Result<()> {
        let place = ["-n", self.place];
        let delete = ["delete", "clusters.cluster.x-k8s.io", name, "--wait=false"];
        self.admin.run(&[delete.as_slice(), &place].concat()).await.map(drop)
    }

    async fn finalize(&self, name: &str) -> Result<()> {
        self.patch(name, &json!({ "metadata": { "finalizers": null } }), &[]).await
    }
}

/// A kubeconfig that leads nowhere: where nothing but the Cluster is at stake.
const NOWHERE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
    contexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {token: hunter2}}]\n";

#[tokio::test]
async fn a_cluster_of_cluster_api_comes_on_board_is_followed_and_goes() -> Result<()> {
    let management = Management::start("capi").await?;
    let target = TestCluster::second()?;
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    let name = unique("edge");
    management.follow(&json!({ "agent": { "namespace": home.name() } })).await?;
    management.says("True", "Succeeded", &["it has 0 Clusters"]).await?;

    management.create("v1beta2", &name, &json!({ "region": "north", "tier": "gold" })).await?;
    management.says("True", "Succeeded", &["1 without a control plane or a kubeconfig yet", &name]).await?;
    management.gone(&["cluster", &name]).await?;
    let own = kubeconfig(&target).await?;
    management.provision(&name, &own).await?;

    has(management.hub(), &name, "Installed", "True", "AgentInstalled").await?;
    let made = management.hub().get(&["cluster", &name]).await?;
    ensure!(made["metadata"]["labels"]["region"] == "north", "{made}");
    let secret = format!("{name}-kubeconfig");
    ensure!(made["spec"]["kubeConfig"]["secretRef"] == json!({ "namespace": "default", "name": secret }));
    let agent = AgentProcess::installed(&management.hub, &name, &target, home).await?;
    has(management.hub(), &name, "Ready", "True", "AgentConnected").await?;
    // Nothing but the kubeconfig came over, and that is not kept.
    let secrets = management.hub().run(&["get", "secrets", "-o", "name"]).await?;
    ensure!(!secrets.contains("-ca"), "{secrets}");
    let forgotten = || async {
        eventually("the kubeconfig is forgotten", PATIENCE, || async {
            let secret = management.hub().get(&["secret", &secret]).await?;
            ensure!(secret["data"]["value"].is_null(), "it still has it");
            Ok(())
        })
        .await
    };
    forgotten().await?;

    // Labels follow; what users have put there stays.
    management.hub().run(&["label", "cluster", &name, "mine=yes"]).await?;
    management
        .patch(&name, &json!({ "metadata": { "labels": { "region": "south", "tier": null } } }), &[])
        .await?;
    let labels = |cluster: &Value| {
        let labels = &cluster["metadata"]["labels"];
        labels["region"] == "south" && labels["tier"].is_null() && labels["mine"] == "yes"
    };
    management.shows(&name, "its labels", labels).await?;

    // A rotated kubeconfig is used once, and is the same cluster.
    let digest = made["status"]["kubeConfig"]["digest"].clone();
    management.provision(&name, &format!("{own}\n# rotated\n")).await?;
    let rotated = |cluster: &Value| cluster["status"]["kubeConfig"]["digest"] != digest;
    let after = management.shows(&name, "the new digest", rotated).await?;
    ensure!(after["metadata"]["uid"] == made["metadata"]["uid"]);
    has(management.hub(), &name, "Ready", "True", "AgentConnected").await?;
    forgotten().await?;

    // Its deletion begins: it goes from the hub, and what is on it stays.
    management.delete(&name).await?;
    management.gone(&["cluster", &name]).await?;
    management.gone(&["secret", &secret]).await?;
    target.kubectl().run(&["get", "serviceaccount", "roadstead-agent", "-n", agent.namespace()]).await?;
    management.finalize(&name).await?;
    installed.remove().await
}

#[tokio::test]
async fn another_cluster_of_the_same_name_is_another_and_one_that_is_moved_stays() -> Result<()> {
    let management = Management::start("again").await?;
    let (name, moved) = (unique("again"), unique("moved"));
    management.follow(&json!({ "deletionPolicy": "Abandon" })).await?;
    for name in [&name, &moved] {
        // The older version of the API, in which both are one.
        management.create("v1beta1", name, &json!({})).await?;
        management.provision(name, NOWHERE).await?;
    }
    has(management.hub(), &name, "Ready", "False", "ClusterUnreachable").await?;
    let first = management.hub().get(&["cluster", &name]).await?;
    ensure!(first["spec"]["deletionPolicy"] == "Abandon", "{first}");

    management.delete(&name).await?;
    management.finalize(&name).await?;
    management.create("v1beta1", &name, &json!({})).await?;
    management.provision(&name, NOWHERE).await?;
    let another = |cluster: &Value| cluster["metadata"]["uid"] != first["metadata"]["uid"];
    let second = management.shows(&name, "another one", another).await?;
    ensure!(second["spec"]["clusterApi"]["uid"] != first["spec"]["clusterApi"]["uid"], "{second}");

    // As `clusterctl move` does it: paused, then deleted.
    management.patch(&moved, &json!({ "spec": { "paused": true } }), &[]).await?;
    management.shows(&moved, "paused", |cluster| cluster["spec"]["clusterApi"]["paused"] == true).await?;
    let before = management.hub().get(&["cluster", &moved]).await?;
    management.delete(&moved).await?;
    management.finalize(&moved).await?;
    management.says("True", "Succeeded", &["it was deleted while it was paused", &moved]).await?;
    // It is put back, paused as it was, and then goes on: the same Cluster of the hub.
    management.create("v1beta1", &moved, &json!({ "back": "yes" })).await?;
    management.provision(&moved, NOWHERE).await?;
    let back = |cluster: &Value| cluster["metadata"]["labels"]["back"] == "yes";
    let after = management.shows(&moved, "back", back).await?;
    ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "{after}");
    for name in [&name, &moved] {
        management.finalize(name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_management_cluster_that_is_not_what_it_was_retires_nothing() -> Result<()> {
    let management = Management::start("guard").await?;
    let name = unique("guard");
    // One that the hub has by other means is left alone.
    let own = unique("own");
    let cluster = json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": own } });
    management.hub().apply(&cluster.to_string()).await?;
    for name in [&name, &own] {
        management.create("v1beta2", name, &json!({})).await?;
        management.provision(name, NOWHERE).await?;
    }
    management.follow(&json!({})).await?;
    management.says("True", "Succeeded", &["it has 2 Clusters", "1 ignored", &own]).await?;
    let before = management.shows(&name, "made", |_| true).await?;
    let untouched = management.hub().get(&["cluster", &own]).await?;
    ensure!(untouched["spec"]["clusterApi"].is_null(), "{untouched}");

    // Another management cluster under the same name.
    let other = TestCluster::second()?;
    install(other.kubectl()).await?;
    management.offer_management(&other).await?;
    management.says("False", "AlreadyRegistered", &["now leads to a different cluster"]).await?;
    // One that does not answer.
    management.offer_management(&management.cluster).await?;
    management.says("True", "Succeeded", &["it has 2 Clusters"]).await?;
    let (away, proxy) = management.cluster.through_proxy().await?;
    management.offer_management(&away).await?;
    management.says("True", "Succeeded", &["it has 2 Clusters"]).await?;
    proxy.cut();
    management.says("False", "ClusterUnreachable", &["kube-system"]).await?;
    let after = management.hub().get(&["cluster", &name]).await?;
    ensure!(
        after["metadata"]["uid"] == before["metadata"]["uid"]
            && after["metadata"]["deletionTimestamp"].is_null()
    );
    proxy.open();
    management.says("True", "Succeeded", &["it has 2 Clusters"]).await?;

    // Deleting the ManagementCluster leaves its Clusters, and a new one takes them up.
    management.hub().run(&["delete", "managementcluster", "capi"]).await?;
    let kept = management.hub().get(&["cluster", &name]).await?;
    ensure!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    management.follow(&json!({})).await?;
    management.says("True", "Succeeded", &["it has 2 Clusters", "1 ignored"]).await?;
    management.delete(&name).await?;
    management.gone(&["cluster", &name]).await?;
    for name in [&name, &own] {
        management.finalize(name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_paused_cluster_is_not_taken_over_by_another_management_cluster() -> Result<()> {
    let management = Management::start("moves").await?;
    let (target, second) = (TestCluster::second()?, TestCluster::second()?);
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    let name = unique("moves");
    management.follow(&json!({ "agent": { "namespace": home.name() } })).await?;
    management.create("v1beta2", &name, &json!({})).await?;
    let own = kubeconfig(&target).await?;
    management.provision(&name, &own).await?;
    has(management.hub(), &name, "Installed", "True", "AgentInstalled").await?;
    let before = management.hub().get(&["cluster", &name]).await?;

    // As `clusterctl move` begins: paused. Somebody who may make Clusters in another management cluster makes one.
    management.patch(&name, &json!({ "spec": { "paused": true } }), &[]).await?;
    management.shows(&name, "paused", |cluster| cluster["spec"]["clusterApi"]["paused"] == true).await?;
    install(second.kubectl()).await?;
    second.kubectl().run(&["create", "namespace", management.place.name()]).await?;
    let other = ClusterApi { admin: second.kubectl(), place: management.place.name() };
    other.create("v1beta2", &name, &json!({})).await?;
    other.provision(&name, NOWHERE).await?;
    management.offer_management_as("other", &second).await?;
    management.follow_as("other", "other", &json!({})).await?;
    management
        .one_says("other", "True", "Succeeded", &["1 ignored", "spec.acceptMovesFrom", "default/capi"])
        .await?;
    // Its deletion there is none of this Cluster's.
    other.delete(&name).await?;
    other.finalize(&name).await?;
    management.one_says("other", "True", "Succeeded", &["it has 0 Clusters"]).await?;

    // With permission, and only where the kubeconfig leads to the same cluster.
    let accept = json!({ "spec": { "acceptMovesFrom": [{ "name": "capi" }] } }).to_string();
    management.hub().run(&["patch", "managementcluster", "other", "--type=merge", "-p", &accept]).await?;
    other.create("v1beta2", &name, &json!({})).await?;
    other.provision(&name, NOWHERE).await?;
    management.one_says("other", "True", "Succeeded", &["1 ignored", "does not move here"]).await?;
    other.provision(&name, &kubeconfig(&management.cluster).await?).await?;
    management.one_says("other", "True", "Succeeded", &["1 ignored", "leads to a different cluster"]).await?;
    let still = management.hub().get(&["cluster", &name]).await?;
    ensure!(still["metadata"]["uid"] == before["metadata"]["uid"]);
    ensure!(still["spec"]["clusterApi"]["managementClusterRef"]["name"] == "capi", "{still}");
    other.provision(&name, &own).await?;
    let moved = |cluster: &Value| cluster["spec"]["clusterApi"]["managementClusterRef"]["name"] == "other";
    let after = management.shows(&name, "moved", moved).await?;
    ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "{after}");

    // What goes where it was is not missed; what goes where it is now retires it.
    management.delete(&name).await?;
    management.finalize(&name).await?;
    management.says("True", "Succeeded", &["it has 0 Clusters"]).await?;
    management.shows(&name, "there", |cluster| cluster["metadata"]["deletionTimestamp"].is_null()).await?;
    other.delete(&name).await?;
    management.gone(&["cluster", &name]).await?;
    management.gone(&["secret", &format!("{name}-kubeconfig")]).await?;
    other.finalize(&name).await?;
    second.kubectl().run(&["delete", "namespace", management.place.name(), "--wait=false"]).await?;
    installed.remove().await
}

/// Otherwise whoever may follow a management cluster of their own would be asked to give Cluster `prod` its kubeconfig.
#[tokio::test]
async fn a_reserved_name_is_not_for_a_management_cluster_of_another_namespace() -> Result<()> {
    let reserve = ["--reserve-cluster", "reserved*=platform"];
    let management = Management::start_with("reserved", &reserve).await?;
    let (reserved, free) = (unique("reserved"), unique("free"));
    for name in [&reserved, &free] {
        management.create("v1beta2", name, &json!({})).await?;
        management.provision(name, NOWHERE).await?;
    }
    management.follow(&json!({})).await?;
    let why = format!(
        "'{reserved}': its name is reserved for another namespace (--reserve-cluster reserved*=platform)"
    );
    management.says("True", "Succeeded", &["1 ignored", &why]).await?;
    management.shows(&free, "made", |_| true).await?;
    management.gone(&["cluster", &reserved]).await?;
    management.gone(&["secret", &format!("{reserved}-kubeconfig")]).await?;
    for name in [&reserved, &free] {
        management.delete(name).await?;
        management.finalize(name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_management_cluster_leaves_the_secrets_of_others_alone() -> Result<()> {
    let management = Management::start("theirs").await?;
    let name = unique("theirs");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{name}-kubeconfig") },
        "data": { "value": STANDARD.encode("a person's own") },
    });
    management.hub().apply(&secret.to_string()).await?;
    management.create("v1beta2", &name, &json!({})).await?;
    management.provision(&name, NOWHERE).await?;
    management.follow(&json!({})).await?;
    management.says("True", "Succeeded", &["1 ignored", "it was not created for this Cluster"]).await?;
    management.shows(&name, "made", |_| true).await?;
    management.delete(&name).await?;
    management.gone(&["cluster", &name]).await?;
    let kept = management.hub().get(&["secret", &format!("{name}-kubeconfig")]).await?;
    ensure!(kept["data"] == secret["data"], "{kept}");
    management.finalize(&name).await
}
