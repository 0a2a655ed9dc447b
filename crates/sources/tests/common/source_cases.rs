//! The cases beside the repository (`../shared/source-cases`), unpacked in memory.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::read::GzDecoder;

/// The archive's files by their names. Where `../shared` is not there, it is said that `what` is not tested.
pub(crate) fn source_cases(what: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if !shared.exists() {
        say(format_args!(
            "NOT TESTED: {} is not there, so the cases of {what} are left out",
            shared.display()
        ));
        return None;
    }
    let archive = std::fs::File::open(shared.join("source-cases/source-cases.tar.gz")).unwrap();
    let mut all = BTreeMap::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().trim_start_matches("source-cases/").to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        all.insert(name, bytes);
    }
    Some(all)
}

/// A line of the summary: what came of a file of cases.
pub(crate) fn tell(what: Arguments<'_>) {
    say(format_args!("source-cases: {what}"));
}

/// Writes past what captures the output of tests, of which only that of failed ones is shown.
fn say(what: Arguments<'_>) {
    // Where nobody reads it, the cases still count.
    let _ = writeln!(std::io::stderr(), "{what}");
}
