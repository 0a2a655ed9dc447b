//! What entries of the audit log say, and how they are asked for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::header::HeaderValue;
use reqwest::{Method, StatusCode};
use roadstead_hub_core::identity::{AuditSink, AuditStream, Identity};
use roadstead_tests::{binary, eventually};
use serde_json::{Value, json};

use crate::support::{Replica, Site, client};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub(crate) const CONFIGS: &str = "/api/v1/namespaces/default/configmaps";
const NO_ANCHOR: &str = "an end of the log that was cut off";

/// A request, its headers beside `content-type`, and what came of it: code, id, body.
pub(crate) async fn ask(
    replica: &Replica,
    (method, path): (Method, &str),
    token: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(StatusCode, String, Value)> {
    let type_ = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let mut request = client(replica)?.request(method, format!("{}{path}", replica.url)).bearer_auth(token);
    for (name, value) in headers {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes())?);
    }
    if !body.is_null() {
        request = request.header("content-type", type_).body(body.to_string());
    }
    let answer = request.send().await?;
    let code = answer.status();
    let id = answer.headers().get("audit-id").context("no Audit-Id")?.to_str()?.to_owned();
    Ok((code, id, serde_json::from_slice(&answer.bytes().await?).unwrap_or_default()))
}

/// Entries that a query asks for, with all pages.
pub(crate) async fn entries(replica: &Replica, query: &str) -> Result<Vec<Value>> {
    replica.hub.audit.write_counted(true).await?;
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/fleet/v1/audit?{query}&continue={next}");
        let (code, _, page) = ask(replica, (Method::GET, &path), &replica.token, &[], &Value::Null).await?;
        ensure!(code == StatusCode::OK, "{query}: {page}");
        found.extend(page["items"].as_array().context("items")?.iter().cloned());
        match page["continue"].as_str() {
            Some(more) => more.clone_into(&mut next),
            None => return Ok(found),
        }
    }
}

#[tokio::test]
async fn an_entry_says_who_as_whom_from_where_in_which_request_and_what_changed() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    let object = json!({ "metadata": { "name": "c", "annotations": { "n": "line\nof \u{1b}[31m\u{2028}text" } },
                         "data": { "k": "old", "same": "x" } });
    let (_, first, made) = ask(&replica, (Method::POST, CONFIGS), token, &[], &object).await?;
    ensure!(made["metadata"]["uid"].is_string(), "{made}");
    let path = format!("{CONFIGS}/c");
    let patch = json!({ "data": { "k": "new" } });
    let headers = [
        ("impersonate-user", "alice"),
        ("impersonate-group", "system:masters"),
        ("audit-id", "my-request.1"),
        ("x-forwarded-for", "203.0.113.9"),
    ];
    let (code, id, body) = ask(&replica, (Method::PATCH, &path), token, &headers, &patch).await?;
    ensure!(code == StatusCode::OK && id == "my-request.1", "{id}: {body}");
    // One that cannot be shown everywhere is not taken.
    let odd = [("audit-id", "x\" y")];
    let (_, other, _) = ask(&replica, (Method::GET, &path), token, &odd, &Value::Null).await?;
    ensure!(other.len() == 36 && first.len() == 36 && first != other, "{first} {other}");

    let found = entries(&replica, "request=my-request.1&kind=ConfigMap").await?;
    ensure!(found.len() == 1, "{found:?}");
    for (field, wanted) in [
        ("user", json!("alice")),
        ("impersonator", json!("roadstead-admin")),
        ("administrator", json!(true)),
        ("address", json!("127.0.0.1")),
        ("verb", json!("patch")),
        ("kind", json!("ConfigMap")),
        ("times", json!(1)),
        ("signed", json!(true)),
        ("changes", json!([{ "path": ".data.k", "from": "old", "to": "new" }])),
    ] {
        ensure!(found[0][field] == wanted, "{field}: {}", found[0]);
    }
    let created = entries(&replica, &format!("request={first}&kind=ConfigMap")).await?;
    ensure!(created[0]["changes"].as_array().is_some_and(|all| all.len() == 2), "{created:?}");
    // The use of the credential itself: the first time, and how often since.
    let mut used = entries(&replica, "verb=use").await?;
    used.retain(|entry| entry["impersonator"].is_null());
    let told: Vec<_> = used.iter().map(|entry| (&entry["user"], &entry["times"])).take(2).collect();
    let admin = json!("roadstead-admin");
    ensure!(told == [(&admin, &json!(1)), (&admin, &json!(2))], "{used:?}");
    Ok(())
}

#[tokio::test]
async fn of_a_secret_the_log_has_keyed_hashes_and_reads_are_counted() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    let values = ["aHVudGVyMg==", "aHVudGVyMw==", "aHVudGVyMg=="];
    let annotations =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"k\":\"aHVudGVyMg==\"}}" });
    let object =
        json!({ "metadata": { "name": "s", "annotations": annotations }, "data": { "k": values[0] } });
    ask(&replica, (Method::POST, SECRETS), token, &[], &object).await?;
    let path = format!("{SECRETS}/s");
    for value in &values[1..] {
        ask(&replica, (Method::PATCH, &path), token, &[], &json!({ "data": { "k": value } })).await?;
    }
    ask(&replica, (Method::DELETE, &path), token, &[], &Value::Null).await?;
    let found = entries(&replica, "kind=Secret&name=s").await?;
    ensure!(found.len() == 4 && !Value::from(found.clone()).to_string().contains("aHVudGVy"), "{found:?}");
    let change = |entry: usize| {
        let fields = found[entry]["changes"].as_array().into_iter().flatten();
        fields.into_iter().find(|field| field["path"] == ".data.k").cloned().unwrap_or_default()
    };
    let first = change(0)["to"].clone();
    ensure!(first.as_str().is_some_and(|text| text.starts_with("hmac:")), "{found:?}");
    ensure!(change(1)["from"] == first && change(1)["to"] != first, "{found:?}");
    ensure!(change(2)["to"] == first && change(3)["from"] == first, "equal values show as such: {found:?}");

    ask(&replica, (Method::POST, SECRETS), token, &[], &object).await?;
    for _ in 0..20 {
        let (code, ..) = ask(&replica, (Method::GET, &path), token, &[], &Value::Null).await?;
        ensure!(code == StatusCode::OK);
    }
    let reads = entries(&replica, "kind=Secret&name=s&verb=get").await?;
    let times: Vec<i64> = reads.iter().filter_map(|entry| entry["times"].as_i64()).collect();
    ensure!(times == [1, 19], "the first at once, and how often since: {reads:?}");
    Ok(())
}

#[tokio::test]
async fn a_status_alone_is_counted_and_the_hubs_own_fill_nothing() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    let path = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/default/kustomizations";
    let object = json!({ "metadata": { "name": "web" }, "spec": { "interval": "1h", "prune": true, "path": "./",
        "sourceRef": { "kind": "GitRepository", "name": "none" } } });
    let (code, _, made) = ask(&replica, (Method::POST, path), token, &[], &object).await?;
    ensure!(code == StatusCode::CREATED, "{made}");
    for number in 0..10 {
        let patch = json!({ "status": { "lastAppliedRevision": format!("main@sha1:{number:040}") } });
        let status = format!("{path}/web/status");
        let (code, _, answer) = ask(&replica, (Method::PATCH, &status), token, &[], &patch).await?;
        ensure!(code == StatusCode::OK, "{answer}");
    }
    let found = entries(&replica, "kind=Kustomization&name=web").await?;
    let told: Vec<(&str, i64, bool)> = found
        .iter()
        .map(|entry| {
            let kind = entry["kind"].as_str().unwrap_or_default();
            (kind, entry["times"].as_i64().unwrap_or(0), entry["changes"].is_array())
        })
        .collect();
    ensure!(
        told == [
            ("Kustomization", 1, true),
            ("Kustomization/status", 1, true),
            ("Kustomization/status", 9, false)
        ],
        "{found:#?}"
    );
    let first =
        json!([{ "path": ".status", "to": { "lastAppliedRevision": format!("main@sha1:{:040}", 0) } }]);
    ensure!(found[1]["changes"] == first, "{found:#?}");
    Ok(())
}

#[tokio::test]
async fn an_entry_that_the_database_does_not_take_holds_up_no_other() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let mut connection = site.database.connect().await?;
    let check = "ALTER TABLE audit ADD CHECK (username <> 'mallory')";
    sqlx::query(check).execute(&mut connection).await?;
    for user in ["alice", "mallory", "zoe"] {
        let who = format!("--as={user}");
        ensure!(replica.kubectl.run(&["get", "secrets", &who]).await.is_err(), "{user} may");
    }
    ensure!(replica.hub.audit.write_counted(true).await.is_err());
    for user in ["alice", "zoe"] {
        let found = entries(&replica, &format!("user={user}")).await?;
        ensure!(found.len() == 1 && found[0]["kind"] == "Secret", "{user}: {found:#?}");
    }
    // It is not tried again.
    replica.hub.audit.write_counted(true).await?;
    Ok(())
}

#[tokio::test]
async fn entries_are_asked_for_by_what_they_say_and_in_pages() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    for name in ["a", "b", "c", "d", "e"] {
        ask(&replica, (Method::POST, CONFIGS), token, &[], &json!({ "metadata": { "name": name } })).await?;
    }
    let as_alice = [("impersonate-user", "alice")];
    ask(&replica, (Method::DELETE, &format!("{CONFIGS}/a")), token, &[], &Value::Null).await?;
    let (code, refused, _) = ask(&replica, (Method::GET, CONFIGS), token, &as_alice, &Value::Null).await?;
    ensure!(code == StatusCode::FORBIDDEN);
    let names = async |query: &str| -> Result<Vec<String>> {
        let found = entries(&replica, query).await?;
        Ok(found.iter().map(|entry| entry["name"].as_str().unwrap_or_default().to_owned()).collect())
    };
    // The last one is what alice was refused, of no object by its name.
    ensure!(names("kind=ConfigMap&limit=2").await? == ["a", "b", "c", "d", "e", "a", ""]);
    ensure!(names("kind=ConfigMap&limit=2&order=newest").await? == ["", "a", "e", "d", "c", "b", "a"]);
    ensure!(names("kind=ConfigMap&verb=delete").await? == ["a"]);
    ensure!(names("namespace=default&name=b").await? == ["b"]);
    let of_alice = entries(&replica, "outcome=refused&user=alice").await?;
    let wanted = json!({ "kind": "ConfigMap", "verb": "list", "namespace": "default", "name": "" });
    let is_wanted = |entry: &Value| {
        wanted.as_object().is_some_and(|all| all.iter().all(|(key, value)| entry[key] == *value))
    };
    ensure!(matches!(of_alice.as_slice(), [only] if is_wanted(only)), "{of_alice:?}");
    let why = of_alice[0]["detail"].as_str().unwrap_or_default();
    ensure!(why.contains("cannot list resource \"configmaps\""), "{why}");
    ensure!(entries(&replica, &format!("request={refused}")).await? == of_alice);
    ensure!(names("user=roadstead-admin&kind=ConfigMap&outcome=ok&administrator=true").await?.len() == 6);
    let of_admin = entries(&replica, "user=roadstead-admin&outcome=refused").await?;
    ensure!(of_admin == of_alice, "who was taken for alice: {of_admin:?}");
    ensure!(names("kind=ConfigMap&since=2000-01-01T00:00:00Z&until=2100-01-01T00:00:00Z").await?.len() == 7);
    ensure!(names("kind=ConfigMap&since=2100-01-01T00:00:00Z").await?.is_empty());
    ensure!(names("kind=ConfigMap&until=2000-01-01T00:00:00Z").await?.is_empty());
    for wrong in ["outcome=maybe", "order=sideways", "since=yesterday", "continue=x", "verb=%00"] {
        let path = format!("/fleet/v1/audit?{wrong}");
        let (code, ..) = ask(&replica, (Method::GET, &path), token, &[], &Value::Null).await?;
        ensure!(code == StatusCode::BAD_REQUEST, "{wrong}: {code}");
    }
    let (code, ..) = ask(&replica, (Method::GET, "/fleet/v1/audit"), token, &as_alice, &Value::Null).await?;
    ensure!(code == StatusCode::FORBIDDEN, "{code}");
    Ok(())
}

/// An older replica writes entries while this one runs, and they count as what they are.
#[tokio::test]
async fn what_entries_say_besides_cannot_be_changed_unseen() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    ask(&replica, (Method::POST, CONFIGS), token, &[], &json!({ "metadata": { "name": "a" } })).await?;
    ensure!(entries(&replica, "").await?.iter().all(|entry| entry["signed"] == true));
    let mut connection = site.database.connect().await?;
    for (set, back) in [
        ("impersonator = 'bob'", "impersonator = ''"),
        ("address = '192.0.2.1'", "address = '127.0.0.1'"),
        ("impersonated = '{}'", "impersonated = NULL"),
        ("request = 'x'", ""),
        ("administrator = false, impersonator = '', address = '', changes = NULL, request = ''", ""),
    ] {
        let of = |set: &str| format!("UPDATE audit SET {set} WHERE kind = 'ConfigMap' AND name = 'a'");
        let done = sqlx::query(sqlx::AssertSqlSafe(of(set))).execute(&mut connection).await?;
        ensure!(done.rows_affected() == 1);
        let unsigned = entries(&replica, "").await?;
        let unsigned: BTreeSet<_> = unsigned
            .iter()
            .filter(|entry| entry["signed"] == false)
            .map(|entry| entry["name"].to_string())
            .collect();
        ensure!(unsigned == BTreeSet::from(["\"a\"".to_owned()]), "{set}: {unsigned:?}");
        if !back.is_empty() {
            sqlx::query(sqlx::AssertSqlSafe(of(back))).execute(&mut connection).await?;
            ensure!(entries(&replica, "").await?.iter().all(|entry| entry["signed"] == true), "{set}");
        }
    }
    Ok(())
}

/// Waits until a stream has written what it was given.
async fn written(stream: &AuditStream) -> Result<()> {
    eventually("the stream is written", Duration::from_secs(20), || async {
        ensure!(stream.is_idle());
        Ok(())
    })
    .await
}

/// Streams the log into a file of this folder, with a ConfigMap and a head three times.
async fn three_heads(replica: &Replica, folder: &Path) -> Result<PathBuf> {
    let (token, audit) = (replica.token.as_str(), &replica.hub.audit);
    let path = folder.join("audit.jsonl");
    audit.stream_to(&AuditSink::File { path: path.clone(), max_bytes: 1 << 20, kept: 1 })?;
    for name in ["a", "b", "c"] {
        ask(replica, (Method::POST, CONFIGS), token, &[], &json!({ "metadata": { "name": name } })).await?;
        audit.seal().await?;
        audit.tell_head().await?;
    }
    Ok(path)
}

/// What `roadstead audit` prints, and whether it succeeds.
pub(crate) async fn roadstead(replica: &Replica, args: &[&str]) -> Result<(bool, String)> {
    let mut command = tokio::process::Command::new(binary("roadstead")?);
    command.arg("audit").args(args).arg("--kubeconfig").arg(replica.kubectl.kubeconfig());
    let output = command.output().await.context("run roadstead")?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), format!("{out}{err}")))
}

/// What of a stream's file is posted to be compared.
fn kept(text: &str) -> Result<Value> {
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let of =
        |type_: &str| -> Vec<Value> { lines.iter().filter(|line| line["type"] == type_).cloned().collect() };
    ensure!(of("head").len() + of("entry").len() == lines.len(), "{text}");
    Ok(json!({ "heads": of("head"), "entries": of("entry") }))
}

#[tokio::test]
async fn what_was_streamed_finds_a_gap_an_edit_and_an_end_that_was_cut_off() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (token, audit) = (replica.token.as_str(), &replica.hub.audit);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit.jsonl");
    audit.stream_to(&AuditSink::File { path: path.clone(), max_bytes: 1 << 20, kept: 1 })?;
    for name in ["a", "b", "c"] {
        let object =
            json!({ "metadata": { "name": name, "annotations": { "x": "a\n{\"type\":\"head\"}\u{2028}" } } });
        ask(&replica, (Method::POST, CONFIGS), token, &[], &object).await?;
        audit.seal().await?;
        audit.tell_head().await?;
    }
    // Not sealed yet, and streamed already.
    ask(&replica, (Method::DELETE, &format!("{CONFIGS}/a")), token, &[], &Value::Null).await?;
    // A dry run, and what is refused within the unit of work, did not happen.
    ask(&replica, (Method::DELETE, &format!("{CONFIGS}/b?dryRun=All")), token, &[], &Value::Null).await?;
    let stream = audit.stream().context("a stream")?;
    written(stream).await?;
    ensure!(stream.lost() == 0);
    let text = std::fs::read_to_string(&path)?;
    ensure!(text.lines().count() == 3 + 1 + 3 + 1, "three creations, a use, three heads, a deletion: {text}");
    let kept = kept(&text)?;
    let compare = async |kept: &Value| -> Result<Vec<String>> {
        let (code, _, answer) =
            ask(&replica, (Method::POST, "/fleet/v1/audit/heads"), token, &[], kept).await?;
        ensure!(code == StatusCode::OK, "{answer}");
        ensure!(answer["sound"] == answer["problems"].as_array().context("problems")?.is_empty());
        Ok(serde_json::from_value(answer["problems"].clone())?)
    };
    ensure!(compare(&kept).await?.is_empty(), "{:?}", compare(&kept).await?);
    let mut connection = site.database.connect().await?;
    let mut execute = async |sql: &'static str| -> Result<()> {
        ensure!(sqlx::query(sql).execute(&mut connection).await?.rows_affected() > 0, "{sql}");
        Ok(())
    };
    // Before it was sealed nothing but the stream knows of it.
    execute("DELETE FROM audit WHERE verb = 'delete' AND batch IS NULL").await?;
    ensure!(audit.check(&Identity::hub()).await?.sound, "the log alone does not show it");
    let problems = compare(&kept).await?;
    ensure!(problems.len() == 1 && problems[0].ends_with("is missing"), "{problems:?}");
    execute("UPDATE audit SET mac = sha256('x') WHERE name = 'a' AND verb = 'create'").await?;
    let problems = compare(&kept).await?;
    ensure!(problems.iter().any(|why| why.contains("another one than was told")), "{problems:?}");
    execute("UPDATE audit_batch SET mac = sha256('x') WHERE batch = 2").await?;
    let problems = compare(&kept).await?;
    ensure!(problems.iter().any(|why| why.contains("batch 2 is another one")), "{problems:?}");
    execute("DELETE FROM audit_batch WHERE batch = 2").await?;
    let problems = compare(&kept).await?;
    ensure!(problems.iter().any(|why| why.contains("batch 2, which was there")), "{problems:?}");
    execute("DELETE FROM audit_batch WHERE batch = 3").await?;
    let problems = compare(&kept).await?;
    ensure!(problems.iter().any(|why| why.contains("its end was cut off")), "{problems:?}");
    // What is not the hub's shows as such, and accuses nobody.
    let mut forged = json!({ "heads": [kept["heads"][0].clone()] });
    forged["heads"][0]["batch"] = json!(4711);
    let problems = compare(&forged).await?;
    ensure!(problems.len() == 1 && problems[0].contains("not written by a hub"), "{problems:?}");
    for wrong in [json!({ "heads": [{}] }), json!({ "heads": 1 }), json!("heads")] {
        let (code, ..) = ask(&replica, (Method::POST, "/fleet/v1/audit/heads"), token, &[], &wrong).await?;
        ensure!(code == StatusCode::BAD_REQUEST, "{wrong}: {code}");
    }
    Ok(())
}

#[tokio::test]
async fn what_was_dropped_for_its_age_is_not_missed() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (token, audit) = (replica.token.as_str(), &replica.hub.audit);
    let folder = tempfile::tempdir()?;
    let path = three_heads(&replica, folder.path()).await?;
    let stream = audit.stream().context("a stream")?;
    written(stream).await?;
    let kept = kept(&std::fs::read_to_string(&path)?)?;
    let dropped = site.store().await?.trim_audit(replica.hub.now() + Duration::from_secs(1)).await?;
    ensure!(dropped > 0);
    let (_, _, answer) = ask(&replica, (Method::POST, "/fleet/v1/audit/heads"), token, &[], &kept).await?;
    ensure!(answer["sound"] == true && answer["heads"] == 3, "{answer}");
    // Nobody passes off as dropped for its age what was written after that, whatever they write into the database.
    replica.kubectl.run(&["create", "configmap", "later"]).await?;
    written(stream).await?;
    let kept = self::kept(&std::fs::read_to_string(&path)?)?;
    let mut connection = site.database.connect().await?;
    for forged in ["UPDATE audit_batch SET sealed_at = '2100-01-01'", "DELETE FROM audit WHERE batch IS NULL"]
    {
        ensure!(sqlx::query(forged).execute(&mut connection).await?.rows_affected() > 0, "{forged}");
    }
    let (_, _, answer) = ask(&replica, (Method::POST, "/fleet/v1/audit/heads"), token, &[], &kept).await?;
    ensure!(answer["sound"] == false && answer.to_string().contains("is missing"), "{answer}");
    Ok(())
}

/// A replica that has seen a batch says that it was taken away, also once another one has come in its place.
#[tokio::test]
async fn an_end_that_was_cut_off_is_remembered() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (audit, who) = (&replica.hub.audit, Identity::hub());
    for name in ["a", "b", "c"] {
        replica.kubectl.run(&["create", "configmap", name]).await?;
        ensure!(audit.seal().await?);
    }
    let newest = audit.check(&who).await?.newest_batch;
    ensure!(audit.check(&who).await?.sound);
    let mut connection = site.database.connect().await?;
    for cut in ["DELETE FROM audit WHERE batch = $1", "DELETE FROM audit_batch WHERE batch = $1"] {
        sqlx::query(cut).bind(newest).execute(&mut connection).await?;
    }
    replica.kubectl.run(&["create", "configmap", "d"]).await?;
    ensure!(audit.seal().await?);
    for _ in 0..2 {
        let found = audit.check(&who).await?;
        ensure!(found.newest_batch == newest && !found.sound, "{found:?}");
        ensure!(found.problems.iter().any(|why| why.contains("is another one")), "{found:?}");
        ensure!(audit.seal().await?);
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_asks_prints_and_verifies() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let audit = &replica.hub.audit;
    let folder = tempfile::tempdir()?;
    let path = three_heads(&replica, folder.path()).await?;
    let (ok, lines) = roadstead(&replica, &["--kind", "ConfigMap", "--newest-first", "--limit", "2"]).await?;
    let names: Vec<Value> = lines
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["name"].clone()))
        .collect::<Result<_>>()?;
    ensure!(ok && names == ["c", "b"], "{lines}");
    let of_b =
        ["--verb", "create", "-n", "default", "--name", "b", "--administrator", "--outcome", "ok", "-o"];
    for (shape, begins) in [("json", "[\n{"), ("yaml", "- "), ("table", "TIME"), ("jsonl", "{")] {
        let (ok, text) = roadstead(&replica, &[&of_b[..], &[shape]].concat()).await?;
        ensure!(
            ok && text.starts_with(begins) && text.contains("ConfigMap") && text.contains('b'),
            "{shape}: {text}"
        );
    }
    for (shape, empty) in [("json", "[]\n"), ("yaml", "[]\n"), ("jsonl", "")] {
        let (ok, text) = roadstead(&replica, &["--user", "nobody", "-o", shape]).await?;
        ensure!(ok && text == empty, "{shape}: {text}");
    }
    written(audit.stream().context("a stream")?).await?;
    let file = path.to_str().context("a path")?;
    let (ok, text) = roadstead(&replica, &["verify", "--heads", file]).await?;
    ensure!(ok && text.contains("\"heads\": 3") && !text.contains(NO_ANCHOR), "{text}");
    let (ok, text) = roadstead(&replica, &["verify", "--at-least", "3"]).await?;
    ensure!(ok && !text.contains(NO_ANCHOR), "{text}");
    let mut connection = site.database.connect().await?;
    for sql in ["DELETE FROM audit WHERE batch = 3", "DELETE FROM audit_batch WHERE batch = 3"] {
        ensure!(sqlx::query(sql).execute(&mut connection).await?.rows_affected() > 0);
    }
    // Another replica does not remember batch 3.
    let other = site.replica().await?;
    let (ok, text) = roadstead(&other, &["verify"]).await?;
    ensure!(ok && text.contains(NO_ANCHOR), "the log alone does not show it, and that is said: {text}");
    let (ok, text) = roadstead(&other, &["verify", "--heads", file]).await?;
    ensure!(!ok && text.contains("its end was cut off"), "{text}");
    std::fs::write(&path, "{}\nnot JSON\n")?;
    let (ok, text) = roadstead(&other, &["verify", "--heads", file]).await?;
    ensure!(!ok && text.contains("no heads"), "{text}");
    Ok(())
}
