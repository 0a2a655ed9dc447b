//! ExternalArtifacts: what somebody else makes of a source, and uploads, comes to a real cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use reqwest::{Body, StatusCode};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What a Job would run, with a token and nothing else: it watches a source, and of each artifact it makes one of its own.
const JOB: &str = r#"
set -eu
ask() { curl --silent --show-error --fail --cacert "$CA" --header "Authorization: Bearer $TOKEN" "$@"; }
watch="$API/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/gitrepositories?watch=true&fieldSelector=metadata.name%3Dweb"
ask --no-buffer "$watch" | while read -r event; do
    url=$(printf %s "$event" | sed -n 's/.*"artifact":{[^}]*"url":"\([^"]*\)".*/\1/p')
    revision=$(printf %s "$event" | sed -n 's/.*"artifact":{[^}]*"revision":"\([^"]*\)".*/\1/p')
    [ -n "$url" ] && [ "$revision" != "${last:-}" ] || continue
    rm -rf work && mkdir work
    ask --output source.tar.gz "$url"
    tar -xzf source.tar.gz -C work
    sed -i 's/raw/cooked/' work/deploy/config.yaml
    tar -czf made.tar.gz -C work .
    digest=$(sha256sum made.tar.gz | cut -d' ' -f1)
    ask --upload-file made.tar.gz "$API/fleet/v1/sources/ExternalArtifact/apps/web/artifact?revision=$revision&digest=sha256:$digest"
    last=$revision
done
"#;

/// The hub's API for a client with a token.
struct Api {
    url: String,
    token: String,
    ca: PathBuf,
    http: reqwest::Client,
}

impl Api {
    async fn of(fleet: &Fleet) -> Result<Self> {
        let config = fleet.kubectl().run(&["config", "view", "--raw", "-o", "json"]).await?;
        let config: Value = serde_json::from_str(&config)?;
        let cluster = &config["clusters"][0]["cluster"];
        let pem = STANDARD.decode(cluster["certificate-authority-data"].as_str().context("a CA")?)?;
        let ca = fleet.setup.folder().join("ca.pem");
        std::fs::write(&ca, &pem)?;
        let url = cluster["server"].as_str().context("a server")?.to_owned();
        let token = config["users"][0]["user"]["token"].as_str().context("a token")?.to_owned();
        let trusted = reqwest::Certificate::from_pem_bundle(&pem)?;
        let http = reqwest::Client::builder().tls_certs_only(trusted).no_proxy().timeout(PATIENCE).build()?;
        Ok(Self { url, token, ca, http })
    }

    fn artifact(&self, query: &str) -> String {
        format!("{}/fleet/v1/sources/ExternalArtifact/apps/web/artifact{query}", self.url)
    }

    /// Uploads an artifact of ExternalArtifact `web`.
    async fn put(&self, query: &str, body: impl Into<Body>) -> Result<(StatusCode, String)> {
        let request = self.http.put(self.artifact(query)).bearer_auth(&self.token).body(body);
        let response = request.send().await?;
        Ok((response.status(), response.text().await?))
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn packed(files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, path, content.as_bytes())?;
    }
    Ok(tar.into_inner()?.finish()?)
}

const EXTERNAL: &str =
    "apiVersion: source.toolkit.fluxcd.io/v1\nkind: ExternalArtifact\nmetadata: {name: web}\n";

fn deployed(more: &[&str]) -> String {
    let source = "sourceRef: {kind: ExternalArtifact, name: web}";
    kustomization("web", "web", "deploy", &[&[source], more].concat())
}

#[tokio::test]
async fn a_job_makes_something_else_of_a_source_and_that_is_applied() -> Result<()> {
    let fleet = Fleet::start("external").await?;
    let space = fleet.cluster.namespace("external").await?;
    let api = Api::of(&fleet).await?;
    let manifest =
        |word: &str| Commit::new().file("deploy/config.yaml", config_map(space.name(), "made", word));
    let repository = fleet.repository("web", &manifest("raw-one")).await?;
    fleet.apply(EXTERNAL).await?;
    fleet.apply(&deployed(&[])).await?;
    fleet.fails("externalartifact/web", "NoArtifact", &["no artifact has been uploaded yet"]).await?;
    fleet.fails("kustomization/web", "ArtifactFailed", &["no artifact has been uploaded yet"]).await?;

    let folder = tempfile::tempdir()?;
    let mut job = tokio::process::Command::new("sh");
    job.arg("-c").arg(JOB).current_dir(folder.path()).kill_on_drop(true);
    job.env("API", &api.url).env("TOKEN", &api.token).env("CA", &api.ca);
    let _job = job.spawn().context("start the job")?;

    fleet.ready("kustomization/web").await?;
    fleet.cluster.has_word(space.name(), "made", Some("cooked-one")).await?;
    let table = fleet.run(&["get", "ea"]).await?;
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    ensure!(head == ["NAME", "AGE", "READY", "STATUS", "SOURCE"], "{table}");
    let commit = repository.commit("main", "Two", &manifest("raw-two"))?;
    fleet.fetch("web").await?;
    fleet.cluster.has_word(space.name(), "made", Some("cooked-two")).await?;
    fleet.applied("web", &commit).await?;
    let object = fleet.get("externalartifact/web").await?;
    let told = fleet.ready("externalartifact/web").await?;
    ensure!(told == format!("stored artifact for revision 'main@sha1:{commit}'"), "{told}");
    ensure!(object["status"]["conditions"][0]["reason"] == "Succeeded", "{object:#}");

    // What the statuses of all kinds of sources name is where it is had; and it is what the digest says.
    for kind in ["gitrepository", "externalartifact"] {
        let artifact = fleet.get(&format!("{kind}/web")).await?["status"]["artifact"].clone();
        let url = artifact["url"].as_str().context("a URL")?;
        ensure!(
            artifact["path"].as_str().is_some_and(|path| path.starts_with(&format!("{kind}/apps/web/"))),
            "{artifact}"
        );
        let found = api.http.get(url).bearer_auth(&api.token).send().await?;
        ensure!(found.status() == StatusCode::OK, "{}", found.status());
        ensure!(
            sha256(&found.bytes().await?) == artifact["digest"].as_str().unwrap_or_default(),
            "{artifact}"
        );
        let head = api.http.head(url).bearer_auth(&api.token).send().await?;
        let tag = head.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default().to_owned();
        ensure!(
            head.status() == StatusCode::OK && tag.contains(artifact["digest"].as_str().unwrap_or("?")),
            "{tag}"
        );
        ensure!(api.http.get(url).send().await?.status() == StatusCode::UNAUTHORIZED, "without a token");
    }
    // The first one is still there, by its digest, its revision and its time.
    let stored = object["status"]["artifact"]["lastUpdateTime"].as_str().context("a time")?.to_owned();
    let now = api.http.get(api.artifact(&format!("?at={stored}"))).bearer_auth(&api.token).send().await?;
    ensure!(now.status() == StatusCode::OK, "{}", now.status());
    Ok(())
}

#[tokio::test]
async fn what_is_not_what_it_says_it_is_is_not_taken() -> Result<()> {
    let fleet = Fleet::start("external-bad").await?;
    let space = fleet.cluster.namespace("external-bad").await?;
    let api = Api::of(&fleet).await?;
    let good = packed(&[("deploy/config.yaml", &config_map(space.name(), "made", "one"))])?;
    let digest = sha256(&good);
    let first = format!("?revision=1.0.0&digest={digest}");
    let (status, told) = api.put(&first, good.clone()).await?;
    ensure!(
        status == StatusCode::NOT_FOUND && told.contains("externalartifacts.source.toolkit.fluxcd.io"),
        "{told}"
    );
    fleet.apply(EXTERNAL).await?;
    fleet.apply(&deployed(&[])).await?;
    let (status, told) = api.put(&first, good.clone()).await?;
    ensure!(status == StatusCode::CREATED && told.contains(&digest), "{status} {told}");
    fleet.ready("kustomization/web").await?;
    fleet.cluster.has_word(space.name(), "made", Some("one")).await?;
    let before = fleet.get("externalartifact/web").await?["status"]["artifact"].clone();

    let mut outside = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..10].copy_from_slice(b"../outside");
    header.set_size(1);
    header.set_mode(0o644);
    header.set_cksum();
    outside.append(&header, b"x".as_slice())?;
    let outside = outside.into_inner()?.finish()?;
    let other = sha256(b"something else");
    for (query, body, code, said) in [
        (format!("?revision=2.0.0&digest={other}"), good.clone(), 400, "was announced: nothing was stored"),
        ("?revision=2.0.0".to_owned(), good.clone(), 400, "say the artifact's digest"),
        (format!("?digest={digest}"), good.clone(), 400, "say which one it is"),
        (format!("?revision=main&digest={digest}"), good.clone(), 400, "is not a revision"),
        (format!("?revision=2.0.0&digest={}", sha256(b"no tarball")), b"no tarball".to_vec(), 400, "tar.gz"),
        (format!("?revision=2.0.0&digest={}", sha256(&outside)), outside, 400, "`../outside` is refused"),
    ] {
        let (status, told) = api.put(&query, body).await?;
        ensure!(status.as_u16() == code && told.contains(said), "{query}: {status} {told}");
    }
    // A gigabyte that says so is refused at once, and one that does not where it has become too long.
    let announced =
        api.http.put(api.artifact(&first)).bearer_auth(&api.token).header("content-length", 1_u64 << 30);
    let piece = Bytes::from(vec![0_u8; 1 << 20]);
    let gigabyte = || {
        let piece = piece.clone();
        Body::wrap_stream(stream::iter((0..1024).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
    };
    for request in [announced, api.http.put(api.artifact(&first)).bearer_auth(&api.token)] {
        // Its connection may be cut while it still sends.
        if let Ok(response) = request.body(gigabyte()).send().await {
            ensure!(response.status() == StatusCode::PAYLOAD_TOO_LARGE, "{}", response.status());
        }
    }
    // Of a kind that the hub fetches nothing is uploaded; without a token nothing at all.
    let git = format!("{}/fleet/v1/sources/GitRepository/apps/web/artifact{first}", api.url);
    let refused = api.http.put(&git).bearer_auth(&api.token).body(good.clone()).send().await?;
    ensure!(refused.status() == StatusCode::BAD_REQUEST, "{}", refused.status());
    let nobody = api.http.put(api.artifact(&first)).body(good.clone()).send().await?;
    ensure!(nobody.status() == StatusCode::UNAUTHORIZED, "{}", nobody.status());
    let after = fleet.get("externalartifact/web").await?["status"]["artifact"].clone();
    ensure!(before == after, "{before} {after}");

    // The same again is the same.
    let (status, _) = api.put(&first, good).await?;
    let again = fleet.get("externalartifact/web").await?["status"]["artifact"].clone();
    ensure!(status == StatusCode::CREATED && before == again, "{before} {again}");
    // A digest of another source's artifact says nothing here; and what is lost is said to be.
    let stolen = serde_json::json!({ "status": { "artifact": { "digest": other, "revision": "2.0.0",
                                     "lastUpdateTime": "2026-01-01T00:00:00Z" } } });
    let patch = ["patch", "ea/web", "--subresource=status", "--type=merge", "-p", &stolen.to_string()];
    fleet.run(&patch).await?;
    fleet.request("kustomization/web").await?;
    fleet.fails("kustomization/web", "ArtifactFailed", &["is not stored, or no longer stored"]).await?;
    fleet.cluster.has_word(space.name(), "made", Some("one")).await?;
    fleet.request("externalartifact/web").await?;
    fleet.fails("externalartifact/web", "NoArtifact", &[&other, "upload it again"]).await?;
    eventually("the lost artifact is not named", Duration::from_secs(30), || async {
        let object = fleet.get("externalartifact/web").await?;
        ensure!(object["status"]["artifact"].is_null(), "{object:#}");
        Ok(())
    })
    .await
}
