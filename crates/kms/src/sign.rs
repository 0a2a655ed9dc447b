//! Signatures of requests: AWS Signature Version 4, Huawei's, and JSON Web Tokens.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use jiff::Timestamp;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value as Json;
use zeroize::Zeroizing;

use crate::call::Request;
use crate::error::ServiceError;
use roadstead_outbound::Secret;

/// Who signs for AWS.
#[derive(Clone)]
pub(crate) struct AwsKeys {
    pub(crate) id: String,
    pub(crate) secret: Secret,
    pub(crate) session: Option<Secret>,
}

/// What a signature is for.
pub(crate) struct Scope<'s> {
    pub(crate) region: &'s str,
    pub(crate) service: &'s str,
}

/// Signs a request for AWS.
pub(crate) fn aws(
    mut request: Request,
    keys: &AwsKeys,
    scope: &Scope<'_>,
    now: Timestamp,
) -> Result<Request, ServiceError> {
    let time = basic_time(now);
    let day = time.get(..8).unwrap_or_default().to_owned();
    request = request.with_header("x-amz-date", &time)?;
    if let Some(session) = &keys.session {
        request = request.with_secret("x-amz-security-token", session.expose())?;
    }
    let (canonical, signed) = canonical(&request, request.url.path())?;
    let scoped = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scoped}\n{}",
        hex(digest(&SHA256, canonical.as_bytes()).as_ref())
    );
    let start = Zeroizing::new(format!("AWS4{}", keys.secret.expose()));
    let mut key = Zeroizing::new(start.as_bytes().to_vec());
    for part in [day.as_str(), scope.region, scope.service, "aws4_request"] {
        key = hmac_sha256(&key, part.as_bytes());
    }
    let signature = hex(&hmac_sha256(&key, text.as_bytes()));
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scoped}, SignedHeaders={signed}, Signature={signature}",
        keys.id
    );
    request.with_secret("authorization", &value)
}

/// Signs a request for Huawei Cloud.
pub(crate) fn huawei(
    mut request: Request,
    access_key: &str,
    secret_key: &Secret,
    now: Timestamp,
) -> Result<Request, ServiceError> {
    let time = basic_time(now);
    request = request.with_header("x-sdk-date", &time)?;
    let (canonical, signed) = canonical(&request, &format!("{}/", request.url.path().trim_end_matches('/')))?;
    let text = format!("SDK-HMAC-SHA256\n{time}\n{}", hex(digest(&SHA256, canonical.as_bytes()).as_ref()));
    let signature = hex(&hmac_sha256(secret_key.expose().as_bytes(), text.as_bytes()));
    let value = format!("SDK-HMAC-SHA256 Access={access_key}, SignedHeaders={signed}, Signature={signature}");
    request.with_secret("authorization", &value)
}

/// The request as it is signed, and the names of the headers that are: all that were set, and the host. The paths and queries that are
/// signed here have nothing that would have to be encoded.
fn canonical(request: &Request, path: &str) -> Result<(Zeroizing<String>, String), ServiceError> {
    let unusable = || ServiceError::Credential("a header cannot be signed".to_owned());
    let mut headers = vec![("host".to_owned(), crate::call::host(&request.url))];
    for (name, value) in &request.headers {
        let value = HeaderValue::to_str(value).map_err(|_| unusable())?;
        headers.push((name.as_str().to_owned(), value.trim().to_owned()));
    }
    headers.sort();
    let lines: Zeroizing<String> =
        Zeroizing::new(headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect());
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let (signed, query) = (names.join(";"), request.url.query().unwrap_or_default());
    let body = hex(digest(&SHA256, &request.body).as_ref());
    let text = format!("{}\n{path}\n{query}\n{}\n{signed}\n{body}", request.method, lines.as_str());
    Ok((Zeroizing::new(text), signed))
}

fn basic_time(now: Timestamp) -> String {
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How a JSON Web Token is signed.
#[derive(Clone, Copy)]
pub(crate) enum Padding {
    /// RS256.
    Pkcs1,
    /// PS256.
    Pss,
}

/// An RSA private key that signs tokens.
pub(crate) struct TokenKey(RsaKeyPair);

impl TokenKey {
    /// Reads PEM: PKCS #8 or PKCS #1, not encrypted.
    pub(crate) fn from_pem(pem: &str) -> Result<Self, &'static str> {
        const INVALID: &str = "not a valid RSA private key of 2048 to 8192 bits in PEM";
        if pem.contains("ENCRYPTED") {
            return Err("the private key is protected by a password, which is not supported");
        }
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| INVALID)?;
        let pair = match &key {
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            _ => return Err("the private key is not an RSA key"),
        };
        pair.map(Self).map_err(|_| INVALID)
    }

    /// A token.
    pub(crate) fn sign(
        &self,
        header: &Json,
        claims: &Json,
        padding: Padding,
    ) -> Result<Secret, ServiceError> {
        let text = format!("{}.{}", encoded(header), encoded(claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        let encoding: &'static dyn RsaEncoding = match padding {
            Padding::Pkcs1 => &RSA_PKCS1_SHA256,
            Padding::Pss => &RSA_PSS_SHA256,
        };
        let signed = self.0.sign(encoding, &SystemRandom::new(), text.as_bytes(), &mut signature);
        signed.map_err(|_| ServiceError::Credential("the private key cannot sign".to_owned()))?;
        Ok(Secret::new(format!("{text}.{}", URL_SAFE_NO_PAD.encode(&signature))))
    }
}

fn encoded(json: &Json) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use url::Url;

    fn signature(request: &Request) -> String {
        let (_, value) = request.headers.iter().find(|(name, _)| name == "authorization").unwrap();
        value.to_str().unwrap().to_owned()
    }

    fn aws_signature(method: Method, body: Option<&str>, session: Option<&str>) -> String {
        let mut request = Request::new(method, Url::parse("https://example.amazonaws.com/").unwrap());
        if let Some(body) = body {
            let body = Zeroizing::new(body.as_bytes().to_vec());
            request = request.with_body("application/x-www-form-urlencoded", body);
        }
        let keys = AwsKeys {
            id: "AKIDEXAMPLE".into(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
            session: session.map(|token| Secret::new(token.to_owned())),
        };
        let scope = Scope { region: "us-east-1", service: "service" };
        signature(&aws(request, &keys, &scope, "2015-08-30T12:36:00Z".parse().unwrap()).unwrap())
    }

    /// The suite of vectors that AWS has published for Signature Version 4.
    #[test]
    fn aws_signs_as_published() {
        let start =
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        for (method, body, session, end) in [
            (
                Method::GET,
                None,
                None,
                "host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                Method::POST,
                None,
                None,
                "host;x-amz-date, Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                Method::POST,
                Some("Param1=value1"),
                None,
                "content-type;host;x-amz-date, Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                Method::POST,
                None,
                Some(token),
                "host;x-amz-date;x-amz-security-token, Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            assert_eq!(aws_signature(method, body, session), format!("{start}{end}"));
        }
    }

    /// The example in Huawei's description of its signatures.
    #[test]
    fn huawei_signs_as_published() {
        let url = "https://service.region.example.com/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs?limit=2&marker=13551d6b-755d-4757-b956-536f674975c0";
        let request = Request::new(Method::GET, Url::parse(url).unwrap());
        let request = request.with_body("application/json", Zeroizing::default());
        let key = Secret::new("MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc".into());
        let now = "2019-11-15T03:36:55Z".parse().unwrap();
        assert_eq!(
            signature(&huawei(request, "QTWAOYTTINDUT2QVKYUC", &key, now).unwrap()),
            "SDK-HMAC-SHA256 Access=QTWAOYTTINDUT2QVKYUC, SignedHeaders=content-type;host;x-sdk-date, \
             Signature=7be6668032f70418fcc22abc52071e57aff61b84a1d2381bb430d6870f4f6ebe"
        );
    }

    /// What RFC 7515 shows in appendix A.2, with its key.
    #[test]
    fn tokens_are_signed_as_published() {
        use aws_lc_rs::signature::KeyPair as _;
        use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
        let pem = include_str!("../tests/rfc7515-a2.pem");
        let key = TokenKey::from_pem(pem).unwrap();
        let signed = key.0.public_key().as_ref().to_vec();
        let (header, claims) = (serde_json::json!({"alg": "RS256"}), serde_json::json!({"iss": "joe"}));
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
        assert!(TokenKey::from_pem(encrypted).is_err_and(|why| why.contains("password")));
        assert!(TokenKey::from_pem("x").is_err());
    }
}
