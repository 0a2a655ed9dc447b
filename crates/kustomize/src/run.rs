//! How far a text goes on without anything special in it. Most bytes of most texts are not special, so they are looked at
//! sixteen at a time.

/// The number of bytes at the start that are not special.
pub(crate) fn len(bytes: &[u8], special: impl Fn(u8) -> bool) -> usize {
    const BLOCK: usize = 16;
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK) {
        // Without an early end, the compiler makes one comparison of the whole block.
        if block.iter().fold(false, |found, byte| found | special(*byte)) {
            break;
        }
        at += BLOCK;
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|byte| special(*byte)).unwrap_or(rest.len())
}

/// May the byte be the first of a line break, in YAML's wide sense?
pub(crate) fn may_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0xc2 | 0xe2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_what_is_special() {
        for before in 0..40 {
            let text = format!("{}\n{}", "x".repeat(before), "y".repeat(20));
            assert_eq!(len(text.as_bytes(), may_break), before);
        }
        assert_eq!(len(b"", may_break), 0);
        assert_eq!(len(&[b'x'; 33], may_break), 33);
    }
}
