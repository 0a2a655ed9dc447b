//! The form of tokens, and the check in them: a MAC under a key that is derived from the hub's key file, so that a text which
//! no hub with this key has made is told apart without asking the database.
//!
//! The check says nothing about whether a token is still good: that is the database's to say.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

use crate::seal::Derived;
use crate::{StoreError, TokenText};

/// Random bytes of a token, and bytes of its check; in hexadecimal both.
const BYTES: usize = 32;
const CHECK: usize = 16;

/// What a token is for; each kind has its own beginning, which is part of what is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A user's or a service account's.
    Access,
    /// An agent's, to join with.
    Join,
    /// What a browser holds of a session.
    Session,
}

impl TokenKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Access => "rsdt_",
            Self::Join => "rsdj_",
            Self::Session => "rsds_",
        }
    }
}

/// What a text is, as far as it can be told without the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// A hub with this key has made it.
    Ours,
    /// It has the form of tokens from before there was a check: it may be one.
    Unchecked,
    /// No hub with this key has made it.
    Foreign,
}

/// Makes tokens with the first of its keys, and checks them with any. Does not print.
pub struct TokenCheck(Vec<hmac::Key>);

impl std::fmt::Debug for TokenCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenCheck(…)")
    }
}

impl TokenCheck {
    /// By these keys, of which the first is used for new tokens. Tokens are out of reach once they were given: also what a key made
    /// that was retired since is taken for the hub's.
    pub(crate) fn of(keys: &[&Derived]) -> Self {
        Self(keys.iter().map(|key| key.tokens()).collect())
    }

    /// A new token.
    ///
    /// # Errors
    /// Where the operating system gives no randomness.
    pub fn make(&self, kind: TokenKind) -> Result<TokenText, StoreError> {
        let mut bytes = Zeroizing::new([0_u8; BYTES]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| StoreError::Seal { what: "make a token" })?;
        let prefix = kind.prefix();
        // Of its final length at once, so that no part of it stays in memory that is given back.
        let mut text = Zeroizing::new(String::with_capacity(prefix.len() + 2 * (BYTES + CHECK)));
        text.push_str(prefix);
        push_hex(&mut text, bytes.as_ref());
        let key = self.0.first().ok_or(StoreError::Seal { what: "make a token" })?;
        let check = check_of(key, &text);
        push_hex(&mut text, &check);
        Ok(TokenText::new(text))
    }

    /// What a text is, as a token of this kind.
    #[must_use]
    pub fn tell(&self, kind: TokenKind, text: &str) -> Checked {
        let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(digits) = text.strip_prefix(kind.prefix()) else {
            // Join tokens were 32 bytes in base64 before.
            let old = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let is_old = kind == TokenKind::Join && text.len() == 43 && text.bytes().all(old);
            return if is_old { Checked::Unchecked } else { Checked::Foreign };
        };
        if !hex(digits) {
            return Checked::Foreign;
        }
        if kind == TokenKind::Access && digits.len() == 2 * BYTES {
            return Checked::Unchecked;
        }
        if digits.len() != 2 * (BYTES + CHECK) {
            return Checked::Foreign;
        }
        let (checked, check) = text.split_at(text.len() - 2 * CHECK);
        let made_by = |key: &hmac::Key| {
            let mut want = String::with_capacity(2 * CHECK);
            push_hex(&mut want, &check_of(key, checked));
            verify_slices_are_equal(check.as_bytes(), want.as_bytes()).is_ok()
        };
        if self.0.iter().any(made_by) { Checked::Ours } else { Checked::Foreign }
    }
}

fn check_of(key: &hmac::Key, text: &str) -> [u8; CHECK] {
    let mut check = [0; CHECK];
    let tag = hmac::sign(key, text.as_bytes());
    check.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    check
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    use std::fmt::Write as _;
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Checked, TokenCheck, TokenKind};
    use crate::Key;
    use crate::seal::Derived;

    fn check(key: &Key) -> TokenCheck {
        TokenCheck::of(&[&Derived::of(key)])
    }

    #[test]
    fn tokens_of_a_key_before_are_taken_and_not_made() {
        let (old, new) = (Key::generate().unwrap(), Key::generate().unwrap());
        let both = TokenCheck::of(&[&Derived::of(&new), &Derived::of(&old)]);
        let (before, now) = (check(&old).make(TokenKind::Join), both.make(TokenKind::Join));
        let (before, now) = (before.unwrap(), now.unwrap());
        assert_eq!(both.tell(TokenKind::Join, before.expose()), Checked::Ours);
        assert_eq!(check(&old).tell(TokenKind::Join, now.expose()), Checked::Foreign);
        assert_eq!(check(&new).tell(TokenKind::Join, now.expose()), Checked::Ours);
    }

    #[test]
    fn only_the_own_key_makes_tokens_that_are_taken() {
        let key = Key::generate().unwrap();
        let ours = check(&key);
        let other = check(&Key::generate().unwrap());
        for kind in [TokenKind::Access, TokenKind::Join, TokenKind::Session] {
            let made = ours.make(kind).unwrap();
            let text = made.expose();
            assert_eq!(ours.tell(kind, text), Checked::Ours);
            assert_eq!(check(&key).tell(kind, text), Checked::Ours);
            assert_eq!(other.tell(kind, text), Checked::Foreign);
            assert_ne!(ours.make(kind).unwrap().expose(), text);
            // Any digit changed, and any length but its own.
            for at in text.find('_').unwrap() + 1..text.len() {
                let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
                let changed = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
                assert_eq!(ours.tell(kind, &changed), Checked::Foreign, "{at}");
            }
            for length in (0..text.len()).filter(|length| *length != "rsdt_".len() + 64) {
                assert_eq!(ours.tell(kind, &text[..length]), Checked::Foreign, "{length}");
            }
        }
        // One kind is not the other.
        let access = ours.make(TokenKind::Access).unwrap();
        assert_eq!(ours.tell(TokenKind::Join, access.expose()), Checked::Foreign);
        let renamed = access.expose().replace("rsdt_", "rsdj_");
        assert_eq!(ours.tell(TokenKind::Join, &renamed), Checked::Foreign);
    }

    #[test]
    fn tokens_from_before_there_was_a_check_may_be_good() {
        let check = check(&Key::generate().unwrap());
        let old = format!("rsdt_{}", "0f".repeat(32));
        assert_eq!(check.tell(TokenKind::Access, &old), Checked::Unchecked);
        let old = "-_aZ9".repeat(9)[..43].to_owned();
        assert_eq!(check.tell(TokenKind::Join, &old), Checked::Unchecked);
        for bad in ["", "rsdt_", "é", &format!("rsdt_{}", "é".repeat(32)), &"a".repeat(44)] {
            assert_eq!(check.tell(TokenKind::Access, bad), Checked::Foreign, "{bad}");
            assert_eq!(check.tell(TokenKind::Join, bad), Checked::Foreign, "{bad}");
        }
    }
}
