//! Google Cloud KMS.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use url::Url;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::credentials::{GcpCredential, TokenSource};
use crate::error::ServiceError;
use crate::token;
use roadstead_outbound::Secret;
use roadstead_signing::GoogleAccount;

const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
const PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";
const ENDPOINT: &str = "https://cloudkms.googleapis.com";
const METADATA: &str = "http://metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

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
    let token = access_token(credential, tokens, allowed, calls).await?;
    let body = Zeroizing::new(json!({ "name": resource_id, "ciphertext": enc }).to_string().into_bytes());
    let request = Request::new(Method::POST, url)
        .with_body("application/json", body)
        .with_secret("authorization", &bearer(&token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        if reply.status == 401 {
            tokens.clear();
        }
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

async fn access_token(
    credential: &GcpCredential,
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    if let Some(token) = tokens.get("") {
        return Ok(token);
    }
    let request = match credential {
        GcpCredential::Token(token) => return Ok(token.clone()),
        GcpCredential::Federated { audience, token, .. } => exchange(audience, token, allowed).await?,
        GcpCredential::Instance { endpoint } => {
            let url = match endpoint {
                Some(endpoint) => endpoint.join(METADATA_PATH)?,
                None => fixed(&format!("{METADATA}{METADATA_PATH}"))?,
            };
            let mut request = Request::new(Method::GET, url).with_header("metadata-flavor", "Google")?;
            request.metadata = true;
            request
        }
        GcpCredential::ServiceAccount { email, key_id, private_key, token_uri } => {
            let assertion = assertion(email, key_id, private_key, token_uri)?;
            let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
            form(token_uri.url(), &[("grant_type", grant), ("assertion", assertion.expose())])?
        }
        GcpCredential::Refresh { client_id, client_secret, refresh_token, token_uri } => {
            let fields = [
                ("grant_type", "refresh_token"),
                ("client_id", client_id),
                ("client_secret", client_secret.expose()),
                ("refresh_token", refresh_token.expose()),
            ];
            form(token_uri.url(), &fields)?
        }
    };
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(no_token(&request, &reply));
    }
    let token: Token = reply.json()?;
    let lasts = token.expires_in.map_or(UNSAID, Duration::from_secs);
    let token = match credential {
        GcpCredential::Federated { service_account: Some(account), .. } => {
            act_as(account, &token.access_token, allowed, calls).await?
        }
        _ => token.access_token,
    };
    tokens.put(String::new(), token.clone(), lasts);
    Ok(token)
}

fn form(url: &Url, fields: &[(&str, &str)]) -> Result<Request, ServiceError> {
    protected(url)?;
    let text = Serializer::new(String::new()).extend_pairs(fields).finish();
    let body = Zeroizing::new(text.into_bytes());
    Ok(Request::new(Method::POST, url.clone()).with_body("application/x-www-form-urlencoded", body))
}

async fn exchange(audience: &str, token: &TokenSource, allowed: &Allowed) -> Result<Request, ServiceError> {
    let url = match &allowed.gcp_sts {
        Some(address) => address.join("/v1/token")?,
        None => fixed("https://sts.googleapis.com/v1/token")?,
    };
    let token = token::read(token, audience).await?;
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", audience),
        ("scope", PLATFORM),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token", token.expose()),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
    ];
    form(&url, &fields)
}

/// The token of a service account, for one who may act as it. It lasts an hour, as what it was got with does.
async fn act_as(
    account: &str,
    token: &Secret,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    #[derive(Deserialize)]
    struct Given {
        #[serde(rename = "accessToken")]
        access_token: Secret,
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if account.is_empty() || !account.chars().all(fine) {
        return Err(ServiceError::Credential("the service account is not an address".to_owned()));
    }
    let path = format!("/v1/projects/-/serviceAccounts/{account}:generateAccessToken");
    let url = match &allowed.gcp_iam {
        Some(address) => address.join(&path)?,
        None => fixed(&format!("https://iamcredentials.googleapis.com{path}"))?,
    };
    protected(&url)?;
    let body = Zeroizing::new(json!({ "scope": [SCOPE] }).to_string().into_bytes());
    let request = Request::new(Method::POST, url)
        .with_body("application/json", body)
        .with_secret("authorization", &bearer(token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        let failure: Option<Failure> = reply.json().ok();
        return Err(reply.refused(&request, failure.map(|failure| failure.error.status).as_deref()));
    }
    reply.json::<Given>().map(|given| given.access_token)
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

fn assertion(
    email: &str,
    key_id: &str,
    private_key: &Secret,
    token_uri: &Address,
) -> Result<Secret, ServiceError> {
    let account = GoogleAccount { email, key_id, private_key };
    let signed = account.assertion(SCOPE, &token_uri.to_string(), Timestamp::now().as_second());
    signed.map_err(|why| ServiceError::Credential(format!("the service account's key is unusable: {why}")))
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
