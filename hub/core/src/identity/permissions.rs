//! The stored roles and bindings in this process's memory: read once when the first user comes whose rights lie in them, and
//! from then on kept up with the change log. A decision asks no database, and masters cost nothing.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use roadstead_api::KindId;
use roadstead_hub_store::{Event, EventType, Filter, Part, Store, Stored, WatchError, Watcher};
use roadstead_rbac::{
    Attributes, Change, Decision, GrantError, Limits, Named, Policy, PolicyRule, Reach, Resource, User, Write,
};
use tokio::sync::{Mutex, watch};

use crate::HubError;
use crate::context::Context;
use crate::identity::Identity;

/// RBAC's kinds: those that others stand on come first.
const KINDS: [KindId; 4] =
    [KindId::ClusterRole, KindId::Role, KindId::ClusterRoleBinding, KindId::RoleBinding];
/// The part of the process's memory that is for roles and bindings: one in so many.
const MEMORY: u64 = 64;
/// The part of that which one namespace may use: one in so many.
const NAMESPACE: usize = 16;
/// Changes that are taken over at once.
const BATCH: usize = 500;
/// Bytes of objects, as text, that are taken over at once when all are read.
const PIECE: usize = 1 << 20;
/// How long it is waited before the log is read again, where that failed.
const RETRY: Duration = Duration::from_secs(1);
/// How long a request waits for what was written before it to be known.
const BEHIND: Duration = Duration::from_secs(5);

/// The roles and bindings that are stored.
pub(crate) struct Permissions {
    store: Store,
    limits: Limits,
    policy: RwLock<Policy>,
    /// Whether they were read once, and are kept up. Held while they are read for the first time.
    followed: Mutex<bool>,
    /// Up to which version of the change log they are known; none before they are read, and while that has failed.
    known: watch::Sender<Option<i64>>,
    /// Counts the times that something of them changed.
    changed: watch::Sender<u64>,
}

/// What somebody may do.
#[derive(Debug, Default)]
pub struct AllowedRules {
    /// The rules.
    pub rules: Vec<PolicyRule>,
    /// Why some may be missing; empty where none are.
    pub error: String,
    /// Whether there are more.
    pub incomplete: bool,
}

/// What an identity's rights lie in. Two are equal whatever it is: an identity is who somebody is.
#[derive(Clone, Default)]
pub(super) struct Granted(pub(super) Option<Arc<Permissions>>);

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "stored" } else { "none" })
    }
}

impl PartialEq for Granted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Granted {}

impl Granted {
    /// None for the masters, whose rights do not lie there.
    pub(super) fn of(&self, who: &Identity) -> Option<&Permissions> {
        self.0.as_deref().filter(|_| !who.is_master())
    }
}

impl Permissions {
    pub(super) fn new(context: &Context) -> Self {
        let all = usize::try_from(context.options.budget.total() / MEMORY).unwrap_or(usize::MAX);
        let limits = Limits { all, namespace: all / NAMESPACE };
        Self {
            store: context.store.clone(),
            limits,
            policy: RwLock::new(Policy::within(limits)),
            followed: Mutex::default(),
            known: watch::Sender::new(None),
            changed: watch::Sender::new(0),
        }
    }

    /// Returns once the roles and bindings are known.
    ///
    /// # Errors
    /// Where the database fails.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<(), HubError> {
        if self.known.borrow().is_some() {
            return Ok(());
        }
        let mut followed = self.followed.lock().await;
        if !*followed {
            let (watcher, listed) = self.read().await?;
            tokio::spawn(follow(Arc::downgrade(self), watcher, listed));
            *followed = true;
        }
        drop(followed);
        self.caught_up(0).await
    }

    /// Waits until they are known up to a version.
    async fn caught_up(&self, version: i64) -> Result<(), HubError> {
        let mut known = self.known.subscribe();
        let caught_up = known.wait_for(|known| known.is_some_and(|known| known >= version));
        match tokio::time::timeout(BEHIND, caught_up).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let why = "the hub does not know yet which roles and bindings are stored: try again";
                Err(HubError::Unavailable(why.to_owned()))
            }
        }
    }

    pub(super) fn authorize(&self, user: User<'_>, asked: &Attributes<'_>) -> Decision {
        self.policy().authorize(user, asked)
    }

    pub(super) fn allows(&self, user: User<'_>, asked: &Attributes<'_>) -> bool {
        self.policy().allows(user, asked)
    }

    pub(super) fn reach(&self, user: User<'_>, asked: Resource<'_>) -> Reach {
        self.policy().reach(user, asked)
    }

    pub(super) fn named(&self, user: User<'_>, asked: Resource<'_>) -> Named {
        self.policy().named(user, asked)
    }

    pub(super) fn rules_for(&self, user: User<'_>, namespace: &str) -> AllowedRules {
        let policy = self.policy();
        let found = policy.rules_for(user, namespace);
        let rules = found.rules.into_iter().cloned().collect();
        AllowedRules { rules, error: found.error, incomplete: found.incomplete }
    }

    /// The names of the aggregated ClusterRoles whose stored rules are not those that they are made of.
    pub(super) fn out_of_date(&self) -> Vec<String> {
        self.policy().out_of_date()
    }

    /// The rules that an aggregated ClusterRole is made of; none where it is not aggregated.
    pub(super) fn aggregated(&self, name: &str) -> Option<Vec<PolicyRule>> {
        self.policy().aggregated(name)
    }

    /// Tells each time that something changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether a user may write an object that grants rights.
    pub(super) fn check_grant(&self, user: User<'_>, write: &Write<'_>) -> Result<(), GrantError> {
        self.policy().check_grant(user, write)
    }

    /// Waits until all is known that is stored now.
    pub(super) async fn up_to_date(&self) -> Result<(), HubError> {
        let now = self.store.last_version().await?;
        self.caught_up(now).await
    }

    /// A panic while it is held leaves a policy that grants less, and the next change mends it.
    fn policy(&self) -> RwLockReadGuard<'_, Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn policy_mut(&self) -> RwLockWriteGuard<'_, Policy> {
        self.policy.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all of them, and begins to watch from there. Gives for each kind of which version it was read.
    async fn read(&self) -> Result<(Watcher, HashMap<KindId, i64>), HubError> {
        let mut policy = Policy::within(self.limits);
        let mut listed = HashMap::new();
        let mut from = None;
        for kind in KINDS {
            let (mut some, mut size) = (Vec::new(), 0);
            let each = |stored: Stored| {
                size += stored.object.to_string().len();
                some.push(stored);
                // Not all of them at once in a second form.
                if size > PIECE {
                    put(&mut policy, &std::mem::take(&mut some));
                    size = 0;
                }
            };
            let found =
                self.store.list_each(kind, &Filter::default(), Part::default(), i64::MAX, each).await?;
            put(&mut policy, &some);
            from.get_or_insert(found.version);
            listed.insert(kind, found.version);
        }
        let from = from.unwrap_or_default();
        let watcher = self.store.watch_all(from).await.map_err(|error| match error {
            WatchError::Store(error) => error.into(),
            error => HubError::Unavailable(error.to_string()),
        })?;
        *self.policy_mut() = policy;
        self.known.send_replace(Some(from));
        self.changed.send_modify(|count| *count += 1);
        Ok((watcher, listed))
    }

    /// Takes changes over, which are all that there are up to this version.
    fn take(&self, events: &[Event], version: i64, listed: &HashMap<KindId, i64>) {
        let newer = |event: &&Event| {
            let object = event.object();
            listed.get(&object.kind).is_some_and(|version| object.resource_version > *version)
        };
        let mut changes = events.iter().filter(newer).map(change).peekable();
        if changes.peek().is_some() {
            report(&self.policy_mut().apply(changes));
            self.changed.send_modify(|count| *count += 1);
        }
        self.known.send_replace(Some(version));
    }
}

fn put(policy: &mut Policy, stored: &[Stored]) {
    let changes = stored.iter().map(|stored| Change::Put {
        kind: stored.kind,
        namespace: &stored.namespace,
        name: &stored.name,
        object: &stored.object,
    });
    report(&policy.apply(changes));
}

fn change(event: &Event) -> Change<'_> {
    let object = event.object();
    let (kind, namespace, name) = (object.kind, object.namespace.as_str(), object.name.as_str());
    match event.type_() {
        EventType::Deleted => Change::Remove { kind, namespace, name },
        EventType::Added | EventType::Modified => {
            Change::Put { kind, namespace, name, object: &object.object }
        }
    }
}

fn report(errors: &[roadstead_rbac::PutError]) {
    for error in errors {
        tracing::error!(error = error.to_string(), "a role or binding is not in force");
    }
}

/// Keeps them up with the change log, until the hub is gone.
async fn follow(permissions: Weak<Permissions>, mut watcher: Watcher, mut listed: HashMap<KindId, i64>) {
    loop {
        let ended = loop {
            // Changes of kinds that only a newer version knows are waited for as well: requests wait until the last of all is known.
            let mut events: Vec<Event> = match watcher.advance().await {
                Ok(event) => event.into_iter().collect(),
                Err(error) => break error,
            };
            for _ in 1..BATCH {
                match watcher.advance().now_or_never() {
                    Some(Ok(event)) => events.extend(event),
                    // An error comes again.
                    _ => break,
                }
            }
            let Some(permissions) = permissions.upgrade() else { return };
            permissions.take(&events, watcher.version(), &listed);
        };
        if matches!(ended, WatchError::Closed) {
            return;
        }
        // Until they are read again, nobody new is let in by what may be out of date.
        loop {
            let Some(permissions) = permissions.upgrade() else { return };
            permissions.known.send_replace(None);
            match permissions.read().await {
                Ok((again, versions)) => {
                    (watcher, listed) = (again, versions);
                    break;
                }
                Err(error) => {
                    tracing::warn!(error = roadstead_model::chain(&error), "reading roles and bindings");
                }
            }
            drop(permissions);
            tokio::time::sleep(RETRY).await;
        }
    }
}
