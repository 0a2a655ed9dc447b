//! Programs whose clock is off: libfaketime tells them another time of the day, and leaves alone what they wait by.

use anyhow::{Context, Result};

/// The environment of a program whose clock is off by `shift`, as `+3600s` or `-25h`.
///
/// # Errors
/// When libfaketime is not installed.
pub fn shifted(shift: &str) -> Result<[(&'static str, String); 3]> {
    let places = ["/usr/lib", "/usr/lib64"].map(std::fs::read_dir);
    let folders = places.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    let library = folders
        .chain(["/usr/lib".into(), "/usr/lib64".into()])
        .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.is_file())
        .context("libfaketime is not installed: make tools")?;
    let library = library.to_str().context("a path in UTF-8")?.to_owned();
    Ok([
        ("LD_PRELOAD", library),
        ("FAKETIME", shift.to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ])
}
