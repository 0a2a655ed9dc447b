//! Against a real Git over real TLS: what is fetched, and who may fetch it.

use std::time::Duration;

use crate::kit::{Kit, artifact, error, fetched, files, quiet_files, way_to};
use roadstead_budget::Pool;
use roadstead_model::Reason;
use roadstead_outbound::ClientIdentity;
use roadstead_sources::Room;
use roadstead_sources::Secret;
use roadstead_sources::{
    AttemptError, Credentials, Entry, GitError, GitLimits, GitReference, GitRequest, Measure, Note, Outcome,
    fetch, resolve, unpack,
};
use roadstead_test_gitserver::{Commit, Fault, GitServer, Options, install_crypto};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_over_https_with_an_own_ca() {
    let kit = Kit::start(true, None).await;
    let first = kit.repository.commit("main", "one", &Commit::new().file("a/app.yaml", "kind: A\n")).unwrap();
    let fetched = fetched(kit.request("main")).await;
    assert_eq!(fetched.revision.to_string(), format!("main@sha1:{first}"));
    assert_eq!(files(&fetched), ["a/app.yaml"]);
    assert_eq!(fetched.notes, []);

    let second = kit
        .repository
        .commit("main", "two", &Commit::new().file("b.yaml", "x").executable("run", "y"))
        .unwrap();
    let again = crate::kit::fetched(kit.request("main")).await;
    assert_eq!(again.revision.content(), Some(second.as_str()));
    let tree = unpack(&again.artifact.bytes, &kit.request("main").limits.tree).unwrap();
    assert_eq!(
        tree.get("a/app.yaml"),
        Some(&Entry::File { bytes: b"kind: A\n".to_vec(), executable: false })
    );
    assert_eq!(tree.get("run"), Some(&Entry::File { bytes: b"y".to_vec(), executable: true }));
    assert_ne!(fetched.artifact.digest, again.artifact.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_tags_names_and_commits() {
    let kit = Kit::start(false, None).await;
    let commit = |branch: &str, text: &str| {
        kit.repository.commit(branch, text, &Commit::new().file("v", text)).unwrap()
    };
    let one = commit("main", "1");
    kit.repository.tag("light", &one).unwrap();
    let two = commit("main", "2");
    kit.repository.annotated_tag("v2", &two).unwrap();
    let three = commit("main", "3");
    let side = commit("main-2", "side");
    let slash = commit("release/1.0", "slash");
    kit.repository.git(["update-ref", "refs/pull/7/head", &one], &[], b"").unwrap();
    // A tag comes before a branch of the same name.
    let both = commit("both", "branch");
    kit.repository.tag("both", &one).unwrap();
    assert_ne!(both, one);

    for (reference, label, wanted) in [
        (GitReference::Branch("main".to_owned()), "main@sha1:", &three),
        (GitReference::Branch("main-2".to_owned()), "main-2@sha1:", &side),
        (GitReference::Branch("release/1.0".to_owned()), "release/1.0@sha1:", &slash),
        (GitReference::Tag("light".to_owned()), "light@sha1:", &one),
        (GitReference::Tag("v2".to_owned()), "v2@sha1:", &two),
        (GitReference::Name("refs/pull/7/head".to_owned()), "refs/pull/7/head@sha1:", &one),
        (GitReference::Name("HEAD".to_owned()), "HEAD@sha1:", &three),
        (GitReference::of_word(""), "HEAD@sha1:", &three),
        (GitReference::of_word("main-2"), "main-2@sha1:", &side),
        (GitReference::of_word("heads/main-2"), "heads/main-2@sha1:", &side),
        (GitReference::of_word("refs/pull/7/head"), "refs/pull/7/head@sha1:", &one),
        (GitReference::of_word("both"), "both@sha1:", &one),
        (GitReference::of_word("v2"), "v2@sha1:", &two),
        (GitReference::of_word(&two), "sha1:", &two),
        (GitReference::Commit { id: two.clone(), branch: None }, "sha1:", &two),
        (GitReference::Commit { id: one.clone(), branch: Some("main".to_owned()) }, "main@sha1:", &one),
    ] {
        let request = GitRequest { reference: reference.clone(), ..kit.request("main") };
        let revision = resolve(request.clone(), &CancellationToken::new()).await.unwrap();
        assert_eq!(revision.to_string(), format!("{label}{wanted}"), "{reference}");
        let fetched = fetched(request).await;
        assert_eq!(fetched.revision, revision, "{reference}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_named() {
    let kit = Kit::start(false, None).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let nothing = "1".repeat(40);
    for reference in [
        GitReference::Branch("mai".to_owned()),
        GitReference::Tag("main".to_owned()),
        GitReference::Name("refs/heads/none".to_owned()),
        GitReference::Commit { id: nothing, branch: Some("main".to_owned()) },
        GitReference::default(),
    ] {
        let error = error(GitRequest { reference: reference.clone(), ..kit.request("main") }).await;
        assert!(matches!(error, GitError::ReferenceNotFound { .. }), "{reference}: {error:?}");
        assert!(
            error.to_string().contains(&reference.to_string()) && error.to_string().contains(&kit.url()),
            "{error}"
        );
        assert_eq!(error.reason(), Reason::GitOperationFailed);
        // As tools know it.
        let named = match &reference {
            GitReference::Branch(name) => format!("couldn't find remote ref \"refs/heads/{name}\""),
            GitReference::Tag(name) => format!("couldn't find remote ref \"refs/tags/{name}\""),
            GitReference::Name(name) => format!("couldn't find remote ref \"{name}\""),
            _ => String::new(),
        };
        assert!(error.to_string().contains(&named), "{error}");
    }
    let url = kit.server.url("other.git");
    let error = error(GitRequest { url, ..kit.request("main") }).await;
    assert!(matches!(error, GitError::RepositoryNotFound { status: 404, .. }), "{error:?}");
    assert!(error.to_string().contains("repository not found"), "{error}");
    let semver = GitRequest { reference: GitReference::SemVer(">=1".to_owned()), ..kit.request("main") };
    let error = crate::kit::error(semver).await;
    assert!(matches!(error, GitError::ReferenceNotFound { .. }), "{error:?}");
    assert!(error.to_string().contains("no match found for semver: >=1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_repository() {
    let kit = Kit::start(true, Some(("git", "s3cret-pässword"))).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let login = |user: &str, password: &str| GitRequest {
        credentials: Some(Credentials::Basic { username: user.to_owned(), password: password.into() }),
        ..kit.request("main")
    };
    assert_eq!(files(&fetched(login("git", "s3cret-pässword")).await), ["v"]);

    let wrong = error(login("git", "wr0ng")).await;
    assert!(matches!(wrong, GitError::Auth { status: 401, had_credentials: true, .. }), "{wrong:?}");
    assert!(wrong.to_string().contains("authentication required"), "{wrong}");
    assert_eq!(wrong.reason(), Reason::AuthenticationFailed);
    assert!(!format!("{wrong} {wrong:?} {:?}", login("git", "wr0ng")).contains("wr0ng"));
    let none = error(kit.request("main")).await;
    assert!(matches!(none, GitError::Auth { status: 401, had_credentials: false, .. }), "{none:?}");
    let bearer = GitRequest { credentials: Some(Credentials::Bearer("t0ken".into())), ..kit.request("main") };
    kit.server.take_seen();
    assert!(matches!(error(bearer).await, GitError::Auth { had_credentials: true, .. }));
    assert!(kit.server.take_seen().iter().all(|seen| seen.had_credentials));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_over_http_works_and_is_noted() {
    let kit = Kit::start(false, Some(("git", "pw"))).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let fetched = fetched(GitRequest {
        credentials: Some(Credentials::Basic { username: "git".to_owned(), password: "pw".into() }),
        plain_http_credentials: true,
        ..kit.request("main")
    })
    .await;
    assert_eq!(fetched.notes, [Note::CredentialsInTheClear]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_ca_is_refused() {
    let kit = Kit::start(true, None).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let without = error(GitRequest { ca: None, ..kit.request("main") }).await;
    assert!(matches!(without, GitError::Attempt(AttemptError::Untrusted { .. })), "{without:?}");
    assert!(without.to_string().contains("ca.crt"), "{without}");
    let other = Kit::start(true, None).await;
    let wrong = error(GitRequest { ca: other.request("main").ca, ..kit.request("main") }).await;
    assert!(matches!(wrong, GitError::Attempt(AttemptError::Untrusted { .. })), "{wrong:?}");
    // A name that the certificate does not have.
    let url = kit.url().replace("127.0.0.1", "127.0.0.2");
    let name = error(GitRequest { url, ..kit.request("main") }).await;
    assert!(
        matches!(
            name,
            GitError::Attempt(AttemptError::Untrusted { .. })
                | GitError::Attempt(AttemptError::Unreachable { .. })
        ),
        "{name:?}"
    );
    for junk in [b"junk".to_vec(), b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()]
    {
        let error = error(GitRequest { ca: Some(junk), ..kit.request("main") }).await;
        assert!(matches!(error, GitError::CaUnusable { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_poll_fetches_nothing() {
    let kit = Kit::start(true, None).await;
    let one = kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    kit.repository.annotated_tag("v1", &one).unwrap();
    for reference in [GitReference::Branch("main".to_owned()), GitReference::Tag("v1".to_owned())] {
        let request = GitRequest { reference, ..kit.request("main") };
        let known = fetched(request.clone()).await.revision;
        kit.server.take_seen();
        let request = GitRequest { known: Some(known.clone()), ..request };
        let outcome = fetch(request.clone(), &CancellationToken::new()).await.unwrap();
        assert!(matches!(&outcome, Outcome::Unchanged(revision) if *revision == known), "{outcome:?}");
        let seen: Vec<String> = kit.server.take_seen().into_iter().map(|seen| seen.what).collect();
        assert_eq!(
            seen,
            ["GET /app.git/info/refs?service=git-upload-pack", "POST /app.git/git-upload-pack ls-refs"]
        );
    }
    // A commit is what it is: nobody is asked.
    let known = roadstead_model::Revision::git("", &one).ok();
    let pinned = GitRequest {
        reference: GitReference::Commit { id: one, branch: None },
        known,
        ..kit.request("main")
    };
    assert!(matches!(fetch(pinned, &CancellationToken::new()).await.unwrap(), Outcome::Unchanged(_)));
    assert_eq!(kit.server.take_seen(), []);
    // And a change is seen.
    let known = Some(fetched(kit.request("main")).await.revision);
    let two = kit.repository.commit("main", "2", &Commit::new().file("v", "2")).unwrap();
    let again = fetched(GitRequest { known, ..kit.request("main") }).await;
    assert_eq!(again.revision.content(), Some(two.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_artifacts_are_in_memory_at_once() {
    let kit = Kit::start(true, None).await;
    kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let room = Room { pool: Pool::new("artifacts", 1024), copies: 1 };
    let request = GitRequest { room: Some(room), ..kit.request("main") };
    // What was fetched is in memory as long as somebody holds it.
    let held = fetched(request.clone()).await;
    let late = error(GitRequest { timeout: Duration::from_secs(3), ..request.clone() }).await;
    assert!(matches!(late, GitError::Attempt(AttemptError::Timeout { .. })), "{late:?}");
    assert!(late.to_string().contains("waiting for other sources"), "{late}");
    // To learn that nothing is new takes no room.
    let known = Some(held.revision.clone());
    let outcome = fetch(GitRequest { known, ..request.clone() }, &CancellationToken::new()).await.unwrap();
    assert!(matches!(outcome, Outcome::Unchanged(_)), "{outcome:?}");
    drop(held);
    fetched(request.clone()).await;
    // More than there can ever be is not a matter of waiting.
    let limits = GitLimits { artifact_bytes: 10, ..GitLimits::default() };
    let large = error(GitRequest { limits, ..request.clone() }).await;
    assert!(matches!(large, GitError::TooLarge { measure: Measure::ArtifactBytes, .. }), "{large:?}");
    let none = Room { copies: 1 << 30, ..request.room.clone().unwrap() };
    let refused = error(GitRequest { room: Some(none), ..request }).await;
    assert!(refused.to_string().contains("the whole memory share of artifacts"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_files_have_the_same_digest_wherever_they_come_from() {
    let kit = Kit::start(true, None).await;
    let other = Kit::start(false, None).await;
    let commit = || Commit::new().file("a.yaml", "a").file("d/b.yaml", "b").link("c", "a.yaml");
    let one = kit.repository.commit("main", "one", &commit()).unwrap();
    other.repository.commit("main", "0", &Commit::new().file("old", "old")).unwrap();
    let two = other.repository.commit("main", "two", &commit().remove("old")).unwrap();
    assert_ne!(one, two);
    let (a, b) = (artifact(kit.request("main")).await, artifact(other.request("main")).await);
    assert_eq!(a, b);
    // And from a disk.
    let local = GitRequest {
        url: format!("file://{}", kit.repository.path().display()),
        allow_file: true,
        ..kit.request("main")
    };
    assert_eq!(a, artifact(local).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_urls_are_for_development() {
    let kit = Kit::start(false, None).await;
    let one = kit.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    kit.repository.annotated_tag("v1", &one).unwrap();
    let url = format!("file://{}", kit.repository.path().display());
    let refused = error(GitRequest { url: url.clone(), ..kit.request("main") }).await;
    assert!(matches!(refused, GitError::UrlRefused { .. }), "{refused:?}");
    assert_eq!(refused.reason(), Reason::URLInvalid);
    let allowed = GitRequest { url, allow_file: true, ..kit.request("main") };
    for reference in [
        GitReference::Branch("main".to_owned()),
        GitReference::Tag("v1".to_owned()),
        GitReference::Commit { id: one.clone(), branch: None },
    ] {
        let fetched = fetched(GitRequest { reference, ..allowed.clone() }).await;
        assert_eq!((fetched.revision.content(), files(&fetched)), (Some(one.as_str()), vec!["v".to_owned()]));
    }
    let missing =
        error(GitRequest { reference: GitReference::Branch("v1".to_owned()), ..allowed.clone() }).await;
    assert!(matches!(missing, GitError::ReferenceNotFound { .. }), "{missing:?}");
    let nowhere = error(GitRequest { url: "file:///nowhere/at/all".to_owned(), ..allowed }).await;
    assert!(matches!(nowhere, GitError::Local { .. }), "{nowhere:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_left_out_and_counted() {
    let kit = Kit::start(false, None).await;
    let commit = Commit::new()
        .file("base/app.yaml", "x")
        .link("app/app.yaml", "../base/app.yaml")
        .link("app/evil", "../../etc/passwd")
        .link("folder", "base");
    kit.repository.commit("main", "1", &commit).unwrap();
    let fetched = fetched(kit.request("main")).await;
    assert_eq!(files(&fetched), ["base/app.yaml"]);
    assert_eq!(fetched.notes.len(), 1, "{:?}", fetched.notes);
    assert!(
        fetched.notes[0].to_string().starts_with("3 symbolic links are left out, `"),
        "{:?}",
        fetched.notes
    );
    // Nothing is said of those that are left out anyway.
    let ignoring = GitRequest { ignore: Some("/app\n/folder".to_owned()), ..kit.request("main") };
    assert_eq!(quiet_files(ignoring).await, ["base/app.yaml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusions() {
    let kit = Kit::start(false, None).await;
    let commit = Commit::new()
        .file(".github/workflows/ci.yaml", "x")
        .file(".sourceignore", "docs/\n!logo.png\n")
        .file("docs/a.md", "x")
        .file("logo.png", "x")
        .file("app/logo.jpg", "x")
        .file("app/k.yaml", "x")
        .file("app/.sourceignore", "/tmp\n")
        .file("app/tmp/x", "x");
    kit.repository.commit("main", "1", &commit).unwrap();
    assert_eq!(
        quiet_files(kit.request("main")).await,
        [
            ".github/workflows/ci.yaml",
            ".sourceignore",
            "app/.sourceignore",
            "app/k.yaml",
            "app/logo.jpg",
            "logo.png"
        ]
    );
    // A pattern in any folder ends what is left out without one, also in folders that come before it.
    let without = Commit::new().remove(".sourceignore");
    kit.repository.commit("main", "2", &without).unwrap();
    let all = [
        ".github/workflows/ci.yaml",
        "app/.sourceignore",
        "app/k.yaml",
        "app/logo.jpg",
        "docs/a.md",
        "logo.png",
    ];
    assert_eq!(quiet_files(kit.request("main")).await, all);
    let commented = Commit::new().file("app/.sourceignore", "# nothing\n\n");
    kit.repository.commit("main", "3", &commented).unwrap();
    assert_eq!(
        quiet_files(kit.request("main")).await,
        ["app/.sourceignore", "app/k.yaml", "app/tmp/x", "docs/a.md"]
    );
    let ignore = Some("/*\n!/docs\n".to_owned());
    assert_eq!(quiet_files(GitRequest { ignore, ..kit.request("main") }).await, ["docs/a.md"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn submodules_are_left_out_with_a_note() {
    let kit = Kit::start(false, None).await;
    let inner = kit.repository.commit("side", "inner", &Commit::new().file("x", "x")).unwrap();
    let tree = format!(
        "160000 commit {inner}\tvendor\n120000 blob {}\tl\n",
        kit.repository.git(["hash-object", "-w", "--stdin"], &[], b"vendor/x").unwrap()
    );
    let tree = kit.repository.git(["mktree"], &[], tree.as_bytes()).unwrap();
    kit.repository.commit_tree("main", "1", &tree, None).unwrap();
    let fetched = fetched(kit.request("main")).await;
    let link = Note::LinksLeftOut { count: 1, first: "l".to_owned() };
    assert_eq!(fetched.notes, [Note::Submodule { path: "vendor".to_owned(), commit: inner }, link]);
    assert_eq!(files(&fetched), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects() {
    let target = Kit::start(true, None).await;
    target.repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let kit = Kit::start(true, None).await;
    let plain = Kit::start(false, None).await;
    let both = [kit.request("main").ca.unwrap(), target.request("main").ca.unwrap()].concat();
    let request = GitRequest {
        ca: Some(both),
        guard: way_to(&[&kit, &target, &plain].map(|kit| kit.server.address())),
        credentials: Some(Credentials::Basic { username: "u".to_owned(), password: "p".into() }),
        ..kit.request("main")
    };
    // To another server: followed, without the credentials.
    kit.server.fault(Fault::Redirect(target.server.base_url()));
    assert_eq!(quiet_files(request.clone()).await, ["v"]);
    assert!(kit.server.take_seen().iter().all(|seen| seen.had_credentials));
    let seen = target.server.take_seen();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.iter().all(|seen| !seen.had_credentials), "{seen:?}");
    // To the same server: with them.
    kit.repository.commit("main", "1", &Commit::new().file("w", "1")).unwrap();
    kit.server.fault(Fault::Once(Box::new(Fault::Redirect(kit.server.base_url()))));
    assert_eq!(quiet_files(request.clone()).await, ["w"]);
    let seen = kit.server.take_seen();
    assert!(seen.len() == 4 && seen.iter().all(|seen| seen.had_credentials), "{seen:?}");
    // Away from https, in circles, to something else: not at all.
    for to in [
        plain.server.base_url(),
        kit.server.base_url(),
        "ftp://127.0.0.1".to_owned(),
        "https://u:hunter2@127.0.0.1".to_owned(),
    ] {
        kit.server.fault(Fault::Redirect(to));
        let error = error(request.clone()).await;
        assert!(matches!(error, GitError::Attempt(AttemptError::RedirectRefused { .. })), "{error:?}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert_eq!(plain.server.take_seen(), []);
    kit.server.fault(Fault::RedirectTo("https://127.0.0.1/admin".to_owned()));
    assert!(matches!(error(request).await, GitError::Attempt(AttemptError::RedirectRefused { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_certificate() {
    install_crypto();
    let server = GitServer::start(Options { certified: true, ..Options::default() }).await.unwrap();
    let repository = server.add_repository("app.git").unwrap();
    repository.commit("main", "1", &Commit::new().file("v", "1")).unwrap();
    let request = GitRequest {
        reference: GitReference::Branch("main".to_owned()),
        ca: server.ca_pem().map(|pem| pem.as_bytes().to_vec()),
        guard: way_to(&[server.address()]),
        ..GitRequest::new(server.url("app.git"))
    };
    let without = error(request.clone()).await;
    assert!(matches!(without, GitError::Attempt(AttemptError::Unreachable { .. })), "{without:?}");
    let shown = |(certificates, key): (String, String)| GitRequest {
        identity: Some(ClientIdentity { certificates: certificates.into_bytes(), key: Secret::new(key) }),
        ..request.clone()
    };
    let (certificate, key) = server.client().unwrap().unwrap();
    assert_eq!(quiet_files(shown((certificate.clone(), key))).await, ["v"]);
    let junk = error(shown((certificate, "hunter2".to_owned()))).await;
    assert!(matches!(junk, GitError::LoginUnusable { .. }), "{junk:?}");
    assert!(!format!("{junk} {junk:?}").contains("hunter2"), "{junk}");
    let other = GitServer::start(Options::default()).await.unwrap();
    let other = error(shown(other.client().unwrap().unwrap())).await;
    assert!(matches!(other, GitError::Attempt(AttemptError::Unreachable { .. })), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn some_folders_are_taken() {
    let kit = Kit::start(false, None).await;
    let files = Commit::new()
        .file("root.yaml", "1")
        .file(".sourceignore", "secret.yaml\n")
        .file("apps/web/a.yaml", "1")
        .file("apps/web/secret.yaml", "1")
        .file("apps/web/deep/b.yaml", "1")
        .file("apps/web/.sourceignore", "deep/\n")
        .file("apps/c.yaml", "1")
        .file("apps-old/d.yaml", "1")
        .file("base/e.yaml", "1");
    kit.repository.commit("main", "1", &files).unwrap();
    let taking = |folders: &[&str]| GitRequest {
        sparse: folders.iter().map(|folder| (*folder).to_owned()).collect(),
        ..kit.request("main")
    };
    let web = ["apps/web/.sourceignore", "apps/web/a.yaml", "apps/web/secret.yaml"];
    assert_eq!(quiet_files(taking(&["./apps/web/"])).await, web);
    assert_eq!(quiet_files(taking(&["base"])).await, ["base/e.yaml"]);
    let both = quiet_files(taking(&["base", "apps/web"])).await;
    assert_eq!(both, [&web[..], &["base/e.yaml"]].concat());
    let whole = quiet_files(taking(&["."])).await;
    assert_eq!(whole, quiet_files(kit.request("main")).await);
    for (folders, word) in [
        (&["apps", "none"][..], "sparse checkout dir 'none' does not exist"),
        (&["root.yaml"], "sparse checkout dir 'root.yaml' does not exist"),
        (&["ap"], "'ap' does not exist"),
        (&["../other"], "not a folder"),
    ] {
        let error = error(taking(folders)).await;
        assert!(matches!(error, GitError::Sparse { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(error.reason(), Reason::GitOperationFailed);
    }
}
