//! The commands, one module each.

mod audit;
mod build;
mod cluster;
mod completion;
mod confirm;
mod login;
mod secrets;
mod source;
mod support;
mod token;
mod version;

/// GitOps for fleets of Kubernetes clusters.
#[derive(Debug, clap::Parser)]
#[command(
    name = "roadstead",
    disable_version_flag = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Audit(audit::Audit),
    Build(build::Build),
    Cluster(cluster::Cluster),
    Completion(completion::Completion),
    Confirm(confirm::Confirm),
    Login(login::Login),
    Logout(login::Logout),
    Secrets(secrets::Secrets),
    Source(source::Source),
    SupportBundle(support::SupportBundle),
    Token(token::Token),
    Version(version::Version),
}

pub(crate) use login::{cache_of_exec, cached_token};

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Audit(command) => command.run(),
            Command::Build(command) => command.run(),
            Command::Cluster(command) => command.run(),
            Command::Completion(command) => command.run(),
            Command::Confirm(command) => command.run(),
            Command::Login(command) => command.run(),
            Command::Logout(command) => command.run(),
            Command::Secrets(command) => command.run(),
            Command::Source(command) => command.run(),
            Command::SupportBundle(command) => command.run(),
            Command::Token(command) => command.run(),
            Command::Version(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
