//! Providers whose service does not speak HTTP: NATS.

use std::time::Duration;

use roadstead_api::{ProviderSpec, ProviderType};
use roadstead_hub_store::Stored;
use roadstead_model::{Reason, chain};
use roadstead_nats::{Login, Message, Publisher, Servers, Subject};
use roadstead_notify::{Publication, Target};
use roadstead_outbound::{ClientIdentity, Guard, Secret, Tls};

use crate::HubError;
use crate::notify::way::Way;
use crate::notify::{Fault, Notifier};
use crate::sources::SourceSecret;

/// The longest credentials, in bytes.
const MAX_CREDENTIALS: usize = 64 << 10;

/// A NATS server to publish to.
pub(super) struct BusWay {
    publisher: Publisher,
    /// Whether what the Secret holds is shown to the server.
    shows: bool,
}

/// How the servers of a Provider are reached; none for types that are sent requests.
pub(super) fn bus(
    spec: &ProviderSpec,
    (target, login): (&Target, Option<&Stored>),
    guard: Guard,
    (ca, identity): (Option<&[u8]>, Option<&ClientIdentity>),
    (timeout, may_be_clear): (Duration, bool),
) -> Result<Option<BusWay>, Fault> {
    if spec.type_ != ProviderType::Nats {
        return Ok(None);
    }
    let wrong = |why: String| (Reason::ValidationFailed, why);
    // What is missing is told with all that may be missing of other types.
    let address = target.address.expose().trim();
    if address.is_empty() || target.channel.is_empty() {
        return Ok(None);
    }
    let servers = Servers::parse(address).map_err(|error| wrong(error.to_string()))?;
    let subject = Subject::parse(&target.channel).map_err(|error| wrong(format!("spec.channel: {error}")))?;
    let login = match login {
        Some(stored) => {
            login_of(stored, target).map_err(|why| wrong(SourceSecret::of(stored).wrong(&why)))?
        }
        None => Login::Nobody,
    };
    let tls = Tls::new(ca, identity).map_err(|error| wrong(chain(&error)))?;
    let wants_tls = ca.is_some() || identity.is_some();
    let count = u32::try_from(servers.urls().count()).unwrap_or(1).max(1);
    // So that the last of them has its turn.
    let patience = timeout / count;
    let shows = login.is_somebody();
    let guard = guard.trusting(ca).with_patience(patience);
    let publisher = Publisher { guard, tls, wants_tls, may_be_clear, servers, login, subject, patience };
    Ok(Some(BusWay { publisher, shows }))
}

/// As whom a Secret has one log in. What is more goes before what is less, as in Flux, which knows no token.
fn login_of(stored: &Stored, target: &Target) -> Result<Login, String> {
    let secret = SourceSecret::of(stored);
    let text = |key: &str| match secret.text(key)? {
        Some(text) if text.len() > MAX_CREDENTIALS => {
            Err(format!("key {key} is longer than {MAX_CREDENTIALS} bytes"))
        }
        text => Ok(text.filter(|text| !text.trim().is_empty()).map(Secret::new)),
    };
    if let Some(file) = text("creds")? {
        return Login::of_file(file.expose()).map_err(|why| format!("key creds: {why}"));
    }
    if let Some(seed) = text("nkey")? {
        return Login::of_seed(seed.expose()).map_err(|error| format!("key nkey: {error}"));
    }
    if let Some(password) = &target.password {
        return Ok(Login::Password { username: target.username.clone(), password: password.clone() });
    }
    let token = target.token.as_ref().filter(|token| !token.is_empty());
    Ok(token.map_or(Login::Nobody, |token| Login::Token(token.clone())))
}

impl BusWay {
    /// The servers, where the Secret's own login is shown to them.
    pub(super) fn shown_to(&self) -> impl Iterator<Item = String> {
        self.publisher.servers.urls().filter(|_| self.shows)
    }

    /// All servers.
    pub(super) fn servers(&self) -> impl Iterator<Item = String> {
        self.publisher.servers.urls()
    }
}

/// What came of a publication.
pub(super) enum Published {
    /// The server looked at it.
    Taken,
    /// It is tried again.
    Again(String),
    /// It would not be taken the next time either.
    Never(String),
}

impl Notifier {
    /// Whether a Provider may show its servers what its Secrets hold.
    pub(super) async fn may_publish(&self, way: &Way, bus: &BusWay) -> Result<Result<(), Fault>, HubError> {
        let logins = bus.shown_to().map(|url| (way.login.as_ref().filter(|_| !way.is_own_address), url));
        let identities = bus.servers().map(|url| (way.identity.as_ref(), url));
        let all: Vec<_> = logins.chain(identities).collect();
        for (secret, url) in all {
            let Some(secret) = secret else { continue };
            if let Err(why) = self.may_send(way, secret, &url).await? {
                return Ok(Err((Reason::AccessDenied, why)));
            }
        }
        Ok(Ok(()))
    }

    /// Publishes an event.
    pub(super) async fn publish(&self, way: &Way, publication: &Publication) -> Result<Published, HubError> {
        let Some(bus) = &way.bus else {
            return Ok(Published::Again("the servers of the Provider are not known".to_owned()));
        };
        if let Err((_, why)) = self.may_publish(way, bus).await? {
            return Ok(Published::Again(why));
        }
        let message = Message { headers: &publication.headers, body: &publication.body };
        Ok(match bus.publisher.publish(message).await {
            Ok(()) => Published::Taken,
            Err(error) if error.is_of_message() => Published::Never(error.to_string()),
            Err(error) => Published::Again(error.to_string()),
        })
    }
}
