//! Which certificate authorities are trusted: the system's, and those that a user names besides.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::http::ClientError;

/// The system's authorities are read again when they are older. They are often hundreds of files, and reading them takes longer
/// than the rest of what a new client needs.
const FRESH: Duration = Duration::from_secs(60);
/// The longest text with authorities that a user names, in bytes.
const MOST: usize = 1 << 20;

/// They are the machine's, and so the same for the whole process.
static SYSTEM: Mutex<Kept> = Mutex::new(Kept(None));

/// Authorities as they were read last.
struct Kept(Option<(Instant, Arc<RootCertStore>)>);

impl Kept {
    fn get(&mut self, now: Instant, read: impl FnOnce() -> RootCertStore) -> Arc<RootCertStore> {
        if let Some((since, roots)) = &self.0
            && now.saturating_duration_since(*since) < FRESH
        {
            return Arc::clone(roots);
        }
        let roots = Arc::new(read());
        // None at all may be a moment in which they are replaced.
        self.0 = (!roots.is_empty()).then(|| (now, Arc::clone(&roots)));
        roots
    }
}

/// Checks servers' certificates; `ca` is PEM of authorities to trust besides the system's.
pub(crate) fn verifier(
    provider: &Arc<CryptoProvider>,
    ca: Option<&[u8]>,
) -> Result<Arc<WebPkiServerVerifier>, ClientError> {
    let mut roots = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner).get(Instant::now(), system);
    if let Some(pem) = ca {
        let roots = Arc::make_mut(&mut roots);
        for authority in authorities(pem)? {
            roots.add(authority).map_err(|error| ClientError::Authority(error.to_string()))?;
        }
    }
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| ClientError::Tls(format!("this machine's certificate authorities: {error}")))
}

fn system() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (_, unusable) = roots.add_parsable_certificates(found.certs);
    if unusable > 0 || !found.errors.is_empty() {
        let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        tracing::warn!(
            unusable,
            errors = errors.join("; "),
            "not all of the system's authorities can be read"
        );
    }
    roots
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
            let mut roots = RootCertStore::empty();
            roots.add(own.der().clone()).unwrap();
            roots
        };
        let (mut kept, now) = (Kept(None), Instant::now());
        assert!(kept.get(now, RootCertStore::empty).is_empty());
        let first = kept.get(now, some);
        let later = |kept: &mut Kept, seconds| kept.get(now + Duration::from_secs(seconds), some);
        assert!(Arc::ptr_eq(&first, &later(&mut kept, 59)), "read again at once");
        assert!(!Arc::ptr_eq(&first, &later(&mut kept, 61)), "not read again");
    }

    #[test]
    fn an_authority_of_one_user_is_trusted_for_nobody_else() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let known = || SYSTEM.lock().unwrap().get(Instant::now(), system).len();
        let before = known();
        let own = rcgen::generate_simple_self_signed(["git.example".to_owned()]).unwrap().cert.pem();
        verifier(&provider, Some(own.as_bytes())).unwrap();
        assert_eq!(known(), before);
    }
}
