//! `roadstead secrets decrypt`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use roadstead_kustomize::yaml::{Dialect, read_documents};
use roadstead_sops::{Format, Limits, MacPolicy, Options, decrypt, decrypt_object};

use super::keys::Keys;
use super::{FormatName, classified, read};
use crate::output;

/// Decrypt a file and print what it holds
///
/// age, OpenPGP and SSH keys are those that are given, and no others: no agent or home folder is
/// looked at. Key services (AWS, Azure, Google and Huawei KMS, Vault) are asked with credentials
/// that are given, or that the environment names as for sops: AWS_…, AZURE_…,
/// GOOGLE_APPLICATION_CREDENTIALS, VAULT_TOKEN and VAULT_ADDR, HUAWEICLOUD_SDK_…
///
/// Examples:
///   roadstead secrets decrypt --key keys/prod.agekey secret.enc.yaml
///   roadstead secrets decrypt --key sops.asc --format dotenv --output json settings
///   VAULT_ADDR=https://vault.example roadstead secrets decrypt --key sops.vault-token a.enc.yaml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Decrypt {
    /// The file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,

    /// How it is read [default: as its name says]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<FormatName>,

    /// How it is written [default: as it is read]
    #[arg(long, value_enum, value_name = "FORMAT")]
    output: Option<FormatName>,

    #[command(flatten)]
    keys: Keys,

    /// What to do about a file whose MAC says that it was changed
    #[arg(long, value_enum, default_value = "verify", value_name = "POLICY")]
    mac: Mac,

    /// Treat the file as one Kubernetes object, as it comes from a build, and print it as JSON
    #[arg(long, conflicts_with_all = ["format", "output", "mac"])]
    object: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Mac {
    /// Refuse it.
    Verify,
    /// Print it, and say so.
    Warn,
    /// Print it.
    Ignore,
}

impl Decrypt {
    pub(crate) fn run(self) -> Result<()> {
        if self.object { self.object() } else { self.decrypt() }
    }

    fn decrypt(&self) -> Result<()> {
        let limits = Limits::default();
        let name = self.file.display().to_string();
        let keys = self.keys.open()?;
        let file = read(&self.file, limits.file_bytes)?;
        let by_name =
            || Format::of_name(self.file.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        let input = self.format.map_or_else(by_name, Format::from);
        let mut options = Options::new(input);
        options.output = self.output.map_or(input, Format::from);
        options.mac = match self.mac {
            Mac::Verify => MacPolicy::Verify,
            Mac::Warn => MacPolicy::Warn,
            Mac::Ignore => MacPolicy::Ignore,
        };
        let decrypted = decrypt(&file, &options, &keys.for_file())
            .map_err(|error| classified(&error, &format!("cannot decrypt {name:?}: {error}")))?;
        if let Some(problem) = decrypted.warning {
            output::warning(&format!("{name:?}: {problem}"));
        }
        Ok(output::print(&decrypted.bytes)?)
    }

    fn object(&self) -> Result<()> {
        let limits = Limits::default();
        let name = self.file.display().to_string();
        let keys = self.keys.open()?;
        let file = read(&self.file, limits.file_bytes)?;
        let documents = read_documents(&file, Dialect::Object, &roadstead_kustomize::Limits::default())
            .with_context(|| format!("{name:?} is not YAML"))?;
        let [document] = documents.as_slice() else {
            anyhow::bail!("{name:?} holds {} objects, and should hold one", documents.len());
        };
        let object = document.value.to_json();
        let decrypted = decrypt_object(object, MacPolicy::Ignore, &limits, &keys.for_file())
            .map_err(|error| classified(&error.error, &format!("cannot decrypt {name:?}: {error}")))?;
        let mut text = serde_json::to_string_pretty(&decrypted.object)?;
        text.push('\n');
        Ok(output::print(text.as_bytes())?)
    }
}
