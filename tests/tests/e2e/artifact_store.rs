//! Artifacts in an object store: a real one that checks signatures, and one that lies; replicas share it, hubs die in between, and what is lost
//! comes back.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::StatusCode;
use reqwest::header::RANGE;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    FakeS3, Fleet, HubProcess, HubSetup, Kubectl, ObjectStore, PATIENCE, S3Fault, config_map, eventually,
    kustomization,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A hub with its artifacts in this store.
fn with_store(setup: HubSetup, endpoint: &str, keys: (&str, &str), ca: Option<PathBuf>) -> Result<HubSetup> {
    let file = setup.folder().join("s3");
    std::fs::write(&file, format!("aws_access_key_id = {}\naws_secret_access_key = {}\n", keys.0, keys.1))?;
    let setup = setup
        .env("ROADSTEAD_ARTIFACT_STORE", "s3://artifacts/hub")
        .env("ROADSTEAD_ARTIFACT_STORE_ENDPOINT", endpoint)
        .env("ROADSTEAD_ARTIFACT_STORE_CREDENTIALS", file);
    Ok(match ca {
        Some(ca) => setup.env("ROADSTEAD_ARTIFACT_STORE_CA_FILE", ca),
        None => setup,
    })
}

fn files(ns: &str, word: &str) -> Commit {
    Commit::new().file("app/map.yaml", config_map(ns, "map", word))
}

/// A number that the hub's database says.
async fn count(fleet: &Fleet, sql: &'static str) -> Result<i64> {
    Ok(sqlx::query_scalar(sql).fetch_one(&mut fleet.setup.database().connect().await?).await?)
}

/// Parts of artifacts in the database.
const IN_DATABASE: &str = "SELECT count(*) FROM blob_chunk WHERE digest IN (SELECT digest FROM source_artifact WHERE digest IS NOT NULL)";
/// Artifacts of sources that are in the object store.
const IN_STORE: &str = "SELECT count(*) FROM blob WHERE object_name IS NOT NULL";

/// The newest artifact of GitRepository `app`, as the administrator of a hub gets it; or a part of it.
async fn artifact(kubectl: &Kubectl, range: Option<&str>) -> Result<(StatusCode, Vec<u8>)> {
    artifact_of(kubectl, "GitRepository/apps/app", range).await
}

/// The same of another source: `KIND/NAMESPACE/NAME`.
pub(crate) async fn artifact_of(
    kubectl: &Kubectl,
    source: &str,
    range: Option<&str>,
) -> Result<(StatusCode, Vec<u8>)> {
    let config = kubectl.run(&["config", "view", "--raw", "-o", "json"]).await?;
    let config: Value = serde_json::from_str(&config)?;
    let cluster = &config["clusters"][0]["cluster"];
    let pem = STANDARD.decode(cluster["certificate-authority-data"].as_str().context("a CA")?)?;
    let url = cluster["server"].as_str().context("a server")?;
    let token = config["users"][0]["user"]["token"].as_str().context("a token")?;
    let trusted = reqwest::Certificate::from_pem_bundle(&pem)?;
    let http = reqwest::Client::builder().tls_certs_only(trusted).no_proxy().timeout(PATIENCE).build()?;
    let url = format!("{url}/fleet/v1/sources/{source}/artifact");
    let mut request = http.get(url).bearer_auth(token);
    if let Some(range) = range {
        request = request.header(RANGE, range);
    }
    let response = request.send().await?;
    Ok((response.status(), response.bytes().await?.to_vec()))
}

/// Waits until the newest artifact is to be had, and is what the status says.
async fn is_whole(fleet: &Fleet, kubectl: &Kubectl) -> Result<Vec<u8>> {
    eventually("the artifact is to be had", PATIENCE, || async {
        let (status, bytes) = artifact(kubectl, None).await?;
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&bytes));
        Ok(())
    })
    .await?;
    let (_, bytes) = artifact(kubectl, None).await?;
    let digest =
        Sha256::digest(&bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let source = fleet.get("gitrepository/app").await?;
    ensure!(source["status"]["artifact"]["digest"] == digest.as_str(), "{digest}: {source:#}");
    Ok(bytes)
}

#[tokio::test]
async fn artifacts_are_in_a_real_object_store_and_come_back_when_they_are_lost() -> Result<()> {
    let store = ObjectStore::s3().await?;
    store.bucket("artifacts", &[]).await?;
    let setup = HubSetup::new("artifact-store").await?;
    let fleet = Fleet::start_on(with_store(setup, &store.url(), store.keys(), Some(store.ca()))?).await?;
    let space = fleet.cluster.namespace("artifact-store").await?;
    let repository = fleet.repository("app", &files(space.name(), "one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(space.name(), "map", Some("one")).await?;
    ensure!(count(&fleet, IN_DATABASE).await? == 0 && count(&fleet, IN_STORE).await? == 1);
    let bytes = is_whole(&fleet, fleet.kubectl()).await?;
    let (status, part) = artifact(fleet.kubectl(), Some("bytes=2-9")).await?;
    ensure!(status == StatusCode::PARTIAL_CONTENT && part == bytes[2..10], "{status}: {part:?}");
    // Replicas share it.
    let other = HubProcess::start_another(&fleet.setup).await?;
    ensure!(is_whole(&fleet, other.kubectl()).await? == bytes);

    // It is deleted from the bucket by somebody.
    let mut database = fleet.setup.database().connect().await?;
    let key = "SELECT 'hub/' || artifact_store.id || '/' || object_name FROM blob, artifact_store WHERE object_name IS NOT NULL";
    let key: String = sqlx::query_scalar(key).fetch_one(&mut database).await?;
    store.remove("artifacts", &key).await?;
    let (status, said) = artifact(fleet.kubectl(), None).await?;
    let said = String::from_utf8_lossy(&said);
    ensure!(status == StatusCode::SERVICE_UNAVAILABLE && said.contains("fetched again"), "{status}: {said}");
    ensure!(is_whole(&fleet, fleet.kubectl()).await? == bytes);
    ensure!(count(&fleet, IN_DATABASE).await? == 0 && count(&fleet, IN_STORE).await? == 1);
    ensure!(fleet.hub.logs().contains("the artifact store has lost an artifact"));

    // And before it is built of.
    let key = "SELECT 'hub/' || artifact_store.id || '/' || object_name FROM blob, artifact_store WHERE object_name IS NOT NULL";
    let key: String = sqlx::query_scalar(key).fetch_one(&mut database).await?;
    store.remove("artifacts", &key).await?;
    sqlx::query("DELETE FROM build_cache").execute(&mut database).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["commonMetadata: {labels: {again: built}}"])).await?;
    eventually("it is built again", PATIENCE, || async {
        let map = fleet.cluster.kubectl().get(&["configmap", "map", "-n", space.name()]).await?;
        ensure!(map["metadata"]["labels"]["again"] == "built", "{map:#}");
        Ok(())
    })
    .await?;
    let commit = repository.commit("main", "Two", &files(space.name(), "two"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &commit).await?;
    fleet.cluster.has_word(space.name(), "map", Some("two")).await?;
    ensure!(count(&fleet, IN_DATABASE).await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_away_holds_up_fetches_alone_and_what_a_dead_hub_left_is_removed() -> Result<()> {
    let store = FakeS3::start().await?;
    let setup = with_store(HubSetup::new("artifact-faults").await?, &store.url(), ("A", "s"), None)?;
    let fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("artifact-faults").await?;
    store.fault(S3Fault::Refuses(503, "SlowDown"));
    fleet.repository("app", &files(space.name(), "one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    let said = ["the artifact store is unavailable; it is tried again"];
    let told = fleet.fails("gitrepository/app", "StorageOperationFailed", &said).await?;
    // The bucket is the operator's: their log names it.
    ensure!(!told.contains("s3://") && !told.contains("SlowDown"), "{told}");
    let logs = fleet.hub.logs();
    ensure!(logs.contains("s3://artifacts/hub") && logs.contains("503 (SlowDown)"));
    let ready = fleet.run(&["get", "--raw", "/readyz?verbose"]).await?;
    ensure!(ready.contains("[!]artifact-store") && ready.contains("readyz check passed"), "{ready}");
    ensure!(fleet.hub.logs().matches("lost the artifact store").count() == 1);
    store.fault(S3Fault::None);
    fleet.fetch("app").await?;
    fleet.ready("kustomization/app").await?;
    let ready = fleet.run(&["get", "--raw", "/readyz?verbose"]).await?;
    ensure!(ready.contains("[+]artifact-store ok"), "{ready}");
    ensure!(fleet.hub.logs().matches("the artifact store is back").count() == 1);
    ensure!(store.keys().len() == 1, "{:?}", store.keys());

    // The hub is killed between the upload and the row.
    store.fault(S3Fault::HoldsPuts);
    let repository = fleet.git.add_repository("late.git")?;
    repository.commit("main", "First", &files(space.name(), "late"))?;
    let url = fleet.git.url("late.git");
    fleet.apply(&roadstead_tests::git_repository("late", &url, "secretRef: {name: git}")).await?;
    eventually("it is uploaded", PATIENCE, || async {
        ensure!(store.keys().len() == 2, "{:?}", store.keys());
        Ok(())
    })
    .await?;
    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.kill9().await?;
    let kept: String = sqlx::query_scalar("SELECT object_name FROM blob WHERE object_name IS NOT NULL")
        .fetch_one(&mut setup.database().connect().await?)
        .await?;
    let leftover = store.keys().into_iter().find(|key| !key.ends_with(&kept)).context("a leftover")?;
    // Hours later: its name says when it was made, and somebody looks for such.
    let (begin, random) = leftover.rsplit_once('-').context("a name")?;
    let (begin, made) = begin.rsplit_once('-').context("a name")?;
    let older = format!("{begin}-{}-{random}", made.parse::<i64>()? - 2 * 3600);
    store.put(&older, &store.object(&leftover).context("the leftover")?);
    store.remove(&leftover);
    sqlx::query("UPDATE artifact_store SET swept_at = '-infinity'")
        .execute(&mut setup.database().connect().await?)
        .await?;
    store.fault(S3Fault::None);
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    fleet.ready("gitrepository/late").await?;
    eventually("the leftover is removed", PATIENCE + Duration::from_secs(60), || async {
        let keys = store.keys();
        ensure!(keys.len() == 2 && !keys.contains(&older), "{keys:?}");
        Ok(())
    })
    .await?;
    is_whole(&fleet, fleet.kubectl()).await?;
    Ok(())
}

#[tokio::test]
async fn a_hub_with_artifacts_in_its_database_goes_over_to_a_store_and_back() -> Result<()> {
    let store = FakeS3::start().await?;
    let fleet = Fleet::start("artifact-switch").await?;
    let space = fleet.cluster.namespace("artifact-switch").await?;
    let repository = fleet.repository("app", &files(space.name(), "one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    let first = is_whole(&fleet, fleet.kubectl()).await?;

    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.sigterm(PATIENCE).await?;
    let setup = with_store(setup, &store.url(), ("A", "s"), None)?;
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    ensure!(is_whole(&fleet, fleet.kubectl()).await? == first && store.keys().is_empty());
    let second = repository.commit("main", "Two", &files(space.name(), "two"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    ensure!(store.keys().len() == 1 && count(&fleet, IN_STORE).await? == 1, "{:?}", store.keys());

    // The way back: what is there is read from there, and the next one is in the database.
    let before = is_whole(&fleet, fleet.kubectl()).await?;
    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.sigterm(PATIENCE).await?;
    let setup = setup.env("ROADSTEAD_ARTIFACT_STORE_READ_ONLY", "true");
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    ensure!(is_whole(&fleet, fleet.kubectl()).await? == before);
    let third = repository.commit("main", "Three", &files(space.name(), "three"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &third).await?;
    ensure!(store.keys().len() == 1 && count(&fleet, IN_STORE).await? == 1, "{:?}", store.keys());
    is_whole(&fleet, fleet.kubectl()).await?;

    // Without the flag at once: what was there is fetched again.
    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.sigterm(PATIENCE).await?;
    sqlx::query("DELETE FROM blob WHERE digest IN (SELECT digest FROM source_artifact)")
        .execute(&mut setup.database().connect().await?)
        .await?;
    let setup = setup.env("ROADSTEAD_ARTIFACT_STORE_READ_ONLY", "false");
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    fleet.fetch("app").await?;
    is_whole(&fleet, fleet.kubectl()).await?;
    ensure!(count(&fleet, IN_STORE).await? == 1 && count(&fleet, IN_DATABASE).await? == 0);
    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.sigterm(PATIENCE).await?;
    let setup = setup
        .env("ROADSTEAD_ARTIFACT_STORE", "")
        .env("ROADSTEAD_ARTIFACT_STORE_ENDPOINT", store.url())
        .env("ROADSTEAD_ARTIFACT_STORE_READ_ONLY", "false");
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    fleet.fetch("app").await?;
    is_whole(&fleet, fleet.kubectl()).await?;
    ensure!(count(&fleet, IN_STORE).await? == 0 && count(&fleet, IN_DATABASE).await? > 0);
    Ok(())
}
