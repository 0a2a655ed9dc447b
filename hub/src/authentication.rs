//! The file that says which issuers of `OpenID` Connect are trusted.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use roadstead_hub_core::Outbound;
use roadstead_oidc::Configuration;

/// More of a file is not read: it is too large then.
const MOST: u64 = (1 << 20) + 1;

/// Reads the file, where there is one. What is wrong with it is told at start, and not when somebody comes with a token.
pub(crate) fn read(path: Option<&Path>, outbound: &Outbound) -> Result<Arc<Configuration>> {
    let Some(path) = path else { return Ok(Arc::default()) };
    let parse = || -> Result<Configuration> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
        let configuration = Configuration::parse(&bytes)?;
        outbound.check_authorities(&configuration).map_err(anyhow::Error::msg)?;
        Ok(configuration)
    };
    let configuration =
        parse().with_context(|| format!("read {} (--authentication-config)", path.display()))?;
    for issuer in configuration.issuers() {
        tracing::info!(issuer = issuer.url(), "tokens of this OpenID Connect issuer are taken");
    }
    Ok(Arc::new(configuration))
}
