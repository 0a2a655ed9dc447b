//! Stored roles and bindings decide: what users may do, what they are told of it, what they may grant, and when it ends.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Method, StatusCode};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::support::{Replica, Site, client};

const PATIENCE: Duration = Duration::from_secs(10);
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Two namespaces, a reader of ConfigMaps in `apps` (by a Role), and someone who may administer `apps`.
async fn tenants(replica: &Replica) -> Result<()> {
    let kubectl = &replica.kubectl;
    for namespace in ["apps", "other"] {
        kubectl.run(&["create", "namespace", namespace]).await?;
        kubectl.run(&["create", "configmap", "settings", "-n", namespace]).await?;
    }
    let role = ["create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps", "-n", "apps"];
    kubectl.run(&role).await?;
    kubectl.run(&["create", "rolebinding", "jane", "--role=reader", "--user=jane", "-n", "apps"]).await?;
    let admin = ["create", "rolebinding", "ada", "--clusterrole=admin", "--group=apps-admins", "-n", "apps"];
    kubectl.run(&admin).await?;
    until(replica, &["get", "configmaps", "-n", "apps", "--as=jane"]).await?;
    until(replica, &["get", "configmaps", "-n", "apps", "--as=ada", "--as-group=apps-admins"]).await
}

/// Who administers `apps`, there.
const ADA: [&str; 4] = ["--as=ada", "--as-group=apps-admins", "-n", "apps"];

/// Waits until a right is known.
async fn until(replica: &Replica, args: &[&str]) -> Result<()> {
    eventually("it is allowed", PATIENCE, || async { replica.kubectl.run(args).await.map(drop) }).await
}

async fn refused(replica: &Replica, args: &[&str]) -> Result<String> {
    match replica.kubectl.run(args).await {
        Ok(answer) => bail!("{args:?} is allowed: {answer}"),
        Err(error) => Ok(error.to_string()),
    }
}

async fn send(
    replica: &Replica,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(StatusCode, Value)> {
    let mut request =
        client(replica)?.request(method, format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.json(body).send().await?;
    Ok((answer.status(), answer.json().await?))
}

#[tokio::test]
async fn roles_and_bindings_decide_each_request() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let kubectl = &replica.kubectl;
    let jane = "--as=jane";
    kubectl.run(&["get", "configmap", "settings", "-n", "apps", jane]).await?;
    for (args, want) in [
        (
            ["get", "configmaps", "-n", "other"].as_slice(),
            r#"User "jane" cannot list resource "configmaps" in API group "" in the namespace "other""#,
        ),
        (
            &["get", "configmaps", "-A"],
            r#"cannot list resource "configmaps" in API group "" at the cluster scope"#,
        ),
        (
            &["get", "kustomizations", "-n", "apps"],
            r#"User "jane" cannot list resource "kustomizations" in API group "kustomize.toolkit.fluxcd.io" in the namespace "apps""#,
        ),
        (
            &["delete", "configmap", "settings", "-n", "apps"],
            r#"configmaps "settings" is forbidden: User "jane" cannot delete"#,
        ),
        (
            &["get", "namespace", "apps"],
            r#"cannot get resource "namespaces" in API group "" in the namespace "apps""#,
        ),
        (&["get", "--raw", "/fleet/v1/health"], r#"cannot list resource "kustomizations""#),
        (&["get", "--raw", "/fleet/v1/tokens"], r#"User "jane" cannot get path "/fleet/v1/tokens""#),
        (&["create", "token", "default", "-n", "apps"], r#"cannot create resource "serviceaccounts/token""#),
    ] {
        let error = refused(&replica, &[args, &[jane]].concat()).await?;
        assert!(error.contains(want), "{args:?}: {error}");
    }
    for (verb, resource, want) in
        [("list", "configmaps", "yes"), ("delete", "configmaps", "no"), ("list", "secrets", "no")]
    {
        let answer = kubectl.command(&["auth", "can-i", verb, resource, "-n", "apps", jane]).output().await?;
        assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), want, "{verb} {resource}");
    }
    let list = kubectl.run(&["auth", "can-i", "--list", "-n", "apps", jane]).await?;
    assert!(
        list.lines().any(|line| line.starts_with("configmaps ") && line.contains("[get list watch]")),
        "{list}"
    );
    assert!(list.contains("selfsubjectreviews") && !list.contains("*.*"), "{list}");
    // Whoever administers the namespace may do what is in it, and nothing beyond it.
    let ada = ["--as=ada", "--as-group=apps-admins"];
    let run = |args: &'static [&'static str]| {
        let kubectl = kubectl.clone();
        async move { kubectl.run(&[args, &ada].concat()).await }
    };
    run(&["create", "configmap", "b", "-n", "apps"]).await?;
    run(&["get", "namespace", "apps"]).await?;
    run(&["get", "secrets,kustomizations,gitrepositories,roles", "-n", "apps"]).await?;
    run(&["delete", "configmaps", "--all", "-n", "apps"]).await?;
    for args in [
        &["get", "configmaps", "-n", "other"][..],
        &["get", "namespaces"],
        &["get", "clusters"],
        &["get", "clusterroles"],
        &["delete", "namespace", "apps"],
    ] {
        refused(&replica, &[args, &ada].concat()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_right_to_one_object_is_a_right_to_watch_that_one() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let kubectl = &replica.kubectl;
    let one = [
        "create",
        "role",
        "one",
        "--verb=get,list,watch",
        "--resource=secrets",
        "--resource-name=x",
        "-n",
        "apps",
    ];
    kubectl.run(&one).await?;
    kubectl.run(&["create", "rolebinding", "joe", "--role=one", "--user=joe", "-n", "apps"]).await?;
    until(&replica, &["get", "secrets", "--field-selector=metadata.name=x", "-n", "apps", "--as=joe"])
        .await?;
    for args in [
        &["get", "secrets", "-n", "apps", "--as=joe"][..],
        &["get", "secrets", "--field-selector=metadata.name=y", "-n", "apps", "--as=joe"],
        &["get", "secret", "y", "-n", "apps", "--as=joe"],
    ] {
        refused(&replica, args).await?;
    }
    let gone = refused(&replica, &["get", "secret", "x", "-n", "apps", "--as=joe"]).await?;
    assert!(gone.contains("not found"), "{gone}");
    Ok(())
}

#[tokio::test]
async fn nobody_grants_more_than_they_hold() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let run = async |args: &[&str]| replica.kubectl.run(&[args, &ADA].concat()).await;
    // A role and its binding at once: the binding is compared with the role that was stored a moment before.
    run(&["create", "role", "writer", "--verb=get,update", "--resource=configmaps"]).await?;
    run(&["create", "rolebinding", "writers", "--role=writer", "--user=jane"]).await?;
    run(&["create", "rolebinding", "viewers", "--clusterrole=view", "--user=jane"]).await?;
    let wide = ["create", "role", "wide", "--verb=get,impersonate", "--resource=users"];
    for args in [
        &wide[..],
        &["create", "role", "all", "--verb=*", "--resource=*"],
        &["create", "rolebinding", "all", "--clusterrole=cluster-admin", "--user=ada"],
        &[
            "patch",
            "role",
            "writer",
            "--type=json",
            "-p",
            r#"[{"op":"add","path":"/rules/-","value":{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}}]"#,
        ],
    ] {
        let error = run(args).await.err().context("it is refused")?.to_string();
        assert!(
            error.contains(r#"user "ada" (groups=["apps-admins" "system:authenticated"]) is attempting to grant RBAC permissions not currently held"#),
            "{args:?}: {error}"
        );
    }
    let applied = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: writer, namespace: apps}\n\
                   rules: [{apiGroups: [''], resources: [nodes], verbs: [get]}]\n";
    for how in [["--server-side=false"].as_slice(), &["--server-side", "--force-conflicts"]] {
        let args = [&["apply", "-f", "-"], how, &ADA].concat();
        let error =
            replica.kubectl.run_with(&args, applied).await.err().context("it is refused")?.to_string();
        assert!(error.contains(r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}"#), "{error}");
    }
    let error = run(&["create", "rolebinding", "none", "--role=none", "--user=ada"])
        .await
        .err()
        .context("no role")?;
    assert!(error.to_string().contains(r#"role.rbac.authorization.k8s.io "none" not found"#), "{error}");
    let rules =
        replica.kubectl.run(&["get", "role", "writer", "-n", "apps", "-o", "jsonpath={.rules}"]).await?;
    assert!(!rules.contains("nodes") && !rules.contains('*'), "{rules}");
    // The right to bind a role stands for holding what it grants.
    replica
        .kubectl
        .run(&[
            "create",
            "role",
            "binder",
            "--verb=bind",
            "--resource=clusterroles.rbac.authorization.k8s.io",
            "--resource-name=cluster-admin",
            "-n",
            "apps",
        ])
        .await?;
    replica
        .kubectl
        .run(&["create", "rolebinding", "binder", "--role=binder", "--user=ada", "-n", "apps"])
        .await?;
    run(&["create", "rolebinding", "all", "--clusterrole=cluster-admin", "--user=ada"]).await?;
    Ok(())
}

/// By `spec.delegation` what is built acts beyond its namespace.
#[tokio::test]
async fn nobody_delegates_by_a_kustomization_without_the_right_to() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let kubectl = &replica.kubectl;
    let manifest = |name: &str, more: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: apps}}\nspec: \
             {{interval: 1h, prune: true, path: ./app, sourceRef: {{kind: GitRepository, name: app}}{more}}}\n"
        )
    };
    let delegation = ", delegation: {namespaces: {x: other}, secrets: ['*']}";
    let says = r#"User "ada" cannot delegate resource "kustomizations" in API group "kustomize.toolkit.fluxcd.io" in the namespace "apps""#;
    for how in [["--server-side=false"].as_slice(), &["--server-side", "--force-conflicts"]] {
        let apply = [&["apply", "-f", "-"], how].concat();
        let as_ada = [&apply[..], &ADA].concat();
        let refuse = async |manifest: String| {
            let error =
                kubectl.run_with(&as_ada, &manifest).await.err().context("it is refused")?.to_string();
            ensure!(error.contains(says), "{how:?}: {error}");
            Ok::<(), anyhow::Error>(())
        };
        kubectl.run_with(&as_ada, &manifest("own", "")).await?;
        // One that is new, one of her own, and one that somebody else gave it to.
        refuse(manifest("new", delegation)).await?;
        refuse(manifest("own", delegation)).await?;
        kubectl.run_with(&apply, &manifest("root", delegation)).await?;
        refuse(manifest("root", ", delegation: {namespaces: {x: other}, secrets: ['*']}, suspend: true"))
            .await?;
        let annotate = ["annotate", "--overwrite", "kustomization/root", "fleet.roadstead.dev/drift=Report"];
        let error = refused(&replica, &[&annotate[..], &ADA].concat()).await?;
        ensure!(error.contains(says), "{error}");
    }
    // What says nothing of what is wanted is not about it.
    let annotate = ["annotate", "kustomization/root", "reconcile.fluxcd.io/requestedAt=now"];
    kubectl.run(&[&annotate[..], &ADA].concat()).await?;
    let role = [
        "create",
        "role",
        "delegates",
        "--verb=delegate",
        "--resource=kustomizations.kustomize.toolkit.fluxcd.io",
    ];
    kubectl.run(&[&role[..], &["-n", "apps"]].concat()).await?;
    let binding = ["create", "rolebinding", "delegates", "--role=delegates", "--user=ada", "-n", "apps"];
    kubectl.run(&binding).await?;
    let as_ada = [&["apply", "--server-side", "-f", "-"], &ADA[..]].concat();
    eventually("she may", PATIENCE, || async {
        kubectl.run_with(&as_ada, &manifest("new", ", delegation: {secrets: ['*']}")).await.map(drop)
    })
    .await?;
    // Of what is beyond her own rights she delegates nothing.
    for (beyond, why) in [
        (
            "{namespaces: {x: other}}",
            r#"cannot create resource "secrets" in API group "" in the namespace "other""#,
        ),
        ("{clusters: [prod]}", r#"cannot use resource "clusters""#),
        ("{clusters: ['*']}", r#"cannot use resource "clusters""#),
    ] {
        let delegation = format!(", delegation: {beyond}");
        let error = kubectl.run_with(&as_ada, &manifest("beyond", &delegation)).await.err();
        let error = error.context("it is refused")?.to_string();
        ensure!(error.contains(why) && error.contains("spec.delegation."), "{beyond}: {error}");
    }
    let binding = ["create", "rolebinding", "ada", "--clusterrole=edit", "--user=ada", "-n", "other"];
    kubectl.run(&binding).await?;
    eventually("she may where she may write", PATIENCE, || async {
        kubectl.run_with(&as_ada, &manifest("beyond", delegation)).await.map(drop)
    })
    .await
}

/// A Cluster is used by those who may, whatever else they may do in their namespace.
#[tokio::test]
async fn nobody_deploys_to_a_cluster_without_the_right_to_use_it() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let kubectl = &replica.kubectl;
    for name in ["staging", "prod"] {
        let cluster =
            format!("apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\n");
        kubectl.apply(&cluster).await?;
    }
    // `kubectl create clusterrole` takes this verb for PodSecurityPolicies only.
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: staging}\nrules:\n\
                - {apiGroups: [fleet.roadstead.dev], resources: [clusters], resourceNames: [staging], verbs: [use]}\n";
    kubectl.apply(role).await?;
    kubectl.run(&["create", "clusterrolebinding", "staging", "--clusterrole=staging", "--user=ada"]).await?;
    let can_i = ["auth", "can-i", "use", "clusters.fleet.roadstead.dev/staging", "--as=ada"];
    until(&replica, &can_i).await?;

    let to = |name: &str, target: &str, path: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: apps}}\nspec: \
             {{interval: 1h, prune: true, path: {path}, sourceRef: {{kind: GitRepository, name: app}}{target}}}\n"
        )
    };
    let (staging, prod) = (", clusterRef: {name: staging}", ", clusterRef: {name: prod}");
    let config = ", kubeConfig: {configMapRef: {name: target}}";
    let secret = ", kubeConfig: {secretRef: {name: target-kubeconfig}}";
    let cannot = r#"User "ada" cannot use resource "clusters" in API group "fleet.roadstead.dev" at the cluster scope"#;
    let named = format!(r#"clusters.fleet.roadstead.dev "prod" is forbidden: {cannot}"#);
    for how in [["--server-side=false"].as_slice(), &["--server-side", "--force-conflicts"]] {
        let apply = [&["apply", "-f", "-"], how].concat();
        let as_ada = [&apply[..], &ADA].concat();
        let refuse = async |manifest: String, why: &str| {
            let error =
                kubectl.run_with(&as_ada, &manifest).await.err().context("it is refused")?.to_string();
            ensure!(error.contains(why), "{how:?}: {error}");
            Ok::<(), anyhow::Error>(())
        };
        kubectl.run_with(&as_ada, &to("own", staging, "./one")).await?;
        kubectl.run_with(&as_ada, &to("by-secret", secret, "./one")).await?;
        refuse(to("new", prod, "./one"), &named).await?;
        refuse(to("own", prod, "./one"), &named).await?;
        refuse(to("new", config, "./one"), cannot).await?;
        // What somebody else deploys there is not hers to change, but to stop.
        kubectl.run_with(&apply, &to("theirs", prod, "./one")).await?;
        refuse(to("theirs", prod, "./other"), &named).await?;
        kubectl.run_with(&as_ada, &to("theirs", &format!("{prod}, suspend: true"), "./one")).await?;
        kubectl.run_with(&as_ada, &to("theirs", prod, "./one")).await?;
    }
    let patch =
        ["patch", "kustomization", "own", "--type=merge", "-p", r#"{"spec":{"clusterRef":{"name":"prod"}}}"#];
    let error = refused(&replica, &[&patch[..], &ADA].concat()).await?;
    ensure!(error.contains(&named), "{error}");
    // The namespace's default is not a right.
    let default = ["annotate", "namespace", "apps", "fleet.roadstead.dev/default-cluster=prod"];
    kubectl.run(&default).await?;
    for how in ["--server-side=false", "--server-side"] {
        let as_ada = [&["apply", "-f", "-", how], &ADA[..]].concat();
        let error =
            kubectl.run_with(&as_ada, &to("default", "", "./one")).await.err().context("it is refused")?;
        ensure!(error.to_string().contains(&named), "{how}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn who_may_be_taken_for_whom() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    for (name, args) in [
        ("users", &["--verb=impersonate", "--resource=users", "--resource-name=jane"][..]),
        ("groups", &["--verb=impersonate", "--resource=groups", "--resource-name=devs"]),
    ] {
        kubectl.run(&[&["create", "clusterrole", name], args].concat()).await?;
        let role = format!("--clusterrole={name}");
        kubectl.run(&["create", "clusterrolebinding", name, &role, "--user=helper"]).await?;
    }
    let rule = |resource: &str, names: Value| {
        json!({ "apiGroups": ["authentication.k8s.io"], "resources": [resource], "verbs": ["impersonate"],
            "resourceNames": names })
    };
    let rules = json!([rule("userextras/scopes", json!(["view"])), rule("uids", json!(["7"]))]);
    let more = json!({ "metadata": { "name": "more" }, "rules": rules });
    send(&replica, Method::POST, &format!("{RBAC}/clusterroles"), &[], &more).await?;
    kubectl.run(&["create", "clusterrolebinding", "more", "--clusterrole=more", "--user=helper"]).await?;
    let token = replica.hub.identity.create_access_token("helper", &[], None).await?;
    let whoami = |headers: Vec<(&'static str, &'static str)>| {
        let (replica, token) = (&replica, token.expose().to_owned());
        async move {
            let url = format!("{}/apis/authentication.k8s.io/v1/selfsubjectreviews", replica.url);
            let mut request = client(replica)?.post(url).bearer_auth(token);
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let answer = request.json(&json!({})).send().await?;
            Ok::<_, anyhow::Error>((answer.status(), answer.json::<Value>().await?))
        }
    };
    let all = vec![
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Scopes", "view"),
    ];
    eventually("all of it is allowed", PATIENCE, || async {
        let (code, answer) = whoami(all.clone()).await?;
        ensure!(code == StatusCode::CREATED, "{answer}");
        let want = json!({ "username": "jane", "uid": "7", "groups": ["devs", "system:authenticated"],
            "extra": { "scopes": ["view"] } });
        ensure!(answer["status"]["userInfo"] == want, "{answer}");
        Ok(())
    })
    .await?;
    for (headers, want) in [
        (
            vec![("Impersonate-User", "joe")],
            r#"users "joe" is forbidden: User "helper" cannot impersonate resource "users""#,
        ),
        (
            vec![("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")],
            r#"groups "system:masters" is forbidden"#,
        ),
        (
            vec![("Impersonate-User", "system:serviceaccount:apps:robot")],
            r#"cannot impersonate resource "serviceaccounts" in API group "" in the namespace "apps""#,
        ),
        (
            vec![("Impersonate-User", "jane"), ("Impersonate-Extra-Scopes", "edit")],
            r#"cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io""#,
        ),
    ] {
        let (code, answer) = whoami(headers.clone()).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{headers:?}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(want)), "{answer}");
    }
    // Jane is not the helper: her rights count, not those of who is taken for her.
    let (code, _) = whoami(vec![("Impersonate-User", "jane"), ("Impersonate-Uid", "")]).await?;
    assert_eq!(code, StatusCode::CREATED);
    Ok(())
}

#[tokio::test]
async fn reviews_tell_what_others_may_do() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let asked = json!({ "verb": "list", "resource": "configmaps", "namespace": "apps" });
    let review = |kind: &str, spec: Value| json!({ "kind": kind, "spec": spec });
    let local = format!("{REVIEWS}/namespaces/apps/localsubjectaccessreviews");
    let spec = json!({ "user": "jane", "resourceAttributes": asked });
    for (path, kind) in [
        (format!("{REVIEWS}/subjectaccessreviews"), "SubjectAccessReview"),
        (local.clone(), "LocalSubjectAccessReview"),
    ] {
        let (code, answer) = send(&replica, Method::POST, &path, &[], &review(kind, spec.clone())).await?;
        assert_eq!((code, &answer["status"]["allowed"]), (StatusCode::CREATED, &json!(true)), "{answer}");
        let reason = r#"RBAC: allowed by RoleBinding "jane/apps" of Role "reader" to User "jane""#;
        assert_eq!(answer["status"]["reason"], reason);
        // About others only those may ask who may ask so.
        let jane = [("Impersonate-User", "jane")];
        let (code, answer) = send(&replica, Method::POST, &path, &jane, &review(kind, spec.clone())).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{answer}");
    }
    let path = format!("{REVIEWS}/subjectaccessreviews");
    for spec in [
        json!({ "resourceAttributes": asked }),
        json!({ "user": "jane" }),
        json!({ "user": 1, "resourceAttributes": asked }),
    ] {
        let (code, answer) =
            send(&replica, Method::POST, &path, &[], &review("SubjectAccessReview", spec)).await?;
        assert!(code.is_client_error(), "{answer}");
    }
    for spec in [
        json!({ "user": "jane", "resourceAttributes": { "verb": "list", "resource": "configmaps", "namespace": "other" } }),
        json!({ "user": "jane", "nonResourceAttributes": { "verb": "get", "path": "/" } }),
    ] {
        let (code, answer) =
            send(&replica, Method::POST, &local, &[], &review("LocalSubjectAccessReview", spec)).await?;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn a_right_that_is_taken_away_ends_running_watches() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    tenants(&replica).await?;
    let viewer = ["create", "clusterrolebinding", "viewer", "--clusterrole=view", "--user=viewer"];
    replica.kubectl.run(&viewer).await?;
    until(&replica, &["get", "kustomizations", "-A", "--as=viewer"]).await?;
    for (user, path, kind, binding) in [
        ("jane", "/api/v1/namespaces/apps/configmaps?watch=true", "rolebinding", "jane"),
        ("viewer", "/fleet/v1/changes", "clusterrolebinding", "viewer"),
    ] {
        let request = client(&replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
        let mut watch = request.header("Impersonate-User", user).send().await?.error_for_status()?;
        // It runs: whoever may watch is told of what changes.
        if user == "jane" {
            let first = tokio::time::timeout(PATIENCE, watch.chunk()).await??.context("a line")?;
            assert!(String::from_utf8_lossy(&first).contains("settings"));
        }
        replica.kubectl.run(&["delete", kind, binding, "-n", "apps"]).await?;
        let taken = Instant::now();
        tokio::time::timeout(PATIENCE, async {
            while watch.chunk().await?.is_some() {}
            anyhow::Ok(())
        })
        .await
        .with_context(|| format!("{path} ends"))??;
        eprintln!("{path} ended {:?} after the right was taken away", taken.elapsed());
        assert!(taken.elapsed() < Duration::from_secs(1), "{:?}", taken.elapsed());
        let again = client(&replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
        assert_eq!(again.header("Impersonate-User", user).send().await?.status(), StatusCode::FORBIDDEN);
    }
    Ok(())
}

#[tokio::test]
async fn every_hub_has_roles_and_keeps_what_people_made_of_them() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let names = kubectl.run(&["get", "clusterroles", "-o", "name"]).await?;
    for name in ["admin", "cluster-admin", "cluster-operator", "edit", "fleet-admin", "view"] {
        assert!(names.contains(&format!("clusterrole.rbac.authorization.k8s.io/{name}\n")), "{names}");
    }
    // What a person added stays, what was taken out comes back, and what is annotated is left alone.
    let patch = |name: &'static str, patch: &'static str| async move {
        kubectl.run(&["patch", "clusterrole", name, "--type=json", "-p", patch]).await
    };
    patch("cluster-operator", r#"[{"op":"replace","path":"/rules","value":[{"apiGroups":["x"],"resources":["y"],"verbs":["get"]}]}]"#).await?;
    patch("fleet-admin", r#"[{"op":"replace","path":"/rules","value":[]},
        {"op":"replace","path":"/metadata/annotations/rbac.authorization.kubernetes.io~1autoupdate","value":"false"}]"#).await?;
    replica.hub.objects.bootstrap().await?;
    let rules = |name: &'static str| async move {
        let object: Value =
            serde_json::from_str(&kubectl.run(&["get", "clusterrole", name, "-o", "json"]).await?)?;
        Ok::<_, anyhow::Error>(object["rules"].clone())
    };
    let operator = rules("cluster-operator").await?;
    assert_eq!(operator[0]["apiGroups"], json!(["x"]));
    assert!(operator.to_string().contains("clusters/jointoken"), "{operator}");
    assert!(rules("fleet-admin").await?.as_array().is_none_or(Vec::is_empty));
    Ok(())
}

/// A role that is labelled for `view` belongs to it at once, on every replica.
#[tokio::test]
async fn aggregated_roles_follow_what_they_select() -> Result<()> {
    let site = Site::new().await?;
    let (replica, other) = (site.replica().await?, site.replica().await?);
    let kubectl = &replica.kubectl;
    kubectl.run(&["create", "clusterrolebinding", "jane", "--clusterrole=view", "--user=jane"]).await?;
    until(&other, &["get", "configmaps", "-A", "--as=jane"]).await?;
    refused(&other, &["get", "clusters", "--as=jane"]).await?;
    kubectl
        .run(&["create", "clusterrole", "more", "--verb=list", "--resource=clusters.fleet.roadstead.dev"])
        .await?;
    kubectl
        .run(&["label", "clusterrole", "more", "rbac.authorization.k8s.io/aggregate-to-view=true"])
        .await?;
    until(&other, &["get", "clusters", "--as=jane"]).await?;
    kubectl.run(&["delete", "clusterrole", "more"]).await?;
    eventually("it is refused again", PATIENCE, || async {
        refused(&other, &["get", "clusters", "--as=jane"]).await.map(drop)
    })
    .await
}

/// What a role is made of can be read in it, as kube-controller-manager writes it.
#[tokio::test]
async fn aggregated_roles_show_what_they_are_made_of() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let identity = &replica.hub.identity;
    let write = || replica.hub.objects.write_aggregated(identity);
    let rules = || async { kubectl.run(&["get", "clusterrole", "view", "-o", "jsonpath={.rules}"]).await };
    write().await?;
    let before = rules().await?;
    ensure!(before.contains("kustomizations") && !before.contains("clusters"), "{before}");
    kubectl
        .run(&["create", "clusterrole", "more", "--verb=list", "--resource=clusters.fleet.roadstead.dev"])
        .await?;
    kubectl
        .run(&["label", "clusterrole", "more", "rbac.authorization.k8s.io/aggregate-to-view=true"])
        .await?;
    // Its parts, and those of the roles that are made of it.
    eventually("it is known", PATIENCE, || async {
        ensure!(identity.outdated_roles().await?.len() >= 3);
        Ok(())
    })
    .await?;
    write().await?;
    let all = rules().await?;
    ensure!(all.contains("clusters"), "{all}");
    let described = kubectl.run(&["describe", "clusterrole", "admin"]).await?;
    ensure!(described.contains("clusters.fleet.roadstead.dev"), "{described}");
    // Nothing is written again, and what somebody writes into it does not stay.
    eventually("all is known", PATIENCE, || async {
        ensure!(identity.outdated_roles().await?.is_empty());
        Ok(())
    })
    .await?;
    let patch = r#"{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#;
    kubectl.run(&["patch", "clusterrole", "view", "--type=merge", "-p", patch]).await?;
    eventually("it is written back", PATIENCE, || async {
        write().await?;
        ensure!(rules().await? == all);
        Ok(())
    })
    .await?;
    kubectl.run(&["delete", "clusterrole", "more"]).await?;
    eventually("it is as it was", PATIENCE, || async {
        write().await?;
        ensure!(rules().await? == before);
        Ok(())
    })
    .await
}

/// A token is as good as being taken for its user, so nobody makes one of a user whom they may not be taken for.
#[tokio::test]
async fn tokens_are_made_by_those_who_could_act_as_their_users() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let role = json!({ "metadata": { "name": "tokens" }, "rules": [
        { "nonResourceURLs": ["/fleet/v1/tokens"], "verbs": ["get", "post"] },
        { "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["robot"] },
        { "apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["robots"] } ] });
    send(&replica, Method::POST, &format!("{RBAC}/clusterroles"), &[], &role).await?;
    replica
        .kubectl
        .run(&["create", "clusterrolebinding", "t", "--clusterrole=tokens", "--user=clerk"])
        .await?;
    let clerk = [("Impersonate-User", "clerk")];
    until(&replica, &["get", "--raw", "/fleet/v1/tokens", "--as=clerk"]).await?;
    let make = |body: Value| {
        let replica = &replica;
        async move { send(replica, Method::POST, "/fleet/v1/tokens", &clerk, &body).await }
    };
    let (code, answer) = make(json!({ "username": "robot", "groups": ["robots"] })).await?;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    // Somebody who is named without groups has none.
    let (code, answer) = make(json!({ "username": "robot" })).await?;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    let robot = replica.hub.identity.authenticate(answer["token"].as_str().context("a token")?).await?;
    assert_eq!(robot.groups, ["system:authenticated"]);
    for body in [
        json!({}),
        json!({ "username": "robot", "groups": ["system:masters"] }),
        json!({ "username": "jane", "groups": ["robots"] }),
    ] {
        let (code, answer) = make(body.clone()).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{body}: {answer}");
    }
    Ok(())
}
