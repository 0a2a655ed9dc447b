//! What happens to the sources.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::gitserver::{Commit, Repository};
use roadstead_tests::{ChartServer, ObjectStore, Registry, folder};

use super::pair::Pair;
use crate::helm::packed;

/// Those that both sides fetch from, beside the Git server.
pub(super) struct Servers {
    pub(super) registry: Registry,
    pub(super) store: ObjectStore,
    pub(super) charts: ChartServer,
}

const SUCCEEDED: &str = "True Succeeded";
const HEAD: &str = "ref: {branch: main}";
const WITH_CA: &str = "secretRef: {name: git}";

/// All scenarios: a kind, and the name of the source.
pub(super) const SCENARIOS: &[(&str, &str)] = &[
    ("GitRepository", "branch"),
    ("GitRepository", "tags"),
    ("GitRepository", "vacant"),
    ("GitRepository", "locked"),
    ("GitRepository", "signed"),
    ("GitRepository", "composed"),
    ("GitRepository", "sparse"),
    ("GitRepository", "resting"),
    ("GitRepository", "removed"),
    ("OCIRepository", "image"),
    ("OCIRepository", "layer"),
    ("Bucket", "objects"),
    ("HelmRepository", "index"),
    ("HelmChart", "chart"),
    ("HelmChart", "tree"),
];

pub(super) async fn run(pair: &Pair<'_>, servers: &Servers) -> Result<()> {
    match pair.name {
        "branch" => branch(pair).await,
        "tags" => tags(pair).await,
        "vacant" => vacant(pair).await,
        "locked" => locked(pair).await,
        "signed" => signed(pair).await,
        "composed" => composed(pair).await,
        "sparse" => sparse(pair).await,
        "resting" => resting(pair).await,
        "removed" => removed(pair).await,
        "image" => image(pair, &servers.registry).await,
        "layer" => layer(pair, &servers.registry).await,
        "objects" => objects(pair, &servers.store).await,
        "index" => index(pair, &servers.charts).await,
        "chart" => chart(pair, &servers.charts).await,
        "tree" => tree(pair).await,
        other => bail!("there is no scenario {other}"),
    }
    .with_context(|| format!("scenario {}", pair.name))
}

/// The scenario's repository, and where it is.
fn repository(pair: &Pair<'_>) -> Result<(Repository, String)> {
    let name = format!("{}.git", pair.name);
    let repository = pair.fleet.git.add_repository(&name)?;
    Ok((repository, format!("url: {}", pair.fleet.git.url(&name))))
}

fn files(word: &str) -> Commit {
    Commit::new()
        .file("deploy/app.yaml", format!("word: {word}\n"))
        .executable("deploy/run.sh", "#!/bin/sh\n")
        .file("docs/readme.md", "read me")
        .file("docs/picture.png", "a picture")
        .link("deploy/link.yaml", "app.yaml")
        .file("deploy/with a space and ümläuts.yaml", "a: 1\n")
}

/// A branch: its first commit, the same one again, the next, patterns, another history, none, and one again.
async fn branch(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    pair.source(&[&url, HEAD, WITH_CA]).await?;
    pair.same("first", SUCCEEDED, &first).await?;
    pair.ask().await?;
    pair.same("unchanged", SUCCEEDED, &first).await?;
    let subject = "A subject that has more than fifty characters, as some write them\n\nAnd a body.";
    let second = repository.commit("main", subject, &files("two"))?;
    pair.ask().await?;
    pair.same("next", SUCCEEDED, &second).await?;
    pair.source(&[&url, HEAD, WITH_CA, "ignore: |", "  /docs", "  !/docs/readme.md"]).await?;
    pair.ask().await?;
    pair.same("patterns", SUCCEEDED, &second).await?;
    let tree = repository.git(["rev-parse", &format!("{first}^{{tree}}")], &[], b"")?;
    let third = repository.commit_tree("main", "Another history", &tree, None)?;
    pair.ask().await?;
    pair.same("forced", SUCCEEDED, &third).await?;
    repository.commit_tree("other", "Elsewhere", &tree, None)?;
    repository.git(["update-ref", "-d", "refs/heads/main"], &[], b"")?;
    pair.ask().await?;
    pair.same("deleted", "False GitOperationFailed", "refs/heads/main").await?;
    repository.git(["update-ref", "refs/heads/main", &third], &[], b"")?;
    pair.ask().await?;
    pair.same("there-again", SUCCEEDED, &third).await
}

/// References of all other kinds.
async fn tags(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    repository.annotated_tag("v1.0.0", &first)?;
    let second = repository.commit("main", "Second", &files("two"))?;
    repository.tag("v1.1.0", &second)?;
    for (stage, reference, ready, part) in [
        ("none", "{semver: '>=9'}", "False GitOperationFailed", "no match found for semver: >=9"),
        ("semver", "{semver: 1.x}", SUCCEEDED, second.as_str()),
        ("tag", "{tag: v1.0.0}", SUCCEEDED, &first),
        ("commit", &format!("{{commit: {second}}}"), SUCCEEDED, &second),
        ("of-branch", &format!("{{branch: main, commit: {first}}}"), SUCCEEDED, &first),
        ("name", "{name: refs/heads/main}", SUCCEEDED, &second),
        ("tag-missing", "{tag: v9}", "False GitOperationFailed", "v9"),
    ] {
        pair.source(&[&url, &format!("ref: {reference}"), WITH_CA]).await?;
        pair.ask().await?;
        pair.same(stage, ready, part).await?;
    }
    Ok(())
}

/// A repository without a commit, and with one.
async fn vacant(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    pair.source(&[&url, HEAD, WITH_CA]).await?;
    pair.same("empty", "False EmptyGitRepository", "git repository is empty").await?;
    let first = repository.commit("main", "First", &files("one"))?;
    pair.ask().await?;
    pair.same("filled", SUCCEEDED, &first).await
}

/// Secrets that are not there, that do not fit, and that do; and a repository that is none.
async fn locked(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    let with = "secretRef: {name: locked}";
    pair.source(&[&url, HEAD, with]).await?;
    pair.same("missing", "False AuthenticationFailed", "locked").await?;
    let pem = pair.fleet.git.ca_pem().context("a server over HTTPS")?;
    pair.secret("locked", &[("ca.crt", pem), ("password", "secret")]).await?;
    pair.ask().await?;
    pair.same("half", "False AuthenticationFailed", "'password' requires 'username'").await?;
    pair.secret("locked", &[("ca.crt", pem), ("username", "me"), ("password", "secret")]).await?;
    pair.ask().await?;
    pair.same("there", SUCCEEDED, &first).await?;
    pair.source(&[&url.replace("locked.git", "nothing.git"), HEAD, with]).await?;
    pair.ask().await?;
    pair.same("nowhere", "False GitOperationFailed", "").await
}

/// A mode that does not fit the reference, commits that are not signed and that are, and keys that change.
async fn signed(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    let keys = folder()?;
    let key = |name: &str| -> Result<(String, String)> {
        let path = keys.path().join(name);
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).output()?;
        ensure!(made.status.success(), "ssh-keygen: {}", String::from_utf8_lossy(&made.stderr));
        let public = std::fs::read_to_string(path.with_extension("pub"))?;
        Ok((path.display().to_string(), public))
    };
    let ((own, public), (_, foreign)) = (key("own")?, key("foreign")?);
    pair.secret("signers", &[("own.sshpub", &public)]).await?;
    let verify = |mode: &str| format!("verify: {{mode: {mode}, secretRef: {{name: signers}}}}");
    pair.source(&[&url, HEAD, WITH_CA, &verify("Tag")]).await?;
    pair.same("mode", "False InvalidVerificationMode", "").await?;
    pair.source(&[&url, HEAD, WITH_CA, &verify("HEAD")]).await?;
    pair.ask().await?;
    pair.same("unsigned", "False InvalidCommitSignature", "").await?;
    let tree = repository.git(["rev-parse", &format!("{first}^{{tree}}")], &[], b"")?;
    let signing = format!("user.signingkey={own}");
    let args =
        ["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", &tree, "-p", &first, "-m", "Signed"];
    let second = repository.git(args, &[], b"")?;
    repository.git(["update-ref", "refs/heads/main", &second], &[], b"")?;
    pair.ask().await?;
    pair.same("verified", SUCCEEDED, &second).await?;
    pair.secret("signers", &[("own.sshpub", &foreign)]).await?;
    let more =
        ["-c", "gpg.format=ssh", "-c", &signing, "commit-tree", "-S", &tree, "-p", &second, "-m", "More"];
    let third = repository.git(more, &[], b"")?;
    repository.git(["update-ref", "refs/heads/main", &third], &[], b"")?;
    pair.ask().await?;
    pair.same("foreign", "False InvalidCommitSignature", "").await?;
    pair.source(&[&url, HEAD, WITH_CA]).await?;
    pair.ask().await?;
    pair.same("unasked", SUCCEEDED, &third).await
}

/// What is included: not there, without an artifact, there, and changed.
async fn composed(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    let include = "include: [{repository: {name: part}, fromPath: deploy, toPath: from/part}]";
    pair.source(&[&url, HEAD, WITH_CA, include]).await?;
    pair.same("missing", "False NotFound", "could not get resource for include 'part'").await?;
    let part = pair.fleet.git.add_repository("part.git")?;
    part.commit("main", "Part", &Commit::new().file("deploy/part.yaml", "part: 1\n"))?;
    let of_part = format!("url: {}", pair.fleet.git.url("part.git"));
    pair.other("GitRepository", "part", &[&of_part, HEAD, WITH_CA, "suspend: true"]).await?;
    pair.ask().await?;
    pair.same("waiting", "False NoArtifact", "no artifact available for include 'part'").await?;
    pair.other("GitRepository", "part", &[&of_part, HEAD, WITH_CA]).await?;
    pair.same("there", SUCCEEDED, &first).await?;
    part.commit("main", "More", &Commit::new().file("deploy/more.yaml", "more: 1\n"))?;
    // Another spec is a reason to fetch, which Flux needs.
    pair.other("GitRepository", "part", &[&of_part, HEAD, WITH_CA, "interval: 2h"]).await?;
    pair.included("more.yaml").await?;
    pair.same("changed", SUCCEEDED, &first).await
}

/// Folders of a repository.
async fn sparse(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    pair.source(&[&url, HEAD, WITH_CA, "sparseCheckout: [nothing]"]).await?;
    pair.same("missing", "False GitOperationFailed", "nothing").await?;
    pair.source(&[&url, HEAD, WITH_CA, "sparseCheckout: [./deploy]"]).await?;
    pair.ask().await?;
    pair.same("folder", SUCCEEDED, &first).await
}

/// Suspended, with a new commit, a new spec and a request meanwhile; and resumed.
async fn resting(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    pair.source(&[&url, HEAD, WITH_CA]).await?;
    pair.same("well", SUCCEEDED, &first).await?;
    let second = repository.commit("main", "Second", &files("two"))?;
    pair.source(&[&url, HEAD, WITH_CA, "suspend: true"]).await?;
    pair.ask().await?;
    pair.same("suspended", SUCCEEDED, &first).await?;
    pair.source(&[&url, HEAD, WITH_CA, "suspend: false"]).await?;
    pair.same("resumed", SUCCEEDED, &second).await
}

/// A deletion.
async fn removed(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let first = repository.commit("main", "First", &files("one"))?;
    pair.source(&[&url, HEAD, WITH_CA]).await?;
    pair.same("well", SUCCEEDED, &first).await?;
    pair.both(&["delete"], &["--wait=false"]).await?;
    pair.gone("gone").await
}

const OF_REGISTRY: [&str; 2] = ["secretRef: {name: registry}", "certSecretRef: {name: registry-ca}"];

/// A folder with manifests.
fn manifests(word: &str) -> Result<tempfile::TempDir> {
    let files = folder()?;
    std::fs::create_dir(files.path().join("deploy"))?;
    std::fs::write(files.path().join("deploy/app.yaml"), format!("word: {word}\n"))?;
    std::fs::write(files.path().join("README.md"), "read me")?;
    Ok(files)
}

/// A tag that is not there, that is there, and that moves; an address with a tag; a layer that is not there.
async fn image(pair: &Pair<'_>, registry: &Registry) -> Result<()> {
    let first = registry.push("image", "v1", manifests("one")?.path()).await?;
    let url = format!("url: {}", registry.url("image"));
    let source = |more: &[&str]| [&[url.as_str()], &OF_REGISTRY[..], more].concat().join("\n  ");
    pair.source(&[&source(&["ref: {tag: v9}"])]).await?;
    pair.same("missing", "False OCIArtifactPullFailed", "").await?;
    pair.source(&[&source(&["ref: {tag: v1}"])]).await?;
    pair.ask().await?;
    pair.same("first", SUCCEEDED, &first).await?;
    pair.ask().await?;
    pair.same("unchanged", SUCCEEDED, &first).await?;
    let second = registry.push("image", "v1", manifests("two")?.path()).await?;
    pair.ask().await?;
    pair.same("moved", SUCCEEDED, &second).await?;
    pair.source(&[&source(&["ref: {semver: '>=9'}"])]).await?;
    pair.ask().await?;
    pair.same("no-version", "False ReadOperationFailed", "no match found for semver: >=9").await?;
    let layer = "layerSelector: {mediaType: application/nothing}";
    pair.source(&[&source(&["ref: {tag: v1}", layer])]).await?;
    pair.ask().await?;
    pair.same("no-layer", "False OCIArtifactLayerOperationFailed", "application/nothing").await?;
    let tagged = [&format!("{url}:v1"), OF_REGISTRY[0], OF_REGISTRY[1]];
    pair.source(&tagged).await?;
    pair.ask().await?;
    pair.same("address", "False URLInvalid", "image:v1").await?;
    pair.source(&[&source(&["ref: {tag: v1}", "ignore: deploy"])]).await?;
    pair.ask().await?;
    pair.same("patterns", SUCCEEDED, &second).await
}

/// A layer as it is.
async fn layer(pair: &Pair<'_>, registry: &Registry) -> Result<()> {
    let first = registry.push("layer", "v1", manifests("one")?.path()).await?;
    let url = format!("url: {}", registry.url("layer"));
    let digest = format!("ref: {{digest: {first}}}");
    pair.source(&[&url, OF_REGISTRY[0], OF_REGISTRY[1], &digest, "layerSelector: {operation: copy}"]).await?;
    pair.same("copied", SUCCEEDED, &first).await
}

/// A Secret without keys, a bucket that is not there, one that is, another object, and patterns.
async fn objects(pair: &Pair<'_>, store: &ObjectStore) -> Result<()> {
    let endpoint = format!("endpoint: {}", store.host());
    let of = |secret: &str, more: &[&str]| {
        let secret = format!("secretRef: {{name: {secret}}}");
        let lines = [&endpoint, "certSecretRef: {name: store-ca}", "bucketName: objects", &secret];
        [&lines[..], more].concat().join("\n  ")
    };
    pair.secret("half", &[("accesskey", "me")]).await?;
    pair.source(&[&of("half", &[])]).await?;
    pair.same("half", "False AuthenticationFailed", "secretkey").await?;
    pair.source(&[&of("store", &[])]).await?;
    pair.ask().await?;
    pair.same("missing", "False BucketOperationFailed", "bucket 'objects' not found").await?;
    store.bucket("objects", &[("deploy/app.yaml", "word: one\n"), ("picture.png", "a picture")]).await?;
    pair.ask().await?;
    pair.same("first", SUCCEEDED, "stored artifact: revision").await?;
    pair.ask().await?;
    pair.same("unchanged", SUCCEEDED, "stored artifact: revision").await?;
    store.put("objects", "deploy/more.yaml", "word: two\n").await?;
    pair.ask().await?;
    pair.same("more", SUCCEEDED, "stored artifact: revision").await?;
    pair.source(&[&of("store", &["ignore: '*.png'"])]).await?;
    pair.ask().await?;
    pair.same("patterns", SUCCEEDED, "stored artifact: revision").await
}

const OF_CHARTS: [&str; 2] = ["secretRef: {name: charts}", "certSecretRef: {name: charts-ca}"];

/// Serves charts with an index in a folder.
fn serve(server: &ChartServer, folder: &str, versions: &[&str]) -> Result<()> {
    let mut index = "apiVersion: v1\ngenerated: '2026-01-01T00:00:00Z'\nentries:\n  app:\n".to_owned();
    for version in versions {
        let chart =
            packed("app", version, &[("values.yaml", "replicas: 1\n"), ("prod.yaml", "replicas: 3\n")])?;
        server.put(&format!("/{folder}/app-{version}.tgz"), chart);
        let created = "created: '2026-01-01T00:00:00Z'";
        index.push_str(&format!(
            "  - {{apiVersion: v2, name: app, version: {version}, {created}, urls: [app-{version}.tgz]}}\n"
        ));
    }
    server.put(&format!("/{folder}/index.yaml"), index);
    Ok(())
}

/// An index that is not there, that is none, that is one, and the next one; an address that is not HTTP's.
async fn index(pair: &Pair<'_>, server: &ChartServer) -> Result<()> {
    let url = format!("url: {}/index", server.url());
    pair.source(&[&url, OF_CHARTS[0], OF_CHARTS[1]]).await?;
    pair.same("missing", "False Failed", "failed to fetch Helm repository index").await?;
    server.put("/index/index.yaml", "entries: [");
    pair.ask().await?;
    pair.same("broken", "False IndexationFailed", "failed to load Helm repository from index YAML").await?;
    serve(server, "index", &["1.0.0"])?;
    pair.ask().await?;
    pair.same("first", SUCCEEDED, "stored artifact: revision").await?;
    pair.ask().await?;
    pair.same("unchanged", SUCCEEDED, "stored artifact: revision").await?;
    serve(server, "index", &["1.0.0", "1.1.0", "1.1.0-beta.1"])?;
    pair.ask().await?;
    pair.same("next", SUCCEEDED, "stored artifact: revision").await?;
    pair.source(&["url: oci://registry.example/charts"]).await?;
    pair.ask().await?;
    pair.same("address", "False URLInvalid", "'oci' URL scheme cannot be used").await
}

/// A repository that is not there, a chart of it, one that it lacks, and values.
async fn chart(pair: &Pair<'_>, server: &ChartServer) -> Result<()> {
    serve(server, "charts", &["1.0.0", "1.1.0"])?;
    let of = "sourceRef: {kind: HelmRepository, name: charts}";
    pair.source(&["chart: app", "version: 1.0.x", of]).await?;
    pair.same("missing", "False SourceUnavailable", "failed to get source").await?;
    let url = format!("url: {}/charts", server.url());
    pair.other("HelmRepository", "charts", &[&url, OF_CHARTS[0], OF_CHARTS[1], "suspend: true"]).await?;
    pair.ask().await?;
    pair.same(
        "waiting",
        "False NoSourceArtifact",
        "no artifact available for HelmRepository source 'charts'",
    )
    .await?;
    pair.other("HelmRepository", "charts", &[&url, OF_CHARTS[0], OF_CHARTS[1], "suspend: false"]).await?;
    let pulled = "True ChartPullSucceeded";
    pair.same("first", pulled, "pulled 'app' chart with version '1.0.0'").await?;
    pair.source(&["chart: app", "version: 1.x", of]).await?;
    pair.ask().await?;
    pair.same("next", pulled, "pulled 'app' chart with version '1.1.0'").await?;
    pair.source(&["chart: app", "version: 9.x", of]).await?;
    pair.ask().await?;
    pair.same("no-version", "False InvalidChartReference", "").await?;
    pair.source(&["chart: app", "version: 1.x", of, "valuesFiles: [values.yaml, nothing.yaml]"]).await?;
    pair.ask().await?;
    pair.same("no-values", "False ValuesFilesError", "nothing.yaml").await?;
    pair.source(&["chart: app", "version: 1.x", of, "valuesFiles: [values.yaml, prod.yaml]"]).await?;
    pair.ask().await?;
    pair.same("values", "True ChartPackageSucceeded", "merged values files [values.yaml prod.yaml]").await
}

/// A chart in a Git repository: a path that is not there, and one that is.
async fn tree(pair: &Pair<'_>) -> Result<()> {
    let (repository, url) = repository(pair)?;
    let chart = Commit::new()
        .file("charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 0.1.0\n")
        .file("charts/app/values.yaml", "replicas: 1\n")
        .file("charts/app/templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n");
    repository.commit("main", "First", &chart)?;
    pair.other("GitRepository", "tree-source", &[&url, HEAD, WITH_CA]).await?;
    // Otherwise whichever side looks at the chart before its source is fetched says that there is no artifact.
    pair.ready("gitrepository/tree-source").await?;
    let of = "sourceRef: {kind: GitRepository, name: tree-source}";
    pair.source(&["chart: charts/nothing", of]).await?;
    pair.same("missing", "False InvalidChartReference", "").await?;
    pair.source(&["chart: ./charts/app", of]).await?;
    pair.ask().await?;
    pair.same("packed", "True ChartPackageSucceeded", "packaged 'app' chart with version '0.1.0'").await?;
    pair.source(&["chart: ./charts/app", of, "reconcileStrategy: Revision"]).await?;
    pair.ask().await?;
    pair.same("revision", "True ChartPackageSucceeded", "0.1.0+").await
}
