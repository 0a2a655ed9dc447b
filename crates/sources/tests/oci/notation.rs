//! Artifacts that are signed as the real notation signs them (`notation/signed.json`), and some that nobody should accept.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use roadstead_sources::oci::{NotationTrust, Verification};
use roadstead_sources::{OciRequest, Outcome};
use serde_json::{Value, json};

use crate::fetch::{fetch, fetched};
use crate::registry::{INDEX, MANIFEST, Registry, Wants};
use crate::verify::unverified;

const KIND: &str = "application/vnd.cncf.notary.signature";
const JWS: &str = "application/jose+json";
const SUBJECT: &str = "x509.subject: C=DE, ST=Berlin, O=Example\\, Ltd";

/// A registry with all that notation left in one.
pub(crate) struct Kit {
    pub(crate) registry: Registry,
    certificates: BTreeMap<String, String>,
}

/// One policy, for all repositories unless said.
pub(crate) fn policy(level: &str, change: impl Fn(&mut Value)) -> Value {
    let mut statement = json!({
        "name": "own", "registryScopes": ["*"], "signatureVerification": { "level": level },
        "trustStores": ["ca:own"], "trustedIdentities": [SUBJECT],
    });
    change(&mut statement);
    json!({ "version": "1.0", "trustPolicies": [statement] })
}

pub(crate) fn strict() -> Value {
    policy("strict", |_| {})
}

impl Kit {
    pub(crate) async fn load() -> Self {
        let all: Value = serde_json::from_slice(include_bytes!("notation/signed.json")).unwrap();
        let registry = Registry::start(true, Wants::Nothing).await;
        for blob in all["blobs"].as_object().unwrap().values() {
            let bytes = STANDARD.decode(blob["data"].as_str().unwrap()).unwrap();
            registry.blob(blob["kind"].as_str().unwrap(), &bytes);
        }
        for (tag, digest) in all["tags"].as_object().unwrap() {
            registry.tag("app", tag, digest.as_str().unwrap());
        }
        let certificates = serde_json::from_value(all["certificates"].clone()).unwrap();
        Self { registry, certificates }
    }

    fn trust(&self, policy: &Value, names: &[&str]) -> Verification {
        let mut entries = vec![("trustpolicy.json", policy.to_string().into_bytes())];
        let keys: Vec<String> = names.iter().map(|name| format!("{name}.crt")).collect();
        for (key, name) in keys.iter().zip(names) {
            entries.push((key, self.certificates[*name].clone().into_bytes()));
        }
        Verification::Notation(NotationTrust::of_entries(&entries).unwrap())
    }

    pub(crate) fn request(&self, tag: &str, policy: &Value, names: &[&str]) -> OciRequest {
        OciRequest { verify: Some(self.trust(policy, names)), ..self.registry.tagged(tag) }
    }

    fn digest(&self, tag: &str) -> String {
        self.registry.tagged_digest("app", tag)
    }

    async fn good(&self, tag: &str, policy: &Value, names: &[&str]) {
        let fetched = fetched(self.request(tag, policy, names)).await;
        let told = format!("verified signature of revision {tag}@{}", self.digest(tag));
        assert_eq!(fetched.verified, Some(told), "{tag} by {names:?}: {:?}", fetched.notes);
        assert!(fetched.notes.is_empty(), "{tag}: {:?}", fetched.notes);
    }

    /// It is stored, and nothing is said of who signed it but in a note.
    async fn unproven(&self, tag: &str, policy: &Value, names: &[&str], why: &str) {
        let fetched = fetched(self.request(tag, policy, names)).await;
        assert_eq!(fetched.verified, None, "{tag}");
        let notes: Vec<String> = fetched.notes.iter().map(ToString::to_string).collect();
        assert!(notes.len() == 1 && notes[0].contains(why), "{tag}: {notes:?}");
    }

    async fn refused(&self, tag: &str, policy: &Value, names: &[&str], why: &str) {
        let message = unverified(fetch(self.request(tag, policy, names)).await);
        let begin = "failed to verify the signature using provider 'notation': ";
        assert!(message.starts_with(begin) && message.contains(why), "{tag}: want `{why}` in: {message}");
        assert!(message.len() < 1_500, "{message}");
    }

    fn json(&self, digest: &str) -> Value {
        serde_json::from_slice(&self.registry.kept(digest)).unwrap()
    }

    fn list_tag(&self, tag: &str) -> String {
        format!("sha256-{}", &self.digest(tag)[7..])
    }

    fn list(&self, tag: &str) -> Vec<Value> {
        let list = self.json(&self.registry.tagged_digest("app", &self.list_tag(tag)));
        list["manifests"].as_array().unwrap().clone()
    }

    fn put_list(&self, tag: &str, manifests: &[Value]) {
        let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let kept = self.registry.blob(INDEX, list.to_string().as_bytes());
        self.registry.tag("app", &self.list_tag(tag), kept["digest"].as_str().unwrap());
    }

    /// What a signature of an artifact has as its envelope.
    fn envelope(&self, tag: &str) -> Vec<u8> {
        let manifest = self.json(self.list(tag)[0]["digest"].as_str().unwrap());
        self.registry.kept(manifest["layers"][0]["digest"].as_str().unwrap())
    }

    /// A signature with this envelope, as lists have it.
    fn referrer(&self, kind: &str, envelope: &[u8]) -> Value {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": { "mediaType": KIND, "digest": format!("sha256:{}", "1".repeat(64)), "size": 2 },
            "layers": [self.registry.blob(kind, envelope)],
        });
        let mut kept = self.registry.blob(MANIFEST, manifest.to_string().as_bytes());
        kept["artifactType"] = KIND.into();
        kept
    }
}

const KEYS: [&str; 6] = ["es256", "es384", "es512", "ps256", "ps384", "ps512"];

#[tokio::test]
async fn what_notation_signed_is_verified_with_each_key_in_both_forms() {
    let kit = Kit::load().await;
    for form in ["jws", "cose"] {
        for key in KEYS {
            let tag = format!("{form}-{key}");
            kit.good(&tag, &strict(), &["root"]).await;
            kit.refused(&tag, &strict(), &["other"], "none of its certificates is one that is trusted").await;
        }
        let tag = format!("{form}-extended");
        kit.good(&tag, &strict(), &["other", "root"]).await;
    }
    // An authority in between may be the one that is trusted, and a certificate that signed itself.
    kit.good("jws-es256", &strict(), &["middle"]).await;
    kit.good("alone", &strict(), &["alone"]).await;
    kit.refused("alone", &strict(), &["root"], "none of its certificates").await;
    // One of several signatures is enough.
    kit.good("several", &strict(), &["root"]).await;
    kit.good("several", &strict(), &["other"]).await;
    kit.refused("unsigned", &strict(), &["root"], "it is not signed").await;
}

#[tokio::test]
async fn each_flaw_of_a_signature_is_named() {
    let kit = Kit::load().await;
    for form in ["jws", "cose"] {
        for (name, why) in [
            ("expired-certificate", "CN=signer' expired on "),
            ("expired", "it expired on 2022-01-01T00:00:00Z"),
            ("critical", "critical header 'com.example.unknown', which is unknown"),
            ("plugin", "by a plugin (io.cncf.notary.verificationPlugin), and plugins are not supported"),
            ("payload-type", "its payload is of the type 'application/json'"),
            ("size", "and the artifact's manifest has"),
            ("media-type", "bytes of application/vnd.oci.image.other.v1+json"),
            ("authority", "no trust store of the type signingAuthority"),
        ] {
            kit.refused(&format!("{form}-{name}"), &strict(), &["root"], why).await;
        }
    }
    for (name, why) in [
        ("eku-server", "is for another purpose than signing code"),
        ("eku-any", "is for another purpose than signing code"),
        ("usage-none", "has no key usage"),
        ("usage-more", "has a key that is for more than signing"),
        ("usage-other", "has a key that is not for signing"),
        ("leaf-is-ca", "signed the artifact, and is an authority"),
        ("sha1", "is signed with an algorithm that is not accepted"),
        // Nobody can be reached there.
        ("crl", "may be revoked, which is not known: http://crl.example/a.crl: "),
        ("ocsp", "may be revoked, which is not known: http://ocsp.example: "),
        ("rootless", "is the last one, and not a root that signed itself"),
        ("disorder", "was not issued by the next one"),
        ("unrelated", "signed itself, and is not the last one"),
        ("alone-other", "is the last one, and not a root that signed itself"),
        ("other-key", "not made by the key of its certificate"),
        ("short-subject", "cannot be compared: it has no C"),
        ("weak-root", "was not issued by the next one"),
        ("path", "has more authorities below it than it may have"),
        ("by-a-leaf", "issued another one, and is not an authority"),
    ] {
        kit.refused(&format!("chain-{name}"), &strict(), &["root", "weak"], why).await;
    }
    kit.refused("weak-leaf", &strict(), &["root"], "RSA of 1024 bits").await;
    // The specification lets a certificate say nothing of its purpose, and where an issuer's certificate is says nothing of revocation.
    kit.good("chain-eku-none", &strict(), &["root"]).await;
    kit.good("chain-ca-issuers", &strict(), &["root"]).await;
}

#[tokio::test]
async fn a_policy_says_which_signers_count() {
    let kit = Kit::load().await;
    let by = |identities: &[&str]| policy("strict", |one| one["trustedIdentities"] = json!(identities));
    for identities in [
        &["*"][..],
        &["x509.subject:CN=signer,O=Example\\, Ltd,S=Berlin,C=DE"],
        &["x509.subject: C=FR, ST=Berlin, O=Example", SUBJECT],
        &["x509.subject: c=DE,st=Berlin,o=Example\\2c Ltd"],
    ] {
        kit.good("cose-es256", &by(identities), &["root"]).await;
    }
    for identities in [
        &["x509.subject: C=DE, ST=Berlin, O=Example"][..],
        &["x509.subject: C=DE, ST=Berlin, O=Example\\, Ltd, CN=other"],
    ] {
        kit.refused("cose-es256", &by(identities), &["root"], "is none of the policy's trusted identities")
            .await;
    }
    kit.refused("cose-es256", &by(&["other.kind:x"]), &["root"], "names no x509.subject").await;
}

#[tokio::test]
async fn a_policy_is_for_its_registry_scopes() {
    let kit = Kit::load().await;
    let own = format!("{}/app", kit.registry.address);
    let two = |first: &[&str], second: Value| {
        let mut all = policy("strict", |one| one["registryScopes"] = json!(first));
        all["trustPolicies"].as_array_mut().unwrap().push(second);
        all
    };
    let skip =
        json!({ "name": "skip", "registryScopes": ["*"], "signatureVerification": { "level": "skip" } });
    let elsewhere = policy("strict", |one| one["registryScopes"] = json!(["registry.example/app"]));
    kit.refused("jws-es256", &elsewhere, &["root"], &format!("other registry scopes than '{own}'")).await;
    // One for this repository counts before one for all.
    kit.refused("unsigned", &two(&[&own], skip.clone()), &["root"], "it is not signed").await;
    let fetched = fetched(kit.request("unsigned", &two(&["registry.example/app"], skip), &["root"])).await;
    assert!(fetched.verified.is_none() && fetched.notes.is_empty(), "{:?}", fetched.notes);
}

#[tokio::test]
async fn levels_say_what_comes_of_a_failure() {
    let kit = Kit::load().await;
    let (audit, permissive) = (policy("audit", |_| {}), policy("permissive", |_| {}));
    kit.unproven("jws-es256", &audit, &["other"], "authenticity: none of its certificates is one").await;
    kit.refused("jws-es256", &permissive, &["other"], "none of its certificates").await;
    for level in [&audit, &permissive] {
        for tag in ["jws-expired", "cose-expired-certificate", "chain-crl", "chain-ocsp"] {
            kit.good(tag, level, &["root"]).await;
        }
        // Whether it is whole, and of this artifact, matters at each level.
        for tag in ["chain-eku-server", "chain-other-key", "jws-size", "jws-critical", "cose-plugin"] {
            kit.refused(tag, level, &["root"], "no matching signatures").await;
        }
        kit.refused("unsigned", level, &["root"], "it is not signed").await;
    }
    // Of several signatures the one by somebody who is trusted counts, whichever comes first.
    kit.good("several", &audit, &["root"]).await;
    kit.good("several", &audit, &["other"]).await;
    let overridden = |check: &str, action: &str| {
        policy("strict", |one| one["signatureVerification"]["override"] = json!({ check: action }))
    };
    for action in ["skip", "log"] {
        kit.good("chain-crl", &overridden("revocation", action), &["root"]).await;
    }
    kit.good("cose-expired", &overridden("expiry", "log"), &["root"]).await;
    kit.good("cose-expired-certificate", &overridden("authenticTimestamp", "log"), &["root"]).await;
    kit.unproven("cose-es512", &overridden("authenticity", "log"), &["other"], "none of its certificates")
        .await;
}

#[tokio::test]
async fn times_are_those_of_a_signing_authority_or_now() {
    let kit = Kit::load().await;
    let with = |stores: &[&str], stamp: Option<&str>| {
        policy("strict", |one| {
            one["trustStores"] = json!(stores);
            one["signatureVerification"]["verifyTimestamp"] = json!(stamp);
        })
    };
    for form in ["jws", "cose"] {
        // It says that it signed while the certificate was valid.
        let tag = format!("{form}-authority");
        kit.good(&tag, &with(&["signingAuthority:x"], None), &["root"]).await;
        kit.refused(
            &format!("{form}-es256"),
            &with(&["signingAuthority:x"], None),
            &["root"],
            "of the type ca",
        )
        .await;
    }
    let stamped = "the policy asks for a timestamp";
    kit.refused("jws-es256", &with(&["ca:x", "tsa:x"], None), &["root"], stamped).await;
    kit.refused("jws-es256", &with(&["ca:x", "tsa:x"], Some("always")), &["root"], stamped).await;
    let after = with(&["ca:x", "tsa:x"], Some("afterCertExpiry"));
    kit.good("jws-es256", &after, &["root"]).await;
    kit.refused("jws-expired-certificate", &after, &["root"], stamped).await;
}

#[tokio::test]
async fn a_signature_is_of_one_artifact() {
    let kit = Kit::load().await;
    for form in ["jws", "cose"] {
        let tag = format!("{form}-es384");
        kit.put_list(&tag, &kit.list(&format!("{form}-es256")));
        kit.refused(&tag, &strict(), &["root"], "it is a signature of another artifact, sha256:").await;
    }
    kit.put_list("unsigned", &kit.list("jws-es256"));
    kit.refused("unsigned", &policy("audit", |_| {}), &["root"], "of another artifact").await;
}

#[tokio::test]
async fn what_was_changed_afterwards_is_refused() {
    let kit = Kit::load().await;
    let good: Value = serde_json::from_slice(&kit.envelope("jws-ps256")).unwrap();
    let decoded = |field: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(good[field].as_str().unwrap()).unwrap()).unwrap()
    };
    let encoded = |value: &Value| json!(URL_SAFE_NO_PAD.encode(value.to_string()));
    let with = |field: &str, value: Value| {
        let mut changed = good.clone();
        changed[field] = value;
        changed
    };
    let mut payload = decoded("payload");
    payload["more"] = json!("x");
    let header = |name: &str, value: Value| {
        let mut header = decoded("protected");
        header[name] = value;
        with("protected", encoded(&header))
    };
    let mut chainless = good.clone();
    chainless["header"]["x5c"] = json!([]);
    let mut long = good.clone();
    long["header"]["x5c"] = json!(vec![good["header"]["x5c"][0].clone(); 11]);
    for (changed, why) in [
        (with("payload", encoded(&payload)), "not made by the key"),
        (header("more", json!("x")), "not made by the key"),
        (header("alg", json!("none")), "it is made with 'none', but its certificate's key signs with PS256"),
        (header("alg", json!("HS256")), "it is made with 'HS256'"),
        (header("alg", json!("PS512")), "it is made with 'PS512'"),
        (with("signature", json!("")), "not made by the key"),
        (with("signature", json!("AAAA")), "not made by the key"),
        (with("payload", json!("*")), "payload is not base64url"),
        (chainless, "no certificates"),
        (long, "more than 10 certificates"),
    ] {
        kit.put_list("jws-ps256", &[kit.referrer(JWS, changed.to_string().as_bytes())]);
        kit.refused("jws-ps256", &strict(), &["root"], why).await;
    }
    kit.put_list("jws-ps256", &[kit.referrer(JWS, good.to_string().as_bytes())]);
    kit.good("jws-ps256", &strict(), &["root"]).await;
}

#[tokio::test]
async fn junk_is_named_and_hides_nothing() {
    let kit = Kit::load().await;
    let good = kit.list("cose-es256")[0].clone();
    let absent = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "2".repeat(64)), "size": 9, "artifactType": KIND });
    let deep = vec![0x81; 100_000];
    let tagged = [&[0xd2, 0x9b][..], &[0xff; 8]].concat();
    let mut list = vec![absent];
    for junk in [&b""[..], b"{}", b"null", &deep, &tagged, &vec![b' '; 257 << 10], b"{\"payload\":1}"] {
        list.push(kit.referrer(JWS, junk));
    }
    list.push(kit.referrer("application/other", b"{}"));
    list.push(json!({ "mediaType": MANIFEST, "digest": "sha256:x", "size": 1, "artifactType": "application/other" }));
    kit.put_list("cose-es256", &list);
    kit.refused("cose-es256", &strict(), &["root"], "there is no manifest").await;
    list.insert(3, good.clone());
    kit.put_list("cose-es256", &list);
    kit.good("cose-es256", &strict(), &["root"]).await;
    // Of many the last ones are looked at.
    let mut many: Vec<Value> = (0..300).map(|n| kit.referrer(JWS, n.to_string().as_bytes())).collect();
    many[0] = good.clone();
    kit.put_list("cose-es256", &many);
    kit.registry.seen();
    kit.refused("cose-es256", &strict(), &["root"], "of its 300 signatures the last 50 were looked at").await;
    // HEAD, manifest, two lists, 50 manifests and 50 envelopes.
    assert_eq!(kit.registry.seen().len(), 104);
    many[299] = good;
    kit.put_list("cose-es256", &many);
    kit.good("cose-es256", &strict(), &["root"]).await;
}

#[tokio::test]
async fn signatures_are_found_by_lists_of_referrers_and_an_unchanged_artifact_costs_one_request() {
    let kit = Kit::load().await;
    let (digest, list) = (kit.digest("jws-es512"), kit.list_tag("jws-es512"));
    kit.registry.refer(&digest, vec![kit.registry.kept(&kit.registry.tagged_digest("app", &list))]);
    kit.registry.untag("app", &list);
    let first = fetched(kit.request("jws-es512", &strict(), &["root"])).await;
    let seen = kit.registry.seen();
    let what = format!("GET /v2/app/referrers/{digest}?artifactType={KIND}");
    assert!(seen.iter().any(|seen| seen.what == what), "{seen:?}");
    let again = OciRequest { known: Some(first.revision), ..kit.request("jws-es512", &strict(), &["root"]) };
    assert!(matches!(fetch(again).await.unwrap(), Outcome::Unchanged(_)));
    assert_eq!(kit.registry.seen().len(), 1);
}

#[test]
fn what_is_trusted_has_a_digest() {
    let all: Value = serde_json::from_slice(include_bytes!("notation/signed.json")).unwrap();
    let certificate = |name: &str| all["certificates"][name].as_str().unwrap().as_bytes().to_vec();
    let of = |policy: &Value, certificates: &[&str]| {
        let mut entries = vec![("trustpolicy.json", policy.to_string().into_bytes())];
        entries.extend(certificates.iter().map(|name| ("a.pem", certificate(name))));
        Verification::Notation(NotationTrust::of_entries(&entries).unwrap()).digest()
    };
    assert_eq!(of(&strict(), &["root", "other"]), of(&strict(), &["other", "root", "root"]));
    assert_ne!(of(&strict(), &["root"]), of(&strict(), &["other"]));
    assert_ne!(of(&strict(), &["root"]), of(&policy("audit", |_| {}), &["root"]));
}
