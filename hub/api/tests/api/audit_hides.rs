//! What nobody hides from the audit log: as what they were taken for somebody else, and what they changed.

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::audit::{CONFIGS, ask, entries, roadstead};
use crate::lasting::PATIENCE;
use crate::support::{Replica, Site};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A user's token, with a ClusterRole of these rules.
pub(crate) async fn user(replica: &Replica, name: &str, rules: &Value) -> Result<String> {
    let group = "rbac.authorization.k8s.io";
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    let binding = json!({ "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }] });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{RBAC}/{kind}");
        let (code, _, answer) = ask(replica, (Method::POST, &path), &replica.token, &[], &object).await?;
        ensure!(code == StatusCode::CREATED, "{answer}");
    }
    Ok(replica.hub.identity.create_access_token(name, &[], None).await?.expose().to_owned())
}

/// Somebody who may be taken for everybody.
async fn impersonator(replica: &Replica) -> Result<String> {
    let resources = ["users", "groups", "uids", "userextras/reason"];
    let groups = ["", "authentication.k8s.io"];
    let rules = json!([{ "verbs": ["impersonate"], "apiGroups": groups, "resources": resources }]);
    let token = user(replica, "ada", &rules).await?;
    let as_master = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    eventually("the binding is known", PATIENCE, || async {
        let (code, ..) = ask(replica, (Method::GET, CONFIGS), &token, &as_master, &Value::Null).await?;
        ensure!(code == StatusCode::OK, "{code}");
        Ok(())
    })
    .await?;
    Ok(token)
}

#[tokio::test]
async fn an_entry_says_as_what_somebody_was_taken_for_another() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let ada = impersonator(&replica).await?;
    let config = json!({ "metadata": { "name": "c" } });
    ask(&replica, (Method::POST, CONFIGS), &replica.token, &[], &config).await?;
    let as_master = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    let path = format!("{CONFIGS}/c");
    let (code, ..) = ask(&replica, (Method::DELETE, &path), &ada, &as_master, &Value::Null).await?;
    ensure!(code == StatusCode::OK, "{code}");
    let found = entries(&replica, "kind=ConfigMap&verb=delete&administrator=true").await?;
    ensure!(found.len() == 1, "{found:?}");
    for (field, wanted) in [
        ("user", json!("jane")),
        ("impersonator", json!("ada")),
        ("administrator", json!(true)),
        ("impersonated", json!({ "groups": ["system:masters"] })),
        ("signed", json!(true)),
    ] {
        ensure!(found[0][field] == wanted, "{field}: {}", found[0]);
    }
    // The use of a master's rights, as that of an administrator's credential: the first time, and how often since.
    let used = entries(&replica, "verb=use&user=jane").await?;
    ensure!(
        !used.is_empty() && used[0]["impersonator"] == "ada" && used[0]["administrator"] == true,
        "{used:?}"
    );
    ensure!(
        used[0]["impersonated"]["groups"] == json!(["system:masters"]) && used[0]["times"] == 1,
        "{used:?}"
    );
    ensure!(used.len() == 2 && used[1]["times"].as_i64().is_some_and(|times| times >= 1), "{used:?}");

    // Who was refused something is told apart by that, too.
    for groups in [["dev", "ops"], ["dev", "web"]] {
        let headers = [
            ("impersonate-user", "bob"),
            ("impersonate-group", groups[0]),
            ("impersonate-group", groups[1]),
            ("impersonate-uid", "u-1"),
            ("impersonate-extra-reason", "a test"),
        ];
        let (code, ..) = ask(&replica, (Method::POST, CONFIGS), &ada, &headers, &config).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{code}");
    }
    let refused = entries(&replica, "user=bob&outcome=refused&verb=create").await?;
    let told: Vec<_> = refused.iter().map(|entry| &entry["impersonated"]).collect();
    let wanted =
        |group: &str| json!({ "uid": "u-1", "groups": ["dev", group], "extra": { "reason": ["a test"] } });
    ensure!(
        told.len() == 2 && told.contains(&&wanted("ops")) && told.contains(&&wanted("web")),
        "{refused:?}"
    );
    ensure!(
        refused.iter().all(|entry| entry["administrator"] == false && entry["signed"] == true),
        "{refused:?}"
    );
    let (ok, text) = roadstead(&replica, &["--user", "bob", "-o", "table"]).await?;
    ensure!(ok && text.contains("bob in dev, ops (impersonated by ada)"), "{text}");
    Ok(())
}

/// Nobody hides the group that matters among many others, nor fills the log with them.
#[tokio::test]
async fn what_is_told_of_an_impersonation_is_bounded() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let ada = impersonator(&replica).await?;
    let many: Vec<String> = (0..80).map(|number| format!("{number:03}-{}", "g".repeat(60))).collect();
    let mut headers = vec![("impersonate-user", "jane")];
    headers.extend(many.iter().map(|group| ("impersonate-group", group.as_str())));
    headers.push(("impersonate-group", "system:nodes"));
    let (code, ..) = ask(&replica, (Method::GET, CONFIGS), &ada, &headers, &Value::Null).await?;
    ensure!(code == StatusCode::FORBIDDEN, "{code}");
    let refused = entries(&replica, "user=jane&outcome=refused").await?;
    let told = &refused.first().context("an entry")?["impersonated"];
    let groups = told["groups"].as_array().context("groups")?;
    ensure!(groups[0] == "system:nodes" && told.to_string().len() <= 3 << 10, "{told}");
    ensure!(told["leftOut"].as_u64() == u64::try_from(81 - groups.len()).ok(), "{told}");
    Ok(())
}

/// Who may write annotations hides by them no change of what acts, nor by other changes.
#[tokio::test]
async fn what_acts_is_told_before_what_describes_it_and_what_is_left_out_is_named() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let token = replica.token.as_str();
    let object = json!({ "metadata": { "name": "c" }, "data": { "k": "old" } });
    ask(&replica, (Method::POST, CONFIGS), token, &[], &object).await?;
    let path = format!("{CONFIGS}/c");
    let patch = |fill: char, word: &str| {
        let padding: serde_json::Map<String, Value> =
            (0..20).map(|n| (format!("a{n}"), fill.to_string().repeat(1_000).into())).collect();
        json!({ "metadata": { "annotations": padding }, "data": { "k": word } })
    };
    ask(&replica, (Method::PATCH, &path), token, &[], &patch('x', "new")).await?;
    let found = entries(&replica, "kind=ConfigMap&verb=patch").await?;
    let changes = &found.first().context("an entry")?["changes"];
    ensure!(changes[0] == json!({ "path": ".data.k", "from": "old", "to": "new" }), "{changes}");

    // Beyond what one user may write into the log it still says of what.
    for number in 0..240 {
        let fill = if number % 2 == 0 { 'y' } else { 'z' };
        let patch = patch(fill, &number.to_string());
        let (code, _, answer) = ask(&replica, (Method::PATCH, &path), token, &[], &patch).await?;
        ensure!(code == StatusCode::OK, "{answer}");
    }
    let found = entries(&replica, "kind=ConfigMap&verb=patch&order=newest&limit=1000").await?;
    let notes: Vec<&str> = found.iter().filter_map(|entry| entry["changes"][0]["note"].as_str()).collect();
    ensure!(
        !notes.is_empty() && notes.iter().all(|note| note.contains("1 of .data, 20 of .metadata")),
        "{notes:?}"
    );
    Ok(())
}

/// The right to take one token back is one on its own path, as `kubectl auth can-i` says.
#[tokio::test]
async fn a_token_is_taken_back_by_whoever_may_delete_its_path() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let rules = |paths: &[&str]| json!([{ "verbs": ["delete"], "nonResourceURLs": paths }]);
    let all = user(&replica, "all", &rules(&["/fleet/v1/tokens/*"])).await?;
    let list = user(&replica, "list", &rules(&["/fleet/v1/tokens"])).await?;
    let made = json!({ "username": "eve" });
    let (_, _, made) = ask(&replica, (Method::POST, "/fleet/v1/tokens"), &replica.token, &[], &made).await?;
    let path = format!("/fleet/v1/tokens/{}", made["id"].as_str().context("an id")?);
    let kubectl = |user: &str| {
        let who = format!("--as={user}");
        replica.kubectl.command(&["auth", "can-i", "delete", &path, &who])
    };
    eventually("the binding is known", PATIENCE, || async {
        ensure!(kubectl("all").output().await?.status.success());
        Ok(())
    })
    .await?;
    ensure!(!kubectl("list").output().await?.status.success());
    let (code, _, answer) = ask(&replica, (Method::DELETE, &path), &list, &[], &Value::Null).await?;
    ensure!(code == StatusCode::FORBIDDEN && answer.to_string().contains(&path), "{answer}");
    let (code, _, answer) = ask(&replica, (Method::DELETE, &path), &all, &[], &Value::Null).await?;
    ensure!(code == StatusCode::OK, "{answer}");
    Ok(())
}

/// Nobody is taken for a name that looks like another one, and is another in the log.
#[tokio::test]
async fn whom_somebody_is_taken_for_has_a_name_that_is_seen() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    for (name, value) in [
        ("impersonate-user", "ja\u{200b}ne"),
        ("impersonate-user", "jane\u{202e}x"),
        ("impersonate-group", "system:\u{feff}masters"),
    ] {
        let headers = [("impersonate-user", "bob"), (name, value)];
        let headers = if name == "impersonate-user" { &headers[1..] } else { &headers[..] };
        let (code, _, answer) =
            ask(&replica, (Method::GET, CONFIGS), &replica.token, headers, &Value::Null).await?;
        ensure!(code == StatusCode::BAD_REQUEST && answer.to_string().contains(name), "{name}: {answer}");
    }
    Ok(())
}
