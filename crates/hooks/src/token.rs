//! What a Receiver's Secret holds.

use std::fmt;

use zeroize::Zeroizing;

/// The token by which callers are known. Does not print.
#[derive(Clone)]
pub struct Token(Zeroizing<Vec<u8>>);

impl Token {
    /// None where there is nothing in it: anybody could compute what an empty token proves.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let bytes = Zeroizing::new(bytes);
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}
