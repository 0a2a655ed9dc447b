//! Through which states Ready goes, told by a watch.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use roadstead_tests::Kubectl;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Child;

/// A watch on one Kustomization.
pub(super) struct Passed {
    seen: Arc<Mutex<BTreeSet<String>>>,
    _kubectl: Child,
}

impl Passed {
    /// Begins to watch the Kustomization of this name, which need not be there yet.
    pub(super) fn watch(kubectl: &Kubectl, namespace: &str, name: &str) -> Result<Self> {
        let all =
            format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{namespace}/kustomizations?watch=true");
        let mut child = kubectl.spawn(&["get", "--raw", &all])?;
        let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        collect(child.stdout.take().context("kubectl's stdout is a pipe")?, name, &seen);
        // What kubectl complains of is seen as well, and differs.
        collect(child.stderr.take().context("kubectl's stderr is a pipe")?, name, &seen);
        Ok(Self { seen, _kubectl: child })
    }

    /// The states since this was last [forgotten](Self::forget).
    pub(super) fn states(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().cloned().collect::<Vec<_>>().join(", ")
    }

    /// What comes from now on is another stage's.
    pub(super) fn forget(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Collects what kubectl prints until it ends.
fn collect(from: impl AsyncRead + Unpin + Send + 'static, name: &str, into: &Arc<Mutex<BTreeSet<String>>>) {
    let (seen, name) = (Arc::clone(into), name.to_owned());
    tokio::spawn(async move {
        let mut all = BufReader::new(from).lines();
        while let Ok(Some(line)) = all.next_line().await {
            if let Some(state) = state(&line, &name) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).insert(state);
            }
        }
    });
}

/// Status and reason of Ready, of a line about this Kustomization; a line that is none as it is.
fn state(line: &str, name: &str) -> Option<String> {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return Some(line.to_owned()) };
    let object = event.get("object").filter(|object| object["metadata"]["name"] == name)?;
    let ready = object["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "Ready")?;
    Some(format!("{} {}", ready["status"].as_str()?, ready["reason"].as_str()?))
}
