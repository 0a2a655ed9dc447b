//! `roadstead-hub wrap-key`: the keys of a key file, or a new one, wrapped by a key service.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use roadstead_hub_store::Key;
use roadstead_kms::{BadWrappingKey, Entry, KeyBytes, KeyWrappers, WrappingKey};
use zeroize::Zeroizing;

use crate::network::AllowArgs;
use crate::unwrapping::{Unwrapping, WrappingArgs};
use crate::{keyfile, private_file};

/// What is wrapped by what.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("service").required(true).args(["aws_kms", "vault_transit"])))]
pub(crate) struct WrapKeyArgs {
    /// By the key of AWS KMS with this ARN, or that of an alias. Credentials are those of AWS clients: AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY, AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, or the identity of the machine or the container
    #[arg(long, value_name = "ARN", value_parser = aws_kms)]
    aws_kms: Option<WrappingKey>,

    /// By this key of the transit engine of Vault or OpenBao: https://HOST[:PORT]/v1/MOUNT/keys/NAME. Credentials are those of Vault's
    /// clients, VAULT_TOKEN and VAULT_NAMESPACE, or a login by --key-vault-role
    #[arg(long, value_name = "URL", value_parser = vault_transit)]
    vault_transit: Option<WrappingKey>,

    /// The key file whose keys are wrapped, in their order; without it a new key is made
    #[arg(long = "in", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    input: Option<PathBuf>,

    /// Put a new key above those of --in, for a rekey to go over to
    #[arg(long, requires = "input")]
    new: bool,

    /// Have keys that another key has wrapped unwrapped and wrapped by this one; without it they stay as they are
    #[arg(long, requires = "input")]
    rewrap: bool,

    /// Write the key file there, with mode 0600, instead of printing it; it may be that of --in
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,

    #[command(flatten)]
    wrapping: WrappingArgs,

    #[command(flatten)]
    allow: AllowArgs,
}

fn aws_kms(text: &str) -> Result<WrappingKey, BadWrappingKey> {
    WrappingKey::aws_kms(text)
}

fn vault_transit(text: &str) -> Result<WrappingKey, BadWrappingKey> {
    WrappingKey::vault_transit(text)
}

/// Does it.
pub(crate) async fn run(args: &WrapKeyArgs) -> Result<ExitCode> {
    let by =
        args.aws_kms.as_ref().or(args.vault_transit.as_ref()).context("give --aws-kms or --vault-transit")?;
    let mut entries = match &args.input {
        Some(path) => keyfile::entries(path)?,
        None => Vec::new(),
    };
    if args.new || args.input.is_none() {
        let key = Key::generate().context("make a key")?;
        entries.insert(0, Entry::Plain(KeyBytes::new(*key.expose())));
    }
    keyfile::check_count(entries.len())?;
    let unwrapping = Unwrapping::new(&args.wrapping, &args.allow);
    let wrappers = unwrapping.wrappers(Some(by)).await?;
    let mut text = Zeroizing::new(String::new());
    for entry in &entries {
        let line = match entry {
            Entry::Wrapped(envelope) if !args.rewrap || envelope.by == *by => {
                eprintln!("left as it is: the key that is wrapped by {}", envelope.by);
                Zeroizing::new(envelope.to_string())
            }
            entry => wrap(wrappers, by, entry).await?,
        };
        text.push_str(&line);
        text.push('\n');
    }
    match &args.out {
        Some(path) => private_file::write(path, text.as_bytes())?,
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("print the key file")?;
        }
    }
    if let Some(next) = next(args) {
        eprintln!("{next}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for a key, of which it was seen that it gives the key back.
async fn wrap(wrappers: &KeyWrappers, by: &WrappingKey, entry: &Entry) -> Result<Zeroizing<String>> {
    let key = wrappers.unwrap(entry).await?;
    let line = wrappers.wrapper(Some(by)).wrap(&key).await?;
    let id = Key::new(*key).id();
    let wrapped = Entry::parse(&line).context("read the envelope that was made")?;
    match wrappers.unwrap(&wrapped).await {
        Ok(back) if *back == *key => eprintln!("wrapped: the key {id}, by {by}"),
        Ok(_) => bail!("{by} unwraps another key than it has wrapped: it cannot be used"),
        Err(error) => eprintln!("wrapped, but not unwrapped to see that it can be: the key {id}: {error}"),
    }
    Ok(line)
}

/// What to do with it.
fn next(args: &WrapKeyArgs) -> Option<&'static str> {
    match (&args.input, args.new) {
        (None, _) => None,
        (Some(_), true) => Some("next: give all hubs this key file, and run roadstead-hub rekey"),
        (Some(_), false) => Some(
            "next: give all hubs this key file. Copies of the plain one still open what it was used for: to make them worthless, go \
             over to a new key (--new, and roadstead-hub rekey)",
        ),
    }
}
