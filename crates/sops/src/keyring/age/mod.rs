//! age files, as far as they wrap data keys: version 1 of the format, for X25519, SSH and post-quantum identities.
//!
//! The `age` crate brings seventy others and lacks the post-quantum kind. The format is small, and the primitives are those of
//! aws-lc and, for ML-KEM, of RustCrypto.

mod armor;
mod bech32;
mod file;
mod hybrid;
mod ssh;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

use crate::keys::{DataKey, KeyError};
use file::Stanza;

pub(super) use ssh::identity as ssh_identity;

/// What a file key has, in bytes.
const FILE_KEY: usize = 16;

type Secret = Zeroizing<[u8; 32]>;

/// Who can open a file.
pub(super) enum Identity {
    X25519(Native),
    Hybrid(Box<hybrid::Key>),
    SshEd25519(ssh::Ed25519),
    SshRsa(Box<ssh::Rsa>),
}

/// Why a stanza gives no file key.
enum Refusal {
    /// It is for someone else.
    NotMine,
    Broken(&'static str),
}

impl Identity {
    fn unwrap(&self, stanza: &Stanza<'_>) -> Result<Secret16, Refusal> {
        match self {
            Self::X25519(key) => key.unwrap(stanza),
            Self::Hybrid(key) => key.unwrap(stanza),
            Self::SshEd25519(key) => key.unwrap(stanza),
            Self::SshRsa(key) => key.unwrap(stanza),
        }
    }
}

type Secret16 = Zeroizing<[u8; FILE_KEY]>;

/// Reads an identity file: an identity on each line, with empty lines and comments between them.
pub(super) fn identities(file: &[u8]) -> Result<Vec<Identity>, String> {
    /// Of one file.
    const MOST: usize = 1000;
    let text = std::str::from_utf8(file).map_err(|_| "the file is not UTF-8".to_owned())?;
    let mut found = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if found.len() == MOST {
            return Err(format!("the file contains more than {MOST} identities"));
        }
        let error = |what: &str| format!("line {}: {what}", index + 1);
        found.push(identity(line).map_err(error)?);
    }
    if found.is_empty() {
        return Err("the file contains no age identity".into());
    }
    Ok(found)
}

fn identity(line: &str) -> Result<Identity, &'static str> {
    const INVALID: &str = "not a valid age identity";
    if line.starts_with("AGE-SECRET-KEY-1") {
        let key = bech32::decode(line, "AGE-SECRET-KEY-").ok_or(INVALID)?;
        return Native::new(&key).map(Identity::X25519).ok_or(INVALID);
    }
    if line.starts_with("AGE-SECRET-KEY-PQ-1") {
        let seed = bech32::decode(line, "AGE-SECRET-KEY-PQ-").ok_or(INVALID)?;
        return hybrid::Key::new(&seed).map(|key| Identity::Hybrid(Box::new(key))).ok_or(INVALID);
    }
    if line.starts_with("AGE-PLUGIN-") {
        return Err("age plugins are not supported");
    }
    Err("not an age identity: expected AGE-SECRET-KEY-1… or AGE-SECRET-KEY-PQ-1…")
}

/// Opens an armored file.
pub(super) fn unwrap(armored: &str, identities: &[Identity]) -> Result<Option<DataKey>, KeyError> {
    if identities.is_empty() {
        return Ok(None);
    }
    let bytes = armor::decode(armored).map_err(KeyError::new)?;
    let file = file::File::parse(&bytes).map_err(KeyError::new)?;
    for stanza in &file.stanzas {
        for identity in identities {
            match identity.unwrap(stanza) {
                Ok(key) => return file.open(&key).map(|key| Some(DataKey::new(key))).map_err(KeyError::new),
                Err(Refusal::NotMine) => {}
                Err(Refusal::Broken(why)) => return Err(KeyError::new(why)),
            }
        }
    }
    Ok(None)
}

/// An X25519 identity.
pub(super) struct Native {
    key: PrivateKey,
    public: [u8; 32],
}

impl Native {
    fn new(secret: &[u8]) -> Option<Self> {
        let key = PrivateKey::from_private_key(&X25519, secret).ok()?;
        let public = key.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { key, public })
    }

    /// The secret that both sides know; none for a point that would make it known to all.
    fn agree(&self, peer: &[u8]) -> Option<Secret> {
        let copy = |secret: &[u8]| <[u8; 32]>::try_from(secret).map(Zeroizing::new).map_err(drop);
        agree(&self.key, UnparsedPublicKey::new(&X25519, peer), (), copy).ok()
    }

    fn unwrap(&self, stanza: &Stanza<'_>) -> Result<Secret16, Refusal> {
        const INFO: &[u8] = b"age-encryption.org/v1/X25519";
        const BROKEN: Refusal = Refusal::Broken("the age file has an invalid X25519 stanza");
        let ["X25519", rest @ ..] = stanza.args.as_slice() else { return Err(Refusal::NotMine) };
        let [share] = rest else { return Err(BROKEN) };
        let share = decode_base64::<32>(share).ok_or(BROKEN)?;
        if stanza.body.len() != FILE_KEY + 16 {
            return Err(BROKEN);
        }
        let shared = self.agree(&share).ok_or(BROKEN)?;
        let key = hkdf(&[share, self.public].concat(), &*shared, INFO);
        open_file_key(&key, &[0; 12], &stanza.body)
    }
}

/// Unpadded base64 of so many bytes.
fn decode_base64<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    STANDARD_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Opens a file key that was sealed with ChaCha20-Poly1305. Whether it is for this identity is known only by that.
fn open_file_key(key: &[u8; 32], nonce: &[u8; 12], sealed: &[u8]) -> Result<Secret16, Refusal> {
    let opened = file::open_chunk(key, *nonce, sealed).ok_or(Refusal::NotMine)?;
    opened
        .as_slice()
        .try_into()
        .map(Zeroizing::new)
        .map_err(|_| Refusal::Broken("a file key has a wrong length"))
}

/// HKDF with SHA-256, of as many bytes as one block has.
fn hkdf(salt: &[u8], secret: &[u8], info: &[u8]) -> Secret {
    hkdf_expand(&hkdf_extract(salt, secret), info)
}

fn hkdf_extract(salt: &[u8], secret: &[u8]) -> Secret {
    hmac_sha256(salt, secret)
}

fn hkdf_expand(key: &[u8; 32], info: &[u8]) -> Secret {
    hmac_sha256(key, &[info, &[1]].concat())
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Secret {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    let mut out = Zeroizing::new([0; 32]);
    out.iter_mut().zip(tag.as_ref()).for_each(|(byte, from)| *byte = *from);
    out
}
