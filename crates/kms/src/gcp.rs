//! Google Cloud KMS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use roadstead_cloud::gcp::{access_token, bearer, refused};

use crate::address::{Address, Allowed, protected};
use crate::cache::Cache;
use crate::call::{Calls, Request};
use crate::credentials::GcpCredential;
use crate::error::ServiceError;
use roadstead_outbound::Secret;

const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";
const ENDPOINT: &str = "https://cloudkms.googleapis.com";

#[derive(Deserialize)]
struct Answer {
    plaintext: Secret,
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
    let token = access_token(credential, SCOPE, tokens, &allowed.token_services, calls).await?;
    let body = Zeroizing::new(json!({ "name": resource_id, "ciphertext": enc }).to_string().into_bytes());
    let request = Request::new(Method::POST, url)
        .with_body("application/json", body)
        .with_secret("authorization", &bearer(&token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        if reply.status == 401 {
            tokens.clear();
        }
        return Err(refused(&request, &reply));
    }
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.plaintext.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
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
