//! Following one object: a look at it, then a watch on its name from where the look left off.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use kube::client::Body;
use roadstead_kstatus::{Health, Status};
use roadstead_model::ObjectRef;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::HealthRules;
use crate::discovery::{Resource, encode, get};
use crate::engine::{Engine, is_secret};
use crate::failure::explain;
use crate::transport::Refusal;
use crate::wait::{End, Goal, Seen};

/// How large one event of a watch may be: it holds one object.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// How long a watch is asked to last, in seconds; a new one follows.
const WATCH_SECONDS: u64 = 240;

/// The pause before something is tried again that did not work, and between looks where watching is not allowed.
const PAUSE: Duration = Duration::from_secs(2);

/// How often an object is judged again whose health also depends on the time.
const TICK: Duration = Duration::from_secs(5);

/// Where what is seen goes.
pub(crate) type Tell = mpsc::Sender<(ObjectRef, Seen)>;

/// From where a watch goes on: what was seen, where, and at which version.
pub(crate) struct Start {
    value: Option<Value>,
    resource: Resource,
    version: String,
}

/// Looks at `object` once and tells what it saw. What is still open comes back, with where to go on from.
pub(crate) async fn first_look(
    engine: &Engine,
    object: ObjectRef,
    goal: Goal,
    tell: Tell,
) -> Option<(ObjectRef, Option<Start>)> {
    let (seen, start) = judged(look(engine, &object).await, &object, goal, engine.health.as_deref());
    let is_open = seen.end == End::Open;
    let is_heard = tell.send((object.clone(), seen)).await.is_ok();
    (is_open && is_heard).then_some((object, start))
}

/// Follows `object` from `start`, or else from a new look, until it is what `goal` wants or failed. What is seen is
/// told.
pub(crate) async fn follow(
    engine: &Engine,
    object: ObjectRef,
    goal: Goal,
    mut start: Option<Start>,
    tell: Tell,
) {
    loop {
        match start.take() {
            Some(start) => {
                if watch_from(engine, &object, goal, start, &tell).await {
                    return;
                }
            }
            None => sleep(PAUSE).await,
        }
        match first_look(engine, object.clone(), goal, tell.clone()).await {
            Some((_, from)) => start = from,
            None => return,
        }
    }
}

/// What a look means.
fn judged(
    looked: Looked,
    object: &ObjectRef,
    goal: Goal,
    rules: Option<&HealthRules>,
) -> (Seen, Option<Start>) {
    let (why, is_known) = match looked {
        Looked::Found { value, from } => {
            let seen = goal.judge(value.as_ref(), rules);
            return (seen, from.map(|(resource, version)| Start { value, resource, version }));
        }
        Looked::NoKind => (format!("the cluster serves no {} {}", object.api_version(), object.kind), true),
        Looked::Unknown(why) => (why, false),
    };
    let mut seen = goal.judge(None, rules);
    seen.health.message = why;
    // What could not be read is neither there nor gone.
    if !is_known {
        seen = Seen { health: Health { status: Status::InProgress, ..seen.health }, end: End::Open };
    }
    (seen, None)
}

/// What a look at an object showed.
enum Looked {
    /// The object, or that it is not there; and from where a watch can go on, if watching is allowed.
    Found { value: Option<Value>, from: Option<(Resource, String)> },
    /// The cluster does not know its kind.
    NoKind,
    /// It could not be read, and why.
    Unknown(String),
}

async fn look(engine: &Engine, object: &ObjectRef) -> Looked {
    let resource = match engine.resource(object).await {
        Ok(Some(resource)) => resource,
        Ok(None) => return Looked::NoKind,
        Err(failure) => return Looked::Unknown(failure.message),
    };
    match engine.transport.send(&get(named(&resource, object))).await {
        Ok(answer) => {
            let version = answer.value.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let from = version.map(|version| (resource, version.to_owned()));
            Looked::Found { value: only_item(object, answer.value), from }
        }
        // Reading by name is allowed more often than listing.
        Err(refusal) if refusal.code() == Some(403) => match engine.find(object).await {
            Ok(found) => Looked::Found { value: found.map(|(_, value)| value), from: None },
            Err(failure) => Looked::Unknown(failure.message),
        },
        Err(refusal) => {
            // The kind, or this version of it, is not served any more: what is served now is asked for the next time.
            if refusal.is_not_served() {
                engine.discovery.forget(&object.group);
            }
            Looked::Unknown(explain(object, &refusal, is_secret(object)).message)
        }
    }
}

/// The path that lists (or watches) one object by its name.
fn named(resource: &Resource, object: &ObjectRef) -> String {
    let name = encode(&object.name);
    format!("{}?fieldSelector=metadata.name%3D{name}", resource.collection(&object.namespace))
}

/// The one item of a list, with the type that items of a list lack.
fn only_item(object: &ObjectRef, mut list: Value) -> Option<Value> {
    let mut item = list.get_mut("items")?.as_array_mut()?.pop()?;
    let fields = item.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), object.api_version().into());
    fields.insert("kind".to_owned(), object.kind.clone().into());
    Some(item)
}

/// Watches until the object is what `goal` wants or failed (true), or the object must be read again before the next watch (false).
async fn watch_from(engine: &Engine, object: &ObjectRef, goal: Goal, start: Start, tell: &Tell) -> bool {
    let Start { mut value, resource, mut version } = start;
    let rules = engine.health.as_deref();
    // Expressions know no time, and can take long.
    let depends_on_time = !rules.is_some_and(|rules| rules.applies_to(object));
    loop {
        let path = named(&resource, object);
        let call = get(format!(
            "{path}&watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            encode(&version)
        ));
        let mut lines = match engine.transport.stream(&call).await {
            Ok(body) => Lines::of(body, MAX_EVENT),
            Err(refusal) => {
                pause_after(&refusal).await;
                return false;
            }
        };
        // A connection that died without a word would be waited on for ever.
        let dead = Instant::now() + Duration::from_secs(WATCH_SECONDS + 30);
        while Instant::now() < dead {
            let changed = tokio::select! {
                line = lines.next() => match line {
                    Some(line) => match take(&line, &mut value, &mut version) {
                        Taken::Changed => true,
                        Taken::Bookmark => false,
                        Taken::Broken => {
                            sleep(PAUSE).await;
                            return false;
                        }
                    },
                    None => break,
                },
                // Some health turns on the time alone, and no event tells that.
                () = sleep(TICK) => depends_on_time,
            };
            if changed {
                let seen = goal.judge(value.as_ref(), rules);
                let is_open = seen.end == End::Open;
                if tell.send((object.clone(), seen)).await.is_err() || !is_open {
                    return true;
                }
            }
        }
        // The watch ended as it was asked to, or was cut.
        sleep(Duration::from_millis(100)).await;
    }
}

/// Too old a version is looked up again at once; anything else may need a moment.
async fn pause_after(refusal: &Refusal) {
    if refusal.code() != Some(410) {
        sleep(PAUSE).await;
    }
}

/// What a line of a watch was.
enum Taken {
    Changed,
    Bookmark,
    Broken,
}

/// Takes one event into what is known.
fn take(line: &[u8], value: &mut Option<Value>, version: &mut String) -> Taken {
    let Ok(Value::Object(mut event)) = serde_json::from_slice(line) else { return Taken::Broken };
    let Some(object) = event.remove("object") else { return Taken::Broken };
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
    if kind == "ERROR" {
        return Taken::Broken;
    }
    if let Some(now) = object.pointer("/metadata/resourceVersion").and_then(Value::as_str) {
        now.clone_into(version);
    }
    match kind {
        "ADDED" | "MODIFIED" => *value = Some(object),
        "DELETED" => *value = None,
        _ => return Taken::Bookmark,
    }
    Taken::Changed
}

/// The lines of an answer that comes piece by piece.
pub(crate) struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How long a line may be, in bytes.
    most: usize,
}

impl Lines {
    /// Of this answer.
    pub(crate) fn of(body: Body, most: usize) -> Self {
        Self { body, buffer: BytesMut::new(), most }
    }

    /// The next line; `None` at the end, after a cut, or where a line is larger than an event may be. What came of a
    /// line stays in the buffer when this is dropped half-way.
    pub(crate) async fn next(&mut self) -> Option<BytesMut> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                return Some(line);
            }
            let data = self.body.frame().await?.ok()?.into_data().ok()?;
            if self.buffer.len() + data.len() > self.most {
                return None;
            }
            self.buffer.extend_from_slice(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Taken, take};

    #[test]
    fn events_move_what_is_known() {
        let (mut value, mut version) = (None, "1".to_owned());
        let modified = br#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"5"},"spec":1}}"#;
        assert!(matches!(take(modified, &mut value, &mut version), Taken::Changed));
        assert!(value.is_some());
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        assert!(matches!(take(bookmark, &mut value, &mut version), Taken::Bookmark));
        assert!(value.is_some());
        assert_eq!(version, "9");
        let deleted = br#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"10"}}}"#;
        assert!(matches!(take(deleted, &mut value, &mut version), Taken::Changed));
        assert!(value.is_none());
        for broken in [&br#"{"type":"ERROR","object":{"code":410}}"#[..], b"not json", b"[]", b"{}"] {
            assert!(matches!(take(broken, &mut value, &mut version), Taken::Broken));
        }
    }
}
