//! What is fetched, and what it costs.

use roadstead_sources::InProcess;
use roadstead_sources::oci::{LayerOperation, fetch_with};
use roadstead_sources::{Entry, Fetched, OciError, OciReference, OciRequest, Outcome, TreeLimits, unpack};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::registry::{Fault, INDEX, LAYER, Registry, Wants, layer};

pub(crate) async fn fetch(request: OciRequest) -> Result<Outcome, OciError> {
    fetch_with(request, &InProcess::default(), &CancellationToken::new()).await
}

pub(crate) async fn fetched(request: OciRequest) -> Fetched {
    match fetch(request).await.unwrap() {
        Outcome::Fetched(fetched) => *fetched,
        Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
    }
}

pub(crate) fn files(fetched: &Fetched) -> Vec<(String, String)> {
    let tree = unpack(&fetched.artifact.bytes, &TreeLimits::default()).unwrap();
    let line = |(path, entry): (String, Entry)| match entry {
        Entry::File { bytes, .. } => (path, String::from_utf8(bytes).unwrap()),
        Entry::Symlink { .. } => panic!("a link"),
    };
    tree.into_iter().map(line).collect()
}

fn whats(registry: &Registry) -> Vec<String> {
    registry.seen().into_iter().map(|seen| seen.what).collect()
}

#[tokio::test]
async fn a_tag_is_followed_and_costs_one_request_while_it_stays() {
    let registry = Registry::start(true, Wants::Nothing).await;
    let first = registry.push("app", "v1", &[("deploy/app.yaml", "one"), ("logo.png", "x")]);
    let one = fetched(registry.tagged("v1")).await;
    assert_eq!(one.revision.to_string(), format!("v1@{first}"));
    assert_eq!(files(&one), [("deploy/app.yaml".to_owned(), "one".to_owned())]);
    assert_eq!(whats(&registry).len(), 3, "HEAD, manifest, layer");
    let again = || OciRequest { known: Some(one.revision.clone()), ..registry.tagged("v1") };
    assert!(matches!(fetch(again()).await.unwrap(), Outcome::Unchanged(_)));
    assert_eq!(whats(&registry), ["HEAD /v2/app/manifests/v1"]);
    // It moves; and then it goes.
    let second = registry.push("app", "v1", &[("deploy/app.yaml", "two")]);
    let two = fetched(again()).await;
    assert_eq!(two.revision.to_string(), format!("v1@{second}"));
    registry.untag("app", "v1");
    let error = fetch(again()).await.unwrap_err();
    assert!(matches!(&error, OciError::NotFound { .. }) && error.to_string().contains("tag `v1`"), "{error}");
    // A digest names what it names: nothing is asked where it is here.
    registry.seen();
    let by_digest = OciRequest { reference: OciReference::Digest(first.clone()), ..registry.request() };
    let of_digest = fetched(by_digest.clone()).await;
    assert_eq!(of_digest.revision.to_string(), first);
    assert_eq!(of_digest.artifact, one.artifact);
    registry.seen();
    let known = OciRequest { known: Some(of_digest.revision), ..by_digest };
    assert!(matches!(fetch(known).await.unwrap(), Outcome::Unchanged(_)));
    assert!(registry.seen().is_empty());
}

#[tokio::test]
async fn registries_without_head_or_digest_are_asked_for_the_manifest() {
    let registry = Registry::start(false, Wants::Nothing).await;
    let digest = registry.push("app", "latest", &[("a", "a")]);
    for fault in [Fault::NoHead, Fault::NoDigest] {
        registry.fault(fault);
        let found = fetched(registry.request()).await;
        assert_eq!(found.revision.to_string(), format!("latest@{digest}"));
        registry.seen();
        let known = OciRequest { known: Some(found.revision), ..registry.request() };
        assert!(matches!(fetch(known).await.unwrap(), Outcome::Unchanged(_)));
        assert_eq!(registry.seen().len(), 2);
    }
}

#[tokio::test]
async fn the_newest_version_is_found_over_many_pages() {
    let registry = Registry::start(true, Wants::Nothing).await;
    for minor in 0..25 {
        registry.push("app", &format!("1.{minor}.0"), &[("version", &minor.to_string())]);
    }
    registry.push("app", "2.0.0-rc.1", &[("version", "rc")]);
    registry.page(7);
    let range = |range: &str, filter: Option<&str>| OciRequest {
        reference: OciReference::SemVer { range: range.to_owned(), filter: filter.map(str::to_owned) },
        ..registry.request()
    };
    let found = fetched(range("1.x", None)).await;
    assert!(found.revision.to_string().starts_with("1.24.0@"), "{}", found.revision);
    let pages = whats(&registry).iter().filter(|what| what.contains("/tags/list")).count();
    assert_eq!(pages, 4);
    assert!(fetched(range(">=1.0.0-0", Some("-rc"))).await.revision.to_string().starts_with("2.0.0-rc.1@"));
    let error = fetch(range("3.x", None)).await.unwrap_err();
    assert!(error.to_string().ends_with("no match found for semver: 3.x"), "{error}");
    registry.seen();
    let error = fetch(range("latest", None)).await.unwrap_err();
    assert!(error.to_string().contains("improper constraint: \"latest\""), "{error}");
    assert!(registry.seen().is_empty(), "nothing is asked for what can bring nothing");
}

#[tokio::test]
async fn a_layer_is_selected_and_extracted_or_copied() {
    let registry = Registry::start(false, Wants::Nothing).await;
    let (first, second) = (layer(&[("first", "1")]), layer(&[("second.png", "2")]));
    let notes = json!({ "org.opencontainers.image.source": "https://git.example/app" });
    let manifest = registry.manifest(&[(LAYER, &first), ("application/other", &second)], &notes);
    registry.tag("app", "latest", manifest["digest"].as_str().unwrap());
    let of_first = fetched(registry.request()).await;
    assert_eq!(files(&of_first), [("first".to_owned(), "1".to_owned())]);
    assert_eq!(of_first.metadata["org.opencontainers.image.source"], "https://git.example/app");
    let other = |operation| OciRequest {
        media_type: Some("application/other".to_owned()),
        operation,
        ..registry.request()
    };
    assert_eq!(files(&fetched(other(LayerOperation::Extract)).await), []);
    let copied = fetched(other(LayerOperation::Copy)).await;
    assert_eq!(copied.artifact.bytes, second, "a copy is the layer as it is");
    assert_eq!(copied.artifact.digest, roadstead_model::Digest::of(&second));
    let missing = OciRequest { media_type: Some("none/such".to_owned()), ..registry.request() };
    let error = fetch(missing).await.unwrap_err();
    assert!(
        error.to_string().ends_with("failed to find layer with media type 'none/such' in artifact"),
        "{error}"
    );
    assert_eq!(error.reason().as_str(), "OCIArtifactLayerOperationFailed");
}

#[tokio::test]
async fn an_index_is_the_revision_and_its_usual_platform_the_content() {
    let registry = Registry::start(false, Wants::Nothing).await;
    let (arm, amd) = (layer(&[("arm", "")]), layer(&[("amd", "")]));
    let mut arm = registry.manifest(&[(LAYER, &arm)], &json!({}));
    arm["platform"] = json!({ "os": "linux", "architecture": "arm64" });
    let mut amd = registry.manifest(&[(LAYER, &amd)], &json!({}));
    amd["platform"] = json!({ "os": "linux", "architecture": "amd64" });
    let index_of = |manifests: &[serde_json::Value]| {
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        registry.blob(INDEX, index.to_string().as_bytes())
    };
    let index = index_of(&[arm, amd]);
    let digest = index["digest"].as_str().unwrap().to_owned();
    registry.tag("app", "latest", &digest);
    let found = fetched(registry.request()).await;
    assert_eq!(found.revision.to_string(), format!("latest@{digest}"));
    assert_eq!(files(&found), [("amd".to_owned(), String::new())]);
    // An index of indexes ends.
    let twice = index_of(&[index]);
    registry.tag("app", "latest", twice["digest"].as_str().unwrap());
    assert_eq!(files(&fetched(registry.request()).await), [("amd".to_owned(), String::new())]);
    let thrice = index_of(&[twice]);
    registry.tag("app", "latest", thrice["digest"].as_str().unwrap());
    assert!(fetch(registry.request()).await.is_err());
}
