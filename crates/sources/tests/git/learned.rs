//! What an attempt that fails has learned by then of what the reference points to.

use std::time::Duration;

use roadstead_sources::git::{Include, Stored, StoredBytes, TrustedKeys, Verification, VerificationMode};
use roadstead_sources::{GitReference, GitRequest, InProcess, Learned, Source as _};
use roadstead_test_gitserver::{Commit, Fault};
use tokio_util::sync::CancellationToken;

use crate::kit::Kit;

/// What a fetch that must fail has learned.
async fn learned(request: &GitRequest) -> Option<Learned> {
    let outcome =
        request.fetch(request.known.as_ref(), &InProcess::default(), &CancellationToken::new()).await;
    outcome.unwrap_err().learned.map(|learned| *learned)
}

/// The same, as the text of a revision.
async fn revision(request: &GitRequest) -> Option<String> {
    learned(request).await.map(|learned| {
        assert_eq!(learned.chart, None);
        learned.revision.to_string()
    })
}

#[derive(Debug)]
struct Gone;

#[async_trait::async_trait]
impl Stored for Gone {
    async fn bytes(&self) -> Result<StoredBytes, String> {
        Err("it is not stored any more".to_owned())
    }
}

async fn kit() -> (Kit, String) {
    let kit = Kit::start(false, None).await;
    let first = kit.repository.commit("main", "First", &Commit::new().file("a", "1")).unwrap();
    (kit, first)
}

#[tokio::test]
async fn a_pack_that_breaks_off_leaves_the_revision_known() {
    let (kit, first) = kit().await;
    let request = kit.request("main");
    // Before it is told, nothing is known.
    kit.server.fault(Fault::Status(500));
    assert_eq!(revision(&request).await, None);
    for fault in [Fault::CutInPack, Fault::TruncatePack, Fault::CorruptPack] {
        kit.server.fault(fault);
        assert_eq!(revision(&request).await, Some(format!("main@sha1:{first}")));
    }
    // However it ends: here in the middle of a request, which is dropped.
    kit.server.fault(Fault::HangInPack);
    let short = GitRequest { timeout: Duration::from_secs(3), ..request.clone() };
    assert_eq!(revision(&short).await, Some(format!("main@sha1:{first}")));
    kit.server.fault(Fault::None);
    let missing = GitRequest { reference: GitReference::Branch("none".to_owned()), ..request };
    assert_eq!(revision(&missing).await, None);
}

#[tokio::test]
async fn what_is_not_taken_is_known() {
    let (kit, first) = kit().await;
    let found = Some(format!("main@sha1:{first}"));
    let request = kit.request("main");
    let sparse = GitRequest { sparse: vec!["nothing".to_owned()], ..request.clone() };
    assert_eq!(revision(&sparse).await, found);
    let mut bounded = request.clone();
    bounded.limits.artifact_bytes = 10;
    assert_eq!(revision(&bounded).await, found);
    let verification = Verification { mode: VerificationMode::Head, keys: TrustedKeys::default() };
    let unsigned = GitRequest { verify: Some(verification), ..request.clone() };
    assert_eq!(revision(&unsigned).await, found);
    // Known to be unsigned, it is not fetched again.
    assert_eq!(revision(&unsigned).await, found);
    let include = Include {
        repository: "shared".to_owned(),
        from: String::new(),
        to: "lib".to_owned(),
        artifact: std::sync::Arc::new(Gone),
    };
    let including = GitRequest { include: vec![include], ..request };
    assert_eq!(revision(&including).await, found);
}

#[tokio::test]
async fn a_tag_is_known_by_its_commit_and_a_commit_only_once_it_is_there() {
    let (kit, first) = kit().await;
    kit.repository.git(["tag", "-a", "v1.2.0", "-m", "Released", &first], &[], b"").unwrap();
    kit.server.fault(Fault::CutInPack);
    let at = |reference| GitRequest { reference, ..kit.request("main") };
    let tag = at(GitReference::Tag("v1.2.0".to_owned()));
    assert_eq!(revision(&tag).await, Some(format!("v1.2.0@sha1:{first}")));
    let commit = |id: &str| at(GitReference::Commit { id: id.to_owned(), branch: Some("main".to_owned()) });
    assert_eq!(revision(&commit(&first)).await, None, "nobody has said yet that it is there");
    kit.server.fault(Fault::None);
    assert_eq!(revision(&commit(&"1".repeat(40))).await, None);
    let mut bounded = commit(&first);
    bounded.limits.artifact_bytes = 10;
    assert_eq!(revision(&bounded).await, Some(format!("main@sha1:{first}")));
}

#[tokio::test]
async fn so_is_what_a_local_repository_has() {
    let (kit, first) = kit().await;
    let mut request = GitRequest::new(format!("file://{}", kit.repository.path().display()));
    request.reference = GitReference::Branch("main".to_owned());
    request.allow_file = true;
    request.limits.artifact_bytes = 10;
    assert_eq!(revision(&request).await, Some(format!("main@sha1:{first}")));
}
