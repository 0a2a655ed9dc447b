//! `roadstead version`.

use crate::output;

/// Print the version of this command.
#[derive(Debug, clap::Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        output::print(concat!("roadstead ", env!("CARGO_PKG_VERSION"), "\n").as_bytes())?;
        Ok(())
    }
}
