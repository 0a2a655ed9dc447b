//! Clients that are too slow, too many, too large or too old: what each is told, and that others are served meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::StatusCode;
use roadstead_hub_api::ApiOptions;
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Replica, Site, client, tcp, tls, tls_for};

const PATIENCE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(2);
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn head(replica: &Replica, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {}\r\n{more}\r\n", replica.token)
}

/// All that comes until the other side closes, or is silent for long.
async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<String> {
    let mut bytes = Vec::new();
    // An end without a farewell is an end.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.context("it stays open")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn get(replica: &Replica, http: &reqwest::Client, path: &str) -> Result<reqwest::Response> {
    Ok(http.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token).send().await?)
}

#[tokio::test]
async fn slow_clients_are_cut() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { header_timeout: SOON, body_timeout: SOON, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    // No handshake.
    let mut silent = tcp(&replica).await?;
    assert_eq!(rest(&mut silent).await?, "");
    // Headers that trickle: each piece in time, the whole never.
    let mut slow = tls(&replica, rustls::ALL_VERSIONS).await?;
    let begin = Instant::now();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\n").await?;
    let mut ended = false;
    while begin.elapsed() < PATIENCE && !ended {
        let mut byte = [0; 1024];
        ended = match tokio::time::timeout(Duration::from_millis(50), slow.read(&mut byte)).await {
            Ok(read) => read.map_or(true, |count| count == 0),
            Err(_) => slow.write_all(b"x: y\r\n").await.is_err(),
        };
    }
    ensure!(ended, "a client that trickles its headers is not cut");
    // A body that stands still, and one on the open route, which needs no token.
    for line in ["POST /api/v1/namespaces/default/secrets", "POST /fleet/v1/enrol"] {
        let more = "content-type: application/json\r\ncontent-length: 100\r\n";
        let mut slow = tls(&replica, rustls::ALL_VERSIONS).await?;
        slow.write_all(head(&replica, line, more).as_bytes()).await?;
        slow.write_all(b"{\"met").await?;
        let answer = rest(&mut slow).await?;
        ensure!(answer.starts_with("HTTP/1.1 4"), "{line}: {answer}");
        if line.contains("secrets") {
            ensure!(
                answer.starts_with("HTTP/1.1 408") && answer.contains("\"reason\":\"Timeout\""),
                "{answer}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_body_without_a_length_is_bounded_too() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let piece = vec![b' '; 256 * 1024];
    let pieces = tokio_stream::iter((0..20).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    let answer = client(&replica)?
        .post(format!("{}{SECRETS}", replica.url))
        .bearer_auth(&replica.token)
        .header("content-type", "application/json")
        .body(reqwest::Body::wrap_stream(pieces))
        .send()
        .await?;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.json::<Value>().await?["reason"], "RequestEntityTooLarge");
    Ok(())
}

#[tokio::test]
async fn idle_connections_are_closed_and_watches_are_not_idle() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { idle_timeout: SOON, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let mut watch = tls(&replica, rustls::ALL_VERSIONS).await?;
    watch
        .write_all(head(&replica, &format!("GET {SECRETS}?watch=1&timeoutSeconds=10"), "").as_bytes())
        .await?;
    let begin = Instant::now();
    let mut idle = tls(&replica, rustls::ALL_VERSIONS).await?;
    idle.write_all(head(&replica, "GET /healthz", "").as_bytes()).await?;
    let answer = rest(&mut idle).await?;
    ensure!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    ensure!(
        begin.elapsed() < Duration::from_secs(10),
        "an idle connection was open for {:?}",
        begin.elapsed()
    );
    let answer = rest(&mut watch).await?;
    ensure!(answer.ends_with("0\r\n\r\n"), "the watch did not end by itself: {answer}");
    ensure!(begin.elapsed() > Duration::from_secs(8), "the watch was cut after {:?}", begin.elapsed());
    Ok(())
}

/// More connections than there are places, none of which says anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_connections_starve_nobody() -> Result<()> {
    const PLACES: usize = 4000;
    let site = Site::new().await?;
    let long = Duration::from_secs(600);
    let options =
        ApiOptions { connections: PLACES, header_timeout: long, idle_timeout: long, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let mut idle = Vec::new();
    for _ in 0..PLACES + 500 {
        idle.push(tcp(&replica).await?);
    }
    let begin = Instant::now();
    for _ in 0..3 {
        // A new connection each time.
        let answer = tokio::time::timeout(PATIENCE, get(&replica, &client(&replica)?, SECRETS)).await;
        assert_eq!(answer.context("starved")??.status(), StatusCode::OK);
    }
    ensure!(begin.elapsed() < Duration::from_secs(10), "three requests took {:?}", begin.elapsed());
    // It is the oldest that had to go.
    assert_eq!(rest(&mut idle.remove(0)).await?, "");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_by_one_user_lets_others_through() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { requests: 2, waiting_per_user: 20, ..ApiOptions::default() };
    let replica = Arc::new(site.replica_with(options).await?);
    let modest =
        replica.hub.identity.create_access_token("modest", &["system:masters".to_owned()], None).await?;
    let http = client(&replica)?;
    let flood = || {
        let (replica, http) = (Arc::clone(&replica), http.clone());
        tokio::spawn(async move {
            let answer = get(&replica, &http, SECRETS).await?;
            let (code, retry) = (answer.status(), answer.headers().contains_key("retry-after"));
            Ok::<_, anyhow::Error>((code, retry, answer.json::<Value>().await?))
        })
    };
    let greedy: Vec<_> = (0..200).map(|_| flood()).collect();
    let (mut refused, mut served) = (0, 0);
    for answer in greedy {
        let (code, retry, body) = answer.await??;
        match code {
            StatusCode::OK => served += 1,
            StatusCode::TOO_MANY_REQUESTS => {
                ensure!(retry && body["reason"] == "TooManyRequests", "{body}");
                refused += 1;
            }
            other => bail!("{other}: {body}"),
        }
        if served + refused == 1 {
            let answer =
                http.get(format!("{}{SECRETS}", replica.url)).bearer_auth(modest.expose()).send().await?;
            assert_eq!(answer.status(), StatusCode::OK, "the modest one");
        }
    }
    ensure!(refused > 0 && served >= 20, "{served} served, {refused} refused");
    Ok(())
}

#[tokio::test]
async fn watches_are_bounded_per_user_and_in_all() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { watches: 3, watches_per_user: 2, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let other =
        replica.hub.identity.create_access_token("other", &["system:masters".to_owned()], None).await?;
    let http = client(&replica)?;
    let url = format!("{}{SECRETS}?watch=1", replica.url);
    let watch = |token: &str| http.get(&url).bearer_auth(token).send();
    let mut held = vec![watch(&replica.token).await?, watch(&replica.token).await?];
    let third = watch(&replica.token).await?;
    assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(third.headers()["retry-after"], "1");
    held.push(watch(other.expose()).await?);
    assert_eq!(watch(other.expose()).await?.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(held.iter().all(|watch| watch.status() == StatusCode::OK));
    // Requests that are not watches go on.
    assert_eq!(get(&replica, &http, SECRETS).await?.status(), StatusCode::OK);
    held.clear();
    eventually("places are free again", PATIENCE, || async {
        let answer = watch(&replica.token).await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        Ok(())
    })
    .await
}

/// It opens a watch and reads nothing: what waits for it is bounded, and it is cut.
#[tokio::test]
async fn a_client_that_reads_nothing_is_cut() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { watches_per_user: 1, write_timeout: SOON, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let mut deaf = tls(&replica, rustls::ALL_VERSIONS).await?;
    let path = "/apis/source.toolkit.fluxcd.io/v1/gitrepositories";
    deaf.write_all(head(&replica, &format!("GET {path}?watch=1"), "").as_bytes()).await?;
    let mut first = [0; 12];
    deaf.read_exact(&mut first).await?;
    assert_eq!(&first, b"HTTP/1.1 200");
    let http = client(&replica)?;
    let second = get(&replica, &http, &format!("{path}?watch=1")).await?;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS, "the place is taken");
    let object = json!({
        "metadata": { "name": "large" }, "spec": { "url": "https://example.org/x", "interval": "1h", "suspend": true },
    });
    let objects = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories";
    let url = format!("{}{objects}", replica.url);
    let made = http.post(&url).bearer_auth(&replica.token).json(&object).send().await?;
    assert_eq!(made.status(), StatusCode::CREATED);
    let large = "x".repeat(200_000);
    let begin = Instant::now();
    let mut round = 0;
    loop {
        round += 1;
        let patch = json!({ "metadata": { "annotations": { "large": large, "round": round.to_string() } } });
        let patched = http
            .patch(format!("{url}/large"))
            .bearer_auth(&replica.token)
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string())
            .send()
            .await?;
        assert_eq!(patched.status(), StatusCode::OK);
        if get(&replica, &http, &format!("{path}?watch=1&timeoutSeconds=1")).await?.status() == StatusCode::OK
        {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE * 2, "still not cut after {round} changes");
    }
}

#[tokio::test]
async fn tls_from_1_2_on() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut stream = tls(&replica, &[version]).await?;
        stream.write_all(head(&replica, "GET /healthz", "connection: close\r\n").as_bytes()).await?;
        ensure!(rest(&mut stream).await?.ends_with("ok"), "{version:?}");
    }
    for version in [1, 2] {
        // A hello that offers TLS 1.0 or 1.1, with a suite of that time.
        let mut hello = vec![3, version];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0xc0, 0x14, 1, 0]);
        let length = u8::try_from(hello.len())?;
        let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
        record.extend(&hello);
        let mut stream = tcp(&replica).await?;
        stream.write_all(&record).await?;
        let mut answer = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await??;
        // A fatal alert (no version, or nothing in common) where one that takes it would say hello.
        let alert = answer.len() == 7 && answer[0] == 21 && answer[5] == 2 && matches!(answer[6], 40 | 70);
        ensure!(alert, "TLS 1.{}: {answer:?}", version - 1);
    }
    Ok(())
}

#[tokio::test]
async fn scripts_of_web_pages_read_nothing_unless_told() -> Result<()> {
    let site = Site::new().await?;
    let (closed, origin) = (site.replica().await?, "https://dashboard.example");
    let options = ApiOptions { cors_origins: vec![origin.to_owned()], ..ApiOptions::default() };
    let open = site.replica_with(options).await?;
    let ask = async |replica: &Replica, from: &str, method: reqwest::Method| -> Result<reqwest::Response> {
        let request = client(replica)?.request(method, format!("{}{SECRETS}", replica.url));
        let request = request.header("origin", from).header("access-control-request-method", "PATCH");
        Ok(request.send().await?)
    };
    for (replica, from, allowed) in
        [(&closed, origin, false), (&open, "https://evil.example", false), (&open, origin, true)]
    {
        for method in [reqwest::Method::OPTIONS, reqwest::Method::GET] {
            let answer = ask(replica, from, method.clone()).await?;
            let header = answer.headers().get("access-control-allow-origin");
            assert_eq!(header.is_some(), allowed, "{method} from {from}");
            if allowed {
                assert_eq!(header.context("a header")?, origin);
            }
            // A preflight has no token; what it asks about needs one.
            let ok = allowed && method == reqwest::Method::OPTIONS;
            assert_eq!(answer.status() == StatusCode::NO_CONTENT, ok);
        }
    }
    Ok(())
}

/// As many connections as there is memory for, each with a request now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_users_connections_leave_room_for_others() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica_within(128 << 20, ApiOptions::default()).await?;
    let greedy = replica.hub.identity.create_access_token("greedy", &[], None).await?;
    let head =
        format!("GET /version HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {}\r\n\r\n", greedy.expose());
    let mut held = Vec::new();
    for _ in 0..220 {
        let mut stream = tls(&replica, rustls::ALL_VERSIONS).await?;
        stream.write_all(head.as_bytes()).await?;
        let mut first = [0; 12];
        if stream.read_exact(&mut first).await.is_ok() {
            held.push(stream);
        }
    }
    for _ in 0..3 {
        // A new connection each time.
        let answer = tokio::time::timeout(PATIENCE, get(&replica, &client(&replica)?, SECRETS)).await??;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    Ok(())
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header that is neither known before nor kept, with texts of less than 127 bytes.
fn field(name: &str, value: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![0, u8::try_from(name.len())?];
    bytes.extend(name.as_bytes());
    bytes.push(u8::try_from(value.len())?);
    bytes.extend(value.as_bytes());
    Ok(bytes)
}

/// Over HTTP/2 a client says how much it takes: one that takes nothing is cut, also where it answers pings.
#[tokio::test]
async fn a_client_that_takes_nothing_of_an_answer_is_cut() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { write_timeout: SOON, ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    for window in [0_u32, 1] {
        let mut stream = tls_for(&replica, rustls::ALL_VERSIONS, &[b"h2"]).await?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        stream.write_all(&frame(4, 0, 0, &settings)).await?;
        let mut headers = Vec::new();
        let token = format!("Bearer {}", replica.token);
        for (name, value) in [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/openapi/v2"),
            (":authority", "hub"),
            ("authorization", token.as_str()),
        ] {
            headers.extend(field(name, value)?);
        }
        stream.write_all(&frame(1, 5, 1, &headers)).await?;
        let begin = Instant::now();
        let mut head = [0; 9];
        let mut answered = false;
        loop {
            ensure!(begin.elapsed() < PATIENCE, "window {window}: the connection is still open");
            let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await;
            if read.context("it stays open")?.is_err() {
                break;
            }
            let mut payload =
                vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]).try_into().unwrap_or(usize::MAX)];
            stream.read_exact(&mut payload).await?;
            answered |= head[3] == 1;
            // A ping that is not an answer itself.
            if head[3] == 6 && head[4] == 0 {
                stream.write_all(&frame(6, 1, 0, &payload)).await?;
            }
        }
        ensure!(answered, "window {window}: it was cut before it was answered");
    }
    Ok(())
}

/// Bodies that come slowly wait with their clients, not with the hub.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_of_some_take_no_turns_of_others() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica_with(ApiOptions { requests: 2, ..ApiOptions::default() }).await?;
    let mut held = Vec::new();
    for (user, line) in [
        ("a", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("b", "POST /api/v1/namespaces/default/secrets"),
    ] {
        let token =
            replica.hub.identity.create_access_token(user, &["system:masters".to_owned()], None).await?;
        for _ in 0..2 {
            let mut slow = tls(&replica, rustls::ALL_VERSIONS).await?;
            let token = token.expose();
            let head = format!(
                "{line} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
                 content-length: 1000\r\n\r\n{{\"kind\":"
            );
            slow.write_all(head.as_bytes()).await?;
            held.push(slow);
        }
    }
    // They are under way.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begin = Instant::now();
    let answer = get(&replica, &client(&replica)?, SECRETS).await?;
    assert_eq!(answer.status(), StatusCode::OK);
    ensure!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_body_that_takes_too_much_memory_is_told_what_to_change() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica_within(128 << 20, ApiOptions::default()).await?;
    let many = format!("[{}0]", "{\"\":0},".repeat((3 << 20) / 7 - 1));
    let answer = client(&replica)?
        .post(format!("{}{SECRETS}", replica.url))
        .bearer_auth(&replica.token)
        .header("content-type", "application/json")
        .body(many)
        .send()
        .await?;
    assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let body = answer.json::<Value>().await?;
    ensure!(body["message"].as_str().is_some_and(|text| text.contains("--memory-budget")), "{body}");
    Ok(())
}
