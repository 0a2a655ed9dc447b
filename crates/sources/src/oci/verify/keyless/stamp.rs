//! Timestamps of signatures without keys: whether they are of an authority of the trusted root.
//!
//! The authority's certificate is one of the trusted root, or leads to one; which of those in the token is meant is not looked at (its
//! attribute of ESS), since it is the key that has to have signed.

use super::certificate::{self, Usage};
use super::root::Authority;
use crate::oci::verify::Unfit;
use crate::oci::verify::timestamp::{Token, of_response};

/// When one of these authorities had the signature before it.
pub(super) fn time(response: &[u8], signature: &[u8], authorities: &[Authority]) -> Result<i64, Unfit> {
    let token = Token::parse(of_response(response)?)?;
    let time = token.time(signature)?.at;
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
        let is_by_it = certificate::key(leaf).is_ok_and(|key| token.is_by(&key));
        if !is_by_it {
            continue;
        }
        if certificate::path(leaf, &chain, Usage::Stamps, &[time])?.is_some() {
            return certificate::leaf(leaf, Usage::Stamps, &[time]).map(|()| true);
        }
    }
    Ok(false)
}
