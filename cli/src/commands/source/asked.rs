//! What is to be fetched, as a command line says it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roadstead_outbound::{Authority, Guard, Host, Policy, Proxies, Purpose, Rule, Secret};
use roadstead_sources::git::SshCredentials;
use roadstead_sources::helm::{HelmBounds, HelmLogin, HelmServer, KnownIndex};
use roadstead_sources::oci::{RegistryLogin, RegistryLogins};
use roadstead_sources::{
    Credentials, GitReference, GitRequest, HelmIndexRequest, OciReference, OciRequest, Source,
};

use crate::file::read;

/// Where a password may be given besides a file; it is also the passphrase of a key for SSH.
const PASSWORD: &str = "ROADSTEAD_SOURCE_PASSWORD";
/// The largest file with a password, a key or certificates, in bytes.
const MAX_FILE: usize = 1 << 20;
/// For looking up the host in the URL, before it is fetched from.
const LOOK_UP: Duration = Duration::from_secs(5);

/// What is at a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Kind {
    Git,
    Oci,
    Helm,
}

impl Kind {
    fn of(url: &str) -> Self {
        if url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://")) {
            Self::Oci
        } else {
            Self::Git
        }
    }

    /// What the hub calls it.
    pub(super) fn of_hub(self) -> &'static str {
        match self {
            Self::Git => "GitRepository",
            Self::Oci => "OCIRepository",
            Self::Helm => "HelmRepository",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// Where it is: https://…, http://…, ssh://…, oci://… or file:///…
    url: String,

    /// What it is [default: oci for oci://, else git]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,

    /// Git: this branch [default: the repository's own; a GitRepository that names none is fetched from `master`]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,

    /// Git, OCI: this tag [default for OCI: latest]
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,

    /// Git, OCI: the newest tag in this range of versions
    #[arg(long, value_name = "RANGE")]
    semver: Option<String>,

    /// Git: this reference, as refs/pull/1/head
    #[arg(long, value_name = "NAME")]
    ref_name: Option<String>,

    /// Git: this commit
    #[arg(long, value_name = "ID")]
    commit: Option<String>,

    /// OCI: the manifest with this digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,

    /// Git: submodules too
    #[arg(long)]
    recurse_submodules: bool,

    /// OCI: speak to the registry without TLS
    #[arg(long)]
    insecure: bool,

    /// The name to log in with
    #[arg(long, value_name = "NAME", env = "ROADSTEAD_SOURCE_USERNAME")]
    username: Option<String>,

    /// The file with the password, or with the passphrase of the key [default: $ROADSTEAD_SOURCE_PASSWORD]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    password_file: Option<PathBuf>,

    /// Git over HTTPS: the file with the bearer token
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "username")]
    bearer_token_file: Option<PathBuf>,

    /// The file with certificate authorities to trust besides this machine's, in PEM
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    ca_file: Option<PathBuf>,

    /// Git over SSH: the file with the private key
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "known_hosts_file")]
    ssh_key_file: Option<PathBuf>,

    /// Git over SSH: the file with the host's keys, as ssh-keyscan prints them
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, requires = "ssh_key_file")]
    known_hosts_file: Option<PathBuf>,

    /// Let credentials be sent over plain HTTP, where anyone on the way can read them
    #[arg(long)]
    allow_plain_http_credentials: bool,

    /// A further network or host that may be connected to although it is private: 10.20.0.0/16, cdn.corp:8443 (repeatable)
    #[arg(long = "allow-network", value_name = "CIDR|HOST[:PORT]")]
    allow_networks: Vec<Rule>,

    /// Seconds for all of it
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
}

impl Asked {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// What it is, unless a flag is given that is not for it.
    pub(super) fn kind(&self) -> Result<Kind> {
        let kind = self.kind.unwrap_or_else(|| Kind::of(&self.url));
        let flags = [
            ("--branch", self.branch.is_some(), &[Kind::Git][..]),
            ("--tag", self.tag.is_some(), &[Kind::Git, Kind::Oci]),
            ("--semver", self.semver.is_some(), &[Kind::Git, Kind::Oci]),
            ("--ref-name", self.ref_name.is_some(), &[Kind::Git]),
            ("--commit", self.commit.is_some(), &[Kind::Git]),
            ("--digest", self.digest.is_some(), &[Kind::Oci]),
            ("--recurse-submodules", self.recurse_submodules, &[Kind::Git]),
            ("--insecure", self.insecure, &[Kind::Oci]),
            ("--bearer-token-file", self.bearer_token_file.is_some(), &[Kind::Git]),
            ("--ssh-key-file", self.ssh_key_file.is_some(), &[Kind::Git]),
        ];
        match flags.into_iter().find(|(_, given, of)| *given && !of.contains(&kind)) {
            Some((flag, ..)) => {
                bail!("{flag} is not for the kind {} (--kind says what it is)", kind.of_hub())
            }
            None => Ok(kind),
        }
    }

    /// As a source.
    pub(super) async fn source(&self) -> Result<Box<dyn Source>> {
        Ok(match self.kind()? {
            Kind::Git => Box::new(self.git().await?),
            Kind::Oci => Box::new(self.oci().await?),
            Kind::Helm => Box::new(self.helm().await?),
        })
    }

    async fn git(&self) -> Result<GitRequest> {
        let mut request = GitRequest::new(self.url.clone());
        let given = [&self.branch, &self.tag, &self.semver, &self.ref_name, &self.commit];
        request.reference = if given.iter().all(|one| one.is_none()) {
            GitReference::Name("HEAD".to_owned())
        } else {
            let [branch, tag, semver, name, commit] = given.map(Option::as_deref);
            GitReference::from_spec(branch, tag, semver, name, commit)
        };
        request.recurse_submodules = self.recurse_submodules;
        request.allow_file = true;
        request.ca = self.ca()?;
        request.credentials = self.credentials()?;
        request.plain_http_credentials = self.allow_plain_http_credentials;
        request.guard = self.guard(Purpose::Git, None).await;
        request.timeout = self.timeout();
        Ok(request)
    }

    async fn oci(&self) -> Result<OciRequest> {
        let mut request = OciRequest::new(self.url.clone());
        let [digest, semver, tag] = [&self.digest, &self.semver, &self.tag].map(Option::as_deref);
        request.reference = OciReference::from_spec(digest, semver, None, tag);
        if let Some((username, password)) = self.login()? {
            request.logins = RegistryLogins::everywhere(RegistryLogin::Basic { username, password });
        }
        request.insecure = self.insecure;
        request.ca = self.ca()?;
        request.plain_http_credentials = self.allow_plain_http_credentials;
        request.guard = self.guard(Purpose::Oci, Some(if self.insecure { 80 } else { 443 })).await;
        request.timeout = self.timeout();
        Ok(request)
    }

    async fn helm(&self) -> Result<HelmIndexRequest> {
        // As the URL of a repository is written, and as its index is.
        let url = self.url.strip_suffix("/index.yaml").unwrap_or(&self.url);
        let mut server = HelmServer::new(url);
        server.login = self.login()?.map(|(username, password)| HelmLogin { username, password });
        server.ca = self.ca()?;
        server.plain_http_credentials = self.allow_plain_http_credentials;
        server.guard = self.guard(Purpose::Helm, None).await;
        let bounds = HelmBounds { timeout: self.timeout(), ..HelmBounds::default() };
        Ok(HelmIndexRequest { server, bounds, known_index: KnownIndex::default(), indexes: None })
    }

    fn credentials(&self) -> Result<Option<Credentials>> {
        if let (Some(key), Some(hosts)) = (&self.ssh_key_file, &self.known_hosts_file) {
            return Ok(Some(Credentials::Ssh(SshCredentials {
                identity: Secret::new(text(key)?),
                passphrase: self.password()?,
                known_hosts: text(hosts)?,
            })));
        }
        if let Some(file) = &self.bearer_token_file {
            return Ok(Some(Credentials::Bearer(Secret::new(text(file)?.trim().to_owned()))));
        }
        Ok(self.login()?.map(|(username, password)| Credentials::Basic { username, password }))
    }

    /// A name and a password; a variable that is set for other uses is not sent where no name is given.
    fn login(&self) -> Result<Option<(String, Secret)>> {
        match (self.username.as_deref().filter(|name| !name.is_empty()), self.password()?) {
            (Some(name), Some(password)) => Ok(Some((name.to_owned(), password))),
            (Some(_), None) => {
                bail!("--username is given without a password: want --password-file or ${PASSWORD}")
            }
            (None, _) if self.password_file.is_some() => {
                bail!("--password-file is given without --username")
            }
            (None, _) => Ok(None),
        }
    }

    fn password(&self) -> Result<Option<Secret>> {
        if let Some(file) = &self.password_file {
            // An editor ends a file's last line.
            return Ok(Some(Secret::new(text(file)?.trim_end_matches(['\r', '\n']).to_owned())));
        }
        match std::env::var(PASSWORD) {
            Ok(password) if !password.is_empty() => Ok(Some(Secret::new(password))),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => bail!("${PASSWORD} is not UTF-8"),
        }
    }

    fn ca(&self) -> Result<Option<Vec<u8>>> {
        self.ca_file.as_deref().map(|file| read(file, MAX_FILE)).transpose()
    }

    /// To the public internet and to the host that was named, wherever it is; to nothing else, whatever a server says.
    async fn guard(&self, purpose: Purpose, port: Option<u16>) -> Guard {
        let mut policy = Policy::new(self.allow_networks.clone());
        for rule in self.named(port).await {
            policy.allow(rule);
        }
        Guard::new(Arc::new(policy), purpose).with_proxies(Arc::new(Proxies::from_env()))
    }

    /// The host in the URL, by its name and by the addresses that it has now.
    async fn named(&self, port: Option<u16>) -> Vec<Rule> {
        let Some((host, port)) = endpoint(&self.url, port) else { return Vec::new() };
        let mut found = vec![format!("{host}:{port}")];
        if let Host::Name(name) = &host {
            // What is wrong with the name is told by the fetch.
            if let Ok(Ok(addresses)) =
                tokio::time::timeout(LOOK_UP, tokio::net::lookup_host((name.as_str(), port))).await
            {
                found.extend(addresses.map(|address| format!("{}:{port}", Host::Ip(address.ip()))));
            }
        }
        found.iter().filter_map(|entry| entry.parse().ok()).collect()
    }
}

/// Host and port of a URL; `port` is the one where the scheme says none.
fn endpoint(url: &str, port: Option<u16>) -> Option<(Host, u16)> {
    let url = reqwest::Url::parse(url).ok()?;
    match port {
        Some(port) => Some((Host::parse(url.host_str()?)?, url.port().unwrap_or(port))),
        None => Authority::of_url(&url).map(|to| (to.host, to.port)),
    }
}

fn text(file: &Path) -> Result<String> {
    let bytes = read(file, MAX_FILE)?;
    String::from_utf8(bytes).with_context(|| format!("{:?} is not UTF-8", file.display().to_string()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    fn kind(line: &[&str]) -> Result<Kind> {
        Line::try_parse_from([&["fetch"], line].concat())?.asked.kind()
    }

    #[test]
    fn what_is_at_a_url() {
        assert_eq!(kind(&["https://charts.example"]).unwrap(), Kind::Git);
        assert_eq!(kind(&["ssh://git@git.example/a"]).unwrap(), Kind::Git);
        assert_eq!(kind(&["OCI://registry.example/a", "--tag=v1"]).unwrap(), Kind::Oci);
        assert_eq!(kind(&["https://charts.example", "--kind=helm"]).unwrap(), Kind::Helm);
        for wrong in [
            &["oci://registry.example/a", "--branch=main"][..],
            &["https://git.example/a", "--insecure"],
            &["https://charts.example", "--kind=helm", "--tag=v1"],
            &["ssh://git@git.example/a", "--ssh-key-file=id"],
            &["https://git.example/a", "--timeout=0"],
            &["https://git.example/a", "--password=hunter2"],
        ] {
            assert!(kind(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_host_that_was_named() {
        let of = |url, port| endpoint(url, port).map(|(host, port)| format!("{host}:{port}"));
        assert_eq!(of("https://Git.corp/a", None).as_deref(), Some("git.corp:443"));
        assert_eq!(of("ssh://git@10.1.2.3/a", None).as_deref(), Some("10.1.2.3:22"));
        assert_eq!(of("http://[::1]:8080/a", None).as_deref(), Some("[::1]:8080"));
        assert_eq!(of("oci://registry.corp/a", Some(443)).as_deref(), Some("registry.corp:443"));
        assert_eq!(of("oci://127.0.0.1:5000/a", Some(443)).as_deref(), Some("127.0.0.1:5000"));
        assert_eq!(of("file:///srv/a", None), None);
    }
}
