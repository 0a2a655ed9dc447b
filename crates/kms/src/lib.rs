//! Key services that unwrap the data keys of SOPS files: AWS KMS, Azure Key Vault, Google Cloud KMS, Huawei Cloud KMS, and the transit
//! engine of HashiCorp Vault and OpenBao. And the one place that knows the entries of a decryption Secret.
//!
//! [`import`] reads such a Secret's entries, or files of the same names; [`Environment`] reads what a person's environment names. [`Keys`]
//! makes of both, with the addresses that the operator [allows](Allowed) and a [`Network`], what `roadstead_sops` asks.
//!
//! [`KeyWrappers`] has key services wrap the keys of a program itself, which lie in its key file.
//!
//! A file in Git says which server holds its key. So that it cannot choose who sees a credential: AWS, Google and Huawei are asked where
//! the key's region is, Azure's vaults have to be in Azure's domains, and a Vault is asked only if whoever holds the token, or the operator, has
//! named its address. Credentials go over TLS, but to this machine. All requests go through the guarded client of `roadstead_outbound`
//! (purpose `kms`), redirects are refused, and time, bytes and the number of requests are bounded for each file.
//!
//! ```no_run
//! use std::sync::Arc;
//! use roadstead_kms::{Allowed, Keys, Network, import};
//! use roadstead_outbound::{Policy, Purpose};
//! use roadstead_sops::{Format, Options, decrypt};
//!
//! # async fn example(entries: Vec<(String, Vec<u8>)>, file: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! let imported = import(entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())))?;
//! let network = Arc::new(Network::new(Purpose::Kms, &Arc::new(Policy::default()), None));
//! let keys = Keys::new(imported, Allowed::default(), network, tokio::runtime::Handle::current());
//! let decrypted = tokio::task::spawn_blocking(move || decrypt(&file, &Options::new(Format::Yaml), &keys.for_file()));
//! # drop(decrypted.await??);
//! # Ok(())
//! # }
//! ```

mod address;
mod aws;
mod azure;
mod credentials;
mod entries;
mod environment;
mod gcp;
mod huawei;
mod known;
mod provider;
mod vault;
mod wrapping;

pub use address::{Address, Allowed, BadAddress};
pub use credentials::{
    AwsCredential, AzureCredential, AzureProof, Credentials, GcpCredential, HuaweiCredential, MakesTokens,
    TokenSource, VaultCredential, VaultProof,
};
pub use entries::{EntryError, Imported, import};
pub use environment::{BadVariable, Environment};
pub use known::{AskedOnce, KnownKeys, MOST_NAMED};
pub use provider::{FileKeys, Keys};
pub use roadstead_cloud::{Network, TokenServices};
use roadstead_cloud::{cache, call, error, sign, token};
pub use roadstead_outbound::Secret;
pub use wrapping::{
    BadEntry, BadWrappingKey, ENTRY_BYTES, Entry, Envelope, KeyBytes, KeyWrapper, KeyWrappers, PlainFile,
    WrappingError, WrappingKey,
};
