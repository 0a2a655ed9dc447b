//! Tokens of Google.

use http::Method;
use serde::Deserialize;
use serde_json::json;
use url::Url;
use zeroize::Zeroizing;

use crate::address::{Address, TokenServices, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::credentials::{GcpCredential, TokenSource};
use crate::error::ServiceError;
use crate::exchange::{self, FORM, Token, google_form};
use crate::token;
use roadstead_outbound::Secret;
use roadstead_signing::{GoogleAccount, TokenKey};

/// The scope for all that an identity may do.
pub const PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Who gives out tokens, where a key does not say.
const TOKENS: &str = "https://oauth2.googleapis.com/token";
const METADATA: &str = "http://metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

impl GcpCredential {
    /// Reads the JSON that Google has for credentials.
    ///
    /// # Errors
    /// What is wrong with it, in words that hold nothing of what is in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Entry {
            #[serde(rename = "type")]
            kind: Option<String>,
            client_email: Option<String>,
            private_key_id: Option<String>,
            private_key: Option<Secret>,
            token_uri: Option<String>,
            client_id: Option<String>,
            client_secret: Option<Secret>,
            refresh_token: Option<Secret>,
        }
        let text_of = |text: Option<String>, field: &str| {
            text.filter(|text| !text.is_empty()).ok_or_else(|| format!("it has no {field}"))
        };
        let secret_of = |secret: Option<Secret>, field: &str| {
            secret.filter(|secret| !secret.is_empty()).ok_or_else(|| format!("it has no {field}"))
        };
        let entry: Entry =
            serde_json::from_str(text.trim()).map_err(|_| "it is not the JSON of Google's credentials")?;
        let token_uri = Address::parse(entry.token_uri.as_deref().unwrap_or(TOKENS))
            .map_err(|_| "its token_uri is not https://HOST/PATH".to_owned())?;
        match entry.kind.as_deref() {
            Some("service_account") => {
                let private_key = secret_of(entry.private_key, "private_key")?;
                TokenKey::from_pem(private_key.expose())
                    .map_err(|why| format!("its private_key is unusable: {why}"))?;
                Ok(Self::ServiceAccount {
                    email: text_of(entry.client_email, "client_email")?,
                    key_id: entry.private_key_id.unwrap_or_default(),
                    private_key,
                    token_uri,
                })
            }
            Some("authorized_user") => Ok(Self::Refresh {
                client_id: text_of(entry.client_id, "client_id")?,
                client_secret: secret_of(entry.client_secret, "client_secret")?,
                refresh_token: secret_of(entry.refresh_token, "refresh_token")?,
                token_uri,
            }),
            Some(
                kind @ ("external_account"
                | "external_account_authorized_user"
                | "impersonated_service_account"),
            ) => {
                Err(format!("credentials of the type {kind} are not supported: use a service account's key"))
            }
            _ => Err("it has no type that is known: use a service account's key".to_owned()),
        }
    }
}

/// The value of a header `Authorization` with a token.
#[must_use]
pub fn bearer(token: &Secret) -> Zeroizing<String> {
    Zeroizing::new(format!("Bearer {}", token.expose()))
}

/// A token for this scope.
///
/// # Errors
/// If no token is given out.
pub async fn access_token(
    credential: &GcpCredential,
    scope: &str,
    tokens: &Cache<Secret>,
    services: &TokenServices,
    calls: &Calls<'_>,
) -> Result<Secret, ServiceError> {
    if let Some(token) = tokens.get(scope) {
        return Ok(token);
    }
    let request = match credential {
        GcpCredential::Token(token) => return Ok(token.clone()),
        GcpCredential::Federated { audience, token, .. } => exchanged(audience, token, services).await?,
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
            protected(token_uri.url())?;
            let unusable =
                |why| ServiceError::Credential(format!("the service account's key is unusable: {why}"));
            let account = GoogleAccount { email, key_id, private_key };
            let body = google_form(&account, scope, &token_uri.to_string()).map_err(unusable)?;
            Request::new(Method::POST, token_uri.url().clone()).with_body(FORM, body)
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
        return Err(token::refused(&request, &reply));
    }
    let token: Token = reply.json()?;
    let lasts = token.lasts().unwrap_or(UNSAID);
    let token = match credential {
        GcpCredential::Federated { service_account: Some(account), .. } => {
            act_as(account, scope, &token.access_token, (services, calls)).await?
        }
        _ => token.access_token,
    };
    tokens.put(scope.to_owned(), token.clone(), lasts);
    Ok(token)
}

fn form(url: &Url, fields: &[(&str, &str)]) -> Result<Request, ServiceError> {
    protected(url)?;
    Ok(Request::new(Method::POST, url.clone()).with_body(FORM, exchange::form(fields)))
}

async fn exchanged(
    audience: &str,
    token: &TokenSource,
    services: &TokenServices,
) -> Result<Request, ServiceError> {
    let url = match &services.gcp_sts {
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
    scope: &str,
    token: &Secret,
    (services, calls): (&TokenServices, &Calls<'_>),
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
    let url = match &services.gcp_iam {
        Some(address) => address.join(&path)?,
        None => fixed(&format!("https://iamcredentials.googleapis.com{path}"))?,
    };
    protected(&url)?;
    let body = Zeroizing::new(json!({ "scope": [scope] }).to_string().into_bytes());
    let request = Request::new(Method::POST, url)
        .with_body("application/json", body)
        .with_secret("authorization", &bearer(token))?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        return Err(refused(&request, &reply));
    }
    reply.json::<Given>().map(|given| given.access_token)
}

/// The error for an answer of one of Google's APIs that is not a success. All have the same form.
#[must_use]
pub fn refused(request: &Request, reply: &Reply) -> ServiceError {
    #[derive(Deserialize)]
    struct Failure {
        error: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        status: String,
    }
    let failure: Option<Failure> = reply.json().ok();
    reply.refused(request, failure.map(|failure| failure.error.status).as_deref())
}
