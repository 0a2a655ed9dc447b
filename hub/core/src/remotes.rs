//! Remote resources: what kustomizations name by URL, from hosts that the operator lists (`--remote-bases`).
//!
//! Each is fetched and checked once for all Kustomizations that name it, by nobody in particular: no credentials are sent. What was found stands in
//! the database, so that all replicas build from the same. Who needs one that was not checked lately asks for a check and is woken once
//! it is done: no pass waits for a server.

mod asked;
mod check;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_plan::has_happened;
use roadstead_hub_store::{HeldRemote, RemoteResource, Store};
use roadstead_model::ResourceUid;
use roadstead_outbound::{ListedHosts, Unlisted};
use roadstead_sources::git::KnownServer;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::context::Context;
use crate::sources::Sources;
use crate::{HubError, HubOptions};

pub(crate) use asked::Asked;

/// Checks that wait or are under way, each of a few kilobytes. Who finds no place asks again with the next pass.
const MOST_CHECKS: usize = 256;
/// Of these, so many may be for one namespace.
const MOST_OF_A_NAMESPACE: usize = 64;
/// Appliers that are woken by one check. Others find out by themselves a moment later.
const MOST_WAITING: usize = 1_000;
/// Servers whose advertisements are kept, each in 6 KiB at most.
const MOST_KNOWN: usize = 128;
/// A check that failed counts for so long at least.
const LEAST_FAILED: Duration = Duration::from_secs(5);

/// What stands before a remote resource among what an attempt was rendered by.
const NAME: &str = "remote ";
/// What it is called there while it cannot be had.
pub(crate) const UNAVAILABLE: &str = "unavailable";

/// Remote resources, and who waits for them.
pub struct Remotes {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    sources: Arc<Sources>,
    hosts: Arc<ListedHosts>,
    /// The checks that this replica is to make, by their keys.
    waiting: Mutex<HashMap<String, Waiting>>,
    checks: mpsc::Sender<Check>,
    next: tokio::sync::Mutex<mpsc::Receiver<Check>>,
    known: Mutex<HashMap<String, KnownServer>>,
}

/// Who waits for a check.
struct Waiting {
    /// For which it is made first.
    namespace: String,
    by: Vec<ResourceUid>,
}

/// A check of a remote resource that is to be made.
pub struct Check {
    asked: Asked,
    namespace: String,
    is_asked_for: bool,
}

impl Check {
    /// The namespace for which it is made first.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The host that is asked.
    #[must_use]
    pub fn host(&self) -> String {
        self.asked.authority.host.to_string()
    }
}

/// Who wants to know what a remote resource holds.
pub(crate) struct Wanted<'a> {
    pub(crate) by: ResourceUid,
    pub(crate) namespace: &'a str,
    /// How old what is known may be, and how old a failure.
    pub(crate) fresh: Duration,
    pub(crate) retry: Duration,
    /// Whether somebody asked for it.
    pub(crate) is_asked_for: bool,
}

/// What is known of a remote resource.
pub(crate) enum Known {
    Held(HeldRemote),
    Failed(String),
    /// It is being checked.
    Pending,
}

impl Remotes {
    pub(crate) fn new(context: &Context, sources: &Arc<Sources>) -> Self {
        let (checks, next) = mpsc::channel(MOST_CHECKS);
        let hosts = context.options.remote_bases.clone();
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            sources: Arc::clone(sources),
            hosts: Arc::new(ListedHosts::new(hosts, "--remote-bases")),
            waiting: Mutex::default(),
            checks,
            next: tokio::sync::Mutex::new(next),
            known: Mutex::default(),
        }
    }

    /// Whether the operator lets it be fetched.
    pub(crate) fn allows(&self, asked: &Asked) -> Result<(), Unlisted> {
        self.hosts.check(&asked.authority)
    }

    /// Bytes that the remote resources of one build may have together: beside its source they are to fit into a builder.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.options.budget.pool(roadstead_budget::PoolName::Workers).size() / 8
    }

    /// What is known of one that may be fetched; where that is too old, a check of it is asked for.
    pub(crate) async fn known(&self, asked: &Asked, wanted: &Wanted<'_>) -> Result<Known, HubError> {
        let row = self.store.remote_resources(&[&asked.key]).await?.remove(&asked.key);
        let now = self.clock.now();
        // A clock that was put back holds nothing up.
        match row.filter(|row| has_happened(row.ended_at, now)) {
            Some(RemoteResource { ended_at, failure: Some(why), .. })
                if now < ended_at + wanted.retry.max(LEAST_FAILED) =>
            {
                Ok(Known::Failed(why))
            }
            Some(RemoteResource { ended_at, failure: None, held: Some(held), .. })
                if now < ended_at + wanted.fresh =>
            {
                Ok(Known::Held(held))
            }
            _ => {
                self.ask(asked.clone(), wanted.namespace, Some(wanted.by), wanted.is_asked_for);
                Ok(Known::Pending)
            }
        }
    }

    /// Whether what an attempt was rendered by is something else now; and when it is to be checked again, which is asked for where that
    /// is so already. `by` is all that it was rendered by.
    pub(crate) async fn is_outdated(
        &self,
        by: &BTreeMap<String, String>,
        namespace: &str,
        interval: Duration,
    ) -> Result<(bool, Option<Timestamp>), HubError> {
        let named: Vec<(&str, &String)> =
            by.iter().filter_map(|(name, was)| Some((name.strip_prefix(NAME)?, was))).collect();
        if named.is_empty() {
            return Ok((false, None));
        }
        let keys: Vec<&str> = named.iter().map(|(key, _)| *key).collect();
        let rows = self.store.remote_resources(&keys).await?;
        let (now, mut outdated, mut next) = (self.clock.now(), false, None);
        for (key, was) in named {
            let asked = Asked::of(key).ok().filter(|asked| self.allows(asked).is_ok());
            let Some(asked) = asked else {
                // The operator took the host out of the list.
                outdated |= was != UNAVAILABLE;
                continue;
            };
            let Some(row) = rows.get(key) else {
                // It was refused, or is forgotten.
                outdated = true;
                continue;
            };
            outdated |= identity(row) != *was;
            // One that cannot be had is checked with the next attempt.
            if row.failure.is_some() {
                continue;
            }
            let mut due = row.began_at + interval;
            if due <= now || !has_happened(row.began_at, now) {
                self.ask(asked, namespace, None, false);
                due = now + interval;
            }
            next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
        }
        Ok((outdated, next))
    }

    /// Asks for a check, unless one is under way.
    fn ask(&self, asked: Asked, namespace: &str, by: Option<ResourceUid>, is_asked_for: bool) {
        let mut waiting = self.waiting();
        if let Some(Waiting { by: all, .. }) = waiting.get_mut(&asked.key) {
            if let Some(by) = by.filter(|by| all.len() < MOST_WAITING && !all.contains(by)) {
                all.push(by);
            }
            return;
        }
        let of_namespace = waiting.values().filter(|other| other.namespace == namespace).count();
        if waiting.len() >= MOST_CHECKS || of_namespace >= MOST_OF_A_NAMESPACE {
            return;
        }
        let key = asked.key.clone();
        let check = Check { asked, namespace: namespace.to_owned(), is_asked_for };
        if self.checks.try_send(check).is_ok() {
            let who = Waiting { namespace: namespace.to_owned(), by: by.into_iter().collect() };
            waiting.insert(key, who);
        }
    }

    /// The next check that is to be made; waits for one.
    pub async fn next(&self) -> Check {
        match self.next.lock().await.recv().await {
            Some(check) => check,
            // Its other end is here.
            None => std::future::pending().await,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        // Whole at any time.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_server(&self, key: &str) -> KnownServer {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_KNOWN && !all.contains_key(key) {
            // It costs one more request for each.
            all.clear();
        }
        all.entry(key.to_owned()).or_default().clone()
    }
}

/// What a remote resource is called among what an attempt was rendered by.
pub(crate) fn name_of(asked: &Asked) -> String {
    format!("{NAME}{}", asked.key)
}

/// Whether something that an attempt was rendered by is called so.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(NAME)
}

/// Which one what it held is.
pub(crate) fn identity_of(held: &HeldRemote) -> String {
    let form = if held.is_file { "file" } else { "git" };
    format!("{form} {}", held.digest)
}

fn identity(row: &RemoteResource) -> String {
    match (&row.failure, &row.held) {
        (None, Some(held)) => identity_of(held),
        // Its bytes are gone: it is fetched again.
        (None, None) => String::new(),
        (Some(_), _) => UNAVAILABLE.to_owned(),
    }
}
