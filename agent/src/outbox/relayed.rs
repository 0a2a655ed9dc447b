//! Events of Flux's controllers in the cluster that wait to be told: in the order in which they came, each until the hub has taken it in.
//! They outlive the agent's term, as nobody tells them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use roadstead_model::{Digest, RelayedEvent};
use roadstead_proto::limits::MAX_RELAYED;
use tokio::sync::{Notify, oneshot};

/// How many events may wait.
const MAX_EVENTS: usize = 1_000;
/// And about how many bytes they may take.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// As much waits as may: whoever tells it is to tell it again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// What waits to be told.
#[derive(Debug, Default)]
pub(crate) struct Relayed {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Whether there is a session with a hub that takes them.
    is_live: bool,
    /// By their numbers, which count up.
    pending: BTreeMap<u64, Pending>,
    /// Which of them are there already.
    keys: BTreeSet<Digest>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Pending {
    event: RelayedEvent,
    key: Digest,
    bytes: usize,
    /// Whether it was sent in this session.
    sent: bool,
    /// Who waits until the hub has it, or did not take it.
    waiting: Vec<oneshot::Sender<bool>>,
}

impl Relayed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when something was added since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds an event; what is there already is there once. The receiver learns whether the hub took it; there is none while there is no
    /// session, which may be long.
    pub(crate) fn add(&self, event: RelayedEvent) -> Result<Option<oneshot::Receiver<bool>>, Full> {
        let mut state = self.state();
        let text = format!("{event:?}");
        let (key, bytes) = (Digest::of(text.as_bytes()), text.len());
        let (answer, answered) = oneshot::channel();
        let waiting = if state.is_live { vec![answer] } else { Vec::new() };
        let answered = state.is_live.then_some(answered);
        if state.keys.contains(&key) {
            if let Some(pending) = state.pending.values_mut().find(|pending| pending.key == key) {
                pending.waiting.extend(waiting);
            }
            return Ok(answered);
        }
        if state.pending.len() >= MAX_EVENTS || state.bytes + bytes > MAX_BYTES {
            return Err(Full);
        }
        let number = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.keys.insert(key);
        state.pending.insert(number, Pending { event, key, bytes, sent: false, waiting });
        drop(state);
        self.changed.notify_one();
        Ok(answered)
    }

    /// A session begins with a hub that takes events: what was sent and not confirmed may not have been heard.
    pub(crate) fn begin_session(&self) {
        let mut state = self.state();
        state.is_live = true;
        state.pending.values_mut().for_each(|pending| pending.sent = false);
    }

    /// The session is over: nobody waits for what it has not taken in.
    pub(crate) fn end_session(&self) {
        let mut state = self.state();
        state.is_live = false;
        state.pending.values_mut().for_each(|pending| pending.waiting.clear());
    }

    /// The next events, and the number of the last of them; they count as sent. None while some are on their way: the hub handles messages side
    /// by side, and that an object is well again must not overtake that it fails.
    pub(crate) fn next(&self) -> Option<(u64, Vec<RelayedEvent>)> {
        let mut state = self.state();
        if !state.is_live || state.pending.values().next().is_none_or(|first| first.sent) {
            return None;
        }
        let mut last = None;
        let mut events = Vec::new();
        for (number, pending) in state.pending.iter_mut().take(MAX_RELAYED) {
            pending.sent = true;
            events.push(pending.event.clone());
            last = Some(*number);
        }
        last.map(|last| (last, events))
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.state().pending.values().all(|pending| pending.sent)
    }

    /// The hub has taken in everything up to this number, or will not take it.
    pub(crate) fn settle(&self, last: u64, was_taken: bool) {
        let mut state = self.state();
        let rest = state.pending.split_off(&(last + 1));
        let settled = std::mem::replace(&mut state.pending, rest);
        for pending in settled.into_values() {
            state.bytes -= pending.bytes;
            state.keys.remove(&pending.key);
            for waiting in pending.waiting {
                // Who does not wait any more does not hear it.
                let _ = waiting.send(was_taken);
            }
        }
        drop(state);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadstead_model::ObjectRef;

    fn event(message: &str) -> RelayedEvent {
        let text = |text: &str| text.to_owned();
        RelayedEvent {
            object: ObjectRef {
                group: text("kustomize.toolkit.fluxcd.io"),
                version: text("v1"),
                kind: text("Kustomization"),
                namespace: text("apps"),
                name: text("web"),
            },
            uid: text("1"),
            is_error: true,
            timestamp: text("2026-01-01T00:00:00Z"),
            message: text(message),
            reason: text("BuildFailed"),
            reporting_controller: text("kustomize-controller"),
            reporting_instance: String::new(),
            metadata: BTreeMap::new(),
        }
    }

    fn messages(next: Option<(u64, Vec<RelayedEvent>)>) -> Vec<String> {
        next.map_or(Vec::new(), |(_, events)| events.into_iter().map(|event| event.message).collect())
    }

    #[test]
    fn each_is_told_once_in_its_order_until_the_hub_has_it() {
        let relayed = Relayed::default();
        assert!(relayed.add(event("a")).unwrap().is_none(), "nobody is there to be waited for");
        assert_eq!(relayed.next(), None);
        relayed.begin_session();
        let mut first = relayed.add(event("b")).unwrap().unwrap();
        let mut again = relayed.add(event("b")).unwrap().unwrap();
        let (last, events) = relayed.next().unwrap();
        assert_eq!(messages(Some((last, events))), ["a", "b"]);
        let mut behind = relayed.add(event("c")).unwrap().unwrap();
        assert_eq!(relayed.next(), None, "it would overtake what is on its way");
        // Cut before the hub said so: all of it is told again, and nobody waits for it.
        relayed.end_session();
        assert!(first.try_recv().is_err() && behind.try_recv().is_err());
        relayed.begin_session();
        let (last, events) = relayed.next().unwrap();
        assert_eq!(messages(Some((last, events))), ["a", "b", "c"]);
        relayed.settle(last, true);
        assert!(again.try_recv().is_err() && relayed.is_drained() && relayed.next().is_none());
        let mut refused = relayed.add(event("b")).unwrap().unwrap();
        let (last, _) = relayed.next().unwrap();
        relayed.settle(last, false);
        assert_eq!(refused.try_recv(), Ok(false));
    }

    #[test]
    fn more_than_may_wait_is_refused_and_there_is_room_again_behind_it() {
        let relayed = Relayed::default();
        relayed.begin_session();
        for count in 0..MAX_EVENTS {
            relayed.add(event(&count.to_string())).unwrap();
        }
        assert_eq!(relayed.add(event("more")).unwrap_err(), Full);
        let (last, events) = relayed.next().unwrap();
        assert_eq!(events.len(), MAX_RELAYED);
        relayed.settle(last, true);
        relayed.add(event("more")).unwrap();
        let large = Relayed::default();
        let mut taken = 0;
        while large.add(event(&format!("{taken}{}", "x".repeat(16_000)))).is_ok() {
            taken += 1;
        }
        assert!((200..300).contains(&taken), "{taken}");
    }
}
