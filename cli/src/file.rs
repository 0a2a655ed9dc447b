//! Files that a command line names.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Reads a file of so many bytes at most.
pub(crate) fn read(file: &Path, limit: usize) -> Result<Vec<u8>> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let opened = std::fs::File::open(file).with_context(|| format!("cannot read {name:?}"))?;
    opened.take(most).read_to_end(&mut bytes).with_context(|| format!("cannot read {name:?}"))?;
    if bytes.len() > limit {
        bail!("{name:?} has more than {limit} bytes");
    }
    Ok(bytes)
}
