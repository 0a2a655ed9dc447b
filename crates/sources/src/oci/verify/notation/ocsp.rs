//! The protocol by which an authority says whether a certificate of its own is revoked (OCSP, RFC 6960): what is asked, and what an
//! answer says. Pure; the bytes are anyone's.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::certificate::X509Certificate;

use super::chain::is_issued_by;
use super::crl::{digits, extension};
use crate::oci::verify::keys::PublicKey;
use crate::oci::verify::{Unfit, certificate, der};

/// Bytes of a certificate that an answer brings along, and how many are looked at.
const MOST_CERTIFICATE: usize = 16 << 10;
const MOST_CERTIFICATES: usize = 8;
/// What certificates are named by: many authorities know no other hash for that. Nothing is proven by it.
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const NULL: u8 = 0x05;
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
const INVALID_FROM: u8 = 24;
const ZERO: u8 = 0xa0;
const ONE: u8 = 0xa1;
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;
const UNKNOWN: u8 = 0x82;

/// What an authority says of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Good,
    Revoked,
    /// It does not know it.
    Unknown,
}

/// Asks about one certificate.
pub(super) fn request(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> Vec<u8> {
    let wrapped = |content: &[u8]| der::with(der::SEQUENCE, content);
    wrapped(&wrapped(&wrapped(&wrapped(&id(certificate, issuer)))))
}

/// What a certificate is called.
fn id(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> Vec<u8> {
    let hash = |bytes: &[u8]| der::with(der::OCTETS, digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref());
    let algorithm = [der::with(der::OID, SHA1), der::with(NULL, &[])].concat();
    let parts = [
        der::with(der::SEQUENCE, &algorithm),
        hash(issuer.subject().as_raw()),
        hash(&issuer.public_key().subject_public_key.data),
        der::with(der::INTEGER, certificate.raw_serial()),
    ];
    der::with(der::SEQUENCE, &parts.concat())
}

/// What an answer says of a certificate, for what was signed at a time that is proven.
pub(super) fn read(
    answer: &[u8],
    certificate: &X509Certificate<'_>,
    issuer: &X509Certificate<'_>,
    at: Option<i64>,
    now: i64,
) -> Result<Said, Unfit> {
    let mut row = der::only(answer, der::SEQUENCE)?;
    match der::take(&mut row, der::ENUMERATED)? {
        [0] => {}
        [1] => return Err(Unfit::new("it calls the question malformed")),
        [3] => return Err(Unfit::new("it is to be asked later")),
        [5] => return Err(Unfit::new("it wants a signed question")),
        [6] => return Err(Unfit::new("it does not answer everybody")),
        _ => return Err(Unfit::new("it has an internal error")),
    }
    let mut bytes = der::only(der::take(&mut row, ZERO)?, der::SEQUENCE)?;
    if der::take(&mut bytes, der::OID)? != BASIC {
        return Err(Unfit::new("its answer is of another type"));
    }
    let mut parts = der::only(der::take(&mut bytes, der::OCTETS)?, der::SEQUENCE)?;
    let signed = der::next(&mut parts)?;
    der::next(&mut parts)?;
    let signature = der::bits(der::take(&mut parts, der::BITS)?)?;
    let certificates = der::maybe(&mut parts, ZERO)?;
    let certificates = certificates.map(|all| der::only(all, der::SEQUENCE)).transpose()?;
    if !is_by(issuer, certificates.unwrap_or_default(), signature, signed.whole, now)? {
        return Err(Unfit::new("its answer was not made by the issuer of the certificate, nor for it"));
    }
    said(signed.content, &id(certificate, issuer), at, now)
}

/// Whether the issuer made it, or somebody with a certificate of the issuer for that.
fn is_by(
    issuer: &X509Certificate<'_>,
    mut certificates: &[u8],
    signature: &[u8],
    signed: &[u8],
    now: i64,
) -> Result<bool, Unfit> {
    let made = |by: &X509Certificate<'_>| {
        PublicKey::of(by.public_key()).is_ok_and(|key| key.made(signature, signed))
    };
    if made(issuer) {
        return Ok(true);
    }
    for _ in 0..MOST_CERTIFICATES {
        if certificates.is_empty() {
            break;
        }
        let Ok(by) = certificate::read(der::next(&mut certificates)?.whole, MOST_CERTIFICATE) else {
            continue;
        };
        let is_for_it = by.extended_key_usage().ok().flatten().is_some_and(|usage| usage.value.ocsp_signing);
        let validity = by.validity();
        let is_valid = (validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now);
        if is_for_it && is_valid && is_issued_by(&by, issuer) && made(&by) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn said(mut row: &[u8], id: &[u8], at: Option<i64>, now: i64) -> Result<Said, Unfit> {
    der::maybe(&mut row, ZERO)?;
    // Who it is is tried, and when it was made does not matter.
    der::next(&mut row)?;
    der::next(&mut row)?;
    let mut answers = der::take(&mut row, der::SEQUENCE)?;
    while !answers.is_empty() {
        let mut one = der::take(&mut answers, der::SEQUENCE)?;
        if Name::parse(der::next(&mut one)?.whole)? != Name::parse(id)? {
            continue;
        }
        let status = der::next(&mut one)?;
        der::time(&der::next(&mut one)?)?;
        let next = der::maybe(&mut one, ZERO)?;
        let mut next = next.ok_or_else(|| Unfit::new("its answer does not say until when it counts"))?;
        if der::time(&der::next(&mut next)?)? < now {
            return Err(Unfit::new("its answer is out of date"));
        }
        let extensions = der::maybe(&mut one, ONE)?;
        return match status.tag {
            GOOD => Ok(Said::Good),
            UNKNOWN => Ok(Said::Unknown),
            REVOKED if was_good(extensions, at)? => Ok(Said::Good),
            REVOKED => Ok(Said::Revoked),
            _ => Err(Unfit::new("its answer is neither that it is good nor that it is revoked")),
        };
    }
    Err(Unfit::new("its answer is about another certificate"))
}

/// The name of a certificate, taken apart: parameters of the hash may be left out.
#[derive(PartialEq, Eq)]
struct Name<'a> {
    algorithm: &'a [u8],
    issuer: &'a [u8],
    issuer_key: &'a [u8],
    serial: &'a [u8],
}

impl<'a> Name<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Unfit> {
        let mut row = der::only(bytes, der::SEQUENCE)?;
        let mut algorithm = der::take(&mut row, der::SEQUENCE)?;
        Ok(Self {
            algorithm: der::take(&mut algorithm, der::OID)?,
            issuer: der::take(&mut row, der::OCTETS)?,
            issuer_key: der::take(&mut row, der::OCTETS)?,
            serial: digits(der::take(&mut row, der::INTEGER)?),
        })
    }
}

/// Whether it was revoked for what came after what was signed.
fn was_good(extensions: Option<&[u8]>, at: Option<i64>) -> Result<bool, Unfit> {
    let (Some(at), Some(extensions)) = (at, extensions) else { return Ok(false) };
    let mut row = der::only(extensions, der::SEQUENCE)?;
    while !row.is_empty() {
        let (id, _, mut value) = extension(&mut row)?;
        if id == Some(INVALID_FROM) {
            return Ok(at < der::time(&der::next(&mut value)?)?);
        }
    }
    Ok(false)
}
