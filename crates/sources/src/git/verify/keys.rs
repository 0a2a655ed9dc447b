//! The keys that a user trusts, as the Secret has them.
//!
//! Only what is public leaves the Secret: blocks of OpenPGP public keys, and lines of SSH's. Whatever else it holds goes to no
//! process that reads a repository.

use roadstead_model::Digest;
use serde::{Deserialize, Serialize};

use super::open_pgp::{Over, Payload};
use super::payload::{Format, Signed};
use super::{open_pgp, ssh};

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";

/// Keys of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublicKeys {
    /// Armoured blocks.
    OpenPgp(Vec<String>),
    /// Lines of an `authorized_keys`.
    Ssh(Vec<String>),
}

/// All of them, by the names of their entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedKeys(Vec<(String, PublicKeys)>);

impl TrustedKeys {
    /// Adds an entry of a Secret: `*.sshpub` has SSH keys, any other one OpenPGP keys. One that has none adds nothing.
    pub fn add(&mut self, name: &str, text: &str) {
        let keys = if name.ends_with(".sshpub") {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            // What is not a key stays where it is, and spoils the others as before.
            let public = lines.map(|line| if ssh::is_public(line) { line } else { ssh::NO_KEY });
            let lines: Vec<String> = public.map(str::to_owned).collect();
            (!lines.is_empty()).then_some(PublicKeys::Ssh(lines))
        } else {
            let blocks = blocks(text);
            (!blocks.is_empty()).then_some(PublicKeys::OpenPgp(blocks))
        };
        if let Some(keys) = keys {
            self.0.push((name.to_owned(), keys));
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What it is that was trusted: another set has another digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        // Texts and lists of them: they always become JSON.
        Digest::of(&serde_json::to_vec(&sorted).unwrap_or_default())
    }

    /// Whether the signature is good and one of these made it: the key's name, or why not.
    pub(super) fn verify(&self, signed: &Signed, now: u64) -> Result<String, String> {
        let signature = signed.signature.as_deref().ok_or("it is not signed")?;
        let start = signature.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or_default();
        let text = std::str::from_utf8(&signature[start..]).map_err(|_| "its signature is not text")?;
        match Format::of(text.as_bytes()) {
            Some(Format::OpenPgp) => {
                let payload = Payload { over: Over::Bytes, bytes: &signed.payload };
                open_pgp::verify(text, &payload, &self.open_pgp(), now)
            }
            Some(Format::Ssh) => ssh::verify(text, &signed.payload, &self.ssh()),
            Some(Format::X509) => Err("its signature is an X.509 one, which is not supported".to_owned()),
            None => Err("its signature is neither an OpenPGP nor an SSH one".to_owned()),
        }
    }

    /// The same of an OpenPGP signature over text, of which the lines end with CRLF.
    pub(crate) fn verify_text(&self, signature: &str, text: &str, now: u64) -> Result<String, String> {
        let payload = Payload { over: Over::Text, bytes: text.as_bytes() };
        open_pgp::verify(signature, &payload, &self.open_pgp(), now)
    }

    /// Whether there is an OpenPGP key among them.
    #[must_use]
    pub fn has_open_pgp(&self) -> bool {
        !self.open_pgp().is_empty()
    }

    fn open_pgp(&self) -> Vec<&str> {
        let of = |(_, keys): &'_ (String, PublicKeys)| matches!(keys, PublicKeys::OpenPgp(_));
        let blocks = self.0.iter().filter(|entry| of(entry)).flat_map(|(_, keys)| keys.texts());
        blocks.map(String::as_str).collect()
    }

    /// By entry: a bad line spoils its own.
    fn ssh(&self) -> Vec<(&str, &[String])> {
        let of = |(_, keys): &'_ (String, PublicKeys)| matches!(keys, PublicKeys::Ssh(_));
        self.0.iter().filter(|entry| of(entry)).map(|(name, keys)| (name.as_str(), keys.texts())).collect()
    }
}

impl PublicKeys {
    fn texts(&self) -> &[String] {
        match self {
            Self::OpenPgp(texts) | Self::Ssh(texts) => texts,
        }
    }
}

/// All blocks of public keys in a text, of which there can be several.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(BEGIN) {
        let Some(end) = rest[begin..].find(END).map(|end| begin + end + END.len()) else { break };
        found.push(format!("{}\n", &rest[begin..end]));
        rest = &rest[end..];
    }
    found
}
