//! Deletions that wait, and their confirmation.

use anyhow::{Context as _, Result, ensure};
use roadstead_hub_store::{Descendants, HeldDeletion, Key, Sealer, Store};
use roadstead_model::{ApplierUid, ClusterUid, Digest, ResourceUid};
use roadstead_tests::TestDatabase;
use sqlx::PgConnection;
use uuid::Uuid;

async fn site() -> Result<(TestDatabase, Store, PgConnection)> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let connection = database.connect().await?;
    Ok((database, store, connection))
}

async fn kustomization(connection: &mut PgConnection, name: &str) -> Result<Uuid> {
    let uid = Uuid::new_v4();
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
         VALUES ($1, 'Kustomization', 'test', 'apps', $2, 1, 1, now(), '{}')",
    )
    .bind(uid)
    .bind(name)
    .execute(connection)
    .await?;
    Ok(uid)
}

fn held(of: &str, dispatch: &str) -> HeldDeletion {
    let digest = Digest::of(of.as_bytes());
    let dispatch = Digest::of(dispatch.as_bytes());
    HeldDeletion { digest, parts: vec![digest], dispatch, total: 3, confirmed: None }
}

#[tokio::test]
async fn a_confirmation_is_of_the_same_deletions_of_the_same_dispatch() -> Result<()> {
    let (_database, store, mut connection) = site().await?;
    let applier = ApplierUid(kustomization(&mut connection, "app").await?);
    let now = store.now().await?;
    ensure!(store.held_deletion(applier).await?.is_none());
    let (first, other) = (held("first", "build"), held("other", "build"));
    let mut tx = store.begin().await?;
    tx.hold_deletion(applier, &first, now).await?;
    ensure!(!tx.confirm_deletion(applier, other.digest, "somebody", now).await?, "another digest");
    ensure!(tx.confirm_deletion(applier, first.digest, "somebody", now).await?);
    // It came while an attempt was under way that did not know of it, and found the same.
    tx.hold_deletion(applier, &first, now).await?;
    tx.commit().await?;
    let kept = store.held_deletion(applier).await?.context("it waits")?;
    ensure!(kept.confirmed.is_some() && kept.parts == first.parts && kept.total == 3, "{kept:?}");

    for another in [held("first", "the next build"), other] {
        let mut tx = store.begin().await?;
        tx.hold_deletion(applier, &another, now).await?;
        tx.commit().await?;
        let now_held = store.held_deletion(applier).await?.context("it waits")?;
        ensure!(now_held == another, "a confirmation of something else counts: {now_held:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_goes_with_children_is_counted_all_the_way_down() -> Result<()> {
    let (_database, store, mut connection) = site().await?;
    let mut uids = Vec::new();
    for name in ["top", "below", "lowest", "alone"] {
        uids.push(kustomization(&mut connection, name).await?);
    }
    let [top, below, lowest, alone] = uids.as_slice() else { anyhow::bail!("four were made") };
    // The lowest names the top as its child: what is in a circle is counted once.
    for (parent, child, kept) in
        [(top, below, false), (below, lowest, false), (lowest, top, false), (top, alone, true)]
    {
        sqlx::query(
            "INSERT INTO child (kind, namespace, name, parent, wanted, kept, object)
             VALUES ('Kustomization', 'apps', $1, $2, true, $3, $4)",
        )
        .bind(child.to_string())
        .bind(parent)
        .bind(kept)
        .bind(child)
        .execute(&mut connection)
        .await?;
    }
    let cluster = ClusterUid::random();
    for (owner, kind, name) in [
        (top, "ConfigMap", "a"),
        (below, "ConfigMap", "b"),
        (below, "Service", "b"),
        (lowest, "PersistentVolumeClaim", "data"),
        (alone, "ConfigMap", "c"),
    ] {
        sqlx::query(
            "INSERT INTO inventory (cluster_uid, api_group, kind, namespace, name, version, applier, intended)
             VALUES ($1, '', $2, 'apps', $3, 'v1', $4, false)",
        )
        .bind(cluster.0)
        .bind(kind)
        .bind(name)
        .bind(owner)
        .execute(&mut connection)
        .await?;
    }
    let roots = [*lowest, *alone, *below, Uuid::new_v4()].map(ResourceUid);
    let counted = store.descendants(&roots).await?;
    let of = |objects, has_volumes| Descendants { objects, has_volumes };
    // Two Kustomizations below the lowest, with three objects, and its own claim.
    ensure!(counted == [of(6, true), of(1, false), of(6, true), of(0, false)], "{counted:?}");
    Ok(())
}
