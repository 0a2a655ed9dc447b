use proptest::prelude::*;
use roadstead_model::Digest;

use super::bundle::Bundle;
use super::keys::{CosignKeys, PublicKey};
use super::{payload, referrers};

fn image() -> Digest {
    Digest::of(b"manifest")
}

fn simple(digest: &str, kind: &str) -> String {
    format!(
        "{{\"critical\":{{\"identity\":{{\"docker-reference\":\"x\"}},\"image\":{{\"docker-manifest-digest\":\"{digest}\"}},\
         \"type\":\"{kind}\"}},\"optional\":null}}"
    )
}

#[test]
fn a_payload_is_about_one_image() {
    let (image, kind) = (image(), "cosign container image signature");
    let good = simple(&image.to_string(), kind);
    assert_eq!(payload::is_about(good.as_bytes(), &image), Ok(()));
    let other = Digest::of(b"other").to_string();
    let twice =
        good.replace("\"type\"", &format!("\"image\":{{\"docker-manifest-digest\":\"{other}\"}},\"type\""));
    for bad in [
        simple(&other, kind),
        simple(&image.hex(), kind),
        simple(&image.to_string().to_uppercase(), kind),
        simple(&image.to_string(), "atomic container signature"),
        twice,
        format!("{good}{good}"),
        "{}".to_owned(),
    ] {
        assert!(payload::is_about(bad.as_bytes(), &image).is_err(), "{bad}");
    }
}

#[test]
fn a_statement_is_a_signature_of_its_subjects() {
    let image = image();
    let of = |kind: &str, predicate: &str, digests: &[&str]| {
        let subjects: Vec<_> =
            digests.iter().map(|digest| serde_json::json!({ "digest": { "sha256": digest } })).collect();
        let statement = serde_json::json!({
            "_type": kind, "subject": subjects, "predicateType": predicate, "predicate": {},
        });
        payload::states(statement.to_string().as_bytes(), &image)
    };
    let (kind, signed) = ("https://in-toto.io/Statement/v1", "https://sigstore.dev/cosign/sign/v1");
    assert_eq!(of(kind, signed, &["x", &image.hex()]), Ok(()));
    assert!(of(kind, signed, &[]).is_err());
    assert!(of(kind, signed, &["x"]).is_err());
    assert!(of(kind, signed, &[""]).is_err());
    assert!(of(kind, "https://slsa.dev/provenance/v1", &[&image.hex()]).is_err());
    assert!(of("https://in-toto.io/Statement/v2", signed, &[&image.hex()]).is_err());
}

#[test]
fn a_message_signature_is_of_the_manifest() {
    let bundle = |digest: &str| {
        let text = format!(
            "{{\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\",\"messageSignature\":{{\"messageDigest\":\
             {{\"algorithm\":\"SHA2_256\",\"digest\":\"{digest}\"}},\"signature\":\"MQ==\"}}}}"
        );
        Bundle::parse(text.as_bytes()).unwrap()
    };
    let digest = super::bundle::base64_of(&image());
    let signed = bundle(&digest).signed(&image(), b"manifest").unwrap();
    assert_eq!((signed.message.as_slice(), signed.signature.as_slice()), (&b"manifest"[..], &b"1"[..]));
    assert!(bundle(&digest).signed(&image(), b"other").is_err());
    let other = super::bundle::base64_of(&Digest::of(b"other"));
    assert!(bundle(&other).signed(&image(), b"manifest").is_err());
}

#[test]
fn keys_that_are_none_are_named() {
    let mut keys = CosignKeys::default();
    keys.add("a.pub", "-----BEGIN PUBLIC KEY-----\nMQ==\n-----END PUBLIC KEY-----");
    keys.add("b.pub", "-----BEGIN PUBLIC KEY-----\n!\n-----END PUBLIC KEY-----");
    let (usable, unusable) = keys.read();
    assert!(usable.is_empty());
    assert_eq!(unusable, ["a.pub: it is not a public key", "b.pub: it is not PEM"]);
    let mut many = CosignKeys::default();
    for number in 0..100 {
        many.add(&format!("{number}.pub"), "-----BEGIN PUBLIC KEY-----\nMQ==\n-----END PUBLIC KEY-----");
    }
    assert_eq!(many.read().1.len(), 64);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = payload::is_about(&bytes, &image());
        let _ = payload::states(&bytes, &image());
        let _ = Bundle::parse(&bytes).map(|bundle| bundle.signed(&image(), &bytes).is_ok());
        let _ = referrers::bundles(&bytes);
        let _ = referrers::bundle(&bytes);
        let _ = referrers::old(&bytes);
        let _ = PublicKey::of_spki(&bytes).map(|key| key.made(&bytes, &bytes));
        let mut keys = CosignKeys::default();
        keys.add("a.pub", &String::from_utf8_lossy(&bytes));
        let _ = keys.read();
    }

    #[test]
    fn no_text_is_a_payload_by_chance(digest in "sha256:[0-9a-f]{64}", more in "[\\[\\]{}\",:a-z]{0,40}") {
        let text = format!("{}{more}", simple(&digest, "cosign container image signature"));
        prop_assert_eq!(payload::is_about(text.as_bytes(), &image()).is_ok(), more.is_empty() && digest == image().to_string());
    }
}
