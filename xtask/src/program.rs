//! `cargo xtask test-program`: what cargo starts each test program by, so that those that mostly wait get more threads.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// Packages whose tests mostly wait, for other processes and for deadlines.
const WAITING: [&str; 2] = ["roadstead-tests", "roadstead-hub-api"];
/// Their threads for each core.
const THREADS: usize = 3;
/// By which libtest is told how many tests it runs side by side.
const VARIABLE: &str = "RUST_TEST_THREADS";

/// cargo's option that has it start test programs by the xtask in the folder with built programs. The file of the one that
/// runs may be another by now: building tests can build it again.
pub(crate) fn option(programs: &Path) -> Result<[OsString; 2]> {
    let own = programs.join("xtask");
    let own = own.to_str().with_context(|| format!("{} is not UTF-8", own.display()))?;
    // A string of TOML, as Rust quotes it: paths have no control characters.
    Ok(["--config".into(), format!("target.'cfg(all())'.runner=[{own:?}, \"test-program\"]").into()])
}

/// Becomes a test program. cargo says in a variable whose package it is.
///
/// # Errors
/// Where it cannot be started.
pub(crate) fn run(program: &Path, arguments: &[OsString]) -> Result<Infallible> {
    let mut command = Command::new(program);
    command.args(arguments);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    if let Some(threads) = threads(&package, std::env::var_os(VARIABLE).is_some()) {
        command.env(VARIABLE, threads.to_string());
    }
    Err(command.exec()).with_context(|| format!("start {}", program.display()))
}

/// How many threads a package's tests have; libtest's own choice, or the caller's, if `None`.
fn threads(package: &str, is_said: bool) -> Option<usize> {
    (WAITING.contains(&package) && !is_said)
        .then(|| std::thread::available_parallelism().map_or(2, usize::from) * THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_wait_have_more_threads_and_only_where_nobody_says_how_many() {
        for package in WAITING {
            assert!(threads(package, false).is_some_and(|threads| threads >= THREADS));
            assert_eq!(threads(package, true), None);
        }
        assert_eq!(threads("roadstead-kustomize", false), None);
    }
}
