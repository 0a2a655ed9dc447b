//! Which certificate authorities are trusted: the system's, and those that a user names besides.
//!
//! A server may also present a certificate that is itself among them, as Go's and OpenSSL's clients allow: one that `openssl req -x509`
//! makes is its own authority, and webpki takes no authority for a server.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, SignatureScheme};

use crate::http::ClientError;

/// The system's authorities are read again when they are older. They are often hundreds of files, and reading them takes longer
/// than the rest of what a new client needs.
const FRESH: Duration = Duration::from_secs(60);
/// The longest text with authorities that a user names, in bytes.
const MOST: usize = 1 << 20;

/// They are the machine's, and so the same for the whole process.
static SYSTEM: Mutex<Kept> = Mutex::new(Kept(None));

/// Authorities as they were read last.
struct Kept(Option<(Instant, Arc<Authorities>)>);

/// Authorities, and the digests of their certificates.
#[derive(Debug, Clone)]
struct Authorities {
    roots: Arc<RootCertStore>,
    themselves: HashSet<[u8; 32]>,
}

impl Authorities {
    fn none() -> Self {
        Self { roots: Arc::new(RootCertStore::empty()), themselves: HashSet::new() }
    }

    fn add(&mut self, authority: CertificateDer<'_>) -> Result<(), TlsError> {
        let itself = fingerprint(&authority);
        Arc::make_mut(&mut self.roots).add(authority.into_owned())?;
        self.themselves.extend(itself);
        Ok(())
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> Option<[u8; 32]> {
    digest(&SHA256, certificate).as_ref().try_into().ok()
}

impl Kept {
    fn get(&mut self, now: Instant, read: impl FnOnce() -> Authorities) -> Arc<Authorities> {
        if let Some((since, roots)) = &self.0
            && now.saturating_duration_since(*since) < FRESH
        {
            return Arc::clone(roots);
        }
        let roots = Arc::new(read());
        // None at all may be a moment in which they are replaced.
        self.0 = (!roots.roots.is_empty()).then(|| (now, Arc::clone(&roots)));
        roots
    }
}

/// Who may vouch for a server: PEM of authorities, where there is some.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trust<'a> {
    /// The system's authorities, and these besides.
    Besides(Option<&'a [u8]>),
    /// These and no others.
    Only(&'a [u8]),
}

/// Checks servers' certificates.
pub(crate) fn verifier(
    provider: &Arc<CryptoProvider>,
    trust: Trust<'_>,
) -> Result<Arc<Verifier>, ClientError> {
    let (mut trusted, pem) = match trust {
        Trust::Only(pem) => (Arc::new(Authorities::none()), Some(pem)),
        Trust::Besides(pem) => {
            let system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner).get(Instant::now(), system);
            (system, pem)
        }
    };
    if let Some(pem) = pem {
        let trusted = Arc::make_mut(&mut trusted);
        for authority in authorities(pem)? {
            trusted.add(authority).map_err(|error| ClientError::Authority(error.to_string()))?;
        }
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::clone(&trusted.roots), Arc::clone(provider))
        .build()
        .map_err(|error| ClientError::Tls(format!("this machine's certificate authorities: {error}")))?;
    Ok(Arc::new(Verifier { inner, trusted }))
}

/// Webpki's verifier, and certificates that are trusted themselves.
#[derive(Debug)]
pub(crate) struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Arc<Authorities>,
}

impl Verifier {
    fn is_trusted_itself(&self, certificate: &CertificateDer<'_>) -> bool {
        fingerprint(certificate).is_some_and(|itself| self.trusted.themselves.contains(&itself))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(TlsError::InvalidCertificate(_)) if self.is_trusted_itself(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                verify_dates(end_entity, now)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn verify_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), TlsError> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

fn system() -> Authorities {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = Authorities::none();
    let mut unusable = 0_usize;
    for authority in found.certs {
        unusable += usize::from(trusted.add(authority).is_err());
    }
    if unusable > 0 || !found.errors.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        tracing::warn!(
            unusable,
            errors = errors.join("; "),
            "not all of the system's authorities can be read"
        );
    }
    trusted
}

fn authorities(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let unusable = |why: &str| ClientError::Authority(why.to_owned());
    if pem.len() > MOST {
        return Err(unusable("it is larger than 1 MiB"));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| ClientError::Authority(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("there is no certificate in it"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_read_once_a_minute() {
        let own = rcgen::generate_simple_self_signed(["git.example".to_owned()]).unwrap().cert;
        let some = || {
            let mut trusted = Authorities::none();
            trusted.add(own.der().clone()).unwrap();
            trusted
        };
        let (mut kept, now) = (Kept(None), Instant::now());
        assert!(kept.get(now, Authorities::none).roots.is_empty());
        let first = kept.get(now, some);
        let later = |kept: &mut Kept, seconds| kept.get(now + Duration::from_secs(seconds), some);
        assert!(Arc::ptr_eq(&first, &later(&mut kept, 59)), "read again at once");
        assert!(!Arc::ptr_eq(&first, &later(&mut kept, 61)), "not read again");
    }

    #[test]
    fn an_authority_of_one_user_is_trusted_for_nobody_else() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let known = || SYSTEM.lock().unwrap().get(Instant::now(), system).roots.len();
        let before = known();
        let own = rcgen::generate_simple_self_signed(["git.example".to_owned()]).unwrap().cert.pem();
        verifier(&provider, Trust::Besides(Some(own.as_bytes()))).unwrap();
        assert_eq!(known(), before);
    }

    #[test]
    fn where_only_some_authorities_are_trusted_the_systems_are_not() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let own = rcgen::generate_simple_self_signed(["issuer.example".to_owned()]).unwrap().cert.pem();
        let roots = |trust| verifier(&provider, trust).unwrap().trusted.roots.len();
        assert_eq!(roots(Trust::Only(own.as_bytes())), 1);
        assert_eq!(roots(Trust::Besides(Some(own.as_bytes()))), roots(Trust::Besides(None)) + 1);
    }

    /// Its own authority, as `openssl req -x509` makes it.
    fn own_authority(from: i32, to: i32) -> rcgen::Certificate {
        let mut params = rcgen::CertificateParams::new(["vault.example".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_server_may_present_a_certificate_that_is_trusted_itself() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let check = |presented: &rcgen::Certificate, trusted: &rcgen::Certificate, name: &str| {
            let verifier = verifier(&provider, Trust::Besides(Some(trusted.pem().as_bytes()))).unwrap();
            let name = ServerName::try_from(name.to_owned()).unwrap();
            verifier.verify_server_cert(presented.der(), &[], &name, &[], UnixTime::now()).map(drop)
        };
        let own = own_authority(2000, 2200);
        assert_eq!(check(&own, &own, "vault.example"), Ok(()));
        assert!(check(&own, &own, "other.example").is_err(), "another name");
        assert!(check(&own_authority(2000, 2200), &own, "vault.example").is_err(), "one of the same names");
        let past = own_authority(2000, 2020);
        assert_eq!(check(&past, &past, "vault.example"), Err(CertificateError::Expired.into()));
        let future = own_authority(2200, 2201);
        assert_eq!(check(&future, &future, "vault.example"), Err(CertificateError::NotValidYet.into()));
    }
}
