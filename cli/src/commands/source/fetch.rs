//! `roadstead source fetch`.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roadstead_sources::{FetchError, Fetched, InProcess, Outcome, Source};
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use super::asked::Asked;
use super::told::Told;
use crate::output::{self, Format};

/// Whoever waits is told what for after this long,
const QUIET: Duration = Duration::from_secs(1);
/// and then this often.
const AGAIN: Duration = Duration::from_secs(5);

/// Fetch a source as the hub does, within the same bounds, and say what it holds
///
/// A URL that begins with oci:// is that of an OCI repository, another one that of a Git
/// repository; --kind helm says that it is that of a Helm repository, of which the index is
/// fetched. Connections go to the public internet and to the host in the URL, wherever that
/// is; redirects to other private addresses are refused.
///
/// Passwords come from files or from the variable ROADSTEAD_SOURCE_PASSWORD: a command line
/// shows in the process list.
///
/// Examples:
///   roadstead source fetch https://git.example.com/webapp.git --branch main
///   roadstead source fetch ssh://git@git.corp/app --ssh-key-file id --known-hosts-file hosts
///   roadstead source fetch oci://ghcr.io/org/app --semver '>=1.0.0' --artifact app.tar.gz
///   roadstead source fetch https://charts.example.com --kind helm -o yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Fetch {
    #[command(flatten)]
    asked: Asked,

    /// Write the artifact to this file: a tar.gz, of a Helm repository its index
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    artifact: Option<PathBuf>,

    /// Print what was found in this format, for programs
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

impl Fetch {
    pub(crate) fn run(self) -> Result<()> {
        crate::tls::install();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (kind, fetched, url) = runtime.block_on(async {
            let source = self.asked.source().await?;
            let fetched = fetch(source.as_ref(), self.asked.timeout()).await?;
            anyhow::Ok((self.asked.kind()?, fetched, source.shown_url()))
        })?;
        if let Some(file) = &self.artifact {
            let attempt = || format!("cannot write {:?}", file.display().to_string());
            std::fs::write(file, &fetched.artifact.bytes).with_context(attempt)?;
        }
        let told = Told::of(kind, &url, &fetched);
        for warning in &told.warnings {
            output::warning(warning);
        }
        Ok(output::print(told.text(self.output)?.as_bytes())?)
    }
}

/// Fetches, and says so where it takes longer; ends soon after a Ctrl-C, with nothing left behind.
async fn fetch(source: &dyn Source, timeout: Duration) -> Result<Fetched> {
    let (engine, stop, url) = (InProcess::default(), CancellationToken::new(), source.shown_url());
    let started = Instant::now();
    let mut again = interval_at(started + QUIET, AGAIN);
    let mut fetching = pin!(source.fetch(None, &engine, &stop));
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut fetching => break outcome,
            _ = &mut interrupted, if !stop.is_cancelled() => stop.cancel(),
            _ = again.tick() => {
                let elapsed = started.elapsed().as_secs();
                output::progress(&format!("fetching {url}: {elapsed}s of {}s", timeout.as_secs()));
            }
        }
    };
    match outcome {
        Ok(Outcome::Fetched(fetched)) => Ok(*fetched),
        Ok(Outcome::Unchanged(revision)) => bail!("{url} reports {revision} as unchanged and sent nothing"),
        Err(failed) => Err(explained(&failed.error)),
    }
}

/// The hub's words, and which flags stand here for what they name.
fn explained(error: &FetchError) -> anyhow::Error {
    let mut text = error.to_string();
    if ["spec.", "known_hosts", "file://"].iter().any(|word| text.contains(word)) {
        text.push_str(
            "\nhint: in the place of a Secret, --username, --password-file, --bearer-token-file, --ca-file, --ssh-key-file and \
             --known-hosts-file say it here",
        );
    }
    if text.contains("start the hub with") {
        text.push_str("\nhint: this command takes that flag, too");
    }
    anyhow::Error::msg(text)
}
