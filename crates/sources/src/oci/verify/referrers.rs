//! Lists of what refers to an image, manifests of bundles, and manifests of signatures of the old form. Pure; the bytes are anyone's.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Unfit;
use super::bundle::{Bytes, MEDIA_TYPE};
use crate::oci::manifest::{Descriptor, Few};

/// Signatures of one image that are looked at: the last ones, since who signs again appends.
pub(super) const MOST_SIGNATURES: usize = 50;
/// Bytes of one payload of the old form, and of one bundle. (What is larger is not a signature; attestations can be.)
pub(super) const MOST_PAYLOAD: u64 = 64 << 10;
pub(super) const MOST_BUNDLE: u64 = 256 << 10;
/// What layers of the old form are called.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// What a bundle is said to hold, where a list says so.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Option<Few<Referrer>>,
}

#[derive(Deserialize)]
struct Referrer {
    #[serde(rename = "artifactType", default)]
    artifact_type: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    descriptor: Descriptor,
}

/// Those of a list that may be bundles with a signature, and how many there are in all.
pub(super) fn bundles(list: &[u8]) -> Result<(Vec<Descriptor>, usize), Unfit> {
    let index: Index = serde_json::from_slice(list)
        .map_err(|error| Unfit::new(format!("the list of what refers to it: {error}")))?;
    let may_be = |one: &Referrer| {
        let kind = one.artifact_type.as_deref().unwrap_or_default();
        let predicate = one.annotations.as_ref().and_then(|notes| notes.get(PREDICATE));
        (kind.is_empty() || kind == MEDIA_TYPE) && predicate.is_none_or(|what| what == SIGNED)
    };
    let mut found: Vec<_> = index.manifests.map(|few| few.0).unwrap_or_default();
    found.retain(may_be);
    Ok(last(found.into_iter().map(|one| one.descriptor).collect()))
}

/// The last ones that are looked at, and how many there are in all.
pub(super) fn last<T>(mut all: Vec<T>) -> (Vec<T>, usize) {
    let count = all.len();
    all.drain(..count.saturating_sub(MOST_SIGNATURES));
    (all, count)
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Option<Few<Layer>>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    descriptor: Descriptor,
}

impl Manifest {
    fn parse(bytes: &[u8]) -> Result<Vec<Layer>, Unfit> {
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| Unfit::new(format!("the manifest of its signature: {error}")))?;
        Ok(manifest.layers.map(|few| few.0).unwrap_or_default())
    }
}

/// The bundle of a manifest that has one.
pub(super) fn bundle(manifest: &[u8]) -> Result<Descriptor, Unfit> {
    let layers = Manifest::parse(manifest)?;
    let [layer] = layers.as_slice() else {
        return Err(Unfit::new("what refers to it must have exactly one layer"));
    };
    let bundle = &layer.descriptor;
    if bundle.media_type != MEDIA_TYPE {
        return Err(Unfit::new("what refers to it is not a bundle of Sigstore's"));
    }
    fit(bundle, MOST_BUNDLE)?;
    Ok(bundle.clone())
}

/// A signature of the old form.
pub(super) struct Old {
    pub(super) payload: Descriptor,
    pub(super) signature: Vec<u8>,
    /// What else stands beside it.
    pub(super) annotations: BTreeMap<String, String>,
}

/// The signatures of a manifest of the old form that can be looked at, why others cannot, and how many there are in all.
pub(super) fn old(manifest: &[u8]) -> Result<(Vec<Old>, Vec<Unfit>, usize), Unfit> {
    let (layers, count) = last(Manifest::parse(manifest)?);
    let (mut found, mut unfit) = (Vec::new(), Vec::new());
    for Layer { annotations, descriptor } in layers {
        match signature(annotations.unwrap_or_default(), descriptor) {
            Ok(signature) => found.push(signature),
            Err(why) => unfit.push(why),
        }
    }
    Ok((found, unfit, count))
}

fn signature(annotations: BTreeMap<String, String>, payload: Descriptor) -> Result<Old, Unfit> {
    if payload.media_type != SIMPLE_SIGNING {
        return Err(Unfit::new("a layer beside the signatures is none"));
    }
    fit(&payload, MOST_PAYLOAD)?;
    let text = annotations.get(SIGNATURE).ok_or_else(|| Unfit::new("a payload has no signature"))?;
    let text = serde_json::Value::String(text.clone());
    let Bytes(signature) =
        serde_json::from_value(text).map_err(|_| Unfit::new("a signature is not base64"))?;
    Ok(Old { payload, signature, annotations })
}

pub(super) fn fit(descriptor: &Descriptor, most: u64) -> Result<(), Unfit> {
    if descriptor.size > most {
        return Err(Unfit::new(format!("it is larger than {most} bytes")));
    }
    descriptor.digest().map(drop).map_err(|error| Unfit::new(error.to_string()))
}
