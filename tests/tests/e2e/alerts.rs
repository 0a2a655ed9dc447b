//! Alerts: what goes wrong on a cluster, and that it is over, is where an Alert sends it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::sink::{Answer, Sink};
use roadstead_tests::{Fleet, HubProcess, HubSetup, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

/// Waits for an event with this severity and one of these reasons.
async fn told(sink: &Sink, severity: &str, reasons: &[&str]) -> Result<Value> {
    let mut found = Value::Null;
    eventually("it is told", PATIENCE, || {
        let event = sink.got().into_iter().map(|(_, event)| event).find(|event| {
            event["severity"] == severity && reasons.iter().any(|reason| event["reason"] == *reason)
        });
        let seen = format!("no {severity} {reasons:?} in {:?}", sink.got());
        found = event.clone().unwrap_or_default();
        async move { event.map(|_| ()).context(seen) }
    })
    .await?;
    Ok(found)
}

#[tokio::test]
async fn what_fails_on_a_cluster_and_that_it_is_over_is_told() -> Result<()> {
    let (sink, incidents) = (Sink::start().await?, Sink::start().await?);
    let (url, grouped) = (&sink.url, &incidents.url);
    let setup = HubSetup::new("alerts").await?.arg("--allow-network=notify=127.0.0.1/32");
    let fleet = Fleet::start_on(setup).await?;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: hook}}\nspec: {{type: generic, \
             address: '{url}/flux'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: all}}\n\
             spec:\n  providerRef: {{name: hook}}\n  eventMetadata: {{env: test}}\n  eventSources: [{{kind: Kustomization, name: '*'}}]\n---\n\
             apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: incidents}}\nspec: {{type: generic, \
             address: '{grouped}/'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: failures}}\n\
             spec:\n  providerRef: {{name: incidents}}\n  eventSeverity: error\n  group: {{wait: 1s}}\n\
             \x20 eventSources: [{{kind: Kustomization, name: '*'}}]\n"
        ))
        .await?;
    fleet.ready("alert/all").await?;
    fleet.ready("provider/hook").await?;
    let space = fleet.cluster.namespace("alerts").await?;
    let bad =
        Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    let repository = fleet.repository("app", &bad).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    let event = told(&sink, "error", &["ReconciliationFailed", "ValidationFailed"]).await?;
    ensure!(
        event["involvedObject"]["name"] == "app" && event["involvedObject"]["kind"] == "Kustomization",
        "{event}"
    );
    ensure!(event["metadata"]["env"] == "test", "{event}");
    let revision = event["metadata"]["revision"].as_str().unwrap_or_default();
    ensure!(revision.starts_with("main@sha1:"), "{event}");
    ensure!(sink.got()[0].0.contains("gotk-component: "), "no component");
    let opened = told(&incidents, "error", &["ReconciliationFailed", "ValidationFailed"]).await?;
    ensure!(opened["message"] == event["message"] && opened["incident"]["stage"] == "opened", "{opened}");
    let good = Commit::new().file("config.yaml", config_map(space.name(), "alerts", "fine"));
    repository.commit("main", "fine", &good)?;
    let began = Instant::now();
    fleet.fetch("app").await?;
    fleet.cluster.has_word(space.name(), "alerts", Some("fine")).await?;
    let event = told(&sink, "info", &["ReconciliationSucceeded"]).await?;
    println!("from the fetch to the news that it is over: {:?}", began.elapsed());
    ensure!(began.elapsed() < Duration::from_secs(60) && event["involvedObject"]["name"] == "app", "{event}");
    // Of what an Alert tells as incidents nothing comes but that each began and is over; on a slow machine there may have been another failure
    // before this one.
    let id = &opened["incident"]["id"];
    let mut closed = Value::Null;
    eventually("the incident is over", PATIENCE, || {
        let of_it: Vec<Value> = incidents.got().into_iter().map(|(_, event)| event).collect();
        let of_it: Vec<Value> = of_it.into_iter().filter(|event| event["incident"]["id"] == *id).collect();
        closed = of_it.last().cloned().unwrap_or_default();
        async move {
            let stages: Vec<&Value> = of_it.iter().map(|event| &event["incident"]["stage"]).collect();
            ensure!(stages == ["opened", "resolved"], "{of_it:#?}");
            Ok(())
        }
    })
    .await?;
    ensure!(closed["message"].as_str().is_some_and(|text| text.starts_with("Resolved after ")), "{closed}");
    let listed: Value =
        serde_json::from_str(&fleet.run(&["get", "--raw", "/fleet/v1/incidents?alert=failures"]).await?)?;
    let items = listed["items"].as_array().context("items")?;
    ensure!(items.iter().any(|item| item["id"] == *id && item["failed"] == 1), "{listed}");
    // What was sent is told, and no event twice.
    let listed: Value =
        serde_json::from_str(&fleet.run(&["get", "--raw", "/fleet/v1/deliveries?alert=all"]).await?)?;
    let items = listed["items"].as_array().context("items")?;
    ensure!(!items.is_empty() && items.iter().all(|item| item["alert"]["name"] == "all"), "{listed}");
    let mut told: Vec<String> = sink.got().iter().map(|(_, event)| event.to_string()).collect();
    let all = told.len();
    told.sort();
    told.dedup();
    ensure!(told.len() == all, "an event was told twice: {told:?}");
    Ok(())
}

/// Waits for the last message of an incident: how long it took, and what it says.
async fn closed(sink: &Sink, id: &Value) -> Result<(Duration, String)> {
    let (began, mut message) = (Instant::now(), String::new());
    eventually("the incident is closed", PATIENCE, || {
        let mut of_it = sink.got().into_iter().map(|(_, event)| event);
        let last = of_it.rfind(|event| event["incident"]["id"] == *id).unwrap_or_default();
        message = last["message"].as_str().unwrap_or_default().to_owned();
        async move {
            ensure!(last["incident"]["stage"] == "resolved", "{last}");
            Ok(())
        }
    })
    .await?;
    Ok((began.elapsed(), message))
}

#[tokio::test]
async fn an_incident_ends_soon_after_its_object_or_its_alert_is_deleted() -> Result<()> {
    let sink = Sink::start().await?;
    let url = &sink.url;
    let setup = HubSetup::new("alerts-deleted").await?.arg("--allow-network=notify=127.0.0.1/32");
    let fleet = Fleet::start_on(setup).await?;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: hook}}\nspec: {{type: generic, \
             address: '{url}/'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: failures}}\n\
             spec:\n  providerRef: {{name: hook}}\n  eventSeverity: error\n  group: {{wait: 1s}}\n\
             \x20 eventSources: [{{kind: Kustomization, name: '*'}}]\n"
        ))
        .await?;
    fleet.ready("alert/failures").await?;
    let bad =
        Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    fleet.repository("app", &bad).await?;
    let fails = async |name: &str| -> Result<Value> {
        fleet.apply(&kustomization(name, "app", ".", &[])).await?;
        let mut id = Value::Null;
        eventually("it is told", PATIENCE, || {
            let event = sink.got().into_iter().map(|(_, event)| event).find(|event| {
                event["involvedObject"]["name"] == name && event["incident"]["stage"] == "opened"
            });
            id = event.clone().unwrap_or_default()["incident"]["id"].clone();
            async move { event.map(|_| ()).context("nothing is told") }
        })
        .await?;
        Ok(id)
    };
    // Of what is gone nobody tells that it is well.
    let id = fails("one").await?;
    fleet.run(&["delete", "kustomization/one"]).await?;
    let (took, message) = closed(&sink, &id).await?;
    println!("from the deletion of what fails to the end of its incident: {took:?}");
    ensure!(message.starts_with("Over after ") && message.contains("was deleted"), "{message}");
    let id = fails("two").await?;
    fleet.run(&["delete", "alert/failures"]).await?;
    let (took, message) = closed(&sink, &id).await?;
    println!("from the deletion of the Alert to the end of its incident: {took:?}");
    ensure!(
        message.starts_with(
            "Reports of this incident end here, although the failure may go on: the Alert was deleted."
        ),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn a_silence_keeps_back_what_fails_until_it_is_over() -> Result<()> {
    let sink = Sink::start().await?;
    let url = &sink.url;
    let setup = HubSetup::new("silences").await?.arg("--allow-network=notify=127.0.0.1/32");
    let fleet = Fleet::start_on(setup).await?;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: hook}}\nspec: {{type: generic, \
             address: '{url}/flux'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: all}}\n\
             spec:\n  providerRef: {{name: hook}}\n  eventSeverity: error\n  eventSources: [{{kind: Kustomization, name: '*'}}]\n---\n\
             apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Silence\nmetadata: {{name: move}}\n\
             spec: {{reason: the database moves, until: '2100-01-01T00:00:00Z', objects: [{{kind: Kustomization, name: app}}]}}\n"
        ))
        .await?;
    let listed = fleet.run(&["get", "silences"]).await?;
    ensure!(
        listed.contains("AUTHOR") && listed.contains("admin") && listed.contains("the database moves"),
        "{listed}"
    );
    let refused = "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Silence\nmetadata: {name: endless}\nspec: {reason: none}\n";
    let error = fleet.apply(refused).await.err().context("a Silence without an end is refused")?;
    ensure!(format!("{error:#}").contains("spec.until says when it ends"), "{error:#}");
    let bad =
        Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    fleet.repository("app", &bad).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    let path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    eventually("app fails", PATIENCE, async || {
        let ready = fleet.run(&["get", "kustomization", "app", "-o", path]).await?;
        ensure!(ready == "False", "{ready:?}");
        Ok(())
    })
    .await?;
    // What happens to another one is told, and all that happened before it is sorted by then.
    fleet.apply(&kustomization("other", "app", ".", &[])).await?;
    let of = |name: &str| {
        let events = sink.got().into_iter().map(|(_, event)| event);
        events.filter(|event| event["involvedObject"]["name"] == name).collect::<Vec<_>>()
    };
    eventually("other is told", PATIENCE, || {
        let told = !of("other").is_empty();
        async move {
            ensure!(told, "not told");
            Ok(())
        }
    })
    .await?;
    ensure!(of("app").is_empty(), "{:?}", of("app"));
    fleet.run(&["delete", "silence", "move"]).await?;
    let over = told(&sink, "info", &["SilenceEnded"]).await?;
    let message = over["message"].as_str().unwrap_or_default();
    ensure!(
        message.starts_with("Silence 'move' is over\n") && message.contains("- Kustomization/apps/app"),
        "{over}"
    );
    eventually("app is told", PATIENCE, || {
        let told = of("app");
        async move {
            ensure!(told.iter().any(|event| event["severity"] == "error"), "{told:?}");
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn a_commit_has_one_status_that_counts_clusters() -> Result<()> {
    let sink = Sink::start().await?;
    let setup = HubSetup::new("statuses").await?.arg("--allow-network=notify=127.0.0.1/32");
    let fleet = Fleet::start_on(setup.arg("--allow-plain-http-credentials")).await?;
    let url = &sink.url;
    fleet
        .apply(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: statuses}}\nstringData: {{token: t0ken}}\n---\n\
             apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: commits}}\nspec: {{type: gitea, \
             address: '{url}/o/r.git', secretRef: {{name: statuses}}}}\n---\n\
             apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: production}}\nspec:\n  providerRef: {{name: commits}}\n\
             \x20 group: {{environmentLabel: env}}\n  eventSources: [{{kind: Kustomization, name: '*'}}]\n"
        ))
        .await?;
    fleet.ready("alert/production").await?;
    let space = fleet.cluster.namespace("statuses").await?;
    let good = Commit::new().file("config.yaml", config_map(space.name(), "statuses", "fine"));
    let repository = fleet.repository("app", &good).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    let says = async |commit: &str, state: &str, description: &str| {
        eventually("the status says so", PATIENCE, || async {
            let of_commit = format!("post /api/v1/repos/o/r/statuses/{commit}");
            let got: Vec<_> = sink
                .got()
                .into_iter()
                .filter(|(head, _)| head.starts_with(&of_commit))
                .map(|(_, body)| body)
                .collect();
            let last = got.last().with_context(|| format!("nothing of {commit}"))?;
            ensure!(last["state"] == state && last["description"] == description, "{got:#?}");
            let context = last["context"].as_str().unwrap_or_default();
            ensure!(context.starts_with("roadstead/production/none/"), "{context}");
            Ok(())
        })
        .await
    };
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    says(first.trim(), "success", "1 of 1 cluster ready").await?;
    let bad =
        Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    let second = repository.commit("main", "bad", &bad)?;
    let began = Instant::now();
    fleet.fetch("app").await?;
    says(second.trim(), "failure", "0 of 1 cluster ready, 1 failed").await?;
    println!("from the fetch to the status that it failed: {:?}", began.elapsed());
    says(first.trim(), "success", "1 of 1 cluster ready").await?;
    Ok(())
}

#[tokio::test]
async fn a_hub_that_is_killed_while_it_sends_loses_nothing_and_repeats_one() -> Result<()> {
    let sink = Sink::start().await?;
    let setup = HubSetup::new("alerts-killed").await?.arg("--allow-network=notify=127.0.0.1/32");
    let mut fleet = Fleet::start_on(setup).await?;
    let url = &sink.url;
    fleet
        .apply(&format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: hook}}\nspec: {{type: generic, \
             timeout: 5m, address: '{url}/'}}\n---\napiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\n\
             metadata: {{name: all}}\nspec: {{providerRef: {{name: hook}}, eventSeverity: error, eventSources: [{{kind: Kustomization, name: '*'}}]}}\n"
        ))
        .await?;
    fleet.ready("alert/all").await?;
    sink.answers(&[Answer::Hang]);
    let bad =
        Commit::new().file("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'No Name'}\n");
    fleet.repository("app", &bad).await?;
    for name in ["one", "two", "three"] {
        fleet.apply(&kustomization(name, "app", ".", &[])).await?;
        fleet.fails(&format!("kustomization/{name}"), "ReconciliationFailed", &[]).await?;
    }
    eventually("the first is on its way", PATIENCE, || {
        let got = sink.got();
        async move {
            ensure!(got.len() == 1, "{got:?}");
            Ok(())
        }
    })
    .await?;
    fleet.hub.kill9().await?;
    fleet.hub = HubProcess::start(&fleet.setup).await?;
    let names = |repeats: bool| -> Vec<Value> {
        let is_repeat = |head: &str| head.contains("x-roadstead-repeat: true");
        let of = sink.got().into_iter().filter(|(head, _)| is_repeat(head) == repeats);
        // On a slow machine the agent may be away for long enough to be news of its own.
        let of = of.filter(|(_, event)| event["reason"] == "ReconciliationFailed");
        of.map(|(_, event)| event["involvedObject"]["name"].clone()).collect()
    };
    eventually("all have arrived", PATIENCE, || {
        let (firsts, repeats) = (names(false), names(true));
        async move {
            ensure!(firsts == ["one", "two", "three"] && repeats == ["one"], "{firsts:?} {repeats:?}");
            Ok(())
        }
    })
    .await
}
