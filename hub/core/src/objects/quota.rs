//! Quotas: how many objects a namespace may have, and how many bytes of artifacts. They are asked in the transaction that makes an object or
//! names an artifact, each locked from there to its end, so that two who come at once do not both have the last place. What is used is counted when a quota is read. How many builds run at
//! once is held by those who build (`delivery/build/turns.rs`): they wait, where all that is bounded here is refused.

use roadstead_api::{ARTIFACT_BYTES, KindId, RUNNING_BUILDS, ResourceQuota, ResourceQuotaStatus};
use roadstead_hub_store::{Store, StoreError, Stored, Tx};
use roadstead_model::ResourceUid;
use serde_json::json;

use crate::HubError;
use crate::address::named;
use crate::objects::Objects;

/// Quotas of one namespace that are looked at.
const MOST_QUOTAS: i64 = 100;

/// Whether a namespace has room for one more object.
///
/// # Errors
/// [`HubError::Forbidden`], as Kubernetes says it.
pub(super) async fn admit(tx: &mut Tx, stored: &Stored) -> Result<(), HubError> {
    if !stored.kind.get().namespaced() || stored.kind == KindId::Event {
        return Ok(());
    }
    for quota in tx.list_locked(KindId::ResourceQuota, &stored.namespace).await? {
        let spec = quota.decode::<ResourceQuota>()?.spec;
        for (what, kinds, limit) in spec.limits().filter(|(_, kinds, _)| kinds.contains(&stored.kind)) {
            let used = tx.count_in(&kinds, &stored.namespace).await?;
            if used >= limit {
                return Err(HubError::Forbidden(format!(
                    "{} is forbidden: exceeded quota: {}, requested: {what}=1, used: {what}={used}, limited: {what}={limit}",
                    named(stored.kind.get(), &stored.name),
                    quota.name
                )));
            }
        }
    }
    Ok(())
}

/// Whether a namespace has room for an artifact of so many bytes, as the next one of a source; else which quota has not. Asked before the
/// artifact is stored, so that what does not fit is not; whether it still fits, [`admit_artifact`] says. True where there is a limit.
///
/// # Errors
/// Where the database fails.
pub(crate) async fn has_room(
    store: &Store,
    namespace: &str,
    source: Option<ResourceUid>,
    bytes: u64,
) -> Result<Result<bool, String>, HubError> {
    let mut quotas = Vec::new();
    for name in store.names(KindId::ResourceQuota, namespace, MOST_QUOTAS).await? {
        quotas.extend(store.get(KindId::ResourceQuota, namespace, &name).await?);
    }
    let limits = byte_limits(&quotas)?;
    if limits.is_empty() {
        return Ok(Ok(false));
    }
    let used = store.artifact_bytes(namespace, source).await?;
    Ok(fits(&limits, used, bytes).map(|()| true))
}

/// The same in the transaction that makes it the artifact of the source: no other one comes into the namespace until that ends.
///
/// # Errors
/// Where the database fails.
pub(crate) async fn admit_artifact(
    tx: &mut Tx,
    namespace: &str,
    source: ResourceUid,
    bytes: u64,
) -> Result<Result<(), String>, HubError> {
    let quotas = tx.list_locked(KindId::ResourceQuota, namespace).await?;
    let limits = byte_limits(&quotas)?;
    if limits.is_empty() {
        return Ok(Ok(()));
    }
    let used = tx.artifact_bytes(namespace, Some(source)).await?;
    Ok(fits(&limits, used, bytes))
}

/// The quotas that limit the bytes of artifacts, by their names, and to how many.
fn byte_limits(quotas: &[Stored]) -> Result<Vec<(&str, u64)>, StoreError> {
    let mut limits = Vec::new();
    for quota in quotas {
        let limit = quota.decode::<ResourceQuota>()?.spec.artifact_bytes();
        limits.extend(limit.map(|limit| (quota.name.as_str(), limit)));
    }
    Ok(limits)
}

/// Whether an artifact fits into what is left; else which quota has no room for it.
fn fits(limits: &[(&str, u64)], used: u64, bytes: u64) -> Result<(), String> {
    match limits.iter().find(|(_, limit)| used.saturating_add(bytes) > *limit) {
        None => Ok(()),
        Some((quota, limit)) => Err(format!(
            "exceeded quota: {quota}, requested: {ARTIFACT_BYTES}={bytes}, used: {ARTIFACT_BYTES}={used}, limited: \
             {ARTIFACT_BYTES}={limit}"
        )),
    }
}

impl Objects {
    /// Counts what of a quota is used; any other object stays as it is.
    pub(super) async fn count_used(&self, stored: &mut Stored) -> Result<(), StoreError> {
        if stored.kind != KindId::ResourceQuota {
            return Ok(());
        }
        let spec = stored.decode::<ResourceQuota>()?.spec;
        let mut status = ResourceQuotaStatus { hard: spec.hard.clone(), ..ResourceQuotaStatus::default() };
        for (what, kinds, _) in spec.limits() {
            let used = self.store.count_in(&kinds, &stored.namespace).await?;
            status.used.insert(what.to_owned(), used.to_string());
        }
        if spec.artifact_bytes().is_some() {
            let used = self.store.artifact_bytes(&stored.namespace, None).await?;
            status.used.insert(ARTIFACT_BYTES.to_owned(), used.to_string());
        }
        if spec.running_builds().is_some() {
            let used = self.store.running_builds(&stored.namespace, self.clock.now()).await?;
            status.used.insert(RUNNING_BUILDS.to_owned(), used.to_string());
        }
        stored.object["status"] = json!(status);
        Ok(())
    }
}
