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
    with(&[], args, dir)
}

/// With these variables, and none that would name keys of whoever runs the tests.
fn with(variables: &[(&str, &str)], args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roadstead"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
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

/// The same file, for a key in a Vault.
fn encrypted_for_vault(address: &str) -> String {
    let vault = format!(
        "hc_vault:\n        - vault_address: {address}\n          engine_path: sops\n          key_name: first\n          created_at: \"2024-05-06T07:08:09Z\""
    );
    ENCRYPTED.replace("age:\n        - recipient: age1somebody", &vault)
}

#[test]
fn a_token_for_vault_goes_where_its_holder_says() {
    let dir = tempfile::tempdir().unwrap();
    // Answers to one request, and says what it was.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        use std::io::{BufRead as _, BufReader, Write as _};
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let head: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
        stream.write_all(b"HTTP/1.1 403 x\r\ncontent-length: 0\r\n\r\n").unwrap();
        head
    });
    write(dir.path(), "elsewhere.yaml", &encrypted_for_vault("https://vault.example:8200"));
    write(dir.path(), "here.yaml", &encrypted_for_vault(&here));
    write(dir.path(), "sops.vault-token", "canary\n");
    write(dir.path(), "other/sops.vault-token", "two words\n");
    let decrypt = |variables: &[(&str, &str)], args: &[&str]| {
        let output = with(variables, &[&["secrets", "decrypt"], args].concat(), dir.path());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let message = text(&output.stderr);
        assert!(message.contains("[no-key]") && !message.contains("canary"), "{message}");
        message
    };
    let refused = "credentials are not sent to https://vault.example:8200";
    for variables in [
        &[("VAULT_TOKEN", "canary")][..],
        &[("VAULT_TOKEN", "canary"), ("VAULT_ADDR", "https://other.example")],
    ] {
        let message = decrypt(variables, &["elsewhere.yaml"]);
        assert!(message.contains(refused) && message.contains("--allow-key-service"), "{message}");
    }
    assert!(decrypt(&[], &["--key", "sops.vault-token", "elsewhere.yaml"]).contains(refused));
    assert!(decrypt(&[], &["elsewhere.yaml"]).contains("no key for it was given"));
    assert!(decrypt(&[], &["--key", "other/sops.vault-token", "here.yaml"]).contains("sops.vault-token"));
    assert!(decrypt(&[("VAULT_ADDR", "vault")], &["here.yaml"]).contains("VAULT_ADDR"));
    assert!(decrypt(&[], &["--key", "sops.vault-token", "here.yaml"]).contains("HTTP 403"));
    let head = served.join().unwrap();
    assert_eq!(head[0], "PUT /v1/sops/decrypt/first HTTP/1.1");
    assert!(head.iter().any(|line| line.eq_ignore_ascii_case("x-vault-token: canary")), "{head:?}");

    let output = roadstead(&["secrets", "decrypt", "--allow-key-service", "vault", "here.yaml"], dir.path());
    assert!(text(&output.stderr).contains("want https://HOST[:PORT]"), "{}", text(&output.stderr));
}
