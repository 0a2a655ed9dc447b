//! Charts, and how they are asked for.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flate2::write::GzEncoder;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_sources::git::{Stored, StoredBytes};
use roadstead_sources::helm::{
    AskedTogether, ChartOrigin, HelmBounds, HelmError, HelmLogin, HelmServer, KnownIndex, Repositories,
    RepositoryAt, ValuesFiles, Why, normalised,
};
use roadstead_sources::{
    Entry, FetchError, Fetched, HelmChartRequest, HelmIndexRequest, InProcess, OciRequest, Outcome, Source,
    TreeBuilder, TreeLimits, pack, unpack,
};
use tokio_util::sync::CancellationToken;

use crate::server::Server;

pub(crate) fn bounds() -> HelmBounds {
    HelmBounds { timeout: Duration::from_secs(30), ..HelmBounds::default() }
}

pub(crate) async fn fetch(source: &dyn Source, known: Option<&Revision>) -> Result<Outcome, HelmError> {
    let outcome = source.fetch(known, &InProcess::default(), &CancellationToken::new()).await;
    outcome.map_err(|failed| match failed.error {
        FetchError::Helm(error) => error,
        other => panic!("{other}"),
    })
}

pub(crate) async fn fetched(source: &dyn Source) -> Fetched {
    match fetch(source, None).await.unwrap() {
        Outcome::Fetched(fetched) => *fetched,
        Outcome::Unchanged(revision) => panic!("unchanged at {revision}"),
    }
}

pub(crate) async fn error(source: &dyn Source) -> HelmError {
    fetch(source, None).await.unwrap_err()
}

pub(crate) fn index_of(server: &Server) -> HelmIndexRequest {
    let known_index = KnownIndex::default();
    HelmIndexRequest { server: server.repository(), bounds: bounds(), known_index, indexes: None }
}

pub(crate) fn login(password: &str) -> Option<HelmLogin> {
    Some(HelmLogin { username: "reader".to_owned(), password: password.into() })
}

/// `reader` and `right`, as a header has them.
pub(crate) const RIGHT: &str = "Basic cmVhZGVyOnJpZ2h0";

/// An artifact that is stored.
#[derive(Debug)]
struct Kept(Vec<u8>);

#[async_trait]
impl Stored for Kept {
    async fn bytes(&self) -> Result<StoredBytes, String> {
        Ok(StoredBytes { bytes: self.0.clone(), held: None })
    }
}

pub(crate) fn stored(bytes: Vec<u8>) -> Arc<dyn Stored> {
    Arc::new(Kept(bytes))
}

/// A chart of a repository, of which the index is there.
pub(crate) fn chart_of(server: HelmServer, index: &Fetched, chart: &str, version: &str) -> HelmChartRequest {
    let origin = ChartOrigin::Repository {
        server: Box::new(server),
        index: stored(index.artifact.bytes.clone()),
        together: AskedTogether::default(),
        registry: Box::new(OciRequest::new("oci://registry.example/none")),
    };
    request(origin, chart, version)
}

pub(crate) fn request(origin: ChartOrigin, chart: &str, version: &str) -> HelmChartRequest {
    HelmChartRequest {
        origin,
        chart: chart.to_owned(),
        version: version.to_owned(),
        values: ValuesFiles::default(),
        provenance: None,
        build_metadata: None,
        bounds: bounds(),
        known_name: None,
        is_settled: false,
    }
}

pub(crate) fn values(paths: &[&str], ignore_missing: bool) -> ValuesFiles {
    ValuesFiles { paths: paths.iter().map(|path| (*path).to_owned()).collect(), ignore_missing }
}

/// A packed chart, as Helm packs one: with times and owners, its own files first.
pub(crate) fn packed(name: &str, version: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let chart = format!("apiVersion: v2\nname: {name}\nversion: {version}\n");
    let mut all = vec![("Chart.yaml", chart.as_str())];
    all.extend_from_slice(files);
    let entries: Vec<(String, &str)> =
        all.iter().map(|(path, text)| (format!("{name}/{path}"), *text)).collect();
    archive(&entries)
}

/// A tar.gz of these files, by their bare names.
pub(crate) fn archive(entries: &[(String, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::best()));
    for (path, text) in entries {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header.set_size(text.len() as u64);
        header.set_cksum();
        tar.append(&header, text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// What is in a packed chart.
pub(crate) fn files(chart: &[u8]) -> Vec<(String, String)> {
    let tree = unpack(chart, &TreeLimits::default()).unwrap();
    let text = |entry: &Entry| match entry {
        Entry::File { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
        Entry::Symlink { target } => panic!("a link to {target}"),
    };
    tree.iter().map(|(path, entry)| (path.clone(), text(entry))).collect()
}

pub(crate) fn names(chart: &[u8]) -> Vec<String> {
    files(chart).into_iter().map(|(name, _)| name).collect()
}

pub(crate) fn file(chart: &[u8], path: &str) -> String {
    files(chart).into_iter().find(|(name, _)| name == path).unwrap().1
}

/// An index of these charts, each with its URL and its digest.
pub(crate) fn index(charts: &[(&str, &str, &str, &[u8])]) -> String {
    let mut text = "apiVersion: v1\ngenerated: 2026-11-26T12:00:00Z\nentries:\n".to_owned();
    let mut names: Vec<&str> = charts.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        text.push_str(&format!("  {name}:\n"));
        for (_, version, url, bytes) in charts.iter().filter(|(own, ..)| *own == name) {
            let digest = Digest::of(bytes).hex();
            text.push_str(&format!(
                "  - {{name: {name}, version: \"{version}\", digest: \"{digest}\", urls: [\"{url}\"]}}\n"
            ));
        }
    }
    text
}

/// The artifact of another source, with these files; those that begin with `-> ` are links.
pub(crate) fn artifact(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = TreeBuilder::new(TreeLimits::default());
    for (path, text) in files {
        let entry = match text.strip_prefix("-> ") {
            Some(target) => Entry::Symlink { target: target.to_owned() },
            None => Entry::File { bytes: text.as_bytes().to_vec(), executable: false },
        };
        builder.insert((*path).to_owned(), entry).unwrap();
    }
    pack(&builder.finish().unwrap()).unwrap().bytes
}

/// A chart in the artifact of another source.
pub(crate) fn in_tree(artifact: Vec<u8>, path: &str) -> HelmChartRequest {
    in_tree_with(artifact, path, Lenders::default())
}

/// The same where these repositories lend credentials to what it depends on.
pub(crate) fn in_tree_with(artifact: Vec<u8>, path: &str, lenders: Lenders) -> HelmChartRequest {
    let named = "GitRepository 'app'".to_owned();
    let origin = ChartOrigin::Tree { artifact: stored(artifact), named, repositories: Arc::new(lenders) };
    request(origin, path, "")
}

/// Repositories by their URLs, and what those are reached by that are not among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lenders {
    pub(crate) lent: BTreeMap<String, RepositoryAt>,
    /// What may be connected to.
    pub(crate) reach: Vec<SocketAddr>,
    /// Who is trusted.
    pub(crate) ca: Option<Vec<u8>>,
}

impl Lenders {
    /// Nobody lends anything, and these servers may be connected to.
    pub(crate) fn none(servers: &[&Server]) -> Self {
        Self { reach: servers.iter().map(|server| server.address).collect(), ..Self::default() }
    }

    /// This repository lends what it has.
    pub(crate) fn lend(mut self, server: HelmServer, index: Option<&Fetched>) -> Self {
        let url = normalised(&server.url).unwrap();
        let index = index.map(|index| stored(index.artifact.bytes.clone()));
        let registry = Box::new(OciRequest::new("oci://registry.example/none"));
        self.lent.insert(url, RepositoryAt::Http { server: Box::new(server), index, registry });
        self
    }

    fn guard(&self, purpose: Purpose) -> Guard {
        let rules = self.reach.iter().map(|server| server.to_string().parse().unwrap()).collect();
        Guard::new(Arc::new(Policy::new(rules)), purpose)
    }
}

#[async_trait]
impl Repositories for Lenders {
    async fn at(&self, url: &str) -> Result<RepositoryAt, Why> {
        if let Some(lent) = self.lent.get(url) {
            return Ok(lent.clone());
        }
        if url.contains("forbidden") {
            return Err(Why::Refused("Secret 'apps/login' of spec.secretRef not found".to_owned()));
        }
        let (ca, guard) = (self.ca.clone(), self.guard(Purpose::Oci));
        let registry = Box::new(OciRequest { ca: ca.clone(), guard, ..OciRequest::new(url) });
        if url.starts_with("oci://") {
            return Ok(RepositoryAt::Registry(registry));
        }
        let server = HelmServer { ca, guard: self.guard(Purpose::Helm), ..HelmServer::new(url) };
        Ok(RepositoryAt::Http { server: Box::new(server), index: None, registry })
    }
}

/// A gzip stream of so many zeros, in pieces.
pub(crate) fn zeros(mebibytes: usize) -> Vec<u8> {
    let mut to = GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..mebibytes {
        to.write_all(&zeros).unwrap();
    }
    to.finish().unwrap()
}
