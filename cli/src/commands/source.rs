//! `roadstead source`: what the hub would fetch, tried on this machine.

mod asked;
mod fetch;
mod told;

use anyhow::Result;

/// Try sources without a hub
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Fetch(fetch::Fetch),
}

impl Source {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Command::Fetch(command) => command.run(),
        }
    }
}
