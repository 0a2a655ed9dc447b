//! What watchers see over HTTP: a random workload by 8 writers on 2 replicas, watchers that are cut again and again and
//! go on where they were on the other replica, from events and from bookmarks. Each is compared with the table and with
//! the change log. And what becomes of watches when the database is one from a backup.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, Method, StatusCode};
use roadstead_hub_core::{Hub, HubOptions, SystemClock};
use roadstead_hub_store::{Sealer, Store};
use serde_json::{Value, json};
use sqlx::Row as _;
use tokio_stream::StreamExt as _;

use crate::support::{Replica, Site, client};

const WRITERS: usize = 8;
/// How many writes each writer tries.
const WRITES: usize = 180;
const NAMESPACES: [&str; 2] = ["red", "blue"];
/// The last write of all: matched by every watcher's selectors.
const END: &str = "s-0";
const PATIENCE: Duration = Duration::from_secs(120);

/// A small generator, so that a failing run can be done again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A replica as a client sees it.
#[derive(Clone)]
struct Door {
    http: Client,
    url: String,
    token: String,
}

impl Door {
    fn of(replica: &Replica) -> Result<Self> {
        Ok(Self { http: client(replica)?, url: replica.url.clone(), token: replica.token.clone() })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("content-type", kind).body(body.to_string());
        }
        let answer = request.send().await?;
        let code = answer.status();
        Ok((code, serde_json::from_slice(&answer.bytes().await?).unwrap_or_default()))
    }
}

async fn write(door: Door, writer: usize) -> Result<usize> {
    let mut random = Random(0x9E37_79B9 + writer as u64 * 7919);
    let mut done = 0;
    for round in 0..WRITES {
        let namespace = NAMESPACES[usize::try_from(random.below(2))?];
        let name = format!("s-{}", random.below(6));
        let path = format!("/api/v1/namespaces/{namespace}/secrets");
        let tier = ["a", "b"][usize::try_from(random.below(2))?];
        let note = json!({ "by": format!("{writer}-{round}") });
        let labelled = json!({ "metadata": { "labels": { "tier": tier }, "annotations": note } });
        let (code, _) = match random.below(5) {
            0 => {
                let mut object = labelled;
                object["metadata"]["name"] = name.into();
                door.ask(Method::POST, &path, Some(&object)).await?
            }
            1 => door.ask(Method::DELETE, &format!("{path}/{name}"), None).await?,
            2 => door.ask(Method::PATCH, &format!("{path}/{name}"), Some(&labelled)).await?,
            3 => {
                let unlabelled = json!({ "metadata": { "labels": { "tier": null }, "annotations": note } });
                door.ask(Method::PATCH, &format!("{path}/{name}"), Some(&unlabelled)).await?
            }
            _ => {
                let (code, mut object) = door.ask(Method::GET, &format!("{path}/{name}"), None).await?;
                if code != StatusCode::OK {
                    continue;
                }
                object["metadata"]["annotations"] = note;
                door.ask(Method::PUT, &format!("{path}/{name}"), Some(&object)).await?
            }
        };
        match code {
            StatusCode::OK | StatusCode::CREATED => done += 1,
            StatusCode::NOT_FOUND | StatusCode::CONFLICT => {}
            other => bail!("a write was answered {other}"),
        }
    }
    Ok(done)
}

/// What a watcher is to be shown.
#[derive(Debug, Clone, Copy)]
struct Selection {
    namespace: &'static str,
    tier: &'static str,
    name: &'static str,
}

impl Selection {
    fn path(&self) -> String {
        let namespace = match self.namespace {
            "" => String::new(),
            namespace => format!("namespaces/{namespace}/"),
        };
        let labels = if self.tier.is_empty() { String::new() } else { format!("tier={}", self.tier) };
        let fields =
            if self.name.is_empty() { String::new() } else { format!("metadata.name={}", self.name) };
        let labels = labels.replace('=', "%3D");
        let fields = fields.replace('=', "%3D");
        format!("/api/v1/{namespace}secrets?labelSelector={labels}&fieldSelector={fields}")
    }

    fn place(&self, namespace: &str, name: &str) -> bool {
        // Only what this test writes: a hub may have Secrets of its own.
        NAMESPACES.contains(&namespace)
            && (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }

    fn labels(&self, labels: &Value) -> bool {
        self.tier.is_empty() || labels["tier"] == self.tier
    }
}

/// (type, namespace/name, version)
type Seen = (String, String, i64);

fn seen(type_: &str, object: &Value) -> Result<Seen> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().map(str::to_owned);
    let place = format!("{}/{}", text("namespace").context("a namespace")?, text("name").context("a name")?);
    Ok((type_.to_owned(), place, text("resourceVersion").context("a version")?.parse()?))
}

/// How often each watcher was cut, and how often it went on from a bookmark.
#[derive(Default)]
struct Breaks {
    cuts: usize,
    bookmarks: usize,
}

/// Follows a selection from `from` to the version in `upto`; is cut after a few events, or ends after a second, and goes on at
/// either replica.
async fn follow(
    doors: [Door; 2],
    selection: Selection,
    from: i64,
    mut upto: tokio::sync::watch::Receiver<i64>,
    seed: u64,
) -> Result<(Vec<Seen>, Breaks)> {
    let mut random = Random(seed);
    let (mut all, mut version, mut breaks) = (Vec::new(), from, Breaks::default());
    loop {
        let upto = *upto.borrow_and_update();
        if upto > 0 && version >= upto {
            return Ok((all, breaks));
        }
        let door = &doors[usize::try_from(random.below(2))?];
        // Each begins where the last one was cut, and ends by itself after a second, with a bookmark.
        let path = format!(
            "{}&watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=1",
            selection.path()
        );
        let answer = door.http.get(format!("{}{path}", door.url)).bearer_auth(&door.token).send().await?;
        ensure!(answer.status() == StatusCode::OK, "a watch was answered {}", answer.status());
        // One in four is let go on to its end, however fast the writers are.
        let is_cut = random.below(4) > 0;
        let (mut lines, mut buffer, mut left) = (answer.bytes_stream(), Vec::new(), 1 + random.below(12));
        'connection: while let Some(chunk) = lines.next().await {
            buffer.extend_from_slice(&chunk?);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                let type_ = event["type"].as_str().context("a type")?;
                if type_ == "BOOKMARK" {
                    let told: i64 = event["object"]["metadata"]["resourceVersion"]
                        .as_str()
                        .context("a version")?
                        .parse()?;
                    ensure!(told >= version, "a bookmark went back from {version} to {told}");
                    breaks.bookmarks += usize::from(told > version);
                    version = told;
                    continue;
                }
                let event = seen(type_, &event["object"])?;
                ensure!(event.2 > version, "{event:?} came after {version}");
                version = event.2;
                all.push(event);
                left = left.saturating_sub(1);
                if is_cut && left == 0 {
                    breaks.cuts += 1;
                    break 'connection;
                }
            }
        }
    }
}

/// What a watcher from `from` on must have seen, by the change log.
fn expected(log: &[Change], selection: Selection, from: i64) -> Vec<Seen> {
    log.iter()
        .filter(|change| change.version > from && selection.place(&change.namespace, &change.name))
        .filter_map(|change| {
            let before = change.before.as_ref().is_some_and(|labels| selection.labels(labels));
            let after = change.type_ != "DELETED" && selection.labels(&change.labels);
            let type_ = match (before, after) {
                (false, false) => return None,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            Some((type_.to_owned(), format!("{}/{}", change.namespace, change.name), change.version))
        })
        .collect()
}

struct Change {
    version: i64,
    type_: String,
    namespace: String,
    name: String,
    labels: Value,
    before: Option<Value>,
}

async fn change_log(site: &Site) -> Result<Vec<Change>> {
    let mut connection = site.database.connect().await?;
    let rows = sqlx::query(
        "SELECT resource_version, type, namespace, name, object #> '{metadata,labels}' AS labels, labels_before \
         FROM resource_event WHERE kind = 'Secret' ORDER BY resource_version",
    )
    .fetch_all(&mut connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Change {
                version: row.try_get(0)?,
                type_: row.try_get(1)?,
                namespace: row.try_get(2)?,
                name: row.try_get(3)?,
                labels: row.try_get::<Option<Value>, _>(4)?.unwrap_or_default(),
                before: row.try_get(5)?,
            })
        })
        .collect()
}

const SELECTIONS: [Selection; 6] = [
    Selection { namespace: "", tier: "", name: "" },
    Selection { namespace: "red", tier: "", name: "" },
    Selection { namespace: "", tier: "a", name: "" },
    Selection { namespace: "blue", tier: "b", name: "" },
    Selection { namespace: "", tier: "", name: "s-3" },
    Selection { namespace: "red", tier: "a", name: "s-1" },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_random_workload_is_seen_as_it_was() -> Result<()> {
    let site = Site::new().await?;
    let replicas = [site.replica().await?, site.replica().await?];
    let doors = [Door::of(&replicas[0])?, Door::of(&replicas[1])?];
    for namespace in NAMESPACES {
        let object = json!({ "metadata": { "name": namespace } });
        doors[0].ask(Method::POST, "/api/v1/namespaces", Some(&object)).await?;
    }
    let (_, list) = doors[0].ask(Method::GET, "/api/v1/secrets", None).await?;
    let start: i64 = list["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
    let (end, _) = tokio::sync::watch::channel(0);
    let mut watchers = Vec::new();
    for (index, selection) in SELECTIONS.iter().cycle().take(12).enumerate() {
        let upto = end.subscribe();
        let seed = 77 + index as u64 * 1013;
        watchers.push((*selection, tokio::spawn(follow(doors.clone(), *selection, start, upto, seed))));
    }
    let writers: Vec<_> =
        (0..WRITERS).map(|writer| tokio::spawn(write(doors[writer % 2].clone(), writer))).collect();
    let mut done = 0;
    for writer in writers {
        done += tokio::time::timeout(PATIENCE, writer).await.context("a writer is not done")???;
    }
    ensure!(done > WRITERS * WRITES / 8, "only {done} writes went through");
    let (_, list) = doors[1].ask(Method::GET, "/api/v1/secrets", None).await?;
    end.send_replace(list["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?);

    let log = change_log(&site).await?;
    ensure!(log.len() >= done - done / 4, "the log holds {} changes of {done}", log.len());
    let mut breaks = Breaks::default();
    for (selection, watcher) in watchers {
        let watched = tokio::time::timeout(PATIENCE, watcher).await.context("a watcher is not done")??;
        let (events, broken) = watched.with_context(|| format!("{selection:?}"))?;
        assert_eq!(events, expected(&log, selection, start), "{selection:?}");
        breaks.cuts += broken.cuts;
        breaks.bookmarks += broken.bookmarks;
        // What the events add up to is what a list shows.
        let mut view = BTreeMap::new();
        for (type_, place, version) in events {
            match type_.as_str() {
                "DELETED" => view.remove(&place),
                _ => view.insert(place, version),
            };
        }
        let (_, list) = doors[0].ask(Method::GET, &selection.path(), None).await?;
        let table = list["items"].as_array().context("items")?.iter().map(|object| seen("", object));
        let table: BTreeMap<String, i64> = table
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .map(|(_, place, version)| (place, version))
            .collect();
        assert_eq!(view, table, "{selection:?}");
    }
    println!("measured: {} cuts, {} bookmarks", breaks.cuts, breaks.bookmarks);
    ensure!(breaks.cuts > 20 && breaks.bookmarks > 5, "{} cuts, {} bookmarks", breaks.cuts, breaks.bookmarks);
    ensure!(log.iter().any(|change| change.name == END), "the workload is not what it is meant to be");
    Ok(())
}

#[tokio::test]
async fn after_a_restore_old_versions_are_gone() -> Result<()> {
    let site = Site::new().await?;
    let (old, backup_version) = {
        let replica = site.replica().await?;
        let door = Door::of(&replica)?;
        let object = json!({ "metadata": { "name": "before" } });
        door.ask(Method::POST, "/api/v1/namespaces/default/secrets", Some(&object)).await?;
        let (_, list) = door.ask(Method::GET, "/api/v1/secrets", None).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
        // What is written after the backup, and is lost by the restore: rows and counter go back.
        let mut connection = site.database.connect().await?;
        sqlx::raw_sql("CREATE TABLE backup AS SELECT * FROM hub_state").execute(&mut connection).await?;
        let lost = json!({ "metadata": { "name": "lost" } });
        let (_, lost) = door.ask(Method::POST, "/api/v1/namespaces/default/secrets", Some(&lost)).await?;
        let lost = lost["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
        sqlx::raw_sql(
            "DELETE FROM resource WHERE name = 'lost'; DELETE FROM resource_event WHERE name = 'lost'; \
             UPDATE hub_state SET last_version = backup.last_version FROM backup",
        )
        .execute(&mut connection)
        .await?;
        // Even before anyone says that this is a backup: a version that the database never gave out is refused.
        let path = format!("/api/v1/secrets?watch=1&resourceVersion={lost}");
        assert_eq!(door.ask(Method::GET, &path, None).await?.0, StatusCode::GONE);
        (lost, version)
    };
    site.store().await?.begin_epoch().await?;
    let replica = site.replica().await?;
    let door = Door::of(&replica)?;
    for version in [&old, &backup_version] {
        let path = format!("/api/v1/secrets?watch=1&resourceVersion={version}");
        let (code, status) = door.ask(Method::GET, &path, None).await?;
        assert_eq!((code, &status["reason"]), (StatusCode::GONE, &json!("Expired")));
    }
    let (_, list) = door.ask(Method::GET, "/api/v1/secrets", None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
    // Newer clients compare versions as numbers.
    assert!(version.parse::<i64>()? > old.parse::<i64>()?);
    let (code, again) = door
        .ask(
            Method::POST,
            "/api/v1/namespaces/default/secrets",
            Some(&json!({ "metadata": { "name": "lost" } })),
        )
        .await?;
    assert_eq!(code, StatusCode::CREATED);
    assert!(
        again["metadata"]["resourceVersion"].as_str().context("a version")?.parse::<i64>()? > old.parse()?
    );
    Ok(())
}

/// A hub goes on running while the database under it is put back.
#[tokio::test]
async fn a_running_watch_ends_when_an_epoch_begins() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let door = Door::of(&replica)?;
    let (_, list) = door.ask(Method::GET, "/api/v1/secrets", None).await?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
    let url = format!("{}/api/v1/secrets?watch=1&resourceVersion={version}", door.url);
    let answer = door.http.get(url).bearer_auth(&door.token).send().await?;
    let mut lines = answer.bytes_stream();
    site.store().await?.begin_epoch().await?;
    let line = tokio::time::timeout(Duration::from_secs(30), lines.next()).await?.context("a line")??;
    let event: Value = serde_json::from_slice(&line)?;
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    Ok(())
}

/// A hub over this database that does not serve.
#[tokio::test]
async fn a_new_replica_knows_the_epoch() -> Result<()> {
    let site = Site::new().await?;
    let store = site.store().await?;
    store.begin_epoch().await?;
    let sealer = Sealer::new(&site.key())?;
    let another = Store::open(site.database.url(), sealer, 4).await?;
    let hub = Hub::open(another, std::sync::Arc::new(SystemClock), HubOptions::default()).await?;
    hub.objects.bootstrap().await?;
    assert!(store.last_version().await? > 2 << 40);
    Ok(())
}
