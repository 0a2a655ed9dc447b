//! What is in an artifact, whoever packed it.

use std::fmt;
use std::io::Read as _;

use anyhow::{Context as _, Result};
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What of an artifact is to be the same on both sides.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A tar, byte for byte: its digest, and for people its entries.
    Tar(String, Vec<String>),
    /// The files of a chart, which nobody addresses by the bytes of their archive.
    Chart(Vec<String>),
    /// An index of a Helm repository.
    Index(Value),
    /// Anything else, byte for byte.
    Bytes(String),
}

impl Content {
    pub(super) fn of(kind: &str, bytes: &[u8]) -> Result<Self> {
        if kind == "HelmRepository" {
            return serde_json::from_slice(bytes).map(Self::Index).context("read an index");
        }
        let mut tar = Vec::new();
        if MultiGzDecoder::new(bytes).read_to_end(&mut tar).is_err() {
            return Ok(Self::Bytes(sha256(bytes)));
        }
        let mut entries = Vec::new();
        for entry in tar::Archive::new(tar.as_slice()).entries()? {
            let mut entry = entry?;
            let (path, mode) = (entry.path()?.display().to_string(), entry.header().mode()?);
            let (kind_of, mut content) = (entry.header().entry_type(), Vec::new());
            entry.read_to_end(&mut content)?;
            if kind == "HelmChart" {
                entries.push(format!("{path} {}", sha256(&content)));
            } else {
                entries.push(format!("{path} {kind_of:?} {mode:o} {}", sha256(&content)));
            }
        }
        if kind == "HelmChart" {
            entries.sort_unstable();
            return Ok(Self::Chart(entries));
        }
        Ok(Self::Tar(sha256(&tar), entries))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tar(digest, entries) => write!(out, "{digest} {}", entries.join(", ")),
            Self::Chart(entries) => write!(out, "{}", entries.join(", ")),
            Self::Index(index) => write!(out, "{index}"),
            Self::Bytes(digest) => write!(out, "{digest}"),
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
