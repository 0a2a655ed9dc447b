//! What a Kustomization says of kinds and fields: health by expressions, and fields that are left to whoever changed them.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, config_map, kustomization, unique};

/// Of a ConfigMap: `ok` is healthy, `bad` is stuck, all else is on its way.
const EXPRESSIONS: &str = "healthCheckExprs: [{apiVersion: v1, kind: ConfigMap, failed: \"data.word == 'bad'\", current: \
                           \"data.word == 'ok'\"}]";

#[tokio::test]
async fn health_can_be_told_by_expressions() -> Result<()> {
    let fleet = Fleet::start("expressions").await?;
    let space = fleet.cluster.namespace("expressions").await?;
    let ns = space.name();
    let with = |word: &str| Commit::new().file("map.yaml", config_map(ns, "map", word));
    let repository = fleet.repository("app", &with("bad")).await?;
    let lines = [EXPRESSIONS, "wait: true", "retryInterval: 5s"];
    fleet.apply(&kustomization("app", "app", "./", &lines)).await?;
    // It does not wait for its timeout.
    fleet.fails("kustomization/app", "HealthCheckFailed", &["ConfigMap", "map"]).await?;
    repository.commit("main", "Better", &with("ok"))?;
    fleet.fetch("app").await?;
    fleet.ready("kustomization/app").await?;

    let broken = EXPRESSIONS.replace("data.word == 'ok'", "data.word ==");
    fleet.apply(&kustomization("app", "app", "./", &[&broken, "wait: true"])).await?;
    let parts = ["spec.healthCheckExprs[0].current: ", "failed to parse the CEL expression 'data.word =='"];
    fleet.fails("kustomization/app", "InvalidCELExpression", &parts).await?;
    let (stalled, reason, _) = fleet.condition("kustomization/app", "Stalled").await?;
    ensure!(stalled == "True" && reason == "InvalidCELExpression", "{stalled} {reason}");
    Ok(())
}

#[tokio::test]
async fn ignored_fields_stay_as_somebody_set_them() -> Result<()> {
    let fleet = Fleet::start("ignore").await?;
    let space = fleet.cluster.namespace("ignore").await?;
    let ns = space.name();
    let with = |other: &str| {
        let left = config_map(ns, "left", "git");
        let files = Commit::new().file("left.yaml", format!("{left}  other: {other}\n"));
        files.file("kept.yaml", config_map(ns, "kept", "git"))
    };
    let repository = fleet.repository("app", &with("one")).await?;
    let ignore = "ignore: [{paths: [/data/word], target: {kind: ConfigMap, name: left}}]";
    fleet.apply(&kustomization("app", "app", "./", &[ignore])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "left", Some("git")).await?;

    let patch = "{\"data\":{\"word\":\"somebody\"}}";
    for name in ["left", "kept"] {
        let args = [
            "patch",
            "configmap",
            name,
            "--namespace",
            ns,
            "--type=merge",
            "--field-manager=scaler",
            "-p",
            patch,
        ];
        fleet.cluster.kubectl().run(&args).await?;
    }
    let annotation = format!("reconcile.fluxcd.io/requestedAt={}", unique("ask"));
    fleet.run(&["annotate", "--overwrite", "kustomization/app", &annotation]).await?;
    // What is not ignored is corrected, and with that the pass has been made.
    fleet.cluster.has_word(ns, "kept", Some("git")).await?;
    fleet.cluster.has_word(ns, "left", Some("somebody")).await?;
    // A change of another field leaves it as well.
    repository.commit("main", "Other", &with("two"))?;
    fleet.fetch("app").await?;
    fleet.ready("kustomization/app").await?;
    roadstead_tests::eventually("the other field is applied", roadstead_tests::PATIENCE, || async {
        let object = fleet.cluster.kubectl().get(&["configmap", "left", "--namespace", ns]).await?;
        ensure!(
            object["data"]["other"] == "two" && object["data"]["word"] == "somebody",
            "{}",
            object["data"]
        );
        Ok(())
    })
    .await?;

    let wrong = "ignore: [{paths: [data], target: {name: \"(\"}}]";
    fleet.apply(&kustomization("app", "app", "./", &[wrong])).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["ignore[0]"]).await?;
    Ok(())
}
