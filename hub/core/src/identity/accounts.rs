//! Tokens of service accounts, which the hub signs itself: taken for as long as their account is there.
//!
//! Such a token lies in no table. It is believed where one of the hub's keys signed it, by the one algorithm that there is, and where it
//! is from the hub, for it, and for now; and it stands for its account only while that is there under the uid that the token says, and
//! so is the Secret that it is bound to, the key that signed it has not been dropped, and it was not taken back. These are one question to the
//! database, which is not asked before the signature is known to be the hub's, but for keys that are not known yet, at intervals. How tokens
//! are made is in `account_tokens.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use roadstead_api::rules::{is_dns_label, is_dns_subdomain};
use roadstead_hub_store::{AccountStanding, ShownAccountToken, Store, TokenHash};
use roadstead_model::{ResourceUid, chain};
use roadstead_oidc::{Expected, Token, TokenError, check};
use serde::Deserialize;
use uuid::Uuid;

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::account_keys::{LEAD, Ring, make};
use crate::identity::issuers::Told;
use crate::identity::tokens::{MOST_REFUSED, Memory, REMEMBERED, Room};
use crate::identity::{Identity, account_user};

/// Tokens that are remembered for a moment.
const MOST: usize = 10_000;
/// Tokens that are verified at once, and those that wait for it.
const AT_ONCE: usize = 2;
const WAITING: usize = 1000;
/// Keys are read again so often at most because a token names one that is not known.
const REST: SignedDuration = SignedDuration::from_secs(5);
/// Where Kubernetes says which credential somebody used.
pub(super) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// What a token of a service account says of that, in Kubernetes' claim.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    jti: Uuid,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Named,
    /// What it is bound to, in the account's namespace.
    secret: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    uid: Uuid,
}

/// Whom a token stands for.
pub(super) struct Verified {
    pub(super) identity: Identity,
    /// Of the audiences that were wanted, those that it is for.
    pub(super) audiences: Vec<String>,
    expires: Timestamp,
}

/// Why a token stands for nobody. It says nothing of what the token has.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Token(#[from] TokenError),
    /// As kube-apiserver says it.
    #[error("token audiences [{}] is invalid for the target audiences [{}]", quoted(has), quoted(wanted))]
    Audience { has: Vec<String>, wanted: Vec<String> },
    #[error("it names no key of the hub")]
    Key,
    #[error("it is not a token of a service account")]
    Claims,
    #[error("serviceaccounts \"{0}\" not found")]
    Gone(String),
    /// As kube-apiserver says it.
    #[error("service account token has been invalidated")]
    Unbound,
    #[error("service account token has been revoked")]
    Revoked,
    #[error("{}", chain(.0))]
    Hub(#[source] HubError),
}

fn quoted(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ")
}

/// Tokens of service accounts.
pub(crate) struct Accounts {
    store: Store,
    clock: Arc<dyn Clock>,
    /// What tokens may say to be from, and for; new ones are from and for the first.
    issuers: Vec<String>,
    ring: RwLock<Option<Arc<Ring>>>,
    /// Held by whoever reads the keys because they may not be recent.
    reading: tokio::sync::Mutex<()>,
    /// When the keys were read last because a token named one that was not known.
    asked: Mutex<Option<Timestamp>>,
    known: Memory<Identity>,
    refused: Memory<()>,
    verifying: Room,
    looking_up: Room,
    told: Mutex<Told>,
}

impl Accounts {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            issuers: context.options.account_issuers(),
            ring: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
            asked: Mutex::default(),
            known: Memory::new(MOST),
            refused: Memory::new(MOST_REFUSED),
            verifying: Room::new(AT_ONCE, WAITING),
            looking_up: Room::new(8, WAITING),
            told: Mutex::default(),
        }
    }

    /// For whom tokens are that the hub takes.
    pub(super) fn audiences(&self) -> &[String] {
        &self.issuers
    }

    /// Whether a token says to be one of the hub's service accounts'.
    pub(super) fn may_know(&self, text: &str) -> bool {
        Token::is_like(text)
            && Token::parse(text).is_ok_and(|token| self.issuers.iter().any(|own| own == token.issuer()))
    }

    /// Whether a token was good within the last minutes.
    pub(super) fn was_good(&self, text: &str, now: Timestamp) -> bool {
        Token::is_like(text) && self.known.was_there(&TokenHash::of(text), now)
    }

    /// Whom a token stands for; none where it is refused.
    ///
    /// # Errors
    /// [`HubError::TooMany`] where as many wait as may. Where the database fails.
    pub(super) async fn identity(&self, text: &str, now: Timestamp) -> Result<Option<Identity>, HubError> {
        let hash = TokenHash::of(text);
        if let Some(found) = self.known.get(&hash, now) {
            return Ok(Some(found));
        }
        if self.refused.get(&hash, now).is_some() {
            return Ok(None);
        }
        match self.verified(text, &self.issuers, now).await {
            Ok(Verified { identity, expires, .. }) => {
                self.known.put(hash, identity.clone(), expires.min(now + REMEMBERED), now);
                Ok(Some(identity))
            }
            Err(Refused::Hub(error)) => Err(error),
            Err(why) => {
                let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).tell(now);
                if let Some(untold) = told {
                    tracing::info!(%why, untold, "a token of a service account was not accepted");
                }
                self.refused.put(hash, (), now + REMEMBERED, now);
                Ok(None)
            }
        }
    }

    /// Whom a token stands for, for one of these audiences.
    pub(super) async fn verified(
        &self,
        text: &str,
        wanted: &[String],
        now: Timestamp,
    ) -> Result<Verified, Refused> {
        let token = Token::parse(text)?;
        // It names its key, and not by a try of all: so a key that is gone has no tokens.
        let key = token.key().ok_or(Refused::Key)?;
        let ring = self.ring_with(key, now).await.map_err(Refused::Hub)?.ok_or(Refused::Key)?;
        let claims = {
            let _turn = self.verifying.enter().await.map_err(Refused::Hub)?;
            token.verify(&ring.verifying)?
        };
        let issuers: Vec<&str> = self.issuers.iter().map(String::as_str).collect();
        let has: Vec<String> = Vec::deserialize(&claims["aud"]).unwrap_or_default();
        let expected = Expected { issuers: &issuers, audiences: &has, now: now.as_second() };
        check(&claims, &expected)?;
        let audiences: Vec<String> = has.iter().filter(|one| wanted.contains(one)).cloned().collect();
        if audiences.is_empty() {
            return Err(Refused::Audience { has, wanted: wanted.to_vec() });
        }
        let expires = claims["exp"].as_i64().and_then(|end| Timestamp::from_second(end).ok());
        let expires = expires.ok_or(Refused::Claims)?;
        let claims = Claims::deserialize(&claims).map_err(|_| Refused::Claims)?;
        let identity = self.standing(key, &claims).await?;
        Ok(Verified { identity, audiences, expires })
    }

    /// Whom a token stands for that a key signed, as long as all that it stands on is there.
    async fn standing(&self, key: &str, claims: &Claims) -> Result<Identity, Refused> {
        let Claims { sub, jti, kubernetes: Kubernetes { namespace, serviceaccount, secret } } = claims;
        let Named { name, uid } = serviceaccount;
        let mut identity = account_user(namespace, name);
        if *sub != identity.username || !is_dns_label(namespace) || !is_dns_subdomain(name) {
            return Err(Refused::Claims);
        }
        let secret = secret.as_ref().map(|secret| (secret.name.as_str(), ResourceUid(secret.uid)));
        let shown = ShownAccountToken { account: ResourceUid(*uid), namespace, name, key, jti: *jti, secret };
        let _turn = self.looking_up.enter().await.map_err(Refused::Hub)?;
        let standing = self.store.account_standing(&shown).await;
        match standing.map_err(|error| Refused::Hub(error.into()))? {
            AccountStanding { account: false, .. } => return Err(Refused::Gone(name.clone())),
            AccountStanding { key: false, .. } => return Err(Refused::Key),
            AccountStanding { revoked: true, .. } => return Err(Refused::Revoked),
            AccountStanding { bound: false, .. } => return Err(Refused::Unbound),
            AccountStanding { .. } => {}
        }
        identity.uid = uid.to_string();
        identity.extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("JTI={jti}")])]);
        Ok(identity)
    }

    fn ring(&self) -> Option<Arc<Ring>> {
        // Whoever holds the lock only copies a pointer.
        self.ring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys, with one of this name among them; they are read again where it is not known, and that was not done just before.
    async fn ring_with(&self, key: &str, now: Timestamp) -> Result<Option<Arc<Ring>>, HubError> {
        let has = |ring: &Arc<Ring>| ring.verifying.has(key);
        if let Some(ring) = self.ring().filter(has) {
            return Ok(Some(ring));
        }
        let is_asked = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let rests = |before: Timestamp| (before..before + REST).contains(&now);
            let is_asked = !asked.is_some_and(rests);
            if is_asked {
                *asked = Some(now);
            }
            is_asked
        };
        if is_asked {
            self.read_keys(now).await?;
        }
        Ok(self.ring().filter(has))
    }

    /// Reads the keys, and gives the greatest number that is taken.
    pub(super) async fn read_keys(&self, now: Timestamp) -> Result<(Arc<Ring>, i64), HubError> {
        let (stored, last) = self.store.account_keys().await?;
        let ring = Ring::new(&stored, now).map_err(|error| HubError::Internal(chain(&error)))?;
        let ring = Arc::new(ring);
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&ring));
        Ok((ring, last))
    }

    /// Reads the keys, makes another one where it is time for it, and drops those that have no use any more.
    pub(super) async fn tend(&self) -> Result<Arc<Ring>, HubError> {
        let now = self.clock.now();
        let (mut ring, last) = self.read_keys(now).await?;
        if ring.is_due(now) {
            // The first of all has no one before it that could sign meanwhile.
            let signs_from = if ring.signer(now).is_some() { now + LEAD } else { now };
            let key = make(last, now, signs_from).map_err(|error| HubError::Internal(chain(&error)))?;
            if self.store.add_account_key(&key).await? {
                tracing::info!(key = key.id, %signs_from, "there is a new key for tokens of service accounts");
            }
            (ring, _) = self.read_keys(now).await?;
        }
        if ring.first_of_use > 1 {
            self.store.drop_account_keys(ring.first_of_use).await?;
        }
        Ok(ring)
    }

    /// The keys as they are stored now, which are made where there are none: which of them signs may have changed at another replica.
    pub(super) async fn present(&self, now: Timestamp) -> Result<Arc<Ring>, HubError> {
        let (ring, _) = self.read_keys(now).await?;
        if ring.newest.is_some() { Ok(ring) } else { self.tend().await }
    }

    /// The keys as they were some seconds ago at most; as they were last, while somebody else reads them or the database is away. So whoever
    /// asks often does not have the database asked.
    pub(super) async fn recent(&self, now: Timestamp) -> Result<Arc<Ring>, HubError> {
        let Some(known) = self.ring() else { return self.present(now).await };
        if (known.read..known.read + REST).contains(&now) {
            return Ok(known);
        }
        let Ok(_reading) = self.reading.try_lock() else { return Ok(known) };
        Ok(self.present(now).await.unwrap_or(known))
    }

    /// What new tokens are from.
    pub(super) fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }
}
