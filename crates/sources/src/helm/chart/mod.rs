//! A chart: what it holds, read from a packed one or from a folder, changed where that is asked for, and packed again.

mod dependencies;
mod folder;
mod helmignore;
mod metadata;
mod package;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) use dependencies::{Adding, Dependency, MOST as MOST_DEPENDENCIES};
pub(super) use folder::{Found, Source};
pub(super) use metadata::{Metadata, check_name, strict_map};
pub(super) use package::package;
pub(super) use values::Values;

use super::request::HelmLimits;
use super::unread::{Stage, Unread};
use crate::tree::{Content, TreeLimits, shown};
use crate::untar::{self, Span};

/// What says which chart it is.
pub(super) const CHART_YAML: &str = "Chart.yaml";
/// What it has of values.
pub(super) const VALUES_YAML: &str = "values.yaml";
/// Bytes of what says which chart it is.
const MOST_METADATA: u64 = 1 << 20;

/// What a file holds.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// It lies there.
    Lies(Arc<File>, Span),
    /// It was made.
    Made(Vec<u8>),
}

impl Content for Part {
    fn size(&self) -> u64 {
        match self {
            Self::Lies(_, span) => span.size,
            Self::Made(bytes) => bytes.len() as u64,
        }
    }
}

impl Part {
    pub(super) fn read(&self) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::Lies(file, span) => untar::read(file, span).map(Cow::Owned),
            Self::Made(bytes) => Ok(Cow::Borrowed(bytes)),
        }
    }
}

/// A chart: its files by their paths in it.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) files: BTreeMap<String, Part>,
    pub(super) metadata: Metadata,
}

impl Chart {
    /// Reads a packed chart, with `folder` for its content.
    pub(super) fn unpack(
        archive: impl Read,
        limits: &HelmLimits,
        folder: &Path,
        stop: &AtomicBool,
        stage: Stage,
    ) -> Result<Self, Unread> {
        let unpacked = untar::unpack(archive, &limits.chart, folder, stop)
            .map_err(|error| Unread::of_archive(stage, error))?;
        let contents = Arc::new(unpacked.contents);
        let mut files = BTreeMap::new();
        for (path, span) in unpacked.files {
            // All of it is in one folder, whatever that is called.
            let Some((_, path)) = path.split_once('/') else {
                let why = format!(
                    "chart illegally contains content outside the base directory: `{}`",
                    shown(&path)
                );
                return Err(Unread::Failed(stage, why));
            };
            crate::tree::check_path(path, &limits.chart).map_err(|error| Unread::of_tree(stage, error))?;
            if span.size > limits.chart.file_bytes {
                return Err(too_large(&limits.chart, path));
            }
            files.insert(path.to_owned(), Part::Lies(Arc::clone(&contents), span));
        }
        Self::of(files, stage)
    }

    /// The chart that these files are.
    fn of(files: BTreeMap<String, Part>, stage: Stage) -> Result<Self, Unread> {
        let Some(part) = files.get(CHART_YAML) else {
            return Err(Unread::Failed(stage, format!("{CHART_YAML} file is missing")));
        };
        let metadata = Metadata::read(part).map_err(|unread| match unread {
            NotRead::Bad(why) => Unread::Failed(stage, why),
            NotRead::Here(error) => Unread::internal(&error),
        })?;
        Ok(Self { files, metadata })
    }

    /// Gives its version other build metadata.
    pub(super) fn set_build_metadata(&mut self, build: &str) -> Result<(), Unread> {
        let text = self.metadata.with_build(build).map_err(|why| Unread::Failed(Stage::Metadata, why))?;
        self.files.insert(CHART_YAML.to_owned(), Part::Made(text.into_bytes()));
        Ok(())
    }
}

/// Why a file is not read.
enum NotRead {
    Bad(String),
    Here(io::Error),
}

fn too_large(limits: &TreeLimits, path: &str) -> Unread {
    let (measure, limit) = (crate::tree::Measure::FileBytes, limits.file_bytes);
    Unread::TooLarge { measure, limit, path: Some(path.to_owned()) }
}

/// A path beneath a root: without `.`, and a `..` at the root stays there.
pub(super) fn clean(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join("/")
}
