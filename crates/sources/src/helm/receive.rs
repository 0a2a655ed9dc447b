//! What is received for a chart: which version of it a repository has, and the packed chart, from an HTTP repository or a registry.

use roadstead_model::{Digest, Revision};
use roadstead_outbound::credentials_belong;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::chart::check_name;
use super::error::{HelmError, Step, Why};
use super::fetch_index::of_ended;
use super::index::Chosen;
use super::reader::{Answered, Order, Reply, What};
use super::request::{HelmBounds, HelmLogin, HelmServer};
use super::wire::{Came, Wire};
use crate::attempt::{Desk, Engine, Kept, KeptAnswer, NotKept, Stop, shown_url};
use crate::oci::{self, LayerOperation, OciReference, OciRequest, RegistryLogin, RegistryLogins};
use crate::reading::Job;
use crate::source::{Fetched, Outcome};
use crate::tree::{Measure, shown};
use crate::version::Version;

/// A chart as it was received.
pub(super) struct Packed {
    pub(super) kept: KeptAnswer,
    pub(super) digest: Digest,
    /// Its version, as whoever has it says.
    pub(super) version: String,
    /// Whose signatures were verified.
    pub(super) verified: Option<String>,
    /// What says who packed it, where that is asked for.
    pub(super) provenance: Option<Provenance>,
}

/// What says who packed a chart, as it was received.
pub(super) struct Provenance {
    pub(super) kept: KeptAnswer,
    /// What the chart's file is called; none in a registry.
    pub(super) file: Option<String>,
}

/// Receives what is asked for, within the bounds of one attempt.
pub(super) struct Receiver<'a> {
    pub(super) bounds: &'a HelmBounds,
    pub(super) engine: &'a dyn Engine,
    pub(super) stop: &'a Stop,
    pub(super) cancel: &'a CancellationToken,
    /// For messages.
    pub(super) url: String,
    /// Whether nothing of what comes stays in memory: of many charts even little of each is much.
    pub(super) in_files: bool,
    /// Whether what says who packed a chart is received with it.
    pub(super) with_provenance: bool,
}

/// What fails inside Roadstead.
pub(super) fn internal(detail: impl Into<String>, step: Step) -> HelmError {
    Why::Internal(detail.into()).at(step)
}

impl Receiver<'_> {
    /// The chart that an index names, of at most so many bytes.
    pub(super) async fn named(
        &self,
        server: &HelmServer,
        registry: &OciRequest,
        chart: &str,
        chosen: Chosen,
        most: u64,
    ) -> Result<Packed, HelmError> {
        let Chosen { version, urls, digest } = chosen;
        let refused = |why: String| Why::Refused(why).at(Step::Pull);
        let first = urls
            .first()
            .ok_or_else(|| refused(format!("chart '{}' has no downloadable URLs", shown(chart))))?;
        let home = super::url::repository(&server.url);
        let home = home.map_err(|why| Why::Url { url: shown_url(&server.url), why }.at(Step::Pull))?;
        let url = super::url::chart(&home, first);
        let url = url.map_err(|why| Why::Url { url: shown_url(first), why }.at(Step::Pull))?;
        let packed = if url.scheme() == "oci" {
            let (repository, tag) = tagged(&url, &version);
            let request =
                OciRequest { url: repository, reference: OciReference::Tag(tag), ..registry.clone() };
            self.pull(lent(request, server, &home), version, most).await?
        } else {
            if registry.verify.is_some() {
                let why =
                    "charts of HTTP repositories are verified with spec.verify.provider provenance only";
                return Err(Why::Refused(why.to_owned()).at(Step::Verify));
            }
            self.download(server, home, &url, (version, most)).await?
        };
        // Other forms of digests are those of tools that nobody uses any more.
        let expected = digest.as_deref().map(|digest| digest.strip_prefix("sha256:").unwrap_or(digest));
        if let Some(expected) = expected.and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok())
            && expected != packed.digest
        {
            let (came, expected) = (packed.digest.to_string(), expected.to_string());
            return Err(Why::OtherDigest { url: shown_url(url.as_str()), came, expected }.at(Step::Pull));
        }
        Ok(packed)
    }

    /// A wire to a repository.
    pub(super) fn wire<'w>(&'w self, server: &'w HelmServer, home: Url) -> Result<Wire<'w>, Why> {
        let wire = Wire::new(server, self.bounds, self.stop, home)?;
        Ok(if self.in_files { wire.in_files() } else { wire })
    }

    async fn download(
        &self,
        server: &HelmServer,
        home: Url,
        url: &Url,
        (version, most): (String, u64),
    ) -> Result<Packed, HelmError> {
        let at = |why: Why| why.at(Step::Pull);
        self.stop.enter("receiving the chart");
        let wire = self.wire(server, home).map_err(at)?;
        match wire.get(url, None, (Measure::ChartBytes, most)).await.map_err(at)? {
            Came::File(received) => {
                let (kept, digest) = (received.kept, received.digest);
                let provenance = match self.with_provenance {
                    true => Some(self.provenance(&wire, url).await?),
                    false => None,
                };
                Ok(Packed { kept, digest, version, verified: None, provenance })
            }
            Came::Unchanged => Err(internal("nothing is known of it", Step::Pull)),
        }
    }

    /// What lies beside the chart at a URL and says who packed it.
    async fn provenance(&self, wire: &Wire<'_>, chart: &Url) -> Result<Provenance, HelmError> {
        self.stop.enter("receiving the chart's provenance");
        let url = super::url::provenance(chart);
        let limit = (Measure::ProvenanceBytes, self.bounds.limits.provenance_bytes);
        match wire.get(&url, None, limit).await {
            Ok(Came::File(received)) => {
                let file = Some(super::url::file_name(chart));
                Ok(Provenance { kept: received.kept, file })
            }
            Ok(Came::Unchanged) => Err(internal("nothing is known of it", Step::Verify)),
            Err(Why::Status { url, status: status @ (404 | 410) }) => {
                let why = format!("the chart is not signed: `{url}` answered HTTP {status}");
                Err(Why::Refused(why).at(Step::Verify))
            }
            Err(why @ Why::TooLarge { .. }) => Err(why.at(Step::Verify)),
            Err(why) => Err(why.at(Step::Pull)),
        }
    }

    /// The same of a chart in a registry: another layer of the manifest that its tag was found to name.
    async fn provenance_layer(
        &self,
        mut request: OciRequest,
        revision: &Revision,
    ) -> Result<Provenance, HelmError> {
        self.stop.enter("receiving the chart's provenance");
        let digest = revision.content().map(|hex| format!("sha256:{hex}"));
        let digest = digest.ok_or_else(|| internal("the manifest has no digest", Step::Verify))?;
        let most = self.bounds.limits.provenance_bytes;
        (request.limits.layer_bytes, request.limits.artifact_bytes) = (most, most);
        request.reference = OciReference::Digest(digest);
        request.media_type = Some(oci::PROVENANCE.to_owned());
        match oci::fetch_with(request, self.engine, self.cancel).await {
            Ok(Outcome::Fetched(fetched)) => {
                let kept = self.spooled(&fetched.artifact.bytes, Step::Verify).await?;
                Ok(Provenance { kept, file: None })
            }
            Ok(Outcome::Unchanged(_)) => Err(internal("nothing is known of it", Step::Verify)),
            // Of a layer that is copied nothing else can be wrong.
            Err(oci::OciError::Layer { url, .. }) => {
                let why =
                    format!("the chart is not signed: `{url}` has no layer {} beside it", oci::PROVENANCE);
                Err(Why::Refused(why).at(Step::Verify))
            }
            Err(error @ oci::OciError::TooLarge { .. }) => Err(Why::Oci(error).at(Step::Verify)),
            Err(error) => Err(Why::Oci(error).at(Step::Pull)),
        }
    }

    /// The tag of the version of a chart in a registry that is asked for.
    pub(super) async fn tag(&self, registry: &OciRequest, version: &str) -> Result<String, HelmError> {
        if Version::parse(version).is_some() {
            // Of a version that is whole nobody needs to be asked which one it is.
            return Ok(version.replace('+', "_"));
        }
        let range = if version.is_empty() { "*" } else { version }.to_owned();
        let reference = OciReference::SemVer { range, filter: None };
        // Of charts a tag has a `_` where the version has a `+`.
        let media_type = Some(oci::CHART.to_owned());
        let request = OciRequest { reference, media_type, ..registry.clone() };
        oci::choose_tag(&request, self.engine, self.cancel).await.map_err(|error| match error {
            oci::OciError::NoTag { range, .. } => {
                let what =
                    "failed to get chart version for remote reference: could not locate a version matching";
                Why::Refused(format!("{what} provided version string {range}")).at(Step::Reference)
            }
            oci::OciError::ReferenceRefused { why, .. } => Why::Refused(why).at(Step::Reference),
            error => Why::Oci(error).at(Step::Pull),
        })
    }

    /// The layer of an artifact in a registry that is a chart. What its tag names is resolved once: that is verified, and its layer received.
    pub(super) async fn pull(
        &self,
        mut request: OciRequest,
        version: String,
        most: u64,
    ) -> Result<Packed, HelmError> {
        (request.limits.layer_bytes, request.limits.artifact_bytes) = (most, most);
        request.operation = LayerOperation::Copy;
        request.media_type = Some(oci::CHART.to_owned());
        (request.known, request.room) = (None, self.bounds.room.clone());
        let again = self.with_provenance.then(|| request.clone());
        let fetched = oci::fetch_with(request, self.engine, self.cancel).await;
        match fetched.map_err(|error| Why::Oci(error).at(Step::Pull))? {
            Outcome::Fetched(fetched) => {
                let Fetched { artifact, revision, verified, room, .. } = *fetched;
                let kept = self.spooled(&artifact.bytes, Step::Pull).await?;
                // Room is reserved once more for what is made of it.
                drop(room);
                let verified = verified.map(|_| format!("verified signature of version {version}"));
                let digest = artifact.digest;
                drop(artifact);
                let provenance = match again {
                    Some(request) => Some(self.provenance_layer(request, &revision).await?),
                    None => None,
                };
                Ok(Packed { kept, digest, version, verified, provenance })
            }
            Outcome::Unchanged(_) => Err(internal("nothing is known of it", Step::Pull)),
        }
    }

    /// Has a reader do something.
    pub(super) async fn read(
        &self,
        about: &str,
        what: What,
        desk: &mut Desk,
        step: Step,
    ) -> Result<Reply, HelmError> {
        let order = Order { limits: self.bounds.limits.clone(), what };
        let order = Job::Helm(&order).encode().map_err(|error| internal(error.to_string(), step))?;
        let reply = self.engine.run(about, order, desk).await.map_err(|ended| of_ended(ended).at(step))?;
        let Ok(Answered { reply, learned }) = serde_json::from_slice(&reply) else {
            return Err(internal("the reader's reply cannot be parsed", step));
        };
        if let Some((name, version)) = learned.filter(|(name, _)| check_name(name).is_ok()) {
            self.learn(&name, &version);
        }
        match reply {
            Reply::Unread(unread) => Err(unread.of(self.url.clone(), step)),
            reply => Ok(reply),
        }
    }

    /// Notes which chart it is, for messages: nothing is received by it.
    pub(super) fn learn(&self, name: &str, version: &str) {
        if let Ok(version) = version.parse() {
            self.stop.progress().learn_of_chart(name, version);
        }
    }

    /// The versions that were chosen of an index: as many as there were choices.
    pub(super) async fn choose(
        &self,
        about: &str,
        what: What,
        (desk, wanted): (&mut Desk, usize),
        step: Step,
    ) -> Result<Vec<Result<Chosen, String>>, HelmError> {
        match self.read(about, what, desk, step).await? {
            Reply::Chosen(chosen) if chosen.len() == wanted => Ok(chosen),
            _ => Err(internal("the reader answers another question", step)),
        }
    }

    /// Bytes in a temporary file, so that a reader can have them without room in memory.
    pub(super) async fn spooled(&self, bytes: &[u8], step: Step) -> Result<KeptAnswer, HelmError> {
        let mut kept = Kept::new(self.bounds.scratch.clone(), self.bounds.disk.clone());
        if self.in_files {
            kept = kept.in_file();
        }
        kept.take(bytes).await.map_err(|error| match error {
            NotKept::NoDisk => Why::NoDisk.at(step),
            NotKept::Io(_) => internal(error.to_string(), step),
        })?;
        kept.into_answer().await.map_err(|error| internal(error.to_string(), step))
    }
}

/// A request to a registry that an index names: with the repository's credentials where it is the same server, or where they are passed on.
fn lent(mut request: OciRequest, server: &HelmServer, home: &Url) -> OciRequest {
    let there = Url::parse(&request.url.replacen("oci://", "https://", 1));
    let may = server.pass_credentials || there.is_ok_and(|there| credentials_belong(home, &there));
    if let Some(HelmLogin { username, password }) = server.login.clone().filter(|_| may) {
        request.logins = RegistryLogins::everywhere(RegistryLogin::Basic { username, password });
    }
    request
}

/// The repository and the tag that a URL `oci://host/path:tag` names; the version's own tag where it names none.
fn tagged(url: &Url, version: &str) -> (String, String) {
    let text = url.as_str();
    let (before, last) = text.rsplit_once('/').unwrap_or(("", text));
    match last.split_once(':') {
        Some((name, tag)) => (format!("{before}/{name}"), tag.to_owned()),
        None => (text.to_owned(), version.replace('+', "_")),
    }
}
