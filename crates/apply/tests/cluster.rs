//! The engine against a real apiserver and its controllers.

#[cfg(test)]
mod support;

use std::time::Duration;

use anyhow::Result;
use http::StatusCode;
use roadstead_apply::{Engine, Error, FailureKind, InputError, OWNER_LABEL, Options, Run};
use roadstead_kstatus::Status;
use roadstead_model::{Action, ObjectRef, ServiceAccount, Stage};
use serde_json::{Value, json};
use support::{Fixture, actions, annotated, config_map, deployment, only_action, service};
use tokio::time::Instant;

fn named(outcome: &[ObjectRef]) -> Vec<String> {
    outcome.iter().map(|object| format!("{}/{}", object.kind, object.name)).collect()
}

#[tokio::test]
async fn what_another_writes_while_we_look_is_no_change_of_ours() -> Result<()> {
    let fixture = Fixture::new().await?;
    let objects = [config_map("a", "1")];
    let created = fixture.apply(&objects).await;
    assert_eq!(created.error, None);
    let path = fixture.core("configmaps", "a");
    let patches =
        ["one", "two"].map(|by| (path.clone(), json!({"metadata": {"annotations": {"example.test": by}}})));
    fixture.meddling.lock().unwrap().extend(patches);
    fixture.requests();

    let outcome = fixture.apply_after(&created.inventory, &objects).await;
    assert_eq!(actions(&outcome), ["ConfigMap/a unchanged"]);
    let requests = fixture.requests();
    assert_eq!(requests.len(), 6, "three times a dry-run and a read: {requests:?}");
    assert!(fixture.meddling.lock().unwrap().is_empty());
    Ok(())
}

#[tokio::test]
async fn created_then_unchanged_then_configured() -> Result<()> {
    let fixture = Fixture::new().await?;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let objects = [
        config_map("a", "1"),
        secret,
        deployment("web", 1, &json!({})),
        service("web"),
        config_map("b", "1"),
    ];
    let prepared = fixture.prepare(&objects).await?;
    let intended = prepared.objects();
    assert_eq!(named(&intended), ["ConfigMap/a", "ConfigMap/b", "Secret/s", "Service/web", "Deployment/web"]);
    assert!(intended.iter().all(|object| object.namespace == fixture.namespace));
    fixture.requests();

    let outcome = fixture.apply(&objects).await;
    assert_eq!(outcome.error, None);
    assert_eq!(
        actions(&outcome),
        [
            "ConfigMap/a created",
            "ConfigMap/b created",
            "Deployment/web created",
            "Secret/s created",
            "Service/web created"
        ]
    );
    assert_eq!(outcome.inventory, intended);
    assert_eq!(
        outcome.timings.iter().map(|timing| timing.stage).collect::<Vec<_>>(),
        [Stage::Validate, Stage::Apply]
    );
    let requests = fixture.requests();
    assert_eq!(requests.len(), 2 * objects.len(), "a dry-run and a write each: {requests:?}");
    let live = fixture.get(&fixture.core("configmaps", "a")).await?;
    assert_eq!(live["metadata"]["labels"][OWNER_LABEL], json!(fixture.owner.to_string()));
    assert_eq!(fixture.get(&fixture.core("secrets", "s")).await?["data"], json!({"k": "dg=="}));

    // The Deployment's controller annotates it once; an apply meanwhile would dry-run it again.
    let web = format!("/apis/apps/v1/namespaces/{}/deployments/web", fixture.namespace);
    fixture.until(&web, "/metadata/annotations/deployment.kubernetes.io~1revision").await?;

    let outcome = fixture.apply_after(&outcome.inventory, &objects).await;
    assert_eq!(outcome.error, None);
    assert!(outcome.changes.iter().all(|change| change.action == Action::Unchanged), "{:?}", outcome.changes);
    let requests = fixture.requests();
    assert_eq!(requests.len(), 2 * objects.len(), "a dry-run and a read each: {requests:?}");
    assert!(
        requests.iter().all(|line| line.starts_with("GET ") || line.contains("dryRun=All")),
        "{requests:?}"
    );

    let mut changed = objects.to_vec();
    changed[0] = config_map("a", "2");
    let outcome = fixture.apply_after(&outcome.inventory, &changed).await;
    assert_eq!(actions(&outcome)[0], "ConfigMap/a configured");
    assert_eq!(fixture.requests().len(), 2 * objects.len() + 1);
    assert_eq!(outcome.changes.iter().filter(|change| change.action == Action::Unchanged).count(), 4);
    assert_eq!(fixture.get(&fixture.core("configmaps", "a")).await?["data"]["k"], json!("2"));
    Ok(())
}

#[tokio::test]
async fn a_stage_with_a_bad_object_writes_nothing_and_names_every_one() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut bad = service("backend");
    bad["spec"]["type"] = json!("Ingress");
    let mut unknown = config_map("odd", "1");
    unknown["dta"] = json!({});
    let outcome = fixture.apply(&[config_map("good", "1"), bad, unknown]).await;
    let error = outcome.error.clone().expect("an error");
    assert_eq!(error.stage(), Stage::Validate);
    let text = error.to_string();
    let service = format!(
        "Service/{}/backend is invalid: spec.type: Unsupported value: \"Ingress\"",
        fixture.namespace
    );
    assert!(text.contains(&service), "{text}");
    let odd = format!("ConfigMap/{}/odd is invalid: .dta: field not declared in schema", fixture.namespace);
    assert!(text.contains(&odd), "{text}");
    assert!(
        matches!(&error, Error::Objects { total: 2, causes, .. }
        if causes.iter().all(|cause| cause.first.kind == FailureKind::Invalid)),
        "{error:?}"
    );
    assert_eq!((outcome.changes.len(), outcome.inventory.len()), (0, 0));
    assert!(fixture.get(&fixture.core("configmaps", "good")).await.is_err(), "nothing was written");
    Ok(())
}

#[tokio::test]
async fn objects_that_are_each_by_itself_hold_up_no_others() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut bad = service("backend");
    bad["spec"]["type"] = json!("Ingress");
    let prepared = fixture.prepare(&[config_map("good", "1"), bad]).await?;
    let engine = fixture.engine.each_by_itself();
    let mut events = |_| ();
    let mut run = Run::new(Instant::now() + Duration::from_secs(30), fixture.cancel.clone(), &mut events);
    let outcome = engine.apply(&prepared, &[], &mut run).await;
    let error = outcome.error.clone().expect("an error");
    assert!(matches!(&error, Error::Objects { stage: Stage::Validate, total: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("/backend is invalid"), "{error}");
    assert_eq!(actions(&outcome), ["ConfigMap/good created"]);
    assert_eq!(named(&outcome.inventory), ["ConfigMap/good"]);

    // Nothing is done in a namespace that is being deleted, and that is not a failure.
    let stays = json!({"metadata": {"finalizers": ["example.com/stays"]}});
    let path = fixture.core("configmaps", "good");
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&stays)).await?;
    let namespace = format!("/api/v1/namespaces/{}", fixture.namespace);
    fixture.request_as("DELETE", &namespace, "application/json", None).await?;
    let prepared = fixture.prepare(&[config_map("good", "2"), config_map("new", "1")]).await?;
    let began = Instant::now();
    let outcome = loop {
        let mut run = Run::new(Instant::now() + Duration::from_secs(30), fixture.cancel.clone(), &mut events);
        let outcome = engine.apply(&prepared, &[], &mut run).await;
        // Its objects are deleted after it has begun to end.
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", actions(&outcome));
        if actions(&outcome).iter().all(|action| action.ends_with("skipped")) {
            break outcome;
        }
    };
    let end = json!({"metadata": {"finalizers": null}});
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&end)).await?;
    assert_eq!(outcome.error, None);
    assert_eq!(actions(&outcome), ["ConfigMap/good skipped", "ConfigMap/new skipped"]);
    Ok(())
}

#[tokio::test]
async fn kinds_and_namespaces_of_the_same_build() -> Result<()> {
    let fixture = Fixture::new().await?;
    let id = fixture.namespace.replace("apply-", "k");
    let (group, plural) = (format!("{id}.example.com"), "widgets");
    let inner = format!("{}-inner", fixture.namespace);
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "namespace": "dropped"},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Widget", "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object",
                "properties": {"size": {"type": "integer", "maximum": 9}}}}}}}]},
    });
    let widget = |size: i64| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "w", "namespace": inner}, "spec": {"size": size}})
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": inner}});
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": inner}, "value": 7});
    let mut inside = config_map("inside", "1");
    inside["metadata"]["namespace"] = json!(inner);
    let objects = [widget(3), inside.clone(), class.clone(), crd.clone(), namespace.clone()];

    let outcome = fixture.apply(&objects).await;
    assert_eq!(outcome.error, None);
    let order: Vec<&str> = outcome.changes.iter().map(|change| change.object.kind.as_str()).collect();
    assert_eq!(order[2], "PriorityClass", "definitions, then classes, then the rest: {order:?}");
    let definition = outcome.inventory.iter().find(|object| object.kind == "CustomResourceDefinition");
    assert_eq!(definition.map(|object| object.namespace.as_str()), Some(""), "cluster-scoped");

    // The later stage fails; what the first stage did is known.
    let outcome = fixture.apply_after(&outcome.inventory, &[widget(10), inside, class, crd, namespace]).await;
    let text = outcome.error.as_ref().expect("an error").to_string();
    assert!(text.contains("Widget/") && text.contains("should be less than or equal to 9"), "{text}");
    assert_eq!(outcome.changes.len(), 3);
    assert_eq!(outcome.inventory.len(), 5);

    let pruned = fixture.prune(&outcome.inventory, &[]).await;
    assert_eq!(pruned.error, None);
    assert!(pruned.inventory.is_empty());
    let order: Vec<&str> = pruned.changes.iter().map(|change| change.object.kind.as_str()).collect();
    assert_eq!(order[2], "PriorityClass", "the other way round: {order:?}");
    // A second time there is nothing left to delete, the namespace apart, which takes its time.
    let again = fixture.prune(&outcome.inventory, &[]).await;
    assert_eq!(again.error, None);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused_before_anything_is_asked() -> Result<()> {
    let fixture = Fixture::new().await?;
    let twice =
        fixture.prepare(&[config_map("a", "1"), config_map("a", "2")]).await.expect_err("a duplicate");
    assert!(matches!(twice, Error::Input(InputError::Duplicate(_))), "{twice}");
    let unknown = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let unknown = fixture.prepare(&[config_map("a", "1"), unknown]).await.expect_err("an unknown kind");
    assert_eq!(
        unknown.to_string(),
        "Thing/t: no matches for kind: Thing in nowhere.example.com/v1; is its CRD installed?"
    );
    assert_eq!(unknown.stage(), Stage::Validate);
    let mut elsewhere = config_map("a", "1");
    elsewhere["metadata"]["namespace"] = json!("not-there");
    let outcome = fixture.apply(&[elsewhere]).await;
    let text = outcome.error.expect("an error").to_string();
    assert_eq!(text, "ConfigMap/not-there/a: namespaces \"not-there\" not found");
    Ok(())
}

#[tokio::test]
async fn prune_deletes_only_what_is_ours() -> Result<()> {
    let fixture = Fixture::new().await?;
    let kept = annotated(config_map("never", "1"), "prune", "disabled");
    let names = ["stays", "goes", "lost", "copied"];
    let objects: Vec<Value> = names.map(|name| config_map(name, "1")).into_iter().chain([kept]).collect();
    let outcome = fixture.apply(&objects).await;
    assert_eq!(outcome.error, None);
    // What somebody else makes of a copy has our label, and nothing that we applied.
    let path = fixture.core("configmaps", "copied");
    let mut copy = fixture.get(&path).await?;
    fixture.request_as("DELETE", &path, "application/json", None).await?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        copy["metadata"].as_object_mut().expect("metadata").remove(field);
    }
    let all = path.rsplit_once('/').expect("a name").0.to_owned();
    fixture.request_as("POST", &all, "application/json", Some(&copy)).await?;
    let other = json!({"metadata": {"labels": {OWNER_LABEL: "someone-else"}}});
    let path = fixture.core("configmaps", "lost");
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&other)).await?;

    let keep = fixture.prepare(&objects[..1]).await?.objects();
    let mut inventory = outcome.inventory;
    let mut gone = inventory[0].clone();
    gone.name = "was-never-there".to_owned();
    let mut forgotten = gone.clone();
    forgotten.group = "gone.example.com".to_owned();
    inventory.extend([gone, forgotten]);
    let pruned = fixture.prune(&inventory, &keep).await;
    assert_eq!(pruned.error, None);
    assert_eq!(
        actions(&pruned),
        [
            "ConfigMap/copied skipped",
            "ConfigMap/goes deleted",
            "ConfigMap/lost skipped",
            "ConfigMap/never skipped"
        ]
    );
    assert_eq!(pruned.inventory, keep);
    assert!(fixture.get(&fixture.core("configmaps", "goes")).await.is_err());
    for name in ["stays", "lost", "never", "copied"] {
        fixture.get(&fixture.core("configmaps", name)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_object_that_cannot_be_deleted_stays_in_the_inventory() -> Result<()> {
    let fixture = Fixture::new().await?;
    let outcome = fixture.apply(&[config_map("a", "1"), config_map("b", "1")]).await;
    assert_eq!(outcome.error, None);
    let nobody = ServiceAccount { namespace: fixture.namespace.clone(), name: "nobody".to_owned() };
    let mut events = |_| ();
    let mut run = Run::new(Instant::now() + Duration::from_secs(30), fixture.cancel.clone(), &mut events);
    let engine = fixture.engine.impersonate(nobody);
    let pruned = engine.delete_all(fixture.owner, &outcome.inventory, &mut run).await;
    assert_eq!(pruned.inventory, outcome.inventory);
    let error = pruned.error.expect("forbidden");
    assert_eq!(error.stage(), Stage::Prune);
    assert!(
        matches!(&error, Error::Objects { total: 2, causes, .. }
        if causes.iter().all(|cause| cause.first.kind == FailureKind::Forbidden)),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn everything_is_done_as_the_service_account() -> Result<()> {
    let fixture = Fixture::new().await?;
    let namespace = &fixture.namespace;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "create"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": namespace}]});
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    fixture.request("POST", &format!("{rbac}/roles"), Some(&role)).await?;
    fixture.request("POST", &format!("{rbac}/rolebindings"), Some(&binding)).await?;
    let account = ServiceAccount { namespace: namespace.clone(), name: "deployer".to_owned() };
    let own = fixture.engine.impersonate(account);
    let fixture = Fixture { engine: own, ..fixture };

    // The authoriser's informers may be a moment behind.
    let deadline = Instant::now() + Duration::from_secs(20);
    let outcome = loop {
        let outcome = fixture.apply(&[config_map("a", "1")]).await;
        if outcome.error.is_none() || Instant::now() > deadline {
            break outcome;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(only_action(&outcome), Action::Created);
    let refused = fixture.apply(&[config_map("b", "1"), service("web")]).await;
    let text = refused.error.expect("forbidden").to_string();
    let wanted = format!(
        "Service/{0}/web is forbidden: User \"system:serviceaccount:{0}:deployer\" cannot patch resource \"services\"",
        fixture.namespace
    );
    assert!(text.starts_with(&wanted), "{text}");
    assert!(fixture.get(&fixture.core("configmaps", "b")).await.is_err(), "the stage was not written");

    // Listing and watching are not allowed to it: it is read by name.
    let waited = fixture.wait(&outcome.inventory, Duration::from_secs(20)).await;
    assert_eq!(waited.error, None);
    Ok(())
}

/// Changes a ConfigMap's data as another tool would.
async fn edit(fixture: &Fixture, name: &str, manager: &str, data: Value) -> Result<()> {
    let path = format!("{}?fieldManager={manager}", fixture.core("configmaps", name));
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&json!({"data": data}))).await?;
    Ok(())
}

#[tokio::test]
async fn what_others_change_is_reverted_or_kept_as_the_object_says() -> Result<()> {
    let fixture = Fixture::new().await?;
    let plain = config_map("plain", "1");
    let merge = annotated(config_map("merge", "1"), "ssa", "Merge");
    let once = annotated(config_map("once", "1"), "ssa", "IfNotPresent");
    let off = config_map("off", "1");
    let never = annotated(config_map("never", "1"), "ssa", "Ignore");
    let objects = [plain, merge, once, off, never];
    let outcome = fixture.apply(&objects).await;
    assert_eq!(outcome.error, None);
    assert!(fixture.get(&fixture.core("configmaps", "never")).await.is_err());

    for name in ["plain", "merge", "once", "off"] {
        edit(&fixture, name, "kubectl-edit", json!({"k": "edited", "added": "x"})).await?;
    }
    let off = json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}}});
    let path = fixture.core("configmaps", "off");
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&off)).await?;

    let outcome = fixture.apply_after(&outcome.inventory, &objects).await;
    assert_eq!(outcome.error, None);
    assert_eq!(
        actions(&outcome),
        [
            "ConfigMap/merge configured",
            "ConfigMap/never skipped",
            "ConfigMap/off skipped",
            "ConfigMap/once skipped",
            "ConfigMap/plain configured",
        ]
    );
    for (name, data) in [
        ("plain", json!({"k": "1"})),
        ("merge", json!({"k": "1", "added": "x"})),
        ("once", json!({"k": "edited", "added": "x"})),
        ("off", json!({"k": "edited", "added": "x"})),
    ] {
        assert_eq!(fixture.get(&fixture.core("configmaps", name)).await?["data"], data, "{name}");
    }
    let outcome = fixture.apply_after(&outcome.inventory, &objects[..2]).await;
    assert!(outcome.changes.iter().all(|change| change.action == Action::Unchanged), "{:?}", outcome.changes);
    Ok(())
}

#[tokio::test]
async fn an_object_of_kubectl_is_taken_over() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut before = config_map("a", "1");
    before["data"]["old"] = json!("x");
    before["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let collection = fixture.core("configmaps", "");
    let path = format!("{}?fieldManager=kubectl-client-side-apply", collection.trim_end_matches('/'));
    fixture.request("POST", &path, Some(&before)).await?;
    let outcome = fixture.apply(&[config_map("a", "1")]).await;
    assert_eq!(only_action(&outcome), Action::Adopted);
    let live = fixture.get(&fixture.core("configmaps", "a")).await?;
    assert_eq!(live["data"], json!({"k": "1"}));
    assert_eq!(live["metadata"].get("annotations"), None);
    let outcome = fixture.apply(&[config_map("a", "1")]).await;
    assert_eq!(only_action(&outcome), Action::Unchanged);
    Ok(())
}

#[tokio::test]
async fn an_immutable_field_is_an_error_unless_forced() -> Result<()> {
    let fixture = Fixture::new().await?;
    let fixed = |value: &str| {
        let mut object = config_map("fixed", value);
        object["immutable"] = json!(true);
        object
    };
    assert_eq!(only_action(&fixture.apply(&[fixed("1")]).await), Action::Created);
    let before = fixture.get(&fixture.core("configmaps", "fixed")).await?;
    let error = fixture.apply(&[fixed("2")]).await.error.expect("an error");
    assert!(
        matches!(&error, Error::Objects { causes, .. } if causes[0].first.kind == FailureKind::Immutable),
        "{error}"
    );
    let outcome = fixture.apply(&[annotated(fixed("2"), "force", "enabled")]).await;
    assert_eq!(only_action(&outcome), Action::Recreated);
    let after = fixture.get(&fixture.core("configmaps", "fixed")).await?;
    assert_eq!(after["data"]["k"], json!("2"));
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    Ok(())
}

#[tokio::test]
async fn a_secrets_values_are_told_nowhere() -> Result<()> {
    let fixture = Fixture::new().await?;
    for data in [
        json!({"k": 1234567, "a": "aHVudGVyMg=="}),
        json!({"k": "hunter2!!"}),
        json!({"bad key hunter2": "aHVudGVyMg=="}),
    ] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data});
        let prepared = fixture.prepare(std::slice::from_ref(&secret)).await?;
        let outcome = fixture.apply(&[secret]).await;
        let error = outcome.error.clone().expect("an error");
        for text in [error.to_string(), format!("{outcome:?}"), format!("{prepared:?}")] {
            assert!(
                !text.contains("1234567") && !text.contains("hunter2!!") && !text.contains("aHVudGVyMg"),
                "{text}"
            );
        }
        assert!(error.to_string().contains("Secret/"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn health_is_waited_for_and_told() -> Result<()> {
    let fixture = Fixture::new().await?;
    let slow = json!({"devcluster.roadstead.dev/ready-after": "2s"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}}}});
    let objects = [deployment("slow", 2, &slow), job, config_map("a", "1")];
    let outcome = fixture.apply(&objects).await;
    assert_eq!(outcome.error, None);
    let mut told = Vec::new();
    let mut events = |event| told.push(event);
    let mut run = Run::new(Instant::now() + Duration::from_secs(60), fixture.cancel.clone(), &mut events);
    fixture.requests();
    let waited = fixture.engine.wait(&outcome.inventory, &mut run).await;
    assert_eq!(waited.error, None);
    assert_eq!(waited.health.len(), 3);
    assert!(waited.health.iter().all(|(_, health)| health.status == Status::Current), "{:?}", waited.health);
    assert!(told.len() >= 4, "the Deployment was seen on its way: {told:?}");
    let requests = fixture.requests();
    assert!(requests.len() <= 6, "one look each and a watch for those that are not there yet: {requests:?}");
    Ok(())
}

#[tokio::test]
async fn what_does_not_become_healthy_is_named() -> Result<()> {
    let fixture = Fixture::new().await?;
    let stuck = json!({"devcluster.roadstead.dev/never-ready": "ImagePullBackOff"});
    let outcome = fixture.apply(&[deployment("stuck", 1, &stuck), config_map("a", "1")]).await;
    let mut missing = outcome.inventory[0].clone();
    missing.name = "missing".to_owned();
    let mut objects = outcome.inventory.clone();
    objects.push(missing);
    let waited = fixture.wait(&objects, Duration::from_secs(4)).await;
    let namespace = &fixture.namespace;
    assert_eq!(
        waited.error.expect("an error").to_string(),
        format!(
            "timed out waiting for: ConfigMap/{namespace}/missing status: 'NotFound' (not found); \
             Deployment/{namespace}/stuck status: 'InProgress' (Available: 0/1)"
        )
    );
    Ok(())
}

#[tokio::test]
async fn a_failure_ends_the_wait_early() -> Result<()> {
    let fixture = Fixture::new().await?;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"}, "spec": {"backoffLimit": 0,
        "template": {"metadata": {"annotations": {"devcluster.roadstead.dev/fail": "true"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}}}});
    let stuck = json!({"devcluster.roadstead.dev/never-ready": "ImagePullBackOff"});
    let outcome = fixture.apply(&[job, deployment("stuck", 1, &stuck)]).await;
    let began = Instant::now();
    let waited = fixture.wait(&outcome.inventory, Duration::from_secs(60)).await;
    assert!(began.elapsed() < Duration::from_secs(40), "it did not wait for the timeout");
    let text = waited.error.expect("an error").to_string();
    let wanted = format!("failed: Job/{}/bad status: 'Failed' (Job Failed. failed: 1", fixture.namespace);
    assert!(text.starts_with(&wanted) && text.contains("/stuck status: 'InProgress'"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_cancelled_run_stops() -> Result<()> {
    let fixture = Fixture::new().await?;
    let prepared = fixture.prepare(&[config_map("a", "1")]).await?;
    let cancel = fixture.cancel.clone();
    let mut events = |_| cancel.cancel();
    let mut run = Run::new(Instant::now() + Duration::from_secs(30), fixture.cancel.clone(), &mut events);
    let outcome = fixture.engine.apply(&prepared, &[], &mut run).await;
    assert_eq!(
        outcome.error,
        Some(Error::Cancelled { stage: Stage::Apply }),
        "after the dry-run, before the write"
    );
    assert!(outcome.inventory.is_empty());
    let waited = fixture.wait(&prepared.objects(), Duration::from_secs(30)).await;
    assert_eq!(waited.error, Some(Error::Cancelled { stage: Stage::Wait }));
    Ok(())
}

#[tokio::test]
async fn deletion_can_be_waited_for() -> Result<()> {
    let fixture = Fixture::new().await?;
    let mut held = config_map("held", "1");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let outcome = fixture.apply(&[held, config_map("free", "1")]).await;
    assert_eq!(fixture.prune(&outcome.inventory, &[]).await.error, None);
    let engine: Engine = fixture.engine.clone();
    let (cancel, inventory) = (fixture.cancel.clone(), outcome.inventory.clone());
    let waiting = tokio::spawn(async move {
        let mut events = |_| ();
        let mut run = Run::new(Instant::now() + Duration::from_secs(30), cancel, &mut events);
        engine.wait_terminated(&inventory, &mut run).await
    });
    let release = json!({"metadata": {"finalizers": null}});
    let path = fixture.core("configmaps", "held");
    assert!(fixture.get(&path).await?["metadata"]["deletionTimestamp"].is_string());
    fixture.request_as("PATCH", &path, "application/merge-patch+json", Some(&release)).await?;
    assert_eq!(waiting.await?.error, None);
    Ok(())
}

#[tokio::test]
async fn an_apiserver_in_trouble_is_asked_again() -> Result<()> {
    let trouble =
        vec![StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS];
    let fixture = Fixture::failing(Options::default(), trouble).await?;
    assert_eq!(only_action(&fixture.apply(&[config_map("a", "1")]).await), Action::Created);
    assert_eq!(fixture.requests().len(), 3 + 3, "three that failed; discovery, dry-run and write");

    // For ever is too long: within its time it says so.
    let options = Options { retry_for: Duration::from_secs(1), ..Options::default() };
    let fixture = Fixture::failing(options, vec![StatusCode::SERVICE_UNAVAILABLE; 1000]).await?;
    let error = fixture.prepare(&[config_map("a", "1")]).await.expect_err("an error");
    assert!(error.to_string().contains("the apiserver is not available"), "{error}");
    let requests = fixture.requests().len();
    assert!((2..20).contains(&requests), "it backs off: {requests} requests");
    Ok(())
}
