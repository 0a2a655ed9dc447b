//! `spec.include` of a GitRepository: the artifacts of other GitRepositories that are put into its own, as they are now. Those of other
//! namespaces need somebody's leave, which each pass asks for. What includes itself, by whatever way, is refused: its artifact would
//! grow with each fetch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use roadstead_api::git_repository::{GitInclude, IncludedRepository};
use roadstead_api::{Artifact, GitRepository, KindId};
use roadstead_hub_store::{Store, Stored as StoredObject};
use roadstead_model::{Digest, Reason, chain};
use roadstead_sources::Room;
use roadstead_sources::git::{Include, Stored, StoredBytes};
use serde_json::Value;

use crate::HubError;
use crate::sources::{Sources, fetch};

/// The type of the condition that is True while something that is to be included cannot be.
pub(super) const INCLUDE_UNAVAILABLE: &str = "IncludeUnavailable";
/// What the status has of what was included.
pub(super) const INCLUDED_ARTIFACTS: &str = "includedArtifacts";
/// Repositories that are looked at in search of a cycle.
const MOST_REACHED: usize = 200;

/// Whether a reason is one of that condition.
pub(super) fn is_reason(reason: Reason) -> bool {
    is_waiting(reason) || matches!(reason, Reason::IllegalPath | Reason::CopyFailure | Reason::IncludeCycle)
}

/// Whether it goes away without anyone changing the spec.
pub(super) fn is_waiting(reason: Reason) -> bool {
    matches!(reason, Reason::NotFound | Reason::NoArtifact)
}

/// Something to be included that is there.
#[derive(Debug, Clone)]
pub(super) struct IncludedArtifact {
    include: GitInclude,
    artifact: Artifact,
    digest: Digest,
}

/// What the status says of artifacts that were included; null where there are none.
pub(super) fn told(all: &[IncludedArtifact]) -> Value {
    if all.is_empty() {
        return Value::Null;
    }
    // Texts and numbers: they always become JSON.
    all.iter().map(|one| serde_json::to_value(&one.artifact).unwrap_or_default()).collect()
}

/// Whether these are the artifacts that the status says were included.
pub(super) fn are_those_of(all: &[IncludedArtifact], status: Option<&Value>) -> bool {
    let then: Vec<Artifact> =
        status.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default();
    let same = |(now, then): (&IncludedArtifact, &Artifact)| {
        (&now.artifact.revision, &now.artifact.digest) == (&then.revision, &then.digest)
    };
    all.len() == then.len() && all.iter().zip(&then).all(same)
}

/// Whether the status says that others were included. Where it says nothing, nothing is known.
pub(super) fn have_changed(all: &[IncludedArtifact], status: Option<&Value>) -> bool {
    status.is_some_and(|noted| !noted.is_null()) && !are_those_of(all, status)
}

/// Where an included repository is: its namespace and its name.
fn place<'a>(include: &'a GitInclude, own: &'a str) -> (&'a str, &'a str) {
    let IncludedRepository { name, namespace } = &include.repository;
    (namespace.as_deref().unwrap_or(own), name)
}

/// What a repository is called in messages of one in the namespace `own`.
fn shown((namespace, name): (&str, &str), own: &str) -> String {
    if namespace == own { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl IncludedArtifact {
    /// As the source, which is in the namespace `own`, takes it.
    pub(super) fn include(&self, sources: &Sources, own: &str, most: u64) -> Include {
        let given = |path: &Option<String>| path.clone().filter(|path| !path.is_empty());
        Include {
            from: given(&self.include.from_path).unwrap_or_default(),
            to: given(&self.include.to_path).unwrap_or_else(|| self.include.repository.name.clone()),
            repository: shown(place(&self.include, own), own),
            artifact: Arc::new(Blob { most, ..Blob::new(sources, self.digest) }),
        }
    }
}

/// An artifact where it is stored.
#[derive(Clone)]
pub(super) struct Blob {
    store: Store,
    room: Option<Room>,
    digest: Digest,
    most: u64,
}

impl Blob {
    /// An artifact of a source, as large as one may be.
    pub(super) fn new(sources: &Sources, digest: Digest) -> Self {
        let room = sources.options.workers.as_ref().map(fetch::room);
        Self { store: sources.store.clone(), room, digest, most: sources.most_of_a_source() }
    }

    /// Another one, as large as that may be.
    pub(super) fn of(&self, digest: Digest) -> Self {
        Self { digest, ..self.clone() }
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blob").field("digest", &self.digest).finish_non_exhaustive()
    }
}

#[async_trait]
impl Stored for Blob {
    async fn bytes(&self) -> Result<StoredBytes, String> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::error!(digest = %self.digest, error = chain(error), "could not read an artifact to include");
            "it cannot be read".to_owned()
        };
        let gone = || "it is not stored any more".to_owned();
        let size =
            self.store.blob_size(self.digest).await.map_err(|error| failed(&error))?.ok_or_else(gone)?;
        if size > self.most {
            return Err(format!("it has more than {} bytes", self.most));
        }
        let held = match &self.room {
            Some(room) => Some(room.reserve(size).await.map_err(|error| error.to_string())?),
            None => None,
        };
        let bytes = self.store.blob(self.digest).await.map_err(|error| failed(&error))?.ok_or_else(gone)?;
        Ok(StoredBytes { bytes, held })
    }
}

impl Sources {
    /// What a source includes, as it is now; or the reason and the message of its conditions.
    pub(super) async fn includes_of(
        &self,
        stored: &StoredObject,
    ) -> Result<Result<Vec<IncludedArtifact>, (Reason, String)>, HubError> {
        if stored.kind != KindId::GitRepository {
            return Ok(Ok(Vec::new()));
        }
        let includes = stored.decode::<GitRepository>()?.spec.include;
        if includes.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        // Before anything is said of what is there.
        for include in &includes {
            let (namespace, name) = place(include, &stored.namespace);
            let leave = self.access.may_use_named(stored, KindId::GitRepository, (namespace, name)).await?;
            if let Err(why) = leave {
                return Ok(Err((Reason::AccessDenied, format!("include '{namespace}/{name}' {why}"))));
            }
        }
        if let Some(way) = self.include_cycle(stored).await? {
            let message = format!("what it includes leads back to itself: {}", way.join(" -> "));
            return Ok(Err((Reason::IncludeCycle, message)));
        }
        let mut all = Vec::new();
        for include in includes {
            let (namespace, of) = place(&include, &stored.namespace);
            let name = shown((namespace, of), &stored.namespace);
            let Some(found) = self.store.get(KindId::GitRepository, namespace, of).await? else {
                let message = format!(
                    "could not get resource for include '{name}': GitRepository {namespace}/{of} not found"
                );
                return Ok(Err((Reason::NotFound, message)));
            };
            let artifact = found.decode::<GitRepository>()?.status.and_then(|status| status.source.artifact);
            let digest: Option<Digest> = artifact.as_ref().and_then(|artifact| artifact.digest.parse().ok());
            match artifact.zip(digest) {
                Some((artifact, digest)) if self.store.has_blob(digest).await? => {
                    all.push(IncludedArtifact { include, artifact, digest });
                }
                _ => {
                    return Ok(Err((
                        Reason::NoArtifact,
                        format!("no artifact available for include '{name}'"),
                    )));
                }
            }
        }
        Ok(Ok(all))
    }

    /// What is named along a way from a repository by what it includes back to it.
    async fn include_cycle(&self, start: &StoredObject) -> Result<Option<Vec<String>>, HubError> {
        type Place = (String, String);
        let included = |stored: &StoredObject| -> Result<Vec<Place>, HubError> {
            let spec = stored.decode::<GitRepository>()?.spec;
            let owned = |include: &GitInclude| {
                let (namespace, name) = place(include, &stored.namespace);
                (namespace.to_owned(), name.to_owned())
            };
            Ok(spec.include.iter().map(owned).collect())
        };
        let own = (start.namespace.clone(), start.name.clone());
        // By which each was reached.
        let mut from: BTreeMap<Place, Place> = BTreeMap::new();
        let mut ahead: VecDeque<Place> = VecDeque::new();
        let mut at = own.clone();
        let mut next = included(start)?;
        loop {
            for one in next {
                if one == own {
                    let mut way = vec![one, at.clone()];
                    while let Some(before) = from.get(&at).filter(|_| at != own) {
                        way.push(before.clone());
                        at.clone_from(before);
                    }
                    let named = way.iter().rev().map(|(namespace, name)| shown((namespace, name), &own.0));
                    return Ok(Some(named.collect()));
                }
                if from.len() < MOST_REACHED && !from.contains_key(&one) {
                    from.insert(one.clone(), at.clone());
                    ahead.push_back(one);
                }
            }
            let Some(one) = ahead.pop_front() else { return Ok(None) };
            let found = self.store.get(KindId::GitRepository, &one.0, &one.1).await?;
            next = found.as_ref().map(included).transpose()?.unwrap_or_default();
            at = one;
        }
    }
}
