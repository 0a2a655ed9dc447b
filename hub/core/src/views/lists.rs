//! Lists of the fleet views that are of objects of the hub: appliers and Events, as far as lists show them.

use std::collections::BTreeMap;

use roadstead_api::{KindId, PipelineRole, Reference};
use roadstead_hub_store::{ApplierRow, SourceRow};
use roadstead_model::{ApplierFilter, ApplierRef, EventFilter, EventKey, ListKey, SourceFilter};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::HubError;
use crate::identity::Identity;
use crate::views::fleet::{MAX_ITEMS, ReadyState, ready_of};
use crate::views::{Views, known_applier_kind, visible};

/// An applier, as far as lists show it: an object of the hub that deploys to a cluster.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplierItem {
    /// Its kind.
    pub kind: String,
    /// The API group and version that its kind is stored in.
    pub api_version: String,
    /// Its resource, as in the path of its API: `kustomizations`.
    pub resource: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Cluster that it is for, by name; empty where it names none that is known.
    pub cluster: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where its manifests come from: the first of its sources; its fields are empty where there is none.
    pub source: ObjectName,
    /// All of its sources, by kind, namespace and name.
    pub sources: Vec<ObjectName>,
    /// The path in the source; empty where its kind has none.
    pub path: String,
    /// The revision that was applied last; empty where none was.
    pub revision: String,
    /// The revision to which it is pinned; empty where it follows its source.
    pub pinned: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What its Ready condition says. Of what could not be seen for longer than twice its interval: `Unknown`, with the reason `NotSeen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyState>,
}

/// A source, as far as lists show it: an object of the hub that says what is fetched, and from where.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceItem {
    /// Its kind.
    pub kind: String,
    /// The API group and version that its kind is stored in.
    pub api_version: String,
    /// Its resource, as in the path of its API: `gitrepositories`.
    pub resource: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Where it is fetched from: a URL, or the endpoint and name of a bucket; empty where its spec says neither.
    pub address: String,
    /// The revision of its artifact; empty where it has none.
    pub revision: String,
    /// When its artifact was made; empty where it has none.
    pub fetched: String,
    /// Whether it is suspended.
    pub suspended: bool,
    /// What its Ready condition says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyState>,
}

/// An object of the hub.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ObjectName {
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    /// In the place of an object that is gone or is not named.
    pub(super) fn nothing() -> Self {
        Self { kind: String::new(), namespace: String::new(), name: String::new() }
    }
}

impl From<ApplierRef> for ObjectName {
    fn from(ApplierRef { kind, namespace, name }: ApplierRef) -> Self {
        Self { kind, namespace, name }
    }
}

impl From<Reference> for ObjectName {
    fn from(Reference { kind, namespace, name }: Reference) -> Self {
        Self { kind: kind.to_string(), namespace, name }
    }
}

/// What happened to an object of the hub, or to one in a cluster, as Flux's controllers there reported it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EventItem {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// What happened, for programs.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// What it happened to.
    pub object: ObjectName,
    /// When it happened first.
    pub first: String,
    /// When it happened last.
    pub last: String,
    /// How often it happened.
    pub count: i64,
    /// The Cluster in which it happened, as a controller of Flux reported there; absent where it happened on the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

impl Views {
    /// A page of appliers, by namespace, name and kind; the next begins behind the key.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. [`HubError::NotFound`] where the filter's kind is not one of appliers. Where the database fails.
    pub async fn appliers(
        &self,
        who: &Identity,
        filter: &ApplierFilter,
        after: Option<&ListKey>,
        limit: i64,
    ) -> Result<(Vec<ApplierItem>, Option<ListKey>), HubError> {
        let kinds = match known_applier_kind(&filter.kind)? {
            Some(kind) => vec![kind],
            None => KindId::of_role(PipelineRole::Applier).collect(),
        };
        let visible = visible::of_kinds(who, &kinds, &filter.namespace)?;
        let limit = limit.clamp(1, MAX_ITEMS);
        let found = self.store.applier_rows(&kinds, filter, visible.as_ref(), after, limit + 1).await?;
        let items = found.into_iter().map(applier_item).collect();
        Ok(paged(items, limit, |last: &ApplierItem| (&last.namespace, &last.name, &last.kind)))
    }

    /// A page of sources, by namespace, name and kind; the next begins behind the key.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. [`HubError::NotFound`] where the filter's kind is not one of sources. Where the database fails.
    pub async fn sources(
        &self,
        who: &Identity,
        filter: &SourceFilter,
        after: Option<&ListKey>,
        limit: i64,
    ) -> Result<(Vec<SourceItem>, Option<ListKey>), HubError> {
        let sources = KindId::of_role(PipelineRole::Source);
        let kinds: Vec<KindId> =
            sources.filter(|kind| filter.kind.is_empty() || kind.get().kind == filter.kind).collect();
        if kinds.is_empty() {
            return Err(HubError::NotFound { what: format!("kind of source \"{}\"", filter.kind) });
        }
        let visible = visible::of_kinds(who, &kinds, &filter.namespace)?;
        let limit = limit.clamp(1, MAX_ITEMS);
        let found = self.store.source_rows(&kinds, filter, visible.as_ref(), after, limit + 1).await?;
        let items = found.into_iter().map(source_item).collect();
        Ok(paged(items, limit, |last: &SourceItem| (&last.namespace, &last.name, &last.kind)))
    }

    /// A page of Events, those of the hub and those that Flux reported in clusters, those that last happened last first; the next begins behind
    /// the key.
    ///
    /// # Errors
    /// [`HubError::Forbidden`]. Where the database fails.
    pub async fn events(
        &self,
        who: &Identity,
        filter: &EventFilter,
        after: Option<&EventKey>,
        limit: i64,
    ) -> Result<(Vec<EventItem>, Option<EventKey>), HubError> {
        let visible = visible::of_kinds(who, &[KindId::Event], "")?;
        let clusters = visible::clusters_events(who);
        let limit = limit.clamp(1, MAX_ITEMS);
        let mut found =
            self.store.latest_events(filter, visible.as_ref(), clusters.as_deref(), after, limit + 1).await?;
        let limit = usize::try_from(limit).unwrap_or_default();
        let is_full = found.len() > limit;
        found.truncate(limit);
        let items: Vec<EventItem> = found.iter().map(|(_, event)| event_item(event)).collect();
        let last = items.last().zip(found.last()).filter(|_| is_full);
        let next = last.map(|(item, (uid, _))| EventKey(item.last.clone(), *uid));
        Ok((items, next))
    }
}

/// The first `limit` of these, of which there is one more where there is another page, and where that begins.
fn paged<T>(
    mut items: Vec<T>,
    limit: i64,
    key: impl Fn(&T) -> (&String, &String, &String),
) -> (Vec<T>, Option<ListKey>) {
    let limit = usize::try_from(limit).unwrap_or_default();
    let is_full = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| is_full).map(|last| {
        let (namespace, name, kind) = key(last);
        ListKey(namespace.clone(), name.clone(), kind.clone())
    });
    (items, next)
}

fn labels_of(labels: &Value) -> BTreeMap<String, String> {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The API group and version that a kind is stored in, and its resource.
fn api_of(kind: &str) -> (String, String) {
    let kind = KindId::named(kind).map(KindId::get);
    kind.map(|kind| (kind.storage_version().api_version(), kind.plural.to_owned())).unwrap_or_default()
}

fn source_item(row: SourceRow) -> SourceItem {
    let (api_version, resource) = api_of(&row.kind);
    SourceItem {
        labels: labels_of(&row.labels),
        ready: row.ready.as_ref().map(ready_of),
        api_version,
        resource,
        kind: row.kind,
        namespace: row.namespace,
        name: row.name,
        address: row.address,
        revision: row.revision,
        fetched: row.fetched,
        suspended: row.suspended,
    }
}

fn applier_item(row: ApplierRow) -> ApplierItem {
    let (api_version, resource) = api_of(&row.kind);
    let sources: Vec<ObjectName> =
        row.sources.iter().filter_map(|key| Reference::from_key(key)).map(ObjectName::from).collect();
    ApplierItem {
        labels: labels_of(&row.labels),
        source: sources.first().cloned().unwrap_or_else(ObjectName::nothing),
        sources,
        ready: row.ready.as_ref().map(ready_of),
        api_version,
        resource,
        kind: row.kind,
        namespace: row.namespace,
        name: row.name,
        cluster: row.cluster,
        path: row.path,
        revision: row.revision,
        pinned: row.pinned,
        suspended: row.suspended,
    }
}

fn event_item(event: &Value) -> EventItem {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    EventItem {
        type_: text("/type"),
        reason: text("/reason"),
        message: text("/message"),
        object: ObjectName {
            kind: text("/involvedObject/kind"),
            namespace: text("/involvedObject/namespace"),
            name: text("/involvedObject/name"),
        },
        first: text("/firstTimestamp"),
        last: text("/lastTimestamp"),
        count: event["count"].as_i64().unwrap_or(1),
        cluster: event["cluster"].as_str().map(str::to_owned),
    }
}
