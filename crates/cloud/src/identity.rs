//! Identities at a cloud, and the credentials that registries, object stores and Git servers of that cloud accept from them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use roadstead_outbound::Secret;
use roadstead_signing::{AwsKeys, AwsRequest, Scope};
use tokio::time::Instant;
use url::Url;
use zeroize::Zeroizing;

use crate::address::{Address, TokenServices};
use crate::aws::{Identities, Place, Sessions};
use crate::cache::Cache;
use crate::call::{Budget, Calls, Network};
use crate::credentials::{AwsCredential, AzureCredential, GcpCredential};
use crate::error::ServiceError;
use crate::hosts::{self, Bus, Cloud, Git, OwnHosts, Registry, Store};
use crate::{azure, gcp, registry};

/// The region if nothing else names one.
const REGION: &str = "us-east-1";
/// Of whom what was given out is kept, and how much of each kind of each. With [`ANSWER_BYTES`] that is 75 MiB, if clouds gave out tokens of
/// that size; theirs have some KiB.
const MOST: usize = 100;
const MOST_OF_EACH: usize = 16;
/// Bytes of an answer with a token.
pub const ANSWER_BYTES: usize = 16 << 10;
/// Azure DevOps' application id at Entra.
const DEV_OPS: &str = "499b84ac-1321-427f-aa17-267ca6975798";
const PUB_SUB: &str = "https://www.googleapis.com/auth/pubsub";
const READ_ONLY: &str = "https://www.googleapis.com/auth/devstorage.read_only";

/// How somebody shows who they are.
#[derive(Clone)]
pub enum CloudCredential {
    /// To AWS.
    Aws(AwsCredential),
    /// To Azure.
    Azure(AzureCredential),
    /// To Google.
    Gcp(GcpCredential),
}

impl CloudCredential {
    /// To which cloud.
    #[must_use]
    pub fn cloud(&self) -> Cloud {
        match self {
            Self::Aws(_) => Cloud::Aws,
            Self::Azure(_) => Cloud::Azure,
            Self::Gcp(_) => Cloud::Gcp,
        }
    }
}

impl fmt::Debug for CloudCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudCredential({})", self.cloud())
    }
}

/// What was given out to one.
struct Given {
    sessions: Sessions,
    tokens: Cache<Secret>,
    registries: Cache<Secret>,
    /// Those who want the same wait for the first.
    turn: tokio::sync::Mutex<()>,
}

impl Default for Given {
    fn default() -> Self {
        let (tokens, registries) = (Cache::of(MOST_OF_EACH), Cache::of(MOST_OF_EACH));
        Self { sessions: Cache::of(MOST_OF_EACH), tokens, registries, turn: tokio::sync::Mutex::default() }
    }
}

/// What was given out, by who it was given out to: as many of them as there may be.
#[derive(Default)]
pub struct Kept(Mutex<HashMap<String, Arc<Given>>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

impl Kept {
    fn of(&self, holder: &str) -> Arc<Given> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST && !all.contains_key(holder) {
            // It costs one more exchange for each.
            all.clear();
        }
        Arc::clone(all.entry(holder.to_owned()).or_default())
    }
}

/// A name and a password.
#[derive(Debug, Clone)]
pub struct Login {
    /// The name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// Credentials for an object store.
#[derive(Debug, Clone)]
pub enum StoreLogin {
    /// Requests that are signed by these.
    Keys(AwsKeys),
    /// A token.
    Bearer(Secret),
}

/// Credentials for a Git server.
#[derive(Debug, Clone)]
pub enum GitLogin {
    /// A name and a password.
    Basic(Login),
    /// A token.
    Bearer(Secret),
}

/// An identity at a cloud.
#[derive(Clone)]
pub struct CloudIdentity(Arc<Inner>);

struct Inner {
    credential: CloudCredential,
    services: TokenServices,
    own: OwnHosts,
    network: Arc<Network>,
    given: Arc<Given>,
}

impl fmt::Debug for CloudIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudIdentity({})", self.cloud())
    }
}

impl CloudIdentity {
    /// By this credential, over this network. `holder` names all that the credential is made of: what is given out to another of the same
    /// name is taken for this one's.
    #[must_use]
    pub fn new(
        credential: CloudCredential,
        holder: &str,
        kept: &Kept,
        (services, own): (&TokenServices, &OwnHosts),
        network: &Arc<Network>,
    ) -> Self {
        let given = kept.of(&format!("{} {holder}", credential.cloud()));
        let (services, own, network) = (services.clone(), own.clone(), Arc::clone(network));
        Self(Arc::new(Inner { credential, services, own, network, given }))
    }

    /// To which cloud.
    #[must_use]
    pub fn cloud(&self) -> Cloud {
        self.0.credential.cloud()
    }

    /// Forgets what was given out: some of it was refused.
    pub fn forget(&self) {
        let Given { sessions, tokens, registries, .. } = &*self.0.given;
        sessions.clear();
        tokens.clear();
        registries.clear();
    }

    /// Credentials for the registry at this URL. `until` bounds how long it takes to get them.
    ///
    /// # Errors
    /// If the host is not a registry of the cloud, or no credentials are given out.
    pub async fn registry(&self, url: &Url, until: Instant) -> Result<Login, ServiceError> {
        let found = Registry::of(self.cloud(), url, &self.0.own);
        let found = found.ok_or_else(|| self.wrong(url, Registry::wanted(self.cloud())))?;
        let _turn = self.0.given.turn.lock().await;
        let budget = Budget::new(Some(until));
        let calls = Calls::new(&self.0.network, &budget)?;
        let kept = &self.0.given.registries;
        match (&self.0.credential, found) {
            (CloudCredential::Aws(credential), Registry::Ecr { region, suffix, is_fips }) => {
                let region = self.region(region.as_deref())?;
                let keys = self.keys(credential, (&region, suffix), None, &calls).await?;
                let service = if is_fips { "ecr-fips" } else { "api.ecr" };
                let place = Place { region: &region, suffix: Some(suffix) };
                let api = place.endpoint(service, self.0.services.aws_ecr.as_ref())?;
                registry::ecr(&api, &registry::PRIVATE, &keys, &region, kept, &calls).await
            }
            (CloudCredential::Aws(credential), Registry::EcrPublic) => {
                let keys = self.keys(credential, (REGION, "amazonaws.com"), None, &calls).await?;
                let place = Place { region: REGION, suffix: Some("amazonaws.com") };
                let api = place.endpoint("api.ecr-public", self.0.services.aws_ecr.as_ref())?;
                registry::ecr(&api, &registry::PUBLIC, &keys, REGION, kept, &calls).await
            }
            (CloudCredential::Azure(credential), Registry::Acr { resource }) => {
                let token = self.azure(credential, resource, &calls).await?;
                registry::acr(url, &token, kept, &calls).await
            }
            (CloudCredential::Gcp(credential), Registry::Google) => {
                let password = self.google(credential, gcp::PLATFORM, &calls).await?;
                Ok(Login { username: "oauth2accesstoken".to_owned(), password })
            }
            _ => Err(self.wrong(url, Registry::wanted(self.cloud()))),
        }
    }

    /// Credentials for the object store at this URL. `sts` is the endpoint of AWS STS, if not the region's.
    ///
    /// # Errors
    /// If the host is not an object store of the cloud, or no credentials are given out.
    pub async fn store(
        &self,
        url: &Url,
        region: Option<&str>,
        sts: Option<&str>,
        until: Instant,
    ) -> Result<StoreLogin, ServiceError> {
        let wrong = || self.wrong(url, Store::wanted(self.cloud()));
        let found = Store::of(self.cloud(), url, &self.0.own).ok_or_else(wrong)?;
        let sts = sts.map(|sts| self.sts(sts)).transpose()?;
        let _turn = self.0.given.turn.lock().await;
        let budget = Budget::new(Some(until));
        let calls = Calls::new(&self.0.network, &budget)?;
        match (&self.0.credential, found) {
            (CloudCredential::Aws(credential), Store::S3 { suffix }) => {
                let region = self.region(region)?;
                let keys = self.keys(credential, (&region, suffix), sts.as_ref(), &calls).await?;
                Ok(StoreLogin::Keys(keys))
            }
            (CloudCredential::Azure(credential), Store::Blob { resource }) => {
                self.azure(credential, &resource, &calls).await.map(StoreLogin::Bearer)
            }
            (CloudCredential::Gcp(credential), Store::Google) => {
                self.google(credential, READ_ONLY, &calls).await.map(StoreLogin::Bearer)
            }
            _ => Err(wrong()),
        }
    }

    /// Credentials for the Git server at this URL.
    ///
    /// # Errors
    /// If the host is not a Git server of the cloud, or no credentials are given out.
    pub async fn git(&self, url: &Url, until: Instant) -> Result<GitLogin, ServiceError> {
        let wrong = || self.wrong(url, Git::wanted(self.cloud()));
        let found = Git::of(self.cloud(), url, &self.0.own).ok_or_else(wrong)?;
        let _turn = self.0.given.turn.lock().await;
        let budget = Budget::new(Some(until));
        let calls = Calls::new(&self.0.network, &budget)?;
        match (&self.0.credential, found) {
            (CloudCredential::Aws(credential), Git::CodeCommit { region }) => {
                let region = self.region(region.as_deref())?;
                let end = if url.host_str().is_some_and(|host| host.ends_with(".cn")) { ".cn" } else { "" };
                let suffix = if end.is_empty() { "amazonaws.com" } else { "amazonaws.com.cn" };
                let keys = self.keys(credential, (&region, suffix), None, &calls).await?;
                Ok(GitLogin::Basic(code_commit(&keys, url, &region, Timestamp::now())))
            }
            (CloudCredential::Azure(credential), Git::DevOps) => {
                self.azure(credential, DEV_OPS, &calls).await.map(GitLogin::Bearer)
            }
            _ => Err(wrong()),
        }
    }

    /// The token that what takes messages at this URL wants to see.
    ///
    /// # Errors
    /// The host takes no messages of the cloud, or nothing was given out.
    pub async fn bus(&self, url: &Url, until: Instant) -> Result<Secret, ServiceError> {
        let wrong = || self.wrong(url, Bus::wanted(self.cloud()));
        let found = Bus::of(self.cloud(), url, &self.0.own).ok_or_else(wrong)?;
        let _turn = self.0.given.turn.lock().await;
        let budget = Budget::new(Some(until));
        let calls = Calls::new(&self.0.network, &budget)?;
        match (&self.0.credential, found) {
            (CloudCredential::Azure(credential), Bus::EventHubs { resource }) => {
                self.azure(credential, &resource, &calls).await
            }
            (CloudCredential::Gcp(credential), Bus::PubSub) => self.google(credential, PUB_SUB, &calls).await,
            _ => Err(wrong()),
        }
    }

    fn wrong(&self, url: &Url, what: &'static str) -> ServiceError {
        let host: String = crate::call::host(url).chars().take(253).collect();
        ServiceError::NotOfCloud { host, what, cloud: self.cloud().as_str() }
    }

    fn region(&self, said: Option<&str>) -> Result<String, ServiceError> {
        let region = said.or(self.0.services.aws_region.as_deref()).unwrap_or(REGION);
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if region.is_empty() || region.len() > 32 || !region.bytes().all(fine) {
            return Err(ServiceError::Credential("the region is not one of AWS".to_owned()));
        }
        Ok(region.to_owned())
    }

    /// The STS that an object names, which has to be AWS's or the operator's.
    fn sts(&self, text: &str) -> Result<Address, ServiceError> {
        let what = "an endpoint of AWS STS (https://sts.REGION.amazonaws.com)";
        let wrong = |host: String| ServiceError::NotOfCloud { host, what, cloud: self.cloud().as_str() };
        let address = Address::parse(text).map_err(|_| wrong("the STS endpoint".to_owned()))?;
        let own = self.0.services.aws_sts.as_ref().is_some_and(|own| own.same(&address));
        if own || address.url().path() == "/" && hosts::is_sts(address.url()) {
            return Ok(address);
        }
        Err(wrong(crate::call::host(address.url())))
    }

    async fn keys(
        &self,
        credential: &AwsCredential,
        (region, suffix): (&str, &'static str),
        sts: Option<&Address>,
        calls: &Calls<'_>,
    ) -> Result<AwsKeys, ServiceError> {
        let place = Place { region, suffix: Some(suffix) };
        let sts = sts.or(self.0.services.aws_sts.as_ref());
        Identities { place, sts, sessions: &self.0.given.sessions, calls }.own(credential).await
    }

    async fn azure(
        &self,
        credential: &AzureCredential,
        resource: &str,
        calls: &Calls<'_>,
    ) -> Result<Secret, ServiceError> {
        azure::access_token(credential, resource, &self.0.given.tokens, &self.0.services, calls).await
    }

    async fn google(
        &self,
        credential: &GcpCredential,
        scope: &str,
        calls: &Calls<'_>,
    ) -> Result<Secret, ServiceError> {
        gcp::access_token(credential, scope, &self.0.given.tokens, &self.0.services, calls).await
    }
}

/// What CodeCommit takes for a name and a password: keys, and a signature of the repository's path, which is good for some minutes.
fn code_commit(keys: &AwsKeys, url: &Url, region: &str, now: Timestamp) -> Login {
    let time = now.strftime("%Y%m%dT%H%M%S").to_string();
    let host = Zeroizing::new(crate::call::host(url));
    let request = AwsRequest {
        method: "GIT",
        path: url.path(),
        query: "",
        headers: vec![("host".to_owned(), host)],
        body: "",
    };
    let signed = keys.authorization(request, Scope { region, service: "codecommit" }, &time);
    let signature = signed.rsplit_once("Signature=").map_or("", |(_, signature)| signature);
    let session = keys.session.as_ref().map(|token| format!("%{}", token.expose())).unwrap_or_default();
    Login { username: format!("{}{session}", keys.id), password: Secret::new(format!("{time}Z{signature}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = Kept::default();
        for holder in 0..3 * MOST {
            kept.of(&holder.to_string());
        }
        assert!(kept.0.lock().unwrap().len() <= MOST);
        assert!(Arc::ptr_eq(&kept.of("a"), &kept.of("a")) && !Arc::ptr_eq(&kept.of("a"), &kept.of("b")));
    }

    /// As Amazon's own helper for Git signs: the request is of the method GIT, and the time has no zone in what is signed.
    #[test]
    fn logins_of_code_commit() {
        let keys = AwsKeys {
            id: "AKIDEXAMPLE".into(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
            session: Some(Secret::new("session".into())),
        };
        let url = Url::parse("https://git-codecommit.us-east-1.amazonaws.com/v1/repos/app").unwrap();
        let login = code_commit(&keys, &url, "us-east-1", "2015-08-30T12:36:00Z".parse().unwrap());
        assert_eq!(login.username, "AKIDEXAMPLE%session");
        let password = login.password.expose();
        let signature = password.strip_prefix("20150830T123600Z").unwrap();
        assert!(signature.len() == 64 && signature.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
