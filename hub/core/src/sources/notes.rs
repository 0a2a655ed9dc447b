//! What a source's conditions say beside whether it is Ready: that its address is tolerated for a while only, and that its
//! spec asks for more than a source may have.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{Condition, ConditionStatus, SourceSpec};
use roadstead_model::{Reason, chain};
use roadstead_outbound::{Authority, ConnectError, Purpose, Refusal};
use roadstead_sources::Note;
use url::Url;

use crate::HubError;
use crate::objects::conditions;
use crate::sources::Sources;

/// The longest a source may take: whoever wants longer waits in vain, and holds a place that others want.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// False where the hub's policy does not allow the address that a source is fetched from, and it is fetched all the same
/// for a while.
const ADDRESS_ALLOWED: &str = "AddressAllowed";
/// True where `spec.timeout` is longer than a source may take.
const TIMEOUT_CAPPED: &str = "TimeoutCapped";
/// Sources that one line of the log names.
const MOST_NAMED: usize = 200;

/// Notes that an event has.
const MOST_TOLD: usize = 10;

/// What of a source is not in its new artifact; none where all of it is.
pub(super) fn left_out(notes: &[Note]) -> Option<String> {
    let is_told = |note: &&Note| !matches!(note, Note::CredentialsInTheClear | Note::Unproven { .. });
    let told: Vec<String> = notes.iter().filter(is_told).map(ToString::to_string).collect();
    let (first, more) = told.split_at(told.len().min(MOST_TOLD));
    let more = (!more.is_empty()).then(|| format!("and {} more", more.len()));
    (!told.is_empty()).then(|| first.iter().cloned().chain(more).collect::<Vec<_>>().join("\n"))
}

/// How long one fetch of a source may take.
pub(crate) fn timeout(spec: &SourceSpec) -> Duration {
    spec.timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.0).min(LONGEST_TIMEOUT)
}

/// Sets the conditions, or takes them away. `tolerated` is an address that was connected to although it is not allowed,
/// and until when that is so.
pub(crate) fn note(
    conditions: &mut Vec<Condition>,
    spec: &SourceSpec,
    tolerated: Option<&(Refusal, Timestamp)>,
    generation: i64,
    now: Timestamp,
) {
    match tolerated {
        Some((refusal, until)) => {
            let until = until.strftime("%Y-%m-%dT%H:%M:%SZ");
            let message = format!(
                "fetched only until {until}, because it was already fetched before the hub checked addresses: {refusal}"
            );
            let reason = Reason::AddressNotAllowed;
            conditions::set(
                conditions,
                ADDRESS_ALLOWED,
                ConditionStatus::False,
                reason,
                &message,
                generation,
                now,
            );
        }
        None => conditions.retain(|condition| condition.type_ != ADDRESS_ALLOWED),
    }
    note_timeout(conditions, spec, generation, now);
}

/// Whether the spec asks for longer than a fetch may take.
pub(crate) fn is_capped(spec: &SourceSpec) -> bool {
    spec.timeout.is_some_and(|timeout| timeout.0 > LONGEST_TIMEOUT)
}

/// Says so, or takes back that it is so.
pub(crate) fn note_timeout(
    conditions: &mut Vec<Condition>,
    spec: &SourceSpec,
    generation: i64,
    now: Timestamp,
) {
    let Some(asked) = spec.timeout.filter(|_| is_capped(spec)) else {
        conditions.retain(|condition| condition.type_ != TIMEOUT_CAPPED);
        return;
    };
    let message = format!("spec.timeout is {asked}; a fetch may take 10m at most, and is ended after that");
    let reason = Reason::TimeoutCapped;
    conditions::set(conditions, TIMEOUT_CAPPED, ConditionStatus::True, reason, &message, generation, now);
}

impl Sources {
    /// Says in one line of the log which sources go on only because they were there before addresses were checked.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tell_of_tolerated_sources(&self) -> Result<(), HubError> {
        let guard = self.options.outbound.guard(Purpose::Git);
        let mut sources = Vec::new();
        let mut until = None;
        for grace in self.store.source_graces(self.clock.now()).await? {
            let Some(to) = Url::parse(&grace.url).ok().as_ref().and_then(Authority::of_url) else { continue };
            match guard.check(&to).await {
                Ok(()) => continue,
                Err(ConnectError::Refused(refusal)) => {
                    let entry = refusal.entry.unwrap_or_default();
                    sources.push(format!("{}/{} (--allow-network git={entry})", grace.namespace, grace.name));
                }
                Err(error) => {
                    tracing::debug!(url = %to, error = chain(&error), "could not determine a source's address");
                }
            }
            until = until.max(Some(grace.until));
            if sources.len() == MOST_NAMED {
                sources.push("…".to_owned());
                break;
            }
        }
        if let (false, Some(until)) = (sources.is_empty(), until) {
            tracing::warn!(
                until = %until,
                sources = sources.join(", "),
                "these sources are at addresses that are not allowed; they are fetched only until then, because they were \
                 already fetched before the hub checked addresses"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(timeout: &str) -> SourceSpec {
        serde_json::from_value(serde_json::json!({
            "url": "https://git.example/a", "interval": "1m", "timeout": timeout,
        }))
        .expect("a spec")
    }

    #[test]
    fn a_fetch_takes_ten_minutes_at_most_and_the_source_says_so() {
        let now = Timestamp::UNIX_EPOCH;
        let mut conditions = Vec::new();
        for (asked, taken, said) in
            [("20s", 20, false), ("10m", 600, false), ("24h", 600, true), ("30s", 30, false)]
        {
            let spec = spec(asked);
            assert_eq!(timeout(&spec), Duration::from_secs(taken), "{asked}");
            note(&mut conditions, &spec, None, 1, now);
            assert_eq!(conditions::is_true(&conditions, TIMEOUT_CAPPED, 1), said, "{asked}");
            assert_eq!(conditions.len(), usize::from(said));
        }
    }
}
