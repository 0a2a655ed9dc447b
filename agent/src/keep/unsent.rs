//! Corrections that the hub was not told of, kept while it is away: the agent may be started again before it is back.
//!
//! They are an entry of the Secret that has the marks of what was taken back, which agents of earlier versions pass over. While a hub listens,
//! nothing is written, but that what was kept goes once the hub has taken it in.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roadstead_model::{Action, DispatchKey, FieldDrift, ObjectRef, chain};
use roadstead_proto::{Corrected, Correction};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Keep, NO_ANSWER, PATIENCE, PAUSE, withdrawn};
use crate::outbox::{Outbox, Version};

/// The entry's key.
pub(super) const ENTRY: &str = "corrections";

/// How many bytes the entry has. The marks beside it have as many, and an apiserver takes 1 MiB of a Secret.
const MOST: usize = 400 * 1024;

/// How many bytes of JSON are read: more than what an outbox has room for.
const MOST_JSON: u64 = 16 * 1024 * 1024;

/// What of it is kept, and what was found.
#[derive(Default)]
pub(super) struct Unsent {
    /// As it was found.
    pub(super) found: Vec<u8>,
    /// What the Secret has, as far as is known.
    kept: Option<Version>,
    /// After a write that failed.
    not_before: Option<Instant>,
}

/// A correction as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    key: DispatchKey,
    /// When it began, in milliseconds since 1970.
    at: u64,
    micros: u64,
    objects: Vec<KeptObject>,
    #[serde(default, skip_serializing_if = "is_zero")]
    forgotten: u64,
}

#[derive(Serialize, Deserialize)]
struct KeptObject {
    object: ObjectRef,
    action: Action,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    managers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<FieldDrift>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Keep {
    /// Goes on with the corrections that were kept by the agent before this one. To be called once what is kept [was read](Keep::read).
    pub(crate) fn resume_corrections(&self, outbox: &Outbox) {
        let found = std::mem::take(&mut self.state().unsent.found);
        if found.is_empty() {
            return;
        }
        // What cannot be read goes as well, once there is nothing to be kept.
        let corrections = decode(&found, since_1970()).unwrap_or_default();
        tracing::info!(
            corrections = corrections.len(),
            "going on with corrections that the hub was not told of"
        );
        outbox.resume_corrections(corrections);
        self.state().unsent.kept = Some(outbox.corrections_waiting().0.unwrap_or_default());
    }

    /// Keeps corrections while no hub listens, for as long as it runs.
    pub(crate) async fn keep_corrections(&self, outbox: &Outbox) {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.keep_corrections_now(outbox).await;
        }
    }

    /// Keeps the corrections that wait to be told, where no hub listens; and nothing any more where the hub has taken all in.
    pub(crate) async fn keep_corrections_now(&self, outbox: &Outbox) {
        let Some(home) = &self.home else { return };
        let (waiting, is_heard) = outbox.corrections_waiting();
        {
            let state = self.state();
            let is_news = waiting != state.unsent.kept && !(is_heard && waiting.is_some());
            let is_early = state.unsent.not_before.is_some_and(|until| Instant::now() < until);
            if !is_news || is_early || state.is_off || !*self.is_read.borrow() {
                return;
            }
        }
        let bytes = match waiting {
            None => None,
            Some(_) => {
                let corrections = outbox.corrections();
                let encoded = tokio::task::spawn_blocking(move || encode(corrections, since_1970())).await;
                // What cannot be kept is not tried again before there is something else.
                encoded.ok().flatten()
            }
        };
        let changes = BTreeMap::from([(ENTRY.to_owned(), bytes.as_deref())]);
        let written = tokio::time::timeout(PATIENCE, home.keep_in_secret(withdrawn::SLOT, &changes)).await;
        let failed = match written {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error)),
            Err(_) => Some(NO_ANSWER.to_owned()),
        };
        let mut state = self.state();
        match failed {
            None => state.unsent.kept = waiting,
            Some(why) => {
                tracing::warn!(
                    why,
                    "corrections that the hub was not told of could not be kept in the cluster"
                );
                state.unsent.not_before = Some(Instant::now() + super::RETRY);
            }
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// As bytes, without the oldest of very many, which are counted.
fn encode(corrections: Vec<Correction>, now: Duration) -> Option<Vec<u8>> {
    let mut kept: Vec<Kept> = corrections.into_iter().map(|correction| Kept::of(correction, now)).collect();
    loop {
        // Never all of it as JSON: it may be megabytes.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        serde_json::to_writer(&mut encoder, &kept).ok()?;
        let bytes = encoder.finish().ok()?;
        if bytes.len() <= MOST {
            return Some(bytes);
        }
        let forgotten: u64 = kept.drain(..kept.len().div_ceil(2)).map(|one| 1 + one.forgotten).sum();
        kept.first_mut()?.forgotten += forgotten;
    }
}

fn decode(bytes: &[u8], now: Duration) -> Option<Vec<Correction>> {
    let json = BufReader::new(GzDecoder::new(bytes).take(MOST_JSON));
    let kept: Vec<Kept> = serde_json::from_reader(json).ok()?;
    Some(kept.into_iter().map(|kept| kept.correction(now)).collect())
}

impl Kept {
    fn of(correction: Correction, now: Duration) -> Self {
        let Correction { key, ago, took, objects, forgotten } = correction;
        let object = |corrected| {
            let Corrected { object, action, managers, fields } = corrected;
            KeptObject { object, action, managers, fields }
        };
        Self {
            key,
            at: u64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(u64::MAX),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            objects: objects.into_iter().map(object).collect(),
            forgotten,
        }
    }

    fn correction(self, now: Duration) -> Correction {
        let Self { key, at, micros, objects, forgotten } = self;
        let object = |kept| {
            let KeptObject { object, action, managers, fields } = kept;
            Corrected { object, action, managers, fields }
        };
        Correction {
            key,
            // A clock that was put back makes it a matter of this moment.
            ago: now.saturating_sub(Duration::from_millis(at)),
            took: Duration::from_micros(micros),
            objects: objects.into_iter().map(object).collect(),
            forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_model::{ApplierUid, Attempt, FieldValues, Generation, HubEpoch};
    use uuid::Uuid;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn correction(number: u128, text: &str) -> Correction {
        let object = ObjectRef {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "team".to_owned(),
            name: format!("web-{number}"),
        };
        let values = FieldValues { live: Some(text.to_owned()), ..FieldValues::default() };
        let fields = vec![FieldDrift { path: "/spec/replicas".to_owned(), values: Some(values) }];
        let managers = vec!["kubectl-edit".to_owned()];
        let key = DispatchKey {
            epoch: HubEpoch(1),
            applier: ApplierUid(Uuid::from_u128(number)),
            generation: Generation(2),
            attempt: Attempt(3),
            digest: None,
        };
        Correction {
            key,
            ago: Duration::from_secs(60),
            took: Duration::from_micros(1_500),
            objects: vec![Corrected { object, action: Action::Configured, managers, fields }],
            forgotten: 0,
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_is_older_by_then() {
        let all = vec![correction(1, "2"), Correction { forgotten: 7, ..correction(2, "3") }];
        let bytes = encode(all.clone(), NOW).unwrap();
        let later = decode(&bytes, NOW + Duration::from_secs(30)).unwrap();
        let older = |one: Correction| Correction { ago: Duration::from_secs(90), ..one };
        assert_eq!(later, all.clone().into_iter().map(older).collect::<Vec<_>>());
        // A clock that was put back.
        assert_eq!(decode(&bytes, Duration::ZERO).unwrap()[0].ago, Duration::ZERO);
        for broken in [&bytes[..bytes.len() / 2], b"", b"no archive"] {
            assert_eq!(decode(broken, NOW), None);
        }
    }

    #[test]
    fn the_oldest_of_very_many_are_counted() {
        // Texts that do not become shorter.
        let text = |number: u128| -> String {
            let hex =
                |part: u128| roadstead_model::Digest::of(&(number * 100 + part).to_le_bytes()).to_string();
            (0..100).map(hex).collect()
        };
        let all: Vec<Correction> = (0..500).map(|number| correction(number, &text(number))).collect();
        let kept = decode(&encode(all, NOW).unwrap(), NOW).unwrap();
        assert!(!kept.is_empty() && kept.len() < 500, "{}", kept.len());
        assert_eq!(kept.last().unwrap().objects[0].object.name, "web-499");
        let lost = 500 - u64::try_from(kept.len()).unwrap();
        assert_eq!(kept.iter().map(|one| one.forgotten).collect::<Vec<_>>()[0], lost);
    }
}
