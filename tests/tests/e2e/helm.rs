//! Helm repositories and charts on a real hub: over HTTPS with a password, of a real registry to which the real helm pushes, of Git and of a
//! bucket; and what `kubectl` and `flux` show of them.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{
    ChartServer, Fleet, HubSetup, LOGIN, ObjectStore, PATIENCE, Registry, eventually, folder, git_repository,
    unique,
};
use serde_json::Value;

/// A fleet whose hub may connect to chart servers, registries and object stores of this machine.
pub(crate) async fn fleet(name: &str) -> Result<Fleet> {
    let setup = HubSetup::new(name).await?;
    let setup = setup.arg("--allow-network=helm=127.0.0.0/8").arg("--allow-network=oci=127.0.0.0/8");
    Fleet::start_on(setup.arg("--allow-network=bucket=127.0.0.0/8")).await
}

/// An object of Flux' sources, looked at once an hour; `lines` are those of its spec.
pub(crate) fn source(kind: &str, name: &str, lines: &[&str]) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n  interval: 1h\n  {}\n",
        lines.join("\n  ")
    )
}

/// Keeps texts in a Secret on the hub.
pub(crate) async fn secret(fleet: &Fleet, name: &str, texts: &[(&str, &str)]) -> Result<()> {
    let texts: Vec<String> = texts.iter().map(|(key, text)| format!("--from-literal={key}={text}")).collect();
    let mut args = vec!["create", "secret", "generic", name, "--dry-run=client", "-o", "yaml"];
    args.extend(texts.iter().map(String::as_str));
    let manifest = fleet.run(&args).await?;
    fleet.apply(&manifest).await.map(|_| ())
}

/// Has the hub look at a source now, and waits until it has.
async fn look(fleet: &Fleet, object: &str) -> Result<()> {
    let at = unique("look");
    let annotation = format!("reconcile.fluxcd.io/requestedAt={at}");
    fleet.run(&["annotate", "--overwrite", object, &annotation]).await?;
    eventually("the source is looked at", PATIENCE, || async {
        let handled = fleet.get(object).await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == at, "the last request that was handled is {handled}");
        Ok(())
    })
    .await
}

pub(crate) async fn status(fleet: &Fleet, object: &str) -> Result<Value> {
    Ok(fleet.get(object).await?["status"].clone())
}

/// Waits until a source's artifact has this revision.
pub(crate) async fn at_revision(fleet: &Fleet, object: &str, revision: &str) -> Result<Value> {
    eventually(&format!("{object} is at {revision}"), PATIENCE, || async {
        let status = status(fleet, object).await?;
        ensure!(status["artifact"]["revision"] == revision, "{status:#}");
        Ok(status)
    })
    .await
}

pub(crate) fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// A packed chart.
pub(crate) fn packed(name: &str, version: &str, files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let chart = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (path, text) in [("Chart.yaml", chart.as_str())].iter().chain(files) {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, format!("{name}/{path}"), text.as_bytes())?;
    }
    let mut to = tar.into_inner()?;
    to.flush()?;
    Ok(to.finish()?)
}

/// Serves charts with an index.
fn serve(server: &ChartServer, versions: &[&str]) -> Result<()> {
    let mut index = format!("apiVersion: v1\ngenerated: {}\nentries:\n  app:\n", unique("at"));
    for version in versions {
        let chart =
            packed("app", version, &[("values.yaml", "replicas: 1\n"), ("prod.yaml", "replicas: 3\n")])?;
        server.put(&format!("/charts/app-{version}.tgz"), chart);
        index.push_str(&format!("  - {{name: app, version: {version}, urls: [app-{version}.tgz]}}\n"));
    }
    server.put("/charts/index.yaml", index);
    Ok(())
}

#[tokio::test]
async fn charts_of_a_repository_are_fetched_and_followed() -> Result<()> {
    let fleet = fleet("helm").await?;
    let server = ChartServer::start().await?;
    let url = format!("{}/charts", server.url());
    serve(&server, &["1.0.0", "1.1.0"])?;
    let lines = [&format!("url: {url}"), "secretRef: {name: login}", "certSecretRef: {name: ca}"];
    fleet.apply(&source("HelmRepository", "charts", &lines)).await?;
    let of = "sourceRef: {kind: HelmRepository, name: charts}";
    fleet.apply(&source("HelmChart", "app", &["chart: app", "version: 1.x", of])).await?;
    fleet.fails("helmrepository/charts", "AuthenticationFailed", &["apps/login", "not found"]).await?;
    let none = "no artifact available for HelmRepository source 'charts'";
    fleet.fails("helmchart/app", "NoSourceArtifact", &[none]).await?;
    secret(&fleet, "ca", &[("ca.crt", server.pem())]).await?;
    secret(&fleet, "login", &[("username", LOGIN.0)]).await?;
    let required = "required fields 'username' and 'password'";
    fleet.fails("helmrepository/charts", "AuthenticationFailed", &[required]).await?;
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", "wr0ng")]).await?;
    let start = "failed to fetch Helm repository index: ";
    let message = fleet.fails("helmrepository/charts", "Failed", &[start, "401", &url]).await?;
    ensure!(!message.contains("wr0ng") && !fleet.hub.logs().contains("wr0ng"), "the password is told");
    let failed = status(&fleet, "helmrepository/charts").await?;
    ensure!(condition(&failed, "FetchFailed").is_some(), "{failed:#}");
    // They are looked at once an hour: the Secret's change is what mends the one, and its artifact the other.
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", LOGIN.1)]).await?;
    let message = fleet.ready("helmrepository/charts").await?;
    let repository = status(&fleet, "helmrepository/charts").await?;
    let revision = repository["artifact"]["revision"].as_str().context("no revision")?;
    ensure!(message == format!("stored artifact: revision '{revision}'"), "{message}");
    ensure!(
        revision.starts_with("sha256:") && condition(&repository, "FetchFailed").is_none(),
        "{repository:#}"
    );
    let message = fleet.ready("helmchart/app").await?;
    ensure!(message == "pulled 'app' chart with version '1.1.0'", "{message}");
    let chart = at_revision(&fleet, "helmchart/app", "1.1.0").await?;
    ensure!(chart["observedChartName"] == "app", "{chart:#}");
    ensure!(chart["observedSourceArtifactRevision"] == revision, "{chart:#}");
    let ready = condition(&chart, "Ready").context("no Ready")?;
    ensure!(ready["reason"] == "ChartPullSucceeded", "{chart:#}");
    ensure!(chart["artifact"]["path"].as_str().is_some_and(|path| path.ends_with(".tgz")), "{chart:#}");

    // What has not changed costs one small request.
    server.seen();
    look(&fleet, "helmrepository/charts").await?;
    ensure!(server.seen() == [(304, "/charts/index.yaml".to_owned())], "more was asked for");
    look(&fleet, "helmchart/app").await?;
    ensure!(server.seen().is_empty(), "its source has not changed");
    // Another one with the same URL and Secrets has what the first one received.
    fleet.apply(&source("HelmRepository", "twin", &lines)).await?;
    fleet.ready("helmrepository/twin").await?;
    ensure!(server.seen() == [(304, "/charts/index.yaml".to_owned())], "the index was received twice");
    let twin = status(&fleet, "helmrepository/twin").await?;
    ensure!(twin["artifact"]["digest"] == repository["artifact"]["digest"], "{twin:#}");
    // Another time of making changes nothing.
    serve(&server, &["1.0.0", "1.1.0"])?;
    look(&fleet, "helmrepository/charts").await?;
    let again = status(&fleet, "helmrepository/charts").await?;
    ensure!(again["artifact"] == repository["artifact"], "{again:#}");
    // A version that is new comes without anybody asking for it.
    serve(&server, &["1.0.0", "1.1.0", "1.2.0", "2.0.0"])?;
    look(&fleet, "helmrepository/charts").await?;
    at_revision(&fleet, "helmchart/app", "1.2.0").await?;

    // Files of values make a chart of its own, which bears the generation.
    let lines = ["chart: app", "version: 1.x", of, "valuesFiles: [values.yaml, prod.yaml]"];
    fleet.apply(&source("HelmChart", "app", &lines)).await?;
    let chart = at_revision(&fleet, "helmchart/app", "1.2.0+2").await?;
    let merged = " and merged values files [values.yaml prod.yaml]";
    let message = fleet.ready("helmchart/app").await?;
    ensure!(message == format!("packaged 'app' chart with version '1.2.0+2'{merged}"), "{message}");
    ensure!(chart["observedValuesFiles"] == serde_json::json!(["values.yaml", "prod.yaml"]), "{chart:#}");
    let missing = ["chart: app", of, "valuesFiles: [none.yaml]"];
    fleet.apply(&source("HelmChart", "app", &missing)).await?;
    let said = "values files merge error: no values file found at path 'none.yaml'";
    fleet.fails("helmchart/app", "ValuesFilesError", &[said]).await?;
    let stalled = status(&fleet, "helmchart/app").await?;
    for type_ in ["Stalled", "BuildFailed"] {
        ensure!(condition(&stalled, type_).is_some_and(|found| found["status"] == "True"), "{stalled:#}");
    }
    ensure!(stalled["artifact"]["revision"] == "1.2.0+2", "{stalled:#}");
    fleet.apply(&source("HelmChart", "app", &["chart: app", "version: '>3'", of])).await?;
    let said = "no 'app' chart with version matching '>3' found";
    fleet.fails("helmchart/app", "InvalidChartReference", &["invalid chart reference: ", said]).await?;
    fleet.apply(&source("HelmChart", "app", &["chart: app", of])).await?;
    let chart = at_revision(&fleet, "helmchart/app", "2.0.0").await?;
    ensure!(
        ["Stalled", "BuildFailed", "FetchFailed"].iter().all(|type_| condition(&chart, type_).is_none()),
        "{chart:#}"
    );
    ensure!(chart["observedValuesFiles"].is_null(), "{chart:#}");
    shown(&fleet, &url).await
}

/// What `kubectl` and `flux` show.
async fn shown(fleet: &Fleet, url: &str) -> Result<()> {
    for (kind, expected) in [
        ("helmrepositories", vec!["NAME", "URL", "AGE", "READY", "STATUS"]),
        (
            "hc",
            vec!["NAME", "CHART", "VERSION", "SOURCE", "KIND", "SOURCE", "NAME", "AGE", "READY", "STATUS"],
        ),
    ] {
        let table = fleet.run(&["get", kind]).await?;
        let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
        ensure!(head == expected, "{table}");
        ensure!(table.contains("True"), "{table}");
    }
    ensure!(fleet.run(&["get", "helmrepo"]).await?.contains(url));
    Ok(())
}

#[tokio::test]
async fn repositories_that_are_none_stall_and_registries_have_no_status() -> Result<()> {
    let fleet = fleet("helm-static").await?;
    fleet.apply(&source("HelmRepository", "wrong", &["url: oci://registry.example/charts"])).await?;
    let said = "'oci' URL scheme cannot be used with 'default' HelmRepository type";
    fleet.fails("helmrepository/wrong", "URLInvalid", &[said]).await?;
    let wrong = status(&fleet, "helmrepository/wrong").await?;
    ensure!(condition(&wrong, "Stalled").is_some_and(|found| found["reason"] == "URLInvalid"), "{wrong:#}");
    // It becomes a registry: what was said of it goes.
    fleet
        .apply(&source("HelmRepository", "wrong", &["url: oci://registry.example/charts", "type: oci"]))
        .await?;
    eventually("nothing is said of it", PATIENCE, || async {
        let status = status(&fleet, "helmrepository/wrong").await?;
        ensure!(status["conditions"].is_null(), "{status:#}");
        Ok(())
    })
    .await?;
    fleet.apply(&source("HelmRepository", "metadata", &["url: http://169.254.169.254/"])).await?;
    fleet
        .fails("helmrepository/metadata", "URLInvalid", &["--allow-network helm=169.254.169.254/32"])
        .await?;
    Ok(())
}

#[tokio::test]
async fn charts_of_git_follow_their_version_or_their_commit() -> Result<()> {
    let fleet = fleet("helm-git").await?;
    let repository = fleet.git.add_repository("charts.git")?;
    let chart = |version: &str| format!("apiVersion: v2\nname: app\nversion: {version}\n");
    let commit = |version: &str, template: &str| {
        let files = Commit::new()
            .file("charts/app/Chart.yaml", chart(version))
            .file("charts/app/values.yaml", "replicas: 1\n")
            .file("charts/app/templates/a.yaml", template)
            .file("prod.yaml", "replicas: 3\n");
        repository.commit("main", "a chart", &files)
    };
    let first = commit("0.1.0", "one")?;
    fleet.apply(&git_repository("charts", &fleet.git.url("charts.git"), "secretRef: {name: git}")).await?;
    let of = "sourceRef: {kind: GitRepository, name: charts}";
    let lines = ["chart: ./charts/app", of];
    fleet.apply(&source("HelmChart", "by-version", &lines)).await?;
    let lines = [
        "chart: charts/app",
        of,
        "reconcileStrategy: Revision",
        "valuesFiles: [charts/app/values.yaml, prod.yaml]",
    ];
    fleet.apply(&source("HelmChart", "by-commit", &lines)).await?;
    let chart = at_revision(&fleet, "helmchart/by-version", "0.1.0").await?;
    let message = fleet.ready("helmchart/by-version").await?;
    ensure!(message == "packaged 'app' chart with version '0.1.0'", "{message}");
    at_revision(&fleet, "helmchart/by-commit", &format!("0.1.0+{}.1", &first[..12])).await?;
    // A commit without another version is nothing to the one, and all to the other; both note what they looked at.
    let second = commit("0.1.0", "two")?;
    look(&fleet, "gitrepository/charts").await?;
    at_revision(&fleet, "helmchart/by-commit", &format!("0.1.0+{}.1", &second[..12])).await?;
    let observed = |revision: &str| format!("main@sha1:{revision}");
    eventually("the new commit is noted", PATIENCE, || async {
        let now = status(&fleet, "helmchart/by-version").await?;
        ensure!(now["observedSourceArtifactRevision"] == observed(&second), "{now:#}");
        ensure!(now["artifact"] == chart["artifact"], "{now:#}");
        Ok(())
    })
    .await?;
    commit("0.2.0", "three")?;
    look(&fleet, "gitrepository/charts").await?;
    at_revision(&fleet, "helmchart/by-version", "0.2.0").await?;
    fleet.apply(&source("HelmChart", "none", &["chart: charts/none", of])).await?;
    fleet.fails("helmchart/none", "InvalidChartReference", &["no chart found at '/charts/none'"]).await?;
    Ok(())
}

#[tokio::test]
async fn charts_of_a_registry_are_fetched_and_verified() -> Result<()> {
    let fleet = fleet("helm-oci").await?;
    let (registry, files) = (Registry::start().await?, folder()?);
    let chart = |version: &str| packed("app", version, &[("values.yaml", "replicas: 1\n")]);
    let digest = registry.push_chart("charts/app", "1.0.0", &chart("1.0.0")?).await?;
    let file = files.path().join("app-1.1.0.tgz");
    std::fs::write(&file, chart("1.1.0")?)?;
    registry.helm_push("charts", &file).await?;
    let lines = [
        &format!("url: {}", registry.url("charts")),
        "type: oci",
        "secretRef: {name: login}",
        "certSecretRef: {name: ca}",
    ];
    let ca = std::fs::read_to_string(registry.ca())?;
    secret(&fleet, "ca", &[("ca.crt", &ca)]).await?;
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", "wr0ng")]).await?;
    fleet.apply(&source("HelmRepository", "charts", &lines)).await?;
    let of = "sourceRef: {kind: HelmRepository, name: charts}";
    fleet.apply(&source("HelmChart", "app", &["chart: app", "version: 1.x", of])).await?;
    fleet.fails("helmchart/app", "AuthenticationFailed", &["401"]).await?;
    // The Secret is the repository's, and the repository does nothing: its change is what mends the chart.
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", LOGIN.1)]).await?;
    let chart = at_revision(&fleet, "helmchart/app", "1.1.0").await?;
    ensure!(chart["observedSourceArtifactRevision"].is_null(), "{chart:#}");
    ensure!(!fleet.hub.logs().contains("wr0ng"), "the password is in the log");
    let repository = status(&fleet, "helmrepository/charts").await?;
    ensure!(repository["conditions"].is_null(), "{repository:#}");

    // Signed by a key that is trusted, or not at all.
    let key = registry.key_pair(files.path(), "own").await?;
    secret(&fleet, "keys", &[("own.pub", &key)]).await?;
    let verify = "verify: {provider: cosign, secretRef: {name: keys}}";
    fleet.apply(&source("HelmChart", "app", &["chart: app", "version: 1.0.0", of, verify])).await?;
    fleet.fails("helmchart/app", "ChartVerificationError", &["chart verification error: "]).await?;
    registry.sign("charts/app", &digest, &files.path().join("own.key"), true).await?;
    look(&fleet, "helmchart/app").await?;
    let chart = at_revision(&fleet, "helmchart/app", "1.0.0").await?;
    let verified = condition(&chart, "SourceVerified").context("it is not verified")?;
    ensure!(verified["status"] == "True", "{chart:#}");
    // By notation the same Secret says nothing.
    let notation = "verify: {provider: notation, secretRef: {name: keys}}";
    fleet.apply(&source("HelmChart", "app", &["chart: app", of, notation])).await?;
    fleet
        .fails("helmchart/app", "VerificationError", &["provider 'notation'", "has no key trustpolicy.json"])
        .await?;
    Ok(())
}

#[tokio::test]
async fn charts_of_a_bucket_are_packed_and_followed() -> Result<()> {
    let fleet = fleet("helm-bucket").await?;
    let store = ObjectStore::s3().await?;
    let (id, key) = store.keys();
    secret(&fleet, "store", &[("accesskey", id), ("secretkey", key)]).await?;
    secret(&fleet, "ca", &[("ca.crt", &std::fs::read_to_string(store.ca())?)]).await?;
    let chart = |version: &str| format!("apiVersion: v2\nname: app\nversion: {version}\n");
    let objects = [
        ("charts/app/Chart.yaml", chart("0.1.0")),
        ("charts/app/values.yaml", "replicas: 1\n".to_owned()),
        ("charts/app/templates/a.yaml", "one".to_owned()),
        ("charts/app/.helmignore", "*.md\n".to_owned()),
        ("charts/app/readme.md", "left out".to_owned()),
        ("prod.yaml", "replicas: 3\n".to_owned()),
    ];
    store.bucket("charts", &objects.each_ref().map(|(key, text)| (*key, text.as_str()))).await?;
    let of = "sourceRef: {kind: Bucket, name: charts}";
    fleet.apply(&source("HelmChart", "by-version", &["chart: charts/app", of])).await?;
    let missing = "failed to get source: Bucket 'apps/charts' not found";
    fleet.fails("helmchart/by-version", "SourceUnavailable", &[missing]).await?;
    let endpoint = format!("endpoint: {}", store.host());
    let lines = [&endpoint, "bucketName: charts", "secretRef: {name: store}", "certSecretRef: {name: ca}"];
    fleet.apply(&source("Bucket", "charts", &lines)).await?;
    let by_version = at_revision(&fleet, "helmchart/by-version", "0.1.0").await?;
    let message = fleet.ready("helmchart/by-version").await?;
    ensure!(message == "packaged 'app' chart with version '0.1.0'", "{message}");
    let bucket = status(&fleet, "bucket/charts").await?;
    let revision = bucket["artifact"]["revision"].as_str().context("no revision")?.to_owned();
    ensure!(by_version["observedSourceArtifactRevision"] == revision, "{by_version:#}");
    let lines = [
        "chart: charts/app",
        of,
        "reconcileStrategy: Revision",
        "valuesFiles: [charts/app/values.yaml, prod.yaml]",
    ];
    fleet.apply(&source("HelmChart", "by-content", &lines)).await?;
    let content = |revision: &str| format!("0.1.0+{}.1", &revision["sha256:".len()..][..12]);
    at_revision(&fleet, "helmchart/by-content", &content(&revision)).await?;
    // Another object without another version is nothing to the one, and all to the other.
    store.put("charts", "charts/app/templates/a.yaml", "two").await?;
    look(&fleet, "bucket/charts").await?;
    let second = status(&fleet, "bucket/charts").await?["artifact"]["revision"].clone();
    let second = second.as_str().context("no revision")?;
    ensure!(second != revision, "the new object is not seen");
    at_revision(&fleet, "helmchart/by-content", &content(second)).await?;
    eventually("the new revision is noted", PATIENCE, || async {
        let now = status(&fleet, "helmchart/by-version").await?;
        ensure!(now["observedSourceArtifactRevision"] == second, "{now:#}");
        ensure!(now["artifact"] == by_version["artifact"], "{now:#}");
        Ok(())
    })
    .await?;
    store.put("charts", "charts/app/Chart.yaml", &chart("0.2.0")).await?;
    look(&fleet, "bucket/charts").await?;
    at_revision(&fleet, "helmchart/by-version", "0.2.0").await?;
    // What becomes no chart keeps the one that there is.
    store.put("charts", "charts/app/Chart.yaml", "name: [").await?;
    look(&fleet, "bucket/charts").await?;
    fleet.fails("helmchart/by-version", "InvalidChartReference", &["cannot load Chart.yaml"]).await?;
    let kept = status(&fleet, "helmchart/by-version").await?;
    ensure!(kept["artifact"]["revision"] == "0.2.0", "{kept:#}");
    Ok(())
}

#[tokio::test]
async fn charts_that_another_one_depends_on_come_by_the_repositories_of_its_namespace() -> Result<()> {
    let fleet = fleet("helm-dependencies").await?;
    let server = ChartServer::start().await?;
    let url = format!("{}/charts", server.url());
    let serve = |versions: &[&str]| -> Result<()> {
        let mut index = "apiVersion: v1\nentries:\n  db:\n".to_owned();
        for version in versions {
            server.put(&format!("/charts/db-{version}.tgz"), packed("db", version, &[])?);
            index.push_str(&format!("  - {{name: db, version: {version}, urls: [db-{version}.tgz]}}\n"));
        }
        server.put("/charts/index.yaml", index);
        Ok(())
    };
    serve(&["1.0.0", "1.1.0"])?;
    let repository = fleet.git.add_repository("charts.git")?;
    let commit = |version: &str, range: &str| {
        let chart = format!(
            "apiVersion: v2\nname: app\nversion: {version}\ndependencies:\n- {{name: db, version: {range}, repository: \"{url}\"}}\n"
        );
        repository.commit("main", "a chart", &Commit::new().file("app/Chart.yaml", chart))
    };
    commit("0.1.0", "1.x")?;
    fleet.apply(&git_repository("charts", &fleet.git.url("charts.git"), "secretRef: {name: git}")).await?;
    let of = "sourceRef: {kind: GitRepository, name: charts}";
    fleet.apply(&source("HelmChart", "app", &["chart: app", of])).await?;
    // Nobody has a CA or a password for that server.
    let said = "dependency build error: failed to add remote dependency 'db': failed to get chart repository for URL";
    fleet.fails("helmchart/app", "DependencyBuildError", &[said, &url]).await?;
    let failed = status(&fleet, "helmchart/app").await?;
    ensure!(
        condition(&failed, "BuildFailed").is_some() && condition(&failed, "Stalled").is_none(),
        "{failed:#}"
    );
    // It is looked at once an hour: the repository's coming is what mends it, and then its Secret's change.
    secret(&fleet, "ca", &[("ca.crt", server.pem())]).await?;
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", "wr0ng")]).await?;
    let lines = [&format!("url: {url}/"), "secretRef: {name: login}", "certSecretRef: {name: ca}"];
    fleet.apply(&source("HelmRepository", "lender", &lines)).await?;
    eventually("the repository's password is not accepted", PATIENCE, || async {
        let message = fleet.fails("helmchart/app", "DependencyBuildError", &[said]).await?;
        ensure!(message.contains("answered 401"), "{message}");
        Ok(())
    })
    .await?;
    ensure!(!fleet.hub.logs().contains("wr0ng"), "the password is in the log");
    secret(&fleet, "login", &[("username", LOGIN.0), ("password", LOGIN.1)]).await?;
    at_revision(&fleet, "helmchart/app", "0.1.0").await?;
    let message = fleet.ready("helmchart/app").await?;
    ensure!(message == "packaged 'app' chart with version '0.1.0'", "{message}");
    let got = (200, "/charts/db-1.1.0.tgz".to_owned());
    ensure!(server.seen().contains(&got), "the chart that it depends on was not fetched");
    let chart = status(&fleet, "helmchart/app").await?;
    ensure!(condition(&chart, "BuildFailed").is_none(), "{chart:#}");
    // A version that is not there yet comes with the repository's next index.
    fleet.ready("helmrepository/lender").await?;
    commit("0.2.0", "2.x")?;
    look(&fleet, "gitrepository/charts").await?;
    let none = "no 'db' chart with version matching '2.x' found";
    fleet.fails("helmchart/app", "DependencyBuildError", &[none]).await?;
    serve(&["1.0.0", "1.1.0", "2.0.0"])?;
    look(&fleet, "helmrepository/lender").await?;
    at_revision(&fleet, "helmchart/app", "0.2.0").await?;
    Ok(())
}
