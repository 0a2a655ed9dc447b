//! What happened while nothing was sent, in one message: at the end of a Silence, and in a Provider's digest.

use jiff::Timestamp;
use roadstead_api::KindId;

use crate::event::{Event, Involved, Level};
use crate::incident::lasting;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 16 << 10;
/// The reasons by which summaries are known.
const SILENCE_ENDED: &str = "SilenceEnded";
const DIGEST: &str = "Digest";

/// What is summed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SumOf {
    /// What a Silence kept back.
    Silence {
        /// Who wrote it, where it is still there.
        author: Option<String>,
        /// Why, where it is still there.
        reason: Option<String>,
    },
    /// What a Provider tells as a digest.
    Digest,
}

/// An object that still fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// As `Kustomization/apps/web`.
    pub object: String,
    /// The cluster that it is about.
    pub cluster: Option<String>,
    /// What it says, or the beginning of that.
    pub message: String,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Since when it was gathered.
    pub since: Timestamp,
    /// Failures.
    pub failed: u64,
    /// Objects that were well again.
    pub recovered: u64,
    /// Objects that count as over although nobody said that they are well.
    pub lapsed: u64,
    /// Differences from what was applied.
    pub drifted: u64,
    /// Other news.
    pub others: u64,
    /// Objects that still fail.
    pub failing: u64,
    /// Those of them that are named.
    pub named: Vec<Failing>,
}

impl Summary {
    /// The event that tells it: about the Silence or the Provider of this namespace and name.
    #[must_use]
    pub fn told(&self, of: &SumOf, namespace: &str, name: &str, now: Timestamp) -> Event {
        let (kind, reason) = match of {
            SumOf::Silence { .. } => (KindId::Silence, SILENCE_ENDED),
            SumOf::Digest => (KindId::Provider, DIGEST),
        };
        let mut message = format!("{}\n{}", self.head(of, name, now), self.counted());
        if self.failing > 0 {
            message.push_str("\nStill failing: ");
            message.push_str(&self.failing.to_string());
            for one in &self.named {
                let cluster =
                    one.cluster.as_ref().map(|cluster| format!(" on {cluster}")).unwrap_or_default();
                let says = one.message.trim().lines().next().unwrap_or_default();
                message.push_str(&format!("\n- {}{cluster}: {says}", one.object));
            }
            let more = self.failing.saturating_sub(u64::try_from(self.named.len()).unwrap_or(u64::MAX));
            if more > 0 {
                message.push_str(&format!("\n- and {more} more"));
            }
        }
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        Event {
            involved_object: Involved {
                api_version: kind.get().storage_version().api_version(),
                kind: kind.to_string(),
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                uid: String::new(),
                resource_version: String::new(),
            },
            severity: Level::Info,
            timestamp: now.to_string(),
            message,
            reason: reason.to_owned(),
            metadata: std::collections::BTreeMap::new(),
            reporting_controller: "roadstead-hub".to_owned(),
            reporting_instance: String::new(),
            relayed_from: None,
            statuses_and_comments: false,
            incident: None,
            rollout: None,
        }
    }

    fn head(&self, of: &SumOf, name: &str, now: Timestamp) -> String {
        let lasted = lasting(now.duration_since(self.since));
        match of {
            SumOf::Silence { author, reason } => {
                let author = author.as_ref().map(|author| format!(" by {author}")).unwrap_or_default();
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                format!("Silence '{name}'{author} is over{reason}")
            }
            SumOf::Digest if self.is_quiet() => "Nothing new since the last digest".to_owned(),
            SumOf::Digest => format!("What happened in the last {lasted}"),
        }
    }

    fn is_quiet(&self) -> bool {
        self.failed + self.recovered + self.lapsed + self.drifted + self.others == 0
    }

    fn counted(&self) -> String {
        let many = |count: u64, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        };
        let counts = [
            many(self.failed, "failure", "failures"),
            many(self.recovered, "recovery", "recoveries"),
            // It is not known of them that they are well.
            many(
                self.lapsed,
                "object deleted, suspended or without news",
                "objects deleted, suspended or without news",
            ),
            many(self.drifted, "drift", "drifts"),
            many(self.others, "other event", "other events"),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        if counts.is_empty() { "No events".to_owned() } else { counts.join(", ") }
    }
}

impl Event {
    /// Whether it tells what happened while nothing was sent.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        (self.involved_object.kind == KindId::Silence.get().kind && self.reason == SILENCE_ENDED)
            || (self.involved_object.kind == KindId::Provider.get().kind && self.reason == DIGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            since: "2026-11-27T08:00:00Z".parse().unwrap(),
            failed: 12,
            recovered: 1,
            lapsed: 0,
            drifted: 0,
            others: 30,
            failing: 25,
            named: vec![
                Failing {
                    object: "Kustomization/apps/web".to_owned(),
                    cluster: Some("edge-1".to_owned()),
                    message: "build failed\nmore".to_owned(),
                },
                Failing {
                    object: "GitRepository/apps/web".to_owned(),
                    cluster: None,
                    message: "refused".to_owned(),
                },
            ],
        }
    }

    fn told(summary: &Summary, of: &SumOf) -> String {
        let now = "2026-11-28T08:00:00Z".parse().unwrap();
        let event = summary.told(of, "apps", "one", now);
        assert!(event.is_summary() && !event.is_error() && event.message.len() <= MAX_MESSAGE);
        event.message
    }

    #[test]
    fn a_digest_counts_what_happened_and_names_who_still_fails() {
        assert_eq!(
            told(&summary(), &SumOf::Digest),
            "What happened in the last 1d\n12 failures, 1 recovery, 30 other events\nStill failing: 25\n\
             - Kustomization/apps/web on edge-1: build failed\n- GitRepository/apps/web: refused\n- and 23 more"
        );
        let quiet = Summary { failed: 0, recovered: 0, others: 0, failing: 1, ..summary() };
        let lapsed = Summary { lapsed: 2, ..quiet.clone() };
        let lapsed = told(&lapsed, &SumOf::Digest);
        assert!(lapsed.contains("\n2 objects deleted, suspended or without news\n"), "{lapsed}");
        let quiet = told(&quiet, &SumOf::Digest);
        assert!(
            quiet.starts_with("Nothing new since the last digest\nNo events\nStill failing: 1\n"),
            "{quiet}"
        );
    }

    #[test]
    fn the_end_of_a_silence_says_whose_it_was_and_why() {
        let of = SumOf::Silence {
            author: Some("alice".to_owned()),
            reason: Some("the database moves".to_owned()),
        };
        let well = Summary { failing: 0, named: Vec::new(), ..summary() };
        assert_eq!(
            told(&well, &of),
            "Silence 'one' by alice is over: the database moves\n12 failures, 1 recovery, 30 other events"
        );
        let gone = SumOf::Silence { author: None, reason: None };
        assert!(told(&well, &gone).starts_with("Silence 'one' is over\n"));
    }

    #[test]
    fn names_and_messages_have_an_end() {
        let one = Failing { object: "ö".repeat(300), cluster: None, message: "ö".repeat(3_000) };
        told(&Summary { named: vec![one; 20], ..summary() }, &SumOf::Digest);
    }
}
