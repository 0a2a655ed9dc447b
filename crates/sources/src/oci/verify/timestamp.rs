//! Timestamps (RFC 3161): that an authority had a signature before it at a time. They are signed as CMS has it (RFC 5652). Who may be such
//! an authority is for others to say.

use super::keys::PublicKey;
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

/// A token, taken apart: nothing of it is verified but that what is signed is about its content.
pub(super) struct Token<'a> {
    info: &'a [u8],
    pub(super) certificates: Vec<&'a [u8]>,
    /// The bytes that are signed, and the signature.
    signed: Vec<u8>,
    signature: &'a [u8],
}

/// A time, in seconds, and by how many it may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) at: i64,
    pub(super) accuracy: i64,
}

/// The token in a response.
pub(super) fn of_response(response: &[u8]) -> Result<&[u8], Unfit> {
    let mut row = der::only(response, der::SEQUENCE)?;
    let mut status = der::take(&mut row, der::SEQUENCE)?;
    // Granted, or so with changes.
    if !matches!(der::take(&mut status, der::INTEGER)?, [0 | 1]) {
        return Err(Unfit::new("its timestamp was not granted"));
    }
    Ok(der::next(&mut row)?.whole)
}

impl<'a> Token<'a> {
    /// Takes a token apart, up to what is signed.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, Unfit> {
        if token.len() > MOST_BYTES {
            return Err(Unfit::new(format!("its timestamp has more than {MOST_BYTES} bytes")));
        }
        let mut content = der::only(token, der::SEQUENCE)?;
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
        Ok(Self { info, certificates, signed: der::with(der::SET, attributes), signature })
    }

    /// Whether the holder of this key made it.
    pub(super) fn is_by(&self, key: &PublicKey) -> bool {
        key.made(self.signature, &self.signed)
    }

    /// The time that it tells, where it is about this signature.
    pub(super) fn time(&self, signature: &[u8]) -> Result<Time, Unfit> {
        let mut row = der::only(self.info, der::SEQUENCE)?;
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
        let mut accuracy = der::maybe(&mut row, der::SEQUENCE)?.unwrap_or_default();
        let seconds = der::maybe(&mut accuracy, der::INTEGER)?.unwrap_or_default();
        let seconds = match seconds {
            [] => 0,
            [0..0x80] | [0..0x80, _] => seconds.iter().fold(0, |sum, digit| sum << 8 | i64::from(*digit)),
            _ => return Err(Unfit::new("its timestamp may be wrong by hours")),
        };
        // What is left are parts of a second; and the time is told in whole ones.
        Ok(Time { at: der::time(&time)?, accuracy: seconds + 1 })
    }
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
