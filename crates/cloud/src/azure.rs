//! Tokens of Azure.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, TokenServices, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, PER_KEY, Request};
use crate::credentials::{AzureCredential, AzureProof};
use crate::error::ServiceError;
use crate::token;
use roadstead_outbound::Secret;
use roadstead_signing::azure_assertion;

/// The audience of tokens of other issuers that Entra accepts.
const FEDERATED: &str = "api://AzureADTokenExchange";
const AUTHORITY: &str = "https://login.microsoftonline.com";
const METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
const METADATA_PATIENCE: Duration = Duration::from_secs(3);

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

/// A token for a resource, such as `https://storage.azure.com`.
///
/// # Errors
/// If no token is given out.
pub async fn access_token(
    credential: &AzureCredential,
    resource: &str,
    tokens: &Cache<Secret>,
    services: &TokenServices,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    if let Some(token) = tokens.get(resource) {
        return Ok(token);
    }
    let (request, most) = match credential {
        AzureCredential::Application { tenant, client_id, proof, authority } => {
            // What an operator says is for tokens of this hub's: whoever has others says where they go.
            let own = matches!(proof, AzureProof::Federated(_)).then_some(services.azure_authority.as_ref());
            let authority = authority.as_ref().or(own.flatten());
            (application(tenant, client_id, proof, authority, resource).await?, PER_KEY)
        }
        AzureCredential::Managed { client_id, endpoint } => {
            (managed(client_id.as_deref(), endpoint.as_ref(), resource)?, METADATA_PATIENCE)
        }
        AzureCredential::Token(token) => return Ok(token.clone()),
    };
    let reply = calls.shortened(most).send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(token::refused(&request, &reply));
    }
    let token: Token = reply.json()?;
    let lasts = token.lasts();
    tokens.put(resource.to_owned(), token.access_token.clone(), lasts);
    Ok(token.access_token)
}

/// Who gives out tokens for a resource: Azure's national clouds are apart.
fn authority_of(resource: &str) -> &'static str {
    let resource = resource.trim_end_matches('/');
    let ends = |ends: &[&str]| ends.iter().any(|end| resource.ends_with(end));
    if ends(&[".azure.cn", ".chinacloudapi.cn"]) {
        "https://login.chinacloudapi.cn"
    } else if ends(&[".usgovcloudapi.net", ".azure.us"]) {
        "https://login.microsoftonline.us"
    } else {
        AUTHORITY
    }
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
        None => fixed(&format!("{}{path}", authority_of(resource)))?,
    };
    protected(&url)?;
    let (secret, assertion) = match proof {
        AzureProof::Secret(secret) => (Some(secret), None),
        AzureProof::Certificate { pem, send_chain } => {
            let now = Timestamp::now().as_second();
            let signed = azure_assertion(pem, *send_chain, client_id, url.as_str(), now);
            let unusable = |why| format!("the client certificate is unusable: {why}");
            (None, Some(signed.map_err(|why| ServiceError::Credential(unusable(why)))?))
        }
        AzureProof::Federated(source) => (None, Some(token::read(source, FEDERATED).await?)),
    };
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").append_pair("client_id", client_id);
    form.append_pair("scope", &format!("{resource}/.default"));
    if let Some(secret) = secret {
        form.append_pair("client_secret", secret.expose());
    }
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
    fn national_clouds_have_authorities_of_their_own() {
        assert_eq!(authority_of("https://vault.azure.net"), AUTHORITY);
        assert_eq!(authority_of("https://management.azure.com"), AUTHORITY);
        assert_eq!(authority_of("https://management.chinacloudapi.cn"), "https://login.chinacloudapi.cn");
        assert_eq!(authority_of("https://vault.usgovcloudapi.net"), "https://login.microsoftonline.us");
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
