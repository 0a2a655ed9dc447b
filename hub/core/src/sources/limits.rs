//! Rate limits of servers: where one says that it takes no more requests for a while, all sources that use the same credentials there wait.
//!
//! Limits of the GitHub API are kept beside the tokens of Apps (`crates/github-app`): they hold up nobody who needs none of it.
//!
//! Kept by each replica for itself, and in memory: another one, or this one after a restart, sends one request more and is told the same.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Condition, ConditionStatus, SourceSpec};
use roadstead_hub_plan::has_happened;
use roadstead_hub_store::Stored;
use roadstead_model::Reason;

use crate::objects::conditions::{self, READY};
use crate::sources::outdated::Known;
use crate::sources::{Sources, failed, pass};

/// True while the source's server takes no requests. The artifact stays what it was, and so does Ready.
pub(crate) const RATE_LIMITED: &str = "RateLimited";

/// Servers that are remembered, each in less than a kilobyte.
const MOST: usize = 1_000;
/// Sources that waited for one server are fetched spread over this time, and not all at once.
const SPREAD: Duration = Duration::from_secs(5);

/// A server, and the Secret with the credentials that are sent to it, where any are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Account {
    server: String,
    secret: Option<(String, String)>,
}

impl Account {
    fn of(source: &Stored, spec: &SourceSpec) -> Option<Self> {
        let server = pass::authority(&spec.url)?.to_string();
        let secret = spec.secret_ref.as_ref().map(|secret| (source.namespace.clone(), secret.name.clone()));
        Some(Self { server, secret })
    }
}

/// Until when a server takes no requests, and when that was noted.
#[derive(Debug, Clone, Copy)]
struct Limit {
    until: Timestamp,
    noted: Timestamp,
}

impl Limit {
    /// Not where the clock was put back since: nobody knows then how long it is.
    fn holds(&self, now: Timestamp) -> bool {
        self.until > now && has_happened(self.noted, now)
    }
}

/// Until when servers take no requests, by account.
#[derive(Debug, Default)]
pub(crate) struct Limits(Mutex<HashMap<Account, Limit>>);

impl Limits {
    fn lock(&self) -> MutexGuard<'_, HashMap<Account, Limit>> {
        // Whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when nothing is requested for a source; none where it may be fetched.
    pub(super) fn until(&self, source: &Stored, spec: &SourceSpec, now: Timestamp) -> Option<Timestamp> {
        let account = Account::of(source, spec)?;
        let limit = self.lock().get(&account).copied();
        limit.filter(|limit| limit.holds(now)).map(|limit| limit.until)
    }

    /// The server of a source takes no requests until then.
    pub(super) fn note(&self, source: &Stored, spec: &SourceSpec, until: Timestamp, now: Timestamp) {
        let Some(account) = Account::of(source, spec) else { return };
        let mut limits = self.lock();
        if limits.len() >= MOST {
            limits.retain(|_, limit| limit.holds(now));
        }
        if limits.len() < MOST || limits.contains_key(&account) {
            let known = limits.get(&account).filter(|limit| limit.holds(now));
            let until = known.map_or(until, |limit| limit.until.max(until));
            limits.insert(account, Limit { until, noted: now });
        }
    }
}

/// Who takes no requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limiter {
    /// The source's server.
    Server,
    /// The API that gives out what to log in with, which is apart from all sources' servers.
    Api,
}

/// When a source is fetched that waits until then.
pub(super) fn again(source: &Stored, until: Timestamp) -> Timestamp {
    let spread = u64::try_from(SPREAD.as_millis()).unwrap_or(u64::MAX);
    let own = u64::try_from(source.uid.0.as_u128() % u128::from(spread)).unwrap_or_default();
    until + Duration::from_millis(own)
}

impl Sources {
    /// Says until when a source waits. What was fetched stays, and Ready with it; what has no artifact yet is not Ready.
    pub(super) async fn note_limit(
        &self,
        source: &Stored,
        whose: Limiter,
        (until, now): (Timestamp, Timestamp),
        known: &Known,
    ) -> Result<(), crate::HubError> {
        let until = until.strftime("%Y-%m-%dT%H:%M:%SZ");
        let whose = match whose {
            Limiter::Server => "its server",
            Limiter::Api => "the API of its GitHub App",
        };
        let message = format!("{whose} takes no more requests before {until}; it is fetched again then");
        let reason = Reason::RateLimited;
        let otherwise = failed(source.kind);
        self.write_any_status(source, |status, generation| {
            known.write(status, generation, now);
            let status = &mut status.source;
            let is_new = status.artifact.is_none();
            let mut set = |type_, verdict, reason| {
                conditions::set(&mut status.conditions, type_, verdict, reason, &message, generation, now);
            };
            set(RATE_LIMITED, ConditionStatus::True, reason);
            if is_new {
                set(READY, ConditionStatus::False, otherwise);
            }
        })
        .await?;
        Ok(())
    }
}

/// The server has answered a request.
pub(super) fn is_over(conditions: &mut Vec<Condition>) {
    conditions.retain(|condition| condition.type_ != RATE_LIMITED);
}

#[cfg(test)]
mod tests {
    use roadstead_api::KindId;
    use serde_json::json;

    use super::*;

    #[test]
    fn who_uses_the_same_secret_at_the_same_server_waits() {
        let now = Timestamp::UNIX_EPOCH;
        let source = |namespace: &str, url: &str, secret: Option<&str>| {
            let spec: SourceSpec = serde_json::from_value(json!({
                "url": url, "interval": "1m", "secretRef": secret.map(|name| json!({ "name": name })),
            }))
            .unwrap();
            (Stored::new(KindId::GitRepository, namespace, "app", now, json!({})), spec)
        };
        let limits = Limits::default();
        let (limited, spec) = source("team-a", "https://git.test/a", Some("token"));
        limits.note(&limited, &spec, now + Duration::from_secs(60), now);
        // What is shorter changes nothing.
        limits.note(&limited, &spec, now + Duration::from_secs(5), now);
        let waits = |namespace: &str, url: &str, secret: Option<&str>, seconds: u64| {
            let (source, spec) = source(namespace, url, secret);
            limits.until(&source, &spec, now + Duration::from_secs(seconds)).is_some()
        };
        assert!(waits("team-a", "https://git.test/a", Some("token"), 0));
        assert!(waits("team-a", "https://git.test:443/b", Some("token"), 59));
        for (namespace, url, secret, seconds) in [
            ("team-a", "https://git.test/a", Some("token"), 60),
            ("team-a", "https://git.test/a", Some("other"), 0),
            ("team-a", "https://git.test/a", None, 0),
            ("team-b", "https://git.test/a", Some("token"), 0),
            ("team-a", "https://other.test/a", Some("token"), 0),
            ("team-a", "https://git.test:8443/a", Some("token"), 0),
        ] {
            assert!(!waits(namespace, url, secret, seconds), "{namespace} {url} {secret:?} {seconds}");
        }
        // A clock that was put back holds nothing up.
        limits.note(&limited, &spec, now + Duration::from_secs(3_660), now + Duration::from_secs(3_600));
        assert!(!waits("team-a", "https://git.test/a", Some("token"), 0));
        assert!(waits("team-a", "https://git.test/a", Some("token"), 3_600));
        let until = now + Duration::from_secs(60);
        assert!((until..until + SPREAD).contains(&again(&limited, until)));
    }
}
