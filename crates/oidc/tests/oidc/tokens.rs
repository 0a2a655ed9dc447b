//! A token is believed once a key of its issuer signed it, by an algorithm that is for that key; and it is for somebody, and for now.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use roadstead_oidc::{Expected, Keys, MAX_TOKEN, Token, TokenError, check};
use serde_json::{Value, json};

use crate::signer::{ISSUER, NOW, Signer, claims, encoded};

fn verified(text: &str, keys: &Keys) -> Result<Value, TokenError> {
    Token::parse(text)?.verify(keys)
}

#[test]
fn each_algorithm_is_taken_for_its_key_and_for_no_other() {
    let signer = Signer::new();
    let keys = signer.keys();
    assert_eq!(keys.count(), 5);
    let all = [
        ("RS256", "rsa"),
        ("RS384", "rsa"),
        ("RS512", "rsa"),
        ("PS256", "rsa"),
        ("ES256", "p256"),
        ("ES384", "p384"),
        ("ES512", "p521"),
        ("EdDSA", "ed"),
    ];
    for (algorithm, key) in all {
        let token = signer.sign(&json!({ "alg": algorithm, "kid": key }), &claims());
        assert_eq!(verified(&token, &keys).unwrap()["sub"], "jane", "{algorithm}");
        let unnamed = signer.sign(&json!({ "alg": algorithm }), &claims());
        assert!(verified(&unnamed, &keys).is_ok(), "{algorithm} without a name of a key");
        for (_, other) in all.iter().filter(|(_, other)| *other != key) {
            let token = signer.sign(&json!({ "alg": algorithm, "kid": other }), &claims());
            assert_eq!(verified(&token, &keys), Err(TokenError::Signature), "{algorithm} by {other}");
        }
        // The same signature under the name of another algorithm.
        let parts: Vec<&str> = token.split('.').collect();
        for (other, _) in all.iter().filter(|(other, _)| *other != algorithm) {
            let head = encoded(&json!({ "alg": other, "kid": key }));
            let token = format!("{head}.{}.{}", parts[1], parts[2]);
            assert_eq!(verified(&token, &keys), Err(TokenError::Signature), "{algorithm} as {other}");
        }
        assert_eq!(verified(&token, &Keys::default()), Err(TokenError::Signature));
        assert_eq!(verified(&token, &Signer::new().keys()), Err(TokenError::Signature));
    }
}

#[test]
fn a_key_serves_for_what_it_says() {
    let signer = Signer::new();
    let mut published = signer.published();
    published["keys"][0]["alg"] = json!("RS256");
    let keys = Keys::parse(published.to_string().as_bytes()).unwrap();
    let token = |algorithm| signer.sign(&json!({ "alg": algorithm, "kid": "rsa" }), &claims());
    assert!(verified(&token("RS256"), &keys).is_ok());
    assert_eq!(verified(&token("RS512"), &keys), Err(TokenError::Signature));
    let for_encryption = signer.sign(&json!({ "alg": "RS256", "kid": "enc" }), &claims());
    assert_eq!(verified(&for_encryption, &keys), Err(TokenError::Signature));
}

#[test]
fn no_algorithm_and_no_secret_makes_a_token() {
    let signer = Signer::new();
    let keys = signer.keys();
    let good = signer.sign(&json!({ "alg": "RS256", "kid": "rsa" }), &claims());
    let parts: Vec<&str> = good.split('.').collect();
    for algorithm in ["none", "None", "NONE", "nOnE", "", "HS256", "RS256 ", "rs256"] {
        for signature in ["", parts[2], "AAAA"] {
            let head = encoded(&json!({ "alg": algorithm, "kid": "rsa" }));
            let token = format!("{head}.{}.{signature}", parts[1]);
            assert!(verified(&token, &keys).is_err(), "{algorithm:?} {signature}");
        }
    }
    assert!(verified(&format!("{}.{}.", parts[0], parts[1]), &keys).is_err(), "no signature");
    // The public key as the secret, in each form in which somebody may take it for one.
    let modulus = signer.published()["keys"][0]["n"].as_str().unwrap().to_owned();
    let secrets = [signer.rsa_public().to_vec(), modulus.into_bytes(), b"secret".to_vec(), Vec::new()];
    for (algorithm, digest) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        for (secret, kid) in secrets.iter().flat_map(|secret| [(secret, "rsa"), (secret, "secret")]) {
            let text = format!("{}.{}", encoded(&json!({ "alg": algorithm, "kid": kid })), parts[1]);
            let signed = hmac::sign(&hmac::Key::new(digest, secret), text.as_bytes());
            let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref()));
            assert_eq!(verified(&token, &keys), Err(TokenError::Signature), "{algorithm} {kid}");
        }
    }
}

#[test]
fn what_the_head_says_of_keys_is_not_believed() {
    let signer = Signer::new();
    let keys = Signer::new().keys();
    let own = signer.published()["keys"][0].clone();
    let good = signer.sign(&json!({ "alg": "RS256", "kid": "rsa" }), &claims());
    assert!(verified(&good, &signer.keys()).is_ok());
    for more in [
        json!({ "jwk": own }),
        json!({ "jku": "https://evil.test/keys" }),
        json!({ "x5u": "https://evil.test/keys" }),
        json!({ "kid": "../../keys" }),
        json!({ "kid": "' OR 1=1" }),
        json!({ "kid": "x".repeat(4000) }),
        json!({ "kid": "" }),
    ] {
        let mut head = json!({ "alg": "RS256", "kid": "rsa" });
        head.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(verified(&signer.sign(&head, &claims()), &keys), Err(TokenError::Signature), "{head}");
    }
    // What whoever reads the token must understand, and a name that is none.
    for more in [json!({ "crit": ["b64"], "b64": false }), json!({ "kid": 1 }), json!({ "kid": ["rsa"] })] {
        let mut head = json!({ "alg": "RS256", "kid": "rsa" });
        head.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(verified(&signer.sign(&head, &claims()), &signer.keys()), Err(TokenError::Form), "{head}");
    }
    // Twice the same field: whichever would count.
    let twice = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","alg":"none","kid":"rsa"}"#);
    let parts: Vec<&str> = good.split('.').collect();
    assert_eq!(verified(&format!("{twice}.{}.{}", parts[1], parts[2]), &keys), Err(TokenError::Form));
    let twice = signer.sign_text(
        &json!({ "alg": "RS256", "kid": "rsa" }),
        &format!(r#"{{"iss":"{ISSUER}","iss":"https://evil.test"}}"#),
    );
    assert_eq!(verified(&twice, &signer.keys()), Err(TokenError::Form));
}

#[test]
fn what_is_changed_or_cut_is_refused() {
    let signer = Signer::new();
    let keys = signer.keys();
    let good = signer.sign(&json!({ "alg": "ES256", "kid": "p256" }), &claims());
    let parts: Vec<&str> = good.split('.').collect();
    let mut other = claims();
    other["sub"] = json!("admin");
    for forged in [
        format!("{}.{}.{}", parts[0], encoded(&other), parts[2]),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}.{}", parts[2]),
        format!("{good}="),
        format!("{good} "),
        good[..good.len() - 1].to_owned(),
        format!("{}.{}.{}", parts[0], parts[1], parts[2].to_ascii_lowercase()),
    ] {
        assert!(verified(&forged, &keys).is_err(), "{forged}");
    }
    for text in ["", ".", "..", "...", "a.b.c", "{}", "e30.e30.", "\u{0}.\u{0}.\u{0}"] {
        assert_eq!(verified(text, &keys), Err(TokenError::Form), "{text}");
    }
    assert_eq!(verified(&"x".repeat(MAX_TOKEN + 1), &keys), Err(TokenError::TooLong));
    let deep = signer.sign_text(
        &json!({ "alg": "RS256", "kid": "rsa" }),
        &format!(r#"{{"iss":"{ISSUER}","a":{}1{}}}"#, "[".repeat(1000), "]".repeat(1000)),
    );
    assert_eq!(verified(&deep, &keys), Err(TokenError::Form));
}

#[test]
fn a_set_of_keys_is_bounded() {
    for set in ["", "{}", "[]", r#"{"keys":{}}"#, "<html>"] {
        assert!(Keys::parse(set.as_bytes()).is_err(), "{set}");
    }
    let key = Signer::new().published()["keys"][1].clone();
    let many = json!({ "keys": vec![key; 1000] });
    assert_eq!(Keys::parse(many.to_string().as_bytes()).unwrap().count(), roadstead_oidc::MAX_KEYS);
    let huge = json!({ "keys": [{ "kty": "RSA", "n": "A".repeat(100_000), "e": "AQAB" }] });
    assert_eq!(Keys::parse(huge.to_string().as_bytes()).unwrap().count(), 0);
}

#[test]
fn a_token_is_of_the_issuer_for_the_audience_and_for_now() {
    let expected = Expected { issuers: &[ISSUER], audiences: &["hub", "cli"], now: NOW };
    assert_eq!(check(&claims(), &expected), Ok(()));
    for (field, value, want) in [
        ("iss", json!("https://issuer.test/"), TokenError::Issuer),
        ("iss", json!("https://ISSUER.test"), TokenError::Issuer),
        ("iss", json!("http://issuer.test"), TokenError::Issuer),
        ("iss", json!(null), TokenError::Issuer),
        ("iss", json!([ISSUER]), TokenError::Issuer),
        ("aud", json!("you"), TokenError::Audience),
        ("aud", json!("hub,cli"), TokenError::Audience),
        ("aud", json!([]), TokenError::Audience),
        ("aud", json!(["hub", 1]), TokenError::Audience),
        ("aud", json!({ "hub": true }), TokenError::Audience),
        ("aud", json!(null), TokenError::Audience),
        ("exp", json!(NOW), TokenError::Expired),
        ("exp", json!(-1), TokenError::Expired),
        ("exp", json!(null), TokenError::Endless),
        ("exp", json!("9999999999"), TokenError::Endless),
        ("nbf", json!(NOW + 301), TokenError::NotYet),
        ("nbf", json!("soon"), TokenError::NotYet),
    ] {
        let mut wrong = claims();
        wrong[field] = value.clone();
        assert_eq!(check(&wrong, &expected), Err(want), "{field} {value}");
    }
    for (field, value) in [
        ("aud", json!("cli")),
        ("nbf", json!(NOW + 300)),
        ("nbf", json!(NOW - 5)),
        ("exp", json!(NOW as f64 + 0.5)),
        ("exp", json!(1e300)),
    ] {
        let mut right = claims();
        right[field] = value.clone();
        assert_eq!(check(&right, &expected), Ok(()), "{field} {value}");
    }
}
