//! Sources that are fetched by identities of clouds: a service account's, and the hub's own.

use anyhow::{Context, Result, ensure};
use roadstead_tests::key_services::ACCESS_KEY;
use roadstead_tests::{Fleet, HubSetup, KeyServices, PATIENCE, Registry, eventually, folder};

use crate::oci::{introduce, look, oci_repository, write};
use crate::secrets::{Place, Word, dump, search};

const ROLE: &str = "arn:aws:iam::111122223333:role/puller";
const OF_AWS: [&str; 2] = ["provider: aws", "certSecretRef: {name: ca}"];

/// A hub with AWS beside it, which has this registry.
async fn hub(name: &str, services: &KeyServices, registry: &Registry) -> Result<HubSetup> {
    let allowed = services.url.replace("http://", "--allow-network=cloud=");
    let setup = HubSetup::new(name).await?.env("AWS_ENDPOINT_URL", &services.url).arg(&allowed);
    let own = format!("--allow-cloud-host=aws={}", registry.host());
    Ok(setup.arg("--allow-network=oci=127.0.0.0/8").arg(&own))
}

async fn pushed(fleet: &Fleet, registry: &Registry) -> Result<String> {
    let files = folder()?;
    write(files.path(), "default", "one")?;
    let digest = registry.push("app", "v1", files.path()).await?;
    // Of the two Secrets that this makes the sources here name the authority's.
    introduce(fleet, registry, "wr0ng").await?;
    Ok(digest)
}

/// Waits until the source `app` says so: a change of its account leads to a look.
async fn says(fleet: &Fleet, part: &str) -> Result<()> {
    eventually("the source says what is wrong now", PATIENCE, || async {
        let source = fleet.get("ocirepository/app").await?;
        let conditions = &source["status"]["conditions"];
        ensure!(conditions.to_string().contains(part), "{conditions:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_registry_of_aws_is_pulled_from_by_a_service_account() -> Result<()> {
    let (services, registry) = (KeyServices::start().await?, Registry::start().await?);
    let setup = hub("source-account", &services, &registry).await?.arg("--object-level-workload-identity");
    let fleet = Fleet::start_on(setup).await?;
    let digest = pushed(&fleet, &registry).await?;
    let lines = [&["ref: {tag: v1}", "serviceAccountName: puller"][..], &OF_AWS].concat();
    fleet.apply(&oci_repository("app", &registry.url("app"), &lines)).await?;
    let what = "ServiceAccount 'apps/puller' of spec.serviceAccountName";
    fleet.fails("ocirepository/app", "AuthenticationFailed", &[what, "not found"]).await?;
    fleet.run(&["create", "serviceaccount", "puller"]).await?;
    says(&fleet, "eks.amazonaws.com/role-arn").await?;
    // A role that AWS does not give to the account; then it does.
    services.deny(true);
    let role = format!("eks.amazonaws.com/role-arn={ROLE}");
    fleet.run(&["annotate", "serviceaccount", "puller", &role]).await?;
    says(&fleet, "HTTP 403, AccessDenied").await?;
    services.deny(false);
    look(&fleet, "app").await?;
    let message = fleet.ready("ocirepository/app").await?;
    ensure!(message == format!("stored artifact for digest 'v1@{digest}'"), "{message}");
    let shown = services.web_identities();
    let (role, token) = shown.last().context("a web identity")?;
    ensure!(role == ROLE, "{role}");

    // What was given out is used again; nothing of it is anywhere.
    look(&fleet, "app").await?;
    ensure!(services.web_identities().len() == shown.len(), "asked again");
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    let words = [Word::new("a token of the account", token), Word::new("a session", services.session()?)];
    search(&words, &places)?;

    // A registry that is not AWS's by its name, nor by the operator's word, gets nothing.
    let other = Registry::start().await?;
    fleet.apply(&oci_repository("other", &other.url("app"), &lines)).await?;
    let parts = ["is not a registry of AWS", "--allow-cloud-host aws="];
    fleet.fails("ocirepository/other", "InvalidProviderConfiguration", &parts).await?;
    ensure!(services.web_identities().len() == shown.len(), "a token was shown for it");
    Ok(())
}

#[tokio::test]
async fn without_the_flags_neither_accounts_nor_the_hub_are_asked_as() -> Result<()> {
    let (services, registry) = (KeyServices::start().await?, Registry::start().await?);
    let setup = hub("source-gated", &services, &registry).await?;
    let setup = setup.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "s");
    let fleet = Fleet::start_on(setup.arg("--hub-cloud-identity=platform")).await?;
    let digest = pushed(&fleet, &registry).await?;
    fleet.run(&["create", "serviceaccount", "puller"]).await?;
    let lines = [&["ref: {tag: v1}", "serviceAccountName: puller"][..], &OF_AWS].concat();
    fleet.apply(&oci_repository("gated", &registry.url("app"), &lines)).await?;
    let message = "to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate";
    fleet
        .fails("ocirepository/gated", "FeatureGateDisabled", &[message, "--object-level-workload-identity"])
        .await?;
    let conditions = fleet.get("ocirepository/gated").await?["status"]["conditions"].clone();
    let stalled = conditions.as_array().is_some_and(|all| {
        all.iter().any(|one| one["type"] == "Stalled" && one["reason"] == "FeatureGateDisabled")
    });
    ensure!(stalled, "{conditions:#}");

    // The hub's own identity is for the namespaces that the operator names.
    let own = oci_repository("own", &registry.url("app"), &[&["ref: {tag: v1}"][..], &OF_AWS].concat());
    fleet.apply(&own).await?;
    let parts = ["the hub's own identity", "namespace 'apps'", "--hub-cloud-identity"];
    fleet.fails("ocirepository/own", "AccessDenied", &parts).await?;
    fleet.run(&["create", "namespace", "platform"]).await?;
    let ca = fleet.get("secret/ca").await?["data"]["ca.crt"].clone();
    let ca = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: ca, namespace: platform}}\ndata: {{ca.crt: {}}}\n",
        ca.as_str().context("the authority")?
    );
    let kubectl = fleet.kubectl();
    let apply = ["apply", "--namespace", "platform", "-f", "-"];
    kubectl.run_with(&apply, &ca).await?;
    kubectl.run_with(&apply, &own).await?;
    let wait = ["wait", "ocirepository/own", "-n", "platform", "--for=condition=Ready", "--timeout=60s"];
    kubectl.run(&wait).await?;
    let found = kubectl.run(&["get", "ocirepository", "own", "-n", "platform", "-o", "yaml"]).await?;
    ensure!(found.contains(&digest), "{found}");
    ensure!(services.web_identities().is_empty(), "{:?}", services.web_identities());
    Ok(())
}
