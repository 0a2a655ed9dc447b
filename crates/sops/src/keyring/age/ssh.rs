//! SSH keys as age identities: Ed25519, and RSA.

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use aws_lc_rs::rsa::{OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use rsa::BigUint;
use rsa::pkcs1::DecodeRsaPrivateKey as _;
use rsa::traits::PublicKeyParts as _;
use zeroize::Zeroizing;

use super::file::Stanza;
use super::{FILE_KEY, Identity, Native, Refusal, Secret16, decode_base64, hkdf, open_file_key};

const ED25519: &str = "ssh-ed25519";
const RSA: &str = "ssh-rsa";
const ED25519_LABEL: &[u8] = b"age-encryption.org/v1/ssh-ed25519";
const RSA_LABEL: &[u8] = b"age-encryption.org/v1/ssh-rsa";

/// An Ed25519 key, as one for X25519.
pub(crate) struct Ed25519 {
    /// The public key as SSH writes it.
    wire: Vec<u8>,
    key: Native,
}

/// An RSA key.
pub(crate) struct Rsa {
    wire: Vec<u8>,
    key: OaepPrivateDecryptingKey,
}

/// What a stanza calls a key: the beginning of its hash.
fn fingerprint(wire: &[u8]) -> String {
    let hash = digest(&SHA256, wire);
    STANDARD_NO_PAD.encode(hash.as_ref().get(..4).unwrap_or_default())
}

impl Ed25519 {
    pub(super) fn unwrap(&self, stanza: &Stanza<'_>) -> Result<Secret16, Refusal> {
        const BROKEN: Refusal = Refusal::Broken("the age file has an invalid ssh-ed25519 stanza");
        let [ED25519, rest @ ..] = stanza.args.as_slice() else { return Err(Refusal::NotMine) };
        let [name, share] = rest else { return Err(BROKEN) };
        let share = decode_base64::<32>(share).ok_or(BROKEN)?;
        if *name != fingerprint(&self.wire) {
            return Err(Refusal::NotMine);
        }
        let shared = self.key.agree(&share).ok_or(BROKEN)?;
        let tweak = hkdf(&self.wire, b"", ED25519_LABEL);
        let tweaked = Native::new(&*tweak).and_then(|tweak| tweak.agree(&*shared)).ok_or(BROKEN)?;
        let key = hkdf(&[share, self.key.public].concat(), &*tweaked, ED25519_LABEL);
        open_file_key(&key, &[0; 12], &stanza.body)
    }
}

impl Rsa {
    pub(super) fn unwrap(&self, stanza: &Stanza<'_>) -> Result<Secret16, Refusal> {
        const BROKEN: Refusal = Refusal::Broken("the age file has an invalid ssh-rsa stanza");
        let [RSA, rest @ ..] = stanza.args.as_slice() else { return Err(Refusal::NotMine) };
        let [name] = rest else { return Err(BROKEN) };
        if *name != fingerprint(&self.wire) {
            return Err(Refusal::NotMine);
        }
        let mut out = Zeroizing::new(vec![0; self.key.min_output_size()]);
        let opened = self.key.decrypt(&OAEP_SHA256_MGF1SHA256, &stanza.body, &mut out, Some(RSA_LABEL));
        let opened = opened.map_err(|_| BROKEN)?;
        <[u8; FILE_KEY]>::try_from(&*opened).map(Zeroizing::new).map_err(|_| BROKEN)
    }
}

/// Reads a private key in OpenSSH's own format, or in that of PKCS #1.
pub(crate) fn identity(file: &[u8]) -> Result<Identity, String> {
    let text = std::str::from_utf8(file).map_err(|_| "not an SSH private key".to_owned())?;
    let text = text.trim();
    if text.starts_with("-----BEGIN RSA PRIVATE KEY-----") {
        let key = rsa::RsaPrivateKey::from_pkcs1_pem(text);
        let key =
            key.map_err(|_| "not a valid RSA key, or protected by a passphrase, which is not supported")?;
        return rsa_identity(&key);
    }
    let body = text
        .strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----")
        .and_then(|text| text.strip_suffix("-----END OPENSSH PRIVATE KEY-----"))
        .ok_or("not an SSH private key")?;
    let body: Zeroizing<String> = Zeroizing::new(body.chars().filter(|c| !c.is_ascii_whitespace()).collect());
    let bytes = STANDARD.decode(body.as_bytes()).map_err(|_| "not an SSH private key".to_owned())?;
    let bytes = Zeroizing::new(bytes);
    openssh(&bytes).ok_or_else(|| "not a valid SSH private key".to_owned())?
}

/// What is left of a key; all parts have their lengths before them.
struct Reader<'k>(&'k [u8]);

impl<'k> Reader<'k> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn part(&mut self) -> Option<&'k [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(part)
    }
}

/// None where it is cut or otherwise no key at all.
fn openssh(bytes: &[u8]) -> Option<Result<Identity, String>> {
    let mut reader = Reader(bytes.strip_prefix(b"openssh-key-v1\0")?);
    let cipher = reader.part()?;
    reader.part()?;
    reader.part()?;
    if cipher != b"none" {
        return Some(Err("the key is protected by a passphrase, which is not supported".into()));
    }
    if reader.number()? != 1 {
        return Some(Err("the file contains several keys".into()));
    }
    let wire = reader.part()?;
    let mut private = Reader(reader.part()?);
    if private.number()? != private.number()? {
        return None;
    }
    match private.part()? {
        b"ssh-ed25519" => {
            let public = private.part()?;
            let (seed, rest) = private.part()?.split_first_chunk::<32>()?;
            if rest != public {
                return None;
            }
            let hash = digest(&SHA512, seed);
            // What an X25519 key leaves out of it is done by whoever multiplies.
            let scalar = Zeroizing::new(<[u8; 32]>::try_from(hash.as_ref().get(..32)?).ok()?);
            Some(Ok(Identity::SshEd25519(Ed25519 { wire: wire.to_vec(), key: Native::new(&*scalar)? })))
        }
        b"ssh-rsa" => {
            let mut number = || private.part().map(BigUint::from_bytes_be);
            let (n, e, d, _, p, q) = (number()?, number()?, number()?, number()?, number()?, number()?);
            let key = rsa::RsaPrivateKey::from_components(n, e, d, vec![p, q]).ok()?;
            Some(rsa_identity(&key))
        }
        _ => Some(Err("this kind of SSH key is not supported: age supports Ed25519 and RSA".into())),
    }
}

fn rsa_identity(key: &rsa::RsaPrivateKey) -> Result<Identity, String> {
    let mut wire = Vec::new();
    for part in [RSA.as_bytes(), &positive(key.e()), &positive(key.n())] {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        wire.extend_from_slice(&length.to_be_bytes());
        wire.extend_from_slice(part);
    }
    let native = crate::keyring::rsa::native(key)?;
    let key = OaepPrivateDecryptingKey::new(native).map_err(|_| "not a valid RSA key".to_owned())?;
    Ok(Identity::SshRsa(Box::new(Rsa { wire, key })))
}

/// A number whose first bit is not taken for its sign.
fn positive(number: &BigUint) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    let sign = bytes.first().is_some_and(|byte| *byte >= 0x80);
    std::iter::repeat_n(0, usize::from(sign)).chain(bytes).collect()
}
