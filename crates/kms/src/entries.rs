//! The entries of a decryption Secret, by the names that Flux has for them.
//!
//! | entry | what it holds |
//! |---|---|
//! | `*.agekey` | age identities, one on each line |
//! | `*.asc` | armored OpenPGP keys |
//! | `sops.aws-kms` | YAML: `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token` |
//! | `sops.azure-kv` | YAML or JSON: `tenantId`, `clientId` and `clientSecret` or `clientCertificate`; or `tenant`, `appId`, `password`; or `clientId` alone; `authorityHost` |
//! | `sops.gcp-kms` | the JSON of a service account's key |
//! | `sops.vault-token` | a token |
//! | `sops.vault-address` | where that token may go, an address on each line. Flux has no such entry, and passes over it |
//!
//! Others are passed over. One that is not what its name says is an error that names it, and holds nothing of what is in it.

use std::fmt;

use roadstead_sops::{ImportError, KeyRing};
use serde::Deserialize;

use crate::address::Address;
use crate::credentials::{
    AwsCredential, AzureCredential, AzureProof, Credentials, GcpCredential, VaultCredential, VaultProof,
};
use roadstead_outbound::Secret;
use roadstead_signing::TokenKey;

/// Of an entry for a key service.
const ENTRY_BYTES: usize = 64 << 10;
/// Addresses of one Secret.
const ADDRESSES: usize = 64;

/// What the entries of a decryption Secret hold.
#[derive(Default)]
pub struct Imported {
    /// age and OpenPGP keys.
    pub ring: KeyRing,
    /// What unlocks key services.
    pub credentials: Credentials,
    vault_addresses: Vec<Address>,
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported").field("ring", &self.ring).field("credentials", &self.credentials).finish()
    }
}

/// Why an entry could not be imported. It holds nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// A key.
    #[error(transparent)]
    Key(#[from] ImportError),
    /// Credentials.
    #[error("cannot import the key {name:?}: {reason}")]
    Credentials {
        /// The entry.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// Imports the entries of a decryption Secret.
///
/// # Errors
/// One of them is not what its name says.
pub fn import<'e>(entries: impl IntoIterator<Item = (&'e str, &'e [u8])>) -> Result<Imported, EntryError> {
    let mut imported = Imported::default();
    for (name, bytes) in entries {
        imported.add(name, bytes)?;
    }
    Ok(imported)
}

impl Imported {
    /// Adds an entry. Gives false for names that mean nothing, which are not looked at.
    ///
    /// # Errors
    /// It is not what its name says.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<bool, EntryError> {
        if self.ring.add(name, bytes)? {
            return Ok(true);
        }
        let kind = match name {
            "sops.aws-kms" => Self::add_aws,
            "sops.azure-kv" => Self::add_azure,
            "sops.gcp-kms" => Self::add_gcp,
            "sops.vault-token" => Self::add_vault_token,
            "sops.vault-address" => Self::add_vault_addresses,
            _ => return Ok(false),
        };
        let error = |reason: String| EntryError::Credentials { name: name.to_owned(), reason };
        if bytes.len() > ENTRY_BYTES {
            return Err(error(format!("it has more than {ENTRY_BYTES} bytes")));
        }
        let text = text(bytes).ok_or_else(|| error("it is not a text".to_owned()))?;
        kind(self, text.expose()).map_err(error)?;
        Ok(true)
    }

    fn add_aws(&mut self, text: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Entry {
            aws_access_key_id: Option<String>,
            aws_secret_access_key: Option<Secret>,
            aws_session_token: Option<Secret>,
        }
        let entry: Entry = yaml(text)?;
        self.credentials.aws = Some(AwsCredential::Static {
            access_key_id: given(entry.aws_access_key_id, "aws_access_key_id")?,
            secret_access_key: present(entry.aws_secret_access_key)
                .ok_or("it has no aws_secret_access_key")?,
            session_token: present(entry.aws_session_token),
        });
        Ok(())
    }

    fn add_azure(&mut self, text: &str) -> Result<(), String> {
        self.credentials.azure = Some(yaml::<AzureEntry>(text)?.credential()?);
        Ok(())
    }

    fn add_gcp(&mut self, text: &str) -> Result<(), String> {
        self.credentials.gcp = Some(GcpCredential::parse(text)?);
        Ok(())
    }

    fn add_vault_token(&mut self, text: &str) -> Result<(), String> {
        let token = text.trim();
        if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err("it is not a token".to_owned());
        }
        let token = Secret::new(token.to_owned());
        let addresses = self.vault_addresses.clone();
        self.credentials.vault =
            Some(VaultCredential { proof: VaultProof::Token(token), addresses, namespace: None });
        Ok(())
    }

    fn add_vault_addresses(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if self.vault_addresses.len() == ADDRESSES {
                return Err(format!("it has more than {ADDRESSES} addresses"));
            }
            let address = Address::parse(line);
            self.vault_addresses
                .push(address.map_err(|_| "a line of it is not https://HOST[:PORT]".to_owned())?);
        }
        if let Some(vault) = &mut self.credentials.vault {
            vault.addresses.clone_from(&self.vault_addresses);
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureEntry {
    tenant_id: Option<String>,
    client_id: Option<String>,
    client_secret: Option<Secret>,
    client_certificate: Option<Secret>,
    client_certificate_password: Option<Secret>,
    client_certificate_send_chain: Option<bool>,
    authority_host: Option<String>,
    tenant: Option<String>,
    app_id: Option<String>,
    password: Option<Secret>,
}

impl AzureEntry {
    fn credential(self) -> Result<AzureCredential, String> {
        let authority = self.authority_host.filter(|host| !host.is_empty());
        let authority = authority.map(|host| Address::parse(&host)).transpose();
        let authority = authority.map_err(|_| "its authorityHost is not https://HOST".to_owned())?;
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (tenant_id, client_id) = (some(self.tenant_id), some(self.client_id));
        let proof = if let Some(secret) = present(self.client_secret) {
            Some(AzureProof::Secret(secret))
        } else if let Some(pem) = present(self.client_certificate) {
            if present(self.client_certificate_password).is_some() {
                return Err(
                    "a clientCertificate with a password is not supported: give PEM without one".to_owned()
                );
            }
            Some(certificate(pem, self.client_certificate_send_chain.unwrap_or_default())?)
        } else {
            None
        };
        if let (Some(tenant), Some(client_id), Some(proof)) = (tenant_id, client_id.clone(), proof) {
            return Ok(AzureCredential::Application { tenant, client_id, proof, authority });
        }
        if let (Some(tenant), Some(client_id), Some(password)) =
            (some(self.tenant), some(self.app_id), present(self.password))
        {
            let proof = AzureProof::Secret(password);
            return Ok(AzureCredential::Application { tenant, client_id, proof, authority: None });
        }
        if client_id.is_some() {
            return Ok(AzureCredential::Managed { client_id, endpoint: None });
        }
        Err("it needs tenantId and clientId with clientSecret or clientCertificate, or tenant, appId and password, \
             or clientId alone for a managed identity"
            .to_owned())
    }
}

/// A certificate with its key.
pub(crate) fn certificate(pem: Secret, send_chain: bool) -> Result<AzureProof, String> {
    let text = pem.expose();
    if !text.contains("-----BEGIN CERTIFICATE-----") {
        return Err("its certificate is not PEM, which is what is supported".to_owned());
    }
    TokenKey::from_pem(text).map_err(|why| format!("its certificate's key is unusable: {why}"))?;
    Ok(AzureProof::Certificate { pem, send_chain })
}

fn given(text: Option<String>, field: &str) -> Result<String, String> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| format!("it has no {field}"))
}

fn present(secret: Option<Secret>) -> Option<Secret> {
    secret.filter(|secret| !secret.is_empty())
}

/// What the parser says is not passed on: it may quote what it stumbled over.
fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text)
        .map_err(|_| "it is not YAML of a map, or one of its fields is not a text".to_owned())
}

/// UTF-8, or UTF-16 with a mark of its byte order, as some of Azure's tools write it.
fn text(bytes: &[u8]) -> Option<Secret> {
    let wide = |bytes: &[u8], read: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|unit| read(*unit)).collect();
        if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => std::str::from_utf8(rest).ok().map(str::to_owned),
        _ => std::str::from_utf8(bytes).ok().map(str::to_owned),
    }
    .map(Secret::new)
}

#[cfg(test)]
mod tests;
