//! The hub's two certificate authorities: one signs what the hub's own listeners present, the other what agents
//! present. Neither vouches for the other's certificates.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use roadstead_hub_store::{KeyPair as StoredPair, Store};
use roadstead_model::ClusterUid;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::HubError;

const CA_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// A replica makes its serving certificate at each start; this outlives any process.
const SERVING_LIFE: Duration = Duration::from_secs(365 * 86_400);
/// Short-lived: an agent renews it over its link long before.
const AGENT_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Clocks that are off by hours, here or there, must not refuse what was signed just now.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);
const MAX_CSR_BYTES: usize = 16 * 1024;

/// Both authorities, ready to sign.
pub struct Pki {
    server: Issuer<'static, KeyPair>,
    server_ca_pem: String,
    agent: Issuer<'static, KeyPair>,
    agent_ca_pem: String,
}

/// What a listener presents.
#[derive(Clone)]
pub struct ServingIdentity {
    /// The chain, leaf first, PEM.
    pub chain_pem: String,
    /// The private key (PKCS#8), PEM.
    pub key_pem: Zeroizing<String>,
}

/// A signed agent certificate.
#[derive(Debug, Clone)]
pub struct AgentCertificate {
    /// The certificate, PEM.
    pub pem: String,
    /// The public key that it is for.
    pub public_key: Vec<u8>,
    /// After this it is worth nothing.
    pub expires: Timestamp,
}

/// Who presents an agent certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The cluster that is its subject.
    pub cluster: ClusterUid,
    /// The public key.
    pub public_key: Vec<u8>,
    /// When the certificate expires.
    pub expires: Timestamp,
}

fn internal(what: &str) -> impl FnOnce(rcgen::Error) -> HubError {
    let what = what.to_owned();
    move |error| HubError::Internal(format!("{what}: {error}"))
}

impl Pki {
    /// The authorities of this database; the first replica makes them.
    ///
    /// # Errors
    /// Where the database refuses or the key file is not the one they were sealed with.
    pub async fn load(store: &Store, now: Timestamp) -> Result<Self, HubError> {
        let server = store.authority("server-ca", || make_authority("Roadstead server CA", now)).await?;
        let agent = store.authority("agent-ca", || make_authority("Roadstead agent CA", now)).await?;
        Ok(Self {
            server: issuer(&server)?,
            server_ca_pem: server.certificate_pem,
            agent: issuer(&agent)?,
            agent_ca_pem: agent.certificate_pem,
        })
    }

    /// The certificate by which clients and agents know the hub.
    #[must_use]
    pub fn server_ca_pem(&self) -> &str {
        &self.server_ca_pem
    }

    /// The certificate by which the hub knows agents.
    #[must_use]
    pub fn agent_ca_pem(&self) -> &str {
        &self.agent_ca_pem
    }

    /// A fresh key and certificate for this replica's listeners, valid for these hosts and the loopback names.
    ///
    /// # Errors
    /// Where a host is neither a DNS name nor an IP address.
    pub fn serving_identity(&self, hosts: &[String], now: Timestamp) -> Result<ServingIdentity, HubError> {
        let key = KeyPair::generate().map_err(internal("make a serving key"))?;
        let mut names: Vec<String> = hosts.to_vec();
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.sort_unstable();
        names.dedup();
        let mut params = params("roadstead-hub", now, SERVING_LIFE);
        for name in names {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.clone().try_into().map_err(|_| {
                    HubError::BadRequest(format!(
                        "--public-host {name}: neither a DNS name nor an IP address"
                    ))
                })?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate =
            params.signed_by(&key, &self.server).map_err(internal("sign a serving certificate"))?;
        Ok(ServingIdentity { chain_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
    }

    /// Signs an agent's request. Of the request only the public key counts: the subject is the cluster's uid, whatever
    /// the request says.
    ///
    /// # Errors
    /// Where the request is not one, or its signature is wrong.
    pub fn sign_agent(
        &self,
        csr_pem: &str,
        cluster: ClusterUid,
        now: Timestamp,
    ) -> Result<AgentCertificate, HubError> {
        let refuse = |why: String| HubError::BadRequest(format!("the certificate request is refused: {why}"));
        if csr_pem.len() > MAX_CSR_BYTES {
            return Err(refuse(format!("{} bytes, more than {MAX_CSR_BYTES}", csr_pem.len())));
        }
        let request =
            CertificateSigningRequestParams::from_pem(csr_pem).map_err(|error| refuse(error.to_string()))?;
        let mut params = params(&cluster.to_string(), now, AGENT_LIFE);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params
            .signed_by(&request.public_key, &self.agent)
            .map_err(internal("sign an agent's certificate"))?;
        let public_key = request.public_key.der_bytes().to_vec();
        Ok(AgentCertificate { pem: certificate.pem(), public_key, expires: now + AGENT_LIFE })
    }
}

/// Reads the certificate that an agent presented; TLS has checked its signature and its time already.
///
/// # Errors
/// Where its subject is not a cluster.
pub fn read_agent_certificate(der: &[u8]) -> Result<AgentIdentity, HubError> {
    let refuse = |why: &str| HubError::Unauthenticated(format!("the agent's certificate is refused: {why}"));
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| refuse("it is not readable"))?;
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let cluster = name
        .and_then(|name| name.parse().ok())
        .ok_or_else(|| refuse("its subject is not a cluster's uid"))?;
    let expires = Timestamp::from_second(certificate.validity().not_after.timestamp())
        .map_err(|_| refuse("its time is out of range"))?;
    Ok(AgentIdentity {
        cluster,
        public_key: certificate.public_key().subject_public_key.data.to_vec(),
        expires,
    })
}

fn params(common_name: &str, now: Timestamp, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    params.distinguished_name = name;
    let at = |time: Timestamp| {
        time::OffsetDateTime::from_unix_timestamp(time.as_second())
            .unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = at(now - BACKDATED);
    params.not_after = at(now + life);
    params
}

fn make_authority(name: &str, now: Timestamp) -> Result<StoredPair, HubError> {
    let key = KeyPair::generate().map_err(internal("make a CA's key"))?;
    let mut params = params(name, now, CA_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(internal("sign a CA's certificate"))?;
    Ok(StoredPair { certificate_pem: certificate.pem(), key_pem: Zeroizing::new(key.serialize_pem()) })
}

fn issuer(pair: &StoredPair) -> Result<Issuer<'static, KeyPair>, HubError> {
    let key = KeyPair::from_pem(&pair.key_pem).map_err(internal("read a CA's key"))?;
    Issuer::from_ca_cert_pem(&pair.certificate_pem, key).map_err(internal("read a CA's certificate"))
}
