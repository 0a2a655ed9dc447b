//! Bech32 (BIP 173) as age uses it for its identities: upper case, of any length.

use zeroize::Zeroizing;

const CHARACTERS: &[u8; 32] = b"QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L";
/// Characters of the checksum.
const CHECKSUM: usize = 6;

/// The bytes that stand after a prefix and `1`, if all is as it should be.
pub(super) fn decode(text: &str, prefix: &str) -> Option<Zeroizing<Vec<u8>>> {
    let data = text.strip_prefix(prefix)?.strip_prefix('1')?;
    let values = data.bytes().map(|byte| {
        let at = CHARACTERS.iter().position(|character| *character == byte)?;
        u8::try_from(at).ok()
    });
    let values: Zeroizing<Vec<u8>> = Zeroizing::new(values.collect::<Option<_>>()?);
    let split = values.len().checked_sub(CHECKSUM)?;
    // The checksum covers the prefix in lower case.
    let lower = prefix.to_ascii_lowercase();
    let high = lower.bytes().map(|byte| byte >> 5);
    let low = lower.bytes().map(|byte| byte & 31);
    if polymod(high.chain([0]).chain(low).chain(values.iter().copied())) != 1 {
        return None;
    }
    regroup(values.get(..split)?)
}

fn polymod(values: impl Iterator<Item = u8>) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |sum: u32, value| {
        let top = sum >> 25;
        let shifted = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        let terms = GENERATOR.iter().enumerate().filter(|(bit, _)| top >> bit & 1 == 1);
        terms.fold(shifted, |sum, (_, term)| sum ^ term)
    })
}

/// From five bits each to eight; what is left over is zero and less than a group.
fn regroup(values: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(values.len() * 5 / 8));
    let mut held: u32 = 0;
    let mut bits = 0;
    for value in values {
        held = held << 5 | u32::from(*value);
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    (bits < 5 && held == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity() {
        // The secret of ones from age's own tests of this code would do as well: any bytes with their checksum.
        let text = encode("AGE-SECRET-KEY-", &[7; 32]);
        assert_eq!(decode(&text, "AGE-SECRET-KEY-").unwrap().as_slice(), [7; 32]);
        assert!(decode(&text.to_lowercase(), "AGE-SECRET-KEY-").is_none());
        assert!(decode(&text.replace('7', "8"), "AGE-SECRET-KEY-").is_none() || !text.contains('7'));
        assert!(decode(&text, "AGE-SECRET-KEY-PQ-").is_none());
        assert!(decode("AGE-SECRET-KEY-1", "AGE-SECRET-KEY-").is_none());
    }

    fn encode(prefix: &str, bytes: &[u8]) -> String {
        let bits: Vec<u8> =
            bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
        let mut values: Vec<u8> = bits
            .chunks(5)
            .map(|chunk| (0..5).fold(0, |sum, bit| sum << 1 | chunk.get(bit).copied().unwrap_or(0)))
            .collect();
        let lower = prefix.to_ascii_lowercase();
        let expanded =
            lower.bytes().map(|byte| byte >> 5).chain([0]).chain(lower.bytes().map(|byte| byte & 31));
        let sum = polymod(expanded.chain(values.clone()).chain([0; 6])) ^ 1;
        values.extend((0..6).rev().map(|group| u8::try_from(sum >> (5 * group) & 31).unwrap()));
        let data: String = values.iter().map(|value| char::from(CHARACTERS[usize::from(*value)])).collect();
        format!("{prefix}1{data}")
    }
}
