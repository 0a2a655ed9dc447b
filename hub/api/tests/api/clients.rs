//! Foreign clients, unchanged, against the hub's API: the `flux` command, Python's client, and kube-rs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use crate::support::{Replica, Site};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tokio::process::Command;

/// A file of the folder that `tests/clients/install.sh` made.
fn installed(path: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("ROADSTEAD_TEST_CLIENTS")
        .context("ROADSTEAD_TEST_CLIENTS is not set: run the tests by `make test`")?;
    Ok(PathBuf::from(folder).join(path))
}

async fn flux(replica: &Replica, args: &[&str]) -> Result<String> {
    let mut command = Command::new(installed("bin/flux")?);
    command.arg("--kubeconfig").arg(replica.kubectl.kubeconfig()).args(["--namespace", "default"]).args(args);
    let output =
        tokio::time::timeout(Duration::from_secs(120), command.kill_on_drop(true).output()).await??;
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "flux {args:?}: {out}{error}");
    Ok(format!("{out}{error}"))
}

const OBJECTS: &str = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: web}
spec: {interval: 5m, url: "https://git.example.com/web.git"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web}
spec: {interval: 5m, prune: true, sourceRef: {kind: GitRepository, name: web}}
"#;

fn status(reason: &str, handled: &str, generation: u64) -> String {
    json!({ "status": {
        "observedGeneration": generation, "lastHandledReconcileAt": handled,
        "lastAppliedRevision": "main@sha1:a1afe267b54f38b46b487f6e938a6fd508278c07",
        "inventory": { "entries": [{ "id": "prod_web_apps_Deployment", "v": "v1" }] },
        "conditions": [{
            "type": "Ready", "status": "True", "reason": reason, "observedGeneration": generation,
            "message": "Applied revision: main@sha1:a1afe267b54f38b46b487f6e938a6fd508278c07",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }],
    }})
    .to_string()
}

/// What the hub's background tasks would do: answers each request to reconcile.
async fn reconcile(replica: &Replica) -> Result<()> {
    loop {
        let object = replica.kubectl.get(&["ks", "web"]).await?;
        let wanted =
            object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].as_str().unwrap_or_default();
        let generation = object["metadata"]["generation"].as_u64().unwrap_or_default();
        let status_now = &object["status"];
        if status_now["lastHandledReconcileAt"] != wanted || status_now["observedGeneration"] != generation {
            let patch = status("ReconciliationSucceeded", wanted, generation);
            let args = ["patch", "ks", "web", "--subresource=status", "--type=merge", "-p", &patch];
            replica.kubectl.run(&args).await?;
        }
    }
}

#[tokio::test]
async fn the_flux_command() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    let patch = status("ReconciliationSucceeded", "", 1);
    replica
        .kubectl
        .run(&["patch", "ks", "web", "--subresource=status", "--type=merge", "-p", &patch])
        .await?;

    let table = flux(&replica, &["get", "kustomizations"]).await?;
    assert!(
        table.contains("web") && table.contains("True") && table.contains("main@sha1:a1afe267"),
        "{table}"
    );
    let table = flux(&replica, &["get", "sources", "git"]).await?;
    assert!(table.contains("web"), "{table}");
    for kind in [["sources", "oci"], ["sources", "helm"], ["sources", "bucket"], ["sources", "chart"]] {
        // Without objects it says so and fails: anything else would be an error of the API.
        let error = flux(&replica, &["get", kind[0], kind[1]]).await.unwrap_err().to_string();
        assert!(error.contains("no ") && error.contains("found"), "{error}");
    }
    flux(&replica, &["get", "all"]).await?;

    let out = flux(&replica, &["suspend", "kustomization", "web"]).await?;
    assert!(out.contains("kustomization suspended"), "{out}");
    assert_eq!(replica.kubectl.get(&["ks", "web"]).await?["spec"]["suspend"], true);
    let acted = async {
        let out = flux(&replica, &["resume", "kustomization", "web"]).await?;
        ensure!(out.contains("applied revision main@sha1:a1afe267"), "{out}");
        let out = flux(&replica, &["reconcile", "kustomization", "web"]).await?;
        ensure!(out.contains("applied revision main@sha1:a1afe267"), "{out}");
        Ok(())
    };
    tokio::select! {
        acted = acted => acted?,
        failed = reconcile(&replica) => failed?,
    }

    let tree = flux(&replica, &["tree", "kustomization", "web"]).await?;
    assert!(tree.contains("Kustomization/default/web") && tree.contains("Deployment/prod/web"), "{tree}");
    let uid = replica.kubectl.get(&["ks", "web"]).await?["metadata"]["uid"].clone();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "web.1", "namespace": "default" },
        "involvedObject": { "kind": "Kustomization", "name": "web", "namespace": "default", "uid": uid,
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1" },
        "reason": "ReconciliationSucceeded", "message": "All is as it should be.", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    });
    replica.kubectl.run_with(&["create", "-f", "-"], &event.to_string()).await?;
    let events = flux(&replica, &["events", "--for", "Kustomization/web"]).await?;
    assert!(events.contains("All is as it should be."), "{events}");
    let described = replica.kubectl.run(&["describe", "ks", "web"]).await?;
    assert!(described.contains("All is as it should be."), "{described}");
    Ok(())
}

#[tokio::test]
async fn pythons_client_lists_and_watches() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients/list_and_watch.py");
    let mut command = Command::new(installed("python/bin/python")?);
    command.arg(script).arg(replica.kubectl.kubeconfig()).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(120), command.output()).await??;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let saw: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        saw,
        json!({ "names": ["a", "b", "c"], "events": [["ADDED", false], ["MODIFIED", true]],
            "refused": [404, "NotFound"], "version": "1" })
    );
    Ok(())
}

#[tokio::test]
async fn kube_rs_watches_and_reflects() -> Result<()> {
    let site = Site::new().await?;
    let (replica, other) = (site.replica().await?, site.replica().await?);
    let kubeconfig = kube::config::Kubeconfig::read_from(replica.kubectl.kubeconfig())?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("kustomize.toolkit.fluxcd.io", "v1", "Kustomization"));
    let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    replica.kubectl.apply(OBJECTS).await?;

    for settings in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let writer = reflector::store::Writer::new(kind.clone());
        let store = writer.as_reader();
        let mut changes = pin!(reflector(writer, watcher(api.clone(), settings)).applied_objects());
        let names = || -> BTreeSet<String> {
            store.state().iter().filter_map(|object| object.metadata.name.clone()).collect()
        };
        let first = tokio::time::timeout(Duration::from_secs(30), changes.next())
            .await?
            .context("a first object")??;
        assert_eq!(first.metadata.name.as_deref(), Some("web"));
        // Written through the other replica.
        other
            .kubectl
            .apply(&OBJECTS.replace(
                "{name: web}\nspec: {interval: 5m, prune",
                "{name: late}\nspec: {interval: 5m, prune",
            ))
            .await?;
        let late = tokio::time::timeout(Duration::from_secs(30), changes.next())
            .await?
            .context("a second object")??;
        assert_eq!(late.metadata.name.as_deref(), Some("late"));
        other
            .kubectl
            .run(&["patch", "ks", "late", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
            .await?;
        other.kubectl.run(&["delete", "ks", "late"]).await?;
        let read = async { while changes.next().await.is_some() {} };
        tokio::select! {
            () = read => {}
            gone = eventually("the deleted object is gone from the store", Duration::from_secs(30), || async {
                ensure!(names() == BTreeSet::from(["web".to_owned()]), "{:?}", names());
                Ok(())
            }) => gone?,
        }
    }
    Ok(())
}
