//! `cargo xtask stand up|env|down`: servers that stay between runs, so that one test takes as long as the test does.
//!
//! ```sh
//! cargo xtask stand up                    # once; again after a change of what tests start: hub, agent, Git server
//! eval "$(cargo xtask stand env)"
//! cargo test --workspace --test e2e -- pipeline
//! cargo xtask stand down
//! ```
//!
//! It is one for all checkouts that share a cache; `cargo xtask test` leaves it alone, and has servers of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use roadstead_devpostgres::PrivatePostgres;

use super::{Purpose, Stand};
use crate::cache;
use crate::devcluster::Devcluster;
use crate::foreign;
use crate::landed;
use crate::phases::Phases;
use crate::process::Runner;
use crate::web;

/// Its id among the records of runs.
pub(super) const ID: &str = "kept";
/// The file of its record with what [`env`] prints.
const VARIABLES: &str = "env";

/// Starts it, or what of it does not run, and builds the programs that tests start.
pub(crate) fn up(root: &Path, runner: &Runner) -> Result<()> {
    roadstead_devpostgres::check_installed()?;
    let mut phases = Phases::default();
    let cluster = phases.time(runner, "build the development cluster", || Devcluster::build(root, runner))?;
    let foreign = foreign::install(root, runner, &mut phases)?;
    phases.time(runner, "build the dashboard", || web::build(root, runner))?;
    phases.time(runner, "build programs", || runner.run(&mut cache::build_programs(root)))?;
    let landed =
        phases.time(runner, "build the agent of the last landed version", || landed::agent(root, runner))?;
    let stand = match find()? {
        Some(stand) => stand,
        None => Stand::named(ID.to_owned())?,
    };
    // A restart of the machine empties the folder for temporary files.
    roadstead_devpostgres::create_state_parent(&stand.folder)?;
    let servers = stand.start(runner, &cluster, &mut phases, Purpose::Tests)?;
    let mut variables = servers.variables(&cache::target(root)?.join("debug"));
    variables.extend(foreign.into_iter().map(|(name, value)| (name.to_owned(), value)));
    variables.push(("ROADSTEAD_TEST_LANDED_AGENT".to_owned(), landed.into()));
    let text: String = variables.iter().map(|(name, value)| export(name, value)).collect::<Result<_>>()?;
    let file = stand.record.join(VARIABLES);
    std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    phases.print();
    eprintln!(
        "\nThe stand is up. To run tests against it:\n\n  eval \"$(cargo xtask stand env)\"\n  \
         cargo test --workspace --test e2e -- PART-OF-A-NAME\n\n`cargo xtask stand down` ends it."
    );
    Ok(())
}

/// Prints the variables as lines for a shell.
pub(crate) fn env() -> Result<()> {
    let stand = existing()?;
    let text = std::fs::read_to_string(stand.record.join(VARIABLES)).unwrap_or_default();
    let postgres = PrivatePostgres::find(&stand.folder.join("postgres"));
    if text.is_empty() || !matches!(postgres, Ok(Some(_))) {
        bail!("the stand does not run: start it by `cargo xtask stand up`");
    }
    print!("{text}");
    Ok(())
}

/// Ends and removes it.
pub(crate) fn down(root: &Path, runner: &Runner) -> Result<()> {
    let stand = existing()?;
    stand.take_down(runner, &Devcluster::build(root, runner)?)
}

fn existing() -> Result<Stand> {
    find()?.context("there is no stand: start one by `cargo xtask stand up`")
}

/// The stand, where one was started.
fn find() -> Result<Option<Stand>> {
    let record: PathBuf = cache::folder("test-runs")?.join(ID);
    if !record.is_dir() {
        return Ok(None);
    }
    let stand = Stand::left(record)?.context("another `cargo xtask stand` is at work")?;
    if stand.folder.as_os_str().is_empty() {
        // One that was killed before it had made anything.
        std::fs::remove_dir_all(&stand.record).context("remove the record of a stand that never was")?;
        return Ok(None);
    }
    Ok(Some(stand))
}

/// A line that sets a variable in a shell of POSIX.
fn export(name: &str, value: &OsString) -> Result<String> {
    let value = value.to_str().with_context(|| format!("{name} is not UTF-8"))?;
    Ok(format!("export {name}='{}'\n", value.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_is_exported() {
        let value = "it's $HOME \"`x`\" \\ and more";
        let script = format!("{}printf %s \"$NAME\"", export("NAME", &value.into()).unwrap());
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
    }
}
