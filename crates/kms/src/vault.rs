//! The transit engine of HashiCorp Vault and OpenBao.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::json;
use url::Url;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::credentials::{TokenSource, VaultCredential, VaultProof};
use crate::error::ServiceError;
use crate::token;
use roadstead_outbound::Secret;

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
struct LoggedIn {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: Secret,
    lease_duration: Option<u64>,
}

#[derive(Deserialize)]
struct Failure {
    errors: Vec<String>,
}

/// A path of names that stand in a URL for themselves.
pub(crate) fn path(text: &str) -> Option<String> {
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
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    let body = Zeroizing::new(json!({ "ciphertext": key.enc }).to_string().into_bytes());
    let reply = ask(key, "decrypt", body, credential, tokens, allowed, calls).await?;
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.data.plaintext.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

/// Wraps some bytes: `vault:v1:…`. Only `key.enc` is not used.
pub(crate) async fn wrap(
    key: &Key<'_>,
    plain: &[u8],
    credential: &VaultCredential,
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<String, ServiceError> {
    #[derive(Deserialize)]
    struct Answer {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        ciphertext: String,
    }
    // Base64 needs no escapes.
    let plain = Zeroizing::new(STANDARD.encode(plain));
    let body = Zeroizing::new(format!(r#"{{"plaintext":"{}"}}"#, plain.as_str()).into_bytes());
    let reply = ask(key, "encrypt", body, credential, tokens, allowed, calls).await?;
    let answer: Answer = reply.json()?;
    if is_ciphertext(&answer.data.ciphertext) {
        Ok(answer.data.ciphertext)
    } else {
        Err(ServiceError::Malformed(reply.host))
    }
}

/// Does it look like what transit engines give out: `vault:vN:BASE64`?
pub(crate) fn is_ciphertext(text: &str) -> bool {
    let Some((version, bytes)) = text.strip_prefix("vault:v").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let number = !version.is_empty() && version.len() <= 10 && version.chars().all(|c| c.is_ascii_digit());
    number && STANDARD.decode(bytes).is_ok_and(|bytes| !bytes.is_empty())
}

/// Has the engine do something with a key. What it gives went well.
async fn ask(
    key: &Key<'_>,
    what: &str,
    body: Zeroizing<Vec<u8>>,
    credential: &VaultCredential,
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Reply, ServiceError> {
    let bad = |what: &str| ServiceError::Key(format!("its {what} is not valid"));
    let address = Address::parse(key.address).map_err(|error| ServiceError::Key(error.to_string()))?;
    let engine = path(key.engine_path).ok_or_else(|| bad("engine_path"))?;
    let name = path(key.key_name).filter(|name| !name.contains('/')).ok_or_else(|| bad("key_name"))?;
    allowed.check(&address, &credential.addresses)?;
    let token = match &credential.proof {
        VaultProof::Token(token) => token.clone(),
        VaultProof::Login { path, role, jwt } => {
            let login = Login { address: &address, path, role, jwt };
            login.token(credential, tokens, calls).await?
        }
    };
    let url = address.join(&format!("/v1/{engine}/{what}/{name}"))?;
    let request = request(url, body, credential)?.with_secret("x-vault-token", token.expose())?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        if reply.status == 403 {
            tokens.clear();
        }
        return Err(reply.refused(&request, reason(&reply).as_deref()));
    }
    Ok(reply)
}

fn request(
    url: Url,
    body: Zeroizing<Vec<u8>>,
    credential: &VaultCredential,
) -> Result<Request, ServiceError> {
    let request = Request::new(Method::PUT, url)
        .with_body("application/json", body)
        .with_header("x-vault-request", "true")?;
    match &credential.namespace {
        Some(namespace) => request.with_header("x-vault-namespace", namespace),
        None => Ok(request),
    }
}

/// A token of the server's, in exchange for another issuer's.
struct Login<'l> {
    address: &'l Address,
    path: &'l str,
    role: &'l str,
    jwt: &'l TokenSource,
}

impl Login<'_> {
    async fn token(
        &self,
        credential: &VaultCredential,
        tokens: &Cache<Secret>,
        calls: &Calls<'_>,
    ) -> Result<Secret, ServiceError> {
        let name = self.address.to_string();
        if let Some(token) = tokens.get(&name) {
            return Ok(token);
        }
        let path = path(self.path)
            .ok_or_else(|| ServiceError::Credential("the path of the login is not valid".to_owned()))?;
        // No other server may use it.
        let jwt = token::read(self.jwt, &name).await?;
        let url = self.address.join(&format!("/v1/{path}"))?;
        let body = Zeroizing::new(json!({ "role": self.role, "jwt": jwt.expose() }).to_string().into_bytes());
        let request = request(url, body, credential)?;
        let reply = calls.send(&request, |_| false).await?;
        if !reply.is_ok() {
            return Err(reply.refused(&request, reason(&reply).as_deref()));
        }
        let login: LoggedIn = reply.json()?;
        let lasts = login.auth.lease_duration.map_or(UNSAID, Duration::from_secs);
        tokens.put(name, login.auth.client_token.clone(), lasts);
        Ok(login.auth.client_token)
    }
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
