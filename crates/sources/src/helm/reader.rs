//! The reading of what Helm repositories sent, and of charts: for a process that has no network and knows neither URLs nor credentials.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::chart::{Adding, Chart, Dependency, Found, Part, Source, Values, clean, package};
use super::index::{self, Choice, Chosen};
use super::provenance::{Proof, Wanted};
use super::request::{HelmLimits, ValuesFiles};
use super::unread::{Stage, Unread};
use crate::attempt::{AnswerReader, Line, bring, bring_file};
use crate::tree::{Content, Measure};

/// Bytes that are read at once.
const READING: usize = 256 << 10;

/// What a reader is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(super) limits: HelmLimits,
    pub(super) what: What,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum What {
    /// Read an index, and bring it in its one form.
    Index,
    /// Pick versions out of an index that was brought so.
    Choose(Vec<Choice>),
    /// Pick versions out of an index as a server sent it.
    ChooseUnread(Vec<Choice>),
    /// Make a chart of a packed one. Where it is to be signed, the second answer is what says by whom.
    Packed(Making, Option<Box<Wanted>>),
    /// Make a chart of what lies at a path of another source's artifact.
    Tree {
        path: String,
        making: Making,
        /// The name and the version of the chart that the hub has.
        known: Option<(String, String)>,
        /// Whether the answers after the artifact are the charts of other repositories that it needs.
        has_dependencies: bool,
    },
}

/// What is changed of a chart.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Making {
    pub(super) values: ValuesFiles,
    pub(super) build_metadata: Option<String>,
}

impl Making {
    fn is_nothing(&self) -> bool {
        self.build_metadata.is_none() && !self.values.are_any()
    }
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// An index was brought.
    Indexed { versions: usize, dropped: u64 },
    /// These versions are meant; or why there is none.
    Chosen(Vec<Result<Chosen, String>>),
    /// The chart depends on these, of other repositories.
    Needs(Vec<Dependency>),
    /// A chart was brought.
    Made(Made),
    /// It is the one that the hub has.
    Same(Made),
    /// It cannot be read.
    Unread(Unread),
}

/// The same, with the name and the version of the chart that was found on the way, whatever it then came to.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) reply: Reply,
    #[serde(default)]
    pub(super) learned: Option<(String, String)>,
}

/// A chart.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) name: String,
    pub(super) version: String,
    /// Whether it was packed here; else it is as it came.
    pub(super) is_packaged: bool,
    /// The files of values that were merged.
    pub(super) values: Vec<String>,
    pub(super) files: usize,
    pub(super) unpacked_bytes: u64,
    /// Whose key signed it, where that was asked for.
    pub(super) signer: Option<String>,
}

/// Does what `order` says, with `folder` for what is too large for memory, until it is done or `stop` is set. Gives the
/// reply as bytes.
pub(crate) fn read(order: &Order, folder: &Path, line: &Line, stop: &AtomicBool) -> Vec<u8> {
    let work = Work { limits: &order.limits, folder, line, stop, learned: OnceCell::new() };
    let reply = match &order.what {
        What::Index => work.index(),
        What::Choose(choices) => index::choose(choices, work.answer()).map(Reply::Chosen),
        What::ChooseUnread(choices) => work.choose_unread(choices),
        What::Packed(making, wanted) => work.packed(making, wanted.as_deref()),
        What::Tree { path, making, known, has_dependencies } => {
            work.in_tree(path, making, (known.as_ref(), *has_dependencies))
        }
    };
    // Texts, numbers and flags: they always become JSON.
    let reply = reply.unwrap_or_else(Reply::Unread);
    serde_json::to_vec(&Answered { reply, learned: work.learned.into_inner() }).unwrap_or_default()
}

struct Work<'a> {
    limits: &'a HelmLimits,
    folder: &'a Path,
    line: &'a Line,
    stop: &'a AtomicBool,
    /// The name and the version of the chart in a tree, once they are known.
    learned: OnceCell<(String, String)>,
}

impl Work<'_> {
    /// What the hub gives: there is one answer.
    fn answer(&self) -> BufReader<AnswerReader> {
        BufReader::with_capacity(READING, AnswerReader::new(self.line, 0, 0))
    }

    fn index(&self) -> Result<Reply, Unread> {
        let mut loaded = index::load(self.answer(), self.limits, self.folder, self.stop)?;
        self.bring(&mut loaded.file)?;
        Ok(Reply::Indexed { versions: loaded.versions, dropped: loaded.dropped })
    }

    fn choose_unread(&self, choices: &[Choice]) -> Result<Reply, Unread> {
        let mut loaded = index::load(self.answer(), self.limits, self.folder, self.stop)?;
        loaded.file.rewind().map_err(|error| Unread::internal(&error))?;
        index::choose(choices, BufReader::new(loaded.file)).map(Reply::Chosen)
    }

    fn bring(&self, file: &mut File) -> Result<(), Unread> {
        let size = file.metadata().map_err(|error| Unread::internal(&error))?.len();
        bring_file(file, size, self.line).map_err(|error| Unread::Internal(error.to_string()))
    }

    fn packed(&self, making: &Making, wanted: Option<&Wanted>) -> Result<Reply, Unread> {
        // Before anything is made of it.
        let proof = wanted.map(|wanted| self.signed(wanted)).transpose()?;
        let chart = Chart::unpack(self.answer(), self.limits, self.folder, self.stop, Stage::Pull)?;
        let Some(proof) = proof else { return self.made_of(chart, making) };
        proof.is_of(&chart.metadata).map_err(|why| Unread::Failed(Stage::Verify, why))?;
        let mut reply = self.made_of(chart, making)?;
        if let Reply::Made(made) = &mut reply {
            made.signer = Some(proof.signer);
        }
        Ok(reply)
    }

    fn signed(&self, wanted: &Wanted) -> Result<Proof, Unread> {
        let (limit, measure) = (self.limits.provenance_bytes, Measure::ProvenanceBytes);
        let mut bytes = Vec::new();
        let read = AnswerReader::new(self.line, 1, 0).take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| Unread::Internal(error.to_string()))?;
        if bytes.len() as u64 > limit {
            return Err(Unread::TooLarge { measure, limit, path: None });
        }
        wanted.proof(&bytes).map_err(|why| Unread::Failed(Stage::Verify, why))
    }

    fn made_of(&self, chart: Chart, making: &Making) -> Result<Reply, Unread> {
        let find = |chart: &Chart, path: &str| chart.files.get(path).cloned();
        if making.is_nothing() {
            let mut bytes = Vec::new();
            let most = self.limits.chart_bytes;
            let read = AnswerReader::new(self.line, 0, 0).take(most + 1).read_to_end(&mut bytes);
            read.map_err(|error| Unread::Internal(error.to_string()))?;
            return self.as_it_is(&chart, &bytes);
        }
        self.make(chart, making, find, str::to_owned)
    }

    fn in_tree(
        &self,
        path: &str,
        making: &Making,
        (known, has_dependencies): (Option<&(String, String)>, bool),
    ) -> Result<Reply, Unread> {
        let source = Source::unpack(self.answer(), &self.limits.source, self.folder, self.stop)?;
        let (chart, packed) = match source.find(path, self.limits, self.stop)? {
            Found::Folder(chart) => (chart, None),
            Found::File(part) => {
                let bytes = self.whole(&part)?;
                let chart =
                    Chart::unpack(bytes.as_slice(), self.limits, self.folder, self.stop, Stage::Reference)?;
                (chart, Some(bytes))
            }
        };
        let found = (chart.metadata.name.clone(), self.version(&chart, making)?);
        let found = self.learned.get_or_init(|| found);
        if known == Some(found) {
            let (name, version) = found.clone();
            return Ok(Reply::Same(Made { name, version, ..Made::default() }));
        }
        if let Some(bytes) = packed.as_ref().filter(|_| making.is_nothing()) {
            return self.as_it_is(&chart, bytes);
        }
        let mut chart = chart;
        if packed.is_none() {
            let adding = Adding { limits: self.limits, folder: self.folder, stop: self.stop };
            let elsewhere = adding.of_source(&mut chart, &source, path)?;
            if !elsewhere.is_empty() && !has_dependencies {
                return Ok(Reply::Needs(elsewhere));
            }
            // They follow the source's artifact, in the order in which they were asked for.
            adding.received(&mut chart, &elsewhere, |number| AnswerReader::new(self.line, number + 1, 0))?;
        }
        // Paths are those of the source, and not of the chart.
        self.make(chart, making, |_, path| source.file(path), |path| format!("/{}", clean(path)))
    }

    fn version(&self, chart: &Chart, making: &Making) -> Result<String, Unread> {
        let mut metadata = chart.metadata.clone();
        if let Some(build) = &making.build_metadata {
            metadata.with_build(build).map_err(|why| Unread::Failed(Stage::Metadata, why))?;
        }
        Ok(metadata.version)
    }

    fn whole(&self, part: &Part) -> Result<Vec<u8>, Unread> {
        let (limit, measure) = (self.limits.chart_bytes, Measure::ChartBytes);
        if part.size() > limit {
            return Err(Unread::TooLarge { measure, limit, path: None });
        }
        Ok(part.read().map_err(|error| Unread::internal(&error))?.into_owned())
    }

    fn as_it_is(&self, chart: &Chart, bytes: &[u8]) -> Result<Reply, Unread> {
        let mut from = io::Cursor::new(bytes);
        bring(&mut from, bytes.len() as u64, self.line)
            .map_err(|error| Unread::Internal(error.to_string()))?;
        Ok(Reply::Made(made(chart)))
    }

    fn make(
        &self,
        mut chart: Chart,
        making: &Making,
        find: impl Fn(&Chart, &str) -> Option<Part>,
        named: impl Fn(&str) -> String,
    ) -> Result<Reply, Unread> {
        let mut used = Vec::new();
        if making.values.are_any() {
            let values = Values { files: &making.values, memory: self.limits.values_memory };
            used = values.put_into(&mut chart, find, named)?;
        }
        if let Some(build) = &making.build_metadata {
            chart.set_build_metadata(build)?;
        }
        let (mut file, unpacked_bytes) = package(&chart, self.limits, self.folder, self.stop)?;
        self.bring(&mut file)?;
        Ok(Reply::Made(Made { is_packaged: true, values: used, unpacked_bytes, ..made(&chart) }))
    }
}

fn made(chart: &Chart) -> Made {
    Made {
        name: chart.metadata.name.clone(),
        version: chart.metadata.version.clone(),
        is_packaged: false,
        values: Vec::new(),
        files: chart.files.len(),
        unpacked_bytes: chart.files.values().map(Content::size).sum(),
        signer: None,
    }
}
