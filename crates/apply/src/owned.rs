//! Watching what was applied: everything in a scope that bears an owner's label, or one object by its name. Of each its metadata,
//! which tells whether it stands as it was applied, or all of it, which tells its health.

use std::collections::HashSet;
use std::time::Duration;

use roadstead_model::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::discovery::{Resource, encode, get};
use crate::engine::Engine;
use crate::transport::{Call, Form, Refusal};
use crate::watch::Lines;
use crate::{Footprint, OWNER_LABEL};

/// How many objects a page of a list has, in descending order: fewer where that is too much for one answer. An engine and its
/// clones list one page at a time, so that the memory for answers is one's.
type Pages = [usize; 3];

/// How large one event of a watch may be: somewhat more than etcd takes of an object.
const MAX_EVENT: usize = 1536 * 1024;

/// How many objects a scope may have.
const MAX_OBJECTS: usize = 50_000;

/// How long a watch is asked to last, in seconds; the next goes on where it ended.
const WATCH_SECONDS: u64 = 290;

/// An apiserver sends a bookmark about each minute. A watch that says nothing for longer may be dead, and is opened again.
const SILENCE: Duration = Duration::from_secs(90);

/// The pause before something is tried again that did not work; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(15);

/// Objects that are watched together: those of a kind, in a namespace or in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    kind: String,
    resource: Resource,
    /// Empty: all of them.
    namespace: String,
    /// The one object of this name, whoever owns it; none: all that bear an owner's label.
    name: Option<String>,
}

impl Scope {
    pub(crate) fn of(object: &ObjectRef, resource: &Resource) -> Self {
        Self {
            kind: object.kind.clone(),
            resource: resource.clone(),
            namespace: object.namespace.clone(),
            name: None,
        }
    }

    /// The objects of this one's kind in its namespace, which the apiserver has under `plural`.
    #[must_use]
    pub fn named(object: &ObjectRef, plural: &str) -> Self {
        let resource = Resource {
            group: object.group.clone(),
            version: object.version.clone(),
            plural: plural.to_owned(),
            namespaced: !object.namespace.is_empty(),
        };
        Self::of(object, &resource)
    }

    /// The same kind in the whole cluster.
    #[must_use]
    pub fn everywhere(&self) -> Self {
        Self { namespace: String::new(), ..self.clone() }
    }

    /// The same kind in one namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// Only the object of this name in the scope's namespace, whoever owns it.
    #[must_use]
    pub fn only(&self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self.clone() }
    }

    fn object(&self, value: &Value) -> Option<ObjectRef> {
        let metadata = value.get("metadata")?;
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        Some(ObjectRef {
            group: self.resource.group.clone(),
            version: self.resource.version.clone(),
            kind: self.kind.clone(),
            namespace: text("namespace").unwrap_or_default().to_owned(),
            name: text("name")?.to_owned(),
        })
    }

    fn call(&self, form: Form, query: &str) -> Call {
        let selector = match &self.name {
            None => format!("labelSelector={}", encode(OWNER_LABEL)),
            Some(name) => format!("fieldSelector=metadata.name%3D{}", encode(name)),
        };
        let collection = self.resource.collection(&self.namespace);
        Call { form, ..get(format!("{collection}?{selector}&{query}")) }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Resource { plural, group, .. } = &self.resource;
        f.write_str(plural)?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in namespace {}", self.namespace)?;
        }
        Ok(())
    }
}

/// What is kept of each object that is seen.
pub(crate) trait Look {
    /// That.
    type Seen;
    /// In which forms lists and watches are asked for.
    const FORMS: (Form, Form);
    /// How many objects a page has.
    const PAGES: Pages;

    /// What is kept of an object as it came.
    fn at(engine: &Engine, object: &ObjectRef, value: Value) -> Self::Seen;
}

/// Who has written to an object. Metadata of one object can have a megabyte, most have a few kilobytes.
pub(crate) struct Metadata;

impl Look for Metadata {
    type Seen = Footprint;
    const FORMS: (Form, Form) = (Form::MetadataList, Form::Metadata);
    const PAGES: Pages = [250, 20, 1];

    fn at(engine: &Engine, _: &ObjectRef, value: Value) -> Footprint {
        Footprint::of(&value, &engine.hashes.footprints)
    }
}

/// All of an object.
pub(crate) struct Whole;

impl Look for Whole {
    type Seen = Value;
    const FORMS: (Form, Form) = (Form::Whole, Form::Whole);
    const PAGES: Pages = [100, 10, 1];

    fn at(_: &Engine, object: &ObjectRef, mut value: Value) -> Value {
        // Items of a list lack them.
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".to_owned(), object.api_version().into());
            fields.insert("kind".to_owned(), object.kind.clone().into());
        }
        value
    }
}

/// What a watch tells. The version of a reference is the one that the scope is watched in.
#[derive(Debug, Clone)]
pub enum Sight<T = Footprint> {
    /// An object as it is in a list, which counts whatever version it has: an apiserver whose etcd was restored has gone back.
    Listed(ObjectRef, T),
    /// An object as it is now.
    Seen(ObjectRef, T),
    /// An object is gone, or bears no owner's label any more.
    Gone(ObjectRef),
    /// From here on all changes are told.
    Complete {
        /// All objects that there are.
        all: HashSet<ObjectRef>,
        /// What is listed is of an earlier time than what was seen before: etcd was restored from a backup.
        went_back: bool,
    },
    /// Changes are not told any more until the next [`Sight::Complete`] or [`Sight::Resumed`].
    Lost,
    /// Changes are told again, and none was missed.
    Resumed,
}

/// What is seen goes there.
type Tell<'a, L> = &'a mut (dyn FnMut(Sight<<L as Look>::Seen>) + Send);

/// See [`Engine::watch_owned`] and [`Engine::watch_whole`].
pub(crate) async fn watch<L: Look>(engine: &Engine, scope: &Scope, tell: Tell<'_, L>) -> String {
    let (mut pause, mut version) = (FIRST_PAUSE, String::new());
    loop {
        let refusal = match list::<L>(engine, scope, tell).await {
            Ok((listed, all)) => {
                pause = FIRST_PAUSE;
                let went_back = is_older(&listed, &version);
                version = listed;
                tell(Sight::Complete { all, went_back });
                follow::<L>(engine, scope, &mut version, tell).await
            }
            Err(refusal) => refusal,
        };
        tell(Sight::Lost);
        if matches!(refusal.code(), Some(401 | 403 | 404 | 405)) {
            return refusal.to_string();
        }
        tracing::debug!(%scope, %refusal, ?pause, "a watch is begun again");
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Whether a resource version is older than another one; false where they are not numbers.
fn is_older(one: &str, other: &str) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    number(one).zip(number(other)).is_some_and(|(one, other)| one < other)
}

/// Lists all there is, and gives from where a watch goes on.
async fn list<L: Look>(
    engine: &Engine,
    scope: &Scope,
    tell: Tell<'_, L>,
) -> Result<(String, HashSet<ObjectRef>), Refusal> {
    let (mut seen, mut next, mut page) = (HashSet::new(), String::new(), 0);
    loop {
        let query = format!("limit={}&continue={}", L::PAGES[page], encode(&next));
        // Never closed.
        let _turn = engine.listing.acquire().await;
        let mut list = match engine.transport.send(&scope.call(L::FORMS.0, &query)).await {
            Ok(answer) => answer.value,
            Err(Refusal::TooLarge(why) | Refusal::Unreachable(why)) if page + 1 < L::PAGES.len() => {
                tracing::debug!(%scope, why, "a smaller page is listed");
                page += 1;
                continue;
            }
            Err(refusal) => return Err(refusal),
        };
        for item in list["items"].as_array_mut().map(std::mem::take).into_iter().flatten() {
            let Some(object) = scope.object(&item) else { continue };
            tell(Sight::Listed(object.clone(), L::at(engine, &object, item)));
            seen.insert(object);
        }
        if seen.len() > MAX_OBJECTS {
            let why = format!("there are more than {MAX_OBJECTS} objects to watch");
            return Err(Refusal::Unreachable(why));
        }
        next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            return Ok((version.to_owned(), seen));
        }
    }
}

/// Watches from `version` on, and gives why it has to be listed again.
async fn follow<L: Look>(engine: &Engine, scope: &Scope, version: &mut String, tell: Tell<'_, L>) -> Refusal {
    let mut is_first = true;
    loop {
        let from = encode(version);
        let query = format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={from}"
        );
        let mut lines = match engine.transport.stream(&scope.call(L::FORMS.1, &query)).await {
            Ok(body) => Lines::of(body, MAX_EVENT),
            Err(refusal) => return refusal,
        };
        if !std::mem::take(&mut is_first) {
            tell(Sight::Resumed);
        }
        let opened = Instant::now();
        // The end, a cut, or a silence.
        while let Ok(Some(line)) = timeout(SILENCE, lines.next()).await {
            if let Err(refusal) = take::<L>(engine, scope, &line, version, tell) {
                return refusal;
            }
        }
        if opened.elapsed() < Duration::from_secs(1) {
            return Refusal::Unreachable("the watch ended as soon as it began".to_owned());
        }
        // What happens until the next one begins is told by that one.
        tell(Sight::Lost);
    }
}

/// Takes one event; fails where it must be listed again.
fn take<L: Look>(
    engine: &Engine,
    scope: &Scope,
    line: &[u8],
    version: &mut String,
    tell: Tell<'_, L>,
) -> Result<(), Refusal> {
    let broken = || Refusal::Unreachable("the watch sent a line that is not an event".to_owned());
    let mut event: Value = serde_json::from_slice(line).map_err(|_| broken())?;
    let value = event.get_mut("object").map(Value::take).unwrap_or_default();
    let kind = event["type"].as_str().unwrap_or_default();
    if kind == "ERROR" {
        let what = value["message"].as_str().unwrap_or("an error").chars().take(200).collect();
        return Err(Refusal::Unreachable(what));
    }
    if let Some(now) = value["metadata"]["resourceVersion"].as_str() {
        now.clone_into(version);
    }
    match kind {
        "ADDED" | "MODIFIED" => {
            let object = scope.object(&value).ok_or_else(broken)?;
            let seen = L::at(engine, &object, value);
            tell(Sight::Seen(object, seen));
        }
        "DELETED" => tell(Sight::Gone(scope.object(&value).ok_or_else(broken)?)),
        _ => {}
    }
    Ok(())
}
