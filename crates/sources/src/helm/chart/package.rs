//! Packing a chart, the same each time: its files by their paths, without times, by this crate's own compression.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Chart, Part};
use crate::artifact::{ArtifactError, pack_to};
use crate::helm::request::HelmLimits;
use crate::helm::unread::{Stage, Unread};
use crate::tree::{Entry, Measure, TreeBuilder, TreeLimits};

/// Packs a chart into a file of `folder`; tells how many bytes its files have.
pub(in crate::helm) fn package(
    chart: &Chart,
    limits: &HelmLimits,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<(File, u64), Unread> {
    let name = &chart.metadata.name;
    // All of it is one folder deeper.
    let beneath = TreeLimits {
        path_bytes: limits.chart.path_bytes + name.len() + 1,
        depth: limits.chart.depth + 1,
        ..limits.chart.clone()
    };
    let mut builder = TreeBuilder::new(beneath);
    let of_tree = |error| Unread::of_tree(Stage::Package, error);
    for (path, part) in &chart.files {
        let file = Entry::File { bytes: part.clone(), executable: false };
        builder.insert(format!("{name}/{path}"), file).map_err(of_tree)?;
    }
    // As helm packs it: folders have no lines.
    let tree = builder.finish_as_told().map_err(of_tree)?;
    let file = File::options().read(true).write(true).create_new(true).open(folder.join("artifact"));
    let file = file.map_err(|error| Unread::internal(&error))?;
    let packed = pack_to(BufWriter::new(file), &tree, |part: &Part| {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("told to stop"));
        }
        part.read()
    });
    let packed = packed.map_err(|error| match error {
        ArtifactError::Pack { path, source } => {
            Unread::Failed(Stage::Package, format!("{}: {source}", crate::tree::shown(&path)))
        }
        other => Unread::Internal(other.to_string()),
    })?;
    let mut file = packed.into_inner().map_err(|error| Unread::internal(error.error()))?;
    let size = file.seek(SeekFrom::End(0)).map_err(|error| Unread::internal(&error))?;
    let limit = limits.chart_bytes;
    if size > limit {
        return Err(Unread::TooLarge { measure: Measure::ChartBytes, limit, path: None });
    }
    Ok((file, tree.bytes()))
}
