//! Tokens of Azure.

use std::time::Duration;

use http::Method;

use crate::address::{Address, TokenServices, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, PER_KEY, Request};
use crate::credentials::{AzureCredential, AzureProof};
use crate::error::ServiceError;
use crate::exchange::{Application, FORM, Shows, Token};
use crate::token;
use roadstead_outbound::Secret;

/// The audience of tokens of other issuers that Entra accepts.
const FEDERATED: &str = "api://AzureADTokenExchange";
/// Who gives out tokens where nobody else is named.
pub const AUTHORITY: &str = "https://login.microsoftonline.com";
const METADATA: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
const METADATA_PATIENCE: Duration = Duration::from_secs(3);

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
    let lasts = token.lasts().unwrap_or(UNSAID);
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
    let assertion;
    let shows = match proof {
        AzureProof::Secret(secret) => Shows::Secret(secret),
        AzureProof::Certificate { pem, send_chain } => Shows::Certificate { pem, send_chain: *send_chain },
        AzureProof::Federated(source) => {
            assertion = token::read(source, FEDERATED).await?;
            Shows::Assertion(&assertion)
        }
    };
    let application = Application { tenant, client_id, shows };
    let path = application.path();
    let path = path.ok_or_else(|| ServiceError::Credential("the tenant is not valid".to_owned()))?;
    let url = match authority {
        Some(authority) => authority.join(&path)?,
        None => fixed(&format!("{}{path}", authority_of(resource)))?,
    };
    protected(&url)?;
    let unusable = |why| ServiceError::Credential(format!("the client certificate is unusable: {why}"));
    let body = application.form(&format!("{resource}/.default"), &url).map_err(unusable)?;
    Ok(Request::new(Method::POST, url).with_body(FORM, body))
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
}
