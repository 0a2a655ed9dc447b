//! Server-side apply by the real kubectl, unchanged.

use crate::support::Site;
use anyhow::{Context as _, Result};
use roadstead_tests::Kubectl;
use serde_json::{Value, json};

const SOURCE: &str = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata:
  name: web
  labels:
    team: a
spec:
  interval: 1m
  url: https://git.example.com/web.git
  timeout: 30s
"#;

const APPLY: [&str; 4] = ["apply", "--server-side", "-f", "-"];

async fn apply(kubectl: &Kubectl, more: &[&str], manifest: &str) -> Result<String> {
    kubectl.run_with(&[&APPLY, more].concat(), manifest).await
}

async fn error(kubectl: &Kubectl, more: &[&str], manifest: &str) -> Result<String> {
    match apply(kubectl, more, manifest).await {
        Ok(out) => anyhow::bail!("this was to be refused: {out}"),
        Err(error) => Ok(error.to_string()),
    }
}

/// The entry of a manager.
fn entry<'o>(object: &'o Value, manager: &str, operation: &str) -> Option<&'o Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().find(|entry| entry["manager"] == manager && entry["operation"] == operation)
}

async fn with_managers(kubectl: &Kubectl, args: &[&str]) -> Result<Value> {
    kubectl.get(&[args, &["--show-managed-fields"]].concat()).await
}

#[tokio::test]
async fn managers_share_an_object() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;
    let name = "gitrepository.source.toolkit.fluxcd.io/web";

    // A dry run makes nothing.
    let out = apply(kubectl, &["--dry-run=server"], SOURCE).await?;
    assert_eq!(out.trim(), format!("{name} serverside-applied (server dry run)"));
    assert!(kubectl.run(&["get", "gitrepo", "web"]).await.is_err());

    let out = apply(kubectl, &[], SOURCE).await?;
    assert_eq!(out.trim(), format!("{name} serverside-applied"));
    let object = with_managers(kubectl, &["gitrepo", "web"]).await?;
    let mine = entry(&object, "kubectl", "Apply").context("kubectl's entry")?;
    assert_eq!(
        mine["fieldsV1"],
        json!({ "f:metadata": { "f:labels": { "f:team": {} } },
            "f:spec": { "f:interval": {}, "f:timeout": {}, "f:url": {} } })
    );
    assert_eq!(mine["apiVersion"], "source.toolkit.fluxcd.io/v1");
    let first = object["metadata"]["resourceVersion"].clone();

    // Nothing new is nothing written.
    apply(kubectl, &[], SOURCE).await?;
    let again = with_managers(kubectl, &["gitrepo", "web"]).await?;
    assert_eq!(again, object, "an apply that changes nothing makes no new version");

    // Another manager may want the same, but not something else.
    let other = SOURCE.replace("interval: 1m", "interval: 9m");
    let refused = error(kubectl, &["--field-manager=robot"], &other).await?;
    for part in [
        "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.interval",
        "re-run the apply",
        "--force-conflicts",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let mut command =
        kubectl.command(&[&APPLY[..2], &["-f", "/dev/stdin", "--field-manager=robot"]].concat());
    let manifest = tempfile::NamedTempFile::new()?;
    std::fs::write(manifest.path(), &other)?;
    command.stdin(std::fs::File::open(manifest.path())?);
    assert_eq!(command.output().await?.status.code(), Some(1), "a conflict is kubectl's exit code 1");

    apply(kubectl, &["--field-manager=robot", "--force-conflicts"], &other).await?;
    let object = with_managers(kubectl, &["gitrepo", "web"]).await?;
    assert_eq!((&object["spec"]["interval"], &object["metadata"]["generation"]), (&json!("9m"), &json!(2)));
    assert_ne!(object["metadata"]["resourceVersion"], first);
    let mine = entry(&object, "kubectl", "Apply").context("kubectl's entry")?;
    assert!(mine["fieldsV1"]["f:spec"].get("f:interval").is_none(), "it lost the field: {mine:#}");

    // What both want stays until neither does.
    let without = |text: &str| text.replace("  timeout: 30s\n", "");
    apply(kubectl, &["--field-manager=robot"], &without(&other)).await?;
    let object = kubectl.get(&["gitrepo", "web"]).await?;
    assert_eq!(object["spec"]["timeout"], "30s", "kubectl still wants it");
    apply(kubectl, &[], &without(&other)).await?;
    let object = kubectl.get(&["gitrepo", "web"]).await?;
    assert_eq!(object["spec"].get("timeout"), None, "nobody wants it");

    // Any other write takes fields too, under its program's name.
    let patch = r#"{"spec":{"interval":"3m"}}"#;
    kubectl.run(&["patch", "gitrepo", "web", "--type=merge", "-p", patch]).await?;
    let object = with_managers(kubectl, &["gitrepo", "web"]).await?;
    let patched = entry(&object, "kubectl-patch", "Update").context("the patch's entry")?;
    assert_eq!(patched["fieldsV1"], json!({ "f:spec": { "f:interval": {} } }));
    let refused = error(kubectl, &[], &without(&other)).await?;
    let wanted = "conflict with \"kubectl-patch\" using source.toolkit.fluxcd.io/v1: .spec.interval";
    assert!(refused.contains(wanted), "{refused}");

    // Two conflicts are told by manager.
    let refused =
        error(kubectl, &["--field-manager=third"], &without(&other).replace("web.git", "new.git")).await?;
    assert!(refused.contains("Apply failed with 3 conflicts: conflicts with \"kubectl\""), "{refused}");
    kubectl.run(&["delete", "gitrepo", "web"]).await?;
    Ok(())
}

#[tokio::test]
async fn the_way_from_client_side_apply() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;

    kubectl.apply(SOURCE).await?;
    let object = with_managers(kubectl, &["gitrepo", "web"]).await?;
    assert!(entry(&object, "kubectl-client-side-apply", "Update").is_some(), "{object:#}");
    let changed = SOURCE.replace("interval: 1m", "interval: 2m").replace("  timeout: 30s\n", "");
    let diff = kubectl.command(&["diff", "--server-side", "-f", "/dev/stdin"]);
    let manifest = tempfile::NamedTempFile::new()?;
    std::fs::write(manifest.path(), &changed)?;
    let mut diff = diff;
    diff.stdin(std::fs::File::open(manifest.path())?);
    let diff = diff.output().await?;
    let text = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
    assert!(text.contains("-  interval: 1m0s") || text.contains("-  interval: 1m"), "{text}");
    // Of what the server fills in the generation alone changes, and what is noted for client-side apply (the line of JSON), as
    // on a cluster.
    let differs =
        |line: &&str| line.starts_with(['-', '+']) && !line.starts_with("---") && !line.starts_with("+++");
    let mut fields: Vec<&str> = text
        .lines()
        .filter(differs)
        .filter_map(|line| line.get(1..)?.trim_start().split_once(':').map(|(field, _)| field))
        .filter(|field| !field.starts_with('{'))
        .collect();
    fields.dedup();
    assert_eq!(fields, ["generation", "interval"], "{text}");

    // What client-side apply set and nobody changed since is kubectl's to change.
    apply(kubectl, &[], &changed).await?;
    let object = with_managers(kubectl, &["gitrepo", "web"]).await?;
    assert_eq!(object["spec"]["interval"], "2m");
    assert_eq!(object["spec"].get("timeout"), None, "what the last apply left out is gone: {object:#}");
    assert!(entry(&object, "kubectl", "Apply").is_some(), "{object:#}");
    let noted =
        object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str();
    assert!(noted.unwrap_or_default().contains("\"interval\":\"2m\""), "{noted:?}");
    let hidden = kubectl.get(&["gitrepo", "web"]).await?;
    assert_eq!(hidden["metadata"].get("managedFields"), None, "kubectl shows managers only when asked");
    Ok(())
}

#[tokio::test]
async fn core_kinds_and_bad_requests() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let kubectl = &replica.kubectl;

    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: YQ==, b: Yg==}}";
    apply(kubectl, &[], secret).await?;
    apply(kubectl, &[], &secret.replace(", b: Yg==", "")).await?;
    let object = with_managers(kubectl, &["secret", "s"]).await?;
    assert_eq!((&object["data"], &object["type"]), (&json!({ "a": "YQ==" }), &json!("Opaque")));
    let mine = entry(&object, "kubectl", "Apply").context("kubectl's entry")?;
    assert_eq!(mine["fieldsV1"], json!({ "f:data": { "f:a": {} } }));
    apply(kubectl, &["--field-manager=robot"], &secret.replace("a: YQ==, ", "")).await?;
    let refused = error(kubectl, &["--field-manager=robot"], &secret.replace("YQ==", "eA==")).await?;
    assert!(refused.contains("conflict with \"kubectl\": .data.a"), "{refused}");

    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: area, labels: {one: '1'}}}";
    apply(kubectl, &[], namespace).await?;
    apply(kubectl, &[], &namespace.replace("one:", "two:")).await?;
    let object = kubectl.get(&["namespace", "area"]).await?;
    assert_eq!(object["metadata"]["labels"], json!({ "two": "1", "kubernetes.io/metadata.name": "area" }));

    let unknown = SOURCE.replace("  interval", "  intervall: 1m\n  interval");
    let refused = error(kubectl, &[], &unknown).await?;
    assert!(refused.contains("intervall"), "{refused}");

    let path = "/apis/source.toolkit.fluxcd.io/v1/namespaces/default/gitrepositories/web";
    let client = crate::support::client(&replica)?;
    let send = async |query: &str, body: &str| -> Result<(u16, Value)> {
        let request = client.patch(format!("{}{path}{query}", replica.url)).bearer_auth(&replica.token);
        let request = request.header("content-type", "application/apply-patch+yaml").body(body.to_owned());
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let named = |manager: &str| format!("?fieldManager={manager}");
    let object = "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, spec: {interval: 1m, url: 'https://a.b/c'}}";
    let (code, made) = send(&named("a"), object).await?;
    assert_eq!((code, &made["metadata"]["name"]), (201, &json!("web")), "{made:#}");
    let (code, same) = send(&named("a"), object).await?;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &made["metadata"]["resourceVersion"]));
    let (code, status) = send(&named("b"), &object.replace("1m", "2m")).await?;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        status["details"],
        json!({ "causes": [{ "reason": "FieldManagerConflict", "message": "conflict with \"a\"",
            "field": ".spec.interval" }] })
    );
    for (query, body, code, part) in [
        (String::new(), object.to_owned(), 422, "fieldManager: Required value"),
        (named(&"x".repeat(129)), object.to_owned(), 422, "Too long"),
        (named("a%00"), object.to_owned(), 422, "invalid character"),
        (named("a"), "{a: b".to_owned(), 400, "YAML"),
        (named("a"), String::new(), 400, "no body"),
        (named("a"), "[]".to_owned(), 400, "not an object"),
        (named("a"), object.replace("GitRepository", "Bucket"), 400, "invalid object type"),
        (named("a"), object.replace("spec:", "metadata: {managedFields: []}, spec:"), 400, "must be nil"),
        (named("a"), object.replace("spec:", "metadata: {name: other}, spec:"), 400, "does not match"),
        (named("a"), object.replace("interval: 1m", "interval: [1]"), 400, "spec.interval"),
        (named("a"), object.replace("spec:", "metadata: {resourceVersion: '1'}, spec:"), 409, "modified"),
    ] {
        let (have, status) = send(&query, &body).await?;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(have == code && message.contains(part), "{body}: {have} {status:#}");
    }
    Ok(())
}
