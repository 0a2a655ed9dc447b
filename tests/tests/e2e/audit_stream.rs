//! The audit log at a collector: each entry arrives, though the collector is away for a while, and what arrived checks the log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use prost::Message as _;
use roadstead_otlp::wire::{Any, AnyValue, ExportLogsServiceRequest, LogRecord};
use roadstead_tests::sink::{Answer, Sink};
use roadstead_tests::{HubProcess, HubSetup, PATIENCE, binary, eventually};
use serde_json::Value;

const HEADER: &str = "canary-of-the-collector";
const SECRET: &str = "canary-in-a-secret";

/// The lines that a collector took, and the records that they are of.
fn taken(sink: &Sink, from: usize) -> Result<Vec<(LogRecord, String)>> {
    let mut records = Vec::new();
    for (_, body) in sink.posts().into_iter().skip(from) {
        let request = ExportLogsServiceRequest::decode(body.as_slice())?;
        let scopes = request.resource_logs.into_iter().flat_map(|resource| resource.scope_logs);
        for record in scopes.flat_map(|scope| scope.log_records) {
            let Some(AnyValue { value: Some(Any::Text(line)) }) = record.body.clone() else {
                anyhow::bail!("no text: {record:?}");
            };
            records.push((record, line));
        }
    }
    Ok(records)
}

/// The numbers of entries.
fn numbers<'a>(entries: impl IntoIterator<Item = &'a Value>) -> BTreeSet<i64> {
    entries.into_iter().filter_map(|entry| entry["id"].as_i64()).collect()
}

#[tokio::test]
async fn the_audit_log_goes_to_a_collector_that_was_away_and_checks_the_log_there() -> Result<()> {
    let sink = Sink::start().await?;
    sink.answers_always(Answer::Http(503, "", ""));
    let setup = HubSetup::new("audit-otlp")
        .await?
        .arg(&format!("--audit-otlp-endpoint={}", sink.url))
        .env("OTEL_EXPORTER_OTLP_LOGS_HEADERS", format!("authorization=Bearer%20{HEADER}"));
    let mut hub = HubProcess::start(&setup).await?;
    let kubectl = hub.kubectl().clone();
    for name in ["one", "two", "three"] {
        kubectl.run(&["create", "secret", "generic", name, &format!("--from-literal=key={SECRET}")]).await?;
    }
    kubectl.run(&["delete", "secret", "two"]).await?;
    eventually("a batch is tried twice", PATIENCE, || async {
        ensure!(sink.posts().len() >= 2, "{}", sink.posts().len());
        Ok(())
    })
    .await?;
    hub.says("the collector does not take the audit log", PATIENCE).await?;
    sink.answers_always(Answer::Http(200, "", ""));
    hub.says("the collector takes the audit log again", PATIENCE).await?;
    // What a sealer has not sealed yet when the hub ends was sent before.
    kubectl.run(&["delete", "secret", "one"]).await?;
    let listed: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", "/fleet/v1/audit"]).await?)?;
    let listed = numbers(listed["items"].as_array().context("items")?);
    hub.sigterm(PATIENCE).await?;

    // From the first batch that was taken on: those before are the same.
    let posts = sink.posts();
    ensure!(posts.iter().all(|(head, _)| head.starts_with("post /v1/logs ") && head.contains(HEADER)));
    let same = posts.iter().take_while(|(_, body)| *body == posts[0].1).count();
    let taken = taken(&sink, same - 1)?;
    let lines: Vec<Value> =
        taken.iter().map(|(_, line)| serde_json::from_str(line)).collect::<Result<_, _>>()?;
    let sent: Vec<i64> = lines.iter().filter_map(|line| line["id"].as_i64()).collect();
    ensure!(sent.len() == sent.iter().collect::<BTreeSet<_>>().len(), "an entry was sent twice: {sent:?}");
    let sent: BTreeSet<i64> = sent.into_iter().collect();
    ensure!(listed.is_subset(&sent), "listed {listed:?}, sent {sent:?}");
    let deletion = taken.iter().find(|(_, line)| line.contains("\"delete\"") && line.contains("\"two\""));
    let (deletion, _) = deletion.context("the deletion")?;
    ensure!(deletion.event_name == "roadstead.audit.entry" && deletion.time_unix_nano > 0, "{deletion:?}");
    let keys: Vec<&str> = deletion.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    ensure!(keys.contains(&"roadstead.audit.verb") && keys.contains(&"roadstead.audit.user"), "{keys:?}");
    for (_, body) in posts {
        let body = String::from_utf8_lossy(&body).into_owned();
        ensure!(!body.contains(SECRET) && !body.contains(HEADER), "a secret was sent");
    }
    ensure!(!hub.logs().contains(HEADER), "a credential is in the log");
    verified(&setup, &lines).await
}

/// Holds lines of the stream against the log, at a hub that knows nothing of them.
async fn verified(setup: &HubSetup, lines: &[Value]) -> Result<()> {
    let hub = HubProcess::start(setup).await?;
    let file = setup.folder().join("kept.jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, text)?;
    let mut command = tokio::process::Command::new(binary("roadstead")?);
    command.args(["audit", "verify", "--heads"]).arg(&file);
    command.arg("--kubeconfig").arg(hub.kubectl().kubeconfig());
    let output = command.output().await.context("run roadstead")?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    Ok(())
}

#[tokio::test]
async fn an_entry_is_sealed_within_about_a_second() -> Result<()> {
    // A busy machine may take longer, but not each of these times as long as what another replica left waits.
    const SOON: Duration = Duration::from_secs(4);
    let setup = HubSetup::new("audit-seal").await?;
    let hub = HubProcess::start(&setup).await?;
    let mut took = Vec::new();
    for round in 0..4 {
        hub.kubectl().run(&["create", "namespace", &format!("sealed-{round}")]).await?;
        let begin = Instant::now();
        eventually("all is sealed", PATIENCE, || async {
            let check = hub.kubectl().run(&["get", "--raw", "/fleet/v1/audit/check"]).await?;
            let check: Value = serde_json::from_str(&check)?;
            ensure!(check["pending"] == 0 && check["sound"] == true, "{check}");
            Ok(())
        })
        .await?;
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    ensure!(took[2] < SOON, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn on_standard_output_each_entry_is_a_line_among_those_of_the_log() -> Result<()> {
    let setup = HubSetup::new("audit-stdout").await?.arg("--audit-log-path=-");
    let mut hub = HubProcess::start(&setup).await?;
    let kubectl = hub.kubectl().clone();
    kubectl.run(&["create", "secret", "generic", "keys", &format!("--from-literal=key={SECRET}")]).await?;
    let told: Value = serde_json::from_str(&kubectl.run(&["get", "--raw", "/fleet/v1/audit"]).await?)?;
    let told = numbers(told["items"].as_array().context("items")?);
    ensure!(!told.is_empty());
    hub.sigterm(PATIENCE).await?;
    let logs = hub.logs();
    let lines = logs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let entries: Vec<Value> = lines.filter(|line| line["id"].is_i64()).collect();
    ensure!(numbers(&entries).is_superset(&told), "of {told:?} these are there: {entries:#?}");
    let made = entries.iter().find(|entry| entry["verb"] == "create" && entry["kind"] == "Secret");
    ensure!(made.is_some_and(|entry| entry["name"] == "keys"), "{entries:#?}");
    ensure!(!logs.contains(SECRET), "a value of a Secret");
    Ok(())
}
