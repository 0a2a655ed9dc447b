//! Writing an index in its one form: charts by name, the versions of each from the newest on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Item;
use crate::helm::request::HelmLimits;
use crate::helm::unread::Unread;
use crate::tree::Measure;

/// Writes the index of these charts, of which the versions lie in `parts`.
pub(super) fn write(
    charts: BTreeMap<String, Vec<Item>>,
    parts: &mut File,
    limits: &HelmLimits,
    folder: &Path,
) -> Result<File, Unread> {
    let internal = |error: io::Error| Unread::internal(&error);
    let file = File::options().read(true).write(true).create_new(true).open(folder.join("index"));
    let mut to = BufWriter::new(file.map_err(internal)?);
    to.write_all(b"{\"apiVersion\":\"v1\",\"entries\":{").map_err(internal)?;
    for (number, (chart, versions)) in charts.into_iter().enumerate() {
        let name = serde_json::to_string(&chart).map_err(|error| internal(io::Error::other(error)))?;
        let comma = if number == 0 { "" } else { "," };
        write!(to, "{comma}\n{name}:[").map_err(internal)?;
        write_versions(&mut to, versions, parts).map_err(internal)?;
        to.write_all(b"]").map_err(internal)?;
    }
    to.write_all(b"}}\n").map_err(internal)?;
    let mut file = to.into_inner().map_err(|error| internal(error.into_error()))?;
    let limit = limits.index_artifact_bytes;
    if file.seek(SeekFrom::End(0)).map_err(internal)? > limit {
        return Err(Unread::TooLarge { measure: Measure::ArtifactBytes, limit, path: None });
    }
    Ok(file)
}

fn write_versions(to: &mut impl Write, versions: Vec<Item>, parts: &File) -> io::Result<()> {
    let mut sorted = versions;
    sorted.sort_by(|one, other| {
        let newest = other.version.precedence(&one.version).then_with(|| other.created.cmp(&one.created));
        // Of equal ones that were made at one time the text decides, so that the answer is the same each time.
        newest.then_with(|| other.version.to_string().cmp(&one.version.to_string()))
    });
    for (number, item) in sorted.iter().enumerate() {
        let mut bytes = vec![0; item.size as usize];
        parts.read_exact_at(&mut bytes, item.offset)?;
        to.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        to.write_all(&bytes)?;
    }
    Ok(())
}
