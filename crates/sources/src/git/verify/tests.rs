//! The objects and keys of `../shared/source-cases`, beside what Flux's own library makes of them. Where `../shared` is not
//! there, the test says so and tests nothing.

use serde_json::Value;

use super::keys::TrustedKeys;
use super::now;
use super::payload::{Format, Signed};
use crate::source_cases::{source_cases, tell};

/// OpenPGP's curves that are not supported: the library has no arithmetic for them.
const UNSUPPORTED: &str = "brainpool";

#[test]
fn signatures_are_verified_as_flux_does() {
    let Some(files) = source_cases("signatures") else { return };
    let expected: Value = serde_json::from_slice(&files["signatures/expected.json"]).unwrap();
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    let (mut done, mut unsupported) = (0, 0);
    for case in expected["cases"].as_array().unwrap() {
        let file = case["file"].as_str().unwrap();
        let bytes = &files[&format!("signatures/{file}")];
        let signed = match case["object"].as_str().unwrap() {
            "commit" => Signed::commit(bytes),
            _ => Signed::tag(bytes),
        };
        let signed = signed.unwrap();
        assert_eq!(signed.payload.len() as u64, case["payload_bytes"].as_u64().unwrap(), "{file}");
        assert_eq!(signed.signature.is_some(), case["signed"].as_bool().unwrap(), "{file}");
        let folder = file.split('/').next().unwrap();
        let keys = files
            .keys()
            .filter(|name| name.starts_with(&format!("signatures/{folder}/key")) && name.ends_with(".pub"));
        for name in keys {
            let entry = name.rsplit('/').next().unwrap();
            let wanted = case["verified_by"][entry].as_str();
            let mut trusted = TrustedKeys::default();
            let ending = if folder == "ssh" { "a.sshpub" } else { "a.asc" };
            trusted.add(ending, &text(name));
            let got = trusted.verify(&signed, now());
            if file.contains(UNSUPPORTED) && wanted.is_some() {
                assert!(got.is_err(), "{file} is supported by now: take it off the list");
                unsupported += 1;
                continue;
            }
            assert_eq!(got.as_deref().ok(), wanted, "{file} by {entry}: {got:?}");
            // Nothing of it may change.
            for at in [0, signed.payload.len() / 2, signed.payload.len() - 1] {
                let mut other = signed.payload.clone();
                other[at] ^= 1;
                let other = Signed { payload: other, signature: signed.signature.clone(), name: None };
                assert!(trusted.verify(&other, now()).is_err(), "{file} with another byte at {at}");
            }
            done += 1;
        }
    }
    tell(format_args!("signatures: {done} as expected, {unsupported} of a curve that is not supported"));
    assert!(done > 100 && unsupported == 6, "{done} {unsupported}");
}

#[test]
fn forms_of_signatures_are_told_apart() {
    let Some(files) = source_cases("signatures") else { return };
    let expected: Value = serde_json::from_slice(&files["signatures/expected.json"]).unwrap();
    for case in expected["formats"].as_array().unwrap() {
        let (text, wanted) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        let signed = Signed { payload: Vec::new(), signature: Some(text.as_bytes().to_vec()), name: None };
        let why = TrustedKeys::default().verify(&signed, now()).unwrap_err();
        let word = match wanted {
            // What it holds is looked at, and is nothing.
            "openpgp" => "OpenPGP signature is damaged",
            "ssh" => "SSH signature is damaged",
            "x509" => "X.509",
            _ if text.contains("PGP MESSAGE") => "no signature",
            _ => "neither an OpenPGP nor an SSH one",
        };
        assert!(why.contains(word), "{text:?}: {why}");
    }
    assert_eq!(Format::of(b"-----BEGIN SSH SIGNATURE-----"), Some(Format::Ssh));
}
