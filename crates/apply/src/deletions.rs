//! What pruning would delete, before anything is: each object that is ours and may go, and what would be lost with it that nobody
//! applies again.

use std::collections::BTreeSet;

use roadstead_model::{ApplierUid, ObjectRef, PendingDeletion, Stage};
use serde::Deserialize;
use serde_json::Value;

use crate::Error;
use crate::discovery::{Resource, encode, get};
use crate::engine::Engine;
use crate::error::ObjectFailure;
use crate::failure::explain;
use crate::prune::is_prunable;
use crate::run::Run;
use crate::side_by_side::side_by_side;
use crate::transport::{Call, Form, Refusal};

/// Metadata of so many objects is listed at once.
const PAGE: usize = 100;

/// So many pages of one collection are looked through for an object that is not ours to delete.
const PAGES: usize = 20;

/// What each namespace has by itself, or by what else is in it: groups and kinds.
const OF_ITSELF: &[(&str, &str)] = &[
    ("", "Event"),
    ("events.k8s.io", "Event"),
    ("", "Endpoints"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("coordination.k8s.io", "Lease"),
    ("metrics.k8s.io", "PodMetrics"),
];

/// Objects that each namespace has by itself: kinds and names of the core group.
const NAMED_OF_ITSELF: &[(&str, &str)] = &[
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
];

pub(crate) async fn deletions(
    engine: &Engine,
    owner: ApplierUid,
    inventory: &[ObjectRef],
    keep: &[ObjectRef],
    run: &mut Run<'_>,
) -> Result<Vec<PendingDeletion>, Error> {
    // Nearly always nothing goes, of inventories that may be large.
    let wanted: BTreeSet<&ObjectRef> = keep.iter().collect();
    if inventory.iter().all(|object| wanted.contains(object)) {
        return Ok(Vec::new());
    }
    drop(wanted);
    let sets = Sets { owned: inventory.iter().cloned().collect(), kept: keep.iter().cloned().collect() };
    let stale: Vec<ObjectRef> = sets.owned.difference(&sets.kept).cloned().collect();
    let (owner, sets) = (owner.to_string(), &sets);
    let owner = owner.as_str();
    let work = stale.into_iter().map(|object| async move { look(engine, owner, object, sets).await });
    let (mut deletions, mut failures) = (Vec::new(), Vec::new());
    let Run { cancel, .. } = &mut *run;
    side_by_side(engine.options.concurrency, work, &|| !cancel.is_cancelled(), &mut |looked| match looked {
        Ok(one) => deletions.extend(one),
        Err(failure) => failures.push(failure),
    })
    .await;
    run.check(Stage::Prune)?;
    if !failures.is_empty() {
        return Err(Error::objects(Stage::Prune, failures));
    }
    deletions.sort_by(|a, b| a.object.cmp(&b.object));
    Ok(deletions)
}

/// What is owned, and what of it is wanted, with what is new.
struct Sets {
    owned: BTreeSet<ObjectRef>,
    kept: BTreeSet<ObjectRef>,
}

/// One object, where it would be deleted.
async fn look(
    engine: &Engine,
    owner: &str,
    object: ObjectRef,
    sets: &Sets,
) -> Result<Option<PendingDeletion>, ObjectFailure> {
    let object = &object;
    let Some((_, live)) = engine.find(object).await? else { return Ok(None) };
    if !is_prunable(&live, owner) {
        return Ok(None);
    }
    let risk = match (object.group.as_str(), object.kind.as_str()) {
        ("", "PersistentVolume" | "PersistentVolumeClaim") => bound(&live),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            instances(engine, object, &live, sets).await?
        }
        ("", "Namespace") => occupants(engine, object, sets).await?,
        _ => None,
    };
    Ok(Some(PendingDeletion { object: object.clone(), uid: uid(&live), risk }))
}

pub(crate) fn uid(live: &Value) -> String {
    live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What is lost with a volume, or a claim on one, that is in use.
pub(crate) fn bound(live: &Value) -> Option<String> {
    let phase = live.pointer("/status/phase").and_then(Value::as_str);
    (phase == Some("Bound")).then(|| "is bound, and its data may be lost".to_owned())
}

/// Objects of the kind that a CRD defines, which do not go by themselves.
async fn instances(
    engine: &Engine,
    object: &ObjectRef,
    crd: &Value,
    sets: &Sets,
) -> Result<Option<String>, ObjectFailure> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let served = versions.filter(|version| version.get("served").and_then(Value::as_bool) == Some(true));
    let Some(version) = served.filter_map(|version| version.get("name")?.as_str()).next() else {
        return Ok(None);
    };
    let resource = Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: text("/spec/names/plural").to_owned(),
        namespaced: text("/spec/scope") == "Namespaced",
    };
    let collection = Collection { kind, resource: &resource, namespace: "" };
    let found =
        collection.first(engine, &|other, _| !sets.owned.contains(other) || sets.kept.contains(other)).await;
    Ok(match found {
        Ok(None) => None,
        Ok(Some(other)) => Some(format!("has objects that would be deleted with it, such as {other}")),
        // Its endpoint is not there yet, or not any more: then there is nothing of its kind.
        Err(refusal) if refusal.is_not_found() => None,
        Err(refusal) if refusal.code() == Some(403) => Some(unseen(&resource.plural)),
        Err(refusal) => return Err(explain(object, &refusal, false)),
    })
}

/// What else is in a namespace.
async fn occupants(
    engine: &Engine,
    object: &ObjectRef,
    sets: &Sets,
) -> Result<Option<String>, ObjectFailure> {
    let failed = |refusal: &Refusal| explain(object, refusal, false);
    let kinds = engine.discovery.deletable(&engine.transport).await.map_err(|refusal| failed(&refusal))?;
    let is_other = |other: &ObjectRef, metadata: &Value| {
        let of_itself =
            other.group.is_empty() && NAMED_OF_ITSELF.contains(&(other.kind.as_str(), other.name.as_str()));
        // What belongs to an object goes with that, which is counted itself.
        let belongs =
            metadata.get("ownerReferences").and_then(Value::as_array).is_some_and(|of| !of.is_empty());
        let token_of = "kubernetes.io/service-account.name";
        let is_token =
            metadata.get("annotations").is_some_and(|annotations| annotations.get(token_of).is_some());
        !of_itself && !belongs && !is_token && !sets.owned.contains(other)
    };
    let wanted: Vec<(String, Resource)> = kinds
        .into_iter()
        .filter(|(kind, resource)| {
            resource.namespaced && !OF_ITSELF.contains(&(resource.group.as_str(), kind.as_str()))
        })
        .collect();
    let namespace = object.name.as_str();
    let is_other = &is_other;
    let work = wanted.into_iter().map(|(kind, resource)| async move {
        let collection = Collection { kind: &kind, resource: &resource, namespace };
        let found = collection.first(engine, is_other).await;
        (resource, found)
    });
    let (mut others, mut hidden, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    side_by_side(engine.options.concurrency, work, &|| true, &mut |(resource, found)| match found {
        Ok(other) => others.extend(other),
        Err(refusal) if matches!(refusal.code(), Some(404 | 405)) => {}
        Err(refusal) if refusal.code() == Some(403) => hidden.push(resource.plural.clone()),
        Err(refusal) => failures.push(failed(&refusal)),
    })
    .await;
    if let Some(other) = others.into_iter().min() {
        return Ok(Some(format!("has objects that would be deleted with it, such as {other}")));
    }
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    Ok(hidden.into_iter().min().map(|plural| unseen(&plural)))
}

fn unseen(plural: &str) -> String {
    format!("may have objects that would be deleted with it: the service account cannot list {plural}")
}

/// Objects of one kind, in one namespace or in all.
struct Collection<'a> {
    kind: &'a str,
    resource: &'a Resource,
    /// Empty: all of them.
    namespace: &'a str,
}

/// A page of a list, of which only the metadata counts.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMetadata,
    /// Null where there are none.
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: Value,
}

impl Collection<'_> {
    /// An object that `is_wanted`, by its name and its metadata.
    async fn first(
        &self,
        engine: &Engine,
        is_wanted: &(dyn Fn(&ObjectRef, &Value) -> bool + Sync),
    ) -> Result<Option<ObjectRef>, Refusal> {
        let Self { kind, resource, namespace } = self;
        let collection = resource.collection(namespace);
        let mut next = String::new();
        for _ in 0..PAGES {
            let path = format!("{collection}?limit={PAGE}&continue={}", encode(&next));
            let call = Call { form: Form::MetadataList, ..get(path) };
            // One page of metadata is in memory at a time.
            let _listing = engine.listing.acquire().await;
            let answer = engine.transport.send(&call).await?.value;
            let page: Page = serde_json::from_value(answer).map_err(|_| {
                Refusal::Unreachable(format!("a list of {} could not be read", resource.plural))
            })?;
            for Item { metadata } in page.items.unwrap_or_default() {
                let text =
                    |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                let object = ObjectRef {
                    group: resource.group.clone(),
                    version: resource.version.clone(),
                    kind: (*kind).to_owned(),
                    namespace: text("namespace"),
                    name: text("name"),
                };
                if is_wanted(&object, &metadata) {
                    return Ok(Some(object));
                }
            }
            if page.metadata.next.is_empty() {
                return Ok(None);
            }
            next = page.metadata.next;
        }
        // Of so many, nobody can say that none is in the way.
        Ok(Some(ObjectRef {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: (*kind).to_owned(),
            namespace: (*namespace).to_owned(),
            name: format!("… (more than {} {})", PAGE * PAGES, resource.plural),
        }))
    }
}
