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
    // The same for programs.
    let json = roadstead(&["secrets", "check", "-o", "json", "."], dir.path());
    assert_eq!(json.status.code(), Some(1));
    let found: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&found["problems"], &found["encrypted"]), (&5.into(), &2.into()), "{found:#}");
    let open = serde_json::json!({ "level": "problem", "path": "apps/open.yaml",
        "message": "Secret \"open\" is in plain text: encrypt it with sops" });
    assert!(found["findings"].as_array().unwrap().contains(&open), "{found:#}");
    let yaml = roadstead(&["secrets", "check", "--output=yaml", "."], dir.path());
    assert!(text(&yaml.stdout).contains("path: apps/open.yaml"), "{}", text(&yaml.stdout));
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

/// A folder with files that are encrypted to an age key, to an OpenPGP key, and to either; and one that was changed since.
fn encrypted_files() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/encrypted");
    for name in ["age.yaml", "openpgp.json", "both.env", "changed.yaml"] {
        fs::copy(from.join(name), dir.path().join(name)).unwrap();
    }
    dir
}

/// Keys of several kinds: of age, of OpenPGP, of nobody, and one that is of no kind at all.
fn keys() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/sops/tests");
    for (path, name) in [
        ("age/key.agekey", "team.agekey"),
        ("openpgp/key.asc", "team.asc"),
        ("openpgp/revoked.asc", "other.asc"),
    ] {
        fs::copy(from.join(path), dir.path().join(name)).unwrap();
    }
    write(dir.path(), "key.pem", "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n");
    dir
}

/// The arguments that name keys.
fn of(keys: &Path, names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--key".to_owned(), keys.join(name).display().to_string()]).collect()
}

#[test]
fn files_are_decrypted_by_keys_of_several_kinds() {
    let (dir, keys) = (encrypted_files(), keys());
    let decrypt = |names: &[&str], args: &[&str]| {
        let named = of(keys.path(), names);
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        roadstead(&[&["secrets", "decrypt"], args, &named].concat(), dir.path())
    };
    let (yaml, json, env) =
        ("password: hush\nnote_unencrypted: seen\n", "{\n\t\"password\": \"hush\"\n}\n", "PASSWORD=hush\n");
    for (names, file, plain) in [
        (&["team.agekey"][..], "age.yaml", yaml),
        (&["team.asc"], "openpgp.json", json),
        (&["team.agekey"], "both.env", env),
        (&["team.asc"], "both.env", env),
        (&["other.asc", "team.asc", "team.agekey"], "age.yaml", yaml),
        (&["key.pem", "team.asc"], "openpgp.json", json),
    ] {
        let output = decrypt(names, &[file]);
        assert!(output.status.success(), "{names:?} {file}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), plain, "{names:?} {file}");
    }
    for (names, file, says) in [
        (&["team.asc"][..], "age.yaml", "age age1cli: no key for it was given"),
        (&["team.agekey"], "openpgp.json", "FINGERPRINT: no key for it was given"),
        (&["other.asc"], "openpgp.json", "FINGERPRINT: no key for it was given"),
        (
            &["key.pem"],
            "age.yaml",
            "is not a known kind of key and is not used: its name must end in .agekey or .asc",
        ),
        (&["team.agekey"], "changed.yaml", "MAC mismatch"),
    ] {
        let output = decrypt(names, &[file]);
        assert_eq!(output.status.code(), Some(1), "{names:?} {file}");
        let message = text(&output.stderr);
        assert!(message.contains(says), "{names:?} {file}: {message}");
        assert!(!message.contains("canary") && !message.contains("hush"), "{message}");
        assert!(output.stdout.is_empty(), "{names:?} {file}");
    }
    // Somebody wants it all the same, and is told.
    let output = decrypt(&["team.agekey"], &["--mac", "warn", "changed.yaml"]);
    assert!(output.status.success() && text(&output.stdout).contains("note_unencrypted: other"));
    assert!(text(&output.stderr).contains("MAC mismatch"), "{}", text(&output.stderr));
}

#[test]
fn a_check_tells_what_keys_of_several_kinds_open() {
    let (dir, keys) = (encrypted_files(), keys());
    let check = |names: &[&str]| {
        let named = of(keys.path(), names);
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let output = roadstead(&[&["secrets", "check", "."], &named[..]].concat(), dir.path());
        let (report, told) = (text(&output.stdout), text(&output.stderr));
        assert!(!format!("{report}{told}").contains("hush"), "{report}{told}");
        (output.status.code(), report, told)
    };
    let changed = "problem: changed.yaml: MAC mismatch";
    for (names, code, lines, sum) in [
        (
            &["team.agekey"][..],
            1,
            &[
                "ok: age.yaml: opened by age age1cli",
                "ok: both.env: opened by age age1cli",
                changed,
                "note: openpgp.json: not opened: ",
            ][..],
            "4 encrypted files, 3 of them opened, 1 problems",
        ),
        (
            &["team.asc"],
            0,
            &["note: age.yaml: not opened: ", "ok: both.env: opened by ", "ok: openpgp.json: opened by "],
            "4 encrypted files, 2 of them opened, no problems",
        ),
        (
            &["team.asc", "team.agekey", "other.asc"],
            1,
            &["ok: age.yaml: opened by ", "ok: openpgp.json: opened by ", changed],
            "4 encrypted files, 4 of them opened, 1 problems",
        ),
        (
            &["key.pem"],
            0,
            &["note: age.yaml: not opened: ", "note: openpgp.json: not opened: "],
            "4 encrypted files, 0 of them opened, no problems",
        ),
    ] {
        let (status, report, told) = check(names);
        assert_eq!(status, Some(code), "{names:?}: {report}{told}");
        for line in lines {
            assert!(report.contains(line), "{names:?}: no `{line}` in {report}");
        }
        assert!(format!("{report}{told}").contains(sum), "{names:?}: {report}{told}");
    }
    let (_, _, told) = check(&["key.pem"]);
    assert!(told.contains("is not a known kind of key"), "{told}");
    // One that is not a key of the kind that its name says is an error, and not passed over.
    write(keys.path(), "bad.agekey", "canary\n");
    let (status, _, told) = check(&["bad.agekey"]);
    assert!(status == Some(1) && told.contains("[no-key]") && !told.contains("canary"), "{told}");
}
