//! Tokens of service accounts, which the hub signs itself: made, and taken for as long as their account is there.
//!
//! Such a token lies in no table. It is believed where one of the hub's keys signed it, by the one algorithm that there is, and where it
//! is from the hub, for it, and for now; and it stands for its account only while that is there under the uid that the token says. No
//! question is asked of the database before the signature is known to be the hub's, but for keys that are not known yet, at intervals.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use roadstead_api::rules::{is_dns_label, is_dns_subdomain};
use roadstead_api::{FieldError, KindId};
use roadstead_hub_store::{Store, TokenHash};
use roadstead_model::{ResourceUid, Secret, chain};
use roadstead_oidc::{Expected, Token, TokenError, check};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::HubError;
use crate::address::{Address, named};
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::account_keys::{LEAD, LONGEST, Ring, configuration, make};
use crate::identity::audit::about;
use crate::identity::issuers::Told;
use crate::identity::tokens::{MOST_REFUSED, Memory, REMEMBERED, Room};
use crate::identity::{Authenticator, Identity, account_user};

/// As kube-apiserver has it: a shorter one is refused.
const SHORTEST: Duration = Duration::from_secs(600);
const DEFAULT: Duration = Duration::from_secs(3600);
/// As kube-apiserver has it: nobody means to ask for more.
const ABSURD: u64 = 1 << 32;
/// Audiences of a token, and bytes of all of them.
const MOST_AUDIENCES: usize = 32;
const AUDIENCE_BYTES: usize = 4096;
/// Tokens that are remembered for a moment.
const MOST: usize = 10_000;
/// Tokens that are verified at once, and those that wait for it.
const AT_ONCE: usize = 2;
const WAITING: usize = 1000;
/// Keys are read again so often at most because a token names one that is not known.
const REST: SignedDuration = SignedDuration::from_secs(5);
/// Where Kubernetes says which credential somebody used.
pub(super) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// What is asked for in a TokenRequest.
#[derive(Debug, Clone, Default)]
pub struct AccountTokenOrder {
    /// For whom; the hub where there are none.
    pub audiences: Vec<String>,
    /// How long; an hour where nothing is said.
    pub lasts: Option<Duration>,
}

/// A new token of a service account.
#[derive(Debug)]
pub struct AccountToken {
    /// Its text, which is given out once.
    pub token: Secret,
    /// For whom it is.
    pub audiences: Vec<String>,
    /// The uid of its account.
    pub account: ResourceUid,
    /// How long it lasts.
    pub lasts: Duration,
    /// When it ends; it ends earlier where its account is deleted.
    pub expires: Timestamp,
}

/// What a token of a service account says of that, in Kubernetes' claim.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Account,
}

#[derive(Deserialize)]
struct Account {
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
        let Claims { sub, jti, kubernetes: Kubernetes { namespace, serviceaccount }, .. } =
            Claims::deserialize(&claims).map_err(|_| Refused::Claims)?;
        let Account { name, uid } = serviceaccount;
        let mut identity = account_user(&namespace, &name);
        if sub != identity.username || !is_dns_label(&namespace) || !is_dns_subdomain(&name) {
            return Err(Refused::Claims);
        }
        let _turn = self.looking_up.enter().await.map_err(Refused::Hub)?;
        let found = self.store.has_account(ResourceUid(uid), &namespace, &name).await;
        if !found.map_err(|error| Refused::Hub(error.into()))? {
            return Err(Refused::Gone(name));
        }
        identity.uid = uid.to_string();
        identity.extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("JTI={jti}")])]);
        Ok(Verified { identity, audiences, expires })
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
    async fn read_keys(&self, now: Timestamp) -> Result<(Arc<Ring>, i64), HubError> {
        let (stored, last) = self.store.account_keys().await?;
        let ring = Ring::new(&stored, now).map_err(|error| HubError::Internal(chain(&error)))?;
        let ring = Arc::new(ring);
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&ring));
        Ok((ring, last))
    }

    /// Reads the keys, makes another one where it is time for it, and drops those that have no use any more.
    async fn tend(&self) -> Result<Arc<Ring>, HubError> {
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

    /// The keys, which are made where there are none.
    async fn present(&self) -> Result<Arc<Ring>, HubError> {
        match self.ring() {
            Some(ring) => Ok(ring),
            None => self.tend().await,
        }
    }

    fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }
}

impl Authenticator {
    /// Makes a token of the service account at `address`.
    ///
    /// # Errors
    /// [`HubError::NotFound`] without such an account, [`HubError::Invalid`] where it is to last too short or is for too many.
    pub async fn create_account_token(
        &self,
        who: &Identity,
        address: &Address,
        order: AccountTokenOrder,
    ) -> Result<AccountToken, HubError> {
        let kind = address.kind.get();
        who.authorize("create", kind, "token", &address.namespace, &address.name)?;
        let lasts = check_order(&order)?;
        let account = self.store.get(KindId::ServiceAccount, &address.namespace, &address.name).await?;
        let account = account.ok_or_else(|| HubError::NotFound { what: named(kind, &address.name) })?;
        if account.deletion_timestamp.is_some() {
            return Err(HubError::Forbidden(format!("{} is being deleted", named(kind, &address.name))));
        }
        let ring = self.accounts.present().await?;
        let now = self.clock.now();
        let no_key =
            || HubError::Internal("there is no key that signs tokens of service accounts".to_owned());
        let key = ring.signer(now).ok_or_else(no_key)?;
        let audiences = match order.audiences {
            none if none.is_empty() => vec![self.accounts.issuer().to_owned()],
            audiences => audiences,
        };
        let (begin, jti) = (now.as_second(), Uuid::new_v4());
        let end = begin.saturating_add(i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX));
        let claims = json!({
            "iss": self.accounts.issuer(), "aud": audiences, "iat": begin, "nbf": begin, "exp": end, "jti": jti,
            "sub": account_user(&address.namespace, &address.name).username,
            "kubernetes.io": {
                "namespace": address.namespace,
                "serviceaccount": { "name": address.name, "uid": account.uid },
            },
        });
        let token = key.sign(&claims).map_err(|error| HubError::Internal(chain(&error)))?;
        let expires = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        let mut entry = about(who, "create", address.kind, &address.namespace, &address.name);
        entry.kind.push_str("/token");
        entry.detail = format!("token JTI={jti} for {audiences:?} until {expires}");
        // Before anybody has it.
        self.store.note(&[entry]).await?;
        Ok(AccountToken { token: Secret::from(token), audiences, account: account.uid, lasts, expires })
    }

    /// Reads the keys that sign tokens of service accounts, and makes another one where it is time for it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tend_account_keys(&self) -> Result<(), HubError> {
        self.accounts.tend().await.map(drop)
    }

    /// What the hub says of itself as an issuer of tokens.
    #[must_use]
    pub fn issuer_configuration(&self) -> Bytes {
        configuration(self.accounts.issuer())
    }

    /// The keys by which tokens of service accounts are verified.
    ///
    /// # Errors
    /// Where they are not known yet, and the database fails.
    pub async fn issuer_keys(&self) -> Result<Bytes, HubError> {
        Ok(self.accounts.present().await?.published.clone())
    }
}

/// Checks what is asked for, and says how long the token lasts.
fn check_order(order: &AccountTokenOrder) -> Result<Duration, HubError> {
    let lasts = order.lasts.unwrap_or(DEFAULT);
    let mut causes = Vec::new();
    let mut wrong =
        |field: &str, value: Value, why: &str| causes.push(FieldError::invalid(field, &value, why));
    if lasts < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        wrong("spec.expirationSeconds", lasts.as_secs().into(), why);
    }
    if lasts.as_secs() > ABSURD {
        let why = "may not specify a duration larger than 2^32 seconds";
        wrong("spec.expirationSeconds", lasts.as_secs().into(), why);
    }
    let bytes: usize = order.audiences.iter().map(String::len).sum();
    let is_sound = |audience: &String| !audience.is_empty() && !audience.chars().any(char::is_control);
    if order.audiences.len() > MOST_AUDIENCES
        || bytes > AUDIENCE_BYTES
        || !order.audiences.iter().all(is_sound)
    {
        let why = "want at most 32 texts without control characters, of at most 4096 bytes together";
        wrong("spec.audiences", order.audiences.len().into(), why);
    }
    if causes.is_empty() {
        return Ok(lasts.min(LONGEST));
    }
    Err(HubError::Invalid { what: "TokenRequest.authentication.k8s.io \"\"".to_owned(), causes })
}
