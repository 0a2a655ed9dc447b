//! Tokens that are made by somebody who asked to be taken for somebody else: they give no more than that one may, and the log says who it was.

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::audit::{CONFIGS, ask, entries};
use crate::audit_hides::user;
use crate::lasting::PATIENCE;
use crate::support::{Replica, Site};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const TOKENS: &str = "/fleet/v1/tokens";

/// Ann may be taken for bob, who makes tokens of the account `robot` and of carol; neither may do anything else.
async fn ann(replica: &Replica) -> Result<String> {
    for name in ["robot", "other"] {
        let object = json!({ "metadata": { "name": name } });
        let (code, ..) = ask(replica, (Method::POST, ACCOUNTS), &replica.token, &[], &object).await?;
        ensure!(code == StatusCode::CREATED, "{code}");
    }
    let impersonate = |name: &str| json!({ "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": [name] });
    let robots = json!({ "verbs": ["create"], "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["robot"] });
    let tokens = json!({ "verbs": ["post"], "nonResourceURLs": [TOKENS] });
    user(replica, "bob", &json!([impersonate("carol"), robots, tokens])).await?;
    user(replica, "ann", &json!([impersonate("bob")])).await
}

#[tokio::test]
async fn a_token_that_is_made_by_impersonation_is_no_more_than_its_maker_may() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let ann = ann(&replica).await?;
    let as_bob = [("impersonate-user", "bob")];
    let make = async |path: &str, headers: &[(&str, &str)], body: Value| {
        ask(&replica, (Method::POST, path), &ann, headers, &body).await
    };
    let (robot, other) = (format!("{ACCOUNTS}/robot/token"), format!("{ACCOUNTS}/other/token"));
    let made = eventually("the rights are known", PATIENCE, || async {
        let (code, id, made) = make(&robot, &as_bob, json!({ "spec": {} })).await?;
        ensure!(code == StatusCode::CREATED, "{made}");
        Ok((id, made))
    })
    .await?;
    // The log has who it was and as whom, of the token by its name.
    let told = entries(&replica, &format!("request={}&kind=ServiceAccount/token", made.0)).await?;
    let [told] = &told[..] else { anyhow::bail!("{told:?}") };
    for (field, want) in [
        ("user", "bob"),
        ("impersonator", "ann"),
        ("verb", "create"),
        ("namespace", "default"),
        ("name", "robot"),
    ] {
        ensure!(told[field] == want, "{field}: {told}");
    }
    let token = made.1["status"]["token"].as_str().context("a token")?;
    let jti = crate::accounts::claims_of(token)?["jti"].as_str().context("a jti")?.to_owned();
    ensure!(told["detail"].as_str().is_some_and(|detail| detail.contains(&jti)), "{told}");

    // By herself she may make none, and as bob none that he may not.
    for (path, headers, body) in [
        (robot.as_str(), &[][..], json!({ "spec": {} })),
        (other.as_str(), &as_bob[..], json!({ "spec": {} })),
        (TOKENS, &[][..], json!({ "username": "carol" })),
        (TOKENS, &as_bob[..], json!({})),
        (TOKENS, &as_bob[..], json!({ "username": "bob" })),
        (TOKENS, &as_bob[..], json!({ "username": "dave" })),
        (TOKENS, &as_bob[..], json!({ "username": "carol", "groups": ["system:masters"] })),
    ] {
        let (code, _, answer) = make(path, headers, body.clone()).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{path} {headers:?} {body}: {code} {answer}");
    }
    let refused = entries(&replica, "outcome=refused&user=bob").await?;
    let of_ann = refused.iter().filter(|entry| entry["impersonator"] == "ann");
    ensure!(of_ann.filter_map(|entry| entry["times"].as_i64()).sum::<i64>() >= 5, "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn impersonation_makes_no_chain_by_itself_nor_by_tokens() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let ann = ann(&replica).await?;
    let as_bob = [("impersonate-user", "bob")];
    let (id, made) = eventually("the rights are known", PATIENCE, || async {
        let order = json!({ "username": "carol" });
        let (code, id, made) = ask(&replica, (Method::POST, TOKENS), &ann, &as_bob, &order).await?;
        ensure!(code == StatusCode::CREATED, "{made}");
        Ok((id, made))
    })
    .await?;
    let told = entries(&replica, &format!("request={id}&kind=AccessToken")).await?;
    ensure!(told.len() == 1 && told[0]["user"] == "bob" && told[0]["impersonator"] == "ann", "{told:?}");
    ensure!(told[0]["detail"].as_str().is_some_and(|detail| detail.contains("\"carol\"")), "{told:?}");
    // Carol's token is carol's and nothing of those whom it came by.
    let carol = made["token"].as_str().context("a token")?;
    let asked: [(&str, &[(&str, &str)]); 6] = [
        (carol, &[("impersonate-user", "bob")]),
        (carol, &[("impersonate-user", "ann")]),
        // What bob may be taken for, ann may not at once; and two names are none.
        (ann.as_str(), &[("impersonate-user", "carol")]),
        (ann.as_str(), &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")]),
        (ann.as_str(), &[("impersonate-user", "bob"), ("impersonate-uid", "1")]),
        (ann.as_str(), &[("impersonate-user", "bob"), ("impersonate-extra-reason", "x")]),
    ];
    for (token, headers) in asked {
        let (code, _, answer) = ask(&replica, (Method::GET, CONFIGS), token, headers, &Value::Null).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{headers:?}: {code} {answer}");
    }
    let twice = [("impersonate-user", "bob"), ("impersonate-user", "carol")];
    let (code, _, answer) = ask(&replica, (Method::GET, CONFIGS), &ann, &twice, &Value::Null).await?;
    ensure!(code.is_client_error(), "{code} {answer}");
    // When bob may not make tokens any longer, neither may ann, and what was made stands for carol alone.
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/bob";
    let (code, ..) = ask(&replica, (Method::DELETE, path), &replica.token, &[], &Value::Null).await?;
    ensure!(code == StatusCode::OK, "{code}");
    eventually("the right is gone", PATIENCE, || async {
        let order = json!({ "username": "carol" });
        let (code, ..) = ask(&replica, (Method::POST, TOKENS), &ann, &as_bob, &order).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{code}");
        Ok(())
    })
    .await
}
