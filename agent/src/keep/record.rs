//! What is kept of one applier: what its objects are corrected by, or watched by, as bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read as _, Write as _};

use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use roadstead_model::{
    Digest, Dispatch, DispatchKey, DispatchSpec, GivenKey, GivenVariables, Hasher, ObjectRef, VariablesKind,
};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::inputs::Input;
use crate::tend::Watched;

/// How many bytes a record has as JSON: an inventory of the largest size, and builds of what fits into all Secrets.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// A dispatch that was carried out, what came to be owned, and what is needed to go on with that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The dispatch.
    pub(crate) key: DispatchKey,
    pub(crate) spec: DispatchSpec,
    /// What is owned.
    pub(crate) inventory: Vec<ObjectRef>,
    /// Whether it ended well, with the health that was asked for. Records of earlier versions do not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_well: bool,
    /// What it read in the cluster. Records of earlier versions do not say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<Input>,
    #[serde(flatten)]
    pub(crate) content: Content,
}

/// What is needed to go on with what was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content {
    /// What differs can be corrected.
    Corrected {
        /// The builds of its groups, as they were received.
        builds: Vec<Packed>,
        /// What the hub gave with it, where that may be kept.
        #[serde(default, skip_serializing_if = "Values::is_empty")]
        values: Values,
    },
    /// What differs is noticed. An agent of an earlier version cannot read this, and takes it back.
    Watched {
        /// How the objects stood.
        watched: Vec<Watched>,
        /// The [mark](roadstead_apply::HashKey::mark) of the key that the footprints are by.
        mark: u64,
    },
}

impl Content {
    /// Tells it from what else may be kept of the same dispatch: with another inventory, other inputs, or another end. Builds and values go
    /// with the dispatch.
    pub(crate) fn digest(
        &self,
        key: &DispatchKey,
        inventory: &[ObjectRef],
        inputs: &[Input],
        is_well: bool,
    ) -> Digest {
        let mut hasher = Hasher::default();
        hasher.update(&[u8::from(is_well)]);
        if !inputs.is_empty() {
            // The hub is told of a change by the attempt that read them, which has to be the newest.
            hasher.update(&key.attempt.0.to_le_bytes());
            // Texts and numbers: they always become JSON.
            hasher.update(&serde_json::to_vec(inputs).unwrap_or_default());
        }
        for object in inventory {
            hasher.update(object.to_string().as_bytes());
            hasher.update(b"\n");
        }
        if let Self::Watched { watched, mark } = self {
            hasher.update(&mark.to_le_bytes());
            for one in watched {
                // Texts and numbers: they always become JSON.
                hasher.update(&serde_json::to_vec(one).unwrap_or_default());
            }
        }
        hasher.finish()
    }
}

/// Values and keys of the hub's. They do not print.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Values {
    variables: Vec<(VariablesKind, String, BTreeMap<String, String>)>,
    keys: Vec<Packed>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").finish_non_exhaustive()
    }
}

impl Values {
    /// Those of a dispatch, if they may be kept.
    pub(crate) fn of(dispatch: &Dispatch) -> Self {
        if !dispatch.spec.offline.keep_secrets {
            return Self::default();
        }
        let variables = dispatch.given.iter();
        let variables =
            variables.map(|given| (given.kind, given.name.clone(), plain(&given.values))).collect();
        let key = |given: &GivenKey| Packed { digest: given.wrapped, bytes: given.key.to_vec() };
        Self { variables, keys: dispatch.data_keys.iter().map(key).collect() }
    }

    fn is_empty(&self) -> bool {
        self.variables.is_empty() && self.keys.is_empty()
    }

    /// As they came with the dispatch.
    pub(crate) fn into_given(mut self) -> (Vec<GivenVariables>, Vec<GivenKey>) {
        let variables = std::mem::take(&mut self.variables).into_iter().map(|(kind, name, values)| {
            let values = values.into_iter().map(|(name, value)| (name, value.into()));
            GivenVariables { kind, name, values: values.collect() }
        });
        let keys = std::mem::take(&mut self.keys)
            .into_iter()
            .map(|Packed { digest, bytes }| GivenKey { wrapped: digest, key: bytes.into() });
        (variables.collect(), keys.collect())
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.variables.iter_mut().flat_map(|(_, _, values)| values.values_mut()).for_each(Zeroize::zeroize);
        self.keys.iter_mut().for_each(|key| key.bytes.zeroize());
    }
}

/// Variables, as they become JSON.
fn plain(values: &BTreeMap<String, Zeroizing<String>>) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

/// Bytes with a digest: a build, compressed; or a key, with the digest of what it was wrapped as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packed {
    pub(crate) digest: Digest,
    #[serde(with = "text")]
    pub(crate) bytes: Vec<u8>,
}

/// Whether what a dispatch was carried out by may lie in the cluster: nothing of it is a value that the hub gave, or decrypted, or such
/// values are to be kept.
pub(crate) fn may_be_kept(dispatch: &Dispatch) -> bool {
    let Dispatch { spec, given, data_keys, .. } = dispatch;
    spec.offline.keep_secrets
        || given.is_empty() && data_keys.is_empty() && spec.groups.iter().all(|group| !group.sealed)
}

impl Record {
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let json = serde_json::to_vec(self).ok()?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&json).ok()?;
        encoder.finish().ok()
    }

    /// Reads one; nothing where the bytes are of something else, or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut json = Vec::new();
        let read = GzDecoder::new(bytes).take(MAX_BYTES + 1).read_to_end(&mut json).ok()?;
        if u64::try_from(read).ok()? > MAX_BYTES {
            return None;
        }
        let record: Self = serde_json::from_slice(&json).ok()?;
        // What this version cannot read of the spec it must not carry out the rest of.
        (record.key.digest == Some(record.spec.digest())).then_some(record)
    }
}

mod text {
    use base64::Engine as _;

    use super::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
