//! A walk through the document of Flux's kustomize-controller about its API v1alpha1, from its first YAML document to its last log line,
//! on a hub: what it says to apply is applied as it stands there, and what it shows is compared. Line numbers are those of the document.
//!
//! Left out are `## Secrets decryption` (lines 482 to 526), which `decryption::the_walk_through_of_the_specification` walks through, and
//! the Go types (lines 12 to 186), which are the schema (`roadstead-api` holds them against examples). What a hub says in other words is
//! in [`OTHER_WORDS`], each with the reason.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{Fleet, Kubectl, PATIENCE, TestNamespace, eventually, git_repository};
use serde_json::Value;

mod documents;

use documents::*;

/// The kind as the document has it.
const LEGACY: &str = "kustomizations.v1alpha1.kustomize.toolkit.fluxcd.io";

/// What the document shows and a hub says otherwise: the lines, what they say, what is said instead, and why.
const OTHER_WORDS: &[(&str, &str, &str, &str)] = &[
    (
        "575, 593",
        "The Service 'backend' is invalid: spec.type: Unsupported value: 'Ingress'",
        "Service/dev/backend is invalid: spec.type: Unsupported value: \"Ingress\": supported values: \"ClusterIP\", \"ExternalName\", \
         \"LoadBalancer\", \"NodePort\"",
        "The document shows what kubectl made of the answer of an API server of 2020. The object is named as Flux's v1 names it, with its \
         namespace, and the rest is the API server's answer as it is.",
    ),
    (
        "538",
        "lastTransitionTime: \"2020-09-17T19:28:48Z\" and nothing more",
        "with observedGeneration",
        "Conditions have it since v1beta1, and clients of v1alpha1 ignore it.",
    ),
];

/// The walk: a fleet, and the namespaces of the document, which lie on the cluster until the value is dropped.
struct Walk {
    fleet: Fleet,
    webapp: Repository,
    _namespaces: Vec<TestNamespace>,
}

impl Walk {
    async fn begin() -> Result<Self> {
        let fleet = Fleet::start("specification").await?;
        let named = ["dev", "webapp", "istio-system"].map(|name| fleet.cluster.named_namespace(name));
        // Those of an earlier run go in the background.
        for space in &named {
            eventually("nothing is left of an earlier run", PATIENCE, || async {
                let args = ["get", "namespace", space.name(), "--ignore-not-found", "-o", "name"];
                let left = fleet.cluster.kubectl().run(&args).await?;
                ensure!(left.is_empty(), "{left}");
                Ok(())
            })
            .await?;
        }
        let kubectl = fleet.kubectl();
        kubectl.run(&["create", "namespace", "istio-system"]).await?;
        // The document knows one cluster, the controller's own.
        for namespace in ["default", "istio-system"] {
            let default = ["annotate", "namespace", namespace, "fleet.roadstead.dev/default-cluster=edge"];
            kubectl.run(&default).await?;
        }
        let webapp = fleet.git.add_repository("webapp.git")?;
        let walk = Self { fleet, webapp, _namespaces: named.into() };
        let common = Commit::new()
            .file("webapp/common/rights.yaml", RIGHTS)
            .file("webapp/common/dev.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: dev}\n");
        let common = common.file("webapp/backend/service.yaml", service("dev", "ClusterIP"));
        let common = common.file("webapp/backend/deployment.yaml", deployment("dev", ""));
        walk.commit(&common.file("webapp/backend/scaler.yaml", SCALER))?;
        walk.source("default", "webapp").await?;
        Ok(walk)
    }

    fn kubectl(&self) -> &Kubectl {
        self.fleet.kubectl()
    }

    /// The document's revisions are of a branch `master`.
    fn commit(&self, commit: &Commit) -> Result<String> {
        self.webapp.commit("master", "Change", commit)
    }

    async fn source(&self, namespace: &str, name: &str) -> Result<()> {
        let pem = self.fleet.git.ca_pem().context("a server over HTTPS")?;
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "git", "namespace": namespace },
            "stringData": { "ca.crt": pem },
        });
        self.kubectl().apply(&secret.to_string()).await?;
        let url = self.fleet.git.url(&format!("{name}.git"));
        let source =
            git_repository(name, &url, "secretRef: {name: git}").replace("branch: main", "branch: master");
        self.kubectl().run_with(&["apply", "--namespace", namespace, "-f", "-"], &source).await.map(drop)
    }

    async fn push(&self, commit: &Commit) -> Result<String> {
        let commit = self.commit(commit)?;
        let now = format!("reconcile.fluxcd.io/requestedAt={commit}");
        self.kubectl().run(&["annotate", "--overwrite", "gitrepository/webapp", &now]).await?;
        Ok(commit)
    }

    async fn get(&self, name: &str) -> Result<Value> {
        self.kubectl().get(&[&format!("{LEGACY}/{name}")]).await
    }

    /// Waits until Ready is this, for the newest generation, and the newest revision was attempted.
    async fn settles(&self, name: &str, status: &str, reason: &str, commit: &str) -> Result<Value> {
        let what = format!("{name} has Ready {status} {reason} at {commit}");
        let seen = eventually(&what, PATIENCE, || async {
            let seen = self.get(name).await?;
            let ready = ready(&seen)?;
            let attempted = seen["status"]["lastAttemptedRevision"].as_str().unwrap_or_default();
            let is_so = ready["status"] == status
                && ready["reason"] == reason
                && ready["observedGeneration"] == seen["metadata"]["generation"]
                && attempted.ends_with(commit);
            ensure!(is_so, "{:#}", seen["status"]);
            Ok(seen)
        });
        seen.await.with_context(|| self.fleet.tails())
    }

    /// Whether an object is on the cluster.
    async fn has(&self, namespace: &str, object: &str) -> Result<bool> {
        let args = ["get", object, "--namespace", namespace, "--ignore-not-found", "-o", "name"];
        Ok(!self.fleet.cluster.kubectl().run(&args).await?.trim().is_empty())
    }
}

fn ready(object: &Value) -> Result<&Value> {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|one| one["type"] == "Ready").context("no condition Ready")
}

fn service(namespace: &str, type_: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: backend, namespace: {namespace}}}\nspec:\n  type: {type_}\n  ports: [{{port: \
         80}}]\n"
    )
}

/// A Deployment whose rollout fails within seconds if it does.
fn deployment(namespace: &str, annotations: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: backend, namespace: {namespace}}}\nspec:\n  progressDeadlineSeconds: 3\n  \
         selector: {{matchLabels: {{app: backend}}}}\n  template:\n    metadata: {{labels: {{app: backend}}, annotations: \
         {{{annotations}}}}}\n    spec: {{containers: [{{name: web, image: \"registry.example/web:1\"}}]}}\n"
    )
}

#[tokio::test]
async fn every_line_of_the_v1alpha1_document_holds() -> Result<()> {
    let walk = Walk::begin().await?;
    let head = dependencies(&walk).await.context("lines 318 to 361")?;
    status(&walk, &head).await.context("lines 528 to 596")?;
    on_demand(&walk).await.context("lines 214 to 246")?;
    health(&walk).await.context("lines 248 to 316")?;
    across_namespaces(&walk).await.context("lines 363 to 402")?;
    account(&walk).await.context("lines 404 to 480")
}

/// Kustomization dependencies: the first is applied before the second, which lies in a namespace that the first makes. Gives the commit.
async fn dependencies(walk: &Walk) -> Result<String> {
    // What depends on something waits for it: in this order nothing could be right by chance.
    let (common, backend) = DEPENDENCIES.split_once("---\n").context("two documents")?;
    walk.kubectl().apply(backend).await?;
    let waits = eventually("it waits for what it depends on", PATIENCE, || async {
        let seen = walk.get("backend").await?;
        let ready = ready(&seen)?.clone();
        ensure!(ready["status"] == "False" && ready["reason"] == "DependencyNotReady", "{ready}");
        Ok(ready)
    });
    let message = waits.await?["message"].clone();
    ensure!(message == "dependency 'default/common' not found", "{message}");
    walk.kubectl().apply(common).await?;
    // Line 549.
    walk.kubectl().run(&["wait", "kustomization/backend", "--for=condition=ready", "--timeout=60s"]).await?;
    ensure!(walk.has("dev", "deployment/backend").await?, "it is Ready and not applied");
    let head = walk.webapp.git(["rev-parse", "master"], &[], b"")?;
    let head = head.trim().to_owned();
    walk.settles("common", "True", "ReconciliationSucceeded", &head).await?;
    Ok(head)
}

/// The status of what went well and of what failed, and the lines in the log.
async fn status(walk: &Walk, head: &str) -> Result<()> {
    let (old, new) = (format!("master/{head}"), "ReconciliationSucceeded");
    let seen = walk.settles("backend", "True", new, head).await?;
    // Lines 535 to 543.
    ensure_says(&seen, &format!("Applied revision: {old}"), &old, &old)?;
    // Lines 555 to 566.
    let line = walk.fleet.log_line("default/backend", |line| !line["output"].is_null()).await?;
    ensure!(keys(&line) == ["kustomization", "level", "logger", "msg", "output", "ts"], "{line:#}");
    ensure!(line["level"] == "info" && line["logger"] == "controllers.Kustomization", "{line:#}");
    let message = line["msg"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Kustomization applied in ") && message.ends_with('s'), "{line:#}");
    let created = serde_json::json!({
        "service/backend": "created",
        "deployment.apps/backend": "created",
        "horizontalpodautoscaler.autoscaling/backend": "created",
    });
    ensure!(line["output"] == created, "{line:#}");

    let bad =
        walk.push(&Commit::new().file("webapp/backend/service.yaml", service("dev", "Ingress"))).await?;
    let seen = walk.settles("backend", "False", "ValidationFailed", &bad).await?;
    // Lines 572 to 581, and the note on line 583.
    let other = OTHER_WORDS[0];
    ensure_says(&seen, other.2, &old, &format!("master/{bad}"))
        .with_context(|| format!("lines {}, {:?}: {}", other.0, other.1, other.3))?;
    // Lines 588 to 595.
    let line = walk.fleet.log_line("default/backend", |line| line["level"] == "error").await?;
    ensure!(keys(&line) == ["error", "kustomization", "level", "logger", "ts"], "{line:#}");
    ensure!(line["error"] == other.2 && line["logger"] == "controllers.Kustomization", "{line:#}");
    // Line 585: an event is issued, too.
    eventually("an event of the failure", PATIENCE, || async {
        let selector = "involvedObject.name=backend,type=Warning,reason=ValidationFailed";
        let events = ["get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}"];
        let events = walk.kubectl().run(&events).await?;
        ensure!(events == other.2, "{events}");
        Ok(())
    })
    .await?;
    let good =
        walk.push(&Commit::new().file("webapp/backend/service.yaml", service("dev", "ClusterIP"))).await?;
    walk.settles("backend", "True", "ReconciliationSucceeded", &good).await.map(drop)
}

/// What the document shows of a status, with the keys that it shows.
fn ensure_says(seen: &Value, message: &str, applied: &str, attempted: &str) -> Result<()> {
    let ready = ready(seen)?;
    ensure!(ready["message"] == message, "{ready} is not {message}");
    let known = ["lastTransitionTime", "message", "observedGeneration", "reason", "status", "type"];
    ensure!(keys(ready) == known, "{ready}: {}", OTHER_WORDS[1].3);
    let time = ready["lastTransitionTime"].as_str().unwrap_or_default();
    ensure!(time.len() == "2020-09-17T19:28:48Z".len() && time.ends_with('Z'), "{ready}");
    ensure!(seen["status"]["lastAppliedRevision"] == applied, "{:#}", seen["status"]);
    ensure!(seen["status"]["lastAttemptedRevision"] == attempted, "{:#}", seen["status"]);
    Ok(())
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

/// Reconciliation: by the annotation, and not while it is suspended; and garbage collection.
async fn on_demand(walk: &Walk) -> Result<()> {
    let podinfo =
        Commit::new().file("podinfo/map.yaml", roadstead_tests::config_map("dev", "podinfo", "one"));
    let podinfo = podinfo.file("podinfo/other.yaml", roadstead_tests::config_map("dev", "other", "one"));
    let commit = walk.push(&podinfo).await?;
    let document = DEPENDENCIES.split_once("---\n").context("two documents")?.0;
    let document =
        document.replace("name: common", "name: podinfo").replace("./webapp/common/", "./podinfo/");
    walk.kubectl().apply(&document).await?;
    walk.settles("podinfo", "True", "ReconciliationSucceeded", &commit).await?;
    walk.fleet.cluster.kubectl().run(&["delete", "configmap/podinfo", "--namespace", "dev"]).await?;
    // Line 236, by a shell.
    let line = r#""$0" annotate --overwrite kustomization/podinfo fluxcd.io/reconcileAt="$(date +%s)""#;
    let mut shell = tokio::process::Command::new("sh");
    let kubectl = walk.kubectl().command(&[]);
    shell.arg("-c").arg(line).arg(kubectl.as_std().get_program());
    shell.env("KUBECONFIG", walk.kubectl().kubeconfig());
    let output = shell.output().await.context("run a shell")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(said == "kustomization.kustomize.toolkit.fluxcd.io/podinfo annotated", "{said} {error}");
    eventually("the request is handled", PATIENCE, || async {
        let seen = walk.get("podinfo").await?;
        let asked = &seen["metadata"]["annotations"]["fluxcd.io/reconcileAt"];
        ensure!(asked.is_string() && seen["status"]["lastHandledReconcileAt"] == *asked, "{seen:#}");
        Ok(())
    })
    .await?;
    ensure!(walk.has("dev", "configmap/podinfo").await?, "it was handled and not applied");

    // Line 220 writes `spec.susped`; the field of line 55 is meant, and the other one is refused by name.
    let slip = walk.kubectl().apply(&document.replace("spec:\n", "spec:\n  susped: true\n")).await;
    let refused = format!("{:#}", slip.err().context("an unknown field was taken")?);
    ensure!(refused.contains("susped"), "{refused}");
    let suspend = |on: bool| format!(r#"{{"spec":{{"suspend":{on}}}}}"#);
    walk.kubectl().run(&["patch", "kustomization/podinfo", "--type=merge", "-p", &suspend(true)]).await?;
    let dropped = walk.push(&Commit::new().remove("podinfo/other.yaml")).await?;
    // What shares the source has it, and it has not.
    walk.settles("common", "True", "ReconciliationSucceeded", &dropped).await?;
    ensure!(walk.has("dev", "configmap/other").await?, "it is suspended and was reconciled");
    walk.kubectl().run(&["patch", "kustomization/podinfo", "--type=merge", "-p", &suspend(false)]).await?;
    walk.settles("podinfo", "True", "ReconciliationSucceeded", &dropped).await?;
    // Lines 239 to 246: what left the source goes, and all of it goes with the Kustomization.
    ensure!(!walk.has("dev", "configmap/other").await?, "what left the source is there");
    walk.kubectl().run(&["delete", "kustomization/podinfo", "--timeout=60s"]).await?;
    ensure!(!walk.has("dev", "configmap/podinfo").await?, "its objects outlive it");
    Ok(())
}

/// Health assessment: a rollout that fails and one that does not, and kinds of a toolkit.
async fn health(walk: &Walk) -> Result<()> {
    let well = walk.push(&Commit::new().file("note", "one")).await?;
    walk.kubectl().apply(HEALTH_CHECKS).await?;
    walk.settles("backend", "True", "ReconciliationSucceeded", &well).await?;
    let never = deployment("dev", "devcluster.roadstead.dev/never-ready: ImagePullBackOff");
    let bad = walk.push(&Commit::new().file("webapp/backend/deployment.yaml", never)).await?;
    walk.settles("backend", "False", "HealthCheckFailed", &bad).await?;
    let good = Commit::new().file("webapp/backend/deployment.yaml", deployment("dev", ""));
    let good = walk.push(&good).await?;
    let cluster = walk.fleet.cluster.kubectl();
    eventually("the Deployment is healthy again", PATIENCE, || async {
        let seen = cluster.get(&["deployment/backend", "--namespace", "dev"]).await?;
        let (status, conditions) = (&seen["status"], seen["status"]["conditions"].to_string());
        ensure!(status["updatedReplicas"] == 1 && status["readyReplicas"] == 1, "{status:#}");
        ensure!(!conditions.contains("ProgressDeadlineExceeded"), "{status:#}");
        Ok(())
    })
    .await?;
    // Line 286: healthy on the next execution. The one before may have found the rollout that had failed.
    let again = "fluxcd.io/reconcileAt=healthy";
    walk.kubectl().run(&["annotate", "--overwrite", "kustomization/backend", again]).await?;
    walk.settles("backend", "True", "ReconciliationSucceeded", &good).await?;

    cluster.apply(HELM_RELEASE_KIND).await?;
    let wait =
        ["wait", "--for=condition=Established", "--timeout=60s", "crd/helmreleases.helm.toolkit.fluxcd.io"];
    cluster.run(&wait).await?;
    for name in ["frontend", "backend"] {
        let release = format!(
            "apiVersion: helm.toolkit.fluxcd.io/v1alpha1\nkind: HelmRelease\nmetadata: {{name: {name}, namespace: dev}}\n"
        );
        cluster.apply(&release).await?;
    }
    is_released(walk, "frontend", "True").await?;
    is_released(walk, "backend", "False").await?;
    let map = roadstead_tests::config_map("dev", "releases", "one");
    let releases = walk.push(&Commit::new().file("releases/map.yaml", map)).await?;
    walk.kubectl().apply(HELM_RELEASES).await?;
    eventually("the second release is waited for", PATIENCE, || async {
        let seen = walk.get("webapp").await?;
        ensure!(ready(&seen)?["reason"] == "Progressing", "{:#}", seen["status"]);
        ensure!(seen["status"].to_string().contains("Running health checks"), "{:#}", seen["status"]);
        ensure!(walk.has("dev", "configmap/releases").await?, "nothing was applied yet");
        Ok(())
    })
    .await?;
    is_released(walk, "backend", "True").await?;
    walk.settles("webapp", "True", "ReconciliationSucceeded", &releases).await?;
    walk.kubectl().run(&["delete", "kustomization/webapp", "--timeout=60s"]).await?;
    cluster.run(&["delete", "crd/helmreleases.helm.toolkit.fluxcd.io", "--timeout=60s"]).await.map(drop)
}

/// Has a HelmRelease say whether it is released, as Flux's helm-controller does.
async fn is_released(walk: &Walk, name: &str, ready: &str) -> Result<()> {
    let condition = serde_json::json!({ "status": { "conditions": [{
        "type": "Ready", "status": ready, "reason": "Released", "message": "", "lastTransitionTime": "2020-09-17T19:28:48Z",
    }] } });
    let (object, patch) = (format!("helmrelease/{name}"), condition.to_string());
    let args = ["patch", &object, "--namespace", "dev", "--subresource=status", "--type=merge", "-p", &patch];
    walk.fleet.cluster.kubectl().run(&args).await.map(drop)
}

/// A dependency in another namespace, with a health check.
async fn across_namespaces(walk: &Walk) -> Result<()> {
    let istio = walk.fleet.git.add_repository("istio.git")?;
    let istiod = deployment("istio-system", "").replace("backend", "istiod");
    let files = Commit::new()
        .file(
            "profiles/default/namespace.yaml",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n",
        )
        .file("profiles/default/istiod.yaml", istiod);
    let profile = istio.commit("master", "First", &files)?;
    // The second document first: it waits for the first one, which has no source yet.
    let (of_istio, of_backend) = ISTIO.split_once("---\n").context("two documents")?;
    walk.kubectl().apply(of_backend).await?;
    eventually("it waits for what it depends on", PATIENCE, || async {
        let seen = walk.get("backend").await?;
        let ready = ready(&seen)?;
        ensure!(ready["reason"] == "DependencyNotReady", "{ready}");
        ensure!(ready["message"] == "dependency 'istio-system/istio' not found", "{ready}");
        Ok(())
    })
    .await?;
    walk.kubectl().apply(of_istio).await?;
    walk.source("istio-system", "istio").await?;
    let head = walk.webapp.git(["rev-parse", "master"], &[], b"")?;
    walk.settles("backend", "True", "ReconciliationSucceeded", head.trim()).await?;
    let args = [&format!("{LEGACY}/istio"), "--namespace", "istio-system"];
    let seen = walk.kubectl().get(&args).await?;
    ensure!(ready(&seen)?["status"] == "True", "{:#}", seen["status"]);
    ensure!(seen["status"]["lastAppliedRevision"] == format!("master/{profile}"), "{:#}", seen["status"]);
    let available =
        walk.fleet.cluster.kubectl().get(&["deployment/istiod", "--namespace", "istio-system"]).await?;
    ensure!(available["status"]["readyReplicas"] == 1, "{:#}", available["status"]);
    walk.kubectl().run(&["delete", "kustomization/backend", "--timeout=60s"]).await.map(drop)
}

/// Role-based access control: the account of the Git source, what it may, and what it may not.
async fn account(walk: &Walk) -> Result<()> {
    let mine = Commit::new()
        .file("webapp/backend/service.yaml", service("webapp", "ClusterIP"))
        .file("webapp/backend/deployment.yaml", deployment("webapp", ""))
        .remove("webapp/backend/scaler.yaml");
    let mine = walk.push(&mine).await?;
    walk.kubectl().apply(ACCOUNT).await?;
    walk.settles("backend", "True", "ReconciliationSucceeded", &mine).await?;
    ensure!(walk.has("webapp", "deployment/backend").await?, "it is Ready and not applied");
    // Lines 477 to 480: an object of another namespace, and one of the whole cluster.
    let account = "system:serviceaccount:webapp:webapp-reconciler";
    let outside = roadstead_tests::config_map("dev", "outside", "one");
    let wide = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: of-the-webapp}\nprovisioner: none\n".to_owned();
    for (object, file) in [("ConfigMap/dev/outside", outside), ("StorageClass/of-the-webapp", wide)] {
        let commit = walk.push(&Commit::new().file("webapp/backend/outside.yaml", file)).await?;
        let seen = walk.settles("backend", "False", "ReconciliationFailed", &commit).await?;
        let message = ready(&seen)?["message"].as_str().unwrap_or_default();
        ensure!(message.contains(object) && message.contains(account), "{message}");
    }
    ensure!(!walk.has("dev", "configmap/outside").await?, "it was applied");
    ensure!(!walk.has("dev", "storageclass/of-the-webapp").await?, "it was applied");
    let mended = walk.push(&Commit::new().remove("webapp/backend/outside.yaml")).await?;
    walk.settles("backend", "True", "ReconciliationSucceeded", &mended).await?;
    walk.kubectl().run(&["delete", "kustomization/backend", "--timeout=60s"]).await?;
    ensure!(!walk.has("webapp", "deployment/backend").await?, "its objects outlive it");
    Ok(())
}
