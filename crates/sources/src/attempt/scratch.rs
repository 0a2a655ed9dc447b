//! Private temporary folders for Git's packs, and what is done about those that a killed process left.
//!
//! A folder goes away with its [`Scratch`]. A process that is killed cannot remove anything; but the lock on a file in
//! the folder ends with it, and so [`sweep_scratch`] knows which folders nobody uses.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

const PREFIX: &str = "roadstead-git-";
const LOCK: &str = "in-use";
/// A folder without a lock this long after it was made was left between the making of the two.
const WITHOUT_LOCK: Duration = Duration::from_secs(60);
/// How often a folder is made again that a sweep took away before it was locked. Each needs a sweep in that moment.
const ATTEMPTS: usize = 16;

/// A temporary folder in use, removed when this is dropped. What of it a killed process leaves, the next one sweeps.
#[derive(Debug)]
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A folder in `place`, or where the system has such.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn new(place: Option<&Path>) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX);
        for _ in 0..ATTEMPTS {
            let folder = match place {
                Some(place) => builder.tempdir_in(place),
                None => builder.tempdir(),
            }?;
            let path = folder.path().join(LOCK);
            let lock = File::create_new(&path)?;
            lock.lock()?;
            // Another process that sweeps may have been quicker with the lock: then it took this folder for one that
            // was left, and has removed it by now.
            if path.try_exists()? {
                return Ok(Self { folder, _lock: lock });
            }
        }
        Err(io::Error::other("each new temporary folder was removed by another process at once"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders in `place` (or where the system has temporary ones) that a killed process left, and tells how
/// many they were. Those in use, by whatever process, stay.
///
/// # Errors
/// Where `place` cannot be listed. A folder that cannot be removed is told to the log, and left.
pub fn sweep_scratch(place: Option<&Path>) -> io::Result<usize> {
    let system = std::env::temp_dir();
    let mut swept = 0;
    for entry in fs::read_dir(place.unwrap_or(&system))? {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        match remove_unused(&entry.path()) {
            Ok(removed) => swept += usize::from(removed),
            // Its own process, or another sweep, was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(folder = %entry.path().display(), %error, "a temporary folder of a killed process stays");
            }
        }
    }
    Ok(swept)
}

fn remove_unused(folder: &Path) -> io::Result<bool> {
    // Not through a link that somebody laid into a place where everybody may write.
    let made = fs::symlink_metadata(folder)?;
    if !made.is_dir() {
        return Ok(false);
    }
    // Held until all is removed: who makes a folder waits for it, and then sees that the folder is gone.
    let _lock = match File::open(folder.join(LOCK)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => Some(lock),
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = SystemTime::now().duration_since(made.modified()?).unwrap_or_default();
            if age < WITHOUT_LOCK {
                return Ok(false);
            }
            None
        }
        Err(error) => return Err(error),
    };
    fs::remove_dir_all(folder)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_in_use_stays_and_what_was_left_goes() {
        let place = tempfile::tempdir().unwrap();
        let used = Scratch::new(Some(place.path())).unwrap();
        let left = place.path().join("roadstead-git-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(left.join("pack"), "content").unwrap();
        let just_made = place.path().join("roadstead-git-just-made");
        let foreign = place.path().join("other");
        for folder in [&just_made, &foreign] {
            fs::create_dir(folder).unwrap();
        }
        assert_eq!(sweep_scratch(Some(place.path())).unwrap(), 1);
        assert!(!left.exists());
        assert!(used.path().exists() && just_made.exists() && foreign.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_sweep_takes_no_folder_that_is_being_made() {
        let place = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    sweep_scratch(Some(place.path())).unwrap();
                }
            });
            for _ in 0..5_000 {
                let scratch = Scratch::new(Some(place.path()));
                let there = scratch.as_ref().map(|scratch| fs::write(scratch.path().join("pack"), "content"));
                if !matches!(there, Ok(Ok(()))) {
                    done.store(true, Ordering::Relaxed);
                    panic!("{scratch:?}: {there:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
            sweeper.join().unwrap();
        });
    }
}
