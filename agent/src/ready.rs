//! Whether this agent is ready, for the probe of its Deployment: it has a session with its hub.
//!
//! Said by a file that is touched for as long as that is so, and read by `roadstead-agent ready`, which the kubelet runs in
//! the container. A port for the kubelet would be open to the whole pod network; an agent opens none unless it is told to (`--metrics-listen`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

/// How often the file is touched.
const TOUCH_EVERY: Duration = Duration::from_secs(5);

/// A file that was not touched for this long is a dead agent's.
const FRESH: Duration = Duration::from_secs(15);

/// Whether the agent is ready.
#[derive(Default)]
pub struct Readiness {
    is_ready: AtomicBool,
    changed: Notify,
}

impl Readiness {
    /// Says so.
    pub fn set(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Keeps the file for as long as this runs.
    pub async fn keep(self: Arc<Self>, file: PathBuf) {
        let mut is_told = false;
        loop {
            let kept = if self.is_ready.load(Ordering::Relaxed) {
                tokio::fs::write(&file, b"").await
            } else {
                match tokio::fs::remove_file(&file).await {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                }
            };
            if let Err(error) = kept
                && !std::mem::replace(&mut is_told, true)
            {
                tracing::error!(file = %file.display(), %error, "readiness cannot be reported");
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(TOUCH_EVERY) => {}
            }
        }
    }
}

/// Whether the agent that keeps this file is ready.
///
/// # Errors
/// What it is instead.
pub fn check(file: &Path) -> Result<(), String> {
    let touched = std::fs::metadata(file).and_then(|metadata| metadata.modified());
    let touched = touched.map_err(|_| "not connected to the hub".to_owned())?;
    // A clock that was set back meanwhile makes nobody unready.
    match SystemTime::now().duration_since(touched) {
        Ok(age) if age > FRESH => Err(format!("the agent has not reported for {} s", age.as_secs())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::check;

    #[test]
    fn a_fresh_file_is_a_ready_agent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ready");
        assert!(check(&path).is_err_and(|why| why.contains("not connected")));
        let file = File::create(&path).expect("a file");
        assert_eq!(check(&path), Ok(()));
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        file.set_times(FileTimes::new().set_modified(long_ago)).expect("set");
        assert!(check(&path).is_err_and(|why| why.contains("for 60 s")));
    }
}
