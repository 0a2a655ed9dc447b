//! An applier: what the hub renders and an agent applies. A kind that deploys is one implementation of [`Applier`], in a file of
//! `appliers/`, and one row of the registry of kinds.
//!
//! What a kind does is pure. It says which sources it renders and what of its spec the render goes by; the pipeline brings those
//! sources' trees to a worker process, where the kind renders them, and whatever else it asks for in further rounds. What comes of
//! it is groups of objects, and the kind says what is to be done with them, step by step.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_api::{KindId, Reference};
use roadstead_hub_store::{BuiltGroup, StoreError, Stored};
use roadstead_kustomize::{Fetched, FileTree};
use roadstead_model::{Digest, Group, HealthExpr, ObjectRef, Reason, Step};
use roadstead_sops::WrappedKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delivery::appliers;
use crate::delivery::build::CPU;
use crate::delivery::decryption::Decryption;

/// Rounds of one render, the first included.
pub(crate) const MAX_ROUNDS: usize = 10;
/// What one render may ask for besides its sources' trees, in all rounds.
pub(crate) const MAX_NEEDS: usize = 100;

/// A kind that deploys.
pub(crate) trait Applier: Sync {
    /// The kind.
    fn kind(&self) -> KindId;

    /// What renders, and its version: part of each render's key. A change that changes results changes this.
    fn engine(&self) -> &'static str;

    /// Why this version cannot act on a spec, where it has a field that this version does not know how to: to pass over it would
    /// apply something other than what was asked for.
    ///
    /// # Errors
    /// Where the object is not readable.
    fn unsupported(&self, stored: &Stored) -> Result<Option<String>, StoreError>;

    /// The sources that it renders. The revision of the first one is the applier's.
    ///
    /// # Errors
    /// Where the object is not readable.
    fn sources(&self, stored: &Stored) -> Result<Vec<Reference>, StoreError>;

    /// What of the object its render goes by, besides the sources: equal recipes render equal trees to equal groups.
    ///
    /// # Errors
    /// Where the object is not readable.
    fn recipe(&self, stored: &Stored) -> Result<Value, StoreError>;

    /// Renders, or says what else it needs for that. Runs in a worker process; the error is for the object's condition.
    ///
    /// # Errors
    /// What is wrong with the sources or the spec.
    fn render(&self, recipe: &Value, inputs: &Inputs<'_>) -> Result<Render, String>;

    /// CPU time of one render, unpacking included.
    fn longest_render(&self) -> Duration {
        CPU
    }

    /// How what is encrypted is decrypted; none where the spec does not say. `home` is the namespace of the cluster that the object bears.
    ///
    /// # Errors
    /// Where the object is not readable.
    fn decryption(&self, _: &Stored, _home: &str) -> Result<Option<Decryption>, StoreError> {
        Ok(None)
    }

    /// Whether its renders may ask for Secrets, so that any value of what comes of them may be one of theirs. Those that only
    /// variables come from are not asked for: the agent substitutes them.
    fn renders_secrets(&self) -> bool {
        true
    }

    /// What is to be done with the groups. `home` is the namespace of the cluster that the object bears. The inner error is for the
    /// object's condition.
    ///
    /// # Errors
    /// Where the object is not readable.
    fn steps(
        &self,
        stored: &Stored,
        home: &str,
        built: &[BuiltGroup],
    ) -> Result<Result<Work, (Reason, String)>, StoreError>;
}

/// The applier of this kind; none where objects of it do not deploy.
pub(crate) fn applier(kind: KindId) -> Option<&'static dyn Applier> {
    appliers::ALL.iter().copied().find(|applier| applier.kind() == kind)
}

/// Something that a render goes by besides its sources' trees.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Need {
    /// A ConfigMap or a Secret of the hub, in the applier's namespace there.
    Object {
        /// Its kind.
        kind: KindId,
        /// Its name.
        name: String,
    },
    /// An object of the cluster, read as the applier's account.
    Read(ObjectRef),
    /// The data keys of encrypted files of its sources, which it has to decrypt before it renders.
    Keys(Vec<InputKey>),
    /// What a kustomization names by URL.
    Remote {
        /// The URL, as it is written there.
        url: String,
    },
}

/// An encrypted file, and what its data key is wrapped as.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct InputKey {
    /// The file.
    pub(crate) path: String,
    /// What reads it, for messages.
    pub(crate) used_by: String,
    /// What to do where the hub does not have its key.
    pub(crate) instead: String,
    /// What the data key is wrapped as.
    pub(crate) key: WrappedKey,
}

/// What is given for [`Need::Keys`].
#[derive(Serialize, Deserialize)]
pub(crate) struct GivenKeys {
    /// Whether files whose MACs do not fit are decrypted, too.
    pub(crate) lenient: bool,
    /// Data keys in base64, by the digests of what they are wrapped as.
    pub(crate) keys: BTreeMap<String, String>,
}

/// What is given for [`Need::Remote`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenRemote {
    /// Of its artifact, or of the file: the worker asks for the bytes by it.
    pub(crate) digest: Digest,
    /// Whether it is a single file.
    pub(crate) is_file: bool,
    /// Bytes of its files.
    pub(crate) bytes: u64,
}

/// What was found for a need.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Given {
    /// What was asked for.
    pub(crate) need: Need,
    /// The object; none where there is none.
    pub(crate) found: Option<Value>,
    /// Which one it is: the uid and the resource version of what was found. The key of a render has this in the place of the object,
    /// since the digest of something secret would let it be guessed.
    pub(crate) identity: String,
}

impl Given {
    /// Whether what came of it is secret.
    pub(crate) fn is_secret(&self) -> bool {
        match &self.need {
            Need::Object { kind, .. } => *kind == KindId::Secret,
            Need::Read(object) => object.group.is_empty() && object.kind == "Secret",
            Need::Keys(_) => true,
            Need::Remote { .. } => false,
        }
    }

    /// Whether what comes of it is sealed: it is in memory only, and nobody stores it.
    pub(crate) fn seals(&self) -> bool {
        matches!(self.need, Need::Keys(_))
    }

    /// The URL and what it led to, where that is what was asked for.
    pub(crate) fn remote(&self) -> Option<(&str, GivenRemote)> {
        let Need::Remote { url } = &self.need else { return None };
        Some((url, GivenRemote::deserialize(self.found.as_ref()?).ok()?))
    }
}

/// What a render goes by.
pub(crate) struct Inputs<'a> {
    /// The trees of its sources, in their order.
    pub(crate) trees: &'a [&'a dyn FileTree],
    /// What it asked for in the rounds before.
    pub(crate) given: &'a [Given],
    /// What of that URLs led to, by the URLs.
    pub(crate) remotes: &'a BTreeMap<String, Fetched>,
}

impl Inputs<'_> {
    /// What was found for a need; the outer none where it was not asked for yet.
    pub(crate) fn find(&self, need: &Need) -> Option<Option<&Value>> {
        let given = self.given.iter().find(|given| given.need == *need)?;
        Some(given.found.as_ref())
    }
}

/// What came of a render.
pub(crate) enum Render {
    /// It goes on once it has these too.
    Needs(Vec<Need>),
    /// It is done.
    Rendered {
        /// The groups, in their order.
        groups: Vec<Objects>,
        /// What of its inputs somebody should look at though it is rendered: named, and without what was decrypted.
        warnings: Vec<String>,
    },
    /// Its source does not have what is to be rendered; why.
    NotInSource(String),
}

/// The objects of a group.
pub(crate) struct Objects {
    /// The group's name, for people; empty where it is the only one.
    pub(crate) label: String,
    /// The objects, as JSON.
    pub(crate) objects: Vec<Value>,
}

/// What an agent is to do.
pub(crate) struct Work {
    /// How the health of objects of some kinds is told.
    pub(crate) health: Vec<HealthExpr>,
    /// The groups that the steps name by their indices.
    pub(crate) groups: Vec<Group>,
    /// The steps, in their order.
    pub(crate) steps: Vec<Step>,
}
