//! Keys that were named on the command line, and key services that the environment has credentials for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use roadstead_kms::{Address, BadAddress, Environment, FileKeys, Imported, Network};
use roadstead_outbound::{Policy, Proxies, Purpose};
use roadstead_sops::KeyRing;
use tokio::runtime::{Builder, Runtime};
use zeroize::Zeroizing;

use crate::output;

/// Bytes of one file.
const KEY_BYTES: usize = 1 << 20;

/// Where the keys are.
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    /// A key, in a file that is named as an entry of a decryption Secret is: *.agekey (age identities), *.asc (OpenPGP keys),
    /// sops.aws-kms, sops.azure-kv, sops.gcp-kms, sops.vault-token, sops.vault-address; or an SSH private key. May be given several times
    #[arg(long = "key", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,

    /// A key service that credentials may be sent to when a file names it, besides the clouds' own, VAULT_ADDR and this machine:
    /// https://HOST[:PORT]. May be given several times
    #[arg(long, value_name = "URL", value_parser = address, value_hint = clap::ValueHint::Url)]
    allow_key_service: Vec<Address>,

    /// Use the identity that the cloud gives this machine, where there are no other credentials (AWS, Azure, Google)
    #[arg(long)]
    machine_identity: bool,
}

fn address(text: &str) -> Result<Address, BadAddress> {
    Address::parse(text)
}

/// Keys that were read, with what asks key services.
pub(crate) struct OpenKeys {
    keys: roadstead_kms::Keys,
    any: bool,
    /// Does the input and output of `keys`.
    _runtime: Runtime,
}

impl OpenKeys {
    /// Is there any?
    pub(crate) fn any(&self) -> bool {
        self.any
    }

    /// For one file.
    pub(crate) fn for_file(&self) -> FileKeys<'_> {
        self.keys.for_file()
    }
}

impl Keys {
    /// Reads the keys. Nothing is asked yet.
    pub(crate) fn open(&self) -> Result<OpenKeys> {
        let mut imported = Imported::default();
        for file in &self.files {
            add(&mut imported, file)?;
        }
        let get = |name: &str| std::env::var(name).ok();
        let environment = Environment::new(&get);
        let named = environment.credentials(self.machine_identity).map_err(no_key)?;
        imported.credentials = std::mem::take(&mut imported.credentials).or(named);
        let mut allowed = environment.allowed().map_err(no_key)?.with_this_machine();
        for address in &self.allow_key_service {
            allowed.add(address.clone());
        }
        crate::tls::install();
        // Where the user could go as well.
        let proxies = Arc::new(Proxies::from_env());
        let network = Arc::new(Network::new(Purpose::Kms, &Arc::new(Policy::everything()), Some(proxies)));
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("start the runtime")?;
        let any = !self.files.is_empty() || !imported.credentials.kinds().is_empty();
        let keys = roadstead_kms::Keys::new(imported, allowed, network, runtime.handle().clone());
        Ok(OpenKeys { keys, any, _runtime: runtime })
    }
}

fn no_key(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("[no-key] {error}")
}

fn add(imported: &mut Imported, file: &Path) -> Result<()> {
    let shown = file.display().to_string();
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let bytes = Zeroizing::new(super::read(file, KEY_BYTES)?);
    if imported.add(name, &bytes).map_err(no_key)? {
        return Ok(());
    }
    if KeyRing::is_ssh(&bytes) {
        return imported.ring.add_ssh(name, &bytes).map_err(no_key).context(shown);
    }
    output::warning(&format!(
        "{shown:?} is not a known kind of key and is not used: its name must end in .agekey or .asc, or be that of an entry of a \
         decryption Secret (sops.aws-kms, sops.azure-kv, sops.gcp-kms, sops.vault-token), or it must be an SSH private key"
    ));
    Ok(())
}
