//! Where artifacts are had from the hub: the same address for as long as there are the source and the artifact.

use roadstead_api::{AnySourceStatus, Artifact, KindId};
use roadstead_hub_store::Stored;
use roadstead_model::Digest;
use serde_json::Value;

use super::{SourceKind, kind};

/// Where the newest artifact of a source is had; none where the hub does not know how it is reached.
pub(crate) fn newest(api_url: &str, source: &Stored) -> Option<String> {
    let Stored { kind, namespace, name, .. } = source;
    let base = api_url.trim_end_matches('/');
    (!base.is_empty()).then(|| format!("{base}/fleet/v1/sources/{kind}/{namespace}/{name}/artifact"))
}

/// Says in an artifact where it is had.
pub(crate) fn put(api_url: &str, source: &Stored, artifact: &mut Artifact) {
    let Ok(digest) = artifact.digest.parse::<Digest>() else { return };
    let folder = source.kind.get().singular;
    let extension = kind(source.kind).map_or("tar.gz", SourceKind::extension);
    artifact.path = format!("{folder}/{}/{}/{}.{extension}", source.namespace, source.name, digest.hex());
    artifact.url = newest(api_url, source).map_or_else(String::new, |url| format!("{url}?digest={digest}"));
}

/// Says in a source's status where its artifacts are had, as this hub is reached now.
pub(super) fn note(api_url: &str, source: &Stored, status: &mut AnySourceStatus) {
    let Some(artifact) = &mut status.source.artifact else { return };
    put(api_url, source, artifact);
    // Flux has none in these.
    if matches!(source.kind, KindId::GitRepository | KindId::ExternalArtifact) {
        return;
    }
    if let Some(url) = newest(api_url, source) {
        status.more.insert("url".to_owned(), Value::String(url));
    }
}
