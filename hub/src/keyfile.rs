//! The keys that secrets are encrypted with lie in a file, never in the database: the newest first, one in a line. A line is a key, or an
//! envelope that a key service unwraps (`unwrapping.rs`).

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, bail};
use roadstead_hub_store::{Key, Store, StoreError};
use roadstead_kms::{ENTRY_BYTES, Entry, WrappingError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::private_file;
use crate::unwrapping::Unwrapping;

/// Keys are taken out of the file once nothing needs them.
const MAX_KEYS: usize = 16;
/// A longer file is refused.
const MAX_BYTES: usize = MAX_KEYS * (ENTRY_BYTES + 2);
/// How often it is looked whether the file has changed, and what other replicas did.
const EVERY: Duration = Duration::from_secs(5);
/// A key service that has not unwrapped a changed file is not asked for it more often than this, but on SIGHUP.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Reads the lines of a key file.
pub(crate) fn entries(path: &Path) -> Result<Vec<Entry>> {
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
    // With room for all of it: where a text grows, what it leaves behind is not wiped.
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES + 1));
    let limit = MAX_BYTES as u64 + 1;
    file.take(limit).read_to_string(&mut text).with_context(|| format!("read {}", path.display()))?;
    if text.len() > MAX_BYTES {
        bail!("the key file {} has more than {MAX_BYTES} bytes", path.display());
    }
    parse(&text).with_context(|| format!("read the key file {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let entry =
        |(number, line): (usize, &str)| Entry::parse(line).with_context(|| format!("line {}", number + 1));
    let entries = lines.map(entry).collect::<Result<Vec<_>>>()?;
    check_count(entries.len())?;
    Ok(entries)
}

/// Whether a key file may have so many keys.
pub(crate) fn check_count(count: usize) -> Result<()> {
    match count {
        0 => bail!("it is empty: want 32 bytes in base64, for each key a line, the newest first"),
        count if count > MAX_KEYS => bail!("it has {count} keys: more than {MAX_KEYS} are not taken"),
        _ => Ok(()),
    }
}

/// Makes a key file where there is none.
pub(crate) fn make_where_missing(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let key = Key::generate().context("make a key")?;
    private_file::write(path, key.to_base64().as_bytes())
}

/// A key file that was read.
pub(crate) struct KeyFile {
    path: PathBuf,
    unwrapping: Unwrapping,
    /// What it had, with the ids of keys in the place of keys.
    taken: Vec<String>,
    /// What it has that was not taken, when that is tried again, and after how long once more.
    failed: Option<(Vec<String>, Instant, Duration)>,
}

impl KeyFile {
    /// Reads it, and has its keys unwrapped. A key service that cannot be reached is asked again for some time.
    pub(crate) async fn open(path: &Path, unwrapping: Unwrapping) -> Result<(Self, Vec<Key>)> {
        let (entries, until) = (entries(path)?, unwrapping.until());
        let mut keys = Vec::with_capacity(entries.len());
        for (number, entry) in entries.iter().enumerate() {
            let key = unwrapping.unwrap_until(entry, until).await;
            keys.push(key.with_context(|| told(path, number))?);
        }
        let wrapped = entries.iter().filter(|entry| matches!(entry, Entry::Wrapped(_))).count();
        if wrapped > 0 {
            tracing::info!(keys = ids(&keys), wrapped, "the keys of the key file were unwrapped");
        }
        let taken = named(&entries);
        Ok((Self { path: path.to_owned(), unwrapping, taken, failed: None }, keys))
    }

    /// Reads the file again when it has changed, and on SIGHUP, and goes over to its newest key once all replicas have it. Ends
    /// where another replica uses a key that this one does not have: it must not write any more.
    pub(crate) async fn watch(mut self, store: Store, stop: CancellationToken) -> Result<()> {
        let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
        let mut refused = String::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = hangup.recv() => self.failed = None,
                () = stop.cancelled() => return Ok(()),
            }
            let reloaded = tokio::select! {
                reloaded = self.reload(&store) => reloaded,
                () = stop.cancelled() => return Ok(()),
            };
            match reloaded {
                Ok(Reloaded::Waits) => {}
                Ok(Reloaded::Taken) => refused.clear(),
                Err(error) => {
                    let error = format!("{error:#}");
                    if error != refused {
                        tracing::error!(
                            error,
                            "the key file was not taken: the keys from before stay in use"
                        );
                        refused = error;
                    }
                }
            }
            match store.tend_keys().await {
                Err(error @ StoreError::KeysMissing { .. }) => return Err(error.into()),
                Err(error) if error.outage().is_none() => {
                    tracing::warn!(
                        error = format!("{:#}", Error::from(error)),
                        "the keys could not be looked after"
                    );
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    async fn reload(&mut self, store: &Store) -> Result<Reloaded> {
        let entries = entries(&self.path)?;
        let named = named(&entries);
        if named == self.taken {
            self.failed = None;
            return Ok(Reloaded::Taken);
        }
        let pause = match &self.failed {
            Some((failed, until, _)) if *failed == named && Instant::now() < *until => {
                return Ok(Reloaded::Waits);
            }
            Some((failed, _, pause)) if *failed == named => (*pause * 2).min(LONGEST_PAUSE),
            _ => EVERY,
        };
        let mut keys = Vec::with_capacity(entries.len());
        for (number, entry) in entries.iter().enumerate() {
            let key = self.unwrapping.unwrap(entry).await;
            if key.as_ref().is_err_and(Error::is::<WrappingError>) {
                self.failed = Some((named.clone(), Instant::now() + pause, pause));
            }
            keys.push(key.with_context(|| told(&self.path, number))?);
        }
        if keys.iter().map(Key::id).ne(store.file_key_ids()) {
            store.replace_keys(&keys).await?;
        }
        (self.taken, self.failed) = (named, None);
        tracing::info!(keys = ids(&keys), "the key file was read again");
        Ok(Reloaded::Taken)
    }
}

/// What came of reading it again.
enum Reloaded {
    /// Its keys are in use.
    Taken,
    /// What did not go well is not tried again yet.
    Waits,
}

fn told(path: &Path, number: usize) -> String {
    format!("use key {} of the key file {}", number + 1, path.display())
}

fn ids(keys: &[Key]) -> String {
    keys.iter().map(|key| key.id().to_string()).collect::<Vec<_>>().join(", ")
}

/// What there is to see whether a file has changed. It holds no key.
fn named(entries: &[Entry]) -> Vec<String> {
    let name = |entry: &Entry| match entry {
        Entry::Plain(key) => Key::new(**key).id().to_string(),
        Entry::Wrapped(envelope) => envelope.to_string(),
    };
    entries.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_in_a_line_the_newest_first() {
        let (new, old) = (Key::generate().unwrap(), Key::generate().unwrap());
        let text = format!("{}\n\n {} \n", *new.to_base64(), *old.to_base64());
        let ids = |entries: Vec<Entry>| named(&entries);
        assert_eq!(ids(parse(&text).unwrap()), [new.id().to_string(), old.id().to_string()]);
        assert_eq!(ids(parse(&old.to_base64()).unwrap()), [old.id().to_string()]);
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
