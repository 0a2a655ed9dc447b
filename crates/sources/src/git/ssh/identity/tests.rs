//! Keys as `ssh-keygen` writes them, and texts that are none. What logs in with them is tested against a real server.

use std::process::Command;

use super::*;

fn made(args: &[&str], passphrase: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", passphrase, "-f"]).arg(&path).args(args);
    assert!(command.status().unwrap().success());
    std::fs::read_to_string(path).unwrap()
}

fn refused(text: &str, passphrase: Option<&str>) -> IdentityError {
    let passphrase = passphrase.map(Secret::from);
    read(&text.into(), passphrase.as_ref()).expect_err("it was taken")
}

#[test]
fn white_space_around_a_key_does_no_harm() {
    let key = made(&["-t", "ed25519"], "");
    for text in [key.clone(), key.trim().to_owned(), format!("\n  {key}\n\n"), key.replace('\n', "\r\n")] {
        assert!(read(&Secret::new(text), None).is_ok());
        // A passphrase that is not needed is not looked at.
        assert!(read(&key.as_str().into(), Some(&"other".into())).is_ok());
    }
}

#[test]
fn passphrases_are_missing_wrong_or_too_slow() {
    let key = made(&["-t", "ed25519", "-a", "1"], "right");
    assert!(read(&key.as_str().into(), Some(&"right".into())).is_ok());
    assert_eq!(refused(&key, None), IdentityError::NoPassphrase);
    assert_eq!(refused(&key, Some("")), IdentityError::NoPassphrase);
    assert_eq!(refused(&key, Some("wrong")), IdentityError::WrongPassphrase);

    // The number of rounds, which the key says of itself, as if somebody had set it so.
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let lines: Vec<&str> = key.lines().collect();
    let mut bytes = STANDARD.decode(lines[1..lines.len() - 1].concat()).unwrap();
    let kdf = bytes.windows(6).position(|window| window == b"bcrypt").unwrap();
    // After the name come the length of the options, a salt of sixteen bytes, and the rounds.
    let rounds = kdf + 6 + 4 + 4 + 16;
    assert_eq!(&bytes[rounds..rounds + 4], 1_u32.to_be_bytes());
    bytes[rounds..rounds + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    let text = STANDARD.encode(bytes);
    let text = text.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>();
    let slow = format!("{}\n{}\n{}\n", lines[0], text.join("\n"), lines[lines.len() - 1]);
    assert_eq!(refused(&slow, Some("right")), IdentityError::TooSlow);
}

#[test]
fn what_is_no_key_is_refused_and_not_shown() {
    let rsa = made(&["-t", "rsa", "-b", "2048", "-m", "PKCS8"], "hunter2-hunter2");
    assert!(rsa.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"), "{rsa}");
    assert_eq!(refused(&rsa, Some("hunter2-hunter2")), IdentityError::Format);
    let ec = made(&["-t", "ecdsa", "-m", "PEM"], "hunter2-hunter2");
    assert_eq!(refused(&ec, Some("hunter2-hunter2")), IdentityError::Format);
    let good = made(&["-t", "ed25519"], "");
    let cut: String = good.lines().take(2).collect::<Vec<_>>().join("\n");
    for text in
        ["", "hunter2", "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2\n", "PuTTY-User-Key-File-3: x", &cut]
    {
        let error = refused(text, None);
        assert_eq!(error, IdentityError::NotAKey, "{text}");
        assert!(!error.to_string().contains("hunter2"));
    }
    let public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5pO9c5Q3n2Zz8xXvFz5h5C4o3Q3m0o9t3E2VvT3q1L";
    assert_eq!(refused(public, None), IdentityError::NotAKey);
    assert_eq!(refused(&"x".repeat(100_000), None), IdentityError::TooLong);
}
