//! What the tests have in common: keys, credentials, and what is expected of answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_kms::{
    Address, Allowed, Credentials, Imported, Keys, Network, Secret, VaultCredential, VaultProof,
};
use roadstead_outbound::{Policy, Purpose};
use roadstead_sops::{DataKey, KeyError, KeyProvider as _, MasterKey};
use tokio::runtime::{Builder, Runtime};

use crate::server::{Answer, Server};

pub(crate) const TOKEN: &str = "s.c4n4ry-t0k3n";
pub(crate) const DATA_KEY: &[u8] = b"01234567890123456789012345678901";

pub(crate) fn runtime() -> Runtime {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The hub's policy, with an operator who allows this.
pub(crate) fn network(entry: &str) -> Arc<Network> {
    Arc::new(Network::new(Purpose::Kms, &Arc::new(Policy::new(vec![entry.parse().unwrap()])), None))
}

pub(crate) fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

pub(crate) fn keys(runtime: &Runtime, credentials: Credentials, allowed: Allowed) -> Keys {
    let mut imported = Imported::default();
    imported.credentials = credentials;
    Keys::new(imported, allowed, network("kms=127.0.0.1"), runtime.handle().clone())
}

pub(crate) fn vault_credentials(addresses: Vec<Address>) -> Credentials {
    let token = Secret::new(TOKEN.to_owned());
    Credentials {
        vault: Some(VaultCredential { proof: VaultProof::Token(token), addresses, namespace: None }),
        ..Credentials::default()
    }
}

pub(crate) fn vault_key(address: &str) -> MasterKey {
    MasterKey::Vault {
        address: address.to_owned(),
        engine_path: "sops".into(),
        key_name: "first".into(),
        enc: "vault:v1:x".into(),
    }
}

pub(crate) fn vault_answer() -> Answer {
    Answer::json(200, &format!(r#"{{"data":{{"plaintext":"{}"}}}}"#, STANDARD.encode(DATA_KEY)))
}

/// Asks a Vault that is allowed by name and port, so that all may be told of it.
pub(crate) fn ask_vault(server: &Server) -> Result<Option<DataKey>, KeyError> {
    let entry = server.url().replace("http://", "kms=");
    ask_vault_by(server, &entry)
}

pub(crate) fn ask_vault_by(server: &Server, entry: &str) -> Result<Option<DataKey>, KeyError> {
    let (runtime, url) = (runtime(), server.url());
    let mut imported = Imported::default();
    imported.credentials = vault_credentials(vec![address(&url)]);
    let keys = Keys::new(imported, Allowed::default(), network(entry), runtime.handle().clone());
    keys.for_file().unwrap(&vault_key(&url))
}

pub(crate) fn opened(result: &Result<Option<DataKey>, KeyError>) -> bool {
    matches!(result, Ok(Some(key)) if key.expose() == DATA_KEY)
}

/// What an error says, which holds nothing of the token.
pub(crate) fn told(result: Result<Option<DataKey>, KeyError>) -> String {
    let told = format!("{} {0:?}", result.unwrap_err());
    assert!(!told.contains(TOKEN) && !told.contains("c4n4ry"), "{told}");
    told
}

pub(crate) fn aws_key(role: Option<&str>) -> MasterKey {
    MasterKey::AwsKms {
        arn: "arn:aws:kms:eu-central-1:123456789012:key/1-2".into(),
        role: role.map(str::to_owned),
        context: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        profile: String::new(),
        enc: "AQ==".into(),
    }
}
