//! Credentials that are changed for others before a bucket is asked: MinIO's security token service, and the token services of
//! Google and Azure. What those answer is small, and read here: tokens are not for workers. What is said to Google and Azure is
//! `roadstead_cloud`'s; that it goes by the bucket's own way out, wherever the Secret says, is what is different here.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use roadstead_cloud::azure::AUTHORITY;
use roadstead_cloud::exchange::{Application, FORM, Shows, Token, form, google_form};
use roadstead_cloud::{CloudIdentity, StoreLogin};
use roadstead_outbound::{Client, Secret, secret_header};
use roadstead_s3::xml;
use roadstead_signing::{AwsKeys, GoogleAccount};
use url::Url;
use zeroize::Zeroizing;

use super::error::{BucketError, Step, Why};
use super::known::Given;
use super::place::Place;
use super::request::{AzureProof, BucketLogin, BucketRequest, GoogleKey, LdapLogin};
use super::sign::Signer;
use super::wire::{AGENT, client, unreachable};
use crate::attempt::{Stop, shown_url};

/// Bytes of a token service's answer.
const MOST_TOKEN: usize = 64 << 10;
/// How long what was given is used where its service does not say, and at most.
const SECONDS: u64 = 300;
const MOST_SECONDS: u64 = 3_600;
const STS_VERSION: &str = "2011-06-15";
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";
const AZURE_SCOPE: &str = "https://storage.azure.com/.default";

/// What asks for credentials needs of the attempt.
pub(super) struct Login<'a> {
    pub(super) place: &'a Place,
    pub(super) request: &'a BucketRequest,
    /// The client for the bucket's own server, and for token services that have no certificates of their own.
    pub(super) client: &'a Client,
    pub(super) stop: &'a Stop,
}

impl Login<'_> {
    /// Who the requests are signed by.
    pub(super) async fn signer(&self) -> Result<Signer, BucketError> {
        let unusable = |why: &str| Why::Unusable(why.to_owned()).at(Step::Attempt);
        Ok(match &self.request.login {
            BucketLogin::Anonymous => Signer::Nobody,
            BucketLogin::AccessKey { id, secret } => {
                Signer::Keys(AwsKeys { id: id.clone(), secret: secret.clone(), session: None })
            }
            BucketLogin::AzureAccountKey(key) => {
                let key = STANDARD.decode(key.expose().trim());
                Signer::AzureKey(Zeroizing::new(key.map_err(|_| unusable("the account key is not base64"))?))
            }
            BucketLogin::AzureSas(text) => {
                let text = text.expose().trim().trim_start_matches('?');
                let pairs = url::form_urlencoded::parse(text.as_bytes());
                Signer::AzureSas(
                    pairs
                        .map(|(name, value)| (name.into_owned(), Zeroizing::new(value.into_owned())))
                        .collect(),
                )
            }
            BucketLogin::Cloud { identity, sts } => self.of_cloud(identity, sts.as_deref()).await?,
            login => {
                let known = &self.request.known_bucket;
                let given = match known.given(Instant::now()) {
                    Some(given) => given,
                    None => {
                        let (given, seconds) = self.given(login).await?;
                        // Not up to its last moment.
                        let until = Instant::now() + Duration::from_secs(seconds.min(MOST_SECONDS)) * 4 / 5;
                        known.keep(Some((given.clone(), until)));
                        given
                    }
                };
                match given {
                    Given::Keys(keys) => Signer::Keys(keys),
                    Given::Bearer(header) => Signer::Bearer(header),
                }
            }
        })
    }

    /// Forgets what was given out, where that is what was refused. Says whether it was.
    pub(super) fn forget(&self, why: &Why) -> bool {
        let known = &self.request.known_bucket;
        match self.request.cloud() {
            Some(identity) if why.is_about_a_token() => identity.forget(),
            None if matches!(why, Why::Denied { .. }) && known.given(Instant::now()).is_some() => {
                known.keep(None);
            }
            _ => return false,
        }
        true
    }

    /// What a cloud gives out to an identity, which keeps it.
    async fn of_cloud(&self, identity: &CloudIdentity, sts: Option<&str>) -> Result<Signer, BucketError> {
        self.stop.enter("asking for credentials");
        let Place { server, region, .. } = self.place;
        let said = self.request.region.as_deref().filter(|region| !region.is_empty());
        let region = said.or_else(|| self.place.is_amazon().then_some(region.as_str()));
        let given = identity.store(server, region, sts, self.stop.deadline().into()).await;
        match given.map_err(|error| Why::Cloud(error).at(Step::Attempt))? {
            StoreLogin::Keys(keys) => Ok(Signer::Keys(keys)),
            StoreLogin::Bearer(token) => {
                let text = Zeroizing::new(format!("Bearer {}", token.expose()));
                let unusable =
                    |_| Why::Unusable("the token has characters that no header may have".to_owned());
                Ok(Signer::Bearer(secret_header(&text).map_err(|error| unusable(error).at(Step::Attempt))?))
            }
        }
    }

    async fn given(&self, login: &BucketLogin) -> Result<(Given, u64), BucketError> {
        self.stop.enter("asking for credentials");
        match login {
            BucketLogin::Ldap(ldap) => self.ldap(ldap).await,
            BucketLogin::GoogleAccount(key) => self.google(key).await,
            BucketLogin::AzureApplication { tenant, client_id, proof, authority } => {
                self.azure(tenant, client_id, proof, authority.as_deref()).await
            }
            // Those are used as they are.
            _ => Err(Why::Internal("nothing to ask for".to_owned()).at(Step::Attempt)),
        }
    }

    async fn ldap(&self, ldap: &LdapLogin) -> Result<(Given, u64), BucketError> {
        let url = self.service(&ldap.endpoint)?;
        let step = || Step::Token(shown_url(url.as_str()));
        let own = client(self.request, ldap.ca.as_deref(), ldap.identity.as_ref(), 1);
        let own = own.map_err(|why| why.at(step()))?;
        self.stop.hide_behind(own.veil());
        let form = form(&[
            ("Action", "AssumeRoleWithLDAPIdentity"),
            ("Version", STS_VERSION),
            ("LDAPUsername", &ldap.username),
            // Exposed to be sent.
            ("LDAPPassword", ldap.password.expose()),
        ]);
        let answer = self.ask(&own, &url, form).await?;
        let malformed = || Why::Corrupt("its answer holds no credentials".to_owned()).at(step());
        let mut fields: [Option<String>; 4] = Default::default();
        let read = xml::read(answer.as_slice(), &mut |path, text, _| {
            let path = path.rsplit_once("/Credentials/").map_or("", |(_, field)| field);
            let names = ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"];
            if let Some(at) = names.iter().position(|name| *name == path) {
                fields[at] = Some(text.to_owned());
            }
            Ok(())
        });
        read.map_err(|_| malformed())?;
        let [Some(id), Some(secret), session, until] = fields else { return Err(malformed()) };
        let until = until.and_then(|text| text.parse::<Timestamp>().ok());
        let left = until.map(|until| until.as_second().saturating_sub(Timestamp::now().as_second()));
        let seconds = left.map_or(SECONDS, |left| u64::try_from(left).unwrap_or(0));
        let session = session.filter(|text| !text.is_empty()).map(Secret::new);
        Ok((Given::Keys(AwsKeys { id, secret: Secret::new(secret), session }), seconds))
    }

    async fn google(&self, key: &GoogleKey) -> Result<(Given, u64), BucketError> {
        let url = self.service(&key.token_uri)?;
        let account = GoogleAccount { email: &key.email, key_id: &key.key_id, private_key: &key.private_key };
        let form = google_form(&account, GOOGLE_SCOPE, &key.token_uri);
        let form =
            form.map_err(|why| Why::Unusable(format!("the service account's key: {why}")).at(Step::Attempt))?;
        self.token(&url, form).await
    }

    async fn azure(
        &self,
        tenant: &str,
        client_id: &str,
        proof: &AzureProof,
        authority: Option<&str>,
    ) -> Result<(Given, u64), BucketError> {
        let shows = match proof {
            AzureProof::Secret(secret) => Shows::Secret(secret),
            AzureProof::Certificate { pem, send_chain } => {
                Shows::Certificate { pem, send_chain: *send_chain }
            }
        };
        let application = Application { tenant, client_id, shows };
        let unusable = |why: String| Why::Unusable(why).at(Step::Attempt);
        let path = application.path().ok_or_else(|| unusable("tenantId is not valid".to_owned()))?;
        let authority = authority.unwrap_or(AUTHORITY).trim_end_matches('/');
        let url = self.service(&format!("{authority}{path}"))?;
        let form = application.form(AZURE_SCOPE, &url);
        self.token(&url, form.map_err(|why| unusable(format!("clientCertificate: {why}")))?).await
    }

    /// The URL of a token service, if credentials may be sent there.
    fn service(&self, text: &str) -> Result<Url, BucketError> {
        let shown = shown_url(text);
        let refused = |why: &str| {
            Err(Why::Unusable(format!("the token service `{shown}` is refused: {why}")).at(Step::Attempt))
        };
        let Ok(url) = Url::parse(text) else { return refused("it is not a URL") };
        if !url.has_host() || !url.username().is_empty() || url.password().is_some() {
            return refused("want https://HOST without credentials");
        }
        match url.scheme() {
            "https" => Ok(url),
            "http" if self.request.plain_http_credentials => Ok(url),
            "http" => Err(Why::PlainCredentials { url: shown }.at(Step::Attempt)),
            _ => refused("want https"),
        }
    }

    async fn token(&self, url: &Url, form: Zeroizing<Vec<u8>>) -> Result<(Given, u64), BucketError> {
        let answer = self.ask(self.client, url, form).await?;
        let malformed =
            || Why::Corrupt("its answer is not a token".to_owned()).at(Step::Token(shown_url(url.as_str())));
        let token = Token::read(&answer).ok_or_else(malformed)?;
        let text = Zeroizing::new(format!("Bearer {}", token.access_token.expose()));
        let header = secret_header(&text).map_err(|_| malformed())?;
        Ok((Given::Bearer(header), token.lasts().map_or(SECONDS, |lasts| lasts.as_secs())))
    }

    /// Posts a form to a token service. Credentials are in it, so no redirect is followed.
    async fn ask(
        &self,
        client: &Client,
        url: &Url,
        form: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<Vec<u8>>, BucketError> {
        let shown = shown_url(url.as_str());
        let step = || Step::Token(shown.clone());
        let request = Request::builder()
            .method(Method::POST)
            .uri(url.as_str())
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .header(CONTENT_TYPE, HeaderValue::from_static(FORM))
            .body(Full::new(Bytes::from_owner(form)));
        let request = request.map_err(|error| Why::Internal(error.to_string()).at(step()))?;
        let response = client.send(request).await.map_err(|error| unreachable(&shown, &error).at(step()))?;
        match response.status() {
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let status = response.status().as_u16();
                return Err(Why::Denied { status, code: None, had_credentials: true }.at(step()));
            }
            status if status.is_redirection() => {
                let why = "credentials go to no other place than the one that was named".to_owned();
                return Err(Why::RedirectRefused { to: "another URL".to_owned(), why }.at(step()));
            }
            status if !status.is_success() => {
                return Err(Why::Status { status: status.as_u16(), code: None }.at(step()));
            }
            _ => {}
        }
        let answer = Limited::new(response.into_body(), MOST_TOKEN).collect().await;
        let answer =
            answer.map_err(|_| Why::Corrupt("it sends too much, or breaks off".to_owned()).at(step()))?;
        Ok(Zeroizing::new(answer.to_bytes().to_vec()))
    }
}
