//! An issuer: keys, and tokens that are signed by them.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
    EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512,
    RSA_PSS_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use roadstead_oidc::Keys;
use serde_json::{Value, json};

pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://issuer.test";

pub(crate) fn encoded(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

pub(crate) fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": ["other", "hub"], "exp": NOW + 60, "sub": "jane", "groups": ["dev", "ops"] })
}

pub(crate) struct Signer {
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    p521: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new() -> Self {
        Self {
            rsa: RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap(),
            p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            p384: EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap(),
            p521: EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).unwrap(),
            ed: Ed25519KeyPair::generate().unwrap(),
        }
    }

    /// The modulus and the exponent in PKCS #1: two integers, of which the first is 2048 bits long with a zero before it, and the second
    /// is 65537.
    pub(crate) fn rsa_public(&self) -> &[u8] {
        self.rsa.public_key().as_ref()
    }

    pub(crate) fn published(&self) -> Value {
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let rsa = self.rsa_public();
        let point = |kid: &str, curve: &str, pair: &EcdsaKeyPair| {
            let point = &pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            json!({ "kty": "EC", "kid": kid, "crv": curve, "x": part(x), "y": part(y) })
        };
        json!({ "keys": [
            { "kty": "RSA", "kid": "rsa", "use": "sig", "n": part(&rsa[9..265]), "e": part(&rsa[267..]) },
            point("p256", "P-256", &self.p256),
            point("p384", "P-384", &self.p384),
            point("p521", "P-521", &self.p521),
            { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": part(self.ed.public_key().as_ref()) },
            { "kty": "oct", "kid": "secret", "k": "c2VjcmV0" },
            { "kty": "RSA", "kid": "enc", "use": "enc", "n": part(&rsa[9..265]), "e": part(&rsa[267..]) },
            { "kty": 1 }, "x",
        ] })
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::parse(self.published().to_string().as_bytes()).unwrap()
    }

    pub(crate) fn sign(&self, head: &Value, claims: &Value) -> String {
        self.sign_text(head, &claims.to_string())
    }

    /// By the key that the algorithm is for.
    pub(crate) fn sign_text(&self, head: &Value, claims: &str) -> String {
        let text = format!("{}.{}", encoded(head), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(head["alg"].as_str().unwrap_or_default(), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn signature(&self, algorithm: &str, text: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let ec = |pair: &EcdsaKeyPair| pair.sign(&random, text).unwrap().as_ref().to_vec();
        let rsa = |scheme: &'static dyn signature::RsaEncoding| {
            let mut signature = vec![0; self.rsa.public_modulus_len()];
            self.rsa.sign(scheme, &random, text, &mut signature).unwrap();
            signature
        };
        match algorithm {
            "ES256" => ec(&self.p256),
            "ES384" => ec(&self.p384),
            "ES512" => ec(&self.p521),
            "EdDSA" => self.ed.sign(text).as_ref().to_vec(),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            _ => rsa(&RSA_PKCS1_SHA256),
        }
    }
}
