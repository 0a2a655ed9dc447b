//! What a client meets that is not kubectl: no token, no rights, bodies that are too much; and what lies in Postgres.

use std::io::Read as _;

use anyhow::{Context as _, Result};
use reqwest::{Method, StatusCode};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::support::{Replica, Site, client};

struct Answer {
    code: StatusCode,
    body: String,
    json: Value,
}

async fn ask(
    replica: &Replica,
    method: Method,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> Result<Answer> {
    let mut request = client(replica)?.request(method, format!("{}{path}", replica.url));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if !body.is_empty() {
        request = request.header("content-type", "application/json").body(body.to_owned());
    }
    let answer = request.send().await.context("ask the hub")?;
    let (code, body) = (answer.status(), answer.text().await?);
    let json = serde_json::from_str(&body).unwrap_or_default();
    Ok(Answer { code, body, json })
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test]
async fn nothing_without_a_token_and_nothing_without_rights() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    for open in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(ask(&replica, Method::GET, open, None, "").await?.body, "ok", "{open}");
    }
    // The dashboard, or the page that stands in for it where npm has not run: public, and without a script of its own.
    let page = ask(&replica, Method::GET, "/", None, "").await?;
    assert!(page.body.contains("<title>Roadstead</title>") && !page.body.contains("<script>"));
    for closed in
        ["/api", "/apis", "/version", "/openapi/v3", "/metrics", SECRETS, "/api/v1/namespaces/default"]
    {
        for token in [None, Some("rsdt_0000"), Some(&replica.token[1..])] {
            let answer = ask(&replica, Method::GET, closed, token, "").await?;
            assert_eq!(answer.code, StatusCode::UNAUTHORIZED, "{closed}");
            assert_eq!(answer.json["reason"], "Unauthorized");
        }
    }
    let bob = replica.hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    for (method, path) in
        [(Method::GET, SECRETS), (Method::POST, SECRETS), (Method::DELETE, "/api/v1/namespaces/x")]
    {
        let answer = ask(&replica, method, path, Some(bob.expose()), r#"{"metadata":{"name":"a"}}"#).await?;
        assert_eq!(answer.code, StatusCode::FORBIDDEN, "{path}: {}", answer.body);
        assert!(answer.body.contains("User \\\"bob\\\" cannot"), "{}", answer.body);
    }
    let past = replica.hub.now() - std::time::Duration::from_secs(1);
    let stale =
        replica.hub.identity.create_access_token("old", &["system:masters".to_owned()], Some(past)).await?;
    let answer = ask(&replica, Method::GET, "/api", Some(stale.expose()), "").await?;
    assert_eq!(answer.code, StatusCode::UNAUTHORIZED);
    Ok(())
}

#[tokio::test]
async fn bad_requests_get_a_status() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = Some(replica.token.as_str());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let huge = format!(r#"{{"metadata":{{"name":"{}"}}}}"#, "a".repeat(4 * 1024 * 1024));
    let bodies = [
        ("", StatusCode::BAD_REQUEST),
        ("{", StatusCode::BAD_REQUEST),
        ("[]", StatusCode::BAD_REQUEST),
        ("null", StatusCode::BAD_REQUEST),
        (r#"{"metadata":{"name":"a\u0000"}}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"metadata":{"name":"a","labels":{"a b":"c"}}}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"metadata":{"name":"'; DROP TABLE resource; --"}}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"kind":"Pod","metadata":{"name":"a"}}"#, StatusCode::BAD_REQUEST),
        (r#"{"metadata":{"name":"a","namespace":"b"}}"#, StatusCode::BAD_REQUEST),
        (r#"{"metadata":{"name":"a"},"data":{"k":"!"}}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (r#"{"metadata":{"name":"a","annotations":{"x":"\u0000"}}}"#, StatusCode::UNPROCESSABLE_ENTITY),
        (deep.as_str(), StatusCode::BAD_REQUEST),
        (huge.as_str(), StatusCode::PAYLOAD_TOO_LARGE),
    ];
    for (body, code) in bodies {
        let answer = ask(&replica, Method::POST, SECRETS, token, body).await?;
        let shown: String = body.chars().take(80).collect();
        assert_eq!(answer.code, code, "{shown}: {}", answer.body);
        assert_eq!(answer.json["kind"], "Status", "{shown}");
    }
    for (path, code) in [
        ("/api/v1/pods", StatusCode::NOT_FOUND),
        ("/api/v1/namespaces/default/secrets/x", StatusCode::NOT_FOUND),
        ("/api/v1/secrets?labelSelector=a%20b", StatusCode::BAD_REQUEST),
        ("/api/v1/secrets?fieldSelector=spec.x%3D1", StatusCode::BAD_REQUEST),
        ("/api/v1/secrets?fieldSelector=metadata.name%3Da%00", StatusCode::BAD_REQUEST),
        ("/api/v1/secrets?labelSelector=a%3D%00", StatusCode::BAD_REQUEST),
        ("/api/v1/namespaces/%00/secrets/%00", StatusCode::NOT_FOUND),
        ("/api/v1/secrets?limit=x", StatusCode::BAD_REQUEST),
        ("/api/v1/secrets?limit=1&continue=AA", StatusCode::BAD_REQUEST),
        ("/api/v1/secrets?watch=1&resourceVersion=1", StatusCode::GONE),
        ("/api/v1/secrets?watch=1&resourceVersion=9000000000000000000", StatusCode::GONE),
        ("/api/v1/secrets?watch=1&resourceVersion=x", StatusCode::BAD_REQUEST),
    ] {
        let answer = ask(&replica, Method::GET, path, token, "").await?;
        assert_eq!(answer.code, code, "{path}: {}", answer.body);
        assert_eq!(answer.json["kind"], "Status", "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn an_older_version_is_no_basis_for_a_write() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = Some(replica.token.as_str());
    let made = ask(&replica, Method::POST, SECRETS, token, r#"{"metadata":{"generateName":"a-"}}"#).await?;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
    let name = made.json["metadata"]["name"].as_str().context("a name")?;
    assert!(name.starts_with("a-") && name.len() == 7, "{name}");
    let path = format!("{SECRETS}/{name}");
    let mut object = made.json.clone();
    object["metadata"]["labels"] = json!({ "x": "1" });
    let first = ask(&replica, Method::PUT, &path, token, &object.to_string()).await?;
    assert_eq!(first.code, StatusCode::OK, "{}", first.body);
    let second = ask(&replica, Method::PUT, &path, token, &object.to_string()).await?;
    assert_eq!((second.code, &second.json["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    // What changes nothing makes no new version.
    let same = ask(&replica, Method::PUT, &path, token, &first.json.to_string()).await?;
    assert_eq!(same.json["metadata"]["resourceVersion"], first.json["metadata"]["resourceVersion"]);
    let dry = ask(&replica, Method::DELETE, &format!("{path}?dryRun=All"), token, "").await?;
    assert_eq!(dry.code, StatusCode::OK);
    let wrong = json!({ "preconditions": { "uid": "x" } }).to_string();
    assert_eq!(ask(&replica, Method::DELETE, &path, token, &wrong).await?.code, StatusCode::CONFLICT);
    assert_eq!(ask(&replica, Method::DELETE, &path, token, "").await?.code, StatusCode::OK);
    let again = ask(&replica, Method::POST, SECRETS, token, r#"{"metadata":{"name":"x"}}"#).await?;
    assert_eq!(again.code, StatusCode::CREATED);
    let twice = ask(&replica, Method::POST, SECRETS, token, r#"{"metadata":{"name":"x"}}"#).await?;
    assert_eq!((twice.code, &twice.json["reason"]), (StatusCode::CONFLICT, &json!("AlreadyExists")));
    Ok(())
}

#[tokio::test]
async fn pages_of_a_list() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = Some(replica.token.as_str());
    for index in 0..7 {
        let body = json!({ "metadata": { "name": format!("s-{index}"), "labels": { "odd": (index % 2).to_string() } } });
        ask(&replica, Method::POST, SECRETS, token, &body.to_string()).await?;
    }
    let mut names = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!("/api/v1/secrets?limit=2&labelSelector=odd%3D0&continue={next}");
        let page = ask(&replica, Method::GET, &path, token, "").await?;
        let items = page.json["items"].as_array().context("items")?;
        assert!(items.len() <= 2);
        names.extend(items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned));
        match page.json["metadata"]["continue"].as_str() {
            Some(text) => next = text.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["s-0", "s-2", "s-4", "s-6"]);
    Ok(())
}

/// Every column of every table, as text.
async fn all_text(database: &TestDatabase) -> Result<String> {
    let mut connection = database.connect().await?;
    let tables = sqlx::query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        .fetch_all(&mut connection)
        .await?;
    assert!(tables.len() > 5);
    let mut text = String::new();
    for table in tables {
        let table: String = table.try_get(0)?;
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT t::text FROM \"{table}\" t")))
            .fetch_all(&mut connection)
            .await?;
        for row in rows {
            text.push_str(&row.try_get::<String, _>(0)?);
            text.push('\n');
        }
    }
    Ok(text)
}

#[tokio::test]
async fn a_secrets_plaintext_is_nowhere_in_the_database() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = Some(replica.token.as_str());
    // As `kubectl apply` sends it: with all that it was given in an annotation.
    let given = r#"{"stringData":{"k":"hushhushhush"}}"#;
    let annotations = json!({ "kubectl.kubernetes.io/last-applied-configuration": given });
    let body = json!({
        "metadata": { "name": "a", "annotations": annotations }, "stringData": { "k": "hushhushhush" },
    });
    let body = body.to_string();
    assert_eq!(ask(&replica, Method::POST, SECRETS, token, &body).await?.code, StatusCode::CREATED);
    let body = json!({ "stringData": { "k": "hushhushhush2" } }).to_string();
    let path = format!("{}{SECRETS}/a", replica.url);
    let patched = client(&replica)?
        .patch(path)
        .bearer_auth(&replica.token)
        .header("content-type", "application/merge-patch+json")
        .body(body)
        .send()
        .await?;
    assert_eq!(patched.status(), StatusCode::OK);
    assert_eq!(ask(&replica, Method::DELETE, &format!("{SECRETS}/a"), token, "").await?.code, StatusCode::OK);
    let body = json!({ "metadata": { "name": "b" }, "stringData": { "k": "hushhushhush" } }).to_string();
    ask(&replica, Method::POST, SECRETS, token, &body).await?;

    let text = all_text(&site.database).await?;
    // Quotes are doubled in a row's text.
    assert!(text.contains(r#"""name"": ""a"""#), "the test looks where the objects are");
    // As text, as base64, and as Postgres shows bytes.
    let hex: String = b"hush".iter().map(|byte| format!("{byte:02x}")).collect();
    for plain in ["hush", "aHVzaGh1c2", &hex, replica.token.as_str(), "BEGIN PRIVATE KEY"] {
        assert!(!text.contains(plain), "{plain} lies in the database in the clear");
    }
    let shown = ask(&replica, Method::GET, &format!("{SECRETS}/b"), token, "").await?;
    assert_eq!(shown.json["data"]["k"], "aHVzaGh1c2hodXNo");
    Ok(())
}

/// The answer's coding, and its text as it is behind that.
async fn coded(replica: &Replica, path: &str, accepts: &str) -> Result<(Option<String>, usize, String)> {
    let request = client(replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    let answer = request.header("accept-encoding", accepts).send().await?.error_for_status()?;
    let coding = answer.headers().get("content-encoding").map(|value| value.to_str().map(str::to_owned));
    let (coding, bytes) = (coding.transpose()?, answer.bytes().await?);
    let mut text = String::new();
    match coding {
        Some(_) => drop(flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text)?),
        None => text = String::from_utf8(bytes.to_vec())?,
    }
    Ok((coding, bytes.len(), text))
}

#[tokio::test]
async fn long_answers_are_compressed_for_who_takes_it() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let filler = "as teams write it ".repeat(2_000);
    for name in ["one", "two"] {
        let object = json!({ "metadata": { "name": name }, "data": { "text": filler } }).to_string();
        let path = "/api/v1/namespaces/default/configmaps";
        let made = ask(&replica, Method::POST, path, Some(&replica.token), &object).await?;
        assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
    }
    let list = "/api/v1/namespaces/default/configmaps";
    let (coding, whole, plain) = coded(&replica, list, "identity").await?;
    assert_eq!(coding, None);
    let (coding, small, text) = coded(&replica, list, "gzip, br").await?;
    assert_eq!((coding.as_deref(), &text), (Some("gzip"), &plain));
    assert!(small * 10 < whole, "{small} of {whole} bytes");
    let (coding, _, document) = coded(&replica, "/fleet/v1/openapi.json", "gzip").await?;
    assert_eq!(coding.as_deref(), Some("gzip"));
    assert!(document.contains("openapi"));
    let (coding, _, _) = coded(&replica, "/fleet/v1/health", "gzip").await?;
    assert_eq!(coding, None, "what is short goes as it is");
    // An event of a watch comes when it happens, not when there is enough of them.
    let path = format!("{}{list}?watch=1", replica.url);
    let watch = client(&replica)?.get(path).bearer_auth(&replica.token).header("accept-encoding", "gzip");
    let mut watch = watch.send().await?.error_for_status()?;
    assert!(watch.headers().get("content-encoding").is_none());
    let first = tokio::time::timeout(std::time::Duration::from_secs(10), watch.chunk()).await??;
    assert!(first.context("an event")?.starts_with(b"{"));
    Ok(())
}
