//! Clients without a good token: what they can take from those who have one.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_hub_api::ApiOptions;
use roadstead_hub_core::identity::Identity;
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Replica, Site, client, make_older, tls};

const PATIENCE: Duration = Duration::from_secs(30);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn ask(replica: &Replica, http: &reqwest::Client, token: &str) -> Result<StatusCode> {
    let request = http.get(format!("{}{SECRETS}", replica.url)).bearer_auth(token).timeout(PATIENCE);
    Ok(request.send().await?.status())
}

/// With old code each of them held its place for as long as a body may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_sent_enrolments_do_not_lock_an_administrator_out() -> Result<()> {
    let site = Site::new().await?;
    let long = Duration::from_secs(600);
    let options =
        ApiOptions { connections: 100, body_timeout: long, header_timeout: long, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let mut held = Vec::new();
    for _ in 0..101 {
        let mut stream = tls(&replica, rustls::ALL_VERSIONS).await?;
        let head = "POST /fleet/v1/enrol HTTP/1.1\r\nhost: hub\r\ncontent-type: application/json\r\n\
            content-length: 1000\r\n\r\n{\"token\":";
        stream.write_all(head.as_bytes()).await?;
        held.push(stream);
    }
    let begin = Instant::now();
    for _ in 0..3 {
        // A new connection each time.
        assert_eq!(ask(&replica, &client(&replica)?, &replica.token).await?, StatusCode::OK);
    }
    println!("three requests took {:?}", begin.elapsed());
    ensure!(begin.elapsed() < Duration::from_secs(10), "three requests took {:?}", begin.elapsed());
    Ok(())
}

/// The administrator's connections stay when anonymous clients come in numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anonymous_clients_go_before_those_with_a_token() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica_with(ApiOptions { connections: 10, ..ApiOptions::default() }).await?;
    let mut watch = tls(&replica, rustls::ALL_VERSIONS).await?;
    let head =
        format!("GET {SECRETS} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {}\r\n\r\n", replica.token);
    watch.write_all(head.as_bytes()).await?;
    let mut first = [0; 15];
    watch.read_exact(&mut first).await?;
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    let mut anonymous = Vec::new();
    for _ in 0..50 {
        anonymous.push(tokio::time::timeout(PATIENCE, tls(&replica, rustls::ALL_VERSIONS)).await??);
    }
    // It has been idle for longer than any of them, and is served.
    let mut rest = vec![0; 64 * 1024];
    watch.write_all(head.as_bytes()).await?;
    let read = tokio::time::timeout(PATIENCE, watch.read(&mut rest)).await??;
    ensure!(read > 0, "the administrator's connection was closed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_tokens_ask_the_database_nothing() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = client(&replica)?;
    assert_eq!(ask(&replica, &http, &replica.token).await?, StatusCode::OK);
    // Whoever asks for a token waits from here on, for as long as this transaction lasts.
    let mut database = site.database.connect().await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE access_token IN ACCESS EXCLUSIVE MODE").execute(&mut database).await?;
    let digit = |n: usize| char::from_digit(u32::try_from(n % 16).unwrap_or_default(), 16).unwrap_or('0');
    for n in 0..100 {
        let mut made_up = replica.token.clone();
        let last = made_up.pop().context("a digit")?;
        made_up.push(if last == digit(n) { digit(n + 1) } else { digit(n) });
        assert_eq!(ask(&replica, &http, &made_up).await?, StatusCode::UNAUTHORIZED);
    }
    let join = json!({ "token": format!("rsdj_{}", "0".repeat(96)), "csr": "x", "kubeSystemUid": "y" });
    let answer = http.post(format!("{}/fleet/v1/enrol", replica.url)).json(&join).send().await?;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    // Those of the form from before there was a check may be good: a few wait, the others are told to come back.
    let mut flood = tokio::task::JoinSet::new();
    for n in 0..300 {
        let (url, http) = (format!("{}{SECRETS}", replica.url), http.clone());
        flood.spawn(async move {
            let answer = http.get(url).bearer_auth(format!("rsdt_{n:064x}")).send().await?;
            let (code, retry) = (answer.status(), answer.headers().get("retry-after").is_some());
            Ok::<_, anyhow::Error>((code, retry, answer.json::<Value>().await?))
        });
    }
    let mut busy = 0;
    while busy < 200 {
        let answer = tokio::time::timeout(PATIENCE, flood.join_next()).await.context("they all wait")?;
        let (code, retry, body) = answer.context("an answer")???;
        ensure!(code == StatusCode::TOO_MANY_REQUESTS && retry, "{code}: {body}");
        ensure!(body["reason"] == "TooManyRequests", "{body}");
        busy += 1;
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut database).await?;
    eventually("the administrator is served", PATIENCE, || async {
        assert_eq!(ask(&replica, &http, &replica.token).await?, StatusCode::OK);
        Ok(())
    })
    .await
}

/// Join tokens in the form from before there was a check, which may be good as far as one can tell: their enrolments wait for
/// each other, and an agent with a new one enrols meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_join_tokens_in_the_old_form_hold_no_enrolment_up() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = client(&replica)?;
    let cluster = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": "edge" } });
    let clusters = format!("{}/apis/fleet.roadstead.dev/v1alpha1/clusters", replica.url);
    let made = http.post(clusters).bearer_auth(&replica.token).json(&cluster).send().await?;
    assert_eq!(made.status(), StatusCode::CREATED);
    let invitation = replica.hub.enrolments.create_join_token(&Identity::hub(), "edge", None).await?;
    let mut database = site.database.connect().await?;
    sqlx::raw_sql("BEGIN; LOCK TABLE join_token IN ACCESS EXCLUSIVE MODE").execute(&mut database).await?;
    let enrol = |token: String| {
        let body =
            json!({ "token": token, "csr": "x", "kubeSystemUid": "b4f5d2fe-9a41-4a5c-8f6c-0c5e3a1d2b17" });
        http.post(format!("{}/fleet/v1/enrol", replica.url)).json(&body).timeout(PATIENCE).send()
    };
    let mut flood = tokio::task::JoinSet::new();
    for n in 0..60 {
        let made_up = enrol(format!("{n:0>43}"));
        flood.spawn(async move { anyhow::Ok(made_up.await?.status()) });
    }
    // Some are told to come back: the rest waits.
    let first = tokio::time::timeout(PATIENCE, flood.join_next()).await.context("all wait")?;
    assert_eq!(first.context("an answer")???, StatusCode::TOO_MANY_REQUESTS);
    let honest = tokio::spawn(enrol(invitation.token.to_string()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut database).await?;
    let answer = honest.await??;
    // It came to its certificate request, which is none.
    assert_ne!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{}", answer.text().await?);
    Ok(())
}

/// Tokens that were given out before there was a check are good as long as they were.
#[tokio::test]
async fn a_token_from_before_there_was_a_check_is_taken() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = client(&replica)?;
    let old = format!("rsdt_{}", "0f".repeat(32));
    assert_eq!(ask(&replica, &http, &old).await?, StatusCode::UNAUTHORIZED);
    let mut database = site.database.connect().await?;
    sqlx::query(
        "INSERT INTO access_token (id, hash, username, groups) \
         VALUES (gen_random_uuid(), sha256(convert_to($1, 'UTF8')), 'old', ARRAY['system:masters'])",
    )
    .bind(&old)
    .execute(&mut database)
    .await?;
    // Tokens are signed too since then: the first start of this version takes those that are there.
    make_older(&site).await?;
    let upgraded = site.replica().await?;
    let http = client(&upgraded)?;
    eventually("it is taken", PATIENCE, || async {
        ensure!(ask(&upgraded, &http, &old).await? == StatusCode::OK, "not yet");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_enrolment_is_small_json() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = client(&replica)?;
    let send = async |form: &str, body: String| -> Result<(StatusCode, Value)> {
        let request = http.post(format!("{}/fleet/v1/enrol", replica.url)).header("content-type", form);
        let answer = request.body(body).send().await?;
        Ok((answer.status(), answer.json().await?))
    };
    let enrolment = |token: &str| json!({ "token": token, "csr": "x", "kubeSystemUid": "y" }).to_string();
    for form in ["application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"] {
        assert_eq!(send(form, enrolment("x")).await?.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{form}");
    }
    let (code, body) = send("application/json", enrolment(&"x".repeat(20_000))).await?;
    assert_eq!((code, &body["reason"]), (StatusCode::PAYLOAD_TOO_LARGE, &"RequestEntityTooLarge".into()));
    let (code, body) = send("application/json", enrolment("made up")).await?;
    assert_eq!(code, StatusCode::UNAUTHORIZED, "{body}");
    ensure!(body["message"].as_str().is_some_and(|text| text.contains("roadstead cluster join")), "{body}");
    Ok(())
}

#[tokio::test]
async fn no_answer_is_to_be_kept_or_taken_for_something_else() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = client(&replica)?;
    for (path, token) in
        [(SECRETS, true), (SECRETS, false), ("/nothing", true), ("/fleet/v1/health", true), ("/livez", false)]
    {
        let mut request = http.get(format!("{}{path}", replica.url));
        if token {
            request = request.bearer_auth(&replica.token);
        }
        let answer = request.send().await?;
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{path}");
    }
    Ok(())
}
