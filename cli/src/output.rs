//! Writing to standard output and standard error without a panic where nobody listens.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Yaml,
    Json,
}

impl Format {
    /// A value as a document of this format, with a line break at its end.
    pub(crate) fn text(self, value: &impl Serialize) -> Result<String> {
        let text = match self {
            Self::Json => serde_json::to_string_pretty(value).context("write JSON")?,
            Self::Yaml => serde_saphyr::to_string(value).context("write YAML")?,
        };
        Ok(format!("{}\n", text.trim_end()))
    }
}

/// Writes to standard output.
pub(crate) fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Says what went wrong.
pub(crate) fn error(error: &anyhow::Error) {
    // Nothing is left to do if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "error: {error:#}");
}

/// Says what may surprise.
pub(crate) fn warning(text: &str) {
    // Nothing is left to do if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "warning: {text}");
}

/// Says how far it is, where that takes a while.
pub(crate) fn progress(text: &str) {
    // Nothing is left to do if standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Did the reader of our output go away? `roadstead build . | head` is not a failure.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
