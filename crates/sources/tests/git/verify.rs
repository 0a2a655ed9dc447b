//! Signatures of commits and tags that the real `gpg` and `ssh-keygen` make.

use std::path::Path;
use std::process::{Command, Stdio};

use roadstead_model::Reason;
use roadstead_sources::git::{TrustedKeys, Verification, VerificationMode};
use roadstead_sources::{GitError, GitReference, GitRequest, Outcome, fetch};
use roadstead_test_gitserver::{Commit, SshKey};
use tokio_util::sync::CancellationToken;

use crate::kit::{Kit, error, error_again, fetched, fetched_again};
use crate::signer::Signer;

fn trusted(entries: &[(&str, &str)]) -> TrustedKeys {
    let mut keys = TrustedKeys::default();
    for (name, text) in entries {
        keys.add(name, text);
    }
    keys
}

/// A server with one commit by nobody, to which others are added.
struct Signed {
    kit: Kit,
    tree: String,
}

impl Signed {
    async fn start() -> Self {
        let kit = Kit::start(false, None).await;
        let first = kit.repository.commit("main", "unsigned", &Commit::new().file("a", "1")).unwrap();
        let tree = kit.repository.git(["rev-parse", &format!("{first}^{{tree}}")], &[], b"").unwrap();
        Self { kit, tree }
    }

    fn git(&self, signer: Option<&Signer>, args: &[&str], stdin: &[u8]) -> String {
        let environment = signer.map(Signer::environment).unwrap_or_default();
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
        self.kit.repository.git(args, &environment, stdin).unwrap()
    }

    /// A commit that is signed, on a branch.
    fn commit(&self, signer: &Signer, settings: &[&str], branch: &str) -> String {
        let args = [settings, &["commit-tree", "-S", &self.tree, "-m", "signed"]].concat();
        let id = self.git(Some(signer), &args, b"");
        self.git(None, &["update-ref", &format!("refs/heads/{branch}"), &id], b"");
        id
    }

    fn request(&self, branch: &str, mode: VerificationMode, keys: &[(&str, &str)]) -> GitRequest {
        GitRequest { verify: Some(Verification { mode, keys: trusted(keys) }), ..self.kit.request(branch) }
    }

    fn at_tag(&self, tag: &str, mode: VerificationMode, keys: &[(&str, &str)]) -> GitRequest {
        GitRequest { reference: GitReference::Tag(tag.to_owned()), ..self.request("main", mode, keys) }
    }

    /// What is told of a fetch that must be verified.
    async fn told(&self, request: GitRequest) -> String {
        fetched(request).await.verified.unwrap()
    }
}

async fn unverified(request: GitRequest, reason: Reason, word: &str) {
    let error = error(request).await;
    assert!(matches!(error, GitError::Unverified { .. }), "{error:?}");
    assert_eq!(error.reason(), reason, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

fn sign_by(key: &str) -> Vec<String> {
    vec!["-c".to_owned(), format!("user.signingkey={key}!")]
}

fn refs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

const HEAD: VerificationMode = VerificationMode::Head;

#[tokio::test(flavor = "multi_thread")]
async fn commits_signed_by_gpg() {
    let (signed, signer) = (Signed::start().await, Signer::new());
    for (name, kind) in [("ed", "ed25519"), ("rsa", "rsa2048"), ("ec", "nistp256")] {
        let user = format!("{name} <{name}@example.com>");
        let key = signer.make(&["--quick-generate-key", &user, kind, "sign", "1y"]);
        let commit = signed.commit(&signer, &refs(&sign_by(&key)), name);
        let public = signer.public(&key);
        let told = signed.told(signed.request(name, HEAD, &[("a.asc", &public)])).await;
        let id = &key[24..];
        assert_eq!(told, format!("verified signature of\n\t- commit '{commit}' with key '{id}'"));
        // Git agrees.
        signed.git(Some(&signer), &["verify-commit", &commit], b"");
    }
    let (ed, rsa) = (signer.public("ed@example.com"), signer.public("rsa@example.com"));
    let other = [("a.asc", rsa.as_str())];
    unverified(signed.request("ed", HEAD, &other), Reason::InvalidCommitSignature, "no matching key").await;
    unverified(signed.request("main", HEAD, &other), Reason::InvalidCommitSignature, "it is not signed")
        .await;
    // One good key is enough, wherever it is.
    let both = format!("{rsa}\nother text\n{ed}");
    for keys in [
        &[("a.asc", rsa.as_str()), ("b.asc", ed.as_str())][..],
        &[("a.asc", "junk"), ("other-name", &ed)],
        &[
            ("a.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\njunk\n-----END PGP PUBLIC KEY BLOCK-----\n"),
            ("b", &ed),
        ],
        &[("both.asc", &both)],
    ] {
        signed.told(signed.request("ed", HEAD, keys)).await;
    }
    let none = signed.request("ed", HEAD, &[("a.asc", "junk")]);
    unverified(none, Reason::InvalidCommitSignature, "no matching key").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subkey_signs_for_its_key() {
    let (signed, signer) = (Signed::start().await, Signer::new());
    let key = signer.make(&["--quick-generate-key", "sub <sub@example.com>", "ed25519", "cert", "1y"]);
    signer.gpg(&["--quick-add-key", &key, "ed25519", "sign", "1y"]);
    signer.gpg(&["--quick-add-key", &key, "cv25519", "encr", "1y"]);
    let list = signer.gpg(&["--list-keys", "--with-colons", "--with-subkey-fingerprint"]);
    let subkey = list.lines().skip_while(|line| !line.starts_with("sub:")).nth(1).unwrap();
    let subkey = subkey.split(':').nth(9).unwrap().to_owned();
    signed.commit(&signer, &refs(&sign_by(&subkey)), "sub");
    let public = signer.public(&key);
    let told = signed.told(signed.request("sub", HEAD, &[("a.asc", &public)])).await;
    assert!(told.ends_with(&format!("with key '{}'", &key[24..])), "{told} of {key}");
    // What it signed does not count once it is revoked.
    let revoke = format!("key {subkey}\nrevkey\ny\n0\n\ny\nsave\n");
    let mut command = Command::new("gpg");
    command.args([
        "--batch",
        "--quiet",
        "--pinentry-mode",
        "loopback",
        "--passphrase",
        "",
        "--command-fd",
        "0",
    ]);
    command.args(["--edit-key", &key]).env("GNUPGHOME", signer.home.path());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), revoke.as_bytes()).unwrap();
    child.wait().unwrap();
    let revoked = signer.public(&key);
    assert_ne!(revoked, public, "gpg revoked nothing");
    for keys in [&[("a.asc", revoked.as_str())][..], &[("a.asc", &public), ("b.asc", &revoked)]] {
        let request = signed.request("sub", HEAD, keys);
        unverified(request, Reason::InvalidCommitSignature, "the subkey is revoked").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_expired_and_revoked() {
    let (signed, signer) = (Signed::start().await, Signer::new());
    let key = signer.make(&["--quick-generate-key", "a <a@example.com>", "ed25519", "sign", "1y"]);
    let commit = signed.commit(&signer, &refs(&sign_by(&key)), "good");
    let public = signer.public(&key);
    let keys = [("a.asc", public.as_str())];
    signed.told(signed.request("good", HEAD, &keys)).await;

    // The same signature over another message; in an object that has two, or two trees.
    let raw = signed.git(None, &["cat-file", "commit", &commit], b"") + "\n";
    let signature: String = raw
        .lines()
        .skip_while(|line| !line.starts_with("gpgsig "))
        .take_while(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect();
    for (name, forged, word) in [
        ("message", raw.replace("\nsigned\n", "\nforged\n"), "is bad"),
        ("twice", raw.replacen("gpgsig", &format!("{signature}gpgsig"), 1), "twice"),
        ("trees", raw.replacen("author", &format!("tree {}\nauthor", "1".repeat(40)), 1), "twice"),
    ] {
        let id = signed.git(
            None,
            &["hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
            forged.as_bytes(),
        );
        signed.git(None, &["update-ref", &format!("refs/heads/{name}"), &id], b"");
        unverified(signed.request(name, HEAD, &keys), Reason::InvalidCommitSignature, word).await;
    }

    // A key that is expired by now.
    let then = Signer::new();
    let past = ["--faked-system-time", "20200101T000000!"];
    let expired = then.make(
        &[&past[..], &["--quick-generate-key", "b <b@example.com>", "ed25519", "sign", "10d"]].concat(),
    );
    let gpg = then.home.path().join("gpg-then");
    std::fs::write(&gpg, format!("#!/bin/sh\nexec gpg {} \"$@\"\n", past.join(" "))).unwrap();
    make_executable(&gpg);
    let mut settings = sign_by(&expired);
    settings.extend(["-c".to_owned(), format!("gpg.program={}", gpg.display())]);
    signed.commit(&then, &refs(&settings), "expired");
    let old = then.public(&expired);
    let request = signed.request("expired", HEAD, &[("b.asc", &old)]);
    unverified(request, Reason::InvalidCommitSignature, "the key is expired").await;
    // It is lengthened: then it counts, also where the older copy is there too.
    then.gpg(&["--quick-set-expire", &expired, "0"]);
    let longer = then.public(&expired);
    signed.told(signed.request("expired", HEAD, &[("b.asc", &longer)])).await;
    signed.told(signed.request("expired", HEAD, &[("b.asc", &old), ("c.asc", &longer)])).await;

    // A revoked key, and a copy of it from before.
    let certificate = signer.home.path().join(format!("openpgp-revocs.d/{key}.rev"));
    let certificate = std::fs::read_to_string(certificate).unwrap().replace(":-----BEGIN", "-----BEGIN");
    let file = signer.home.path().join("revocation");
    std::fs::write(&file, certificate).unwrap();
    signer.gpg(&["--import", file.to_str().unwrap()]);
    let revoked = signer.public(&key);
    for keys in [&[("a.asc", revoked.as_str())][..], &[("a.asc", &public), ("b.asc", &revoked)]] {
        let request = signed.request("good", HEAD, keys);
        unverified(request, Reason::InvalidCommitSignature, "the key is revoked").await;
    }
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_signed_by_ssh_keygen() {
    let (signed, folder) = (Signed::start().await, Signer::new());
    let mut all = String::new();
    for (name, kind) in [
        ("ed", &["-t", "ed25519"][..]),
        ("rsa", &["-t", "rsa", "-b", "2048"]),
        ("ec", &["-t", "ecdsa", "-b", "384"]),
    ] {
        let (key, path) = written(&folder, name, kind);
        let settings = ssh_settings(&path);
        let commit = signed.commit(&folder, &refs(&settings), name);
        let told = signed.told(signed.request(name, HEAD, &[("a.sshpub", &key.public)])).await;
        assert!(
            told.starts_with(&format!("verified signature of\n\t- commit '{commit}' with key 'SHA256:")),
            "{told}"
        );
        all += &key.public;
    }
    let (other, _) = written(&folder, "other", &["-t", "ed25519"]);
    let spoiled = format!("broken line\n{all}");
    for name in ["ed", "rsa", "ec"] {
        signed.told(signed.request(name, HEAD, &[("all.sshpub", &all)])).await;
        // A bad line spoils its own entry, and no other.
        signed.told(signed.request(name, HEAD, &[("a.sshpub", "broken line"), ("b.sshpub", &all)])).await;
        for (keys, word) in [
            (&[("a.sshpub", other.public.as_str())][..], "no matching key"),
            (&[("a.sshpub", &spoiled)], "a.sshpub"),
            // The name says what is in an entry.
            (&[("a.asc", &all)], "no matching key"),
        ] {
            unverified(signed.request(name, HEAD, keys), Reason::InvalidCommitSignature, word).await;
        }
    }
    // A signature that was made for something else.
    let raw = signed.git(None, &["cat-file", "commit", "ed"], b"") + "\n";
    let payload: String = raw
        .lines()
        .filter(|line| !line.starts_with("gpgsig ") && !line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = folder.home.path().join("payload");
    std::fs::write(&file, &payload).unwrap();
    for (namespace, wanted) in [("git", None), ("file", Some("something other than Git"))] {
        let _ = std::fs::remove_file(file.with_extension("sig"));
        let key = folder.home.path().join("ed");
        let status = Command::new("ssh-keygen")
            .args(["-q", "-Y", "sign", "-n", namespace, "-f"])
            .arg(key)
            .arg(&file)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let signature = std::fs::read_to_string(file.with_extension("sig")).unwrap();
        let header = format!("gpgsig {}\n", signature.trim_end().replace('\n', "\n "));
        let (headers, message) = payload.split_once("\n\n").unwrap();
        let object = format!("{headers}\n{header}\n{message}");
        let id = signed.git(None, &["hash-object", "-t", "commit", "-w", "--stdin"], object.as_bytes());
        signed.git(None, &["update-ref", &format!("refs/heads/{namespace}"), &id], b"");
        let request = signed.request(namespace, HEAD, &[("all.sshpub", &all)]);
        match wanted {
            None => drop(signed.told(request).await),
            Some(word) => unverified(request, Reason::InvalidCommitSignature, word).await,
        }
    }
}

/// A key pair of SSH's, in files.
fn written(folder: &Signer, name: &str, kind: &[&str]) -> (SshKey, std::path::PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let key = SshKey::make(kind, "").unwrap();
    let path = folder.home.path().join(name);
    std::fs::write(&path, &key.identity).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(path.with_extension("pub"), &key.public).unwrap();
    (key, path)
}

fn ssh_settings(path: &Path) -> Vec<String> {
    let key = format!("user.signingkey={}", path.display());
    ["-c", "gpg.format=ssh", "-c", &key].map(str::to_owned).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_and_what_they_point_to() {
    let (signed, signer) = (Signed::start().await, Signer::new());
    let key = signer.make(&["--quick-generate-key", "a <a@example.com>", "ed25519", "sign", "1y"]);
    let (other, path) = written(&signer, "ssh", &["-t", "ed25519"]);
    let public = signer.public(&key);
    let keys = [("a.asc", public.as_str()), ("b.sshpub", &other.public)];
    let unsigned = signed.git(None, &["rev-parse", "main"], b"");
    let commit = signed.commit(&signer, &refs(&sign_by(&key)), "good");
    let tag = |name: &str, settings: &[String], at: &str| {
        let settings = refs(settings);
        signed.git(Some(&signer), &[&settings[..], &["tag", "-s", "-m", "release", name, at]].concat(), b"");
        signed.git(None, &["rev-parse", &format!("refs/tags/{name}")], b"")
    };
    let v1 = tag("v1", &sign_by(&key), &commit);
    let v2 = tag("v2", &ssh_settings(&path), &unsigned);
    signed.git(None, &["tag", "light", &commit], b"");
    signed.kit.repository.annotated_tag("plain", &commit).unwrap();
    signed.git(None, &["update-ref", "refs/tags/v9", &v1], b"");
    use VerificationMode::{Tag, TagAndHead};
    let id = &key[24..];
    let of_tag = format!("\n\t- tag 'v1@{v1}' with key '{id}'");
    let of_commit = format!("\n\t- commit '{commit}' with key '{id}'");
    for (mode, wanted) in [
        (Tag, format!("verified signature of{of_tag}")),
        (TagAndHead, format!("verified signature of{of_tag}{of_commit}")),
        (HEAD, format!("verified signature of{of_commit}")),
    ] {
        assert_eq!(signed.told(signed.at_tag("v1", mode, &keys)).await, wanted);
        let name = GitReference::Name("refs/tags/v1".to_owned());
        let by_name = GitRequest { reference: name, ..signed.at_tag("v1", mode, &keys) };
        assert_eq!(signed.told(by_name).await, wanted);
    }
    let told = signed.told(signed.at_tag("v2", Tag, &keys)).await;
    assert!(
        told.starts_with(&format!("verified signature of\n\t- tag 'v2@{v2}' with key 'SHA256:")),
        "{told}"
    );
    for (name, mode, reason, word) in [
        ("v2", TagAndHead, Reason::InvalidCommitSignature, "it is not signed"),
        ("light", Tag, Reason::InvalidGitObject, "not annotated"),
        ("light", TagAndHead, Reason::InvalidGitObject, "not annotated"),
        ("plain", Tag, Reason::InvalidTagSignature, "it is not signed"),
        ("v9", Tag, Reason::InvalidGitObject, "another name"),
    ] {
        unverified(signed.at_tag(name, mode, &keys), reason, word).await;
    }
    signed.told(signed.at_tag("light", HEAD, &keys)).await;
    let wrong = [("b.sshpub", other.public.as_str())];
    unverified(signed.at_tag("v1", Tag, &wrong), Reason::InvalidTagSignature, "no matching key").await;
    for mode in [Tag, TagAndHead] {
        let request = signed.request("good", mode, &keys);
        unverified(request, Reason::InvalidVerificationMode, "spec.ref.tag").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_set_of_keys_has_another_digest() {
    let (one, other) =
        (SshKey::make(&["-t", "ed25519"], "").unwrap(), SshKey::make(&["-t", "ed25519"], "").unwrap());
    let digest = |keys: &[(&str, &str)]| trusted(keys).digest();
    let both = [("a.sshpub", one.public.as_str()), ("b.sshpub", &other.public)];
    assert_eq!(digest(&both), digest(&[both[1], both[0]]), "the order of entries counts");
    assert_ne!(digest(&both), digest(&both[..1]));
    assert_ne!(digest(&both[..1]), digest(&[("a.sshpub", &other.public)]));
    // What is not public is not among them.
    let secret = [
        ("note", "hunter2"),
        ("b.sshpub", "hunter2"),
        ("a.asc", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2"),
    ];
    assert!(!format!("{:?}", trusted(&secret)).contains("hunter2"));
    assert!(trusted(&secret[..1]).is_empty());
    // A revision that is known is not verified again: whoever says that it is known says it of these keys too.
    let kit = Kit::start(false, None).await;
    kit.repository.commit("main", "1", &Commit::new().file("a", "1")).unwrap();
    let known = fetched(kit.request("main")).await.revision;
    let verify = Some(Verification { mode: HEAD, keys: trusted(&both) });
    let request = GitRequest { known: Some(known), verify, ..kit.request("main") };
    assert!(matches!(fetch(request, &CancellationToken::new()).await.unwrap(), Outcome::Unchanged(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_verified_is_fetched_once() {
    let (signer, others, signed) = (Signer::new(), Signer::new(), Signed::start().await);
    let make = |signer: &Signer| {
        signer.make(&["--quick-generate-key", "a <a@example.com>", "ed25519", "sign", "1y"])
    };
    let (key, other) = (make(&signer), make(&others));
    signed.commit(&signer, &refs(&sign_by(&key)), "main");
    let wrong = signed.request("main", HEAD, &[("a.asc", &others.public(&other))]);
    let commands = || -> Vec<String> {
        let seen = signed.kit.server.take_seen();
        seen.iter().map(|seen| seen.what.rsplit([' ', '/']).next().unwrap_or_default().to_owned()).collect()
    };
    let told = error_again(wrong.clone()).await;
    assert!(matches!(told, GitError::Unverified { .. }), "{told:?}");
    assert!(commands().iter().any(|command| command == "fetch"));
    for _ in 0..2 {
        let again = error_again(wrong.clone()).await;
        assert_eq!((again.to_string(), again.reason()), (told.to_string(), told.reason()));
        assert_eq!(commands(), ["ls-refs"]);
    }
    // Whoever asks for it has it verified again.
    wrong.known_server.forget_verdict();
    assert_eq!(error_again(wrong.clone()).await.to_string(), told.to_string());
    assert_eq!(commands(), ["ls-refs", "fetch"]);
    // Another commit is another matter, and so are other keys, of which nothing is known.
    signed.commit(&others, &refs(&sign_by(&other)), "main");
    assert!(fetched_again(wrong).await.verified.is_some());
    let other_keys = signed.request("main", HEAD, &[("a.asc", &signer.public(&key))]);
    assert!(matches!(error(other_keys).await, GitError::Unverified { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_tag_of_a_range_is_verified_as_that_tag() {
    let (signer, signed) = (Signer::new(), Signed::start().await);
    let key = signer.make(&["--quick-generate-key", "a <a@example.com>", "ed25519", "sign", "1y"]);
    let public = signer.public(&key);
    let by = sign_by(&key);
    let commit = signed.commit(&signer, &refs(&by), "main");
    let tag = [&refs(&by)[..], &["tag", "-s", "-m", "x", "1.0.0", &commit]].concat();
    signed.git(Some(&signer), &tag, b"");
    let request = || GitRequest {
        reference: GitReference::SemVer("*".to_owned()),
        ..signed.request("main", VerificationMode::TagAndHead, &[("a.asc", &public)])
    };
    let told = signed.told(request()).await;
    assert!(told.contains("tag '1.0.0@") && told.contains(&format!("commit '{commit}'")), "{told}");
    // An older tag under a newer name.
    let object = signed.git(None, &["rev-parse", "refs/tags/1.0.0"], b"");
    signed.git(None, &["update-ref", "refs/tags/1.1.0", &object], b"");
    let refused = error(request()).await;
    assert_eq!(refused.reason(), Reason::InvalidGitObject, "{refused}");
}
