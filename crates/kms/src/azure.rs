//! Azure Key Vault.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use roadstead_outbound::Host;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use roadstead_cloud::azure::access_token;
use roadstead_cloud::gcp::bearer;

use crate::address::{Address, Allowed, protected};
use crate::cache::Cache;
use crate::call::{Calls, Request};
use crate::credentials::AzureCredential;
use crate::error::ServiceError;
use roadstead_outbound::Secret;

/// Where vaults are, each with one name before it.
const DOMAINS: [&str; 7] = [
    "vault.azure.net",
    "vault.azure.cn",
    "vault.usgovcloudapi.net",
    "vault.microsoftazure.de",
    "managedhsm.azure.net",
    "managedhsm.azure.cn",
    "managedhsm.usgovcloudapi.net",
];
const API: &str = "2025-07-01";

/// What a file says.
pub(crate) struct Key<'k> {
    pub(crate) vault_url: &'k str,
    pub(crate) name: &'k str,
    pub(crate) version: &'k str,
    pub(crate) enc: &'k str,
}

#[derive(Deserialize)]
struct Answer {
    value: Secret,
}

#[derive(Deserialize)]
struct Failure {
    error: Code,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

/// A vault's address, and what tokens for it are for.
fn vault(url: &str, allowed: &Allowed) -> Result<(Address, String), ServiceError> {
    let address = Address::parse(url).map_err(|error| ServiceError::Key(error.to_string()))?;
    let host = address.url().host_str().and_then(Host::parse);
    let (name, domain) = match &host {
        Some(Host::Name(host)) => host.split_once('.').unwrap_or((host, "")),
        Some(Host::Ip(_)) | None => ("", ""),
    };
    let own = DOMAINS.contains(&domain) && !name.is_empty();
    let whole =
        address.url().scheme() == "https" && address.url().port().is_none() && address.url().path() == "/";
    if !(own && whole) {
        allowed.check(&address, &[])?;
    }
    // A server of the operator's own: its domain, as the public ones have it.
    let resource = if domain.is_empty() { address.to_string() } else { format!("https://{domain}") };
    Ok((address, resource))
}

fn is_name(text: &str) -> bool {
    (1..=127).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

pub(crate) async fn unwrap(
    key: &Key<'_>,
    credential: &AzureCredential,
    tokens: &Cache<Secret>,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    let bad = |what: &str| ServiceError::Key(format!("its {what} is not valid"));
    let (address, resource) = vault(key.vault_url, allowed)?;
    if !is_name(key.name) {
        return Err(bad("name"));
    }
    let version = match key.version {
        "" => String::new(),
        version if is_name(version) => format!("/{version}"),
        _ => return Err(bad("version")),
    };
    let url = address.join(&format!("/keys/{}{version}/decrypt?api-version={API}", key.name))?;
    protected(&url)?;
    let token = access_token(credential, &resource, tokens, &allowed.token_services, calls).await?;
    let body = json!({ "alg": "RSA-OAEP-256", "value": key.enc }).to_string();
    let request = Request::new(Method::POST, url)
        .with_body("application/json", Zeroizing::new(body.into_bytes()))
        .with_secret("authorization", &bearer(&token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        if reply.status == 401 {
            tokens.clear();
        }
        let failure: Option<Failure> = reply.json().ok();
        return Err(reply.refused(&request, failure.map(|failure| failure.error.code).as_deref()));
    }
    let answer: Answer = reply.json()?;
    let bytes = URL_SAFE_NO_PAD.decode(answer.value.expose().trim_end_matches('='));
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vaults_are_where_azure_has_them() {
        let of = |url: &str| vault(url, &Allowed::default()).map(|(_, resource)| resource);
        assert_eq!(of("https://mine.vault.azure.net/").unwrap(), "https://vault.azure.net");
        assert_eq!(of("https://mine.vault.azure.cn").unwrap(), "https://vault.azure.cn");
        for bad in [
            "https://vault.azure.net",
            "https://mine.vault.azure.net.evil.example",
            "https://minevault.azure.net",
            "https://a.b.vault.azure.net",
            "http://mine.vault.azure.net",
            "https://mine.vault.azure.net:8443",
            "https://mine.vault.azure.net@evil.example",
            "https://10.0.0.1",
            "mine",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        let mut allowed = Allowed::default();
        allowed.add(Address::parse("https://mine.vault.stack.example").unwrap());
        let (_, resource) = vault("https://mine.vault.stack.example/", &allowed).unwrap();
        assert_eq!(resource, "https://vault.stack.example");
    }
}
