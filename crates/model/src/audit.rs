//! Entries of the audit log.

use jiff::Timestamp;

/// What came of what was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AuditOutcome {
    /// It was done.
    #[default]
    Ok,
    /// It was refused.
    Refused,
}

impl AuditOutcome {
    /// As it is stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
        }
    }
}

/// An entry to be written.
#[derive(Debug, Clone, Default)]
pub struct AuditEntry {
    /// Who.
    pub username: String,
    /// What: a verb of the API, or `login`, `enrol`, ….
    pub verb: String,
    /// API group of what it was about.
    pub group: String,
    /// Its kind, or what else it is (`AccessToken`, `JoinToken`, `Path`).
    pub kind: String,
    /// Its namespace; empty where it has none.
    pub namespace: String,
    /// Its name; empty for all.
    pub name: String,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// What else is to be known, for people.
    pub detail: String,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Above this number.
    pub after: i64,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Older than this.
    pub until: Option<Timestamp>,
    /// Of this user; empty for all.
    pub username: String,
}
