//! The built-in and the Flux kinds, by the real kubectl.

use std::time::Duration;

use crate::support::Site;
use anyhow::{Result, bail, ensure};
use roadstead_tests::eventually;
use serde_json::json;

#[tokio::test]
async fn built_in_kinds_as_kubectl_makes_them() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;

    // kubectl sends these as protobuf.
    kubectl.run(&["create", "configmap", "settings", "--from-literal=a=b"]).await?;
    kubectl.run(&["create", "serviceaccount", "deployer"]).await?;
    kubectl.run(&["create", "role", "reader", "--verb=get,list", "--resource=kustomizations"]).await?;
    kubectl.run(&["create", "rolebinding", "readers", "--role=reader", "--user=ann", "--group=ops"]).await?;
    kubectl.run(&["create", "clusterrole", "all", "--verb=*", "--resource=*.*"]).await?;
    kubectl
        .run(&[
            "create",
            "clusterrolebinding",
            "all",
            "--clusterrole=all",
            "--serviceaccount=default:deployer",
        ])
        .await?;
    let map = kubectl.get(&["cm", "settings"]).await?;
    assert_eq!(map["data"], json!({ "a": "b" }));
    let role = kubectl.get(&["role", "reader"]).await?;
    assert_eq!(
        role["rules"],
        json!([{ "verbs": ["get", "list"], "apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"] }])
    );
    let table = kubectl.run(&["get", "rolebindings", "-o", "wide"]).await?;
    let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[3], row[4]), ("readers", "Role/reader", "ann", "ops"), "{table}");
    let table = kubectl.run(&["get", "clusterrolebindings", "-o", "wide"]).await?;
    assert!(table.contains("default/deployer"), "{table}");
    let error = kubectl
        .run(&["patch", "rolebinding", "readers", "-p", r#"{"roleRef":{"name":"other"}}"#])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot change roleRef"), "{error}");

    // A strategic merge patch, which kubectl sends for built-in kinds.
    let patch = r#"{"imagePullSecrets":[{"name":"one"}]}"#;
    kubectl.run(&["patch", "sa", "deployer", "-p", patch]).await?;
    kubectl.run(&["patch", "sa", "deployer", "-p", &patch.replace("one", "two")]).await?;
    let account = kubectl.get(&["sa", "deployer"]).await?;
    let names = account["imagePullSecrets"].as_array().map_or(0, Vec::len);
    assert_eq!(names, 2, "they merge by their names: {account:#}");

    let frozen = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: frozen}\nimmutable: true\ndata: {a: b}\n";
    kubectl.apply(frozen).await?;
    let error = kubectl.apply(&frozen.replace("a: b", "a: c")).await.unwrap_err().to_string();
    assert!(error.contains("data: Forbidden: field is immutable when `immutable` is set"), "{error}");
    Ok(())
}

#[tokio::test]
async fn tokens_of_service_accounts_end_with_them() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let token = kubectl.run(&["create", "token", "robot", "--duration=20m"]).await?;
    let as_robot = |args: &[&str]| {
        let token = format!("--token={}", token.trim());
        let args: Vec<String> =
            args.iter().map(|arg| (*arg).to_owned()).chain([token, "--user=".to_owned()]).collect();
        async move {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            kubectl.run(&args).await
        }
    };
    let who = as_robot(&["auth", "whoami", "-o", "json"]).await?;
    let who: serde_json::Value = serde_json::from_str(&who)?;
    let user = &who["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert!(
        user["groups"]
            .as_array()
            .is_some_and(|groups| groups.contains(&json!("system:serviceaccounts:default")))
    );
    // No role gives it anything.
    let error = as_robot(&["get", "secrets"]).await.unwrap_err().to_string();
    assert!(error.contains(r#"User "system:serviceaccount:default:robot" cannot list"#), "{error}");
    let error = kubectl.run(&["create", "token", "robot", "--duration=1m"]).await.unwrap_err().to_string();
    assert!(error.contains("may not specify a duration less than 10 minutes"), "{error}");
    let error = kubectl.run(&["create", "token", "nobody"]).await.unwrap_err().to_string();
    assert!(error.contains(r#"serviceaccounts "nobody" not found"#), "{error}");
    kubectl.run(&["delete", "sa", "robot"]).await?;
    // A replica remembers a token for two seconds.
    eventually("the token has ended", Duration::from_secs(10), || async {
        let Err(error) = as_robot(&["auth", "whoami"]).await else { bail!("it is still taken") };
        let error = error.to_string();
        ensure!(error.contains("Unauthorized") || error.contains("must be logged in"), "{error}");
        Ok(())
    })
    .await
}

/// One of each of Flux's kinds besides those that deploy, and Git repositories.
const FLUX: &str = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: one}
spec: {interval: 5m, bucketName: one, endpoint: s3.example.com, provider: aws}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: one}
spec: {interval: 5m, url: "oci://registry.example.com/one", ref: {semver: ">=1.0.0"}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: one}
spec: {interval: 5m, url: "https://charts.example.com"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: one}
spec: {interval: 5m, chart: one, version: "1.x", sourceRef: {kind: HelmRepository, name: one}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: one}
spec: {type: slack, channel: general, secretRef: {name: one}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: one}
spec: {providerRef: {name: one}, eventSeverity: error, eventSources: [{kind: Kustomization, name: "*"}]}
---
apiVersion: notification.toolkit.fluxcd.io/v1
kind: Receiver
metadata: {name: one}
spec: {type: github, secretRef: {name: one}, resources: [{kind: GitRepository, name: one}]}
"#;

#[tokio::test]
async fn flux_kinds() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    kubectl.apply(FLUX).await?;
    let again = kubectl.apply(FLUX).await?;
    assert_eq!(again.lines().filter(|line| line.ends_with(" unchanged")).count(), 7, "{again}");
    let warned = kubectl.command(&["annotate", "alert", "one", "a=b"]).output().await?;
    let warned = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(!warned.contains("Warning"), "{warned}");
    // Version v1 is the same objects.
    let newer = kubectl
        .run(&["get", "alerts.v1.notification.toolkit.fluxcd.io", "one", "-o", "jsonpath={.apiVersion}"])
        .await?;
    assert_eq!(newer, "notification.toolkit.fluxcd.io/v1");
    for (good, bad, want) in [
        ("type: slack", "type: pigeon", "spec.type: Unsupported value: \"pigeon\""),
        ("oci://registry", "http://registry", "spec.url: Invalid value"),
        ("eventSeverity: error", "eventSeverity: bad", "spec.eventSeverity: Unsupported value: \"bad\""),
        ("bucketName: one, ", "", "spec.bucketName: Required value"),
    ] {
        let error = kubectl.apply(&FLUX.replace(good, bad)).await.unwrap_err().to_string();
        assert!(error.contains(want), "{want} is not in: {error}");
    }
    let explained = kubectl.run(&["explain", "ocirepository.spec.ref"]).await?;
    assert!(explained.contains("semverFilter"), "{explained}");
    // The same from OpenAPI v2, which kubectl reads as protobuf.
    let old = kubectl.run(&["explain", "ks.spec.decryption", "--output=plaintext-openapiv2"]).await?;
    assert!(old.contains("provider") && old.contains("secretRef"), "{old}");
    // A version that Flux once had.
    let error = kubectl
        .run(&["get", "--raw", "/apis/kustomize.toolkit.fluxcd.io/v1beta2/kustomizations"])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("use kustomize.toolkit.fluxcd.io/v1 for Kustomization"), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_is_suspended_from_the_start_says_so_at_once_and_is_looked_at_when_it_is_resumed() -> Result<()>
{
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let asleep = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: asleep}\n\
         spec: {interval: 5m, prune: true, suspend: true, sourceRef: {kind: GitRepository, name: web}}\n";
    replica.kubectl.apply(asleep).await?;
    let made = replica.kubectl.get(&["ks", "asleep", "--show-managed-fields"]).await?;
    let condition = &made["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Suspended"), &json!("True")), "{made:#}");
    let managers = made["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours: Vec<_> = managers.filter(|entry| entry["manager"] == "roadstead-hub").collect();
    // Its finalizer, and its status.
    assert_eq!(ours.len(), 2, "{made:#}");
    assert!(ours.iter().any(|entry| entry["subresource"] == "status"), "{made:#}");
    let uid: sqlx::types::Uuid = made["metadata"]["uid"].as_str().unwrap_or_default().parse()?;
    let mut database = site.database.connect().await?;
    let mut looks = async || {
        let query = sqlx::query_scalar("SELECT count(*) FROM schedule WHERE uid = $1").bind(uid);
        query.fetch_one(&mut database).await
    };
    let before: i64 = looks().await?;
    replica
        .kubectl
        .run(&["patch", "ks", "asleep", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#])
        .await?;
    assert_eq!((before, looks().await?), (0, 1));
    Ok(())
}

#[tokio::test]
async fn an_event_is_the_same_in_both_groups() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "one", "namespace": "default" },
        "eventTime": "2026-01-02T03:04:05.678901Z", "reportingController": "test.example.com/one",
        "reportingInstance": "a", "action": "Try", "reason": "Tried", "type": "Warning", "note": "It was tried.",
        "regarding": { "apiVersion": "v1", "kind": "Namespace", "name": "default", "namespace": "default" },
    });
    kubectl.run_with(&["create", "-f", "-"], &event.to_string()).await?;
    let core = kubectl.get(&["events", "one"]).await?;
    assert_eq!(core["apiVersion"], "v1");
    assert_eq!(
        (&core["message"], &core["involvedObject"]["kind"]),
        (&json!("It was tried."), &json!("Namespace"))
    );
    let other = kubectl.get(&["events.v1.events.k8s.io", "one"]).await?;
    assert_eq!((&other["note"], &other["eventTime"]), (&event["note"], &event["eventTime"]));
    assert_eq!(other["metadata"]["uid"], core["metadata"]["uid"]);
    let table = kubectl.run(&["get", "events"]).await?;
    assert!(table.contains("namespace/default") && table.contains("It was tried."), "{table}");
    for form in ["events.v1.", "events.v1.events.k8s.io"] {
        let table = kubectl.run(&["get", form, "-o", "wide"]).await?;
        assert!(table.contains("test.example.com/one"), "{table}");
    }
    kubectl.run(&["delete", "event", "one"]).await?;
    Ok(())
}

#[tokio::test]
async fn keys_that_stand_twice_and_bodies_in_yaml() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let http = crate::support::client(&replica)?;
    let post = |query: &str, media_type: &str, body: &str| {
        let url = format!("{}/api/v1/namespaces/default/configmaps?{query}", replica.url);
        let request = http.post(url).bearer_auth(&replica.token).header("content-type", media_type);
        request.body(body.to_owned()).send()
    };
    let twice = r#"{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}"#;
    let answer = post("fieldValidation=Strict", "application/json", twice).await?;
    assert_eq!(answer.status(), 400);
    let status: serde_json::Value = answer.json().await?;
    assert_eq!(status["message"], r#"strict decoding error: duplicate field "data.x""#);
    let answer = post("", "application/json", twice).await?;
    assert_eq!(answer.status(), 201);
    let warning = answer.headers().get("warning").and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert!(warning.contains("duplicate field"), "{warning}");
    let made: serde_json::Value = answer.json().await?;
    assert_eq!(made["data"]["x"], "2", "the last one counts");
    let yaml = "metadata:\n  generateName: b-\ndata:\n  x: 'yes'\n";
    let answer = post("", "application/yaml", yaml).await?;
    assert_eq!(answer.status(), 201);
    let made: serde_json::Value = answer.json().await?;
    assert!(made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("b-") && name.len() == 7));
    for (media_type, body, code) in [
        ("application/yaml", "a: b\na: c\n", 400),
        ("application/yaml", "a: [", 400),
        ("application/json", "{", 400),
        ("application/cbor", "{}", 415),
        ("application/vnd.kubernetes.protobuf", "k8s\0", 415),
    ] {
        let answer = post("", media_type, body).await?;
        assert_eq!(answer.status().as_u16(), code, "{media_type} {body}");
        let status: serde_json::Value = answer.json().await?;
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)));
    }
    Ok(())
}

#[tokio::test]
async fn objects_in_an_editor_and_differences() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: old}\n";
    kubectl.apply(map).await?;
    kubectl.apply(FLUX).await?;
    for (object, change) in [("cm/a", "s/k: old/k: new/"), ("helmchart/one", "s/interval: 5m/interval: 6m/")]
    {
        let mut edit = kubectl.command(&["edit", object]);
        let output = edit.env("KUBE_EDITOR", format!("sed -i '{change}'")).output().await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said.contains("edited"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(kubectl.get(&["cm", "a"]).await?["data"]["k"], "new");
    assert_eq!(kubectl.get(&["helmchart", "one"]).await?["spec"]["interval"], "6m");
    let folder = tempfile::tempdir()?;
    let (old, new) = (folder.path().join("old.yaml"), folder.path().join("new.yaml"));
    std::fs::write(&old, map)?;
    std::fs::write(&new, map.replace("old", "new"))?;
    // As `diff`: 1 where something differs, and nothing is written.
    for (file, code) in [(&old, 1), (&new, 0)] {
        let file = file.to_string_lossy().into_owned();
        let output = kubectl.command(&["diff", "-f", &file]).output().await?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(code), "{said}{}", String::from_utf8_lossy(&output.stderr));
        ensure!(code == 0 || (said.contains("-  k: new") && said.contains("+  k: old")), "{said}");
        // Of what the server fills in nothing differs.
        let differs = |field: &str| said.lines().any(|line| line.starts_with('-') && line.contains(field));
        for field in ["uid:", "resourceVersion:", "creationTimestamp:", "namespace:"] {
            ensure!(!differs(field), "{field} differs: {said}");
        }
    }
    let new = ["create", "configmap", "dry", "--from-literal=k=v", "--dry-run=server", "-o", "json"];
    let new: serde_json::Value = serde_json::from_str(&kubectl.run(&new).await?)?;
    let metadata = &new["metadata"];
    for field in ["uid", "creationTimestamp", "namespace"] {
        ensure!(metadata[field].is_string(), "no {field} in {metadata}");
    }
    ensure!(metadata["resourceVersion"].is_null(), "it has a version, though it is not stored: {metadata}");
    assert_eq!(kubectl.get(&["cm", "a"]).await?["data"]["k"], "new");
    Ok(())
}
