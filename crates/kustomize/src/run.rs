//! How far a text goes on without anything special in it. Most bytes of most texts are not special, so they are looked at
//! many at a time.

/// Bytes that are special: single ones, and ranges from the first to the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<const SINGLE: usize, const RANGES: usize>(
    pub(crate) [u8; SINGLE],
    pub(crate) [(u8, u8); RANGES],
);

/// What may be the first byte of a line break, in YAML's wide sense.
pub(crate) const BREAKS: Bytes<4, 0> = Bytes([b'\n', b'\r', 0xc2, 0xe2], []);

impl<const SINGLE: usize, const RANGES: usize> Bytes<SINGLE, RANGES> {
    #[inline]
    fn has(&self, byte: u8) -> bool {
        self.0.contains(&byte) || self.1.iter().any(|(first, last)| (*first..=*last).contains(&byte))
    }

    /// Zero for a special byte and for no other. Compilers make a jump or a table of [`Self::has`], for one byte at a time;
    /// of this they make instructions for many bytes at once, about ten times as fast.
    #[inline]
    fn distance(&self, byte: u8) -> u8 {
        let single = self.0.iter().fold(u8::MAX, |least, other| least.min(byte ^ other));
        self.1.iter().fold(single, |least, (first, last)| {
            least.min(byte.wrapping_sub(*first).saturating_sub(last.wrapping_sub(*first)))
        })
    }
}

/// The number of bytes at the start that are not special.
#[inline]
pub(crate) fn len<const SINGLE: usize, const RANGES: usize>(
    bytes: &[u8],
    special: &Bytes<SINGLE, RANGES>,
) -> usize {
    const BLOCK: usize = 32;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let plain = blocks.iter().take_while(|block| {
        // Without an early end, so that it is one comparison of the whole block.
        block.iter().fold(u8::MAX, |least, byte| least.min(special.distance(*byte))) > 0
    });
    let at = plain.count() * BLOCK;
    let rest = &bytes[at..];
    at + rest.iter().position(|byte| special.has(*byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_what_is_special() {
        for before in 0..80 {
            let text = format!("{}\n{}", "x".repeat(before), "y".repeat(40));
            assert_eq!(len(text.as_bytes(), &BREAKS), before);
        }
        assert_eq!(len(b"", &BREAKS), 0);
        assert_eq!(len(&[b'x'; 33], &BREAKS), 33);
    }

    #[test]
    fn one_byte_and_many_at_once_find_the_same() {
        fn check<const SINGLE: usize, const RANGES: usize>(special: Bytes<SINGLE, RANGES>) {
            for byte in 0..=u8::MAX {
                assert_eq!(special.has(byte), special.distance(byte) == 0, "{byte:#x} in {special:?}");
            }
        }
        check(BREAKS);
        check(Bytes([], []));
        check(Bytes([b'"', 0], [(0x80, 0xff), (5, 5)]));
        check(Bytes([0xff], [(0, 0x1f), (0x7f, 0x9f)]));
        check(Bytes([], [(0, 0xff)]));
    }
}
