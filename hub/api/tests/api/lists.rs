//! What lists and watches promise about versions, pages and forms; and what hostile requests get.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Replica, Site, client};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

struct Asker<'a> {
    replica: &'a Replica,
    http: reqwest::Client,
}

impl<'a> Asker<'a> {
    fn new(replica: &'a Replica) -> Result<Self> {
        Ok(Self { replica, http: client(replica)? })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Value,
    ) -> Result<(StatusCode, Value)> {
        let request = self.http.request(method, format!("{}{path}", self.replica.url));
        let mut request = request.bearer_auth(&self.replica.token).header("accept", accept);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let code = answer.status();
        Ok((code, serde_json::from_slice(&answer.bytes().await?).unwrap_or_default()))
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Value)> {
        self.ask(Method::GET, path, "application/json", Value::Null).await
    }

    async fn make(&self, name: &str, type_: &str) -> Result<String> {
        let object = json!({ "metadata": { "name": name }, "type": type_ });
        let (code, made) = self.ask(Method::POST, SECRETS, "application/json", object).await?;
        ensure!(code == StatusCode::CREATED, "{made}");
        Ok(made["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned())
    }

    /// The lines of a watch that ends after a second.
    async fn watch(&self, path: &str, accept: &str) -> Result<Vec<Value>> {
        let request = self.http.get(format!("{}{path}&watch=1&timeoutSeconds=1", self.replica.url));
        let answer = request.bearer_auth(&self.replica.token).header("accept", accept).send().await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        answer.text().await?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

fn version(object: &Value) -> Result<i64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?)
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn versions_of_a_list() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let asker = Asker::new(&replica)?;
    let first = asker.make("a", "Opaque").await?;
    let last = asker.make("b", "Opaque").await?;
    let future = last.parse::<i64>()? + 1000;
    let ok = StatusCode::OK;
    let cases = [
        ("resourceVersion=0".to_owned(), ok),
        (format!("resourceVersion={first}"), ok),
        (format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan"), ok),
        (format!("resourceVersion={last}&resourceVersionMatch=Exact"), ok),
        (format!("resourceVersion={first}&resourceVersionMatch=Exact"), ok),
        (format!("resourceVersion={first}&limit=1"), ok),
        // From before the hub was installed.
        ("resourceVersion=5&resourceVersionMatch=Exact".to_owned(), StatusCode::GONE),
        ("resourceVersion=5&limit=1".to_owned(), StatusCode::GONE),
        (format!("resourceVersion={future}"), StatusCode::GATEWAY_TIMEOUT),
        (format!("resourceVersion={future}&resourceVersionMatch=Exact"), StatusCode::GATEWAY_TIMEOUT),
        ("resourceVersionMatch=Exact".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("resourceVersion=1&resourceVersionMatch=Newer".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("sendInitialEvents=true".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("resourceVersion=-1".to_owned(), StatusCode::BAD_REQUEST),
        ("resourceVersion=x".to_owned(), StatusCode::BAD_REQUEST),
        ("watch=1&sendInitialEvents=true".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        ("watch=1&resourceVersionMatch=NotOlderThan".to_owned(), StatusCode::UNPROCESSABLE_ENTITY),
        (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact".to_owned(),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            format!(
                "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={future}"
            ),
            StatusCode::GATEWAY_TIMEOUT,
        ),
    ];
    for (query, code) in cases {
        let (have, body) = asker.get(&format!("{SECRETS}?{query}")).await?;
        assert_eq!(have, code, "{query}: {body}");
        if code == StatusCode::GATEWAY_TIMEOUT {
            assert_eq!(body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
            assert_eq!(
                (&body["reason"], &body["details"]["retryAfterSeconds"]),
                (&json!("Timeout"), &json!(1))
            );
        }
    }
    let (_, exact) =
        asker.get(&format!("{SECRETS}?resourceVersion={last}&resourceVersionMatch=Exact")).await?;
    assert_eq!((version(&exact)?, names(&exact)), (last.parse()?, vec!["a", "b"]));
    // Without a match, a limit asks for that very version.
    let (_, past) = asker.get(&format!("{SECRETS}?resourceVersion={first}&limit=5")).await?;
    assert_eq!((version(&past)?, names(&past)), (first.parse()?, vec!["a"]));
    Ok(())
}

#[tokio::test]
async fn pages_show_what_the_first_one_s_version_has() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let asker = Asker::new(&replica)?;
    for name in ["a", "b", "c", "d", "e"] {
        asker.make(name, "Opaque").await?;
    }
    let (_, first) = asker.get(&format!("{SECRETS}?limit=2")).await?;
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    // Something changes where the first page was, and something where the others are going to be.
    asker.ask(Method::DELETE, &format!("{SECRETS}/a"), "*/*", Value::Null).await?;
    asker.make("f", "Opaque").await?;
    asker.ask(Method::DELETE, &format!("{SECRETS}/d"), "*/*", Value::Null).await?;
    asker.make("d", "of/another/type").await?;
    let next = first["metadata"]["continue"].as_str().context("a token")?;
    let (_, second) = asker.get(&format!("{SECRETS}?limit=3&continue={next}")).await?;
    assert_eq!((version(&second)?, names(&second)), (version(&first)?, vec!["c", "d", "e"]));
    let types: Vec<_> = second["items"].as_array().into_iter().flatten().map(|item| &item["type"]).collect();
    assert_eq!(types, ["Opaque"; 3]);
    // Whoever watches from there is told of all of that.
    let events = asker.watch(&format!("{SECRETS}?resourceVersion={}", version(&second)?), "*/*").await?;
    let seen: Vec<_> = events
        .iter()
        .map(|event| (event["type"].clone(), event["object"]["metadata"]["name"].clone()))
        .collect();
    let wanted = [("DELETED", "a"), ("ADDED", "f"), ("DELETED", "d"), ("ADDED", "d")];
    assert_eq!(seen, wanted.map(|(type_, name)| (json!(type_), json!(name))));

    replica.hub.objects.compact_changes(Duration::ZERO, 0).await?;
    let (code, expired) = asker.get(&format!("{SECRETS}?limit=3&continue={next}")).await?;
    assert_eq!((code, &expired["reason"]), (StatusCode::GONE, &json!("Expired")));
    let fresh = expired["metadata"]["continue"].as_str().context("a fresh token")?;
    let (code, rest) = asker.get(&format!("{SECRETS}?limit=9&continue={fresh}")).await?;
    assert_eq!((code, names(&rest)), (StatusCode::OK, vec!["c", "d", "e", "f"]));
    assert!(rest["metadata"]["continue"].is_null() && rest["metadata"]["remainingItemCount"].is_null());

    // Of what last changed before what is forgotten, a list begun since shows what it was too.
    let (_, first) = asker.get(&format!("{SECRETS}?limit=1")).await?;
    asker.ask(Method::DELETE, &format!("{SECRETS}/e"), "*/*", Value::Null).await?;
    let next = first["metadata"]["continue"].as_str().context("a token")?;
    let (_, rest) = asker.get(&format!("{SECRETS}?continue={next}")).await?;
    assert_eq!(names(&rest), ["c", "d", "e", "f"]);
    Ok(())
}

#[tokio::test]
async fn selectors_and_forms() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let asker = Asker::new(&replica)?;
    asker.make("a", "Opaque").await?;
    asker.make("b", "example.org/x").await?;
    let (_, list) = asker.get(&format!("{SECRETS}?fieldSelector=type%3Dexample.org/x")).await?;
    assert_eq!(names(&list), ["b"]);
    let (_, list) = asker.get(&format!("{SECRETS}?fieldSelector=type!%3DOpaque,metadata.name%3Db")).await?;
    assert_eq!(names(&list), ["b"]);
    // A field that can change could not be watched by.
    let (code, _) = asker.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive").await?;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let (_, list) = asker.ask(Method::GET, SECRETS, table, Value::Null).await?;
    assert_eq!((&list["kind"], list["rows"].as_array().map(Vec::len)), (&json!("Table"), Some(2)));
    assert!(version(&list)? > 0 && !list["columnDefinitions"].as_array().context("columns")?.is_empty());
    let (_, list) = asker.ask(Method::GET, SECRETS, metadata, Value::Null).await?;
    assert_eq!((&list["kind"], names(&list)), (&json!("PartialObjectMetadataList"), vec!["a", "b"]));
    assert!(list["items"][0]["type"].is_null() && list["items"][0]["kind"] == "PartialObjectMetadata");

    // One object, from what is there on: twice, so that what is shared between watchers is seen by both.
    for _ in 0..2 {
        let events = asker.watch(&format!("{SECRETS}?fieldSelector=metadata.name%3Da"), "*/*").await?;
        assert_eq!((events.len(), &events[0]["object"]["metadata"]["name"]), (1, &json!("a")));
    }
    let events = asker.watch(&format!("{SECRETS}?labelSelector="), table).await?;
    assert_eq!((&events[0]["object"]["kind"], events.len()), (&json!("Table"), 2));
    assert!(events[1]["object"]["columnDefinitions"].as_array().context("columns")?.is_empty());
    let initial = format!(
        "{SECRETS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let events = asker.watch(&initial, metadata).await?;
    let types: Vec<_> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    // The last one says where to go on.
    assert_eq!(types, ["ADDED", "ADDED", "BOOKMARK", "BOOKMARK"]);
    assert_eq!(events[2]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let without = format!("{SECRETS}?sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    assert!(asker.watch(&without, "*/*").await?.is_empty());
    Ok(())
}

/// Requests as bytes, since clients would not send them. (request target, code)
#[tokio::test]
async fn hostile_requests_get_a_status() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    Asker::new(&replica)?.make("a", "Opaque").await?;
    let long = |count: usize| "a".repeat(count);
    let token = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let sql = "%27%3B%20DROP%20TABLE%20resource%3B%20--";
    let mut targets: Vec<String> = Vec::new();
    for field in [
        "labelSelector",
        "fieldSelector",
        "resourceVersion",
        "resourceVersionMatch",
        "limit",
        "continue",
        "timeoutSeconds",
        "dryRun",
        "sendInitialEvents",
        "includeObject",
        "watch",
        "allowWatchBookmarks",
    ] {
        for value in
            [sql, "%00", "%ff%fe", "%C0%80", "%", "%zz", "-1", "99999999999999999999", "1e9", "%F0%9F%92%A9"]
        {
            targets.push(format!("{SECRETS}?{field}={value}"));
            targets.push(format!("{SECRETS}?watch=1&timeoutSeconds=1&{field}={value}"));
        }
        targets.push(format!("{SECRETS}?{field}={}", long(20_000)));
    }
    for part in [sql, "%00", "%2e%2e", "..", "%ff", "A", "a%2fb", "%F0%9F%92%A9", &long(300)] {
        targets.push(format!("/api/v1/namespaces/{part}/secrets"));
        targets.push(format!("{SECRETS}/{part}"));
        targets.push(format!("{SECRETS}/a/{part}"));
        targets.push(format!("/apis/{part}/v1/kustomizations"));
        targets.push(format!("/apis/kustomize.toolkit.fluxcd.io/{part}/kustomizations"));
        targets.push(format!("/api/{part}"));
    }
    for text in ["", "/", "//", "1//", "x/default/a", "9223372036854775808/default/a", "1/a\0/b", "1/'/;--"] {
        targets.push(format!("{SECRETS}?limit=1&continue={}", token(text)));
    }
    let requirement = "a%20in%20(b),".repeat(1200);
    targets.push(format!("{SECRETS}?labelSelector={requirement}c"));
    targets.push(format!("{SECRETS}?labelSelector=a%20in%20({})", "b,".repeat(5000)));
    targets.push(format!("{SECRETS}?labelSelector={}", "(".repeat(3000)));
    targets.push(format!("{SECRETS}?{}", "x=1&".repeat(8000)));
    for some in targets.chunks(32) {
        futures::future::try_join_all(some.iter().map(|target| check(&replica, target))).await?;
    }
    // And all is as it was.
    let (code, list) = Asker::new(&replica)?.get(SECRETS).await?;
    assert_eq!((code, names(&list)), (StatusCode::OK, vec!["a"]));
    Ok(())
}

async fn check(replica: &Replica, target: &str) -> Result<()> {
    let shown: String = target.chars().take(100).collect();
    let (code, body) = raw(replica, target).await.with_context(|| shown.clone())?;
    ensure!((200..500).contains(&code) || code == 504, "{shown}: {code}: {body}");
    if code >= 400 {
        let status: Value =
            serde_json::from_str(&body).with_context(|| format!("{shown}: {code}: {body}"))?;
        ensure!(status["kind"] == "Status" && status["code"] == code, "{shown}: {body}");
    }
    Ok(())
}

/// A request over a connection of its own, with a target that is sent as it stands.
async fn raw(replica: &Replica, target: &str) -> Result<(u16, String)> {
    let mut stream = crate::support::tls(replica, rustls::ALL_VERSIONS).await?;
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        replica.token
    );
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut bytes)).await?;
    let text = String::from_utf8_lossy(&bytes);
    let code = text.split(' ').nth(1).context("a status line")?.parse()?;
    let body = text.split_once("\r\n\r\n").context("a body")?.1.to_owned();
    Ok((code, body))
}
