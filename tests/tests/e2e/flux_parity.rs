//! The same Kustomizations with the same content, reconciled by Flux's own kustomize-controller and by a hub: what both tell of them, side
//! by side.

mod differences;
mod pair;
mod passed;

use anyhow::{Context, Result};
use futures::future::join_all;
use roadstead_tests::{Fleet, FluxController, TestCluster, config_map};

use crate::parity::{Finding, judge};
use differences::DIFFERENCES;
use pair::Pair;

const SUCCEEDED: &str = "True ReconciliationSucceeded";

/// All scenarios. Each has a Kustomization and a source of its name.
const SCENARIOS: &[&str] = &[
    "success",
    "broken",
    "nowhere",
    "refused",
    "sick",
    "depends",
    "suspend",
    "unsourced",
    "variables",
    "deleted",
    "rightless",
    "expression",
];

async fn run(pair: &Pair<'_>) -> Result<()> {
    match pair.name {
        "success" => success(pair).await,
        "broken" => broken(pair).await,
        "nowhere" => nowhere(pair).await,
        "refused" => refused(pair).await,
        "sick" => sick(pair).await,
        "depends" => depends(pair).await,
        "suspend" => suspend(pair).await,
        "unsourced" => unsourced(pair).await,
        "variables" => variables(pair).await,
        "deleted" => deleted(pair).await,
        "rightless" => rightless(pair).await,
        "expression" => expression(pair).await,
        other => anyhow::bail!("there is no scenario {other}"),
    }
}

fn map(pair: &Pair<'_>, suffix: &str, word: &str) -> Option<String> {
    Some(config_map(pair.ns, &format!("{}-{suffix}", pair.name), word))
}

fn deployment(pair: &Pair<'_>, annotations: &str) -> Option<String> {
    let (ns, name) = (pair.ns, pair.name);
    Some(format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {ns}}}\nspec:\n  replicas: 1\n  selector: \
         {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}, annotations: {{{annotations}}}}}\n    \
         spec: {{containers: [{{name: web, image: \"registry.example/web:1\"}}]}}\n"
    ))
}

/// The first revision, the next one, one that drops an object, a request, and a new spec.
async fn success(pair: &Pair<'_>) -> Result<()> {
    pair.watch()?;
    pair.push(&[("app/one.yaml", map(pair, "one", "first")), ("app/two.yaml", map(pair, "two", "first"))])
        .await?;
    pair.kustomization("event.toolkit.fluxcd.io/stage: test", &["path: ./app"]).await?;
    pair.same("first", SUCCEEDED, "REVISION-1").await?;
    pair.push(&[("app/one.yaml", map(pair, "one", "second"))]).await?;
    pair.same("next", SUCCEEDED, "REVISION-2").await?;
    pair.push(&[("app/two.yaml", None)]).await?;
    pair.same("dropped", SUCCEEDED, "REVISION-3").await?;
    pair.ask().await?;
    pair.same("asked", SUCCEEDED, "REVISION-3").await?;
    pair.push(&[("README.md", Some("nothing of the build".to_owned()))]).await?;
    pair.same("elsewhere", SUCCEEDED, "REVISION-4").await?;
    let patch =
        "patches: [{patch: \"- {op: add, path: /data/more, value: here}\", target: {kind: ConfigMap}}]";
    let lines = ["path: ./app", patch];
    pair.kustomization("event.toolkit.fluxcd.io/stage: test", &lines).await?;
    pair.ask().await?;
    pair.same("spec", SUCCEEDED, "REVISION-4").await
}

/// A build that fails, and the one before it again.
async fn broken(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("well", SUCCEEDED, "REVISION-1").await?;
    pair.push(&[("app/kustomization.yaml", Some("resources: [missing.yaml]\n".to_owned()))]).await?;
    pair.same("failed", "False BuildFailed", "missing.yaml").await?;
    pair.push(&[("app/kustomization.yaml", None)]).await?;
    pair.same("mended", SUCCEEDED, "REVISION-3").await
}

/// A path that is not there yet.
async fn nowhere(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("elsewhere/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("missing", "False ArtifactFailed", "path not found").await?;
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.same("there", SUCCEEDED, "REVISION-2").await
}

/// An object that the API server refuses.
async fn refused(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("well", SUCCEEDED, "REVISION-1").await?;
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {}, namespace: {}}}\nspec: {{type: Ingress, ports: [{{port: 80}}]}}\n",
        pair.name, pair.ns
    );
    pair.push(&[("app/service.yaml", Some(service))]).await?;
    pair.same("refused", "False ReconciliationFailed", "Unsupported value").await?;
    pair.push(&[("app/service.yaml", None)]).await?;
    pair.same("mended", SUCCEEDED, "REVISION-3").await
}

/// A Deployment that does not get ready in time, while it is waited for, and once it is mended.
async fn sick(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/web.yaml", deployment(pair, ""))]).await?;
    pair.kustomization("", &["path: ./app", "wait: true"]).await?;
    pair.same("well", SUCCEEDED, "REVISION-1").await?;
    let never = "devcluster.roadstead.dev/never-ready: ImagePullBackOff";
    pair.push(&[("app/web.yaml", deployment(pair, never))]).await?;
    pair.tell(&[("Healthy", "Unknown Progressing")], &[("Healthy.message", ": Deployment sick")]).await?;
    pair.same("waiting", "Unknown Progressing", "").await?;
    pair.same("failed", "False HealthCheckFailed", "timeout").await?;
    pair.push(&[("app/web.yaml", deployment(pair, ""))]).await?;
    pair.same("mended", SUCCEEDED, "REVISION-3").await
}

/// A dependency that is not there, that fails, and that is ready.
async fn depends(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app", "dependsOn: [{name: first}]"]).await?;
    pair.same("missing", "False DependencyNotReady", "not found").await?;
    pair.kustomization_named("first", "", &["path: ./first"]).await?;
    pair.same("not-ready", "False DependencyNotReady", "is not ready").await?;
    pair.push(&[("first/one.yaml", map(pair, "first", "first"))]).await?;
    pair.same("ready", SUCCEEDED, "REVISION-2").await
}

/// Suspended, with a new revision meanwhile, and resumed.
async fn suspend(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("well", SUCCEEDED, "REVISION-1").await?;
    pair.both(&["patch"], &["--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]).await?;
    pair.push(&[("app/one.yaml", map(pair, "one", "second"))]).await?;
    pair.ask().await?;
    pair.same("suspended", SUCCEEDED, "REVISION-1").await?;
    pair.both(&["patch"], &["--type=merge", "-p", r#"{"spec":{"suspend":false}}"#]).await?;
    pair.same("resumed", SUCCEEDED, "REVISION-2").await
}

/// A source that is not there, one without an artifact, and one with.
async fn unsourced(pair: &Pair<'_>) -> Result<()> {
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("no-source", "False ArtifactFailed", "not found").await?;
    // An empty repository has no branch.
    pair.source().await?;
    pair.ask().await?;
    pair.same("no-artifact", "False ArtifactFailed", "artifact not found").await?;
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.same("artifact", SUCCEEDED, "REVISION-1").await
}

/// Variables from a ConfigMap that is not there yet.
async fn variables(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "${word}"))]).await?;
    let from = "postBuild: {substituteFrom: [{kind: ConfigMap, name: values}]}";
    pair.kustomization("", &["path: ./app", from]).await?;
    pair.same("missing", "False BuildFailed", "values").await?;
    // Flux follows what bears this label; the hub follows whatever a Kustomization names.
    let watch = "metadata:\n  labels: {reconcile.fluxcd.io/watch: Enabled}\n";
    let values = config_map(pair.ns, "values", "said").replacen("metadata:\n", watch, 1);
    pair.everywhere(&values).await?;
    pair.same("there", SUCCEEDED, "REVISION-1").await
}

/// A deletion.
async fn deleted(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app"]).await?;
    pair.same("well", SUCCEEDED, "REVISION-1").await?;
    pair.both(&["delete"], &["--wait=false"]).await?;
    pair.gone("gone").await
}

/// An account without rights, which is given them.
async fn rightless(pair: &Pair<'_>) -> Result<()> {
    let ns = pair.ns;
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    pair.kustomization("", &["path: ./app", "serviceAccountName: reconciler"]).await?;
    pair.same("no-rights", "False ReconciliationFailed", "forbidden").await?;
    let rights = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: reconciler, namespace: {ns}}}\n---\napiVersion: \
         rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: reconciler, namespace: {ns}}}\nroleRef: {{apiGroup: \
         rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}\nsubjects: [{{kind: ServiceAccount, name: reconciler, \
         namespace: {ns}}}]\n"
    );
    pair.flux_kubectl.apply(&rights).await?;
    pair.fleet.cluster.kubectl().apply(&rights).await?;
    pair.ask().await?;
    pair.same("rights", SUCCEEDED, "REVISION-1").await
}

/// An expression that is none.
async fn expression(pair: &Pair<'_>) -> Result<()> {
    pair.push(&[("app/one.yaml", map(pair, "one", "first"))]).await?;
    let rule = "healthCheckExprs: [{apiVersion: v1, kind: ConfigMap, current: \"data.word ==\"}]";
    pair.kustomization("", &["path: ./app", rule]).await?;
    pair.same("invalid", "False InvalidCELExpression", "").await?;
    pair.both(&["patch"], &["--type=merge", "-p", r#"{"spec":{"healthCheckExprs":null}}"#]).await?;
    pair.same("mended", SUCCEEDED, "REVISION-1").await
}

#[tokio::test]
async fn what_flux_tells_of_a_kustomization_the_hub_tells_too() -> Result<()> {
    let fleet = Fleet::start("flux-parity").await?;
    let space = fleet.cluster.namespace("flux-parity").await?;
    let second = TestCluster::second()?;
    let _like = second.namespace_like(&space).await?;
    let ns = space.name();
    let kubectl = fleet.kubectl();
    kubectl.run(&["create", "namespace", ns]).await?;
    let pem = fleet.git.ca_pem().context("a server over HTTPS")?;
    let secret = serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "git", "namespace": ns },
                                     "stringData": { "ca.crt": pem } });
    kubectl.apply(&secret.to_string()).await?;
    let flux = FluxController::start(&second, ns).await?;
    let pairs = SCENARIOS.iter().map(|name| Pair::new(&fleet, &flux, second.kubectl(), ns, name));
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    let ends = join_all(pairs.iter().map(run)).await;
    let failed: Vec<String> =
        ends.iter().filter_map(|end| end.as_ref().err()).map(|e| format!("{e:#}")).collect();
    pairs.iter().for_each(Pair::watch_no_more);
    // By now all that was going to happen has.
    join_all(pairs.iter().map(|pair| pair.compare("end"))).await.into_iter().collect::<Result<()>>()?;
    let findings: Vec<Finding> = pairs.iter().flat_map(|pair| pair.findings.take()).collect();
    judge(&failed, &findings, DIFFERENCES)
}
