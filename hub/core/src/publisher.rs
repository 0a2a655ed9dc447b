//! Where an issuer of tokens publishes its public keys, and what is known of them.
//!
//! Whoever comes with a token decides when keys are asked for, and may be anybody; so an issuer is asked by one at a time, and not
//! again before [`REST`] is over, whatever tokens say. It is asked in a task of its own: a request that is given up ends nothing,
//! and one that waits does so for a bounded time. Keys that are there go on to serve while the issuer does not answer, and those of an
//! issuer of the operator's are stored, so that they do so in a process that starts meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::{IssuerAnswer, Store};
use roadstead_model::{Digest, chain};
use roadstead_oidc::Keys;
use roadstead_oidc::code::Endpoints;
use roadstead_outbound::Client;
use serde::Deserialize;
use tokio::sync::{Semaphore, watch};

use crate::clock::Clock;

/// Bytes of an answer.
const ANSWER: usize = 1 << 20;
/// Bytes of an answer with tokens.
const TOKENS: usize = 64 * 1024;
/// Both requests together take no longer than this.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So long a caller waits for them.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long an issuer is not asked again, whatever came of it.
pub(crate) const REST: SignedDuration = SignedDuration::from_secs(10);
/// Callers that wait for one issuer.
const WAITING: usize = 64;

/// An issuer, and how it is asked for its keys.
pub(crate) struct Publisher {
    site: Site,
    clock: Arc<dyn Clock>,
    /// Keys serve for so long after they were asked for.
    kept: SignedDuration,
    state: Mutex<State>,
    waiting: Semaphore,
    archive: Option<Archive>,
}

/// Where an issuer's answers are stored.
pub(crate) struct Archive {
    pub(crate) store: Store,
    /// Of all that makes the issuer the one that answered.
    pub(crate) site: Digest,
}

/// Where an issuer is asked.
pub(crate) struct Site {
    /// Its URL, as its tokens have it.
    pub(crate) issuer: String,
    /// Where it says where its keys are.
    pub(crate) discovery_url: String,
    /// What it is asked with, or why it cannot be.
    pub(crate) client: Result<Client, String>,
    /// Whether it may be asked over plain HTTP.
    pub(crate) plain_http: bool,
    /// Whether the operator is told when it gives no keys.
    pub(crate) is_told: bool,
    /// Of those that are asked at once.
    pub(crate) places: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    keys: Option<Arc<Keys>>,
    /// Where people sign in, by the same answer as the keys.
    endpoints: Arc<Endpoints>,
    /// When the keys were received.
    since: Timestamp,
    /// When it was asked last.
    asked: Option<Timestamp>,
    /// Why it gave no keys the last time, where it did not.
    failure: Option<String>,
    /// Tells when stored keys are there, and closes once the issuer that is being asked has answered, or has not in time.
    answer: Option<watch::Receiver<()>>,
}

/// Why there are no keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoKeys {
    /// The issuer does not give them.
    #[error("{0}")]
    Failed(String),
    /// As many wait for this issuer as may.
    #[error("too many wait for its keys")]
    Busy,
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

/// What an issuer says of itself, as it says it.
struct Answer {
    configuration: Bytes,
    keys: Bytes,
}

impl Answer {
    fn read(&self) -> Result<(Keys, Endpoints), String> {
        let keys = Keys::parse(&self.keys).map_err(|error| error.to_string())?;
        if keys.count() == 0 {
            return Err("it publishes no key of a supported type".to_owned());
        }
        Ok((keys, Endpoints::parse(&self.configuration)))
    }
}

impl Publisher {
    pub(crate) fn new(
        site: Site,
        clock: &Arc<dyn Clock>,
        kept: SignedDuration,
        archive: Option<Archive>,
    ) -> Arc<Self> {
        Arc::new(Self {
            archive,
            site,
            clock: Arc::clone(clock),
            kept,
            state: Mutex::default(),
            waiting: Semaphore::new(WAITING),
        })
    }

    /// The issuer's keys, for a token that names one of them. Those that are known where the named one is among them; else the
    /// issuer is asked, where it was not just before.
    pub(crate) async fn keys(self: &Arc<Self>, key: Option<&str>) -> Result<Arc<Keys>, NoKeys> {
        if let Some(keys) = self.serving()
            && key.is_none_or(|key| keys.has(key))
        {
            return Ok(keys);
        }
        let serves = |keys: &Arc<Keys>| key.is_none_or(|key| keys.has(key));
        self.ask_and_wait(|publisher| publisher.serving().as_ref().is_some_and(serves)).await?;
        self.serving().ok_or_else(|| {
            let failure = self.lock().failure.clone();
            NoKeys::Failed(failure.unwrap_or_else(|| "it has not answered in time".to_owned()))
        })
    }

    /// Where people sign in.
    pub(crate) async fn endpoints(self: &Arc<Self>) -> Result<Arc<Endpoints>, NoKeys> {
        self.keys(None).await?;
        Ok(Arc::clone(&self.lock().endpoints))
    }

    /// Sends a form to a place of the issuer's, and gives whether that went well, and the answer.
    pub(crate) async fn post(
        &self,
        url: &str,
        authorization: Option<HeaderValue>,
        form: &str,
    ) -> Result<(bool, Bytes), String> {
        let asked = tokio::time::timeout(TIMEOUT, self.site.post(url, authorization, form)).await;
        asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
    }

    /// Other keys than these, which did not fit a token: the issuer may have changed them under the same names.
    pub(crate) async fn others(self: &Arc<Self>, than: &Arc<Keys>) -> Result<Option<Arc<Keys>>, NoKeys> {
        let other = || self.serving().filter(|keys| !Arc::ptr_eq(keys, than));
        match other() {
            Some(keys) => Ok(Some(keys)),
            None => {
                self.ask_and_wait(|_| other().is_some()).await?;
                Ok(other())
            }
        }
    }

    /// Asks for the keys where they are older than this, or could not be had the last time. Does not wait.
    pub(crate) fn refresh(self: &Arc<Self>, after: SignedDuration) {
        let now = self.clock.now();
        let is_fresh = {
            let state = self.lock();
            state.failure.is_none() && state.keys.is_some() && age(state.since, now) < after
        };
        if !is_fresh {
            drop(self.ask());
        }
    }

    /// Whether it can be forgotten: it has no keys that would serve, and may be asked at once.
    pub(crate) fn is_idle(&self) -> bool {
        if self.serving().is_some() {
            return false;
        }
        let state = self.lock();
        let rests = state.asked.is_some_and(|asked| age(asked, self.clock.now()) < REST);
        state.answer.is_none() && !rests
    }

    fn serving(&self) -> Option<Arc<Keys>> {
        let state = self.lock();
        let is_kept = age(state.since, self.clock.now()) < self.kept;
        state.keys.clone().filter(|_| is_kept)
    }

    /// Whole at any time: a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the issuer has answered, or what is known is enough.
    async fn ask_and_wait(self: &Arc<Self>, is_enough: impl Fn(&Self) -> bool) -> Result<(), NoKeys> {
        let Some(mut answer) = self.ask() else { return Ok(()) };
        let _place = self.waiting.try_acquire().map_err(|_| NoKeys::Busy)?;
        let known = async {
            // Closed is an error to whoever waits for a change, and the end of the wait.
            while !is_enough(self) && answer.changed().await.is_ok() {}
        };
        let _ = tokio::time::timeout(PATIENCE, known).await;
        Ok(())
    }

    /// Has the issuer asked, unless it was just before: whoever waits for the answer waits for the receiver to close.
    fn ask(self: &Arc<Self>) -> Option<watch::Receiver<()>> {
        let now = self.clock.now();
        let mut state = self.lock();
        if let Some(answer) = &state.answer {
            return Some(answer.clone());
        }
        if state.asked.is_some_and(|asked| age(asked, now) < REST) {
            return None;
        }
        let (answered, answer) = watch::channel(());
        (state.asked, state.answer) = (Some(now), Some(answer.clone()));
        drop(state);
        let publisher = Arc::clone(self);
        tokio::spawn(async move {
            if publisher.recall().await {
                let _ = answered.send(());
            }
            let place = publisher.site.places.acquire().await;
            let asked = tokio::time::timeout(TIMEOUT, publisher.site.ask()).await;
            drop(place);
            let said = asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
            let read = said.as_ref().map_err(Clone::clone).and_then(Answer::read);
            let good = said.ok().filter(|_| read.is_ok());
            publisher.note(read);
            drop(answered);
            if let Some(good) = good {
                publisher.store(good).await;
            }
        });
        Some(answer)
    }

    /// Takes over what the issuer said to an earlier process, where this one knows nothing of it yet; gives whether it did.
    async fn recall(&self) -> bool {
        let Some(Archive { store, site }) = &self.archive else { return false };
        if self.lock().keys.is_some() {
            return false;
        }
        let issuer = &self.site.issuer;
        let stored = match tokio::time::timeout(PATIENCE, store.issuer_answer(*site)).await {
            Ok(Ok(Some(stored))) => stored,
            Ok(Ok(None)) | Err(_) => return false,
            Ok(Err(error)) => {
                tracing::warn!(issuer, error = chain(&error), "the stored keys of an issuer cannot be read");
                return false;
            }
        };
        let received = stored.received;
        let answer = Answer { configuration: stored.configuration.into(), keys: stored.keys.into() };
        let is_kept = age(received, self.clock.now()) < self.kept;
        let Some((keys, endpoints)) = answer.read().ok().filter(|_| is_kept) else { return false };
        let mut state = self.lock();
        state.since = received;
        state.keys = Some(Arc::new(keys));
        state.endpoints = Arc::new(endpoints);
        true
    }

    /// Has an earlier answer replaced by this one, for a process that starts while the issuer does not answer.
    async fn store(&self, answer: Answer) {
        let Some(Archive { store, site }) = &self.archive else { return };
        let received = self.lock().since;
        let (configuration, keys) = (answer.configuration.into(), answer.keys.into());
        let answer = IssuerAnswer { configuration, keys, received };
        let issuer = &self.site.issuer;
        let stored = store.keep_issuer_answer(*site, issuer, &answer, received - self.kept).await;
        if let Err(error) = stored {
            tracing::warn!(issuer, error = chain(&error), "the keys of an issuer are not stored");
        }
    }

    fn note(&self, answer: Result<(Keys, Endpoints), String>) {
        let (now, issuer) = (self.clock.now(), &self.site.issuer);
        let mut state = self.lock();
        // The rest begins when the answer is there: one that hangs is left alone, too.
        (state.asked, state.answer) = (Some(now), None);
        match answer {
            Ok((keys, endpoints)) => {
                let is_news = state.failure.take().is_some() || state.keys.is_none();
                if is_news && self.site.is_told {
                    tracing::info!(issuer, keys = keys.count(), "an issuer's keys are known");
                }
                (state.keys, state.since) = (Some(Arc::new(keys)), now);
                state.endpoints = Arc::new(endpoints);
            }
            Err(why) => {
                // Once, and not each time that it is asked.
                if self.site.is_told && state.failure.as_ref() != Some(&why) {
                    let known = state.keys.is_some();
                    tracing::warn!(
                        issuer,
                        why,
                        known,
                        "an issuer does not give its keys; those that are known go on to serve"
                    );
                }
                state.failure = Some(why);
            }
        }
    }
}

/// How long ago something was. Where the clock was set back, it was very long ago.
fn age(then: Timestamp, now: Timestamp) -> SignedDuration {
    let age = now.duration_since(then);
    if age.is_negative() { SignedDuration::MAX } else { age }
}

impl Site {
    async fn ask(&self) -> Result<Answer, String> {
        let published = self.get(&self.discovery_url).await?;
        let configuration: Configuration = serde_json::from_slice(&published)
            .map_err(|_| "it publishes no OpenID configuration".to_owned())?;
        if configuration.issuer != self.issuer {
            return Err("its OpenID configuration names another issuer".to_owned());
        }
        let keys = self.get(&configuration.jwks_uri).await?;
        Ok(Answer { configuration: published, keys })
    }

    /// One answer, of this very address: redirects are not followed.
    async fn get(&self, url: &str) -> Result<Bytes, String> {
        let is_clear = !url.starts_with("https://");
        if is_clear && !(self.plain_http && url.starts_with("http://")) {
            return Err("its URL is not an https URL".to_owned());
        }
        let request =
            http::Request::get(url).body(Full::default()).map_err(|_| "its URL is not valid".to_owned())?;
        Ok(self.send(request, ANSWER, |status| status == StatusCode::OK).await?.1)
    }

    /// The answer to a form that holds secrets: over HTTPS in any case.
    async fn post(
        &self,
        url: &str,
        authorization: Option<HeaderValue>,
        form: &str,
    ) -> Result<(bool, Bytes), String> {
        if !url.starts_with("https://") {
            return Err("its URL is not an https URL".to_owned());
        }
        let mut request = http::Request::post(url)
            .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(http::header::ACCEPT, "application/json");
        if let Some(value) = authorization {
            request = request.header(http::header::AUTHORIZATION, value);
        }
        let body = Full::new(Bytes::copy_from_slice(form.as_bytes()));
        let request = request.body(body).map_err(|_| "its URL is not valid".to_owned())?;
        // A refusal says why.
        let is_told = |status: StatusCode| status == StatusCode::OK || status.is_client_error();
        let (status, answer) = self.send(request, TOKENS, is_told).await?;
        Ok((status == StatusCode::OK, answer))
    }

    /// The answer to a request, of at most so many bytes, where its status is one that is looked at.
    async fn send(
        &self,
        request: http::Request<Full<Bytes>>,
        most: usize,
        is_looked_at: impl FnOnce(StatusCode) -> bool + Send,
    ) -> Result<(StatusCode, Bytes), String> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let answer = client.send(request).await.map_err(|error| match error.refusal {
            Some(refusal) => refusal.to_string(),
            None => "the connection failed".to_owned(),
        })?;
        let status = answer.status();
        if !is_looked_at(status) {
            return Err(format!("it answers HTTP {}", status.as_u16()));
        }
        let body = Limited::new(answer.into_body(), most).collect().await;
        Ok((status, body.map_err(|_| "its answer is incomplete or too long".to_owned())?.to_bytes()))
    }
}
