//! What somebody with one cluster's agent key says to a hub, as often as it is taken.

use std::time::Duration;

use anyhow::{Result, bail};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Heard;
use roadstead_tests::{AgentProcess, EnrolledAgent, Fleet};
use serde_json::json;

/// Builds that are asked for, of which none is this cluster's.
const ASKED: usize = 400;
/// Messages about Kustomizations that nobody has, with so many objects each, with texts of so many bytes.
const TOLD: usize = 20;
const OBJECTS: usize = 1_000;
const TEXT: usize = 2_000;

/// A Cluster on the fleet's hub whose key the attacker has.
pub(super) async fn hostile_cluster(
    fleet: &Fleet,
    http: &reqwest::Client,
    server: &str,
) -> Result<EnrolledAgent> {
    let cluster = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": "hostile" } });
    fleet.kubectl().apply(&cluster.to_string()).await?;
    let join = serde_json::from_str(&AgentProcess::token(&fleet.hub, "hostile").await?)?;
    EnrolledAgent::join(http, server, &join, &uuid::Uuid::new_v4().to_string()).await
}

/// One session: progress of Kustomizations that are nobody's, intents, and requests for others' builds, all at once; and the
/// hub's answers are not read for a while.
pub(super) async fn session(agent: &EnrolledAgent) -> Result<()> {
    let mut session = agent.session().await?;
    for number in 0..TOLD {
        let key = key();
        session.say(Said::Progress(progress(&key, number))).await?;
        let objects = (0..OBJECTS).map(object).collect();
        session.say(Said::InventoryIntent(v1::InventoryIntent { key: Some(key), objects })).await?;
    }
    for number in 0..ASKED {
        let digest = format!("sha256:{number:064x}");
        session.say(Said::BuildRequest(v1::BuildRequest { digest })).await?;
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    while let Ok(heard) = tokio::time::timeout_at(deadline, session.hear()).await {
        if let Some(Heard::BuildChunk(chunk)) = heard?
            && chunk.error.is_empty()
        {
            bail!("the hub gave a build that is none of this cluster's");
        }
    }
    Ok(())
}

fn key() -> v1::DispatchKey {
    let applier_uid = uuid::Uuid::new_v4().to_string();
    v1::DispatchKey { epoch: 1, applier_uid, generation: 1, attempt: 1, ..v1::DispatchKey::default() }
}

fn object(number: usize) -> v1::ObjectRef {
    v1::ObjectRef {
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        name: format!("forged-{number}"),
        ..v1::ObjectRef::default()
    }
}

fn progress(key: &v1::DispatchKey, number: usize) -> v1::Progress {
    let health = |of: usize| v1::ObjectHealth {
        object: Some(object(number * OBJECTS + of)),
        message: "x".repeat(TEXT),
        ..v1::ObjectHealth::default()
    };
    v1::Progress {
        key: Some(key.clone()),
        stage: v1::Stage::Wait.into(),
        health: (0..OBJECTS).map(health).collect(),
        ..v1::Progress::default()
    }
}
