//! Master keys that are at hand: age identities, SSH keys and OpenPGP keyrings.

mod age;
mod openpgp;
mod rsa;

use std::fmt;

use crate::keys::{DataKey, KeyError, KeyProvider, MasterKey};

/// Bytes of one entry.
const ENTRY_BYTES: usize = 1 << 20;

/// The keys of a decryption Secret, or files of the same names.
#[derive(Default)]
pub struct KeyRing {
    identities: Vec<age::Identity>,
    keyring: openpgp::Keyring,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyRing({} age identities, {} OpenPGP keys)", self.identities.len(), self.keyring.len())
    }
}

/// Why an entry could not be imported. It holds nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot import the key {name:?}: {reason}")]
pub struct ImportError {
    name: String,
    reason: String,
}

impl KeyRing {
    /// Adds what an entry of a decryption Secret holds: `*.agekey` age identities, `*.asc` OpenPGP keys. Gives false for other
    /// names, which are not looked at.
    ///
    /// # Errors
    /// The entry is not what its name says.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<bool, ImportError> {
        let error = |reason: String| ImportError { name: crate::error::shown(name), reason };
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        if !matches!(extension, Some("agekey" | "asc")) {
            return Ok(false);
        }
        if bytes.len() > ENTRY_BYTES {
            return Err(error(format!("it has more than {ENTRY_BYTES} bytes")));
        }
        if extension == Some("agekey") {
            self.identities.extend(age::identities(bytes).map_err(error)?);
        } else {
            self.keyring.add(bytes).map_err(error)?;
        }
        Ok(true)
    }

    /// Adds an SSH private key, for files that were encrypted to it with age. A decryption Secret cannot hold one.
    ///
    /// # Errors
    /// It is none, is protected by a passphrase, or of a kind that age does not know.
    pub fn add_ssh(&mut self, name: &str, bytes: &[u8]) -> Result<(), ImportError> {
        let error = |reason: String| ImportError { name: crate::error::shown(name), reason };
        if bytes.len() > ENTRY_BYTES {
            return Err(error(format!("it has more than {ENTRY_BYTES} bytes")));
        }
        self.identities.push(age::ssh_identity(bytes).map_err(error)?);
        Ok(())
    }

    /// Is it a private key as SSH keeps them, by how it begins?
    pub fn is_ssh(bytes: &[u8]) -> bool {
        [&b"-----BEGIN OPENSSH PRIVATE KEY-----"[..], b"-----BEGIN RSA PRIVATE KEY-----"]
            .iter()
            .any(|start| bytes.trim_ascii_start().starts_with(start))
    }
}

impl KeyProvider for KeyRing {
    fn unwrap(&self, key: &MasterKey) -> Result<Option<DataKey>, KeyError> {
        match key {
            MasterKey::Age { enc, .. } => age::unwrap(enc, &self.identities),
            MasterKey::Pgp { enc, .. } => self.keyring.unwrap(enc),
            _ => Ok(None),
        }
    }
}
