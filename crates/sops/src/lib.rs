//! Files and objects that were encrypted with SOPS, decrypted.
//!
//! A file is a tree of values. Each value that its rules select is encrypted with the file's *data key*, bound to the names on
//! the way to it; the data key is wrapped with *master keys*, any one of which suffices, or any so many groups of them. A MAC
//! over all values shows that none was changed, left out or added. All of SOPS's formats, versions and value types are read,
//! and what is written is what `sops --decrypt` writes, byte by byte.
//!
//! The crate is pure. Who holds a master key is a [`KeyProvider`]: [`KeyRing`] has age and OpenPGP keys, what speaks to key
//! services lies elsewhere. What comes from a file is bounded by [`Limits`] before it is parsed; what was decrypted is not printed and
//! wiped when it goes, and no error holds any of it.
//!
//! ```no_run
//! use roadstead_sops::{Format, KeyRing, Options, decrypt};
//!
//! # fn read(_: &str) -> Vec<u8> { Vec::new() }
//! let mut keys = KeyRing::default();
//! keys.add("prod.agekey", &read("prod.agekey"))?;
//! let file = decrypt(&read("secret.yaml"), &Options::new(Format::Yaml), &keys)?;
//! # let _ = file.bytes;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffer;
mod error;
mod flat;
mod format;
mod gcm;
mod inspect;
mod keyring;
mod keys;
mod limits;
mod metadata;
mod number;
mod object;
mod rules;
mod shamir;
mod time;
mod tree;
mod value;
mod walk;
mod yaml;

use zeroize::Zeroizing;

pub use error::{Class, Error, MacProblem, Place, ValueProblem};
pub use format::Format;
pub use inspect::{Inspection, inspect};
pub use keyring::{ImportError, KeyRing};
pub use keys::{
    DataKey, DataKeys, GroupResult, KeyError, KeyProvider, KeyResult, MasterKey, NoDataKey, UnwrappedKeys,
    WrappedKey,
};
pub use limits::Limits;
pub use metadata::Metadata;
pub use object::{
    DecryptedObject, ObjectError, decrypt_object, is_left_encrypted, is_marked, object_metadata,
};
pub use shamir::ShareError;

/// What a MAC that does not fit leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacPolicy {
    /// An error.
    #[default]
    Verify,
    /// A decrypted file, and a word about it.
    Warn,
    /// Nothing, as in Flux.
    Ignore,
}

/// How a file is decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How it is read.
    pub input: Format,
    /// How it is written.
    pub output: Format,
    /// Whether it may have been changed.
    pub mac: MacPolicy,
    /// How much it may take.
    pub limits: Limits,
}

impl Options {
    /// Reads and writes one format, and verifies the MAC.
    pub fn new(format: Format) -> Self {
        Self { input: format, output: format, mac: MacPolicy::Verify, limits: Limits::default() }
    }
}

/// A decrypted file. Debugging shows no bytes of it.
pub struct Decrypted {
    /// What it holds.
    pub bytes: Zeroizing<Vec<u8>>,
    /// What is wrong with its MAC, where the policy is to warn.
    pub warning: Option<MacProblem>,
}

impl std::fmt::Debug for Decrypted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decrypted({} bytes, {:?})", self.bytes.len(), self.warning)
    }
}

/// Decrypts a file.
///
/// # Errors
/// It is not valid, its data key cannot be recovered, a value does not open, the MAC does not fit, or it cannot be written in the
/// format that was asked for.
pub fn decrypt(file: &[u8], options: &Options, keys: &(impl DataKeys + ?Sized)) -> Result<Decrypted, Error> {
    let (mut documents, metadata) = read(file, options.input, &options.limits)?;
    let key = keys.data_key(metadata.wrapped())?;
    let mac = walk::decrypt(&mut documents, &metadata, &key, &mut walk::Nobody)?;
    let warning = match (mac, options.mac) {
        (Err(problem), MacPolicy::Verify) => return Err(Error::Mac(problem)),
        (Err(problem), MacPolicy::Warn) => Some(problem),
        _ => None,
    };
    let bytes = format::write(options.output, &documents)?;
    Ok(Decrypted { bytes, warning })
}

/// Reads what a file says about its encryption, and decrypts nothing.
///
/// # Errors
/// It is not valid or not encrypted.
pub fn read_metadata(file: &[u8], format: Format, limits: &Limits) -> Result<Metadata, Error> {
    read(file, format, limits).map(|(_, metadata)| metadata)
}

fn read(file: &[u8], format: Format, limits: &Limits) -> Result<(Vec<tree::Map>, Metadata), Error> {
    if file.len() > limits.file_bytes {
        return Err(Error::TooLarge { what: "bytes in the file", limit: limits.file_bytes });
    }
    let mut documents = format::read(format, file, limits)?;
    let metadata = Metadata::extract(format, &mut documents, limits)?;
    Ok((documents, metadata))
}
