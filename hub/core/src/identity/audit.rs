//! The audit log: what goes into it beside changes of objects, and how it is read and checked.

mod allowance;
mod heads;
mod impersonated;
mod item;
mod refusals;
mod repeats;
mod stream;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use roadstead_api::KindId;
use roadstead_hub_store::{AuditCheck, SeenBatch, Store};
use roadstead_model::{AuditEntry, AuditFilter};
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::address::Address;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::{Attributes, Identity};
use crate::meters::{Meters, StreamKind};

use allowance::Allowance;
pub(crate) use allowance::Told;
pub use heads::AuditComparison;
use heads::KeptLines;
pub use impersonated::AuditImpersonation;
pub use item::{AuditChange, AuditItem};
use refusals::Refusals;
use repeats::Repeats;
pub use stream::{AuditLines, AuditSink, AuditStream};

/// How often a replica seals the log where it has written something: what is younger can be taken out of the database unseen,
/// unless it was streamed.
pub const SEAL_PERIOD: Duration = Duration::from_secs(1);
/// How often it does so whether or not it has: for what another replica wrote right before its end.
pub const SEAL_ALL_PERIOD: Duration = Duration::from_secs(10);
/// How often the stream is told what the newest batch is.
pub const HEAD_PERIOD: Duration = Duration::from_secs(60);
/// How often what was refused is written: it waits in memory for so long.
pub const REFUSALS_PERIOD: Duration = Duration::from_secs(5);
/// Reads of a Secret, and changes of a status, by one user within this time are one entry, besides the first one.
pub(super) const REPEATS: SignedDuration = SignedDuration::from_mins(1);
/// The same of the use of an administrator's credential.
const USES: SignedDuration = SignedDuration::from_hours(1);
/// Bytes of a text that somebody else made up.
const MAX_TEXT: usize = 256;
/// Entries of a page at most.
const MAX_PAGE: i64 = 1_000;

/// Bounds what of an entry somebody else made up.
pub(crate) fn shorten(entry: &mut AuditEntry) {
    let AuditEntry { username, impersonator, verb, kind, namespace, name, detail, origin, .. } = entry;
    for text in [username, impersonator, verb, kind, namespace, name, detail, &mut origin.request] {
        cut(text);
    }
}

fn cut(text: &mut String) {
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
    /// Lines of its streams that this replica has lost since its start; none where it has no stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_lost: Option<u64>,
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
    repeats: Repeats,
    allowance: Allowance,
    /// The newest batch that this process has seen, and whether one of those was gone later on.
    seen: Mutex<Seen>,
    streams: Arc<Streams>,
    meters: Arc<Meters>,
}

/// What a process remembers of the log, so that nobody takes it away unseen.
#[derive(Clone, Default)]
struct Seen {
    newest: Option<SeenBatch>,
    /// What is wrong; said until the process ends.
    gone: Option<String>,
}

/// Where else entries go, as they are written.
#[derive(Default)]
struct Streams {
    written: OnceLock<AuditStream>,
    sent: OnceLock<AuditStream>,
    /// Set once the store tells of what is written.
    told: OnceLock<()>,
}

impl Streams {
    fn all(&self) -> impl Iterator<Item = &AuditStream> {
        self.written.get().into_iter().chain(self.sent.get())
    }
}

impl AuditLog {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            retention: context.options.audit_retention,
            refusals: Refusals::default(),
            repeats: Repeats::default(),
            allowance: Allowance::default(),
            seen: Mutex::default(),
            streams: Arc::default(),
            meters: Arc::clone(&context.meters),
        }
    }

    /// Counts something that was refused; it is in the log a few seconds later.
    pub fn note_refusal(&self, entry: AuditEntry) {
        self.refusals.count(entry);
    }

    /// Writes down what was counted: what was refused since the last time, and what was repeated and whose time is over, or all of it.
    ///
    /// # Errors
    /// Where the database fails: while it is away, what there is waits for the next time, as far as there is room.
    pub async fn write_counted(&self, all: bool) -> Result<(), HubError> {
        let mut entries = self.refusals.take();
        entries.extend(self.repeats.take(self.clock.now(), all));
        if entries.is_empty() {
            return Ok(());
        }
        match self.store.note(&entries).await {
            Ok(()) => Ok(()),
            Err(error) if error.outage().is_some() => {
                self.refusals.put_back(entries);
                Err(error.into())
            }
            // The database does not take one of them, nor would it the next time.
            Err(_) => self.write_each(entries).await,
        }
    }

    /// Writes entries one by one. Of those that the database does not take, the first one's error is returned; where it goes away
    /// meanwhile, what is left waits for the next time.
    async fn write_each(&self, entries: Vec<AuditEntry>) -> Result<(), HubError> {
        let mut failed = Ok(());
        let mut entries = entries.into_iter();
        while let Some(entry) = entries.next() {
            let Err(error) = self.store.note(std::slice::from_ref(&entry)).await else { continue };
            if error.outage().is_some() {
                self.refusals.put_back([entry].into_iter().chain(entries).collect());
                return Err(error.into());
            }
            failed = failed.and(Err(error.into()));
        }
        failed
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
        self.note_once(entry, REPEATS).await.map(drop)
    }

    /// Writes down that an administrator's credential is used, or that somebody is taken for an administrator, whatever for: once in
    /// an hour for each user and address.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn note_use(&self, who: &Identity) -> Result<(), HubError> {
        if !who.is_master() {
            return Ok(());
        }
        let detail = match who.impersonator {
            None => "an administrator's credential, which may do everything",
            Some(_) => "taken for an administrator, who may do everything",
        };
        let detail = detail.to_owned();
        let entry = AuditEntry { verb: "use".to_owned(), kind: "Credential".to_owned(), detail, ..by(who) };
        self.note_once(entry, USES).await.map(drop)
    }

    /// Whether a change that is repeated is to be written now; where it is not it has been counted.
    pub(crate) fn is_first(&self, entry: &AuditEntry) -> bool {
        self.repeats.is_first(entry, self.clock.now(), REPEATS)
    }

    /// What was to be written was not.
    pub(crate) fn forget(&self, entry: &AuditEntry) {
        self.repeats.forget(entry);
    }

    /// What changed, as far as this user's changes have room in the log.
    pub(crate) fn within_allowance(&self, entry: &AuditEntry, changes: Option<Told>) -> Option<String> {
        let Told { text, parts } = changes?;
        let AuditEntry { impersonator, username, .. } = entry;
        let user = if impersonator.is_empty() { username } else { impersonator };
        if self.allowance.take(user, text.len(), self.clock.now()) {
            return Some(text);
        }
        let note = format!(
            "left out: this user's changes of the last minute are more than the log takes; changed are {parts}"
        );
        Some(serde_json::json!([{ "note": note }]).to_string())
    }

    /// Writes an entry now, and what is like it within a while as one more; whether this was the first.
    pub(super) async fn note_once(
        &self,
        mut entry: AuditEntry,
        period: SignedDuration,
    ) -> Result<bool, HubError> {
        shorten(&mut entry);
        if !self.repeats.is_first(&entry, self.clock.now(), period) {
            return Ok(false);
        }
        // Whoever asked may be gone before it is written, too.
        let mut unwritten = Unwritten { repeats: &self.repeats, entry: Some(&entry) };
        self.store.note(std::slice::from_ref(&entry)).await?;
        unwritten.entry = None;
        Ok(true)
    }

    /// Has what this process writes into the log written there as well, from now on.
    ///
    /// # Errors
    /// Where it cannot be written to.
    pub fn stream_to(&self, sink: &AuditSink) -> std::io::Result<()> {
        let lost = self.meters.audit_lost(StreamKind::Written);
        let _ = self.streams.written.set(AuditStream::open(sink, lost)?);
        self.listen();
        Ok(())
    }

    /// What this process writes into the log from now on, for whoever sends it on. None where somebody has it already.
    #[must_use]
    pub fn stream_out(&self) -> Option<AuditLines> {
        let (stream, lines) = AuditStream::lines(self.meters.audit_lost(StreamKind::Sent));
        self.streams.sent.set(stream).ok()?;
        self.listen();
        Some(lines)
    }

    fn listen(&self) {
        let streams = Arc::clone(&self.streams);
        let told = move |written| {
            let line = heads::entry_line(written);
            streams.all().for_each(|stream| stream.send(line.clone()));
        };
        self.streams.told.get_or_init(|| self.store.listen_to_audit(Arc::new(told)));
    }

    /// The stream that is written, where there is one.
    #[must_use]
    pub fn stream(&self) -> Option<&AuditStream> {
        self.streams.written.get()
    }

    /// Tells the streams what the log's newest batch is.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tell_head(&self) -> Result<(), HubError> {
        if self.streams.all().next().is_some() {
            let head = self.store.audit_head().await?;
            self.streams.all().for_each(|stream| stream.send(heads::head_line(&head, stream.lost())));
        }
        Ok(())
    }

    /// Holds what somebody kept of the stream against the log: `{ "heads": […], "entries": […] }`, lines as they were streamed.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] for all but the masters, [`HubError::BadRequest`].
    pub async fn compare(&self, who: &Identity, kept: &Value) -> Result<AuditComparison, HubError> {
        authorize_path(who, "post", "/fleet/v1/audit/heads")?;
        let (heads, entries) = KeptLines::read(kept)?;
        let problems = self.store.compare_audit(&heads, &entries).await?;
        Ok(AuditComparison {
            sound: problems.is_empty(),
            heads: heads.len(),
            entries: entries.len(),
            problems,
        })
    }

    /// Whether this replica has entries to seal.
    #[must_use]
    pub fn take_unsealed(&self) -> bool {
        self.store.take_unsealed()
    }

    /// Seals what came into the log. Returns false where another replica is at it.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn seal(&self) -> Result<bool, HubError> {
        let before = self.seen().newest.clone();
        let Some(sealed) = self.store.seal_audit(self.clock.now(), before.as_ref()).await? else {
            return Ok(false);
        };
        let mut seen = self.seen();
        if let (false, Some(before)) = (sealed.knows_before, &before) {
            let what = format!(
                "batch {}, which this replica has seen, is gone or is another one: it was removed from the database, or a backup was \
                 restored",
                before.batch
            );
            tracing::error!("the audit log was changed: {what}");
            seen.gone.get_or_insert(what);
        }
        seen.newest = Some(sealed.newest);
        Ok(true)
    }

    /// A panic while it is held leaves what was seen before.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seals what came into the log, and drops what is too old to be kept.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn tend(&self) -> Result<(), HubError> {
        self.seal().await?;
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
        let seen = self.seen().clone();
        problems.extend(seen.gone);
        let known = seen.newest.map_or(0, |known| known.batch);
        if known > newest {
            problems.push(format!("batches {} to {known} were stored and are missing", newest + 1));
        }
        let sound = problems.is_empty();
        let stream_lost = self.streams.all().map(AuditStream::lost).reduce(u64::saturating_add);
        Ok(AuditReport {
            sound,
            batches,
            newest_batch: newest,
            entries,
            pending,
            unsealed,
            stream_lost,
            problems,
        })
    }
}

/// An entry that is being written, and is not known as such where that ends early.
struct Unwritten<'a> {
    repeats: &'a Repeats,
    entry: Option<&'a AuditEntry>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.repeats.forget(entry);
        }
    }
}

/// An entry of what somebody does.
#[must_use]
pub fn by(who: &Identity) -> AuditEntry {
    AuditEntry {
        username: who.username.clone(),
        impersonator: who.impersonator.clone().unwrap_or_default(),
        impersonated: who.behind.as_ref().and_then(|behind| behind.told.clone()),
        origin: who.origin.clone(),
        ..AuditEntry::default()
    }
}

/// An entry about an object.
pub(crate) fn about(who: &Identity, verb: &str, kind: KindId, namespace: &str, name: &str) -> AuditEntry {
    AuditEntry {
        verb: verb.to_owned(),
        group: kind.get().group().to_owned(),
        kind: kind.get().kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..by(who)
    }
}

/// What has a path and is about no stored object: for those who run the hub, and whom a ClusterRole gives the path.
///
/// # Errors
/// [`HubError::Forbidden`].
pub fn authorize_path(who: &Identity, verb: &str, path: &str) -> Result<(), HubError> {
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

    #[test]
    fn what_anonymous_clients_write_is_cut_at_a_character() {
        let mut text = "ä".repeat(MAX_TEXT);
        cut(&mut text);
        assert!(text.len() <= MAX_TEXT + '…'.len_utf8() && text.ends_with('…'));
        let mut text = "a\0b".to_owned();
        cut(&mut text);
        assert_eq!(text, "a\u{fffd}b");
    }
}
