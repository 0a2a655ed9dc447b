//! What is told of a fetch that went well.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tree::shown;

/// Notes that are taken of one fetch.
pub(crate) const MOST_NOTES: usize = 100;

/// What a user should know about a fetch although it is not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// A submodule was left out.
    Submodule {
        /// Its folder.
        path: String,
        /// The commit that it is at.
        commit: String,
    },
    /// A submodule was left out because nothing says where it is.
    SubmoduleWithoutUrl {
        /// Its folder.
        path: String,
    },
    /// A file was left out because no YAML could name it.
    NameNotUtf8 {
        /// Its path, as far as it is text.
        path: String,
    },
    /// Symbolic links were left out.
    LinksLeftOut {
        /// How many.
        count: u64,
        /// One of them.
        first: String,
    },
    /// The password went over the network unencrypted.
    CredentialsInTheClear,
    /// It is not proven who signed it, and the policy does not insist on that.
    Unproven {
        /// Why not.
        why: String,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submodule { path, commit } => {
                write!(
                    f,
                    "submodule `{}` (at {commit}) is left out: spec.recurseSubmodules is not set",
                    shown(path)
                )
            }
            Self::SubmoduleWithoutUrl { path } => {
                write!(f, "submodule `{}` is left out: .gitmodules does not say where it is", shown(path))
            }
            Self::NameNotUtf8 { path } => write!(f, "`{}` is left out: its name is not UTF-8", shown(path)),
            Self::LinksLeftOut { count, first } => {
                write!(f, "{count} symbolic links are left out, `{}` among them", shown(first))
            }
            Self::Unproven { why } => {
                write!(f, "its signature is not verified, which the policy lets pass: {}", shown(why))
            }
            Self::CredentialsInTheClear => f.write_str("credentials were sent over plain HTTP: use https://"),
        }
    }
}
