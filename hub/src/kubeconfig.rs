//! The administrator's kubeconfig.

use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::private_file;

/// An administrator's token.
pub(crate) struct Token {
    /// Its text.
    pub(crate) text: Zeroizing<String>,
    /// When it ends.
    pub(crate) expires: Timestamp,
}

/// Writes a kubeconfig that only its owner can read.
pub(crate) fn write(path: &Path, server: &str, ca_pem: &str, token: &Token) -> Result<()> {
    private_file::write(path, &text(server, ca_pem, token)?)
}

/// A kubeconfig. JSON is YAML, and kubectl takes it; it says when its token ends where kubectl leaves room for what it does not know.
pub(crate) fn text(server: &str, ca_pem: &str, token: &Token) -> Result<Zeroizing<Vec<u8>>> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "roadstead",
            "cluster": {
                "server": server,
                "certificate-authority-data": roadstead_hub_core::base64(ca_pem.as_bytes()),
            },
        }],
        "users": [{
            "name": "roadstead-admin",
            "user": {
                "token": token.text.as_str(),
                "extensions": [{ "name": "roadstead", "extension": { "tokenExpires": token.expires.to_string() } }],
            },
        }],
        "contexts": [{
            "name": "roadstead",
            "context": { "cluster": "roadstead", "user": "roadstead-admin", "namespace": "default" },
        }],
        "current-context": "roadstead",
    });
    Ok(Zeroizing::new(serde_json::to_vec_pretty(&config).context("write a kubeconfig")?))
}

/// The token in a kubeconfig that [`write`] wrote.
pub(crate) fn token(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let config: Value = serde_json::from_slice(&text).ok()?;
    config.pointer("/users/0/user/token")?.as_str().map(str::to_owned)
}
