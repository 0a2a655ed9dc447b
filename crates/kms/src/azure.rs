//! Azure Key Vault.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jiff::Timestamp;
use roadstead_outbound::Host;
use serde::Deserialize;
use serde_json::json;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, PER_KEY, Request};
use crate::credentials::{AzureCredential, AzureProof};
use crate::error::ServiceError;
use crate::gcp::{bearer, no_token};
use crate::token;
use roadstead_outbound::Secret;
use roadstead_signing::azure_assertion;

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
/// For whom tokens of others are that Entra takes.
const FEDERATED: &str = "api://AzureADTokenExchange";
const AUTHORITY: &str = "https://login.microsoftonline.com";
const METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
const METADATA_PATIENCE: Duration = Duration::from_secs(3);
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

/// Some say how long it lasts as a text, and some when it expires.
#[derive(Deserialize)]
struct Token {
    access_token: Secret,
    expires_in: Option<serde_json::Value>,
    expires_on: Option<serde_json::Value>,
}

impl Token {
    fn lasts(&self) -> Duration {
        let number = |value: &Option<serde_json::Value>| match value {
            Some(serde_json::Value::Number(number)) => number.as_i64(),
            Some(serde_json::Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let left = number(&self.expires_in)
            .or_else(|| number(&self.expires_on).map(|on| on.saturating_sub(Timestamp::now().as_second())));
        left.map_or(UNSAID, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
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
    let token = access_token(credential, &resource, tokens, calls).await?;
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

async fn access_token(
    credential: &AzureCredential,
    resource: &str,
    tokens: &Cache<Secret>,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    if let Some(token) = tokens.get(resource) {
        return Ok(token);
    }
    let (request, most) = match credential {
        AzureCredential::Application { tenant, client_id, proof, authority } => {
            (application(tenant, client_id, proof, authority.as_ref(), resource).await?, PER_KEY)
        }
        AzureCredential::Managed { client_id, endpoint } => {
            (managed(client_id.as_deref(), endpoint.as_ref(), resource)?, METADATA_PATIENCE)
        }
        AzureCredential::Token(token) => return Ok(token.clone()),
    };
    let reply = calls.shortened(most).send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(no_token(&request, &reply));
    }
    let token: Token = reply.json()?;
    let lasts = token.lasts();
    tokens.put(resource.to_owned(), token.access_token.clone(), lasts);
    Ok(token.access_token)
}

async fn application(
    tenant: &str,
    client_id: &str,
    proof: &AzureProof,
    authority: Option<&Address>,
    resource: &str,
) -> Result<Request, ServiceError> {
    if tenant.is_empty()
        || !tenant.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
        || tenant.contains("..")
    {
        return Err(ServiceError::Credential("the tenant is not valid".to_owned()));
    }
    let path = format!("/{tenant}/oauth2/v2.0/token");
    let url = match authority {
        Some(authority) => authority.join(&path)?,
        None => fixed(&format!("{AUTHORITY}{path}"))?,
    };
    protected(&url)?;
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").append_pair("client_id", client_id);
    form.append_pair("scope", &format!("{resource}/.default"));
    let assertion = match proof {
        AzureProof::Secret(secret) => {
            form.append_pair("client_secret", secret.expose());
            None
        }
        AzureProof::Certificate { pem, send_chain } => {
            let now = Timestamp::now().as_second();
            let signed = azure_assertion(pem, *send_chain, client_id, url.as_str(), now);
            let unusable = |why| format!("the client certificate is unusable: {why}");
            Some(signed.map_err(|why| ServiceError::Credential(unusable(why)))?)
        }
        AzureProof::Federated(source) => Some(token::read(source, FEDERATED).await?),
    };
    if let Some(assertion) = assertion {
        form.append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        form.append_pair("client_assertion", assertion.expose());
    }
    let body = Zeroizing::new(form.finish().into_bytes());
    Ok(Request::new(Method::POST, url).with_body("application/x-www-form-urlencoded", body))
}

fn managed(
    client_id: Option<&str>,
    endpoint: Option<&(Address, Secret)>,
    resource: &str,
) -> Result<Request, ServiceError> {
    let (mut url, version) = match endpoint {
        Some((address, _)) => (address.url().clone(), "2019-08-01"),
        None => (fixed(METADATA)?, "2018-02-01"),
    };
    url.query_pairs_mut().append_pair("api-version", version).append_pair("resource", resource);
    if let Some(id) = client_id {
        url.query_pairs_mut().append_pair("client_id", id);
    }
    let mut request = Request::new(Method::GET, url);
    request.metadata = true;
    match endpoint {
        Some((_, header)) => request.with_secret("x-identity-header", header.expose()),
        None => request.with_header("metadata", "true"),
    }
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

    #[test]
    fn how_long_a_token_lasts() {
        let lasts = |json: &str| serde_json::from_str::<Token>(json).unwrap().lasts().as_secs();
        assert_eq!(lasts(r#"{"access_token":"x","expires_in":3599}"#), 3599);
        assert_eq!(lasts(r#"{"access_token":"x","expires_in":"3599"}"#), 3599);
        assert!(lasts(r#"{"access_token":"x","expires_on":"4102444800"}"#) > 3600);
        assert_eq!(lasts(r#"{"access_token":"x","expires_on":"5"}"#), 0);
        assert_eq!(lasts(r#"{"access_token":"x"}"#), UNSAID.as_secs());
    }
}
