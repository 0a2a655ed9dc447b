//! Keys that were named on the command line.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use roadstead_sops::KeyRing;
use zeroize::Zeroizing;

/// Bytes of one file.
const KEY_BYTES: usize = 1 << 20;

/// Where the keys are.
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    /// A key, in a file that is named as an entry of a decryption Secret is: *.agekey (age identities) or *.asc (OpenPGP
    /// keys); or an SSH private key. May be given several times
    #[arg(long = "key", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

impl Keys {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn read(&self) -> Result<KeyRing> {
        let mut ring = KeyRing::default();
        for file in &self.files {
            let shown = file.display().to_string();
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let bytes = Zeroizing::new(super::read(file, KEY_BYTES)?);
            let known = ring.add(name, &bytes).map_err(|error| anyhow::anyhow!("[no-key] {error}"))?;
            if known {
                continue;
            }
            if !KeyRing::is_ssh(&bytes) {
                bail!(
                    "[no-key] {shown:?} is not a known kind of key: its name must end in .agekey or .asc, or it must be an SSH private key"
                );
            }
            ring.add_ssh(name, &bytes).map_err(|error| anyhow::anyhow!("[no-key] {error}")).context(shown)?;
        }
        Ok(ring)
    }
}
