//! One fetch of one chart.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use roadstead_model::{Digest, Revision};
use roadstead_outbound::Refusal;
use tokio_util::sync::CancellationToken;

use super::chart::check_name;
use super::dependencies::{Dependencies, Repositories};
use super::error::{HelmError, Step, Why};
use super::fetch_index::of_ended;
use super::index::{Choice, Chosen};
use super::provenance::Wanted;
use super::reader::{Made, Making, Reply, What};
use super::receive::{Packed, Provenance, Receiver, internal};
use super::request::{AskedTogether, ChartOrigin, HelmChartRequest, HelmServer};
use crate::artifact::Artifact;
use crate::attempt::{
    Answer, Body, Desk, Engine, KeptAnswer, Limited, Room, Stop, TrustedBy, plain, shown_url,
};
use crate::git::{Stored, now};
use crate::oci::{OciReference, OciRequest};
use crate::source::{ChartFacts, Facts, Failed, Fetched, Outcome, Source};
use crate::tree::shown;
use crate::version::Version;

/// Bytes of a chart's name.
const MOST_NAME: usize = 250;
/// Bytes of what a reader says of a key.
const MOST_SIGNER: usize = 100;
/// Charts that are looked up beside one in an index: what is told of them fits into a reply.
const MOST_TOGETHER: usize = 200;

/// A fetch that is under way.
struct Attempt<'a> {
    request: &'a HelmChartRequest,
    receiver: Receiver<'a>,
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
            ChartOrigin::Repository { server, index, together, registry } => {
                self.of_repository(server, (index.as_ref(), together), registry).await
            }
            ChartOrigin::Registry(registry) => self.of_registry(registry).await,
            ChartOrigin::Tree { .. } if self.request.provenance.is_some() => {
                let why = "a chart in another source has no provenance of its own";
                Err(Why::Refused(why.to_owned()).at(Step::Verify))
            }
            ChartOrigin::Tree { artifact, repositories, .. } => {
                self.of_tree(artifact.as_ref(), repositories.as_ref()).await
            }
        }
    }

    async fn of_repository(
        &self,
        server: &HelmServer,
        (index, together): (&dyn Stored, &AskedTogether),
        registry: &OciRequest,
    ) -> Result<Outcome, HelmError> {
        let chosen = self.choose(index, together).await?;
        if let Some(unchanged) = self.unchanged(&chosen.version)? {
            return Ok(unchanged);
        }
        let most = self.request.bounds.limits.chart_bytes;
        let packed = self.receiver.named(server, registry, &self.request.chart, chosen, most).await?;
        self.make(packed).await
    }

    /// Which version of the chart an index has that is asked for. Who reads it looks for what others will ask for, too, and they wait for that.
    async fn choose(&self, index: &dyn Stored, together: &AskedTogether) -> Result<Chosen, HelmError> {
        let step = Step::Reference;
        self.receiver.stop.enter("looking for the chart's version");
        let choice = Choice { chart: self.request.chart.clone(), version: self.request.version.clone() };
        let AskedTogether { known, others } = together;
        let turn = known.turn().await;
        let chosen = match known.get(&choice) {
            Some(chosen) => chosen,
            None => {
                let others = others
                    .iter()
                    .map(|(chart, version)| Choice { chart: chart.clone(), version: version.clone() });
                let is_small = |one: &Choice| one.chart.len() + one.version.len() <= MOST_NAME;
                let others =
                    others.filter(|other| *other != choice && is_small(other) && known.get(other).is_none());
                let choices: Vec<Choice> =
                    [choice.clone()].into_iter().chain(others.take(MOST_TOGETHER)).collect();
                let stored = index.bytes().await.map_err(|why| Why::Artifact(why).at(step))?;
                let answer = Answer { heading: String::new(), body: Body::Memory(stored.bytes) };
                let mut desk = Desk::new(0, None, self.receiver.stop);
                desk.answers.push(answer);
                let (what, given) = (What::Choose(choices.clone()), (&mut desk, choices.len()));
                let found = self.receiver.choose("choice", what, given, step).await?;
                let own = found.first().cloned();
                choices.into_iter().zip(found).for_each(|(choice, found)| known.keep(choice, found));
                own.unwrap_or_else(|| Err("no chart name found".to_owned()))
            }
        };
        drop(turn);
        chosen.map_err(|why| {
            let what = "failed to get chart version for remote reference";
            Why::Refused(format!("{what}: {}", plain(&why))).at(step)
        })
    }

    async fn of_registry(&self, registry: &OciRequest) -> Result<Outcome, HelmError> {
        let tag = self.receiver.tag(registry, &self.request.version).await?;
        let version = tag.replace('_', "+");
        if let Some(unchanged) = self.unchanged(&version)? {
            return Ok(unchanged);
        }
        let request = OciRequest { reference: OciReference::Tag(tag), ..registry.clone() };
        let most = self.request.bounds.limits.chart_bytes;
        let packed = self.receiver.pull(request, version, most).await?;
        self.make(packed).await
    }

    async fn of_tree(
        &self,
        artifact: &dyn Stored,
        repositories: &dyn Repositories,
    ) -> Result<Outcome, HelmError> {
        self.receiver.stop.enter("reading the source's artifact");
        let stored = artifact.bytes().await.map_err(|why| Why::Artifact(why).at(Step::Reference))?;
        let about = Digest::of(&stored.bytes).to_string();
        let kept = self.receiver.spooled(&stored.bytes, Step::Reference).await?;
        drop(stored);
        let mut desk = self.desk();
        desk.answers.push(kept.answer);
        let needed = match self.read_tree(&about, false, &mut desk).await? {
            Reply::Needs(needed) => needed,
            reply => return self.of_reply(reply, desk),
        };
        let received = Dependencies::new(&self.receiver).receive(&needed, repositories).await?;
        self.receiver.stop.enter("putting charts into the one that depends on them");
        let about = received.about(&about);
        let mut spools = Vec::new();
        for KeptAnswer { answer, spool, .. } in received.kept {
            desk.answers.push(answer);
            // They lie there as long as they are read.
            spools.push(spool);
        }
        let reply = self.read_tree(&about, true, &mut desk).await?;
        drop(spools);
        self.of_reply(reply, desk)
    }

    async fn read_tree(
        &self,
        about: &str,
        has_dependencies: bool,
        desk: &mut Desk,
    ) -> Result<Reply, HelmError> {
        let step = if has_dependencies { Step::Dependencies } else { Step::Reference };
        let admitted = self.receiver.engine.admit(about).await;
        admitted.map_err(|ended| of_ended(ended).at(step))?;
        let known = self.request.known_name.clone().zip(self.known.map(ToString::to_string));
        let what =
            What::Tree { path: self.request.chart.clone(), making: self.making(), known, has_dependencies };
        self.receiver.read(about, what, desk, step).await
    }

    fn of_reply(&self, reply: Reply, desk: Desk) -> Result<Outcome, HelmError> {
        match (reply, self.known) {
            (Reply::Same(_), Some(known)) => Ok(Outcome::Unchanged(known.clone())),
            (Reply::Same(_), None) => Err(internal("nothing is known of it", Step::Reference)),
            (Reply::Made(made), _) => self.made(made, None, desk, None),
            _ => Err(internal("the reader answers another question", Step::Reference)),
        }
    }

    /// What a chart of a repository is called: in a registry it may lie further down.
    fn last_of_name(&self) -> &str {
        self.request.chart.rsplit('/').next().unwrap_or_default()
    }

    /// The outcome where a version is the one that the hub has.
    fn unchanged(&self, version: &str) -> Result<Option<Outcome>, HelmError> {
        let found = changed(version, self.request.build_metadata.as_deref());
        let found = found.map_err(|why| Why::Refused(why).at(Step::Metadata))?;
        self.receiver.learn(self.last_of_name(), &found);
        let known = self.known.filter(|known| known.to_string() == found);
        Ok(known.map(|known| Outcome::Unchanged(known.clone())))
    }

    fn making(&self) -> Making {
        let (values, build_metadata) = (self.request.values.clone(), self.request.build_metadata.clone());
        Making { values, build_metadata }
    }

    fn desk(&self) -> Desk {
        let bounds = &self.request.bounds;
        Desk::new(bounds.limits.chart_bytes, bounds.room.clone(), self.receiver.stop)
    }

    /// Makes the artifact of a chart that was received.
    async fn make(&self, packed: Packed) -> Result<Outcome, HelmError> {
        self.receiver.stop.enter("reading the chart");
        let Packed { kept, digest, version, mut verified, provenance } = packed;
        let about = digest.to_string();
        let admitted = self.receiver.engine.admit(&about).await;
        admitted.map_err(|ended| of_ended(ended).at(Step::Pull))?;
        let mut desk = self.desk();
        desk.answers.push(kept.answer);
        let wanted = self.wanted(&version, digest, provenance.as_ref())?.map(Box::new);
        let is_to_be_signed = wanted.is_some();
        let provenance = provenance.map(|provenance| provenance.kept);
        let proof_spool = provenance.map(|KeptAnswer { answer, spool, .. }| {
            desk.answers.push(answer);
            spool
        });
        let what = What::Packed(self.making(), wanted);
        let reply = self.receiver.read(&about, what, &mut desk, Step::Pull).await?;
        drop((kept.spool, proof_spool));
        let Reply::Made(made) = reply else {
            return Err(internal("the reader answers another question", Step::Pull));
        };
        if is_to_be_signed {
            let signer = made.signer.as_deref().filter(|signer| signer.len() <= MOST_SIGNER);
            let signer =
                signer.ok_or_else(|| internal("the reader names nobody who signed", Step::Verify))?;
            verified = Some(format!("verified signature of version {version} with key '{}'", plain(signer)));
        }
        self.made(made, Some((version, digest)), desk, verified)
    }

    /// What the chart is to be signed as, where that is asked for.
    fn wanted(
        &self,
        version: &str,
        digest: Digest,
        provenance: Option<&Provenance>,
    ) -> Result<Option<Wanted>, HelmError> {
        let Some(keys) = self.request.provenance.clone() else { return Ok(None) };
        let provenance = provenance.ok_or_else(|| internal("there is no provenance", Step::Verify))?;
        let name = self.last_of_name().to_owned();
        let (file, version) = (provenance.file.clone(), version.to_owned());
        Ok(Some(Wanted { keys, name, version, file, digest, now: now() }))
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
            facts: Facts::Chart(ChartFacts { name, version, is_packaged, values_files: values }),
            room: brought.held,
            turn: None,
        })))
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
    ) -> Result<Outcome, Failed> {
        let timeout = self.bounds.timeout;
        let stop = Stop::new(Instant::now() + timeout, cancel.child_token());
        let (url, trust) = (self.url(), TrustedBy::CertSecretRef);
        let in_files = matches!(self.origin, ChartOrigin::Tree { .. });
        let receiver = Receiver {
            bounds: &self.bounds,
            engine,
            stop: &stop,
            cancel,
            url: url.clone(),
            in_files,
            with_provenance: self.provenance.is_some(),
        };
        let attempt = Attempt { request: self, receiver, known };
        let limited = Limited { kind: "Helm chart", url, trust, timeout, stop: &stop, cancel };
        let outcome = limited.run(attempt.run()).await;
        outcome.map_err(|error| stop.progress().failed(error.or_at(Step::Pull)))
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
