//! Servers that lie, and charts and indexes that were made to do harm.

use std::io::Write as _;
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use roadstead_sources::helm::Why;
use roadstead_sources::{Fetched, HelmChartRequest};

use crate::kit::{
    archive, artifact, chart_of, error, fetched, in_tree, index, index_of, packed, values, zeros,
};
use crate::server::{Fault, Server};

/// A repository with one chart, of which these are the bytes.
async fn with_chart(bytes: &[u8]) -> (Server, Fetched) {
    let server = Server::start(false).await;
    server.put("/app.tgz", bytes);
    server.put("/index.yaml", index(&[("app", "1.0.0", "app.tgz", bytes)]));
    let kept = fetched(&index_of(&server)).await;
    (server, kept)
}

async fn refused(bytes: &[u8]) -> String {
    let (server, kept) = with_chart(bytes).await;
    let error = error(&chart_of(server.repository(), &kept, "app", "")).await;
    error.to_string()
}

#[tokio::test]
async fn an_index_is_bounded() {
    let server = Server::start(false).await;
    let mut request = index_of(&server);
    // More than is taken is not taken, whatever is in it.
    server.put("/index.yaml", vec![b' '; 100 << 20]);
    let large = error(&request).await;
    assert!(large.to_string().contains("more than 52428800 bytes in the index"), "{large}");
    assert!(!large.is_transient());
    request.bounds.limits.versions = 10;
    let many: String = (0..11).map(|n| format!("  - {{name: a, version: 1.0.{n}}}\n")).collect();
    server.put("/index.yaml", format!("apiVersion: v1\nentries:\n  a:\n{many}"));
    assert!(error(&request).await.to_string().contains("more than 10 versions of charts"));
    let many: String = (0..11).map(|n| format!("  a{n}: []\n")).collect();
    server.put("/index.yaml", format!("apiVersion: v1\nentries:\n{many}"));
    assert!(error(&request).await.to_string().contains("more than 10 versions of charts"));
    request.bounds.limits.versions = 1_000;
    request.bounds.limits.index_artifact_bytes = 1_000;
    let many: String = (0..100).map(|n| format!("  - {{name: a, version: 1.0.{n}}}\n")).collect();
    server.put("/index.yaml", format!("apiVersion: v1\nentries:\n  a:\n{many}"));
    assert!(error(&request).await.to_string().contains("bytes packed"));
}

#[tokio::test]
async fn bombs_in_an_index_are_refused_soon() {
    let server = Server::start(false).await;
    let begun = Instant::now();
    let mut aliases = "apiVersion: v1\nannotations:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        aliases.push_str(&format!("  a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
    }
    let in_a_version = format!(
        "apiVersion: v1\nentries:\n  a:\n  - name: a\n    version: 1.0.0\n    keywords: {}\n",
        "[".repeat(50_000)
    );
    let large = format!(
        "apiVersion: v1\nentries:\n  a:\n  - {{name: a, version: 1.0.0, description: \"{}\"}}\n",
        "x".repeat(2 << 20)
    );
    let wide = format!(
        "{{\"apiVersion\": \"v1\", \"entries\": {{\"a\": [{{\"name\": \"a\", \"version\": \"1.0.0\", \"keywords\": [{}]}}]}}}}",
        vec!["1"; 100_000].join(",")
    );
    let deep = format!("{{\"apiVersion\": \"v1\", \"annotations\": {}", "[".repeat(1 << 20));
    for text in [aliases, in_a_version, large, wide, deep] {
        server.put("/index.yaml", text);
        let error = error(&index_of(&server)).await;
        assert_eq!(error.reason().unwrap().as_str(), "IndexationFailed", "{error}");
        assert!(error.to_string().len() < 1_000, "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_that_stalls_or_fails_is_given_up() {
    let (server, kept) = with_chart(&packed("app", "1.0.0", &[])).await;
    for path in ["/index.yaml", "/app.tgz"] {
        server.fault(path, Fault::Hang);
    }
    let (mut of_index, mut of_chart) = (index_of(&server), chart_of(server.repository(), &kept, "app", ""));
    of_index.bounds.timeout = Duration::from_secs(1);
    of_chart.bounds.timeout = Duration::from_secs(1);
    let begun = Instant::now();
    let (index, chart) = (error(&of_index).await, error(&of_chart).await);
    assert!(begun.elapsed() < Duration::from_secs(10));
    for (error, reason) in [(&index, "Failed"), (&chart, "ChartPullError")] {
        assert!(error.to_string().contains("not fetched within 1s"), "{error}");
        assert!(error.is_transient() && error.reason().unwrap().as_str() == reason, "{error}");
    }
    for (status, transient) in [(404, false), (500, true)] {
        server.fault("/index.yaml", Fault::Status(status));
        server.fault("/app.tgz", Fault::Status(status));
        let (index, chart) = (error(&index_of(&server)).await, error(&of_chart).await);
        for error in [index, chart] {
            assert!(error.to_string().contains(&format!("answered HTTP {status}")), "{error}");
            assert_eq!(error.is_transient(), transient, "{error}");
        }
    }
}

#[tokio::test]
async fn a_chart_has_the_digest_that_the_index_says() {
    let (server, kept) = with_chart(&packed("app", "1.0.0", &[])).await;
    server.put("/app.tgz", packed("app", "1.0.0", &[("values.yaml", "evil: true\n")]));
    let request = chart_of(server.repository(), &kept, "app", "");
    let other = error(&request).await;
    assert!(matches!(*other.why, Why::OtherDigest { .. }), "{other}");
    assert_eq!(other.reason().unwrap().as_str(), "ChartPullError");
    server.put("/app.tgz", vec![0; 11 << 20]);
    let large = error(&request).await;
    assert!(large.to_string().contains("more than 10485760 bytes in a packed chart"), "{large}");
}

#[tokio::test]
async fn archives_that_lead_out_or_never_end_are_refused() {
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let entry = |name: &str| archive(&[("app/Chart.yaml".to_owned(), chart), (name.to_owned(), "x")]);
    // Of a name that nobody else on this machine has.
    let x = format!("roadstead-hostile-{}", std::process::id());
    for name in ["../x", "app/../../x", "/etc/x", "app\\..\\x", "app/a/../../../x", "app//x", "app/./x"] {
        let why = refused(&entry(&name.replace('x', &x))).await;
        assert!(why.starts_with("chart pull error: "), "{name}: {why}");
        for folder in [std::env::temp_dir(), "/etc".into(), "..".into(), ".".into()] {
            assert!(!folder.join(&x).exists(), "{name} is in {}", folder.display());
        }
    }
    let outside = refused(&entry("x")).await;
    assert!(outside.contains("outside the base directory"), "{outside}");
    let bare = refused(&archive(&[("app/x".to_owned(), "x")])).await;
    assert!(bare.contains("Chart.yaml file is missing"), "{bare}");
    for bytes in [b"".as_slice(), b"not gzip", &entry("app/x")[..100]] {
        let why = refused(bytes).await;
        assert!(why.contains("is not a complete tar.gz"), "{why}");
    }
    // A few kilobytes that become gigabytes; one file that is too large; a file where a folder is.
    let begun = Instant::now();
    let why = refused(&zeros(2_000)).await;
    assert!(why.contains("chart pull error: "), "{why}");
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (name, size) in [("app/Chart.yaml", chart.len()), ("app/large", 6 << 20)] {
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(size as u64);
        header.set_mode(0o644);
        header.set_cksum();
        let content = if size == chart.len() { chart.as_bytes().to_vec() } else { vec![0; size] };
        tar.append(&header, content.as_slice()).unwrap();
    }
    let mut to = tar.into_inner().unwrap();
    to.flush().unwrap();
    let why = refused(&to.finish().unwrap()).await;
    assert!(why.contains("bytes in one file (at `large`)"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn names_of_charts_are_one_name() {
    for name in ["../x", "a/b", "..", ".", "a\\b", "", "a\u{7}"] {
        let bytes = archive(&[(
            "app/Chart.yaml".to_owned(),
            &format!("apiVersion: v2\nname: {}\nversion: 1.0.0\n", serde_json::json!(name)),
        )]);
        let why = refused(&bytes).await;
        assert!(why.contains("chart.metadata.name"), "{name:?}: {why}");
    }
    // What is asked for is one too.
    let (server, kept) = with_chart(&packed("app", "1.0.0", &[])).await;
    for name in ["../app", "app/../app", "App", "a?b", "a b", "/app", ".app", ""] {
        let error = error(&chart_of(server.repository(), &kept, name, "")).await;
        assert!(error.to_string().contains("invalid chart name"), "{name}: {error}");
        assert!(error.is_stalled());
    }
}

#[tokio::test]
async fn values_that_were_made_to_do_harm_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
    }
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let tree = artifact(&[("app/Chart.yaml", chart), ("app/values.yaml", ""), ("bomb.yaml", &bomb)]);
    let request = HelmChartRequest {
        values: values(&["bomb.yaml"], false),
        build_metadata: Some("1".to_owned()),
        ..in_tree(tree, "app")
    };
    let error = error(&request).await;
    assert!(error.to_string().contains("unmarshaling values from 'bomb.yaml' failed"), "{error}");
    assert_eq!(error.reason().unwrap().as_str(), "ValuesFilesError");
}
