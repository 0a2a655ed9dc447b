//! What an agent keeps in its cluster: started again without its hub, it goes on where the one before it ended.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubProcess, PATIENCE, config_map, eventually, kustomization, landed_agent};
use serde_json::Value;

/// Everything that the agent keeps: the keys and values of its Secrets. A mark that something older was taken back has no value, and may
/// have the key of what it takes back.
async fn kept(fleet: &Fleet) -> Result<Vec<(String, Vec<u8>)>> {
    let secrets = fleet.cluster.kubectl().get(&["secrets", "--namespace", fleet.agent.namespace()]).await?;
    let items = secrets["items"].as_array().into_iter().flatten();
    let kept = items.filter(|secret| secret["type"] == "fleet.roadstead.dev/agent-kept");
    let parts = kept.filter_map(|secret| secret["data"].as_object()).flatten();
    let parts =
        parts.map(|(key, value)| Ok((key.clone(), STANDARD.decode(value.as_str().unwrap_or_default())?)));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(parts.into_iter().filter(|(_, value)| !value.is_empty()).collect())
}

/// What the agent keeps of an applier in its cluster, in words. What was taken back is there for some seconds more.
pub(crate) async fn kept_of(fleet: &Fleet, uid: &str) -> Result<String> {
    let parts: BTreeMap<_, _> =
        kept(fleet).await?.into_iter().filter(|(key, _)| key.starts_with(uid)).collect();
    let bytes = parts.into_values().collect::<Vec<_>>().concat();
    let mut text = String::new();
    if !bytes.is_empty() {
        MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    }
    Ok(text)
}

pub(crate) async fn uid(fleet: &Fleet, kustomization: &str) -> Result<String> {
    let object = fleet.get(&format!("kustomization/{kustomization}")).await?;
    object["metadata"]["uid"].as_str().map(str::to_owned).context("a uid")
}

/// The key of what was corrected and the hub does not know yet.
const CORRECTIONS: &str = "corrections";

/// Waits until the agent keeps something of a Kustomization, or of a key that begins so, or nothing of it.
async fn keeps(fleet: &Fleet, uid: &str, is_kept: bool) -> Result<()> {
    eventually(&format!("{uid} is kept: {is_kept}"), PATIENCE, || async {
        let keys: Vec<String> = kept(fleet).await?.into_iter().map(|(key, _)| key).collect();
        ensure!(keys.iter().any(|key| key.starts_with(uid)) == is_kept, "{keys:?}");
        Ok(())
    })
    .await
}

async fn edit(fleet: &Fleet, ns: &str, name: &str) -> Result<()> {
    let patch = r#"{"data":{"word":"by hand"}}"#;
    let object = format!("configmap/{name}");
    fleet.cluster.kubectl().run(&["patch", &object, "-n", ns, "--type=merge", "-p", patch]).await.map(drop)
}

#[tokio::test]
async fn an_agent_that_is_started_again_without_its_hub_goes_on() -> Result<()> {
    let mut fleet = Fleet::start("kept").await?;
    let space = fleet.cluster.namespace("kept").await?;
    let ns = space.name().to_owned();
    let big = (0..40).map(|number| format!("  k{number}: {}\n", "x".repeat(5_000))).collect::<String>();
    let files = Commit::new()
        .file("app/map.yaml", config_map(&ns, "map", "git"))
        .file("app/big.yaml", config_map(&ns, "big", "git") + &big)
        .file("rests/rests.yaml", config_map(&ns, "rests", "git"))
        .file("given/given.yaml", config_map(&ns, "given", "${word}"));
    let repository = fleet.repository("app", &files).await?;
    let head = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.run(&["create", "configmap", "words", "--from-literal=word=hub"]).await?;
    let from = "postBuild: {substituteFrom: [{kind: ConfigMap, name: words}]}";
    let all = kustomization("app", "app", "./app", &[])
        + &kustomization("rests", "app", "./rests", &[])
        + &kustomization("given", "app", "./given", &[from]);
    fleet.apply(&all).await?;
    for name in ["app", "rests", "given"] {
        fleet.applied(name, &head).await?;
    }
    let (app, rests, given) =
        (uid(&fleet, "app").await?, uid(&fleet, "rests").await?, uid(&fleet, "given").await?);
    keeps(&fleet, &app, true).await?;
    keeps(&fleet, &rests, true).await?;
    // Of what the hub gave values for only how it stood is kept, and what rests is not any more.
    keeps(&fleet, &given, true).await?;
    let record = kept_of(&fleet, &given).await?;
    ensure!(record.contains("watched") && !record.contains("\"hub\""), "{record}");
    fleet.suspend("rests", true).await?;
    keeps(&fleet, &rests, false).await?;

    fleet.hub.kill9().await?;
    fleet.agent.kill9().await?;
    // Nobody sees it: neither a change nor a deletion.
    for name in ["map", "rests"] {
        edit(&fleet, &ns, name).await?;
    }
    fleet.cluster.kubectl().run(&["delete", "configmap", "big", "-n", &ns]).await?;
    fleet.agent.restart()?;
    fleet.cluster.has_word(&ns, "map", Some("git")).await?;
    fleet.cluster.has_word(&ns, "big", Some("git")).await?;
    // And from then on at once.
    edit(&fleet, &ns, "map").await?;
    fleet.cluster.has_word(&ns, "map", Some("git")).await?;
    ensure!(fleet.cluster.word(&ns, "rests").await?.as_deref() == Some("by hand"), "it rests");

    // What it corrected is known to the next one, too.
    eventually("both corrections are kept", PATIENCE, || async {
        let text = kept_of(&fleet, CORRECTIONS).await?;
        ensure!(text.contains("\"big\"") && text.contains("/data/word"), "{text}");
        Ok(())
    })
    .await?;
    fleet.agent.kill9().await?;
    fleet.agent.restart()?;

    // The hub hears of it when it is back.
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    eventually("the corrections are told", PATIENCE, || async {
        let drift = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/drift?applier=app"]).await?;
        let drift: Value = serde_json::from_str(&drift)?;
        let messages: Vec<&str> = drift["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["message"].as_str())
            .collect();
        ensure!(messages.iter().any(|message| message.contains("/data/word")), "{messages:?}");
        // At the same moment, so it may stand in the same attempt.
        ensure!(drift.to_string().contains(r#""name":"big""#), "{drift}");
        Ok(())
    })
    .await?;
    keeps(&fleet, CORRECTIONS, false).await?;
    fleet.ready("kustomization/app").await?;

    // What goes is not kept.
    fleet.run(&["delete", "kustomization/app", "--timeout=60s"]).await?;
    keeps(&fleet, &app, false).await
}

#[tokio::test]
async fn an_operator_of_the_cluster_pauses_its_agent() -> Result<()> {
    let fleet = Fleet::start("paused").await?;
    let space = fleet.cluster.namespace("paused").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| Commit::new().file("app/map.yaml", config_map(&ns, "map", word));
    let repository = fleet.repository("app", &files("one")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["retryInterval: 5s"])).await?;
    fleet.ready("kustomization/app").await?;

    let paused = |value: &'static str| {
        let kubectl = fleet.cluster.kubectl();
        let namespace = fleet.agent.namespace();
        async move { kubectl.run(&["annotate", "namespace", namespace, "--overwrite", value]).await.map(drop) }
    };
    paused("fleet.roadstead.dev/paused=true").await?;
    eventually("the Cluster says so", PATIENCE, || async {
        let (status, reason, message) = fleet.condition("cluster/edge", "Paused").await?;
        ensure!(
            status == "True" && reason == "PausedInCluster" && message.contains("annotation"),
            "{message}"
        );
        Ok(())
    })
    .await?;
    let second = repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    let parts = ["the agent is paused by the annotation fleet.roadstead.dev/paused", fleet.agent.namespace()];
    fleet.fails("kustomization/app", "ReconciliationFailed", &parts).await?;
    fleet.cluster.has_word(&ns, "map", Some("one")).await?;

    paused("fleet.roadstead.dev/paused-").await?;
    eventually("the Cluster does not say so any more", PATIENCE, || async {
        let cluster = fleet.get("cluster/edge").await?;
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        ensure!(conditions.iter().all(|condition| condition["type"] != "Paused"), "{conditions:#?}");
        Ok(())
    })
    .await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await?;

    // What others change meanwhile is corrected afterwards.
    paused("fleet.roadstead.dev/paused=true").await?;
    edit(&fleet, &ns, "map").await?;
    let until = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until {
        let word = fleet.cluster.word(&ns, "map").await?;
        ensure!(word.as_deref() == Some("by hand"), "it was corrected to {word:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    paused("fleet.roadstead.dev/paused-").await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await
}

#[tokio::test]
async fn nothing_older_is_applied_over_what_was_written_last() -> Result<()> {
    nothing_older_is_applied_by(None).await
}

/// An agent's image is put back while its hub is away.
#[tokio::test]
async fn nothing_older_is_applied_by_an_agent_of_the_last_landed_version() -> Result<()> {
    nothing_older_is_applied_by(Some(landed_agent()?)).await
}

/// The agent ends in the middle, and what is started in its place, without a hub, is this program.
async fn nothing_older_is_applied_by(program: Option<PathBuf>) -> Result<()> {
    let mut fleet = Fleet::start("kept-fence").await?;
    let space = fleet.cluster.namespace("fence").await?;
    let ns = space.name().to_owned();
    let files = |word: &str| Commit::new().file("app/map.yaml", config_map(&ns, "map", word));
    let repository = fleet.repository("app", &files("one")).await?;
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.applied("app", &first).await?;
    let app = uid(&fleet, "app").await?;
    keeps(&fleet, &app, true).await?;

    // The next one is written, and the agent ends before it is kept.
    repository.commit("main", "Second", &files("two"))?;
    fleet.fetch("app").await?;
    fleet.cluster.has_word(&ns, "map", Some("two")).await?;
    fleet.agent.kill9().await?;
    fleet.hub.kill9().await?;
    // An empty part of an attempt is in the way of all that is as old.
    let secrets = fleet.cluster.kubectl().get(&["secrets", "--namespace", fleet.agent.namespace()]).await?;
    let items = secrets["items"].as_array().cloned().unwrap_or_default();
    let data = items.iter().filter_map(|secret| secret["data"].as_object()).flatten();
    let of_first: Vec<(&String, &Value)> =
        data.filter(|(key, _)| key.starts_with(&app) && key.split('.').nth(2) == Some("1")).collect();
    ensure!(
        of_first.is_empty() || of_first.iter().any(|(_, part)| *part == ""),
        "the first one counts still when the second is written: {of_first:?}"
    );
    fleet.agent.restart_as(program)?;
    fleet.agent.says("policy", PATIENCE).await?;
    // Longer than it takes to go on; there is nothing to wait for but time.
    let until = tokio::time::Instant::now() + Duration::from_secs(14);
    while tokio::time::Instant::now() < until {
        let word = fleet.cluster.word(&ns, "map").await?;
        ensure!(word.as_deref() == Some("two"), "it is back at {word:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}
