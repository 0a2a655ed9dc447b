//! The same of the other kinds, and their other conditions: a registry, a bucket and a Helm repository that one server of files is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_api::KindId;
use roadstead_hub_core::sources::FetchPlan;
use roadstead_hub_core::{HubOptions, Outbound};
use roadstead_model::{Digest, ResourceUid};
use roadstead_outbound::Policy;
use roadstead_sources::{Entry, TreeBuilder, TreeLimits, pack};
use roadstead_test_gitserver::install_crypto;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::support::{SOURCE, Site};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// What is at each path: its type and its bytes.
type Files = Arc<Mutex<Served>>;
type Served = BTreeMap<String, (&'static str, Vec<u8>)>;

fn locked(files: &Files) -> MutexGuard<'_, Served> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A hub, and a server of files that it may reach.
struct Kit {
    site: Site,
    at: SocketAddr,
    files: Files,
    kind: KindId,
}

/// Answers one request.
async fn serve(mut stream: TcpStream, files: Files) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (method, rest) = head.split_once(' ').unwrap_or_default();
    let path = rest.split([' ', '?']).next().unwrap_or_default();
    let found = locked(&files).get(path).cloned();
    let (status, (type_, bytes)) = found.map_or((404, ("text/plain", Vec::new())), |found| (200, found));
    let (length, digest) = (bytes.len(), Digest::of(&bytes));
    let answer = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: {type_}\r\nContent-Length: {length}\r\nDocker-Content-Digest: {digest}\r\n\
         ETag: \"{}\"\r\nConnection: close\r\n\r\n",
        digest.hex()
    );
    stream.write_all(answer.as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(&bytes).await?;
    }
    stream.shutdown().await
}

/// A tar with gzip of these files.
fn packed(files: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut tree = TreeBuilder::new(TreeLimits::default());
    for (path, text) in files {
        tree.insert((*path).to_owned(), Entry::File { bytes: (*text).into(), executable: false })?;
    }
    Ok(pack(&tree.finish()?)?.bytes)
}

fn chart(version: &str) -> Result<Vec<u8>> {
    let metadata = format!("apiVersion: v2\nname: app\nversion: {version}\n");
    packed(&[("app/Chart.yaml", &metadata), ("app/values.yaml", "a: 1\n")])
}

impl Kit {
    async fn start(kind: KindId) -> Result<Self> {
        install_crypto();
        let rule = "127.0.0.1".parse().context("a rule")?;
        let outbound = Outbound { policy: Arc::new(Policy::new(vec![rule])), ..Outbound::default() };
        let site = Site::with(HubOptions { outbound, ..HubOptions::default() }).await?;
        site.namespace("team-a").await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let at = listener.local_addr()?;
        let files = Files::default();
        let served = Arc::clone(&files);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&served)));
            }
        });
        Ok(Self { site, at, files, kind })
    }

    fn put(&self, path: &str, type_: &'static str, bytes: impl Into<Vec<u8>>) {
        locked(&self.files).insert(path.to_owned(), (type_, bytes.into()));
    }

    fn remove(&self, path: &str) {
        locked(&self.files).remove(path);
    }

    /// Makes the object `app`, or another of its kind.
    async fn make(&self, kind: KindId, spec: Value) -> Result<()> {
        let mut spec = spec;
        spec["interval"] = json!("1h");
        self.site
            .apply(json!({ "apiVersion": SOURCE, "kind": kind.to_string(),
                "metadata": { "namespace": "team-a", "name": "app" }, "spec": spec }))
            .await?;
        Ok(())
    }

    /// Fetches what the object `app` of a kind asks for.
    async fn fetch(&self, kind: KindId) -> Result<()> {
        // Each is tried whatever came of the one before.
        let at = ResourceUid::random().to_string();
        self.site.annotate(kind, "team-a", "app", "reconcile.fluxcd.io/requestedAt", &at).await?;
        let (sources, uid) = (&self.site.hub.sources, self.site.stored(kind, "team-a", "app").await?.uid);
        let FetchPlan::Fetch(job) = sources.plan_fetch(uid).await? else { bail!("nothing to fetch") };
        let outcome = sources.fetch(&job, &CancellationToken::new()).await?;
        sources.record_fetch(&job, outcome).await?;
        Ok(())
    }

    /// The conditions of `app`, each with its status, its reason and its message.
    async fn told(&self) -> Result<BTreeMap<String, String>> {
        let status = self.site.get(self.kind, "team-a", "app").await?["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let told = |one: &Value| {
            format!("{} {}: {}", text(one, "status"), text(one, "reason"), text(one, "message"))
        };
        Ok(conditions.iter().map(|one| (text(one, "type"), told(one))).collect())
    }

    /// The revision of its artifact.
    async fn revision(&self) -> Result<String> {
        let status = self.site.get(self.kind, "team-a", "app").await?["status"].clone();
        Ok(status["artifact"]["revision"].as_str().unwrap_or_default().to_owned())
    }

    /// That it is Ready in the words of what is in storage, and nothing is wrong.
    async fn is_stored(&self, reason: &str, message: &str) -> Result<()> {
        let told = self.told().await?;
        let wanted = format!("True {reason}: {message}");
        let wanted =
            BTreeMap::from(["ArtifactInStorage", "Ready"].map(|type_| (type_.to_owned(), wanted.clone())));
        ensure!(told == wanted, "{told:?}, not {wanted:?}");
        Ok(())
    }

    /// That it failed in this way, that the artifact is outdated in these words, and that what is in storage is said as it was.
    async fn is_outdated(&self, trouble: &str, reason: &str, outdated: &str, stored: &str) -> Result<()> {
        let told = self.told().await?;
        let (ready, wrong) = (&told["Ready"], told.get(trouble).with_context(|| format!("{told:?}"))?);
        let (begins, rest) = wrong.split_once(' ').context("a status")?;
        ensure!(begins == "True" && rest.starts_with(&format!("{reason}: ")), "{told:?}");
        ensure!(*ready == format!("False {rest}"), "{told:?}");
        ensure!(told.get("ArtifactOutdated").is_some_and(|told| told == outdated), "{told:?}");
        ensure!(told["ArtifactInStorage"].ends_with(stored), "{told:?}");
        ensure!(told.len() == 5, "{told:?}");
        Ok(())
    }

    /// Pushes an artifact to the registry, its layer or not; gives its digest.
    fn push(&self, tag: &str, content: &str, has_layer: bool) -> Result<String> {
        let blob = |kind: &'static str, bytes: &[u8], is_there: bool| {
            let digest = Digest::of(bytes).to_string();
            if is_there {
                self.put(&format!("/v2/app/blobs/{digest}"), kind, bytes);
            }
            json!({ "mediaType": kind, "digest": digest, "size": bytes.len() })
        };
        let config = blob("application/vnd.cncf.flux.config.v1+json", b"{}", true);
        let layer = blob(LAYER, &packed(&[("app.yaml", content)])?, has_layer);
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer] })
                .to_string();
        let digest = Digest::of(manifest.as_bytes()).to_string();
        for reference in [tag, &digest] {
            self.put(&format!("/v2/app/manifests/{reference}"), MANIFEST, manifest.clone());
        }
        Ok(digest)
    }

    /// Writes an index of the chart `app` with these versions.
    fn index(&self, versions: &[&str]) -> Result<()> {
        let entries = versions.iter().map(|version| {
            let digest = Digest::of(&chart(version)?).hex();
            Ok(json!({ "apiVersion": "v2", "name": "app", "version": version, "digest": digest,
                "urls": [format!("app-{version}.tgz")], "created": "2026-01-01T00:00:00Z" }))
        });
        let entries = entries.collect::<Result<Vec<Value>>>()?;
        let text =
            json!({ "apiVersion": "v1", "generated": "2026-01-01T00:00:00Z", "entries": { "app": entries } })
                .to_string();
        self.put("/index.yaml", "text/yaml", text);
        Ok(())
    }
}

#[tokio::test]
async fn an_oci_repository_whose_new_layer_is_missing_is_outdated_by_its_tag() -> Result<()> {
    let kit = Kit::start(KindId::OciRepository).await?;
    let first = format!("v1@{}", kit.push("v1", "one", true)?);
    let url = format!("oci://{}/app", kit.at);
    kit.make(kit.kind, json!({ "url": url, "insecure": true, "ref": { "tag": "v1" } })).await?;
    kit.fetch(kit.kind).await?;
    let stored = format!("stored artifact for digest '{first}'");
    kit.is_stored("Succeeded", &stored).await?;
    let second = format!("v1@{}", kit.push("v1", "two", false)?);
    kit.fetch(kit.kind).await?;
    let newer = format!("True NewRevision: new revision '{second}' for '{}/app:v1'", kit.at);
    kit.is_outdated("FetchFailed", "OCIArtifactPullFailed", &newer, &stored).await?;
    ensure!(kit.revision().await? == first, "the artifact stays");
    // A layer that is not there to be selected is another reason.
    let third = format!("v1@{}", kit.push("v1", "three", true)?);
    let other = json!({ "url": url, "insecure": true, "ref": { "tag": "v1" },
        "layerSelector": { "mediaType": "application/nothing" } });
    kit.make(kit.kind, other).await?;
    kit.fetch(kit.kind).await?;
    let newer = format!("True NewRevision: new revision '{third}' for '{}/app:v1'", kit.at);
    kit.is_outdated("FetchFailed", "OCIArtifactLayerOperationFailed", &newer, &stored).await?;
    // The tag leads to what is there already: only the spec cannot be followed.
    kit.push("v1", "one", true)?;
    kit.fetch(kit.kind).await?;
    ensure!(!kit.told().await?.contains_key("ArtifactOutdated"), "{:?}", kit.told().await?);
    kit.push("v1", "three", true)?;
    kit.make(
        kit.kind,
        json!({ "url": url, "insecure": true, "ref": { "tag": "v1" }, "layerSelector": null }),
    )
    .await?;
    kit.fetch(kit.kind).await?;
    kit.is_stored("Succeeded", &format!("stored artifact for digest '{third}'")).await?;
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_bucket_whose_new_object_cannot_be_had_is_outdated_by_its_index() -> Result<()> {
    let kit = Kit::start(KindId::Bucket).await?;
    // Each object's entity tag is what the server answers with.
    let etag = |content: &str| Digest::of(content.as_bytes()).hex();
    let list = |objects: &[(&str, &str)]| {
        let contents: String = objects
            .iter()
            .map(|(key, content)| {
                let etag = etag(content);
                format!("<Contents><Key>{key}</Key><ETag>&quot;{etag}&quot;</ETag><Size>3</Size></Contents>")
            })
            .collect();
        for path in ["/apps", "/apps/"] {
            let text = format!("<ListBucketResult>{contents}</ListBucketResult>");
            kit.put(path, "application/xml", text);
        }
    };
    list(&[("a.yaml", "one")]);
    kit.put("/apps/a.yaml", "text/yaml", "one");
    let endpoint = kit.at.to_string();
    kit.make(kit.kind, json!({ "bucketName": "apps", "endpoint": endpoint, "insecure": true })).await?;
    kit.fetch(kit.kind).await?;
    let first = Digest::of(format!("a.yaml {}\n", etag("one")).as_bytes()).to_string();
    let stored = format!("stored artifact: revision '{first}'");
    kit.is_stored("Succeeded", &stored).await?;
    list(&[("a.yaml", "one"), ("../b.yaml", "two")]);
    kit.fetch(kit.kind).await?;
    ensure!(kit.told().await?["FetchFailed"].starts_with("True BucketOperationFailed: "));
    // What is listed and cannot be received: the server has another object than it lists.
    list(&[("a.yaml", "one"), ("b.yaml", "two")]);
    kit.put("/apps/b.yaml", "text/yaml", "other");
    kit.fetch(kit.kind).await?;
    let second =
        Digest::of(format!("a.yaml {}\nb.yaml {}\n", etag("one"), etag("two")).as_bytes()).to_string();
    let newer = format!("True NewRevision: new upstream revision '{second}'");
    kit.is_outdated("FetchFailed", "BucketOperationFailed", &newer, &stored).await?;
    ensure!(kit.revision().await? == first, "the artifact stays");
    kit.put("/apps/b.yaml", "text/yaml", "two");
    kit.fetch(kit.kind).await?;
    kit.is_stored("Succeeded", &format!("stored artifact: revision '{second}'")).await?;
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_helm_repository_whose_index_cannot_be_stored_is_outdated_by_its_revision() -> Result<()> {
    let kit = Kit::start(KindId::HelmRepository).await?;
    kit.index(&["1.0.0"])?;
    kit.make(kit.kind, json!({ "url": format!("http://{}", kit.at) })).await?;
    kit.fetch(kit.kind).await?;
    let first = kit.revision().await?;
    let stored = format!("stored artifact: revision '{first}'");
    kit.is_stored("Succeeded", &stored).await?;
    kit.put("/index.yaml", "text/yaml", "entries: {}\n");
    kit.fetch(kit.kind).await?;
    let told = kit.told().await?;
    ensure!(told["FetchFailed"].starts_with("True IndexationFailed: "), "{told:?}");
    ensure!(told["ArtifactInStorage"].ends_with(&stored), "{told:?}");
    kit.remove("/index.yaml");
    kit.fetch(kit.kind).await?;
    let told = kit.told().await?;
    ensure!(
        told["FetchFailed"].starts_with("True Failed: failed to fetch Helm repository index"),
        "{told:?}"
    );
    let quota = |limit: &str| {
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "namespace": "team-a", "name": "team" },
            "spec": { "hard": { "bytes/artifacts.fleet.roadstead.dev": limit } } })
    };
    kit.site.apply(quota("1")).await?;
    kit.index(&["1.0.0", "1.1.0"])?;
    kit.fetch(kit.kind).await?;
    let outdated = kit.told().await?.remove("ArtifactOutdated").unwrap_or_default();
    kit.is_outdated("StorageOperationFailed", "StorageOperationFailed", &outdated, &stored).await?;
    ensure!(kit.revision().await? == first, "the artifact stays");
    kit.site.apply(quota("1Mi")).await?;
    kit.fetch(kit.kind).await?;
    let second = kit.revision().await?;
    ensure!(
        second != first && outdated == format!("True NewRevision: new index revision '{second}'"),
        "{outdated}"
    );
    kit.is_stored("Succeeded", &format!("stored artifact: revision '{second}'")).await?;
    kit.site.close().await;
    Ok(())
}

#[tokio::test]
async fn a_helm_chart_is_outdated_by_the_version_that_is_to_come() -> Result<()> {
    let kit = Kit::start(KindId::HelmChart).await?;
    let repository = KindId::HelmRepository;
    kit.index(&["1.0.0"])?;
    kit.put("/app-1.0.0.tgz", "application/gzip", chart("1.0.0")?);
    kit.make(repository, json!({ "url": format!("http://{}", kit.at) })).await?;
    let spec = |more: Value| {
        let mut spec = json!({ "chart": "app", "sourceRef": { "kind": "HelmRepository", "name": "app" } });
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        spec
    };
    kit.make(kit.kind, spec(json!({}))).await?;
    // What a chart comes from has no artifact yet.
    let uid = kit.site.stored(kit.kind, "team-a", "app").await?.uid;
    kit.site.hub.sources.plan_fetch(uid).await?;
    let told = kit.told().await?;
    let waits = "NoSourceArtifact: no artifact available for HelmRepository source 'app'";
    ensure!(told["FetchFailed"] == format!("True {waits}"), "{told:?}");
    ensure!(told["Ready"] == format!("False {waits}"), "{told:?}");
    kit.fetch(repository).await?;
    kit.fetch(kit.kind).await?;
    let stored = "pulled 'app' chart with version '1.0.0'";
    kit.is_stored("ChartPullSucceeded", stored).await?;
    kit.index(&["1.0.0", "2.0.0"])?;
    kit.fetch(repository).await?;
    kit.fetch(kit.kind).await?;
    let newer = "True NewChart: new 'app' chart with version '2.0.0'";
    kit.is_outdated("FetchFailed", "ChartPullError", newer, stored).await?;
    ensure!(kit.revision().await? == "1.0.0", "the artifact stays");
    // One that comes and cannot be made into what is asked for.
    kit.put("/app-2.0.0.tgz", "application/gzip", chart("2.0.0")?);
    kit.make(kit.kind, spec(json!({ "valuesFiles": ["nothing.yaml"] }))).await?;
    kit.fetch(kit.kind).await?;
    let newer = "True NewChart: new 'app' chart with version '2.0.0+2'";
    kit.is_outdated("BuildFailed", "ValuesFilesError", newer, stored).await?;
    ensure!(kit.told().await?.contains_key("Stalled"), "only another spec mends it");
    kit.make(kit.kind, spec(json!({ "valuesFiles": ["values.yaml", "values.yaml"] }))).await?;
    kit.fetch(kit.kind).await?;
    let merged =
        "packaged 'app' chart with version '2.0.0+3' and merged values files [values.yaml values.yaml]";
    kit.is_stored("ChartPackageSucceeded", merged).await?;
    kit.site.close().await;
    Ok(())
}
