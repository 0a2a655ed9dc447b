//! Volumes, and claims on them, that would have to be deleted to be created again: what is on them would be lost.

use roadstead_model::{ObjectRef, PendingDeletion, guard};
use serde_json::Value;

use crate::Prepared;
use crate::deletions::{bound, uid};
use crate::engine::Engine;
use crate::prepare::Planned;
use crate::stage::{Verdict, read_live, validate};

/// See [`Engine::volumes_held`]. What else is wrong with a volume is for applying to tell.
pub(crate) async fn volumes_held(engine: &Engine, prepared: &Prepared) -> Vec<PendingDeletion> {
    let mut held = Vec::new();
    if engine.volumes.is_none() {
        return held;
    }
    let volumes = prepared.stages.iter().flatten().filter(|planned| is_volume(&planned.reference));
    for planned in volumes.filter(|planned| planned.force) {
        if let Ok(Verdict::Recreate) = validate(engine, planned).await
            && let Ok(Some(live)) = read_live(engine, planned).await
        {
            held.extend(volume_held(engine, planned, &live));
        }
    }
    held
}

fn is_volume(object: &ObjectRef) -> bool {
    object.group.is_empty() && matches!(object.kind.as_str(), "PersistentVolume" | "PersistentVolumeClaim")
}

/// A volume, or a claim on one, that is not deleted before a person has confirmed it.
pub(crate) fn volume_held(engine: &Engine, planned: &Planned, live: &Value) -> Option<PendingDeletion> {
    let confirmed = engine.volumes.as_ref()?;
    let object = &planned.reference;
    let risk = is_volume(object).then(|| bound(live)).flatten()?;
    let deletion = PendingDeletion { object: object.clone(), uid: uid(live), risk: Some(risk) };
    let digest = guard::digest_of(std::slice::from_ref(&deletion));
    (!confirmed.contains(&digest)).then_some(deletion)
}
