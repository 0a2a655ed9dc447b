//! The key that secrets are encrypted with lies in a file, never in the database.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use roadstead_hub_store::Key;

use crate::private_file;

/// A file of this size holds no key of ours.
const MAX_BYTES: u64 = 1024;

/// Reads the key file.
pub(crate) fn read(path: &Path) -> Result<Key> {
    let file = std::fs::File::open(path).with_context(|| {
        format!(
            "open the key file {}; make one with: openssl rand -base64 32 > FILE && chmod 600 FILE",
            path.display()
        )
    })?;
    let metadata = file.metadata().with_context(|| format!("look at {}", path.display()))?;
    let mode = metadata.permissions().mode();
    // What Kubernetes mounts of a Secret is root's, and its fsGroup, which is this process's alone, may read it.
    let is_mounted = metadata.uid() == 0 && !rustix::process::geteuid().is_root() && mode & 0o037 == 0;
    if mode & 0o077 != 0 && !is_mounted {
        bail!(
            "the key file {} can be read by others (mode {:o}): chmod 600 it",
            path.display(),
            mode & 0o777
        );
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(|| format!("read {}", path.display()))?;
    Key::from_base64(text.trim()).with_context(|| format!("read {}: want 32 bytes in base64", path.display()))
}

/// Reads the key file; makes one where there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Key> {
    if path.exists() {
        return read(path);
    }
    let key = Key::generate().context("make a key")?;
    private_file::write(path, key.to_base64().as_bytes())?;
    Ok(key)
}
