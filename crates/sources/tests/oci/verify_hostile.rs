//! Signatures that were made for something else, are too many, too large or none: nothing of it makes an artifact a signed
//! one, and nothing of it hides a good signature beside it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::registry::{INDEX, LAYER, MANIFEST, layer};
use crate::verify::Signed;

const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

impl Signed {
    fn tag_of(&self, image: &str, suffix: &str) -> String {
        format!("sha256-{}{suffix}", &self.digest(image)[7..])
    }

    fn json(&self, digest: &str) -> Value {
        serde_json::from_slice(&self.registry.kept(digest)).unwrap()
    }

    /// The manifest of an image's signatures of the old form.
    fn old(&self, image: &str) -> Value {
        self.json(&self.registry.tagged_digest("app", &self.tag_of(image, ".sig")))
    }

    fn put_old(&self, image: &str, manifest: &Value) {
        self.put(&self.tag_of(image, ".sig"), MANIFEST, manifest);
    }

    fn put(&self, tag: &str, kind: &str, content: &Value) {
        let kept = self.registry.blob(kind, content.to_string().as_bytes());
        self.registry.tag("app", tag, kept["digest"].as_str().unwrap());
    }

    /// An image's bundle.
    fn bundle(&self, image: &str) -> Value {
        let list = self.json(&self.registry.tagged_digest("app", &self.tag_of(image, "")));
        let manifest = self.json(list["manifests"][0]["digest"].as_str().unwrap());
        self.json(manifest["layers"][0]["digest"].as_str().unwrap())
    }

    /// A manifest with this as its bundle, as a list of referrers has it.
    fn referrer(&self, bundle: &[u8]) -> Value {
        let layer = self.registry.blob(BUNDLE, bundle);
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer] });
        let mut kept = self.registry.blob(MANIFEST, manifest.to_string().as_bytes());
        kept["artifactType"] = BUNDLE.into();
        kept
    }

    fn put_referrers(&self, image: &str, manifests: &[Value]) {
        let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        self.put(&self.tag_of(image, ""), INDEX, &list);
    }
}

#[tokio::test]
async fn a_signature_of_another_image_does_not_count() {
    let signed = Signed::load().await;
    // Signed by the right key, and laid where this image's signatures lie.
    signed.put_old("unsigned", &signed.old("old-p256"));
    let why = signed.refused("unsigned", &["p256"]).await;
    assert!(
        why.contains("a signature of another image") && why.contains(&signed.digest("old-p256")),
        "{why}"
    );
    signed.registry.untag("app", &signed.tag_of("unsigned", ".sig"));
    let bundle = signed.bundle("bundle-p256").to_string();
    signed.put_referrers("unsigned", &[signed.referrer(bundle.as_bytes())]);
    let why = signed.refused("unsigned", &["p256"]).await;
    assert!(why.contains("a signature of another image"), "{why}");
    // The tag of a signed artifact moves to one that nobody signed.
    let other = signed.registry.manifest(&[(LAYER, &layer(&[("evil.yaml", "x")]))], &json!({}));
    signed.registry.tag("app", "old-rsa", other["digest"].as_str().unwrap());
    assert!(signed.refused("old-rsa", &["rsa"]).await.contains("it is not signed"));
}

#[tokio::test]
async fn what_was_changed_after_it_was_signed_does_not_count() {
    let signed = Signed::load().await;
    let mut manifest = signed.old("old-p256");
    let payload = signed.json(manifest["layers"][0]["digest"].as_str().unwrap());
    let mut changed = payload.clone();
    changed["optional"] = json!({ "more": "x" });
    for content in [changed.to_string(), payload.to_string().replace("\":", "\" :")] {
        let kept = signed.registry.blob(SIMPLE, content.as_bytes());
        let annotations = manifest["layers"][0]["annotations"].clone();
        manifest["layers"][0] = kept;
        manifest["layers"][0]["annotations"] = annotations;
        signed.put_old("old-p256", &manifest);
        let why = signed.refused("old-p256", &["p256"]).await;
        assert!(why.contains("not made by a key"), "{why}");
    }
    let bundle = signed.bundle("bundle-p256");
    let statement = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str().unwrap()).unwrap();
    let mut statement: Value = serde_json::from_slice(&statement).unwrap();
    statement["predicate"] = json!({ "more": "x" });
    let mut changed = bundle.clone();
    changed["dsseEnvelope"]["payload"] = STANDARD.encode(statement.to_string()).into();
    let mut typed = bundle.clone();
    typed["dsseEnvelope"]["payloadType"] = "application/other".into();
    let mut twice = bundle.clone();
    let one = bundle["dsseEnvelope"]["signatures"][0].clone();
    twice["dsseEnvelope"]["signatures"] = json!([one.clone(), one]);
    let mut both = bundle.clone();
    both["messageSignature"] = json!({ "signature": "MQ==" });
    let mut older = bundle.clone();
    older["mediaType"] = "application/vnd.dev.sigstore.bundle+json;version=0.1".into();
    for (changed, expected) in [
        (changed, "not made by a key"),
        (typed, "no in-toto statement"),
        (twice, "must have exactly one signature"),
        (both, "must have exactly one signature"),
        (older, "not of version 0.3"),
    ] {
        signed.put_referrers("bundle-p256", &[signed.referrer(changed.to_string().as_bytes())]);
        let why = signed.refused("bundle-p256", &["p256"]).await;
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test]
async fn junk_is_named_and_hides_nothing() {
    let signed = Signed::load().await;
    let good = signed.bundle("bundle-p256").to_string();
    let absent = format!("sha256:{}", "1".repeat(64));
    let gone = json!({ "mediaType": MANIFEST, "digest": absent, "size": 10, "artifactType": BUNDLE });
    let deep = "[".repeat(100_000);
    let large = format!("{{\"mediaType\": \"{}\"}}", "x".repeat(300 << 10));
    let mut referrers = vec![gone];
    for junk in ["", "{}", "null", "\u{1}", &deep, &large, "{\"mediaType\": 1}"] {
        referrers.push(signed.referrer(junk.as_bytes()));
    }
    signed.put_referrers("bundle-p256", &referrers);
    let why = signed.refused("bundle-p256", &["p256"]).await;
    assert!(why.contains("there is no manifest") && why.len() < 1_000, "{why}");
    referrers.insert(3, signed.referrer(good.as_bytes()));
    signed.put_referrers("bundle-p256", &referrers);
    signed.good("bundle-p256", &["p256"]).await;

    let mut manifest = signed.old("old-p256");
    let good = manifest["layers"][0].clone();
    let with = |mut kept: Value, signature: &str| {
        kept["annotations"] = json!({ SIGNATURE: signature });
        kept
    };
    let junk = vec![
        with(signed.registry.blob(SIMPLE, b"{}"), "MQ=="),
        with(signed.registry.blob(SIMPLE, deep.as_bytes()), "MQ=="),
        with(signed.registry.blob(SIMPLE, &vec![b' '; 65 << 10]), "MQ=="),
        with(signed.registry.blob(SIMPLE, b"null"), "not base64"),
        with(signed.registry.blob("application/json", b"[]"), "MQ=="),
        json!({ "mediaType": SIMPLE, "digest": "sha256:x", "size": 1, "annotations": { SIGNATURE: "MQ==" } }),
        json!({ "mediaType": SIMPLE, "digest": absent, "size": 1, "annotations": { SIGNATURE: "MQ==" } }),
        // A signature of the good one's payload, which is none.
        with(good.clone(), "MQ=="),
        signed.registry.blob(SIMPLE, b"{}"),
    ];
    manifest["layers"] = junk.clone().into();
    signed.put_old("old-p256", &manifest);
    let why = signed.refused("old-p256", &["p256"]).await;
    assert!(why.contains("larger than 65536 bytes") && why.len() < 1_000, "{why}");
    manifest["layers"] = [&junk[..4], &[good], &junk[4..]].concat().into();
    signed.put_old("old-p256", &manifest);
    signed.good("old-p256", &["p256"]).await;
    // Neither is a list or manifest that cannot be read at all one of a signed artifact.
    for junk in [json!([]), json!({ "layers": 1 }), json!({ "manifests": [1] }), json!({})] {
        signed.put_old("old-p256", &junk);
        signed.put_referrers("old-p256", &[]);
        signed.put(&signed.tag_of("old-p256", ""), INDEX, &junk);
        signed.refused("old-p256", &["p256"]).await;
    }
}

#[tokio::test]
async fn of_many_signatures_the_last_ones_are_looked_at() {
    let signed = Signed::load().await;
    let mut manifest = signed.old("old-p256");
    let good = manifest["layers"][0].clone();
    let mut bad = good.clone();
    bad["annotations"][SIGNATURE] = "MQ==".into();
    let mut layers = vec![bad; 300];
    layers[250] = good.clone();
    manifest["layers"] = layers.clone().into();
    signed.put_old("old-p256", &manifest);
    signed.good("old-p256", &["p256"]).await;
    // They have one payload.
    assert_eq!(signed.cost(), 7);
    layers.swap(250, 249);
    manifest["layers"] = layers.into();
    signed.put_old("old-p256", &manifest);
    let why = signed.refused("old-p256", &["p256"]).await;
    assert!(why.contains("of its 300 signatures the last 50 were looked at: it was not made"), "{why}");
    // More than any list may have is none.
    manifest["layers"] = vec![good; 1_001].into();
    signed.put_old("old-p256", &manifest);
    assert!(signed.refused("old-p256", &["p256"]).await.contains("more than 1000 items"));

    let good = signed.referrer(signed.bundle("bundle-rsa").to_string().as_bytes());
    let mut many: Vec<Value> =
        (0..300).map(|number| signed.referrer(number.to_string().as_bytes())).collect();
    many[0] = good.clone();
    signed.put_referrers("bundle-rsa", &many);
    signed.cost();
    let why = signed.refused("bundle-rsa", &["rsa"]).await;
    assert!(why.contains("of its 300 signatures the last 50 were looked at: it is not a bundle"), "{why}");
    // HEAD, manifest, two lists, 50 manifests and 50 bundles, and the old form.
    assert_eq!(signed.cost(), 105);
    many[299] = good;
    signed.put_referrers("bundle-rsa", &many);
    signed.good("bundle-rsa", &["rsa"]).await;
}
