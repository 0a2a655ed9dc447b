//! What the hub keeps for itself: tokens, authorities, orders and dispatches that nobody can write who can only write the
//! database; the audit log; and what is gone of a Secret once it is gone.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::WriteOptions;
use roadstead_hub_core::{Address, Hub, HubError, HubOptions, SystemClock};
use roadstead_hub_store::AttemptInputs;
use roadstead_model::{
    ApplierRef, ApplierUid, AttemptKind, AuditFilter, ChangeSet, ClusterUid, Digest, DispatchSpec,
    Generation, Group, OrderKind, Purpose, ResourceUid, SessionId, StepKind,
};
use serde_json::{Value, json};

use crate::support::{Replica, Site, client, make_older};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn execute(site: &Site, sql: &'static str) -> Result<u64> {
    let mut connection = site.database.connect().await?;
    Ok(sqlx::query(sql).execute(&mut connection).await?.rows_affected())
}

async fn ask(
    replica: &Replica,
    method: Method,
    path: &str,
    token: &str,
    body: Value,
) -> Result<(StatusCode, Value)> {
    let mut request = client(replica)?.request(method, format!("{}{path}", replica.url)).bearer_auth(token);
    if !body.is_null() {
        request = request.json(&body);
    }
    let answer = request.send().await?;
    let code = answer.status();
    Ok((code, serde_json::from_slice(&answer.bytes().await?).unwrap_or_default()))
}

async fn is_taken(hub: &Hub, token: &str) -> Result<bool> {
    Ok(hub.identity.token_end(token).await?.is_some())
}

#[tokio::test]
async fn a_token_that_somebody_wrote_into_the_database_is_worth_nothing() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let bob = replica.hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    ensure!(is_taken(&replica.hub, bob.expose()).await?);
    // His own token, raised.
    for sql in [
        "UPDATE access_token SET groups = '{system:masters}' WHERE username = 'bob'",
        "UPDATE access_token SET groups = '{dev}', username = 'roadstead-admin' WHERE username = 'bob'",
    ] {
        ensure!(execute(&site, sql).await? == 1);
        ensure!(!is_taken(&replica.hub, bob.expose()).await?, "{sql}");
    }
    ensure!(
        execute(&site, "UPDATE access_token SET username = 'bob' WHERE groups = '{dev}'").await? == 1
            && is_taken(&replica.hub, bob.expose()).await?
    );
    // The administrator's MAC beside a hash of a token that he knows, and a row without any.
    let forged = format!("rsdt_{}", "ab".repeat(32));
    let mut connection = site.database.connect().await?;
    for mac in ["mac", "NULL", "'\\x00'"] {
        let sql = format!(
            "INSERT INTO access_token (id, hash, username, groups, mac) SELECT gen_random_uuid(), \
             sha256(convert_to($1, 'UTF8')), username, groups, {mac} FROM access_token WHERE username = 'roadstead-admin'"
        );
        let made = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(&forged).execute(&mut connection).await?;
        ensure!(made.rows_affected() == 1);
        ensure!(!is_taken(&replica.hub, &forged).await?);
        let (code, _) = ask(&replica, Method::GET, SECRETS, &forged, Value::Null).await?;
        ensure!(code == StatusCode::UNAUTHORIZED, "{code}");
        let (_, list) = ask(&replica, Method::GET, "/fleet/v1/tokens", &replica.token, Value::Null).await?;
        let invalid = list["items"].as_array().into_iter().flatten().filter(|item| item["valid"] == false);
        ensure!(invalid.count() == 1, "{list}");
        sqlx::query("DELETE FROM access_token WHERE expires_at IS NULL AND username = 'roadstead-admin'")
            .execute(&mut connection)
            .await?;
    }
    ensure!(is_taken(&replica.hub, &replica.token).await?, "the real one is what it was");
    Ok(())
}

#[tokio::test]
async fn an_authority_that_somebody_wrote_into_the_database_is_not_taken() -> Result<()> {
    let (site, other) = (Site::new().await?, Site::new().await?);
    drop((site.replica().await?, other.replica().await?));
    let mut connection = other.database.connect().await?;
    let theirs: String = sqlx::query_scalar("SELECT certificate_pem FROM authority WHERE name = 'agent-ca'")
        .fetch_one(&mut connection)
        .await?;
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE authority SET certificate_pem = $1 WHERE name = 'agent-ca'")
        .bind(theirs)
        .execute(&mut connection)
        .await?;
    let hub = Hub::open(site.store().await?, Arc::new(SystemClock), HubOptions::default()).await;
    let error = hub.err().context("it was taken")?;
    ensure!(format!("{:#}", anyhow::Error::from(error)).contains("key file"));
    Ok(())
}

/// Makes a Cluster.
async fn cluster(hub: &Hub, name: &str) -> Result<ClusterUid> {
    let kind = roadstead_api::KindId::Cluster;
    let version = kind.get().storage_version();
    let address = Address { kind, version, namespace: String::new(), name: String::new() };
    let object = json!({ "metadata": { "name": name } });
    let made = hub.objects.create(&Identity::hub(), &address, object, WriteOptions::default()).await?;
    let uid: ResourceUid = made.object["metadata"]["uid"].as_str().context("a uid")?.parse()?;
    Ok(uid.into())
}

#[tokio::test]
async fn an_order_that_somebody_wrote_into_the_database_is_not_given() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let edge = cluster(&replica.hub, "edge").await?;
    let store = site.store().await?;
    let order = OrderKind::Run("registry.example.com/agent:1".to_owned());
    let give = async || -> Result<()> {
        let mut tx = store.begin().await?;
        tx.give_order(edge, &order, None, replica.hub.now()).await?;
        tx.commit().await?;
        Ok(())
    };
    give().await?;
    let taken = store.take_order(edge, SessionId::random()).await?.context("an order")?;
    ensure!(taken.kind == order);
    for sql in [
        "UPDATE agent_order SET image = 'registry.example.com/evil:1', sent_in = NULL",
        "UPDATE agent_order SET image = NULL, sent_in = NULL",
        "UPDATE agent_order SET mac = NULL, sent_in = NULL",
    ] {
        give().await?;
        ensure!(execute(&site, sql).await? == 1);
        ensure!(store.take_order(edge, SessionId::random()).await?.is_none(), "{sql}");
    }
    Ok(())
}

#[tokio::test]
async fn a_dispatch_that_somebody_wrote_into_the_database_is_not_sent() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (edge, other) = (cluster(&replica.hub, "edge").await?, cluster(&replica.hub, "other").await?);
    let store = site.store().await?;
    let now = replica.hub.now();
    let inputs = AttemptInputs {
        applier: ApplierUid(ResourceUid::random().0),
        cluster: Some(edge),
        generation: Generation(1),
        revision: None,
        artifact: None,
        build: None,
        request: None,
        kind: AttemptKind::Apply,
        trigger: None,
        rendered_by: Default::default(),
        started: now,
    };
    let spec = DispatchSpec {
        applier: ApplierRef::kustomization("default", "web"),
        purpose: Purpose::Reconcile,
        full: false,
        drift: roadstead_model::DriftMode::Correct,
        observe: false,
        cluster_events: false,
        warnings: Vec::new(),
        decrypted_with: Vec::new(),
        offline: roadstead_model::Offline::default(),
        health: Vec::new(),
        guard: None,
        default_namespace: None,
        service_account: Some(("default".to_owned(), "restricted".to_owned()).into()),
        timeout: Duration::from_secs(60),
        groups: vec![Group::of(Digest::of(b"build"))],
        steps: vec![StepKind::Apply { group: 0 }.into()],
    };
    let open = async || -> Result<()> {
        let mut tx = store.begin().await?;
        tx.open_reconciliation(&inputs, &spec, now + Duration::from_secs(60), &ChangeSet::default()).await?;
        tx.commit().await?;
        Ok(())
    };
    open().await?;
    let sent = store.take_to_send(edge, SessionId::random(), 10).await?.dispatches;
    ensure!(sent.len() == 1 && sent[0].spec == spec, "{sent:?}");
    for sql in [
        "UPDATE reconciliation SET dispatch = jsonb_set(dispatch, '{serviceAccount}', 'null') WHERE finished_at IS NULL",
        "UPDATE reconciliation SET dispatch = jsonb_set(dispatch, '{steps}', '[\"delete\"]') WHERE finished_at IS NULL",
        "UPDATE reconciliation SET build_digest = sha256('x') WHERE finished_at IS NULL",
        "UPDATE reconciliation SET dispatch_format = 1 WHERE finished_at IS NULL",
        "UPDATE reconciliation SET attempt = attempt + 100 WHERE finished_at IS NULL",
        "UPDATE reconciliation SET mac = NULL WHERE finished_at IS NULL",
    ] {
        open().await?;
        ensure!(execute(&site, sql).await? == 1, "{sql}");
        let sent = store.take_to_send(edge, SessionId::random(), 10).await?.dispatches;
        ensure!(sent.is_empty(), "{sql}: {sent:?}");
        // It is over: what is wanted is dispatched again.
        let newest = store.newest_reconciliation(inputs.applier).await?.context("an attempt")?;
        ensure!(newest.finished.is_some(), "{sql}");
    }
    // The same dispatch for another cluster.
    open().await?;
    let mut connection = site.database.connect().await?;
    sqlx::query("UPDATE reconciliation SET cluster_uid = $1 WHERE finished_at IS NULL")
        .bind(other.0)
        .execute(&mut connection)
        .await?;
    ensure!(store.take_to_send(other, SessionId::random(), 10).await?.dispatches.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_an_older_version_stored_counts_and_is_signed_once() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let ca = replica.hub.pki().agent_ca_pem().to_owned();
    make_older(&site).await?;
    execute(&site, "UPDATE access_token SET mac = NULL").await?;
    ensure!(!is_taken(&replica.hub, &replica.token).await?);
    let upgraded = site.replica().await?;
    ensure!(is_taken(&upgraded.hub, &replica.token).await?, "a token from before the upgrade");
    ensure!(upgraded.hub.pki().agent_ca_pem() == ca);
    // Who may write the database cannot have it done again.
    let bob = upgraded.hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    execute(&site, "UPDATE access_token SET mac = NULL, groups = '{system:masters}' WHERE username = 'bob'")
        .await?;
    let again = site.replica().await?;
    ensure!(!is_taken(&again.hub, bob.expose()).await?);
    ensure!(is_taken(&again.hub, &replica.token).await?);
    Ok(())
}

#[tokio::test]
async fn what_was_taken_out_of_a_secret_is_in_no_past_version() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = &replica.token;
    let object = json!({ "metadata": { "name": "edge-kubeconfig" }, "data": { "value": "aHVudGVyMg==" } });
    let (_, made) = ask(&replica, Method::POST, SECRETS, token, object).await?;
    let version = made["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
    let exact = format!("{SECRETS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let path = format!("{SECRETS}/edge-kubeconfig");
    // A change beside the data leaves the data of past versions.
    let patch = async |patch: Value| -> Result<StatusCode> {
        let request = client(&replica)?.patch(format!("{}{path}", replica.url)).bearer_auth(token);
        let request = request.header("content-type", "application/merge-patch+json").body(patch.to_string());
        Ok(request.send().await?.status())
    };
    ensure!(patch(json!({ "metadata": { "labels": { "a": "b" } } })).await? == StatusCode::OK);
    let (_, past) = ask(&replica, Method::GET, &exact, token, Value::Null).await?;
    ensure!(past["items"][0]["data"]["value"] == "aHVudGVyMg==", "{past}");

    ensure!(patch(json!({ "data": { "value": null } })).await? == StatusCode::OK);
    let (code, past) = ask(&replica, Method::GET, &exact, token, Value::Null).await?;
    ensure!(code == StatusCode::OK && !past.to_string().contains("aHVudGVyMg=="), "{past}");
    ensure!(past["items"][0]["metadata"]["annotations"]["fleet.roadstead.dev/shredded"] == "true", "{past}");
    let watch = format!("{SECRETS}?watch=1&timeoutSeconds=1&resourceVersion={}", version.parse::<i64>()? - 1);
    let watched = client(&replica)?.get(format!("{}{watch}", replica.url)).bearer_auth(token).send().await?;
    let watched = watched.text().await?;
    ensure!(watched.contains("edge-kubeconfig") && !watched.contains("aHVudGVyMg=="), "{watched}");

    // Changed, and deleted.
    ensure!(patch(json!({ "data": { "value": "b25l" } })).await? == StatusCode::OK);
    ensure!(patch(json!({ "data": { "value": "dHdv" } })).await? == StatusCode::OK);
    let sealed = "SELECT FROM resource_event WHERE kind = 'Secret' AND sealed IS NOT NULL";
    ensure!(execute(&site, sealed).await? == 1, "only of what is there");
    ask(&replica, Method::DELETE, &path, token, Value::Null).await?;
    ensure!(execute(&site, sealed).await? == 0, "of a Secret that is gone nothing stays");
    Ok(())
}

async fn entries(replica: &Replica) -> Result<Vec<Value>> {
    replica.hub.audit.write_counted(true).await?;
    let (code, page) =
        ask(replica, Method::GET, "/fleet/v1/audit?limit=1000", &replica.token, Value::Null).await?;
    ensure!(code == StatusCode::OK, "{page}");
    Ok(page["items"].as_array().context("items")?.clone())
}

fn has(entries: &[Value], wanted: &Value) -> bool {
    let wanted = wanted.as_object().into_iter().flatten();
    let wanted: Vec<_> = wanted.collect();
    entries.iter().any(|entry| {
        wanted.iter().all(|(key, value)| match value.as_str().and_then(|text| text.strip_prefix("…")) {
            Some(part) => entry[key.as_str()].as_str().is_some_and(|text| text.contains(part)),
            None => entry[key.as_str()] == **value,
        })
    })
}

#[tokio::test]
async fn the_audit_log_tells_of_tokens_reads_of_secrets_and_refusals() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (hub, token) = (&replica.hub, replica.token.as_str());
    cluster(hub, "edge").await?;
    let object = json!({ "metadata": { "name": "s" }, "data": { "k": "aHVudGVyMg==" } });
    ask(&replica, Method::POST, SECRETS, token, object).await?;
    for (method, path, body) in [
        (Method::GET, format!("{SECRETS}/s"), Value::Null),
        (Method::GET, SECRETS.to_owned(), Value::Null),
        (Method::GET, format!("{SECRETS}?watch=1&timeoutSeconds=1"), Value::Null),
        (Method::DELETE, format!("{SECRETS}/s?dryRun=All"), Value::Null),
        (
            Method::POST,
            "/api/v1/namespaces/default/serviceaccounts".to_owned(),
            json!({ "metadata": { "name": "robot" } }),
        ),
        (
            Method::POST,
            "/api/v1/namespaces/default/serviceaccounts/robot/token".to_owned(),
            json!({ "spec": {} }),
        ),
        (
            Method::POST,
            "/apis/fleet.roadstead.dev/v1alpha1/clusters/edge/jointoken".to_owned(),
            json!({ "ttlSeconds": 600 }),
        ),
    ] {
        let (code, answer) = ask(&replica, method, &path, token, body).await?;
        ensure!(code.is_success(), "{path}: {answer}");
    }
    let bob = hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    let (code, _) = ask(&replica, Method::GET, &format!("{SECRETS}/s"), bob.expose(), Value::Null).await?;
    ensure!(code == StatusCode::FORBIDDEN);
    for _ in 0..3 {
        ask(&replica, Method::GET, SECRETS, "rsdt_made-up", Value::Null).await?;
    }
    let body = json!({ "token": "made-up", "csr": "", "kubeSystemUid": ResourceUid::random().to_string() });
    let (code, _) = ask(&replica, Method::POST, "/fleet/v1/enrol", "", body).await?;
    ensure!(code == StatusCode::UNAUTHORIZED, "{code}");

    let entries = entries(&replica).await?;
    let admin = "roadstead-admin";
    for wanted in [
        json!({ "user": admin, "verb": "get", "kind": "Secret", "namespace": "default", "name": "s", "outcome": "ok" }),
        json!({ "user": admin, "verb": "list", "kind": "Secret", "namespace": "default" }),
        json!({ "user": admin, "verb": "watch", "kind": "Secret", "namespace": "default" }),
        json!({ "user": admin, "verb": "create", "kind": "ServiceAccount/token", "name": "robot" }),
        json!({ "user": admin, "verb": "create", "kind": "Cluster/jointoken", "name": "edge" }),
        json!({ "verb": "create", "kind": "AccessToken", "detail": "…\"bob\"" }),
        json!({ "user": "bob", "verb": "get", "kind": "Secret", "namespace": "default", "name": "s",
                "outcome": "refused", "detail": "…cannot get resource \"secrets\"" }),
        json!({ "user": "system:anonymous", "verb": "login", "outcome": "refused", "times": 3 }),
        json!({ "user": "system:anonymous", "verb": "enrol", "outcome": "refused", "detail": "…is not known" }),
    ] {
        ensure!(has(&entries, &wanted), "{wanted} is not in {entries:#?}");
    }
    let all = Value::from(entries).to_string();
    ensure!(!all.contains("aHVudGVyMg") && !all.contains(token) && !all.contains("made-up"), "{all}");
    // Nobody but the masters reads it.
    for path in ["/fleet/v1/audit", "/fleet/v1/audit/check", "/fleet/v1/tokens"] {
        let (code, _) = ask(&replica, Method::GET, path, bob.expose(), Value::Null).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn an_audit_log_that_was_changed_shows_it() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (hub, who) = (&replica.hub, Identity::hub());
    for name in ["a", "b", "c"] {
        cluster(hub, name).await?;
        hub.audit.tend().await?;
    }
    cluster(hub, "d").await?;
    let report = hub.audit.check(&who).await?;
    ensure!(
        report.sound && report.batches == 3 && report.newest_batch == 3 && report.pending > 0,
        "{report:?}"
    );
    for (change, part, back) in [
        (
            "UPDATE audit SET username = 'bob' WHERE name = 'a'",
            "not written by a hub",
            Some("UPDATE audit SET username = 'system:roadstead:hub' WHERE name = 'a'"),
        ),
        (
            "UPDATE audit SET at = at + interval '1 day' WHERE name = 'd'",
            "not written by a hub",
            Some("UPDATE audit SET at = at - interval '1 day' WHERE name = 'd'"),
        ),
        (
            "UPDATE audit SET batch = 2 WHERE name = 'd'",
            "batch 2",
            Some("UPDATE audit SET batch = NULL WHERE name = 'd'"),
        ),
        (
            "INSERT INTO audit_trimmed (batch, mac) VALUES (2, '')",
            "batches up to 2 were dropped for their age was not written by a hub",
            Some("DELETE FROM audit_trimmed"),
        ),
        ("DELETE FROM audit WHERE name = 'b'", "batch 2 was sealed with", None),
    ] {
        ensure!(execute(&site, change).await? > 0, "{change}");
        let report = hub.audit.check(&who).await?;
        ensure!(
            !report.sound && report.problems.iter().any(|why| why.contains(part)),
            "{change}: {report:?}"
        );
        if let Some(back) = back {
            execute(&site, back).await?;
            let report = hub.audit.check(&who).await?;
            ensure!(report.sound, "{back}: {report:?}");
        }
    }
    // What was dated back is not dropped for its age.
    execute(&site, "UPDATE audit_batch SET sealed_at = '2000-01-01' WHERE batch = 3").await?;
    let year = Duration::from_secs(365 * 24 * 3600);
    ensure!(site.store().await?.trim_audit(hub.now() - year).await? == 0, "a batch was dropped unseen");
    let report = hub.audit.check(&who).await?;
    ensure!(report.problems.iter().any(|why| why.contains("batch 3 is not as it was sealed")), "{report:?}");
    // An entry that is said to be from before the log was sealed.
    execute(&site, "INSERT INTO audit (entry, at, username, verb, api_group, kind, namespace, name, outcome, detail, batch) \
        SELECT gen_random_uuid(), at, 'eve', verb, api_group, kind, namespace, name, outcome, detail, 0 FROM audit LIMIT 1")
        .await?;
    let report = hub.audit.check(&who).await?;
    ensure!(report.problems.iter().any(|why| why.contains("not from before")), "{report:?}");
    // The end, batches and all: who remembers the newest batch sees it.
    for sql in ["DELETE FROM audit WHERE batch >= 2", "DELETE FROM audit_batch WHERE batch >= 2"] {
        execute(&site, sql).await?;
    }
    let report = hub.audit.check(&who).await?;
    ensure!(report.problems.iter().any(|why| why.contains("were stored and are missing")), "{report:?}");
    Ok(())
}

#[tokio::test]
async fn an_audit_log_is_trimmed_by_age_and_stays_sound() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let hub = &replica.hub;
    for name in ["a", "b"] {
        cluster(hub, name).await?;
        hub.audit.tend().await?;
    }
    let store = site.store().await?;
    ensure!(store.trim_audit(hub.now() + Duration::from_secs(1)).await? > 0);
    cluster(hub, "c").await?;
    hub.audit.tend().await?;
    let report = hub.audit.check(&Identity::hub()).await?;
    ensure!(report.sound && report.batches == 1 && report.newest_batch == 3, "{report:?}");
    let left = store.audit_log(&AuditFilter::default(), 100).await?;
    ensure!(left.iter().all(|record| record.batch == Some(3) && record.signed), "{left:?}");
    // What follows is checked against the batch that was dropped last, as it was.
    execute(&site, "UPDATE audit_batch SET mac = 'other' WHERE batch = 2").await?;
    ensure!(!hub.audit.check(&Identity::hub()).await?.sound);
    // What was trimmed does not come back.
    execute(&site, "UPDATE audit SET batch = 2").await?;
    ensure!(!hub.audit.check(&Identity::hub()).await?.sound);
    Ok(())
}

#[tokio::test]
async fn tokens_end_are_listed_and_are_taken_back() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (hub, admin) = (&replica.hub, replica.token.as_str());
    let end =
        hub.identity.token_end(admin).await?.flatten().context("an administrator's token has an end")?;
    ensure!(
        end > hub.now() + Duration::from_secs(23 * 3600) && end < hub.now() + Duration::from_secs(25 * 3600)
    );
    let order = json!({ "username": "ci", "groups": ["system:masters"], "expirationSeconds": 3600 });
    let (code, made) = ask(&replica, Method::POST, "/fleet/v1/tokens", admin, order).await?;
    ensure!(code == StatusCode::CREATED, "{made}");
    let (id, ci) = (made["id"].as_str().context("an id")?, made["token"].as_str().context("a token")?);
    ensure!(ask(&replica, Method::GET, SECRETS, ci, Value::Null).await?.0 == StatusCode::OK);
    let (_, list) = ask(&replica, Method::GET, "/fleet/v1/tokens", admin, Value::Null).await?;
    let items = list["items"].as_array().context("items")?;
    let listed = items.iter().find(|item| item["id"] == id).context("it is listed")?;
    ensure!(
        listed["username"] == "ci" && listed["valid"] == true && listed["lastUsed"].is_string(),
        "{listed}"
    );
    ensure!(!list.to_string().contains(ci), "a list has no texts");
    for order in [
        json!({ "expirationSeconds": 5 }),
        json!({ "expirationSeconds": 400 * 86_400 }),
        json!({ "username": "system:roadstead:hub" }),
        json!({ "groups": "system:masters" }),
    ] {
        let (code, answer) = ask(&replica, Method::POST, "/fleet/v1/tokens", admin, order).await?;
        ensure!(code.is_client_error(), "{answer}");
    }
    let path = format!("/fleet/v1/tokens/{id}");
    ensure!(ask(&replica, Method::DELETE, &path, admin, Value::Null).await?.0 == StatusCode::OK);
    ensure!(ask(&replica, Method::DELETE, &path, admin, Value::Null).await?.0 == StatusCode::NOT_FOUND);
    ensure!(!is_taken(hub, ci).await?);
    // Dead ones are dropped, join tokens among them.
    cluster(hub, "edge").await?;
    hub.enrolments.create_join_token(&Identity::hub(), "edge", None).await?;
    execute(&site, "UPDATE join_token SET expires_at = now() - interval '25 hours'").await?;
    ensure!(site.store().await?.drop_expired_tokens(hub.now()).await? == 1);
    let bob = hub.identity.create_access_token("bob", &[], None).await?;
    let refused = hub.identity.list_tokens(&hub.identity.authenticate(bob.expose()).await?, false).await;
    ensure!(matches!(refused, Err(HubError::Forbidden(_))));
    Ok(())
}
