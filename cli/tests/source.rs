//! `roadstead source fetch` on a repository of this machine: output, exit codes, and what is refused before anything is asked of anyone.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=trunk"]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", text(&output.stderr));
}

fn roadstead(args: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roadstead"));
    command.current_dir(dir).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.args(["source", "fetch"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_repository_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("app");
    fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "-q"]);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    fs::write(repository.join("a.yaml"), map).unwrap();
    fs::write(repository.join("README.md"), "# App\n").unwrap();
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "First"]);
    git(&repository, &["tag", "v1.2.3"]);
    let url = format!("file://{}", repository.display());

    let output = roadstead(&[&url, "--artifact=out.tar.gz"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = text(&output.stdout);
    assert!(told.contains("Kind:      GitRepository\n") && told.contains("Files:     2\n"), "{told}");
    assert!(told.contains("@sha1:") && output.stderr.is_empty(), "{told}{}", text(&output.stderr));
    // What is written is the artifact: it can be built.
    let mut build = Command::new(env!("CARGO_BIN_EXE_roadstead"));
    let built = build.args(["build", "out.tar.gz"]).current_dir(dir.path()).output().unwrap();
    assert!(text(&built.stdout).contains("name: a\n"), "{}", text(&built.stderr));

    let output = roadstead(&[&url, "--semver=^1", "-o", "json"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let revision = told["revision"].as_str().unwrap_or_default();
    assert!(revision.starts_with("v1.2.3@sha1:") && told["warnings"] == serde_json::json!([]), "{told:#}");

    let output = roadstead(&[&url, "--branch=main"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.stdout.is_empty() && text(&output.stderr).starts_with("error: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn what_cannot_be_is_refused_by_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("password"), "hunter2").unwrap();
    for (args, part) in [
        (&["oci://registry.invalid/app", "--branch=main"][..], "--branch is not for"),
        (&["https://git.invalid/app", "--username=me"], "want --password-file or $ROADSTEAD_SOURCE_PASSWORD"),
        (&["https://git.invalid/app", "--password-file=password"], "without --username"),
        (&["https://git.invalid/app", "--ca-file=none.pem"], "none.pem"),
        (&["https://git.invalid/app", "--password=hunter2"], "unexpected argument"),
        (&["https://me:hunter2@git.invalid/app"], "--password-file"),
        (&["git@git.invalid:app"], "ssh://git@host/path"),
        (&["ssh://git@git.invalid/app"], "--ssh-key-file"),
    ] {
        let output = roadstead(args, dir.path());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: no `{part}` in: {error}");
        assert!(args.contains(&"--password=hunter2") || !error.contains("hunter2"), "{error}");
    }
}
