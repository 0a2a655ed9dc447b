//! Chains of certificates, as the specification of Notary's signatures wants them, whoever is trusted: from the signer's
//! certificate to a root that signed itself, each signed by the next. The chain is the one of the envelope, in its order; no other
//! is built of its certificates.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::extensions::KeyUsage;
use x509_parser::prelude::X509Certificate;
use x509_parser::public_key::PublicKey as KeyFacts;

use super::revocation::{Answers, Case, Inquiry, Status};
use crate::oci::verify::keys::PublicKey;
use crate::oci::verify::{Unfit, certificate};

/// Bytes of a certificate.
const MOST_CERTIFICATE: usize = 16 << 10;
/// How certificates may be signed: RSA (PKCS #1 and PSS) and ECDSA, with SHA-256, SHA-384 and SHA-512.
const SIGNATURES: [&str; 7] = [
    "1.2.840.113549.1.1.10",
    "1.2.840.113549.1.1.11",
    "1.2.840.113549.1.1.12",
    "1.2.840.113549.1.1.13",
    "1.2.840.10045.4.3.2",
    "1.2.840.10045.4.3.3",
    "1.2.840.10045.4.3.4",
];
const KEY_USAGE: &str = "2.5.29.15";

/// How the holder of a key signs: by the key's kind and size, there is one way.
type Way = (&'static str, &'static dyn VerificationAlgorithm);

/// A chain that is as it should be.
pub(super) struct Chain<'a> {
    certificates: Vec<X509Certificate<'a>>,
}

impl<'a> Chain<'a> {
    /// Reads certificates; `check` is still to be asked.
    pub(super) fn parse(all: &'a [Vec<u8>]) -> Result<Self, Unfit> {
        let certificates = all.iter().map(|der| parse(der)).collect::<Result<Vec<_>, _>>()?;
        if certificates.is_empty() {
            return Err(Unfit::new("its envelope has no certificates"));
        }
        Ok(Self { certificates })
    }

    pub(super) fn leaf(&self) -> &X509Certificate<'a> {
        &self.certificates[0]
    }

    /// Whether its signer made this signature of this message, in the way that an envelope says.
    pub(super) fn made(&self, algorithm: &str, signature: &[u8], message: &[u8]) -> Result<(), Unfit> {
        let (name, way) = way_of(self.leaf())?;
        if name != algorithm {
            let shown = crate::tree::shown(algorithm);
            return Err(Unfit::new(format!(
                "it is made with '{shown}', but its certificate's key signs with {name}"
            )));
        }
        let key = &self.leaf().public_key().subject_public_key.data;
        let made = UnparsedPublicKey::new(way, key).verify(message, signature);
        made.map_err(|_| Unfit::new("it was not made by the key of its certificate, or was changed since"))
    }

    /// Whether it is a chain, and each of its certificates is for what it is used for.
    pub(super) fn check(&self) -> Result<(), Unfit> {
        self.check_with(check_leaf)
    }

    /// The same of an authority that countersigned at a time.
    pub(super) fn check_of_stamps(&self, time: i64) -> Result<(), Unfit> {
        self.check_with(check_leaf_of_stamps)?;
        self.is_valid_at(time)
    }

    fn check_with(&self, check_leaf: fn(&X509Certificate<'_>) -> Result<(), Unfit>) -> Result<(), Unfit> {
        let last = self.certificates.len() - 1;
        for (at, certificate) in self.certificates.iter().enumerate() {
            check_algorithm(certificate)?;
            let is_own = is_issued_by(certificate, certificate);
            match self.certificates.get(at + 1) {
                None if !is_own => {
                    return Err(about(certificate, "is the last one, and not a root that signed itself"));
                }
                None => {}
                Some(_) if is_own => {
                    return Err(about(certificate, "signed itself, and is not the last one"));
                }
                Some(issuer) if !is_issued_by(certificate, issuer) => {
                    return Err(about(certificate, "was not issued by the next one"));
                }
                Some(issuer) => check_issuer(issuer)?,
            }
            if at == 0 {
                check_leaf(certificate)?;
            } else {
                check_authority(certificate, at - 1)?;
            }
        }
        // A root that signs by itself has no issuer beside it.
        if last > 0 { check_issuer(&self.certificates[last]) } else { Ok(()) }
    }

    /// Whether all were valid all the time from the first of these to the last.
    pub(super) fn is_valid_between(&self, first: i64, last: i64) -> Result<(), Unfit> {
        self.is_valid_at(first)?;
        self.is_valid_at(last)
    }

    /// Whether all were valid at a time.
    pub(super) fn is_valid_at(&self, time: i64) -> Result<(), Unfit> {
        for certificate in &self.certificates {
            let validity = certificate.validity();
            if time < validity.not_before.timestamp() {
                return Err(about(certificate, &format!("is not valid before {}", validity.not_before)));
            }
            if time > validity.not_after.timestamp() {
                return Err(about(certificate, &format!("expired on {}", validity.not_after)));
            }
        }
        Ok(())
    }

    /// Whether any has expired by then.
    pub(super) fn has_expired(&self, time: i64) -> bool {
        self.certificates.iter().any(|one| time > one.validity().not_after.timestamp())
    }

    /// Whether whoever issued its certificates says that one is revoked, for what was signed at a time that is proven. Of a root nobody
    /// says so. The error is what is still to be asked.
    pub(super) fn check_for_revocation(
        &self,
        answers: &dyn Answers,
        at: Option<i64>,
        now: i64,
    ) -> Result<Result<(), Unfit>, Vec<Inquiry>> {
        let (mut open, mut unknown) = (Vec::new(), None);
        for pair in self.certificates.windows(2) {
            let [certificate, issuer] = pair else { continue };
            match (Case { certificate, issuer, at, now }).status(answers) {
                Status::Good => {}
                Status::Revoked => return Ok(Err(about(certificate, "is revoked"))),
                Status::Open(inquiries) => open.extend(inquiries),
                Status::Unknown(why) => {
                    let why = format!("may be revoked, which is not known: {why}");
                    unknown = unknown.or_else(|| Some(about(certificate, &why)));
                }
            }
        }
        if open.is_empty() { Ok(unknown.map_or(Ok(()), Err)) } else { Err(open) }
    }
}

/// The bytes are those of one certificate.
fn parse(der: &[u8]) -> Result<X509Certificate<'_>, Unfit> {
    certificate::read(der, MOST_CERTIFICATE)
        .map_err(|why| Unfit::new(format!("its envelope has a certificate that {why}")))
}

fn about(certificate: &X509Certificate<'_>, why: &str) -> Unfit {
    let subject = crate::tree::shown(&certificate.subject().to_string());
    Unfit::new(format!("certificate '{subject}' {why}"))
}

/// How the holder of a certificate's key signs.
fn way_of(certificate: &X509Certificate<'_>) -> Result<Way, Unfit> {
    let key = certificate.public_key();
    let unusable = |why: String| about(certificate, &format!("has a key that does not sign: {why}"));
    let parsed = key.parsed().map_err(|_| unusable("it cannot be read".to_owned()))?;
    match (&parsed, parsed.key_size()) {
        (KeyFacts::RSA(_), 2048) => Ok(("PS256", &RSA_PSS_2048_8192_SHA256)),
        (KeyFacts::RSA(_), 3072) => Ok(("PS384", &RSA_PSS_2048_8192_SHA384)),
        (KeyFacts::RSA(_), 4096) => Ok(("PS512", &RSA_PSS_2048_8192_SHA512)),
        (KeyFacts::RSA(_), bits) => Err(unusable(format!("RSA of {bits} bits; want 2048, 3072 or 4096"))),
        (KeyFacts::EC(_), _) => {
            let curve = key.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
            match curve.map(|oid| oid.to_id_string()).as_deref() {
                Some("1.2.840.10045.3.1.7") => Ok(("ES256", &ECDSA_P256_SHA256_FIXED)),
                Some("1.3.132.0.34") => Ok(("ES384", &ECDSA_P384_SHA384_FIXED)),
                Some("1.3.132.0.35") => Ok(("ES512", &ECDSA_P521_SHA512_FIXED)),
                _ => Err(unusable("its curve is none of P-256, P-384 and P-521".to_owned())),
            }
        }
        _ => Err(unusable("it is neither RSA nor ECDSA".to_owned())),
    }
}

/// Whether a certificate is signed in a way that is still good.
fn check_algorithm(certificate: &X509Certificate<'_>) -> Result<(), Unfit> {
    let outer = certificate.signature_algorithm.algorithm.to_id_string();
    let inner = certificate.tbs_certificate.signature.algorithm.to_id_string();
    if outer == inner && SIGNATURES.contains(&outer.as_str()) {
        return Ok(());
    }
    let why = "is signed with an algorithm that is not accepted: want RSA or ECDSA with SHA-256, SHA-384 or SHA-512";
    Err(about(certificate, &format!("{why}, has {outer}")))
}

/// Whether the names fit, and the key did sign. (Keys of less than 2,048 bits of RSA did not.)
pub(super) fn is_issued_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    if certificate.issuer().as_raw() != issuer.subject().as_raw() {
        return false;
    }
    let Ok(key) = PublicKey::of(issuer.public_key()) else { return false };
    key.made(&certificate.signature_value.data, certificate.tbs_certificate.as_ref())
}

fn key_usage<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a KeyUsage, Unfit> {
    let found =
        certificate.key_usage().map_err(|_| about(certificate, "has a key usage that cannot be read"))?;
    let found = found.ok_or_else(|| about(certificate, &format!("has no key usage ({KEY_USAGE})")))?;
    if !found.critical {
        return Err(about(certificate, "has a key usage that is not critical"));
    }
    Ok(found.value)
}

/// Whether there is a constraint that says whether it is an authority, and which one.
fn authority(certificate: &X509Certificate<'_>) -> Result<Option<(bool, Option<u32>)>, Unfit> {
    let found = certificate.basic_constraints();
    let found = found.map_err(|_| about(certificate, "has basic constraints that cannot be read"))?;
    Ok(found.map(|found| (found.value.ca, found.value.path_len_constraint)))
}

fn check_issuer(certificate: &X509Certificate<'_>) -> Result<(), Unfit> {
    match authority(certificate)? {
        Some((true, _)) => {}
        _ => return Err(about(certificate, "issued another one, and is not an authority")),
    }
    if key_usage(certificate)?.key_cert_sign() {
        return Ok(());
    }
    Err(about(certificate, "issued another one, and its key is not for signing certificates"))
}

/// An authority with so many others between it and the signer.
fn check_authority(certificate: &X509Certificate<'_>, below: usize) -> Result<(), Unfit> {
    match authority(certificate)? {
        Some((true, Some(most))) if (most as usize) < below => {
            Err(about(certificate, "has more authorities below it than it may have"))
        }
        _ => Ok(()),
    }
}

fn check_leaf(certificate: &X509Certificate<'_>) -> Result<(), Unfit> {
    if authority(certificate)?.is_some_and(|(is_one, _)| is_one) {
        return Err(about(certificate, "signed the artifact, and is an authority"));
    }
    check_leaf_usage(certificate, key_usage(certificate)?)?;
    let purposes = certificate.extended_key_usage();
    let purposes = purposes.map_err(|_| about(certificate, "has purposes that cannot be read"))?;
    // The specification lets it have none.
    let has_another = purposes.is_some_and(|found| {
        let found = found.value;
        found.any
            || found.server_auth
            || found.client_auth
            || found.email_protection
            || found.time_stamping
            || found.ocsp_signing
    });
    if has_another {
        return Err(about(certificate, "is for another purpose than signing code (extended key usage)"));
    }
    way_of(certificate).map(drop)
}

/// That of who countersigns is for that alone, and says so in a way that nobody may overlook (RFC 3161, 2.3).
fn check_leaf_of_stamps(certificate: &X509Certificate<'_>) -> Result<(), Unfit> {
    if authority(certificate)?.is_some_and(|(is_one, _)| is_one) {
        return Err(about(certificate, "countersigned the time, and is an authority of certificates"));
    }
    let unread = |_| about(certificate, "has a key usage that cannot be read");
    let usage = certificate.key_usage().map_err(unread)?;
    let usage = usage.ok_or_else(|| about(certificate, &format!("has no key usage ({KEY_USAGE})")))?;
    check_leaf_usage(certificate, usage.value)?;
    let purposes = certificate.extended_key_usage();
    let purposes = purposes.map_err(|_| about(certificate, "has purposes that cannot be read"))?;
    let is_for_it = purposes.is_some_and(|found| {
        let is_critical = found.critical;
        let found = found.value;
        let has_others = found.any
            || found.server_auth
            || found.client_auth
            || found.code_signing
            || found.email_protection
            || found.ocsp_signing
            || !found.other.is_empty();
        is_critical && found.time_stamping && !has_others
    });
    if is_for_it {
        Ok(())
    } else {
        Err(about(certificate, "is not for timestamps alone (extended key usage)"))
    }
}

fn check_leaf_usage(certificate: &X509Certificate<'_>, usage: &KeyUsage) -> Result<(), Unfit> {
    if !usage.digital_signature() {
        return Err(about(certificate, "has a key that is not for signing"));
    }
    let has_more = usage.key_encipherment()
        || usage.data_encipherment()
        || usage.key_agreement()
        || usage.key_cert_sign()
        || usage.crl_sign()
        || usage.encipher_only()
        || usage.decipher_only();
    if has_more {
        return Err(about(certificate, "has a key that is for more than signing"));
    }
    Ok(())
}
