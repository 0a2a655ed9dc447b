//! The transit engine of HashiCorp Vault and OpenBao.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed};
use crate::call::{Calls, Reply, Request};
use crate::credentials::VaultCredential;
use crate::error::ServiceError;
use crate::secret::Secret;

/// What a file says.
pub(crate) struct Key<'k> {
    pub(crate) address: &'k str,
    pub(crate) engine_path: &'k str,
    pub(crate) key_name: &'k str,
    pub(crate) enc: &'k str,
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    plaintext: Secret,
}

#[derive(Deserialize)]
struct Failure {
    errors: Vec<String>,
}

/// A path of names that stand in a URL for themselves.
fn path(text: &str) -> Option<String> {
    let text = text.trim_matches('/');
    let name = |name: &str| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.~@".contains(c);
        !name.is_empty() && name != "." && name != ".." && name.chars().all(fine)
    };
    text.split('/').all(name).then(|| text.to_owned())
}

pub(crate) async fn unwrap(
    key: &Key<'_>,
    credential: &VaultCredential,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    let bad = |what: &str| ServiceError::Key(format!("its {what} is not valid"));
    let address = Address::parse(key.address).map_err(|error| ServiceError::Key(error.to_string()))?;
    let engine = path(key.engine_path).ok_or_else(|| bad("engine_path"))?;
    let name = path(key.key_name).filter(|name| !name.contains('/')).ok_or_else(|| bad("key_name"))?;
    allowed.check(&address, &credential.addresses)?;
    let body = Zeroizing::new(json!({ "ciphertext": key.enc }).to_string().into_bytes());
    let url = address.join(&format!("/v1/{engine}/decrypt/{name}"))?;
    let mut request = Request::new(Method::PUT, url)
        .with_body("application/json", body)
        .with_header("x-vault-request", "true")?
        .with_secret("x-vault-token", credential.token.expose())?;
    if let Some(namespace) = &credential.namespace {
        request = request.with_header("x-vault-namespace", namespace)?;
    }
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(reply.refused(&request, reason(&reply).as_deref()));
    }
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.data.plaintext.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

/// The last line of what it says: before it stands how often it was tried.
fn reason(reply: &Reply) -> Option<String> {
    let failure: Failure = reply.json().ok()?;
    let first = failure.errors.first()?;
    first
        .lines()
        .map(|line| line.trim_start_matches(['*', ' ', '\t']).trim())
        .rfind(|line| !line.is_empty())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn paths_stay_below_the_engine() {
        assert_eq!(path("/a/b-c/").as_deref(), Some("a/b-c"));
        for bad in ["", "/", "a//b", "a/../b", "..", "a?b", "a#b", "a b", "a%2f..", "a\\b", "ä"] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }
}
