//! OCIRepositories that log in by the Secrets with which a service account of the hub pulls.

use anyhow::{Result, ensure};
use roadstead_tests::{Fleet, LOGIN, Registry, folder};

use crate::oci::{fleet, look, oci_repository, write};

/// Keeps a password for a registry in a Secret on the hub.
async fn login(fleet: &Fleet, name: &str, host: &str, password: &str) -> Result<()> {
    let server = format!("--docker-server={host}");
    let (user, password) =
        (format!("--docker-username={}", LOGIN.0), format!("--docker-password={password}"));
    let args = ["create", "secret", "docker-registry", name, &server, &user, &password];
    let login = fleet.run(&[&args[..], &["--dry-run=client", "-o", "yaml"]].concat()).await?;
    fleet.apply(&login).await.map(|_| ())
}

/// A service account on the hub with these `imagePullSecrets`.
async fn account(fleet: &Fleet, secrets: &[&str]) -> Result<()> {
    let secrets: Vec<String> = secrets.iter().map(|name| format!("{{name: {name}}}")).collect();
    let manifest = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: puller}}\nimagePullSecrets: [{}]\n",
        secrets.join(", ")
    );
    fleet.apply(&manifest).await.map(|_| ())
}

#[tokio::test]
async fn the_pull_secrets_of_an_account_let_in_and_their_changes_are_followed() -> Result<()> {
    let fleet = fleet("pull-secrets").await?;
    let (registry, files) = (Registry::start().await?, folder()?);
    write(files.path(), "unused", "one")?;
    let first = registry.push("app", "v1", files.path()).await?;
    let (url, host) = (registry.url("app"), registry.host());
    let ca = format!("--from-file=ca.crt={}", registry.ca().display());
    let ca = fleet.run(&["create", "secret", "generic", "ca", &ca, "--dry-run=client", "-o", "yaml"]).await?;
    fleet.apply(&ca).await?;
    let lines = ["ref: {tag: v1}", "serviceAccountName: puller", "certSecretRef: {name: ca}"];
    fleet.apply(&oci_repository("app", &url, &lines)).await?;
    let object = "ocirepository/app";
    fleet.fails(object, "AuthenticationFailed", &["ServiceAccount 'apps/puller'", "not found"]).await?;
    // Looked at once an hour: each change is what has it fetched again.
    account(&fleet, &[]).await?;
    fleet.fails(object, "AuthenticationFailed", &["401", &url]).await?;
    account(&fleet, &["elsewhere", "here"]).await?;
    let parts = ["Secret 'apps/elsewhere' of the imagePullSecrets of ServiceAccount 'apps/puller' not found"];
    fleet.fails(object, "AuthenticationFailed", &parts).await?;
    login(&fleet, "elsewhere", "registry.example", "hunter2").await?;
    fleet.fails(object, "AuthenticationFailed", &["Secret 'apps/here'", "not found"]).await?;
    login(&fleet, "here", &host, "wr0ng").await?;
    let message = fleet.fails(object, "AuthenticationFailed", &["401", &url]).await?;
    ensure!(!message.contains("wr0ng") && !fleet.hub.logs().contains("wr0ng"), "the password is told");
    login(&fleet, "here", &host, LOGIN.1).await?;
    let message = fleet.ready(object).await?;
    ensure!(message == format!("stored artifact for digest 'v1@{first}'"), "{message}");

    // A Secret of the object's own comes first, and the account's others stay.
    login(&fleet, "own", &host, "wr0ng").await?;
    let own = [&lines[..], &["secretRef: {name: own}"]].concat();
    fleet.apply(&oci_repository("app", &url, &own)).await?;
    fleet.fails(object, "AuthenticationFailed", &["401"]).await?;
    login(&fleet, "own", "registry.example", "hunter2").await?;
    fleet.ready(object).await?;
    look(&fleet, "app").await?;
    fleet.ready(object).await?;
    ensure!(!fleet.hub.logs().contains("hunter2"), "a password is told");
    // A Secret without a registry's login is told by its name.
    fleet
        .apply("apiVersion: v1\nkind: Secret\nmetadata: {name: note}\nstringData: {note: hunter2}\n")
        .await?;
    account(&fleet, &["here", "note"]).await?;
    let parts = ["Secret 'apps/note'", "has no key .dockerconfigjson", "'apps/puller'"];
    fleet.fails(object, "AuthenticationFailed", &parts).await?;
    Ok(())
}
