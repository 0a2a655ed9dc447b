//! Reads certificates so that whoever signed one vouches for all of its bytes.
//!
//! A reader of X.509 takes more than DER: the frame around what is signed may have another class or a longer length, and the algorithm
//! that stands beside the signature may be another than the signed one. Here a certificate is what is signed, the same algorithm again
//! (RFC 5280, 4.1.1.2) and a signature of whole bytes, each in the one form that DER has for it.

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::{Unfit, der};

/// Where a certificate says its version.
const VERSION: u8 = 0xa0;

/// Reads a certificate of so many bytes at most, which these are wholly. What is wrong with it is said as the rest of a sentence
/// that begins with what it is.
pub(super) fn read(bytes: &[u8], most: usize) -> Result<X509Certificate<'_>, String> {
    if bytes.len() > most {
        return Err(format!("has more than {most} bytes"));
    }
    if !matches!(has_one_form(bytes), Ok(true)) {
        return Err("is not in DER".to_owned());
    }
    match X509Certificate::from_der(bytes) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err("cannot be read".to_owned()),
    }
}

/// Whether nothing outside what is signed could have been written in another way.
fn has_one_form(bytes: &[u8]) -> Result<bool, Unfit> {
    let mut parts = der::only(bytes, der::SEQUENCE)?;
    let mut signed = der::take(&mut parts, der::SEQUENCE)?;
    let algorithm = der::next(&mut parts)?;
    let signature = der::take(&mut parts, der::BITS)?;
    der::maybe(&mut signed, VERSION)?;
    der::take(&mut signed, der::INTEGER)?;
    let signed_algorithm = der::next(&mut signed)?;
    // No bits of the last byte are left out.
    Ok(parts.is_empty() && algorithm.whole == signed_algorithm.whole && signature.first() == Some(&0))
}
