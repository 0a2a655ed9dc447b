//! A watch shows every change exactly once and in order, under concurrent writers and on every replica.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_api::KindId;
use roadstead_body::Patch;
use roadstead_budget::Pool;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::{
    AtVersion, DeleteOptions, ListOptions, ObjectWatch, WatchFrom, WriteOptions,
};
use roadstead_hub_core::{Address, Hub, HubError};
use roadstead_hub_store::EventType;
use serde_json::{Value, json};

use crate::support::Site;

const WRITERS: usize = 8;
/// How many changes each writer must get through, against the others.
const CHANGES: usize = 20;
/// How many tries that may take: far more than it does, but a writer never hangs.
const ROUNDS: usize = 2_000;

fn address(name: &str) -> Address {
    let kind = KindId::Secret;
    Address {
        kind,
        version: kind.get().storage_version(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// Creates, changes and deletes a few objects that other writers want too, until [`CHANGES`] of its writes went through.
async fn write(hub: Hub, writer: usize) -> Result<usize> {
    let who = Identity::hub();
    let mut changes = 0;
    for round in 0..ROUNDS {
        if changes == CHANGES {
            return Ok(changes);
        }
        let name = format!("s-{}", (writer * 7 + round * 3) % 5);
        let object = json!({ "metadata": { "name": name }, "stringData": { "k": "v" } });
        let outcome = match round % 3 {
            0 => hub.objects.create(&who, &address(""), object, WriteOptions::default()).await.map(drop),
            1 => {
                let patch = Patch::Merge(
                    json!({ "metadata": { "annotations": { "w": format!("{writer}-{round}") } } }),
                );
                hub.objects.patch(&who, &address(&name), &patch, WriteOptions::default()).await.map(drop)
            }
            _ => hub.objects.delete(&who, &address(&name), &DeleteOptions::default()).await.map(drop),
        };
        match outcome {
            Ok(()) => changes += 1,
            Err(HubError::NotFound { .. } | HubError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error).context("a write"),
        }
    }
    bail!("writer {writer} got {changes} of {CHANGES} changes through in {ROUNDS} tries")
}

/// What a watcher knows: it fails at the first event that does not fit what it has seen.
#[derive(Default)]
struct View {
    objects: BTreeMap<String, String>,
    last: i64,
    events: usize,
    /// What there was from each version on.
    moments: BTreeMap<i64, BTreeMap<String, String>>,
}

impl View {
    fn take(&mut self, type_: EventType, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?.to_owned();
        let version: i64 = object["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
        if version <= self.last {
            bail!("version {version} of {name} came after {}", self.last);
        }
        self.last = version;
        self.events += 1;
        let known = self.objects.contains_key(&name);
        match (type_, known) {
            (EventType::Added, false) | (EventType::Modified, true) => {
                self.objects.insert(name, version.to_string());
            }
            (EventType::Deleted, true) => {
                self.objects.remove(&name);
            }
            (type_, _) => bail!("{type_:?} of {name} at {version} does not fit what came before"),
        }
        self.moments.insert(version, self.objects.clone());
        Ok(())
    }
}

async fn watch_from(hub: &Hub, version: i64) -> Result<(i64, ObjectWatch), HubError> {
    let from = WatchFrom::Version(version);
    hub.objects.watch(&Identity::hub(), address(""), ListOptions::default(), from, drop).await
}

async fn follow(hub: Hub, from: i64, upto: String) -> Result<View> {
    let mut view = View { last: from, ..View::default() };
    let (_, mut watch) = watch_from(&hub, from).await?;
    loop {
        let event = watch.next().await?;
        let object = event.object()?;
        view.take(event.type_, &object)?;
        if object["metadata"]["name"] == upto.as_str() {
            return Ok(view);
        }
    }
}

fn name_and_version(object: &Value) -> Option<(String, String)> {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    Some((text("name")?, text("resourceVersion")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_change_once_and_in_order() -> Result<()> {
    let site = Site::new().await?;
    let replicas = [site.replica().await?, site.replica().await?];
    let who = Identity::hub();
    let start =
        replicas[0].hub.objects.list(&who, &address(""), &ListOptions::default()).await?.end.resource_version;
    let mut watchers = Vec::new();
    for index in 0..4 {
        watchers.push(tokio::spawn(follow(replicas[index % 2].hub.clone(), start, "the-end".to_owned())));
    }
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        writers.push(tokio::spawn(write(replicas[writer % 2].hub.clone(), writer)));
    }
    let mut changes = 0;
    for (index, writer) in writers.into_iter().enumerate() {
        changes += writer.await??;
        // Watchers that come in the middle of it.
        watchers.push(tokio::spawn(follow(replicas[index % 2].hub.clone(), start, "the-end".to_owned())));
    }
    assert_eq!(changes, WRITERS * CHANGES);
    let end = json!({ "metadata": { "name": "the-end" } });
    replicas[0].hub.objects.create(&who, &address(""), end, WriteOptions::default()).await?;

    let list = replicas[1].hub.objects.list(&who, &address(""), &ListOptions::default()).await?;
    let table: BTreeMap<String, String> = list.items.iter().filter_map(name_and_version).collect();
    for watcher in watchers {
        let view = tokio::time::timeout(Duration::from_secs(60), watcher)
            .await
            .context("a watcher is not done")???;
        assert_eq!(view.objects, table);
        assert_eq!(view.events, changes + 1);
    }
    Ok(())
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_deleted_for_its_watchers() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?.hub;
    let who = Identity::hub();
    let options = ListOptions {
        labels: roadstead_hub_core::objects::Selector::labels("app=web")?,
        ..ListOptions::default()
    };
    let mut first = Vec::new();
    let from = WatchFrom::Objects(AtVersion::Present);
    let (_, mut watch) =
        hub.objects.watch(&who, address(""), options, from, |object| first.push(object)).await?;
    assert!(first.is_empty());
    let object = json!({ "metadata": { "name": "a" } });
    hub.objects.create(&who, &address(""), object, WriteOptions::default()).await?;
    for app in [Some("web"), Some("web"), None, Some("web")] {
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
        hub.objects.patch(&who, &address("a"), &patch, WriteOptions::default()).await?;
    }
    hub.objects.delete(&who, &address("a"), &DeleteOptions::default()).await?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await??;
        seen.push(event.type_);
    }
    // The second write changed nothing, so it is not an event.
    assert_eq!(seen, [EventType::Added, EventType::Deleted, EventType::Added, EventType::Deleted]);
    Ok(())
}

#[tokio::test]
async fn what_was_compacted_is_gone() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let hub = &replica.hub;
    let who = Identity::hub();
    let before = hub.objects.list(&who, &address(""), &ListOptions::default()).await?.end.resource_version;
    for index in 0..5 {
        let object = json!({ "metadata": { "name": format!("s-{index}") } });
        hub.objects.create(&who, &address(""), object, WriteOptions::default()).await?;
    }
    // It has begun, and has read nothing yet.
    let (_, mut early) = watch_from(hub, before).await?;
    hub.objects.compact_changes(Duration::ZERO, 2).await?;
    let refused = watch_from(hub, before).await;
    assert!(matches!(refused, Err(HubError::Gone(_))));
    let cut = tokio::time::timeout(Duration::from_secs(30), early.next()).await?;
    assert!(matches!(cut, Err(HubError::Gone(_))));
    let after = hub.objects.list(&who, &address(""), &ListOptions::default()).await?;
    assert_eq!(after.items.len(), 5);
    let (_, mut later) = watch_from(hub, after.end.resource_version).await?;
    // All is forgotten, but of what the watch wants nothing: it goes on.
    hub.objects.compact_changes(Duration::ZERO, 0).await?;
    let object = json!({ "metadata": { "name": "later" } });
    hub.objects.create(&who, &address(""), object, WriteOptions::default()).await?;
    let event = tokio::time::timeout(Duration::from_secs(30), later.next()).await??;
    assert_eq!(event.object()?["metadata"]["name"], "later");
    Ok(())
}

/// More changes than are kept in memory for those who are behind.
#[tokio::test]
async fn a_watcher_that_fell_behind_goes_on_from_the_log() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.replica().await?.hub;
    let who = Identity::hub();
    let start = hub.objects.list(&who, &address(""), &ListOptions::default()).await?.end.resource_version;
    let (_, mut watch) = watch_from(&hub, start).await?;
    let object = json!({ "metadata": { "name": "a" } });
    hub.objects.create(&who, &address(""), object, WriteOptions::default()).await?;
    // From here on the watch is live.
    watch.next().await?;
    for round in 0..1100 {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "round": round.to_string() } } }));
        hub.objects.patch(&who, &address("a"), &patch, WriteOptions::default()).await?;
    }
    for round in 0..1100 {
        let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await??;
        assert_eq!(event.object()?["metadata"]["annotations"]["round"], round.to_string());
    }
    Ok(())
}

/// A list one object at a time, each page from another replica: what it shows, of which version. None where that was
/// forgotten before the last page.
async fn list_slowly(hubs: &[Hub]) -> Result<Option<(i64, BTreeMap<String, String>)>> {
    let mut objects = BTreeMap::new();
    let mut options = ListOptions { limit: Some(1), ..ListOptions::default() };
    for hub in hubs.iter().cycle() {
        let page = match hub.objects.list(&Identity::hub(), &address(""), &options).await {
            Err(HubError::PageGone(_)) => return Ok(None),
            page => page?,
        };
        objects.extend(page.items.iter().filter_map(name_and_version));
        options.after = page.end.next;
        if options.after.is_none() {
            return Ok(Some((page.end.resource_version, objects)));
        }
    }
    bail!("no replica")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_are_of_one_moment_whatever_changes_between_them() -> Result<()> {
    let site = Site::new().await?;
    let hubs = [site.replica().await?.hub, site.replica().await?.hub];
    let who = Identity::hub();
    for index in 0..5 {
        let object = json!({ "metadata": { "name": format!("t-{index}") } });
        hubs[0].objects.create(&who, &address(""), object, WriteOptions::default()).await?;
    }
    // Of what stays as it is, the log holds nothing else from here on.
    hubs[0].objects.compact_changes(Duration::ZERO, 0).await?;
    let list = hubs[0].objects.list(&who, &address(""), &ListOptions::default()).await?;
    let start = list.end.resource_version;
    let still: BTreeMap<String, String> = list.items.iter().filter_map(name_and_version).collect();

    let watcher = tokio::spawn(follow(hubs[0].clone(), start, "the-end".to_owned()));
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(hubs[writer % 2].clone(), writer))).collect();
    let (mut lists, mut rounds) = (Vec::new(), 0);
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        lists.extend(list_slowly(&hubs).await?);
        rounds += 1;
        if rounds % 4 == 0 {
            hubs[1].objects.compact_changes(Duration::ZERO, 30).await?;
        }
    }
    for writer in writers {
        writer.await??;
    }
    let end = json!({ "metadata": { "name": "the-end" } });
    hubs[0].objects.create(&who, &address(""), end, WriteOptions::default()).await?;
    let view = tokio::time::timeout(Duration::from_secs(60), watcher).await.context("no end")???;

    let mut changing = 0;
    for (version, mut shown) in lists {
        let unchanged: BTreeMap<_, _> = shown.extract_if(.., |name, _| name.starts_with("t-")).collect();
        assert_eq!(unchanged, still, "at {version}");
        let wanted = view.moments.range(..=version).next_back().map(|(_, objects)| objects.clone());
        assert_eq!(shown, wanted.unwrap_or_default(), "at {version}");
        changing += usize::from((start + 1..view.last - 1).contains(&version));
    }
    assert!(changing > 3, "{changing} of {rounds} lists were made while something changed");
    Ok(())
}

/// What is kept for watches stays within its room, and a watcher misses nothing for that.
#[tokio::test]
async fn changes_without_room_are_read_from_the_log() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (store, who) = (site.store().await?, Identity::hub());
    // For two changes as large as these, and for no page of a watcher's.
    let room = Pool::new("watches", 2 << 20);
    store.keep_watches_within(room.clone());
    let version = store.last_version().await?;
    let mut watcher = store.watch(KindId::ConfigMap, version).await?;
    let kind = KindId::ConfigMap;
    let at = |name: &str| Address {
        kind,
        version: kind.get().storage_version(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for number in 0..30 {
        let name = format!("large-{number}");
        let object = json!({ "metadata": { "name": name }, "data": { "text": "x".repeat(200_000) } });
        replica.hub.objects.create(&who, &at(""), object, WriteOptions::default()).await?;
        expected.push(name);
        // Once it is over the beginning, which is read from the log in any case, it stands still.
        if number == 0 {
            seen.push(watcher.next().await?.object().name.clone());
        }
    }
    while seen.len() < expected.len() {
        let event = tokio::time::timeout(Duration::from_secs(20), watcher.next()).await??;
        seen.push(event.object().name.clone());
    }
    ensure!(seen == expected, "{seen:?}");
    drop(watcher);
    ensure!(room.used() == 0, "{} bytes are kept for nobody", room.used());
    Ok(())
}
