//! What anonymous clients and users can make the hub hold in memory, as the process sees it: the hub runs in this test's
//! process, and
//! nothing else of size does.

mod support;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::StreamExt as _;
use reqwest::StatusCode;
use roadstead_hub_api::ApiOptions;
use serde_json::json;

use support::{Replica, Site, client};

const MIB: f64 = 1_048_576.0;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ENROL: &str = "/fleet/v1/enrol";
/// As large as a body may be.
const LARGE: usize = 3 << 20;

fn status(field: &str) -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).context("the process's status")?;
    Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1024.0 / MIB)
}

/// By how many MiB the process's memory grew at most while `work` ran.
async fn growth(what: &str, work: impl Future<Output = Result<()>>) -> Result<f64> {
    // The peak starts over.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = status("VmRSS")?;
    work.await?;
    let grew = status("VmHWM")? - before;
    println!("{what}: +{grew:.0} MiB");
    Ok(grew)
}

/// A body of these bytes over and over, `length` in all, that does not end.
fn unending(piece: &'static [u8], length: usize) -> reqwest::Body {
    let pieces = futures::stream::iter((0..length / piece.len()).map(move |_| Ok(Bytes::from_static(piece))));
    reqwest::Body::wrap_stream(pieces.chain(futures::stream::pending::<std::io::Result<Bytes>>()))
}

/// Sends so many at once, and gives up on all that are not answered after a while. The codes of those that are.
async fn all(
    count: usize,
    send: impl Fn() -> reqwest::RequestBuilder,
    patience: Duration,
) -> Vec<Option<StatusCode>> {
    let sent: Vec<_> = (0..count).map(|_| tokio::spawn(send().timeout(patience).send())).collect();
    let mut codes = Vec::new();
    for sent in sent {
        codes.push(sent.await.ok().and_then(Result::ok).map(|answer| answer.status()));
    }
    codes
}

fn post(replica: &Replica, http: &reqwest::Client, path: &str) -> reqwest::RequestBuilder {
    http.post(format!("{}{path}", replica.url)).header("content-type", "application/json")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hub_holds_for_requests_is_bounded() -> Result<()> {
    static SPACES: [u8; 16 * 1024] = [b' '; 16 * 1024];
    let site = Site::new().await?;
    let replica = site.replica_with(ApiOptions::default()).await?;
    let http = client(&replica)?;
    let soon = Duration::from_secs(3);

    // Two hundred enrolments on one connection, of which each would be three megabytes.
    let grew = growth("200 unending enrolments", async {
        let codes = all(200, || post(&replica, &http, ENROL).body(unending(&SPACES, LARGE)), soon).await;
        let refused = codes.iter().flatten().all(StatusCode::is_client_error);
        ensure!(refused, "{codes:?}");
        Ok(())
    })
    .await?;
    ensure!(grew < 64.0, "enrolments took {grew:.0} MiB");

    // The same by somebody who may: bounded by the share for bodies.
    let token = replica.token.clone();
    let grew = growth("200 unending bodies", async {
        let http = client(&replica)?;
        let send =
            || post(&replica, &http, MAPS).bearer_auth(&token).body(unending(&SPACES, LARGE - (1 << 20)));
        let codes = all(200, send, soon).await;
        ensure!(codes.iter().flatten().all(StatusCode::is_client_error), "{codes:?}");
        Ok(())
    })
    .await?;
    ensure!(grew < 120.0, "bodies took {grew:.0} MiB");

    // An enrolment is JSON of a few KiB: nothing else is decoded, whoever sends it.
    let nested: String = (0..126).map(|n| format!("&a{n} [")).collect();
    let yaml: Bytes = format!("{nested}{}{}", "x,".repeat(190_000), "]".repeat(126)).into();
    let grew = growth("50 enrolments in YAML", async {
        let send = || {
            let request = http.post(format!("{}{ENROL}", replica.url));
            request.header("content-type", "application/yaml").body(yaml.clone())
        };
        let codes = all(50, send, Duration::from_secs(30)).await;
        ensure!(codes.iter().flatten().all(StatusCode::is_client_error), "{codes:?}");
        Ok(())
    })
    .await?;
    ensure!(grew < 64.0, "enrolments in YAML took {grew:.0} MiB");

    // Bodies that become a hundred times as much: by one without rights, who may ask about himself, and by one with all.
    let nobody = replica.hub.identity.create_access_token("nobody", &[], None).await?;
    let maps: Bytes = format!("[{}0]", "{\"\":0},".repeat(LARGE / 7 - 1)).into();
    let long = "k".repeat(LARGE - 4000);
    let twice: Bytes = format!("{{\"{long}\":{{{}\"b\":1}}}}", "\"a\":1,".repeat(150)).into();
    let nobody = Arc::new(nobody);
    for (what, path, token, body, most) in [
        (
            "reviews of small maps",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            nobody.expose(),
            &maps,
            64.0,
        ),
        ("maps by somebody without rights", MAPS, nobody.expose(), &maps, 64.0),
        ("small maps", MAPS, replica.token.as_str(), &maps, 260.0),
        ("keys that stand twice", MAPS, replica.token.as_str(), &twice, 260.0),
    ] {
        let grew = growth(what, async {
            let http = client(&replica)?;
            let send = || post(&replica, &http, path).bearer_auth(token).body(body.clone());
            let codes = all(30, send, Duration::from_secs(60)).await;
            ensure!(codes.iter().flatten().all(StatusCode::is_client_error), "{what}: {codes:?}");
            Ok(())
        })
        .await?;
        ensure!(grew < most, "{what} took {grew:.0} MiB");
    }

    // And whoever sends what people send is served.
    let large = json!({ "metadata": { "name": "large" }, "data": { "k": "x".repeat(1_000_000) } });
    let answer =
        post(&replica, &http, MAPS).bearer_auth(&replica.token).body(large.to_string()).send().await?;
    ensure!(answer.status() == StatusCode::CREATED, "{}", answer.status());
    Ok(())
}
