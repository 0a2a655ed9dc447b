//! OpenPGP keyrings, by rPGP.
//!
//! What GnuPG and SOPS have written is opened: all current kinds of keys, hidden recipients, compression, GnuPG's own OCB packets and
//! partial lengths. Signatures are not looked at: who encrypted says nothing. What rPGP does not know (brainpool curves, GnuPG's keys of
//! version 5) is named in the error. RSA is aws-lc's.

mod rsa;

use std::io::Read as _;
use std::sync::OnceLock;

use pgp::armor::{ArmorCrc24Status, BlockType, Dearmor};
use pgp::composed::{
    DecryptionOptions, Deserializable as _, Esk, Message, PlainSessionKey, SignedSecretKey, TheRing,
};
use pgp::packet::PublicKeyEncryptedSessionKey;
use pgp::types::{DecryptionKey, EskType, Password, PkeskBytes, PkeskVersion, PublicParams, SecretParams};
use zeroize::Zeroizing;

use crate::error::shown;
use crate::keys::{DataKey, KeyError};

/// Keys of one keyring.
const KEYS: usize = 1000;
/// Recipients of one message.
const RECIPIENTS: usize = 1024;
/// How often a private key is used on one message: each time takes milliseconds.
const ATTEMPTS: usize = 32;
/// Compressed packets within one another.
const LAYERS: usize = 4;
/// Bytes that a message may hold: a data key has 32.
const HELD: usize = 512;

/// Secret keys.
#[derive(Default)]
pub(super) struct Keyring {
    keys: Vec<Held>,
    /// Why others could not be read.
    unreadable: Vec<String>,
}

/// A secret key, and what of it aws-lc decrypts with: of the primary key, and then of each subkey.
struct Held {
    key: SignedSecretKey,
    rsa: Vec<LazyRsa>,
}

/// Made when it is first used. None where a key is not an RSA key, or is protected by a passphrase.
type LazyRsa = OnceLock<Option<Result<rsa::Key, String>>>;

impl Held {
    fn new(key: SignedSecretKey) -> Self {
        let rsa = (0..=key.secret_subkeys.len()).map(|_| OnceLock::new()).collect();
        Self { key, rsa }
    }
}

impl Keyring {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Adds the secret keys of an entry, which may have several armored blocks. Public keys are passed over.
    pub(super) fn add(&mut self, entry: &[u8]) -> Result<(), String> {
        const BEGIN: &str = "-----BEGIN PGP ";
        let text = std::str::from_utf8(entry).map_err(|_| "not an armored OpenPGP key".to_owned())?;
        let mut blocks = text.match_indices(BEGIN).map(|(at, _)| at).peekable();
        if blocks.peek().is_none() {
            return Err("not an armored OpenPGP key".into());
        }
        while let Some(at) = blocks.next() {
            let block = text.get(at..blocks.peek().copied().unwrap_or(text.len())).unwrap_or_default();
            if block.get(BEGIN.len()..).is_some_and(|kind| kind.starts_with("PRIVATE KEY BLOCK-----")) {
                self.add_block(block)?;
            }
        }
        Ok(())
    }

    fn add_block(&mut self, block: &str) -> Result<(), String> {
        let (keys, _) = SignedSecretKey::from_armor_many_buf(block.as_bytes())
            .map_err(|error| format!("its armor is malformed: {}", reason(&error)))?;
        for key in keys {
            if self.keys.len() + self.unreadable.len() >= KEYS {
                return Err(format!("the keyring holds more than {KEYS} keys"));
            }
            match key {
                Ok(key) => self.keys.push(Held::new(key)),
                // Others of the ring may be what is needed.
                Err(error) => self.unreadable.push(reason(&error)),
            }
        }
        Ok(())
    }

    /// Opens an armored message.
    pub(super) fn unwrap(&self, armored: &str) -> Result<Option<DataKey>, KeyError> {
        if self.keys.is_empty() && self.unreadable.is_empty() {
            return Ok(None);
        }
        let bytes = dearmor(armored)?;
        let recipients = recipients(&bytes)?;
        let mut search = Search { bytes: &bytes, left: ATTEMPTS, failed: None };
        for recipient in &recipients {
            for key in &self.keys {
                if let Some(found) = search.try_key(recipient, key)? {
                    return Ok(Some(found));
                }
            }
        }
        match (search.failed, self.unreadable.first()) {
            (Some(reason), _) => Err(KeyError::new(reason)),
            (None, Some(reason)) => Err(KeyError::new(format!(
                "no key in the keyring fits, and {} of its keys could not be read: {reason}",
                self.unreadable.len()
            ))),
            (None, None) => Ok(None),
        }
    }
}

/// The packets of a message. A checksum may be missing, but is right where it is there.
fn dearmor(armored: &str) -> Result<Vec<u8>, KeyError> {
    const BROKEN: &str = "the OpenPGP message's armor is malformed";
    let mut armor = Dearmor::new(armored.as_bytes());
    armor.read_header().map_err(|_| KeyError::new(BROKEN))?;
    if armor.typ != Some(BlockType::Message) {
        return Err(KeyError::new("not an OpenPGP message"));
    }
    let mut bytes = Vec::new();
    armor.read_to_end(&mut bytes).map_err(|_| KeyError::new(BROKEN))?;
    // rPGP 0.21 can check it, but always finds it wrong.
    match armor.crc24_status() {
        ArmorCrc24Status::Unchecked { footer_crc } if footer_crc != crc24(&bytes) => {
            Err(KeyError::new("the checksum of the OpenPGP message's armor does not match"))
        }
        _ => Ok(bytes),
    }
}

/// What an error says that cannot have anything of a key or of a message in it: rPGP's own words may quote what they are about.
fn reason(error: &pgp::errors::Error) -> String {
    use pgp::errors::Error;
    match error {
        Error::Unsupported { message, .. } | Error::Unimplemented { message, .. } => shown(message),
        Error::InvalidPacketContent { source } => reason(source),
        Error::MdcError => "its integrity check failed".to_owned(),
        Error::AesKw { .. } | Error::AesKek { .. } | Error::RSAError { .. } | Error::EllipticCurve { .. } => {
            "the session key cannot be unwrapped".to_owned()
        }
        Error::Aead { .. } => "its authentication failed".to_owned(),
        _ => "it is malformed, or of a kind that is not supported".to_owned(),
    }
}

/// The checksum of armor (RFC 9580, section 6.1.1).
fn crc24(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(0x00b7_04ce, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 16, |sum, _| {
            let next = sum << 1;
            if next & 0x0100_0000 == 0 { next } else { next ^ 0x0186_4cfb }
        })
    });
    sum & 0x00ff_ffff
}

fn parse(bytes: &[u8]) -> Result<Message<'_>, KeyError> {
    Message::from_bytes(bytes)
        .map_err(|error| KeyError::new(format!("not a valid OpenPGP message: {}", reason(&error))))
}

fn recipients(bytes: &[u8]) -> Result<Vec<PublicKeyEncryptedSessionKey>, KeyError> {
    let Message::Encrypted { esk, .. } = parse(bytes)? else {
        return Err(KeyError::new("the OpenPGP message is not encrypted"));
    };
    if esk.len() > RECIPIENTS {
        return Err(KeyError::new(format!("the OpenPGP message has more than {RECIPIENTS} recipients")));
    }
    let for_key = |esk| match esk {
        Esk::PublicKeyEncryptedSessionKey(esk) => Some(esk),
        Esk::SymKeyEncryptedSessionKey(_) => None,
    };
    Ok(esk.into_iter().filter_map(for_key).collect())
}

/// A primary key or a subkey.
struct Part<'k, K> {
    key: &'k K,
    secret: &'k SecretParams,
    rsa: Option<&'k LazyRsa>,
}

impl<K: DecryptionKey> Part<'_, K> {
    fn is_rsa(&self) -> bool {
        matches!(self.key.public_params(), PublicParams::RSA(_))
    }

    /// What the message is encrypted with.
    fn session_key(
        &self,
        recipient: &PublicKeyEncryptedSessionKey,
        kind: EskType,
    ) -> Result<PlainSessionKey, String> {
        let values = recipient.values().map_err(|error| reason(&error))?;
        if !self.is_rsa() {
            let opened = self.key.decrypt(&Password::empty(), values, kind);
            return opened.and_then(|opened| opened).map_err(|error| reason(&error));
        }
        let unusable = || "the session key is not one for an RSA key".to_owned();
        let PkeskBytes::Rsa { mpi } = values else { return Err(unusable()) };
        let made = self.rsa.map(|made| made.get_or_init(|| rsa::key(self.key.public_params(), self.secret)));
        match made {
            Some(Some(Ok(key))) => key.unwrap(mpi, kind).ok_or_else(|| "there is no randomness".to_owned()),
            Some(Some(Err(why))) => Err(why.clone()),
            Some(None) | None => Err(unusable()),
        }
    }
}

/// The search for the key that opens a message.
struct Search<'m> {
    bytes: &'m [u8],
    left: usize,
    /// Why a key that should have fitted did not.
    failed: Option<String>,
}

impl Search<'_> {
    fn try_key(
        &mut self,
        recipient: &PublicKeyEncryptedSessionKey,
        held: &Held,
    ) -> Result<Option<DataKey>, KeyError> {
        let mut rsa = held.rsa.iter();
        let primary = &held.key.primary_key;
        let first = rsa.next();
        if recipient.match_identity(primary.public_key()) {
            let part = Part { key: primary, secret: primary.secret_params(), rsa: first };
            let found = self.attempt(recipient, &part)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        for (subkey, rsa) in held.key.secret_subkeys.iter().zip(rsa) {
            if recipient.match_identity(subkey.key.public_key()) {
                let part = Part { key: &subkey.key, secret: subkey.key.secret_params(), rsa: Some(rsa) };
                let found = self.attempt(recipient, &part)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    fn attempt(
        &mut self,
        recipient: &PublicKeyEncryptedSessionKey,
        part: &Part<'_, impl DecryptionKey>,
    ) -> Result<Option<DataKey>, KeyError> {
        let id = part.key.legacy_key_id();
        if part.secret.is_encrypted() {
            self.failed = Some(format!("key {id:?} is protected by a passphrase, which is not supported"));
            return Ok(None);
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            KeyError::new(format!(
                "the OpenPGP message does not name its recipients, and {ATTEMPTS} attempts to decrypt it failed"
            ))
        })?;
        let kind = match recipient.version() {
            PkeskVersion::V3 => EskType::V3_4,
            PkeskVersion::V6 => EskType::V6,
            PkeskVersion::Other(_) => return Ok(None),
        };
        let opened = part.session_key(recipient, kind).and_then(|session| {
            let opened = self.open(session);
            // What is wrong with it would tell whether the padding was valid.
            opened.map_err(|error| if part.is_rsa() { rsa::NOT_OPENED.to_owned() } else { error.to_string() })
        });
        match opened {
            Ok(found) => Ok(Some(found)),
            Err(why) => {
                self.failed = Some(format!("key {id} cannot decrypt it: {why}"));
                Ok(None)
            }
        }
    }

    /// Takes the data key out of what a session key opens.
    fn open(&self, session: PlainSessionKey) -> Result<DataKey, KeyError> {
        let failed = |error: pgp::errors::Error| {
            KeyError::new(format!("the OpenPGP message cannot be decrypted: {}", reason(&error)))
        };
        let ring = TheRing {
            session_keys: vec![session],
            decrypt_options: DecryptionOptions::new().enable_gnupg_aead(),
            ..TheRing::default()
        };
        let (mut message, _) = parse(self.bytes)?.decrypt_the_ring(ring, true).map_err(failed)?;
        for _ in 0..LAYERS {
            if !message.is_compressed() {
                break;
            }
            message = message.decompress().map_err(failed)?;
        }
        if message.is_compressed() || message.is_encrypted() {
            return Err(KeyError::new("the OpenPGP message is nested too deeply"));
        }
        let mut held = Zeroizing::new(Vec::with_capacity(HELD + 1));
        let most = u64::try_from(HELD).unwrap_or(u64::MAX) + 1;
        message
            .take(most)
            .read_to_end(&mut held)
            .map_err(|_| KeyError::new("the OpenPGP message cannot be decrypted: it is malformed"))?;
        if held.len() > HELD {
            return Err(KeyError::new("the OpenPGP message contains more than a data key"));
        }
        Ok(DataKey::new(held))
    }
}
