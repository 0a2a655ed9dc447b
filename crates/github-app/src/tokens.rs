//! Tokens that were given out, kept for a part of their life by all that they were made from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use roadstead_outbound::{Client, ClientError, Secret};
use roadstead_signing::sha256;
use tokio::sync::Mutex as AsyncMutex;
use zeroize::Zeroizing;

use crate::app::{App, Installation};
use crate::error::AppError;
use crate::exchange;

/// Tokens that are kept.
const MOST: usize = 512;
/// No API is waited for longer than this, whatever it says.
const LONGEST_REST: Duration = Duration::from_secs(3_600);
/// Of 100 parts of its life, those for which a token is kept.
const KEPT: u32 = 80;

/// What is wanted, and by whom.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// The App.
    pub app: &'a App,
    /// What else the way to its API is made of, such as the authorities to trust: a token that came another way is another one.
    pub way: &'a [&'a [u8]],
}

/// A token that is kept, until then.
struct Kept {
    token: Secret,
    until: Instant,
}

/// Held while it is asked for, so that many who want the same token ask once.
type Place = Arc<AsyncMutex<Option<Kept>>>;

/// Tokens of GitHub Apps, and until when APIs give out none. Clones share them.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Known>);

#[derive(Default)]
struct Known {
    places: Mutex<HashMap<String, Place>>,
    /// Until when an API takes no requests of an App, whichever installation they are about.
    rests: Mutex<HashMap<String, Timestamp>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// A token: the one that is kept, or a new one.
    ///
    /// # Errors
    /// [`AppError`].
    pub async fn token(
        &self,
        want: Want<'_>,
        client: impl FnOnce() -> Result<Client, ClientError>,
    ) -> Result<Secret, AppError> {
        let place = self.place(key(want));
        let mut kept = place.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until > Instant::now()) {
            return Ok(kept.token.clone());
        }
        *kept = None;
        if let Some(until) = self.rests_until(want.app, Timestamp::now()) {
            let api = want.app.api().as_str().trim_end_matches('/').to_owned();
            return Err(AppError::Resting { api, until });
        }
        let given = exchange::token(want.app, &client()?).await?;
        let until = Instant::now() + part(given.lasts);
        *kept = Some(Kept { token: given.token.clone(), until });
        Ok(given.token)
    }

    /// Forgets a token: where it was wanted it was not taken.
    pub fn forget(&self, want: Want<'_>) {
        self.places().remove(&key(want));
    }

    /// The App's API takes no requests of it until then: it is asked for no token meanwhile. Those that are kept stay good.
    pub fn rest(&self, app: &App, until: Timestamp) {
        let now = Timestamp::now();
        let until = until.min(now + LONGEST_REST);
        let mut rests = self.rests();
        if rests.len() >= MOST {
            rests.retain(|_, until| *until > now);
        }
        let key = asker(app);
        if rests.len() < MOST || rests.contains_key(&key) {
            let known = rests.entry(key).or_insert(until);
            *known = until.max(*known);
        }
    }

    fn rests_until(&self, app: &App, now: Timestamp) -> Option<Timestamp> {
        self.rests().get(&asker(app)).copied().filter(|until| *until > now)
    }

    fn rests(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        // Whole at any time, as are the others.
        self.0.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an App is called in names of users.
    ///
    /// # Errors
    /// [`AppError`].
    pub async fn slug(app: &App, client: &Client) -> Result<String, AppError> {
        exchange::slug(app, client).await
    }

    fn place(&self, key: String) -> Place {
        let mut all = self.places();
        if all.len() >= MOST && !all.contains_key(&key) {
            let now = Instant::now();
            // One that is held is about to be good.
            all.retain(|_, place| {
                place.try_lock().map_or(true, |kept| kept.as_ref().is_some_and(|kept| kept.until > now))
            });
            if all.len() >= MOST {
                // It costs one more request for each.
                all.clear();
            }
        }
        Arc::clone(all.entry(key).or_default())
    }
}

fn part(lasts: Duration) -> Duration {
    lasts * KEPT / 100
}

/// A digest over all that a token is made from.
fn key(want: Want<'_>) -> String {
    let Want { app, way } = want;
    let (kind, installation) = match app.installation() {
        Installation::Id(id) => ("id", id.to_string()),
        Installation::Owner(owner) => ("owner", owner.clone()),
    };
    // Exposed to be hashed.
    let own = [app.id(), kind, &installation, app.api().as_str(), app.key().expose()].map(str::as_bytes);
    digest(own.into_iter().chain(way.iter().copied()))
}

/// A digest over what an API knows an App by.
fn asker(app: &App) -> String {
    // Exposed to be hashed.
    digest([app.id(), app.api().as_str(), app.key().expose()].map(str::as_bytes).into_iter())
}

fn digest<'a>(parts: impl Iterator<Item = &'a [u8]> + Clone) -> String {
    let room = parts.clone().map(|part| part.len() + 8).sum();
    let mut all = Zeroizing::new(Vec::with_capacity(room));
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    sha256(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::tests::app;

    #[test]
    fn another_app_or_way_has_another_token() {
        let (one, other) = (app("https://a.test/"), app("https://b.test/"));
        let of = |app: &App, way: &[&[u8]]| key(Want { app, way });
        assert_eq!(of(&one, &[b"ca"]), of(&one, &[b"ca"]));
        assert_ne!(of(&one, &[b"ca"]), of(&other, &[b"ca"]));
        assert_ne!(of(&one, &[b"ca"]), of(&one, &[b"ca2"]));
        assert_ne!(of(&one, &[b"c", b"a"]), of(&one, &[b"ca"]));
    }

    #[test]
    fn an_api_rests_for_an_app_and_for_no_other() {
        let (one, other) = (app("https://a.test/"), app("https://b.test/"));
        let (tokens, now) = (Tokens::default(), Timestamp::now());
        tokens.rest(&one, now + Duration::from_secs(60));
        // What is shorter changes nothing, and nothing is waited for forever.
        tokens.rest(&one, now + Duration::from_secs(5));
        let until = tokens.clone().rests_until(&one, now).unwrap();
        assert_eq!(until, now + Duration::from_secs(60));
        assert!(tokens.rests_until(&one, until).is_none() && tokens.rests_until(&other, now).is_none());
        tokens.rest(&other, now + Duration::from_secs(86_400));
        let longest = tokens.rests_until(&other, now).unwrap();
        assert!(longest <= Timestamp::now() + LONGEST_REST, "{longest}");
    }

    #[test]
    fn they_are_kept_for_a_part_of_their_life_and_in_number() {
        assert_eq!(part(Duration::from_secs(3_600)), Duration::from_secs(2_880));
        let tokens = Tokens::default();
        for index in 0..MOST + 100 {
            tokens.place(index.to_string());
        }
        assert!(tokens.places().len() <= MOST);
        assert_eq!(format!("{tokens:?}"), "Tokens");
    }
}
