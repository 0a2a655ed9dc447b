//! `roadstead login` and `roadstead logout`: sign in at the provider that the hub names, and have kubectl and flux use it.

mod cache;
mod credential;
mod kubeconfig;
mod loopback;
mod provider;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

pub(crate) use cache::cached_token;
pub(crate) use kubeconfig::cache_of_exec;

use crate::output;
use cache::Signed;
use provider::{Place, Provider};

const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_CA_BYTES: u64 = 1 << 20;

/// Sign in at the provider that a hub names, and write a context that kubectl and flux use
#[derive(Debug, clap::Args)]
pub(crate) struct Login {
    #[command(subcommand)]
    command: Option<LoginCommand>,

    /// The hub's URL
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// The authority of the hub's certificate (PEM) [default: those of this machine]
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,

    /// At which provider, by its name or issuer [default: the only one]
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,

    /// Sign in with a browser of another device, by a code
    #[arg(long)]
    device: bool,

    /// Do not open a browser: only say which address to open
    #[arg(long, conflicts_with = "device")]
    no_browser: bool,

    /// The kubeconfig that gets the context [default: ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The name of the context, its cluster and its user
    #[arg(long, value_name = "NAME", default_value = "roadstead")]
    context: String,
}

#[derive(Debug, clap::Subcommand)]
enum LoginCommand {
    Token(credential::Token),
}

/// Forget what `roadstead login` keeps
#[derive(Debug, clap::Args)]
pub(crate) struct Logout {
    /// The kubeconfig that has the context [default: ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The context
    #[arg(long, value_name = "NAME", default_value = "roadstead")]
    context: String,
}

/// What a hub says of where people sign in.
#[derive(Deserialize)]
struct Offered {
    #[serde(default)]
    providers: Vec<OfferedProvider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferedProvider {
    name: String,
    issuer: String,
    #[serde(rename = "clientID")]
    client_id: Option<String>,
    scopes: Option<Vec<String>>,
    certificate_authority: Option<String>,
    #[serde(rename = "discoveryURL")]
    discovery_url: Option<String>,
}

impl OfferedProvider {
    fn place(&self) -> Place<'_> {
        let (ca, discovery_url) = (self.certificate_authority.as_deref(), self.discovery_url.as_deref());
        Place { issuer: &self.issuer, ca, discovery_url }
    }
}

impl Login {
    pub(crate) fn run(self) -> Result<()> {
        if let Some(LoginCommand::Token(token)) = self.command {
            return token.run();
        }
        let server = self.server.as_deref().context("name the hub: --server https://HUB")?;
        let server = server.trim_end_matches('/').to_owned();
        if !server.starts_with("https://") {
            bail!("--server {server:?} is not an https:// URL");
        }
        crate::tls::install();
        let ca = self.certificate_authority.as_deref().map(read_ca).transpose()?;
        let offered = offered(&server, ca.as_deref())?;
        let chosen =
            choose(offered, self.provider.as_deref()).with_context(|| format!("sign in to {server}"))?;
        let client_id = chosen.client_id.clone().context(
            "this provider is not set up for roadstead login (commandLine in --sign-in-config of the hub)",
        )?;
        let provider = Provider::find(&chosen.place())?;
        let scopes = chosen.scopes.clone().unwrap_or_else(|| provider.endpoints.usual_scopes());
        let tokens = if self.device {
            provider.by_device(&client_id, &scopes)?
        } else {
            provider.by_browser(&client_id, &scopes, !self.no_browser)?
        };
        let id_token = tokens.id.context("the provider gave no ID token")?;
        let signed = Signed {
            issuer: chosen.issuer.clone(),
            client_id,
            certificate_authority: chosen.certificate_authority.clone(),
            discovery_url: chosen.discovery_url.clone(),
            id_token: id_token.to_string(),
            refresh_token: tokens.refresh.map(|token| token.to_string()),
        };
        let path = cache::path(&server, &signed.issuer)?;
        cache::write(&path, &signed)?;
        let file = crate::hub::kubeconfig(self.kubeconfig.as_deref())?;
        kubeconfig::add(&file, &self.context, &server, ca.as_deref(), &path)?;
        print(&format!(
            "Signed in at {}. The context {} of {} uses it:\n  kubectl --context {} auth whoami\n",
            chosen.name,
            self.context,
            file.display(),
            self.context
        ))
    }
}

impl Logout {
    pub(crate) fn run(self) -> Result<()> {
        let file = crate::hub::kubeconfig(self.kubeconfig.as_deref())?;
        match kubeconfig::remove(&file, &self.context)? {
            Some(path) => {
                cache::remove(&path)?;
                print(&format!("Signed out: the context {} is gone.\n", self.context))
            }
            None => bail!("{} has no context {:?} of roadstead login", file.display(), self.context),
        }
    }
}

fn print(text: &str) -> Result<()> {
    Ok(output::print(text.as_bytes())?)
}

fn read_ca(path: &std::path::Path) -> Result<String> {
    let what = || format!("read {} (--certificate-authority)", path.display());
    if std::fs::metadata(path).with_context(what)?.len() > MAX_CA_BYTES {
        bail!("{} is too large for a certificate", path.display());
    }
    std::fs::read_to_string(path).with_context(what)
}

fn offered(server: &str, ca: Option<&str>) -> Result<Vec<OfferedProvider>> {
    let http = provider::client(ca)?;
    let body = provider::body(
        http.get(format!("{server}/fleet/v1/sign-in")).send().with_context(|| format!("ask {server}"))?,
    )?;
    let offered: Offered =
        serde_json::from_slice(&body.1).with_context(|| format!("{server} does not answer like a hub"))?;
    Ok(offered.providers)
}

fn choose(offered: Vec<OfferedProvider>, wanted: Option<&str>) -> Result<OfferedProvider> {
    let names: Vec<String> = offered.iter().map(|one| one.name.clone()).collect();
    let mut fitting = offered
        .into_iter()
        .filter(|one| wanted.is_none_or(|wanted| one.name == wanted || one.issuer == wanted));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            bail!("there are several providers, name one with --provider: {}", names.join(", "))
        }
        (None, _) if names.is_empty() => {
            bail!("the hub offers no provider to sign in at (see --sign-in-config of the hub)")
        }
        (None, _) => bail!("no such provider; the hub has: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> OfferedProvider {
        OfferedProvider {
            name: name.to_owned(),
            issuer: format!("https://{name}.test"),
            client_id: None,
            scopes: None,
            certificate_authority: None,
            discovery_url: None,
        }
    }

    #[test]
    fn a_provider_is_chosen_where_it_is_clear_which() {
        assert_eq!(choose(vec![one("a")], None).unwrap().name, "a");
        assert_eq!(choose(vec![one("a"), one("b")], Some("https://b.test")).unwrap().name, "b");
        for (offered, wanted, want) in [
            (vec![], None, "offers no provider"),
            (vec![one("a"), one("b")], None, "--provider: a, b"),
            (vec![one("a")], Some("c"), "the hub has: a"),
        ] {
            let error = choose(offered, wanted).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{error}");
        }
    }
}
