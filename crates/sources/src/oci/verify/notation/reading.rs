//! The reading of what a registry sent of notation's signatures: lists of referrers, manifests of signatures and envelopes.

use roadstead_model::Digest;
use serde::Deserialize;

use super::NotationTrust;
use super::judge::{Target, Verdict, judge};
use super::revocation::Answers;
use crate::oci::manifest::{Descriptor, Few};
use crate::oci::verify::Unfit;
use crate::oci::verify::reading::{Reply, Whys};
use crate::oci::verify::referrers::{self, MOST_BUNDLE};

/// What signatures are called in a registry.
pub(super) const KIND: &str = "application/vnd.cncf.notary.signature";
/// What envelopes are called.
const ENVELOPES: [&str; 2] = ["application/jose+json", "application/cose"];

/// What is asked at once of who issued certificates.
const MOST_INQUIRIES: usize = 16;

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Option<Few<Referrer>>,
}

#[derive(Deserialize)]
struct Referrer {
    #[serde(rename = "artifactType", default)]
    kind: Option<String>,
    #[serde(flatten)]
    descriptor: Descriptor,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "artifactType", default)]
    kind: Option<String>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    layers: Option<Few<Descriptor>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "mediaType", default)]
    media_type: String,
}

/// Those of a list that may be signatures, and how many there are in all.
pub(in crate::oci::verify) fn signatures(list: &[u8]) -> Result<(Vec<Descriptor>, usize), Unfit> {
    let index: Index = serde_json::from_slice(list)
        .map_err(|error| Unfit::new(format!("the list of what refers to it: {error}")))?;
    let mut found: Vec<_> = index.manifests.map(|few| few.0).unwrap_or_default();
    found.retain(|one| one.kind.as_deref().is_none_or(|kind| kind.is_empty() || kind == KIND));
    Ok(referrers::last(found.into_iter().map(|one| one.descriptor).collect()))
}

/// The envelope of a signature's manifest.
pub(in crate::oci::verify) fn envelope(manifest: &[u8]) -> Result<Descriptor, Unfit> {
    let manifest: Manifest = serde_json::from_slice(manifest)
        .map_err(|error| Unfit::new(format!("the manifest of its signature: {error}")))?;
    let config = manifest.config.map(|config| config.media_type);
    if manifest.kind.as_deref() != Some(KIND) && config.as_deref() != Some(KIND) {
        return Err(Unfit::new("what refers to it is not a signature of notation"));
    }
    let layers = manifest.layers.map(|few| few.0).unwrap_or_default();
    let [envelope] = layers.as_slice() else {
        return Err(Unfit::new("what refers to it must have exactly one envelope"));
    };
    if !ENVELOPES.contains(&envelope.media_type.as_str()) {
        let shown = crate::tree::shown(&envelope.media_type);
        return Err(Unfit::new(format!(
            "its envelope is of the type '{shown}': want {}",
            ENVELOPES.join(" or ")
        )));
    }
    referrers::fit(envelope, MOST_BUNDLE)?;
    Ok(envelope.clone())
}

/// Whether one of these envelopes is a signature that counts, of the image with this manifest.
pub(in crate::oci::verify) fn verify(
    envelopes: impl Iterator<Item = Vec<u8>>,
    (manifest, image): (&[u8], &Digest),
    trust: &NotationTrust,
    answers: &dyn Answers,
    now: i64,
) -> Reply {
    let mut why = Whys::default();
    // The policy was narrowed to what it says of this repository.
    let checks = trust.statements.first().and_then(|statement| statement.checks());
    let (Some(checks), true) = (checks, Digest::of(manifest) == *image) else {
        why.add(&Unfit::new("nothing says how it is to be verified"));
        return Reply::Unverified { why: why.0 };
    };
    let (target, trusted) = (Target::of(manifest), trust.certificates());
    let (mut unproven, mut open) = (None, Vec::new());
    for bytes in envelopes {
        match judge(&bytes, checks, &trusted, &target, answers, now) {
            Ok(Verdict::Open(inquiries)) => open.extend(inquiries),
            Ok(Verdict::Proven(_)) => return Reply::Verified,
            Ok(Verdict::Unproven(told)) => unproven = unproven.or(Some(told)),
            Err(unfit) => why.add(&unfit),
        }
    }
    if !open.is_empty() {
        open.dedup();
        open.truncate(MOST_INQUIRIES);
        return Reply::Open { inquiries: open };
    }
    match unproven {
        Some(why) => Reply::Unproven { why },
        None => Reply::Unverified { why: why.0 },
    }
}
