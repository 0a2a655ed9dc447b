//! Versions that Flux once had and that are not served: objects of them are turned into what is, where a build holds one.
//!
//! Fields that went without a successor and that changed nothing are dropped; others are left in place, for whoever checks the
//! object to refuse by name.

use serde_json::{Map, Value, json};

use crate::kind::{Kind, KindId, Version};

/// Versions of Flux' groups that are not served any more.
const OLDER: [&str; 3] = ["v1beta1", "v1beta2", "v1beta3"];

/// Fields that once were, changed nothing in the end, and went.
const WITHOUT_EFFECT: [(KindId, &[&str]); 4] = [
    // Since 0.36 there is one implementation; nobody ever granted access by `accessFrom`.
    (KindId::GitRepository, &["gitImplementation", "accessFrom"]),
    (KindId::Bucket, &["accessFrom"]),
    (KindId::HelmChart, &["accessFrom"]),
    // Validation is always the server's since 0.15.
    (KindId::Kustomization, &["validation"]),
];

/// Turns an object of an older version of its kind into one of a version that is served, which is returned.
///
/// # Errors
/// A message that names the version to use, where the object is of no version that is known.
pub fn modernize(kind: &'static Kind, object: &mut Value) -> Result<&'static Version, String> {
    let said = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    if let Some(version) = kind.versions.iter().find(|version| version.api_version() == said) {
        return Ok(version);
    }
    let served = || kind.versions.iter().map(Version::api_version).collect::<Vec<_>>().join(" or ");
    let older = said.rsplit_once('/').is_some_and(|(_, version)| OLDER.contains(&version));
    let Some(version) = kind.versions.first().filter(|_| older) else {
        return Err(format!("apiVersion {said} of {} is not known: use {}", kind.kind, served()));
    };
    object["apiVersion"] = version.api_version().into();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        for (_, fields) in WITHOUT_EFFECT.iter().filter(|(of, _)| *of == kind.id) {
            for field in *fields {
                spec.remove(*field);
            }
        }
        if kind.id == KindId::Kustomization {
            gather_patches(spec)?;
        }
        if kind.id == KindId::HelmChart {
            gather_values_files(spec)?;
        }
    }
    Ok(version)
}

/// `patchesStrategicMerge` and `patchesJson6902` became `patches`, which came after them in the order of application.
fn gather_patches(spec: &mut Map<String, Value>) -> Result<(), String> {
    let mut patches = Vec::new();
    let list = |spec: &mut Map<String, Value>, field: &str| match spec.remove(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("spec.{field} must be a list")),
    };
    for patch in list(spec, "patchesStrategicMerge")? {
        patches.push(json!({ "patch": patch.to_string() }));
    }
    for patch in list(spec, "patchesJson6902")? {
        let target = patch.get("target").cloned().unwrap_or_default();
        patches.push(json!({ "patch": patch["patch"].to_string(), "target": target }));
    }
    if patches.is_empty() {
        return Ok(());
    }
    patches.extend(list(spec, "patches")?);
    spec.insert("patches".to_owned(), patches.into());
    Ok(())
}

/// `valuesFile` became the first of `valuesFiles`.
fn gather_values_files(spec: &mut Map<String, Value>) -> Result<(), String> {
    let first = match spec.remove("valuesFile") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::String(first)) if first.is_empty() => return Ok(()),
        Some(Value::String(first)) => Value::String(first),
        Some(_) => return Err("spec.valuesFile must be a string".to_owned()),
    };
    match spec.entry("valuesFiles").or_insert_with(|| json!([])) {
        Value::Array(files) if files.contains(&first) => Ok(()),
        Value::Array(files) => {
            files.insert(0, first);
            Ok(())
        }
        _ => Err("spec.valuesFiles must be a list".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kustomization_keeps_what_it_says() {
        let mut object = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1beta1", "kind": "Kustomization", "metadata": { "name": "a" },
            "spec": {
                "interval": "5m", "prune": true, "validation": "client",
                "sourceRef": { "kind": "GitRepository", "name": "a" },
                "patchesStrategicMerge": [{ "kind": "Deployment", "metadata": { "name": "web" } }],
                "patchesJson6902": [{ "patch": [{ "op": "remove", "path": "/spec" }], "target": { "kind": "Job" } }],
                "patches": [{ "patch": "last" }],
            },
        });
        let version = modernize(KindId::Kustomization.get(), &mut object).unwrap();
        assert_eq!(version.api_version(), "kustomize.toolkit.fluxcd.io/v1");
        let expected = json!({
            "interval": "5m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "a" },
            "patches": [
                { "patch": r#"{"kind":"Deployment","metadata":{"name":"web"}}"# },
                { "patch": r#"[{"op":"remove","path":"/spec"}]"#, "target": { "kind": "Job" } },
                { "patch": "last" },
            ],
        });
        assert_eq!(object["spec"], expected);
    }

    #[test]
    fn an_older_chart_has_its_first_file_of_values_among_the_others() {
        for (spec, expected) in [
            (json!({ "chart": "a", "valuesFile": "a.yaml", "accessFrom": {} }), json!(["a.yaml"])),
            (
                json!({ "chart": "a", "valuesFile": "a.yaml", "valuesFiles": ["b.yaml"] }),
                json!(["a.yaml", "b.yaml"]),
            ),
            (
                json!({ "chart": "a", "valuesFile": "b.yaml", "valuesFiles": ["a.yaml", "b.yaml"] }),
                json!(["a.yaml", "b.yaml"]),
            ),
        ] {
            let mut object = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1beta2", "spec": spec });
            modernize(KindId::HelmChart.get(), &mut object).unwrap();
            assert_eq!(object["spec"], json!({ "chart": "a", "valuesFiles": expected }));
        }
        let mut odd =
            json!({ "apiVersion": "source.toolkit.fluxcd.io/v1beta2", "spec": { "valuesFile": 1 } });
        assert!(modernize(KindId::HelmChart.get(), &mut odd).is_err());
    }

    #[test]
    fn what_is_served_stays_and_what_is_not_known_is_refused() {
        let kind = KindId::Kustomization.get();
        for version in kind.versions {
            let mut object = json!({ "apiVersion": version.api_version(), "spec": { "validation": "none" } });
            assert_eq!(modernize(kind, &mut object).unwrap().name, version.name);
            assert_eq!(object["spec"]["validation"], "none", "for the check to refuse");
        }
        let mut newer = json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v2" });
        let why = modernize(kind, &mut newer).unwrap_err();
        assert!(why.contains("use kustomize.toolkit.fluxcd.io/v1"), "{why}");
        let mut odd =
            json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1beta2", "spec": { "patchesJson6902": 1 } });
        assert_eq!(modernize(kind, &mut odd).unwrap_err(), "spec.patchesJson6902 must be a list");
        let mut source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1beta2", "spec": { "gitImplementation": "go-git", "url": "u" } });
        assert_eq!(modernize(KindId::GitRepository.get(), &mut source).unwrap().name, "v1");
        assert_eq!(source["spec"], json!({ "url": "u" }));
        let mut source =
            json!({ "apiVersion": "source.toolkit.fluxcd.io/v1beta2", "spec": { "url": "oci://u" } });
        assert_eq!(modernize(KindId::OciRepository.get(), &mut source).unwrap().name, "v1");
        assert_eq!(source["spec"], json!({ "url": "oci://u" }));
    }
}
