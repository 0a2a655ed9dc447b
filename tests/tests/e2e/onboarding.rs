//! Clusters come on board by their kubeconfigs: a Secret makes a Cluster, the hub installs the agent, and what is
//! installed is what runs.

use std::time::Duration;

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::onboarding::{Installed, cluster, has, hub, kubeconfig, secret};
use roadstead_tests::{
    AgentProcess, ConnectProxy, Fleet, HubProcess, HubSetup, PATIENCE, TestCluster, config_map, eventually,
    kustomization, unique,
};
use serde_json::{Value, json};

#[tokio::test]
async fn a_secret_of_cluster_api_makes_a_cluster_and_a_kustomization_goes_there() -> Result<()> {
    // With a Cluster `edge` that came by a token, on the first cluster.
    let setup = HubSetup::new("onboard").await?.arg("--allow-cluster-network=127.0.0.0/8");
    let fleet = Fleet::start_on(setup).await?;
    let kubectl = fleet.kubectl();
    let target = TestCluster::second()?;
    // The one test that is in the default namespace of agents on this cluster.
    let home = target.named_namespace("roadstead-system");
    let place = target.namespace("onboard").await?;
    let commit = Commit::new().file("app/map.yaml", config_map(place.name(), "app", "one"));
    fleet.repository("app", &commit).await?;
    let by_secret = ["clusterRef: null", "kubeConfig: {secretRef: {name: edge-1-kubeconfig}}"];
    fleet.apply(&kustomization("app", "app", "./app", &by_secret)).await?;
    let no_cluster = "no cluster was onboarded by Secret apps/edge-1-kubeconfig";
    fleet.fails("kustomization/app", "ClusterNotFound", &[no_cluster]).await?;

    fleet.apply(&secret("apps", "edge-1", &kubeconfig(&target).await?)).await?;
    has(kubectl, "edge-1", "Installed", "True", "AgentInstalled").await?;
    let waits = has(kubectl, "edge-1", "Ready", "False", "AwaitingAgent").await?;
    ensure!(waits.contains("waiting for Deployment roadstead-system/roadstead-agent"), "{waits}");
    let made = kubectl.get(&["cluster", "edge-1"]).await?;
    ensure!(made["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "edge-1", "{made}");
    let reference = json!({ "namespace": "apps", "name": "edge-1-kubeconfig" });
    ensure!(made["spec"]["kubeConfig"]["secretRef"] == reference, "{made}");
    let deployment = target.kubectl().get(&["deployment", "roadstead-agent", "-n", home.name()]).await?;
    ensure!(
        deployment["spec"]["template"]["spec"]["serviceAccountName"] == "roadstead-agent",
        "{deployment}"
    );

    let agent = AgentProcess::installed(&fleet.hub, "edge-1", &target, home).await?;
    has(kubectl, "edge-1", "Ready", "True", "AgentConnected").await?;
    fleet.ready("kustomization/app").await?;
    target.has_word(place.name(), "app", Some("one")).await?;
    // The content of the kubeconfig is not kept.
    eventually("the kubeconfig is forgotten", PATIENCE, || async {
        let secret = fleet.get("secret/edge-1-kubeconfig").await?;
        ensure!(secret["data"]["value"].is_null(), "it still has it");
        ensure!(!secret.to_string().contains("last-applied"), "kubectl's note of it is still there");
        Ok(())
    })
    .await?;

    // Deleting the Secret uninstalls nothing.
    fleet.run(&["delete", "secret", "edge-1-kubeconfig"]).await?;
    fleet.run(&["annotate", "kustomization", "app", "reconcile.fluxcd.io/requestedAt=again"]).await?;
    eventually("it is reconciled again", PATIENCE, || async {
        let status = fleet.get("kustomization/app").await?["status"].clone();
        ensure!(status["lastHandledReconcileAt"] == "again", "{status}");
        Ok(())
    })
    .await?;
    fleet.ready("kustomization/app").await?;
    has(kubectl, "edge-1", "Ready", "True", "AgentConnected").await?;
    target.kubectl().run(&["get", "serviceaccount", "roadstead-agent", "-n", agent.namespace()]).await?;
    Installed::in_the_usual(&target).remove().await
}

#[tokio::test]
async fn a_rotated_kubeconfig_is_the_same_cluster_and_another_clusters_is_refused() -> Result<()> {
    let (_setup, hub) = hub("rotate").await?;
    let kubectl = hub.kubectl();
    let (target, other) = (TestCluster::first()?, TestCluster::second()?);
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    kubectl.apply(&cluster("edge-2", &home, &json!({ "kubeConfig": { "keep": true } }))).await?;
    let missing = has(kubectl, "edge-2", "Ready", "False", "KubeConfigRefused").await?;
    ensure!(missing.contains("Secret default/edge-2-kubeconfig is not on the hub"), "{missing}");

    let own = kubeconfig(&target).await?;
    kubectl.apply(&secret("default", "edge-2", &own)).await?;
    has(kubectl, "edge-2", "Installed", "True", "AgentInstalled").await?;
    let _agent = AgentProcess::installed(&hub, "edge-2", &target, home).await?;
    has(kubectl, "edge-2", "Ready", "True", "AgentConnected").await?;
    let before = kubectl.get(&["cluster", "edge-2"]).await?;

    // The same cluster in other words.
    kubectl.apply(&secret("default", "edge-2", &format!("{own}\n# rotated\n"))).await?;
    eventually("the new digest is noted", PATIENCE, || async {
        let after = kubectl.get(&["cluster", "edge-2"]).await?;
        ensure!(
            after["status"]["kubeConfig"]["digest"] != before["status"]["kubeConfig"]["digest"],
            "not yet"
        );
        ensure!(after["metadata"]["uid"] == before["metadata"]["uid"]);
        Ok(())
    })
    .await?;
    has(kubectl, "edge-2", "Ready", "True", "AgentConnected").await?;
    let kept = kubectl.get(&["secret", "edge-2-kubeconfig"]).await?;
    ensure!(kept["data"]["value"].is_string(), "it was to be kept");

    // Another cluster cannot slip in by rotation, and nothing is installed there.
    kubectl.apply(&secret("default", "edge-2", &kubeconfig(&other).await?)).await?;
    let refused = has(kubectl, "edge-2", "Installed", "False", "AlreadyRegistered").await?;
    ensure!(refused.contains("kube-system differs"), "{refused}");
    has(kubectl, "edge-2", "Ready", "True", "AgentConnected").await?;

    // Nor does one cluster come on board under two names.
    let twice = target.later_namespace("agent");
    kubectl.apply(&cluster("edge-3", &twice, &json!({}))).await?;
    kubectl.apply(&secret("default", "edge-3", &own)).await?;
    let refused = has(kubectl, "edge-3", "Ready", "False", "AlreadyRegistered").await?;
    ensure!(refused.contains("already registered as 'edge-2'"), "{refused}");
    let nothing = target.kubectl().run(&["get", "namespace", twice.name()]).await;
    ensure!(nothing.is_err(), "something was installed");
    installed.remove().await
}

#[tokio::test]
async fn a_second_secret_of_a_name_is_refused_with_a_warning() -> Result<()> {
    let (_setup, hub) = hub("twice").await?;
    let kubectl = hub.kubectl();
    // Addresses that nobody answers at: nothing but the names is at stake.
    let nobody = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
                  contexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c, user: {token: hunter2}}]\n";
    kubectl.run(&["create", "namespace", "other"]).await?;
    kubectl.apply(&secret("default", "edge-4", nobody)).await?;
    let unreachable = has(kubectl, "edge-4", "Ready", "False", "ClusterUnreachable").await?;
    ensure!(unreachable.contains("127.0.0.1:1") && unreachable.contains("refused"), "{unreachable}");
    ensure!(!unreachable.contains("hunter2"), "{unreachable}");
    kubectl.apply(&secret("other", "edge-4", nobody)).await?;
    eventually("the second one has a warning", PATIENCE, || async {
        let events = kubectl.run(&["get", "events", "-n", "other", "-o", "json"]).await?;
        let events: Value = serde_json::from_str(&events)?;
        let warned = events["items"].as_array().into_iter().flatten().any(|event| {
            event["type"] == "Warning"
                && event["reason"] == "AlreadyRegistered"
                && event["involvedObject"]["name"] == "edge-4-kubeconfig"
                && event["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("Secret default/edge-4-kubeconfig"))
        });
        ensure!(warned, "{events}");
        Ok(())
    })
    .await?;
    let made = kubectl.get(&["cluster", "edge-4"]).await?;
    ensure!(made["spec"]["kubeConfig"]["secretRef"]["namespace"] == "default", "{made}");
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_away_is_waited_for_and_a_hosted_agent_gets_no_deployment() -> Result<()> {
    let (_setup, hub) = hub("away").await?;
    let kubectl = hub.kubectl();
    let target = TestCluster::second()?;
    let (away, proxy) = target.through_proxy().await?;
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    proxy.cut();
    kubectl.apply(&cluster("edge-5", &home, &json!({ "agent": { "hosted": true } }))).await?;
    kubectl.apply(&secret("default", "edge-5", &kubeconfig(&away).await?)).await?;
    has(kubectl, "edge-5", "Ready", "False", "ClusterUnreachable").await?;
    proxy.open();
    has(kubectl, "edge-5", "Installed", "True", "AgentInstalled").await?;
    let waits = has(kubectl, "edge-5", "Ready", "False", "AwaitingAgent").await?;
    ensure!(waits.contains("roadstead-agent --kubeconfig"), "{waits}");
    let deployments = target.kubectl().run(&["get", "deployments", "-n", home.name(), "-o", "name"]).await?;
    ensure!(deployments.trim().is_empty(), "{deployments}");
    let _agent = AgentProcess::installed(&hub, "edge-5", &target, home).await?;
    has(kubectl, "edge-5", "Ready", "True", "AgentConnected").await?;
    installed.remove().await
}

#[tokio::test]
async fn hostile_kubeconfigs_are_refused_by_the_field() -> Result<()> {
    let setup = HubSetup::new("hostile").await?;
    let hub = HubProcess::start(&setup).await?;
    let kubectl = hub.kubectl();
    let marker = setup.folder().join(unique("ran"));
    let config = |server: &str, more: &str, user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'{more}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\nusers: [{{name: c, user: {{{user}}}}}]\n"
        )
    };
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{}']}}",
        marker.display()
    );
    for (name, text, part) in [
        ("exec", config("https://edge.example", "", &exec), "`exec`"),
        ("provider", config("https://edge.example", "", "auth-provider: {name: gcp}"), "`auth-provider`"),
        ("file", config("https://edge.example", "", "tokenFile: /etc/hostname"), "`tokenFile`"),
        ("http", config("http://edge.example", "", "token: a"), "--allow-plain-http-clusters"),
        (
            "skip",
            config("https://edge.example", ", insecure-skip-tls-verify: true", "token: a"),
            "--allow-unverified-clusters",
        ),
        (
            "proxied",
            config("https://edge.example", ", proxy-url: 'http://p.example'", "token: a"),
            "--allow-cluster-proxies",
        ),
        (
            "own",
            config(&format!("https://127.0.0.1:{}", hub.api_port()), "", "token: a"),
            "--allow-cluster-network",
        ),
        // A name that leads to this machine is found out when it is looked up.
        (
            "named",
            config(&format!("https://localhost:{}", hub.api_port()), "", "token: a"),
            "--allow-cluster-network",
        ),
        (
            "large",
            format!("{}# {}\n", config("https://edge.example", "", "token: a"), "x".repeat(150_000)),
            "bytes",
        ),
        ("nothing", "hunter2".to_owned(), "not a mapping"),
    ] {
        kubectl.apply(&secret("default", name, &text)).await?;
        let message = has(kubectl, name, "Ready", "False", "KubeConfigRefused").await?;
        ensure!(message.contains(part) && !message.contains("hunter2"), "{name}: {message}");
    }
    ensure!(!marker.exists(), "a kubeconfig has run a program");
    Ok(())
}

#[tokio::test]
async fn an_agent_reaches_its_hub_through_a_proxy() -> Result<()> {
    let setup = HubSetup::new("proxied").await?;
    let hub = HubProcess::start(&setup).await?;
    let proxy = ConnectProxy::start().await?;
    let target = TestCluster::first()?;
    let url = proxy.url();
    let agent = AgentProcess::join_with_env(&hub, "edge-6", &target, &[("HTTPS_PROXY", &url)]).await?;
    has(hub.kubectl(), "edge-6", "Ready", "True", "AgentConnected").await?;
    let asked = proxy.asked();
    for port in [hub.api_port(), hub.link_port()] {
        ensure!(asked.contains(&format!("127.0.0.1:{port}")), "nobody went to port {port}: {asked:?}");
    }
    ensure!(!agent.logs().contains("hunter2"), "the proxy's password is in the log");
    // What goes through the proxy is cut with it, and noticed.
    drop(proxy);
    has(hub.kubectl(), "edge-6", "Ready", "False", "AgentDisconnected").await?;

    // A server that NO_PROXY names is gone to straight.
    let proxy = ConnectProxy::start().await?;
    let url = proxy.url();
    let env = [("HTTPS_PROXY", url.as_str()), ("NO_PROXY", "127.0.0.0/8")];
    let second = TestCluster::second()?;
    let _agent = AgentProcess::join_with_env(&hub, "edge-7", &second, &env).await?;
    has(hub.kubectl(), "edge-7", "Ready", "True", "AgentConnected").await?;
    ensure!(proxy.asked().is_empty(), "{:?}", proxy.asked());
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_killed_while_it_enrols_comes_on_board_all_the_same() -> Result<()> {
    let (_setup, hub) = hub("killed").await?;
    let kubectl = hub.kubectl();
    let target = TestCluster::second()?;
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    kubectl.apply(&cluster("edge-8", &home, &json!({}))).await?;
    kubectl.apply(&secret("default", "edge-8", &kubeconfig(&target).await?)).await?;
    has(kubectl, "edge-8", "Installed", "True", "AgentInstalled").await?;
    let mut agent = AgentProcess::installed(&hub, "edge-8", &target, home).await?;
    // At any moment: before, during and after its enrolment.
    for delay in [5, 20, 40, 60, 80, 120, 200] {
        tokio::time::sleep(Duration::from_millis(delay)).await;
        agent.kill9().await?;
        agent.restart()?;
    }
    has(kubectl, "edge-8", "Ready", "True", "AgentConnected").await?;
    installed.remove().await
}

#[tokio::test]
async fn a_kubeconfig_is_rotated_while_its_cluster_is_away() -> Result<()> {
    let (_setup, hub) = hub("middle").await?;
    let kubectl = hub.kubectl();
    let target = TestCluster::first()?;
    let (away, proxy) = target.through_proxy().await?;
    let home = target.later_namespace("agent");
    let installed = Installed::in_namespace(&target, &home);
    // Taken, and not answered: the hub is in the middle of it when the kubeconfig changes.
    proxy.freeze();
    kubectl.apply(&cluster("edge-9", &home, &json!({}))).await?;
    kubectl.apply(&secret("default", "edge-9", &kubeconfig(&away).await?)).await?;
    kubectl.apply(&secret("default", "edge-9", &kubeconfig(&target).await?)).await?;
    has(kubectl, "edge-9", "Installed", "True", "AgentInstalled").await?;
    let _agent = AgentProcess::installed(&hub, "edge-9", &target, home).await?;
    has(kubectl, "edge-9", "Ready", "True", "AgentConnected").await?;
    installed.remove().await
}

#[tokio::test]
async fn a_cluster_is_deleted_while_a_kustomization_targets_it() -> Result<()> {
    let fleet = Fleet::start("deleted").await?;
    let place = fleet.cluster.namespace("deleted").await?;
    let commit = Commit::new().file("app/map.yaml", config_map(place.name(), "app", "one"));
    fleet.repository("app", &commit).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.run(&["delete", "cluster", "edge"]).await?;
    fleet.fails("kustomization/app", "ClusterNotFound", &["cluster 'edge' not found"]).await?;
    // Abandoned: what was applied stays, and nothing holds the Kustomization back.
    fleet.cluster.has_word(place.name(), "app", Some("one")).await?;
    fleet.run(&["delete", "kustomization", "app", "--timeout=30s"]).await?;
    fleet.cluster.has_word(place.name(), "app", Some("one")).await
}

#[tokio::test]
async fn a_cluster_is_deleted_with_what_is_on_it() -> Result<()> {
    let mut fleet = Fleet::start("pruned").await?;
    let place = fleet.cluster.namespace("pruned").await?;
    let commit = Commit::new()
        .file("app/map.yaml", config_map(place.name(), "app", "one"))
        .file("kept/map.yaml", config_map(place.name(), "kept", "two"));
    fleet.repository("repo", &commit).await?;
    fleet.apply(&kustomization("app", "repo", "./app", &[])).await?;
    fleet.apply(&kustomization("kept", "repo", "./kept", &["prune: false"])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.ready("kustomization/kept").await?;
    let patch = r#"{"spec":{"deletionPolicy":"Prune"}}"#;
    fleet.run(&["patch", "cluster", "edge", "--type=merge", "-p", patch]).await?;

    // While the agent is away, the deletion waits and says for what.
    fleet.agent.kill9().await?;
    has(fleet.kubectl(), "edge", "Ready", "False", "AgentDisconnected").await?;
    fleet.run(&["delete", "cluster", "edge", "--wait=false"]).await?;
    let waits = has(fleet.kubectl(), "edge", "Retired", "False", "Progressing").await?;
    ensure!(waits.contains("apps/app.") && !waits.contains("apps/kept"), "{waits}");
    fleet.cluster.has_word(place.name(), "app", Some("one")).await?;
    fleet.agent.restart()?;
    fleet.run(&["wait", "cluster/edge", "--for=delete", "--timeout=60s"]).await?;
    fleet.cluster.has_word(place.name(), "app", None).await?;
    fleet.cluster.has_word(place.name(), "kept", Some("two")).await?;
    fleet.fails("kustomization/app", "ClusterNotFound", &["cluster 'edge' not found"]).await.map(drop)
}

#[tokio::test]
async fn a_cluster_that_is_gone_for_good_is_abandoned() -> Result<()> {
    let mut fleet = Fleet::start("abandoned").await?;
    let place = fleet.cluster.namespace("abandoned").await?;
    let commit = Commit::new().file("app/map.yaml", config_map(place.name(), "app", "one"));
    fleet.repository("repo", &commit).await?;
    fleet.apply(&kustomization("app", "repo", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    let policy = |policy: &str| format!(r#"{{"spec":{{"deletionPolicy":"{policy}"}}}}"#);
    fleet.run(&["patch", "cluster", "edge", "--type=merge", "-p", &policy("Prune")]).await?;
    fleet.agent.kill9().await?;
    fleet.run(&["delete", "cluster", "edge", "--wait=false"]).await?;
    has(fleet.kubectl(), "edge", "Retired", "False", "Progressing").await?;
    fleet.run(&["patch", "cluster", "edge", "--type=merge", "-p", &policy("Abandon")]).await?;
    fleet.run(&["wait", "cluster/edge", "--for=delete", "--timeout=60s"]).await?;
    fleet.cluster.has_word(place.name(), "app", Some("one")).await
}
