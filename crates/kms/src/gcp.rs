//! Google Cloud KMS.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::credentials::GcpCredential;
use crate::error::ServiceError;
use crate::secret::Secret;
use crate::sign::{Padding, TokenKey};

const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
const ENDPOINT: &str = "https://cloudkms.googleapis.com";
const METADATA: &str =
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token";

#[derive(Deserialize)]
struct Token {
    access_token: Secret,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct Answer {
    plaintext: Secret,
}

#[derive(Deserialize)]
struct Failure {
    error: Status,
}

#[derive(Deserialize)]
struct Status {
    status: String,
}

/// Is it `projects/P/locations/L/keyRings/R/cryptoKeys/K`, and nothing more?
fn is_key(id: &str) -> bool {
    let name = |name: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        !name.is_empty() && name != "." && name != ".." && name.chars().all(fine)
    };
    let parts: Vec<&str> = id.split('/').collect();
    matches!(parts.as_slice(), ["projects", p, "locations", l, "keyRings", r, "cryptoKeys", k]
        if [p, l, r, k].into_iter().all(|part| name(part)))
}

pub(crate) async fn unwrap(
    resource_id: &str,
    enc: &str,
    credential: &GcpCredential,
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    if !is_key(resource_id) {
        return Err(ServiceError::Key(
            "it is not of the form projects/P/locations/L/keyRings/R/cryptoKeys/K".to_owned(),
        ));
    }
    let endpoint = match &allowed.gcp_kms {
        Some(endpoint) => endpoint.clone(),
        None => Address::parse(ENDPOINT).map_err(|error| ServiceError::Key(error.to_string()))?,
    };
    let url = endpoint.join(&format!("/v1/{resource_id}:decrypt"))?;
    protected(&url)?;
    let token = token(credential, tokens, calls).await?;
    let body = Zeroizing::new(json!({ "name": resource_id, "ciphertext": enc }).to_string().into_bytes());
    let request = Request::new(Method::POST, url)
        .with_body("application/json", body)
        .with_secret("authorization", &bearer(&token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        let failure: Option<Failure> = reply.json().ok();
        return Err(reply.refused(&request, failure.map(|failure| failure.error.status).as_deref()));
    }
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.plaintext.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

pub(crate) fn bearer(token: &Secret) -> Zeroizing<String> {
    Zeroizing::new(format!("Bearer {}", token.expose()))
}

async fn token(
    credential: &GcpCredential,
    tokens: &Cache<Secret>,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    if let GcpCredential::Token(token) = credential {
        return Ok(token.clone());
    }
    if let Some(token) = tokens.get("") {
        return Ok(token);
    }
    let request = token_request(credential)?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(no_token(&request, &reply));
    }
    let token: Token = reply.json()?;
    let lasts = token.expires_in.map_or(UNSAID, Duration::from_secs);
    tokens.put(String::new(), token.access_token.clone(), lasts);
    Ok(token.access_token)
}

/// The error of OAuth's token endpoints.
pub(crate) fn no_token(request: &Request, reply: &Reply) -> ServiceError {
    #[derive(Deserialize)]
    struct Failure {
        error: String,
    }
    let failure: Option<Failure> = reply.json().ok();
    reply.refused(request, failure.map(|failure| failure.error).as_deref())
}

fn token_request(credential: &GcpCredential) -> Result<Request, ServiceError> {
    let mut form = Serializer::new(String::new());
    let uri = match credential {
        GcpCredential::ServiceAccount { email, key_id, private_key, token_uri } => {
            let assertion = assertion(email, key_id, private_key, token_uri)?;
            form.append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
            form.append_pair("assertion", assertion.expose());
            token_uri
        }
        GcpCredential::Refresh { client_id, client_secret, refresh_token, token_uri } => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("client_id", client_id);
            form.append_pair("client_secret", client_secret.expose());
            form.append_pair("refresh_token", refresh_token.expose());
            token_uri
        }
        GcpCredential::Token(_) | GcpCredential::Instance => {
            let mut request =
                Request::new(Method::GET, fixed(METADATA)?).with_header("metadata-flavor", "Google")?;
            request.metadata = true;
            return Ok(request);
        }
    };
    let url = uri.url().clone();
    protected(&url)?;
    let body = Zeroizing::new(form.finish().into_bytes());
    Ok(Request::new(Method::POST, url).with_body("application/x-www-form-urlencoded", body))
}

fn assertion(
    email: &str,
    key_id: &str,
    private_key: &Secret,
    token_uri: &Address,
) -> Result<Secret, ServiceError> {
    let key = TokenKey::from_pem(private_key.expose())
        .map_err(|why| ServiceError::Credential(format!("the service account's key is unusable: {why}")))?;
    let now = Timestamp::now().as_second();
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": key_id });
    let claims = json!({
        "iss": email, "scope": SCOPE, "aud": token_uri.to_string(), "iat": now, "exp": now + 600,
    });
    key.sign(&header, &claims, Padding::Pkcs1)
}

#[cfg(test)]
mod tests {
    use super::is_key;

    #[test]
    fn keys_have_no_version() {
        assert!(is_key("projects/p/locations/global/keyRings/r/cryptoKeys/k"));
        assert!(is_key("projects/example.com:p/locations/global/keyRings/r/cryptoKeys/k_1-2"));
        for bad in [
            "",
            "projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
            "projects/p/locations/global/keyRings/r/cryptoKeys/",
            "projects/../locations/global/keyRings/r/cryptoKeys/k",
            "projects/p/locations/global/keyRings/r/cryptoKeys/k?x",
            "/projects/p/locations/global/keyRings/r/cryptoKeys/k",
        ] {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
