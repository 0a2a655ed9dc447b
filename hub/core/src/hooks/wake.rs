//! What a Receiver has reconciled: its objects are found, and get the annotation by which people ask for that, too.

use std::collections::BTreeSet;

use roadstead_api::{KindId, REQUEST_ANNOTATION, ReceiverResource};
use roadstead_hub_store::{Filter, Part, Stored};
use roadstead_model::{AuditOrigin, ResourceUid, chain};
use serde_json::{Value, json};

use crate::HubError;
use crate::hooks::Hooks;
use crate::hooks::call::Called;
use crate::identity::{Identity, audit};
use crate::objects::{managers, triggers};

/// So many objects one call has reconciled at most.
const MOST: usize = 1_000;
/// And so many bytes of metadata filters are shown, about.
const MOST_BYTES: usize = 4 << 20;

impl Hooks {
    /// The objects that a Receiver names and may have reconciled, each once, by entry; and what is wrong with the first entry with
    /// which something is.
    pub(super) async fn candidates(
        &self,
        called: &Called,
    ) -> Result<(Vec<(usize, Stored)>, Option<String>), HubError> {
        let (mut found, mut failed, mut known) = (Vec::new(), None, BTreeSet::new());
        let mut bytes = 0;
        let too_many =
            || format!("its entries name more than {MOST} objects, or {MOST_BYTES} bytes of metadata");
        for (entry, resource) in called.spec.resources.iter().enumerate() {
            // What is not on the hub was told when it was written.
            let Some(kind) = KindId::referred(resource.api_version.as_deref(), resource.kind.as_str())
                .filter(|kind| kind.is_in_pipeline())
            else {
                continue;
            };
            for object in self.named(&called.stored, kind, resource).await? {
                if let Err(why) = self.access.may_use(&called.stored, &object).await? {
                    failed = failed.or_else(|| Some(format!("spec.resources[{entry}]: {object} {why}")));
                } else if found.len() == MOST {
                    return Ok((found, failed.or_else(|| Some(too_many()))));
                } else if known.insert((entry, object.uid)) {
                    bytes += object.object.to_string().len();
                    found.push((entry, object));
                }
            }
            // No more than that was read of the entry, either.
            if bytes > MOST_BYTES {
                return Ok((found, failed.or_else(|| Some(too_many()))));
            }
        }
        Ok((found, failed))
    }

    /// The objects of one entry. One that is absent may come later, and fails nothing.
    async fn named(
        &self,
        receiver: &Stored,
        kind: KindId,
        resource: &ReceiverResource,
    ) -> Result<Vec<Stored>, HubError> {
        let namespace = resource.namespace.as_deref().unwrap_or(&receiver.namespace);
        if resource.name != "*" {
            let found = self.store.get(kind, namespace, &resource.name).await?;
            return Ok(found.into_iter().map(metadata_of).collect());
        }
        if resource.match_labels.is_empty() {
            // Refused when it is written; an older version took it.
            return Ok(Vec::new());
        }
        let filter = Filter {
            namespace: namespace.to_owned(),
            name: String::new(),
            labels: resource.match_labels.clone(),
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        let limit = i64::try_from(MOST + 1).unwrap_or(i64::MAX);
        let each = |stored| {
            // The last one is beyond the bound, which is so told.
            if bytes <= MOST_BYTES {
                let stored = metadata_of(stored);
                bytes += stored.object.to_string().len();
                found.push(stored);
            }
        };
        self.store.list_each(kind, &filter, Part::default(), limit, each).await?;
        Ok(found)
    }

    /// Asks for a reconciliation of each of these; says of how many, and why not of the first of the others.
    pub(super) async fn wake(
        &self,
        receiver: &Stored,
        objects: Vec<Stored>,
        origin: &AuditOrigin,
    ) -> (usize, Option<String>) {
        let (mut woken, mut failed, mut known) = (0, None, BTreeSet::new());
        let who = Identity::receiver(&receiver.namespace, &receiver.name).asks_from(origin);
        for object in objects.into_iter().filter(|object| known.insert(object.uid)) {
            match self.wake_one(&who, object.uid).await {
                Ok(()) => woken += 1,
                Err(error) => failed = failed.or_else(|| Some(format!("{object}: {}", chain(&error)))),
            }
        }
        (woken, failed)
    }

    /// In a unit of work of its own, so that it waits for nobody with a lock on others.
    async fn wake_one(&self, who: &Identity, uid: ResourceUid) -> Result<(), HubError> {
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(before) = tx.get_by_uid(uid).await? else { return Ok(()) };
        if before.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut after = before.clone();
        let metadata = &mut after.object["metadata"];
        if !metadata["annotations"].is_object() {
            metadata["annotations"] = json!({});
        }
        metadata["annotations"][REQUEST_ANNOTATION] = Value::String(now.to_string());
        managers::note_hub(Some(&before), &mut after, now);
        tx.put(after.clone()).await?;
        triggers::on_change(&mut tx, Some(&before), Some(&after)).await?;
        tx.note(&audit::about(who, "reconcile", before.kind, &before.namespace, &before.name)).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// What filters see of an object, and no more: of a thousand all would be too much.
fn metadata_of(mut stored: Stored) -> Stored {
    let mut metadata = stored.object["metadata"].take();
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("managedFields");
    }
    stored.object = json!({ "metadata": metadata });
    stored
}
