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
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::views::{FleetPage, FleetWatch, ReconciliationsOptions};
use roadstead_model::{AttemptFilter, EventFilter, InventoryFilter, InventoryKey, KustomizationFilter};
use tokio_stream::{Stream, StreamExt as _};

use crate::fair::WatchPlace;
use crate::request::Query;
use crate::{Api, openapi, status};

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
    Kustomizations,
    Events,
    Inventory,
    /// Attempts of all Kustomizations.
    Attempts,
    /// Attempts that changed something though nothing new was to be applied.
    Drift,
    /// Changes as they happen, as server-sent events.
    Changes,
    /// The last attempts of one Kustomization with their change sets, and what an agent is doing right now.
    Reconciliations {
        namespace: &'a str,
        name: &'a str,
    },
}

impl<'a> View<'a> {
    /// The view that a path names.
    pub(crate) fn parse(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix("/fleet/v1/")?;
        Some(match rest {
            "openapi.json" => Self::Document,
            "clusters" => Self::Clusters,
            "health" => Self::Health,
            "kustomizations" => Self::Kustomizations,
            "events" => Self::Events,
            "inventory" => Self::Inventory,
            "reconciliations" => Self::Attempts,
            "drift" => Self::Drift,
            "changes" => Self::Changes,
            _ => {
                let (namespace, rest) = rest.strip_prefix("namespaces/")?.split_once("/kustomizations/")?;
                let name = rest.strip_suffix("/reconciliations")?;
                let sound = |part: &str| !part.is_empty() && !part.contains(['/', '%']);
                (sound(namespace) && sound(name)).then_some(Self::Reconciliations { namespace, name })?
            }
        })
    }

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
            Self::Kustomizations => kustomizations(api, who, query).await?,
            Self::Events => {
                let filter = EventFilter {
                    kind: text(query, "kind")?,
                    namespace: text(query, "namespace")?,
                    name: text(query, "name")?,
                    type_: text(query, "type")?,
                    before: before(query)?,
                };
                page(hub.views.events(who, &filter, limit(query)?).await?, None)
            }
            Self::Health => page(hub.views.health(who).await?, None),
            Self::Inventory => inventory(api, who, query).await?,
            Self::Attempts | Self::Drift => attempts(api, who, query, matches!(self, Self::Drift)).await?,
            Self::Changes => {
                let place = api.watches.take(&who.username)?;
                let watch = hub.views.changes(who, resume_at(query, headers)?).await?;
                let alive = KeepAlive::new().interval(ALIVE);
                Sse::new(stream(watch, place, api)).keep_alive(alive).into_response()
            }
            Self::Reconciliations { namespace, name } => {
                let limit = query.number("limit")?.filter(|limit| *limit > 0);
                let options = ReconciliationsOptions {
                    limit: limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
                    changed_only: query.flag("changedOnly"),
                };
                Json(hub.views.reconciliations(who, namespace, name, options).await?).into_response()
            }
        })
    }
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

async fn inventory(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let (labels, label_keys) = labels(&text(query, "labels")?)?;
    let filter = InventoryFilter {
        labels,
        label_keys,
        cluster: text(query, "cluster")?,
        kind: text(query, "kind")?,
        namespace: text(query, "namespace")?,
        name: text(query, "name")?,
        owner_namespace: text(query, "kustomizationNamespace")?,
        owner: text(query, "kustomization")?,
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

async fn kustomizations(api: &Api, who: &Identity, query: &Query) -> Result<Response, HubError> {
    let filter = KustomizationFilter {
        cluster: text(query, "cluster")?,
        namespace: text(query, "namespace")?,
        name: text(query, "name")?,
        source_kind: text(query, "sourceKind")?,
        source_name: text(query, "source")?,
        source_namespace: text(query, "sourceNamespace")?,
        state: text(query, "state")?,
    };
    let after: Option<(String, String)> = read_key(query)?;
    let (items, next) = api.hub.views.kustomizations(who, &filter, after.as_ref(), limit(query)?).await?;
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
    let filter = AttemptFilter {
        namespace: text(query, "namespace")?,
        cluster: text(query, "cluster")?,
        failed: query.flag("failed"),
        drift,
        before: before(query)?,
    };
    let items = api.hub.views.attempts(who, &filter, limit(query)?).await?;
    Ok(page(items, None))
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
    use roadstead_model::InventoryKey;

    use super::{View, parse_key};

    #[test]
    fn paths() {
        assert!(matches!(View::parse("/fleet/v1/health"), Some(View::Health)));
        let path = "/fleet/v1/namespaces/a/kustomizations/b/reconciliations";
        assert!(matches!(View::parse(path), Some(View::Reconciliations { namespace: "a", name: "b" })));
        for bad in [
            "/fleet/v1",
            "/fleet/v1/",
            "/fleet/v2/health",
            "/fleet/v1/namespaces//kustomizations/b/reconciliations",
        ] {
            assert!(View::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn keys_that_are_none() {
        for bad in ["", "!", "e30", "bnVsbA"] {
            assert!(parse_key::<InventoryKey>(bad).is_err(), "{bad}");
        }
    }
}
