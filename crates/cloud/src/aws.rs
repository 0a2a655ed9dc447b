//! Credentials of AWS: access keys, and sessions that are given out in exchange for other credentials.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::address::{Address, fixed, protected};
use crate::cache::{Cache, UNSAID};
use crate::call::{Calls, Reply, Request};
use crate::credentials::{AwsCredential, TokenSource};
use crate::error::ServiceError;
use crate::sign;
use crate::token;
use roadstead_outbound::Secret;
use roadstead_signing::{AwsKeys, Scope};

/// For whom tokens of others are that STS takes.
const AUDIENCE: &str = "sts.amazonaws.com";
const FORM: &str = "application/x-www-form-urlencoded";
const VERSION: &str = "2011-06-15";
/// What sessions of assumed roles are called.
const SESSION: &str = "sops@roadstead";
const METADATA: &str = "http://169.254.169.254";
/// A machine that is not of AWS has nobody at that address.
const METADATA_PATIENCE: Duration = Duration::from_secs(2);

/// Where a service of AWS is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'p> {
    /// The region.
    pub region: &'p str,
    /// What its services' names end with; none of partitions that are somewhere else.
    pub suffix: Option<&'static str>,
}

impl Place<'_> {
    /// Where a service is, unless somebody says where.
    ///
    /// # Errors
    /// That cannot be known, or credentials would go there in the clear.
    pub fn endpoint(&self, service: &str, named: Option<&Address>) -> Result<Address, ServiceError> {
        let address = match (named, self.suffix) {
            (Some(address), _) => address.clone(),
            (None, Some(suffix)) => Address::parse(&format!("https://{service}.{}.{suffix}", self.region))
                .map_err(|error| ServiceError::Key(error.to_string()))?,
            (None, None) => {
                return Err(ServiceError::Key(
                    "its partition is not one of aws, aws-cn and aws-us-gov: name its services in AWS_ENDPOINT_URL_KMS and \
                     AWS_ENDPOINT_URL_STS"
                        .to_owned(),
                ));
            }
        };
        protected(address.url())?;
        Ok(address)
    }
}

/// Credentials that were given out.
pub type Sessions = Cache<AwsKeys>;

/// As machines and containers get them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: Secret,
    token: Option<Secret>,
    expiration: Option<String>,
}

/// How identities are had for a place.
pub struct Identities<'i> {
    /// The place.
    pub place: Place<'i>,
    /// Where STS is, if not there.
    pub sts: Option<&'i Address>,
    /// What was given out before.
    pub sessions: &'i Sessions,
    /// The requests that are made for it.
    pub calls: &'i Calls<'i>,
}

impl std::fmt::Debug for Identities<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Identities").field(&self.place).finish()
    }
}

impl Identities<'_> {
    /// The identity that the credential is.
    ///
    /// # Errors
    /// If no credentials are given out.
    pub async fn own(&self, credential: &AwsCredential) -> Result<AwsKeys, ServiceError> {
        if let AwsCredential::Static { access_key_id, secret_access_key, session_token } = credential {
            let (id, secret) = (access_key_id.clone(), secret_access_key.clone());
            return Ok(AwsKeys { id, secret, session: session_token.clone() });
        }
        let sts = self.sts.map(|sts| format!(" {sts}")).unwrap_or_default();
        let name = format!("own {}{sts}", self.place.region);
        if let Some(keys) = self.sessions.get(&name) {
            return Ok(keys);
        }
        let (keys, lasts) = match credential {
            AwsCredential::WebIdentity { role_arn, token, session_name } => {
                self.web_identity(role_arn, token, session_name).await?
            }
            AwsCredential::Container { url, authorization } => {
                self.container(url, authorization.as_ref()).await?
            }
            AwsCredential::Instance { endpoint } => self.instance(endpoint.as_ref()).await?,
            AwsCredential::Static { .. } => self.instance(None).await?,
        };
        self.sessions.put(name, keys.clone(), lasts);
        Ok(keys)
    }

    /// The identity of a role that a file names.
    ///
    /// # Errors
    /// If no credentials are given out.
    pub async fn assume(&self, role: &str, keys: &AwsKeys) -> Result<AwsKeys, ServiceError> {
        if !is_role(role) {
            return Err(ServiceError::Key("its role is not the ARN of an IAM role".to_owned()));
        }
        let name = format!("role {} {role}", self.place.region);
        if let Some(keys) = self.sessions.get(&name) {
            return Ok(keys);
        }
        let form = form("AssumeRole", &[("RoleArn", role), ("RoleSessionName", SESSION)]);
        let scope = Scope { region: self.place.region, service: "sts" };
        let request = sign::aws(self.sts_request(form)?, keys, &scope, Timestamp::now())?;
        let (keys, lasts) = self.ask_sts(&request).await?;
        self.sessions.put(name, keys.clone(), lasts);
        Ok(keys)
    }

    async fn web_identity(
        &self,
        role: &str,
        source: &TokenSource,
        session: &str,
    ) -> Result<(AwsKeys, Duration), ServiceError> {
        let token = token::read(source, AUDIENCE).await?;
        let values = [("RoleArn", role), ("RoleSessionName", session), ("WebIdentityToken", token.expose())];
        self.ask_sts(&self.sts_request(form("AssumeRoleWithWebIdentity", &values))?).await
    }

    fn sts_request(&self, form: String) -> Result<Request, ServiceError> {
        let body = Zeroizing::new(form.into_bytes());
        Ok(Request::new(Method::POST, self.place.endpoint("sts", self.sts)?.join("/")?).with_body(FORM, body))
    }

    async fn ask_sts(&self, request: &Request) -> Result<(AwsKeys, Duration), ServiceError> {
        let throttled = |reply: &Reply| {
            !reply.is_ok() && text(reply, "Code").is_some_and(|code| code.as_str() == "Throttling")
        };
        let reply = self.calls.send(request, throttled).await?;
        if !reply.is_ok() {
            return Err(reply.refused(request, text(&reply, "Code").as_ref().map(|code| code.as_str())));
        }
        let part = |name: &str| text(&reply, name).ok_or_else(|| ServiceError::Malformed(reply.host.clone()));
        let secret = |name: &str| part(name).map(|text| Secret::new(text.as_str().to_owned()));
        let keys = AwsKeys {
            id: part("AccessKeyId")?.as_str().to_owned(),
            secret: secret("SecretAccessKey")?,
            session: Some(secret("SessionToken")?),
        };
        let expires = text(&reply, "Expiration");
        Ok((keys, lasts(expires.as_ref().map(|text| text.as_str()))))
    }

    async fn container(
        &self,
        url: &Address,
        authorization: Option<&TokenSource>,
    ) -> Result<(AwsKeys, Duration), ServiceError> {
        let mut request = Request::new(Method::GET, url.url().clone());
        request.metadata = true;
        if let Some(source) = authorization {
            request = request.with_secret("authorization", token::read(source, "").await?.expose())?;
        }
        given(&self.calls.send(&request, |_| false).await?)
    }

    /// By the second version of the machine's metadata service: a token, the role's name, its keys.
    async fn instance(&self, endpoint: Option<&Address>) -> Result<(AwsKeys, Duration), ServiceError> {
        const ROLES: &str = "meta-data/iam/security-credentials/";
        let calls = self.calls.shortened(METADATA_PATIENCE);
        let url = |path: &str| match endpoint {
            Some(endpoint) => endpoint.join(&format!("/latest/{path}")),
            None => fixed(&format!("{METADATA}/latest/{path}")),
        };
        let mut request = Request::new(Method::PUT, url("api/token")?)
            .with_header("x-aws-ec2-metadata-token-ttl-seconds", "300")?;
        request.metadata = true;
        let token = calls.send(&request, |_| false).await?;
        let token = Secret::new(plain(&token)?);
        let ask = |path: String| -> Result<Request, ServiceError> {
            let mut request = Request::new(Method::GET, url(&path)?)
                .with_secret("x-aws-ec2-metadata-token", token.expose())?;
            request.metadata = true;
            Ok(request)
        };
        let role = plain(&calls.send(&ask(ROLES.to_owned())?, |_| false).await?)?;
        let role = role.lines().next().unwrap_or_default().trim();
        given(&calls.send(&ask(format!("{ROLES}{role}"))?, |_| false).await?)
    }
}

/// A form for STS.
fn form(action: &str, values: &[(&str, &str)]) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("Action", action).append_pair("Version", VERSION).extend_pairs(values);
    form.finish()
}

fn plain(reply: &Reply) -> Result<String, ServiceError> {
    if !reply.is_ok() {
        return Err(reply.unexplained());
    }
    std::str::from_utf8(&reply.body)
        .map(str::to_owned)
        .map_err(|_| ServiceError::Malformed(reply.host.clone()))
}

fn given(reply: &Reply) -> Result<(AwsKeys, Duration), ServiceError> {
    if !reply.is_ok() {
        return Err(reply.unexplained());
    }
    let given: Given = reply.json()?;
    let lasts = lasts(given.expiration.as_deref());
    Ok((AwsKeys { id: given.access_key_id, secret: given.secret_access_key, session: given.token }, lasts))
}

fn lasts(expires: Option<&str>) -> Duration {
    let until = expires.and_then(|text| text.parse::<Timestamp>().ok());
    until.map_or(UNSAID, |until| Duration::try_from(until - Timestamp::now()).unwrap_or_default())
}

/// The text of the first element of this name in an answer of STS. Its values need no decoding.
fn text(reply: &Reply, name: &str) -> Option<Zeroizing<String>> {
    let xml = std::str::from_utf8(&reply.body).ok()?;
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    (!text.contains(['<', '&'])).then(|| Zeroizing::new(text.trim().to_owned()))
}

fn is_role(arn: &str) -> bool {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let fine = |c: char| c.is_ascii_alphanumeric() || "+=,.@_/-".contains(c);
    matches!(parts.as_slice(), ["arn", partition, "iam", "", account, role]
        if partition.starts_with("aws")
            && account.chars().all(|c| c.is_ascii_digit())
            && role.strip_prefix("role/").is_some_and(|name| !name.is_empty())
            && arn.len() <= 2048
            && role.chars().all(fine))
}

#[cfg(test)]
mod tests {
    use super::{is_role, lasts};

    #[test]
    fn roles() {
        assert!(is_role("arn:aws:iam::123456789012:role/path/sops"));
        for bad in ["", "sops", "arn:aws:iam::1:user/x", "arn:aws:iam::1:role/", "arn:aws:iam::1:role/a&b"] {
            assert!(!is_role(bad), "{bad}");
        }
    }

    #[test]
    fn what_has_expired_lasts_no_time() {
        assert!(lasts(Some("2000-01-01T00:00:00Z")).is_zero());
        assert!(lasts(Some("2099-01-01T00:00:00Z")).as_secs() > 3600);
    }
}
