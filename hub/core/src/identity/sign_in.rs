//! People sign in to the dashboard: at a provider, by the authorization code flow with PKCE, or with a token that they have. Either becomes
//! a session, of which the browser holds a cookie and no token.
//!
//! A session gives no right by itself: it stands for the token that it began with or was renewed by, and each request is let in as if it came
//! with that token. A sign-in that is under way is kept nowhere here: what is to be known of it is in a cookie of the browser that began it,
//! under a MAC, and what ties the provider's answer to it is derived from that with the hub's key. So whoever begins sign-ins without end
//! fills neither the memory nor the database.

mod attempt;
mod provider;
mod session;
mod told;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::{Checked, NewSession, Store, TokenHash, TokenKind};
use roadstead_model::{AuditEntry, AuditOrigin};
use roadstead_oidc::code::{self, Answer, NoTokens};
use roadstead_oidc::{SignInConfiguration, SignInProvider, Token};
use roadstead_outbound::Secret;

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::tokens::{Memory, Room};
use crate::identity::{AuditLog, Authenticator, Identity, audit};
use attempt::{Attempt, Used};
use session::{Kept, Renewals, Session};
pub use told::{Answered, Begun, OfferedProvider, SignInRefused, Signed, SignedIn};

/// Where providers send people back to.
pub const SIGN_IN_BACK: &str = "/fleet/v1/sign-in/callback";
/// A sign-in that takes longer has to begin again.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// Sessions of one user at once: the oldest make room.
const MOST_OF_ONE: i64 = 20;
/// Sessions that are remembered for a moment. Each has a token and what renews it, of 16 KiB at most: 4 MiB in all.
const REMEMBERED: usize = 128;
/// Answers of providers that are worked on at once, and those that wait.
const AT_ONCE: usize = 8;
const WAITING: usize = 64;
/// The longest of what a provider sends back.
const MAX_CODE: usize = 4096;

/// Where people sign in, and for how long.
#[derive(Debug, Clone)]
pub struct SignInOptions {
    /// The providers.
    pub configuration: SignInConfiguration,
    /// The secrets of the hub's clients, in the order of the providers; empty where a client has none.
    pub secrets: Vec<Secret>,
    /// A session that is not used for so long has ended.
    pub idle: Duration,
    /// A session ends after so long, whatever it is used for.
    pub lasts: Duration,
    /// Whether every token signs in, also where there are providers.
    pub any_token: bool,
}

impl Default for SignInOptions {
    fn default() -> Self {
        Self {
            configuration: SignInConfiguration::default(),
            secrets: Vec::new(),
            idle: Duration::from_secs(8 * 3600),
            lasts: Duration::from_secs(24 * 3600),
            any_token: false,
        }
    }
}

/// Sessions of people in the dashboard.
pub struct SignIn {
    store: Store,
    clock: Arc<dyn Clock>,
    identity: Arc<Authenticator>,
    audit: Arc<AuditLog>,
    options: SignInOptions,
    /// The hub's address as browsers reach it.
    url: String,
    used: Used,
    answers: Room,
    look_ups: Room,
    known: Memory<Arc<Session>>,
    renewals: Renewals,
}

impl SignIn {
    pub(crate) fn new(context: &Context, identity: &Arc<Authenticator>, audit: &Arc<AuditLog>) -> Self {
        let options = context.options.sign_in.clone();
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            identity: Arc::clone(identity),
            audit: Arc::clone(audit),
            url: options.configuration.url().unwrap_or(&context.options.api_url).to_owned(),
            options,
            used: Used::default(),
            answers: Room::new(AT_ONCE, WAITING),
            look_ups: Room::new(8, 1000),
            known: Memory::new(REMEMBERED),
            renewals: Renewals::default(),
        }
    }

    /// The providers, as everybody is told of them.
    #[must_use]
    pub fn offered(&self) -> Vec<OfferedProvider> {
        let offered = |(index, provider): (usize, &SignInProvider)| {
            let program = provider.command_line();
            OfferedProvider {
                name: provider.name().to_owned(),
                issuer: provider.issuer().to_owned(),
                start: format!("{}/fleet/v1/sign-in/start?provider={index}", self.url),
                client_id: program.map(|program| program.client_id.clone()),
                scopes: program.and_then(|program| program.scopes.clone()),
                certificate_authority: program
                    .and_then(|_| self.identity.issuers.authority(provider.issuer()))
                    .map(str::to_owned),
                discovery_url: program
                    .and_then(|_| self.identity.issuers.other_discovery(provider.issuer()))
                    .map(str::to_owned),
            }
        };
        self.options.configuration.providers().iter().enumerate().map(offered).collect()
    }

    /// Whether tokens are for when nobody can sign in otherwise: people sign in at a provider, and only a token of those who may do everything
    /// begins a session.
    #[must_use]
    pub fn is_token_for_emergencies(&self) -> bool {
        !self.options.any_token && !self.options.configuration.providers().is_empty()
    }

    fn redirect(&self) -> String {
        format!("{}{SIGN_IN_BACK}", self.url)
    }

    /// Begins a sign-in at a provider, by its place among them, for a page of the dashboard.
    ///
    /// # Errors
    /// [`SignInRefused`].
    pub async fn begin(&self, provider: &str, page: &str) -> Result<Begun, SignInRefused> {
        let found = provider.parse().ok().and_then(|place: usize| self.provider(place));
        let (_, provider, _) = found.ok_or(SignInRefused::NoProvider)?;
        let attempt = Attempt::new(provider.issuer(), code::page(page), self.clock.now() + PATIENCE)?;
        let endpoints = self.endpoints(provider).await?;
        let scopes = provider.scopes().map_or_else(|| endpoints.usual_scopes(), <[String]>::to_vec);
        let (state, nonce) = (attempt.state(&self.store), attempt.nonce(&self.store));
        let verifier = attempt.verifier(&self.store);
        let request = code::Request {
            client_id: provider.client_id(),
            redirect: &self.redirect(),
            scopes: &scopes,
            prompt: provider.prompt(),
            state: &state,
            nonce: &nonce,
            verifier: &verifier,
        };
        let place = endpoints.authorization.as_deref().and_then(|place| request.url(place));
        let no_place = || SignInRefused::Away("it publishes no authorization endpoint".to_owned());
        Ok(Begun {
            location: place.ok_or_else(no_place)?,
            cookie: attempt.cookie(&self.store),
            lasts: PATIENCE.unsigned_abs(),
        })
    }

    /// Ends a sign-in, by what the provider sent somebody back with and the cookie of the browser. Each that is refused is on record.
    ///
    /// # Errors
    /// [`SignInRefused`].
    pub async fn complete(
        &self,
        answered: &Answered<'_>,
        cookie: Option<&str>,
        origin: &AuditOrigin,
    ) -> Result<SignedIn, SignInRefused> {
        let done = self.completed(answered, cookie, origin).await;
        done.inspect_err(|why| self.note_refused(why, origin))
    }

    async fn completed(
        &self,
        answered: &Answered<'_>,
        cookie: Option<&str>,
        origin: &AuditOrigin,
    ) -> Result<SignedIn, SignInRefused> {
        let now = self.clock.now();
        let attempt = cookie.and_then(|cookie| Attempt::read(&self.store, cookie, now));
        let attempt = attempt.ok_or(SignInRefused::Unknown)?;
        if !attempt.is_answered_by(&self.store, answered.state) || !self.used.is_first(answered.state, now) {
            return Err(SignInRefused::Unknown);
        }
        let providers = self.options.configuration.providers();
        let place = providers.iter().position(|provider| provider.issuer() == attempt.issuer());
        let (place, provider, _) =
            place.and_then(|place| self.provider(place)).ok_or(SignInRefused::NoProvider)?;
        let endpoints = self.endpoints(provider).await?;
        // One provider's answer is not taken for another's.
        let issuers = &self.identity.issuers;
        if (endpoints.names_itself || !answered.issuer.is_empty())
            && !issuers.are_one(answered.issuer, provider.issuer())
        {
            return Err(SignInRefused::Unknown);
        }
        if !answered.error.is_empty() {
            let description = Some(answered.description);
            return Err(SignInRefused::Provider(code::told(answered.error, description)));
        }
        if answered.code.is_empty() || answered.code.len() > MAX_CODE {
            return Err(SignInRefused::Unknown);
        }
        let turn = self.answers.enter().await?;
        let (redirect, verifier) = (self.redirect(), attempt.verifier(&self.store));
        let shown = [
            ("grant_type", "authorization_code"),
            ("code", answered.code),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", verifier.as_str()),
        ];
        let tokens = self.tokens(place, &endpoints, &shown).await.map_err(refused)?;
        drop(turn);
        let id = tokens.id.ok_or_else(|| SignInRefused::NotTaken("it returned no ID token".to_owned()))?;
        let nonce = attempt.nonce(&self.store);
        let expected = Answer { client_id: provider.client_id(), nonce: Some(&nonce), subject: None };
        let (who, found) = self.vouched_for(provider, &id, &expected).await?;
        let kept = Kept {
            issuer: provider.issuer().to_owned(),
            subject: found.subject,
            token: id,
            refresh: tokens.refresh,
            token_ends: Some(found.expires),
            ends: self.end(now).as_second(),
        };
        let state = (answered.state.as_bytes(), attempt.ends());
        let page = attempt.page().to_owned();
        self.start(&who.asks_from(origin), kept, Some(state), page).await
    }

    /// Whom an ID token stands for: it is taken as every bearer token is, and is the answer that is expected.
    async fn vouched_for(
        &self,
        provider: &SignInProvider,
        id: &str,
        expected: &Answer<'_>,
    ) -> Result<(Identity, code::IdToken), SignInRefused> {
        let not_taken = |why: &dyn std::fmt::Display| SignInRefused::NotTaken(why.to_string());
        let token = Token::parse(id).map_err(|error| not_taken(&error))?;
        if !self.identity.issuers.are_one(token.issuer(), provider.issuer()) {
            return Err(not_taken(&code::NotTheAnswer::Issuer));
        }
        let who = self.identity.authenticate(id).await.map_err(|error| match error {
            HubError::Unauthenticated(_) => not_taken(&"the hub's log says why"),
            error => SignInRefused::Hub(error),
        })?;
        let found = expected.check(&token).map_err(|error| not_taken(&error))?;
        Ok((who, found))
    }

    /// Begins a session by a token that somebody has, for as long as the token is taken.
    ///
    /// # Errors
    /// [`SignInRefused::Hub`] where it is not taken, [`SignInRefused::NotForEmergencies`].
    pub async fn with_token(&self, token: &str, origin: &AuditOrigin) -> Result<SignedIn, SignInRefused> {
        let signed_in = async {
            let who = self.identity.authenticate(token).await?.asks_from(origin);
            // No issuer's token and no service account's is of that group: it is one of the hub's own, and ends.
            if self.is_token_for_emergencies() && !who.is_master() {
                return Err(SignInRefused::NotForEmergencies);
            }
            let kept = Kept {
                issuer: String::new(),
                subject: String::new(),
                token: token.to_owned().into(),
                refresh: None,
                token_ends: None,
                ends: self.end(self.clock.now()).as_second(),
            };
            self.start(&who, kept, None, code::HOME.to_owned()).await
        };
        signed_in.await.inspect_err(|why| self.note_refused(why, origin))
    }

    async fn start(
        &self,
        who: &Identity,
        kept: Kept,
        sign_in: Option<(&[u8], Timestamp)>,
        page: String,
    ) -> Result<SignedIn, SignInRefused> {
        let now = self.clock.now();
        let by = match kept.issuer.as_str() {
            "" if self.is_token_for_emergencies() => "a token, as break-glass",
            "" => "a token",
            issuer => issuer,
        };
        let new = NewSession {
            owner: &format!("{}\n{}", kept.issuer, who.username),
            most: MOST_OF_ONE,
            kept: &kept.to_bytes(),
            sign_in,
            begins: now,
            ends: self.end(now),
        };
        let mut tx = self.store.begin().await.map_err(HubError::from)?;
        let begun = tx.begin_sign_in_session(&new).await.map_err(HubError::from)?;
        let (id, cookie) = begun.ok_or(SignInRefused::Unknown)?;
        let entry = AuditEntry { detail: format!("by {by}"), ..about(who, "sign-in", &id.to_string()) };
        tx.note(&entry).await.map_err(HubError::from)?;
        tx.commit().await.map_err(HubError::from)?;
        Ok(SignedIn { cookie, lasts: self.options.lasts, page, username: who.username.clone() })
    }

    /// Who asks with this cookie.
    ///
    /// # Errors
    /// [`HubError::Unavailable`] where the session is to be renewed and the provider does not answer, [`HubError::TooMany`]. Where the
    /// database fails.
    pub async fn authenticate(self: &Arc<Self>, cookie: &str) -> Result<Signed, HubError> {
        let Some(session) = self.session(cookie).await? else { return Ok(Signed::Out) };
        let Some(session) = self.fresh(&TokenHash::of(cookie), session).await? else {
            return Ok(Signed::Out);
        };
        match self.identity.authenticate(&session.kept.token).await {
            Ok(who) => Ok(Signed::In(Box::new(who))),
            Err(HubError::Unauthenticated(_)) => Ok(Signed::Out),
            Err(error) => Err(error),
        }
    }

    /// Whether the session of a cookie goes on, which it is not used by: somebody may only have a page open.
    ///
    /// # Errors
    /// [`HubError::TooMany`]. Where the database fails.
    pub async fn goes_on(&self, cookie: &str) -> Result<bool, HubError> {
        if self.store.tokens().tell(TokenKind::Session, cookie) != Checked::Ours {
            return Ok(false);
        }
        let (now, _turn) = (self.clock.now(), self.look_ups.enter().await?);
        let found =
            self.store.unused_sign_in_session(&TokenHash::of(cookie), now, self.unused_since(now)).await?;
        let kept = found.and_then(|found| Kept::from_bytes(&found.kept));
        let Some(kept) = kept.filter(|kept| now.as_second() < kept.ends) else { return Ok(false) };
        // What nothing renews ends the session with its own end.
        if kept.refresh.is_none() && kept.token_ends.is_some_and(|end| end <= now.as_second()) {
            return Ok(false);
        }
        // What a provider gave is renewed when somebody does something; what this hub gave may have been taken back.
        if !self.identity.was_given_out(&kept.token) {
            return Ok(true);
        }
        match self.identity.authenticate(&kept.token).await {
            Ok(_) => Ok(true),
            Err(HubError::Unauthenticated(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Signs somebody out, and gives where that is done at the provider, too. Who is signed out already is told the same.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn end_session(&self, cookie: &str, origin: &AuditOrigin) -> Result<Option<String>, HubError> {
        let Some(session) = self.session(cookie).await? else { return Ok(None) };
        // Also whose token has ended signs out.
        let who = self.whose(&session).await;
        let hash = TokenHash::of(cookie);
        self.end_by(&who.asks_from(origin), &hash, "by the user").await?;
        let providers = self.options.configuration.providers();
        let Some(provider) = providers.iter().find(|one| one.issuer() == session.kept.issuer) else {
            return Ok(None);
        };
        let endpoints = self.endpoints(provider).await.ok();
        let back = format!("{}{}", self.url, code::HOME);
        Ok(endpoints
            .and_then(|endpoints| endpoints.end_session.clone())
            .and_then(|place| code::sign_out_url(&place, provider.client_id(), &back)))
    }

    async fn end_by(&self, who: &Identity, hash: &TokenHash, why: &str) -> Result<(), HubError> {
        let mut tx = self.store.begin().await?;
        if let Some(id) = tx.end_sign_in_session(hash).await? {
            let entry = AuditEntry { detail: why.to_owned(), ..about(who, "sign-out", &id.to_string()) };
            tx.note(&entry).await?;
            tx.commit().await?;
        }
        self.known.forget(hash);
        Ok(())
    }

    /// The session of a cookie; none where there is none.
    async fn session(&self, cookie: &str) -> Result<Option<Arc<Session>>, HubError> {
        if self.store.tokens().tell(TokenKind::Session, cookie) != Checked::Ours {
            return Ok(None);
        }
        let (hash, now) = (TokenHash::of(cookie), self.clock.now());
        if let Some(found) = self.known.get(&hash, now) {
            return Ok(Some(found));
        }
        let _turn = self.look_ups.enter().await?;
        self.stored(&hash, now).await
    }

    async fn stored(&self, hash: &TokenHash, now: Timestamp) -> Result<Option<Arc<Session>>, HubError> {
        let found = self.store.sign_in_session(hash, now, self.unused_since(now)).await?;
        let Some(found) = found else { return Ok(None) };
        let Some(kept) = Kept::from_bytes(&found.kept).filter(|kept| now.as_second() < kept.ends) else {
            return Ok(None);
        };
        let session = Arc::new(Session { version: found.version, kept });
        self.known.put(*hash, Arc::clone(&session), now + crate::identity::tokens::REMEMBERED, now);
        Ok(Some(session))
    }

    /// Drops sessions that have ended.
    pub(crate) async fn drop_ended(&self) -> Result<(), HubError> {
        let now = self.clock.now();
        self.store.drop_ended_sessions(now, self.unused_since(now)).await?;
        Ok(())
    }

    /// Sessions that were not used since then have ended.
    fn unused_since(&self, now: Timestamp) -> Timestamp {
        let idle = SignedDuration::try_from(self.options.idle).unwrap_or(SignedDuration::MAX);
        now.saturating_sub(idle).unwrap_or(Timestamp::MIN)
    }

    fn end(&self, now: Timestamp) -> Timestamp {
        let lasts = SignedDuration::try_from(self.options.lasts).unwrap_or(SignedDuration::MAX);
        now.saturating_add(lasts).unwrap_or(Timestamp::MAX)
    }

    fn note_refused(&self, why: &SignInRefused, origin: &AuditOrigin) {
        let nobody = Identity::user("system:anonymous", Vec::new()).asks_from(origin);
        let detail = why.recorded().to_owned();
        self.audit.note_refusal(AuditEntry { detail, ..about(&nobody, "sign-in", "") });
    }
}

fn about(who: &Identity, verb: &str, id: &str) -> AuditEntry {
    AuditEntry { verb: verb.to_owned(), kind: "Session".to_owned(), name: id.to_owned(), ..audit::by(who) }
}

fn refused(error: provider::Unredeemed) -> SignInRefused {
    match error {
        provider::Unredeemed::Away(why) => SignInRefused::Away(why),
        provider::Unredeemed::NoTokens(NoTokens::Refused(why) | NoTokens::Failed(why)) => {
            SignInRefused::Provider(why)
        }
        // A provider says the others of other devices only.
        provider::Unredeemed::NoTokens(error) => SignInRefused::Away(error.to_string()),
    }
}
