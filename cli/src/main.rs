//! `roadstead`: the command a person types.

mod commands;
mod disk;
mod file;
mod hub;
mod input;
mod output;
mod tls;

use std::process::ExitCode;

use clap::Parser as _;

use commands::Cli;

/// 0 on success, 1 on failure (as kubectl); clap itself exits with 2 on a wrong command line, which becomes 1 here too.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap, on standard output and with success. A closed pipe is not news.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}
