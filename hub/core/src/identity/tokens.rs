//! Whom bearer tokens stand for. A token's check tells without the database whether a hub with this key made it; what has
//! passed it is remembered for a moment, so that a client's every request does not ask the database.
//!
//! Tokens from before there was a check cannot be told from made-up ones without a question. They are asked for in a room
//! of their own, so that whoever makes tokens up takes no place from those whose tokens are checked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::{Checked, Store, TokenHash, TokenKind};
use tokio::sync::{Semaphore, SemaphorePermit};
use uuid::Uuid;

use crate::HubError;
use crate::identity::Identity;

/// For so long a token that was taken back, or whose account is gone, may still be taken.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(2);

/// For so long it is known that a token was good once, for answers that hold no data while the database is away.
const ONCE_GOOD: SignedDuration = SignedDuration::from_mins(15);

/// Tokens that are remembered: more than there are users at one time.
const MOST: usize = 10_000;

/// Of tokens that stand for nobody fewer are remembered, and apart, so that they push nobody's out.
pub(super) const MOST_REFUSED: usize = 1_000;

/// How long a look-up waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// A token of a version that made tokens without an end. Its uses are warned about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldToken {
    /// Its id.
    pub id: Uuid,
    /// Until when it is taken.
    pub until: Option<Timestamp>,
}

impl OldToken {
    /// What whoever uses it is told.
    #[must_use]
    pub fn warning(&self) -> String {
        let until = self.until.map_or_else(String::new, |until| format!(" and is taken until {until}"));
        format!(
            "the token {} was made by a version whose tokens had no end{until}: make another one with `roadstead token create`, \
             and revoke this one",
            self.id
        )
    }
}

/// Look-ups of one sort: so many at once, so many that wait, and none beyond.
pub(crate) struct Room {
    places: Semaphore,
    waiting: Semaphore,
}

/// A place for a look-up, until the value is dropped.
#[derive(Debug)]
pub struct LookUp<'a> {
    _place: SemaphorePermit<'a>,
    _waiting: SemaphorePermit<'a>,
}

impl Room {
    pub(super) const fn new(places: usize, waiting: usize) -> Self {
        Self { places: Semaphore::const_new(places), waiting: Semaphore::const_new(places + waiting) }
    }

    /// Waits for a place, as far as there is room to wait.
    pub(crate) async fn enter(&self) -> Result<LookUp<'_>, HubError> {
        let full = || {
            HubError::TooMany(
                "Too many requests, please try again later: many tokens are being looked up".to_owned(),
            )
        };
        let waiting = self.waiting.try_acquire().map_err(|_| full())?;
        match tokio::time::timeout(PATIENCE, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(LookUp { _place: place, _waiting: waiting }),
            _ => Err(full()),
        }
    }
}

pub(crate) struct Tokens {
    known: Memory<Identity>,
    refused: Memory<()>,
    checked: Room,
    unchecked: Room,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            known: Memory::new(MOST),
            refused: Memory::new(MOST_REFUSED),
            checked: Room::new(8, 1000),
            unchecked: Room::new(2, 64),
        }
    }
}

impl Tokens {
    /// Whom a token stands for; none where it is not known, or has expired.
    ///
    /// # Errors
    /// [`HubError::TooMany`] where as many look-ups wait as may. Where the database fails.
    pub(crate) async fn identity(
        &self,
        store: &Store,
        text: &str,
        now: Timestamp,
    ) -> Result<Option<Identity>, HubError> {
        let room = match store.tokens().tell(TokenKind::Access, text) {
            Checked::Foreign => return Ok(None),
            Checked::Ours => &self.checked,
            Checked::Unchecked => &self.unchecked,
        };
        let hash = TokenHash::of(text);
        if let Some(found) = self.remembered(&hash, now) {
            return Ok(found);
        }
        let _turn = room.enter().await?;
        // Another request with this token may have asked meanwhile.
        if let Some(found) = self.remembered(&hash, now) {
            return Ok(found);
        }
        let user = store.token_user(&hash, now).await?;
        let until = now + REMEMBERED;
        let Some(user) = user else {
            self.refused.put(hash, (), until, now);
            return Ok(None);
        };
        let until = user.expires_at.map_or(until, |end| end.min(until));
        let mut identity = Identity::authenticated(&user.username, user.groups);
        if let Some(id) = user.had_no_end {
            identity.old_token = Some(OldToken { id, until: user.expires_at });
        }
        self.known.put(hash, identity.clone(), until, now);
        Ok(Some(identity))
    }

    /// Whether a hub with this key made the token, or it was good within the last minutes. It may have been taken back
    /// since: of use only for what anybody with a token may see.
    pub(crate) fn was_good(&self, store: &Store, text: &str, now: Timestamp) -> bool {
        match store.tokens().tell(TokenKind::Access, text) {
            Checked::Ours => true,
            Checked::Unchecked => self.known.was_there(&TokenHash::of(text), now),
            Checked::Foreign => false,
        }
    }

    /// The room for tokens without a check.
    pub(crate) fn unchecked(&self) -> &Room {
        &self.unchecked
    }

    fn remembered(&self, hash: &TokenHash, now: Timestamp) -> Option<Option<Identity>> {
        let known = self.known.get(hash, now).map(Some);
        known.or_else(|| self.refused.get(hash, now).map(|()| None))
    }
}

/// What is known of tokens for a moment.
pub(super) struct Memory<T> {
    most: usize,
    entries: Mutex<HashMap<TokenHash, (T, Timestamp)>>,
}

impl<T: Clone> Memory<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: Mutex::default() }
    }

    /// A panic while it is held leaves the map whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TokenHash, (T, Timestamp)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, hash: &TokenHash, now: Timestamp) -> Option<T> {
        self.lock().get(hash).filter(|(_, until)| holds(*until, now)).map(|(found, _)| found.clone())
    }

    pub(super) fn was_there(&self, hash: &TokenHash, now: Timestamp) -> bool {
        self.lock().get(hash).is_some_and(|(_, until)| *until + ONCE_GOOD > now)
    }

    pub(super) fn forget(&self, hash: &TokenHash) {
        self.lock().remove(hash);
    }

    pub(super) fn put(&self, hash: TokenHash, found: T, until: Timestamp, now: Timestamp) {
        let mut entries = self.lock();
        if entries.len() >= self.most {
            entries.retain(|_, (_, until)| holds(*until, now));
        }
        // Where all are still good, this one is asked for again.
        if entries.len() < self.most {
            entries.insert(hash, (found, until));
        }
    }
}

/// Also where the clock was set back.
fn holds(until: Timestamp, now: Timestamp) -> bool {
    now < until && until <= now + REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_room_has_a_bounded_queue() {
        let room = Room::new(1, 1);
        let first = room.enter().await.unwrap();
        let mut second = std::pin::pin!(room.enter());
        tokio::select! {
            biased;
            _ = second.as_mut() => panic!("there is one place"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(room.enter().await, Err(HubError::TooMany(_))));
        drop(first);
        assert!(second.await.is_ok());
        assert!(room.enter().await.is_ok());
    }

    #[test]
    fn refused_tokens_push_no_good_ones_out() {
        let now = Timestamp::UNIX_EPOCH;
        let (hash, later) = (|n: u64| TokenHash::of(&n.to_string()), now + REMEMBERED);
        let tokens = Tokens::default();
        let who = Identity::hub();
        tokens.known.put(hash(0), who.clone(), later, now);
        for n in 1..=20_000 {
            tokens.refused.put(hash(n), (), later, now);
        }
        assert_eq!(tokens.remembered(&hash(0), now), Some(Some(who)));
        assert_eq!(tokens.remembered(&hash(1), now), Some(None));
        assert_eq!(tokens.remembered(&hash(20_000), now), None);
        assert_eq!(tokens.refused.lock().len(), MOST_REFUSED);
        // What is forgotten makes room.
        tokens.refused.put(hash(20_001), (), later + REMEMBERED, later);
        assert_eq!(tokens.refused.lock().len(), 1);
    }
}
