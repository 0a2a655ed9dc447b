//! Submodules against real Git servers: where they are looked for, who is shown credentials, and what is refused.

use std::sync::Arc;

use roadstead_model::Reason;
use roadstead_sources::git::SshCredentials;
use roadstead_sources::{
    Credentials, GitError, GitReference, GitRequest, Measure, Note, Outcome, Secret, fetch, unpack,
};
use roadstead_test_gitserver::{Commit, Fault, Repository, SshKey, SshServer};
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, error, fetched, fetched_again, files, quiet_files, way_to};

/// `.gitmodules` with these folders and URLs.
fn modules(entries: &[(&str, &str)]) -> String {
    let entry =
        |(path, url): &(&str, &str)| format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = \"{url}\"\n");
    entries.iter().map(entry).collect()
}

/// Commits a submodule at `path`, which is at `url`.
fn with(repository: &Repository, path: &str, commit: &str, url: &str) -> String {
    let commit =
        Commit::new().file("own", "own").file(".gitmodules", modules(&[(path, url)])).submodule(path, commit);
    repository.commit("main", "with a submodule", &commit).unwrap()
}

fn file(repository: &Repository, path: &str) -> String {
    repository.commit("main", path, &Commit::new().file(path, path)).unwrap()
}

fn recursive(request: GitRequest) -> GitRequest {
    GitRequest { recurse_submodules: true, ..request }
}

/// A server on which `app.git` has the submodule `lib` of `lib.git`, which has `deep/er` of `deep.git`.
async fn nested(login: Option<(&str, &str)>) -> Kit {
    let kit = Kit::start(true, login).await;
    let deep = kit.server.add_repository("group/deep.git").unwrap();
    let lib = kit.server.add_repository("lib.git").unwrap();
    let commit = with(&lib, "deep/er", &file(&deep, "deepest"), "../group/deep.git");
    // It is pinned: what comes later does not count.
    file(&lib, "later");
    with(&kit.repository, "libs/lib", &commit, "../lib.git");
    kit
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_and_theirs_are_fetched_where_their_commits_are_pinned() {
    let kit = nested(Some(("reader", "s3cret"))).await;
    let login = Credentials::Basic { username: "reader".to_owned(), password: "s3cret".into() };
    let request = GitRequest { credentials: Some(login), ..kit.request("main") };
    let without = fetched(request.clone()).await;
    assert_eq!(files(&without), ["own"]);
    assert!(
        matches!(&without.notes[..], [Note::Submodule { path, .. }] if path == "libs/lib"),
        "{:?}",
        without.notes
    );

    let request = recursive(request);
    let found = fetched_again(request.clone()).await;
    assert_eq!(files(&found), ["libs/lib/deep/er/deepest", "libs/lib/own", "own"]);
    assert_eq!(found.notes, []);
    kit.server.take_seen();
    // The commit says which commits its submodules are at: nothing else is asked.
    let known = GitRequest { known: Some(found.revision), ..request.clone() };
    let outcome = fetch(known, &CancellationToken::new()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unchanged(_)), "{outcome:?}");
    let seen: Vec<_> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
    assert_eq!(seen, ["POST /app.git/git-upload-pack ls-refs"]);
    // The same files are the same artifact.
    assert_eq!(fetched(request).await.artifact.digest, found.artifact.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_out_is_not_fetched() {
    let kit = nested(None).await;
    let ignoring = GitRequest { ignore: Some("/libs/".to_owned()), ..recursive(kit.request("main")) };
    kit.server.take_seen();
    assert_eq!(quiet_files(ignoring).await, ["own"]);
    let lib = |seen: &roadstead_test_gitserver::Seen| seen.what.contains("lib.git");
    assert!(!kit.server.take_seen().iter().any(lib));
    let sparse =
        |folder: &str| GitRequest { sparse: vec![folder.to_owned()], ..recursive(kit.request("main")) };
    assert_eq!(quiet_files(sparse("libs/lib/deep")).await, ["libs/lib/deep/er/deepest"]);
    // Its patterns are those of the folder that it is.
    let lib = Repository::at(&kit.server.root().join("lib.git"));
    let commit = lib.commit("main", "ignore", &Commit::new().file(".sourceignore", "/own\n")).unwrap();
    kit.repository.commit("main", "newer", &Commit::new().submodule("libs/lib", &commit)).unwrap();
    let found = quiet_files(recursive(kit.request("main"))).await;
    assert_eq!(found, ["libs/lib/.sourceignore", "libs/lib/deep/er/deepest", "libs/lib/later", "own"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_is_shown_no_credentials() {
    let own = Kit::start(true, Some(("reader", "s3cret"))).await;
    let other = Kit::start(true, None).await;
    let commit = file(&other.repository, "theirs");
    with(&own.repository, "other", &commit, &other.url());
    let login = Credentials::Basic { username: "reader".to_owned(), password: "s3cret".into() };
    let both = [own.request("main").ca.unwrap(), other.request("main").ca.unwrap()].concat();
    let request = GitRequest {
        credentials: Some(login),
        ca: Some(both),
        guard: way_to(&[own.server.address(), other.server.address()]),
        ..recursive(own.request("main"))
    };
    assert_eq!(quiet_files(request.clone()).await, ["other/theirs", "own"]);
    assert!(own.server.take_seen().iter().all(|seen| seen.had_credentials));
    let seen = other.server.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| !seen.had_credentials), "{seen:?}");
    // One that wants some is told of, and not given any.
    other.server.fault(Fault::Status(401));
    let told = error(request.clone()).await;
    let GitError::Submodule { path, source, elsewhere: true, .. } = &told else { panic!("{told:?}") };
    assert_eq!(path, "other");
    assert!(matches!(**source, GitError::Auth { had_credentials: false, .. }), "{source:?}");
    assert_eq!(told.reason(), Reason::AuthenticationFailed);
    assert!(told.to_string().contains("server of `spec.url` only"), "{told}");
    assert!(other.server.take_seen().iter().all(|seen| !seen.had_credentials));
    // An address that the policy does not allow is not connected to, whoever names it.
    let guard = way_to(&[own.server.address()]);
    let told = error(GitRequest { guard, ..request.clone() }).await;
    assert!(told.to_string().contains("submodule `other`"), "{told}");
    assert_eq!(told.reason(), Reason::URLInvalid);
    assert!(other.server.take_seen().is_empty());
    // A redirect takes nobody along, and leads to no other address than the policy allows.
    other.server.fault(Fault::Redirect(own.server.base_url()));
    let told = error(request.clone()).await;
    let last = own.server.take_seen().pop().unwrap();
    assert!(!last.had_credentials, "{last:?} {told}");
    other.server.fault(Fault::RedirectTo("http://169.254.169.254/latest".to_owned()));
    let told = error(request).await.to_string();
    assert!(told.contains("not followed"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn urls_that_git_would_act_on_are_refused() {
    let kit = Kit::start(false, None).await;
    let commit = file(&kit.repository, "v");
    for (url, why) in [
        ("-u./payload", "an option"),
        ("--upload-pack=touch /tmp/x", "an option"),
        ("ext::sh -c whoami", "`ext::`"),
        ("file:///etc", "`file://`"),
        ("/etc", "a path of the machine"),
        ("../../../x", "leads out of the server"),
        ("git://git.example/x", "`git://`"),
        ("https://user:hunter2@git.example/x", "holds credentials"),
        ("https://git.example/x?token=hunter2", "no `?`"),
    ] {
        with(&kit.repository, "bad", &commit, url);
        let told = error(recursive(kit.request("main"))).await;
        let text = told.to_string();
        assert!(text.contains("submodule `bad`") && text.contains(why), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!told.is_transient(), "{told:?}");
    }
    // Without an entry it is left out, as Git has it.
    kit.repository.commit("main", "none", &Commit::new().file(".gitmodules", "")).unwrap();
    let found = fetched(recursive(kit.request("main"))).await;
    assert_eq!(found.notes, [Note::SubmoduleWithoutUrl { path: "bad".to_owned() }]);
    kit.repository.commit("main", "bad", &Commit::new().file(".gitmodules", "[submodule \"")).unwrap();
    let told = error(recursive(kit.request("main"))).await;
    assert!(matches!(told, GitError::SubmoduleRefused { .. }), "{told:?}");
    // Git itself makes no such commit.
    let target = kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"x").unwrap();
    let lines = format!("120000 blob {target}\t.gitmodules\n160000 commit {commit}\tbad\n");
    let tree = kit.repository.git(["mktree"], &[], lines.as_bytes()).unwrap();
    kit.repository.commit_tree("main", "link", &tree, None).unwrap();
    let told = error(recursive(kit.request("main"))).await.to_string();
    assert!(told.contains("is not a file"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_and_numbers_of_submodules_have_bounds() {
    let kit = Kit::start(false, None).await;
    // Each commit has the one before as its submodule: eleven levels of the same repository.
    let mut commit = file(&kit.repository, "v");
    for level in 0..11 {
        commit = with(&kit.repository, "again", &commit, "../app.git");
        let found = fetch(recursive(kit.request("main")), &CancellationToken::new()).await;
        match found {
            Ok(Outcome::Fetched(found)) if level < 10 => {
                assert_eq!(files(&found).len(), 2 * usize::try_from(level).unwrap() + 3);
            }
            Err(GitError::TooLarge { measure: Measure::SubmoduleLevels, limit: 10, .. }) if level == 10 => {}
            other => panic!("{level}: {other:?}"),
        }
    }
    let many: Vec<String> = (0..101).map(|n| format!("many/{n}")).collect();
    let entries: Vec<_> = many.iter().map(|path| (path.as_str(), "../app.git")).collect();
    let mut change = Commit::new().file(".gitmodules", modules(&entries)).remove("again");
    let first = kit.repository.git(["rev-list", "--max-parents=0", "main"], &[], b"").unwrap();
    for path in &many {
        change = change.submodule(path, &first);
    }
    kit.repository.commit("main", "many", &change).unwrap();
    let told = error(recursive(kit.request("main"))).await;
    assert!(matches!(told, GitError::TooLarge { measure: Measure::Submodules, limit: 100, .. }), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bytes_count_together() {
    let kit = Kit::start(false, None).await;
    let lib = kit.server.add_repository("lib.git").unwrap();
    // It cannot be compressed.
    let noise: Vec<u8> = (0_u32..20_000).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let commit = lib.commit("main", "noise", &Commit::new().file("noise", &noise)).unwrap();
    with(&kit.repository, "lib", &commit, "../lib.git");
    let mut request = recursive(kit.request("main"));
    request.limits.transfer_bytes = 20_000;
    assert_eq!(quiet_files(kit.request("main")).await, ["own"]);
    let told = error(request.clone()).await;
    let GitError::Submodule { source, .. } = &told else { panic!("{told:?}") };
    assert!(matches!(**source, GitError::TooLarge { measure: Measure::TransferBytes, .. }), "{source:?}");
    // What comes of them is one artifact, with its bounds.
    request.limits = kit.request("main").limits;
    request.limits.tree.total_bytes = 70_000;
    let told = error(request.clone()).await;
    assert!(matches!(told, GitError::TooLarge { measure: Measure::TotalBytes, .. }), "{told:?}");
    request.limits = kit.request("main").limits;
    let found = fetched(request).await;
    let tree = unpack(&found.artifact.bytes, &kit.request("main").limits.tree).unwrap();
    assert_eq!(tree.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_there_and_a_server_that_lies() {
    let kit = Kit::start(false, None).await;
    let lib = kit.server.add_repository("lib.git").unwrap();
    let real = file(&lib, "v");
    with(&kit.repository, "lib", &"1".repeat(40), "../lib.git");
    let told = error(recursive(kit.request("main"))).await;
    assert!(matches!(&told, GitError::Submodule { path, .. } if path == "lib"), "{told:?}");
    assert!(told.to_string().contains(&"1".repeat(40)), "{told}");
    // A server that sends another commit's pack passes nothing off.
    let other = Kit::start(false, None).await;
    let wrong = file(&other.repository, "wrong");
    let right = other.repository.commit("main", "right", &Commit::new().file("right", "right")).unwrap();
    other.server.fault(Fault::OtherPack(wrong));
    with(&kit.repository, "lib", &right, &other.url());
    let guard = way_to(&[kit.server.address(), other.server.address()]);
    let told = error(GitRequest { guard, ..recursive(kit.request("main")) }).await;
    assert!(matches!(told, GitError::Submodule { .. } | GitError::Corrupt { .. }), "{told:?}");
    with(&kit.repository, "lib", &real, "../lib.git");
    assert_eq!(quiet_files(recursive(kit.request("main"))).await, ["lib/v", "own"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_ssh_a_key_goes_to_its_own_server() {
    let web = Kit::start(true, None).await;
    let server = Arc::new(SshServer::start().unwrap());
    let app = server.add_repository("app.git").unwrap();
    let lib = server.add_repository("lib.git").unwrap();
    let key = SshKey::make(&["-t", "ed25519"], "").unwrap();
    server.authorize(&key).unwrap();
    let login = SshCredentials {
        identity: Secret::new(key.identity.clone()),
        passphrase: None,
        known_hosts: server.scan().unwrap(),
    };
    let request = recursive(GitRequest {
        url: server.url("app.git"),
        reference: GitReference::Branch("main".to_owned()),
        credentials: Some(Credentials::Ssh(login)),
        guard: way_to(&[server.address(), web.server.address()]),
        ..web.request("main")
    });
    let commit = file(&lib, "library");
    with(&app, "lib", &commit, "../lib.git");
    assert_eq!(quiet_files(request.clone()).await, ["lib/library", "own"]);
    // One over HTTPS beside it is asked without credentials.
    with(&app, "lib", &file(&web.repository, "public"), &web.url());
    assert_eq!(quiet_files(request.clone()).await, ["lib/public", "own"]);
    assert!(web.server.take_seen().iter().all(|seen| !seen.had_credentials));
    // Another port is another server.
    with(&app, "lib", &commit, "git@127.0.0.1:lib.git");
    let told = error(request).await;
    assert!(
        matches!(&told, GitError::Submodule { source, elsewhere: true, .. } if matches!(**source, GitError::LoginUnusable { .. })),
        "{told:?}"
    );
    // A repository over HTTPS has no key at all.
    with(&web.repository, "lib", &commit, &server.url("lib.git"));
    let told = error(recursive(web.request("main"))).await.to_string();
    assert!(told.contains("SSH") && told.contains("`spec.url` only"), "{told}");
}
