//! The ExternalArtifacts of an ArtifactGenerator: made, kept as they are to be, and removed. One that another made is refused.

use std::collections::BTreeSet;

use roadstead_api::{
    AnySource, ArtifactGeneratorSpec, ArtifactGeneratorStatus, GeneratedArtifact, KindId, OutputArtifact,
};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Digest, Reason, Revision};
use roadstead_sources::generate::{Generate, Generation, Output, Product};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::gather::{Found, Gathered, ORIGIN};
use super::{Failure, GENERATOR, Generators, failed};
use crate::HubError;
use crate::address::Address;
use crate::identity::Identity;
use crate::objects::apply::Wanted;
use crate::objects::conditions::{self, READY};
use crate::objects::{DeleteOptions, WriteOptions, quota};
use crate::sources::external::Named;
use crate::sources::fetch::{self, Subject};

/// As Flux's own controller is called among the managers of fields, and in a label.
const MANAGER: &str = "source-watcher";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Annotations that the hub goes by.
const OURS: &str = "fleet.roadstead.dev/";

/// What is known of a pass.
#[derive(Clone, Copy)]
struct Run {
    /// All sources were looked at since the database was restored.
    is_seen: bool,
    /// The spec is the one that went well the last time.
    same_spec: bool,
}

/// What was made.
pub(super) struct Made {
    pub(super) inventory: Vec<GeneratedArtifact>,
    /// Symbolic links that were left out.
    pub(super) links: u64,
    /// Artifacts that are others than before.
    pub(super) stored: usize,
}

impl Generators {
    /// Composes all artifacts, and has each named by its ExternalArtifact.
    pub(super) async fn products(
        &self,
        generator: &Stored,
        spec: &ArtifactGeneratorSpec,
        outputs: Vec<Output>,
        found: &Found,
        status: &ArtifactGeneratorStatus,
    ) -> Result<Result<Made, Failure>, HubError> {
        let mut generation = match self.generation(spec, outputs, found, status).await? {
            Ok(generation) => generation,
            Err(failure) => return Ok(Err(failure)),
        };
        let about = super::observed(found);
        let what = Subject {
            namespace: &generator.namespace,
            name: format!("generator\n{}\n{}", generator.uid, generator.generation),
            is_asked_for: false,
        };
        let readers = self.sources.readers(what)?;
        let run = Run {
            is_seen: found.iter().all(|one| one.is_seen),
            same_spec: conditions::is_true(&status.conditions, READY, generator.generation),
        };
        let mut made = Made { inventory: Vec::new(), links: 0, stored: 0 };
        loop {
            let batch = match generation.next(&about, &readers, &CancellationToken::new()).await {
                Ok(batch) => batch,
                Err(error) => {
                    readers.finish()?;
                    return Ok(Err(failed(&error)));
                }
            };
            made.links = made.links.max(batch.links);
            for product in batch.products {
                if let Some(bytes) = &product.bytes {
                    let made =
                        (KindId::ExternalArtifact, generator.namespace.as_str(), product.name.as_str());
                    let before = self.store.get(made.0, made.1, made.2).await?.map(|before| before.uid);
                    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    if let Err(why) = quota::has_room(&self.store, made.1, before, size).await? {
                        readers.finish()?;
                        return Ok(Err(Failure::new(Reason::StorageOperationFailed, why)));
                    }
                    let now = self.clock.now();
                    match self.store.put_artifact(product.digest, bytes, now).await {
                        Ok(()) => {}
                        Err(error @ StoreError::ArtifactStore(_)) => {
                            readers.finish()?;
                            let why = format!("{error}; it is tried again");
                            return Ok(Err(Failure::new(Reason::StorageOperationFailed, why)));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                let entry = GeneratedArtifact {
                    name: product.name.clone(),
                    namespace: generator.namespace.clone(),
                    digest: product.digest.to_string(),
                    filename: format!("{}.tar.gz", product.digest.hex()),
                };
                match self.publish(generator, spec, found, product, run).await? {
                    Ok(is_new) => made.stored += usize::from(is_new),
                    Err(failure) => return Ok(Err(failure)),
                }
                made.inventory.push(entry);
            }
            if batch.is_last {
                readers.finish()?;
                return Ok(Ok(made));
            }
        }
    }

    /// What is to be composed, with the artifacts that it is made of.
    async fn generation(
        &self,
        spec: &ArtifactGeneratorSpec,
        outputs: Vec<Output>,
        found: &Found,
        status: &ArtifactGeneratorStatus,
    ) -> Result<Result<Generation, Failure>, HubError> {
        let mut known = BTreeSet::new();
        for digest in status.inventory.iter().filter_map(|entry| entry.digest.parse::<Digest>().ok()) {
            if self.store.has_blob(digest).await? {
                known.insert(digest);
            }
        }
        let workers = self.sources.workers()?;
        let room = fetch::room(workers);
        let used = used(spec);
        let what = Generate {
            pattern: spec.path_pattern.clone(),
            outputs,
            known,
            limits: self.sources.generate_limits(workers),
            room: Some(room.clone()),
            disk: Some(workers.disk.clone()),
            scratch: None,
        };
        let mut generation = match Generation::new(what) {
            Ok(generation) => generation,
            Err(error) => return Ok(Err(failed(&error))),
        };
        for Gathered { alias, digest, .. } in found.iter().filter(|one| used.contains(one.alias.as_str())) {
            let gone = || {
                Failure::new(Reason::SourceFetchFailed, format!("artifact {digest} is not stored any more"))
            };
            let Some(size) = self.store.blob_size(*digest).await? else { return Ok(Err(gone())) };
            let _held = match room.reserve(size).await {
                Ok(held) => held,
                Err(error) => {
                    let why = format!("source '{alias}' is too large for this hub: {error}");
                    return Ok(Err(Failure::new(Reason::BuildFailed, why)));
                }
            };
            let Some(bytes) = self.store.blob(*digest).await? else { return Ok(Err(gone())) };
            if let Err(error) = generation.add(alias, bytes).await {
                return Ok(Err(failed(&error)));
            }
        }
        Ok(Ok(generation))
    }

    /// Has an artifact named by its ExternalArtifact. Gives whether it is another one than before.
    async fn publish(
        &self,
        generator: &Stored,
        spec: &ArtifactGeneratorSpec,
        found: &Found,
        product: Product,
        run: Run,
    ) -> Result<Result<bool, Failure>, HubError> {
        let output: Option<&OutputArtifact> = spec.artifacts.get(product.output);
        let named = |alias: &Option<String>| {
            let alias = alias.as_deref()?.trim_start_matches('@');
            found.iter().find(|one| one.alias == alias)
        };
        let own = || format!("latest@{}", product.digest);
        let revision =
            output.and_then(|output| named(&output.revision)).map_or_else(own, |one| one.revision.clone());
        let origin = output.and_then(|output| named(&output.origin_revision));
        let origin = origin.map(|one| one.origin.clone().unwrap_or_else(|| one.revision.clone()));
        let Ok(revision) = revision.parse::<Revision>() else {
            let why = format!("artifact '{}': '{revision}' is not a revision", product.name);
            return Ok(Err(Failure::new(Reason::BuildFailed, why)));
        };
        let stored = match self.external(generator, spec, &product, run.same_spec).await? {
            Ok(stored) => stored,
            Err(failure) => return Ok(Err(failure)),
        };
        let is_new = match self.name_artifact(generator, &stored, &product, &revision, origin).await {
            Ok(is_new) => is_new,
            Err(HubError::Forbidden(why)) => {
                return Ok(Err(Failure::new(Reason::StorageOperationFailed, why)));
            }
            Err(error) => return Err(error),
        };
        if run.is_seen && self.store.source_is_seen(stored.uid, stored.generation).await? {
            self.sources.wake_new_users(&stored, &[]).await?;
        }
        Ok(Ok(is_new))
    }

    /// The ExternalArtifact of an artifact, as it is to be.
    async fn external(
        &self,
        generator: &Stored,
        spec: &ArtifactGeneratorSpec,
        product: &Product,
        same_spec: bool,
    ) -> Result<Result<Stored, Failure>, HubError> {
        let (kind, namespace, name) = (KindId::ExternalArtifact, &generator.namespace, &product.name);
        let config = config(generator, spec, product);
        let refused = |why: String| Ok(Err(Failure::new(Reason::ReconciliationFailed, why)));
        if let Some(present) = self.store.get(kind, namespace, name).await? {
            if let Err(why) = is_of(&present, generator) {
                return refused(why);
            }
            // What left the spec is on the object still.
            if same_spec && is_as(&present, &config) {
                return Ok(Ok(present));
            }
        }
        let version = kind.get().storage_version();
        let address = Address { kind, version, namespace: namespace.clone(), name: name.clone() };
        let options = WriteOptions { manager: MANAGER.to_owned(), ..WriteOptions::default() };
        let wanted = Wanted { config, force: true, maker: None, exact: false };
        let guard = |before: Option<&Stored>, _: &Stored| match before.map(|before| is_of(before, generator))
        {
            None | Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(HubError::Forbidden(why)),
        };
        let written = self.objects.apply_guarded(&Identity::hub(), &address, wanted, options, guard).await;
        match written {
            Ok(_) => {}
            Err(error) if error.is_of_request() => return refused(format!("artifact '{name}': {error}")),
            Err(error) => return Err(error),
        }
        match self.store.get(kind, namespace, name).await? {
            Some(stored) => Ok(Ok(stored)),
            None => refused(format!(
                "ExternalArtifact {namespace}/{name} was deleted meanwhile; it is tried again"
            )),
        }
    }

    async fn name_artifact(
        &self,
        generator: &Stored,
        seen: &Stored,
        product: &Product,
        revision: &Revision,
        origin: Option<String>,
    ) -> Result<bool, HubError> {
        let is_kept = self.store.source_artifact_of(seen.uid, product.digest).await?.is_some();
        let mut tx = self.store.begin().await?;
        let found = tx.get_by_uid(seen.uid).await?.filter(|found| is_of(found, generator).is_ok());
        let Some(mut stored) = found else { return Ok(false) };
        let metadata = origin.into_iter().map(|origin| (ORIGIN.to_owned(), origin)).collect();
        let (digest, size, message) = (product.digest, product.size, "Artifact is ready".to_owned());
        let artifact = Named { revision, digest, size, metadata, message };
        let named = self.sources.name_artifact(&mut tx, &mut stored, artifact, is_kept).await?;
        if named.is_idle {
            return Ok(false);
        }
        tx.commit().await?;
        if let Some(users) = named.users {
            self.sources.wake_new_users(&stored, &users).await?;
        }
        Ok(named.is_new)
    }

    /// Whether all that was made is still there, and as it was made; `is_seen` where its sources were looked at since the database was
    /// restored.
    pub(super) async fn is_whole(
        &self,
        generator: &Stored,
        status: &ArtifactGeneratorStatus,
        is_seen: bool,
    ) -> Result<bool, HubError> {
        for entry in &status.inventory {
            let found = self.store.get(KindId::ExternalArtifact, &entry.namespace, &entry.name).await?;
            let Some(found) = found.filter(|found| is_of(found, generator).is_ok()) else { return Ok(false) };
            let artifact = found.decode::<AnySource>()?.status.unwrap_or_default().source.artifact;
            let digest = entry.digest.parse::<Digest>();
            let (Some(artifact), Ok(digest)) = (artifact, digest) else { return Ok(false) };
            if artifact.digest != entry.digest
                || self.store.source_artifact_of(found.uid, digest).await?.is_none()
                || is_seen && self.store.is_unseen(found.uid).await?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes what it made and does not make any more: what its status says, and what a pass made that did not come to its end.
    pub(super) async fn prune(
        &self,
        generator: &Stored,
        before: &[GeneratedArtifact],
        now: &[GeneratedArtifact],
    ) -> Result<(), HubError> {
        let kept: BTreeSet<&str> = now.iter().map(|entry| entry.name.as_str()).collect();
        let mut names: BTreeSet<String> = self.made_by(generator).await?;
        names.extend(before.iter().map(|entry| entry.name.clone()));
        for name in names.iter().filter(|name| !kept.contains(name.as_str())) {
            let kind = KindId::ExternalArtifact;
            let found = self.store.get(kind, &generator.namespace, name).await?;
            let Some(found) = found.filter(|found| is_of(found, generator).is_ok()) else { continue };
            let version = kind.get().storage_version();
            let address = Address { kind, version, namespace: found.namespace.clone(), name: name.clone() };
            let options = DeleteOptions { uid: Some(found.uid.to_string()), ..DeleteOptions::default() };
            match self.objects.delete(&Identity::hub(), &address, &options).await {
                Ok(_) | Err(HubError::NotFound { .. } | HubError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The names of the ExternalArtifacts that bear its label.
    async fn made_by(&self, generator: &Stored) -> Result<BTreeSet<String>, HubError> {
        let mut tx = self.store.begin().await?;
        let all = tx.list(KindId::ExternalArtifact, &generator.namespace).await?;
        let own = all.into_iter().filter(|found| is_of(found, generator).is_ok());
        Ok(own.map(|found| found.name).collect())
    }
}

/// The aliases of the sources that something is copied of.
fn used(spec: &ArtifactGeneratorSpec) -> BTreeSet<&str> {
    let copies = spec.artifacts.iter().flat_map(|artifact| &artifact.copy).map(|copy| copy.from.as_str());
    let all = copies.chain(spec.path_pattern.as_deref());
    all.filter_map(|text| text.strip_prefix('@')?.split_once('/')).map(|(alias, _)| alias).collect()
}

/// Whether this ArtifactGenerator made it.
fn is_of(external: &Stored, generator: &Stored) -> Result<(), String> {
    let maker = external.object["metadata"]["labels"][GENERATOR].as_str();
    if maker == Some(generator.uid.to_string().as_str()) {
        return Ok(());
    }
    let origin = &external.object["spec"]["sourceRef"];
    let by = match (maker, origin["name"].as_str()) {
        (Some(_), Some(name)) => format!("ArtifactGenerator '{name}' makes it"),
        _ => "it was not made by this ArtifactGenerator".to_owned(),
    };
    Err(format!("ExternalArtifact {}/{} already exists: {by}", external.namespace, external.name))
}

/// Whether an object has all that a configuration asks for.
fn is_as(present: &Stored, config: &Value) -> bool {
    let all = |field: &str| {
        let (has, wants) = (&present.object["metadata"][field], &config["metadata"][field]);
        wants.as_object().into_iter().flatten().all(|(key, value)| has.get(key) == Some(value))
    };
    all("labels") && all("annotations") && present.object["spec"] == config["spec"]
}

/// What its ExternalArtifact is to be.
fn config(generator: &Stored, spec: &ArtifactGeneratorSpec, product: &Product) -> Value {
    let mut common = spec.common_metadata.clone().unwrap_or_default();
    // These are people's to say.
    common.annotations.retain(|key, _| !key.starts_with(OURS));
    let mut labels = common.labels;
    labels.extend(product.labels.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels.insert(GENERATOR.to_owned(), generator.uid.to_string());
    let api_version = KindId::ArtifactGenerator.get().storage_version().api_version();
    json!({
        "apiVersion": KindId::ExternalArtifact.get().storage_version().api_version(),
        "kind": KindId::ExternalArtifact.get().kind,
        "metadata": {
            "name": product.name, "namespace": generator.namespace, "labels": labels, "annotations": common.annotations,
        },
        "spec": {
            "sourceRef": {
                "apiVersion": api_version, "kind": KindId::ArtifactGenerator.get().kind,
                "name": generator.name, "namespace": generator.namespace,
            },
        },
    })
}
