//! What is due: claimed by one, told when the next one is, and signalled to all.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_model::{Queue, ReplicaId, Room, Topic};
use serde_json::json;

use crate::support::{Site, config_map, file, git_repository, kustomization};

#[tokio::test]
async fn a_loop_is_told_what_is_due_and_when_the_next_one_is() -> Result<()> {
    let site = Site::new().await?;
    site.apply(git_repository("default", "one", "https://git.example.test/one")).await?;
    let due = site.hub.schedule.claim_due(Queue::Source, &Room::of(10, false)).await?;
    ensure!(due.claims.len() == 1 && due.next.is_none(), "{due:?}");
    let others = site.hub.schedule.claim_due(Queue::Applier, &Room::of(10, false)).await?;
    ensure!(others.claims.is_empty() && others.next.is_none(), "a source is not a Kustomization: {others:?}");

    let again = site.hub.schedule.claim_due(Queue::Source, &Room::of(10, false)).await?;
    ensure!(again.claims.is_empty() && again.next.is_none(), "what is claimed is nobody else's: {again:?}");

    let later = site.hub.now() + Duration::from_secs(3600);
    for claim in due.claims {
        site.hub.schedule.release_claim(claim, later).await?;
    }
    let due = site.hub.schedule.claim_due(Queue::Source, &Room::of(10, false)).await?;
    ensure!(due.claims.is_empty(), "{due:?}");
    ensure!(due.next.map(Timestamp::as_microsecond) == Some(later.as_microsecond()), "{due:?}, not {later}");

    // Two are due and one is wanted: the other one stays for the next time.
    site.apply(git_repository("default", "two", "https://git.example.test/two")).await?;
    site.apply(git_repository("default", "three", "https://git.example.test/three")).await?;
    for left in [1, 0] {
        let due = site.hub.schedule.claim_due(Queue::Source, &Room::of(1, false)).await?;
        ensure!(due.claims.len() == 1, "{left} left: {due:?}");
    }
    let due = site.hub.schedule.claim_due(Queue::Source, &Room::of(1, false)).await?;
    ensure!(due.claims.is_empty() && due.next.is_some(), "{due:?}");
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn an_object_is_due_in_two_queues_and_each_has_its_own_pass() -> Result<()> {
    let site = Site::new().await?;
    site.apply(git_repository("default", "one", "https://git.example.test/one")).await?;
    let schedule = &site.hub.schedule;
    let [source] = schedule.claim_due(Queue::Source, &Room::of(10, false)).await?.claims[..] else {
        anyhow::bail!("it is not due")
    };
    // Another controller is to process it meanwhile.
    let mut tx = site.store.begin().await?;
    tx.enqueue(Queue::Namespace, &[source.uid]).await?;
    tx.commit().await?;
    let [other] = schedule.claim_due(Queue::Namespace, &Room::of(10, false)).await?.claims[..] else {
        anyhow::bail!("it is not due there")
    };
    ensure!(other.uid == source.uid);
    // Each is given back for itself, with a time of its own.
    let later = site.hub.now() + Duration::from_secs(3600);
    schedule.release_claim(other, site.hub.now()).await?;
    ensure!(
        schedule.claim_due(Queue::Source, &Room::of(10, false)).await?.claims.is_empty(),
        "the first is still claimed"
    );
    schedule.release_claim(source, later).await?;
    ensure!(
        schedule.claim_due(Queue::Source, &Room::of(10, false)).await?.claims.is_empty(),
        "the first is due later"
    );
    ensure!(
        schedule.claim_due(Queue::Namespace, &Room::of(10, false)).await?.claims.len() == 1,
        "the other is due at once"
    );
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_signal_reaches_the_loop_that_it_concerns_in_other_replicas() -> Result<()> {
    let site = Site::new().await?;
    let other = site.other_store().await?;
    let mut woken = other.signals().subscribe(Topic::Due(Queue::Source));
    // The first one may be what every replica tells itself when it begins to listen; those after it come from here.
    for number in 0..3 {
        let sent = async {
            loop {
                site.hub.signals().send(Topic::Due(Queue::Source));
                if tokio::time::timeout(Duration::from_millis(500), woken.changed()).await.is_ok() {
                    return;
                }
            }
        };
        let arrived = tokio::time::timeout(Duration::from_secs(30), sent).await;
        ensure!(arrived.is_ok(), "signal {number} did not arrive");
    }
    other.close().await;
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn no_namespace_has_all_places() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("greedy").await?;
    site.namespace("modest").await?;
    let url = "https://git.example.test/all";
    for number in 0..30 {
        site.apply(git_repository("greedy", &format!("of-many-{number}"), url)).await?;
    }
    site.apply(git_repository("modest", "of-few", url)).await?;
    let held = [("other".to_owned(), 2)].into();
    let mut room = Room { free: 8, suspect: false, of_one: 6, held };
    let of = |namespaces: &[String], name: &str| namespaces.iter().filter(|one| *one == name).count();
    // What is due the longest is first, but for what is beyond the share.
    let due = site.hub.schedule.claim_due(Queue::Source, &room).await?;
    ensure!(of(&due.namespaces, "greedy") == 6 && due.claims.len() == 6, "{due:?}");
    room.held.insert("greedy".to_owned(), 6);
    ensure!(room.spent() == ["greedy"], "{room:?}");
    let due = site.hub.schedule.claim_due(Queue::Source, &Room { free: 2, ..room.clone() }).await?;
    ensure!(due.namespaces == ["modest"] && due.claims.len() == 1, "{due:?}");
    // As some of its places are given back, it gets so many again.
    room.held.insert("greedy".to_owned(), 4);
    let due = site.hub.schedule.claim_due(Queue::Source, &room).await?;
    ensure!(of(&due.namespaces, "greedy") == 2 && due.claims.len() == 2, "{due:?}");
    site.close().await;
    Ok(())
}

/// Times of the database, in seconds from now.
async fn seconds(site: &Site, sql: &'static str) -> Result<f64> {
    let mut connection = site.database.connect().await?;
    Ok(sqlx::query_scalar(sql).fetch_one(&mut connection).await?)
}

#[tokio::test]
async fn what_was_planned_by_a_clock_that_was_put_back_is_planned_again() -> Result<()> {
    const LEASE: Duration = Duration::from_secs(900);
    let site = Site::new().await?;
    for name in ["one", "two"] {
        site.apply(git_repository("default", name, "https://git.example.test/all")).await?;
    }
    ensure!(!site.hub.mend_clock().await?, "nothing is planned by another clock");
    // By a clock that was an hour ahead, one is due in ten minutes, and one is claimed by who is gone.
    let (replica, ahead) = (ReplicaId::random(), site.hub.now() + Duration::from_secs(3_600));
    let due = site.store.claim_due(Queue::Source, replica, ahead, LEASE, &Room::of(2, false)).await?;
    let [one, _] = due.claims[..] else { anyhow::bail!("{due:?}") };
    site.store.release(replica, one, ahead + Duration::from_secs(600), ahead).await?;
    ensure!(site.hub.mend_clock().await?);
    let next = "SELECT extract(epoch FROM max(due_at) - now())::float8 FROM schedule WHERE kind = 'source' AND isfinite(due_at)";
    let next = seconds(&site, next).await?;
    ensure!((570.0..=600.0).contains(&next), "{next}");
    let lease =
        "SELECT extract(epoch FROM claimed_until - now())::float8 FROM schedule WHERE claimed_by IS NOT NULL";
    let lease = seconds(&site, lease).await?;
    ensure!((870.0..=900.0).contains(&lease), "{lease}");
    ensure!(!site.hub.mend_clock().await?, "once");
    // Claims of whoever is gone are freed after as long as ever, where it is the database's clock that was put back.
    site.store.replica_seen(replica, site.store.now().await? + Duration::from_secs(3_600)).await?;
    site.hub.sessions.bury_dead_replicas(Duration::from_secs(8)).await?;
    let claimed = "SELECT count(claimed_by)::float8 FROM schedule";
    ensure!(seconds(&site, claimed).await? == 1.0, "it may say yet that it lives");
    site.hub.sessions.bury_dead_replicas(Duration::ZERO).await?;
    ensure!(seconds(&site, claimed).await? == 0.0);
    site.close().await;
    Ok(())
}

#[tokio::test]
async fn attempts_have_as_much_time_as_they_had_before_the_clock_was_put_back() -> Result<()> {
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.cluster("staging", json!([{ "namespace": "team-a", "agentRights": true }])).await?;
    site.source("team-a", "fleet", &[file("app/map.yaml", &[config_map("web", "map")])]).await?;
    let spec = json!({ "clusterRef": { "name": "staging" }, "timeout": "5m" });
    site.apply(kustomization("team-a", "app", "./app", spec)).await?;
    site.process("team-a", "app").await?;
    let left =
        "SELECT extract(epoch FROM deadline - now())::float8 FROM reconciliation WHERE finished_at IS NULL";
    let before = seconds(&site, left).await?;
    sqlx::raw_sql("UPDATE reconciliation SET started_at = started_at + interval '1 hour', deadline = deadline + interval '1 hour'")
        .execute(&mut site.database.connect().await?)
        .await?;
    ensure!(site.hub.mend_clock().await?);
    let after = seconds(&site, left).await?;
    ensure!((before - 30.0..=before + 30.0).contains(&after), "{before}: {after}");
    site.close().await;
    Ok(())
}
