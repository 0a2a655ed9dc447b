//! The files of a directory.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// Files of one directory, with those beneath it.
const MOST: usize = 100_000;
/// How deep directories may nest.
const DEPTH: usize = 100;

/// What a directory holds, from it on, with `/`.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) files: Vec<String>,
    pub(super) skipped: Vec<String>,
}

/// Lists the files of a directory and beneath, in order. Links are not followed, and what is Git's is left out.
pub(super) fn list(dir: &Path) -> Result<Listed> {
    let mut listed = Listed::default();
    let mut open = vec![(String::new(), 0)];
    while let Some((inner, depth)) = open.pop() {
        if depth > DEPTH {
            bail!("directories nest more than {DEPTH} levels deep");
        }
        let folder = dir.join(&inner);
        let entries = std::fs::read_dir(&folder);
        let entries = match entries {
            Err(_) if depth > 0 => {
                listed.skipped.push(inner);
                continue;
            }
            entries => entries.with_context(|| format!("cannot read {:?}", folder.display().to_string()))?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if inner.is_empty() { name.clone() } else { format!("{inner}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && name != ".git" {
                open.push((path, depth + 1));
            } else if kind.is_file() {
                listed.files.push(path);
            }
            if listed.files.len() > MOST {
                bail!("there are more than {MOST} files");
            }
        }
    }
    listed.files.sort();
    Ok(listed)
}

/// The bytes of a file; none where it has more than that or cannot be read.
pub(super) fn read(dir: &Path, path: &str, limit: usize) -> Option<Vec<u8>> {
    crate::commands::secrets::read(&dir.join(path), limit).ok()
}
