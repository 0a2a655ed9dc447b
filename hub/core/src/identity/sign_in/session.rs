//! What a session stands for, and how that is renewed: by one request of all that need it, and by one replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::TokenHash;
use roadstead_model::chain;
use roadstead_oidc::code::{Answer, NoTokens};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use zeroize::Zeroizing;

use super::provider::Unredeemed;
use super::{SignIn, SignInRefused};
use crate::HubError;
use crate::identity::Identity;
use crate::identity::tokens::{Memory, REMEMBERED};

/// A token that ends sooner is renewed.
const LEAD: SignedDuration = SignedDuration::from_secs(60);
/// A replica that renews a session is let alone with it for so long.
const LEASE: SignedDuration = SignedDuration::from_secs(20);
/// A renewal waits so long for its turn: with the time that a provider may take, that is less than the lease.
const TURN: Duration = Duration::from_secs(2);
/// A request whose token has ended waits so long for another one.
const PATIENCE: Duration = Duration::from_secs(12);
/// How often it is looked whether another replica is done.
const PAUSE: Duration = Duration::from_millis(250);
/// Sessions that are renewed at once.
const AT_ONCE: usize = 8;
const MOST_FAILED: usize = 10_000;

/// A session.
pub(super) struct Session {
    pub(super) version: i64,
    pub(super) kept: Kept,
}

/// What a session stands for. Does not print.
#[derive(Clone)]
pub(super) struct Kept {
    /// The provider's issuer; empty for a session that began with a token.
    pub(super) issuer: String,
    /// Of whom the provider's tokens are.
    pub(super) subject: String,
    /// The token that each request is let in by.
    pub(super) token: Zeroizing<String>,
    /// What another one is got with.
    pub(super) refresh: Option<Zeroizing<String>>,
    /// When the token ends, where it is renewed before.
    pub(super) token_ends: Option<i64>,
    /// When the session ends, whatever its row says.
    pub(super) ends: i64,
}

impl Kept {
    pub(super) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let said = json!({
            "issuer": self.issuer, "subject": self.subject, "token": *self.token,
            "refresh": self.refresh.as_ref().map(|refresh| refresh.as_str()),
            "tokenEnds": self.token_ends, "ends": self.ends,
        });
        Zeroizing::new(said.to_string().into_bytes())
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(bytes).ok()?;
        let text = |field: &str| said[field].as_str().map(str::to_owned);
        Some(Self {
            issuer: text("issuer")?,
            subject: text("subject")?,
            token: Zeroizing::new(text("token")?),
            refresh: text("refresh").map(Zeroizing::new),
            token_ends: said["tokenEnds"].as_i64(),
            ends: said["ends"].as_i64()?,
        })
    }

    /// How long the token is still good, where it can be renewed.
    fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        self.refresh.as_ref()?;
        Some(SignedDuration::from_secs(self.token_ends?.saturating_sub(now.as_second())))
    }
}

/// Renewals that are under way here: whoever waits for one waits until its receiver closes.
pub(super) struct Renewals {
    running: Mutex<HashMap<TokenHash, watch::Receiver<()>>>,
    /// Those that have just failed are not tried at once.
    failed: Memory<()>,
    places: Semaphore,
}

impl Default for Renewals {
    fn default() -> Self {
        Self { running: Mutex::default(), failed: Memory::new(MOST_FAILED), places: Semaphore::new(AT_ONCE) }
    }
}

impl SignIn {
    /// The session with a token that is good, where it can be had; none where the session has ended by that.
    pub(super) async fn fresh(
        self: &Arc<Self>,
        hash: &TokenHash,
        session: Arc<Session>,
    ) -> Result<Option<Arc<Session>>, HubError> {
        let Some(left) = session.kept.left(self.clock.now()) else { return Ok(Some(session)) };
        if left > LEAD {
            return Ok(Some(session));
        }
        let is_good = left > SignedDuration::ZERO;
        if self.renewals.failed.get(hash, self.clock.now()).is_some() {
            return if is_good { Ok(Some(session)) } else { Err(no_answer()) };
        }
        let mut done = self.renewed(hash, &session);
        if is_good {
            return Ok(Some(session));
        }
        // Closed, which is an error to whoever waits for a change, is what is waited for.
        let _ = tokio::time::timeout(PATIENCE, done.changed()).await;
        let now = self.clock.now();
        match self.stored(hash, now).await? {
            None => Ok(None),
            Some(session) if session.kept.left(now).is_none_or(|left| left > SignedDuration::ZERO) => {
                Ok(Some(session))
            }
            Some(_) => Err(no_answer()),
        }
    }

    /// Has a session renewed in a task of its own: a request that is given up ends nothing, since what a session is renewed with may be
    /// good for one time only.
    fn renewed(self: &Arc<Self>, hash: &TokenHash, session: &Arc<Session>) -> watch::Receiver<()> {
        let mut running = self.renewals.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(done) = running.get(hash) {
            return done.clone();
        }
        let (end, done) = watch::channel(());
        running.insert(*hash, done.clone());
        drop(running);
        let (sign_in, hash, session) = (Arc::clone(self), *hash, Arc::clone(session));
        tokio::spawn(async move {
            let renewed = sign_in.renew(&hash, &session).await;
            sign_in.known.forget(&hash);
            if let Err(error) = renewed {
                let now = sign_in.clock.now();
                sign_in.renewals.failed.put(hash, (), now + REMEMBERED, now);
                tracing::warn!(
                    error = chain(&error),
                    issuer = session.kept.issuer,
                    "a session could not be renewed"
                );
            }
            sign_in.renewals.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash);
            drop(end);
        });
        done
    }

    async fn renew(&self, hash: &TokenHash, session: &Session) -> Result<(), SignInRefused> {
        if !self.is_ours_to_renew(hash, session).await? {
            return Ok(());
        }
        let renewed = self.renew_at_provider(hash, session).await;
        if renewed.is_err() {
            // Another replica may reach the provider.
            self.store.release_sign_in_session(hash, session.version).await.map_err(HubError::from)?;
        }
        renewed
    }

    async fn renew_at_provider(&self, hash: &TokenHash, session: &Session) -> Result<(), SignInRefused> {
        let failed = || SignInRefused::Hub(HubError::TooMany("many sessions are being renewed".to_owned()));
        let turn = tokio::time::timeout(TURN, self.renewals.places.acquire()).await;
        let _turn = turn.ok().and_then(Result::ok).ok_or_else(failed)?;
        let Kept { issuer, subject, refresh: Some(refresh), .. } = &session.kept else { return Ok(()) };
        let providers = self.options.configuration.providers();
        let place = providers.iter().position(|provider| provider.issuer() == issuer);
        let (place, provider, _) =
            place.and_then(|place| self.provider(place)).ok_or(SignInRefused::NoProvider)?;
        let endpoints = self.endpoints(provider).await?;
        let shown = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())];
        let tokens = match self.tokens(place, &endpoints, &shown).await {
            Ok(tokens) => tokens,
            Err(Unredeemed::NoTokens(NoTokens::Refused(why))) => {
                tracing::info!(issuer, why, "a provider does not renew a session: it ends");
                return Ok(self
                    .end_by(&self.whose(session).await, hash, "the provider does not renew it")
                    .await?);
            }
            Err(error) => return Err(super::refused(error)),
        };
        let expected =
            Answer { client_id: provider.client_id(), nonce: None, subject: Some(subject.as_str()) };
        let found = match tokens.id {
            Some(id) => self.vouched_for(provider, &id, &expected).await.map(|(_, found)| (id, found)),
            None => Err(SignInRefused::NotTaken("it returned no ID token".to_owned())),
        };
        let kept = match found {
            Ok((token, found)) => Kept {
                issuer: issuer.clone(),
                subject: found.subject,
                token,
                refresh: tokens.refresh.or_else(|| Some(refresh.clone())),
                token_ends: Some(found.expires),
                ends: session.kept.ends,
            },
            // Asked again it would say the same, and what it was asked with may be used up: the session ends with the token that it has.
            Err(SignInRefused::NotTaken(why)) => {
                tracing::warn!(
                    issuer,
                    why,
                    "a provider renews a session with what is not taken: it ends with its token"
                );
                Kept { refresh: None, ..session.kept.clone() }
            }
            Err(error) => return Err(error),
        };
        let renewed = self.store.renew_sign_in_session(hash, session.version, &kept.to_bytes()).await;
        renewed.map_err(HubError::from)?;
        Ok(())
    }

    /// Whose a session is, for the record: its token may have ended.
    pub(super) async fn whose(&self, session: &Session) -> Identity {
        match self.identity.authenticate(&session.kept.token).await {
            Ok(who) => who,
            Err(_) => {
                Identity::user(&format!("{} of {}", session.kept.subject, session.kept.issuer), Vec::new())
            }
        }
    }

    /// Whether this replica is to renew a session: it is not while another one does, nor once one has. Where the token is good for nothing
    /// any more, it is waited for the other one.
    async fn is_ours_to_renew(&self, hash: &TokenHash, session: &Session) -> Result<bool, HubError> {
        let looks = LEASE.as_millis().unsigned_abs() / PAUSE.as_millis();
        for _ in 0..looks {
            let now = self.clock.now();
            let (version, until) = (session.version, now + LEASE);
            if self.store.may_renew_sign_in_session(hash, version, now, until).await? {
                return Ok(true);
            }
            let is_good = session.kept.left(now).is_none_or(|left| left > SignedDuration::ZERO);
            let found = self.stored(hash, now).await?;
            if is_good || found.is_none_or(|found| found.version != version) {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(false)
    }
}

fn no_answer() -> HubError {
    let why = "your session is to be renewed, and the provider at which you signed in does not answer; please try again later";
    HubError::Unavailable(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_stands_for_is_read_as_it_was_written() {
        let kept = Kept {
            issuer: "https://login.test".to_owned(),
            subject: "7".to_owned(),
            token: Zeroizing::new("a.b.c".to_owned()),
            refresh: Some(Zeroizing::new("r".to_owned())),
            token_ends: Some(100),
            ends: 200,
        };
        let read = Kept::from_bytes(&kept.to_bytes()).unwrap();
        assert_eq!((read.issuer, read.subject, read.ends), (kept.issuer, kept.subject, 200));
        assert_eq!((read.token, read.refresh.clone()), (kept.token, kept.refresh));
        assert_eq!(read.token_ends, Some(100));
        assert!(Kept::from_bytes(b"{}").is_none() && Kept::from_bytes(b"x").is_none());
    }

    #[test]
    fn only_what_can_be_renewed_has_time_left() {
        let mut kept = Kept {
            issuer: String::new(),
            subject: String::new(),
            token: Zeroizing::default(),
            refresh: None,
            token_ends: Some(100),
            ends: 0,
        };
        let now = Timestamp::from_second(70).unwrap();
        assert_eq!(kept.left(now), None);
        kept.refresh = Some(Zeroizing::default());
        assert_eq!(kept.left(now), Some(SignedDuration::from_secs(30)));
        kept.token_ends = None;
        assert_eq!(kept.left(now), None);
    }
}
