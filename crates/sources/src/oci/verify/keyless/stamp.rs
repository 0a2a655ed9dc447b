//! Timestamps (RFC 3161): that an authority had a signature before it at a time. They are signed as CMS has it (RFC 5652).
//!
//! The authority's certificate is one of the trusted root, or leads to one; which of those in the token is meant is not looked at (its
//! attribute of ESS), since it is the key that has to have signed.

use super::certificate::{self, Usage};
use super::root::Authority;
use super::{Unfit, der, hash};

/// Bytes of a timestamp, and certificates in it.
const MOST_BYTES: usize = 32 << 10;
const MOST_CERTIFICATES: usize = 8;
/// What has its alternatives' contents.
const ZERO: u8 = 0xa0;
const ONE: u8 = 0xa1;
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const TST_INFO: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x01, 0x04];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];

/// What is in a response.
struct Token<'a> {
    info: &'a [u8],
    certificates: Vec<&'a [u8]>,
    /// The bytes that are signed, and the signature.
    signed: Vec<u8>,
    signature: &'a [u8],
}

/// When one of these authorities had the signature before it.
pub(super) fn time(response: &[u8], signature: &[u8], authorities: &[Authority]) -> Result<i64, Unfit> {
    if response.len() > MOST_BYTES {
        return Err(Unfit::new(format!("its timestamp has more than {MOST_BYTES} bytes")));
    }
    let token = token(response)?;
    let time = told(token.info, signature)?;
    let mut why = Unfit::new("its timestamp is not of an authority of the trusted root");
    for authority in authorities {
        match made(&token, authority, time) {
            Ok(true) if authority.valid.has(time) => return Ok(time),
            Ok(true) => {
                why = Unfit::new(
                    "its timestamp is of an authority that the trusted root does not trust at that time",
                );
            }
            Ok(false) => {}
            Err(unfit) => why = unfit,
        }
    }
    Err(Unfit::new(format!("timestamp: {why}")))
}

/// Whether an authority made it.
fn made(token: &Token<'_>, authority: &Authority, time: i64) -> Result<bool, Unfit> {
    let chain = authority.read()?;
    let is_authority = |one: &x509_parser::certificate::X509Certificate<'_>| one.is_ca();
    let sent: Vec<_> = token.certificates.iter().filter_map(|der| certificate::read(der).ok()).collect();
    let (own, chain): (Vec<_>, Vec<_>) = chain.into_iter().partition(|one| !is_authority(one));
    // An authority that the root names itself is the only one.
    let candidates = if own.is_empty() { &sent } else { &own };
    for leaf in candidates {
        let is_by_it = certificate::key(leaf).is_ok_and(|key| key.made(token.signature, &token.signed));
        if !is_by_it {
            continue;
        }
        if certificate::path(leaf, &chain, Usage::Stamps, &[time])?.is_some() {
            return certificate::leaf(leaf, Usage::Stamps, &[time]).map(|()| true);
        }
    }
    Ok(false)
}

/// Takes a response apart, up to what is signed.
fn token(response: &[u8]) -> Result<Token<'_>, Unfit> {
    let mut row = der::only(response, der::SEQUENCE)?;
    let mut status = der::take(&mut row, der::SEQUENCE)?;
    // Granted, or so with changes.
    if !matches!(der::take(&mut status, der::INTEGER)?, [0 | 1]) {
        return Err(Unfit::new("its timestamp was not granted"));
    }
    let mut content = der::take(&mut row, der::SEQUENCE)?;
    is(der::take(&mut content, der::OID)?, SIGNED_DATA)?;
    let mut data = der::only(der::take(&mut content, ZERO)?, der::SEQUENCE)?;
    der::take(&mut data, der::INTEGER)?;
    der::take(&mut data, der::SET)?;
    let mut inner = der::take(&mut data, der::SEQUENCE)?;
    is(der::take(&mut inner, der::OID)?, TST_INFO)?;
    let info = der::only(der::take(&mut inner, ZERO)?, der::OCTETS)?;
    let mut certificates = Vec::new();
    let mut all = der::maybe(&mut data, ZERO)?.unwrap_or_default();
    while !all.is_empty() && certificates.len() < MOST_CERTIFICATES {
        certificates.push(der::next(&mut all)?.whole);
    }
    der::maybe(&mut data, ONE)?;
    let mut signer = der::only(der::take(&mut data, der::SET)?, der::SEQUENCE)?;
    der::take(&mut signer, der::INTEGER)?;
    // Who it is: it is tried.
    der::next(&mut signer)?;
    let mut algorithm = der::take(&mut signer, der::SEQUENCE)?;
    let algorithm = der::take(&mut algorithm, der::OID)?;
    let attributes = der::take(&mut signer, ZERO)?;
    attests(attributes, algorithm, info)?;
    der::take(&mut signer, der::SEQUENCE)?;
    let signature = der::take(&mut signer, der::OCTETS)?;
    Ok(Token { info, certificates, signed: der::with(der::SET, attributes), signature })
}

fn is(oid: &[u8], expected: &[u8]) -> Result<(), Unfit> {
    if oid == expected { Ok(()) } else { Err(Unfit::new("its timestamp is of another type")) }
}

/// Whether what is signed is about the content.
fn attests(mut attributes: &[u8], algorithm: &[u8], info: &[u8]) -> Result<(), Unfit> {
    let (mut kind, mut digest) = (None, None);
    while !attributes.is_empty() {
        let mut attribute = der::take(&mut attributes, der::SEQUENCE)?;
        let name = der::take(&mut attribute, der::OID)?;
        let values = der::take(&mut attribute, der::SET)?;
        let twice = match name {
            CONTENT_TYPE => kind.replace(der::only(values, der::OID)?).is_some(),
            MESSAGE_DIGEST => digest.replace(der::only(values, der::OCTETS)?).is_some(),
            _ => false,
        };
        if twice {
            return Err(Unfit::new("its timestamp has an attribute twice"));
        }
    }
    is(kind.unwrap_or_default(), TST_INFO)?;
    let expected = hash::identified(algorithm, info)
        .ok_or_else(|| Unfit::new("its timestamp has a hash that is not known"))?;
    if digest != Some(expected.as_slice()) {
        return Err(Unfit::new("its timestamp was changed after it was signed"));
    }
    Ok(())
}

/// The time that it tells, where it is about this signature.
fn told(info: &[u8], signature: &[u8]) -> Result<i64, Unfit> {
    let mut row = der::only(info, der::SEQUENCE)?;
    der::take(&mut row, der::INTEGER)?;
    der::take(&mut row, der::OID)?;
    let mut imprint = der::take(&mut row, der::SEQUENCE)?;
    let mut algorithm = der::take(&mut imprint, der::SEQUENCE)?;
    let hash = hash::identified(der::take(&mut algorithm, der::OID)?, signature);
    if hash.as_deref() != Some(der::take(&mut imprint, der::OCTETS)?) {
        return Err(Unfit::new("its timestamp is of another signature"));
    }
    der::take(&mut row, der::INTEGER)?;
    let time = der::next(&mut row)?;
    if time.tag != der::TIME {
        return Err(Unfit::new("the time of its timestamp cannot be read"));
    }
    der::time(&time)
}
