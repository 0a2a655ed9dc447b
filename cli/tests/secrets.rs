//! `roadstead secrets` on a disk: what is reported, and exit codes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn roadstead(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roadstead")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Encrypted for someone whose key nobody has.
const ENCRYPTED: &str = "a: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]
sops:
    age:
        - recipient: age1somebody
          enc: nothing
    lastmodified: \"2024-05-06T07:08:09Z\"
    mac: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]
";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: open\nstringData:\n  a: canary\n";

#[test]
fn decrypting_without_a_key() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.yaml", ENCRYPTED);
    write(dir.path(), "plain.yaml", "a: 1\n");
    write(dir.path(), "bad.agekey", "canary\n");
    write(dir.path(), "key.txt", "canary\n");
    for (args, says) in [
        (&["a.yaml"][..], "[no-key]"),
        (&["plain.yaml"], "[not-encrypted]"),
        (&["--format", "json", "a.yaml"], "[malformed]"),
        (&["--key", "bad.agekey", "a.yaml"], "[no-key]"),
        (&["--key", "key.txt", "a.yaml"], "[no-key]"),
        (&["missing.yaml"], "cannot read"),
    ] {
        let output = roadstead(&[&["secrets", "decrypt"], args].concat(), dir.path());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let message = text(&output.stderr);
        assert!(
            output.stdout.is_empty() && message.contains(says) && !message.contains("canary"),
            "{message}"
        );
    }
}

#[test]
fn objects_that_are_not_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "open.yaml", SECRET);
    let output = roadstead(&["secrets", "decrypt", "--object", "open.yaml"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\"name\": \"open\""));
    write(dir.path(), "sops.yaml", &format!("{SECRET}sops: {{}}\n"));
    let output = roadstead(&["secrets", "decrypt", "--object", "sops.yaml"], dir.path());
    assert!(text(&output.stderr).contains("[refused]"), "{}", text(&output.stderr));
}

#[test]
fn a_check_finds_what_is_open_or_broken() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "apps/a.yaml", ENCRYPTED);
    write(dir.path(), "apps/notes.txt", "nothing about sops here, ENC[AES256_GCM,data: is only mentioned");
    write(dir.path(), ".sops.yaml", "creation_rules:\n- path_regex: ^apps/.*\\.yaml$\n- age: x\n");
    write(dir.path(), ".git/config", SECRET);
    let output = roadstead(&["secrets", "check", "."], dir.path());
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert_eq!(
        text(&output.stdout),
        "ok: apps/a.yaml: encrypted for age age1somebody\n1 encrypted files, no problems\n"
    );

    write(dir.path(), "apps/open.yaml", SECRET);
    write(dir.path(), "apps/half.yaml", &format!("{SECRET}{}", ENCRYPTED.replace("a: ENC", "b: ENC")));
    write(dir.path(), "apps/lost.yaml", "a: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]\n");
    write(dir.path(), "apps/.sops.yaml", "creation_rules:\n- path_regex: nothing\n- path_regex: (\n");
    let output = roadstead(&["secrets", "check", "."], dir.path());
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    for line in [
        "problem: apps/open.yaml: Secret \"open\" is in plain text: encrypt it with sops",
        "problem: apps/half.yaml: Secret \"open\" has values in plain text, which the rules of the file leave out: stringData.a",
        "problem: apps/lost.yaml: it contains encrypted values, but has no sops metadata: they cannot be decrypted",
        "problem: apps/.sops.yaml: creation rule 1: path_regex 'nothing' matches no file",
        "problem: apps/.sops.yaml: creation rule 2: path_regex is not valid:",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    assert!(
        text(&output.stderr).contains("5 problems") && !report.contains("canary"),
        "{}",
        text(&output.stderr)
    );
}
