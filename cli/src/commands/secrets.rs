//! `roadstead secrets`: files that were encrypted with SOPS.

mod check;
mod decrypt;
mod keys;

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use roadstead_sops::{Error, Format};

/// Work with files that are encrypted with SOPS
#[derive(Debug, clap::Args)]
pub(crate) struct Secrets {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Check(check::Check),
    Decrypt(decrypt::Decrypt),
}

impl Secrets {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Check(command) => command.run(),
            Command::Decrypt(command) => command.run(),
        }
    }
}

/// A format of files, by the name that SOPS has for it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormatName {
    Yaml,
    Json,
    Dotenv,
    Ini,
    Binary,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Yaml => Self::Yaml,
            FormatName::Json => Self::Json,
            FormatName::Dotenv => Self::Dotenv,
            FormatName::Ini => Self::Ini,
            FormatName::Binary => Self::Binary,
        }
    }
}

/// Reads a file of so many bytes at most.
fn read(file: &Path, limit: usize) -> Result<Vec<u8>> {
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

/// An error with its class before it, which a program can go by.
fn classified(error: &Error, message: &str) -> anyhow::Error {
    anyhow::anyhow!("[{}] {message}", error.class())
}
