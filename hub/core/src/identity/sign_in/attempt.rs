//! A sign-in that is under way, as the browser's cookie holds it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::Store;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::PATIENCE;
use crate::HubError;

/// The longest cookie that is looked at.
const MAX_COOKIE: usize = 4096;
/// Random bytes of an attempt.
const BYTES: usize = 24;
/// Answers that are remembered, so that none is worked on twice here. None leads to two sessions in any case: that is the database's.
const MOST_USED: usize = 4096;

/// A sign-in that is under way. All that ties the provider's answer to it is derived from its random bytes with the hub's key, so that
/// who reads the cookie cannot redeem a code.
pub(super) struct Attempt {
    random: [u8; BYTES],
    issuer: String,
    page: String,
    ends: Timestamp,
}

impl Attempt {
    pub(super) fn new(issuer: &str, page: &str, ends: Timestamp) -> Result<Self, HubError> {
        let mut random = [0; BYTES];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| HubError::Internal("there is no randomness for a sign-in".to_owned()))?;
        Ok(Self { random, issuer: issuer.to_owned(), page: page.to_owned(), ends })
    }

    /// Of a cookie; none where the hub has not made it, or too long ago.
    pub(super) fn read(store: &Store, cookie: &str, now: Timestamp) -> Option<Self> {
        if cookie.len() > MAX_COOKIE {
            return None;
        }
        let (said, mac) = cookie.split_once('.')?;
        let (said, mac) = (URL_SAFE_NO_PAD.decode(said).ok()?, URL_SAFE_NO_PAD.decode(mac).ok()?);
        same(&store.sign_in_mac("cookie", &[&said]), &mac).then_some(())?;
        let said: Value = serde_json::from_slice(&said).ok()?;
        let text = |field: &str| said[field].as_str();
        let ends = Timestamp::from_second(said["ends"].as_i64()?).ok()?;
        let left = ends.duration_since(now);
        let is_now = left > SignedDuration::ZERO && left <= PATIENCE;
        is_now.then_some(Self {
            random: URL_SAFE_NO_PAD.decode(text("random")?).ok()?.try_into().ok()?,
            issuer: text("issuer")?.to_owned(),
            page: text("page")?.to_owned(),
            ends,
        })
    }

    pub(super) fn cookie(&self, store: &Store) -> String {
        let said = json!({
            "random": URL_SAFE_NO_PAD.encode(self.random), "issuer": self.issuer, "page": self.page,
            "ends": self.ends.as_second(),
        });
        let said = said.to_string();
        let mac = store.sign_in_mac("cookie", &[said.as_bytes()]);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(said), URL_SAFE_NO_PAD.encode(mac))
    }

    fn derived(&self, store: &Store, what: &str) -> String {
        URL_SAFE_NO_PAD.encode(store.sign_in_mac(what, &[&self.random]))
    }

    pub(super) fn state(&self, store: &Store) -> String {
        self.derived(store, "state")
    }

    pub(super) fn nonce(&self, store: &Store) -> String {
        self.derived(store, "nonce")
    }

    pub(super) fn verifier(&self, store: &Store) -> Zeroizing<String> {
        Zeroizing::new(self.derived(store, "verifier"))
    }

    pub(super) fn is_answered_by(&self, store: &Store, state: &str) -> bool {
        same(self.state(store).as_bytes(), state.as_bytes())
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    pub(super) fn page(&self) -> &str {
        &self.page
    }

    pub(super) fn ends(&self) -> Timestamp {
        self.ends
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Answers that were worked on here.
#[derive(Default)]
pub(super) struct Used(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    states: HashSet<String>,
    /// The oldest first.
    order: VecDeque<(Timestamp, String)>,
}

impl Used {
    /// Whether an answer comes for the first time, as far as it is remembered. Its length is known: it was compared before.
    pub(super) fn is_first(&self, state: &str, now: Timestamp) -> bool {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Remembered { states, order } = &mut *used;
        while let Some((since, oldest)) = order.front()
            && (order.len() >= MOST_USED || now.duration_since(*since) > PATIENCE)
        {
            states.remove(oldest);
            order.pop_front();
        }
        let is_first = states.insert(state.to_owned());
        if is_first {
            order.push_back((now, state.to_owned()));
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_in_number_and_time() {
        let (used, now) = (Used::default(), Timestamp::UNIX_EPOCH);
        assert!(used.is_first("a", now) && !used.is_first("a", now));
        for number in 0..MOST_USED {
            assert!(used.is_first(&number.to_string(), now));
        }
        assert!(used.is_first("a", now), "the oldest made room");
        assert!(used.0.lock().unwrap().states.len() <= MOST_USED);
        let later = now + PATIENCE + SignedDuration::from_secs(1);
        assert!(used.is_first("b", later));
        assert_eq!(used.0.lock().unwrap().order.len(), 1);
    }
}
