//! Artifacts that are to be signed: what the real cosign made (`cosign/signed.json`), by whom, and what it costs to look.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_sources::oci::{CosignKeys, Verification};
use roadstead_sources::{OciError, OciReference, OciRequest, Outcome};
use serde_json::Value;

use crate::fetch::{fetch, fetched};
use crate::registry::{Registry, Wants};

pub(crate) const KEYS: [&str; 4] = ["p256", "p384", "rsa", "ed25519"];

/// A registry with all that cosign left in one.
pub(crate) struct Signed {
    pub(crate) registry: Registry,
    keys: BTreeMap<String, String>,
}

impl Signed {
    pub(crate) async fn load() -> Self {
        let all: Value = serde_json::from_slice(include_bytes!("cosign/signed.json")).unwrap();
        let registry = Registry::start(true, Wants::Nothing).await;
        for blob in all["blobs"].as_object().unwrap().values() {
            let bytes = STANDARD.decode(blob["data"].as_str().unwrap()).unwrap();
            registry.blob(blob["kind"].as_str().unwrap(), &bytes);
        }
        for (tag, digest) in all["tags"].as_object().unwrap() {
            registry.tag("app", tag, digest.as_str().unwrap());
        }
        let keys = serde_json::from_value(all["keys"].clone()).unwrap();
        Self { registry, keys }
    }

    /// These keys, as entries of one Secret.
    pub(crate) fn trust(&self, names: &[&str]) -> Option<Verification> {
        let mut keys = CosignKeys::default();
        names.iter().for_each(|name| keys.add(&format!("{name}.pub"), &self.keys[*name]));
        Some(Verification::Cosign(keys))
    }

    pub(crate) fn request(&self, tag: &str, names: &[&str]) -> OciRequest {
        OciRequest { verify: self.trust(names), ..self.registry.tagged(tag) }
    }

    pub(crate) fn digest(&self, tag: &str) -> String {
        self.registry.tagged_digest("app", tag)
    }

    pub(crate) async fn good(&self, tag: &str, names: &[&str]) {
        let fetched = fetched(self.request(tag, names)).await;
        let told = format!("verified signature of revision {tag}@{}", self.digest(tag));
        assert_eq!(fetched.verified, Some(told), "{tag} by {names:?}");
    }

    /// Why it is refused.
    pub(crate) async fn refused(&self, tag: &str, names: &[&str]) -> String {
        unverified(fetch(self.request(tag, names)).await)
    }

    /// How many requests there were, and the paths of those for layers.
    pub(crate) fn cost(&self) -> usize {
        self.registry.seen().len()
    }
}

pub(crate) fn unverified(outcome: Result<Outcome, OciError>) -> String {
    match outcome {
        Err(error @ OciError::Unverified { .. }) => {
            assert_eq!(error.reason(), roadstead_model::Reason::VerificationError);
            assert!(!error.is_transient());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_cosign_signed_is_verified_by_each_kind_of_key_in_both_forms() {
    let signed = Signed::load().await;
    for key in KEYS {
        for form in ["old", "bundle"] {
            let tag = format!("{form}-{key}");
            signed.good(&tag, &[key]).await;
            // One of several is enough.
            signed.good(&tag, &KEYS).await;
            let others: Vec<&str> = KEYS.into_iter().filter(|other| *other != key).collect();
            let why = signed.refused(&tag, &others).await;
            let url = signed.registry.request().shown_url();
            let begin = format!(
                "failed to verify the signature using provider 'cosign': no matching signatures were found for '{url}@{}': ",
                signed.digest(&tag)
            );
            assert_eq!(why, format!("{begin}it was not made by a key that is trusted"));
        }
    }
}

#[tokio::test]
async fn one_of_several_signatures_is_enough() {
    let signed = Signed::load().await;
    for key in ["p256", "rsa", "p384"] {
        signed.good("old-several", &[key]).await;
    }
    assert!(signed.refused("old-several", &["ed25519"]).await.contains("not made by a key"));
}

#[tokio::test]
async fn what_is_not_signed_is_refused_before_its_layer_is_had() {
    let signed = Signed::load().await;
    let why = signed.refused("unsigned", &["p256"]).await;
    assert!(why.ends_with(": it is not signed"), "{why}");
    let seen = signed.registry.seen();
    assert!(seen.iter().all(|seen| !seen.what.contains("/blobs/")), "{seen:?}");
    // HEAD, manifest, referrers, what stands in for them, signatures of the old form.
    assert_eq!(seen.len(), 5, "{seen:?}");
    // That something was found of it, or how it was made, is not that somebody answers for it.
    let why = signed.refused("attested", &["p256"]).await;
    assert!(why.contains("an attestation (https://example.com/scan/v1)"), "{why}");
}

#[tokio::test]
async fn an_unchanged_artifact_costs_one_request() {
    let signed = Signed::load().await;
    for (tag, cost) in [("bundle-p256", 7), ("old-p256", 7)] {
        let first = fetched(signed.request(tag, &["p256"])).await;
        // HEAD, manifest, referrers, what stands in for them, the bundle's manifest and it, layer; for the old form the
        // manifest of signatures and a payload.
        assert_eq!(signed.cost(), cost, "{tag}");
        let again = OciRequest { known: Some(first.revision), ..signed.request(tag, &["p256"]) };
        assert!(matches!(fetch(again).await.unwrap(), Outcome::Unchanged(_)));
        assert_eq!(signed.cost(), 1, "{tag}");
    }
}

#[tokio::test]
async fn bundles_are_found_by_lists_of_referrers() {
    let signed = Signed::load().await;
    let digest = signed.digest("bundle-p384");
    let stand_in = format!("sha256-{}", &digest[7..]);
    let list = signed.registry.kept(&signed.registry.tagged_digest("app", &stand_in));
    signed.registry.untag("app", &stand_in);
    // It is on the second page.
    let other = signed.registry.kept(
        &signed.registry.tagged_digest("app", &format!("sha256-{}", &signed.digest("bundle-rsa")[7..])),
    );
    signed.registry.refer(&digest, vec![other, list.clone()]);
    signed.good("bundle-p384", &["p384"]).await;
    let seen = signed.registry.seen();
    let kind = "?artifactType=application/vnd.dev.sigstore.bundle.v0.3%2Bjson";
    let what = format!("GET /v2/app/referrers/{digest}{kind}");
    assert!(seen.iter().any(|seen| seen.what == what), "{seen:?}");
    assert!(!seen.iter().any(|seen| seen.what.contains("manifests/sha256-")), "{seen:?}");
    signed.registry.refer(&digest, Vec::from([list]));
    assert!(signed.refused("bundle-p384", &["rsa"]).await.contains("not made by a key"));
    // Where it is empty, there are still signatures of the old form.
    signed.good("old-rsa", &["rsa"]).await;
}

#[tokio::test]
async fn an_artifact_that_is_named_by_its_digest_is_verified_too() {
    let signed = Signed::load().await;
    let digest = signed.digest("old-p256");
    let reference = OciReference::Digest(digest.clone());
    let request = OciRequest { reference, ..signed.request("old-p256", &["p256"]) };
    let told = Some(format!("verified signature of revision {digest}"));
    assert_eq!(fetched(request.clone()).await.verified, told);
    let why = unverified(fetch(OciRequest { verify: signed.trust(&["rsa"]), ..request }).await);
    assert!(why.contains(&digest), "{why}");
}

#[test]
fn keys_that_are_trusted_have_a_digest_whatever_their_order() {
    let pem = |body: &str| format!("x\n-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\ny");
    let of = |entries: &[(&str, String)]| {
        let mut keys = CosignKeys::default();
        entries.iter().for_each(|(name, text)| keys.add(name, text));
        Verification::Cosign(keys).digest()
    };
    let (one, two) = (("a.pub", pem("MQ==")), ("b.pub", pem("Mg==")));
    assert_eq!(of(&[one.clone(), two.clone()]), of(&[two.clone(), one.clone()]));
    assert_ne!(of(std::slice::from_ref(&one)), of(&[one.clone(), two]));
    // What is not a public key, or has another name, stays where it is.
    let private = "-----BEGIN PRIVATE KEY-----\nMQ==\n-----END PRIVATE KEY-----".to_owned();
    let mut keys = CosignKeys::default();
    keys.add("cosign.key", &pem("MQ=="));
    keys.add("cosign.pub", &private);
    assert!(keys.is_empty());
    assert_eq!(of(std::slice::from_ref(&one)), of(&[one, ("c.pub", private)]));
}
