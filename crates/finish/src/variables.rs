//! Variables and their values.

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

/// Variables, by their names. Their values do not print.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    values: BTreeMap<String, Variable>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) value: Zeroizing<String>,
    pub(crate) secret: bool,
}

impl Variables {
    /// Sets a variable, in the place of one that was set before. As in Flux, line breaks are left out of the value. `secret` where
    /// it came from a Secret.
    pub fn set(&mut self, name: impl Into<String>, value: &str, secret: bool) {
        self.values.insert(name.into(), Variable { value: value.replace('\n', "").into(), secret });
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Variable> {
        self.values.get(name)
    }

    /// The first name that no expression can have.
    pub(crate) fn invalid_name(&self) -> Option<&str> {
        let is_valid = |name: &str| {
            name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
                && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        };
        self.values.keys().map(String::as_str).find(|name| !is_valid(name))
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}
