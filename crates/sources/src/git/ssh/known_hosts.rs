//! `known_hosts`: which keys a host may show, as `ssh-keyscan` writes it and OpenSSH reads it.
//!
//! A line that cannot be read makes the whole text invalid: whoever wrote it meant something by it, and to pass over a
//! line could mean to pass over a revocation. Lines with kinds of keys that are not supported are kept for messages.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russh::keys::{PublicKey, ssh_key};

/// The longest text, in bytes. One host's keys take some hundreds; GitHub's, GitLab's and Bitbucket's together two thousand.
pub const MOST_KNOWN_HOSTS: usize = 256 << 10;
/// The longest list of patterns of one line. OpenSSH takes no pattern longer than this either.
const MOST_PATTERNS: usize = 1_024;
const SSH_PORT: u16 = 22;

/// The lines of a `known_hosts`.
#[derive(Debug, Default)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

/// Why a text is not a `known_hosts`. Shows nothing of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnownHostsError {
    /// Longer than is read.
    #[error("it is longer than {MOST_KNOWN_HOSTS} bytes")]
    TooLong,
    /// One of its lines cannot be read.
    #[error("line {number}: {why}")]
    Line {
        /// Which, counted from one.
        number: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

#[derive(Debug)]
struct Line {
    marker: Option<Marker>,
    hosts: Hosts,
    key: Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Authority,
    Revoked,
}

#[derive(Debug)]
enum Hosts {
    /// The name's HMAC under a salt, so that the file does not show which hosts its owner uses.
    Hashed { salt: Vec<u8>, tag: Vec<u8> },
    /// In small letters.
    Patterns(Vec<Pattern>),
}

#[derive(Debug)]
struct Pattern {
    negated: bool,
    text: String,
}

#[derive(Debug)]
enum Key {
    Supported(PublicKey),
    /// By its kind's name.
    Other(String),
}

impl KnownHosts {
    /// Reads the text.
    ///
    /// # Errors
    /// [`KnownHostsError`].
    pub fn parse(text: &str) -> Result<Self, KnownHostsError> {
        if text.len() > MOST_KNOWN_HOSTS {
            return Err(KnownHostsError::TooLong);
        }
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_matches([' ', '\t', '\r']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = Line::parse(line);
            lines.push(read.map_err(|why| KnownHostsError::Line { number: index + 1, why })?);
        }
        Ok(Self { lines })
    }

    /// What it says of a host, by name or by address without brackets.
    #[must_use]
    pub fn trust(&self, host: &str, port: u16) -> Trust {
        let host = host.to_ascii_lowercase();
        let name = in_file(&host, port).into_owned();
        let mut trust = Trust { host, name, ..Trust::default() };
        for line in &self.lines {
            let is_of_the_host = line.hosts.have(&trust.name);
            match (line.marker, &line.key) {
                // Whoever lost a key lost it for all hosts that it was for.
                (Some(Marker::Revoked), Key::Supported(key)) => trust.revoked.push(key.clone()),
                (Some(Marker::Authority), Key::Supported(key)) if is_of_the_host => {
                    trust.authorities.push(key.clone());
                }
                (None, Key::Supported(key)) if is_of_the_host => trust.keys.push(key.clone()),
                (None | Some(Marker::Authority), Key::Other(kind)) if is_of_the_host => {
                    trust.unsupported.push(kind.clone());
                }
                _ => {}
            }
        }
        trust
    }
}

impl Line {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let mut hosts = words.next().unwrap_or_default();
        let mut marker = None;
        if hosts.starts_with('@') {
            marker = Some(match hosts {
                "@cert-authority" => Marker::Authority,
                "@revoked" => Marker::Revoked,
                _ => return Err("the marker is neither @cert-authority nor @revoked"),
            });
            hosts = words.next().ok_or("there are no hosts after the marker")?;
        }
        let kind = words.next().ok_or("there is no key after the hosts")?;
        let key = words.next().ok_or("there is no key after its kind")?;
        Ok(Self { marker, hosts: Hosts::parse(hosts)?, key: Key::parse(kind, key)? })
    }
}

impl Hosts {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(hashed) = text.strip_prefix('|') {
            let wrong = "a hashed host is |1|SALT|HASH, each in base64";
            let mut parts = hashed.split('|');
            let (Some("1"), Some(salt), Some(tag), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(wrong);
            };
            let (salt, tag) =
                (STANDARD.decode(salt).map_err(|_| wrong)?, STANDARD.decode(tag).map_err(|_| wrong)?);
            return if salt.len() == 20 && tag.len() == 20 {
                Ok(Self::Hashed { salt, tag })
            } else {
                Err(wrong)
            };
        }
        if text.len() > MOST_PATTERNS {
            return Err("its hosts are longer than 1024 bytes");
        }
        let patterns = text.split(',').filter(|text| !text.is_empty()).map(|text| {
            let (negated, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
            let text = text.to_ascii_lowercase();
            // The port of SSH itself is written by nobody's program, and means the same.
            let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix("]:22")).map(str::to_owned);
            Pattern { negated, text: plain.unwrap_or(text) }
        });
        Ok(Self::Patterns(patterns.collect()))
    }

    /// Whether it is about the host that a file names so.
    fn have(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, tag } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), tag).is_ok()
            }
            Self::Patterns(patterns) => {
                let mut matches = patterns.iter().filter(|pattern| is_like(name, &pattern.text)).peekable();
                matches.peek().is_some() && matches.all(|pattern| !pattern.negated)
            }
        }
    }
}

impl Key {
    fn parse(kind: &str, key: &str) -> Result<Self, &'static str> {
        let bytes = STANDARD.decode(key).map_err(|_| "its key is not base64")?;
        // It says its own kind once more.
        let length = bytes.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
        let inner = bytes.get(4..).and_then(|rest| rest.get(..length));
        if inner != Some(kind.as_bytes()) {
            return Err("its key is not of the kind that it names");
        }
        let supported = kind == "ssh-rsa" || kind == "ssh-ed25519" || kind.starts_with("ecdsa-sha2-nistp");
        if !supported {
            return Ok(Self::Other(kind.chars().filter(char::is_ascii_graphic).take(64).collect()));
        }
        PublicKey::from_bytes(&bytes).map(Self::Supported).map_err(|_| "its key cannot be read")
    }
}

/// The name of a host in a file.
fn in_file(host: &str, port: u16) -> Cow<'_, str> {
    if port == SSH_PORT { Cow::Borrowed(host) } else { Cow::Owned(format!("[{host}]:{port}")) }
}

/// Whether `text` is like `pattern`, in which `*` stands for anything and `?` for one character. Both are short.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (mut at, mut next) = (0, 0);
    // Where the last star is, and how far the text was then.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(c) if *c == b'?' || *c == text[at] => {
                at += 1;
                next += 1;
            }
            _ => match &mut star {
                Some((place, reached)) => {
                    *reached += 1;
                    (at, next) = (*reached, *place + 1);
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|c| *c == b'*')
}

/// What a `known_hosts` says of one host.
#[derive(Debug, Default)]
pub struct Trust {
    /// In small letters.
    host: String,
    /// The host as the file names it.
    name: String,
    keys: Vec<PublicKey>,
    authorities: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
    unsupported: Vec<String>,
}

/// Why a host is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distrust {
    /// There is no line for it; these kinds of keys were passed over.
    Unknown(Vec<String>),
    /// It showed a key that none of its lines has, by fingerprint.
    Changed(String),
    /// It showed a revoked key, or one that is signed by one.
    Revoked(String),
    /// It showed a certificate of a trusted authority that is not for it, or not for now.
    Certificate(&'static str),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(kinds) => {
                f.write_str("knownhosts: key is unknown: no line of known_hosts is for this host and port")?;
                match kinds.as_slice() {
                    [] => Ok(()),
                    kinds => write!(f, " with a supported kind of key (only {})", kinds.join(", ")),
                }
            }
            Self::Changed(key) => {
                write!(
                    f,
                    "knownhosts: key mismatch: the server showed {key}, which known_hosts does not have for it"
                )
            }
            Self::Revoked(key) => write!(f, "knownhosts: key is revoked: the server showed {key}"),
            Self::Certificate(why) => write!(f, "knownhosts: the server's certificate is not valid: {why}"),
        }
    }
}

impl Trust {
    /// The host as the file names it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a key or an authority for it.
    ///
    /// # Errors
    /// [`Distrust::Unknown`].
    pub fn is_known(&self) -> Result<(), Distrust> {
        if self.keys.is_empty() && self.authorities.is_empty() {
            return Err(Distrust::Unknown(self.unsupported.clone()));
        }
        Ok(())
    }

    /// Its plain keys.
    #[must_use]
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Whether it may show certificates of somebody's.
    #[must_use]
    pub fn has_authorities(&self) -> bool {
        !self.authorities.is_empty()
    }

    /// Whether it may show this key.
    ///
    /// # Errors
    /// Why not.
    pub fn check_key(&self, key: &PublicKey) -> Result<(), Distrust> {
        if has(&self.revoked, key) {
            Err(Distrust::Revoked(fingerprint(key)))
        } else if has(&self.keys, key) {
            Ok(())
        } else {
            Err(Distrust::Changed(fingerprint(key)))
        }
    }

    /// Whether it may show this certificate at a time in seconds since 1970. A certificate of nobody known counts as its key.
    ///
    /// # Errors
    /// Why not.
    pub fn check_certificate(&self, shown: &ssh_key::Certificate, now: u64) -> Result<(), Distrust> {
        let key = PublicKey::new(shown.public_key().clone(), "");
        let authority = PublicKey::new(shown.signature_key().clone(), "");
        for one in [&key, &authority] {
            if has(&self.revoked, one) {
                return Err(Distrust::Revoked(fingerprint(one)));
            }
        }
        if !has(&self.authorities, &authority) {
            return self.check_key(&key);
        }
        let wrong = |why| Err(Distrust::Certificate(why));
        if shown.cert_type() != ssh_key::certificate::CertType::Host {
            return wrong("it is not one of a host");
        }
        if !shown.valid_principals().iter().any(|name| is_like(&self.host, &name.to_ascii_lowercase())) {
            return wrong("it is for other hosts");
        }
        if !shown.critical_options().is_empty() {
            return wrong("it has critical options, and none are known for hosts");
        }
        if shown.signature().algorithm() == (ssh_key::Algorithm::Rsa { hash: None }) {
            return wrong("it is signed with SHA-1");
        }
        let fingerprint = authority.fingerprint(ssh_key::HashAlg::Sha256);
        match shown.validate_at(now, [&fingerprint]) {
            Ok(()) => Ok(()),
            Err(_) if now < shown.valid_after() || now >= shown.valid_before() => {
                wrong("it is expired or not valid yet")
            }
            Err(_) => wrong("its signature is not its authority's"),
        }
    }
}

fn has(keys: &[PublicKey], key: &PublicKey) -> bool {
    // Without their comments.
    keys.iter().any(|one| one.key_data() == key.key_data())
}

/// `ED25519 key SHA256:…`
pub(super) fn fingerprint(key: &PublicKey) -> String {
    format!("{} key {}", key.algorithm().as_str(), key.fingerprint(ssh_key::HashAlg::Sha256))
}

#[cfg(test)]
mod tests;
