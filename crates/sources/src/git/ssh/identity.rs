//! `identity`: the private key to log in with.

use russh::keys::ssh_key::{Algorithm, Kdf};
use russh::keys::{PrivateKey, decode_secret_key};
use zeroize::Zeroizing;

use roadstead_outbound::Secret;

/// The longest text, in bytes: an RSA key of 16,384 bits takes some 13,000.
const MOST_IDENTITY: usize = 32 << 10;
/// What a passphrase may cost to try: `ssh-keygen` makes 16 rounds, 24 in newer versions, of some milliseconds each.
const MOST_ROUNDS: u32 = 512;

/// Why a key cannot be used. Shows nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    #[error("`identity` is longer than {MOST_IDENTITY} bytes")]
    TooLong,
    #[error("`identity` is not a private key in PEM or in OpenSSH's format, or is damaged")]
    NotAKey,
    #[error("the key in `identity` has a passphrase, and there is none: put it into `password`")]
    NoPassphrase,
    #[error("the passphrase in `password` is not the one of the key in `identity`")]
    WrongPassphrase,
    #[error(
        "the passphrase of the key in `identity` takes more than {MOST_ROUNDS} rounds to try: set it again with `ssh-keygen -p -a 24`"
    )]
    TooSlow,
    #[error(
        "`identity` is encrypted in a format that is not supported: `ssh-keygen -p -f FILE` writes it in OpenSSH's own"
    )]
    Format,
    #[error("`identity` is of a kind that is not supported: want an Ed25519, ECDSA or RSA key")]
    Kind,
}

/// Reads the key. Takes as long as its passphrase takes to try.
pub(super) fn read(identity: &Secret, passphrase: Option<&Secret>) -> Result<PrivateKey, IdentityError> {
    // Exposed to be parsed; what is wrong with it is told without showing any of it.
    let text = identity.expose().trim();
    let passphrase = passphrase.map(Secret::expose).filter(|text| !text.is_empty());
    if text.len() > MOST_IDENTITY {
        return Err(IdentityError::TooLong);
    }
    let text = Zeroizing::new(text.replace("\r\n", "\n"));
    let text = Zeroizing::new(format!("{}\n", *text));
    let key = match text.lines().next().unwrap_or_default() {
        "-----BEGIN OPENSSH PRIVATE KEY-----" => open_ssh(&text, passphrase),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----" => Err(IdentityError::Format),
        "-----BEGIN RSA PRIVATE KEY-----" if text.contains("DEK-Info:") => legacy(&text, passphrase),
        "-----BEGIN EC PRIVATE KEY-----" if text.contains("DEK-Info:") => Err(IdentityError::Format),
        "-----BEGIN RSA PRIVATE KEY-----"
        | "-----BEGIN EC PRIVATE KEY-----"
        | "-----BEGIN PRIVATE KEY-----" => decode_secret_key(&text, None).map_err(|_| IdentityError::NotAKey),
        _ => Err(IdentityError::NotAKey),
    }?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. } => Ok(key),
        _ => Err(IdentityError::Kind),
    }
}

fn open_ssh(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, IdentityError> {
    let key = PrivateKey::from_openssh(text).map_err(|_| IdentityError::NotAKey)?;
    if !key.is_encrypted() {
        return Ok(key);
    }
    let passphrase = passphrase.ok_or(IdentityError::NoPassphrase)?;
    if matches!(key.kdf(), Kdf::Bcrypt { rounds, .. } if *rounds > MOST_ROUNDS) {
        return Err(IdentityError::TooSlow);
    }
    key.decrypt(passphrase).map_err(|_| IdentityError::WrongPassphrase)
}

/// As OpenSSH wrote keys before it had a format of its own.
fn legacy(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, IdentityError> {
    if !text.contains("DEK-Info: AES-128-CBC,") {
        return Err(IdentityError::Format);
    }
    let passphrase = passphrase.ok_or(IdentityError::NoPassphrase)?;
    decode_secret_key(text, Some(passphrase)).map_err(|_| IdentityError::WrongPassphrase)
}

#[cfg(test)]
mod tests;
