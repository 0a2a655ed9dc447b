//! Artifacts that are put into another repository's: where they come to lie, what they replace, and what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use roadstead_model::Reason;
use roadstead_sources::git::{Include, Stored, StoredBytes};
use roadstead_sources::{
    Entry, Fetched, GitError, GitRequest, Note, Outcome, Tree, TreeBuilder, TreeLimits, fetch, pack, unpack,
};
use roadstead_test_gitserver::Commit;
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, error, fetched, files, quiet_files};

/// An artifact that counts how often it is read.
#[derive(Debug, Default)]
struct Counted {
    bytes: Vec<u8>,
    read: AtomicUsize,
}

#[async_trait]
impl Stored for Counted {
    async fn bytes(&self) -> Result<StoredBytes, String> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let bytes = Some(self.bytes.clone()).filter(|bytes| !bytes.is_empty());
        Ok(StoredBytes { bytes: bytes.ok_or("it is not stored any more")?, held: None })
    }
}

fn artifact(entries: &[(&str, Entry)]) -> Arc<Counted> {
    let mut builder = TreeBuilder::new(TreeLimits::default());
    for (path, entry) in entries {
        builder.insert((*path).to_owned(), entry.clone()).unwrap();
    }
    Arc::new(Counted { bytes: pack(&builder.finish().unwrap()).unwrap().bytes, ..Counted::default() })
}

fn text(content: &str) -> Entry {
    Entry::File { bytes: content.as_bytes().to_vec(), executable: false }
}

fn include(artifact: &Arc<Counted>, from: &str, to: &str) -> Include {
    let artifact: Arc<dyn Stored> = artifact.clone();
    Include { repository: "shared".to_owned(), from: from.to_owned(), to: to.to_owned(), artifact }
}

fn tree(fetched: &Fetched) -> Tree {
    unpack(&fetched.artifact.bytes, &TreeLimits::default()).unwrap()
}

/// A repository with `own/a`, `own/b` and `top`, and an artifact with `base/x`, `base/y/z` and `run`.
async fn both() -> (Kit, Arc<Counted>) {
    let kit = Kit::start(false, None).await;
    let own = Commit::new().file("own/a", "own").file("own/b", "own").file("top", "own");
    kit.repository.commit("main", "own", &own).unwrap();
    let run = Entry::File { bytes: b"#!".to_vec(), executable: true };
    let shared = artifact(&[("base/x", text("shared")), ("base/y/z", text("shared")), ("run", run)]);
    (kit, shared)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_included_lies_where_it_is_put() {
    let (kit, shared) = both().await;
    let all = |include: Vec<Include>| GitRequest { include, ..kit.request("main") };
    let own = ["own/a", "own/b", "top"];
    for (from, to, added) in [
        ("", "shared", &["shared/base/x", "shared/base/y/z", "shared/run"][..]),
        ("base", "a/b", &["a/b/x", "a/b/y/z"]),
        ("./base/y/", "/c/", &["c/z"]),
        ("run", "bin/start", &["bin/start"]),
        // Neither leaves its root.
        ("../../base", "../../../etc", &["etc/x", "etc/y/z"]),
    ] {
        let mut wanted = [&own[..], added].concat();
        wanted.sort_unstable();
        assert_eq!(quiet_files(all(vec![include(&shared, from, to)])).await, wanted, "{from} {to}");
    }
    // What was there is replaced, as a whole; a file on the way gives way.
    for (from, to, wanted) in [
        ("base", "own", &["own/x", "own/y/z", "top"][..]),
        ("run", "own", &["own", "top"]),
        ("base/x", "own/a", &["own/a", "own/b", "top"]),
        ("base", "top/b", &["own/a", "own/b", "top/b/x", "top/b/y/z"]),
        ("base", ".", &["x", "y/z"]),
    ] {
        assert_eq!(quiet_files(all(vec![include(&shared, from, to)])).await, wanted, "{from} {to}");
    }
    let found = fetched(all(vec![include(&shared, "run", "own/a")])).await;
    assert_eq!(tree(&found).get("own/a"), Some(&Entry::File { bytes: b"#!".to_vec(), executable: true }));
    assert_eq!(tree(&found).get("own/b"), Some(&text("own")));
    // One after the other.
    let inner = artifact(&[("w", text("inner"))]);
    let within = vec![include(&shared, "base", "d"), include(&inner, "", "d/y")];
    assert_eq!(quiet_files(all(within)).await, ["d/x", "d/y/w", "own/a", "own/b", "top"]);
    let over = vec![include(&inner, "", "d/y"), include(&shared, "base", "d")];
    assert_eq!(quiet_files(all(over)).await, ["d/x", "d/y/z", "own/a", "own/b", "top"]);
    let same = vec![include(&inner, "", "d"), include(&shared, "base/y", "d")];
    assert_eq!(quiet_files(all(same)).await, ["d/z", "own/a", "own/b", "top"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_of_both_count_and_folders_that_are_asked_for_are_of_the_repository() {
    let (kit, _) = both().await;
    let shared = artifact(&[
        (".sourceignore", text("/drop\n")),
        ("drop", text("1")),
        ("keep", text("1")),
        ("other", text("1")),
    ]);
    let request = GitRequest {
        include: vec![include(&shared, "", "own/shared")],
        ignore: Some("other\n".to_owned()),
        sparse: vec!["own".to_owned()],
        ..kit.request("main")
    };
    let wanted = ["own/a", "own/b", "own/shared/.sourceignore", "own/shared/keep"];
    assert_eq!(quiet_files(request.clone()).await, wanted);
    let beside = GitRequest { include: vec![include(&shared, "keep", "x/y")], ..request };
    assert_eq!(quiet_files(beside).await, ["own/a", "own/b", "x/y"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_read_only_where_something_is_new() {
    let (kit, shared) = both().await;
    let request = GitRequest { include: vec![include(&shared, "", "shared")], ..kit.request("main") };
    let found = fetched(request.clone()).await;
    assert_eq!(shared.read.load(Ordering::Relaxed), 1);
    assert_eq!(files(&found).len(), 6);
    let known = GitRequest { known: Some(found.revision.clone()), ..request.clone() };
    let outcome = fetch(known, &CancellationToken::new()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unchanged(_)), "{outcome:?}");
    assert_eq!(shared.read.load(Ordering::Relaxed), 1);
    // The same revision with something else in it is another artifact, and with the same the same one.
    let other = artifact(&[("base/x", text("newer"))]);
    let newer = fetched(GitRequest { include: vec![include(&other, "", "shared")], ..request.clone() }).await;
    assert_eq!(newer.revision, found.revision);
    assert_ne!(newer.artifact.digest, found.artifact.digest);
    assert_eq!(fetched(request).await.artifact.digest, found.artifact.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_put_there_is_refused() {
    let (kit, shared) = both().await;
    let all = |include: Vec<Include>| GitRequest { include, ..kit.request("main") };
    for (from, to) in [("", "a/.git/hooks"), (".GIT", "a"), ("", "git~1")] {
        let told = error(all(vec![include(&shared, from, to)])).await;
        assert_eq!(told.reason(), Reason::IllegalPath, "{told}");
        assert!(told.to_string().contains("include 'shared'"), "{told}");
    }
    let many = (0..33).map(|n| include(&shared, "", &n.to_string())).collect();
    assert_eq!(error(all(many)).await.reason(), Reason::IllegalPath);
    for (artifact, from) in [(&shared, "none"), (&shared, "base/x/y"), (&Arc::new(Counted::default()), "")] {
        let told = error(all(vec![include(artifact, from, "a")])).await;
        assert_eq!(told.reason(), Reason::CopyFailure, "{told}");
    }
    let broken = Arc::new(Counted { bytes: b"no archive".to_vec(), ..Counted::default() });
    assert_eq!(error(all(vec![include(&broken, "", "a")])).await.reason(), Reason::CopyFailure);
    let told = error(all(vec![include(&shared, "run", "/")])).await;
    assert!(told.to_string().contains("set toPath"), "{told}");
    // No link comes along, and none is followed.
    let links = artifact(&[
        ("a/b/up", Entry::Symlink { target: "../../c".to_owned() }),
        ("c", text("c")),
        ("folder", Entry::Symlink { target: "a".to_owned() }),
    ]);
    let found = fetched(all(vec![include(&links, "a/b", "x")])).await;
    assert_eq!(found.notes, [Note::LinksLeftOut { count: 1, first: "x/up".to_owned() }]);
    assert_eq!(error(all(vec![include(&links, "folder/b", "x")])).await.reason(), Reason::CopyFailure);
    // What comes of it has the bounds of an artifact.
    let mut request = all(vec![include(&shared, "", "x")]);
    request.limits.tree.total_bytes = 15;
    let told = error(request).await;
    assert!(matches!(told, GitError::TooLarge { .. }), "{told:?}");
}
