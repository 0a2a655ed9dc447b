//! What the test run gives to every test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// A variable that `cargo xtask test` sets. A test without it fails: one that is left out silently proves nothing.
pub(crate) fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| {
        format!("{name} is not set: run the tests by `cargo xtask test -- -p roadstead-tests`")
    })
}

/// The built program `name`.
///
/// # Errors
/// When the run says no folder, or the program is not in it.
pub fn binary(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(variable("ROADSTEAD_TEST_BIN_DIR")?).join(name);
    if !path.is_file() {
        bail!("{} is not built", path.display());
    }
    Ok(path)
}

/// The agent's program of the last landed version.
///
/// # Errors
/// When the run says none.
pub fn landed_agent() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_LANDED_AGENT")?))
}

/// The folder with foreign parts: `bin/flux`, `bin/registry`, `bin/sops`, `python/bin/python`, `stores/bin/moto_server`, `azurite`, and
/// `cluster-api/clusters.yaml`.
///
/// # Errors
/// When the run says none.
pub fn clients() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_CLIENTS")?))
}

/// The folder with Flux's controllers: `bin/kustomize-controller` and `bin/source-controller`, and `crds.yaml`.
///
/// # Errors
/// When the run says none.
pub(crate) fn flux() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_FLUX")?))
}

/// The real helm.
///
/// # Errors
/// When the run says none.
pub(crate) fn helm() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_HELM")?).join("bin/helm"))
}

/// The real kubelogin, a plugin of kubectl for signing in.
///
/// # Errors
/// When the run says none.
pub fn kubelogin() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_KUBELOGIN")?).join("bin/kubelogin"))
}

/// The folder with the modules of an OpenID provider.
///
/// # Errors
/// When the run says none.
pub(crate) fn oidc() -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_OIDC")?))
}

/// The browser of those tests that look at pages.
///
/// # Errors
/// When there is none.
pub fn chromium() -> Result<String> {
    if let Ok(path) = std::env::var("ROADSTEAD_TEST_CHROMIUM") {
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|path| path.is_file())
        .map(|path| path.to_string_lossy().into_owned())
        .context("there is no Chromium in PATH: `make tools` installs it, ROADSTEAD_TEST_CHROMIUM names another one")
}

/// A program of Prometheus: `prometheus` or `promtool`.
///
/// # Errors
/// When the run says none.
pub fn prometheus(program: &str) -> Result<PathBuf> {
    Ok(PathBuf::from(variable("ROADSTEAD_TEST_PROMETHEUS")?).join(program))
}

/// A temporary folder that the user of a private Postgres can pass through, also when root runs the tests.
///
/// # Errors
/// When it cannot be made.
pub fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("roadstead-test-").tempdir().context("make a folder")?;
    let mode = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), mode).context("set a folder's mode")?;
    Ok(folder)
}
