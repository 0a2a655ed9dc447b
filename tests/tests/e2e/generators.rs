//! ArtifactGenerators: a monorepo is taken apart, and a change comes to those whom it concerns and to nobody else.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, config_map, eventually, git_repository, kustomization};
use serde_json::Value;

fn generator(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator\nmetadata:\n  name: {name}\nspec:\n  {}\n",
        spec.trim().replace('\n', "\n  ")
    )
}

fn deployed(name: &str, artifact: &str) -> String {
    let source = format!("sourceRef: {{kind: ExternalArtifact, name: {artifact}}}");
    kustomization(name, artifact, ".", &[&source])
}

/// How many attempts there were of a Kustomization.
async fn attempts(fleet: &Fleet, name: &str) -> Result<usize> {
    let path = format!("/fleet/v1/appliers/Kustomization/apps/{name}/reconciliations");
    let page: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    page["items"].as_array().map(Vec::len).context("items")
}

/// Whether an object is not there any more.
async fn gone(fleet: &Fleet, object: &str) -> Result<()> {
    eventually(&format!("{object} is gone"), PATIENCE, || async {
        ensure!(fleet.get(object).await.is_err(), "it is still there");
        Ok(())
    })
    .await
}

const APPS: &str = r#"
sources: [{alias: repo, kind: GitRepository, name: mono}]
pathPattern: "@repo/apps/{app}"
commonMetadata:
  labels: {team: platform}
artifacts:
- name: "app-{app}"
  originRevision: "@repo"
  copy:
  - {from: "@repo/apps/{app}/**", to: "@artifact/", exclude: ["*.md"]}
  - {from: "@repo/shared/policy.yaml", to: "@artifact/policy.yaml"}
"#;

#[tokio::test]
async fn a_change_of_a_monorepo_wakes_only_those_whom_it_concerns() -> Result<()> {
    let fleet = Fleet::start("generator").await?;
    let space = fleet.cluster.namespace("generator").await?;
    let map = |name: &str, word: &str| config_map(space.name(), name, word);
    let files = |web: &str, db: &str, readme: &str| {
        let kustomization = "resources: [app.yaml]\n";
        Commit::new()
            .file("apps/web/app.yaml", map("web", web))
            .file("apps/web/kustomization.yaml", kustomization)
            .file("apps/web/README.md", readme)
            .file("apps/db/app.yaml", map("db", db))
            .file("apps/db/kustomization.yaml", kustomization)
            .file("shared/policy.yaml", "a: 1\n")
    };
    let repository = fleet.repository("mono", &files("one", "one", "x")).await?;
    fleet.apply(&generator("apps", APPS)).await?;
    for app in ["web", "db"] {
        fleet.apply(&deployed(app, &format!("app-{app}"))).await?;
    }
    for app in ["web", "db"] {
        fleet.ready(&format!("kustomization/{app}")).await?;
        fleet.cluster.has_word(space.name(), app, Some("one")).await?;
    }
    let told = fleet.ready("artifactgenerator/apps").await?;
    ensure!(told == "reconciliation succeeded, generated 2 artifact(s)", "{told}");
    let made = fleet.get("artifactgenerator/apps").await?;
    let product = fleet.get("externalartifact/app-web").await?;
    let labels = &product["metadata"]["labels"];
    ensure!(labels["app.kubernetes.io/managed-by"] == "source-watcher", "{product:#}");
    ensure!(labels["source.extensions.fluxcd.io/generator"] == made["metadata"]["uid"], "{product:#}");
    ensure!(labels["team"] == "platform" && labels["app"] == "web", "{product:#}");
    ensure!(product["spec"]["sourceRef"]["name"] == "apps", "{product:#}");
    let artifact = &product["status"]["artifact"];
    let digest = artifact["digest"].as_str().context("a digest")?;
    ensure!(artifact["revision"] == format!("latest@{digest}").as_str(), "{artifact}");
    let git = fleet.get("gitrepository/mono").await?["status"]["artifact"]["revision"].clone();
    ensure!(artifact["metadata"]["org.opencontainers.image.revision"] == git, "{artifact}");
    let inventory = &made["status"]["inventory"];
    ensure!(inventory[1]["name"] == "app-web" && inventory[1]["digest"] == digest, "{inventory}");
    ensure!(made["status"]["observedSourcesDigest"].as_str().is_some_and(|text| text.starts_with("sha256:")));
    let table = fleet.run(&["get", "ag"]).await?;
    ensure!(table.contains("generated 2 artifact(s)"), "{table}");

    // One file of one app.
    let (web, db) = (attempts(&fleet, "web").await?, attempts(&fleet, "db").await?);
    let before = fleet.get("externalartifact/app-db").await?;
    let commit = repository.commit("main", "Web", &files("two", "one", "x"))?;
    fleet.fetch("mono").await?;
    fleet.cluster.has_word(space.name(), "web", Some("two")).await?;
    eventually("the generator has seen the commit", PATIENCE, || async {
        let product = fleet.get("externalartifact/app-web").await?;
        let origin = &product["status"]["artifact"]["metadata"]["org.opencontainers.image.revision"];
        ensure!(*origin == format!("main@sha1:{commit}").as_str(), "{origin}");
        Ok(())
    })
    .await?;
    fleet.ready("kustomization/web").await?;
    ensure!(attempts(&fleet, "web").await? > web, "web was not applied");
    ensure!(attempts(&fleet, "db").await? == db, "db was applied again");
    let after = fleet.get("externalartifact/app-db").await?;
    ensure!(before["status"]["artifact"]["digest"] == after["status"]["artifact"]["digest"], "{after:#}");
    // What is left out changes nothing at all.
    let web = attempts(&fleet, "web").await?;
    repository.commit("main", "Words", &files("two", "one", "more words"))?;
    fleet.fetch("mono").await?;
    fleet.reconcile("artifactgenerator/apps").await?;
    ensure!(attempts(&fleet, "web").await? == web, "web was applied again");
    // A folder that goes takes its artifact with it, and what was deployed by it stays until somebody says otherwise.
    let without = Commit::new().remove("apps/db/app.yaml").remove("apps/db/kustomization.yaml");
    repository.commit("main", "No db", &without)?;
    fleet.fetch("mono").await?;
    gone(&fleet, "externalartifact/app-db").await?;
    fleet.fails("kustomization/db", "ArtifactFailed", &["not found"]).await?;
    fleet.cluster.has_word(space.name(), "db", Some("one")).await?;

    // An artifact that somebody removes comes back; one that nobody may upload is not taken.
    fleet.run(&["delete", "externalartifact", "app-web"]).await?;
    eventually("it is made again", PATIENCE, || async {
        let made = fleet.get("externalartifact/app-web").await?;
        ensure!(made["status"]["artifact"]["digest"].is_string(), "{made:#}");
        Ok(())
    })
    .await?;
    // Disabled, it makes nothing; deleted, it takes along what it made.
    let disabled = "source.extensions.fluxcd.io/reconcile=disabled";
    fleet.run(&["annotate", "artifactgenerator/apps", disabled]).await?;
    repository.commit("main", "Three", &Commit::new().file("apps/web/app.yaml", map("web", "three")))?;
    fleet.fetch("mono").await?;
    fleet.request("artifactgenerator/apps").await?;
    eventually("it says that it is disabled", PATIENCE, || async {
        let events = fleet.run(&["get", "events"]).await?;
        ensure!(events.contains("ReconciliationDisabled"), "{events}");
        Ok(())
    })
    .await?;
    fleet.cluster.has_word(space.name(), "web", Some("two")).await?;
    fleet.run(&["annotate", "artifactgenerator/apps", "source.extensions.fluxcd.io/reconcile-"]).await?;
    fleet.cluster.has_word(space.name(), "web", Some("three")).await?;
    fleet.run(&["delete", "artifactgenerator", "apps"]).await?;
    gone(&fleet, "externalartifact/app-web").await?;
    gone(&fleet, "artifactgenerator/apps").await
}

#[tokio::test]
async fn what_cannot_be_generated_says_so_and_leaves_what_there_is() -> Result<()> {
    let fleet = Fleet::start("generator-bad").await?;
    let space = fleet.cluster.namespace("generator-bad").await?;
    let plain = |copy: &str| {
        format!(
            "sources: [{{alias: repo, kind: GitRepository, name: mono}}]\nartifacts:\n- name: one\n  copy: [{copy}]\n"
        )
    };
    let good = plain("{from: \"@repo/app/**\", to: \"@artifact/\"}");
    fleet.apply(&generator("gen", &good)).await?;
    let waiting = "source GitRepository apps/mono: not found";
    fleet.fails("artifactgenerator/gen", "SourceFetchFailed", &[waiting]).await?;
    let files = Commit::new().file("app/a.yaml", config_map(space.name(), "app", "one"));
    fleet.repository("mono", &files).await?;
    // It is told when the source comes.
    fleet.ready("artifactgenerator/gen").await?;
    fleet.apply(&deployed("one", "one")).await?;
    fleet.cluster.has_word(space.name(), "app", Some("one")).await?;
    let before = fleet.get("externalartifact/one").await?["status"]["artifact"].clone();

    fleet.run(&["create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant"]).await?;
    let many = (0..=20).map(|_| "{a,b}").collect::<String>();
    let two =
        "sources: [{alias: repo, kind: GitRepository, name: mono}, {alias: repo, kind: Bucket, name: b}]\n";
    for (spec, reason, said) in [
        (
            plain("{from: \"@repo/../../etc/**\", to: \"@artifact/\"}"),
            "ValidationFailed",
            "leads out of its root",
        ),
        (
            plain("{from: \"@repo/app/**\", to: \"@artifact/../../x\"}"),
            "ValidationFailed",
            "leads out of its root",
        ),
        (
            plain("{from: \"@other/app/**\", to: \"@artifact/\"}"),
            "ValidationFailed",
            "no source with the alias 'other'",
        ),
        (
            plain(&format!("{{from: \"@repo/app/**\", to: \"@artifact/\", exclude: [\"{many}\"]}}")),
            "ValidationFailed",
            "alternatives",
        ),
        (
            good.replace("sources: [{alias: repo, kind: GitRepository, name: mono}]\n", two),
            "ValidationFailed",
            "duplicate source alias 'repo'",
        ),
        (
            good.replace("- name: one\n", "- name: one\n  revision: \"@none\"\n"),
            "ValidationFailed",
            "revision source alias 'none' not found",
        ),
        (
            plain("{from: \"@repo/nothing\", to: \"@artifact/\"}"),
            "BuildFailed",
            "artifact 'one': 'nothing' does not exist",
        ),
        (
            good.replace("name: mono}", "name: mono, namespace: default}"),
            "AccessDenied",
            "is in another namespace",
        ),
    ] {
        if reason == "AccessDenied" {
            // Whoever may get the source may refer to it.
            let args = ["apply", "--as=tenant", "--namespace", "apps", "-f", "-"];
            eventually("the tenant may write", PATIENCE, || async {
                fleet.kubectl().run_with(&args, &generator("gen", &spec)).await
            })
            .await?;
        } else {
            fleet.apply(&generator("gen", &spec)).await?;
        }
        fleet.fails("artifactgenerator/gen", reason, &[said]).await?;
        let stalled = fleet.condition("artifactgenerator/gen", "Stalled").await;
        ensure!(stalled.is_ok() == (reason != "BuildFailed"), "{reason}: {stalled:?}");
    }
    // What it is not to have is refused where it is written.
    for (bad, said) in [
        (good.replace("alias: repo", "alias: Repo"), "spec.sources[0].alias"),
        (good.replace("kind: GitRepository", "kind: Deployment"), "spec.sources[0].kind"),
        (good.replace("@artifact/", "artifact/"), "spec.artifacts[0].copy[0].to"),
        (good.replace("name: mono", "name: ../mono"), "spec.sources[0].name"),
    ] {
        let refused = fleet.apply(&generator("gen", &bad)).await.err().context("it was taken")?.to_string();
        ensure!(refused.contains(said), "{said}: {refused}");
    }
    let sources: String =
        (0..1_001).map(|n| format!("{{alias: a{n}, kind: GitRepository, name: mono}}, ")).collect();
    let thousand =
        good.replace("{alias: repo, kind: GitRepository, name: mono}", sources.trim_end_matches(", "));
    let refused = fleet.apply(&generator("gen", &thousand)).await.err().context("it was taken")?.to_string();
    ensure!(refused.contains("spec.sources"), "{refused}");
    let after = fleet.get("externalartifact/one").await?["status"]["artifact"].clone();
    ensure!(before == after, "{before} {after}");

    // Two for one name: the second is refused, and says whose it is.
    fleet.apply(&generator("gen", &good)).await?;
    fleet.ready("artifactgenerator/gen").await?;
    fleet.apply(&generator("second", &good)).await?;
    let said = "ExternalArtifact apps/one already exists: ArtifactGenerator 'gen' makes it";
    fleet.fails("artifactgenerator/second", "ReconciliationFailed", &[said]).await?;
    let mine = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: ExternalArtifact\nmetadata: {name: mine}\n";
    fleet.apply(mine).await?;
    fleet.apply(&generator("second", &good.replace("name: one\n", "name: mine\n"))).await?;
    let said = "ExternalArtifact apps/mine already exists: it was not made by this ArtifactGenerator";
    fleet.fails("artifactgenerator/second", "ReconciliationFailed", &[said]).await?;
    fleet.run(&["delete", "artifactgenerator", "second"]).await?;
    gone(&fleet, "artifactgenerator/second").await?;
    fleet.get("externalartifact/mine").await?;
    fleet.get("externalartifact/one").await.map(|_| ())
}

#[tokio::test]
async fn a_thousand_sources_and_a_generator_from_git() -> Result<()> {
    let fleet = Fleet::start_on(HubSetup::new("generator-git").await?).await?;
    let space = fleet.cluster.namespace("generator-git").await?;
    let sources: String =
        (0..1_000).map(|n| format!("{{alias: a{n}, kind: GitRepository, name: root}}, ")).collect();
    let spec = format!(
        "sources: [{}]\nartifacts:\n- name: first\n  revision: \"@a999\"\n  copy:\n  - {{from: \"@a0/app\", to: \"@artifact/\"}}\n  \
         - {{from: \"@a999/values.yaml\", to: \"@artifact/app/values.yaml\", strategy: Merge}}\n",
        sources.trim_end_matches(", ")
    );
    let child = kustomization("app", "first", "app", &["sourceRef: {kind: ExternalArtifact, name: first}"]);
    let files = Commit::new()
        .file("cluster/generator.yaml", generator("gen", &spec))
        .file("cluster/app.yaml", child)
        .file("app/config.yaml", config_map(space.name(), "app", "one"))
        .file(
            "app/values.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: values}\ndata: {a: x, b: x}\n",
        )
        .file(
            "app/kustomization.yaml",
            format!("namespace: {}\nresources: [config.yaml, values.yaml]\n", space.name()),
        )
        .file("values.yaml", "data: {b: \"y\", word: two}\n");
    let repository = fleet.repository("root", &files).await?;
    fleet.apply(&git_repository("root", &fleet.git.url("root.git"), "secretRef: {name: git}")).await?;
    fleet.apply(&kustomization("root", "root", "cluster", &["wait: true"])).await?;
    fleet.ready("kustomization/root").await?;
    let children = fleet.get("kustomization/root").await?;
    ensure!(children["status"]["conditions"].is_array(), "{children:#}");
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(space.name(), "app", Some("one")).await?;
    fleet.cluster.has_word(space.name(), "values", Some("two")).await?;
    let git = fleet.get("gitrepository/root").await?["status"]["artifact"]["revision"].clone();
    let product = fleet.get("externalartifact/first").await?;
    ensure!(product["status"]["artifact"]["revision"] == git, "{product:#}");
    // With the generator its artifact leaves Git.
    repository.commit("main", "No generator", &Commit::new().remove("cluster/generator.yaml"))?;
    fleet.fetch("root").await?;
    gone(&fleet, "artifactgenerator/gen").await?;
    gone(&fleet, "externalartifact/first").await
}
