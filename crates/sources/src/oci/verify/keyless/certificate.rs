//! Certificates, and the way from one to an authority that is trusted. At all times that count, each of them must have been valid
//! (CVE-2026-24122), also those of the trusted root.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;

use super::Unfit;
use crate::oci::verify::certificate;
use crate::oci::verify::keys::PublicKey;

/// Bytes of a certificate, and of its PEM.
const MOST_BYTES: usize = 32 << 10;

/// What a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Usage {
    /// Signing of code.
    Signing,
    /// Timestamps.
    Stamps,
}

pub(super) fn read(der: &[u8]) -> Result<X509Certificate<'_>, Unfit> {
    certificate::read(der, MOST_BYTES).map_err(|why| Unfit::new(format!("a certificate {why}")))
}

/// The first certificate of a PEM.
pub(super) fn of_pem(pem: &[u8]) -> Result<Vec<u8>, Unfit> {
    let unfit = || Unfit::new("a certificate is not PEM");
    if pem.len() > MOST_BYTES {
        return Err(unfit());
    }
    let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|_| unfit())?;
    if pem.label == "CERTIFICATE" { Ok(pem.contents) } else { Err(unfit()) }
}

pub(super) fn key(certificate: &X509Certificate<'_>) -> Result<PublicKey, Unfit> {
    PublicKey::of(certificate.public_key())
        .map_err(|why| Unfit::new(format!("the key of a certificate: {why}")))
}

/// Whether a certificate is one of somebody who signs, and was valid at these times.
pub(super) fn leaf(certificate: &X509Certificate<'_>, usage: Usage, times: &[i64]) -> Result<(), Unfit> {
    valid("its certificate", certificate, times)?;
    is_known("its certificate", certificate)?;
    let unread = |_| Unfit::new("an extension of its certificate cannot be read");
    let is_usage = certificate.extended_key_usage().map_err(unread)?.is_some_and(|found| match usage {
        Usage::Signing => found.value.code_signing,
        Usage::Stamps => found.value.time_stamping,
    });
    if !is_usage {
        let what = if usage == Usage::Signing { "signing code" } else { "timestamps" };
        return Err(Unfit::new(format!("its certificate is not for {what}")));
    }
    if certificate.key_usage().map_err(unread)?.is_some_and(|found| !found.value.digital_signature()) {
        return Err(Unfit::new("its certificate is not for signatures"));
    }
    if certificate.basic_constraints().map_err(unread)?.is_some_and(|found| found.value.ca) {
        return Err(Unfit::new("its certificate is one of an authority"));
    }
    Ok(())
}

/// The public key (as a certificate has it) of who issued a certificate, where that leads to the last one of a chain; none where nobody
/// in the chain issued it.
pub(super) fn path(
    leaf: &X509Certificate<'_>,
    chain: &[X509Certificate<'_>],
    usage: Usage,
    times: &[i64],
) -> Result<Option<Vec<u8>>, Unfit> {
    let mut current = leaf;
    let mut first = None;
    for depth in 0..chain.len() {
        let issued = |(_, other): &(usize, &X509Certificate<'_>)| {
            other.subject().as_raw() == current.issuer().as_raw() && made(other, current)
        };
        let Some((number, issuer)) = chain.iter().enumerate().find(issued) else { break };
        authority(issuer, depth, usage, times)?;
        first.get_or_insert_with(|| issuer.public_key().raw.to_vec());
        if number + 1 == chain.len() {
            return Ok(first);
        }
        current = issuer;
    }
    match first {
        None => Ok(None),
        Some(_) => Err(Unfit::new("its certificate does not lead to the root of an authority")),
    }
}

fn made(issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
    key(issuer)
        .is_ok_and(|key| key.made(&certificate.signature_value.data, certificate.tbs_certificate.as_ref()))
}

/// Whether a certificate is one of an authority that may issue what is `depth` authorities away from it.
fn authority(
    certificate: &X509Certificate<'_>,
    depth: usize,
    usage: Usage,
    times: &[i64],
) -> Result<(), Unfit> {
    const WHAT: &str = "a certificate of the authority that issued its certificate";
    let unfit = |why: &str| Err(Unfit::new(format!("{WHAT} {why}")));
    let unread = |_| Unfit::new(format!("{WHAT} has an extension that cannot be read"));
    valid(WHAT, certificate, times)?;
    is_known(WHAT, certificate)?;
    let Some(constraints) = certificate.basic_constraints().map_err(unread)?.filter(|found| found.value.ca)
    else {
        return unfit("is not one of an authority");
    };
    let most = constraints.value.path_len_constraint.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    if most.is_some_and(|most| depth > most) {
        return unfit("does not allow so many below it");
    }
    if certificate.key_usage().map_err(unread)?.is_some_and(|found| !found.value.key_cert_sign()) {
        return unfit("is not for issuing certificates");
    }
    let may = certificate.extended_key_usage().map_err(unread)?.is_none_or(|found| {
        let is_usage =
            if usage == Usage::Signing { found.value.code_signing } else { found.value.time_stamping };
        is_usage || found.value.any
    });
    if !may {
        return unfit("is for something else");
    }
    if certificate.name_constraints().map_err(unread)?.is_some() {
        return unfit("has name constraints, which are not supported");
    }
    Ok(())
}

fn valid(what: &str, certificate: &X509Certificate<'_>, times: &[i64]) -> Result<(), Unfit> {
    let validity = certificate.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    match times.iter().find(|time| **time < from || to < **time) {
        Some(time) => {
            let shown = jiff::Timestamp::from_second(*time).map(|time| time.to_string()).unwrap_or_default();
            Err(Unfit::new(format!("{what} was not valid when it was signed, at {shown}")))
        }
        None => Ok(()),
    }
}

/// Whether nothing is demanded that is not looked at.
fn is_known(what: &str, certificate: &X509Certificate<'_>) -> Result<(), Unfit> {
    let is_unknown = certificate.iter_extensions().filter(|extension| extension.critical).any(|extension| {
        !matches!(
            extension.parsed_extension(),
            ParsedExtension::BasicConstraints(_)
                | ParsedExtension::KeyUsage(_)
                | ParsedExtension::ExtendedKeyUsage(_)
                | ParsedExtension::SubjectAlternativeName(_)
                | ParsedExtension::NameConstraints(_)
        )
    });
    if is_unknown {
        return Err(Unfit::new(format!("{what} has a critical extension that is not known")));
    }
    Ok(())
}
