use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ROOT: &str = include_str!("../../../../tests/oci/keyless/signed.json");

fn certificates() -> Vec<Vec<u8>> {
    let all: serde_json::Value = serde_json::from_str(ROOT).unwrap();
    let root: serde_json::Value = serde_json::from_str(all["roots"]["good"].as_str().unwrap()).unwrap();
    let chains = ["certificateAuthorities", "timestampAuthorities"];
    let chains = chains.map(|field| root[field][0]["certChain"]["certificates"].as_array().unwrap().clone());
    let bytes = |one: &serde_json::Value| {
        serde_json::from_value::<super::super::bundle::Bytes>(one["rawBytes"].clone()).unwrap().0
    };
    chains.concat().iter().map(bytes).collect()
}

#[test]
fn der_is_put_together_as_it_was() {
    for certificate in certificates() {
        let content = der::only(&certificate, der::SEQUENCE).unwrap();
        assert_eq!(der::with(der::SEQUENCE, content), certificate);
        assert!(der::only(&certificate[..certificate.len() - 1], der::SEQUENCE).is_err());
        assert!(der::only(&[&certificate[..], &[0]].concat(), der::SEQUENCE).is_err());
    }
    for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
        let content = vec![7; length];
        assert_eq!(der::only(&der::with(der::SET, &content), der::SET).unwrap(), content);
    }
    // Lengths that are longer than they need be, or not known.
    for bad in
        [&[0x30, 0x81, 0x01, 0][..], &[0x30, 0x82, 0, 0x80], &[0x30, 0x80, 0, 0], &[0x3f, 0x01, 0], &[0x30]]
    {
        assert!(der::only(bad, bad[0]).is_err(), "{bad:?}");
    }
}

#[test]
fn authorities_are_not_for_what_they_are_not() {
    let all = certificates();
    let read = |number: usize| certificate::read(&all[number]).unwrap();
    let [issuing, root, stamps, stamps_root] = [0, 1, 2, 3].map(read);
    let at = [issuing.validity().not_before.timestamp()];
    let signing = certificate::path(&issuing, std::slice::from_ref(&root), Usage::Signing, &at).unwrap();
    assert_eq!(signing, Some(root.public_key().raw.to_vec()));
    assert_eq!(certificate::path(&stamps, &[root], Usage::Stamps, &at), Ok(None));
    assert!(certificate::path(&stamps, &[stamps_root], Usage::Stamps, &at).unwrap().is_some());
    assert!(certificate::leaf(&issuing, Usage::Signing, &at).unwrap_err().0.contains("not for signatures"));
    let at = [stamps.validity().not_before.timestamp()];
    certificate::leaf(&stamps, Usage::Stamps, &at).unwrap();
    assert!(certificate::leaf(&stamps, Usage::Signing, &at).unwrap_err().0.contains("not for signing code"));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>()) {
        let _ = stamp::time(&bytes, &bytes, &[]);
        let _ = Material::of_bundle(&bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let _ = TrustedRoot::parse(&text);
        let names = ["certificate", "bundle", "rfc3161timestamp"].map(|name| format!("dev.sigstore.cosign/{name}"));
        let _ = Material::of_annotations(&names.into_iter().map(|name| (name, text.clone())).collect::<BTreeMap<_, _>>());
        let _ = certificate::of_pem(&bytes);
        // A certificate in which some of it is other bytes.
        for mut certificate in certificates() {
            let from = at.index(certificate.len());
            certificate.iter_mut().skip(from).zip(&bytes).for_each(|(to, byte)| *to = *byte);
            if let Ok(read) = certificate::read(&certificate) {
                let _ = certificate::leaf(&read, Usage::Signing, &[0]);
                let _ = certificate::path(&read, std::slice::from_ref(&read), Usage::Signing, &[0]);
                let _ = sct::check(&read, &bytes, &[]);
                let _ = identity::check(&read, &[]);
            }
        }
    }
}
