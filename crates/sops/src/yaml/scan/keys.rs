//! Keys on one line with their values: known as keys by the colon that comes after them.

use super::{Mark, Problem, Scanner, column};

/// A place where a key may begin that is known as one by the colon after it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimpleKey {
    pub(super) possible: bool,
    /// It stands where nothing else may.
    required: bool,
    /// The number of its token.
    pub(super) token: usize,
    pub(super) mark: Mark,
}

/// Characters that a key may have at most.
const KEY_CHARS: isize = 1_024;

impl Scanner<'_> {
    /// May a key still begin where one was possible?
    pub(super) fn is_key_valid(&mut self, at: usize) -> Result<bool, Problem> {
        let Some(key) = self.keys.get_mut(at).filter(|key| key.possible) else { return Ok(false) };
        if key.mark.line < self.mark.line || key.mark.index + KEY_CHARS < self.mark.index {
            if key.required {
                return Err(no_colon(key.mark));
            }
            key.possible = false;
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn save_key(&mut self) -> Result<(), Problem> {
        let required = self.flow() == 0 && self.indent == column(self.mark);
        if self.key_allowed {
            self.remove_key()?;
            let token = self.taken + self.tokens.len();
            let key = SimpleKey { possible: true, required, token, mark: self.mark };
            if let Some(last) = self.keys.last_mut() {
                *last = key;
            }
        }
        Ok(())
    }

    pub(super) fn remove_key(&mut self) -> Result<(), Problem> {
        let Some(key) = self.keys.last_mut().filter(|key| key.possible) else { return Ok(()) };
        if key.required {
            return Err(no_colon(key.mark));
        }
        key.possible = false;
        Ok(())
    }
}

fn no_colon(mark: Mark) -> Problem {
    Problem { line: mark.line + 1, what: "expected a colon after a key".into() }
}
