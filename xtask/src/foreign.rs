//! The foreign programs that tests drive: each is installed once for each of its versions, by a script of its own in `tests/`, which
//! prints the folder that holds it. The first time takes minutes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::phases::Phases;
use crate::process::Runner;
use crate::tool;

/// A foreign program, or several.
struct Foreign {
    /// What tests find its folder by.
    variable: &'static str,
    /// The folder of `tests/` with its script.
    folder: &'static str,
    /// What is said while it is installed.
    name: &'static str,
}

/// What measurements take, too: the OpenID provider where people ask, and the clients where sources are fetched.
const OIDC: Foreign =
    Foreign { variable: "ROADSTEAD_TEST_OIDC", folder: "oidc", name: "install the OpenID provider" };
const CLIENTS: Foreign =
    Foreign { variable: "ROADSTEAD_TEST_CLIENTS", folder: "clients", name: "install foreign clients" };

const ALL: [Foreign; 6] = [
    CLIENTS,
    Foreign { variable: "ROADSTEAD_TEST_FLUX", folder: "flux", name: "build Flux's controllers" },
    Foreign { variable: "ROADSTEAD_TEST_HELM", folder: "helm", name: "build helm" },
    Foreign { variable: "ROADSTEAD_TEST_KUBELOGIN", folder: "kubelogin", name: "build kubelogin" },
    Foreign { variable: "ROADSTEAD_TEST_NATS", folder: "nats", name: "build nats-server" },
    OIDC,
];

impl Foreign {
    fn install(&self, root: &Path, runner: &Runner, phases: &mut Phases) -> Result<PathBuf> {
        let script = root.join("tests").join(self.folder).join("install.sh");
        let install = || runner.capture(&mut Command::new(script)).context(self.name);
        Ok(PathBuf::from(phases.time(runner, self.name, install)?))
    }
}

/// Installs all that are not in the cache, and gives the variables by which tests find them.
pub(crate) fn install(
    root: &Path,
    runner: &Runner,
    phases: &mut Phases,
) -> Result<Vec<(&'static str, OsString)>> {
    let mut variables = Vec::with_capacity(ALL.len() + 1);
    for foreign in &ALL {
        variables.push((foreign.variable, foreign.install(root, runner, phases)?.into()));
    }
    variables.push(("ROADSTEAD_TEST_PROMETHEUS", tool::prometheus()?.into()));
    Ok(variables)
}

/// Installs those that a part of the bench takes, or all of it where none is named.
pub(crate) fn install_for_bench(
    root: &Path,
    runner: &Runner,
    phases: &mut Phases,
    part: Option<&str>,
) -> Result<Vec<(&'static str, OsString)>> {
    let taken = [(&["rights"][..], OIDC), (&["sources", "secrets"], CLIENTS)];
    let taken = taken.into_iter().filter(|(of, _)| part.is_none_or(|part| of.contains(&part)));
    taken.map(|(_, foreign)| Ok((foreign.variable, foreign.install(root, runner, phases)?.into()))).collect()
}
