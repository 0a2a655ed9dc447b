//! How a Provider is reached: what its spec and its Secrets say.

use std::time::Duration;

use roadstead_api::object::LocalObjectReference;
use roadstead_api::{KindId, ProviderSpec, ProviderType};
use roadstead_cel::Expression;
use roadstead_cloud::CloudIdentity;
use roadstead_hub_store::Stored;
use roadstead_model::{Reason, Secret, chain};
use roadstead_notify::{Request, Target};
use roadstead_outbound::{Client, ProxyServer, Purpose};
use serde_json::Value;
use url::Url;

use crate::HubError;
use crate::notify::app::{AppWay, is_app};
use crate::notify::bus::{BusWay, bus};
use crate::notify::cloud::is_identity;
use crate::notify::words::Words;
use crate::notify::{Fault, Notifier};
use crate::sources::SourceSecret;

/// How long a delivery takes at most, where a Provider does not say, and where it says more than that.
const TIMEOUT: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(60);
/// The longest address, username and proxy, in bytes.
const MAX_TEXT: usize = 2_048;
/// The longest token, and headers, in bytes.
const MAX_SECRET: usize = 64 << 10;
/// So many headers a Secret adds.
const MAX_HEADERS: usize = 32;
/// What the expression of a commit status' id knows.
const VARIABLES: [&str; 3] = ["event", "provider", "alert"];
/// Headers that are the request's own.
const RESERVED: [&str; 6] =
    ["host", "content-length", "transfer-encoding", "connection", "proxy-authorization", "content-type"];

/// How a Provider is reached.
pub(super) struct Way {
    pub(super) type_: ProviderType,
    pub(super) target: Target,
    pub(super) timeout: Duration,
    pub(super) client: Client,
    /// The Secret of `spec.secretRef`.
    pub(super) login: Option<Stored>,
    /// That of `spec.certSecretRef`, where it holds a key that is shown.
    pub(super) identity: Option<Stored>,
    /// Whether the address is the Secret's own.
    pub(super) is_own_address: bool,
    /// The GitHub App whose tokens are sent.
    pub(super) app: Option<AppWay>,
    /// Who it is at a cloud, whose tokens are sent.
    pub(super) cloud: Option<CloudIdentity>,
    /// The servers that events are published to, where they are not sent by requests.
    pub(super) bus: Option<BusWay>,
    /// What makes the id of commit statuses.
    pub(super) status_id: Option<Expression>,
    /// How the Alert words its events.
    pub(super) words: Words,
    /// The Provider.
    pub(super) provider: Stored,
    /// Of one that is no more, whether a Kustomization had made it, or taken it over.
    pub(super) was_by_git: Option<bool>,
}

impl Notifier {
    /// How a Provider is reached, or what is wrong with it.
    pub(super) async fn way(
        &self,
        provider: &Stored,
        spec: &ProviderSpec,
    ) -> Result<Result<Way, Fault>, HubError> {
        let mut found = Vec::new();
        for (field, reference) in [
            ("secretRef", &spec.secret_ref),
            ("certSecretRef", &spec.cert_secret_ref),
            ("proxySecretRef", &spec.proxy_secret_ref),
        ] {
            match self.secret(provider, field, reference.as_ref()).await? {
                Ok(secret) => found.push(secret),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        let [login, certificates, proxy] = [0, 1, 2].map(|index| found.get_mut(index).and_then(Option::take));
        let (login, certificates) = (login.as_ref(), certificates.as_ref());
        let mut way = match self.put_together(provider, spec, [login, certificates, proxy.as_ref()]) {
            Ok(way) => way,
            Err(fault) => return Ok(Err(fault)),
        };
        if way.target.is_identity && way.cloud.is_none() {
            match self.at_cloud(&way).await? {
                Ok(identity) => way.cloud = identity,
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(way))
    }

    fn put_together(
        &self,
        provider: &Stored,
        spec: &ProviderSpec,
        [login, certificates, proxy]: [Option<&Stored>; 3],
    ) -> Result<Way, Fault> {
        let wrong =
            |stored: &Stored, why: &str| (Reason::ValidationFailed, SourceSecret::of(stored).wrong(why));
        let mut target = Target {
            address: spec.address.clone().unwrap_or_default().into(),
            channel: spec.channel.clone().unwrap_or_default(),
            username: spec.username.clone().unwrap_or_default(),
            uid: provider.uid.to_string(),
            namespace: provider.namespace.clone(),
            ..Target::default()
        };
        let (mut is_own_address, mut old_proxy) = (false, spec.proxy.clone());
        if let Some(stored) = login {
            let read = read(stored, &mut target).map_err(|why| wrong(stored, &why))?;
            is_own_address = read.is_own_address;
            old_proxy = read.proxy.or(old_proxy);
        }
        let app = login.filter(|stored| is_app(spec.type_, stored, &target));
        let app = app.map(|stored| AppWay::of(stored, [certificates, proxy])).transpose();
        let app =
            app.map_err(|why| login.map_or((Reason::ValidationFailed, why.clone()), |it| wrong(it, &why)))?;
        target.is_app = app.is_some();
        target.is_identity = is_identity(spec.type_, &target);
        let cloud = match login {
            Some(stored) => {
                self.of_key(spec.type_, &mut target, stored).map_err(|why| wrong(stored, &why))?
            }
            None => None,
        };
        let mut guard = self.options.outbound.guard(Purpose::Notify);
        if let Some(stored) = proxy {
            guard = guard.through(SourceSecret::of(stored).proxy().map_err(|why| wrong(stored, &why))?);
        } else if let Some(url) = old_proxy {
            let server = Url::parse(&url).ok().and_then(|url| ProxyServer::of_url(&url));
            let why = "the proxy's URL is not that of a proxy: want http://HOST:PORT or https://HOST:PORT";
            guard = guard.through(server.ok_or((Reason::ValidationFailed, why.to_owned()))?);
        }
        let (ca, identity) = match certificates {
            Some(stored) => SourceSecret::of(stored).certificates().map_err(|why| wrong(stored, &why))?,
            None => (app.as_ref().and_then(|app| app.ca.clone()), None),
        };
        let shown = identity.is_some();
        let timeout = spec.timeout.map_or(TIMEOUT, |timeout| timeout.0).min(LONGEST);
        let bus = bus(
            spec,
            (&target, login),
            guard.clone(),
            (ca.as_deref(), identity.as_ref()),
            (timeout, self.options.outbound.plain_http_credentials),
        )?;
        let client = Client::as_someone(guard, ca.as_deref(), identity.as_ref()).map_err(|error| {
            let why = chain(&error);
            certificates.map_or((Reason::ValidationFailed, why.clone()), |stored| wrong(stored, &why))
        })?;
        let status_id =
            spec.commit_status_expr.as_deref().map(|text| Expression::parse_over(text, &VARIABLES));
        let status_id = status_id.transpose().map_err(|error| {
            (Reason::ValidationFailed, format!("spec.commitStatusExpr: {}", chain(&error)))
        })?;
        Ok(Way {
            type_: spec.type_,
            target,
            timeout,
            client,
            login: login.cloned(),
            identity: certificates.filter(|_| shown).cloned(),
            is_own_address,
            app,
            cloud,
            bus,
            status_id,
            words: Words::default(),
            provider: provider.clone(),
            was_by_git: None,
        })
    }

    async fn secret(
        &self,
        provider: &Stored,
        field: &str,
        reference: Option<&LocalObjectReference>,
    ) -> Result<Result<Option<Stored>, Fault>, HubError> {
        let Some(LocalObjectReference { name }) = reference else { return Ok(Ok(None)) };
        let found = self.store.get(KindId::Secret, &provider.namespace, name).await?;
        if found.is_none() {
            let why = format!("Secret '{}/{name}' of spec.{field} not found", provider.namespace);
            return Ok(Err((Reason::TokenNotFound, why)));
        }
        Ok(Ok(found))
    }

    /// Whether a Provider may send what its Secrets hold to where these requests go: not in the clear, and where Git wrote the Provider, only
    /// where a person has used the Secret.
    pub(super) async fn may_send_all(
        &self,
        way: &Way,
        requests: &[Request],
    ) -> Result<Result<(), Fault>, HubError> {
        for request in requests {
            // Exposed to see where it goes.
            let url = request.url.expose();
            let is_clear = !url.starts_with("https://");
            if is_clear && request.shows_credentials && !self.options.outbound.plain_http_credentials {
                let why = "what the Secret holds would go over plain HTTP, where anyone on the way can read it: give an https \
                           address; the hub does not send it without --allow-plain-http-credentials";
                return Ok(Err((Reason::AccessDenied, why.to_owned())));
            }
            let login = way.login.as_ref().filter(|_| request.shows_credentials && !way.is_own_address);
            for secret in [login, way.identity.as_ref()].into_iter().flatten() {
                if let Err(why) = self.may_send(way, secret, url).await? {
                    return Ok(Err((Reason::AccessDenied, why)));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Whether a Provider may send what this Secret holds there.
    pub(super) async fn may_send(
        &self,
        way: &Way,
        secret: &Stored,
        url: &str,
    ) -> Result<Result<(), String>, HubError> {
        match way.was_by_git {
            None => self.access.may_send(&way.provider, secret, url).await,
            Some(was) => self.access.may_send_if(was, &way.provider, secret, url).await,
        }
    }
}

/// What a Secret says besides what goes into the target.
struct Read {
    is_own_address: bool,
    proxy: Option<String>,
}

/// Reads the Secret of `spec.secretRef`. What is wrong is told by its key, and nothing of its value.
fn read(stored: &Stored, target: &mut Target) -> Result<Read, String> {
    let secret = SourceSecret::of(stored);
    let bounded = |key: &str, most: usize| match secret.text(key)? {
        Some(text) if text.len() > most => Err(format!("key {key} is longer than {most} bytes")),
        text => Ok(text),
    };
    let address = bounded("address", MAX_TEXT)?.map(|text| text.trim().to_owned());
    let is_own_address = address.is_some();
    if let Some(address) = address {
        target.address = address.into();
    }
    target.token =
        bounded("token", MAX_SECRET)?.map(|token| token.trim_end_matches(['\r', '\n']).to_owned().into());
    match (bounded("username", MAX_TEXT)?, bounded("password", MAX_SECRET)?) {
        (Some(username), Some(password)) => {
            target.username = username;
            target.password = Some(password.into());
        }
        // By itself it is the name that messages are posted under.
        (Some(username), None) => target.username = username,
        (None, Some(_)) => return Err("has a password but no username".to_owned()),
        (None, None) => {}
    }
    if let Some(headers) = bounded("headers", MAX_SECRET)? {
        target.headers = self::headers(&headers)?;
    }
    Ok(Read { is_own_address, proxy: bounded("proxy", MAX_TEXT)? })
}

fn headers(yaml: &str) -> Result<Vec<(String, Secret)>, String> {
    const MEMORY: usize = 1 << 20;
    let wrong = || "key headers is not a map of texts in YAML".to_owned();
    if yaml.trim().is_empty() {
        return Ok(Vec::new());
    }
    // The error would show some of it.
    let body =
        roadstead_body::decode_within("application/yaml", yaml.as_bytes(), MEMORY).map_err(|_| wrong())?;
    let Value::Object(map) = body.value else { return Err(wrong()) };
    if map.len() > MAX_HEADERS {
        return Err(format!("key headers has more than {MAX_HEADERS} entries"));
    }
    let mut headers = Vec::with_capacity(map.len());
    for (name, value) in map {
        let Value::String(value) = value else { return Err(wrong()) };
        let is_name = http::HeaderName::try_from(name.as_str()).is_ok();
        if !is_name || RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
            return Err("key headers has a name that no header has, or one of the request's own".to_owned());
        }
        headers.push((name, value.into()));
    }
    Ok(headers)
}
