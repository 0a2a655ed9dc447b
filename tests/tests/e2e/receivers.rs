//! Receivers: a push is on the cluster as soon as its webhook has been called, and nobody else is listened to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use reqwest::{Body, StatusCode};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, free_port, kustomization};
use serde_json::{Value, json};

const TOKEN: &str = "what GitHub was given";

/// A fleet whose Receivers are called on a port of their own.
struct Site {
    fleet: Fleet,
    http: reqwest::Client,
    url: String,
}

impl Site {
    async fn start(name: &str) -> Result<Self> {
        let port = free_port()?;
        let setup = HubSetup::new(name).await?.arg(&format!("--hook-listen=127.0.0.1:{port}"));
        let fleet = Fleet::start_on(setup).await?;
        let config = fleet.kubectl().run(&["config", "view", "--raw", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&config)?;
        let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().context("a CA")?;
        let ca = reqwest::Certificate::from_pem_bundle(&STANDARD.decode(ca)?)?;
        let http = reqwest::Client::builder().tls_certs_only(ca).no_proxy().timeout(PATIENCE).build()?;
        Ok(Self { fleet, http, url: format!("https://127.0.0.1:{port}") })
    }

    async fn token(&self, token: &str) -> Result<()> {
        let token = format!("--from-literal=token={token}");
        let made = ["create", "secret", "generic", "hook", &token, "--dry-run=client", "-o", "yaml"];
        let manifest = self.fleet.run(&made).await?;
        self.fleet.apply(&manifest).await.map(|_| ())
    }

    async fn path(&self, receiver: &str) -> Result<String> {
        self.fleet.ready(&format!("receiver/{receiver}")).await?;
        let object = self.fleet.get(&format!("receiver/{receiver}")).await?;
        object["status"]["webhookPath"].as_str().map(str::to_owned).context("no path")
    }

    /// Calls as GitHub does.
    async fn call(&self, path: &str, token: &str, media_type: &str, body: &str) -> Result<StatusCode> {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), body.as_bytes());
        let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .header("x-hub-signature-256", format!("sha256={tag}"))
            .header("x-github-event", "push")
            .header("content-type", media_type)
            .body(body.to_owned());
        Ok(request.send().await?.status())
    }

    /// What a source says of its last fetch: the request that it handled, and the revision.
    async fn fetched(&self, source: &str) -> Result<[Value; 2]> {
        let status = self.fleet.get(&format!("gitrepository/{source}")).await?["status"].clone();
        Ok([status["lastHandledReconcileAt"].clone(), status["artifact"]["revision"].clone()])
    }
}

fn receiver(name: &str, more: &str) -> String {
    format!(
        "apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata:\n  name: {name}\nspec:\n  type: github\n  \
         events: [ping, push]\n  secretRef: {{name: hook}}\n  {more}\n"
    )
}

fn pushed(commit: &str) -> String {
    json!({ "ref": "refs/heads/main", "after": commit, "repository": { "name": "app" } }).to_string()
}

#[tokio::test]
async fn a_push_is_on_the_cluster_without_waiting_for_a_poll() -> Result<()> {
    let site = Site::start("push").await?;
    let fleet = &site.fleet;
    let space = fleet.cluster.namespace("push").await?;
    let files = |word: &str| Commit::new().file("config.yaml", config_map(space.name(), "push", word));
    let repository = fleet.repository("app", &files("zero")).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    site.token(TOKEN).await?;
    let more = "resources: [{kind: GitRepository, name: '*', matchLabels: {push: 'yes'}}]\n  resourceFilter: \
                req.repository.name == res.metadata.name";
    fleet.run(&["label", "gitrepository/app", "push=yes"]).await?;
    fleet.apply(&receiver("github", more)).await?;
    let path = site.path("github").await?;
    fleet.cluster.has_word(space.name(), "push", Some("zero")).await?;

    // The source is looked at once an hour.
    let mut took = Vec::new();
    for word in ["one", "two", "three", "four", "five"] {
        let commit = repository.commit("main", word, &files(word))?;
        let began = Instant::now();
        let answer = site.call(&path, TOKEN, "application/json", &pushed(&commit)).await?;
        ensure!(answer == StatusCode::OK, "{answer}");
        let answered = began.elapsed();
        fleet.cluster.has_word(space.name(), "push", Some(word)).await?;
        took.push((answered, began.elapsed()));
        fleet.applied("app", &commit).await?;
    }
    println!("from the call to its answer, and to the object on the cluster: {took:?}");
    let (_, longest) = took.iter().max_by_key(|(_, applied)| *applied).context("pushes")?;
    ensure!(*longest < Duration::from_secs(30), "{took:?}");

    // Whoever does not know the token is not listened to, and nor is one who sends something else.
    let commit = repository.commit("main", "six", &files("six"))?;
    let before = site.fetched("app").await?;
    for (token, media_type) in
        [("a guess", "application/json"), ("", "application/json"), (TOKEN, "text/plain")]
    {
        let answer = site.call(&path, token, media_type, &pushed(&commit)).await?;
        ensure!(answer == StatusCode::BAD_REQUEST, "{token} {media_type}: {answer}");
    }
    ensure!(site.fetched("app").await? == before, "a call without the token was acted on");
    // A form is JSON, too.
    let form = "payload=%7B%22repository%22%3A%7B%22name%22%3A%22app%22%7D%7D";
    ensure!(site.call(&path, TOKEN, "application/x-www-form-urlencoded", form).await? == StatusCode::OK);
    fleet.cluster.has_word(space.name(), "push", Some("six")).await?;
    fleet.applied("app", &commit).await?;

    // A call that somebody else recorded and sends again has the source looked at, and that is all.
    let ready = fleet.get("kustomization/app").await?["status"].clone();
    let before = site.fetched("app").await?;
    ensure!(site.call(&path, TOKEN, "application/json", &pushed("again")).await? == StatusCode::OK);
    ensure!(site.call(&path, TOKEN, "application/json", &pushed("again")).await? == StatusCode::OK);
    eventually("the source is looked at", PATIENCE, || async {
        let after = site.fetched("app").await?;
        ensure!(after[0] != before[0] && after[1] == before[1], "{after:?}");
        Ok(())
    })
    .await?;
    ensure!(fleet.get("kustomization/app").await?["status"] == ready, "something was applied again");
    ensure!(!fleet.hub.logs().contains(TOKEN), "the token is in the log");
    Ok(())
}

#[tokio::test]
async fn bodies_without_an_end_cost_nothing_but_their_own_call() -> Result<()> {
    let site = Site::start("bodies").await?;
    let fleet = &site.fleet;
    fleet.repository("app", &Commit::new().file("config.yaml", config_map("default", "x", "x"))).await?;
    site.token(TOKEN).await?;
    fleet.apply(&receiver("github", "resources: [{kind: GitRepository, name: app}]")).await?;
    let path = site.path("github").await?;
    let url = format!("{}{path}", site.url);
    // A gibibyte, as fast as it goes: the hub ends it after three MiB.
    let chunk = Bytes::from(vec![b'x'; 64 << 10]);
    let chunks = stream::iter((0..16 << 10).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    match site.http.post(&url).body(Body::wrap_stream(chunks)).send().await {
        Ok(answer) => ensure!(answer.status() == StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.status()),
        Err(error) if error.is_timeout() => bail!("it was not ended: {error}"),
        // The connection was closed while it was still being written to.
        Err(_) => {}
    }
    // And one that never comes. Others are answered meanwhile.
    let began = Instant::now();
    let stalled = stream::pending::<std::io::Result<Bytes>>();
    let stalled = tokio::spawn(site.http.post(&url).body(Body::wrap_stream(stalled)).send());
    let mut calls = 0;
    while !stalled.is_finished() {
        ensure!(site.call(&path, TOKEN, "application/json", "{}").await? != StatusCode::BAD_REQUEST);
        calls += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let answer = stalled.await??.status();
    ensure!(answer == StatusCode::REQUEST_TIMEOUT, "{answer}");
    ensure!(began.elapsed() < PATIENCE && calls > 3, "{calls} calls in {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_receiver_from_git_is_waited_for_and_its_path_follows_its_token() -> Result<()> {
    let site = Site::start("rotate").await?;
    let fleet = &site.fleet;
    let files = Commit::new()
        .file("receiver.yaml", receiver("github", "resources: [{kind: GitRepository, name: app}]"));
    fleet.repository("app", &files).await?;
    fleet.apply(&kustomization("app", "app", ".", &["wait: true", "timeout: 5m"])).await?;
    fleet.fails("receiver/github", "TokenNotFound", &["apps/hook", "not found"]).await?;
    site.token(TOKEN).await?;
    let old = site.path("github").await?;
    fleet.ready("kustomization/app").await?;
    ensure!(site.call(&old, TOKEN, "application/json", "{}").await? == StatusCode::OK);
    // Nobody looks at it before ten minutes are over: the Secret's change does.
    site.token("another").await?;
    let new = eventually("another path", PATIENCE, || async {
        let new = site.path("github").await?;
        ensure!(new != old);
        Ok(new)
    })
    .await?;
    ensure!(site.call(&old, TOKEN, "application/json", "{}").await? == StatusCode::NOT_FOUND);
    ensure!(site.call(&new, TOKEN, "application/json", "{}").await? == StatusCode::BAD_REQUEST);
    ensure!(site.call(&new, "another", "application/json", "{}").await? == StatusCode::OK);
    let events = fleet.run(&["get", "events", "-o", "json"]).await?;
    ensure!(events.contains("Receiver initialized for path"), "{events}");
    Ok(())
}
