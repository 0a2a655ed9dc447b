//! The cases beside the repository (`../shared/source-cases`) that are about Git: what its references lead to, and two trees. Where
//! `../shared` is not there, the tests say so and test nothing.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_sources::{GitReference, GitRequest, resolve};
use roadstead_test_gitserver::Commit;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, fetched, files};
use crate::source_cases::{source_cases, tell};

/// `revisions.json`.
fn revisions() -> Option<Value> {
    let files = source_cases("references of Git")?;
    Some(serde_json::from_slice(&files["revisions.json"]).unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn commit(kit: &Kit, branch: &str, content: &str) -> String {
    kit.repository.commit(branch, content, &Commit::new().file("v", content)).unwrap()
}

/// The revision that a look finds, which a fetch finds as well.
async fn revision(kit: &Kit, reference: GitReference) -> String {
    let request = GitRequest { reference, ..kit.request("main") };
    let looked = resolve(request.clone(), &CancellationToken::new()).await.unwrap();
    assert_eq!(fetched(request).await.revision, looked);
    looked.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_references_lead_to_commits_as_in_flux() {
    let Some(cases) = revisions() else { return };
    let listing = &cases["remote_listing"];
    let refs: BTreeMap<&str, &str> =
        listing["refs"].as_object().unwrap().iter().map(|(name, id)| (name.as_str(), text(id))).collect();
    let expected = listing["expect"].as_object().unwrap();
    let kit = Kit::start(false, None).await;
    // One commit of ours for each object that something leads to.
    let ids: BTreeSet<&str> =
        expected.values().map(|text| text.as_str().unwrap().rsplit_once(':').unwrap().1).collect();
    let own: BTreeMap<&str, String> = ids.iter().map(|id| (*id, commit(&kit, "made", id))).collect();
    for (name, id) in refs.iter().filter(|(name, _)| !name.ends_with("^{}")) {
        // A tag is annotated where what it leads to stands beside it.
        match (refs.get(format!("{name}^{{}}").as_str()), name.strip_prefix("refs/tags/")) {
            (Some(peeled), Some(tag)) => {
                let object = kit.repository.annotated_tag(tag, &own[peeled]).unwrap();
                assert_ne!(object, own[peeled]);
            }
            _ => {
                kit.repository.git(["update-ref", name, &own[id]], &[], b"").unwrap();
            }
        }
    }
    for (name, wanted) in expected {
        let (label, id) = text(wanted).rsplit_once(':').unwrap();
        let found = revision(&kit, GitReference::Name(name.clone())).await;
        assert_eq!(found, format!("{label}:{}", own[id]), "{name}");
    }
    // A tag that is not annotated is its own commit.
    let light = revision(&kit, GitReference::Name("refs/tags/v1.1.0^{}".to_owned())).await;
    assert!(light.starts_with("refs/tags/v1.1.0^{}@sha1:"), "{light}");
    tell(format_args!("revisions.json: {} references of a server as expected", expected.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_name_what_was_asked_for_as_in_flux() {
    let Some(cases) = revisions() else { return };
    let kit = Kit::start(false, None).await;
    let cases = cases["from_commit"].as_array().unwrap();
    for case in cases {
        let (by_short, by_name, own) = match case["reference"].as_str() {
            Some(name) => {
                let branch = name.strip_prefix("refs/heads/").unwrap();
                let own = commit(&kit, branch, name);
                (GitReference::Branch(branch.to_owned()), GitReference::Name(name.to_owned()), own)
            }
            None => {
                let id = commit(&kit, "other", "other");
                let by_id = || GitReference::Commit { id: id.clone(), branch: None };
                (by_id(), by_id(), id)
            }
        };
        for (form, reference) in [("short", by_short), ("absolute", by_name)] {
            let Some(wanted) = case[form].as_str() else { continue };
            let label = wanted.rsplit_once(':').unwrap().0;
            assert_eq!(revision(&kit, reference).await, format!("{label}:{own}"), "{case}");
        }
    }
    tell(format_args!("revisions.json: {} forms of revisions as expected", cases.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_of_the_original_are_packed_by_their_own_patterns() {
    let Some(cases) = source_cases("trees of Git repositories") else { return };
    // What is left of each by its `.sourceignore`.
    let trees: [(&str, &[&str]); 2] = [
        ("repository", &[".sourceignore", "manifest.yaml"]),
        ("repowithsubdirs", &["apps/manifest.yaml", "clusters/manifest.yaml"]),
    ];
    let names: BTreeSet<&str> =
        cases.keys().filter_map(|path| path.strip_prefix("git/trees/")?.split('/').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(names, trees.map(|(name, _)| name), "each tree has a line here");
    let kit = Kit::start(false, None).await;
    for (name, wanted) in trees {
        let within = format!("git/trees/{name}/");
        let mut tree = Commit::new();
        // Folders have entries of their own.
        for (path, bytes) in cases.iter().filter(|(path, _)| !path.ends_with('/')) {
            let Some(path) = path.strip_prefix(&within) else { continue };
            tree = tree.file(path, bytes);
        }
        kit.repository.commit(name, name, &tree).unwrap();
        let artifact = fetched(kit.request(name)).await;
        assert_eq!(files(&artifact), wanted, "{name}");
    }
    tell(format_args!("git/trees: {} of {} as expected", trees.len(), names.len()));
}
