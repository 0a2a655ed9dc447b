//! A certificate authority for one server.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// A self-made certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes one, with a key of its own.
    ///
    /// # Errors
    /// If the crypto provider cannot.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate().context("making the authority's key")?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Roadstead test Git CA");
        let pem = params.self_signed(&key).context("signing the authority's certificate")?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// The one that is kept in `folder` as `ca.pem` and `ca.key`, which is made if there is none.
    ///
    /// # Errors
    /// If what is there cannot be read, or the folder not be written to.
    pub fn kept_in(folder: &Path) -> Result<Self> {
        let (certificate, private) = (folder.join("ca.pem"), folder.join("ca.key"));
        if certificate.exists() {
            let pem = read(&certificate)?;
            let key = KeyPair::from_pem(&read(&private)?).context("the authority's key")?;
            let issuer = Issuer::from_ca_cert_pem(&pem, key).context("the authority's certificate")?;
            return Ok(Self { issuer, pem });
        }
        let made = Self::new()?;
        std::fs::create_dir_all(folder)?;
        write(&private, 0o600, &made.issuer.key().serialize_pem())?;
        // Last, and whole: it says that the key is there, and others wait for it.
        write(&certificate, 0o644, &made.pem)?;
        Ok(made)
    }

    /// Its certificate, in PEM: what a client shall trust.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// What a server on these names and addresses needs.
    ///
    /// # Errors
    /// If a name is none, or no crypto provider is installed.
    pub fn server_config(&self, names: &[String]) -> Result<Arc<ServerConfig>> {
        self.config(names, false)
    }

    /// The same; `certified` says whether clients must show a certificate of the authority.
    pub(crate) fn config(&self, names: &[String], certified: bool) -> Result<Arc<ServerConfig>> {
        let key = KeyPair::generate().context("making the server's key")?;
        let certificate = CertificateParams::new(names.to_vec())
            .context("the server's names")?
            .signed_by(&key, &self.issuer)
            .context("signing the server's certificate")?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let builder = ServerConfig::builder();
        let builder = if certified {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes())?)?;
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build()?)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .context("the server's certificate")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl Authority {
    /// A certificate for a client and its key, in PEM.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn client(&self) -> Result<(String, String)> {
        let key = KeyPair::generate().context("making a client's key")?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).context("signing a client's certificate")?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn write(path: &Path, mode: u32, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let partial = path.with_extension("partial");
    // One that an earlier process left half written.
    let _ = std::fs::remove_file(&partial);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&partial)
        .with_context(|| format!("writing {}", partial.display()))?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&partial, path)?;
    Ok(())
}
