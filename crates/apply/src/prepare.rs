//! From a set of manifests to stages of objects with settled scope, order and form. Writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use roadstead_model::{ApplierUid, Digest, Hasher, MAX_OBJECTS, ObjectRef, Stage};
use serde_json::Value;

use crate::directives::Directives;
use crate::discovery::Resource;
use crate::engine::{Engine, is_secret};
use crate::error::{FailureKind, ObjectFailure};
use crate::flux;
use crate::manifest::{Manifest, check, normalise};
use crate::order::{Place, place};
use crate::takeover::Adopts;
use crate::{Error, HashKey, IgnoreRules, InputError, OWNER_LABEL};

/// What is desired.
#[derive(Debug, Clone)]
pub struct Desired {
    /// Whose objects these are: becomes their owner label.
    pub owner: ApplierUid,
    /// The objects, in any order.
    pub manifests: Vec<Manifest>,
    /// The namespace of namespaced objects that name none.
    pub default_namespace: String,
    /// Whether an object whose immutable field would change is recreated, also without its own `force: enabled`.
    pub force: bool,
    /// Fields that are left as they are on the cluster.
    pub ignore: IgnoreRules,
    /// Whether objects are taken over whose labels say that they are of a Kustomization of Flux; else they fail.
    pub adopt_flux: bool,
    /// Managers of fields, besides Flux's, whose fields are taken over with that.
    pub adopt_managers: Vec<String>,
    /// For whom it is applied: hashes of values that may be secret can be compared within one tenant only.
    pub tenant: String,
}

/// Objects that are ready to be applied, in stages.
#[derive(Clone)]
pub struct Prepared {
    owner: ApplierUid,
    /// In order; within a stage in the order of kinds.
    pub(crate) stages: Vec<Vec<Arc<Planned>>>,
}

/// One object that is ready to be applied.
pub(crate) struct Planned {
    /// Whose it is to be.
    pub(crate) owner: ApplierUid,
    pub(crate) reference: ObjectRef,
    pub(crate) resource: Resource,
    /// Whether its kind comes from a CRD among the objects, which the apiserver may serve a moment late.
    pub(crate) is_new_kind: bool,
    /// What is sent: for the dry-run and for the write.
    pub(crate) body: Bytes,
    /// Of what is sent, and of all that decides what is done with it.
    pub(crate) digest: Digest,
    pub(crate) sensitive: bool,
    /// Values that may be secret are told as hashes by this key.
    pub(crate) values_key: Arc<HashKey>,
    pub(crate) force: bool,
    /// What is taken over from other tools.
    pub(crate) adopts: Adopts,
    pub(crate) ignore: IgnoreRules,
    pub(crate) directives: Directives,
    pub(crate) place: Place,
}

impl Prepared {
    /// Whose objects they are.
    #[must_use]
    pub fn owner(&self) -> ApplierUid {
        self.owner
    }

    /// Everything that is about to be owned, sorted: what to store before the first write.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectRef> {
        let mut objects: Vec<ObjectRef> = self.planned().map(|planned| planned.reference.clone()).collect();
        objects.sort();
        objects
    }

    /// Each object with what is sent of it, as the cluster will be asked to have it.
    pub fn contents(&self) -> impl Iterator<Item = (&ObjectRef, Value)> {
        // Of our own making, so that it reads; were it not to, null is nothing that anybody takes for an object.
        self.planned()
            .map(|planned| (&planned.reference, serde_json::from_slice(&planned.body).unwrap_or_default()))
    }

    /// Those of the objects that `wanted` has.
    #[must_use]
    pub fn only(&self, wanted: &BTreeSet<ObjectRef>) -> Self {
        let stages = self.stages.iter().map(|stage| {
            stage.iter().filter(|planned| wanted.contains(&planned.reference)).cloned().collect::<Vec<_>>()
        });
        Self { owner: self.owner, stages: stages.filter(|stage| !stage.is_empty()).collect() }
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.planned().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    pub(crate) fn planned(&self) -> impl Iterator<Item = &Planned> {
        self.stages.iter().flatten().map(AsRef::as_ref)
    }
}

/// Names the objects; their content may be secret.
impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.planned().map(|planned| planned.reference.to_string()).collect();
        f.debug_struct("Prepared").field("owner", &self.owner).field("objects", &names).finish()
    }
}

/// The digest of an object as it is sent, with all else that decides what is done with it.
fn digest(body: &[u8], ignore: &IgnoreRules, force: bool) -> Digest {
    let mut hasher = Hasher::default();
    // What is of one length each goes first: no two that differ are the same bytes.
    hasher.update(&[u8::from(force), u8::from(ignore.digest().is_some())]);
    if let Some(rules) = ignore.digest() {
        hasher.update(rules.as_bytes());
    }
    hasher.update(body);
    hasher.finish()
}

type Gvk = (String, String, String);

pub(crate) async fn prepare(engine: &Engine, desired: Desired) -> Result<Prepared, Error> {
    let Desired { owner, manifests, default_namespace, force, ignore, adopt_flux, adopt_managers, tenant } =
        desired;
    let values_key = Arc::new(engine.hashes.values.derive("tenant", &tenant));
    let adopts = Adopts { flux: adopt_flux, managers: adopt_managers.into() };
    if manifests.len() > MAX_OBJECTS {
        return Err(InputError::TooManyObjects { count: manifests.len(), limit: MAX_OBJECTS }.into());
    }
    let mut references = Vec::with_capacity(manifests.len());
    for (index, manifest) in manifests.iter().enumerate() {
        references.push(check(&manifest.object, index + 1)?);
    }
    let defined = defined_kinds(&manifests, &references);
    let served = served_kinds(engine, &references, &defined).await?;

    let owner_value = owner.to_string();
    let mut seen = BTreeSet::new();
    let mut stages: BTreeMap<_, Vec<Arc<Planned>>> = BTreeMap::new();
    for (Manifest { mut object, sensitive }, mut reference) in manifests.into_iter().zip(references) {
        let gvk = gvk(&reference);
        let (resource, is_new_kind) = match (defined.get(&gvk), served.get(&gvk)) {
            (Some(resource), _) => (resource.clone(), true),
            (None, Some(resource)) => (resource.clone(), false),
            // `served_kinds` names every kind that is in neither.
            (None, None) => return Err(unknown(vec![reference])),
        };
        if !resource.namespaced {
            reference.namespace.clear();
        } else if reference.namespace.is_empty() {
            reference.namespace.clone_from(&default_namespace);
        }
        if !seen.insert(reference.clone()) {
            return Err(InputError::Duplicate(reference).into());
        }
        let directives = Directives::of(&object);
        normalise(&mut object, &reference, (OWNER_LABEL, &owner_value));
        if adopts.flux {
            flux::shield(&mut object);
        }
        let place = place(&reference, &engine.options.custom_stage_kinds);
        let force = force || directives.force;
        let body = Bytes::from_owner(object.to_bytes());
        let planned = Planned {
            owner,
            sensitive: sensitive || is_secret(&reference),
            values_key: Arc::clone(&values_key),
            force,
            adopts: adopts.clone(),
            ignore: ignore.clone(),
            digest: digest(&body, &ignore, force),
            body,
            reference,
            resource,
            is_new_kind,
            directives,
            place,
        };
        stages.entry(place.part).or_default().push(Arc::new(planned));
    }
    let mut stages: Vec<Vec<Arc<Planned>>> = stages.into_values().collect();
    for stage in &mut stages {
        stage.sort_by(|a, b| (a.place, &a.reference).cmp(&(b.place, &b.reference)));
    }
    Ok(Prepared { owner, stages })
}

fn gvk(reference: &ObjectRef) -> Gvk {
    (reference.group.clone(), reference.version.clone(), reference.kind.clone())
}

fn unknown(objects: Vec<ObjectRef>) -> Error {
    let failures = objects.into_iter().map(|object| {
        let message = format!("{} in {}; is its CRD installed?", object.kind, object.api_version());
        ObjectFailure { object, kind: FailureKind::UnknownKind, message }
    });
    Error::objects(Stage::Validate, failures.collect())
}

/// The kinds that the CRDs among the objects define.
fn defined_kinds(manifests: &[Manifest], references: &[ObjectRef]) -> HashMap<Gvk, Resource> {
    let crds = manifests.iter().zip(references).filter(|(_, reference)| {
        reference.group == "apiextensions.k8s.io" && reference.kind == "CustomResourceDefinition"
    });
    let mut defined = HashMap::new();
    for (manifest, _) in crds {
        let crd = &manifest.object;
        let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).filter(|text| is_plain(text));
        let (Some(group), Some(kind), Some(plural)) =
            (text("/spec/group"), text("/spec/names/kind"), text("/spec/names/plural"))
        else {
            // The apiserver will say what it lacks.
            continue;
        };
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let versions =
            versions.filter_map(|version| version.get("name")?.as_str()).chain(text("/spec/version"));
        for version in versions.filter(|version| is_plain(version)) {
            let resource = Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                plural: plural.to_owned(),
                namespaced: text("/spec/scope") != Some("Cluster"),
            };
            defined.insert((group.to_owned(), version.to_owned(), kind.to_owned()), resource);
        }
    }
    defined
}

/// Whether `text` can be a segment of a path as it is.
fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'.')
        && text != "."
        && text != ".."
}

/// The kinds that the cluster serves, of those that are not `defined`; one that it does not serve is an error.
async fn served_kinds(
    engine: &Engine,
    references: &[ObjectRef],
    defined: &HashMap<Gvk, Resource>,
) -> Result<HashMap<Gvk, Resource>, Error> {
    // One object of each kind, by group-version.
    let mut wanted: BTreeMap<(&str, &str), BTreeMap<&str, ObjectRef>> = BTreeMap::new();
    for reference in references {
        if !defined.contains_key(&gvk(reference)) {
            let kinds = wanted.entry((&reference.group, &reference.version)).or_default();
            kinds.entry(&reference.kind).or_insert_with(|| reference.clone());
        }
    }
    let wanted: Vec<Vec<ObjectRef>> =
        wanted.into_values().map(|kinds| kinds.into_values().collect()).collect();
    let asked = wanted.into_iter().map(|kinds| ask(engine, kinds));
    let mut served = HashMap::new();
    let mut missing = Vec::new();
    let mut failures = Vec::new();
    crate::side_by_side::side_by_side(engine.options.concurrency, asked, &|| true, &mut |answers| {
        for answer in answers {
            match answer {
                (reference, Ok(Some(resource))) => {
                    served.insert(gvk(&reference), resource);
                }
                (reference, Ok(None)) => missing.push(reference),
                (_, Err(failure)) => failures.push(failure),
            }
        }
    })
    .await;
    if !failures.is_empty() {
        return Err(Error::objects(Stage::Validate, failures));
    }
    if missing.is_empty() {
        return Ok(served);
    }
    let kinds: BTreeSet<Gvk> = missing.iter().map(gvk).collect();
    Err(unknown(references.iter().filter(|reference| kinds.contains(&gvk(reference))).cloned().collect()))
}

/// Looks up kinds of one group-version, one after the other: the first answer serves them all.
async fn ask(
    engine: &Engine,
    kinds: Vec<ObjectRef>,
) -> Vec<(ObjectRef, Result<Option<Resource>, ObjectFailure>)> {
    let mut answers = Vec::with_capacity(kinds.len());
    for reference in kinds {
        let ObjectRef { group, version, kind, .. } = &reference;
        let found = engine.discovery.resource(&engine.transport, group, version, kind).await;
        let found = found.map_err(|refusal| crate::failure::explain(&reference, &refusal, false));
        answers.push((reference, found));
    }
    answers
}
