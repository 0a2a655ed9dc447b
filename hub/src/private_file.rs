//! Files that only their owner may read: keys and kubeconfigs.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Writes a file with mode 0600. Whoever looks for it finds it whole or not at all, also after a crash.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let fresh = path.with_extension("new");
    // One that lies there already, from a crash or from someone else, may be open to others, or be a link.
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("take {} away", fresh.display()));
        }
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .with_context(|| format!("make {}", fresh.display()))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .with_context(|| format!("write {}", fresh.display()))?;
    std::fs::rename(&fresh, path).with_context(|| format!("put {} in place", path.display()))
}
