//! Countersignatures of the time: that an authority which a policy trusts had a signature before it, so that certificates which have
//! expired since count for what was signed before that.

use x509_parser::prelude::X509Certificate;

use super::chain::{Chain, is_issued_by};
use crate::oci::verify::keys::PublicKey;
use crate::oci::verify::timestamp::Token;
use crate::oci::verify::{Unfit, certificate};

/// Bytes of a certificate.
const MOST_CERTIFICATE: usize = 16 << 10;
/// Certificates of a chain.
const MOST_CHAIN: usize = 8;

/// What a countersignature proves: its signature was there by the last of these times, and who says so says that of none before the first.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamped {
    pub(super) first: i64,
    pub(super) last: i64,
    /// The authority's certificates in DER, from its own to a trusted root.
    pub(super) chain: Vec<Vec<u8>>,
}

/// What a countersignature of a signature proves, where certificates of an authority lead to one of these.
pub(super) fn read(token: &[u8], signature: &[u8], trusted: &[Vec<u8>]) -> Result<Stamped, Unfit> {
    let token = Token::parse(token)?;
    let time = token.time(signature)?;
    let parse = |der| certificate::read(der, MOST_CERTIFICATE).ok();
    let sent: Vec<_> = token.certificates.iter().filter_map(|der| parse(der)).collect();
    let roots: Vec<_> = trusted.iter().filter_map(|der| parse(der)).collect();
    let by = sent
        .iter()
        .chain(&roots)
        .find(|one| PublicKey::of(one.public_key()).is_ok_and(|key| token.is_by(&key)));
    let by =
        by.ok_or_else(|| Unfit::new("its timestamp was not made by a certificate that it brings along"))?;
    let chain = lead(by, &sent, &roots)
        .ok_or_else(|| Unfit::new("its timestamp is not of an authority that is trusted"))?;
    Chain::parse(&chain)?.check_of_stamps(time.at)?;
    Ok(Stamped { first: time.at - time.accuracy, last: time.at + time.accuracy, chain })
}

/// The certificates from one to a root that is trusted.
fn lead(
    from: &X509Certificate<'_>,
    sent: &[X509Certificate<'_>],
    roots: &[X509Certificate<'_>],
) -> Option<Vec<Vec<u8>>> {
    let is_root = |one: &X509Certificate<'_>| is_issued_by(one, one);
    let mut chain = vec![from];
    if is_root(from) {
        return roots.iter().any(|root| root.as_raw() == from.as_raw()).then(|| raw(&chain));
    }
    while chain.len() < MOST_CHAIN {
        let last = *chain.last()?;
        if let Some(root) = roots.iter().find(|root| is_root(root) && is_issued_by(last, root)) {
            chain.push(root);
            return Some(raw(&chain));
        }
        chain.push(sent.iter().find(|one| !is_root(one) && is_issued_by(last, one))?);
    }
    None
}

fn raw(chain: &[&X509Certificate<'_>]) -> Vec<Vec<u8>> {
    chain.iter().map(|one| one.as_raw().to_vec()).collect()
}
