//! OCIRepositories: what the real `flux` pushes to a real registry comes to a real cluster.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use roadstead_tests::{
    Fleet, HubSetup, LOGIN, PATIENCE, Registry, config_map, eventually, folder, kustomization, unique,
};
use serde_json::Value;

/// A fleet whose hub may connect to registries of this machine.
pub(crate) async fn fleet(name: &str) -> Result<Fleet> {
    Fleet::start_on(HubSetup::new(name).await?.arg("--allow-network=oci=127.0.0.0/8")).await
}

/// An OCIRepository, looked at once an hour; `more` are further lines of its spec.
pub(crate) fn oci_repository(name: &str, url: &str, more: &[&str]) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata:\n  name: {name}\nspec:\n  interval: 1h\n  \
         url: {url}\n  {}\n",
        more.join("\n  ")
    )
}

/// A Kustomization of it.
pub(crate) fn deployed(name: &str, path: &str) -> String {
    kustomization(name, name, path, &[&format!("sourceRef: {{kind: OCIRepository, name: {name}}}")])
}

pub(crate) const SECRETS: [&str; 2] = ["secretRef: {name: login}", "certSecretRef: {name: ca}"];

/// Keeps the registry's authority and a password for it in Secrets on the hub.
pub(crate) async fn introduce(fleet: &Fleet, registry: &Registry, password: &str) -> Result<()> {
    let ca = format!("--from-file=ca.crt={}", registry.ca().display());
    let ca = fleet.run(&["create", "secret", "generic", "ca", &ca, "--dry-run=client", "-o", "yaml"]).await?;
    fleet.apply(&ca).await?;
    log_in(fleet, registry, password).await
}

async fn log_in(fleet: &Fleet, registry: &Registry, password: &str) -> Result<()> {
    let server = format!("--docker-server={}", registry.host());
    let (name, password) =
        (format!("--docker-username={}", LOGIN.0), format!("--docker-password={password}"));
    let args = ["create", "secret", "docker-registry", "login", &server, &name, &password];
    let login = fleet.run(&[&args[..], &["--dry-run=client", "-o", "yaml"]].concat()).await?;
    fleet.apply(&login).await.map(|_| ())
}

/// Has the hub look at a source now, and waits until it has.
pub(crate) async fn look(fleet: &Fleet, name: &str) -> Result<()> {
    let (object, at) = (format!("ocirepository/{name}"), unique("look"));
    fleet
        .run(&["annotate", "--overwrite", &object, &format!("reconcile.fluxcd.io/requestedAt={at}")])
        .await?;
    eventually("the source is looked at", PATIENCE, || async {
        let handled = fleet.get(&object).await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == at, "the last request that was handled is {handled}");
        Ok(())
    })
    .await
}

/// Writes the manifests that are pushed.
pub(crate) fn write(folder: &Path, namespace: &str, word: &str) -> Result<()> {
    std::fs::create_dir_all(folder.join("deploy"))?;
    std::fs::write(folder.join("deploy/config.yaml"), config_map(namespace, "oci", word))?;
    std::fs::write(folder.join("README.md"), "not deployed")?;
    Ok(())
}

pub(crate) fn artifact(source: &Value, field: &str) -> Result<String> {
    let text = source["status"]["artifact"][field].as_str();
    text.map(str::to_owned).with_context(|| format!("no {field}: {}", source["status"]))
}

#[tokio::test]
async fn what_flux_pushes_is_applied_and_followed() -> Result<()> {
    let fleet = fleet("oci").await?;
    let (registry, files) = (Registry::start().await?, folder()?);
    let space = fleet.cluster.namespace("oci").await?;
    write(files.path(), space.name(), "one")?;
    let first = registry.push("app", "v1", files.path()).await?;
    let url = registry.url("app");
    fleet.apply(&oci_repository("app", &url, &[&["ref: {tag: v1}"][..], &SECRETS].concat())).await?;
    fleet.apply(&deployed("app", "deploy")).await?;
    fleet.fails("ocirepository/app", "AuthenticationFailed", &["apps/login", "not found"]).await?;
    introduce(&fleet, &registry, "wr0ng").await?;
    let message = fleet.fails("ocirepository/app", "AuthenticationFailed", &["401", &url]).await?;
    ensure!(!message.contains("wr0ng") && !fleet.hub.logs().contains("wr0ng"), "the password is told");
    // It is looked at once an hour: the Secret's change is what mends it.
    log_in(&fleet, &registry, LOGIN.1).await?;
    let message = fleet.ready("ocirepository/app").await?;
    ensure!(message == format!("stored artifact for digest 'v1@{first}'"), "{message}");
    let message = fleet.ready("kustomization/app").await?;
    ensure!(message == format!("Applied revision: v1@{first}"), "{message}");
    fleet.cluster.has_word(space.name(), "oci", Some("one")).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == format!("v1@{first}"), "{source:#}");
    let origin = &source["status"]["artifact"]["metadata"]["org.opencontainers.image.source"];
    ensure!(origin == "https://git.example/app", "{source:#}");
    let table = fleet.run(&["get", "ocirepositories"]).await?;
    ensure!(table.contains(&url) && table.contains("True"), "{table}");

    // The tag moves.
    write(files.path(), space.name(), "two")?;
    let second = registry.push("app", "v1", files.path()).await?;
    ensure!(second != first, "nothing new was pushed");
    look(&fleet, "app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;
    // A tag that is not there is said so, and what is applied stays.
    fleet.apply(&oci_repository("app", &url, &[&["ref: {tag: v9}"][..], &SECRETS].concat())).await?;
    fleet.fails("ocirepository/app", "OCIArtifactPullFailed", &["tag `v9`", &url]).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("two")).await?;
    // The digest of the first.
    let reference = format!("ref: {{digest: {first}, tag: v9}}");
    fleet.apply(&oci_repository("app", &url, &[&[reference.as_str()][..], &SECRETS].concat())).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("one")).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == first, "{source:#}");
    Ok(())
}

#[tokio::test]
async fn versions_layers_and_patterns_are_chosen_and_what_is_not_there_is_named() -> Result<()> {
    let fleet = fleet("oci-choice").await?;
    let (registry, files) = (Registry::start().await?, folder()?);
    let space = fleet.cluster.namespace("oci-choice").await?;
    introduce(&fleet, &registry, LOGIN.1).await?;
    let url = registry.url("org/app");
    let mut digests = Vec::new();
    for version in ["1.9.0", "1.10.0", "2.0.0-rc.1", "main"] {
        write(files.path(), space.name(), version)?;
        digests.push(registry.push("org/app", version, files.path()).await?);
    }
    let choose = async |name: &str, more: &[&str]| {
        fleet.apply(&oci_repository(name, &url, &[more, &SECRETS].concat())).await
    };
    choose("app", &["ref: {semver: 1.x}", "ignore: |-", "  /*", "  !/deploy"]).await?;
    fleet.apply(&deployed("app", ".")).await?;
    fleet.applied("app", &digests[1]).await?;
    fleet.cluster.has_word(space.name(), "oci", Some("1.10.0")).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(artifact(&source, "revision")? == format!("1.10.0@{}", digests[1]), "{source:#}");
    ensure!(source["status"]["observedIgnore"] == "/*\n!/deploy", "{source:#}");
    choose("app", &["ref: {semver: '>=1.0.0-0', semverFilter: rc}"]).await?;
    fleet.applied("app", &digests[2]).await?;
    let source = fleet.get("ocirepository/app").await?;
    ensure!(source["status"]["observedIgnore"].is_null(), "{source:#}");
    choose("app", &["ref: {semver: 3.x}"]).await?;
    fleet.fails("ocirepository/app", "ReadOperationFailed", &["no match found for semver: 3.x"]).await?;
    // A copy is the layer as it is.
    choose("copy", &["ref: {tag: main}", "layerSelector: {operation: copy}"]).await?;
    fleet.ready("ocirepository/copy").await?;
    let copy = fleet.get("ocirepository/copy").await?;
    ensure!(copy["status"]["observedLayerSelector"]["operation"] == "copy", "{copy:#}");
    choose("none", &["ref: {tag: main}", "layerSelector: {mediaType: none/such}"]).await?;
    fleet.fails("ocirepository/none", "OCIArtifactLayerOperationFailed", &["none/such"]).await?;
    choose("account", &["serviceAccountName: puller"]).await?;
    let named = ["ServiceAccount 'apps/puller' of spec.serviceAccountName not found"];
    fleet.fails("ocirepository/account", "AuthenticationFailed", &named).await?;
    // Without its authority nothing is asked of it.
    fleet.apply(&oci_repository("bare", &url, &["secretRef: {name: login}"])).await?;
    fleet.fails("ocirepository/bare", "OCIArtifactPullFailed", &["spec.certSecretRef"]).await?;
    Ok(())
}
