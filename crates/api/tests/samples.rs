//! The manifests beside the repository (`../shared/source-cases/samples`): the API takes each of them, and knows each of their fields. Where
//! `../shared` is not there, the test says so and tests nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::collections::BTreeMap;

use roadstead_api::{
    HelmChartSpec, HelmChartVerificationProvider, KINDS, KindId, OciRepositorySpec, OciVerificationProvider,
    PipelineRole, from_storage, rules, structural, to_storage,
};
use serde_json::{Value, json};

#[path = "../../sources/tests/common/source_cases.rs"]
mod source_cases;

use source_cases::{source_cases, tell};

/// The documents of a file.
fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// What a hub stores of an object that is new, or what it says is wrong with it.
fn taken(mut object: Value) -> Result<(KindId, Value), Vec<String>> {
    let (group, name) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kind = KINDS.iter().find(|kind| object["kind"] == kind.kind && kind.group() == group).unwrap();
    let version = kind.version(group, name).unwrap();
    let findings = structural(kind, version, &mut object);
    let mut wrong: Vec<String> = findings.errors.iter().map(ToString::to_string).collect();
    wrong.extend(findings.unknown.iter().map(|path| format!("unknown field \"{path}\"")));
    let stored = to_storage(kind.id, version, object, None);
    let verdict = rules::check(kind.id, &stored, None);
    wrong.extend(verdict.errors.iter().map(ToString::to_string));
    wrong.extend(verdict.warnings);
    if wrong.is_empty() { Ok((kind.id, stored)) } else { Err(wrong) }
}

#[test]
fn samples_of_flux_are_taken_whole() {
    let Some(files) = source_cases("samples of sources") else { return };
    let samples: BTreeMap<&str, &[u8]> = files
        .iter()
        .filter_map(|(path, bytes)| Some((path.strip_prefix("samples/")?, bytes.as_slice())))
        .filter(|(path, _)| !path.is_empty())
        .collect();
    let mut run: BTreeMap<KindId, usize> = BTreeMap::new();
    for (name, bytes) in &samples {
        let all = documents(std::str::from_utf8(bytes).unwrap());
        assert!(!all.is_empty(), "{name}");
        for object in all {
            let (kind, stored) = taken(object.clone()).unwrap_or_else(|wrong| panic!("{name}: {wrong:?}"));
            // It comes back as it was written.
            let shown = from_storage(kind, kind.get().storage_version(), stored);
            assert_eq!(shown["spec"], object["spec"], "{name}");
            *run.entry(kind).or_default() += 1;
        }
    }
    for kind in [
        KindId::Bucket,
        KindId::GitRepository,
        KindId::HelmChart,
        KindId::HelmRepository,
        KindId::OciRepository,
    ] {
        assert_eq!(kind.get().role, PipelineRole::Source);
        assert!(run.contains_key(&kind), "there is a sample of {kind}");
    }
    let objects: usize = run.values().sum();
    tell(format_args!("samples: {} files with {objects} objects as expected", samples.len()));
}

#[test]
fn signatures_are_cosigns_where_nothing_else_is_said() {
    let object = |kind: &str, mut spec: Value| {
        spec["interval"] = "1m".into();
        spec["verify"] = json!({ "secretRef": { "name": "keys" } });
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": { "name": "a" }, "spec": spec })
    };
    let (_, stored) = taken(object("OCIRepository", json!({ "url": "oci://registry.example/a" }))).unwrap();
    let spec: OciRepositorySpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(spec.verify.unwrap().provider, OciVerificationProvider::Cosign);
    let of_repository = json!({ "chart": "a", "sourceRef": { "kind": "HelmRepository", "name": "a" } });
    let (_, stored) = taken(object("HelmChart", of_repository)).unwrap();
    let spec: HelmChartSpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(spec.verify.unwrap().provider, HelmChartVerificationProvider::Cosign);
}

#[test]
fn digests_of_artifacts_are_of_the_form_of_flux() {
    let with = |digest: &str| {
        let artifact = json!({
            "digest": digest, "path": "a", "url": "http://a.example", "revision": "latest@sha256:a",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        });
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact", "metadata": { "name": "a" }, "spec": {},
            "status": { "artifact": artifact },
        })
    };
    for good in ["sha256:0f", "sha512:0f=", "blake3:A-_", "multihash+base58:Qm"] {
        assert!(taken(with(good)).is_ok(), "{good}");
    }
    for bad in ["", "0f", "sha256:", "SHA256:0f", "sha256:0f\n", "sha256:../x"] {
        let wrong = taken(with(bad)).unwrap_err();
        let wanted = "should match '^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$'";
        let is_it = |wrong: &String| wrong.starts_with("status.artifact.digest: ") && wrong.ends_with(wanted);
        assert!(wrong.iter().any(is_it), "{bad:?}: {wrong:?}");
    }
}
