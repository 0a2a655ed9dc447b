//! One index for many objects: it is received once by those who want it at the same time, and read once for all charts that are taken of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use roadstead_model::Revision;
use roadstead_sources::git::{Stored, StoredBytes};
use roadstead_sources::helm::{AskedTogether, ChartOrigin, Indexes, KnownIndex};
use roadstead_sources::{HelmChartRequest, HelmIndexRequest, OciRequest, Outcome};

use crate::kit::{fetch, fetched, index, index_of, packed, request, stored};
use crate::server::{Fault, Server};

/// An index that counts how often it is read.
#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    reads: AtomicUsize,
}

#[async_trait]
impl Stored for Counted {
    async fn bytes(&self) -> Result<StoredBytes, String> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(StoredBytes { bytes: self.bytes.clone(), held: None })
    }
}

/// Indexes that were fetched.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeMap<String, Vec<u8>>>);

impl Kept {
    fn keep(&self, outcome: &Outcome) {
        if let Outcome::Fetched(fetched) = outcome {
            let mut all = self.0.lock().unwrap();
            all.insert(fetched.revision.to_string(), fetched.artifact.bytes.clone());
        }
    }
}

#[async_trait]
impl Indexes for Kept {
    async fn at(&self, revision: &Revision) -> Option<Arc<dyn Stored>> {
        self.0.lock().unwrap().get(&revision.to_string()).cloned().map(stored)
    }
}

/// A repository with so many charts.
async fn with_charts(count: usize) -> Server {
    let server = Server::start(false).await;
    let names: Vec<String> = (0..count).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<Vec<u8>> = names.iter().map(|name| packed(name, "1.0.0", &[])).collect();
    let mut entries: Vec<(&str, &str, &str, &[u8])> = Vec::new();
    for (name, bytes) in names.iter().zip(&charts) {
        server.put(&format!("/{name}"), bytes.clone());
        entries.push((name, "1.0.0", name, bytes));
    }
    server.put("/index.yaml", index(&entries));
    server
}

#[tokio::test]
async fn charts_of_one_index_are_looked_up_together() {
    let server = with_charts(300).await;
    let bytes = fetched(&index_of(&server)).await.artifact.bytes;
    let counted = Arc::new(Counted { bytes, reads: AtomicUsize::new(0) });
    let others: Vec<(String, String)> =
        (0..150).map(|number| (format!("chart-{number}"), "1.x".to_owned())).collect();
    let together = AskedTogether { others: others.clone(), ..AskedTogether::default() };
    let of = |chart: &str, version: &str| -> HelmChartRequest {
        let origin = ChartOrigin::Repository {
            server: Box::new(server.repository()),
            index: Arc::clone(&counted) as Arc<dyn Stored>,
            together: together.clone(),
            registry: Box::new(OciRequest::new("oci://registry.example/none")),
        };
        request(origin, chart, version)
    };
    // All at once: one of them reads the index, and the others have what it found.
    let requests: Vec<HelmChartRequest> = others.iter().map(|(chart, version)| of(chart, version)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for request in requests {
        tasks.spawn(async move { fetched(&request).await.chart().unwrap().name.clone() });
    }
    let mut names = tasks.join_all().await;
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 150);
    assert_eq!(counted.reads.load(Ordering::Relaxed), 1);
    assert!(together.known.knows("chart-0", "1.x") && !together.known.knows("chart-299", "1.x"));
    // One that nobody named beforehand is looked for, and so is what is not there: once.
    assert_eq!(fetched(&of("chart-299", "")).await.chart().unwrap().name, "chart-299");
    for _ in 0..2 {
        let error = fetch(&of("chart-0", ">=9"), None).await.unwrap_err();
        let said = "failed to get chart version for remote reference: no 'chart-0' chart with version matching '>=9' found";
        assert!(error.to_string().contains(said), "{error}");
    }
    assert_eq!(counted.reads.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn who_wants_the_same_index_at_once_has_it_fetched_once() {
    let server = with_charts(3).await;
    let (known_index, kept) = (KnownIndex::default(), Arc::new(Kept::default()));
    let of = || HelmIndexRequest {
        known_index: known_index.clone(),
        indexes: Some(Arc::clone(&kept) as Arc<dyn Indexes>),
        ..index_of(&server)
    };
    let mut tasks = tokio::task::JoinSet::new();
    for request in (0..8).map(|_| of()) {
        let kept = Arc::clone(&kept);
        tasks.spawn(async move {
            let outcome = fetch(&request, None).await.unwrap();
            // The next one goes on once this is dropped, which is after it is stored.
            kept.keep(&outcome);
            match outcome {
                Outcome::Fetched(fetched) => fetched.revision.to_string(),
                Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
            }
        });
    }
    let revisions = tasks.join_all().await;
    assert!(revisions.iter().all(|revision| *revision == revisions[0]));
    // Who came after the first had begun asks once more, for all of the others, and is told that nothing has changed.
    let seen = server.seen();
    assert!(seen.len() <= 2, "{seen:?}");
    assert!(seen.iter().skip(1).all(|seen| seen.headers.contains_key("if-none-match")), "{seen:?}");

    // Later ones ask, and have what is stored where nothing has changed, also of what others received.
    let first: Revision = revisions[0].parse().unwrap();
    assert!(matches!(fetch(&of(), Some(&first)).await.unwrap(), Outcome::Unchanged(_)));
    server.put("/index.yaml", index(&[("new", "1.0.0", "new.tgz", b"")]));
    let second = fetched(&of()).await;
    kept.keep(&Outcome::Fetched(Box::new(second)));
    server.seen();
    let other = fetched(&of()).await;
    assert_ne!(other.revision, first);
    drop(other);
    let Outcome::Fetched(other) = fetch(&of(), Some(&first)).await.unwrap() else { panic!("unchanged") };
    assert_ne!(other.revision, first);
    let seen = server.seen();
    assert!(seen.iter().all(|seen| seen.headers.contains_key("if-none-match")), "{seen:?}");
    drop(other);

    // What is not stored any more is received again.
    kept.0.lock().unwrap().clear();
    assert!(matches!(fetch(&of(), None).await.unwrap(), Outcome::Fetched(_)));
    assert!(!server.seen()[0].headers.contains_key("if-none-match"));
}

#[tokio::test]
async fn who_waits_for_one_that_fails_asks_itself() {
    let server = with_charts(1).await;
    server.fault("/index.yaml", Fault::Status(503));
    let known_index = KnownIndex::default();
    let of = || HelmIndexRequest { known_index: known_index.clone(), ..index_of(&server) };
    let (one, other) = (of(), of());
    let (one, other) = tokio::join!(fetch(&one, None), fetch(&other, None));
    assert!(one.unwrap_err().is_transient() && other.unwrap_err().is_transient());
    assert_eq!(server.paths(), ["/index.yaml", "/index.yaml"]);
}
