//! Post-quantum identities: ML-KEM-768 and X25519 together (X-Wing), by HPKE.

use aws_lc_rs::digest::{SHA3_256, digest};
use ml_kem::kem::Decapsulate as _;
use ml_kem::{DecapsulationKey768, Seed};
use shake::Shake256;
use shake::digest::{ExtendableOutput as _, Update as _, XofReader as _};
use zeroize::Zeroizing;

use super::file::Stanza;
use super::{
    FILE_KEY, Native, Refusal, Secret, Secret16, decode_base64, hkdf_expand, hkdf_extract, open_file_key,
};

const KIND: &str = "mlkem768x25519";
const INFO: &[u8] = b"age-encryption.org/mlkem768x25519";
/// Bytes of what ML-KEM-768 encapsulates a key in.
const ENCAPSULATED: usize = 1088;
const SHARE: usize = 32;
/// Both together.
const BOTH: usize = ENCAPSULATED + SHARE;

/// An identity.
pub(crate) struct Key {
    lattice: DecapsulationKey768,
    curve: Native,
}

impl Key {
    /// The identity that grows from a seed.
    pub(super) fn new(seed: &[u8]) -> Option<Self> {
        if seed.len() != 32 {
            return None;
        }
        let mut expanded = Zeroizing::new([0; 96]);
        let mut shake = Shake256::default();
        shake.update(seed);
        shake.finalize_xof().read(&mut *expanded);
        let (lattice, curve) = expanded.split_at(64);
        let mut lattice = Seed::try_from(lattice).ok()?;
        let key = Self { lattice: DecapsulationKey768::from_seed(lattice), curve: Native::new(curve)? };
        zeroize::Zeroize::zeroize(lattice.as_mut_slice());
        Some(key)
    }

    pub(super) fn unwrap(&self, stanza: &Stanza<'_>) -> Result<Secret16, Refusal> {
        const BROKEN: Refusal = Refusal::Broken("the age file has an invalid mlkem768x25519 stanza");
        let [KIND, rest @ ..] = stanza.args.as_slice() else { return Err(Refusal::NotMine) };
        let [encapsulated] = rest else { return Err(BROKEN) };
        let encapsulated = decode_base64::<BOTH>(encapsulated).ok_or(BROKEN)?;
        if stanza.body.len() != FILE_KEY + 16 {
            return Err(BROKEN);
        }
        let shared = self.decapsulate(&encapsulated).ok_or(BROKEN)?;
        let (key, nonce) = schedule(&shared);
        open_file_key(&key, &nonce, &stanza.body)
    }

    /// X-Wing: both secrets, hashed with what makes them belong together.
    fn decapsulate(&self, encapsulated: &[u8; BOTH]) -> Option<Secret> {
        let (lattice, curve) = encapsulated.split_at_checked(ENCAPSULATED)?;
        let lattice = ml_kem::ml_kem_768::Ciphertext::try_from(lattice).ok()?;
        let from_lattice = Zeroizing::new(<[u8; 32]>::from(self.lattice.decapsulate(&lattice)));
        let from_curve = self.curve.agree(curve)?;
        let parts = [&*from_lattice, &*from_curve, curve, &self.curve.public, b"\\.//^\\"];
        let parts = Zeroizing::new(parts.concat());
        digest(&SHA3_256, &parts).as_ref().try_into().ok().map(Zeroizing::new)
    }
}

/// HPKE's key schedule in its base mode: the key and the nonce of the only message.
fn schedule(shared: &[u8; 32]) -> (Secret, [u8; 12]) {
    let no_psk = extract(b"", "psk_id_hash", b"");
    let info = extract(b"", "info_hash", INFO);
    let context = [&[0][..], &*no_psk, &*info].concat();
    let secret = extract(shared, "secret", b"");
    let key = expand(&secret, "key", &context, 32);
    let long = expand(&secret, "base_nonce", &context, 12);
    let mut nonce = [0; 12];
    nonce.iter_mut().zip(long.iter()).for_each(|(byte, from)| *byte = *from);
    (key, nonce)
}

/// What names the algorithms: X-Wing, HKDF-SHA256, ChaCha20-Poly1305.
const SUITE: &[u8] = b"HPKE-v1HPKE\x64\x7a\x00\x01\x00\x03";

fn extract(salt: &[u8], label: &str, secret: &[u8]) -> Secret {
    hkdf_extract(salt, &Zeroizing::new([SUITE, label.as_bytes(), secret].concat()))
}

fn expand(key: &[u8; 32], label: &str, info: &[u8], length: u8) -> Secret {
    hkdf_expand(key, &[&[0, length][..], SUITE, label.as_bytes(), info].concat())
}
