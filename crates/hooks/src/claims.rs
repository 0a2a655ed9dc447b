//! What a token of an issuer must claim besides being signed.

use serde_json::Value;

use crate::NotProven;

/// So many seconds another clock may be ahead.
const SKEW: f64 = 60.0;

/// What is expected of a token.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// From whom: any of these.
    pub issuers: &'a [&'a str],
    /// For whom.
    pub audience: &'a str,
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// Checks that claims are of this issuer, for this audience, and for now.
///
/// # Errors
/// [`NotProven`] where they are not.
pub fn check(claims: &Value, expected: &Expected<'_>) -> Result<(), NotProven> {
    let refuse = |why| Err(NotProven::Bearer(why));
    if !claims["iss"].as_str().is_some_and(|issuer| expected.issuers.contains(&issuer)) {
        return refuse("it is of another issuer");
    }
    let is_for = match &claims["aud"] {
        Value::String(one) => one == expected.audience,
        Value::Array(many) => many.iter().any(|one| one == expected.audience),
        _ => false,
    };
    if !is_for {
        return refuse("it is for another audience");
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds of this era are exact")]
    let now = expected.now as f64;
    match claims["exp"].as_f64() {
        Some(end) if now < end => {}
        Some(_) => return refuse("it has expired"),
        None => return refuse("it does not say when it expires"),
    }
    match &claims["nbf"] {
        Value::Null => Ok(()),
        begin if begin.as_f64().is_some_and(|begin| begin <= now + SKEW) => Ok(()),
        _ => refuse("it is not valid yet"),
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Bearer, Call, Keys};

    const NOW: i64 = 1_800_000_000;

    fn encoded(json: &Value) -> String {
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    struct Issuer {
        rsa: RsaKeyPair,
        ec: EcdsaKeyPair,
    }

    impl Issuer {
        fn new() -> Self {
            Self {
                rsa: RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap(),
                ec: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            }
        }

        fn keys(&self) -> Value {
            let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            // PKCS #1: two integers, of which the first is 2048 bits long with a zero before it, and the second is 65537.
            let rsa = self.rsa.public_key().as_ref();
            let (modulus, exponent) = (&rsa[9..265], &rsa[267..]);
            let point = self.ec.public_key().as_ref();
            json!({ "keys": [
                { "kty": "RSA", "kid": "r", "use": "sig", "alg": "RS256", "n": part(modulus),
                  "e": part(exponent) },
                { "kty": "EC", "kid": "e", "crv": "P-256", "x": part(&point[1..33]), "y": part(&point[33..]) },
                { "kty": "oct", "kid": "h", "k": "c2VjcmV0" }, { "kty": 1 }, "x",
            ] })
        }

        fn sign(&self, head: &Value, claims: &Value) -> String {
            let text = format!("{}.{}", encoded(head), encoded(claims));
            let random = SystemRandom::new();
            let signature = if head["kid"] == "e" {
                self.ec.sign(&random, text.as_bytes()).unwrap().as_ref().to_vec()
            } else {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).unwrap();
                signature
            };
            format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn verified(token: &str, keys: &Keys) -> Result<Value, NotProven> {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        Bearer::of(&Call { headers: &headers, body: b"" })?.verify(keys)
    }

    fn claims() -> Value {
        json!({ "iss": "https://issuer.test", "aud": ["other", "me"], "exp": NOW + 60, "sub": "ci" })
    }

    #[test]
    fn a_token_is_believed_once_a_key_of_its_issuer_signed_it() {
        let issuer = Issuer::new();
        let keys = Keys::parse(issuer.keys().to_string().as_bytes()).unwrap();
        assert!(keys.has("r") && keys.has("e") && !keys.has("h"));
        for head in [
            json!({ "alg": "RS256", "kid": "r" }),
            json!({ "alg": "ES256", "kid": "e" }),
            json!({ "alg": "RS256" }),
        ] {
            let token = issuer.sign(&head, &claims());
            assert_eq!(verified(&token, &keys).unwrap()["sub"], "ci", "{head}");
            // Other claims under the same signature, and no signature.
            let parts: Vec<&str> = token.split('.').collect();
            let mut other = claims();
            other["sub"] = json!("admin");
            for forged in [
                format!("{}.{}.{}", parts[0], encoded(&other), parts[2]),
                format!("{}.{}.", parts[0], parts[1]),
                format!("{}.{}.{}", encoded(&json!({ "alg": "none" })), parts[1], parts[2]),
                format!("{}.{}.", encoded(&json!({ "alg": "none" })), parts[1]),
                format!(
                    "{}.{}.{}",
                    encoded(&json!({ "alg": "HS256", "kid": head["kid"] })),
                    parts[1],
                    parts[2]
                ),
            ] {
                assert!(matches!(verified(&forged, &keys), Err(NotProven::Bearer(_))), "{forged}");
            }
            assert!(verified(&token, &Keys::default()).is_err());
            let others = Keys::parse(Issuer::new().keys().to_string().as_bytes()).unwrap();
            assert!(verified(&token, &others).is_err());
        }
        // A key is good for what it says, and a name for its key.
        for head in [
            json!({ "alg": "RS512", "kid": "r" }),
            json!({ "alg": "RS256", "kid": "e2" }),
            json!({ "alg": "RS256", "kid": "r", "crit": ["b64"] }),
        ] {
            assert!(verified(&issuer.sign(&head, &claims()), &keys).is_err(), "{head}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let keys = Keys::default();
        for token in [
            "",
            ".",
            "..",
            "a.b.c",
            &format!("{}.e30.", encoded(&json!({ "alg": "RS256" }))),
            &"x".repeat(20_000),
        ] {
            assert!(verified(token, &keys).is_err(), "{token}");
        }
        let (headers, mut basic) = (HeaderMap::new(), HeaderMap::new());
        basic.insert("authorization", "Basic eDp5".parse().unwrap());
        let absent = Bearer::of(&Call { headers: &headers, body: b"" }).unwrap_err();
        assert_eq!(absent, NotProven::Absent("Authorization"));
        let form = Bearer::of(&Call { headers: &basic, body: b"" }).unwrap_err();
        assert_eq!(form, NotProven::Form("Authorization"));
        for set in ["", "{}", "[]", r#"{"keys":{}}"#] {
            assert!(Keys::parse(set.as_bytes()).is_err(), "{set}");
        }
    }

    #[test]
    fn claims_are_of_the_issuer_for_the_audience_and_for_now() {
        let expected = Expected { issuers: &["https://issuer.test"], audience: "me", now: NOW };
        assert_eq!(check(&claims(), &expected), Ok(()));
        for (field, value) in [
            ("iss", json!("https://issuer.test/")),
            ("iss", json!(null)),
            ("aud", json!("you")),
            ("aud", json!([])),
            ("aud", json!({ "me": true })),
            ("exp", json!(NOW)),
            ("exp", json!(null)),
            ("exp", json!("9999999999")),
            ("nbf", json!(NOW + 61)),
            ("nbf", json!("soon")),
        ] {
            let mut wrong = claims();
            wrong[field] = value.clone();
            assert!(check(&wrong, &expected).is_err(), "{field} {value}");
        }
        for (field, value) in
            [("aud", json!("me")), ("nbf", json!(NOW + 60)), ("exp", json!(NOW as f64 + 0.5))]
        {
            let mut right = claims();
            right[field] = value;
            assert_eq!(check(&right, &expected), Ok(()), "{field}");
        }
    }
}
