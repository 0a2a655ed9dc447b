//! Where decrypted files are written.

use zeroize::Zeroizing;

/// Bytes that are wiped when they go, and wherever they stood before the buffer grew.
#[derive(Default)]
pub(crate) struct Buffer(Zeroizing<Vec<u8>>);

impl Buffer {
    /// Makes room. What a vector does by itself would leave a copy behind.
    fn reserve(&mut self, more: usize) {
        /// Most files fit into it.
        const LEAST: usize = 4096;
        let needed = self.0.len().saturating_add(more);
        if needed <= self.0.capacity() {
            return;
        }
        let mut grown = Zeroizing::new(Vec::with_capacity(needed.max(self.0.capacity() * 2).max(LEAST)));
        grown.extend_from_slice(&self.0);
        self.0 = grown;
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.reserve(1);
        self.0.push(byte);
    }

    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// The same byte several times.
    pub(crate) fn fill(&mut self, byte: u8, times: usize) {
        self.reserve(times);
        self.0.extend(std::iter::repeat_n(byte, times));
    }

    pub(crate) fn into_inner(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows() {
        let mut buffer = Buffer::default();
        let mut expected = Vec::new();
        for round in 0..200_u8 {
            buffer.push(round);
            buffer.extend_from_slice(&[round; 77]);
            buffer.fill(b' ', usize::from(round));
            expected.push(round);
            expected.extend([round; 77]);
            expected.extend(vec![b' '; usize::from(round)]);
        }
        assert_eq!(buffer.into_inner().as_slice(), expected);
    }
}
