//! What views make of an object beyond what it says itself: that nobody has seen it lately, and what its annotations say.

use crate::fleet::{OBJECTS, get, history};
use crate::support::Site;
use anyhow::{Context as _, Result};
use serde_json::json;

#[tokio::test]
async fn what_was_not_seen_for_twice_its_interval_is_unknown() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    let often = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: often}\nspec: {interval: 1m30s, \
                 prune: true, clusterRef: {name: edge-1}, sourceRef: {kind: GitRepository, name: web}}\n";
    replica.kubectl.apply(often).await?;
    history(&site, &replica).await?;
    let mut database = site.database.connect().await?;
    let ready = json!({ "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied",
                        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let told = "UPDATE resource SET object = jsonb_set(object, '{status}', $1) WHERE kind = 'Kustomization'";
    sqlx::query(told).bind(json!({ "conditions": [ready] })).execute(&mut database).await?;
    let state = async |name: &str| -> Result<String> {
        let found = get(&replica, &format!("/fleet/v1/appliers?name={name}")).await?;
        let ready = &found["items"][0]["ready"];
        let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
        Ok(format!("{} {}", text("status"), text("reason")))
    };
    let lost = async |minutes: Option<i32>| -> Result<()> {
        let cluster = replica.kubectl.get(&["cluster", "edge-1"]).await?;
        let uid: sqlx::types::Uuid = cluster["metadata"]["uid"].as_str().context("a uid")?.parse()?;
        sqlx::query(
            "INSERT INTO agent_session (cluster_uid, session, replica, agent_version, kubernetes_version, disconnected_at)
             VALUES ($1, $1, $1, '', '', now() - make_interval(mins => $2))
             ON CONFLICT (cluster_uid) DO UPDATE SET disconnected_at = EXCLUDED.disconnected_at",
        )
        .bind(uid)
        .bind(minutes)
        .execute(&mut site.database.connect().await?)
        .await?;
        Ok(())
    };
    let known = "True ReconciliationSucceeded";
    assert_eq!((state("web").await?.as_str(), state("often").await?.as_str()), (known, known));
    lost(Some(4)).await?;
    assert_eq!((state("web").await?.as_str(), state("often").await?.as_str()), (known, "Unknown NotSeen"));
    lost(Some(11)).await?;
    assert_eq!(state("web").await?, "Unknown NotSeen");
    let unknown = get(&replica, "/fleet/v1/appliers?state=Unknown").await?;
    let message = unknown["items"][0]["ready"]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        unknown["items"].as_array().map(Vec::len),
        Some(2),
        "the suspended one is suspended: {unknown:#}"
    );
    assert!(
        message.starts_with("not seen since ") && message.ends_with("before that Ready was True: Applied"),
        "{message}"
    );
    for path in ["/fleet/v1/clusters", "/fleet/v1/clusters?names=edge-1"] {
        let clusters = get(&replica, path).await?;
        assert_eq!(clusters["items"][0]["appliers"], json!({ "Suspended": 1, "Unknown": 2 }), "{path}");
    }
    let found = get(&replica, "/fleet/v1/inventory?kind=Deployment").await?;
    let health = found["items"][0]["health"].as_str().unwrap_or_default().to_owned();
    assert!(health.starts_with("Unknown: not seen since"), "{health}");
    // It is connected again, and then cannot reach its apiserver.
    lost(None).await?;
    assert_eq!(state("web").await?, known);
    let silent = async |minutes: Option<i32>| -> Result<()> {
        let sql = "UPDATE agent_session SET unreachable = CASE WHEN $1 IS NOT NULL THEN 'it is silent' END,
                                            unreachable_at = now() - make_interval(mins => $1)";
        sqlx::query(sql).bind(minutes).execute(&mut site.database.connect().await?).await?;
        Ok(())
    };
    silent(Some(4)).await?;
    assert_eq!((state("web").await?.as_str(), state("often").await?.as_str()), (known, "Unknown NotSeen"));
    silent(Some(11)).await?;
    assert_eq!(state("web").await?, "Unknown NotSeen");
    silent(None).await?;
    assert_eq!(state("web").await?, known);
    Ok(())
}

#[tokio::test]
async fn fields_of_our_own_can_stand_in_annotations() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(OBJECTS).await?;
    let generation = async || -> Result<i64> {
        let object = replica.kubectl.get(&["ks", "web"]).await?;
        object["metadata"]["generation"].as_i64().context("a generation")
    };
    assert_eq!(generation().await?, 1);
    let annotate =
        async |text: &str| replica.kubectl.run(&["annotate", "--overwrite", "ks", "web", text]).await;
    let pin = "main@sha1:0d27ef211864b632e7576147f5111bab8a2be737";
    annotate(&format!("fleet.roadstead.dev/pin={pin}")).await?;
    assert_eq!(generation().await?, 2, "something else is wanted");
    annotate("example.com/note=hello").await?;
    assert_eq!(generation().await?, 2);
    let found = get(&replica, "/fleet/v1/appliers?name=web").await?;
    assert_eq!(found["items"][0]["pinned"], pin);
    let Err(refused) = annotate("fleet.roadstead.dev/drift=Maybe").await else {
        anyhow::bail!("it was taken")
    };
    let refused = refused.to_string();
    assert!(refused.contains("metadata.annotations[fleet.roadstead.dev/drift]"), "{refused}");
    assert!(refused.contains("want Correct or Report"), "{refused}");
    annotate("fleet.roadstead.dev/pin-").await?;
    assert_eq!(generation().await?, 3);
    Ok(())
}
