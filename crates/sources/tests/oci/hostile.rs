//! Registries that lie, send without end, or say nothing.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use roadstead_model::Digest;
use roadstead_sources::oci::{OciLimits, fetch_with};
use roadstead_sources::{Desk, Ended, Engine, InProcess};
use roadstead_sources::{OciError, OciReference, OciRequest, TreeLimits};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fetch::fetch;
use crate::registry::{Fault, LAYER, Registry, Wants, layer, login};

async fn error(request: OciRequest) -> OciError {
    fetch(request).await.map(|outcome| panic!("{outcome:?}")).unwrap_err()
}

#[tokio::test]
async fn what_has_another_digest_or_length_is_refused() {
    let registry = Registry::start(true, Wants::Nothing).await;
    let digest = registry.push("app", "latest", &[("a", "a")]);
    let whole = layer(&[("a", "a")]);
    registry.fault(Fault::Manifest(b"{\"layers\": []}".to_vec()));
    let by_digest = OciRequest { reference: OciReference::Digest(digest.clone()), ..registry.request() };
    for request in [registry.request(), by_digest] {
        let error = error(request).await;
        assert!(matches!(&error, OciError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(&digest), "{error}");
    }
    let same_length: Vec<u8> = whole.iter().map(|byte| byte ^ 1).collect();
    for lie in [
        layer(&[("evil", "e")]),
        whole[..whole.len() - 1].to_vec(),
        [whole.as_slice(), b"x"].concat(),
        same_length,
    ] {
        registry.fault(Fault::Layer(lie));
        assert!(matches!(error(registry.request()).await, OciError::Corrupt { .. }));
    }
    // What is asked for by its digest is compared, whatever led to it.
    registry.fault(Fault::None);
    let mut index = registry.manifest(&[(LAYER, &whole)], &json!({}));
    index["digest"] = Digest::of(b"another").to_string().into();
    let index = registry.blob("index", json!({ "manifests": [index] }).to_string().as_bytes());
    registry.tag("app", "latest", index["digest"].as_str().unwrap());
    assert!(matches!(error(registry.request()).await, OciError::NotFound { .. }));
}

#[tokio::test]
async fn layers_that_lead_out_are_refused_and_too_large_ones_too() {
    let registry = Registry::start(false, Wants::Nothing).await;
    for name in ["../../etc/cron.d/x", "/etc/cron.d/x", "a\\..\\b"] {
        registry.push("app", "latest", &[("ok", ""), (name, "x")]);
        let error = error(registry.request()).await;
        assert_eq!(error.reason().as_str(), "OCIArtifactLayerOperationFailed", "{error}");
    }
    registry.push("app", "latest", &[("a", &"x".repeat(100_000))]);
    let tree = TreeLimits { total_bytes: 1_000, ..TreeLimits::default() };
    for limits in [
        OciLimits { tree, ..OciLimits::default() },
        OciLimits { layer_bytes: 50, ..OciLimits::default() },
        OciLimits { manifest_bytes: 50, ..OciLimits::default() },
        OciLimits { artifact_bytes: 50, ..OciLimits::default() },
    ] {
        let error = error(OciRequest { limits, ..registry.request() }).await;
        assert!(matches!(&error, OciError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test]
async fn lists_of_tags_stay_at_the_repository_and_end() {
    let registry = Registry::start(false, Wants::Nothing).await;
    registry.push("app", "1.0.0", &[("a", "a")]);
    let reference = OciReference::SemVer { range: "*".to_owned(), filter: None };
    let request = OciRequest { reference, ..registry.request() };
    for next in [
        "<http://169.254.169.254/latest>; rel=\"next\"",
        "</v2/other/tags/list?last=x>; rel=\"next\"",
        "</v2/app/manifests/x>; rel=\"next\"",
        "</v2/app/tags/list?n=1000>; rel=\"next\"",
    ] {
        registry.fault(Fault::NextPage(next.to_owned()));
        assert!(matches!(error(request.clone()).await, OciError::Corrupt { .. }), "{next}");
    }
    // There is always one more.
    registry.fault(Fault::NextPage("</v2/app/tags/list?last=0>; rel=\"next\"".to_owned()));
    let limits = OciLimits { list_bytes: 500, ..OciLimits::default() };
    let endless = error(OciRequest { limits, ..request.clone() }).await;
    assert!(matches!(endless, OciError::TooLarge { .. } | OciError::Corrupt { .. }), "{endless}");
    for n in 0..20 {
        registry.push("app", &format!("1.0.{n}"), &[("a", "a")]);
    }
    registry.fault(Fault::None);
    let limits = OciLimits { tags: 10, ..OciLimits::default() };
    let many = error(OciRequest { limits, ..request }).await;
    assert!(many.to_string().contains("more than 10 tags"), "{many}");
}

#[tokio::test]
async fn a_registry_that_says_nothing_costs_its_timeout_and_its_failures_are_told() {
    let registry = Registry::start(false, Wants::Nothing).await;
    registry.push("app", "latest", &[("a", "a")]);
    registry.fault(Fault::Hang);
    let began = Instant::now();
    let hanging = error(OciRequest { timeout: Duration::from_millis(300), ..registry.request() }).await;
    assert!(hanging.is_transient() && began.elapsed() < Duration::from_secs(10), "{hanging}");
    for (status, transient) in [(429, true), (503, true), (418, false)] {
        registry.fault(Fault::Status(status));
        let failure = error(registry.request()).await;
        assert!(matches!(&failure, OciError::Status { .. }), "{failure}");
        assert_eq!(failure.is_transient(), transient, "{failure}");
    }
}

/// Readers in this process, whose orders are noted, or which are replaced by one that answers as it is told.
#[derive(Default)]
struct Readers {
    orders: Mutex<Vec<Vec<u8>>>,
    instead: Option<serde_json::Value>,
}

#[async_trait]
impl Engine for Readers {
    async fn admit(&self, about: &str) -> Result<(), Ended> {
        self.orders.lock().unwrap().push(about.as_bytes().to_vec());
        Ok(())
    }

    async fn run(&self, about: &str, order: Vec<u8>, desk: &mut Desk) -> Result<Vec<u8>, Ended> {
        self.orders.lock().unwrap().push(order.clone());
        match &self.instead {
            Some(reply) => Ok(reply.to_string().into_bytes()),
            None => InProcess::default().run(about, order, desk).await,
        }
    }
}

#[tokio::test]
async fn a_reader_is_told_no_url_and_no_credentials_and_has_digests_asked_for_only() {
    let registry = Registry::start(true, Wants::Basic).await;
    registry.push("app", "1.0.0", &[("a", "a")]);
    let reference = OciReference::SemVer { range: "1.x".to_owned(), filter: None };
    let request = OciRequest { reference, logins: login("right"), ..registry.request() };
    let readers = Readers::default();
    let cancel = CancellationToken::new();
    fetch_with(request.clone(), &readers, &cancel).await.unwrap();
    let orders = readers.orders.into_inner().unwrap();
    assert!(orders.len() > 4, "tags, manifest, layer");
    for order in orders {
        let text = String::from_utf8(order).unwrap();
        for word in ["127.0.0.1", "right", "reader", "Basic"] {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
    // One that was taken over.
    registry.seen();
    let descriptor = |digest: &str| json!({ "mediaType": LAYER, "digest": digest, "size": 3 });
    let tagged = OciRequest { reference: OciReference::Tag("1.0.0".to_owned()), ..request };
    for reply in [
        json!({ "Manifest": descriptor("../../other/manifests/latest") }),
        json!({ "Layer": { "layer": descriptor("sha256:short"), "annotations": {} } }),
        json!({ "Tag": "../../x" }),
        json!({ "Read": { "files": 1, "unpacked_bytes": 1, "notes": [] } }),
        json!("nothing"),
    ] {
        let readers = Readers { instead: Some(reply.clone()), ..Readers::default() };
        assert!(fetch_with(tagged.clone(), &readers, &cancel).await.is_err(), "{reply}");
    }
    for seen in registry.seen() {
        assert!(
            seen.what.starts_with("HEAD /v2/app/manifests/1.0.0")
                || seen.what.contains("app/manifests/sha256:"),
            "{seen:?}"
        );
    }
    // What it may ask for is compared with its digest all the same.
    let lie = json!({ "Layer": { "layer": descriptor(&Digest::of(b"abc").to_string()), "annotations": {} } });
    let readers = Readers { instead: Some(lie), ..Readers::default() };
    registry.fault(Fault::Layer(b"xyz".to_vec()));
    assert!(matches!(fetch_with(tagged, &readers, &cancel).await, Err(OciError::Corrupt { .. })));
}
