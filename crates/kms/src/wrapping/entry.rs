//! The lines of a key file: a key as it is, or an envelope, in which a key service has wrapped it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::KeyBytes;
use crate::address::Address;
use crate::{aws, vault};

/// Of a line. What the largest RSA keys of a Vault give out takes some 700, an address at most 2,048.
pub const ENTRY_BYTES: usize = 4096;
/// What the lines of envelopes begin with.
const AWS: &str = "aws-kms:";
const VAULT: &str = "vault-transit:";
/// Between the address of a Vault and the path of its engine.
const API: &str = "/v1/";

/// A key of a key service, by which others are wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrappingKey {
    /// Of AWS KMS.
    AwsKms {
        /// Its ARN, or that of an alias.
        arn: String,
    },
    /// Of the transit engine of Vault or OpenBao.
    VaultTransit {
        /// Where the server is.
        address: Address,
        /// Where the engine is mounted.
        engine: String,
        /// The key.
        name: String,
    },
}

/// Not what names a key of a key service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWrappingKey {
    /// Not an ARN.
    #[error(
        "{0:?} is not the ARN of an AWS KMS key: want arn:aws:kms:REGION:ACCOUNT:key/ID or arn:aws:kms:REGION:ACCOUNT:alias/NAME"
    )]
    Arn(String),
    /// Not a URL of a key.
    #[error(
        "{0:?} is not the URL of a key of a transit engine: want https://HOST[:PORT]/v1/MOUNT/keys/NAME, such as \
         https://vault.example:8200/v1/transit/keys/roadstead"
    )]
    Url(String),
}

impl WrappingKey {
    /// The key of AWS KMS that has this ARN.
    ///
    /// # Errors
    /// It is not one.
    pub fn aws_kms(arn: &str) -> Result<Self, BadWrappingKey> {
        if arn.len() > ENTRY_BYTES || !aws::is_key(arn) || arn.contains(|c: char| !c.is_ascii_graphic()) {
            return Err(BadWrappingKey::Arn(start_of(arn)));
        }
        Ok(Self::AwsKms { arn: arn.to_owned() })
    }

    /// The key of a transit engine that has this URL: `https://HOST[:PORT]/v1/MOUNT/keys/NAME`, as `sops` has it.
    ///
    /// # Errors
    /// It is not one.
    pub fn vault_transit(url: &str) -> Result<Self, BadWrappingKey> {
        let bad = || BadWrappingKey::Url(start_of(url));
        if url.len() > ENTRY_BYTES {
            return Err(bad());
        }
        let (address, path) = url.split_once(API).ok_or_else(bad)?;
        let (engine, name) = path.rsplit_once("/keys/").ok_or_else(bad)?;
        let engine = vault::path(engine).ok_or_else(bad)?;
        let name = vault::path(name).filter(|name| !name.contains('/')).ok_or_else(bad)?;
        let address = Address::parse(address).map_err(|_| bad())?;
        Ok(Self::VaultTransit { address, engine, name })
    }

    /// The address that it names, where it names one.
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        match self {
            Self::AwsKms { .. } => None,
            Self::VaultTransit { address, .. } => Some(address),
        }
    }
}

/// The start of a text, for messages.
fn start_of(text: &str) -> String {
    text.chars().take(200).collect()
}

impl fmt::Display for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwsKms { arn } => write!(f, "the AWS KMS key {arn}"),
            Self::VaultTransit { address, engine, name } => {
                write!(f, "the Vault transit key {address}{API}{engine}/keys/{name}")
            }
        }
    }
}

/// A key that a key service has wrapped. As text it is a line of a key file, and holds nothing that opens anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// By what it was wrapped.
    pub by: WrappingKey,
    /// What the service made of it.
    pub(crate) ciphertext: String,
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ciphertext = &self.ciphertext;
        match &self.by {
            WrappingKey::AwsKms { arn } => write!(f, "{AWS}{arn}:{ciphertext}"),
            WrappingKey::VaultTransit { address, engine, name } => {
                write!(f, "{VAULT}{address}{API}{engine}/keys/{name}:{ciphertext}")
            }
        }
    }
}

/// A line of a key file. Debugging shows no key.
pub enum Entry {
    /// A key as it is, in base64.
    Plain(KeyBytes),
    /// A wrapped one.
    Wrapped(Envelope),
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(…)"),
            Self::Wrapped(envelope) => f.debug_tuple("Wrapped").field(envelope).finish(),
        }
    }
}

/// Not a line of a key file. It holds nothing of the line that may be of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// Neither the one nor the other.
    #[error(
        "want 32 bytes in base64, or an envelope (aws-kms:ARN:CIPHERTEXT or vault-transit:URL:CIPHERTEXT, made by roadstead-hub \
         wrap-key)"
    )]
    Unknown,
    /// Too long.
    #[error("the line has more than {ENTRY_BYTES} bytes")]
    TooLong,
    /// An envelope of a key that cannot be.
    #[error("the envelope names no key: {0}")]
    Key(#[from] BadWrappingKey),
    /// An envelope without what it is for.
    #[error(
        "the envelope of {0} does not end with a ciphertext of that service: it was cut or changed, restore the file from its backup"
    )]
    Ciphertext(Box<WrappingKey>),
}

impl Entry {
    /// Reads a line, without space around it.
    ///
    /// # Errors
    /// It is neither a key nor an envelope.
    pub fn parse(line: &str) -> Result<Self, BadEntry> {
        if line.len() > ENTRY_BYTES {
            return Err(BadEntry::TooLong);
        }
        if let Some(rest) = line.strip_prefix(AWS) {
            let (arn, ciphertext) = rest.rsplit_once(':').unwrap_or((rest, ""));
            let by = WrappingKey::aws_kms(arn)?;
            return envelope(by, ciphertext, |text| {
                STANDARD.decode(text).is_ok_and(|bytes| !bytes.is_empty())
            });
        }
        if let Some(rest) = line.strip_prefix(VAULT) {
            let (url, ciphertext) = match rest.rfind(":vault:v") {
                Some(at) => (rest.get(..at).unwrap_or(rest), rest.get(at + 1..).unwrap_or_default()),
                None => (rest, ""),
            };
            return envelope(WrappingKey::vault_transit(url)?, ciphertext, vault::is_ciphertext);
        }
        plain(line).map(Self::Plain).ok_or(BadEntry::Unknown)
    }
}

fn envelope(by: WrappingKey, ciphertext: &str, is: impl Fn(&str) -> bool) -> Result<Entry, BadEntry> {
    if is(ciphertext) {
        Ok(Entry::Wrapped(Envelope { by, ciphertext: ciphertext.to_owned() }))
    } else {
        Err(BadEntry::Ciphertext(Box::new(by)))
    }
}

fn plain(text: &str) -> Option<KeyBytes> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    let mut key = KeyBytes::default();
    if bytes.len() != key.len() {
        return None;
    }
    key.copy_from_slice(&bytes);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:kms:eu-central-1:123456789012:key/1-2";
    const URL: &str = "https://vault.example:8200/v1/team/transit/keys/hub";

    fn wrapped(line: &str) -> Envelope {
        match Entry::parse(line) {
            Ok(Entry::Wrapped(envelope)) => envelope,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn envelopes_read_as_they_are_written() {
        for line in [format!("aws-kms:{ARN}:AQID"), format!("vault-transit:{URL}:vault:v12:AQID")] {
            assert_eq!(wrapped(&line).to_string(), line);
        }
        let WrappingKey::VaultTransit { address, engine, name } =
            wrapped(&format!("vault-transit:{URL}:vault:v1:AQID")).by
        else {
            panic!("another service");
        };
        assert_eq!(
            (address.to_string().as_str(), engine.as_str(), name.as_str()),
            ("https://vault.example:8200", "team/transit", "hub")
        );
    }

    #[test]
    fn plain_keys_are_32_bytes_and_are_not_shown() {
        let text = STANDARD.encode([7; 32]);
        let entry = Entry::parse(&text).unwrap();
        assert_eq!(format!("{entry:?}"), "Plain(…)");
        assert!(matches!(entry, Entry::Plain(key) if *key == [7; 32]));
        for bad in ["", "c2hvcnQ=", &STANDARD.encode([7; 33]), &text[..40], "aws-kms", "gcp-kms:x:y"] {
            assert_eq!(Entry::parse(bad).unwrap_err(), BadEntry::Unknown, "{bad}");
        }
        assert_eq!(Entry::parse(&"A".repeat(ENTRY_BYTES + 1)).unwrap_err(), BadEntry::TooLong);
    }

    #[test]
    fn envelopes_that_were_cut_or_name_nothing() {
        for bad in [
            format!("aws-kms:{ARN}"),
            format!("aws-kms:{ARN}:"),
            format!("aws-kms:{ARN}:AQI"),
            "aws-kms:".to_owned(),
            "aws-kms:arn:aws:s3:::x:AQID".to_owned(),
            format!("vault-transit:{URL}"),
            format!("vault-transit:{URL}:vault:v1:"),
            format!("vault-transit:{URL}:vault:vx:AQID"),
            format!("vault-transit:{URL}:vault:v1:AQI"),
            "vault-transit:https://u:p@vault.example/v1/transit/keys/hub:vault:v1:AQID".to_owned(),
            "vault-transit:https://vault.example/v1/../keys/hub:vault:v1:AQID".to_owned(),
            "vault-transit:https://vault.example/transit/keys/hub:vault:v1:AQID".to_owned(),
        ] {
            assert!(matches!(Entry::parse(&bad), Err(BadEntry::Key(_) | BadEntry::Ciphertext(_))), "{bad}");
        }
    }
}
