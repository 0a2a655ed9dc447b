//! Charts of other repositories that a chart in a folder depends on: they are received as a HelmChart of that repository would be, and all of
//! them together have the bytes and the time of one chart. What they depend on themselves is in them, or is missing: nothing is asked for on
//! behalf of a chart that came from elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use roadstead_model::Digest;

use super::chart::{Dependency, MOST_DEPENDENCIES, check_name};
use super::error::{HelmError, Step, Why};
use super::index::{Choice, Chosen};
use super::reader::What;
use super::receive::{Packed, Receiver, internal};
use super::request::HelmServer;
use super::url::{index as index_url, repository as home_of};
use super::wire::Came;
use crate::attempt::{Answer, Body, Desk, KeptAnswer, plain, shown_url};
use crate::git::Stored;
use crate::oci::{OciReference, OciRequest};
use crate::tree::{Measure, shown};

/// All indexes that are received for one chart have the bytes of so many.
const INDEXES: u64 = 4;

/// Which repositories lend their credentials to charts that name their URLs.
#[async_trait]
pub trait Repositories: fmt::Debug + Send + Sync {
    /// How the repository at a URL, in the form of [`super::normalised`], is asked: as nobody, where none of the object's namespace has it.
    ///
    /// # Errors
    /// Why it is not asked, for the chart's condition.
    async fn at(&self, url: &str) -> Result<RepositoryAt, Why>;
}

/// How a repository is asked.
#[derive(Debug, Clone)]
pub enum RepositoryAt {
    /// It is one over HTTP.
    Http {
        /// The repository.
        server: Box<HelmServer>,
        /// Its index, where it is stored.
        index: Option<Arc<dyn Stored>>,
        /// How a registry is asked, where the index says that a chart is in one.
        registry: Box<OciRequest>,
    },
    /// It is a registry; the URL is that of the repository, without the name of a chart.
    Registry(Box<OciRequest>),
}

/// Charts that were received, in the order in which they were asked for.
pub(super) struct Received {
    pub(super) kept: Vec<KeptAnswer>,
    /// What came, by its digests.
    pub(super) digests: String,
}

/// Receives charts that another one depends on.
pub(super) struct Dependencies<'a> {
    receiver: &'a Receiver<'a>,
    /// What is left of the bytes that the charts may have together.
    left: u64,
    /// The same of indexes.
    left_of_indexes: u64,
}

/// An error of one of them, with what was being done.
fn of(dependency: &Dependency, doing: &str, error: HelmError) -> HelmError {
    let name = shown(&dependency.name);
    Why::Dependency { name, doing: doing.to_owned(), why: error.why }.at(Step::Dependencies)
}

impl<'a> Dependencies<'a> {
    pub(super) fn new(receiver: &'a Receiver<'a>) -> Self {
        let limits = &receiver.bounds.limits;
        Self { receiver, left: limits.chart_bytes, left_of_indexes: INDEXES * limits.index_bytes }
    }

    /// Receives all of these.
    pub(super) async fn receive(
        mut self,
        needed: &[Dependency],
        repositories: &dyn Repositories,
    ) -> Result<Received, HelmError> {
        // What they are came from a process that read untrusted bytes.
        if needed.len() > MOST_DEPENDENCIES || needed.iter().any(|one| check_name(&one.name).is_err()) {
            return Err(internal("the reader asks for charts that there cannot be", Step::Dependencies));
        }
        let mut by_url: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, dependency) in needed.iter().enumerate() {
            let url = super::normalised(&dependency.repository).map_err(|why| {
                let why = Why::Url { url: shown_url(&dependency.repository), why };
                of(dependency, "invalid dependency repository URL: ", why.at(Step::Dependencies))
            })?;
            by_url.entry(url).or_default().push(number);
        }
        let mut all: BTreeMap<usize, Packed> = BTreeMap::new();
        for (url, numbers) in by_url {
            let wanted: Vec<&Dependency> = numbers.iter().filter_map(|number| needed.get(*number)).collect();
            let packed = self.of_repository(&url, &wanted, repositories).await?;
            all.extend(numbers.into_iter().zip(packed));
        }
        let digests: Vec<String> = all.values().map(|packed| packed.digest.to_string()).collect();
        let kept = all.into_values().map(|packed| packed.kept).collect();
        Ok(Received { kept, digests: digests.join(" ") })
    }

    /// Those of one repository.
    async fn of_repository(
        &mut self,
        url: &str,
        wanted: &[&Dependency],
        repositories: &dyn Repositories,
    ) -> Result<Vec<Packed>, HelmError> {
        let Some(first) = wanted.first() else { return Ok(Vec::new()) };
        let doing = format!("failed to get chart repository for URL '{}': ", shown_url(url));
        let about_it = |error: HelmError| of(first, &doing, error);
        let at = repositories.at(url).await.map_err(|why| about_it(why.at(Step::Dependencies)))?;
        let mut packed = Vec::new();
        match at {
            RepositoryAt::Registry(registry) => {
                for dependency in wanted {
                    packed.push(self.of_registry(&registry, dependency).await?);
                }
            }
            RepositoryAt::Http { server, index, registry } => {
                let chosen = self.choose(&server, index.as_deref(), wanted).await.map_err(about_it)?;
                for (dependency, chosen) in wanted.iter().zip(chosen) {
                    let chosen = chosen.map_err(|why| {
                        let doing = getting(dependency);
                        of(dependency, &doing, Why::Refused(plain(&why)).at(Step::Dependencies))
                    })?;
                    let doing = downloading(&chosen.version);
                    let name = &dependency.name;
                    let came = self.receiver.named(&server, &registry, name, chosen, self.left).await;
                    packed.push(self.count(came).map_err(|error| of(dependency, &doing, error))?);
                }
            }
        }
        Ok(packed)
    }

    async fn of_registry(
        &mut self,
        registry: &OciRequest,
        dependency: &Dependency,
    ) -> Result<Packed, HelmError> {
        let url = format!("{}/{}", registry.url.trim_end_matches('/'), dependency.name);
        let request = OciRequest { url, ..registry.clone() };
        let tag = self.receiver.tag(&request, &dependency.version).await;
        let tag = tag.map_err(|error| of(dependency, &getting(dependency), error))?;
        let version = tag.replace('_', "+");
        let doing = downloading(&version);
        let request = OciRequest { reference: OciReference::Tag(tag), ..request };
        let came = self.receiver.pull(request, version, self.left).await;
        self.count(came).map_err(|error| of(dependency, &doing, error))
    }

    /// Counts the bytes of a chart that came.
    fn count(&mut self, came: Result<Packed, HelmError>) -> Result<Packed, HelmError> {
        let most = self.receiver.bounds.limits.chart_bytes;
        match came {
            Ok(packed) => {
                self.left = self.left.saturating_sub(packed.kept.length);
                Ok(packed)
            }
            // The bound is that of all of them.
            Err(error) => Err(match *error.why {
                Why::TooLarge { measure: measure @ Measure::ChartBytes, path, .. } => {
                    Why::TooLarge { measure, limit: most, path }.at(error.step)
                }
                why => why.at(error.step),
            }),
        }
    }

    /// Which versions of charts a repository has that are wanted: by its index as it is stored, or as it is now.
    async fn choose(
        &mut self,
        server: &HelmServer,
        index: Option<&dyn Stored>,
        wanted: &[&Dependency],
    ) -> Result<Vec<Result<Chosen, String>>, HelmError> {
        let step = Step::Dependencies;
        let choice = |one: &&Dependency| Choice { chart: one.name.clone(), version: one.version.clone() };
        let choices: Vec<Choice> = wanted.iter().map(choice).collect();
        let mut desk = Desk::new(0, None, self.receiver.stop);
        if let Some(index) = index {
            let stored = index.bytes().await.map_err(|why| Why::Artifact(why).at(step))?;
            desk.answers.push(Answer { heading: String::new(), body: Body::Memory(stored.bytes) });
            let given = (&mut desk, wanted.len());
            return self.receiver.choose("choice", What::Choose(choices), given, step).await;
        }
        self.receiver.stop.enter("receiving the index of a repository with charts that it depends on");
        let at = |why: Why| why.at(step);
        let home = home_of(&server.url).map_err(|why| at(Why::Url { url: shown_url(&server.url), why }))?;
        let url = index_url(&home);
        let wire = self.receiver.wire(server, home).map_err(at)?;
        let limit = self.left_of_indexes.min(self.receiver.bounds.limits.index_bytes);
        let received = match wire.get(&url, None, (Measure::HelmIndexBytes, limit)).await.map_err(at)? {
            Came::File(received) => *received,
            Came::Unchanged => return Err(internal("nothing is known of it", step)),
        };
        self.left_of_indexes = self.left_of_indexes.saturating_sub(received.kept.length);
        let about = received.digest.to_string();
        self.admit(&about).await?;
        desk.answers.push(received.kept.answer);
        let given = (&mut desk, wanted.len());
        self.receiver.choose(&about, What::ChooseUnread(choices), given, step).await
    }

    async fn admit(&self, about: &str) -> Result<(), HelmError> {
        let admitted = self.receiver.engine.admit(about).await;
        admitted.map_err(|ended| super::fetch_index::of_ended(ended).at(Step::Dependencies))
    }
}

impl Received {
    /// What a reader is at that has all of it, and the artifact with this digest.
    pub(super) fn about(&self, artifact: &str) -> String {
        Digest::of(format!("{artifact} {}", self.digests).as_bytes()).to_string()
    }
}

fn getting(dependency: &Dependency) -> String {
    let Dependency { name, version, repository } = dependency;
    format!(
        "failed to get chart '{}' version '{}' from '{}': ",
        shown(name),
        shown(version),
        shown_url(repository)
    )
}

fn downloading(version: &str) -> String {
    format!("chart download of version '{}' failed: ", shown(version))
}
