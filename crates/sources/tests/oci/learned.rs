//! What an attempt that fails has learned by then of what the reference names.

use roadstead_sources::{InProcess, OciReference, OciRequest, Source as _};
use tokio_util::sync::CancellationToken;

use crate::registry::{Fault, Registry, Wants};
use crate::verify::Signed;

/// What a fetch that must fail has learned.
async fn learned(request: &OciRequest) -> Option<String> {
    let outcome = request.fetch(None, &InProcess::default(), &CancellationToken::new()).await;
    outcome.unwrap_err().learned.map(|learned| learned.revision.to_string())
}

#[tokio::test]
async fn what_a_tag_names_is_known_before_its_layer_is() {
    let registry = Registry::start(true, Wants::Nothing).await;
    let digest = registry.push("app", "v1", &[("app.yaml", "one")]);
    registry.tag("app", "1.2.0", &digest);
    let found = Some(format!("v1@{digest}"));
    registry.fault(Fault::Layer(b"something else".to_vec()));
    assert_eq!(learned(&registry.tagged("v1")).await, found);
    let range = OciReference::SemVer { range: "1.x".to_owned(), filter: None };
    let range = OciRequest { reference: range, ..registry.request() };
    assert_eq!(learned(&range).await, Some(format!("1.2.0@{digest}")), "by the tag that was chosen");
    registry.fault(Fault::Manifest(b"something else".to_vec()));
    assert_eq!(learned(&registry.tagged("v1")).await, found);
    registry.fault(Fault::None);
    let other = OciRequest { media_type: Some("application/nothing".to_owned()), ..registry.tagged("v1") };
    assert_eq!(learned(&other).await, found);
    assert_eq!(learned(&registry.tagged("v2")).await, None, "there is none");
    registry.fault(Fault::Status(500));
    assert_eq!(learned(&registry.tagged("v1")).await, None);
}

#[tokio::test]
async fn a_digest_is_known_once_the_registry_has_it() {
    let registry = Registry::start(true, Wants::Nothing).await;
    let digest = registry.push("app", "v1", &[("app.yaml", "one")]);
    let at = |digest: &str| OciRequest {
        reference: OciReference::Digest(digest.to_owned()),
        media_type: Some("application/nothing".to_owned()),
        ..registry.request()
    };
    assert_eq!(learned(&at(&digest)).await, Some(digest.clone()));
    assert_eq!(learned(&at(&format!("sha256:{}", "1".repeat(64)))).await, None);
}

#[tokio::test]
async fn so_is_what_is_not_signed() {
    let signed = Signed::load().await;
    signed.registry.push("app", "unsigned", &[("app.yaml", "one")]);
    let request = signed.request("unsigned", &["p256"]);
    assert_eq!(learned(&request).await, Some(format!("unsigned@{}", signed.digest("unsigned"))));
}
