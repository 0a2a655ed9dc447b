//! What is due: claimed by one, told when the next one is, and signalled to all.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_model::{Queue, Room, Topic};

use crate::support::{Site, git_repository};

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
