//! OCIRepositories that log in by the `imagePullSecrets` of a service account: whose credentials go where, and what is said where there are none.

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::sources::FetchPlan;
use serde_json::{Value, json};

use crate::support::{Site, file, team_a, web};

const SOURCE: KindId = KindId::OciRepository;

fn repository(space: &str, name: &str, url: &str) -> Value {
    json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": { "namespace": space, "name": name },
        "spec": { "interval": "1h", "url": url, "serviceAccountName": "puller" } })
}

fn account(secrets: &[&str]) -> Value {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
    json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "namespace": "team-a", "name": "puller" }, "imagePullSecrets": secrets })
}

fn login(name: &str, hosts: &[&str]) -> Value {
    let auths: serde_json::Map<String, Value> = hosts
        .iter()
        .map(|host| ((*host).to_owned(), json!({ "username": "u", "password": "hunter2" })))
        .collect();
    let text = json!({ "auths": auths }).to_string();
    json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": { "namespace": "team-a", "name": name }, "stringData": { ".dockerconfigjson": text } })
}

/// Whether a source is fetched with credentials; none where it is not fetched.
async fn plan(site: &Site, name: &str) -> Result<Option<bool>> {
    let uid = site.stored(SOURCE, "team-a", name).await?.uid;
    Ok(match site.hub.sources.plan_fetch(uid).await? {
        FetchPlan::Fetch(job) => Some(job.source.has_credentials()),
        FetchPlan::Nothing(_) => None,
    })
}

/// Whether a change leads to the source `app`, of which nothing was due before.
async fn is_led_to(site: &Site, change: Value) -> Result<bool> {
    let mut connection = site.database.connect().await?;
    let uid = site.stored(SOURCE, "team-a", "app").await?.uid;
    sqlx::query("UPDATE schedule SET due_at = 'infinity'").execute(&mut connection).await?;
    site.replace(change).await?;
    let due = sqlx::query_scalar("SELECT due_at < 'infinity' FROM schedule WHERE uid = $1");
    Ok(due.bind(uid.0).fetch_one(&mut connection).await?)
}

#[tokio::test]
async fn a_change_of_the_account_or_of_what_it_pulls_with_leads_to_the_source() -> Result<()> {
    let site = team_a(json!({}), &[web()]).await?;
    site.apply(repository("team-a", "app", "oci://registry.test/app")).await?;
    site.apply(login("here", &["registry.test"])).await?;
    site.apply(login("other", &["registry.test"])).await?;
    site.apply(account(&[])).await?;
    ensure!(!is_led_to(&site, login("here", &["one.test"])).await?, "nobody pulls with it");
    ensure!(is_led_to(&site, account(&["other", "here"])).await?, "the account changed");
    ensure!(is_led_to(&site, login("here", &["two.test"])).await?, "its Secret changed");
    ensure!(is_led_to(&site, account(&["other"])).await?, "the account changed again");
    ensure!(!is_led_to(&site, login("here", &["three.test"])).await?, "it is not pulled with any more");
    Ok(())
}

async fn refused(site: &Site, name: &str, reason: &str, parts: &[&str]) -> Result<()> {
    ensure!(plan(site, name).await?.is_none(), "{name} is fetched");
    let (is, message) = site.ready(SOURCE, "team-a", name).await?;
    ensure!(is == reason && parts.iter().all(|part| message.contains(part)), "{is}: {message}");
    ensure!(!message.contains("hunter2"), "{message}");
    Ok(())
}

#[tokio::test]
async fn the_secrets_of_an_account_count_where_they_are_for_the_registry() -> Result<()> {
    let site = team_a(json!({}), &[web()]).await?;
    site.apply(repository("team-a", "app", "oci://registry.test/app")).await?;
    let failed = "AuthenticationFailed";
    refused(
        &site,
        "app",
        failed,
        &["ServiceAccount 'team-a/puller' of spec.serviceAccountName", "not found"],
    )
    .await?;
    site.apply(account(&[])).await?;
    ensure!(plan(&site, "app").await? == Some(false), "there are no credentials");
    site.replace(account(&["elsewhere", "here"])).await?;
    let parts =
        ["Secret 'team-a/elsewhere' of the imagePullSecrets of ServiceAccount 'team-a/puller' not found"];
    refused(&site, "app", failed, &parts).await?;
    site.apply(login("elsewhere", &["other.test"])).await?;
    refused(&site, "app", failed, &["Secret 'team-a/here'", "not found"]).await?;
    site.apply(login("here", &["other.test", "registry.test"])).await?;
    ensure!(plan(&site, "app").await? == Some(true));
    // A Secret without a login, and more of them than are looked at.
    site.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "team-a", "name": "note" },
        "stringData": { "note": "hunter2" } }),
    )
    .await?;
    site.replace(account(&["here", "note"])).await?;
    refused(&site, "app", failed, &["Secret 'team-a/note'", "has no key .dockerconfigjson"]).await?;
    let many: Vec<String> = (0..51).map(|number| format!("s{number}")).collect();
    site.replace(account(&many.iter().map(String::as_str).collect::<Vec<_>>())).await?;
    refused(&site, "app", failed, &["'team-a/puller' has more than 50 imagePullSecrets"]).await
}

#[tokio::test]
async fn a_child_source_sends_no_pull_secret_to_a_registry_that_nobody_used_it_for() -> Result<()> {
    let files = [file(
        "root/sources.yaml",
        &[
            repository("flux-system", "evil", "oci://registry.test/evil"),
            repository("flux-system", "other", "oci://public.test/app"),
        ],
    )];
    let site = team_a(json!({}), &files).await?;
    site.apply(login("here", &["registry.test"])).await?;
    site.apply(account(&["here"])).await?;
    site.process("team-a", "app").await?;
    refused(&site, "evil", "AccessDenied", &["'team-a/here'", "fleet.roadstead.dev/allowed-hosts"]).await?;
    // A Secret that is not for its registry stays here.
    ensure!(plan(&site, "other").await? == Some(false), "it is public");
    site.annotate(KindId::Secret, "team-a", "here", "fleet.roadstead.dev/allowed-hosts", "registry.test")
        .await?;
    ensure!(plan(&site, "evil").await? == Some(true));
    Ok(())
}
