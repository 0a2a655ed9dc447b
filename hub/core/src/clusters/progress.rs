//! What is under way right now, object by object: kept in memory by the replica that hears it, never in the resource
//! table, whose watchers want states and not steps.
//!
//! Agents say how much there is to keep, so it comes out of a share of the memory budget, bounded by session, and goes with
//! the session at the latest. What has no room is not kept: the end of the dispatch tells it all again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_budget::{Pool, Reservation};
use roadstead_model::{
    ApplierUid, Attempt, DispatchKey, ObjectRef, ObjectResult, Position, SessionId, Stage, Step,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::clusters::{Session, Sessions};
use crate::schemas::ObjectResultSchema;

/// Objects of one reconciliation that are kept.
const MAX_OBJECTS: usize = 20_000;
/// Bytes of what is told of an object's health.
const MAX_HEALTH_BYTES: usize = 1024;
/// One session has this part of what all have.
const SHARE: u64 = 4;
/// What a reconciliation takes before anything is told of it, and what an object takes besides its texts, in bytes.
const ENTRY: usize = 1024;
const OBJECT: usize = size_of::<ObjectResult>() + 96;

/// A reconciliation that is under way.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Which attempt.
    #[schemars(with = "i64")]
    pub attempt: Attempt,
    /// The cluster's name.
    pub cluster: String,
    /// The index of the step that it is at, from 0; none where the agent does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<usize>,
    /// The label of that step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The stage of that step.
    #[schemars(with = "String")]
    pub stage: Stage,
    /// What was done so far, in the order in which it happened.
    #[schemars(with = "Vec<ObjectResultSchema>")]
    pub results: Vec<ObjectResult>,
    /// The health of what is waited for, by object.
    pub health: BTreeMap<String, String>,
}

/// One that is followed, and what it takes.
struct Kept {
    session: SessionId,
    progress: Progress,
    bytes: u64,
    reserved: Reservation,
}

/// All that is under way and heard of here.
pub(crate) struct Followed {
    pool: Pool,
    kept: Mutex<HashMap<ApplierUid, Kept>>,
}

/// The dispatches that a session was sent and that are not closed yet. With the last of its clones, what was kept of them
/// goes.
#[derive(Clone)]
pub(crate) struct Sent(Arc<SentInSession>);

struct SentInSession {
    session: SessionId,
    followed: Arc<Followed>,
    open: Mutex<HashMap<ApplierUid, SentDispatch>>,
}

/// A dispatch that was sent.
#[derive(PartialEq, Eq)]
struct SentDispatch {
    key: DispatchKey,
    /// The labels of its steps.
    steps: Vec<String>,
}

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} dispatches", self.open().len())
    }
}

impl Drop for SentInSession {
    fn drop(&mut self) {
        self.followed.with(|kept| kept.retain(|_, kept| kept.session != self.session));
    }
}

impl Sent {
    pub(crate) fn new(session: SessionId, followed: &Arc<Followed>) -> Self {
        Self(Arc::new(SentInSession { session, followed: Arc::clone(followed), open: Mutex::default() }))
    }

    fn open(&self) -> std::sync::MutexGuard<'_, HashMap<ApplierUid, SentDispatch>> {
        // Whole at any time: a panic elsewhere does not spoil it.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This is sent; it supersedes an older dispatch of the same Kustomization.
    pub(crate) fn add(&self, key: &DispatchKey, steps: &[Step]) {
        let steps = steps.iter().map(|step| step.label.clone()).collect();
        self.open().insert(key.applier, SentDispatch { key: key.clone(), steps });
    }

    fn has(&self, key: &DispatchKey) -> bool {
        self.open().get(&key.applier).is_some_and(|sent| sent.key == *key)
    }

    /// The label of a step of what was sent last.
    fn label(&self, applier: ApplierUid, step: usize) -> Option<String> {
        self.open().get(&applier)?.steps.get(step).cloned()
    }

    /// This is closed; gives the health that was told of it in this session.
    pub(crate) fn close(&self, key: &DispatchKey) -> BTreeMap<String, String> {
        if !self.has(key) {
            return BTreeMap::new();
        }
        self.open().remove(&key.applier);
        self.0.followed.with(|kept| {
            let is_it = |kept: &Kept| kept.session == self.0.session && kept.progress.attempt == key.attempt;
            match kept.get(&key.applier) {
                Some(found) if is_it(found) => {
                    kept.remove(&key.applier).map(|gone| gone.progress.health).unwrap_or_default()
                }
                _ => BTreeMap::new(),
            }
        })
    }
}

fn bytes_of(object: &ObjectRef) -> usize {
    let ObjectRef { group, version, kind, namespace, name } = object;
    OBJECT + group.len() + version.len() + kind.len() + namespace.len() + name.len()
}

impl Followed {
    /// Keeps what has room in `pool`.
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), kept: Mutex::default() }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HashMap<ApplierUid, Kept>) -> T) -> T {
        // Entries are whole at any time: a panic elsewhere does not spoil them.
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// Takes `more` bytes, of which a session has `left`. False where there is no room.
    fn grow(&mut self, more: usize, left: &mut u64) -> bool {
        let more = more as u64;
        let has_room = *left >= more && self.reserved.try_grow_to(self.bytes + more).is_ok();
        if has_room {
            self.bytes += more;
            *left -= more;
        }
        has_room
    }
}

impl Sessions {
    /// Notes what an agent told of a dispatch that is under way. What this session was not sent, or what is closed, is
    /// passed over, and so is what there is no room for.
    pub fn note_progress(
        &self,
        session: &Session,
        key: &DispatchKey,
        position: Position,
        results: &[ObjectResult],
        health: impl Iterator<Item = (ObjectRef, String)>,
    ) {
        if !session.sent.has(key) {
            return;
        }
        let followed = &self.followed;
        followed.with(|all| {
            let of_session = all.values().filter(|kept| kept.session == session.id);
            let used: u64 = of_session.map(|kept| kept.bytes).sum();
            let mut left = (followed.pool.size() / SHARE).saturating_sub(used);
            if all.get(&key.applier).is_none_or(|kept| kept.progress.attempt != key.attempt) {
                let reserved = followed.pool.try_reserve(ENTRY as u64);
                let Some(reserved) = reserved.ok().filter(|_| left >= ENTRY as u64) else { return };
                left -= ENTRY as u64;
                let progress = Progress {
                    attempt: key.attempt,
                    cluster: session.name.clone(),
                    step: None,
                    label: None,
                    stage: position.stage,
                    results: Vec::new(),
                    health: BTreeMap::new(),
                };
                let kept = Kept { session: session.id, progress, bytes: ENTRY as u64, reserved };
                all.insert(key.applier, kept);
            }
            let Some(kept) = all.get_mut(&key.applier) else { return };
            // It was sent again in this session, which goes on with it.
            kept.session = session.id;
            // Messages are handled side by side: an older one does not take it back.
            let before = Position { step: kept.progress.step, stage: kept.progress.stage };
            if before <= position {
                let Position { step, stage } = position;
                kept.progress.label = step.and_then(|step| session.sent.label(key.applier, step));
                (kept.progress.step, kept.progress.stage) = (step, stage);
            }
            for result in results {
                if kept.progress.results.len() >= MAX_OBJECTS
                    || !kept.grow(bytes_of(&result.object), &mut left)
                {
                    break;
                }
                kept.progress.results.push(result.clone());
            }
            for (object, mut text) in health {
                text.truncate(text.floor_char_boundary(MAX_HEALTH_BYTES));
                let name = object.to_string();
                let more = match kept.progress.health.get(&name) {
                    Some(before) => text.len().saturating_sub(before.len()),
                    None if kept.progress.health.len() >= MAX_OBJECTS => break,
                    None => OBJECT + name.len() + text.len(),
                };
                if !kept.grow(more, &mut left) {
                    break;
                }
                kept.progress.health.insert(name, text);
            }
        });
    }

    /// What is under way for this Kustomization, as far as this replica hears of it.
    #[must_use]
    pub fn progress(&self, applier: ApplierUid) -> Option<Progress> {
        self.followed.with(|all| all.get(&applier).map(|kept| kept.progress.clone()))
    }
}
