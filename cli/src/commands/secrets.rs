//! `roadstead secrets`: files that were encrypted with SOPS.

mod check;
mod decrypt;
mod keys;

use anyhow::Result;
use roadstead_sops::{Error, Format};

use crate::file::read;

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

/// An error with its class before it, which a program can go by.
fn classified(error: &Error, message: &str) -> anyhow::Error {
    anyhow::anyhow!("[{}] {message}", error.class())
}
