//! The cases beside the repository (`../shared/source-cases`): versions and ranges, references of OCI repositories. The archive
//! is unpacked in memory. Where `../shared` is not there, the test says so and tests nothing.

use std::collections::BTreeMap;
use std::io::Read as _;

use roadstead_model::Revision;
use roadstead_sources::version::{Constraint, Version};
use roadstead_sources::{OciReference, OciRequest};
use serde_json::Value;

use crate::fetch::{fetch, fetched, files};
use crate::registry::{LAYER, Registry, Wants};
use crate::source_cases::{source_cases, tell};

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map(|all| all.iter().map(|one| one.as_str().unwrap()).collect()).unwrap_or_default()
}

#[test]
fn versions_and_ranges_are_those_of_flux() {
    let Some(cases) = source_cases("sources") else { return };
    let semver: Value = serde_json::from_slice(&cases["semver.json"]).unwrap();
    let versions = texts(&semver["versions"]);
    let mut wrong = Vec::new();
    for case in semver["constraints"].as_array().unwrap() {
        let text = case["constraint"].as_str().unwrap();
        let constraint = match (Constraint::parse(text), case["error"].as_str()) {
            (Ok(constraint), None) => constraint,
            (Err(error), Some(expected)) if error.to_string() == expected => continue,
            (got, expected) => {
                wrong.push(format!("{text:?}: {got:?}, and not {expected:?}"));
                continue;
            }
        };
        let parsed = versions.iter().filter_map(|text| Some((*text, Version::parse(text)?)));
        let matching: Vec<_> = parsed.filter(|(_, version)| constraint.matches(version)).collect();
        let names: Vec<&str> = matching.iter().map(|(name, _)| *name).collect();
        if names != texts(&case["matches"]) {
            wrong.push(format!("{text:?}: {names:?}, and not {:?}", texts(&case["matches"])));
        }
        let best =
            matching.iter().max_by(|(_, one), (_, other)| one.precedence(other)).map(|(name, _)| *name);
        let expected = texts(&case["best_any_of"]);
        if !best.map_or(expected.is_empty(), |best| expected.contains(&best)) {
            wrong.push(format!("{text:?}: the best is {best:?}, and not one of {expected:?}"));
        }
    }
    for case in semver["parse_version"].as_array().unwrap() {
        let text = case["input"].as_str().unwrap();
        let canonical = Version::parse(text).map(|version| version.to_string());
        if canonical.as_deref() != case["canonical"].as_str()
            || canonical.is_some() != case["ok"].as_bool().unwrap()
        {
            wrong.push(format!("{text:?} is read as {canonical:?}, and not {:?}", case["canonical"]));
        }
    }
    // The newest first; equal versions are interchangeable.
    let sorted = &semver["sort_descending"];
    let constraint = Constraint::parse(sorted["constraint"].as_str().unwrap()).unwrap();
    let parsed = |list: &Value| texts(list).into_iter().filter_map(Version::parse).collect::<Vec<_>>();
    let mut order: Vec<Version> =
        parsed(&sorted["in"]).into_iter().filter(|version| constraint.matches(version)).collect();
    order.sort_by(|one, other| other.precedence(one));
    if order != parsed(&sorted["out"]) {
        wrong.push(format!("sorted: {order:?}, and not {}", sorted["out"]));
    }
    let [constraints, versions] =
        ["constraints", "parse_version"].map(|list| semver[list].as_array().unwrap().len());
    let total = constraints + versions + 1;
    tell(format_args!("semver.json: {} of {total} as expected", total - wrong.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `docker save` made of an image with one layer: pushed to a registry, its layer is compressed.
fn push(registry: &Registry, tag: &str, saved: &[u8], kind: &str) -> String {
    let mut layer = Vec::new();
    for entry in tar::Archive::new(saved).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().ends_with("layer.tar") {
            entry.read_to_end(&mut layer).unwrap();
        }
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &layer).unwrap();
    let created = serde_json::json!({ "org.opencontainers.image.created": tag });
    let manifest = registry.manifest(&[(kind, &gzip.finish().unwrap())], &created);
    let digest = manifest["digest"].as_str().unwrap().to_owned();
    registry.tag("app", tag, &digest);
    digest
}

#[tokio::test]
async fn references_lead_to_the_tags_that_flux_takes() {
    let Some(cases) = source_cases("sources") else { return };
    let refs: Value = serde_json::from_slice(&cases["oci/refs.json"]).unwrap();
    let registry = Registry::start(true, Wants::Nothing).await;
    let chart = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let mut digests = BTreeMap::new();
    for tag in texts(&refs["tags_pushed"]) {
        let kind = if tag.starts_with("6.2.") { chart } else { LAYER };
        digests.insert(tag.to_owned(), push(&registry, tag, &cases[&format!("oci/podinfo-{tag}.tar")], kind));
    }
    let latest = push(&registry, "latest", &cases["oci/podinfo-6.1.4.tar"], LAYER);
    digests.insert("latest".to_owned(), latest);
    let mut run = 0;
    for case in refs["cases"].as_array().unwrap() {
        run += 1;
        if case["url"].is_string() {
            let request = OciRequest { url: "registry.example/charts".to_owned(), ..registry.request() };
            assert!(fetch(request).await.is_err());
            continue;
        }
        let field = |name: &str| case["ref"][name].as_str();
        let digest = field("digest").map(|_| digests["6.1.6"].clone());
        let reference =
            OciReference::from_spec(digest.as_deref(), field("semver"), field("semverFilter"), field("tag"));
        let media_type = case["layer_media_type"].as_str().map(str::to_owned);
        let request = OciRequest { reference, media_type, ..registry.request() };
        if let Some(expected) = case["error"].as_str() {
            let error = fetch(request).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{case}: {error}");
            continue;
        }
        let found = fetched(request).await;
        let expected = match &digest {
            Some(digest) => vec![digest.clone()],
            None => {
                let one = case["expect"].as_str().into_iter();
                let tags = one.chain(texts(&case["expect_any_of"])).map(|tag| &tag[1..]);
                tags.map(|tag| format!("{tag}@{}", digests[tag])).collect()
            }
        };
        assert!(expected.contains(&found.revision.to_string()), "{case}: {}", found.revision);
        assert!(!files(&found).is_empty());
    }
    tell(format_args!("oci/refs.json: {run} of {run} as expected"));
}

/// `oci/artifact-tree`, packed as `flux push artifact` would and fetched with patterns that leave out a file, a folder and a folder in a folder.
#[tokio::test]
async fn a_tree_of_the_original_comes_back_without_what_is_left_out() {
    let Some(cases) = source_cases("the tree of an artifact") else { return };
    let all: BTreeMap<&str, &str> = cases
        .iter()
        .filter(|(path, _)| !path.ends_with('/'))
        .filter_map(|(path, bytes)| {
            Some((path.strip_prefix("oci/artifact-tree/")?, std::str::from_utf8(bytes).unwrap()))
        })
        .collect();
    let registry = Registry::start(true, Wants::Nothing).await;
    let pushed: Vec<(&str, &str)> = all.iter().map(|(path, text)| (*path, *text)).collect();
    registry.push("app", "latest", &pushed);
    for (ignore, wanted) in [
        (None, all.keys().copied().collect::<Vec<_>>()),
        (
            Some("ignore.txt\nignore-dir/\n!/deploy\nsomedir/git\n"),
            vec!["deploy/repo.yaml", "deployment.yaml", "somedir/repo.yaml"],
        ),
        (Some("/*\n!/deploy\n"), vec!["deploy/repo.yaml"]),
    ] {
        let request = OciRequest { ignore: ignore.map(str::to_owned), ..registry.request() };
        let found = files(&fetched(request).await);
        let found: BTreeMap<&str, &str> =
            found.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), wanted, "{ignore:?}");
        assert!(found.iter().all(|(path, text)| all[path] == *text));
    }
    tell(format_args!("oci/artifact-tree: {} files, by three lists of patterns", all.len()));
}

#[test]
fn revisions_of_older_versions_are_read() {
    let Some(all) = source_cases("revisions.json") else { return };
    let cases: Value = serde_json::from_slice(&all["revisions.json"]).unwrap();
    let revision = |text: &str| text.parse::<Revision>().unwrap();
    let mut run = 0;
    for case in cases["normalise"].as_array().unwrap() {
        let (text, now) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        // Where there is no revision there is none here either.
        if text.is_empty() {
            assert!(text.parse::<Revision>().is_err() && now.is_empty());
        } else {
            assert_eq!(revision(text).to_string(), now, "{text}");
        }
        run += 1;
    }
    for case in cases["split"].as_array().unwrap().iter().filter(|case| case["hash"].is_string()) {
        let revision = revision(case["in"].as_str().unwrap());
        assert_eq!(revision.content(), case["hash"].as_str(), "{case}");
        let pointer = match case["pointer"].as_str().unwrap() {
            "" => "sha1:".to_owned(),
            pointer => format!("{pointer}@sha1:"),
        };
        assert!(revision.to_string().starts_with(&pointer), "{case}");
        run += 1;
    }
    tell(format_args!("revisions.json: {run} of normalise and split as expected"));
}
