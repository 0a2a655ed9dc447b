//! The files that say which issuers of `OpenID` Connect are trusted, and where people sign in.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use roadstead_hub_api::ClientCa;
use roadstead_hub_core::Outbound;
use roadstead_hub_core::identity::SignInOptions;
use roadstead_oidc::{Configuration, SignInConfiguration, SignInProvider};
use roadstead_outbound::Secret;

use crate::args::Args;

/// More of a file is not read: it is too large then.
const MOST: u64 = (1 << 20) + 1;

/// The authorities of clients' certificates, where there are any.
pub(crate) fn client_ca(path: Option<&Path>, masters: bool) -> Result<Option<ClientCa>> {
    let Some(path) = path else { return Ok(None) };
    let read = || -> Result<String> {
        let mut pem = String::new();
        std::fs::File::open(path)?.take(MOST).read_to_string(&mut pem)?;
        anyhow::ensure!(pem.contains("-----BEGIN CERTIFICATE-----"), "it has no certificate in PEM");
        Ok(pem)
    };
    let pem = read().with_context(|| format!("read {} (--client-ca-file)", path.display()))?;
    tracing::warn!(file = %path.display(), masters, "client certificates are taken by the API");
    Ok(Some(ClientCa { pem, masters }))
}

/// The longest secret of a client, in bytes.
const MAX_SECRET: usize = 4096;

/// Where people sign in, and for how long.
pub(crate) fn sign_in(args: &Args, trusted: &Configuration) -> Result<SignInOptions> {
    let times = SignInOptions {
        idle: args.session_idle,
        lasts: args.session_lasts,
        any_token: args.dev,
        ..SignInOptions::default()
    };
    let Some(path) = args.sign_in_config.as_deref() else { return Ok(times) };
    let parse = || -> Result<SignInOptions> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
        let configuration = SignInConfiguration::parse(&bytes, trusted)?;
        let secrets = configuration.providers().iter().map(secret).collect::<Result<_>>()?;
        Ok(SignInOptions { configuration, secrets, ..times })
    };
    let options = parse().with_context(|| format!("read {} (--sign-in-config)", path.display()))?;
    for provider in options.configuration.providers() {
        tracing::info!(issuer = provider.issuer(), name = provider.name(), "people can sign in there");
    }
    Ok(options)
}

/// The secret of the hub's client at a provider; empty where it has none.
fn secret(provider: &SignInProvider) -> Result<Secret> {
    let Some(path) = provider.client_secret_file() else { return Ok(Secret::default()) };
    let read = || -> Result<Secret> {
        let mut text = zeroize::Zeroizing::new(String::new());
        std::fs::File::open(path)?.take(MAX_SECRET as u64 + 1).read_to_string(&mut text)?;
        let secret = text.trim_end_matches(['\r', '\n']);
        anyhow::ensure!(!secret.is_empty() && secret.len() <= MAX_SECRET, "want 1 to {MAX_SECRET} bytes");
        Ok(Secret::from(secret))
    };
    read().with_context(|| format!("read {} (clientSecretFile of {})", path.display(), provider.issuer()))
}

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
