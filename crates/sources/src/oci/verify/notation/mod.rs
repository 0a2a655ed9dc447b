//! Signatures of artifacts in a registry as Notary's notation makes them, by certificates that a user trusts as a trust policy says.
//!
//! A signature is an envelope, in JSON (JWS) or CBOR (COSE), that a manifest holds which refers to the artifact. It names the
//! artifact by digest, size and media type, and brings the certificates of its signer along. Whether it counts is decided in
//! `judge`, which is pure: an envelope, a policy, certificates, what was signed and the time go in, and a verdict comes out, or what is
//! to be asked first of who issued the certificates (`revocation`).
//! `find` asks the registry for envelopes, and `reading` reads what it sent.

mod cbor;
mod chain;
mod cose;
mod crl;
mod envelope;
pub(super) mod find;
mod judge;
mod jws;
mod name;
mod ocsp;
mod policy;
pub(super) mod reading;
pub(in crate::oci) mod revocation;
mod scope;
mod stamp;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use policy::Statement;

use crate::oci::name::RepositoryName;

/// The Secret's entry that holds the policy.
const POLICY: &str = "trustpolicy.json";
/// Certificates of one Secret: each is compared with each of a chain.
const MOST_CERTIFICATES: usize = 64;
/// Bytes of an entry of certificates, and of one certificate.
const MOST_ENTRY: usize = 256 << 10;
const MOST_CERTIFICATE: usize = 16 << 10;
/// What blocks of a certificate are called.
const LABEL: &str = "CERTIFICATE";

/// Whom a Secret trusts to sign, and for what: a trust policy and certificates. Nothing that is private is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotationTrust {
    statements: Vec<Statement>,
    /// DER, as base64.
    certificates: Vec<String>,
}

impl NotationTrust {
    /// Of the entries of a Secret: `trustpolicy.json`, and certificates in each `*.crt` and `*.pem`, in PEM or DER.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn of_entries(entries: &[(&str, Vec<u8>)]) -> Result<Self, String> {
        let policy = entries.iter().find(|(key, _)| *key == POLICY);
        let (_, policy) = policy.ok_or_else(|| format!("has no key {POLICY}"))?;
        let statements = policy::parse(policy).map_err(|why| format!("key {POLICY}: {why}"))?;
        let mut certificates = Vec::new();
        for (key, bytes) in entries.iter().filter(|(key, _)| key.ends_with(".crt") || key.ends_with(".pem")) {
            let found = certificates_of(bytes).map_err(|why| format!("key {key}: {why}"))?;
            certificates.extend(found.iter().map(|der| STANDARD.encode(der)));
        }
        certificates.sort();
        certificates.dedup();
        if certificates.len() > MOST_CERTIFICATES {
            return Err(format!("has more than {MOST_CERTIFICATES} certificates"));
        }
        if certificates.is_empty() {
            return Err("has no certificates: want entries *.crt or *.pem".to_owned());
        }
        Ok(Self { statements, certificates })
    }

    /// Whether artifacts of the repository with this URL need no signature: the level is `skip`. Never of what is not a URL of one,
    /// since which scope that is in is not known.
    #[must_use]
    pub fn skips(&self, url: &str) -> bool {
        let name = RepositoryName::parse(url, false);
        let statement = name.ok().and_then(|name| self.statement_of(&scope::of_url(url, &name)));
        statement.is_some_and(Statement::is_skip)
    }

    /// What the policy says of a repository that has these names. One that names it counts before one for all.
    fn statement_of(&self, scopes: &[String]) -> Option<&Statement> {
        let exact = scopes.iter().find_map(|scope| self.statements.iter().find(|one| one.names(scope)));
        exact.or_else(|| self.statements.iter().find(|one| one.is_for_all()))
    }

    /// The same trust with this statement alone.
    fn narrowed(&self, statement: &Statement) -> Self {
        Self { statements: vec![statement.clone()], certificates: self.certificates.clone() }
    }

    /// The certificates, in DER.
    fn certificates(&self) -> Vec<Vec<u8>> {
        self.certificates.iter().filter_map(|text| STANDARD.decode(text).ok()).collect()
    }
}

/// The certificates of an entry. Of a file of PEM only blocks of certificates are looked at: a private key beside them stays where it is.
fn certificates_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    if bytes.len() > MOST_ENTRY {
        return Err(format!("it has more than {MOST_ENTRY} bytes"));
    }
    let (begin, end) = (format!("-----BEGIN {LABEL}-----"), format!("-----END {LABEL}-----"));
    let Ok(text) = std::str::from_utf8(bytes) else { return of_der(bytes) };
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(from) = rest.find(&begin) {
        let to = rest[from..].find(&end).map(|at| from + at + end.len());
        let to = to.ok_or("a certificate has no end")?;
        let block = format!("{}\n", &rest[from..to]);
        let (pem, _) = Pem::read(std::io::Cursor::new(block)).map_err(|_| "it is not PEM")?;
        found.extend(of_der(&pem.contents)?);
        if found.len() > MOST_CERTIFICATES {
            return Err(format!("it has more than {MOST_CERTIFICATES} certificates"));
        }
        rest = &rest[to..];
    }
    if found.is_empty() {
        return Err("it holds no certificate in PEM or DER".to_owned());
    }
    Ok(found)
}

/// Certificates in DER, one behind the other.
fn of_der(mut rest: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (behind, _) =
            X509Certificate::from_der(rest).map_err(|_| "it holds what is not a certificate")?;
        let der = &rest[..rest.len() - behind.len()];
        if der.len() > MOST_CERTIFICATE {
            return Err(format!("a certificate has more than {MOST_CERTIFICATE} bytes"));
        }
        found.push(der.to_vec());
        if found.len() > MOST_CERTIFICATES {
            return Err(format!("it has more than {MOST_CERTIFICATES} certificates"));
        }
        rest = behind;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
