//! Writing to standard output and standard error without a panic where nobody listens.

use std::io::{self, Write as _};

/// How objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Yaml,
    Json,
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
