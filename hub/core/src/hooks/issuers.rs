//! The public keys of issuers, asked for where they publish them and kept for some time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use roadstead_hooks::Keys;
use roadstead_model::chain;
use roadstead_outbound::{Client, Purpose};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::HubOptions;
use crate::hooks::call::NotTaken;

/// Bytes of an answer.
const ANSWER: usize = 64 * 1024;
/// Both requests together take no longer than this: the caller waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long keys are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// For so long an issuer is not asked again that did not answer, or that was just asked for a key which it does not have.
const REST: Duration = Duration::from_secs(30);
/// Issuers that are remembered.
const REMEMBERED: usize = 256;
/// So many are asked at once.
const AT_ONCE: usize = 4;

/// Issuers, and what is known of them.
pub(super) struct Issuers {
    client: OnceLock<Result<Client, String>>,
    options: Arc<HubOptions>,
    known: Mutex<HashMap<String, Known>>,
    places: Semaphore,
}

#[derive(Clone)]
struct Known {
    keys: Result<Arc<Keys>, String>,
    asked: Instant,
}

impl Known {
    /// Whether it serves for a token that names this key.
    fn serves(&self, key: Option<&str>) -> bool {
        let age = self.asked.elapsed();
        let has = self.keys.as_ref().is_ok_and(|keys| key.is_none_or(|key| keys.has(key)));
        age < if has { KEPT } else { REST }
    }
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

impl Issuers {
    pub(super) fn new(options: &Arc<HubOptions>) -> Self {
        Self {
            client: OnceLock::new(),
            options: Arc::clone(options),
            known: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// The keys of an issuer, for a token that names one of them.
    pub(super) async fn keys(&self, issuer: &str, key: Option<&str>) -> Result<Arc<Keys>, NotTaken> {
        let answer =
            |known: Known| known.keys.map_err(|why| NotTaken::Issuer { issuer: issuer.to_owned(), why });
        if let Some(known) = self.serving(issuer, key) {
            return answer(known);
        }
        let Ok(_place) = self.places.acquire().await else {
            let why = "the hub is stopping".to_owned();
            return Err(NotTaken::Issuer { issuer: issuer.to_owned(), why });
        };
        // Somebody else may have asked meanwhile.
        if let Some(known) = self.serving(issuer, key) {
            return answer(known);
        }
        let asked = tokio::time::timeout(PATIENCE, self.ask(issuer)).await;
        let keys = asked.unwrap_or_else(|_| Err("it did not answer in time".to_owned())).map(Arc::new);
        let known = Known { keys, asked: Instant::now() };
        let mut all = self.lock();
        if all.len() >= REMEMBERED {
            all.retain(|_, known| known.serves(None));
        }
        if all.len() < REMEMBERED {
            all.insert(issuer.to_owned(), known.clone());
        }
        drop(all);
        answer(known)
    }

    fn serving(&self, issuer: &str, key: Option<&str>) -> Option<Known> {
        self.lock().get(issuer).filter(|known| known.serves(key)).cloned()
    }

    /// Whole at any time: a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, issuer: &str) -> Result<Keys, String> {
        let at = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let configuration: Configuration = serde_json::from_slice(&self.get(&at).await?)
            .map_err(|_| "it publishes no OpenID configuration".to_owned())?;
        if configuration.issuer != issuer {
            return Err("its OpenID configuration is of another issuer".to_owned());
        }
        Keys::parse(&self.get(&configuration.jwks_uri).await?).map_err(|error| error.to_string())
    }

    async fn get(&self, url: &str) -> Result<Bytes, String> {
        let is_clear = !url.starts_with("https://");
        if is_clear && !(self.options.outbound.plain_http_credentials && url.starts_with("http://")) {
            return Err("it is not asked over HTTPS".to_owned());
        }
        let client = self.client.get_or_init(|| {
            let guard = self.options.outbound.guard(Purpose::Oidc);
            Client::new(guard, None).map_err(|error| chain(&error))
        });
        let client = client.as_ref().map_err(Clone::clone)?;
        let request =
            http::Request::get(url).body(Full::default()).map_err(|_| "its URL is none".to_owned())?;
        let answer = client.send(request).await.map_err(|error| match error.refusal {
            Some(refusal) => refusal.to_string(),
            None => "the connection failed".to_owned(),
        })?;
        if answer.status() != http::StatusCode::OK {
            return Err(format!("it answers HTTP {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), ANSWER).collect().await;
        Ok(body.map_err(|_| "its answer is cut, or too long".to_owned())?.to_bytes())
    }
}
