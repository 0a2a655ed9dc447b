//! `roadstead completion`.

use clap::CommandFactory as _;

use crate::output;

/// Print a completion script for a shell.
///
/// For bash: `source <(roadstead completion bash)`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completion {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completion {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut super::Cli::command(), "roadstead", &mut script);
        output::print(&script)?;
        Ok(())
    }
}
