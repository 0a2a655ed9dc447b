//! The fleet views' addresses: read models beside the resource API, described by `/fleet/v1/openapi.json`.

pub(crate) mod document;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use roadstead_api::KindId;
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::views::{FleetPage, FleetWatch, ReconciliationsOptions};
use roadstead_model::{
    ApplierFilter, ApplierRef, AttemptFilter, DeliveryFilter, DriftFilter, EventFilter, EventKey,
    IncidentFilter, InventoryFilter, InventoryKey, ListKey, SilenceFilter, SourceFilter,
};
use tokio_stream::{Stream, StreamExt as _};

use crate::fair::WatchPlace;
use crate::lasting::Lasts;
use crate::request::Query;
use crate::{Api, artifacts, openapi, status};

/// Items of a page where the request does not say.
const PAGE: u64 = 100;
/// A stream that is still tells that it lives this often.
const ALIVE: Duration = Duration::from_secs(15);

/// What there is here, written once.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    // A description is texts and numbers: it has a JSON form.
    serde_json::to_vec(&document::document()).unwrap_or_default().into()
});

/// A view.
pub(crate) enum View<'a> {
    /// What there is here, as OpenAPI.
    Document,
    Clusters,
    Health,
    /// Appliers of all kinds, or of the one that the query names.
    Appliers,
    /// Those that are Kustomizations, under the path from before there were other kinds.
    Kustomizations,
    Sources,
    Events,
    Inventory,
    /// Attempts of all appliers.
    Attempts,
    /// Attempts that changed something though nothing new was to be applied.
    Drift,
    /// Objects that differ, or differed, from what was applied.
    DriftedObjects,
    /// What Alerts send, and what came of it.
    Deliveries,
    /// What fails for one cause, of which Alerts tell.
    Incidents,
    /// What Alerts do not send.
    Silences,
    /// Changes as they happen, as server-sent events.
    Changes,
    /// The last attempts of one applier with their change sets, and what an agent is doing right now.
    Reconciliations {
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// An artifact of a source.
    Artifact {
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// What differs between two builds of one applier.
    Diff {
        kind: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
}

impl View<'_> {
    pub(crate) async fn answer(
        &self,
        api: &Api,
        who: &Identity,
        query: &Query,
        headers: &HeaderMap,
    ) -> Response {
        self.found(api, who, query, headers).await.unwrap_or_else(|error| status::response(&error, None))
    }

    async fn found(
        &self,
        api: &Api,
        who: &Identity,
        query: &Query,
        headers: &HeaderMap,
    ) -> Result<Response, HubError> {
        let hub = &api.hub;
        Ok(match self {
            Self::Document => openapi::written(&DOCUMENT, "application/json"),
            Self::Clusters => {
                let names = text(query, "names")?;
                let names: Vec<String> =
                    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                let names = Some(names.as_slice()).filter(|names| !names.is_empty());
                page(hub.views.clusters(who, names).await?, None)
            }
            Self::Appliers => appliers(api, who, query, text(query, "kind")?).await?,
            Self::Kustomizations => appliers(api, who, query, kustomization().to_owned()).await?,
            Self::Sources => {
                let filter = SourceFilter {
                    kind: text(query, "kind")?,
                    namespace: text(query, "namespace")?,
                    name: text(query, "name")?,
                    state: text(query, "state")?,
                };
                let after: Option<ListKey> = read_key(query)?;
                let (items, next) = hub.views.sources(who, &filter, after.as_ref(), limit(query)?).await?;
                page(items, next.map(|key| write_key(&key)))
            }
            Self::Events => {
                let filter = EventFilter {
                    cluster: text(query, "cluster")?,
                    kind: text(query, "kind")?,
                    namespace: text(query, "namespace")?,
                    name: text(query, "name")?,
                    type_: text(query, "type")?,
                    before: before(query)?,
                };
                let after: Option<EventKey> = read_key(query)?;
                let (items, next) = hub.views.events(who, &filter, after.as_ref(), limit(query)?).await?;
                page(items, next.map(|key| write_key(&key)))
            }
            Self::Health => page(hub.views.health(who).await?, None),
            Self::Inventory => inventory(api, who, query).await?,
            Self::Attempts | Self::Drift => attempts(api, who, query, matches!(self, Self::Drift)).await?,
            Self::DriftedObjects => drift(api, who, query).await?,
            Self::Deliveries => deliveries(api, who, query).await?,
            Self::Incidents => {
                let filter = IncidentFilter {
                    namespace: text(query, "namespace")?,
                    alert: text(query, "alert")?,
                    open: query.flag("open"),
                    before: before(query)?,
                };
                page(hub.views.incidents(who, &filter, limit(query)?).await?, None)
            }
            Self::Silences => {
                let filter = SilenceFilter { namespace: text(query, "namespace")? };
                page(hub.views.silences(who, &filter, limit(query)?).await?, None)
            }
            Self::Changes => {
                let place = api.watches.take(&who.username)?;
                let watch = hub.views.changes(who, resume_at(query, headers)?).await?;
                let alive = KeepAlive::new().interval(ALIVE);
                let mut response = Sse::new(stream(watch, place, api)).keep_alive(alive).into_response();
                response.extensions_mut().insert(Lasts);
                response
            }
            Self::Reconciliations { kind, namespace, name } => {
                let limit = query.number("limit")?.filter(|limit| *limit > 0);
                let before = query.number("before")?;
                let options = ReconciliationsOptions {
                    before: before.map(|before| i64::try_from(before).unwrap_or(i64::MAX)),
                    limit: limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
                    changed_only: query.flag("changedOnly"),
                };
                Json(hub.views.reconciliations(who, kind, namespace, name, options).await?).into_response()
            }
            Self::Artifact { kind, namespace, name } => {
                artifacts::answer(api, who, (kind, namespace, name), query, headers).await?
            }
            Self::Diff { kind, namespace, name } => {
                let builds = (text(query, "from")?, text(query, "to")?);
                let builds = (builds.0.as_str(), builds.1.as_str());
                Json(hub.views.diff(who, kind, namespace, name, builds).await?).into_response()
            }
        })
    }
}

/// The kind that is meant where older paths and parameters say no kind.
fn kustomization() -> &'static str {
    KindId::Kustomization.get().kind
}

fn page<T: serde::Serialize>(items: Vec<T>, next: Option<String>) -> Response {
    Json(FleetPage { items, next }).into_response()
}

fn limit(query: &Query) -> Result<i64, HubError> {
    let limit = query.number("limit")?.filter(|limit| *limit > 0).unwrap_or(PAGE);
    Ok(i64::try_from(limit).unwrap_or(i64::MAX))
}

/// A text of the query, which the database can take.
fn text(query: &Query, key: &str) -> Result<String, HubError> {
    let text = query.get(key);
    if text.contains('\0') {
        return Err(HubError::BadRequest(format!("{key} holds the character NUL")));
    }
    Ok(text.to_owned())
}

/// Which appliers the query asks for: by `applierKind`, `applierNamespace` and `applier`, or by the parameters from before there
/// were other kinds than Kustomization. What is empty does not narrow.
fn applier_of(query: &Query) -> Result<ApplierRef, HubError> {
    let (kind, namespace, name) =
        (text(query, "applierKind")?, text(query, "applierNamespace")?, text(query, "applier")?);
    let (older_namespace, older_name) =
        (text(query, "kustomizationNamespace")?, text(query, "kustomization")?);
    let older = !older_namespace.is_empty() || !older_name.is_empty();
    let or = |newer: String, older: String| if newer.is_empty() { older } else { newer };
    Ok(ApplierRef {
        kind: or(kind, if older { kustomization().to_owned() } else { String::new() }),
        namespace: or(namespace, older_namespace),
        name: or(name, older_name),
    })
}

async fn inventory(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let applier = applier_of(query)?;
    let (labels, label_keys) = labels(&text(query, "labels")?)?;
    let filter = InventoryFilter {
        labels,
        label_keys,
        cluster: text(query, "cluster")?,
        kind: text(query, "kind")?,
        namespace: text(query, "namespace")?,
        name: text(query, "name")?,
        applier_kind: applier.kind,
        applier_namespace: applier.namespace,
        applier: applier.name,
    };
    let after: Option<InventoryKey> = read_key(query)?;
    let (items, next) = api.hub.views.inventory(who, &filter, after.as_ref(), limit(query)?).await?;
    Ok(page(items, next.map(|key| write_key(&key))))
}

/// `app=web,tier`: labels with values, and labels that only have to be there.
fn labels(text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), HubError> {
    let (mut equal, mut there) = (BTreeMap::new(), Vec::new());
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').map_or((part, None), |(key, value)| (key, Some(value)));
        if key.is_empty() || key.contains(['!', ' ', '(']) {
            return Err(HubError::BadRequest(format!("labels: {part:?}: want key=value or key")));
        }
        match value {
            Some(value) => drop(equal.insert(key.to_owned(), value.trim_start_matches('=').to_owned())),
            None => there.push(key.to_owned()),
        }
    }
    Ok((equal, there))
}

async fn appliers(api: &Api, who: &Identity, query: &Query, kind: String) -> Result<Response, HubError> {
    let filter = ApplierFilter {
        kind,
        cluster: text(query, "cluster")?,
        namespace: text(query, "namespace")?,
        name: text(query, "name")?,
        source_kind: text(query, "sourceKind")?,
        source_name: text(query, "source")?,
        source_namespace: text(query, "sourceNamespace")?,
        state: text(query, "state")?,
    };
    let after: Option<ListKey> = read_key(query)?;
    let (items, next) = api.hub.views.appliers(who, &filter, after.as_ref(), limit(query)?).await?;
    Ok(page(items, next.map(|key| write_key(&key))))
}

/// Where the next page begins. A key is ids and names: it has a JSON form.
fn write_key(key: &impl serde::Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(key).unwrap_or_default())
}

fn read_key<T: serde::de::DeserializeOwned>(query: &Query) -> Result<Option<T>, HubError> {
    match query.get("continue") {
        "" => Ok(None),
        text => parse_key(text).map(Some),
    }
}

fn parse_key<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, HubError> {
    let bad = || HubError::BadRequest("continue key is not valid".to_owned());
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad())?;
    if bytes.windows(6).any(|window| window == b"\\u0000") {
        return Err(bad());
    }
    serde_json::from_slice(&bytes).map_err(|_| bad())
}

fn before(query: &Query) -> Result<Option<jiff::Timestamp>, HubError> {
    match query.get("before") {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            HubError::BadRequest(format!("before: {text:?}: want a time such as 2026-01-02T03:04:05Z"))
        }),
    }
}

async fn attempts(api: &Api, who: &Identity, query: &Query, drift: bool) -> Result<Response, HubError> {
    let applier = applier_of(query)?;
    let namespace = if applier.namespace.is_empty() { text(query, "namespace")? } else { applier.namespace };
    let filter = AttemptFilter {
        applier_kind: applier.kind,
        applier_namespace: namespace,
        applier: applier.name,
        cluster: text(query, "cluster")?,
        failed: query.flag("failed"),
        drift,
        before: before(query)?,
    };
    let items = api.hub.views.attempts(who, &filter, limit(query)?).await?;
    Ok(page(items, None))
}

async fn deliveries(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let before = query.number("before")?;
    let filter = DeliveryFilter {
        namespace: text(query, "namespace")?,
        alert: text(query, "alert")?,
        state: text(query, "state")?,
        before: before.map(|before| i64::try_from(before).unwrap_or(i64::MAX)),
    };
    Ok(page(api.hub.views.deliveries(who, &filter, limit(query)?).await?, None))
}

async fn drift(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let applier = applier_of(query)?;
    let filter = DriftFilter {
        cluster: text(query, "cluster")?,
        applier_kind: applier.kind,
        applier_namespace: applier.namespace,
        applier: applier.name,
        ongoing: query.flag("ongoing"),
        before: before(query)?,
    };
    Ok(page(api.hub.views.drift(who, &filter, limit(query)?).await?, None))
}

/// Browsers that come back say what they saw last.
fn resume_at(query: &Query, headers: &HeaderMap) -> Result<Option<i64>, HubError> {
    let seen = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    match seen.unwrap_or(query.get("resourceVersion")) {
        "" => Ok(None),
        text => {
            let version = text.parse().ok().filter(|version: &i64| *version > 0);
            version
                .map(Some)
                .ok_or_else(|| HubError::BadRequest(format!("{text:?} is not a resource version")))
        }
    }
}

/// Ends with the hub, or with an event `gone` where the reader has to start over.
fn stream(
    watch: FleetWatch,
    place: WatchPlace,
    api: &Api,
) -> impl Stream<Item = Result<Event, Infallible>> + use<> {
    let stopped = api.stop.clone().cancelled_owned();
    let changes = futures::stream::unfold(Some((watch, place)), |state| async move {
        // The place is held as long as the stream is.
        let (mut watch, place) = state?;
        match watch.next().await {
            Ok(change) => {
                let id = change.resource_version.clone();
                // A change is texts: it has a JSON form.
                let event = Event::default().event("change").id(id).json_data(change).unwrap_or_default();
                Some((Ok(event), Some((watch, place))))
            }
            Err(error) => Some((Ok(Event::default().event("gone").data(error.to_string())), None)),
        }
    });
    futures::StreamExt::take_until(changes, stopped).map(|event| event)
}

#[cfg(test)]
mod tests {
    use roadstead_model::{InventoryKey, ListKey};

    use super::parse_key;

    #[test]
    fn keys_that_are_none() {
        for bad in ["", "!", "e30", "bnVsbA"] {
            assert!(parse_key::<InventoryKey>(bad).is_err(), "{bad}");
            assert!(parse_key::<ListKey>(bad).is_err(), "{bad}");
        }
    }
}
