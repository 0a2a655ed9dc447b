//! Bounds on what is read and made.

/// How much a file may take. Each bound ends the decryption with an error that names it.
///
/// The defaults let pass what Flux lets pass, and bound the time of the rest to some seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a file.
    pub file_bytes: usize,
    /// Bytes of one scalar, a binary file's only one left out.
    pub scalar_bytes: usize,
    /// How deep maps and lists may nest.
    pub depth: usize,
    /// Values of a file, with aliases expanded; a comment is one too.
    pub nodes: usize,
    /// Bytes of all values of a file, with aliases expanded.
    pub made_bytes: usize,
    /// Bytes of one wrapped data key.
    pub enc_bytes: usize,
    /// Master keys of a file.
    pub keys: usize,
    /// Key groups of a file.
    pub groups: usize,
    /// Bytes of a regular expression that selects values.
    pub regex_bytes: usize,
    /// Memory of that expression, compiled, in bytes.
    pub regex_memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 5 << 20,
            scalar_bytes: 1 << 20,
            depth: 100,
            nodes: 100_000,
            made_bytes: 32 << 20,
            enc_bytes: 64 << 10,
            keys: 256,
            groups: 32,
            regex_bytes: 4 << 10,
            regex_memory: 1 << 20,
        }
    }
}
