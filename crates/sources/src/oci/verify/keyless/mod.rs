//! Signatures without keys that a user keeps: somebody signs with a key of a few minutes, for which an authority (Fulcio) certified who
//! they are, and a transparency log (Rekor) kept that it was used while the certificate was good.
//!
//! Nothing here asks anybody: what is trusted is a trusted root, what is to be verified came with the signature. It is good if
//!
//! - there is a time that a trusted source tells: the log, in the entry that it signed, or an authority of timestamps (`stamp`);
//! - the certificate leads to an authority of the root, and all certificates on the way were valid at each such time (`certificate`);
//! - a log of certificates of the root has the certificate (`sct`);
//! - an entry of a transparency log of the root is about this signature, of these bytes, by this certificate (`body`), and the log
//!   signed it, or has it at its place (`entry`, `note`, `merkle`);
//! - the certificate's key made the signature, and its subject and issuer are among those that the user named (`identity`).
//!
//! Whether the signed bytes are about the image is compared before, as with keys.

mod body;
mod certificate;
mod entry;
mod identity;
mod material;
mod merkle;
mod note;
mod root;
mod sct;
mod stamp;

use serde::{Deserialize, Serialize};

pub use identity::Identity;
pub use root::TrustedRoot;

use super::{Unfit, der, hash};
use certificate::Usage;
use identity::Matcher;
pub(super) use material::Material;
use root::Span;

/// Who is to have signed, and who vouches for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyless {
    root: TrustedRoot,
    identities: Vec<Identity>,
}

impl Keyless {
    /// # Errors
    /// There are no identities or too many, or one has an expression that is none.
    pub fn new(root: TrustedRoot, identities: Vec<Identity>) -> Result<Self, String> {
        identity::matchers(&identities).map_err(|unfit| unfit.to_string())?;
        Ok(Self { root, identities })
    }
}

/// What was signed, and the signature.
pub(super) struct Content<'a> {
    pub(super) signature: &'a [u8],
    /// The bytes that the signature is of.
    pub(super) message: &'a [u8],
    /// Of an envelope, what is in it.
    pub(super) payload: Option<&'a [u8]>,
}

/// Verifies signatures.
pub(super) struct Verifier<'a> {
    root: &'a TrustedRoot,
    matchers: Vec<Matcher>,
}

/// Times that trusted sources tell, and when the keys were valid that logs told something with.
#[derive(Default)]
struct Told {
    times: Vec<i64>,
    spans: Vec<Span>,
    /// Why there are not more.
    why: Option<Unfit>,
}

impl<'a> Verifier<'a> {
    pub(super) fn of(trust: &'a Keyless) -> Result<Self, Unfit> {
        Ok(Self { root: &trust.root, matchers: identity::matchers(&trust.identities)? })
    }

    /// Whether a signature is one as it should be.
    pub(super) fn verify(&self, content: &Content<'_>, material: &Material) -> Result<(), Unfit> {
        let leaf = certificate::read(&material.certificate)?;
        let told = self.told(content, material)?;
        let issuer = self.issuer_of(&leaf, &told.times)?;
        sct::check(&leaf, &issuer, &self.root.certificate_logs)?;
        if !certificate::key(&leaf)?.made(content.signature, content.message) {
            return Err(Unfit::new("it was not made by the key of its certificate"));
        }
        identity::check(&leaf, &self.matchers)
    }

    /// What logs and authorities of timestamps tell of it. All entries of logs that are trusted must be as they should be.
    fn told(&self, content: &Content<'_>, material: &Material) -> Result<Told, Unfit> {
        let mut told = Told::default();
        let mut is_logged = false;
        for entry in &material.entries {
            let Some(log) = self.root.logs.iter().find(|log| log.id() == entry.log.as_slice()) else {
                continue;
            };
            body::check(entry, content, &material.certificate)?;
            told.times.extend(entry::check(entry, log, material.needs_proof)?);
            told.spans.push(log.valid);
            is_logged = true;
        }
        if !is_logged {
            let why = "it has no entry of a transparency log that the trusted root has";
            return Err(Unfit::new(why));
        }
        for stamp in &material.stamps {
            match stamp::time(stamp, content.signature, &self.root.stamps) {
                Ok(time) => told.times.push(time),
                Err(unfit) => told.why = Some(unfit),
            }
        }
        if told.times.is_empty() {
            let why = told.why.map(|why| format!(": {why}")).unwrap_or_default();
            return Err(Unfit::new(format!("no trusted time of signing{why}")));
        }
        let is_outside = |span: &Span| told.times.iter().any(|time| !span.has(*time));
        if told.spans.iter().any(is_outside) {
            return Err(Unfit::new("it was logged at a time at which the log's key was not valid"));
        }
        Ok(told)
    }

    /// The public key of who issued the certificate, where that leads to an authority of the root.
    fn issuer_of(
        &self,
        leaf: &x509_parser::certificate::X509Certificate<'_>,
        times: &[i64],
    ) -> Result<Vec<u8>, Unfit> {
        certificate::leaf(leaf, Usage::Signing, times)?;
        let mut why = Unfit::new("its certificate was not issued by an authority of the trusted root");
        for authority in &self.root.authorities {
            let chain = authority.read()?;
            match certificate::path(leaf, &chain, Usage::Signing, times) {
                Ok(Some(_)) if times.iter().any(|time| !authority.valid.has(*time)) => {
                    why = Unfit::new(
                        "its certificate is of an authority that the trusted root does not trust at that time",
                    );
                }
                Ok(Some(issuer)) => return Ok(issuer),
                Ok(None) => {}
                Err(unfit) => why = unfit,
            }
        }
        Err(why)
    }
}

#[cfg(test)]
mod tests;
