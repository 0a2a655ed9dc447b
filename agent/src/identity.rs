//! The agent's identity: a key that it makes itself and never shows, and the certificate that the hub gave for it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PublicKeyData as _};
use roadstead_model::{ClusterUid, Digest};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

/// Why a key or a certificate is not usable.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A key could not be made, read or used.
    #[error("{doing} the agent's key")]
    Key {
        /// What was attempted.
        doing: &'static str,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// The certificate is not one, or not ours.
    #[error("the certificate from the hub {0}")]
    Certificate(String),
    /// What the hub said of itself is not usable.
    #[error("the hub's answer has no usable {what}: {why}")]
    Answer {
        /// The field.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// An ECDSA P-256 private key, PEM. Does not print.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<String>);

impl PrivateKey {
    /// A new one.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn generate() -> Result<Self, IdentityError> {
        let pair = KeyPair::generate().map_err(|source| IdentityError::Key { doing: "make", source })?;
        Ok(Self(Zeroizing::new(pair.serialize_pem())))
    }

    /// From PEM that was kept.
    ///
    /// # Errors
    /// When it is not a key.
    pub fn from_pem(pem: String) -> Result<Self, IdentityError> {
        let key = Self(Zeroizing::new(pem));
        key.pair()?;
        Ok(key)
    }

    /// The PEM, for TLS and for the Secret that keeps it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn pair(&self) -> Result<KeyPair, IdentityError> {
        KeyPair::from_pem(&self.0).map_err(|source| IdentityError::Key { doing: "read", source })
    }

    /// A certificate request for this key, PEM. Its subject is empty: the hub decides who this is.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn csr(&self) -> Result<String, IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let sign = |source| IdentityError::Key { doing: "sign a certificate request with", source };
        params.serialize_request(&self.pair()?).and_then(|request| request.pem()).map_err(sign)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// When a certificate is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// Its first moment.
    pub not_before: Timestamp,
    /// Its last moment.
    pub not_after: Timestamp,
}

impl Validity {
    /// When to ask for the next one: after two thirds of its life.
    #[must_use]
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.as_second().saturating_sub(self.not_before.as_second()).max(0);
        Timestamp::from_second(self.not_before.as_second().saturating_add(life / 3 * 2))
            .unwrap_or(self.not_after)
    }

    /// How long from `now` to [`Self::renew_at`]; zero where that is past.
    #[must_use]
    pub fn renew_in(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.renew_at().duration_since(now)).unwrap_or_default()
    }
}

/// Who this agent is to its hub.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its key.
    pub key: PrivateKey,
    /// Its certificate chain, leaf first, PEM.
    pub certificate: String,
    /// The CA of the hub's server certificates, PEM.
    pub ca: String,
    /// The hub's link port, `host:port`.
    pub link: String,
    /// The uid of the Cluster on the hub: the certificate's subject.
    pub cluster_uid: ClusterUid,
    /// The Cluster's name there.
    pub cluster_name: String,
    /// Which token it was got with.
    pub token: Digest,
    /// When the certificate is good.
    pub validity: Validity,
}

impl Identity {
    /// The same identity with a newer certificate for its key.
    ///
    /// # Errors
    /// When the certificate is for another key or another cluster.
    pub fn renewed(&self, certificate: String) -> Result<Self, IdentityError> {
        let validity = check_certificate(&certificate, &self.key, self.cluster_uid)?;
        Ok(Self { certificate, validity, ..self.clone() })
    }
}

/// Holds the leaf of `chain` against the key that it ought to be for and the cluster that it ought to name.
///
/// # Errors
/// [`IdentityError::Certificate`] with what does not fit.
pub fn check_certificate(
    chain: &str,
    key: &PrivateKey,
    cluster: ClusterUid,
) -> Result<Validity, IdentityError> {
    let refuse = |why: String| IdentityError::Certificate(why);
    let Some(Ok(pem)) = Pem::iter_from_buffer(chain.as_bytes()).next() else {
        return Err(refuse("is not PEM".to_owned()));
    };
    let (_, leaf) =
        X509Certificate::from_der(&pem.contents).map_err(|_| refuse("is not X.509".to_owned()))?;
    if leaf.public_key().raw != key.pair()?.subject_public_key_info() {
        return Err(refuse("is not for this agent's key".to_owned()));
    }
    let uid = cluster.to_string();
    let named = leaf.subject().iter_common_name().any(|name| name.as_str() == Ok(&uid));
    if !named {
        return Err(refuse(format!(
            "has the subject `{}`, which does not name cluster {uid}",
            leaf.subject()
        )));
    }
    let time =
        |seconds: i64| Timestamp::from_second(seconds).map_err(|_| refuse("has invalid dates".to_owned()));
    Ok(Validity {
        not_before: time(leaf.validity().not_before.timestamp())?,
        not_after: time(leaf.validity().not_after.timestamp())?,
    })
}

#[cfg(test)]
mod tests {
    use super::{PrivateKey, check_certificate};
    use rcgen::{CertificateParams, DnType, KeyPair};
    use roadstead_model::ClusterUid;

    fn certificate(key: &PrivateKey, subject: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, subject);
        params.not_before = rcgen::date_time_ymd(2030, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 31);
        params.self_signed(&KeyPair::from_pem(key.expose()).expect("a key")).expect("signed").pem()
    }

    #[test]
    fn a_certificate_is_held_against_key_and_cluster() {
        let (key, other) = (PrivateKey::generate().expect("a key"), PrivateKey::generate().expect("a key"));
        let cluster = ClusterUid::random();
        let good = certificate(&key, &cluster.to_string());
        let validity = check_certificate(&good, &key, cluster).expect("ours");
        assert_eq!(validity.renew_at().to_string(), "2030-01-21T00:00:00Z");
        let error = check_certificate(&good, &other, cluster).expect_err("another key").to_string();
        assert!(error.contains("not for this agent's key"), "{error}");
        let error =
            check_certificate(&good, &key, ClusterUid::random()).expect_err("another cluster").to_string();
        assert!(error.contains("does not name cluster"), "{error}");
        assert!(check_certificate("nonsense", &key, cluster).is_err());
    }

    #[test]
    fn a_key_reads_back_and_does_not_print() {
        let key = PrivateKey::generate().expect("a key");
        assert_eq!(format!("{key:?}"), "PrivateKey(…)");
        assert!(key.csr().expect("a request").starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        assert!(PrivateKey::from_pem(key.expose().to_owned()).is_ok());
        assert!(PrivateKey::from_pem("x".to_owned()).is_err());
    }
}
