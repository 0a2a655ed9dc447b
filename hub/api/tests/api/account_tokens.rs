//! Tokens of service accounts that end before their time: with the Secret that they are bound to, one by one, and with the key that signed them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use reqwest::{Method, Response, StatusCode};
use roadstead_hub_api::ApiOptions;
use roadstead_hub_core::HubOptions;
use roadstead_hub_core::identity::{Identity, MOST_REVOKED};
use roadstead_model::AuditFilter;
use roadstead_tests::{binary, eventually};
use serde_json::{Value, json};

use crate::accounts::{Asked, claims_of};
use crate::support::{Site, client};

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEYS: &str = "/fleet/v1/account-keys";

/// A replica that looks often whether those who watch are still known.
async fn replica(site: &Site) -> Result<Asked> {
    let api = ApiOptions { check_credentials: Duration::from_millis(200), ..ApiOptions::default() };
    // The same for all replicas.
    let options =
        HubOptions { account_issuers: vec!["https://hub.test".to_owned()], ..HubOptions::default() };
    let replica = site.replica_of(api, options).await?;
    Ok(Asked { client: client(&replica)?, replica })
}

/// The first one, with an account that may read Secrets.
async fn hub(site: &Site) -> Result<Asked> {
    let hub = replica(site).await?;
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let to = "--serviceaccount=default:robot";
    kubectl.run(&["create", "clusterrolebinding", "robot", "--clusterrole=edit", to]).await?;
    Ok(hub)
}

async fn ask(hub: &Asked, method: Method, token: &str, path: &str, body: Value) -> Result<(u16, Value)> {
    let request = hub.client.request(method, format!("{}{path}", hub.replica.url)).bearer_auth(token);
    let answer = request.json(&body).send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

/// A watch by this token, once it may watch.
async fn watch(hub: &Asked, token: &str) -> Result<Response> {
    let path = format!("{}{SECRETS}?watch=true&allowWatchBookmarks=true", hub.replica.url);
    eventually("it may watch", PATIENCE, || async {
        let answer = hub.client.get(&path).bearer_auth(token).send().await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        Ok(answer)
    })
    .await
}

async fn end(watch: Response) -> Result<()> {
    let read = watch.bytes_stream().for_each(|_| std::future::ready(()));
    tokio::time::timeout(PATIENCE, read).await.context("it goes on")
}

async fn ends(hub: &Asked, token: &str) -> Result<()> {
    eventually("the token has ended", PATIENCE, || async { hub.refused(token).await.map(drop) }).await
}

async fn log(hub: &Asked) -> Result<String> {
    let audit = &hub.replica.hub.audit;
    let (log, _) = audit.entries(&Identity::hub(), &AuditFilter::default(), 500).await?;
    Ok(serde_json::to_string(&log)?)
}

#[tokio::test]
async fn a_token_ends_with_the_secret_that_it_is_bound_to() -> Result<()> {
    let site = Site::new().await?;
    let hub = hub(&site).await?;
    let (kubectl, admin) = (&hub.replica.kubectl, hub.replica.token.as_str());
    kubectl.run(&["create", "secret", "generic", "lease", "--from-literal=a=b"]).await?;
    let uid = kubectl.run(&["get", "secret", "lease", "-o", "jsonpath={.metadata.uid}"]).await?;
    // kubectl asks in protobuf.
    let bound = ["robot", "--bound-object-kind=Secret", "--bound-object-name=lease"];
    let by_name = hub.token(&bound).await?;
    let by_uid = hub.token(&[&bound[..], &[&format!("--bound-object-uid={uid}")]].concat()).await?;
    for token in [&by_name, &by_uid] {
        let claims = claims_of(token)?;
        ensure!(claims["kubernetes.io"]["secret"] == json!({ "name": "lease", "uid": uid }), "{claims}");
    }
    ensure!(log(&hub).await?.contains(&format!("bound to Secret lease (uid {uid})")));
    let reference = json!({ "kind": "Secret", "apiVersion": "v1", "name": "lease", "uid": uid });
    let order = json!({ "spec": { "boundObjectRef": reference } });
    let (code, made) = ask(&hub, Method::POST, admin, TOKEN, order).await?;
    ensure!(code == 201 && made["spec"]["boundObjectRef"] == reference, "{made}");

    let of = |kind: &str, version: &str, name: &str, uid: &str| json!({ "kind": kind, "apiVersion": version, "name": name, "uid": uid });
    let cannot = "cannot bind token to object of type";
    for (bound, status, why) in [
        (of("Secret", "v1", "lease", "another"), 409, "does not match the UID in record".to_owned()),
        (of("Secret", "v1", "other", ""), 404, "secrets \\\"other\\\" not found".to_owned()),
        (of("Secret", "v1", "a\0b", ""), 404, "not found".to_owned()),
        (of("Secret", "apps/v1", "lease", ""), 400, format!("{cannot} apps/v1, Kind=Secret")),
        (of("Pod", "v1", "lease", ""), 400, format!("{cannot} /v1, Kind=Pod")),
        (of("Node", "v1", "lease", ""), 400, format!("{cannot} /v1, Kind=Node")),
        (of("ConfigMap", "v1", "lease", ""), 400, format!("{cannot} /v1, Kind=ConfigMap")),
        (json!({}), 400, format!("{cannot} /, Kind=")),
        (json!({ "kind": 1 }), 400, "kind must be a string".to_owned()),
    ] {
        let order = json!({ "spec": { "boundObjectRef": bound } });
        let (code, said) = ask(&hub, Method::POST, admin, TOKEN, order).await?;
        ensure!(code == status && said.to_string().contains(&why), "{bound}: {code} {said}");
    }

    let watch = watch(&hub, &by_name).await?;
    ensure!(hub.user(&by_uid).await?["username"] == "system:serviceaccount:default:robot");
    kubectl.run(&["delete", "secret", "lease"]).await?;
    end(watch).await?;
    ends(&hub, &by_uid).await?;
    // One of the same name is another.
    kubectl.run(&["create", "secret", "generic", "lease", "--from-literal=a=b"]).await?;
    let said = hub.review(&by_name, &[]).await?;
    ensure!(said["error"] == "[invalid bearer token, service account token has been invalidated]", "{said}");
    hub.user(&hub.token(&bound).await?).await?;
    ends(&hub, &by_name).await
}

#[tokio::test]
async fn one_token_is_taken_back() -> Result<()> {
    let site = Site::new().await?;
    let hub = hub(&site).await?;
    let (kubectl, identity) = (&hub.replica.kubectl, &hub.replica.hub.identity);
    let other = replica(&site).await?;
    kubectl.run(&["create", "serviceaccount", "another"]).await?;
    let (first, second) = (hub.token(&["robot"]).await?, hub.token(&["robot"]).await?);
    let jti = claims_of(&first)?["jti"].as_str().context("an id")?.to_owned();
    let path = |account: &str, id: &str| {
        format!("/fleet/v1/namespaces/default/serviceaccounts/{account}/tokens/{id}")
    };
    let watch = watch(&hub, &first).await?;
    other.user(&first).await?;

    // Who may neither make such a token nor delete the account does not get to know whether there is one.
    let jane = identity.create_access_token("jane", &[], None).await?;
    let takes_back = async |token: &str, path: &str| ask(&hub, Method::DELETE, token, path, json!({})).await;
    for account in ["robot", "missing"] {
        let (code, said) = takes_back(jane.expose(), &path(account, &jti)).await?;
        ensure!(code == 403 && said.to_string().contains("cannot delete resource"), "{code} {said}");
    }
    let admin = hub.replica.token.as_str();
    ensure!(takes_back(admin, &path("missing", &jti)).await?.0 == 404);
    ensure!(takes_back(admin, &path("robot", "no-id")).await?.0 == 404);
    // By the name of another account nothing of this one ends.
    ensure!(takes_back(admin, &path("another", &jti)).await?.0 == 200);
    ensure!(hub.review(&first, &[]).await?["authenticated"] == true);

    let may = ["create", "role", "issues", "--verb=create", "--resource=serviceaccounts/token"];
    kubectl.run(&may).await?;
    kubectl.run(&["create", "rolebinding", "issues", "--role=issues", "--user=jane"]).await?;
    eventually("jane may", PATIENCE, || async {
        let (code, said) = takes_back(jane.expose(), &path("robot", &jti)).await?;
        ensure!(code == 200 && said["id"] == jti, "{code} {said}");
        Ok(())
    })
    .await?;
    end(watch).await?;
    ends(&hub, &first).await?;
    ends(&other, &first).await.context("another replica")?;
    let said = hub.review(&first, &[]).await?;
    ensure!(said["error"] == "[invalid bearer token, service account token has been revoked]", "{said}");
    hub.user(&second).await.context("the other token of the account")?;
    ensure!(log(&hub).await?.contains(&format!("\"detail\":\"token JTI={jti}\"")));

    // So many of an account; the same again counts once.
    sqlx::query(
        "INSERT INTO revoked_account_token (account_uid, jti, expires_at) SELECT uid, gen_random_uuid(), now() + interval '1 hour' \
         FROM resource, generate_series(2, $1) WHERE kind = 'ServiceAccount' AND name = 'robot'",
    )
    .bind(i32::try_from(MOST_REVOKED)?)
    .execute(&mut site.database.connect().await?)
    .await?;
    ensure!(takes_back(admin, &path("robot", &jti)).await?.0 == 200);
    let another = claims_of(&second)?["jti"].as_str().context("an id")?.to_owned();
    let (code, said) = takes_back(admin, &path("robot", &another)).await?;
    ensure!(code == 429 && said.to_string().contains("delete it"), "{code} {said}");
    hub.user(&second).await?;
    // What has ended is forgotten, and no sooner.
    let store = site.store().await?;
    let now = hub.replica.hub.now();
    ensure!(store.drop_ended_revocations(now).await? == 0);
    let hours = |hours: u64| now + Duration::from_secs(hours * 3600);
    ensure!(store.drop_ended_revocations(hours(2)).await? == MOST_REVOKED.unsigned_abs() - 1);
    ensure!(store.drop_ended_revocations(hours(366 * 24)).await? == 0);
    ensure!(store.drop_ended_revocations(hours(368 * 24)).await? == 2);
    Ok(())
}

#[tokio::test]
async fn a_new_key_signs_at_once_and_those_before_it_end_when_they_are_told_to() -> Result<()> {
    let site = Site::new().await?;
    let hub = hub(&site).await?;
    let other = replica(&site).await?;
    let admin = hub.replica.token.as_str();
    let jane = hub.replica.hub.identity.create_access_token("jane", &[], None).await?;
    for method in [Method::GET, Method::POST] {
        ensure!(ask(&hub, method, jane.expose(), KEYS, json!({})).await?.0 == 403);
    }
    let (code, said) = ask(&hub, Method::POST, admin, KEYS, json!({ "endOld": "yes" })).await?;
    ensure!(code == 400 && said.to_string().contains("endOld"), "{said}");
    let before = hub.token(&["robot"]).await?;
    other.user(&before).await?;
    let published = async |hub: &Asked| {
        let keys = hub.replica.hub.identity.issuer_keys().await?;
        let keys: Value = serde_json::from_slice(&keys)?;
        anyhow::Ok(keys["keys"].as_array().context("keys")?.clone())
    };

    let (code, made) = ask(&hub, Method::POST, admin, KEYS, json!({})).await?;
    ensure!(code == 201, "{made}");
    ensure!(published(&hub).await?.len() == 2);
    // A replica that has not made it signs with it, too.
    let after = other.token(&["robot"]).await?;
    ensure!(before.split('.').next() != after.split('.').next(), "the old key signed");
    for hub in [&hub, &other] {
        hub.user(&before).await?;
        eventually("the new key is known", PATIENCE, || async { hub.user(&after).await.map(drop) }).await?;
    }
    let (_, listed) = ask(&hub, Method::GET, admin, KEYS, json!({})).await?;
    let items = listed["items"].as_array().context("items")?;
    ensure!(
        items.len() == 2 && items[0]["signs"] == false && items[0]["verifiesUntil"].is_string(),
        "{listed}"
    );
    ensure!(items[1]["id"] == made["id"] && items[1]["signs"] == true, "{listed}");
    ensure!(items[1]["verifiesUntil"].is_null(), "{listed}");

    let watch = watch(&hub, &before).await?;
    let (code, last) = ask(&other, Method::POST, admin, KEYS, json!({ "endOld": true })).await?;
    ensure!(code == 201, "{last}");
    end(watch).await?;
    for hub in [&hub, &other] {
        ends(hub, &before).await?;
        ends(hub, &after).await?;
        eventually("the old keys are not published", PATIENCE, || async {
            let keys = published(hub).await?;
            ensure!(keys.len() == 1 && keys[0]["kid"] == last["id"], "{keys:?}");
            Ok(())
        })
        .await?;
        let said = hub.review(&before, &[]).await?;
        ensure!(said["error"].as_str().is_some_and(|why| why.contains("names no key")), "{said}");
    }
    let fresh = hub.token(&["robot"]).await?;
    for hub in [&hub, &other] {
        eventually("it is taken", PATIENCE, || async { hub.user(&fresh).await.map(drop) }).await?;
    }
    let log = log(&hub).await?;
    ensure!(log.contains("AccountKey") && log.contains("2 keys before it ended at once"), "{log}");
    Ok(())
}

/// `roadstead token`, and whether it ended well.
async fn roadstead(hub: &Asked, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = tokio::process::Command::new(binary("roadstead")?);
    command.arg("token").args(arguments).arg("--kubeconfig").arg(hub.replica.kubectl.kubeconfig());
    let output = command.output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

#[tokio::test]
async fn the_command_line_makes_lists_and_revokes_tokens_of_people() -> Result<()> {
    let site = Site::new().await?;
    let hub = hub(&site).await?;
    let (ok, made) =
        roadstead(&hub, &["create", "--user", "ci", "--group", "robots", "--expires-in", "1h", "--json"])
            .await?;
    ensure!(ok, "{made}");
    let made: Value = serde_json::from_str(&made)?;
    let (id, token) = (made["id"].as_str().context("an id")?, made["token"].as_str().context("a token")?);
    let user = hub.user(token).await?;
    ensure!(
        user["username"] == "ci" && user["groups"] == json!(["robots", "system:authenticated"]),
        "{user}"
    );
    let (ok, text) = roadstead(&hub, &["list"]).await?;
    let listed = text.lines().find(|line| line.starts_with(id)).context("it is listed")?;
    ensure!(ok && listed.contains("ci") && listed.contains("robots") && !text.contains(token), "{text}");
    let (ok, text) = roadstead(&hub, &["revoke", id]).await?;
    ensure!(ok, "{text}");
    ends(&hub, token).await?;
    let (ok, text) = roadstead(&hub, &["revoke", id]).await?;
    ensure!(!ok && text.contains("not found"), "{text}");
    // Names that look like others'.
    for arguments in [
        ["--user", "System:admin"].as_slice(),
        &["--user", "ja\u{200b}ne"],
        &["--user", "jane", "--group", "SYSTEM:masters"],
        &["--user", "jane", "--group", "de\u{202e}v"],
    ] {
        let (ok, text) = roadstead(&hub, &[&["create"], arguments].concat()).await?;
        ensure!(!ok && text.contains("not seen"), "{arguments:?}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_takes_tokens_back_and_makes_keys() -> Result<()> {
    let site = Site::new().await?;
    let hub = hub(&site).await?;
    let tokens = [hub.token(&["robot"]).await?, hub.token(&["robot"]).await?, hub.token(&["robot"]).await?];
    let [by_id, by_file, by_key] = &tokens;
    let id = claims_of(by_id)?["jti"].as_str().context("an id")?.to_owned();
    let (ok, text) = roadstead(&hub, &["revoke", "--account", "default/robot", &id]).await?;
    ensure!(ok && text.contains("default/robot revoked"), "{text}");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{by_file}\n"))?;
    let file = file.to_str().context("a path")?;
    let (ok, text) = roadstead(&hub, &["revoke", "--token-file", file]).await?;
    ensure!(ok && text.contains("default/robot revoked") && !text.contains(by_file), "{text}");
    for token in [by_id, by_file] {
        ends(&hub, token).await?;
    }
    hub.user(by_key).await?;
    let (ok, text) = roadstead(&hub, &["revoke", "--account", "default", &id]).await?;
    ensure!(!ok && text.contains("NAMESPACE/NAME"), "{text}");
    let (ok, text) = roadstead(&hub, &["rotate-key"]).await?;
    ensure!(ok && text.contains("still verify"), "{text}");
    let (ok, text) = roadstead(&hub, &["keys"]).await?;
    ensure!(ok && text.lines().count() == 3 && text.contains("signs now"), "{text}");
    hub.user(by_key).await?;
    let (ok, text) = roadstead(&hub, &["rotate-key", "--end-old"]).await?;
    ensure!(ok && text.contains("have ended"), "{text}");
    ends(&hub, by_key).await
}
