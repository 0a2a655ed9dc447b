//! Against a Git server that hangs, breaks off and lies, and repositories that are too much.

use std::time::{Duration, Instant};

use crate::kit::{Kit, error, fetched, files, way_to};
use roadstead_model::Reason;
use roadstead_sources::{
    AttemptError, GitError, GitLimits, GitReference, GitRequest, Measure, TreeLimits, fetch,
};
use roadstead_test_gitserver::{Commit, Fault};
use tokio_util::sync::CancellationToken;

async fn kit(tls: bool) -> Kit {
    let kit = Kit::start(tls, None).await;
    // Enough of it that half a pack is some bytes, and not compressible to nothing.
    let noise: String = (0_u32..4_000).map(|n| format!("{:x} ", n.wrapping_mul(2_654_435_761))).collect();
    let commit = Commit::new().file("noise", noise).file("app.yaml", "kind: A\n");
    kit.repository.commit("main", "1", &commit).unwrap();
    kit
}

/// The error of a fetch with this fault, and that the next fetch without it works.
async fn with_fault(kit: &Kit, fault: Fault) -> GitError {
    kit.server.fault(fault);
    let error = error(kit.request("main")).await;
    assert!(error.to_string().contains(&kit.url()), "{error}");
    kit.server.fault(Fault::None);
    assert_eq!(files(&fetched(kit.request("main")).await), ["app.yaml", "noise"]);
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_or_trickles_ends_in_time() {
    let kit = kit(true).await;
    for (fault, phase) in [
        (Fault::HangBeforeAnswer, "connecting"),
        (Fault::HangInPack, "receiving the pack"),
        (Fault::Trickle(Duration::from_millis(20)), "receiving the pack"),
    ] {
        kit.server.fault(fault.clone());
        let timeout = Duration::from_millis(1_500);
        let started = Instant::now();
        let error = error(GitRequest { timeout, ..kit.request("main") }).await;
        let took = started.elapsed();
        assert!(
            matches!(error, GitError::Attempt(AttemptError::Timeout { phase: p, .. }) if p == phase),
            "{fault:?}: {error:?}"
        );
        assert!(took >= timeout && took < timeout + Duration::from_secs(20), "{fault:?}: {took:?}");
        assert!(error.is_transient() && error.reason() == Reason::GitOperationFailed);
        assert!(error.to_string().contains("1.5s") && error.to_string().contains(&kit.url()), "{error}");
    }
    kit.server.fault(Fault::None);
    assert_eq!(files(&fetched(kit.request("main")).await).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_takes_connections_and_says_nothing_ends_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for scheme in ["http", "https"] {
        let url = format!("{scheme}://{}/app.git", listener.local_addr().unwrap());
        let guard = way_to(&[listener.local_addr().unwrap()]);
        let request = GitRequest { timeout: Duration::from_millis(700), guard, ..GitRequest::new(url) };
        let started = Instant::now();
        roadstead_test_gitserver::install_crypto();
        assert!(matches!(error(request).await, GitError::Attempt(AttemptError::Timeout { .. })));
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

/// The thread is what would be left behind: it holds its temporary folder until it ends.
#[tokio::test(flavor = "multi_thread")]
async fn no_thread_and_no_folder_is_left_behind() {
    let kit = kit(false).await;
    let scratch = tempfile::tempdir().unwrap();
    let left = || std::fs::read_dir(scratch.path()).unwrap().count();
    let request = GitRequest {
        scratch: Some(scratch.path().to_owned()),
        timeout: Duration::from_secs(60),
        ..kit.request("main")
    };
    fetched(request.clone()).await;
    assert_eq!(left(), 0);
    kit.server.fault(Fault::HangInPack);

    // Cancelled.
    let cancel = CancellationToken::new();
    let task = tokio::spawn({
        let (request, cancel) = (request.clone(), cancel.clone());
        async move { fetch(request, &cancel).await }
    });
    crate::kit::until("the fetch to have begun", || left() == 1).await;
    let started = Instant::now();
    cancel.cancel();
    let error = task.await.unwrap().unwrap_err();
    assert!(matches!(error, GitError::Attempt(AttemptError::Cancelled { .. })), "{error:?}");
    crate::kit::until("the thread to end", || left() == 0).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());

    // Dropped: nobody waits for it any more.
    let task = tokio::spawn(async move { fetch(request, &CancellationToken::new()).await });
    crate::kit::until("the fetch to have begun", || left() == 1).await;
    task.abort();
    crate::kit::until("the thread to end", || left() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let guard = way_to(&[listener.local_addr().unwrap()]);
    let url = format!("http://{}/app.git", listener.local_addr().unwrap());
    drop(listener);
    roadstead_test_gitserver::install_crypto();
    let error = error(GitRequest { guard, ..GitRequest::new(url) }).await;
    assert!(matches!(error, GitError::Attempt(AttemptError::Unreachable { .. })), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("refused"), "{error}");
    let nowhere = crate::kit::error(GitRequest::new("https://nowhere.invalid/app.git")).await;
    assert!(matches!(nowhere, GitError::Attempt(AttemptError::Unreachable { .. })), "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_breaks_off_or_sends_rubbish() {
    let kit = kit(true).await;
    let cut = with_fault(&kit, Fault::CutInPack).await;
    assert!(matches!(cut, GitError::Attempt(AttemptError::Unreachable { .. })), "{cut:?}");
    for fault in [Fault::TruncatePack, Fault::CorruptPack, Fault::WebPage] {
        let error = with_fault(&kit, fault.clone()).await;
        assert!(matches!(error, GitError::Corrupt { .. }), "{fault:?}: {error:?}");
    }
    let error = with_fault(&kit, Fault::Status(503)).await;
    assert!(matches!(error, GitError::Status { status: 503, .. }) && error.is_transient(), "{error:?}");
    let error = with_fault(&kit, Fault::Status(403)).await;
    assert!(matches!(error, GitError::Auth { status: 403, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_sends_another_commit_is_not_believed() {
    let kit = kit(true).await;
    let other = kit.repository.commit("other", "evil", &Commit::new().file("app.yaml", "evil")).unwrap();
    let error = with_fault(&kit, Fault::OtherPack(other.clone())).await;
    assert!(matches!(error, GitError::Corrupt { .. }), "{error:?}");
    // Also when the commit was named and not looked up.
    let tip = fetched(kit.request("main")).await.revision.content().expect("a commit").to_owned();
    kit.server.fault(Fault::OtherPack(other));
    let request =
        GitRequest { reference: GitReference::Commit { id: tip, branch: None }, ..kit.request("main") };
    let error = crate::kit::error(request).await;
    assert!(matches!(error, GitError::Corrupt { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lists_references_without_end() {
    let kit = kit(false).await;
    kit.server.fault(Fault::EndlessReferences);
    let limits = GitLimits { advertisement_bytes: 1 << 20, ..GitLimits::default() };
    let error = error(GitRequest { limits, ..kit.request("main") }).await;
    assert!(matches!(error, GitError::TooLarge { measure: Measure::AdvertisementBytes, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits() {
    let kit = kit(false).await;
    let with = |limits: GitLimits| GitRequest { limits, ..kit.request("main") };
    let tree = |tree: TreeLimits| with(GitLimits { tree, ..GitLimits::default() });
    for (request, wanted) in [
        (with(GitLimits { transfer_bytes: 2_000, ..GitLimits::default() }), Measure::TransferBytes),
        (with(GitLimits { advertisement_bytes: 50, ..GitLimits::default() }), Measure::AdvertisementBytes),
        (with(GitLimits { objects: 3, ..GitLimits::default() }), Measure::Objects),
        (with(GitLimits { object_bytes: 1_000, ..GitLimits::default() }), Measure::ObjectBytes),
        (tree(TreeLimits { entries: 1, ..TreeLimits::default() }), Measure::Entries),
        (tree(TreeLimits { file_bytes: 1_000, ..TreeLimits::default() }), Measure::FileBytes),
        (tree(TreeLimits { total_bytes: 1_000, ..TreeLimits::default() }), Measure::TotalBytes),
        (tree(TreeLimits { path_bytes: 6, ..TreeLimits::default() }), Measure::PathBytes),
    ] {
        let error = error(request).await;
        assert!(
            matches!(error, GitError::TooLarge { measure, .. } if measure == wanted),
            "{wanted}: {error:?}"
        );
        // What a server sends without end fails the Git operation, also where the time-out would have ended it.
        let reason = match wanted {
            Measure::TransferBytes | Measure::AdvertisementBytes => Reason::GitOperationFailed,
            _ => Reason::StorageOperationFailed,
        };
        assert_eq!(error.reason(), reason, "{wanted}");
    }
    let deep = Commit::new().file("1/2/3/4/5", "x");
    kit.repository.commit("main", "deep", &deep).unwrap();
    let error = error(tree(TreeLimits { depth: 4, ..TreeLimits::default() })).await;
    assert!(matches!(error, GitError::TooLarge { measure: Measure::Depth, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_disk_that_all_fetches_have_waits_for_another_time() {
    let kit = kit(false).await;
    let mut state = 1_u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:08x}", state >> 32)
    });
    let noise: String = noise.take(400_000).collect();
    kit.repository.commit("main", "noise", &Commit::new().file("noise", &noise)).unwrap();
    let disk = roadstead_budget::Pool::new("disk", 8 << 20);
    let request = || GitRequest { disk: Some(disk.clone()), ..kit.request("main") };
    let others = disk.try_reserve(7 << 20).unwrap();
    let error = error(request()).await;
    assert!(matches!(error, GitError::NoDisk { .. }) && error.is_transient(), "{error:?}");
    drop(others);
    fetch(request(), &CancellationToken::new()).await.unwrap();
    assert_eq!(disk.used(), 0, "it is given back");
}

/// Ten folders that all are the next one, ten times: a few objects, ten billion files.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_refers_to_itself_many_times_ends() {
    let kit = kit(false).await;
    let blob = kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"x").unwrap();
    let mut lines: String = (0..10).map(|n| format!("100644 blob {blob}\tf{n}\n")).collect();
    for _ in 0..10 {
        let tree = kit.repository.git(["mktree"], &[], lines.as_bytes()).unwrap();
        lines = (0..10).map(|n| format!("040000 tree {tree}\td{n}\n")).collect();
    }
    let tree = kit.repository.git(["mktree"], &[], lines.as_bytes()).unwrap();
    kit.repository.commit_tree("main", "bomb", &tree, None).unwrap();
    // The default limits end it as well, after more work than a test should do.
    let limits = GitLimits {
        objects: 5_000,
        tree: TreeLimits { entries: 2_000, ..TreeLimits::default() },
        ..GitLimits::default()
    };
    let request = GitRequest { limits, ..kit.request("main") };
    let error = error(request.clone()).await;
    assert!(
        matches!(error, GitError::TooLarge { measure: Measure::Entries | Measure::Objects, .. }),
        "{error:?}"
    );
    // Left out as a whole, it is not walked; with a pattern that could take something back, it is walked to the limit.
    assert!(
        crate::kit::quiet_files(GitRequest { ignore: Some("*".to_owned()), ..request.clone() })
            .await
            .is_empty()
    );
    let error =
        crate::kit::error(GitRequest { ignore: Some("*\n!/x/y".to_owned()), ..request.clone() }).await;
    assert!(matches!(error, GitError::TooLarge { measure: Measure::Objects, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_that_git_would_not_write() {
    let kit = kit(false).await;
    let blob = kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"x").unwrap();
    let id: Vec<u8> = (0..20).map(|n| u8::from_str_radix(&blob[n * 2..n * 2 + 2], 16).unwrap()).collect();
    for name in ["..", ".", ".git", ".GIT", "a/b"] {
        let tree = [b"100644 ", name.as_bytes(), b"\0", id.as_slice()].concat();
        let tree = kit
            .repository
            .git(["hash-object", "-t", "tree", "-w", "--stdin", "--literally"], &[], &tree)
            .unwrap();
        kit.repository.commit_tree("main", "evil", &tree, None).unwrap();
        let error = error(kit.request("main")).await;
        assert!(matches!(error, GitError::Tree { .. } | GitError::Corrupt { .. }), "{name}: {error:?}");
    }
}
