//! Tokens of the issuers that the operator trusts (`--authentication-config`), and whom they stand for.
//!
//! What a token says decides nothing before a key of its issuer has been found to have signed it: it is asked for keys where it names
//! one that is not known, and that is bounded by `publisher.rs`. How many tokens are verified at once is bounded here, since that
//! takes a processor. A request that is refused learns no reason; the log has it, and never the token.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::TokenHash;
use roadstead_model::{Digest, chain};
use roadstead_oidc::{Configuration, Keys, Refusal, Token, TokenError, TrustedIssuer, User};
use roadstead_outbound::{Client, ClientError, Guard, Host, Policy, Purpose, Rule, Target};
use tokio::sync::Semaphore;
use url::Url;

use crate::context::Context;
use crate::identity::Identity;
use crate::identity::tokens::{MOST_REFUSED, Memory, REMEMBERED, Room};
use crate::publisher::{Archive, NoKeys, Publisher, Site};
use crate::{HubError, Outbound};

/// Keys are asked for again when they are older.
const FRESH: SignedDuration = SignedDuration::from_mins(5);
/// Keys serve for so long while their issuer does not answer.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Tokens that are remembered. Fewer than of the hub's own: a user of theirs may have a thousand groups, some 60 KiB.
const MOST: usize = 1_000;
/// Tokens that are verified at once, and those that wait for it.
const AT_ONCE: usize = 2;
const WAITING: usize = 1000;

/// Issuers that are trusted, and what is known of their tokens for a moment.
pub(crate) struct Issuers {
    configuration: Arc<Configuration>,
    /// Where each publishes its keys, in the order of the configuration.
    publishers: Vec<Arc<Publisher>>,
    known: Memory<Identity>,
    refused: Memory<()>,
    room: Room,
    told: Mutex<Told>,
}

impl Issuers {
    pub(crate) fn new(context: &Context) -> Self {
        let configuration = Arc::clone(&context.options.authentication);
        let places = Arc::new(Semaphore::new(configuration.issuers().len().max(1)));
        let publisher = |issuer: &TrustedIssuer| {
            let site = Site {
                issuer: issuer.url().to_owned(),
                discovery_url: issuer.discovery_url(),
                client: client(issuer, &context.options.outbound).map_err(|error| chain(&error)),
                plain_http: false,
                is_told: true,
                places: Arc::clone(&places),
            };
            let archive = Archive { store: context.store.clone(), site: site_of(issuer) };
            Publisher::new(site, &context.clock, KEPT, Some(archive))
        };
        Self {
            publishers: configuration.issuers().iter().map(publisher).collect(),
            configuration,
            known: Memory::new(MOST),
            refused: Memory::new(MOST_REFUSED),
            room: Room::new(AT_ONCE, WAITING),
            told: Mutex::default(),
        }
    }

    /// Asks the issuers for their keys whose keys are not fresh. Does not wait for them.
    pub(crate) fn refresh(&self) {
        self.publishers.iter().for_each(|publisher| publisher.refresh(FRESH));
    }

    /// How one of them is asked, by its URL; none where it is not trusted.
    pub(super) fn publisher(&self, issuer: &str) -> Option<&Arc<Publisher>> {
        self.publishers.get(self.configuration.issuer(issuer)?)
    }

    /// Whether two names are of one issuer that is trusted.
    pub(super) fn are_one(&self, one: &str, other: &str) -> bool {
        let place = self.configuration.issuer(one);
        place.is_some() && place == self.configuration.issuer(other)
    }

    /// The only authorities that may vouch for the servers of one of them, as PEM.
    pub(super) fn authority(&self, issuer: &str) -> Option<&str> {
        self.configuration.issuers().get(self.configuration.issuer(issuer)?)?.certificate_authority()
    }

    /// Where one of them says what it is, where that is another place than the usual one.
    pub(super) fn other_discovery(&self, issuer: &str) -> Option<&str> {
        self.configuration.issuers().get(self.configuration.issuer(issuer)?)?.other_discovery_url()
    }

    /// Whether a text may be a token of one of them: the hub's own tokens have another form.
    pub(crate) fn may_know(&self, text: &str) -> bool {
        !self.publishers.is_empty() && Token::is_like(text)
    }

    /// Whom a token stands for; none where it is refused.
    ///
    /// # Errors
    /// [`HubError::TooMany`] where as many wait as may.
    pub(crate) async fn identity(&self, text: &str, now: Timestamp) -> Result<Option<Identity>, HubError> {
        let hash = TokenHash::of(text);
        if let Some(found) = self.known.get(&hash, now) {
            return Ok(Some(found));
        }
        if self.refused.get(&hash, now).is_some() {
            return Ok(None);
        }
        let user = match self.user(text, now).await {
            Ok(user) => user,
            Err(Unknown::Busy(error)) => return Err(error),
            Err(Unknown::Refused { issuer, why }) => {
                self.tell(now, &issuer, &why);
                self.refused.put(hash, (), now + REMEMBERED, now);
                return Ok(None);
            }
        };
        let end = Timestamp::from_second(user.expires).unwrap_or(Timestamp::MAX);
        let identity = Identity::of_issuer(user);
        self.known.put(hash, identity.clone(), end.min(now + REMEMBERED), now);
        Ok(Some(identity))
    }

    async fn user(&self, text: &str, now: Timestamp) -> Result<User, Unknown> {
        let refused = |why: &TokenError| Unknown::refused("", &Refusal::Token(*why));
        let token = Token::parse(text).map_err(|error| refused(&error))?;
        let place = self.configuration.issuer(token.issuer()).ok_or_else(|| refused(&TokenError::Issuer))?;
        let (Some(issuer), Some(publisher)) =
            (self.configuration.issuers().get(place), self.publishers.get(place))
        else {
            return Err(refused(&TokenError::Issuer));
        };
        let no_keys = |error: NoKeys| Unknown::of_no_keys(issuer.url(), error);
        let keys = publisher.keys(token.key()).await.map_err(no_keys)?;
        let mut found = self.verified(issuer, &token, &keys, now).await?;
        // An issuer may have put another key in the place of one without giving it another name.
        if let Err(Refusal::Token(TokenError::Signature)) = &found
            && let Some(others) = publisher.others(&keys).await.map_err(no_keys)?
        {
            found = self.verified(issuer, &token, &others, now).await?;
        }
        let user = found.map_err(|why| Unknown::refused(issuer.url(), &why))?;
        if user.reserved_groups > 0 {
            let why = format!("{} of its groups begin with system:, and are left out", user.reserved_groups);
            self.tell(now, issuer.url(), &why);
        }
        Ok(user)
    }

    async fn verified(
        &self,
        issuer: &TrustedIssuer,
        token: &Token<'_>,
        keys: &Keys,
        now: Timestamp,
    ) -> Result<Result<User, Refusal>, Unknown> {
        let _turn = self.room.enter().await.map_err(Unknown::Busy)?;
        Ok(issuer.user(token, keys, now.as_second()))
    }

    /// Says why a token, or a part of it, is not taken. Anybody can send tokens: of many in a minute only some are told.
    fn tell(&self, now: Timestamp, issuer: &str, why: &str) {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).tell(now);
        if let Some(untold) = told {
            tracing::info!(
                issuer,
                why,
                untold,
                "a token of an OpenID Connect issuer, or a part of it, was not accepted"
            );
        }
    }
}

/// Why a token stands for nobody.
enum Unknown {
    Refused { issuer: String, why: String },
    Busy(HubError),
}

impl Unknown {
    fn refused(issuer: &str, why: &Refusal) -> Self {
        Self::Refused { issuer: issuer.to_owned(), why: chain(why) }
    }

    fn of_no_keys(issuer: &str, error: NoKeys) -> Self {
        match error {
            NoKeys::Failed(why) => {
                let why = format!("the issuer's keys are not known: {why}");
                Self::Refused { issuer: issuer.to_owned(), why }
            }
            NoKeys::Busy => Self::Busy(HubError::TooMany(
                "Too many requests, please try again later: many tokens wait for the keys of their issuer"
                    .to_owned(),
            )),
        }
    }
}

/// How much was told within a minute.
#[derive(Default)]
pub(super) struct Told {
    since: Timestamp,
    lines: u32,
    untold: u64,
}

impl Told {
    const MOST: u32 = 10;
    const PERIOD: SignedDuration = SignedDuration::from_mins(1);

    /// Whether one more is told, and how many before it were not.
    pub(super) fn tell(&mut self, now: Timestamp) -> Option<u64> {
        let age = now.duration_since(self.since);
        if age.is_negative() || age >= Self::PERIOD {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= Self::MOST {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// Of an issuer, where it is asked, and who may vouch for it: what is stored of one is of no other, and of none that the operator has
/// changed.
fn site_of(issuer: &TrustedIssuer) -> Digest {
    let authority = issuer.certificate_authority().unwrap_or_default();
    Digest::of([issuer.url(), &issuer.discovery_url(), authority].join("\n").as_bytes())
}

/// What an issuer is asked with. Its own address was chosen by the operator, so no other flag is needed for it; whatever else it names
/// is checked like every address that somebody else chose.
fn client(issuer: &TrustedIssuer, outbound: &Outbound) -> Result<Client, ClientError> {
    let mut policy = Policy::clone(&outbound.policy);
    if let Some(rule) = rule_for(&issuer.discovery_url()) {
        policy.allow(rule);
    }
    let guard = Guard::new(Arc::new(policy), Purpose::Oidc).with_proxies(Arc::clone(&outbound.proxies));
    match issuer.certificate_authority() {
        Some(pem) => Client::trusting_only(guard, pem.as_bytes()),
        None => Client::new(guard, None),
    }
}

/// Allows the very host and port of a URL.
fn rule_for(url: &str) -> Option<Rule> {
    let url = Url::parse(url).ok()?;
    let target = match Host::parse(url.host_str()?.trim_start_matches('[').trim_end_matches(']'))? {
        Host::Ip(address) => Target::Network(address.into()),
        Host::Name(name) => Target::Name(name),
    };
    Some(Rule { purpose: Some(Purpose::Oidc), target, port: url.port_or_known_default() })
}

impl Outbound {
    /// Checks that the certificate authorities of these issuers can be used.
    ///
    /// # Errors
    /// What is wrong with one of them, and of which issuer it is.
    pub fn check_authorities(&self, configuration: &Configuration) -> Result<(), String> {
        for (index, issuer) in configuration.issuers().iter().enumerate() {
            client(issuer, self)
                .map_err(|error| format!("jwt[{index}].issuer.certificateAuthority: {}", chain(&error)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_refusals_some_are_told_and_the_others_counted() {
        let (mut told, now) = (Told::default(), Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1));
        for _ in 0..Told::MOST {
            assert_eq!(told.tell(now), Some(0));
        }
        assert_eq!((told.tell(now), told.tell(now)), (None, None));
        assert_eq!(told.tell(now + Told::PERIOD), Some(2));
        assert_eq!(told.tell(now), Some(0), "also where the clock was set back");
    }

    #[test]
    fn the_address_of_an_issuer_is_allowed_and_none_beside_it() {
        for (url, entry) in [
            ("https://10.1.2.3/dex", "oidc=10.1.2.3:443"),
            ("https://login.corp:8443/x", "oidc=login.corp:8443"),
            ("https://[fd00::1]:5556", "oidc=[fd00::1]:5556"),
        ] {
            assert_eq!(rule_for(url), entry.parse().ok(), "{url}");
        }
    }
}
