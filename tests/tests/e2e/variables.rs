//! `postBuild`: variables from the Kustomization, from ConfigMaps and Secrets of the hub and of the cluster, in objects that go to the
//! cluster and in children.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, kustomization, unique};
use serde_json::Value;

use crate::decryption::at_home;
use crate::kept::{kept_of, uid};

/// An object of the cluster.
async fn live(fleet: &Fleet, namespace: &str, object: &str) -> Result<Value> {
    fleet.cluster.kubectl().get(&[object, "--namespace", namespace]).await
}

/// Waits until an entry of a ConfigMap of the cluster has this value.
async fn has(fleet: &Fleet, namespace: &str, name: &str, key: &str, value: &str) -> Result<()> {
    eventually(&format!("{name} has {key}: {value}"), PATIENCE, || async {
        let object = live(fleet, namespace, &format!("configmap/{name}")).await?;
        ensure!(object["data"][key] == value, "{}", object["data"]);
        Ok(())
    })
    .await
}

/// What the tests build: a ConfigMap whose name is a variable, a Service with a number, and an object that is left as it is.
fn app(namespace: &str) -> Commit {
    let settings = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${{app:=web}}-settings\n  namespace: {namespace}\ndata:\n  \
         region: ${{region}}\n  upper: ${{region^^}}\n  zone: ${{zone:-none}}\n  from_cluster: ${{cluster_name}}\n  literal: \
         $${{region}}\n  password: ${{password}}\n  token: ${{token}}\n"
    );
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\nspec: {{ports: [{{port: \
         \"${{port}}\"}}]}}\n"
    );
    let left = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: script\n  namespace: {namespace}\n  annotations: \
         {{kustomize.toolkit.fluxcd.io/substitute: disabled}}\ndata:\n  run: echo ${{region}} ${{undefined}}\n"
    );
    let child = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: chat}\nspec: {type: \
                 slack, channel: \"${region}-alerts\"}\n";
    Commit::new()
        .file("app/settings.yaml", settings)
        .file("app/service.yaml", service)
        .file("app/script.yaml", left)
        .file("app/child.yaml", child)
}

/// `postBuild` that takes from all there is.
const FROM_ALL: [&str; 2] = [
    "targetNamespace: NAMESPACE",
    "postBuild: {substitute: {app: shop, port: \"8080\"}, substituteFrom: [{kind: ConfigMap, name: settings}, {kind: Secret, \
     name: passwords}, {kind: ConfigMap, name: facts}, {kind: Secret, name: tokens}, {kind: ConfigMap, name: missing, \
     optional: true}]}",
];

#[tokio::test]
async fn variables_come_from_the_spec_the_hub_and_the_cluster() -> Result<()> {
    let fleet = Fleet::start("variables").await?;
    // What Git names is the namespace of the cluster in which the rest is looked up: of a root, its own.
    let space = fleet.cluster.named_namespace("apps");
    let target = fleet.cluster.namespace("variables").await?;
    let (home, ns) = (space.name(), target.name());
    let _ = fleet.cluster.kubectl().run(&["create", "namespace", home]).await;
    let (facts, tokens) = (unique("facts"), unique("tokens"));
    let (password, token) = (unique("hush-of-the-hub"), unique("hush-of-the-cluster"));
    fleet.repository("app", &app(ns)).await?;
    fleet
        .run(&[
            "create",
            "configmap",
            "settings",
            "--from-literal=region=eu-north",
            "--from-literal=app=overridden",
        ])
        .await?;
    let literal = format!("--from-literal=password={password}");
    fleet.run(&["create", "secret", "generic", "passwords", &literal]).await?;
    let on_cluster = fleet.cluster.kubectl();
    let args = ["create", "configmap", &facts, "--namespace", home, "--from-literal=cluster_name=edge-1"];
    on_cluster.run(&args).await?;
    let literal = format!("--from-literal=token={token}");
    on_cluster.run(&["create", "secret", "generic", &tokens, "--namespace", home, &literal]).await?;

    let lines = FROM_ALL.map(|line| {
        line.replace("NAMESPACE", ns)
            .replace("name: facts", &format!("name: {facts}"))
            .replace("name: tokens", &format!("name: {tokens}"))
    });
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    fleet.apply(&kustomization("app", "app", "./app", &lines)).await?;
    fleet.ready("kustomization/app").await?;

    let settings = live(&fleet, ns, "configmap/shop-settings").await?;
    for (key, value) in [
        ("region", "eu-north"),
        ("upper", "EU-NORTH"),
        ("zone", "none"),
        ("from_cluster", "edge-1"),
        ("literal", "${region}"),
        ("password", &password),
        ("token", &token),
    ] {
        ensure!(settings["data"][key] == value, "{key}: {settings:#}");
    }
    let service = live(&fleet, ns, "service/web").await?;
    ensure!(service["spec"]["ports"][0]["port"] == 8080, "{service:#}");
    let script = live(&fleet, ns, "configmap/script").await?;
    ensure!(script["data"]["run"] == "echo ${region} ${undefined}", "{script:#}");
    let child = fleet.get("provider/chat").await?;
    ensure!(child["spec"]["channel"] == "eu-north-alerts", "{child:#}");

    // Where each was found, and nothing of what is secret.
    let object = fleet.get("kustomization/app").await?;
    let lookups = object["status"]["lookups"].as_array().context("lookups")?;
    let locations: Vec<&Value> = lookups.iter().map(|one| &one["location"]).collect();
    ensure!(
        locations
            == ["Hub", "Hub", "Cluster", "Cluster"]
                .map(Value::from)
                .iter()
                .chain([&Value::Null])
                .collect::<Vec<_>>(),
        "{lookups:#?}"
    );
    let inventory = object["status"]["inventory"]["entries"].to_string();
    ensure!(inventory.contains(&format!("{ns}_shop-settings__ConfigMap")), "{inventory}");
    nothing_is_stored(&fleet, &[&password, &token]).await?;

    // What the hub has changes.
    fleet
        .run(&[
            "patch",
            "configmap",
            "settings",
            "--type=merge",
            "-p",
            "{\"data\":{\"region\":\"eu-south\"}}",
        ])
        .await?;
    has(&fleet, ns, "shop-settings", "region", "eu-south").await?;
    // A name that is another one: what had the old one is pruned.
    let post_build = lines[1].replace("app: shop", "app: cart");
    fleet.apply(&kustomization("app", "app", "./app", &[lines[0], &post_build])).await?;
    has(&fleet, ns, "cart-settings", "region", "eu-south").await?;
    fleet.ready("kustomization/app").await?;
    ensure!(live(&fleet, ns, "configmap/shop-settings").await.is_err(), "it was not pruned");
    on_cluster.run(&["delete", "configmap", &facts, "--namespace", home]).await?;
    on_cluster.run(&["delete", "secret", &tokens, "--namespace", home]).await?;
    Ok(())
}

/// Dispatches and what came of them, and the fleet views, hold nothing that is secret.
async fn nothing_is_stored(fleet: &Fleet, secrets: &[&str]) -> Result<()> {
    let mut database = fleet.setup.database().connect().await?;
    let rows: Vec<(String,)> =
        sqlx::query_as("SELECT to_jsonb(r)::text FROM reconciliation r").fetch_all(&mut database).await?;
    ensure!(!rows.is_empty(), "nothing was dispatched");
    let views = fleet
        .kubectl()
        .run(&["get", "--raw", "/fleet/v1/appliers/Kustomization/apps/app/reconciliations"])
        .await?;
    for secret in secrets {
        ensure!(!rows.iter().any(|(row,)| row.contains(secret)), "a stored dispatch holds a Secret's value");
        ensure!(!views.contains(secret), "the history holds a Secret's value");
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_set_or_not_there_is_named() -> Result<()> {
    let fleet = Fleet::start("undefined").await?;
    let space = fleet.cluster.namespace("undefined").await?;
    let ns = space.name();
    let files = Commit::new()
        .file("a.yaml", config_map(ns, "a", "${one} ${two} ${three:=x}"))
        .file("b.yaml", config_map(ns, "b", "${two} ${four:0:1}"));
    fleet.repository("app", &files).await?;
    let post_build = "postBuild: {substitute: {one: \"1\"}}";
    fleet.apply(&kustomization("app", "app", "./", &[post_build])).await?;
    let says = "variables are not set (strict mode): \"four\", \"two\"";
    fleet.fails("kustomization/app", "BuildFailed", &[says, "post build failed"]).await?;

    let from = "postBuild: {substituteFrom: [{kind: ConfigMap, name: nowhere}]}";
    fleet.apply(&kustomization("app", "app", "./", &[from])).await?;
    let says = "substitute from 'ConfigMap/nowhere' error: not found on the hub, nor in namespace 'apps' of the cluster";
    fleet.fails("kustomization/app", "BuildFailed", &[says]).await?;
    // It comes to be on the hub: nobody has to ask for anything.
    fleet
        .run(&[
            "create",
            "configmap",
            "nowhere",
            "--from-literal=one=1",
            "--from-literal=two=2",
            "--from-literal=four=4",
        ])
        .await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "a", Some("1 2 x")).await?;

    // The cluster's operator wants everything looked up there.
    fleet
        .run(&["patch", "cluster", "edge", "--type=merge", "-p", "{\"spec\":{\"lookup\":\"Cluster\"}}"])
        .await?;
    let annotation = format!("reconcile.fluxcd.io/requestedAt={}", unique("ask"));
    fleet.run(&["annotate", "--overwrite", "kustomization/app", &annotation]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["substitute from 'ConfigMap/nowhere' error"]).await?;
    Ok(())
}

/// The interval is an hour, and nobody asks: what is labelled counts at once, and what is not does not.
#[tokio::test]
async fn what_is_labelled_in_the_cluster_counts_at_once() -> Result<()> {
    let fleet = Fleet::start("watched").await?;
    let (target, home) =
        (fleet.cluster.namespace("watched").await?, fleet.cluster.namespace("watched-home").await?);
    let (ns, cluster) = (target.name(), fleet.cluster.kubectl());
    for (kind, name) in [("configmap", "plain"), ("configmap", "labelled"), ("secret", "secret")] {
        let generic: &[&str] = if kind == "secret" { &["generic"] } else { &[] };
        let literal = format!("--from-literal={name}=one");
        let args =
            [&["create", kind], generic, &[name, &literal, "--namespace", home.name()] as &[&str]].concat();
        cluster.run(&args).await?;
    }
    for object in ["configmap/labelled", "secret/secret"] {
        let label = "reconcile.fluxcd.io/watch=Enabled";
        cluster.run(&["label", object, label, "--namespace", home.name()]).await?;
    }
    let from = "postBuild: {substituteFrom: [{kind: ConfigMap, name: plain}, {kind: ConfigMap, name: labelled}, {kind: Secret, \
                name: secret}]}";
    let map = config_map(ns, "map", "${plain} ${labelled} ${secret}");
    fleet.repository("app", &Commit::new().file("map.yaml", map)).await?;
    fleet.apply(&at_home(home.name(), &[from], "./")).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "map", Some("one one one")).await?;
    let set = async |object: &str, patch: &str| {
        let args = ["patch", object, "--namespace", home.name(), "--type=merge", "-p", patch];
        cluster.run(&args).await.map(drop)
    };
    set("configmap/plain", r#"{"data":{"plain":"two"}}"#).await?;
    set("secret/secret", r#"{"stringData":{"secret":"two"}}"#).await?;
    fleet.cluster.has_word(ns, "map", Some("two one two")).await?;
    // What is not labelled is read with the rest.
    set("configmap/plain", r#"{"data":{"plain":"three"}}"#).await?;
    set("configmap/labelled", r#"{"data":{"labelled":"two"}}"#).await?;
    fleet.cluster.has_word(ns, "map", Some("three two two")).await?;
    fleet.ready("kustomization/app").await?;
    attempts(&fleet, 3).await
}

/// The first, and one for each change of what is labelled.
async fn attempts(fleet: &Fleet, wanted: i64) -> Result<()> {
    let mut database = fleet.setup.database().connect().await?;
    let attempts: i64 = sqlx::query_scalar("SELECT count(*) FROM reconciliation WHERE NOT corrects")
        .fetch_one(&mut database)
        .await?;
    ensure!(attempts == wanted, "{attempts}");
    Ok(())
}

/// The interval is an hour. An agent that is started again knows what the one before it has read.
#[tokio::test]
async fn what_is_labelled_counts_to_an_agent_that_was_started_again() -> Result<()> {
    let mut fleet = Fleet::start("rewatched").await?;
    let space = fleet.cluster.namespace("rewatched").await?;
    let ns = space.name().to_owned();
    let create = ["create", "configmap", "labelled", "--from-literal=word=one", "--namespace", &ns];
    fleet.cluster.kubectl().run(&create).await?;
    let label = ["label", "configmap/labelled", "reconcile.fluxcd.io/watch=Enabled", "--namespace", &ns];
    fleet.cluster.kubectl().run(&label).await?;
    let map = config_map(&ns, "map", "${word}");
    fleet.repository("app", &Commit::new().file("map.yaml", map)).await?;
    fleet
        .apply(&at_home(&ns, &["postBuild: {substituteFrom: [{kind: ConfigMap, name: labelled}]}"], "./"))
        .await?;
    fleet.ready("kustomization/app").await?;
    let uid = uid(&fleet, "app").await?;
    // Changed while the agent runs again, and while none runs.
    for (attempt, word, is_away) in [(1, "two", false), (2, "three", true)] {
        let of_attempt = format!("\"attempt\":{attempt}");
        eventually("what was read is kept", PATIENCE, || async {
            let kept = kept_of(&fleet, &uid).await?;
            ensure!(kept.contains("labelled") && kept.contains(&of_attempt), "{kept}");
            Ok(())
        })
        .await?;
        fleet.agent.kill9().await?;
        let patch = format!("{{\"data\":{{\"word\":\"{word}\"}}}}");
        let change = ["patch", "configmap/labelled", "--namespace", &ns, "--type=merge", "-p", &patch];
        if is_away {
            fleet.cluster.kubectl().run(&change).await?;
            fleet.agent.restart()?;
        } else {
            fleet.agent.restart()?;
            fleet.agent.says("going on with what was applied before", PATIENCE).await?;
            fleet.cluster.kubectl().run(&change).await?;
        }
        fleet.cluster.has_word(&ns, "map", Some(word)).await.with_context(|| fleet.tails())?;
        fleet.ready("kustomization/app").await?;
    }
    attempts(&fleet, 3).await
}

#[tokio::test]
async fn a_deletion_can_wait_until_everything_is_gone() -> Result<()> {
    let fleet = Fleet::start("terminates").await?;
    let space = fleet.cluster.namespace("terminates").await?;
    let ns = space.name();
    let held = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: held\n  namespace: {ns}\n  finalizers: [example.com/held]\n"
    );
    fleet
        .repository("app", &Commit::new().file("a.yaml", held).file("b.yaml", config_map(ns, "b", "x")))
        .await?;
    fleet
        .apply(&kustomization(
            "app",
            "app",
            "./",
            &["deletionPolicy: WaitForTermination", "timeout: 5s", "retryInterval: 5s"],
        ))
        .await?;
    fleet.ready("kustomization/app").await?;
    fleet.run(&["delete", "kustomization", "app", "--wait=false"]).await?;
    // What holds it up is named, and it stays.
    eventually("the wait ends in a failure that names the object", PATIENCE, || async {
        let (status, _, message) = fleet.condition("kustomization/app", "Ready").await?;
        ensure!(status == "False" && message.contains("held"), "{message}");
        Ok(())
    })
    .await?;
    fleet.cluster.has_word(ns, "b", None).await?;
    let patch = "{\"metadata\":{\"finalizers\":null}}";
    let args = ["patch", "configmap", "held", "--namespace", ns, "--type=merge", "-p", patch];
    fleet.cluster.kubectl().run(&args).await?;
    eventually("the Kustomization goes", PATIENCE, || async {
        ensure!(fleet.get("kustomization/app").await.is_err(), "it is still there");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn variables_that_are_not_set_are_empty_where_the_hub_is_lenient() -> Result<()> {
    let fleet = Fleet::start_on(HubSetup::new("lenient").await?.arg("--lenient-substitutions")).await?;
    let space = fleet.cluster.namespace("lenient").await?;
    let ns = space.name();
    // Without any variable nothing is substituted, unless it always is.
    let cases = [
        ("some", "postBuild: {substitute: {other: value}}", "a-"),
        ("none", "postBuild: {substitute: {}}", "a-${missing}"),
        ("strategy", "postBuild: {substituteStrategy: WithVariables}", "a-${missing}"),
        ("always", "postBuild: {substituteStrategy: Always}", "a-"),
    ];
    let files = cases.iter().fold(Commit::new(), |files, (name, ..)| {
        files.file(&format!("{name}/map.yaml"), config_map(ns, name, "a-${missing}"))
    });
    fleet.repository("app", &files).await?;
    for (name, post_build, word) in cases {
        fleet.apply(&kustomization(name, "app", &format!("./{name}"), &[post_build])).await?;
        fleet.ready(&format!("kustomization/{name}")).await?;
        has(&fleet, ns, name, "word", word).await?;
    }
    Ok(())
}
