//! `roadstead login token`: what kubectl and flux run to have a token (client.authentication.k8s.io/v1).

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{cached_token, print};

/// Print a token as kubectl wants it of a credential plugin: what `roadstead login` writes into kubeconfigs runs this
#[derive(Debug, clap::Args)]
pub(crate) struct Token {
    /// Where the sign-in is kept
    #[arg(long, value_name = "FILE")]
    cache: PathBuf,
}

impl Token {
    pub(crate) fn run(self) -> Result<()> {
        let (token, expires) = cached_token(&self.cache)?;
        let expires = jiff::Timestamp::from_second(expires).context("the token's expiry is out of range")?;
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": { "token": token, "expirationTimestamp": expires.to_string() },
        });
        print(&format!("{credential}\n"))
    }
}
