//! What envelopes of both forms have in them, and what holds for the headers of both.

use crate::oci::verify::Unfit;

use super::{cose, jws};

/// What is signed of an artifact is said in this form.
const PAYLOAD: &str = "application/vnd.cncf.notary.payload.v1+json";
/// Bytes of an envelope.
const MOST_BYTES: usize = 256 << 10;
/// Certificates of a chain.
const MOST_CHAIN: usize = 10;
/// Headers that are signed.
pub(super) const MOST_HEADERS: usize = 64;

pub(super) const SCHEME: &str = "io.cncf.notary.signingScheme";
pub(super) const TIME: &str = "io.cncf.notary.signingTime";
pub(super) const AUTHENTIC_TIME: &str = "io.cncf.notary.authenticSigningTime";
pub(super) const EXPIRY: &str = "io.cncf.notary.expiry";
pub(super) const STAMP: &str = "io.cncf.notary.timestampSignature";
/// A program that would have to verify it.
const PLUGIN: &str = "io.cncf.notary.verificationPlugin";

/// An envelope as it was sent: nothing of it is verified.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
    /// The bytes that the signature is of.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
    /// Certificates in DER, that of the signer first.
    pub(super) chain: Vec<Vec<u8>>,
    /// A countersignature of the time, which is not signed.
    pub(super) stamp: Option<Vec<u8>>,
}

/// The headers that are signed.
#[derive(Debug, Default)]
pub(super) struct Headers {
    pub(super) algorithm: String,
    pub(super) content_type: String,
    pub(super) scheme: String,
    /// Seconds, as all times.
    pub(super) time: Option<i64>,
    pub(super) authentic_time: Option<i64>,
    pub(super) expiry: Option<i64>,
    /// Those of which a reader has to know what they mean.
    pub(super) critical: Vec<String>,
    /// The names of others.
    pub(super) others: Vec<String>,
}

/// By what a signature is proven to be of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The certificates are those of whoever signs.
    Signer,
    /// They are those of an authority that also says when.
    Authority,
}

/// What the headers come to.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) scheme: Scheme,
    pub(super) time: i64,
    pub(super) expiry: Option<i64>,
}

/// Reads an envelope of either form: one in CBOR begins with the tag of its kind, and no JSON does.
pub(super) fn parse(bytes: &[u8]) -> Result<Envelope, Unfit> {
    if bytes.len() > MOST_BYTES {
        return Err(Unfit::new(format!("its envelope has more than {MOST_BYTES} bytes")));
    }
    let envelope = if bytes.first() == Some(&cose::FIRST) { cose::parse(bytes)? } else { jws::parse(bytes)? };
    match envelope.chain.len() {
        0 => Err(Unfit::new("its envelope has no certificates")),
        count if count > MOST_CHAIN => {
            Err(Unfit::new(format!("its envelope has more than {MOST_CHAIN} certificates")))
        }
        _ => Ok(envelope),
    }
}

impl Headers {
    /// Whether they are those of a signature that can be judged.
    pub(super) fn check(&self) -> Result<Facts, Unfit> {
        let has_plugin = |name: &String| name.starts_with(PLUGIN);
        if let Some(name) = self.others.iter().chain(&self.critical).find(|name| has_plugin(name)) {
            let name = crate::tree::shown(name);
            return Err(Unfit::new(format!(
                "it is to be verified by a plugin ({name}), and plugins are not supported"
            )));
        }
        if self.content_type != PAYLOAD {
            let shown = crate::tree::shown(&self.content_type);
            return Err(Unfit::new(format!("its payload is of the type '{shown}': want {PAYLOAD}")));
        }
        let (scheme, time) = self.scheme()?;
        self.check_critical(scheme)?;
        if self.expiry.is_some_and(|expiry| expiry <= time) {
            return Err(Unfit::new("it expires before it was made"));
        }
        Ok(Facts { scheme, time, expiry: self.expiry })
    }

    fn scheme(&self) -> Result<(Scheme, i64), Unfit> {
        let (scheme, time, other) = match self.scheme.as_str() {
            "notary.x509" => (Scheme::Signer, self.time, self.authentic_time),
            "notary.x509.signingAuthority" => (Scheme::Authority, self.authentic_time, self.time),
            other => {
                let shown = crate::tree::shown(other);
                return Err(Unfit::new(format!("its signing scheme '{shown}' is not supported")));
            }
        };
        if other.is_some() {
            return Err(Unfit::new("it has the signing time of another signing scheme"));
        }
        Ok((scheme, time.ok_or_else(|| Unfit::new("it has no signing time"))?))
    }

    /// Those that may not be overlooked must be marked, and those that are marked must be known and there.
    fn check_critical(&self, scheme: Scheme) -> Result<(), Unfit> {
        let there = [
            (SCHEME, true, true),
            (TIME, self.time.is_some(), false),
            (AUTHENTIC_TIME, self.authentic_time.is_some(), scheme == Scheme::Authority),
            (EXPIRY, self.expiry.is_some(), self.expiry.is_some()),
        ];
        for name in &self.critical {
            if !there.iter().any(|(known, is_there, _)| known == name && *is_there) {
                let shown = crate::tree::shown(name);
                return Err(Unfit::new(format!(
                    "it has the critical header '{shown}', which is unknown or not there"
                )));
            }
        }
        for (name, _, is_needed) in there {
            if is_needed && !self.critical.iter().any(|critical| critical == name) {
                return Err(Unfit::new(format!("its header {name} is not marked as critical")));
            }
        }
        Ok(())
    }
}
