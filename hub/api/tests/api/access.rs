//! What one may do, as clients ask for it before they try; and who one is taken for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::support::{Replica, Site, client};

const PATIENCE: Duration = Duration::from_secs(20);
const MAY_I: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[tokio::test]
async fn kubectl_asks_what_it_may() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    for yes in [
        ["get", "kustomizations", "-A"].as_slice(),
        &["delete", "secrets/x"],
        &["update", "kustomizations", "--subresource=status"],
        &["create", "clusters"],
        &["get", "/version"],
    ] {
        let answer = kubectl.run(&[&["auth", "can-i"], yes].concat()).await?;
        assert_eq!(answer.trim(), "yes", "{yes:?}");
    }
    let all = kubectl.run(&["auth", "can-i", "--list", "--no-headers"]).await?;
    let first: Vec<&str> = all.lines().next().context("a rule")?.split_whitespace().collect();
    assert_eq!(first, ["*.*", "[]", "[]", "[*]"]);

    // Written down, and checked by kubectl, which first asks for definitions of further kinds.
    let question = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n\
                    spec: {resourceAttributes: {verb: get, resource: secrets}}\n";
    let create = ["create", "-f", "-", "-o", "jsonpath={.status.allowed}"];
    assert_eq!(kubectl.run_with(&create, question).await?, "true");
    let explained = kubectl.run(&["explain", "selfsubjectaccessreview.spec.resourceAttributes.verb"]).await?;
    assert!(explained.contains("deletecollection"), "{explained}");

    // As somebody who may do less, which nobody stored knows.
    let bob = "--as=bob";
    let refused = kubectl.run(&["get", "kustomizations", bob]).await.unwrap_err().to_string();
    assert!(refused.contains(r#"User "bob" cannot list resource "kustomizations""#), "{refused}");
    for no in [["get", "kustomizations"], ["impersonate", "users"]] {
        let answer = kubectl.command(&["auth", "can-i", no[0], no[1], bob]).output().await?;
        assert_eq!((answer.status.code(), answer.stdout.as_slice()), (Some(1), b"no\n".as_slice()), "{no:?}");
    }
    let path = kubectl.run(&["auth", "can-i", "get", "/openapi/v3", bob]).await?;
    assert_eq!(path.trim(), "yes");
    let some = kubectl.run(&["auth", "can-i", "--list", bob]).await?;
    assert!(
        some.contains("selfsubjectaccessreviews.authorization.k8s.io") && !some.contains("*.*"),
        "{some}"
    );
    let who: Value = serde_json::from_str(&kubectl.run(&["auth", "whoami", "-o", "json"]).await?)?;
    assert_eq!(who["status"]["userInfo"]["groups"], json!(["system:masters", "system:authenticated"]));
    let who = kubectl.run(&["auth", "whoami", bob, "--as-group=dev", "-o", "json"]).await?;
    let who: Value = serde_json::from_str(&who)?;
    let user = json!({ "username": "bob", "groups": ["dev", "system:authenticated"] });
    assert_eq!(who["status"]["userInfo"], user);
    let robot = "--as=system:serviceaccount:apps:robot";
    let who = kubectl.run(&["auth", "whoami", robot, "-o", "json"]).await?;
    ensure!(who.contains("system:serviceaccounts:apps"), "{who}");

    // The record says who it really was.
    kubectl.run(&["create", "configmap", "a", bob, "--as-group=system:masters"]).await?;
    let mut connection = site.database.connect().await?;
    let recorded: (String, String) =
        sqlx::query_as("SELECT username, impersonator FROM audit WHERE name = 'a' AND verb = 'create'")
            .fetch_one(&mut connection)
            .await?;
    assert_eq!(recorded, ("bob".to_owned(), "roadstead-admin".to_owned()));
    Ok(())
}

async fn ask(
    replica: &Replica,
    token: &str,
    method: Method,
    body: &Value,
    headers: &[(&str, &str)],
) -> Result<(StatusCode, Value)> {
    let mut request = client(replica)?.request(method, format!("{}{MAY_I}", replica.url)).bearer_auth(token);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.json(body).send().await?;
    Ok((answer.status(), answer.json().await?))
}

#[tokio::test]
async fn questions_that_are_none_and_masks_that_do_not_fit() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let admin = replica.token.clone();
    let question = |spec: Value| json!({ "kind": "SelfSubjectAccessReview", "spec": spec });
    let good = question(json!({ "resourceAttributes": { "verb": "get", "resource": "secrets" } }));
    let (code, answer) = ask(&replica, &admin, Method::POST, &good, &[]).await?;
    assert_eq!((code, &answer["status"]["allowed"]), (StatusCode::CREATED, &json!(true)));
    assert_eq!(answer["spec"], good["spec"]);
    for (spec, code) in [
        (json!({}), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({ "resourceAttributes": {}, "nonResourceAttributes": {} }), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({ "resourceAttributes": "all" }), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({ "resourceAttributes": { "verb": ["get"] } }), StatusCode::BAD_REQUEST),
        (json!({ "nonResourceAttributes": { "verb": "get", "path": 1 } }), StatusCode::BAD_REQUEST),
    ] {
        let (have, answer) = ask(&replica, &admin, Method::POST, &question(spec.clone()), &[]).await?;
        assert_eq!((have, &answer["kind"]), (code, &json!("Status")), "{spec}: {answer}");
    }
    let other = json!({ "kind": "SubjectAccessReview", "spec": good["spec"] });
    let (code, _) = ask(&replica, &admin, Method::POST, &other, &[]).await?;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    let (code, _) = ask(&replica, &admin, Method::GET, &Value::Null, &[]).await?;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);

    // Nobody gets more by asking to be another, and nothing of such a wish is left aside.
    let robot = replica.hub.identity.create_access_token("robot", &["dev".to_owned()], None).await?;
    let (code, refused) =
        ask(&replica, robot.expose(), Method::POST, &good, &[("Impersonate-User", "roadstead-admin")])
            .await?;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains(r#"User "robot" cannot impersonate resource "users""#), "{message}");
    // Not in two steps either: who may be taken for somebody has none of the rights that one has to be taken for others.
    let kubectl = &replica.kubectl;
    for (may, whom) in [("robot", "joe"), ("joe", "ada")] {
        let (role, resource) = (format!("as-{whom}"), format!("--resource-name={whom}"));
        kubectl
            .run(&["create", "clusterrole", &role, "--verb=impersonate", "--resource=users", &resource])
            .await?;
        let (role, user) = (format!("--clusterrole=as-{whom}"), format!("--user={may}"));
        kubectl.run(&["create", "clusterrolebinding", &format!("as-{whom}"), &role, &user]).await?;
    }
    let itself = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                         "spec": { "resourceAttributes": { "verb": "get", "resource": "secrets" } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let as_user = |user: &'static str| {
        let request = client(&replica).map(|client| client.post(format!("{}{path}", replica.url)));
        let (token, body) = (robot.expose().to_owned(), itself.clone());
        async move {
            let request = request?.bearer_auth(token).header("impersonate-user", user).json(&body);
            Ok::<_, anyhow::Error>(request.send().await?.status())
        }
    };
    eventually("the roles are known", PATIENCE, || async {
        ensure!(as_user("joe").await? == StatusCode::CREATED);
        Ok(())
    })
    .await?;
    assert_eq!(as_user("ada").await?, StatusCode::FORBIDDEN);
    // A name need not be ASCII: it has to be allowed.
    assert_eq!(as_user("oidc:Zoë").await?, StatusCode::FORBIDDEN);
    for headers in [
        [("Impersonate-Group", "system:masters")].as_slice(),
        &[("Impersonate-User", "")],
        &[("Impersonate-Uid", "1")],
        &[("Impersonate-Extra-Scopes", "x")],
        &[("Impersonate-User", "bob"), ("Impersonate-User", "joe")],
        &[("Impersonate-User", "bob"), ("Impersonate-Extra-", "x")],
        &[("Impersonate-User", "bob"), ("Impersonate-Colour", "x")],
    ] {
        let (code, answer) = ask(&replica, &admin, Method::POST, &good, headers).await?;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{headers:?}: {answer}");
    }
    let (_, answer) = ask(&replica, robot.expose(), Method::POST, &good, &[]).await?;
    assert_eq!(answer["status"]["allowed"], false);
    Ok(())
}
