//! Beside a hub of a newer version, which has kinds that this one does not know.

use std::time::Duration;

use anyhow::{Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::DeleteOptions;
use serde_json::json;

use crate::support::{Site, address};

/// Writes an object as the newer hub does.
async fn ferry(site: &Site, namespace: &str) -> Result<()> {
    sqlx::query(
        "WITH counter AS (UPDATE hub_state SET last_version = last_version + 1 RETURNING last_version AS last),
              made AS (INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
                       SELECT gen_random_uuid(), 'Ferry', 'future.roadstead.dev', $1, 'ferry', 1, last, now(), '{}' FROM counter
                       RETURNING *)
         INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation, created_at, object)
         SELECT resource_version, 'ADDED', uid, api_group, kind, namespace, name, generation, created_at, object FROM made",
    )
    .bind(namespace)
    .execute(&mut site.database.connect().await?)
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_namespace_stays_as_long_as_it_holds_what_only_a_newer_hub_knows() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("going").await?;
    ferry(&site, "going").await?;
    let uid = site.stored(KindId::Namespace, "", "going").await?.uid;
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "going" } });
    site.hub.objects.delete(&Identity::hub(), &address(&object)?, &DeleteOptions::default()).await?;
    for _ in 0..3 {
        let next = site.hub.objects.process_namespace(uid).await?;
        ensure!(
            next < site.hub.now() + Duration::from_secs(60),
            "it is looked at again soon, and not at {next}"
        );
    }
    ensure!(site.exists(KindId::Namespace, "", "going").await?, "the ferry is nowhere");
    // The newer hub empties it.
    let mut connection = site.database.connect().await?;
    sqlx::query("DELETE FROM resource WHERE kind = 'Ferry'").execute(&mut connection).await?;
    site.hub.objects.process_namespace(uid).await?;
    ensure!(!site.exists(KindId::Namespace, "", "going").await?);
    site.close().await;
    Ok(())
}

/// Who grants rights waits until all is known that was written before, by whichever hub.
#[tokio::test]
async fn rights_are_granted_after_a_change_that_only_a_newer_hub_knows() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("apps").await?;
    let member = site.member("apps").await?;
    for name in ["one", "two"] {
        ferry(&site, name).await?;
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "namespace": "apps", "name": name }, "rules": [] });
        site.apply_as(&member, role).await?;
    }
    site.close().await;
    Ok(())
}
