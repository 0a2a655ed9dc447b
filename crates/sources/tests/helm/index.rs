//! Indexes: what is kept of them, and what it costs to look again.

use roadstead_model::Digest;
use roadstead_sources::Outcome;
use roadstead_sources::helm::HelmServer;
use serde_json::Value;

use crate::kit::{RIGHT, error, fetch, fetched, index_of, login};
use crate::server::{Fault, Server};
use crate::source_cases::{source_cases, tell};

fn entries(index: &[u8]) -> Value {
    serde_json::from_slice::<Value>(index).unwrap()["entries"].clone()
}

fn versions(index: &[u8], chart: &str) -> Vec<String> {
    let all = entries(index)[chart].as_array().cloned().unwrap_or_default();
    all.iter().map(|version| version["version"].as_str().unwrap().to_owned()).collect()
}

const SMALL: &str = "apiVersion: v1\ngenerated: 2026-11-26T12:00:00Z\nentries:\n  app:\n  - {name: app, version: 1.2.0, urls: [app-1.2.0.tgz], appVersion: \"1.10\"}\n  - {name: app, version: 1.10.0, urls: [app-1.10.0.tgz]}\n";

#[tokio::test]
async fn an_index_is_kept_in_one_form_and_an_unchanged_one_costs_one_small_request() {
    for dates in [false, true] {
        let server = Server::start(true).await;
        if dates {
            server.dates();
        }
        server.put("/index.yaml", SMALL);
        let request = index_of(&server);
        let first = fetched(&request).await;
        assert_eq!(first.revision.to_string(), Digest::of(&first.artifact.bytes).to_string());
        assert_eq!(versions(&first.artifact.bytes, "app"), ["1.10.0", "1.2.0"]);
        assert_eq!(entries(&first.artifact.bytes)["app"][1]["appVersion"], "1.10");
        let known = Some(&first.revision);
        server.seen();
        let again = fetch(&request, known).await.unwrap();
        assert!(matches!(again, Outcome::Unchanged(_)));
        let seen = server.seen();
        let asked = if dates { "if-modified-since" } else { "if-none-match" };
        assert!(seen.len() == 1 && seen[0].headers.contains_key(asked), "{seen:?}");
        // Of another revision nobody says that it is known.
        fetched(&request).await;
        assert!(!server.seen()[0].headers.contains_key(asked));
        // Another time at which it was made changes nothing.
        server.put("/index.yaml", SMALL.replace("2026-11-26", "2027-01-01") + "\n");
        let again = fetch(&request, known).await.unwrap();
        assert!(matches!(again, Outcome::Unchanged(revision) if revision == first.revision));
        server.seen();
        fetch(&request, known).await.unwrap();
        assert!(server.seen()[0].headers.contains_key(asked), "what it is called now is remembered");
        server.put("/index.yaml", SMALL.replace("1.2.0", "1.3.0"));
        let second = fetch(&request, known).await.unwrap();
        assert!(matches!(second, Outcome::Fetched(fetched) if fetched.revision != first.revision));
    }
}

#[tokio::test]
async fn indexes_of_real_tools_are_read() {
    let Some(cases) = source_cases("Helm indexes") else { return };
    let server = Server::start(false).await;
    let mut found = Vec::new();
    for (name, bytes) in cases.iter().filter(|(name, _)| name.starts_with("helm/index/")) {
        if bytes.is_empty() {
            continue;
        }
        server.put("/index.yaml", bytes.clone());
        let index = fetched(&index_of(&server)).await.artifact.bytes;
        assert_eq!(versions(&index, "nginx"), ["0.2.0", "0.1.0"], "{name}");
        assert_eq!(versions(&index, "xChartWithDuplicateDependenciesAndMissingAlias"), ["1.2.3"], "{name}");
        assert_eq!(entries(&index)["alpine"][0]["home"], "https://github.com/something", "{name}");
        found.push(name.clone());
    }
    // The large one of the original's benchmarks is not among them.
    assert!(found.len() >= 4, "{found:?}");
    tell(format_args!("helm/index: {} indexes", found.len()));
}

#[tokio::test]
async fn what_is_no_index_is_said_so_and_bad_versions_are_left_out() {
    let Some(cases) = source_cases("Helm index loading") else { return };
    let cases: Value = serde_json::from_slice(&cases["helm/choose.json"]).unwrap();
    let server = Server::start(false).await;
    let texts = [
        ("duplicate key", "apiVersion: v1\nentries:\n  nginx: []\n  nginx: []\n"),
        ("no apiVersion", "entries:\n  nginx: []\n"),
        (
            "first or last version invalid (0..1.0)",
            "apiVersion: v1\nentries:\n  nginx:\n  - {name: nginx, version: 0..1.0}\n  - {name: nginx, version: 0.2.0}\n",
        ),
    ];
    let all = cases["index_load"].as_array().unwrap();
    for case in all {
        let what = case["what"].as_str().unwrap();
        let (_, text) = texts.iter().find(|(name, _)| *name == what).expect(what);
        server.put("/index.yaml", *text);
        match case["error"].as_str() {
            Some(said) => {
                let error = error(&index_of(&server)).await;
                let said = said.replace("key \"nginx\" already set in map", "nginx");
                assert!(error.to_string().contains(&said), "{error}");
                assert_eq!(error.reason().unwrap().as_str(), "IndexationFailed");
            }
            None => {
                let index = fetched(&index_of(&server)).await.artifact.bytes;
                assert_eq!(versions(&index, "nginx"), ["0.2.0"]);
            }
        }
    }
    tell(format_args!("helm/choose.json: {} indexes that are loaded or not", all.len()));
    for (text, said) in [
        ("", "no API version specified"),
        ("[]", "failed to load Helm repository from index YAML: "),
        ("<html><body>log in</body></html>", "failed to load Helm repository from index YAML: "),
        (
            "{\"apiVersion\": \"v1\", \"entries\": {\"a\": [}",
            "failed to load Helm repository from index YAML: ",
        ),
        ("{\"apiVersion\": \"v1\", \"entries\": {\"a\": [], \"a\": []}}", "already set in map"),
        ("apiVersion: v1\nmore: 1\n", "unknown field"),
        ("apiVersion: v1\nentries:\n  a:\n  - {name: a, version: 1.0.0, odd: 1}\n", "unknown field"),
    ] {
        server.put("/index.yaml", text);
        let error = error(&index_of(&server)).await;
        assert!(error.to_string().contains(said), "{text:?}: {error}");
        assert_eq!(error.reason().unwrap().as_str(), "IndexationFailed", "{error}");
        assert!(!error.is_stalled() && !error.is_transient());
    }
    // JSON may say more, as Helm's own reading of it lets it.
    server.put("/index.yaml", "{\"apiVersion\": \"v1\", \"more\": {}, \"entries\": null}");
    assert_eq!(entries(&fetched(&index_of(&server)).await.artifact.bytes), serde_json::json!({}));
    // What a chart is called is one name.
    let odd = "apiVersion: v1\nentries:\n  a:\n  - {name: ../a, version: 1.0.0}\n  - {name: a, version: 1.0}\n  - {name: a, version: 1.0.0, urls: [1]}\n  -\n  - {name: a, version: \"1\"}\n";
    server.put("/index.yaml", odd);
    assert_eq!(versions(&fetched(&index_of(&server)).await.artifact.bytes, "a"), ["1"]);
}

#[tokio::test]
async fn credentials_are_shown_to_the_repository_and_to_nobody_else() {
    let (server, other) = (Server::start(true).await, Server::start(true).await);
    server.put("/index.yaml", SMALL);
    server.wants(RIGHT);
    let request = |password: &str| {
        let mut request = index_of(&server);
        request.server.login = login(password);
        request
    };
    fetched(&request("right")).await;
    let denied = error(&request("wr0ng")).await;
    let start = "failed to fetch Helm repository index: `https://127.0.0.1:";
    assert!(denied.to_string().starts_with(start) && denied.to_string().contains("answered 401"), "{denied}");
    assert!(!denied.to_string().contains("wr0ng") && denied.reason().unwrap().as_str() == "Failed");
    assert!(error(&index_of(&server)).await.to_string().contains("requires credentials"));
    // It redirects: what is there gets no credentials, and where the policy does not lead nobody goes.
    server.fault("/index.yaml", Fault::At(format!("{}/index.yaml", other.url())));
    let refused = error(&request("right")).await;
    assert_eq!(refused.reason().unwrap().as_str(), "URLInvalid", "{refused}");
    other.put("/index.yaml", SMALL);
    let mut lenient = request("right");
    lenient.server.guard = crate::server::way_to(&[server.address, other.address]);
    lenient.server.ca =
        Some([&server, &other].map(|one| one.authority.as_ref().unwrap().pem()).concat().into_bytes());
    for pass_credentials in [false, true] {
        lenient.server.pass_credentials = pass_credentials;
        fetched(&lenient).await;
        let seen = other.seen();
        assert!(!seen.is_empty() && !seen.iter().any(crate::server::Seen::has_credentials), "{seen:?}");
    }
    // Without TLS they are not sent at all, unless that is allowed.
    let plain = Server::start(false).await;
    plain.put("/index.yaml", SMALL);
    let mut request = index_of(&plain);
    request.server.login = login("right");
    let refused = error(&request).await;
    assert_eq!(refused.reason().unwrap().as_str(), "AuthenticationFailed", "{refused}");
    assert!(plain.seen().is_empty());
    request.server.plain_http_credentials = true;
    fetched(&request).await;
    assert!(plain.seen()[0].has_credentials());
}

#[tokio::test]
async fn urls_that_are_not_asked_are_said_so_for_good() {
    for (url, said) in [
        (
            "oci://registry.example/charts",
            "'oci' URL scheme cannot be used with 'default' HelmRepository type",
        ),
        ("https://user:hunter2@charts.example", "holds credentials"),
    ] {
        let server = Server::start(false).await;
        let mut request = index_of(&server);
        request.server = HelmServer { url: url.to_owned(), ..server.repository() };
        let refused = error(&request).await;
        assert_eq!(refused.reason().unwrap().as_str(), "URLInvalid");
        assert!(refused.is_stalled() && refused.to_string().contains(said), "{refused}");
        assert!(!refused.to_string().contains("hunter2"));
    }
}
