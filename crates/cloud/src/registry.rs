//! Passwords of registries, in exchange for credentials of their clouds.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::Method;
use jiff::Timestamp;
use roadstead_outbound::Secret;
use roadstead_signing::{AwsKeys, Scope};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::error::ServiceError;
use crate::identity::Login;
use crate::sign;

/// As whom one logs in to a registry of Azure with a token.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// What is asked of one of AWS's two services of registries.
pub(crate) struct Api {
    target: &'static str,
    service: &'static str,
}

/// Registries of accounts.
pub(crate) const PRIVATE: Api =
    Api { target: "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", service: "ecr" };
/// The public gallery.
pub(crate) const PUBLIC: Api =
    Api { target: "SpencerFrontendService.GetAuthorizationToken", service: "ecr-public" };

#[derive(Deserialize)]
struct Token {
    #[serde(rename = "authorizationToken")]
    token: Secret,
    #[serde(rename = "expiresAt")]
    expires: Option<f64>,
}

/// A list of the one, of registries of accounts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Data {
    One(Token),
    Many(Vec<Token>),
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "authorizationData")]
    data: Data,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "__type")]
    kind: String,
}

/// The name of an error, which may have a namespace before it.
fn reason(reply: &Reply) -> Option<String> {
    let failure: Failure = reply.json().ok()?;
    failure.kind.rsplit('#').next().map(str::to_owned)
}

fn is_throttled(reply: &Reply) -> bool {
    let names = ["ThrottlingException", "Throttling", "TooManyRequestsException", "ServerException"];
    !reply.is_ok() && reason(reply).is_some_and(|name| names.contains(&name.as_str()))
}

/// The password of all registries of AWS that these keys may use in a region.
pub(crate) async fn ecr(
    api: &Address,
    of: &Api,
    keys: &AwsKeys,
    region: &str,
    kept: &Cache<Secret>,
    calls: &Calls<'_>,
) -> Result<Login, ServiceError> {
    let name = format!("{} {region} {api}", of.service);
    let password = match kept.get(&name) {
        Some(password) => password,
        None => {
            let request = Request::new(Method::POST, api.join("/")?)
                .with_body("application/x-amz-json-1.1", Zeroizing::new(b"{}".to_vec()))
                .with_header("x-amz-target", of.target)?;
            let scope = Scope { region, service: of.service };
            let request = sign::aws(request, keys, &scope, Timestamp::now())?;
            let reply = calls.send(&request, is_throttled).await?;
            if !reply.is_ok() {
                return Err(reply.refused(&request, reason(&reply).as_deref()));
            }
            let malformed = || ServiceError::Malformed(reply.host.clone());
            let token = match reply.json::<Answer>()?.data {
                Data::One(token) => token,
                Data::Many(tokens) => tokens.into_iter().next().ok_or_else(malformed)?,
            };
            let pair = STANDARD.decode(token.token.expose()).map(Zeroizing::new).map_err(|_| malformed())?;
            let pair = std::str::from_utf8(&pair).map_err(|_| malformed())?;
            let password = pair.strip_prefix("AWS:").ok_or_else(malformed)?;
            let password = Secret::new(password.to_owned());
            let now = Timestamp::now().as_second() as f64;
            let left = token.expires.map(|expires| Duration::try_from_secs_f64(expires - now));
            kept.put(name, password.clone(), left.map_or(UNSAID, Result::unwrap_or_default));
            password
        }
    };
    Ok(Login { username: "AWS".to_owned(), password })
}

/// A registry's own token, in exchange for one of Azure's.
pub(crate) async fn acr(
    registry: &Url,
    token: &Secret,
    kept: &Cache<Secret>,
    calls: &Calls<'_>,
) -> Result<Login, ServiceError> {
    #[derive(Deserialize)]
    struct Answer {
        refresh_token: Secret,
    }
    #[derive(Deserialize)]
    struct Failures {
        errors: Vec<Failure>,
    }
    #[derive(Deserialize)]
    struct Failure {
        code: String,
    }
    let mut url = registry.clone();
    url.set_path("/oauth2/exchange");
    url.set_query(None);
    protected(&url)?;
    let name = format!("acr {url}");
    let password = match kept.get(&name) {
        Some(password) => password,
        None => {
            let service = crate::call::host(&url);
            let form = Serializer::new(String::new())
                .append_pair("grant_type", "access_token")
                .append_pair("service", &service)
                // Exposed to be sent.
                .append_pair("access_token", token.expose())
                .finish();
            let body = Zeroizing::new(form.into_bytes());
            let request =
                Request::new(Method::POST, url).with_body("application/x-www-form-urlencoded", body);
            let reply = calls.send(&request, |_| false).await?;
            if !reply.is_ok() {
                let failures: Option<Failures> = reply.json().ok();
                let code = failures.and_then(|failures| failures.errors.into_iter().next());
                return Err(reply.refused(&request, code.map(|failure| failure.code).as_deref()));
            }
            let password = reply.json::<Answer>()?.refresh_token;
            kept.put(name, password.clone(), left(&password));
            password
        }
    };
    Ok(Login { username: NOBODY.to_owned(), password })
}

/// How long a token lasts, by its own words, which only this decides.
fn left(token: &Secret) -> Duration {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = token.expose().split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims = claims.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
    let left = claims.map(|claims| claims.exp.saturating_sub(Timestamp::now().as_second()));
    left.map_or(UNSAID, |left| Duration::from_secs(u64::try_from(left).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_token_of_a_registry_lasts() {
        let token = |claims: &str| Secret::new(format!("x.{}.y", URL_SAFE_NO_PAD.encode(claims)));
        assert!(left(&token(r#"{"exp":4102444800}"#)).as_secs() > 3600);
        assert!(left(&token(r#"{"exp":5}"#)).is_zero());
        for odd in ["", "x", "{}"] {
            assert_eq!(left(&token(odd)), UNSAID);
        }
        assert_eq!(left(&Secret::new("opaque".to_owned())), UNSAID);
    }
}
