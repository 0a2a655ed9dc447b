//! AES in Galois/counter mode with a nonce of any length.
//!
//! SOPS writes nonces of 32 bytes, and every length opens. The libraries that offer the mode take twelve bytes, or one length
//! that is known when they are compiled, so the mode is put together here from its parts as NIST SP 800-38D defines it.
//! The cipher, the counter and the hash are those of RustCrypto; the tag is compared in constant time.

use aes::cipher::generic_array::typenum::U16;
use aes::cipher::{BlockCipher, BlockEncrypt, InnerIvInit as _, KeyInit, StreamCipher as _};
use aes::{Aes128, Aes192, Aes256, Block};
use ctr::CtrCore;
use ctr::flavors::Ctr32BE;
use ghash::GHash;
use ghash::universal_hash::UniversalHash as _;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

/// Bytes of a tag.
const TAG: usize = 16;

/// Why something did not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// The key is not of a length that AES knows.
    KeyLength(usize),
    /// It was changed, belongs somewhere else, or is of another key.
    NotAuthentic,
}

/// Opens what was sealed; the tag stands at the end.
pub(crate) fn open(
    key: &[u8],
    nonce: &[u8],
    additional: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Unopened> {
    match key.len() {
        16 => open_with::<Aes128>(key, nonce, additional, sealed),
        24 => open_with::<Aes192>(key, nonce, additional, sealed),
        32 => open_with::<Aes256>(key, nonce, additional, sealed),
        other => Err(Unopened::KeyLength(other)),
    }
}

fn open_with<C>(
    key: &[u8],
    nonce: &[u8],
    additional: &[u8],
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Unopened>
where
    C: KeyInit + BlockCipher + BlockEncrypt + aes::cipher::BlockSizeUser<BlockSize = U16>,
{
    let cipher = C::new_from_slice(key).map_err(|_| Unopened::KeyLength(key.len()))?;
    let split = sealed.len().checked_sub(TAG).ok_or(Unopened::NotAuthentic)?;
    let (data, tag) = sealed.split_at_checked(split).ok_or(Unopened::NotAuthentic)?;

    let mut hash_key = Block::default();
    cipher.encrypt_block(&mut hash_key);
    let hash = GHash::new(&hash_key);
    hash_key.zeroize();
    let first = first_counter(&hash, nonce);

    let mut hashed = hash;
    hashed.update_padded(additional);
    hashed.update_padded(data);
    hashed.update(&[lengths(additional.len(), data.len())]);
    let mut expected = hashed.finalize();
    let mut mask = first;
    cipher.encrypt_block(&mut mask);
    expected.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte ^= mask);
    if !bool::from(expected.ct_eq(tag)) {
        return Err(Unopened::NotAuthentic);
    }

    let mut opened = Zeroizing::new(data.to_vec());
    let mut counter = first;
    // The first block of the counter made the tag.
    let [.., a, b, c, d] = &mut counter[..] else { return Err(Unopened::NotAuthentic) };
    let next = u32::from_be_bytes([*a, *b, *c, *d]).wrapping_add(1).to_be_bytes();
    [*a, *b, *c, *d] = next;
    let core = CtrCore::<C, Ctr32BE>::inner_iv_init(cipher, &counter);
    aes::cipher::StreamCipherCoreWrapper::from_core(core)
        .try_apply_keystream(&mut opened)
        .map_err(|_| Unopened::NotAuthentic)?;
    Ok(opened)
}

/// Where the counter begins: at a nonce of twelve bytes itself, else at its hash.
fn first_counter(hash: &GHash, nonce: &[u8]) -> Block {
    if let Ok(nonce) = <[u8; 12]>::try_from(nonce) {
        let mut block = Block::default();
        block.iter_mut().zip(nonce.iter().chain(&[0, 0, 0, 1])).for_each(|(byte, from)| *byte = *from);
        return block;
    }
    let mut hash = hash.clone();
    hash.update_padded(nonce);
    hash.update(&[lengths(0, nonce.len())]);
    hash.finalize()
}

/// Two lengths in bits.
fn lengths(first: usize, second: usize) -> Block {
    let bits = |bytes: usize| (bytes as u64).wrapping_mul(8).to_be_bytes();
    let mut block = Block::default();
    block.iter_mut().zip(bits(first).into_iter().chain(bits(second))).for_each(|(byte, from)| *byte = from);
    block
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Test cases 5, 6 and 18 of the mode's first publication: nonces of 8 and of 60 bytes.
    #[test]
    fn nonces_of_other_lengths() {
        let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525\
                     b16aedf5aa0de657ba637b39";
        let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let long = "9313225df88406e555909c5aff5269aa6a7a9538534f7da1e4c303d2a318a728c3c0c95156809539fcf0e2429a6b5254\
                    16aedbf5a0de6a57a637b39b";
        let cases = [
            (
                "feffe9928665731c6d6a8f9467308308",
                "cafebabefacedbad",
                "61353b4c2806934a777ff51fa22a4755699b2a714fcdc6f83766e5f97b6c742373806900e49f24b22b097544d4896b42\
                 4989b5e1ebac0f07c23f4598",
                "3612d2e79e3b0785561be14aaca2fccb",
            ),
            (
                "feffe9928665731c6d6a8f9467308308",
                long,
                "8ce24998625615b603a033aca13fb894be9112a5c3a211a8ba262a3cca7e2ca701e4a9a4fba43c90ccdcb281d48c7c6f\
                 d62875d2aca417034c34aee5",
                "619cc5aefffe0bfa462af43c1699d050",
            ),
            (
                "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
                long,
                "5a8def2f0c9e53f1f75d7853659e2a20eeb2b22aafde6419a058ab4f6f746bf40fc0c3b780f244452da3ebf1c5d82cde\
                 a2418997200ef82e44ae7e3f",
                "a44a8266ee1c8eb0c8b5d4cf5ae9f19a",
            ),
        ];
        for (key, nonce, data, tag) in cases {
            let sealed = hex(&[data, tag].concat());
            let opened = open(&hex(key), &hex(nonce), &aad, &sealed).unwrap();
            assert_eq!(opened.as_slice(), hex(plain));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_aws_lc(
            key in prop::collection::vec(any::<u8>(), 32),
            short in any::<bool>(),
            nonce in any::<[u8; 12]>(),
            aad in prop::collection::vec(any::<u8>(), 0..40),
            plain in prop::collection::vec(any::<u8>(), 0..80),
            flip in any::<prop::sample::Index>(),
        ) {
            let (algorithm, key) = if short { (&AES_128_GCM, &key[..16]) } else { (&AES_256_GCM, &key[..]) };
            let sealing = LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap());
            let mut sealed = plain.clone();
            let nonce_of = Nonce::assume_unique_for_key(nonce);
            sealing.seal_in_place_append_tag(nonce_of, Aad::from(&aad), &mut sealed).unwrap();
            prop_assert_eq!(open(key, &nonce, &aad, &sealed).unwrap().to_vec(), plain);
            let at = flip.index(sealed.len());
            sealed[at] ^= 1;
            prop_assert_eq!(open(key, &nonce, &aad, &sealed), Err(Unopened::NotAuthentic));
        }
    }
}
