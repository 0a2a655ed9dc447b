//! The hub's own events for a notification-controller that is there already: a Provider and an Alert that the hub keeps, so that they
//! are sent, tried again and shown as all others are.

use roadstead_api::{EventSourceKind, KindId};
use roadstead_body::Patch;
use roadstead_notify::QUALIFIED;
use serde_json::{Value, json};

use crate::HubError;
use crate::address::Address;
use crate::identity::Identity;
use crate::objects::Objects;
use crate::objects::managers;
use crate::objects::resources::{DeleteOptions, NAMESPACES, WriteOptions};

/// The name of both.
const NAME: &str = "events-addr";
/// The label of both, with their name as its value: others of that name are somebody else's.
const MADE_BY: &str = "fleet.roadstead.dev/made-by";

/// Has all events sent to a notification-controller at this address, or to none any more.
///
/// # Errors
/// Where the database refuses, or the address is none.
pub(super) async fn forward(objects: &Objects, address: Option<&str>) -> Result<(), HubError> {
    // The Alert goes before what it sends to.
    let kinds = [KindId::Provider, KindId::Alert];
    match address {
        Some(address) => {
            for (kind, object) in kinds.into_iter().zip([provider(address), alert()]) {
                keep(objects, kind, object).await?;
            }
        }
        None => {
            for kind in kinds.into_iter().rev() {
                remove(objects, kind).await?;
            }
        }
    }
    Ok(())
}

/// Removes an object, if it is the hub's.
async fn remove(objects: &Objects, kind: KindId) -> Result<(), HubError> {
    let (who, address) = (Identity::hub(), of(kind, NAME));
    let removed = match objects.get(&who, &address).await {
        Ok(object) if object["metadata"]["labels"][MADE_BY] == NAME => {
            objects.delete(&who, &address, &DeleteOptions::default()).await.map(drop)
        }
        other => other.map(drop),
    };
    match removed {
        Ok(()) | Err(HubError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes an object, or makes it what it should be.
async fn keep(objects: &Objects, kind: KindId, object: Value) -> Result<(), HubError> {
    let options = || WriteOptions { manager: managers::HUB.to_owned(), ..WriteOptions::default() };
    let who = Identity::hub();
    let made = objects.create(&who, &of(kind, ""), object.clone(), options()).await;
    let kept = match made {
        Err(HubError::AlreadyExists { .. }) => {
            objects.patch(&who, &of(kind, NAME), &Patch::Merge(object), options()).await
        }
        other => other,
    };
    match kept {
        // Another replica with another address is at it.
        Ok(_) | Err(HubError::Conflict { .. } | HubError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn of(kind: KindId, name: &str) -> Address {
    let [.., namespace] = NAMESPACES;
    let version = kind.get().storage_version();
    Address { kind, version, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn provider(address: &str) -> Value {
    let metadata = json!({ "name": NAME, "labels": { MADE_BY: NAME } });
    json!({ "metadata": metadata, "spec": { "type": "generic", "address": address } })
}

fn alert() -> Value {
    let kinds = EventSourceKind::ALL.into_iter().filter(|kind| KindId::named(kind.as_str()).is_some());
    let sources: Vec<Value> =
        kinds.map(|kind| json!({ "kind": kind, "name": "*", "namespace": "*" })).collect();
    json!({
        "metadata": { "name": NAME, "labels": { MADE_BY: NAME }, "annotations": { QUALIFIED: "true" } },
        "spec": { "providerRef": { "name": NAME }, "eventSources": sources },
    })
}
