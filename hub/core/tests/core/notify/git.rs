//! Commit statuses and comments, which are asked for before they are written, and recoveries, which chats hear of.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use roadstead_api::KindId;
use roadstead_budget::PoolName;
use roadstead_test_gitserver::{APP_KEY, GitHubApi, Mood, install_crypto};
use roadstead_tests::sink::{Answer, Sink};
use serde_json::{Value, json};

use super::{alert, count, news, options, pass, provider};
use crate::support::{Site, kustomization};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with an Alert for all Kustomizations of `apps`, and a Provider with a token.
async fn site(spec: &dyn Fn(&Sink) -> Value) -> Result<(Site, Sink)> {
    install_crypto();
    // The sink has no certificate.
    let (site, sink) = (Site::with(options(true)).await?, Sink::start().await?);
    site.namespace("apps").await?;
    site.apply(
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": "token" },
        "data": { "token": STANDARD.encode("t0ken") } }),
    )
    .await?;
    let mut spec = spec(&sink);
    spec["secretRef"] = json!({ "name": "token" });
    site.apply(provider("apps", spec)).await?;
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    Ok((site, sink))
}

/// Has a Kustomization come to an end at a commit, with more in its metadata.
async fn ends(site: &Site, severity: &str, message: &str, more: Value) -> Result<()> {
    let mut news = news("apps", "web", message, severity);
    let key = |key: &str| format!("kustomize.toolkit.fluxcd.io/{key}");
    let mut metadata = json!({ key("revision"): format!("main@sha1:{COMMIT}") });
    if severity == "info" {
        metadata[key("commit_status")] = "update".into();
        news.event["reason"] = "ReconciliationSucceeded".into();
    }
    for (name, value) in more.as_object().into_iter().flatten() {
        metadata[name] = value.clone();
    }
    news.event["metadata"] = metadata;
    let mut tx = site.store.begin().await?;
    tx.tell(news);
    tx.commit().await?;
    pass(&site.hub, site, "apps").await?;
    Ok(())
}

/// How often each was asked for, in what order: the first line of each request.
fn lines(sink: &Sink) -> Vec<String> {
    let line = |(head, _): (String, Value)| head.lines().next().unwrap_or_default().replace(" http/1.1", "");
    sink.got().into_iter().map(line).collect()
}

async fn deliveries(site: &Site) -> Result<Vec<(String, String)>> {
    let mut connection = site.database.connect().await?;
    Ok(sqlx::query_as("SELECT state, error FROM delivery ORDER BY id").fetch_all(&mut connection).await?)
}

#[tokio::test]
async fn a_commit_gets_the_status_that_it_has_not_yet() -> Result<()> {
    let (site, sink) =
        site(&|sink| json!({ "type": "gitea", "address": format!("{}/o/r.git", sink.url) })).await?;
    let asks = format!("get /api/v1/repos/o/r/commits/{COMMIT}/statuses?sort=recentupdate&limit=50");
    let tells = format!("post /api/v1/repos/o/r/statuses/{COMMIT}");
    sink.answers(&[Answer::Http(200, "", "[]"), Answer::Http(201, "", "{}")]);
    ends(&site, "error", "it fails", json!({})).await?;
    ensure!(lines(&sink) == [asks.clone(), tells.clone()], "{:?}", lines(&sink));
    let got = sink.got();
    ensure!(
        got.iter()
            .all(|(head, _)| head.contains("authorization: token t0ken") && head.contains("user-agent: "))
    );
    let status = &got[1].1;
    ensure!(status["state"] == "failure" && status["description"] == "build failed", "{status}");
    let context = status["context"].as_str().unwrap_or_default().to_owned();
    let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid.to_string();
    ensure!(
        context == format!("kustomization/web/{}", uid.split('-').next().unwrap_or_default()),
        "{context}"
    );
    // All is well now, and once more, in other words.
    ends(&site, "info", "it is well", json!({})).await?;
    ensure!(sink.got()[3].1["state"] == "success", "{:?}", sink.got());
    let known = json!([{ "id": 9, "context": context, "status": "success", "description": "reconciliation succeeded" }]);
    sink.answers(&[Answer::Http(200, "", known.to_string().leak())]);
    ends(&site, "info", "it is well, too", json!({})).await?;
    ensure!(lines(&sink).len() == 5 && lines(&sink)[4] == asks, "{:?}", lines(&sink));
    // A revision without a commit, and a commit that the service does not have, hold up nothing.
    let revision = "kustomize.toolkit.fluxcd.io/revision";
    ends(&site, "error", "of no commit", json!({ revision: "latest" })).await?;
    sink.answers(&[Answer::Http(404, "", "")]);
    ends(&site, "error", "of a commit that is not there", json!({})).await?;
    ends(&site, "error", "at last", json!({})).await?;
    let deliveries = deliveries(&site).await?;
    let states: Vec<&str> = deliveries.iter().map(|(state, _)| state.as_str()).collect();
    ensure!(states == ["sent", "sent", "sent", "failed", "failed", "sent"], "{deliveries:?}");
    ensure!(deliveries[3].1.contains("is not a commit"), "{deliveries:?}");
    ensure!(deliveries[4].1.contains("HTTP 404: the repository"), "{deliveries:?}");
    ensure!(lines(&sink).len() == 8, "{:?}", lines(&sink));
    Ok(())
}

#[tokio::test]
async fn the_id_of_a_status_is_what_the_providers_expression_says() -> Result<()> {
    let expression = "event.metadata.cluster + '/' + provider.metadata.name + '/' + alert.metadata.name + '/' + \
                      event.metadata.?env.orValue('none')";
    let spec = |sink: &Sink| json!({ "type": "gitlab", "address": format!("{}/a/b/c", sink.url), "commitStatusExpr": expression });
    let (site, sink) = site(&spec).await?;
    ends(&site, "error", "it fails", json!({})).await?;
    let got = sink.got();
    ensure!(
        lines(&sink)[1] == format!("post /api/v4/projects/a%2fb%2fc/statuses/{COMMIT}"),
        "{:?}",
        lines(&sink)
    );
    ensure!(got[1].1["name"] == "edge-1/chat/alert/none" && got[1].1["state"] == "failed", "{:?}", got[1]);
    ensure!(got[1].0.contains("private-token: t0ken"), "{:?}", got[1]);
    // One that fails on an event, or takes too long, fails that event only.
    for (expression, part) in [
        ("event.metadata.team", "team"),
        ("event.metadata.size() + 1", "does not come to a text"),
        (
            "[1,2,3,4,5,6,7,8,9,0].map(a, [1,2,3,4,5,6,7,8,9,0].map(b, [1,2,3,4,5,6,7,8,9,0].map(c, \
          [1,2,3,4,5,6,7,8,9,0].map(d, [1,2,3,4,5,6,7,8,9,0].map(e, a+b+c+d+e))))).size() > 3 ? 'x' : 'y'",
            "cost too much",
        ),
    ] {
        let spec = json!({ "type": "gitlab", "address": format!("{}/a/b/c", sink.url), "commitStatusExpr": expression,
            "secretRef": { "name": "token" } });
        site.apply(provider("apps", spec)).await?;
        ends(&site, "error", expression, json!({})).await?;
        let (state, error) = deliveries(&site).await?.pop().unwrap_or_default();
        ensure!(state == "failed" && error.contains(part), "{expression}: {state} {error}");
    }
    ensure!(sink.got().len() == 2, "{:?}", lines(&sink));
    Ok(())
}

#[tokio::test]
async fn a_request_has_a_comment_that_is_written_anew() -> Result<()> {
    let spec =
        |sink: &Sink| json!({ "type": "githubpullrequestcomment", "address": format!("{}/o/r", sink.url) });
    let (site, sink) = site(&spec).await?;
    let of_request = || json!({ "event.toolkit.fluxcd.io/change_request": "7" });
    sink.answers(&[
        Answer::Http(200, "", r#"{"id":5}"#),
        Answer::Http(200, "", "[]"),
        Answer::Http(201, "", "{}"),
    ]);
    ends(&site, "error", "it fails", of_request()).await?;
    let comments = "/api/v3/repos/o/r/issues/7/comments";
    let first = [
        "get /api/v3/user".to_owned(),
        format!("get {comments}?per_page=10&page=1"),
        format!("post {comments}"),
    ];
    ensure!(lines(&sink) == first, "{:?}", lines(&sink));
    let body = sink.got()[2].1["body"].as_str().unwrap_or_default().to_owned();
    ensure!(body.starts_with("<!-- flux-pr-comment-key:") && body.contains("it fails"), "{body}");
    let listed = json!([{ "id": 70, "user": { "id": 5 }, "body": body }]).to_string();
    sink.answers(&[Answer::Http(200, "", r#"{"id":5}"#), Answer::Http(200, "", listed.leak())]);
    // That it is well is told after a failure, and an event of no request is not.
    ends(&site, "info", "it is well", of_request()).await?;
    ends(&site, "error", "of no request", json!({})).await?;
    ensure!(lines(&sink)[5..] == ["patch /api/v3/repos/o/r/issues/comments/70"], "{:?}", lines(&sink));
    // An answer without an end, or that says nothing, is tried again.
    sink.answers(&[Answer::Http(200, "", r#"{"id":5}"#), Answer::Flood]);
    ends(&site, "error", "it fails again", of_request()).await?;
    let (state, error) = deliveries(&site).await?.pop().unwrap_or_default();
    ensure!(state == "waiting" && error.contains("longer than 1 MiB"), "{state}: {error}");
    Ok(())
}

#[tokio::test]
async fn chats_hear_that_all_is_well_after_a_failure_only() -> Result<()> {
    let (site, sink) = site(&|sink| json!({ "type": "rocket", "address": sink.url })).await?;
    site.cluster("edge-1", json!([{ "namespace": "apps", "agentRights": true }])).await?;
    site.apply(kustomization("apps", "web", "./web", json!({ "clusterRef": { "name": "edge-1" } }))).await?;
    for (severity, message) in [
        ("info", "well at first"),
        ("error", "a failure"),
        ("info", "well again"),
        ("info", "well as ever"),
        ("error", "another failure"),
    ] {
        ends(&site, severity, message, json!({})).await?;
    }
    let told = || -> Vec<String> {
        let text = |(_, body): (String, Value)| {
            body["attachments"][0]["text"].as_str().unwrap_or_default().to_owned()
        };
        sink.got().into_iter().map(text).collect()
    };
    ensure!(told() == ["a failure", "well again", "another failure"], "{:?}", told());
    // What was not for it has left nothing behind.
    ensure!(deliveries(&site).await?.len() == 3);
    // However long ago it failed, and however much was told of others since.
    site.store.trim_deliveries(site.hub.now() + SignedDuration::from_hours(1), 0).await?;
    ensure!(deliveries(&site).await?.is_empty());
    ends(&site, "info", "well at last", json!({})).await?;
    ensure!(told().last().map(String::as_str) == Some("well at last"), "{:?}", told());
    // Of what is gone nothing is kept.
    ends(&site, "error", "the last failure", json!({})).await?;
    let failing = "SELECT count(*) FROM alert_failing";
    ensure!(count(&site, failing).await? == 1);
    sqlx::query("DELETE FROM resource WHERE kind = 'Kustomization'")
        .execute(&mut site.database.connect().await?)
        .await?;
    site.store.trim_deliveries(site.hub.now(), 1_000).await?;
    ensure!(count(&site, failing).await? == 0);
    Ok(())
}

#[tokio::test]
async fn a_hub_that_is_short_of_memory_asks_later() -> Result<()> {
    let (site, sink) =
        site(&|sink| json!({ "type": "gitea", "address": format!("{}/o/r", sink.url) })).await?;
    let pool = site.hub.budget().pool(PoolName::Decoded);
    let others = pool.try_reserve(pool.size() - 1024)?;
    ends(&site, "error", "it fails", json!({})).await?;
    let (state, error) = deliveries(&site).await?.pop().unwrap_or_default();
    ensure!(
        state == "waiting" && error.contains("short of memory") && sink.got().is_empty(),
        "{state}: {error}"
    );
    drop(others);
    Ok(())
}

/// A Secret of `apps` with a GitHub App, whose tokens this API gives out.
fn app_secret(name: &str, api: &GitHubApi) -> Value {
    let url = api.url();
    let keys = [
        ("githubAppID", "7"),
        ("githubAppInstallationID", "42"),
        ("githubAppPrivateKey", APP_KEY),
        ("githubAppBaseURL", url.as_str()),
        ("ca.crt", api.ca_pem()),
    ];
    let data = keys.map(|(key, text)| (key.to_owned(), STANDARD.encode(text).into()));
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": name },
        "data": serde_json::Map::from_iter(data) })
}

#[tokio::test]
async fn statuses_events_and_comments_are_written_with_a_token_of_a_github_app() -> Result<()> {
    install_crypto();
    let (site, api) = (Site::with(options(false)).await?, GitHubApi::start(|_, _| {}).await?);
    site.namespace("apps").await?;
    site.apply(app_secret("app", &api)).await?;
    let address = format!("https://{}/o/r.git", api.address());
    let of = |type_: &str| json!({ "type": type_, "address": address, "secretRef": { "name": "app" } });
    site.apply(provider("apps", of("github"))).await?;
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    // What is refused holds up what is told until there is a token.
    let suspended = r#"{"message":"This installation has been suspended"}"#;
    api.mood(Mood::Says(403, String::new(), suspended.to_owned()));
    ends(&site, "error", "it fails", json!({})).await?;
    let told = deliveries(&site).await?;
    ensure!(told[0].0 != "sent" && told[0].1.contains("is suspended"), "{told:?}");
    ensure!(!told[0].1.contains("CANARY"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn each_type_of_github_sends_with_a_token_of_an_app() -> Result<()> {
    let token = "POST /app/installations/42/access_tokens".to_owned();
    for (type_, asked) in [
        (
            "github",
            vec![
                token.clone(),
                format!("GET /repos/o/r/commits/{COMMIT}/statuses?per_page=50"),
                format!("POST /repos/o/r/statuses/{COMMIT}"),
            ],
        ),
        ("githubdispatch", vec![token.clone(), "POST /repos/o/r/dispatches".to_owned()]),
        (
            "githubpullrequestcomment",
            vec![
                token.clone(),
                "GET /app".to_owned(),
                "GET /users/fleet-app[bot]".to_owned(),
                "GET /repos/o/r/issues/7/comments?per_page=10&page=1".to_owned(),
                "POST /repos/o/r/issues/7/comments".to_owned(),
            ],
        ),
    ] {
        install_crypto();
        let (site, api) = (Site::with(options(false)).await?, GitHubApi::start(|_, _| {}).await?);
        site.namespace("apps").await?;
        site.apply(app_secret("app", &api)).await?;
        let address = format!("https://{}/o/r.git", api.address());
        let spec = json!({ "type": type_, "address": address, "secretRef": { "name": "app" } });
        site.apply(provider("apps", spec)).await?;
        site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] })))
            .await?;
        let more = json!({ "event.toolkit.fluxcd.io/change_request": "7" });
        ends(&site, "error", "it fails", more).await?;
        let seen: Vec<String> = api.asked().into_iter().map(|(line, _)| line).collect();
        ensure!(seen == asked, "{type_}: {seen:?} {:?}", deliveries(&site).await?);
        let told = deliveries(&site).await?;
        ensure!(told.len() == 1 && told[0].0 == "sent", "{type_}: {told:?}");
    }
    Ok(())
}
