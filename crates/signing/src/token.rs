//! JSON Web Tokens that are signed with an RSA key, and what Google and Azure want to be in them.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use roadstead_outbound::Secret;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value as Json, json};

/// How long an assertion is good for, in seconds.
const LASTS: i64 = 600;

/// Why something is not signed. What it says holds nothing of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotSign(&'static str);

/// How a JSON Web Token is signed.
#[derive(Debug, Clone, Copy)]
pub enum Padding {
    /// RS256.
    Pkcs1,
    /// PS256.
    Pss,
}

/// An RSA private key that signs tokens.
pub struct TokenKey(RsaKeyPair);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey")
    }
}

impl TokenKey {
    /// Reads PEM: PKCS #8 or PKCS #1, not encrypted.
    ///
    /// # Errors
    /// Where it holds no such key.
    pub fn from_pem(pem: &str) -> Result<Self, CannotSign> {
        const INVALID: CannotSign = CannotSign("not a valid RSA private key of 2048 to 8192 bits in PEM");
        if pem.contains("ENCRYPTED") {
            return Err(CannotSign("the private key is protected by a password, which is not supported"));
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| INVALID)?;
        let pair = match &key {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err(CannotSign("the private key is not an RSA key")),
        };
        pair.map(Self).map_err(|_| INVALID)
    }

    /// A token.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn sign(&self, header: &Json, claims: &Json, padding: Padding) -> Result<Secret, CannotSign> {
        let text = format!("{}.{}", encoded(header), encoded(claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        let encoding: &'static dyn RsaEncoding = match padding {
            Padding::Pkcs1 => &RSA_PKCS1_SHA256,
            Padding::Pss => &RSA_PSS_SHA256,
        };
        let signed = self.0.sign(encoding, &SystemRandom::new(), text.as_bytes(), &mut signature);
        signed.map_err(|_| CannotSign("the private key cannot sign"))?;
        Ok(Secret::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(&signature))))
    }
}

fn encoded(json: &Json) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// A service account of Google's, with a key of it.
#[derive(Debug)]
pub struct GoogleAccount<'a> {
    /// Its name.
    pub email: &'a str,
    /// Which of its keys.
    pub key_id: &'a str,
    /// That key, in PEM.
    pub private_key: &'a Secret,
}

impl GoogleAccount<'_> {
    /// What is exchanged for an access token for `scope` at `audience`, at `now` in seconds since 1970.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn assertion(&self, scope: &str, audience: &str, now: i64) -> Result<Secret, CannotSign> {
        // Exposed to be parsed.
        let key = TokenKey::from_pem(self.private_key.expose())?;
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.key_id });
        let claims = json!({
            "iss": self.email, "scope": scope, "aud": audience, "iat": now, "exp": now + LASTS,
        });
        key.sign(&header, &claims, Padding::Pkcs1)
    }
}

/// What an application of Azure's shows at `audience` to be known by its certificate: `pem` has that, what is between it and its
/// authority, and its key. `now` is in seconds since 1970.
///
/// # Errors
/// Where there is no certificate or key that signs.
pub fn azure_assertion(
    pem: &Secret,
    send_chain: bool,
    client_id: &str,
    audience: &str,
    now: i64,
) -> Result<Secret, CannotSign> {
    // Exposed to be parsed.
    let key = TokenKey::from_pem(pem.expose())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
    let chain = chain.map_err(|_| CannotSign("it is not PEM"))?;
    let first = chain.first().ok_or(CannotSign("there is no certificate in it"))?;
    let mut header = json!({
        "alg": "PS256",
        "typ": "JWT",
        "x5t#S256": URL_SAFE_NO_PAD.encode(digest(&SHA256, first)),
    });
    if send_chain && let Some(header) = header.as_object_mut() {
        let chain: Vec<String> = chain.iter().map(|certificate| STANDARD.encode(certificate)).collect();
        header.insert("x5c".to_owned(), chain.into());
    }
    let mut id = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| CannotSign("there is no randomness"))?;
    let claims = json!({
        "aud": audience, "iss": client_id, "sub": client_id, "jti": URL_SAFE_NO_PAD.encode(id),
        "nbf": now - 60, "iat": now, "exp": now + LASTS,
    });
    key.sign(&header, &claims, Padding::Pss)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What RFC 7515 shows in appendix A.2, with its key.
    #[test]
    fn tokens_are_signed_as_published() {
        use aws_lc_rs::signature::KeyPair as _;
        use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
        let pem = include_str!("../../kms/tests/rfc7515-a2.pem");
        let key = TokenKey::from_pem(pem).unwrap();
        let signed = key.0.public_key().as_ref().to_vec();
        let (header, claims) = (json!({"alg": "RS256"}), json!({"iss": "joe"}));
        let mut signature = vec![0; key.0.public_modulus_len()];
        let published = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        key.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), published.as_bytes(), &mut signature).unwrap();
        assert!(
            URL_SAFE_NO_PAD
                .encode(&signature)
                .starts_with("cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7")
        );
        for (padding, algorithm) in
            [(Padding::Pkcs1, &RSA_PKCS1_2048_8192_SHA256), (Padding::Pss, &RSA_PSS_2048_8192_SHA256)]
        {
            let token = key.sign(&header, &claims, padding).unwrap();
            let (text, signature) = token.expose().rsplit_once('.').unwrap();
            assert!(text.starts_with("eyJhbGciOiJSUzI1NiJ9."), "{text}");
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            UnparsedPublicKey::new(algorithm, &signed).verify(text.as_bytes(), &signature).unwrap();
        }
    }

    #[test]
    fn keys_that_cannot_sign() {
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(TokenKey::from_pem(encrypted).is_err_and(|why| why.to_string().contains("password")));
        assert!(TokenKey::from_pem("x").is_err());
    }
}
