//! A process that is killed while health is waited for.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubProcess, PATIENCE, eventually, kustomization};

use super::world::Victim;

/// A Deployment whose pods take a while, and a ConfigMap.
/// Its Pods are replaced one after the other, which takes longer than the 10 s after which it is told what is waited for.
fn files(ns: &str, word: &str) -> Commit {
    let web = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {ns}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata:\n      labels: {{app: web}}\n      \
         annotations: {{devcluster.roadstead.dev/ready-after: 8s}}\n    \
         spec: {{containers: [{{name: web, image: web, env: [{{name: WORD, value: {word}}}]}}]}}\n"
    );
    Commit::new()
        .file("app/web.yaml", web)
        .file("app/map.yaml", roadstead_tests::config_map(ns, "map", word))
        .file("behind/map.yaml", roadstead_tests::config_map(ns, "behind", word))
}

#[tokio::test]
async fn killed_while_health_is_waited_for() -> Result<()> {
    let mut fleet = Fleet::start("kill-waiting").await?;
    let space = fleet.cluster.namespace("kill-waiting").await?;
    let ns = space.name().to_owned();
    let repository = fleet.repository("app", &files(&ns, "first")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &["wait: true", "retryInterval: 2s"])).await?;
    fleet
        .apply(&kustomization(
            "behind",
            "app",
            "./behind",
            &["dependsOn: [{name: app}]", "retryInterval: 2s"],
        ))
        .await?;
    fleet.ready("kustomization/behind").await?;
    for victim in [Victim::Hub, Victim::Agent, Victim::Both] {
        let word = format!("{victim:?}").to_lowercase();
        let commit = repository.commit("main", &word, &files(&ns, &word))?;
        fleet.fetch("app").await?;
        eventually("it waits", PATIENCE, || async {
            let (is, why, message) = fleet.condition("kustomization/app", "Healthy").await?;
            ensure!(
                is == "Unknown" && why == "Progressing" && message.contains("Deployment web: "),
                "{message}"
            );
            Ok(())
        })
        .await?;
        if victim != Victim::Agent {
            fleet.hub.kill9().await?;
        }
        if victim != Victim::Hub {
            fleet.agent.kill9().await?;
        }
        // What depends on it waits, too.
        ensure!(fleet.cluster.word(&ns, "behind").await?.as_deref() != Some(&word), "it did not wait");
        let began = Instant::now();
        if victim != Victim::Agent {
            fleet.hub = HubProcess::start(&fleet.setup).await?;
        }
        if victim != Victim::Hub {
            fleet.agent.restart()?;
        }
        for name in ["app", "behind"] {
            fleet.applied(name, &commit).await.with_context(|| format!("{name}: {victim:?} killed"))?;
        }
        println!(
            "measured: {victim:?} killed while waiting: both Ready {:?} after its start",
            began.elapsed()
        );
        let (is, why, message) = fleet.condition("kustomization/app", "Healthy").await?;
        ensure!(is == "True", "{is} {why}: {message}");
        ensure!(fleet.cluster.word(&ns, "behind").await?.as_deref() == Some(&word), "behind was not applied");
        let inventory = fleet.inventory("app").await?;
        let wanted = ["ConfigMap/map", "Deployment/web"].map(str::to_owned);
        ensure!(inventory == wanted.into(), "{inventory:?}");
    }
    Ok(())
}
