//! The real kubectl, unchanged, against the hub's API.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::eventually;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::Site;

/// In the form of Flux's v1alpha1.
const PODINFO: &str = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: podinfo
spec:
  interval: 1m
  url: https://git.example.com/podinfo.git
  ref:
    branch: main
---
apiVersion: kustomize.toolkit.fluxcd.io/v1alpha1
kind: Kustomization
metadata:
  name: podinfo
  labels:
    app: podinfo
spec:
  interval: 5m
  path: "./webapp/backend/"
  prune: true
  sourceRef:
    kind: GitRepository
    name: podinfo
  healthChecks:
    - kind: Deployment
      name: backend
      namespace: dev
  timeout: 2m
"#;

const COMMIT: &str = "a1afe267b54f38b46b487f6e938a6fd508278c07";

fn ready(status: &str, revision: &str) -> String {
    json!({ "status": {
        "conditions": [{
            "type": "Ready", "status": status, "reason": "ReconciliationSucceeded",
            "message": format!("Applied revision: {revision}"), "lastTransitionTime": "2020-09-17T19:28:48Z",
        }],
        "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
    }})
    .to_string()
}

#[tokio::test]
async fn the_life_of_a_kustomization() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;

    let out = kubectl.apply(PODINFO).await?;
    assert_eq!(
        out.lines().collect::<Vec<_>>(),
        [
            "gitrepository.source.toolkit.fluxcd.io/podinfo created",
            "kustomization.kustomize.toolkit.fluxcd.io/podinfo created"
        ]
    );
    let out = kubectl.apply(PODINFO).await?;
    assert!(out.lines().all(|line| line.ends_with(" unchanged")), "{out}");
    let out = kubectl.apply(&PODINFO.replace("interval: 5m", "interval: 10m")).await?;
    assert!(out.contains("kustomization.kustomize.toolkit.fluxcd.io/podinfo configured"), "{out}");

    let object = kubectl.get(&["ks", "podinfo"]).await?;
    assert_eq!(object["apiVersion"], "kustomize.toolkit.fluxcd.io/v1");
    assert_eq!(object["metadata"]["generation"], 2);
    assert_eq!(object["metadata"]["finalizers"], json!(["finalizers.fluxcd.io"]));
    assert_eq!(object["spec"]["interval"], "10m");

    // As users of Flux's v1alpha1 type it.
    kubectl
        .run(&["annotate", "--overwrite", "kustomization/podinfo", "fluxcd.io/reconcileAt=1600000000"])
        .await?;
    kubectl
        .run(&["annotate", "--overwrite", "kustomization/podinfo", "fluxcd.io/reconcileAt=1600000001"])
        .await?;
    let object = kubectl.get(&["kustomizations.v1alpha1.kustomize.toolkit.fluxcd.io", "podinfo"]).await?;
    assert_eq!(object["apiVersion"], "kustomize.toolkit.fluxcd.io/v1alpha1");
    assert_eq!(object["metadata"]["annotations"]["fluxcd.io/reconcileAt"], "1600000001");
    assert_eq!(object["metadata"]["generation"], 2, "an annotation is not a change of the spec");

    let patch = r#"{"spec":{"suspend":true,"wait":true}}"#;
    kubectl.run(&["patch", "ks", "podinfo", "--type=merge", "-p", patch]).await?;
    let patch = r#"[{"op":"replace","path":"/spec/suspend","value":false}]"#;
    kubectl.run(&["patch", "ks", "podinfo", "--type=json", "-p", patch]).await?;
    let object = kubectl.get(&["ks", "podinfo"]).await?;
    assert_eq!((&object["spec"]["suspend"], &object["spec"]["wait"]), (&json!(false), &json!(true)));

    // Applying the old version again keeps what it cannot express.
    kubectl.apply(&PODINFO.replace("interval: 5m", "interval: 7m")).await?;
    let object = kubectl.get(&["ks", "podinfo"]).await?;
    assert_eq!((&object["spec"]["interval"], &object["spec"]["wait"]), (&json!("7m"), &json!(true)));

    let wait = ["wait", "kustomization/podinfo", "--for=condition=ready", "--timeout=60s"];
    let waiting = kubectl.run(&wait);
    let written = async {
        let status = ready("True", &format!("main@sha1:{COMMIT}"));
        kubectl.run(&["patch", "ks", "podinfo", "--subresource=status", "--type=merge", "-p", &status]).await
    };
    let (waited, written) = tokio::join!(waiting, written);
    written?;
    assert_eq!(waited?.trim(), "kustomization.kustomize.toolkit.fluxcd.io/podinfo condition met");

    let old = kubectl.get(&["kustomizations.v1alpha1.kustomize.toolkit.fluxcd.io", "podinfo"]).await?;
    assert_eq!(old["status"]["lastAppliedRevision"], format!("main/{COMMIT}"));
    let table = kubectl.run(&["get", "ks", "-A", "-o", "wide"]).await?;
    let mut lines = table.lines();
    let heading: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(heading, ["NAMESPACE", "NAME", "READY", "STATUS", "CLUSTER", "AGE", "REVISION"]);
    let row = lines.next().unwrap_or_default();
    assert!(row.starts_with("default     podinfo   True    Applied revision: main@sha1:"), "{table}");
    let yaml = kubectl.run(&["get", "ks", "podinfo", "-o", "yaml"]).await?;
    assert!(yaml.contains("interval: 7m"), "{yaml}");
    assert!(kubectl.run(&["get", "ks", "-l", "app=other", "-o", "name"]).await?.is_empty());
    assert!(!kubectl.run(&["get", "ks", "-l", "app in (podinfo)", "-o", "name"]).await?.is_empty());
    kubectl.run(&["describe", "ks", "podinfo"]).await?;
    kubectl.run(&["label", "ks", "podinfo", "tier=web"]).await?;

    // The finalizer holds it until whoever put it there is done.
    kubectl.run(&["delete", "ks", "podinfo", "--wait=false"]).await?;
    let object = kubectl.get(&["ks", "podinfo"]).await?;
    assert!(object["metadata"]["deletionTimestamp"].is_string(), "{object:#}");
    let gone = kubectl.run(&["wait", "ks/podinfo", "--for=delete", "--timeout=60s"]);
    let release =
        kubectl.run(&["patch", "ks", "podinfo", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    let (gone, release) = tokio::join!(gone, release);
    release?;
    gone?;
    kubectl.run(&["delete", "gitrepo", "podinfo"]).await?;
    let error = kubectl.run(&["get", "gitrepo", "podinfo"]).await.unwrap_err().to_string();
    assert!(
        error.contains(
            r#"Error from server (NotFound): gitrepositories.source.toolkit.fluxcd.io "podinfo" not found"#
        ),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn what_is_invalid_is_refused_by_its_path() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let bad = PODINFO
        .replace("interval: 5m", "interval: five")
        .replace("    kind: GitRepository\n    name: podinfo", "    kind: Foo\n    name: podinfo");
    let error = kubectl.apply(&bad).await.unwrap_err().to_string();
    for part in [
        r#"The Kustomization "podinfo" is invalid"#,
        "* spec.interval: Invalid value: \"five\"",
        r#"* spec.sourceRef.kind: Unsupported value: "Foo": supported values: "GitRepository", "Bucket""#,
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let unknown = PODINFO.replace("timeout: 2m", "timeOut: 2m");
    let error = kubectl.apply(&unknown).await.unwrap_err().to_string();
    assert!(error.contains(r#"strict decoding error: unknown field "spec.timeOut""#), "{error}");
    let error = kubectl.run(&["create", "ns", "No_Name"]).await.unwrap_err().to_string();
    assert!(error.contains("metadata.name: Invalid value: \"No_Name\""), "{error}");
    let elsewhere =
        PODINFO.replace("metadata:\n  name: podinfo", "metadata:\n  namespace: nowhere\n  name: podinfo");
    let error = kubectl.apply(&elsewhere).await.unwrap_err().to_string();
    assert!(error.contains(r#"namespaces "nowhere" not found"#), "{error}");
    let error =
        kubectl.run_with(&["apply", "--server-side", "-f", "-"], &elsewhere).await.unwrap_err().to_string();
    assert!(error.contains(r#"namespaces "nowhere" not found"#), "{error}");
    Ok(())
}

#[tokio::test]
async fn secrets_namespaces_clusters_and_discovery() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;

    kubectl.run(&["create", "namespace", "gitops-system"]).await?;
    kubectl
        .run_with(
            &[
                "-n",
                "gitops-system",
                "create",
                "secret",
                "generic",
                "sops-gpg",
                "--from-file=sops.asc=/dev/stdin",
            ],
            "a private key",
        )
        .await?;
    let secret = kubectl.get(&["-n", "gitops-system", "secret", "sops-gpg"]).await?;
    assert_eq!(secret["data"], json!({ "sops.asc": "YSBwcml2YXRlIGtleQ==" }));
    assert_eq!(secret["type"], "Opaque");
    let table = kubectl.run(&["get", "secrets", "-A"]).await?;
    assert!(table.contains("gitops-system   sops-gpg   Opaque   1 "), "{table}");

    let manifest =
        "apiVersion: v1\nkind: Secret\nmetadata: {name: git}\nstringData: {username: me, password: one}\n";
    kubectl.apply(manifest).await?;
    kubectl.apply(&manifest.replace("one", "two")).await?;
    let secret = kubectl.get(&["secret", "git"]).await?;
    assert_eq!(secret["data"], json!({ "username": "bWU=", "password": "dHdv" }));
    kubectl.run(&["patch", "secret", "git", "-p", r#"{"data":{"username":null}}"#]).await?;
    let secret = kubectl.get(&["secret", "git"]).await?;
    assert_eq!(secret["data"], json!({ "password": "dHdv" }));
    let error =
        kubectl.run(&["patch", "secret", "git", "-p", r#"{"type":"x/y"}"#]).await.unwrap_err().to_string();
    assert!(error.contains("type: Invalid value: \"x/y\": field is immutable"), "{error}");
    kubectl.run(&["delete", "secret", "git"]).await?;

    kubectl
        .apply(
            "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {name: edge-1}\nspec: {}\n",
        )
        .await?;
    let table = kubectl.run(&["get", "clusters"]).await?;
    assert!(table.starts_with("NAME     CONNECTED   KUBERNETES   AGENT   AGE"), "{table}");
    kubectl.run(&["get", "all", "-A"]).await?;

    let resources = kubectl.run(&["api-resources"]).await?;
    let resources: Vec<Vec<&str>> = resources.lines().map(|line| line.split_whitespace().collect()).collect();
    for line in [
        vec!["kustomizations", "ks", "kustomize.toolkit.fluxcd.io/v1", "true", "Kustomization"],
        vec!["clusters", "fleet.roadstead.dev/v1alpha1", "false", "Cluster"],
    ] {
        assert!(resources.contains(&line), "{line:?} is not in: {resources:?}");
    }
    assert!(kubectl.run(&["api-versions"]).await?.contains("kustomize.toolkit.fluxcd.io/v1alpha1"));
    let text = kubectl.run(&["explain", "kustomization.spec.decryption"]).await?;
    assert!(text.contains("provider") && text.contains("enum: sops"), "{text}");
    let text = kubectl
        .run(&["explain", "ks.spec.validation", "--api-version=kustomize.toolkit.fluxcd.io/v1alpha1"])
        .await?;
    assert!(text.contains("client"), "{text}");
    kubectl.run(&["version"]).await?;

    kubectl.run(&["delete", "namespace", "gitops-system", "--wait=false"]).await?;
    let namespace = kubectl.get(&["ns", "gitops-system"]).await?;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let line = ["-n", "gitops-system", "create", "secret", "generic", "late", "--from-literal=a=b"];
    let error = kubectl.run(&line).await.unwrap_err().to_string();
    assert!(error.contains("is being deleted"), "{error}");
    // The background task's step; the hub runs it.
    let uid = namespace["metadata"]["uid"].as_str().unwrap_or_default().parse()?;
    eventually("the namespace is gone", Duration::from_secs(20), || async {
        replica.hub.objects.process_namespace(uid).await?;
        match kubectl.run(&["get", "ns", "gitops-system"]).await {
            Err(_) => Ok(()),
            Ok(table) => anyhow::bail!("still there: {table}"),
        }
    })
    .await?;
    let error = kubectl.run(&["delete", "ns", "default"]).await.unwrap_err().to_string();
    assert!(error.contains("Forbidden"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_watch_shows_changes_as_they_come() -> Result<()> {
    let site = Site::new().await?;
    let (replica, other) = (site.replica().await?, site.replica().await?);
    replica.kubectl.apply(PODINFO).await?;
    let mut child = replica.kubectl.spawn(&["get", "ks", "-w", "-o", "json", "--output-watch-events"])?;
    let stdout = child.stdout.take().context("stdout is a pipe")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut seen = String::new();
    // Written through the other replica.
    let change = async {
        eventually("the watch has begun", Duration::from_secs(30), || async {
            other.kubectl.run(&["annotate", "--overwrite", "ks/podinfo", "fluxcd.io/reconcileAt=7"]).await
        })
        .await?;
        other
            .kubectl
            .run(&["patch", "ks", "podinfo", "--type=merge", "-p", r#"{"metadata":{"finalizers":[]}}"#])
            .await?;
        other.kubectl.run(&["delete", "ks", "podinfo"]).await
    };
    let read = async {
        while let Some(line) = lines.next_line().await? {
            seen.push_str(&line);
            if seen.contains("DELETED") {
                return anyhow::Ok(());
            }
        }
        anyhow::bail!("the watch ended by itself: {seen}")
    };
    let (changed, read) =
        tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(change, read) }).await?;
    changed?;
    read?;
    Ok(())
}

/// kubectl makes quotas in protobuf.
#[tokio::test]
async fn quotas_are_made_and_described() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let hard = "--hard=count/configmaps=1,count/sources.fleet.roadstead.dev=2";
    kubectl.run(&["create", "quota", "team", hard]).await?;
    kubectl.run(&["create", "configmap", "one"]).await?;
    let error = kubectl.run(&["create", "configmap", "two"]).await.err().context("it is made")?.to_string();
    ensure!(
        error.contains("exceeded quota: team, requested: count/configmaps=1, used: count/configmaps=1"),
        "{error}"
    );
    let told = kubectl.run(&["describe", "quota", "team"]).await?;
    let numbers = |what: &str| {
        let line = told.lines().find(|line| line.contains(what)).unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    ensure!(numbers("count/configmaps") == ["1", "1"], "{told}");
    ensure!(numbers("count/sources.fleet.roadstead.dev") == ["0", "2"], "{told}");
    // What nothing here has is not passed over.
    let scoped = ["create", "quota", "scoped", "--hard=count/configmaps=1", "--scopes=BestEffort"];
    ensure!(kubectl.run(&scoped).await.is_err(), "a scope is passed over");
    Ok(())
}
