//! One fetch of one chart.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::{Refusal, credentials_belong};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::chart::check_name;
use super::error::{HelmError, Step, Why};
use super::fetch_index::of_ended;
use super::index::{Choice, Chosen};
use super::reader::{Made, Making, Order, Reply, What};
use super::request::{ChartOrigin, HelmChartRequest, HelmLogin, HelmServer};
use super::wire::{Came, Wire};
use crate::artifact::Artifact;
use crate::attempt::{
    Answer, Body, Desk, Engine, Kept, KeptAnswer, Limited, NotKept, Room, Stop, TrustedBy, shown_url,
};
use crate::git::Stored;
use crate::oci::{self, LayerOperation, OciReference, OciRequest, RegistryLogin, RegistryLogins};
use crate::reading::Job;
use crate::source::{ChartFacts, FetchError, Fetched, Outcome, Source};
use crate::tree::{Measure, shown};
use crate::version::Version;

/// Bytes of a chart's name.
const MOST_NAME: usize = 250;

/// A chart as it was received.
struct Packed {
    kept: KeptAnswer,
    digest: Digest,
    /// Its version, as whoever has it says.
    version: String,
    /// Whose signatures were verified.
    verified: Option<String>,
}

/// A fetch that is under way.
struct Attempt<'a> {
    request: &'a HelmChartRequest,
    engine: &'a dyn Engine,
    stop: &'a Stop,
    cancel: &'a CancellationToken,
    known: Option<&'a Revision>,
}

/// Whether a chart of a repository may be called so: parts of letters, digits and dashes, with one `/`, `.` or `/.` between them.
fn is_chart_name(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let mut last = b'.';
    let fits = |c: u8| {
        let fits = plain(c) || plain(last) && matches!(c, b'/' | b'.') || last == b'/' && c == b'.';
        // A name does not begin with any of them.
        let fits = fits && (plain(c) || last != b'.');
        last = c;
        fits
    };
    !name.is_empty() && name.len() <= MOST_NAME && name.bytes().all(fits)
}

/// What a version is called that has other build metadata.
fn changed(version: &str, build: Option<&str>) -> Result<String, String> {
    let Some(build) = build else { return Ok(version.to_owned()) };
    let parsed =
        Version::coerced(version).ok_or_else(|| format!("its version `{}` is invalid", shown(version)))?;
    Ok(parsed.with_build(build).map_err(|error| error.to_string())?.to_string())
}

fn internal(detail: impl Into<String>, step: Step) -> HelmError {
    Why::Internal(detail.into()).at(step)
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Outcome, HelmError> {
        if let Some(known) = self.known.filter(|_| self.request.is_settled) {
            return Ok(Outcome::Unchanged(known.clone()));
        }
        let chart = &self.request.chart;
        let is_named = !matches!(self.request.origin, ChartOrigin::Tree { .. });
        if is_named && !is_chart_name(chart) {
            let want = "a valid name must be lower case letters and numbers and MAY be separated with dashes (-), slashes (/) or periods (.)";
            let why = format!("invalid chart name '{}', {want}", shown(chart));
            return Err(Why::Refused(why).at(Step::Reference));
        }
        match &self.request.origin {
            ChartOrigin::Repository { server, index, registry } => {
                self.of_repository(server, index.as_ref(), registry).await
            }
            ChartOrigin::Registry(registry) => self.of_registry(registry).await,
            ChartOrigin::Tree { artifact, .. } => self.of_tree(artifact.as_ref()).await,
        }
    }

    async fn of_repository(
        &self,
        server: &HelmServer,
        index: &dyn Stored,
        registry: &OciRequest,
    ) -> Result<Outcome, HelmError> {
        let Chosen { version, urls, digest } = self.choose(index).await?;
        if let Some(unchanged) = self.unchanged(&version)? {
            return Ok(unchanged);
        }
        let refused = |why: String| Why::Refused(why).at(Step::Pull);
        let chart = shown(&self.request.chart);
        let first =
            urls.first().ok_or_else(|| refused(format!("chart '{chart}' has no downloadable URLs")))?;
        let home = super::url::repository(&server.url);
        let home = home.map_err(|why| Why::Url { url: shown_url(&server.url), why }.at(Step::Pull))?;
        let url = super::url::chart(&home, first);
        let url = url.map_err(|why| Why::Url { url: shown_url(first), why }.at(Step::Pull))?;
        let packed = if url.scheme() == "oci" {
            let (repository, tag) = tagged(&url, &version);
            let request =
                OciRequest { url: repository, reference: OciReference::Tag(tag), ..registry.clone() };
            self.pull(lent(request, server, &home), version).await?
        } else {
            if registry.verify.is_some() {
                let why = "verification of charts of HTTP repositories is not implemented";
                return Err(Why::Refused(why.to_owned()).at(Step::Verify));
            }
            self.download(server, home, &url, version).await?
        };
        // Other forms of digests are those of tools that nobody uses any more.
        let expected = digest.as_deref().map(|digest| digest.strip_prefix("sha256:").unwrap_or(digest));
        if let Some(expected) = expected.and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok())
            && expected != packed.digest
        {
            let (came, expected) = (packed.digest.to_string(), expected.to_string());
            return Err(Why::OtherDigest { url: shown_url(url.as_str()), came, expected }.at(Step::Pull));
        }
        self.make(packed).await
    }

    /// Which version of the chart an index has that is asked for.
    async fn choose(&self, index: &dyn Stored) -> Result<Chosen, HelmError> {
        self.stop.enter("looking for the chart's version");
        let stored = index.bytes().await.map_err(|why| Why::Artifact(why).at(Step::Reference))?;
        let answer = Answer { heading: String::new(), body: Body::Memory(stored.bytes) };
        let choice = Choice { chart: self.request.chart.clone(), version: self.request.version.clone() };
        let mut desk = Desk::new(0, None, self.stop);
        desk.answers.push(answer);
        match self.read("choice", What::Choose(choice), &mut desk, Step::Reference).await? {
            Reply::Chosen(chosen) => Ok(chosen),
            _ => Err(internal("the reader answers another question", Step::Reference)),
        }
    }

    async fn download(
        &self,
        server: &HelmServer,
        home: Url,
        url: &Url,
        version: String,
    ) -> Result<Packed, HelmError> {
        let at = |why: Why| why.at(Step::Pull);
        self.stop.enter("receiving the chart");
        let wire = Wire::new(server, &self.request.bounds, self.stop, home).map_err(at)?;
        let most = (Measure::ChartBytes, self.request.bounds.limits.chart_bytes);
        match wire.get(url, None, most).await.map_err(at)? {
            Came::File(received) => {
                let (kept, digest) = (received.kept, received.digest);
                Ok(Packed { kept, digest, version, verified: None })
            }
            Came::Unchanged => Err(internal("nothing is known of it", Step::Pull)),
        }
    }

    async fn of_registry(&self, registry: &OciRequest) -> Result<Outcome, HelmError> {
        let version = &self.request.version;
        let tag = if Version::parse(version).is_some() {
            // Of a version that is whole nobody needs to be asked which one it is.
            version.replace('+', "_")
        } else {
            let range = if version.is_empty() { "*".to_owned() } else { version.clone() };
            let reference = OciReference::SemVer { range, filter: None };
            let request = OciRequest { reference, ..registry.clone() };
            oci::choose_tag(&request, self.engine, self.cancel).await.map_err(|error| match error {
                oci::OciError::NoTag { range, .. } => {
                    let what = "failed to get chart version for remote reference: could not locate a version matching";
                    Why::Refused(format!("{what} provided version string {range}")).at(Step::Reference)
                }
                oci::OciError::ReferenceRefused { why, .. } => Why::Refused(why).at(Step::Reference),
                error => Why::Oci(error).at(Step::Pull),
            })?
        };
        let version = tag.replace('_', "+");
        if let Some(unchanged) = self.unchanged(&version)? {
            return Ok(unchanged);
        }
        let request = OciRequest { reference: OciReference::Tag(tag), ..registry.clone() };
        let packed = self.pull(request, version).await?;
        self.make(packed).await
    }

    /// The layer of an artifact in a registry that is a chart. What its tag names is resolved once: that is verified, and its layer received.
    async fn pull(&self, mut request: OciRequest, version: String) -> Result<Packed, HelmError> {
        let limit = self.request.bounds.limits.chart_bytes;
        (request.limits.layer_bytes, request.limits.artifact_bytes) = (limit, limit);
        request.operation = LayerOperation::Copy;
        request.media_type = Some(oci::CHART.to_owned());
        (request.known, request.room) = (None, self.request.bounds.room.clone());
        let fetched = oci::fetch_with(request, self.engine, self.cancel).await;
        match fetched.map_err(|error| Why::Oci(error).at(Step::Pull))? {
            Outcome::Fetched(fetched) => {
                let Fetched { artifact, verified, room, .. } = *fetched;
                let kept = self.spooled(&artifact.bytes, Step::Pull).await?;
                // Room is reserved once more for what is made of it.
                drop(room);
                Ok(Packed { kept, digest: artifact.digest, version, verified })
            }
            Outcome::Unchanged(_) => Err(internal("nothing is known of it", Step::Pull)),
        }
    }

    async fn of_tree(&self, artifact: &dyn Stored) -> Result<Outcome, HelmError> {
        self.stop.enter("reading the source's artifact");
        let stored = artifact.bytes().await.map_err(|why| Why::Artifact(why).at(Step::Reference))?;
        let about = Digest::of(&stored.bytes).to_string();
        let kept = self.spooled(&stored.bytes, Step::Reference).await?;
        drop(stored);
        let known = self.request.known_name.clone().zip(self.known.map(ToString::to_string));
        let what = What::Tree { path: self.request.chart.clone(), making: self.making(), known };
        let mut desk = self.desk();
        desk.answers.push(kept.answer);
        self.engine.admit(&about).await.map_err(|ended| of_ended(ended).at(Step::Reference))?;
        match self.read(&about, what, &mut desk, Step::Reference).await? {
            Reply::Same(_) => match self.known {
                Some(known) => Ok(Outcome::Unchanged(known.clone())),
                None => Err(internal("nothing is known of it", Step::Reference)),
            },
            Reply::Made(made) => self.made(made, None, desk, None),
            _ => Err(internal("the reader answers another question", Step::Reference)),
        }
    }

    /// The outcome where a version is the one that the hub has.
    fn unchanged(&self, version: &str) -> Result<Option<Outcome>, HelmError> {
        let found = changed(version, self.request.build_metadata.as_deref());
        let found = found.map_err(|why| Why::Refused(why).at(Step::Metadata))?;
        let known = self.known.filter(|known| known.to_string() == found);
        Ok(known.map(|known| Outcome::Unchanged(known.clone())))
    }

    fn making(&self) -> Making {
        let (values, build_metadata) = (self.request.values.clone(), self.request.build_metadata.clone());
        Making { values, build_metadata }
    }

    fn desk(&self) -> Desk {
        let bounds = &self.request.bounds;
        Desk::new(bounds.limits.chart_bytes, bounds.room.clone(), self.stop)
    }

    /// Makes the artifact of a chart that was received.
    async fn make(&self, packed: Packed) -> Result<Outcome, HelmError> {
        self.stop.enter("reading the chart");
        let Packed { kept, digest, version, verified } = packed;
        let about = digest.to_string();
        self.engine.admit(&about).await.map_err(|ended| of_ended(ended).at(Step::Pull))?;
        let mut desk = self.desk();
        desk.answers.push(kept.answer);
        let reply = self.read(&about, What::Packed(self.making()), &mut desk, Step::Pull).await?;
        drop(kept.spool);
        let Reply::Made(made) = reply else {
            return Err(internal("the reader answers another question", Step::Pull));
        };
        self.made(made, Some((version, digest)), desk, verified)
    }

    /// What a reader brought. `from` is the version and the digest of the chart that it was given.
    fn made(
        &self,
        made: Made,
        from: Option<(String, Digest)>,
        mut desk: Desk,
        verified: Option<String>,
    ) -> Result<Outcome, HelmError> {
        let step = Step::Package;
        // What it says came from a process that read untrusted bytes.
        check_name(&made.name).map_err(|why| internal(why, step))?;
        if made.values.iter().any(|path| !self.request.values.paths.contains(path)) {
            return Err(internal("the reader merged other files", step));
        }
        let brought = desk.take_artifact();
        let brought = brought.ok_or_else(|| internal("the reader returned an incomplete chart", step))?;
        let digest = Digest::of(&brought.bytes);
        let version = match from {
            Some((version, came)) => {
                if !made.is_packaged && came != digest {
                    return Err(internal("the reader changed a chart that is to stay as it is", step));
                }
                changed(&version, self.request.build_metadata.as_deref())
                    .map_err(|why| Why::Refused(why).at(Step::Metadata))?
            }
            None => made.version,
        };
        let revision: Revision = version.parse().map_err(|_| {
            Why::Refused(format!("its version `{}` is invalid", shown(&version))).at(Step::Reference)
        })?;
        let Made { name, is_packaged, values, files, unpacked_bytes, .. } = made;
        let artifact = Artifact { digest, bytes: brought.bytes, files, unpacked_bytes };
        Ok(Outcome::Fetched(Box::new(Fetched {
            revision,
            artifact,
            notes: Vec::new(),
            metadata: BTreeMap::new(),
            verified,
            chart: Some(ChartFacts { name, version, is_packaged, values_files: values }),
            room: brought.held,
        })))
    }

    async fn read(&self, about: &str, what: What, desk: &mut Desk, step: Step) -> Result<Reply, HelmError> {
        let order = Order { limits: self.request.bounds.limits.clone(), what };
        let order = Job::Helm(&order).encode().map_err(|error| internal(error.to_string(), step))?;
        let reply = self.engine.run(about, order, desk).await.map_err(|ended| of_ended(ended).at(step))?;
        match serde_json::from_slice(&reply) {
            Ok(Reply::Unread(unread)) => Err(unread.of(self.request.url(), step)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(internal("the reader's reply cannot be parsed", step)),
        }
    }

    /// Bytes in a temporary file, so that a reader can have them without room in memory.
    async fn spooled(&self, bytes: &[u8], step: Step) -> Result<KeptAnswer, HelmError> {
        let bounds = &self.request.bounds;
        let mut kept = Kept::new(bounds.scratch.clone(), bounds.disk.clone());
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

impl HelmChartRequest {
    fn url(&self) -> String {
        match &self.origin {
            ChartOrigin::Repository { server, .. } => shown_url(&server.url),
            ChartOrigin::Registry(registry) => registry.shown_url(),
            ChartOrigin::Tree { named, .. } => format!("{named} ({})", shown(&self.chart)),
        }
    }
}

#[async_trait]
impl Source for HelmChartRequest {
    async fn fetch(
        &self,
        known: Option<&Revision>,
        engine: &dyn Engine,
        cancel: &CancellationToken,
    ) -> Result<Outcome, FetchError> {
        let timeout = self.bounds.timeout;
        let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
        let (url, trust) = (self.url(), TrustedBy::CertSecretRef);
        let attempt = Attempt { request: self, engine, stop: &stop, cancel, known };
        let limited = Limited { kind: "Helm chart", url, trust, timeout, stop: &stop, cancel };
        let outcome = limited.run(attempt.run()).await;
        Ok(outcome.map_err(|error| error.or_at(Step::Pull))?)
    }

    fn shown_url(&self) -> String {
        self.url()
    }

    fn has_credentials(&self) -> bool {
        match &self.origin {
            ChartOrigin::Repository { server, .. } => server.login.is_some(),
            ChartOrigin::Registry(registry) => registry.has_credentials(),
            ChartOrigin::Tree { .. } => false,
        }
    }

    fn tolerated(&self) -> Option<Refusal> {
        match &self.origin {
            ChartOrigin::Repository { server, .. } => server.guard.tolerated(),
            ChartOrigin::Registry(registry) => registry.guard.tolerated(),
            ChartOrigin::Tree { .. } => None,
        }
    }

    fn reserve_in(&mut self, room: Room) {
        self.bounds.room = Some(room);
    }
}
