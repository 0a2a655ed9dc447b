use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cbor::{self, Item};
use super::judge::{Target, Verdict, judge};
use super::policy::Checks;
use super::*;
use crate::oci::verify::bundle::Bytes;
use crate::oci::verify::der;

/// What the real notation made.
struct Made(&'static Value);

/// It is large: read once.
static MADE: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../../tests/oci/notation/signed.json")).unwrap()
});

impl Made {
    fn load() -> Self {
        Self(&MADE)
    }

    fn blob(&self, digest: &str) -> Vec<u8> {
        let data = self.0["blobs"][digest]["data"].clone();
        serde_json::from_value::<Bytes>(data).unwrap().0
    }

    fn tagged(&self, tag: &str) -> (String, Vec<u8>) {
        let digest = self.0["tags"][tag].as_str().unwrap();
        (digest.to_owned(), self.blob(digest))
    }

    /// The manifest of an artifact and the envelope of its signature.
    fn signed(&self, tag: &str) -> (Vec<u8>, Vec<u8>) {
        let (digest, manifest) = self.tagged(tag);
        let (_, list) = self.tagged(&format!("sha256-{}", &digest[7..]));
        let (found, _) = reading::signatures(&list).unwrap();
        let envelope = reading::envelope(&self.blob(&found[0].digest)).unwrap();
        (manifest, self.blob(&envelope.digest))
    }

    fn trust(&self, policy: &Value) -> NotationTrust {
        let root = self.0["certificates"]["root"].as_str().unwrap().as_bytes().to_vec();
        NotationTrust::of_entries(&[("a.crt", root), (POLICY, policy.to_string().into_bytes())]).unwrap()
    }
}

/// Nobody was asked whether certificates are revoked.
struct Nobody;

impl revocation::Answers for Nobody {
    fn to(&self, _: &revocation::Inquiry) -> Option<Result<Vec<u8>, String>> {
        None
    }
}

fn policy() -> Value {
    json!({ "version": "1.0", "trustPolicies": [{
        "name": "own", "registryScopes": ["*"], "signatureVerification": { "level": "strict" },
        "trustStores": ["ca:own"], "trustedIdentities": ["*"],
    }] })
}

fn checks(trust: &NotationTrust) -> &Checks {
    trust.statements[0].checks().unwrap()
}

fn second(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_second()
}

#[test]
fn certificates_are_valid_from_their_first_second_to_their_last() {
    let made = Made::load();
    let trust = made.trust(&policy());
    for tag in ["jws-es256", "cose-ps384"] {
        let (manifest, envelope) = made.signed(tag);
        let at = |now: &str| {
            judge(
                &envelope,
                checks(&trust),
                &trust.certificates(),
                &Target::of(&manifest),
                &Nobody,
                second(now),
            )
        };
        for now in ["2020-01-01T00:00:00Z", "2026-01-01T00:00:00Z"] {
            assert_eq!(at(now), Ok(Verdict::Proven(Vec::new())), "{tag} {now}");
        }
        assert!(at("2019-12-31T23:59:59Z").unwrap_err().to_string().contains("is not valid before"));
        assert!(at("2126-01-01T00:00:01Z").unwrap_err().to_string().contains("expired on"));
    }
}

#[test]
fn a_policy_that_is_malformed_is_refused_with_what_is_wrong() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut document = policy();
        change(&mut document);
        document.to_string()
    };
    let one = |change: &dyn Fn(&mut Value)| with(&|all| change(&mut all["trustPolicies"][0]));
    let names = |text: &str| one(&|one| one["trustedIdentities"] = json!([text]));
    let overridden = |check: &str, action: &str| {
        one(&|one| one["signatureVerification"]["override"] = json!({ check: action }))
    };
    let scope = |text: &str| one(&|one| one["registryScopes"] = json!([text]));
    let long = format!("[{}", "[".repeat(100_000));
    for (text, why) in [
        (String::new(), "it is not a trust policy"),
        ("{}".to_owned(), "its version is ''"),
        (long, "it is not a trust policy"),
        (format!("{}{}", policy(), " ".repeat(256 << 10)), "more than 262144 bytes"),
        (with(&|all| all["version"] = json!("2.0")), "its version is '2.0': want 1.0"),
        (with(&|all| all["trustPolicies"] = json!([])), "it has 0 trust policies"),
        (with(&|all| all["trustPolicies"] = json!(vec![json!({}); 201])), "it has 201 trust policies"),
        (
            with(&|all| {
                all["trustPolicies"] = json!([policy()["trustPolicies"][0], policy()["trustPolicies"][0]]);
            }),
            "have the name 'own'",
        ),
        (
            with(&|all| {
                let mut second = policy()["trustPolicies"][0].clone();
                second["name"] = json!("second");
                all["trustPolicies"].as_array_mut().unwrap().push(second);
            }),
            "registry scope '*' is in several",
        ),
        (one(&|one| one["name"] = json!("")), "has no name"),
        (one(&|one| one["registryScopes"] = json!([])), "no registryScopes"),
        (one(&|one| one["registryScopes"] = json!(["*", "a.example/b"])), "stands beside others"),
        (one(&|one| one["registryScopes"] = json!(["a.example/b", "a.example/b"])), "twice in one"),
        (
            one(&|one| one["registryScopes"] = json!(vec!["a.example/b"; 201])),
            "registryScopes has more than 200",
        ),
        (scope("a.example/*"), "has a wildcard"),
        (scope("a.example"), "names no repository"),
        (scope("https://a.example/b"), "is not the name of a repository"),
        (scope("a.example/b:tag"), "is not the name of a repository"),
        (scope("a.example/B"), "is not the name of a repository"),
        (scope("a b/c"), "no valid host"),
        (one(&|one| one["signatureVerification"] = json!(null)), "no signatureVerification.level"),
        (one(&|one| one["signatureVerification"]["level"] = json!("Strict")), "level is 'Strict'"),
        (
            one(&|one| one["signatureVerification"]["verifyTimestamp"] = json!("never")),
            "verifyTimestamp is 'never'",
        ),
        (
            one(&|one| {
                one["signatureVerification"] = json!({ "level": "skip", "override": { "expiry": "log" } });
            }),
            "nothing is verified",
        ),
        (overridden("integrity", "log"), "integrity is verified in any case"),
        (overridden("expiry", "skip"), "only revocation can be skipped"),
        (overridden("expiry", "no"), "'no' is not enforce"),
        (overridden("else", "log"), "'else' is not a check"),
        (one(&|one| one["trustStores"] = json!([])), "both trustStores and trustedIdentities"),
        (one(&|one| one["trustedIdentities"] = json!(null)), "both trustStores and trustedIdentities"),
        (one(&|one| one["trustStores"] = json!(["own"])), "not TYPE:NAME"),
        (one(&|one| one["trustStores"] = json!(["ca:"])), "no valid name"),
        (one(&|one| one["trustStores"] = json!(["ca:../x"])), "no valid name"),
        (one(&|one| one["trustStores"] = json!(["CA:x"])), "unknown type"),
        (
            one(&|one| one["trustedIdentities"] = json!(["*", "x509.subject:C=a,ST=b,O=c"])),
            "stands beside others",
        ),
        (
            one(&|one| {
                one["trustedIdentities"] =
                    json!(["x509.subject:C=a,ST=b,O=c,CN=d", "x509.subject:C=a,ST=b,O=c"]);
            }),
            "overlaps",
        ),
        (names("C=a"), "want x509.subject"),
        (names("x509.subject:C=a,O=c"), "it has no ST"),
        (names("x509.subject:C=a,ST=b,O=c,O=d"), "attribute O twice"),
        (names("x509.subject:C=a,ST=b,S=b,O=c"), "attribute ST twice"),
        (names("x509.subject:C=a,ST=b,O=c+CN=d"), "several values"),
        (names("x509.subject:C=a,ST=b,O=#0401"), "in hexadecimal"),
        (names("x509.subject:C=a,ST=b,O=\"c\""), "is to be escaped"),
        (names("x509.subject:C=a,ST=b,O=c\\"), "a backslash ends it"),
        (names("x509.subject:C=a,ST=b,O=\\ff"), "not UTF-8"),
        (names("x509.subject:"), "no value"),
    ] {
        let found = policy::parse(text.as_bytes()).unwrap_err();
        assert!(found.contains(why) && found.len() < 600, "want `{why}` in: {found}");
    }
    // Others' fields, and stores beside the level skip, are let be.
    let skip = one(&|one| one["signatureVerification"]["level"] = json!("skip"));
    assert!(policy::parse(skip.as_bytes()).unwrap()[0].is_skip());
}

#[test]
fn a_secret_has_a_policy_and_certificates() {
    let made = Made::load();
    let root = made.0["certificates"]["root"].as_str().unwrap();
    let policy = || (POLICY, policy().to_string().into_bytes());
    let (_, pem) = x509_parser::pem::parse_x509_pem(root.as_bytes()).unwrap();
    let private = "-----BEGIN PRIVATE KEY-----\nMQ==\n-----END PRIVATE KEY-----\n";
    let of = |entries: &[(&str, Vec<u8>)]| NotationTrust::of_entries(entries);
    let text = of(&[policy(), ("a.pem", format!("{private}{root}{root}").into_bytes())]).unwrap();
    let der = of(&[policy(), ("a.crt", [pem.contents.clone(), pem.contents.clone()].concat())]).unwrap();
    assert_eq!(text, der);
    assert!(!serde_json::to_string(&text).unwrap().contains("MQ=="));
    let mut damaged = pem.contents.clone();
    damaged[3] ^= 1;
    for (entries, why) in [
        (vec![("a.pem", root.into())], "has no key trustpolicy.json"),
        (vec![policy()], "has no certificates"),
        (vec![policy(), ("a.key", root.into())], "has no certificates"),
        (vec![policy(), ("a.pem", private.into())], "key a.pem: it holds no certificate"),
        (vec![policy(), ("a.crt", Vec::new())], "key a.crt: it holds no certificate"),
        (vec![policy(), ("a.crt", damaged)], "key a.crt: it holds what is not a certificate"),
        (vec![policy(), ("a.crt", root[..100].into())], "a certificate has no end"),
        (vec![policy(), ("a.crt", root.repeat(65).into())], "more than 64 certificates"),
        (vec![policy(), ("a.crt", vec![b'x'; (256 << 10) + 1])], "more than 262144 bytes"),
        (
            vec![(POLICY, b"x".to_vec()), ("a.crt", root.into())],
            "key trustpolicy.json: it is not a trust policy",
        ),
    ] {
        let found = of(&entries).unwrap_err();
        assert!(found.contains(why), "want `{why}` in: {found}");
    }
}

#[test]
fn docker_has_two_names() {
    let trust = |scope: &str| {
        let mut document = policy();
        document["trustPolicies"][0]["registryScopes"] = json!([scope]);
        document["trustPolicies"][0]["signatureVerification"]["level"] = json!("skip");
        Made::load().trust(&document)
    };
    for scope in ["docker.io/org/app", "index.docker.io/org/app"] {
        assert!(trust(scope).skips("oci://docker.io/org/app"), "{scope}");
        assert!(!trust(scope).skips("oci://docker.io/org/other"), "{scope}");
    }
    assert!(trust("registry.example:443/app").skips("oci://registry.example:443/app/"));
    assert!(trust("*").skips("oci://registry.example/app"));
    // The name of a chart is not that of its repository, of which the policy may ask for more.
    for other in ["app", "the chart", "oci://", "https://registry.example/app"] {
        assert!(!trust("*").skips(other), "{other}");
    }
}

#[test]
fn cbor_is_read_as_it_stands_there() {
    let read = |hex: &str| {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        cbor::parse(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>())
    };
    let text = |text: &str| Item::Text(text.to_owned());
    for (hex, item) in [
        ("00", Item::Integer(0)),
        ("1903e8", Item::Integer(1_000)),
        ("3903e7", Item::Integer(-1_000)),
        ("43010203", Item::Bytes(vec![1, 2, 3])),
        ("6161", text("a")),
        ("8201f6", Item::List(vec![Item::Integer(1), Item::Other])),
        ("a1616101", Item::Map(vec![(text("a"), Item::Integer(1))])),
        ("c11a514b67b0", Item::Tagged(1, Box::new(Item::Integer(1_363_896_240)))),
        ("fb3ff0000000000000", Item::Other),
    ] {
        assert_eq!(read(hex), Ok(item), "{hex}");
    }
    let deep = "81".repeat(20) + "00";
    for hex in [
        "",
        "18",
        "0000",
        "5f4100ff",
        "9fff",
        "bfff",
        "ff",
        "1c",
        "a2616101616102",
        "a14101 00".trim_end_matches(" 00"),
        "a1f600",
        "61ff",
        "1bffffffffffffffff",
        "9bffffffffffffffff",
        "5bffffffffffffffff",
        &deep,
        "f800",
    ] {
        assert!(read(hex).is_err(), "{hex}");
    }
}

#[test]
fn names_are_read_as_they_are_escaped() {
    let of = |text: &str| name::parse(text).unwrap();
    let want = |organization: &str| {
        let all = [("C", "a"), ("ST", "b"), ("O", organization)];
        all.map(|(kind, value)| (kind.to_owned(), value.to_owned())).into_iter().collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of("C=a,ST=b,O=c d"), want("c d"));
    assert_eq!(of(" c = a ; S=b ,O=  c d  "), want("c d"));
    assert_eq!(of("C=a,ST=b,O=\\ c\\ "), want(" c "));
    assert_eq!(of("C=a,ST=b,O=c\\,O=d"), want("c,O=d"));
    assert_eq!(of("C=a,ST=b,O=\\c3\\a4=\\\\"), want("ä=\\"));
}

/// Whoever signs a certificate signs a part of its bytes; the rest has one form all the same.
#[test]
fn no_bit_of_a_certificate_can_be_changed() {
    let made = Made::load();
    let trust = made.trust(&policy());
    let now = second("2026-01-01T00:00:00Z");
    for tag in ["cose-es256", "cose-ps256"] {
        let (manifest, good) = made.signed(tag);
        let was = envelope::parse(&good).unwrap();
        let mut counted = 0;
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if judge(&bytes, checks(&trust), &trust.certificates(), &Target::of(&manifest), &Nobody, now)
                .is_ok()
            {
                counted += 1;
                let is = envelope::parse(&bytes).unwrap();
                assert!((is.signed, is.chain) == (was.signed.clone(), was.chain.clone()), "{tag}, bit {bit}");
            }
        }
        // The name of the program that signed is not signed.
        assert!(counted > 0, "{tag}");
    }
}

/// The same for each question.
struct Always(Vec<u8>);

impl revocation::Answers for Always {
    fn to(&self, _: &revocation::Inquiry) -> Option<Result<Vec<u8>, String>> {
        Some(Ok(self.0.clone()))
    }
}

/// What an authority says of the certificate of a signature, and what comes of it with this answer in its place.
fn with_answer(made: &Made, tag: &str, page: &str, change: impl Fn(&mut Vec<u8>)) -> revocation::Status {
    let (_, envelope) = made.signed(tag);
    let envelope = envelope::parse(&envelope).unwrap();
    let read = |der| crate::oci::verify::certificate::read(der, MOST_CERTIFICATE).unwrap();
    let (certificate, issuer) = (read(&envelope.chain[0]), read(&envelope.chain[1]));
    let now = second("2026-01-01T00:00:00Z");
    let case = revocation::Case { certificate: &certificate, issuer: &issuer, at: None, now };
    let data = made.0["pages"][page]["data"].clone();
    let mut answer = serde_json::from_value::<Bytes>(data).unwrap().0;
    change(&mut answer);
    case.status(&Always(answer))
}

const REVOKED: [(&str, &str); 3] = [
    ("revocation-list-revoked", "http://lists.example.com/list-revoked.crl"),
    ("revocation-server-revoked", "server-revoked.example.com"),
    ("revocation-server-delegated-revoked", "server-delegated-revoked.example.com"),
];

#[test]
fn nobody_makes_a_revoked_certificate_a_good_one_on_the_way() {
    let made = Made::load();
    for (tag, page) in REVOKED {
        assert_eq!(with_answer(&made, tag, page, |_| {}), revocation::Status::Revoked, "{tag}");
        let length = serde_json::from_value::<Bytes>(made.0["pages"][page]["data"].clone()).unwrap().0.len();
        let mut unknown = 0;
        for bit in 0..length * 8 {
            let status = with_answer(&made, tag, page, |answer| answer[bit / 8] ^= 1 << (bit % 8));
            assert_ne!(status, revocation::Status::Good, "{tag}, bit {bit}");
            unknown += usize::from(matches!(status, revocation::Status::Unknown(_)));
        }
        assert!(unknown > length * 6, "{tag}: {unknown} of {}", length * 8);
        for end in (0..length).step_by(7) {
            let status = with_answer(&made, tag, page, |answer| answer.truncate(end));
            assert!(matches!(status, revocation::Status::Unknown(_)), "{tag}, {end} bytes");
        }
    }
}

#[test]
fn nobody_makes_a_countersignature_tell_another_time() {
    let made = Made::load();
    let stamping = made.0["certificates"]["stamping"].as_str().unwrap();
    let trusted = certificates_of(stamping.as_bytes()).unwrap();
    for form in ["jws", "cose"] {
        let (_, envelope) = made.signed(&format!("stamp-{form}-good"));
        let envelope = envelope::parse(&envelope).unwrap();
        let token = envelope.stamp.unwrap();
        let time = |token: &[u8], signature: &[u8]| {
            stamp::read(token, signature, &trusted).map(|stamped| (stamped.first, stamped.last))
        };
        let good = time(&token, &envelope.signature).unwrap();
        assert_eq!(good.0 + 1, second("2021-01-01T00:00:00Z"));
        // Bits of each byte, others in each form: all of them take a minute.
        for bit in (usize::from(form == "cose")..token.len() * 8).step_by(3) {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let found = time(&changed, &envelope.signature);
            assert!(found.is_err() || found == Ok(good), "{form}, bit {bit}: {found:?}");
        }
        assert!(time(&token, b"another signature").is_err());
        for end in (0..token.len()).step_by(11) {
            assert!(time(&token[..end], &envelope.signature).is_err(), "{form}, {end} bytes");
        }
    }
}

#[test]
fn a_list_has_places_over_the_web_or_none() {
    // One list at two places, one by LDAP alone, and one by a name that is relative to its issuer's.
    let uri = |url: &str| der::with(0x86, url.as_bytes());
    let point = |names: &[u8]| der::with(der::SEQUENCE, &der::with(0xa0, &der::with(0xa0, names)));
    let both = point(&[uri("ldap://a.example/b"), uri("HTTP://a.example/b")].concat());
    let relative = der::with(der::SEQUENCE, &der::with(0xa0, &der::with(0xa1, &[])));
    let all = [both, point(&uri("ldap://a.example/b")), relative].concat();
    let found = revocation::points(&der::with(der::SEQUENCE, &all)).unwrap();
    assert_eq!(found, [vec!["HTTP://a.example/b".to_owned()], vec![], vec![]]);
    let many = point(&uri("http://a.example/b")).repeat(9);
    assert!(revocation::points(&der::with(der::SEQUENCE, &many)).is_err());
    let long = point(&uri(&format!("http://a.example/{}", "b".repeat(4_000))));
    assert_eq!(revocation::points(&der::with(der::SEQUENCE, &long)).unwrap(), [Vec::<String>::new()]);
}

proptest! {
    #[test]
    fn what_authorities_send_does_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        (which, at) in (0..REVOKED.len(), any::<prop::sample::Index>()),
    ) {
        let _ = crl::List::parse(&bytes);
        let _ = revocation::points(&bytes);
        let _ = stamp::read(&bytes, &bytes, &[]);
        // Somewhere in what is good otherwise.
        let (tag, page) = REVOKED[which];
        let status = with_answer(&Made::load(), tag, page, |answer| {
            let at = at.index(answer.len());
            let end = (at + bytes.len()).min(answer.len());
            answer[at..end].copy_from_slice(&bytes[..end - at]);
        });
        prop_assert_ne!(status, revocation::Status::Good);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), text in ".{0,80}") {
        let _ = cbor::parse(&bytes);
        let _ = envelope::parse(&bytes).map(|envelope| envelope.headers.check().is_ok());
        let _ = envelope::parse(&[&[cose::FIRST], &bytes[..]].concat());
        let _ = policy::parse(&bytes);
        let _ = reading::signatures(&bytes);
        let _ = reading::envelope(&bytes);
        let _ = certificates_of(&bytes);
        let _ = name::parse(&text);
        let _ = scope::check(&text);
        let _ = Target::of(&bytes);
    }

    #[test]
    fn what_was_changed_counts_only_where_what_is_signed_is_the_same(
        tag in prop::sample::select(vec!["jws-es256", "jws-ps256", "cose-es256", "cose-ps256"]),
        at in any::<prop::sample::Index>(),
        bits in 1..=255_u8,
    ) {
        let made = Made::load();
        let trust = made.trust(&policy());
        let (manifest, good) = made.signed(tag);
        let mut bytes = good.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let now = second("2026-01-01T00:00:00Z");
        if judge(&bytes, checks(&trust), &trust.certificates(), &Target::of(&manifest), &Nobody, now).is_ok() {
            let (good, bytes) = (envelope::parse(&good).unwrap(), envelope::parse(&bytes).unwrap());
            prop_assert_eq!(good.signed, bytes.signed);
            prop_assert_eq!(good.chain, bytes.chain);
        }
    }

    #[test]
    fn what_is_escaped_is_read_as_it_was(value in "[ -~äß]{1,20}") {
        let escaped: String = value.chars().flat_map(|c| {
            let special = !c.is_alphanumeric();
            special.then_some('\\').into_iter().chain([c])
        }).collect();
        let name = name::parse(&format!("C=a,ST=b,O={escaped}")).unwrap();
        prop_assert_eq!(&name["O"], &value);
    }
}
