//! That a certificate is in a log of certificates (RFC 6962): the log signed the certificate without what it says of that.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ParsedExtension, X509Extension};
use x509_parser::oid_registry::OID_CT_LIST_SCT;

use super::root::Log;
use super::{Unfit, der, hash};

/// What logs say of one certificate.
const MOST: usize = 16;
/// The extension that has it, as DER.
const EXTENSION: [u8; 10] = [0x2b, 0x06, 0x01, 0x04, 0x01, 0xd6, 0x79, 0x02, 0x04, 0x02];
/// What has the extensions of a certificate.
const EXTENSIONS: u8 = 0xa3;

/// Whether one of these logs has the certificate, which was issued by who has this public key.
pub(super) fn check(certificate: &X509Certificate<'_>, issuer: &[u8], logs: &[Log]) -> Result<(), Unfit> {
    let unread = |_| Unfit::new("an extension of its certificate cannot be read");
    let extension = certificate.get_extension_unique(&OID_CT_LIST_SCT).map_err(unread)?;
    let Some(ParsedExtension::SCT(said)) = extension.map(X509Extension::parsed_extension) else {
        return Err(Unfit::new("its certificate has no signed certificate timestamp (SCT)"));
    };
    let bare = without(certificate.tbs_certificate.as_ref())?;
    let mut why =
        Unfit::new("its certificate has no SCT of a certificate transparency log in the trusted root");
    for one in said.iter().take(MOST) {
        let Some(log) = logs.iter().find(|log| log.id() == one.id.key_id) else { continue };
        let seconds = i64::try_from(one.timestamp / 1_000).unwrap_or(i64::MAX);
        if !log.valid.has(seconds) {
            why = Unfit::new(
                "the SCT of its certificate is from a time at which the certificate transparency log's key was not valid",
            );
        } else if one.version.0 == 0
            && log.key()?.made(one.signature.data, &signed(one.timestamp, one.extensions.0, issuer, &bare)?)
        {
            return Ok(());
        } else {
            why = Unfit::new("the SCT of its certificate is not signed by the certificate transparency log");
        }
    }
    Err(why)
}

/// What a log signs.
fn signed(time: u64, extensions: &[u8], issuer: &[u8], bare: &[u8]) -> Result<Vec<u8>, Unfit> {
    let too_long = |_| Unfit::new("its certificate is too long");
    let length = u32::try_from(bare.len()).map_err(too_long)?.to_be_bytes();
    let [0, length @ ..] = length else { return Err(Unfit::new("its certificate is too long")) };
    let more = u16::try_from(extensions.len()).map_err(too_long)?.to_be_bytes();
    // Version 1, a timestamp; when; a certificate before it was issued, by whom, and which.
    let parts: [&[u8]; 8] =
        [&[0, 0], &time.to_be_bytes(), &[0, 1], &hash::sha256(&[issuer]), &length, bare, &more, extensions];
    Ok(parts.concat())
}

/// What is signed of a certificate, without the extension.
fn without(certificate: &[u8]) -> Result<Vec<u8>, Unfit> {
    let mut row = der::only(certificate, der::SEQUENCE)?;
    let mut out = Vec::with_capacity(certificate.len());
    while !row.is_empty() {
        let item = der::next(&mut row)?;
        if item.tag != EXTENSIONS {
            out.extend_from_slice(item.whole);
            continue;
        }
        let mut extensions = der::only(item.content, der::SEQUENCE)?;
        let mut kept = Vec::with_capacity(item.content.len());
        while !extensions.is_empty() {
            let extension = der::next(&mut extensions)?;
            let mut inner = extension.content;
            if der::take(&mut inner, der::OID)? != EXTENSION {
                kept.extend_from_slice(extension.whole);
            }
        }
        out.extend(der::with(EXTENSIONS, &der::with(der::SEQUENCE, &kept)));
    }
    Ok(der::with(der::SEQUENCE, &out))
}
