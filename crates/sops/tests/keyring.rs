//! Keys that are at hand, with files that others' code encrypted to them: GnuPG, and Python's `cryptography` by the specification of
//! age. All hold the same data key.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use roadstead_sops::{DataKey, KeyError, KeyProvider as _, KeyRing, MasterKey};

const DATA_KEY: &[u8] = b"01234567890123456789012345678901";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

fn age(enc: String) -> MasterKey {
    MasterKey::Age { recipient: "somebody".into(), enc }
}

fn pgp(enc: String) -> MasterKey {
    MasterKey::Pgp { fingerprint: "of somebody".into(), enc }
}

fn opened(result: Result<Option<DataKey>, KeyError>) -> bool {
    result.is_ok_and(|key| key.is_some_and(|key| key.expose() == DATA_KEY))
}

/// A ring with one SSH key.
fn ssh(name: &str) -> KeyRing {
    let mut ring = KeyRing::default();
    assert!(KeyRing::is_ssh(&bytes(name)));
    ring.add_ssh(name, &bytes(name)).unwrap();
    ring
}

fn native() -> KeyRing {
    let mut ring = KeyRing::default();
    assert_eq!(ring.add("key.agekey", &bytes("age/key.agekey")), Ok(true));
    ring
}

fn keyring() -> KeyRing {
    let mut ring = KeyRing::default();
    assert_eq!(ring.add("key.asc", &bytes("openpgp/key.asc")), Ok(true));
    ring
}

#[test]
fn age_identities() {
    assert!(opened(native().unwrap(&age(text("age/x25519.age")))));
    for (key, file) in [
        ("age/ssh-ed25519", "age/ssh-ed25519.age"),
        ("age/ssh-rsa", "age/ssh-rsa.age"),
        ("age/ssh-rsa.pkcs1", "age/ssh-rsa.age"),
    ] {
        assert!(opened(ssh(key).unwrap(&age(text(file)))), "{key}");
        assert_eq!(ssh(key).unwrap(&age(text("age/x25519.age"))), Ok(None), "{key}");
        assert_eq!(native().unwrap(&age(text(file))), Ok(None), "{file}");
    }
}

#[test]
fn openpgp_keys() {
    let ring = keyring();
    for file in ["openpgp/compressed.asc", "openpgp/hidden-bzip2.asc", "openpgp/uncompressed.asc"] {
        assert!(opened(ring.unwrap(&pgp(text(file)))), "{file}");
        assert_eq!(native().unwrap(&pgp(text(file))), Ok(None), "{file}");
    }
    assert!(ring.unwrap(&pgp("nothing".into())).is_err());
    assert!(ring.unwrap(&pgp(text("openpgp/key.asc"))).is_err());
}

/// As GnuPG has it, and so Flux: what was encrypted to a key can be read with it, whatever became of the key since.
#[test]
fn openpgp_keys_that_expired_or_were_revoked() {
    for name in ["expired", "revoked"] {
        let mut ring = KeyRing::default();
        assert_eq!(ring.add("key.asc", &bytes(&format!("openpgp/{name}.asc"))), Ok(true), "{name}");
        assert!(opened(ring.unwrap(&pgp(text(&format!("openpgp/to-{name}.asc"))))), "{name}");
    }
}

/// A key that GnuPG made and rPGP cannot use is named, and keeps no other from being found.
#[test]
fn openpgp_keys_of_brainpool_curves() {
    let mut ring = KeyRing::default();
    assert_eq!(ring.add("brainpool.asc", &bytes("openpgp/brainpool.asc")), Ok(true));
    let message = pgp(text("openpgp/to-brainpool.asc"));
    let error = ring.unwrap(&message).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("brainpool"), "{error}");
    assert_eq!(ring.add("key.asc", &bytes("openpgp/key.asc")), Ok(true));
    assert!(opened(ring.unwrap(&pgp(text("openpgp/compressed.asc")))));
    let error = ring.unwrap(&message).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("brainpool"), "{error}");
}

/// RSA keys are used by aws-lc, which takes neither short nor very long ones.
#[test]
fn openpgp_rsa_keys() {
    let ring = |name: &str| {
        let mut ring = KeyRing::default();
        assert_eq!(ring.add("key.asc", &bytes(name)), Ok(true));
        ring
    };
    let message = text("openpgp/to-rsa.asc");
    assert!(opened(ring("openpgp/rsa.asc").unwrap(&pgp(message.clone()))));
    let error = ring("openpgp/small.asc").unwrap(&pgp(text("openpgp/to-small.asc"))).unwrap_err().to_string();
    assert!(error.contains("an RSA key of 1024 bits is not supported"), "{error}");
    let mut ssh = KeyRing::default();
    let error = ssh.add_ssh("small", &bytes("age/ssh-rsa-small.pkcs1")).unwrap_err().to_string();
    assert!(error.contains("an RSA key of 1024 bits is not supported"), "{error}");
}

/// Whether the padding of a session key is valid is not told: any change of it, or of what it opens, has one answer.
#[test]
fn changed_messages_for_rsa_have_one_answer() {
    let mut ring = KeyRing::default();
    ring.add("key.asc", &bytes("openpgp/rsa.asc")).unwrap();
    let message = text("openpgp/to-rsa.asc");
    let lines: Vec<&str> = message.lines().collect();
    let mut answers = std::collections::BTreeSet::new();
    // The lines of base64 without the first one, which has the packet's head and key id, and without the checksum: it is left
    // out, as it may be, since it would not match.
    let body = lines.iter().position(|line| line.is_empty()).unwrap() + 1;
    let end = lines.iter().position(|line| line.starts_with('=')).unwrap();
    for line in body + 1..end {
        for at in [0, 30] {
            let mut changed = lines[line].to_owned();
            let Some(old) = changed.get(at..=at) else { continue };
            let new = if old == "A" { "B" } else { "A" };
            changed.replace_range(at..=at, new);
            let mut all: Vec<&str> = lines.clone();
            all[line] = &changed;
            all.remove(end);
            match ring.unwrap(&pgp(all.join("\n"))) {
                Err(error) => drop(answers.insert(error.to_string())),
                other => panic!("line {line} at {at}: {other:?}"),
            }
        }
    }
    // What a change of the second packet's head leads to says nothing of the session key.
    answers.retain(|answer| !answer.starts_with("not a valid OpenPGP message"));
    assert_eq!(answers.len(), 1, "{answers:?}");
}

/// No byte of a file can be changed: it is an error, or not for this key any more.
#[test]
fn changed_files_do_not_open() {
    let files = [
        (native(), age(text("age/x25519.age"))),
        (ssh("age/ssh-ed25519"), age(text("age/ssh-ed25519.age"))),
        (keyring(), pgp(text("openpgp/compressed.asc"))),
    ];
    for (ring, key) in files {
        let enc = key.enc().to_owned();
        for (at, c) in enc.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric()) {
            let mut changed = enc.clone();
            changed.replace_range(at..=at, if c == 'A' { "B" } else { "A" });
            let key = match &key {
                MasterKey::Age { .. } => age(changed),
                _ => pgp(changed),
            };
            assert!(!opened(ring.unwrap(&key)), "{} at {at}", key.kind());
        }
    }
}

#[test]
fn what_cannot_be_imported() {
    let mut ring = KeyRing::default();
    assert_eq!(ring.add("sops.vault-token", b"x"), Ok(false));
    for (name, bytes) in [
        ("a.agekey", &b""[..]),
        ("a.agekey", b"# only a comment\n"),
        ("a.agekey", b"AGE-SECRET-KEY-1QQQQ\n"),
        ("a.agekey", b"AGE-PLUGIN-X-1QQQQ\n"),
        ("a.agekey", &bytes("age/ssh-ed25519")),
        ("a.asc", b"x"),
        ("a.asc", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"),
        ("a.asc", b"\xff"),
    ] {
        let error = ring.add(name, bytes).unwrap_err().to_string();
        assert!(!error.contains("QQQQ"), "{error}");
    }
    for bytes in [&b""[..], b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----"] {
        assert!(ring.add_ssh("x", bytes).is_err());
    }
    assert!(format!("{ring:?} {:?}", native()).contains("KeyRing(1 age identities, 0 OpenPGP keys)"));
}
