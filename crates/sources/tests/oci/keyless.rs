//! Artifacts that were signed without keys (`keyless/signed.json`, which `keyless/main.go` writes with what the real cosign says of each):
//! what is taken, and why what is not.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_sources::OciRequest;
use roadstead_sources::oci::{Identity, Keyless, TrustedRoot, Verification};
use serde_json::{Value, json};

use crate::fetch::{fetch, fetched};
use crate::registry::{INDEX, MANIFEST, Registry, Wants};
use crate::verify::unverified;

const ISSUER: &str = "^https://token\\.example$";
const SUBJECT: &str = "^https://git\\.example/app/\\.ci/release@refs/tags/v1$";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// What is good, in each form, of each kind of identity, and with each source of time.
const GOOD: [(&str, &str); 13] = [
    ("bundle", SUBJECT),
    ("message", SUBJECT),
    ("old", SUBJECT),
    ("bundle-mail", "^ann@example\\.com$"),
    ("old-mail", "^ann@example\\.com$"),
    ("bundle-other-name", "^ann$"),
    ("bundle-v1-issuer", SUBJECT),
    ("bundle-stamped", SUBJECT),
    ("bundle-both-times", SUBJECT),
    ("old-stamped", SUBJECT),
    ("bundle-rekor2", SUBJECT),
    ("message-rekor2", SUBJECT),
    // A chart.
    ("1.0.0", SUBJECT),
];

/// What is not, and why.
const BAD: [(&str, &str); 12] = [
    ("bundle-no-time", "no trusted time of signing"),
    ("bundle-expired", "its certificate was not valid when it was signed"),
    ("old-expired", "its certificate was not valid when it was signed"),
    ("bundle-no-sct", "has no signed certificate timestamp"),
    ("old-no-sct", "has no signed certificate timestamp"),
    ("bundle-strange", "checkpoint is not signed by the log's key"),
    ("bundle-of-signature", "is of another signature"),
    // The signature that the log has is not this one either.
    ("bundle-of-payload", "is of another payload"),
    ("old-of-signature", "is of another signature"),
    ("old-of-payload", "is of another payload"),
    ("bundle-ended", "the authority that issued its certificate was not valid when it was signed"),
    ("old-ended", "the authority that issued its certificate was not valid when it was signed"),
];

struct World {
    registry: Registry,
    all: Value,
}

impl World {
    async fn load() -> Self {
        let all: Value = serde_json::from_slice(include_bytes!("keyless/signed.json")).unwrap();
        let registry = Registry::start(true, Wants::Nothing).await;
        for blob in all["blobs"].as_object().unwrap().values() {
            let bytes = STANDARD.decode(blob["data"].as_str().unwrap()).unwrap();
            registry.blob(blob["kind"].as_str().unwrap(), &bytes);
        }
        for (tag, digest) in all["tags"].as_object().unwrap() {
            registry.tag("app", tag, digest.as_str().unwrap());
        }
        Self { registry, all }
    }

    /// The trusted root that an artifact is of.
    fn root(&self, tag: &str) -> Value {
        let name = if tag.ends_with("-ended") { "ended" } else { "good" };
        serde_json::from_str(self.all["roots"][name].as_str().unwrap()).unwrap()
    }

    fn request(&self, tag: &str, root: &Value, identities: &[(&str, &str)]) -> OciRequest {
        let root = TrustedRoot::parse(&root.to_string()).unwrap();
        let keyless = Keyless::new(
            root,
            identities.iter().map(|(issuer, subject)| identity(issuer, subject)).collect(),
        );
        OciRequest { verify: Some(Verification::Keyless(keyless.unwrap())), ..self.registry.tagged(tag) }
    }

    async fn good(&self, tag: &str, root: &Value, identities: &[(&str, &str)]) {
        let fetched = fetched(self.request(tag, root, identities)).await;
        let told =
            format!("verified signature of revision {tag}@{}", self.registry.tagged_digest("app", tag));
        assert_eq!(fetched.verified, Some(told));
    }

    async fn refused(&self, tag: &str, root: &Value, identities: &[(&str, &str)]) -> String {
        let why = unverified(fetch(self.request(tag, root, identities)).await);
        let begin = "failed to verify the signature using provider 'cosign keyless': no matching signatures were found for ";
        assert!(why.starts_with(begin), "{why}");
        why
    }

    /// That it is refused, since the root is changed so.
    async fn refused_by(&self, tag: &str, expected: &str, change: impl FnOnce(&mut Value)) {
        let mut root = self.root(tag);
        change(&mut root);
        let why = self.refused(tag, &root, &[(ISSUER, SUBJECT)]).await;
        assert!(why.contains(expected), "{tag}: {why}");
    }

    fn json(&self, digest: &str) -> Value {
        serde_json::from_slice(&self.registry.kept(digest)).unwrap()
    }

    fn tag_of(&self, image: &str, suffix: &str) -> String {
        format!("sha256-{}{suffix}", &self.registry.tagged_digest("app", image)[7..])
    }

    fn bundle(&self, image: &str) -> Value {
        let list = self.json(&self.registry.tagged_digest("app", &self.tag_of(image, "")));
        let manifest = self.json(list["manifests"][0]["digest"].as_str().unwrap());
        self.json(manifest["layers"][0]["digest"].as_str().unwrap())
    }

    /// Lays a bundle where those of an image lie.
    fn put(&self, image: &str, bundle: &Value) {
        let layer = self.registry.blob(BUNDLE, bundle.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "layers": [layer] });
        let mut kept = self.registry.blob(MANIFEST, manifest.to_string().as_bytes());
        kept["artifactType"] = BUNDLE.into();
        let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [kept] });
        let list = self.registry.blob(INDEX, list.to_string().as_bytes());
        self.registry.tag("app", &self.tag_of(image, ""), list["digest"].as_str().unwrap());
    }
}

fn identity(issuer: &str, subject: &str) -> Identity {
    Identity { issuer: issuer.to_owned(), subject: subject.to_owned() }
}

#[tokio::test]
async fn what_is_signed_by_whom_it_should_be_is_verified() {
    let world = World::load().await;
    for (tag, subject) in GOOD {
        let root = world.root(tag);
        world.good(tag, &root, &[(ISSUER, subject)]).await;
        // Expressions need not match the whole, and one entry is enough, but it must match in both.
        world.good(tag, &root, &[("^nobody$", "."), ("token", ".")]).await;
        for identities in [[("^https://other$", subject)], [(ISSUER, "^nobody$")]] {
            let why = world.refused(tag, &root, &identities).await;
            assert!(
                why.contains(
                    "of issuer https://token.example, which no entry of spec.verify.matchOIDCIdentity matches"
                ),
                "{why}"
            );
        }
        world.refused(tag, &root, &[("^https://other$", subject), (ISSUER, "^nobody$")]).await;
    }
}

#[tokio::test]
async fn what_is_not_as_it_should_be_is_refused_for_that() {
    let world = World::load().await;
    for (tag, expected) in BAD {
        let why = world.refused(tag, &world.root(tag), &[(ISSUER, ".")]).await;
        assert!(why.contains(expected), "{tag}: {why}");
    }
    let why = world.refused("unsigned", &world.root(""), &[(ISSUER, ".")]).await;
    assert!(why.ends_with("it is not signed"), "{why}");
}

#[test]
fn the_real_cosign_says_the_same() {
    let all: Value = serde_json::from_slice(include_bytes!("keyless/signed.json")).unwrap();
    let verdicts: BTreeMap<String, Value> = serde_json::from_value(all["verdicts"].clone()).unwrap();
    assert_eq!(verdicts.len(), GOOD.len() + BAD.len() + 1);
    for (tag, verdict) in verdicts {
        let is_good = GOOD.iter().any(|(good, _)| *good == tag);
        // Of images, it takes no signatures that are of the manifest itself.
        assert_eq!(
            verdict["cosign"] == "verified",
            is_good && !tag.starts_with("message"),
            "{tag}: {verdict}"
        );
    }
}

#[tokio::test]
async fn what_a_root_does_not_have_vouches_for_nothing() {
    let world = World::load().await;
    let other = world.all["other"].clone();
    let strange = world.root("bundle-ended")["certificateAuthorities"].clone();
    let before = json!({ "start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z" });
    for tag in ["bundle", "old"] {
        let not_issued = "was not issued by an authority of the trusted root";
        world.refused_by(tag, not_issued, |root| root["certificateAuthorities"] = strange.clone()).await;
        let untrusted = "of an authority that the trusted root does not trust at that time";
        world
            .refused_by(tag, untrusted, |root| root["certificateAuthorities"][0]["validFor"] = before.clone())
            .await;
        // The same name, and another key.
        let unsigned = "its entry is not signed by the transparency log";
        world
            .refused_by(tag, unsigned, |root| root["tlogs"][0]["publicKey"]["rawBytes"] = other.clone())
            .await;
        let invalid = "it was logged at a time at which the log's key was not valid";
        world
            .refused_by(tag, invalid, |root| root["tlogs"][0]["publicKey"]["validFor"] = before.clone())
            .await;
        let no_entry = "no entry of a transparency log that the trusted root has";
        let id = STANDARD.encode([7; 32]);
        world.refused_by(tag, no_entry, |root| root["tlogs"][0]["logId"]["keyId"] = id.clone().into()).await;
        let no_sct = "no SCT of a certificate transparency log in the trusted root";
        world.refused_by(tag, no_sct, |root| root["ctlogs"][0]["logId"]["keyId"] = id.clone().into()).await;
        let sct = "is not signed by the certificate transparency log";
        world.refused_by(tag, sct, |root| root["ctlogs"][0]["publicKey"]["rawBytes"] = other.clone()).await;
        let sct = "the certificate transparency log's key was not valid";
        world.refused_by(tag, sct, |root| root["ctlogs"][0]["publicKey"]["validFor"] = before.clone()).await;
    }
    let stamped = "no trusted time of signing";
    for tag in ["bundle-stamped", "bundle-rekor2"] {
        world.refused_by(tag, stamped, |root| root["timestampAuthorities"] = json!([])).await;
        world.refused_by(tag, stamped, |root| root["timestampAuthorities"] = strange.clone()).await;
        let span = |root: &mut Value| root["timestampAuthorities"][0]["validFor"] = before.clone();
        world.refused_by(tag, "does not trust at that time", span).await;
    }
    let invalid = "it was logged at a time at which the log's key was not valid";
    world
        .refused_by("bundle-rekor2", invalid, |root| {
            root["tlogs"][1]["publicKey"]["validFor"] = before.clone();
        })
        .await;
    // Who stamps may also be in the token, and only who certified it in the root.
    let mut root = world.root("bundle-stamped");
    root["timestampAuthorities"][0]["certChain"]["certificates"].as_array_mut().unwrap().remove(0);
    world.good("bundle-stamped", &root, &[(ISSUER, SUBJECT)]).await;
}

#[tokio::test]
async fn what_was_changed_or_copied_is_refused() {
    let world = World::load().await;
    let root = world.root("bundle");
    let changed = |tag: &str, change: &dyn Fn(&mut Value)| {
        let mut bundle = world.bundle(tag);
        change(&mut bundle);
        bundle
    };
    let material = "verificationMaterial";
    let entry = |bundle: &mut Value, pointer: &str, value: Value| {
        *bundle.pointer_mut(&format!("/{material}/tlogEntries/0{pointer}")).unwrap() = value;
    };
    let junk = STANDARD.encode([7; 32]);
    let other = world.bundle("bundle-both-times");
    let cases: Vec<(Value, &str)> = vec![
        (
            changed("bundle", &|one| entry(one, "/inclusionProof/hashes/0", junk.clone().into())),
            "another checkpoint",
        ),
        (changed("bundle", &|one| entry(one, "/inclusionProof/logIndex", "4".into())), "another checkpoint"),
        (changed("bundle", &|one| entry(one, "/inclusionProof/logIndex", "-1".into())), "negative number"),
        (changed("bundle", &|one| entry(one, "/inclusionProof/treeSize", "12".into())), "proof"),
        (changed("bundle", &|one| entry(one, "/inclusionProof/rootHash", junk.clone().into())), "not valid"),
        (
            changed("bundle", &|one| entry(one, "/inclusionProof/hashes", json!(vec![&junk; 900]))),
            "not valid",
        ),
        (changed("bundle", &|one| entry(one, "/inclusionProof", Value::Null)), "has no inclusion proof"),
        (
            changed("bundle", &|one| entry(one, "/integratedTime", "1700000000".into())),
            "not signed by the transparency log",
        ),
        (changed("bundle", &|one| entry(one, "/logIndex", "1".into())), "not signed by the transparency log"),
        (changed("bundle", &|one| entry(one, "/kindVersion/kind", "intoto".into())), "another kind"),
        (
            changed("bundle", &|one| one[material]["tlogEntries"] = json!([])),
            "no entry of a transparency log",
        ),
        (
            changed("bundle", &|one| one[material]["tlogEntries"] = other[material]["tlogEntries"].clone()),
            "another signature",
        ),
        (
            changed("bundle", &|one| one[material]["certificate"] = other[material]["certificate"].clone()),
            "another certificate",
        ),
        (
            changed("bundle", &|one| one["dsseEnvelope"]["signatures"][0]["sig"] = junk.clone().into()),
            "another signature",
        ),
        (changed("bundle", &|one| one[material] = json!({ "publicKey": { "hint": "x" } })), "made by a key"),
        (
            changed("bundle", &|one| {
                one[material]["tlogEntries"] = json!(vec![&other[material]["tlogEntries"][0]; 9]);
            }),
            "more than 8",
        ),
        (
            changed("bundle", &|one| one[material]["certificate"]["rawBytes"] = junk.clone().into()),
            "is not in DER",
        ),
        (world.bundle("bundle-mail"), "another image"),
        (world.bundle("message"), "another image"),
    ];
    for (bundle, expected) in cases {
        world.put("bundle", &bundle);
        let why = world.refused("bundle", &root, &[(ISSUER, SUBJECT)]).await;
        assert!(why.contains(expected), "{expected}: {why}");
    }
    // A signature of the old form is not one of another image either.
    let digest = world.registry.tagged_digest("app", &world.tag_of("old", ".sig"));
    world.registry.tag("app", &world.tag_of("unsigned", ".sig"), &digest);
    let why = world.refused("unsigned", &root, &[(ISSUER, SUBJECT)]).await;
    assert!(why.contains("a signature of another image"), "{why}");
    let mut manifest = world.json(&digest);
    let annotations = manifest["layers"][0]["annotations"].clone();
    for (name, value, expected) in [
        ("dev.sigstore.cosign/bundle", None, "no entry of a transparency log"),
        ("dev.sigstore.cosign/certificate", None, "made by a key"),
        ("dev.sigstore.cosign/certificate", Some("x"), "not PEM"),
        ("dev.sigstore.cosign/bundle", Some("{}"), "cannot be read"),
        ("dev.sigstore.cosign/rfc3161timestamp", Some("{}"), "cannot be read"),
    ] {
        let mut annotations = annotations.clone();
        match value {
            Some(value) => annotations[name] = value.into(),
            None => drop(annotations.as_object_mut().unwrap().remove(name)),
        }
        manifest["layers"][0]["annotations"] = annotations;
        let kept = world.registry.blob(MANIFEST, manifest.to_string().as_bytes());
        world.registry.tag("app", &world.tag_of("old", ".sig"), kept["digest"].as_str().unwrap());
        let why = world.refused("old", &root, &[(ISSUER, SUBJECT)]).await;
        assert!(why.contains(expected), "{expected}: {why}");
    }
    // What is stamped is the signature.
    let stamps = "timestampVerificationData";
    let mut bundle = world.bundle("bundle-stamped");
    bundle[material][stamps] = world.bundle("bundle-both-times")[material][stamps].clone();
    world.put("bundle-stamped", &bundle);
    let why = world.refused("bundle-stamped", &root, &[(ISSUER, SUBJECT)]).await;
    assert!(why.contains("its timestamp is of another signature"), "{why}");
    let mut stamp = STANDARD
        .decode(bundle[material][stamps]["rfc3161Timestamps"][0]["signedTimestamp"].as_str().unwrap())
        .unwrap();
    for at in 0..stamp.len() {
        stamp[at] ^= 1;
        bundle[material][stamps]["rfc3161Timestamps"][0]["signedTimestamp"] = STANDARD.encode(&stamp).into();
        stamp[at] ^= 1;
        if at % 40 == 0 {
            world.put("bundle-stamped", &bundle);
            world.refused("bundle-stamped", &root, &[(ISSUER, SUBJECT)]).await;
        }
    }
}

#[tokio::test]
async fn roots_that_are_none_are_refused_with_why() {
    let world = World::load().await;
    let good = world.root("");
    let refused = |root: &str| TrustedRoot::parse(root).unwrap_err();
    assert!(refused("").contains("EOF"));
    assert!(refused("[]").contains("invalid"));
    assert!(refused(&"[".repeat(1_000)).contains("invalid"));
    assert!(refused(&format!("{good}{}", " ".repeat(300 << 10))).contains("more than 262144 bytes"));
    let changed = |pointer: &str, value: Value, expected: &str| {
        let mut root = good.clone();
        *root.pointer_mut(pointer).unwrap() = value;
        let why = refused(&root.to_string());
        assert!(why.contains(expected) && why.len() < 1_000, "{pointer}: {why}");
    };
    changed("/mediaType", "x".into(), "mediaType");
    changed("/certificateAuthorities", json!([]), "no certificateAuthorities");
    changed("/tlogs", json!([]), "no tlogs");
    changed("/ctlogs", json!([]), "no ctlogs");
    changed("/tlogs", json!(vec![&good["tlogs"][0]; 33]), "more than 32 tlogs");
    changed("/tlogs", json!([good["tlogs"][0], good["tlogs"][0]]), "two with its logId");
    changed("/tlogs/0/logId/keyId", "MQ==".into(), "tlogs[0]: its logId is not 32 bytes long");
    changed("/tlogs/0/publicKey/rawBytes", "?".into(), "line 1");
    changed("/ctlogs/0/publicKey/rawBytes", "MQ==".into(), "no ctlogs with a key that can be used");
    changed("/tlogs/0/publicKey/validFor/start", "yesterday".into(), "line 1");
    let certificates = "/certificateAuthorities/0/certChain/certificates";
    changed(certificates, json!([]), "certificateAuthorities[0]: it must have between 1 and 8 certificates");
    changed(certificates, json!(vec![&good.pointer(certificates).unwrap()[0]; 9]), "between 1 and 8");
    changed(
        certificates,
        json!([{ "rawBytes": "MQ==" }]),
        "certificateAuthorities[0]: a certificate is not in DER",
    );
    changed(
        "/timestampAuthorities/0/certChain/certificates/0/rawBytes",
        "MQ==".into(),
        "timestampAuthorities[0]",
    );
}

#[tokio::test]
async fn identities_that_are_none_are_refused_with_why() {
    let world = World::load().await;
    let root = TrustedRoot::parse(&world.root("").to_string()).unwrap();
    let refused = |identities: Vec<Identity>| Keyless::new(root.clone(), identities).unwrap_err();
    assert!(refused(vec![]).contains("without an identity anybody's signature would do"));
    let field = "spec.verify.matchOIDCIdentity[0]";
    assert!(refused(vec![identity("", "x")]).starts_with(&format!("{field}.issuer is empty")));
    assert!(refused(vec![identity("x", "")]).starts_with(&format!("{field}.subject is empty")));
    assert!(refused(vec![identity("x", "(")]).starts_with(&format!("{field}.subject: error parsing regexp")));
    assert!(refused(vec![identity(&"x".repeat(2_000), "x")]).contains("longer than 1024 bytes"));
    assert!(refused(vec![identity("((x{1000}){1000}){1000}", "x")]).contains("issuer: "));
    assert!(refused(vec![identity("x", "x"); 51]).contains("more than 50 entries"));
    let trust = |root: &TrustedRoot, subject: &str| {
        Verification::Keyless(Keyless::new(root.clone(), vec![identity("x", subject)]).unwrap()).digest()
    };
    assert_ne!(trust(&root, "a"), trust(&root, "b"));
    let ended = TrustedRoot::parse(&world.root("x-ended").to_string()).unwrap();
    assert_ne!(trust(&root, "a"), trust(&ended, "a"));
}

#[tokio::test]
async fn keys_and_identities_are_two_things() {
    let signed = crate::verify::Signed::load().await;
    let world = World::load().await;
    let keyless = world.request("bundle", &world.root(""), &[(ISSUER, ".")]).verify;
    for tag in ["bundle-p256", "old-p256"] {
        let request = OciRequest { verify: keyless.clone(), ..signed.request(tag, &["p256"]) };
        let why = unverified(fetch(request).await);
        assert!(why.contains("made by a key"), "{why}");
        let request =
            OciRequest { verify: signed.trust(&["p256"]), ..world.registry.tagged(&tag[..tag.len() - 5]) };
        let why = unverified(fetch(request).await);
        assert!(why.contains("not made by a key that is trusted"), "{why}");
    }
}
