//! Buckets: what real clients put into real object stores comes to a real cluster.

use anyhow::{Context, Result, ensure};
use roadstead_tests::{
    ConnectProxy, Fleet, HubSetup, ObjectStore, PATIENCE, config_map, eventually, kustomization, unique,
};
use serde_json::Value;

/// A fleet whose hub may connect to object stores of this machine.
async fn fleet(name: &str) -> Result<Fleet> {
    Fleet::start_on(HubSetup::new(name).await?.arg("--allow-network=bucket=127.0.0.0/8")).await
}

/// A Bucket, looked at once an hour; `more` are further lines of its spec.
fn bucket(name: &str, endpoint: &str, more: &[&str]) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: Bucket\nmetadata:\n  name: {name}\nspec:\n  interval: 1h\n  \
         endpoint: {endpoint}\n  certSecretRef: {{name: ca}}\n  {}\n",
        more.join("\n  ")
    )
}

/// A Kustomization of it.
fn deployed(name: &str, path: &str) -> String {
    kustomization(name, name, path, &[&format!("sourceRef: {{kind: Bucket, name: {name}}}")])
}

/// Keeps texts in a Secret on the hub.
async fn secret(fleet: &Fleet, name: &str, texts: &[(&str, &str)]) -> Result<()> {
    let texts: Vec<String> = texts.iter().map(|(key, text)| format!("--from-literal={key}={text}")).collect();
    let mut args = vec!["create", "secret", "generic", name, "--dry-run=client", "-o", "yaml"];
    args.extend(texts.iter().map(String::as_str));
    let manifest = fleet.run(&args).await?;
    fleet.apply(&manifest).await.map(|_| ())
}

/// Keeps a store's authority in the Secret `ca`.
async fn trust(fleet: &Fleet, store: &ObjectStore) -> Result<()> {
    let pem = std::fs::read_to_string(store.ca())?;
    secret(fleet, "ca", &[("ca.crt", &pem)]).await
}

/// Has the hub look at a source now, and waits until it has.
async fn look(fleet: &Fleet, name: &str) -> Result<()> {
    let (object, at) = (format!("bucket/{name}"), unique("look"));
    let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
    fleet.run(&["annotate", "--overwrite", &object, &annotation]).await?;
    eventually("the source is looked at", PATIENCE, || async {
        let handled = fleet.get(&object).await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == at, "the last request that was handled is {handled}");
        Ok(())
    })
    .await
}

fn artifact(source: &Value, field: &str) -> Result<String> {
    let text = source["status"]["artifact"][field].as_str();
    text.map(str::to_owned).with_context(|| format!("no {field}: {}", source["status"]))
}

async fn revision(fleet: &Fleet, name: &str) -> Result<String> {
    artifact(&fleet.get(&format!("bucket/{name}")).await?, "revision")
}

#[tokio::test]
async fn what_is_put_into_a_bucket_is_applied_and_followed() -> Result<()> {
    let fleet = fleet("bucket").await?;
    let store = ObjectStore::s3().await?;
    let space = fleet.cluster.namespace("bucket").await?;
    let manifest = |word: &str| config_map(space.name(), "s3", word);
    let (endpoint, lines) = (store.host(), ["bucketName: apps", "secretRef: {name: login}"]);
    trust(&fleet, &store).await?;
    fleet.apply(&bucket("app", &endpoint, &lines)).await?;
    fleet.apply(&deployed("app", "deploy")).await?;
    fleet.fails("bucket/app", "AuthenticationFailed", &["apps/login", "not found"]).await?;
    secret(&fleet, "login", &[("accesskey", "x")]).await?;
    let required = "required fields 'accesskey' and 'secretkey'";
    fleet.fails("bucket/app", "AuthenticationFailed", &[required, "apps/login"]).await?;
    let (id, key) = store.keys();
    secret(&fleet, "login", &[("accesskey", id), ("secretkey", "wr0ng")]).await?;
    let denied =
        "failed to confirm existence of 'apps' bucket: the server answered HTTP 403 (SignatureDoesNotMatch)";
    let message = fleet.fails("bucket/app", "BucketOperationFailed", &[denied]).await?;
    ensure!(message == denied && !fleet.hub.logs().contains("wr0ng"), "{message}");
    // It is looked at once an hour: the Secret's change is what mends it.
    secret(&fleet, "login", &[("accesskey", id), ("secretkey", key)]).await?;
    let message = fleet.fails("bucket/app", "BucketOperationFailed", &["bucket 'apps' not found"]).await?;
    ensure!(message == "bucket 'apps' not found", "{message}");

    let objects = [
        ("deploy/config.yaml", manifest("one")),
        ("deploy/", String::new()),
        ("deploy/ü +%2e&.txt", "odd".to_owned()),
        ("docs/readme.md", "not deployed".to_owned()),
        (".sourceignore", "/docs/\n".to_owned()),
    ];
    store.bucket("apps", &objects.each_ref().map(|(key, text)| (*key, text.as_str()))).await?;
    look(&fleet, "app").await?;
    let message = fleet.ready("bucket/app").await?;
    let first = revision(&fleet, "app").await?;
    ensure!(message == format!("stored artifact: revision '{first}'"), "{message}");
    ensure!(first.starts_with("sha256:"), "{first}");
    let message = fleet.ready("kustomization/app").await?;
    ensure!(message == format!("Applied revision: {first}"), "{message}");
    fleet.cluster.has_word(space.name(), "s3", Some("one")).await?;
    let table = fleet.run(&["get", "buckets"]).await?;
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    ensure!(head == ["NAME", "ENDPOINT", "AGE", "READY", "STATUS"], "{table}");
    ensure!(table.contains(&endpoint) && table.contains("True"), "{table}");

    // An unchanged bucket is not fetched, and nothing is written but that it was looked at.
    let before = fleet.get("bucket/app").await?["status"]["artifact"].clone();
    look(&fleet, "app").await?;
    let after = fleet.get("bucket/app").await?["status"]["artifact"].clone();
    ensure!(before == after, "{before:#} {after:#}");
    // What is left out changes nothing.
    store.put("apps", "docs/more.md", "not deployed").await?;
    look(&fleet, "app").await?;
    ensure!(revision(&fleet, "app").await? == first, "it took what is left out");
    store.put("apps", "deploy/config.yaml", &manifest("two")).await?;
    look(&fleet, "app").await?;
    let second = revision(&fleet, "app").await?;
    ensure!(second != first, "it did not take the new object");
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(space.name(), "s3", Some("two")).await?;
    // A key that leads out is refused by its name, and what is applied stays.
    store.put("apps", "a//b", "evil").await?;
    look(&fleet, "app").await?;
    let start = "indexation of objects from bucket 'apps' failed: ";
    fleet.fails("bucket/app", "BucketOperationFailed", &[start, "`a//b`"]).await?;
    fleet.cluster.has_word(space.name(), "s3", Some("two")).await?;
    store.remove("apps", "a//b").await?;
    look(&fleet, "app").await?;
    fleet.ready("bucket/app").await?;
    Ok(())
}

#[tokio::test]
async fn parts_and_proxies_are_chosen_and_what_is_not_supported_is_named() -> Result<()> {
    let fleet = fleet("bucket-choice").await?;
    let (store, proxy) = (ObjectStore::s3().await?, ConnectProxy::start().await?);
    let space = fleet.cluster.namespace("bucket-choice").await?;
    let manifest = config_map(space.name(), "part", "one");
    store
        .bucket("parts", &[("a/config.yaml", &manifest), ("a/logo.png", "x"), ("b/other.yaml", "x")])
        .await?;
    trust(&fleet, &store).await?;
    let (id, key) = store.keys();
    secret(&fleet, "login", &[("accesskey", id), ("secretkey", key)]).await?;
    let url = proxy.url();
    let (who, host) = url.trim_start_matches("http://").split_once('@').context("a proxy with a password")?;
    let (name, password) = who.split_once(':').context("a password")?;
    let address = format!("http://{host}");
    let proxied = [("address", address.as_str()), ("username", name), ("password", password)];
    secret(&fleet, "proxy", &proxied).await?;
    let choose = async |name: &str, more: &[&str]| {
        let lines = [&["bucketName: parts", "secretRef: {name: login}"], more].concat();
        fleet.apply(&bucket(name, &store.host(), &lines)).await
    };
    let lines = ["provider: aws", "region: us-east-1", "prefix: a/", "proxySecretRef: {name: proxy}"];
    choose("app", &[&lines[..], &["ignore: '*.png'"]].concat()).await?;
    fleet.apply(&deployed("app", "a")).await?;
    fleet.applied("app", "").await?;
    fleet.cluster.has_word(space.name(), "part", Some("one")).await?;
    ensure!(proxy.asked().contains(&store.host()), "{:?}", proxy.asked());
    let source = fleet.get("bucket/app").await?;
    ensure!(source["status"]["observedIgnore"] == "*.png", "{source:#}");
    // Amazon and Google without keys would be whoever the hub's machine is, which the operator has to allow.
    for (name, provider, reason, named) in [
        ("gcp", "provider: gcp", "AccessDenied", "spec.provider gcp alone"),
        ("aws", "provider: aws", "AccessDenied", "spec.provider aws alone"),
        (
            "account",
            "{provider: azure, serviceAccountName: reader}",
            "FeatureGateDisabled",
            "to use spec.serviceAccountName",
        ),
    ] {
        let fields = provider.trim_matches(['{', '}']).replace(", ", "\n  ");
        fleet.apply(&bucket(name, &store.host(), &["bucketName: parts", &fields])).await?;
        let object = format!("bucket/{name}");
        fleet.fails(&object, reason, &[named]).await?;
    }
    for (more, said) in [
        (
            "sts: {provider: aws, endpoint: 'https://sts.example'}",
            "'ldap' is the only supported STS provider",
        ),
        (
            "serviceAccountName: reader",
            "ServiceAccountName is not supported for the 'generic' Bucket provider",
        ),
    ] {
        let refused = choose("bad", &[more]).await.err().context("it was taken")?;
        ensure!(refused.to_string().contains(said), "{refused}");
    }
    // Where the policy does not lead.
    fleet.apply(&bucket("metadata", "169.254.169.254", &["bucketName: parts", "insecure: true"])).await?;
    fleet.fails("bucket/metadata", "URLInvalid", &["--allow-network bucket=169.254.169.254/32"]).await?;
    Ok(())
}

#[tokio::test]
async fn azure_lets_in_who_has_the_accounts_key_or_a_signature() -> Result<()> {
    let fleet = fleet("bucket-azure").await?;
    let store = ObjectStore::azure().await?;
    let space = fleet.cluster.namespace("bucket-azure").await?;
    let manifest = |word: &str| config_map(space.name(), "azure", word);
    store.bucket("apps", &[("deploy/ü &+.yaml", &manifest("one")), ("deploy/b.txt", "b")]).await?;
    trust(&fleet, &store).await?;
    let azure = async |name: &str| {
        let lines = ["provider: azure", "bucketName: apps", &format!("secretRef: {{name: {name}}}")];
        fleet.apply(&bucket(name, &store.url(), &lines)).await
    };
    secret(&fleet, "key", &[("accountKey", "d3JvbmcK")]).await?;
    azure("key").await?;
    fleet.apply(&deployed("key", "deploy")).await?;
    let denied = "failed to confirm existence of 'apps' bucket: the server answered HTTP 403";
    fleet.fails("bucket/key", "BucketOperationFailed", &[denied]).await?;
    secret(&fleet, "key", &[("accountKey", store.keys().1)]).await?;
    fleet.applied("key", "").await?;
    fleet.cluster.has_word(space.name(), "azure", Some("one")).await?;
    let first = revision(&fleet, "key").await?;
    // A list and what comes write etags in two forms: a look at what has not changed fetches nothing.
    look(&fleet, "key").await?;
    ensure!(revision(&fleet, "key").await? == first, "nothing changed");
    let signature = store.signature("apps").await?;
    secret(&fleet, "sas", &[("sasKey", &signature)]).await?;
    azure("sas").await?;
    fleet.ready("bucket/sas").await?;
    ensure!(revision(&fleet, "sas").await? == first, "by a signature it looks different");
    store.put("apps", "deploy/ü &+.yaml", &manifest("two")).await?;
    look(&fleet, "key").await?;
    fleet.applied("key", &revision(&fleet, "key").await?).await?;
    fleet.cluster.has_word(space.name(), "azure", Some("two")).await?;
    secret(&fleet, "managed", &[("clientId", "x")]).await?;
    azure("managed").await?;
    fleet.fails("bucket/managed", "AuthenticationFailed", &["managed identities", "not supported"]).await?;
    // A signature in the URL would be there for all to read.
    let url = format!("{}?{signature}", store.url());
    let refused = fleet.apply(&bucket("bad", &url, &["provider: azure", "bucketName: apps"])).await.err();
    let refused = refused.context("it was taken")?.to_string();
    ensure!(refused.contains("spec.endpoint") && !refused.contains("sig="), "{refused}");
    ensure!(!fleet.hub.logs().contains("sig="), "a signature is in the log");
    Ok(())
}
