//! Receivers over HTTP: what is taken, what is not, and what callers can take from others.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, RequestBuilder, StatusCode};
use roadstead_hub_api::ApiOptions;
use roadstead_model::ResourceUid;
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{Replica, Site, client, tls};

const PATIENCE: Duration = Duration::from_secs(30);
const TOKEN: &str = "a token of some length";
const BODY: &str = r#"{"repository":{"name":"web"}}"#;

struct Hooks {
    replica: Replica,
    http: reqwest::Client,
    _site: Site,
}

/// A call as its sender makes it.
type Sent<'a> = (&'a [(&'a str, String)], &'a str);

impl Hooks {
    async fn new() -> Result<Self> {
        let site = Site::new().await?;
        let replica = site.replica().await?;
        let http = client(&replica)?;
        let hooks = Self { replica, http, _site: site };
        hooks.token(TOKEN).await?;
        for name in ["web", "api"] {
            hooks.apply(&format!(
                "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: {name}, labels: {{hook: 'yes'}}}}\n\
                 spec: {{interval: 24h, url: 'https://git.example.com/{name}.git'}}\n"
            ))
            .await?;
        }
        Ok(hooks)
    }

    async fn apply(&self, manifest: &str) -> Result<()> {
        self.replica.kubectl.apply(manifest).await.map(|_| ())
    }

    async fn token(&self, token: &str) -> Result<()> {
        self.apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: token}}\nstringData: {{token: '{token}'}}\n"
        ))
        .await
    }

    /// A Receiver for the repository `web`, unless `more` says otherwise, and a pass over it: its path.
    async fn receiver(&self, name: &str, type_: &str, more: &str) -> Result<String> {
        let resources =
            if more.contains("resources") { "" } else { "\n  resources: [{kind: GitRepository, name: web}]" };
        self.apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {{name: {name}}}\nspec:\n  type: {type_}\n  \
             secretRef: {{name: token}}{resources}\n  {more}\n"
        ))
        .await?;
        let path = self.pass(name).await?["status"]["webhookPath"].clone();
        Ok(path.as_str().unwrap_or_default().to_owned())
    }

    async fn pass(&self, name: &str) -> Result<Value> {
        let receiver = self.replica.kubectl.get(&["receiver", name]).await?;
        let uid: ResourceUid = receiver["metadata"]["uid"].as_str().context("a uid")?.parse()?;
        self.replica.hub.hooks.process_receiver(uid).await?;
        self.replica.kubectl.get(&["receiver", name]).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.replica.url)).timeout(PATIENCE)
    }

    async fn call(&self, path: &str, (headers, body): Sent<'_>) -> Result<StatusCode> {
        let request = headers
            .iter()
            .fold(self.request(Method::POST, path), |request, (name, value)| request.header(*name, value));
        Ok(request.body(body.to_owned()).send().await?.status())
    }

    /// How often a reconciliation was asked for, by what is in the annotation.
    async fn asked(&self, name: &str) -> Result<Option<String>> {
        let object = self.replica.kubectl.get(&["gitrepository", name]).await?;
        let value = &object["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
        Ok(value.as_str().map(str::to_owned))
    }

    /// Makes a call that is to be answered so; says whether a reconciliation of `web` was asked for.
    async fn is_acted_on(&self, path: &str, sent: Sent<'_>, code: u16) -> Result<bool> {
        let before = self.asked("web").await?;
        let answer = self.call(path, sent).await?;
        ensure!(answer.as_u16() == code, "{answer}, and not {code}: {sent:?}");
        Ok(self.asked("web").await? != before)
    }
}

fn signature(algorithm: hmac::Algorithm, token: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(algorithm, token.as_bytes()), body.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(body: &str) -> String {
    format!("sha256={}", signature(hmac::HMAC_SHA256, TOKEN, body))
}

#[tokio::test]
async fn a_signed_or_shown_token_is_asked_for_by_each_type_that_has_one() -> Result<()> {
    let hooks = Hooks::new().await?;
    let json = ("content-type", "application/json".to_owned());
    let nexus = signature(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, TOKEN, BODY);
    for (type_, header, right) in [
        ("github", "x-hub-signature-256", sha256(BODY)),
        ("generic-hmac", "x-signature", sha256(BODY)),
        ("bitbucket", "x-hub-signature", sha256(BODY)),
        ("nexus", "x-nexus-webhook-signature", nexus),
        ("gitlab", "x-gitlab-token", TOKEN.to_owned()),
        ("harbor", "authorization", TOKEN.to_owned()),
    ] {
        let path = hooks.receiver(type_, type_, "").await?;
        let with = |value: &str| vec![json.clone(), (header, value.to_owned())];
        ensure!(hooks.is_acted_on(&path, (&with(&right), BODY), 200).await?, "{type_}");
        let (mut other, last) = (right.clone(), if right.ends_with('0') { "1" } else { "0" });
        other.replace_range(right.len() - 1.., last);
        for wrong in [other.as_str(), &right[..right.len() - 2], ""] {
            ensure!(!hooks.is_acted_on(&path, (&with(wrong), BODY), 400).await?, "{type_}: {wrong}");
        }
        let none = [json.clone()];
        ensure!(!hooks.is_acted_on(&path, (&none, BODY), 400).await?, "{type_} without a proof");
        if !["gitlab", "harbor"].contains(&type_) {
            let sent = with(&right);
            ensure!(!hooks.is_acted_on(&path, (&sent, "{}"), 400).await?, "{type_}: another body");
        }
    }
    // What was refused is in the audit log, once written.
    hooks.replica.hub.audit.write_counted(true).await?;
    let log = hooks.replica.kubectl.run(&["get", "--raw", "/fleet/v1/audit"]).await?;
    ensure!(log.contains("\"call\"") && !log.contains(TOKEN), "{log}");
    ensure!(log.contains("system:roadstead:receiver:default:github"), "{log}");
    Ok(())
}

#[tokio::test]
async fn types_without_a_proof_of_their_own_are_known_by_the_path_and_by_what_they_send() -> Result<()> {
    let hooks = Hooks::new().await?;
    let path = hooks.receiver("generic", "generic", "").await?;
    ensure!(hooks.is_acted_on(&path, (&[], ""), 200).await?);
    ensure!(hooks.is_acted_on(&path, (&[("content-type", "text/plain".to_owned())], "not JSON"), 200).await?);
    let before = hooks.asked("web").await?;
    ensure!(hooks.request(Method::GET, &path).send().await?.status() == StatusCode::OK);
    ensure!(hooks.asked("web").await? != before, "any method will do");
    for type_ in ["dockerhub", "quay", "acr"] {
        let path = hooks.receiver(type_, type_, "").await?;
        ensure!(hooks.is_acted_on(&path, (&[], BODY), 200).await?, "{type_}");
        for wrong in ["", "{", "not JSON"] {
            ensure!(!hooks.is_acted_on(&path, (&[], wrong), 400).await?, "{type_}: {wrong}");
        }
    }
    let path =
        hooks.receiver("cdevents", "cdevents", "events: [dev.cdevents.artifact.published.0.2.0]").await?;
    let type_ = "dev.cdevents.artifact.published.0.2.0";
    let event = json!({
        "context": { "version": "0.4.1", "id": "1", "source": "/ci", "timestamp": "2026-01-01T00:00:00Z", "type": type_ },
        "subject": { "id": "app", "content": {} },
    })
    .to_string();
    let header = [("ce-type", type_.to_owned())];
    ensure!(hooks.is_acted_on(&path, (&header, &event), 200).await?);
    ensure!(!hooks.is_acted_on(&path, (&header, BODY), 400).await?);
    // An event that nobody listens to is heard, and nothing more.
    ensure!(!hooks.is_acted_on(&path, (&[("ce-type", "dev.cdevents.x".to_owned())], &event), 200).await?);
    Ok(())
}

#[tokio::test]
async fn google_and_issuers_are_asked_for_signed_tokens() -> Result<()> {
    let hooks = Hooks::new().await?;
    // Without what is to be in Google's tokens it is not Ready.
    ensure!(hooks.receiver("gcr", "gcr", "").await?.is_empty());
    let gcr = hooks.replica.kubectl.get(&["receiver", "gcr"]).await?;
    let ready = &gcr["status"]["conditions"][0];
    ensure!(ready["reason"] == "TokenNotFound", "{gcr:#}");
    ensure!(ready["message"].as_str().is_some_and(|message| message.contains("'email'")), "{gcr:#}");
    hooks
        .apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: token}}\nstringData: {{token: '{TOKEN}', email: a@b.test, audience: me}}\n"
        ))
        .await?;
    let path = hooks.pass("gcr").await?["status"]["webhookPath"].as_str().context("a path")?.to_owned();
    let push = json!({ "message": { "data": STANDARD.encode(r#"{"action":"INSERT"}"#) } }).to_string();
    for token in ["", "Bearer", "Bearer x", "Bearer e30.e30.", "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0."]
    {
        let header = [("authorization", token.to_owned())];
        ensure!(!hooks.is_acted_on(&path, (&header, &push), 400).await?, "{token}");
    }
    ensure!(!hooks.is_acted_on(&path, (&[], &push), 400).await?);
    // One whose issuer may not be asked.
    let spec = "type: generic-oidc\n  resources: [{kind: GitRepository, name: web}]\n  oidcProviders: [{issuerURL: 'https://127.0.0.1:9', \
                validations: [{expression: 'true', message: x}]}]";
    hooks
        .apply(&format!("apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {{name: oidc}}\nspec:\n  {spec}\n"))
        .await?;
    let path = hooks.pass("oidc").await?["status"]["webhookPath"].as_str().context("a path")?.to_owned();
    // {"alg":"RS256"} and {"iss":"https://127.0.0.1:9"}
    let bearer = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovLzEyNy4wLjAuMTo5In0.AAAA";
    ensure!(!hooks.is_acted_on(&path, (&[("authorization", bearer.to_owned())], ""), 400).await?);
    Ok(())
}

#[tokio::test]
async fn whoever_does_not_know_the_path_learns_nothing() -> Result<()> {
    let hooks = Hooks::new().await?;
    let path = hooks.receiver("app", "gitlab", "").await?;
    let right = [("x-gitlab-token", TOKEN.to_owned())];
    ensure!(hooks.is_acted_on(&path, (&right, "{}"), 200).await?);
    let other = format!("/hook/{}", "0".repeat(64));
    let nobody = hooks.request(Method::POST, &other).send().await?;
    let (code, headers, said) = (nobody.status(), nobody.headers().clone(), nobody.text().await?);
    ensure!(code == StatusCode::NOT_FOUND, "{code}");
    for path in [
        path.to_uppercase().replace("/HOOK", "/hook"),
        format!("{path}0"),
        path[..path.len() - 1].to_owned(),
        format!("{path}?a=b"),
        "/hook/x".to_owned(),
    ] {
        let answer = hooks.request(Method::POST, &path).header(right[0].0, TOKEN).send().await?;
        ensure!(answer.status() == code, "{path}: {}", answer.status());
        for (name, value) in &headers {
            // When it was, and which of all requests it is.
            let differs = name == "date" || name == "audit-id";
            ensure!(differs || answer.headers().get(name) == Some(value), "{path}: {name}");
        }
        ensure!(answer.text().await? == said, "{path}");
    }
    // Of a Receiver that takes no calls, nothing but that is told, whatever is shown.
    hooks.receiver("app", "gitlab", "suspend: true").await?;
    for sent in [(&right[..], "{}"), (&[][..], "")] {
        ensure!(!hooks.is_acted_on(&path, sent, 503).await?);
    }
    let app = hooks.replica.kubectl.get(&["receiver", "app"]).await?;
    ensure!(app["status"]["webhookPath"] == path.as_str(), "{app:#}");
    hooks.receiver("app", "gitlab", "suspend: false").await?;
    ensure!(hooks.is_acted_on(&path, (&right, "{}"), 200).await?);
    // With it, its path goes.
    hooks.replica.kubectl.run(&["delete", "receiver", "app"]).await?;
    ensure!(!hooks.is_acted_on(&path, (&right, "{}"), 404).await?);
    Ok(())
}

#[tokio::test]
async fn another_token_is_another_path_at_once() -> Result<()> {
    let hooks = Hooks::new().await?;
    let old = hooks.receiver("app", "gitlab", "").await?;
    hooks.token("another").await?;
    for token in [TOKEN, "another"] {
        let shown = [("x-gitlab-token", token.to_owned())];
        ensure!(!hooks.is_acted_on(&old, (&shown, "{}"), 404).await?, "{token}");
    }
    let new = hooks.pass("app").await?["status"]["webhookPath"].as_str().context("a path")?.to_owned();
    ensure!(new != old);
    ensure!(hooks.is_acted_on(&new, (&[("x-gitlab-token", "another".to_owned())], "{}"), 200).await?);
    // An empty one is none, and the same name without a Secret neither.
    hooks.token("").await?;
    let empty = hooks.pass("app").await?;
    ensure!(empty["status"]["webhookPath"].is_null(), "{empty:#}");
    ensure!(!hooks.is_acted_on(&new, (&[], "{}"), 404).await?);
    hooks.replica.kubectl.run(&["delete", "secret", "token"]).await?;
    let none = hooks.pass("app").await?;
    let conditions = none["status"]["conditions"].as_array().context("conditions")?;
    let told: Vec<_> = conditions.iter().map(|one| (&one["type"], &one["status"], &one["reason"])).collect();
    ensure!(
        told == [
            (&json!("Ready"), &json!("False"), &json!("TokenNotFound")),
            (&json!("Reconciling"), &json!("True"), &json!("ProgressingWithRetry"))
        ],
        "{none:#}"
    );
    let table = hooks.replica.kubectl.run(&["get", "receivers"]).await?;
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    ensure!(head == ["NAME", "AGE", "READY", "STATUS"] && table.contains("not found"), "{table}");
    Ok(())
}

#[tokio::test]
async fn two_receivers_never_have_one_path() -> Result<()> {
    let hooks = Hooks::new().await?;
    hooks.token("tok").await?;
    hooks
        .apply("apiVersion: v1\nkind: Secret\nmetadata: {name: longer}\nstringData: {token: toke}\n")
        .await?;
    let first = hooks.receiver("enapp", "generic", "").await?;
    // The same letters, put together otherwise: "tok" + "enapp", "toke" + "napp".
    hooks.apply(
        "apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {name: napp}\nspec: {type: generic, secretRef: \
         {name: longer}, resources: [{kind: GitRepository, name: api}]}\n",
    )
    .await?;
    let second = hooks.pass("napp").await?;
    ensure!(second["status"]["webhookPath"].is_null(), "{second:#}");
    ensure!(second["status"]["conditions"][0]["reason"] == "ValidationFailed", "{second:#}");
    ensure!(hooks.is_acted_on(&first, (&[], ""), 200).await?);
    ensure!(hooks.asked("api").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn labels_and_filters_choose_what_is_reconciled() -> Result<()> {
    let hooks = Hooks::new().await?;
    let json = [("content-type", "application/json".to_owned())];
    let all = "resources: [{kind: GitRepository, name: '*', matchLabels: {hook: 'yes'}}, {kind: GitRepository, name: absent}, \
               {kind: ImageRepository, name: elsewhere}]";
    let path = hooks.receiver("all", "generic", all).await?;
    ensure!(hooks.call(&path, (&json, BODY)).await? == StatusCode::OK);
    let both = (hooks.asked("web").await?, hooks.asked("api").await?);
    ensure!(both.0.is_some() && both.1.is_some(), "{both:?}");
    let one = format!("{all}\n  resourceFilter: req.repository.name == res.metadata.name");
    let path = hooks.receiver("one", "generic", &one).await?;
    ensure!(hooks.is_acted_on(&path, (&json, BODY), 200).await?);
    ensure!(hooks.asked("api").await? == both.1, "the filter lets it through");
    // It says that it is JSON, and is not; and a filter that fails on what is.
    for wrong in ["", "{", "{}"] {
        ensure!(!hooks.is_acted_on(&path, (&json, wrong), 500).await?, "{wrong}");
    }
    // What is deep or long is no more than that.
    for wrong in ["[".repeat(100_000), format!("[{}1]", "1,".repeat(1_000_000))] {
        let answer = hooks.call(&path, (&json, &wrong)).await?;
        ensure!([413, 500].contains(&answer.as_u16()), "{answer}");
    }
    hooks.receiver("broken", "generic", "resourceFilter: 'req.('").await?;
    let broken = hooks.replica.kubectl.get(&["receiver", "broken"]).await?;
    let conditions = broken["status"]["conditions"].as_array().context("conditions")?;
    for (type_, status) in [("Ready", "False"), ("Stalled", "True")] {
        let one = conditions.iter().find(|one| one["type"] == type_).context("a condition")?;
        ensure!(one["status"] == status && one["reason"] == "InvalidCELExpression", "{broken:#}");
    }
    Ok(())
}

#[tokio::test]
async fn a_body_is_bounded_before_it_is_read() -> Result<()> {
    let hooks = Hooks::new().await?;
    let path = hooks.receiver("app", "github", "").await?;
    for (path, size, code) in [
        (path.as_str(), 1_u64 << 30, "413"),
        (path.as_str(), (3 << 20) + 1, "413"),
        ("/hook/x", 1 << 30, "404"),
    ] {
        let mut stream = tls(&hooks.replica, rustls::ALL_VERSIONS).await?;
        let head = format!("POST {path} HTTP/1.1\r\nhost: hub\r\ncontent-length: {size}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await??;
        ensure!(answer.ends_with(code.as_bytes()), "{}", String::from_utf8_lossy(&answer));
    }
    // One that does not say how long it is.
    let mut stream = tls(&hooks.replica, rustls::ALL_VERSIONS).await?;
    let head = format!("POST {path} HTTP/1.1\r\nhost: hub\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    let mut sent = 0_u64;
    let mut answer = [0; 12];
    loop {
        tokio::select! {
            biased;
            read = stream.read(&mut answer) => { ensure!(read? == 12); break }
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        // What is written after the answer is not read any more.
        if stream.write_all(chunk.as_bytes()).await.is_ok() {
            sent += 0x1_0000;
        }
        ensure!(sent < 64 << 20, "{sent} bytes were taken");
    }
    ensure!(answer.ends_with(b"413"), "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

#[tokio::test]
async fn bodies_that_stand_still_hold_up_one_receiver_and_not_for_long() -> Result<()> {
    let hooks = Hooks::new().await?;
    let (slow, other) =
        (hooks.receiver("slow", "generic", "").await?, hooks.receiver("other", "generic", "").await?);
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = tls(&hooks.replica, rustls::ALL_VERSIONS).await?;
        let head = format!("POST {slow} HTTP/1.1\r\nhost: hub\r\ncontent-length: 1000\r\n\r\n{{");
        stream.write_all(head.as_bytes()).await?;
        held.push(stream);
    }
    eventually("the fifth is one too many", PATIENCE, || async {
        ensure!(hooks.call(&slow, (&[], "{}")).await? == StatusCode::TOO_MANY_REQUESTS);
        Ok(())
    })
    .await?;
    ensure!(hooks.is_acted_on(&other, (&[], "{}"), 200).await?, "another Receiver waits");
    for mut stream in held {
        let mut answer = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await??;
        ensure!(answer.ends_with(b"408"), "{}", String::from_utf8_lossy(&answer));
    }
    ensure!(hooks.is_acted_on(&slow, (&[], "{}"), 200).await?, "it stays locked");
    Ok(())
}

#[tokio::test]
async fn calls_are_counted_for_each_receiver_once_they_are_proven_and_for_each_address() -> Result<()> {
    let hooks = Hooks::new().await?;
    let path = hooks.receiver("app", "gitlab", "").await?;
    let (right, wrong) = ([("x-gitlab-token", TOKEN.to_owned())], [("x-gitlab-token", "wrong".to_owned())]);
    // Who only knows the path takes nothing from whoever knows the token.
    for _ in 0..65 {
        ensure!(hooks.call(&path, (&wrong, "{}")).await? == StatusCode::BAD_REQUEST);
    }
    // The same call again and again asks for the same once more, so often and no more.
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.push(hooks.call(&path, (&right, "{}")).await?.as_u16());
    }
    ensure!(answers[..60].iter().all(|code| *code == 200), "{answers:?}");
    ensure!(answers.contains(&429) && answers.iter().all(|code| [200, 429].contains(code)), "{answers:?}");
    // And all calls of an address, whatever they call.
    let nobody = format!("/hook/{}", "0".repeat(64));
    let mut refused = None;
    for _ in 0..2_000 {
        let answer = hooks.request(Method::POST, &nobody).send().await?;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(answer);
            break;
        }
        ensure!(answer.status() == StatusCode::NOT_FOUND, "{}", answer.status());
    }
    let refused = refused.context("nothing was too many")?;
    ensure!(refused.headers().contains_key("retry-after"));
    Ok(())
}

#[tokio::test]
async fn a_listener_of_their_own_serves_nothing_else() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica_with(ApiOptions { hooks: false, ..ApiOptions::default() }).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}", listener.local_addr()?);
    let identity = replica.hub.pki().serving_identity(&["127.0.0.1".to_owned()], replica.hub.now())?;
    let stop = CancellationToken::new();
    let served = tokio::spawn({
        let (hub, stop) = (replica.hub.clone(), stop.clone());
        async move { roadstead_hub_api::serve_hooks(hub, listener, &identity, ApiOptions::default(), stop).await }
    });
    let http = client(&replica)?;
    let hooks = Hooks { http: http.clone(), replica, _site: site };
    hooks.token(TOKEN).await?;
    hooks
        .apply("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: web}\nspec: {interval: 24h, url: 'https://git.example.com/w.git'}\n")
        .await?;
    let path = hooks.receiver("app", "generic", "").await?;
    ensure!(http.post(format!("{url}{path}")).send().await?.status() == StatusCode::OK);
    ensure!(hooks.asked("web").await?.is_some());
    // On the API's listener that path is like any other, and on this one there is no API, with a good token neither.
    ensure!(hooks.call(&path, (&[], "")).await? == StatusCode::UNAUTHORIZED);
    for other in ["/api/v1/namespaces", "/fleet/v1/clusters", "/ui/", "/openapi/v3", "/readyz", "/"] {
        let answer = http.get(format!("{url}{other}")).bearer_auth(&hooks.replica.token).send().await?;
        ensure!(answer.status() == StatusCode::NOT_FOUND, "{other}: {}", answer.status());
    }
    ensure!(http.get(format!("{url}/healthz")).send().await?.status() == StatusCode::OK);
    stop.cancel();
    served.await??;
    Ok(())
}
