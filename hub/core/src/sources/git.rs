//! GitRepository: what its spec asks for, as a source.

#[cfg(test)]
mod cases;

use roadstead_api::GitRepository;
use roadstead_api::git_repository::{GitProvider, GitRepositorySpec, GitVerificationMode};
use roadstead_github_app::App;
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Reason, Revision};
use roadstead_outbound::{ClientIdentity, ProxyServer, Purpose};
use roadstead_sources::git::{AppLogin, SshCredentials, TrustedKeys, Verification, VerificationMode};
use roadstead_sources::{Credentials, Facts, Fetched, GitReference, GitRequest, Secret, Source};
use serde_json::{Value, json};

use crate::sources::secrets::{SourceSecret, SourceSecrets};
use crate::sources::{Asked, Misfit, SourceKind, fetch, notes};

/// What of the status says how the artifact was verified.
const MODE: &str = "sourceVerificationMode";
const KEYS: &str = "observedVerificationKeys";

/// The kind.
pub(super) struct Git;

impl SourceKind for Git {
    fn failed(&self) -> Reason {
        Reason::GitOperationFailed
    }

    fn unsupported(&self, stored: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(unsupported(&stored.decode::<GitRepository>()?.spec))
    }

    fn failed_at(&self, reason: Reason) -> &'static str {
        if reason == Reason::GitOperationFailed { "failed to checkout and determine revision: " } else { "" }
    }

    fn told(&self, _: &Stored, fetched: &Fetched) -> Option<String> {
        let Facts::Commit(subject) = &fetched.facts else { return None };
        Some(format!("stored artifact for commit '{subject}'"))
    }

    fn observed(&self, stored: &Stored) -> Result<Vec<(&'static str, Value)>, StoreError> {
        // Those of how it was verified are null where nothing is.
        let spec = &stored.object["spec"];
        let mut all = vec![
            ("observedIgnore", spec["ignore"].clone()),
            ("observedSparseCheckout", spec["sparseCheckout"].clone()),
            ("observedRecurseSubmodules", Some(true).filter(|_| spec["recurseSubmodules"] == true).into()),
            ("observedInclude", Some(&spec["include"]).filter(|all| **all != json!([])).cloned().into()),
        ];
        all.extend([MODE, KEYS].map(|field| (field, Value::Null)));
        Ok(all)
    }

    fn verdict(
        &self,
        stored: &Stored,
        secrets: &SourceSecrets,
    ) -> Result<Vec<(&'static str, Value)>, StoreError> {
        let verification = verification(&stored.decode::<GitRepository>()?.spec, secrets);
        Ok(verification.map_or_else(Vec::new, |Verification { mode, keys }| {
            vec![(MODE, mode.as_str().into()), (KEYS, keys.digest().to_string().into())]
        }))
    }

    fn unverifiable(&self, _: &Stored, secrets: &SourceSecrets) -> Result<Option<String>, StoreError> {
        let keyless = secrets.signers.as_ref().filter(|signers| trusted_keys(signers).is_empty());
        Ok(keyless.map(|signers| {
            let why =
                "has no public keys: want armoured OpenPGP keys (*.asc) or SSH keys (*.sshpub)".to_owned();
            format!("public keys secret error: {} {why}", signers.named())
        }))
    }

    fn misfit(&self, stored: &Stored, secrets: &SourceSecrets) -> Result<Option<Misfit>, StoreError> {
        let spec = stored.decode::<GitRepository>()?.spec;
        let login = secrets.login.as_ref();
        let has_app =
            login.is_some_and(|secret| roadstead_github_app::KEYS.iter().any(|key| secret.has(key)));
        let is_app = spec.provider == Some(GitProvider::Github);
        let wanted = "secretRef with github app data must be specified when provider is set to github";
        let message = match login {
            None if is_app => return Ok(Some(Misfit { message: wanted.to_owned(), is_stalled: true })),
            Some(secret) if is_app && !has_app => secret.wrong(wanted),
            Some(secret) if has_app && !is_app => {
                secret.wrong("has github app data but provider is not set to github")
            }
            Some(_) if is_app && is_ssh(&spec.url) => {
                "a GitHub App logs in over https:// only, and spec.url is one of SSH".to_owned()
            }
            _ => return Ok(None),
        };
        Ok(Some(Misfit { message, is_stalled: false }))
    }

    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError> {
        let spec = asked.stored.decode::<GitRepository>()?.spec;
        let options = asked.options;
        let mut request = GitRequest::new(spec.url.clone());
        let reference = spec.reference.clone().unwrap_or_default();
        let commit = asked.pinned.and_then(Revision::content).or(reference.commit.as_deref());
        request.reference = GitReference::from_spec(
            reference.branch.as_deref(),
            reference.tag.as_deref(),
            reference.semver.as_deref(),
            reference.name.as_deref(),
            commit,
        );
        request.allow_file = options.allow_file_sources;
        if let Some(workers) = &options.workers {
            request.limits = fetch::limits(workers, request.limits);
            request.disk = Some(workers.disk.clone());
        }
        request.limits.tree.total_bytes = request.limits.tree.total_bytes.min(asked.most_bytes);
        request.guard = options.outbound.guard(Purpose::Git);
        if let Some(authority) = asked.tolerated.clone() {
            request.guard = request.guard.lenient_towards(authority);
        }
        request.plain_http_credentials = options.outbound.plain_http_credentials;
        request.timeout = notes::timeout(asked.spec);
        request.sparse = spec.sparse_checkout.clone();
        request.verify = verification(&spec, asked.secrets);
        request.ignore = spec.ignore;
        request.recurse_submodules = spec.recurse_submodules;
        if let Some(secret) = &asked.secrets.login {
            let access = match spec.provider {
                Some(GitProvider::Github) => app(secret, &asked),
                _ => credentials(secret, &request.url),
            };
            match access {
                Ok(access) => access.give(&mut request),
                Err(why) => return Ok(Err(secret.wrong(&why))),
            }
        }
        if let Some(identity) = asked.secrets.cloud() {
            // What the Secret has besides is about certificates.
            (request.cloud, request.credentials) = (Some(identity), None);
        }
        if let Some(secret) = &asked.secrets.proxy {
            match proxy(secret, &request.url) {
                Ok(proxy) => {
                    if let Some(Credentials::App(login)) = &mut request.credentials {
                        login.guard = login.guard.clone().through(proxy.clone());
                    }
                    request.guard = request.guard.through(proxy);
                }
                Err(why) => return Ok(Err(secret.wrong(&why))),
            }
        }
        request.include = asked.include;
        request.known_server = asked.known.git;
        Ok(Ok(Box::new(request)))
    }
}

fn unsupported(spec: &GitRepositorySpec) -> Option<&'static str> {
    let is_of_cloud = matches!(spec.provider, Some(GitProvider::Aws | GitProvider::Azure));
    (spec.service_account_name.is_some() && !is_of_cloud)
        .then_some("spec.serviceAccountName with this spec.provider")
}

/// What is to be signed, and by whom. (Without their Secret, nothing of it is fetched.)
fn verification(spec: &GitRepositorySpec, secrets: &SourceSecrets) -> Option<Verification> {
    let mode = match spec.verify.as_ref()?.mode {
        None | Some(GitVerificationMode::HEAD | GitVerificationMode::Head) => VerificationMode::Head,
        Some(GitVerificationMode::Tag) => VerificationMode::Tag,
        Some(GitVerificationMode::TagAndHEAD) => VerificationMode::TagAndHead,
    };
    // No keys verify nothing.
    let keys = secrets.signers.as_ref().map(trusted_keys).unwrap_or_default();
    Some(Verification { mode, keys })
}

/// The public keys that a Secret has, whatever else it has. What is not text is none.
fn trusted_keys(secret: &SourceSecret) -> TrustedKeys {
    let mut keys = TrustedKeys::default();
    secret.texts().for_each(|(key, text)| keys.add(key, &text));
    keys
}

/// What a Secret has to log in with.
#[derive(Default)]
struct Access {
    credentials: Option<Credentials>,
    ca: Option<Vec<u8>>,
    identity: Option<ClientIdentity>,
}

impl Access {
    fn give(self, request: &mut GitRequest) {
        (request.credentials, request.ca, request.identity) = (self.credentials, self.ca, self.identity);
    }
}

/// The GitHub App that a Secret has, and whom to trust on the way to its API and to the repository.
fn app(secret: &SourceSecret, asked: &Asked<'_>) -> Result<Access, String> {
    let login = AppLogin {
        app: App::read(|key| secret.text(key))?,
        tokens: asked.app_tokens.clone(),
        // Its address stands in the Secret: what `spec.url` is allowed says nothing about it.
        guard: asked.options.outbound.guard(Purpose::Git),
        way: asked.secrets.proxy_version().to_be_bytes().to_vec(),
    };
    let ca = secret.text("ca.crt")?.map(String::into_bytes);
    Ok(Access { credentials: Some(Credentials::App(Box::new(login))), ca, identity: secret.identity()? })
}

/// Credentials and CA, from the keys that Flux reads for a URL of this kind.
fn credentials(secret: &SourceSecret, url: &str) -> Result<Access, String> {
    if is_ssh(url) {
        let credentials = Some(Credentials::Ssh(ssh_credentials(secret)?));
        return Ok(Access { credentials, ..Access::default() });
    }
    let text = |key: &str| secret.text(key);
    let ca = text("ca.crt")?.or(text("caFile")?).map(String::into_bytes);
    let identity = secret.identity()?;
    if let Some(token) = text("bearerToken")? {
        let credentials = Some(Credentials::Bearer(Secret::new(token.trim().to_owned())));
        return Ok(Access { credentials, ca, identity });
    }
    match (text("username")?, text("password")?) {
        (Some(username), Some(password)) => {
            let credentials = Some(Credentials::Basic { username, password: Secret::new(password) });
            Ok(Access { credentials, ca, identity })
        }
        _ if secret.has("identity") => {
            Err("has a key for SSH (identity), and the URL is not one of SSH: want username and \
             password or bearerToken"
                .to_owned())
        }
        (None, None) => Ok(Access { credentials: None, ca, identity }),
        (Some(_), None) => Err("has a username but no password".to_owned()),
        (None, Some(_)) => {
            let scheme = url.split_once("://").map_or("https", |(scheme, _)| scheme);
            Err(format!(
                "has a password but no username: invalid '{scheme}' auth option: 'password' requires 'username' to be set"
            ))
        }
    }
}

fn is_ssh(url: &str) -> bool {
    url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ssh://"))
}

fn proxy(secret: &SourceSecret, url: &str) -> Result<ProxyServer, String> {
    let proxy = secret.proxy()?;
    if is_ssh(url) && !proxy.is_for_any_protocol() {
        return Err(
            "over SSH, only SOCKS5 proxies are gone through: want an address socks5://HOST:PORT".to_owned()
        );
    }
    Ok(proxy)
}

fn ssh_credentials(secret: &SourceSecret) -> Result<SshCredentials, String> {
    let wanted = |key: &str| {
        let text = secret.text(key)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| {
            format!(
                "has no {key}: invalid 'ssh' auth option: '{key}' is required; over SSH it takes identity and known_hosts \
                 (`flux create secret git` makes such a Secret)"
            )
        })
    };
    Ok(SshCredentials {
        identity: Secret::new(wanted("identity")?),
        passphrase: secret.text("password")?.map(Secret::new),
        known_hosts: wanted("known_hosts")?,
    })
}
