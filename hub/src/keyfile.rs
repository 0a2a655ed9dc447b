//! The keys that secrets are encrypted with lie in a file, never in the database: the newest first, one in a line.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roadstead_hub_store::{Key, Store, StoreError};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::private_file;

/// Keys are taken out of the file once nothing needs them.
const MAX_KEYS: usize = 16;
/// A longer file is refused, by its last line that is cut.
const MAX_BYTES: u64 = 2048;
/// How often it is looked whether the file has changed, and what other replicas did.
const EVERY: Duration = Duration::from_secs(5);

/// Reads the key file.
pub(crate) fn read(path: &Path) -> Result<Vec<Key>> {
    let file = std::fs::File::open(path).with_context(|| {
        format!(
            "open the key file {}; make one with: openssl rand -base64 32 > FILE && chmod 600 FILE",
            path.display()
        )
    })?;
    let metadata = file.metadata().with_context(|| format!("look at {}", path.display()))?;
    let mode = metadata.permissions().mode();
    // What Kubernetes mounts of a Secret is root's, and its fsGroup, which is this process's alone, may read it.
    let is_mounted = metadata.uid() == 0 && !rustix::process::geteuid().is_root() && mode & 0o037 == 0;
    if mode & 0o077 != 0 && !is_mounted {
        bail!(
            "the key file {} can be read by others (mode {:o}): chmod 600 it",
            path.display(),
            mode & 0o777
        );
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize));
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("read the key file {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Key>> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let key = |(number, line): (usize, &str)| {
        Key::from_base64(line).with_context(|| format!("line {}: want 32 bytes in base64", number + 1))
    };
    let keys = lines.map(key).collect::<Result<Vec<_>>>()?;
    match keys.len() {
        0 => bail!("it is empty: want 32 bytes in base64, for each key a line, the newest first"),
        count if count > MAX_KEYS => bail!("it has {count} keys: more than {MAX_KEYS} are not taken"),
        _ => Ok(keys),
    }
}

/// Reads the key file; makes one where there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Vec<Key>> {
    if path.exists() {
        return read(path);
    }
    let key = Key::generate().context("make a key")?;
    private_file::write(path, key.to_base64().as_bytes())?;
    Ok(vec![key])
}

/// Reads the file again when it has changed, and on SIGHUP, and goes over to its newest key once all replicas have it. Ends
/// where another replica uses a key that this one does not have: it must not write any more.
pub(crate) async fn watch(store: Store, path: PathBuf, stop: CancellationToken) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    let mut refused = String::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = hangup.recv() => {}
            () = stop.cancelled() => return Ok(()),
        }
        match reload(&store, &path).await {
            Ok(()) => refused.clear(),
            Err(error) => {
                let error = format!("{error:#}");
                if error != refused {
                    tracing::error!(error, "the key file was not taken: the keys from before stay in use");
                    refused = error;
                }
            }
        }
        match store.tend_keys().await {
            Err(error @ StoreError::KeysMissing { .. }) => return Err(error.into()),
            Err(error) if error.outage().is_none() => {
                tracing::warn!(
                    error = format!("{:#}", anyhow::Error::from(error)),
                    "the keys could not be looked after"
                );
            }
            Ok(()) | Err(_) => {}
        }
    }
}

async fn reload(store: &Store, path: &Path) -> Result<()> {
    let keys = read(path)?;
    let ids: Vec<_> = keys.iter().map(Key::id).collect();
    if ids == store.file_key_ids() {
        return Ok(());
    }
    store.replace_keys(&keys).await?;
    let keys = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    tracing::info!(keys, "the key file was read again");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_in_a_line_the_newest_first() {
        let (new, old) = (Key::generate().unwrap(), Key::generate().unwrap());
        let text = format!("{}\n\n {} \n", *new.to_base64(), *old.to_base64());
        let ids = |keys: Vec<Key>| keys.iter().map(Key::id).collect::<Vec<_>>();
        assert_eq!(ids(parse(&text).unwrap()), [new.id(), old.id()]);
        assert_eq!(ids(parse(&old.to_base64()).unwrap()), [old.id()]);
        for wrong in ["", "\n \n", "c2hvcnQ="] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let cut = format!("{}\n{}", *new.to_base64(), &old.to_base64()[..40]);
        let error = format!("{:#}", parse(&cut).unwrap_err());
        assert!(error.contains("line 2") && !error.contains(&old.to_base64()[..8]), "{error}");
        let many = format!("{}\n", *new.to_base64()).repeat(MAX_KEYS + 1);
        assert!(parse(&many).is_err());
    }
}
