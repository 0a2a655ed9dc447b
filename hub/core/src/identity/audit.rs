//! The audit log: what goes into it beside changes of objects, and how it is read and checked.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{AuditCheck, AuditRecord, Store};
use roadstead_model::{AuditEntry, AuditFilter, AuditOutcome};
use serde::Serialize;

use crate::HubError;
use crate::address::Address;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::{Attributes, Identity};

/// How often what was refused is written: it waits in memory for so long.
pub const REFUSALS_PERIOD: Duration = Duration::from_secs(5);
/// Different refusals that are told apart between two writes. What comes beyond is counted only, so that whoever is refused
/// all the time fills neither the memory nor the log.
const TOLD_APART: usize = 64;
/// Of these, one user's: whoever is refused chooses what he is refused, and hides nobody else by that.
const OF_ONE_USER: usize = 8;
/// Bytes of a text that somebody else made up.
const MAX_TEXT: usize = 256;
/// Entries of a page at most.
const MAX_PAGE: i64 = 1_000;

/// What was refused since it was written down last, and how often.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// By user, verb, kind, name and why.
    known: BTreeMap<[String; 5], (AuditEntry, u64)>,
    /// By user: what is beyond what is told apart of one.
    more: BTreeMap<String, u64>,
    others: u64,
}

impl Refusals {
    fn count(&self, mut entry: AuditEntry) {
        entry.outcome = AuditOutcome::Refused;
        for text in
            [&mut entry.username, &mut entry.verb, &mut entry.kind, &mut entry.name, &mut entry.detail]
        {
            shorten(text);
        }
        let key = [&entry.username, &entry.verb, &entry.kind, &entry.name, &entry.detail].map(Clone::clone);
        // A panic while it is held leaves the counts whole.
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = &mut *counted;
        let of_user = counted.known.keys().filter(|known| known[0] == key[0]).count();
        let is_full = counted.known.len() >= TOLD_APART || of_user >= OF_ONE_USER;
        match counted.known.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().1 += 1,
            Entry::Vacant(place) if !is_full => drop(place.insert((entry, 1))),
            Entry::Vacant(_) => {
                let has_room = counted.more.len() < TOLD_APART;
                match counted.more.entry(entry.username) {
                    Entry::Occupied(mut more) => *more.get_mut() += 1,
                    Entry::Vacant(place) if has_room => drop(place.insert(1)),
                    Entry::Vacant(_) => counted.others += 1,
                }
            }
        }
    }

    fn take(&self) -> Vec<AuditEntry> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut entries: Vec<AuditEntry> = counted
            .known
            .into_values()
            .map(|(mut entry, times)| {
                if times > 1 {
                    let space = if entry.detail.is_empty() { "" } else { " " };
                    entry.detail.push_str(&format!("{space}({times} times)"));
                }
                entry
            })
            .collect();
        entries.extend(counted.more.into_iter().map(|(username, times)| AuditEntry {
            outcome: AuditOutcome::Refused,
            username,
            detail: format!("{times} more requests were refused, too many to be recorded one by one"),
            ..AuditEntry::default()
        }));
        if counted.others > 0 {
            entries.push(AuditEntry {
                outcome: AuditOutcome::Refused,
                detail: format!(
                    "{} more requests were refused, too many to be recorded one by one",
                    counted.others
                ),
                ..AuditEntry::default()
            });
        }
        entries
    }
}

fn shorten(text: &mut String) {
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    // Postgres takes no NUL.
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}

/// An entry as it is exported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditItem {
    /// Its number.
    pub id: i64,
    /// When it was written.
    pub at: String,
    /// Who.
    pub user: String,
    /// What.
    pub verb: String,
    /// API group of what it was about.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `ok` or `refused`.
    pub outcome: &'static str,
    /// What else is to be known.
    pub detail: String,
    /// The batch in which it is sealed, if it is yet; 0 for what is from before the log was sealed.
    pub batch: Option<i64>,
    /// Whether it is what a hub with this key wrote.
    pub signed: bool,
}

impl From<AuditRecord> for AuditItem {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id, at, entry, batch, signed } = record;
        Self {
            id,
            at: at.to_string(),
            user: entry.username,
            verb: entry.verb,
            group: entry.group,
            kind: entry.kind,
            namespace: entry.namespace,
            name: entry.name,
            outcome: entry.outcome.as_str(),
            detail: entry.detail,
            batch,
            signed,
        }
    }
}

/// What a check of the whole log found, as it is told.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Nothing is wrong.
    pub sound: bool,
    /// Batches that are there.
    pub batches: i64,
    /// The newest of them.
    pub newest_batch: i64,
    /// Entries in them.
    pub entries: i64,
    /// Entries that are in no batch yet.
    pub pending: i64,
    /// Entries from before the log was sealed.
    pub unsealed: i64,
    /// What is wrong, the first few.
    pub problems: Vec<String>,
}

/// The audit log.
pub struct AuditLog {
    store: Store,
    clock: Arc<dyn Clock>,
    /// How long entries are kept; none for ever.
    retention: Option<Duration>,
    refusals: Refusals,
    /// The newest batch that this process has seen.
    newest_batch: AtomicI64,
}

impl AuditLog {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            retention: context.options.audit_retention,
            refusals: Refusals::default(),
            newest_batch: AtomicI64::default(),
        }
    }

    /// Counts something that was refused; it is in the log a few seconds later.
    pub fn note_refusal(&self, entry: AuditEntry) {
        self.refusals.count(entry);
    }

    /// Writes down what was refused since the last time.
    ///
    /// # Errors
    /// Where the database fails: then it is lost.
    pub async fn write_refusals(&self) -> Result<(), HubError> {
        let entries = self.refusals.take();
        if !entries.is_empty() {
            self.store.note(&entries).await?;
        }
        Ok(())
    }

    /// Writes down that somebody reads what is secret, before it is given out. Of other kinds reads are not noted, nor are the
    /// hub's own.
    pub(crate) async fn note_read(
        &self,
        who: &Identity,
        verb: &str,
        address: &Address,
    ) -> Result<(), HubError> {
        if address.kind != KindId::Secret || *who == Identity::hub() {
            return Ok(());
        }
        let entry = about(who, verb, address.kind, &address.namespace, &address.name);
        Ok(self.store.note(&[entry]).await?)
    }

    /// Seals what came into the log, and drops what is too old to be kept.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tend(&self) -> Result<(), HubError> {
        if let Some(newest) = self.store.seal_audit(self.clock.now()).await? {
            let known = self.newest_batch.fetch_max(newest, Ordering::Relaxed);
            if known > newest {
                tracing::error!(
                    known,
                    newest,
                    "the audit log's newest batches are gone: they were removed from the database, or a backup was restored"
                );
                self.newest_batch.store(newest, Ordering::Relaxed);
            }
        }
        if let Some(kept) = self.retention {
            self.store.trim_audit(self.clock.now() - kept).await?;
        }
        Ok(())
    }

    /// A page of the audit log, the oldest first, and the number behind which the next one begins.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for all but the masters.
    pub async fn entries(
        &self,
        who: &Identity,
        filter: &AuditFilter,
        limit: i64,
    ) -> Result<(Vec<AuditItem>, Option<i64>), HubError> {
        authorize_path(who, "get", "/fleet/v1/audit")?;
        let limit = limit.clamp(1, MAX_PAGE);
        let mut records = self.store.audit_log(filter, limit + 1).await?;
        let full = records.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        if full {
            records.pop();
        }
        let next = records.last().map(|last| last.id).filter(|_| full);
        Ok((records.into_iter().map(AuditItem::from).collect(), next))
    }

    /// Checks the whole audit log.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for all but the masters.
    pub async fn check(&self, who: &Identity) -> Result<AuditReport, HubError> {
        authorize_path(who, "get", "/fleet/v1/audit/check")?;
        let AuditCheck { batches, newest, entries, pending, unsealed, mut problems } =
            self.store.check_audit().await?;
        let known = self.newest_batch.load(Ordering::Relaxed);
        if known > newest {
            problems.push(format!("batches {} to {known} were stored and are missing", newest + 1));
        }
        let sound = problems.is_empty();
        Ok(AuditReport { sound, batches, newest_batch: newest, entries, pending, unsealed, problems })
    }
}

/// An entry about an object.
pub(crate) fn about(who: &Identity, verb: &str, kind: KindId, namespace: &str, name: &str) -> AuditEntry {
    AuditEntry {
        username: who.recorded().into_owned(),
        verb: verb.to_owned(),
        group: kind.get().group().to_owned(),
        kind: kind.get().kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..AuditEntry::default()
    }
}

/// What has a path and is about no stored object: for those who run the hub, and whom a ClusterRole gives the path.
pub(crate) fn authorize_path(who: &Identity, verb: &str, path: &str) -> Result<(), HubError> {
    if who.may(&Attributes::Path { verb, path }) {
        return Ok(());
    }
    Err(HubError::Forbidden(format!("User \"{}\" cannot {verb} path \"{path}\"", who.username)))
}

/// A time in a query.
///
/// # Errors
/// [`HubError::BadRequest`] where it is none.
pub fn query_time(field: &str, text: &str) -> Result<Option<Timestamp>, HubError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        HubError::BadRequest(format!("{field}: {text:?}: want a time such as 2026-01-02T03:04:05Z"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(user: &str, detail: &str) -> AuditEntry {
        AuditEntry { username: user.to_owned(), detail: detail.to_owned(), ..AuditEntry::default() }
    }

    #[test]
    fn a_flood_of_refusals_is_counted_and_takes_no_room() {
        let refusals = Refusals::default();
        for _ in 0..1_000 {
            refusals.count(refusal("mallory", "login"));
        }
        for user in 0..100_000 {
            refusals.count(refusal(&format!("user-{user}"), &"x".repeat(10_000)));
        }
        let entries = refusals.take();
        assert_eq!(entries.len(), 2 * TOLD_APART + 1);
        assert!(entries.iter().all(|entry| entry.outcome == AuditOutcome::Refused));
        assert!(entries.iter().all(|entry| entry.detail.len() < MAX_TEXT + 64));
        assert!(entries.iter().any(|entry| entry.detail == "login (1000 times)"));
        let others = 100_000 - (TOLD_APART - 1) - TOLD_APART;
        assert!(entries[2 * TOLD_APART].detail.starts_with(&format!("{others} more")), "{entries:?}");
        assert!(refusals.take().is_empty());
    }

    #[test]
    fn one_user_who_makes_up_paths_hides_no_other() {
        let refusals = Refusals::default();
        for path in 0..10_000 {
            refusals.count(AuditEntry { name: format!("/{path}"), ..refusal("mallory", "") });
        }
        refusals.count(refusal("alice", "no"));
        let entries = refusals.take();
        assert!(entries.iter().any(|entry| entry.username == "alice" && entry.detail == "no"), "{entries:?}");
        let of_mallory: Vec<_> = entries.iter().filter(|entry| entry.username == "mallory").collect();
        assert_eq!(of_mallory.len(), OF_ONE_USER + 1);
        let rest = format!("{} more", 10_000 - OF_ONE_USER);
        assert!(of_mallory.iter().any(|entry| entry.detail.starts_with(&rest)), "{of_mallory:?}");
    }

    #[test]
    fn what_anonymous_clients_write_is_cut_at_a_character() {
        let mut text = "ä".repeat(MAX_TEXT);
        shorten(&mut text);
        assert!(text.len() <= MAX_TEXT + '…'.len_utf8() && text.ends_with('…'));
        let mut text = "a\0b".to_owned();
        shorten(&mut text);
        assert_eq!(text, "a\u{fffd}b");
    }
}
