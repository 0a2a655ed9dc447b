//! Ranges of versions against a real Git server: which tag is taken, what a look costs, and that a tag may be anything.

use std::ffi::OsStr;

use roadstead_sources::{GitError, GitReference, GitRequest, Outcome, fetch};
use roadstead_test_gitserver::{Commit, Repository};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, error, fetched, fetched_again, files};
use crate::source_cases::{source_cases, tell};

fn in_range(kit: &Kit, range: &str) -> GitRequest {
    GitRequest { reference: GitReference::SemVer(range.to_owned()), ..kit.request("main") }
}

/// A commit that was made so many seconds after another time.
fn commit_at(repository: &Repository, branch: &str, seconds: u64) -> String {
    let content = format!("{branch} {seconds}");
    let tip = repository.commit(branch, &content, &Commit::new().file("v", &content)).unwrap();
    let tree = repository.git(["rev-parse", &format!("{tip}^{{tree}}")], &[], b"").unwrap();
    let date = format!("{} +0000", 1_700_000_000 + seconds);
    let env =
        [("GIT_COMMITTER_DATE", OsStr::new(date.as_str())), ("GIT_AUTHOR_DATE", OsStr::new(date.as_str()))];
    repository.git(["commit-tree", &tree, "-m", &content], &env, b"").unwrap()
}

/// The commands of Git's protocol since this was asked last.
fn commands(kit: &Kit) -> Vec<String> {
    let seen = kit.server.take_seen();
    seen.iter().map(|seen| seen.what.rsplit([' ', '/']).next().unwrap_or_default().to_owned()).collect()
}

async fn is_unchanged(request: GitRequest) {
    let outcome = fetch(request, &CancellationToken::new()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unchanged(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_tag_in_the_range_is_taken_and_a_look_is_one_request() {
    let kit = Kit::start(true, None).await;
    let old = commit_at(&kit.repository, "main", 1);
    kit.repository.tag("v1.2.0", &old).unwrap();
    kit.repository.tag("v2.0.0", &commit_at(&kit.repository, "main", 2)).unwrap();
    let new = commit_at(&kit.repository, "main", 0);
    kit.repository.annotated_tag("v1.10.0", &new).unwrap();
    for name in ["latest", "v1.99", "1.11.0-rc.1", "nightly/1.50.0"] {
        kit.repository.tag(name, &old).unwrap();
    }
    let request = in_range(&kit, "1.x");
    let found = fetched_again(request.clone()).await;
    assert_eq!(found.revision.to_string(), format!("v1.10.0@sha1:{new}"));
    assert_eq!(files(&found), ["v"]);
    commands(&kit);
    let known = GitRequest { known: Some(found.revision), ..request };
    for _ in 0..2 {
        is_unchanged(known.clone()).await;
        assert_eq!(commands(&kit), ["ls-refs"]);
    }
    // A newer one, and the same one elsewhere.
    kit.repository.tag("1.10.1", &old).unwrap();
    let found = fetched_again(known.clone()).await;
    assert_eq!(found.revision.to_string(), format!("1.10.1@sha1:{old}"));
    assert_eq!(commands(&kit), ["ls-refs", "fetch"]);
    kit.repository.tag("1.10.1", &new).unwrap();
    let found = fetched_again(GitRequest { known: Some(found.revision), ..known }).await;
    assert_eq!(found.revision.to_string(), format!("1.10.1@sha1:{new}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_equal_versions_the_last_commit_is_taken_and_a_look_stays_small() {
    let kit = Kit::start(true, None).await;
    for (name, seconds) in [("1.0.0+c", 1), ("1.0.0+a", 3), ("1.0.0+b", 2)] {
        kit.repository.annotated_tag(name, &commit_at(&kit.repository, name, seconds)).unwrap();
    }
    let request = in_range(&kit, "*");
    let found = fetched_again(request.clone()).await;
    assert!(found.revision.to_string().starts_with("1.0.0+a@sha1:"), "{}", found.revision);
    commands(&kit);
    let known = GitRequest { known: Some(found.revision), ..request };
    is_unchanged(known.clone()).await;
    assert_eq!(commands(&kit), ["ls-refs"]);
    // One more of them.
    kit.repository.tag("1.0.0+0", &commit_at(&kit.repository, "more", 4)).unwrap();
    let found = fetched_again(known).await;
    assert!(found.revision.to_string().starts_with("1.0.0+0@sha1:"), "{}", found.revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_anything_but_commits_are_passed_over() {
    let kit = Kit::start(true, None).await;
    let commit = commit_at(&kit.repository, "main", 1);
    kit.repository.tag("1.0.0", &commit).unwrap();
    let blob = kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"no commit").unwrap();
    let tree = kit.repository.git(["rev-parse", &format!("{commit}^{{tree}}")], &[], b"").unwrap();
    kit.repository.tag("1.2.0", &blob).unwrap();
    kit.repository.annotated_tag("1.1.0", &tree).unwrap();
    let request = in_range(&kit, "*");
    let found = fetched_again(request.clone()).await;
    assert_eq!(found.revision.to_string(), format!("1.0.0@sha1:{commit}"));
    commands(&kit);
    is_unchanged(GitRequest { known: Some(found.revision), ..request }).await;
    assert_eq!(commands(&kit), ["ls-refs"]);
    for n in 0..10 {
        kit.repository.annotated_tag(&format!("2.{n}.0"), &blob).unwrap();
    }
    let told = error(in_range(&kit, "*")).await;
    assert!(matches!(&told, GitError::ReferenceNotFound { .. }), "{told:?}");
    assert!(told.to_string().contains("something other than a commit"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cases_of_flux() {
    let Some(cases) = source_cases("ranges of versions in Git") else { return };
    let cases: Value = serde_json::from_slice(&cases["revisions.json"]).unwrap();
    let kit = Kit::start(false, None).await;
    for tag in cases["git_semver"]["tags"].as_array().unwrap() {
        let name = tag["tag"].as_str().unwrap();
        let commit = commit_at(&kit.repository, name, tag["commit_order"].as_u64().unwrap_or(9));
        if tag["annotated"] == true {
            kit.repository.annotated_tag(name, &commit).unwrap();
        } else {
            kit.repository.tag(name, &commit).unwrap();
        }
    }
    let expected = cases["git_semver"]["expect"].as_object().unwrap();
    for (range, wanted) in expected {
        match wanted.as_str() {
            Some(tag) => {
                let revision = fetched(in_range(&kit, range)).await.revision.to_string();
                assert!(revision.starts_with(&format!("{tag}@sha1:")), "{range}: {revision}");
            }
            None => {
                let told = error(in_range(&kit, range)).await.to_string();
                assert!(told.contains(wanted["error"].as_str().unwrap()), "{range}: {told}");
            }
        }
    }
    tell(format_args!("revisions.json: {} ranges of Git's tags as expected", expected.len()));
}
