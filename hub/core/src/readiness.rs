//! Which parts of this process work: for probes, which anybody may send. What is told has no names or addresses in it, and asking costs the
//! database one statement in [`FRESH`] at most, however many ask.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roadstead_hub_store::{ArtifactStore, Store};
use tokio::time::{Instant, timeout};

use crate::context::Context;
use crate::workers::Workers;

/// The loops that process objects.
pub const CONTROLLERS: &str = "controllers";
/// The sealing of the audit log.
pub const AUDIT_SEALER: &str = "audit-sealer";
/// The agents' link.
pub const LINK: &str = "link";

/// The object store with the artifacts, where there is one.
pub const ARTIFACT_STORE: &str = "artifact-store";

/// What is known of the schema is taken to be so for this long.
const FRESH: Duration = Duration::from_secs(10);
/// So long may the database take to say it.
const ANSWER: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// Whether the process is of any use, or has to be started again.
    Live,
    /// Whether it can serve requests now.
    Ready,
}

/// How a part stands: none where it works, else what is wrong.
pub type Standing = Option<String>;

/// What this process knows of its parts.
pub struct Readiness {
    store: Store,
    workers: Option<Workers>,
    parts: Mutex<Parts>,
    schema: tokio::sync::Mutex<Option<(Instant, Standing)>>,
}

/// Parts with what they consist of, and what is wrong with each of that.
type Parts = BTreeMap<&'static str, BTreeMap<&'static str, Piece>>;

/// A piece of a part.
#[derive(Debug, Clone, Copy)]
struct Piece {
    has_ended: bool,
    /// When it did its work last, and how often it is to do it.
    worked: Option<(Instant, Duration)>,
}

/// A piece of a part that runs. Dropped, it has failed, unless it is [`Self::stopped`].
#[must_use]
pub struct Running {
    readiness: Arc<Readiness>,
    part: &'static str,
    name: &'static str,
    is_stopped: bool,
}

impl Readiness {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            store: context.store.clone(),
            workers: context.options.workers.clone(),
            parts: Mutex::default(),
            schema: tokio::sync::Mutex::default(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        // Nothing under the lock can panic half-way through a change.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of a part begins to run.
    pub fn runs(self: &Arc<Self>, part: &'static str, name: &'static str) -> Running {
        let piece = Piece { has_ended: false, worked: None };
        self.parts().entry(part).or_default().insert(name, piece);
        Running { readiness: Arc::clone(self), part, name, is_stopped: false }
    }

    /// Each part that is asked about, by its name, in an order that stays.
    pub async fn check(&self, probe: Probe) -> Vec<(&'static str, Standing)> {
        let mut all = vec![("ping", None)];
        if probe == Probe::Ready {
            let outage = self.store.health().outage();
            all.push(("database", outage.map(str::to_owned)));
            // Nothing is asked of a database that is away.
            let schema = if outage.is_some() { None } else { self.schema().await };
            all.push(("schema", schema));
            all.push(("workers", self.workers.as_ref().and_then(Workers::why_none_starts)));
        }
        let now = Instant::now();
        // A loop that has ended is begun again by nothing but a new process.
        let asked = |part: &str| probe == Probe::Ready || part == CONTROLLERS;
        let parts = self.parts();
        all.extend(
            parts.iter().filter(|(part, _)| asked(part)).map(|(part, pieces)| (*part, told(pieces, now))),
        );
        all
    }

    /// Parts that are told of and count for nothing: what does not work without them is tried again, and all replicas have the same of them, so
    /// that none would be left to serve what works.
    #[must_use]
    pub fn told_only(&self) -> Vec<(&'static str, Standing)> {
        let artifacts = self.store.artifact_store();
        let lost = |artifacts: &ArtifactStore| {
            artifacts.outage().map(|_| "it is unavailable; the log says why".to_owned())
        };
        artifacts.map(|artifacts| (ARTIFACT_STORE, lost(artifacts))).into_iter().collect()
    }

    /// Whether the schema is what this version needs: a database may have been put back to what it was before.
    async fn schema(&self) -> Standing {
        let mut known = self.schema.lock().await;
        if let Some((at, standing)) = known.as_ref()
            && at.elapsed() < FRESH
        {
            return standing.clone();
        }
        let standing = match timeout(ANSWER, self.store.lacks_migrations()).await {
            Ok(Ok(0)) => None,
            Ok(Ok(lacking)) => Some(format!("{lacking} migrations of this version are not applied")),
            Ok(Err(_)) | Err(_) => Some("the database did not say".to_owned()),
        };
        *known = Some((Instant::now(), standing.clone()));
        standing
    }
}

/// What is wrong with a part.
fn told(pieces: &BTreeMap<&'static str, Piece>, now: Instant) -> Standing {
    let why = |(name, piece): (&&str, &Piece)| match piece {
        Piece { has_ended: true, .. } => Some(format!("{name} has ended")),
        Piece { worked: Some((at, every)), .. } if now.duration_since(*at) > *every => {
            Some(format!("{name} has not succeeded for {} s", now.duration_since(*at).as_secs()))
        }
        Piece { .. } => None,
    };
    let wrong: Vec<String> = pieces.iter().filter_map(why).collect();
    (!wrong.is_empty()).then(|| wrong.join(", "))
}

impl Running {
    /// It has done its work, and is to do so again within this time.
    pub fn worked(&self, within: Duration) {
        self.change(|piece| piece.worked = Some((Instant::now(), within)));
    }

    /// It ends because the process does.
    pub fn stopped(mut self) {
        self.is_stopped = true;
    }

    fn change(&self, change: impl FnOnce(&mut Piece)) {
        let mut parts = self.readiness.parts();
        if let Some(piece) = parts.get_mut(self.part).and_then(|pieces| pieces.get_mut(self.name)) {
            change(piece);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.change(|piece| piece.has_ended = true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_has_ended_or_does_nothing_is_told() {
        let (began, every) = (Instant::now(), Duration::from_secs(60));
        let piece = |has_ended, worked| Piece { has_ended, worked };
        let mut pieces =
            BTreeMap::from([("source", piece(false, None)), ("sealing", piece(false, Some((began, every))))]);
        assert_eq!(told(&pieces, began + every), None);
        let late = began + every + Duration::from_secs(2);
        assert_eq!(told(&pieces, late).as_deref(), Some("sealing has not succeeded for 62 s"));
        pieces.insert("sealing", piece(false, Some((late, every))));
        pieces.insert("applier", piece(true, None));
        assert_eq!(told(&pieces, late).as_deref(), Some("applier has ended"));
    }
}
