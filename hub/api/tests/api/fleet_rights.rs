//! The fleet views show each person what they may see, and count nothing else.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::support::{Replica, Site, client};

const PATIENCE: Duration = Duration::from_secs(10);

/// Three teams, each with a Kustomization `web` and its source; two clusters.
fn objects() -> String {
    let mut text = String::new();
    for cluster in ["edge-1", "edge-2"] {
        text.push_str(&format!(
            "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {cluster}}}\n---\n"
        ));
    }
    for team in ["team-a", "team-b", "team-c"] {
        text.push_str(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {team}}}\n---\n\
             apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: web, namespace: {team}}}\n\
             spec: {{interval: 5m, url: \"https://git.example.com/{team}\"}}\n---\n\
             apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: web, namespace: {team}}}\n\
             spec: {{interval: 5m, prune: true, clusterRef: {{name: edge-1}}, sourceRef: {{kind: GitRepository, name: web}}}}\n---\n\
             apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: all, namespace: {team}}}\n\
             spec: {{providerRef: {{name: chat}}, eventSources: [{{kind: Kustomization, name: web}}], group: {{}}}}\n---\n\
             apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Silence\nmetadata: {{name: move, namespace: {team}}}\n\
             spec: {{reason: the database moves, until: \"2126-12-01T04:00:00Z\"}}\n---\n\
             apiVersion: v1\nkind: Event\nmetadata: {{name: web, namespace: {team}}}\n\
             involvedObject: {{kind: Kustomization, namespace: {team}, name: web}}\nreason: Tried\nmessage: It was tried.\n\
             type: Normal\nlastTimestamp: \"2026-01-02T03:04:05Z\"\n---\n"
        ));
    }
    text
}

/// What agents would have left: two objects of each team on `edge-1`, of which one was changed there, and an attempt; and what its Alert told
/// of that.
async fn history(site: &Site, replica: &Replica) -> Result<()> {
    let uid = |object: &Value| -> Result<sqlx::types::Uuid> {
        Ok(object["metadata"]["uid"].as_str().context("a uid")?.parse()?)
    };
    let cluster = uid(&replica.kubectl.get(&["cluster", "edge-1"]).await?)?;
    let mut database = site.database.connect().await?;
    for team in ["team-a", "team-b", "team-c"] {
        let applier = uid(&replica.kubectl.get(&["ks", "web", "-n", team]).await?)?;
        for name in ["one", "two"] {
            sqlx::query(
                "INSERT INTO inventory (cluster_uid, api_group, kind, namespace, name, version, applier, intended) \
                 VALUES ($1, '', 'ConfigMap', $2, $3, 'v1', $4, false)",
            )
            .bind(cluster)
            .bind(format!("of-{team}"))
            .bind(name)
            .bind(applier)
            .execute(&mut database)
            .await?;
        }
        sqlx::query(
            "INSERT INTO reconciliation (applier, attempt, cluster_uid, epoch, generation, deletes, started_at, deadline, \
             finished_at, reason, message, change_set) \
             VALUES ($1, 1, $2, 1, 1, false, now(), now(), now(), 'ReconciliationSucceeded', '', '[]')",
        )
        .bind(applier)
        .bind(cluster)
        .execute(&mut database)
        .await?;
        sqlx::query(
            "INSERT INTO drift (applier, cluster_uid, api_group, version, kind, namespace, name, state, missing, managers, \
             fields, message, corrections, first_seen, last_seen) \
             VALUES ($1, $2, '', 'v1', 'ConfigMap', $3, 'one', 'reported', false, '{}', '[]', '', 0, now(), now())",
        )
        .bind(applier)
        .bind(cluster)
        .bind(format!("of-{team}"))
        .execute(&mut database)
        .await?;
        let alert = uid(&replica.kubectl.get(&["alert", "all", "-n", team]).await?)?;
        let about = json!({ "involvedObject": { "kind": "Kustomization", "namespace": team, "name": "web" }, "message": "it fails" });
        sqlx::query("INSERT INTO delivery (alert, news, key, event, made_at) VALUES ($1, 1, '', $2, now())")
            .bind(alert)
            .bind(&about)
            .execute(&mut database)
            .await?;
        sqlx::query(
            "WITH opened AS (INSERT INTO incident (alert, cause, first, opened_at, look_at) VALUES ($1, '', $2, now(), now())
                             RETURNING id)
             INSERT INTO incident_member (incident, api_group, kind, namespace, name, condition, cluster, fails)
             SELECT id, 'kustomize.toolkit.fluxcd.io', 'Kustomization', $3, 'web', 'Ready', 'edge-1', true FROM opened",
        )
        .bind(alert)
        .bind(&about)
        .bind(team)
        .execute(&mut database)
        .await?;
    }
    Ok(())
}

/// `jane` may view two of the three teams; `ada` one of them, and get one of the clusters; `otto` runs the clusters; `joe` has nothing.
async fn people(replica: &Replica) -> Result<()> {
    let kubectl = &replica.kubectl;
    for (user, team) in [("jane", "team-a"), ("jane", "team-c"), ("ada", "team-a")] {
        let user_argument = format!("--user={user}");
        kubectl
            .run(&["create", "rolebinding", user, "--clusterrole=view", &user_argument, "-n", team])
            .await?;
    }
    let resource = "--resource=clusters.fleet.roadstead.dev";
    let role = ["create", "clusterrole", "edge-1", "--verb=get,watch", resource, "--resource-name=edge-1"];
    kubectl.run(&role).await?;
    kubectl.run(&["create", "clusterrolebinding", "ada", "--clusterrole=edge-1", "--user=ada"]).await?;
    let otto = ["create", "clusterrolebinding", "otto", "--clusterrole=cluster-operator", "--user=otto"];
    kubectl.run(&otto).await?;
    eventually("the last binding is known", PATIENCE, || async {
        let (code, answer) = ask(replica, "otto", "/fleet/v1/health").await?;
        ensure!(code == StatusCode::OK, "{answer}");
        Ok(())
    })
    .await
}

async fn ask(replica: &Replica, user: &str, path: &str) -> Result<(StatusCode, Value)> {
    let request = client(replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&replica.token);
    let request = if user.is_empty() { request } else { request.header("Impersonate-User", user) };
    let answer = request.send().await?;
    Ok((answer.status(), answer.json().await?))
}

async fn items(replica: &Replica, user: &str, path: &str) -> Result<Vec<Value>> {
    let (code, answer) = ask(replica, user, path).await?;
    ensure!(code == StatusCode::OK, "{user} {path}: {answer}");
    Ok(answer["items"].as_array().context("items")?.clone())
}

/// The namespaces of what a view's items are about, each once for each item.
fn teams(items: &[Value]) -> Vec<String> {
    let of = |item: &Value| {
        let pointers = ["/applier/namespace", "/object/namespace", "/namespace"];
        let found = pointers.iter().find_map(|pointer| item.pointer(pointer));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found: Vec<String> = items.iter().map(of).collect();
    found.sort();
    found
}

/// The views that have rows of namespaces: how many rows each team has there, and by which parameter one asks for one namespace.
const VIEWS: [(&str, usize, &str); 11] = [
    ("/fleet/v1/appliers", 1, "namespace"),
    ("/fleet/v1/kustomizations", 1, "namespace"),
    ("/fleet/v1/sources", 1, "namespace"),
    ("/fleet/v1/inventory", 2, "applierNamespace"),
    ("/fleet/v1/reconciliations", 1, "applierNamespace"),
    ("/fleet/v1/drift/objects", 1, "applierNamespace"),
    ("/fleet/v1/deliveries", 1, "namespace"),
    ("/fleet/v1/incidents", 1, "namespace"),
    ("/fleet/v1/silences", 1, "namespace"),
    ("/fleet/v1/events?kind=Kustomization", 1, ""),
    // The applier and its source.
    ("/fleet/v1/health", 2, ""),
];

#[tokio::test]
async fn each_view_shows_the_part_that_somebody_may_see() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(&objects()).await?;
    history(&site, &replica).await?;
    people(&replica).await?;
    for (view, each, _) in VIEWS {
        for (user, want) in [
            ("jane", &["team-a", "team-c"][..]),
            ("ada", &["team-a"]),
            ("otto", &["team-a", "team-b", "team-c"]),
            ("", &["team-a", "team-b", "team-c"]),
        ] {
            let mut found = items(&replica, user, view).await?;
            found.retain(|item| item["kind"] != "Cluster");
            let want: Vec<&str> = want.iter().flat_map(|team| vec![*team; each]).collect();
            assert_eq!(teams(&found), want, "{user} {view}: {found:#?}");
        }
        let (code, answer) = ask(&replica, "joe", view).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "joe {view}: {answer}");
    }
    // Of a namespace that one names oneself.
    for (view, _, parameter) in VIEWS.iter().filter(|(.., parameter)| !parameter.is_empty()) {
        let path = |team: &str| format!("{view}?{parameter}={team}");
        let found = items(&replica, "jane", &path("team-c")).await?;
        assert!(!found.is_empty() && teams(&found).iter().all(|team| team == "team-c"), "{view}: {found:#?}");
        let (code, answer) = ask(&replica, "jane", &path("team-b")).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{view}: {answer}");
    }
    // Views of one applier.
    for (team, want) in [("team-a", StatusCode::OK), ("team-b", StatusCode::FORBIDDEN)] {
        let path = format!("/fleet/v1/appliers/Kustomization/{team}/web/reconciliations");
        assert_eq!(ask(&replica, "jane", &path).await?.0, want, "{team}");
    }
    Ok(())
}

/// What is not shown takes no place on a page.
#[tokio::test]
async fn pages_are_full_of_what_somebody_may_see() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(&objects()).await?;
    history(&site, &replica).await?;
    people(&replica).await?;
    for (view, each) in [("/fleet/v1/appliers", 1), ("/fleet/v1/inventory", 2)] {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let (code, page) = ask(&replica, "jane", &format!("{view}?limit=1&continue={next}")).await?;
            ensure!(code == StatusCode::OK, "{page}");
            let items = page["items"].as_array().context("items")?;
            assert_eq!(items.len(), 1, "{view}: a page that is not full: {page}");
            found.extend(items.iter().cloned());
            match page["continue"].as_str() {
                Some(more) => more.clone_into(&mut next),
                None => break,
            }
        }
        let want: Vec<&str> = ["team-a", "team-c"].iter().flat_map(|team| vec![*team; each]).collect();
        assert_eq!(teams(&found), want, "{view}");
    }
    // Of the newest first there is no key: so many as may be are of what may be seen.
    assert_eq!(teams(&items(&replica, "ada", "/fleet/v1/reconciliations?limit=1").await?), ["team-a"]);
    assert_eq!(teams(&items(&replica, "ada", "/fleet/v1/drift/objects?limit=1").await?), ["team-a"]);
    assert_eq!(items(&replica, "ada", "/fleet/v1/events?limit=1&kind=Kustomization").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn clusters_are_shown_with_what_somebody_may_see_there() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(&objects()).await?;
    history(&site, &replica).await?;
    people(&replica).await?;
    let clusters = async |user: &'static str, query: &'static str| -> Result<Vec<Value>> {
        let found = items(&replica, user, &format!("/fleet/v1/clusters{query}")).await?;
        let shown = |item: &Value| json!([item["name"], item["objects"], item["appliers"]["Unknown"]]);
        Ok(found.iter().map(shown).collect())
    };
    for user in ["", "otto"] {
        for query in ["", "?names=edge-1,edge-2"] {
            let want = [json!(["edge-1", 6, 3]), json!(["edge-2", 0, null])];
            assert_eq!(clusters(user, query).await?, want, "{user} {query}");
        }
    }
    for query in ["", "?names=edge-1,edge-2", "?names=edge-1"] {
        assert_eq!(clusters("ada", query).await?, [json!(["edge-1", 2, 1])], "{query}");
    }
    assert!(clusters("ada", "?names=edge-2").await?.is_empty());
    for user in ["jane", "joe"] {
        let (code, answer) = ask(&replica, user, "/fleet/v1/clusters").await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{user}: {answer}");
    }
    // Clusters are counted for those who may see them.
    let counted = async |user: &'static str| -> Result<Vec<Value>> {
        let found = items(&replica, user, "/fleet/v1/health").await?;
        let clusters = found.into_iter().filter(|item| item["kind"] == "Cluster");
        Ok(clusters.map(|item| item["cluster"].clone()).collect())
    };
    assert_eq!(counted("jane").await?, [] as [Value; 0]);
    assert_eq!(counted("ada").await?, ["edge-1"]);
    assert_eq!(counted("otto").await?, ["edge-1", "edge-2"]);
    Ok(())
}

/// The next change that a stream tells, as `Kind namespace/name`.
async fn next(stream: &mut reqwest::Response, text: &mut String) -> Result<Option<String>> {
    loop {
        if let Some((event, rest)) = text.split_once("\n\n") {
            let data = event.lines().find_map(|line| line.strip_prefix("data:"));
            let is_change = event.lines().any(|line| line == "event: change" || line == "event:change");
            let told = data.filter(|_| is_change).map(serde_json::from_str::<Value>).transpose()?;
            let rest = rest.to_owned();
            *text = rest;
            if let Some(told) = told {
                let part = |field: &str| told[field].as_str().unwrap_or_default().to_owned();
                return Ok(Some(format!("{} {}/{}", part("kind"), part("namespace"), part("name"))));
            }
            continue;
        }
        match tokio::time::timeout(PATIENCE, stream.chunk()).await.context("nothing is told")?? {
            Some(chunk) => text.push_str(&String::from_utf8_lossy(&chunk)),
            None => return Ok(None),
        }
    }
}

#[tokio::test]
async fn a_stream_tells_what_somebody_may_see_when_it_happens() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(&objects()).await?;
    people(&replica).await?;
    let open = async |user: &'static str| -> Result<reqwest::Response> {
        let request =
            client(&replica)?.get(format!("{}/fleet/v1/changes", replica.url)).bearer_auth(&replica.token);
        Ok(request.header("Impersonate-User", user).send().await?)
    };
    assert_eq!(open("joe").await?.status(), StatusCode::FORBIDDEN);
    let (mut jane, mut ada) =
        (open("jane").await?.error_for_status()?, open("ada").await?.error_for_status()?);
    let (mut of_jane, mut of_ada) = (String::new(), String::new());
    let touch = async |what: &[&str], note: &str| {
        replica.kubectl.run(&[&["annotate", "--overwrite"], what, &[note]].concat()).await
    };
    let of = |team: &'static str| ["ks", "web", "-n", team];
    let (a, b, c) = (&of("team-a"), &of("team-b"), &of("team-c"));
    touch(b, "example.com/note=1").await?;
    touch(&["cluster", "edge-2"], "example.com/note=1").await?;
    touch(&["cluster", "edge-1"], "example.com/note=1").await?;
    touch(a, "example.com/note=1").await?;
    assert_eq!(next(&mut jane, &mut of_jane).await?.as_deref(), Some("Kustomization team-a/web"));
    assert_eq!(next(&mut ada, &mut of_ada).await?.as_deref(), Some("Cluster /edge-1"));
    assert_eq!(next(&mut ada, &mut of_ada).await?.as_deref(), Some("Kustomization team-a/web"));
    // A right that is taken away: what it was to is told no longer, and the rest goes on.
    replica.kubectl.run(&["delete", "rolebinding", "jane", "-n", "team-a"]).await?;
    eventually("it is known", PATIENCE, || async {
        let (code, _) = ask(&replica, "jane", "/fleet/v1/appliers?namespace=team-a").await?;
        ensure!(code == StatusCode::FORBIDDEN, "{code}");
        Ok(())
    })
    .await?;
    touch(a, "example.com/note=2").await?;
    touch(c, "example.com/note=2").await?;
    assert_eq!(next(&mut jane, &mut of_jane).await?.as_deref(), Some("Kustomization team-c/web"));
    // The last one: the stream ends.
    replica.kubectl.run(&["delete", "rolebinding", "jane", "-n", "team-c"]).await?;
    let taken = std::time::Instant::now();
    assert_eq!(next(&mut jane, &mut of_jane).await?, None);
    eprintln!("the stream ended {:?} after the last right was taken away", taken.elapsed());
    assert_eq!(open("jane").await?.status(), StatusCode::FORBIDDEN);
    Ok(())
}
