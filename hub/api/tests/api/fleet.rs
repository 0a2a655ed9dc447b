//! The fleet views over HTTP.

use std::time::Duration;

use crate::support::{Replica, Site, client};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use roadstead_model::{Action, ObjectRef, ObjectResult};
use serde_json::{Value, json};
use sqlx::types::Json;

pub(crate) async fn get(replica: &Replica, path: &str) -> Result<Value> {
    let request = client(replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    Ok(request.send().await?.error_for_status()?.json().await?)
}

pub(crate) const OBJECTS: &str = r#"
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Cluster
metadata: {name: edge-1, labels: {region: north}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web}
spec: {interval: 5m, prune: true, clusterRef: {name: edge-1}, sourceRef: {kind: GitRepository, name: web}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: db}
spec: {interval: 5m, prune: true, suspend: true, clusterRef: {name: edge-1}, sourceRef: {kind: GitRepository, name: web}}
"#;

/// What an agent would have left: three objects that `web` owns, and three attempts, of which the last corrected drift.
pub(crate) async fn history(site: &Site, replica: &Replica) -> Result<()> {
    let uid = |object: Value| -> Result<sqlx::types::Uuid> {
        Ok(object["metadata"]["uid"].as_str().context("a uid")?.parse()?)
    };
    let cluster = uid(replica.kubectl.get(&["cluster", "edge-1"]).await?)?;
    let web = uid(replica.kubectl.get(&["ks", "web"]).await?)?;
    let mut database = site.database.connect().await?;
    for (kind, name) in [("ConfigMap", "web-settings"), ("Deployment", "web"), ("Deployment", "web_x")] {
        sqlx::query(
            "INSERT INTO inventory (cluster_uid, api_group, kind, namespace, name, version, applier, intended) \
             VALUES ($1, $2, $3, 'prod', $4, 'v1', $5, false)",
        )
        .bind(cluster)
        .bind(if kind == "Deployment" { "apps" } else { "" })
        .bind(kind)
        .bind(name)
        .bind(web)
        .execute(&mut database)
        .await?;
    }
    for (name, labels) in [("web", json!({ "app": "web", "tier": "1" })), ("web_x", json!({ "app": "web" }))]
    {
        let label = "UPDATE inventory SET labels = $2 WHERE name = $1";
        sqlx::query(label).bind(name).bind(labels).execute(&mut database).await?;
    }
    let object = ObjectRef {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: "prod".to_owned(),
        name: "web".to_owned(),
    };
    let result = |action| ObjectResult::new(object.clone(), action);
    for (attempt, action, reason, build) in [
        (1_i64, Action::Created, "ReconciliationSucceeded", [1_u8; 32]),
        (2, Action::Unchanged, "HealthCheckFailed", [1; 32]),
        (3, Action::Configured, "ReconciliationSucceeded", [1; 32]),
        (4, Action::Configured, "ReconciliationSucceeded", [2; 32]),
    ] {
        sqlx::query(
            "INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, build_digest, deletes, \
             started_at, deadline, finished_at, reason, message, change_set) \
             VALUES ($1, $2, $3, 1, 1, $4, false, now() - interval '1 hour' + $2 * interval '1 minute', now(), \
             now() - interval '1 hour' + $2 * interval '61 seconds', $5, 'as it was told', $6)",
        )
        .bind(web)
        .bind(attempt)
        .bind(cluster)
        .bind(build.as_slice())
        .bind(reason)
        .bind(Json(vec![result(action)]))
        .execute(&mut database)
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn objects_are_found_with_their_health() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    history(&site, &replica).await?;
    let mut database = site.database.connect().await?;
    let health = async || -> Result<Vec<Value>> {
        let found = get(&replica, "/fleet/v1/inventory?kind=Deployment").await?;
        Ok(found["items"].as_array().context("items")?.iter().map(|item| item["health"].clone()).collect())
    };
    assert_eq!(health().await?, [Value::Null, Value::Null], "applied, and not waited for");
    // What the newest attempt that waited was told, also where a later one did not wait.
    let told = "UPDATE reconciliation SET health = $1 WHERE attempt = $2";
    let older = json!({ "Deployment/prod/web": "Failed: no", "Deployment/prod/web_x": "Failed: no" });
    sqlx::query(told).bind(older).bind(1_i64).execute(&mut database).await?;
    let newer = json!({ "Deployment/prod/web": "InProgress: Available: 1/2" });
    sqlx::query(told).bind(newer).bind(3_i64).execute(&mut database).await?;
    assert_eq!(health().await?, [json!("InProgress: Available: 1/2"), Value::Null]);
    sqlx::query("UPDATE reconciliation SET reason = 'ReconciliationFailed' WHERE attempt = 4")
        .execute(&mut database)
        .await?;
    assert_eq!(health().await?, [json!("InProgress: Available: 1/2"), json!("Unknown")]);
    sqlx::query("UPDATE reconciliation SET reason = 'ReconciliationSucceeded' WHERE attempt = 4")
        .execute(&mut database)
        .await?;
    replica.kubectl.run(&["patch", "ks", "web", "--type=merge", "-p", r#"{"spec":{"wait":true}}"#]).await?;
    assert_eq!(health().await?, [json!("InProgress: Available: 1/2"), json!("Current")]);
    Ok(())
}

#[tokio::test]
async fn what_spans_clusters() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    history(&site, &replica).await?;

    let clusters = get(&replica, "/fleet/v1/clusters").await?;
    let edge = &clusters["items"][0];
    assert_eq!((&edge["name"], &edge["labels"]["region"]), (&json!("edge-1"), &json!("north")));
    assert_eq!((&edge["objects"], &edge["ready"]["reason"]), (&json!(3), &json!("AwaitingAgent")));
    assert_eq!(edge["appliers"], json!({ "Suspended": 1, "Unknown": 1 }));
    assert_eq!((&edge["failing"], edge.get("connection")), (&json!([]), None));

    let health = get(&replica, "/fleet/v1/health").await?;
    let of = |kind: &str| -> Vec<Value> {
        let items = health["items"].as_array().into_iter().flatten();
        items.filter(|item| item["kind"] == kind).cloned().collect()
    };
    assert_eq!(of("Kustomization").len(), 2, "{health:#}");
    assert_eq!(of("Cluster")[0]["ready"], "False");

    // Names are matched as they are: `_` and `%` are not wildcards.
    for (query, want) in [
        ("", vec!["web-settings", "web", "web_x"]),
        ("?kind=Deployment", vec!["web", "web_x"]),
        ("?name=b_", vec!["web_x"]),
        ("?name=%25", vec![]),
        ("?cluster=edge-1&kustomization=web&namespace=prod&name=settings", vec!["web-settings"]),
        (
            "?applierKind=Kustomization&applierNamespace=default&applier=web",
            vec!["web-settings", "web", "web_x"],
        ),
        ("?kustomizationNamespace=default&kind=ConfigMap", vec!["web-settings"]),
        ("?applier=db", vec![]),
        ("?applierNamespace=other", vec![]),
        ("?kustomization=db", vec![]),
        ("?cluster=other", vec![]),
        ("?labels=app=web,tier", vec!["web"]),
        ("?labels=app%3Dweb", vec!["web", "web_x"]),
        ("?labels=app=web,none", vec![]),
        ("?name='%20OR%201=1%20--", vec![]),
    ] {
        let found = get(&replica, &format!("/fleet/v1/inventory{query}")).await?;
        let items = found["items"].as_array().context("items")?;
        let names: Vec<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
        assert_eq!(names, want, "{query}");
    }
    let mut names = Vec::new();
    let mut next = String::new();
    loop {
        let page = get(&replica, &format!("/fleet/v1/inventory?limit=1&continue={next}")).await?;
        names.extend(page["items"].as_array().context("items")?.iter().map(|item| item["name"].clone()));
        match page["continue"].as_str() {
            Some(more) => next = more.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["web-settings", "web", "web_x"]);

    let owner = json!({ "kind": "Kustomization", "namespace": "default", "name": "web" });
    let found = get(&replica, "/fleet/v1/inventory?limit=1").await?;
    assert_eq!(found["items"][0]["applier"], owner);

    let attempts = |page: &Value| -> Vec<i64> {
        page["items"].as_array().into_iter().flatten().filter_map(|item| item["attempt"].as_i64()).collect()
    };
    let all = get(&replica, "/fleet/v1/reconciliations").await?;
    assert_eq!(attempts(&all), [4, 3, 2, 1]);
    assert_eq!((&all["items"][3]["counts"], &all["items"][3]["applier"]), (&json!({ "created": 1 }), &owner));
    let before = all["items"][1]["started"].as_str().context("a time")?;
    let older = get(&replica, &format!("/fleet/v1/reconciliations?limit=1&before={before}")).await?;
    assert_eq!(attempts(&older), [2]);
    assert_eq!(attempts(&get(&replica, "/fleet/v1/reconciliations?failed=true").await?), [2]);
    // The fourth wrote because the build was another one.
    let drift = get(&replica, "/fleet/v1/drift").await?;
    assert_eq!(attempts(&drift), [3]);
    assert_eq!(drift["items"][0]["changed"][0]["object"]["name"], "web");
    for (query, want) in [
        ("applierKind=Kustomization", vec![3]),
        ("applierNamespace=default&applier=web", vec![3]),
        ("namespace=default", vec![3]),
        ("kustomizationNamespace=default&kustomization=web", vec![3]),
        ("applier=db", vec![]),
        ("namespace=other", vec![]),
        ("kustomization=db", vec![]),
    ] {
        assert_eq!(attempts(&get(&replica, &format!("/fleet/v1/drift?{query}")).await?), want, "{query}");
        let failed = get(&replica, &format!("/fleet/v1/reconciliations?failed=true&{query}")).await?;
        assert_eq!(attempts(&failed).len(), want.len(), "{query}");
    }

    let document = get(&replica, "/fleet/v1/openapi.json").await?;
    for path in [
        "clusters",
        "health",
        "appliers",
        "appliers/{kind}/{namespace}/{name}/reconciliations",
        "kustomizations",
        "namespaces/{namespace}/kustomizations/{name}/reconciliations",
        "events",
        "inventory",
        "reconciliations",
        "drift",
        "deliveries",
        "incidents",
        "changes",
    ] {
        assert!(document["paths"].get(format!("/fleet/v1/{path}")).is_some(), "{path}");
    }
    for bad in [
        "/fleet/v1/inventory?continue=x",
        "/fleet/v1/drift?before=x",
        "/fleet/v1/events?before=x",
        "/fleet/v1/inventory?labels=!a",
        "/fleet/v1/kustomizations?continue=x",
        "/fleet/v1/appliers?continue=x",
        "/fleet/v1/appliers?kind=a%00",
        "/fleet/v1/inventory?applier=a%00",
        "/fleet/v1/clusters?names=a%00",
        "/fleet/v1/inventory?limit=-1",
        "/fleet/v1/changes?resourceVersion=x",
    ] {
        let request = client(&replica)?.get(format!("{}{bad}", replica.url)).bearer_auth(&replica.token);
        assert_eq!(request.send().await?.status(), 400, "{bad}");
    }
    Ok(())
}

/// A second cluster, by whose kubeconfig a Kustomization chooses it.
const BY_KUBECONFIG: &str = r#"
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Cluster
metadata: {name: edge-2}
spec: {kubeConfig: {secretRef: {namespace: default, name: edge-2-kubeconfig}}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: remote, labels: {team: web}}
spec:
  interval: 5m
  prune: true
  path: ./deploy
  kubeConfig: {secretRef: {name: edge-2-kubeconfig}}
  sourceRef: {kind: GitRepository, name: other}
"#;

#[tokio::test]
async fn what_the_dashboard_lists() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    replica.kubectl.apply(BY_KUBECONFIG).await?;
    history(&site, &replica).await?;
    let mut database = site.database.connect().await?;
    sqlx::query(
        "UPDATE resource SET object = jsonb_set(object, '{status}', '{\"conditions\": [{\"type\": \"Ready\", \"status\": \
         \"False\", \"reason\": \"BuildFailed\", \"message\": \"no such file\", \"lastTransitionTime\": \
         \"2026-01-02T03:04:05Z\"}]}') WHERE kind = 'Kustomization' AND name IN ('web', 'remote')",
    )
    .execute(&mut database)
    .await?;
    sqlx::query(
        "INSERT INTO agent_session (cluster_uid, session, replica, agent_version, kubernetes_version, disconnected_at) \
         SELECT uid, gen_random_uuid(), gen_random_uuid(), '1', '2', CASE name WHEN 'edge-1' THEN now() END \
         FROM resource WHERE kind = 'Cluster'",
    )
    .execute(&mut database)
    .await?;

    let all = get(&replica, "/fleet/v1/clusters").await?;
    let some = get(&replica, "/fleet/v1/clusters?names=edge-2,edge-1,none").await?;
    for clusters in [&all, &some] {
        let items = clusters["items"].as_array().context("items")?;
        assert_eq!(items.len(), 2, "{clusters:#}");
        let of = |name: &str| items.iter().find(|item| item["name"] == name).context("a cluster");
        let (first, second) = (of("edge-1")?, of("edge-2")?);
        let failing = json!([{ "reason": "BuildFailed", "count": 1, "since": "2026-01-02T03:04:05Z" }]);
        assert_eq!((&first["failing"], &second["failing"]), (&failing, &failing));
        assert_eq!(first["appliers"], json!({ "False": 1, "Suspended": 1 }));
        assert_eq!(second["appliers"], json!({ "False": 1 }));
        assert_eq!((&first["objects"], &second["objects"]), (&json!(3), &json!(0)));
        assert_eq!(
            (&first["connection"]["connected"], &second["connection"]["connected"]),
            (&json!(false), &json!(true))
        );
    }

    for (query, want) in [
        ("", vec!["db", "remote", "web"]),
        ("?cluster=edge-2", vec!["remote"]),
        ("?state=False", vec!["remote", "web"]),
        ("?state=Suspended", vec!["db"]),
        ("?state=True", vec![]),
        ("?name=e", vec!["remote", "web"]),
        ("?namespace=other", vec![]),
        ("?sourceKind=GitRepository&source=web&sourceNamespace=default", vec!["db", "web"]),
    ] {
        let found = get(&replica, &format!("/fleet/v1/appliers{query}")).await?;
        let items = found["items"].as_array().context("items")?;
        let names: Vec<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
        assert_eq!(names, want, "{query}");
    }
    let page = get(&replica, "/fleet/v1/appliers?limit=2").await?;
    let rest = page["continue"].as_str().context("a next page")?;
    let rest = get(&replica, &format!("/fleet/v1/appliers?limit=2&continue={rest}")).await?;
    assert_eq!((rest["items"][0]["name"].as_str(), rest.get("continue")), (Some("web"), None));
    let remote = &page["items"][1];
    assert_eq!(remote["source"], json!({ "kind": "GitRepository", "namespace": "default", "name": "other" }));
    assert_eq!(remote["sources"], json!([remote["source"]]));
    assert_eq!(
        (&remote["kind"], &remote["apiVersion"], &remote["resource"]),
        (&json!("Kustomization"), &json!("kustomize.toolkit.fluxcd.io/v1"), &json!("kustomizations"))
    );
    assert_eq!((&remote["cluster"], &remote["path"]), (&json!("edge-2"), &json!("./deploy")));
    assert_eq!(
        (&remote["labels"]["team"], &remote["ready"]["message"]),
        (&json!("web"), &json!("no such file"))
    );
    Ok(())
}

/// Sources of several kinds, of which two have been fetched.
const SOURCES: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: web, namespace: default, labels: {team: web}}
spec: {interval: 5m, url: "https://git.example.com/web"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: web, namespace: default}
spec: {interval: 5m, suspend: true, provider: generic, endpoint: "s3.example.com/", bucketName: web}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: other}
spec: {interval: 5m, url: "https://charts.example.com"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: nginx, namespace: other}
spec: {interval: 5m, chart: nginx, sourceRef: {kind: HelmRepository, name: charts}}
"#;

#[tokio::test]
async fn sources_of_all_kinds_are_one_list() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(SOURCES).await?;
    let status = json!({
        "artifact": { "revision": "main@sha1:1234", "lastUpdateTime": "2026-01-02T03:04:05Z" },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored" }],
    });
    sqlx::query(
        "UPDATE resource SET object = jsonb_set(object, '{status}', $1) WHERE kind = 'GitRepository'",
    )
    .bind(&status)
    .execute(&mut site.database.connect().await?)
    .await?;
    for (query, want) in [
        ("", vec!["Bucket web", "GitRepository web", "HelmRepository charts", "HelmChart nginx"]),
        ("?kind=HelmChart", vec!["HelmChart nginx"]),
        ("?namespace=other", vec!["HelmRepository charts", "HelmChart nginx"]),
        ("?name=ar", vec!["HelmRepository charts"]),
        ("?state=Suspended", vec!["Bucket web"]),
        ("?state=True", vec!["GitRepository web"]),
        ("?state=Unknown&namespace=default", vec![]),
    ] {
        let found = get(&replica, &format!("/fleet/v1/sources{query}")).await?;
        let items = found["items"].as_array().context("items")?;
        let names: Vec<String> = items
            .iter()
            .filter_map(|item| Some(format!("{} {}", item["kind"].as_str()?, item["name"].as_str()?)))
            .collect();
        assert_eq!(names, want, "{query}");
    }
    // Page by page, none twice.
    let (mut path, mut all) = ("/fleet/v1/sources?limit=1".to_owned(), Vec::new());
    loop {
        let page = get(&replica, &path).await?;
        all.extend(page["items"].as_array().context("items")?.clone());
        let Some(next) = page["continue"].as_str() else { break };
        path = format!("/fleet/v1/sources?limit=1&continue={next}");
    }
    assert_eq!(all.len(), 4, "{all:#?}");
    assert_eq!(all[0]["address"], "s3.example.com/web");
    let mut git = all[1].clone();
    assert_eq!(git["ready"]["message"], "stored");
    git["ready"] = json!({});
    assert_eq!(
        git,
        json!({
            "kind": "GitRepository", "apiVersion": "source.toolkit.fluxcd.io/v1", "resource": "gitrepositories",
            "namespace": "default", "name": "web", "labels": { "team": "web" }, "address": "https://git.example.com/web",
            "revision": "main@sha1:1234", "fetched": "2026-01-02T03:04:05Z", "suspended": false, "ready": {},
        })
    );
    let unknown = get(&replica, "/fleet/v1/sources?kind=Kustomization").await.unwrap_err();
    assert!(unknown.to_string().contains("404"), "{unknown}");
    Ok(())
}

#[tokio::test]
async fn older_paths_answer_as_those_of_appliers_do() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    replica.kubectl.apply(BY_KUBECONFIG).await?;
    history(&site, &replica).await?;
    let list = "/fleet/v1/kustomizations";
    let one = "/fleet/v1/namespaces/default/kustomizations/web/reconciliations";
    for (older, newer, want) in [
        (list.to_owned(), "/fleet/v1/appliers?kind=Kustomization".to_owned(), 3),
        (
            format!("{list}?state=Suspended"),
            "/fleet/v1/appliers?kind=Kustomization&state=Suspended".to_owned(),
            1,
        ),
        (format!("{list}?limit=2"), "/fleet/v1/appliers?kind=Kustomization&limit=2".to_owned(), 2),
        (one.to_owned(), "/fleet/v1/appliers/Kustomization/default/web/reconciliations".to_owned(), 4),
        (
            format!("{one}?limit=2&changedOnly=true"),
            "/fleet/v1/appliers/Kustomization/default/web/reconciliations?limit=2&changedOnly=true"
                .to_owned(),
            2,
        ),
    ] {
        let (older_answer, newer_answer) = (get(&replica, &older).await?, get(&replica, &newer).await?);
        assert_eq!(older_answer, newer_answer, "{older}");
        assert_eq!(older_answer["items"].as_array().map(Vec::len), Some(want), "{older}");
    }
    // A page of the older path goes on where the newer one would.
    let key = get(&replica, "/fleet/v1/appliers?limit=1").await?["continue"].clone();
    let rest = get(&replica, &format!("{list}?continue={}", key.as_str().context("a next page")?)).await?;
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(2));
    Ok(())
}

/// Appliers of another kind, which debug builds have for tests. One has a Kustomization's name.
const OTHER_KIND: &str = r#"
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Rehearsal
metadata: {name: web}
spec:
  interval: 5m
  prune: true
  targetNamespace: prod
  clusterRef: {name: edge-1}
  firstSourceRef: {kind: GitRepository, name: web}
  secondSourceRef: {kind: GitRepository, namespace: infra, name: parts}
---
apiVersion: fleet.roadstead.dev/v1alpha1
kind: Rehearsal
metadata: {name: last}
spec:
  interval: 5m
  suspend: true
  targetNamespace: prod
  clusterRef: {name: edge-1}
  firstSourceRef: {kind: GitRepository, name: web}
  secondSourceRef: {kind: GitRepository, name: web}
"#;

#[tokio::test]
async fn appliers_of_several_kinds_are_told_apart() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    replica.kubectl.apply(OTHER_KIND).await?;
    history(&site, &replica).await?;
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().into_iter().flatten();
        items.map(|item| format!("{}/{}", item["name"], item["kind"]).replace('"', "")).collect()
    };
    let all = ["db/Kustomization", "last/Rehearsal", "web/Kustomization", "web/Rehearsal"];
    for size in 1..=5 {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let page = get(&replica, &format!("/fleet/v1/appliers?limit={size}&continue={next}")).await?;
            found.extend(names(&page));
            match page["continue"].as_str() {
                Some(more) => next = more.to_owned(),
                None => break,
            }
        }
        assert_eq!(found, all, "pages of {size}");
    }
    for (query, want) in [
        ("kind=Rehearsal", [all[1], all[3]].as_slice()),
        ("kind=Kustomization", &[all[0], all[2]]),
        ("name=web", &[all[2], all[3]]),
        ("state=Suspended", &[all[0], all[1]]),
        ("source=web&sourceKind=GitRepository&sourceNamespace=default", &all),
        ("source=parts&sourceNamespace=infra", &[all[3]]),
        ("source=parts&sourceNamespace=default", &[]),
    ] {
        assert_eq!(names(&get(&replica, &format!("/fleet/v1/appliers?{query}")).await?), want, "{query}");
    }
    assert_eq!(names(&get(&replica, "/fleet/v1/kustomizations").await?), [all[0], all[2]]);
    let of_two = &get(&replica, "/fleet/v1/appliers?kind=Rehearsal&name=web").await?["items"][0];
    let source = |namespace: &str, name: &str| json!({ "kind": "GitRepository", "namespace": namespace, "name": name });
    assert_eq!(of_two["sources"], json!([source("default", "web"), source("infra", "parts")]));
    assert_eq!(
        (&of_two["apiVersion"], &of_two["resource"], &of_two["path"], &of_two["cluster"]),
        (&json!("fleet.roadstead.dev/v1alpha1"), &json!("rehearsals"), &json!(""), &json!("edge-1"))
    );

    // Each has a history of its own, and the cluster counts both.
    let attempts = async |kind: &str| -> Result<Option<usize>> {
        let path = format!("/fleet/v1/appliers/{kind}/default/web/reconciliations");
        Ok(get(&replica, &path).await?["items"].as_array().map(Vec::len))
    };
    assert_eq!((attempts("Kustomization").await?, attempts("Rehearsal").await?), (Some(4), Some(0)));
    let clusters = get(&replica, "/fleet/v1/clusters?names=edge-1").await?;
    assert_eq!(clusters["items"][0]["appliers"], json!({ "Suspended": 2, "Unknown": 2 }));

    // An object goes over to the other applier of the name.
    let mut database = site.database.connect().await?;
    let moved = "UPDATE inventory SET applier = (SELECT uid FROM resource WHERE kind = 'Rehearsal' AND name = 'web') \
                 WHERE name = 'web_x'";
    ensure!(sqlx::query(moved).execute(&mut database).await?.rows_affected() == 1);
    for (query, want) in [
        ("applier=web", vec!["web-settings", "web", "web_x"]),
        ("applier=web&applierKind=Rehearsal", vec!["web_x"]),
        ("applierKind=Kustomization", vec!["web-settings", "web"]),
        ("kustomization=web", vec!["web-settings", "web"]),
        ("kustomizationNamespace=default", vec!["web-settings", "web"]),
    ] {
        let found = get(&replica, &format!("/fleet/v1/inventory?{query}")).await?;
        let items = found["items"].as_array().context("items")?;
        let names: Vec<&str> = items.iter().filter_map(|item| item["name"].as_str()).collect();
        assert_eq!(names, want, "{query}");
    }
    let found = get(&replica, "/fleet/v1/inventory?name=web_x").await?;
    let owner = json!({ "kind": "Rehearsal", "namespace": "default", "name": "web" });
    assert_eq!(found["items"][0]["applier"], owner);
    let of_other = get(&replica, "/fleet/v1/reconciliations?applierKind=Rehearsal").await?;
    assert_eq!(of_other["items"], json!([]));
    Ok(())
}

#[tokio::test]
async fn what_is_not_a_kind_of_applier_is_not_found() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    for path in [
        "/fleet/v1/appliers?kind=Nothing",
        // Kinds that are served, and do not deploy.
        "/fleet/v1/appliers?kind=GitRepository",
        "/fleet/v1/appliers?kind=Secret",
        "/fleet/v1/appliers?kind=kustomization",
        "/fleet/v1/appliers/Nothing/default/web/reconciliations",
        "/fleet/v1/appliers/Cluster/default/edge-1/reconciliations",
        "/fleet/v1/inventory?applierKind=Nothing",
        "/fleet/v1/reconciliations?applierKind=GitRepository",
        "/fleet/v1/drift?applierKind=Nothing",
        // An object that is not there, and a path that leads nowhere.
        "/fleet/v1/appliers/Kustomization/default/none/reconciliations",
        "/fleet/v1/appliers/Kustomization/default/web",
    ] {
        let request = client(&replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
        let answer = request.send().await?;
        assert_eq!(answer.status(), 404, "{path}");
        let status: Value = answer.json().await?;
        assert_eq!(status["kind"], "Status", "{path}: {status}");
    }
    let token = replica.hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    for path in [
        "/fleet/v1/appliers",
        "/fleet/v1/appliers?kind=Kustomization",
        "/fleet/v1/kustomizations",
        "/fleet/v1/appliers/Kustomization/default/web/reconciliations",
        "/fleet/v1/namespaces/default/kustomizations/web/reconciliations",
    ] {
        let request = client(&replica)?.get(format!("{}{path}", replica.url)).bearer_auth(token.expose());
        assert_eq!(request.send().await?.status(), 403, "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn events_the_newest_first() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    for (name, type_, minute) in [("web.1", "Normal", 1), ("web.2", "Warning", 3), ("db.1", "Normal", 2)] {
        let (about, _) = name.split_once('.').context("a name")?;
        let at = format!("2026-01-02T03:0{minute}:00Z");
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name }, "type": type_, "reason": "Told",
            "involvedObject": { "kind": "Kustomization", "namespace": "default", "name": about },
            "message": format!("{name} <b>"), "firstTimestamp": at, "lastTimestamp": at, "count": minute,
        });
        replica.kubectl.apply(&event.to_string()).await?;
    }
    for (query, want) in [
        ("", vec!["web.2 <b>", "db.1 <b>", "web.1 <b>"]),
        ("?limit=1", vec!["web.2 <b>"]),
        ("?type=Warning", vec!["web.2 <b>"]),
        ("?name=db&kind=Kustomization&namespace=default", vec!["db.1 <b>"]),
        ("?kind=Cluster", vec![]),
        ("?before=2026-01-02T03:02:00Z", vec!["web.1 <b>"]),
    ] {
        let found = get(&replica, &format!("/fleet/v1/events{query}")).await?;
        let items = found["items"].as_array().context("items")?;
        let messages: Vec<&str> = items.iter().filter_map(|item| item["message"].as_str()).collect();
        assert_eq!(messages, want, "{query}");
    }
    Ok(())
}

#[tokio::test]
async fn pages_of_events_have_each_once_also_within_a_second() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    for number in 0..7 {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("web.{number}") }, "type": "Normal", "reason": "Told",
            "involvedObject": { "kind": "Kustomization", "namespace": "default", "name": "web" },
            "message": number.to_string(), "firstTimestamp": "2026-01-02T03:00:00Z", "lastTimestamp": "2026-01-02T03:00:00Z",
        });
        replica.kubectl.apply(&event.to_string()).await?;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&replica, &format!("/fleet/v1/events?name=web&limit=3&continue={after}")).await?;
        let items = page["items"].as_array().context("items")?;
        assert!(items.len() <= 3, "{page}");
        seen.extend(items.iter().filter_map(|item| item["message"].as_str().map(str::to_owned)));
        match page["continue"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5", "6"]);
    let path = format!("{}/fleet/v1/events?continue=x", replica.url);
    let request = client(&replica)?.get(path).bearer_auth(&replica.token);
    assert_eq!(request.send().await?.status(), 400);
    Ok(())
}

#[tokio::test]
async fn attempts_without_what_was_unchanged_and_with_health() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    history(&site, &replica).await?;
    let mut database = site.database.connect().await?;
    let health = json!({ "Deployment/prod/web": "InProgress: 0 of 1 replicas" });
    sqlx::query("UPDATE reconciliation SET health = $1 WHERE attempt IN (2, 3)")
        .bind(&health)
        .execute(&mut database)
        .await?;
    let path = "/fleet/v1/appliers/Kustomization/default/web/reconciliations";
    let all = get(&replica, path).await?;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(4));
    assert_eq!(all["items"][2]["changeSet"][0]["action"], "unchanged");
    // Of the newest attempt that has any.
    assert_eq!((all["items"][1].get("health"), all["items"][2].get("health")), (Some(&health), None));
    let changed = get(&replica, &format!("{path}?changedOnly=true&limit=3")).await?;
    assert_eq!(changed["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (&changed["items"][2]["changeSet"], &changed["items"][2]["counts"]["unchanged"]),
        (&json!([]), &json!(1))
    );
    Ok(())
}

/// The events of a stream until `count` changes have come: (id, data).
async fn changes(response: reqwest::Response, count: usize) -> Result<Vec<(String, Value)>> {
    let mut stream = response.bytes_stream();
    let (mut text, mut found) = (String::new(), Vec::new());
    let read = async {
        while found.len() < count {
            let piece = stream.next().await.context("the stream ended")??;
            text.push_str(std::str::from_utf8(&piece)?);
            while let Some((event, rest)) = text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                if field("event: ") == "change" {
                    found.push((field("id: ").to_owned(), serde_json::from_str(field("data: "))?));
                }
                text = rest.to_owned();
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.context("changes in time")??;
    Ok(found)
}

#[tokio::test]
async fn changes_as_they_come_and_on_any_replica() -> Result<()> {
    let site = Site::new().await?;
    let (first, second) = (site.replica().await?, site.replica().await?);
    let follow = |replica: &Replica, last: Option<&str>| {
        let client = client(replica);
        let (url, token) = (format!("{}/fleet/v1/changes", replica.url), replica.token.clone());
        let last = last.map(str::to_owned);
        async move {
            let mut request = client?.get(url).bearer_auth(token);
            if let Some(last) = last {
                request = request.header("last-event-id", last);
            }
            anyhow::Ok(request.send().await?.error_for_status()?)
        }
    };
    let stream = follow(&first, None).await?;
    second.kubectl.apply(OBJECTS).await?;
    // A Secret's change is none of the stream's.
    second.kubectl.run(&["create", "secret", "generic", "hush", "--from-literal=a=hush"]).await?;
    second.kubectl.run(&["label", "ks", "web", "a=b"]).await?;
    let seen = changes(stream, 4).await?;
    let what: Vec<String> =
        seen.iter().map(|(_, data)| format!("{} {}", data["type"], data["name"]).replace('"', "")).collect();
    assert_eq!(what, ["ADDED edge-1", "ADDED web", "ADDED db", "MODIFIED web"]);
    assert_eq!(seen[2].1["suspended"], true);
    assert_eq!((&seen[0].1["cluster"], &seen[1].1["cluster"]), (&json!("edge-1"), &json!("edge-1")));
    // Cut after the second, and taken up on the other replica.
    let again = changes(follow(&second, Some(&seen[1].0)).await?, 2).await?;
    ensure!(again == seen[2..], "{again:?}");
    let request = client(&first)?.get(format!("{}/fleet/v1/changes?resourceVersion=1", first.url));
    assert_eq!(request.bearer_auth(&first.token).send().await?.status(), 410);
    Ok(())
}
