//! Where events are sent: a Provider, with what its Secret says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use roadstead_model::Secret;
use url::Url;
use zeroize::Zeroizing;

/// Where events are sent.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// `spec.address`, or what the Secret has in its place.
    pub address: Secret,
    /// `spec.channel`.
    pub channel: String,
    /// `spec.username`, or what the Secret has in its place.
    pub username: String,
    /// The Secret's `token`.
    pub token: Option<Secret>,
    /// The Secret's `password`, which belongs to the username.
    pub password: Option<Secret>,
    /// Whether the token is one of a GitHub App, which is there once something is sent.
    pub is_app: bool,
    /// Whether the token is one that a cloud gives the Provider's identity, which is there once something is sent.
    pub is_identity: bool,
    /// What the App is called in names of users.
    pub app_slug: Option<String>,
    /// The Secret's `headers`.
    pub headers: Vec<(String, Secret)>,
    /// The Provider's uid.
    pub uid: String,
    /// The Provider's namespace.
    pub namespace: String,
    /// The Alert's uid.
    pub alert_uid: String,
    /// The Alert's `NAMESPACE/NAME`.
    pub alert: String,
    /// What `spec.commitStatusExpr` comes to for the event.
    pub status_id: Option<String>,
    /// What the service calls the first message of the incident that the event tells of.
    pub thread: Option<String>,
    /// When it is sent.
    pub now: Timestamp,
    /// What is the same each time that it is sent, and of nothing else that is.
    pub delivery: String,
    /// Whether it may have been told already.
    pub is_repeat: bool,
}

/// Why a Provider cannot be sent an event. Nothing of a Secret stands in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// Something is missing.
    #[error("{0}")]
    Missing(&'static str),
    /// The address is not one of this type.
    #[error("the address is not {0}")]
    Address(&'static str),
    /// The event is not one that this type can tell.
    #[error("{0}")]
    Event(&'static str),
    /// The service's answer says too little to go on.
    #[error("{0}")]
    Answer(&'static str),
}

impl Target {
    /// The address as a URL.
    pub(crate) fn url(&self) -> Result<Url, Unsendable> {
        const WANTED: &str = "a URL that begins with http:// or https:// and names a host";
        let given = self.address.expose().trim();
        if given.is_empty() {
            return Err(Unsendable::Missing("no address is set, neither in the spec nor in its Secret"));
        }
        // Exposed to be parsed; the error does not show it.
        let url = Url::parse(given).map_err(|_| Unsendable::Address(WANTED))?;
        let is_http =
            matches!(url.scheme(), "http" | "https") && url.host_str().is_some_and(|host| !host.is_empty());
        if is_http { Ok(url) } else { Err(Unsendable::Address(WANTED)) }
    }

    /// Scheme and host of the address, with this path.
    pub(crate) fn at(&self, path: &str) -> Result<Url, Unsendable> {
        let mut url = self.url()?;
        url.set_path(path);
        url.set_query(None);
        url.set_fragment(None);
        Ok(url)
    }

    /// The token, where there has to be one.
    pub(crate) fn needed_token(&self) -> Result<&Secret, Unsendable> {
        let token = self.token.as_ref().filter(|token| !token.is_empty());
        token.ok_or(Unsendable::Missing("the Secret of spec.secretRef must have a `token`"))
    }

    /// The token that is shown as a bearer's, where there has to be one: of an identity, which has none before something is sent, an empty one.
    pub(crate) fn bearer_token(&self) -> Result<&str, Unsendable> {
        if self.is_identity {
            return Ok(self.token.as_ref().map_or("", Secret::expose));
        }
        Ok(self.needed_token()?.expose())
    }

    /// The channel, where there has to be one.
    pub(crate) fn needed_channel(&self) -> Result<&str, Unsendable> {
        let channel = Some(self.channel.as_str()).filter(|channel| !channel.is_empty());
        channel.ok_or(Unsendable::Missing("spec.channel is needed by this type"))
    }

    /// The `Authorization` of the token, or of username and password.
    pub(crate) fn authorization(&self) -> Option<Secret> {
        if let Some(token) = self.token.as_ref().filter(|token| !token.is_empty()) {
            return Some(format!("Bearer {}", token.expose()).into());
        }
        let password = self.password.as_ref()?;
        let pair = Zeroizing::new(format!("{}:{}", self.username, password.expose()));
        Some(format!("Basic {}", STANDARD.encode(pair.as_bytes())).into())
    }
}
