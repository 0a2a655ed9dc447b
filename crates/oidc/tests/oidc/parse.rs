//! Any bytes: nothing of them panics, and none of them is believed.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use roadstead_oidc::{Configuration, Keys, Token};

use crate::signer::Signer;

/// Of one issuer: RSA keys take long to make.
static KEYS: LazyLock<Keys> = LazyLock::new(|| Signer::new().keys());

proptest! {
    #[test]
    fn texts(text in "\\PC{0,200}") {
        let taken = Token::parse(&text).is_ok_and(|token| token.verify(&Keys::default()).is_ok());
        prop_assert!(!taken);
    }

    #[test]
    fn parts(head in any::<Vec<u8>>(), claims in any::<Vec<u8>>(), signature in any::<Vec<u8>>()) {
        let parts = [head, claims, signature].map(|part| URL_SAFE_NO_PAD.encode(part));
        let taken = Token::parse(&parts.join(".")).is_ok_and(|token| token.verify(&Keys::default()).is_ok());
        prop_assert!(!taken);
    }

    #[test]
    fn heads(algorithm in "[A-Za-z0-9]{0,6}", kid in proptest::option::of("\\PC{0,8}"), issuer in "\\PC{0,20}") {
        let head = serde_json::json!({ "alg": algorithm, "kid": kid });
        let claims = serde_json::json!({ "iss": issuer });
        let text = format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(head.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let token = Token::parse(&text).unwrap();
        prop_assert_eq!((token.issuer(), token.key()), (issuer.as_str(), kid.as_deref()));
        prop_assert!(token.verify(&KEYS).is_err());
    }

    #[test]
    fn keys_and_configurations(bytes in any::<Vec<u8>>()) {
        let _ = Keys::parse(&bytes);
        prop_assert!(Configuration::parse(&bytes).is_err());
    }
}
