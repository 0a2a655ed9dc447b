//! The keys by which the hub signs tokens of service accounts: which of them signs, which still verify, and when another one comes.
//!
//! A key is published for [`LEAD`] before it signs, so that all replicas and whoever else verifies tokens know it by then; and it verifies
//! until the last token that it may have signed has ended. All of that follows from the keys themselves, so no replica decides it. Those who
//! run the hub may have a new one at once, where one has leaked, and end those before it.

use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::AccountKey;
use roadstead_model::{AuditEntry, chain};
use roadstead_oidc::{Keys, SIGNED_BY, SigningError, SigningKey};
use serde::Serialize;
use serde_json::{Value, json};

use crate::HubError;
use crate::identity::audit::{self, authorize_path};
use crate::identity::{Authenticator, Identity};

/// Where they are listed and rotated: who may is decided by this path.
const ACCOUNT_KEYS: &str = "/fleet/v1/account-keys";
/// No more are made by request: fewer than are published and read by others, so that there is room for those that the hub makes itself.
const MOST_KEYS: usize = 24;
/// A key signs for so long, about: another one is made then.
pub(super) const PERIOD: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A new key is known for so long before it signs.
pub(super) const LEAD: SignedDuration = SignedDuration::from_hours(1);
/// The longest that a token lasts.
pub(super) const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// Replicas whose clocks differ agree on whether a key still verifies.
pub(super) const MARGIN: SignedDuration = SignedDuration::from_hours(24);

/// Keys at one time.
pub(super) struct Ring {
    /// The oldest first.
    signing: Vec<(Timestamp, SigningKey)>,
    /// The public halves of those that verify.
    pub(super) verifying: Keys,
    /// The same, as they are published.
    pub(super) published: Bytes,
    /// The number and the time of the newest, where there is one.
    pub(super) newest: Option<(i64, Timestamp)>,
    /// Keys with smaller numbers are of no use any more.
    pub(super) first_of_use: i64,
    /// When they were read.
    pub(super) read: Timestamp,
}

impl Ring {
    /// Of stored keys, as far as they verify at this time.
    pub(super) fn new(stored: &[AccountKey], now: Timestamp) -> Result<Self, SigningError> {
        // The last one that has been superseded for longer than any token lasts, and all before it, have no tokens that are good.
        let ended = |next: &AccountKey| end_before(next).is_some_and(|ended| ended < now);
        let gone = stored.iter().skip(1).take_while(|next| ended(next)).count();
        let of_use = stored.get(gone..).unwrap_or_default();
        let mut signing = Vec::with_capacity(of_use.len());
        for key in of_use {
            signing.push((key.signs_from, SigningKey::read(&key.key)?));
        }
        // Who reads no more than some keys has the newest.
        let published: Vec<Value> = signing.iter().rev().map(|(_, key)| key.published()).collect();
        let published = Bytes::from(json!({ "keys": published }).to_string());
        Ok(Self {
            verifying: Keys::parse(&published).unwrap_or_default(),
            published,
            newest: stored.last().map(|key| (key.number, key.made)),
            first_of_use: of_use.first().map_or(0, |key| key.number),
            signing,
            read: now,
        })
    }

    /// The key that signs at this time: the newest whose time has come.
    pub(super) fn signer(&self, now: Timestamp) -> Option<&SigningKey> {
        let due = self.signing.iter().rev().find(|(from, _)| *from <= now);
        due.or_else(|| self.signing.first()).map(|(_, key)| key)
    }

    /// Whether it is time for another key.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.newest.is_none_or(|(_, made)| made.saturating_add(PERIOD).is_ok_and(|due| due <= now))
    }
}

/// When the last token of the key before this one has ended.
fn end_before(next: &AccountKey) -> Option<Timestamp> {
    let lasts = SignedDuration::try_from(LONGEST).unwrap_or(SignedDuration::MAX).saturating_add(MARGIN);
    next.signs_from.saturating_add(lasts).ok()
}

/// A key that signs from a time on, under the number behind `last`.
pub(super) fn make(last: i64, now: Timestamp, signs_from: Timestamp) -> Result<AccountKey, SigningError> {
    let key = SigningKey::generate()?;
    let id = SigningKey::read(&key)?.id().to_owned();
    Ok(AccountKey { number: last.saturating_add(1), id, made: now, signs_from, key })
}

/// What an issuer says of itself (OpenID Connect Discovery), as kube-apiserver does.
pub(super) fn configuration(issuer: &str) -> Bytes {
    let base = issuer.strip_suffix('/').unwrap_or(issuer);
    let said = json!({
        "issuer": issuer,
        "jwks_uri": format!("{base}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [SIGNED_BY],
    });
    Bytes::from(said.to_string())
}

/// A key that verifies tokens of service accounts, as it is listed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountKeyItem {
    /// The name that its tokens say, and by which it is published.
    pub id: String,
    /// When it was made.
    pub made: String,
    /// From when on it signs.
    pub signs_from: String,
    /// Whether it is the one that signs now.
    pub signs: bool,
    /// Until when it verifies; none for one that no other has superseded.
    pub verifies_until: Option<String>,
}

impl Authenticator {
    /// The keys that verify tokens of service accounts, the oldest first.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not. Where the database fails.
    pub async fn list_account_keys(&self, who: &Identity) -> Result<Vec<AccountKeyItem>, HubError> {
        authorize_path(who, "get", ACCOUNT_KEYS)?;
        let now = self.clock.now();
        let (stored, _) = self.store.account_keys().await?;
        let ring = Ring::new(&stored, now).map_err(|error| HubError::Internal(chain(&error)))?;
        let signer = ring.signer(now).map(SigningKey::id);
        let of_use = stored.iter().enumerate().filter(|(_, key)| key.number >= ring.first_of_use);
        Ok(of_use
            .map(|(at, key)| AccountKeyItem {
                id: key.id.clone(),
                made: key.made.to_string(),
                signs_from: key.signs_from.to_string(),
                signs: signer == Some(key.id.as_str()),
                verifies_until: stored.get(at + 1).and_then(end_before).map(|end| end.to_string()),
            })
            .collect())
    }

    /// Makes a new key, which signs tokens of service accounts from now on. The keys before it go on to verify until the last of their tokens
    /// has ended; with `end_old` they and all of their tokens end at once. Returns the name of the new key.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for those who may not, [`HubError::Conflict`] where another one was made at the same time,
    /// [`HubError::TooMany`] where there are as many as may.
    pub async fn rotate_account_keys(&self, who: &Identity, end_old: bool) -> Result<String, HubError> {
        authorize_path(who, "post", ACCOUNT_KEYS)?;
        let now = self.clock.now();
        let (stored, last) = self.store.account_keys().await?;
        if stored.len() >= MOST_KEYS && !end_old {
            return Err(HubError::TooMany(format!(
                "there are {} keys of service accounts' tokens already: end the old ones with it, or wait until they have no tokens",
                stored.len()
            )));
        }
        let key = make(last, now, now).map_err(|error| HubError::Internal(chain(&error)))?;
        let mut tx = self.store.begin().await?;
        if !tx.add_account_key(&key).await? {
            return Err(HubError::Conflict {
                what: "the keys of service accounts' tokens".to_owned(),
                why: "another key was made at this moment: look which there are, and try again".to_owned(),
            });
        }
        let old = match end_old {
            true => format!("{} keys before it ended at once", tx.drop_account_keys(key.number).await?),
            false => "the keys before it verify until their tokens have ended".to_owned(),
        };
        let kind = "AccountKey".to_owned();
        let (verb, name) = ("create".to_owned(), key.id.clone());
        tx.note(&AuditEntry { verb, kind, name, detail: old, ..audit::by(who) }).await?;
        tx.commit().await?;
        // Other replicas read the keys before each token that they sign, and ask of each that they take whether its key is still there.
        self.accounts.read_keys(now).await?;
        tracing::info!(key = key.id, end_old, "there is a new key for tokens of service accounts by request");
        Ok(key.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1_000_000 + hours)
    }

    #[test]
    fn a_key_is_known_before_it_signs_and_verifies_after_it_has_signed() {
        let first = make(0, at(0), at(0)).unwrap();
        let second = make(first.number, at(2160), at(2161)).unwrap();
        let (one, two) = (first.id.clone(), second.id.clone());
        let ring = |keys: &[AccountKey], hours| Ring::new(keys, at(hours)).unwrap();
        let signer = |ring: &Ring, hours| ring.signer(at(hours)).map(|key| key.id().to_owned());

        let none = ring(&[], 0);
        assert!(none.is_due(at(0)) && none.signer(at(0)).is_none());
        let only = [first];
        assert!(!ring(&only, 2159).is_due(at(2159)) && ring(&only, 2160).is_due(at(2160)));
        assert_eq!(signer(&ring(&only, 0), 0), Some(one.clone()));
        assert_eq!(signer(&ring(&only, -1), -1), Some(one.clone()), "also by a clock that is behind");

        let [first] = only;
        let both = [first, second];
        let early = ring(&both, 2160);
        assert!(early.verifying.has(&one) && early.verifying.has(&two) && !early.is_due(at(2160)));
        assert_eq!(signer(&early, 2160), Some(one.clone()));
        assert_eq!(signer(&early, 2161), Some(two.clone()));
        // A token of the first one's last hour lasts for a year and a day.
        let last = 2161 + 366 * 24;
        assert!(ring(&both, last).verifying.has(&one));
        let late = ring(&both, last + 25);
        assert!(!late.verifying.has(&one) && late.verifying.has(&two));
        assert_eq!(late.first_of_use, 2);
        let published: Value = serde_json::from_slice(&late.published).unwrap();
        assert_eq!(published["keys"].as_array().map(Vec::len), Some(1));
        assert_eq!(published["keys"][0].get("d"), None, "the private half");
    }

    #[test]
    fn an_issuer_says_where_its_keys_are() {
        for issuer in ["https://hub.test:7443", "https://hub.test/a/"] {
            let said: Value = serde_json::from_slice(&configuration(issuer)).unwrap();
            assert_eq!(said["issuer"], issuer);
            let keys = format!("{}/openid/v1/jwks", issuer.trim_end_matches('/'));
            assert_eq!(said["jwks_uri"], keys);
        }
    }
}
