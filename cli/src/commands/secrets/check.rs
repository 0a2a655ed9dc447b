//! `roadstead secrets check`.

mod files;
mod manifests;
mod rules;

use std::path::PathBuf;

use anyhow::{Result, bail};
use roadstead_sops::{Error, Format, GroupResult, Inspection, KeyResult, KeyRing, Limits, inspect};
use serde::Serialize;

use super::keys::{Keys, OpenKeys};
use crate::output;

/// Check the encrypted files of a directory, and look for secrets that are not encrypted
///
/// Reports which keys open which files, files that were changed after they were encrypted, values
/// that should be encrypted and are not (or the reverse), Secrets in plain text, and rules of
/// .sops.yaml that match no file.
///
/// Exits with 1 if there is a problem. Without keys, only what needs none is checked. Key services
/// are asked where there are credentials for them, as `roadstead secrets decrypt` does.
///
/// Examples:
///   roadstead secrets check .
///   roadstead secrets check --key keys/prod.agekey --key sops.asc clusters/prod
///   roadstead secrets check -o json . | jq '.findings[] | select(.level == "problem")'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Check {
    /// The directory
    #[arg(default_value = ".", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,

    /// The output format (a line for each finding where it is left out)
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<output::Format>,

    #[command(flatten)]
    keys: Keys,
}

/// What was found.
#[derive(Default, Serialize)]
struct Report {
    findings: Vec<Finding>,
    /// Encrypted files.
    encrypted: usize,
    /// Those of them that the given keys opened.
    opened: usize,
    problems: usize,
}

#[derive(Serialize)]
struct Finding {
    level: Level,
    path: String,
    message: String,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Note,
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

impl Report {
    fn fine(&mut self, path: &str, what: &str) {
        self.add(Level::Ok, path, what);
    }

    fn note(&mut self, path: &str, what: &str) {
        self.add(Level::Note, path, what);
    }

    fn problem(&mut self, path: &str, what: &str) {
        self.problems += 1;
        self.add(Level::Problem, path, what);
    }

    fn add(&mut self, level: Level, path: &str, what: &str) {
        self.findings.push(Finding { level, path: path.to_owned(), message: what.to_owned() });
    }

    fn text(&self, format: Option<output::Format>) -> Result<String> {
        match format {
            Some(format) => format.text(self),
            None => Ok(self.lines()),
        }
    }

    fn lines(&self) -> String {
        let line = |found: &Finding| {
            let Finding { level, path, message } = found;
            // A path is untrusted: a terminal does what control characters say.
            format!("{}: {}: {message}\n", level.name(), path.escape_debug())
        };
        self.findings.iter().map(line).collect()
    }
}

impl Check {
    pub(crate) fn run(self) -> Result<()> {
        let keys = self.keys.open()?;
        let with_keys = keys.any();
        let limits = Limits::default();
        let listed = files::list(&self.dir)?;
        let mut report = Report::default();
        for path in &listed.skipped {
            report.note(path, "not checked: it is too large or cannot be read");
        }
        for path in &listed.files {
            let Some(bytes) = files::read(&self.dir, path, limits.file_bytes) else {
                report.note(path, "not checked: it is too large or cannot be read");
                continue;
            };
            check_file(path, &bytes, &limits, with_keys.then_some(&keys), &mut report);
        }
        rules::check(&self.dir, &listed.files, &mut report);
        output::print(report.text(self.output)?.as_bytes())?;
        let Report { encrypted, opened, problems, .. } = report;
        let opened = if with_keys {
            format!("{encrypted} encrypted files, {opened} of them opened")
        } else {
            format!("{encrypted} encrypted files")
        };
        if problems > 0 {
            bail!("{opened}, {problems} problems");
        }
        if self.output.is_none() {
            output::print(format!("{opened}, no problems\n").as_bytes())?;
        }
        Ok(())
    }
}

fn check_file(path: &str, bytes: &[u8], limits: &Limits, keys: Option<&OpenKeys>, report: &mut Report) {
    let format = Format::of_name(path.rsplit('/').next().unwrap_or(path));
    if !looks_encrypted(bytes, format) {
        manifests::plain(path, bytes, format, report);
        return;
    }
    let inspected = match keys {
        Some(keys) => inspect(bytes, format, limits, &keys.for_file()),
        None => inspect(bytes, format, limits, &KeyRing::default()),
    };
    match inspected {
        Ok(found) => {
            report.encrypted += 1;
            describe(path, &found, keys.is_some(), report);
            manifests::encrypted(path, bytes, format, report);
        }
        Err(Error::NotEncrypted { .. }) => {
            if contains(bytes, b"ENC[AES256_GCM,data:") {
                report.problem(
                    path,
                    "it contains encrypted values, but has no sops metadata: they cannot be decrypted",
                );
            }
            manifests::plain(path, bytes, format, report);
        }
        // A text that mentions SOPS was not necessarily encrypted with it.
        Err(_) if format == Format::Binary => {}
        Err(error) => report.problem(path, &error.to_string()),
    }
}

fn describe(path: &str, found: &Inspection, with_keys: bool, report: &mut Report) {
    if !with_keys {
        report.fine(path, &format!("encrypted for {}", recipients(&found.groups)));
        if !found.metadata.has_mac() {
            report.problem(
                path,
                "the file has no MAC, so changes to it cannot be detected: encrypt it again with sops",
            );
        }
        return;
    }
    if let Err(error) = &found.key {
        let failed = |result: &KeyResult| matches!(result, KeyResult::Failed(_));
        if found.groups.iter().flat_map(|group| &group.keys).any(|(_, _, result)| failed(result)) {
            report.problem(path, &error.to_string());
        } else {
            // Someone else may have it.
            report.note(path, &format!("not opened: {error}"));
        }
        return;
    }
    report.opened += 1;
    let before = report.problems;
    if let Some(error) = &found.value {
        report.problem(path, &error.to_string());
    } else if let Some(problem) = &found.mac {
        report.problem(path, &problem.to_string());
    }
    for place in &found.misplaced {
        report.problem(path, &format!("the value at {place} is encrypted, but the rules of the file say that it is not: it is never decrypted"));
    }
    if report.problems == before {
        report.fine(path, &format!("opened by {}", opened_by(&found.groups)));
    }
}

fn recipients(groups: &[GroupResult]) -> String {
    list(groups.iter().flat_map(|group| &group.keys).map(|(kind, id, _)| format!("{kind} {id}")))
}

fn opened_by(groups: &[GroupResult]) -> String {
    let opened =
        groups.iter().flat_map(|group| &group.keys).filter(|(_, _, result)| *result == KeyResult::Opened);
    list(opened.map(|(kind, id, _)| format!("{kind} {id}")))
}

fn list(names: impl Iterator<Item = String>) -> String {
    /// Of a file for very many.
    const SHOWN: usize = 8;
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Has a file what every encrypted file of its format has?
fn looks_encrypted(bytes: &[u8], format: Format) -> bool {
    let metadata: &[u8] = match format {
        Format::Dotenv => b"sops_",
        Format::Ini => b"[sops]",
        Format::Yaml => b"sops",
        Format::Json | Format::Binary => b"\"sops\"",
    };
    let values = contains(bytes, b"ENC[AES256_GCM,data:");
    // Anything may stand in a file of another name; only whole files count.
    let object = format != Format::Binary || bytes.trim_ascii_start().starts_with(b"{");
    object
        && (contains(bytes, metadata) && (values || contains(bytes, b"lastmodified"))
            || values && format != Format::Binary)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
