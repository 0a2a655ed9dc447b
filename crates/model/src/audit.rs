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

/// Where a request comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditOrigin {
    /// The client's address, as the hub sees it; empty where it is not known.
    pub address: String,
    /// The request's id; empty for what is not done by a request.
    pub request: String,
    /// Whether whoever asked has shown an administrator's credential, one that may do all, or was taken for an administrator.
    pub administrator: bool,
}

/// An entry to be written.
#[derive(Debug, Clone, Default)]
pub struct AuditEntry {
    /// Who; where somebody asked to be taken for somebody else, the latter.
    pub username: String,
    /// Who asked to be taken for that one; empty where nobody did.
    pub impersonator: String,
    /// As what, beside the name (groups, uid, extra): JSON, bounded by whoever makes it; none where nothing of that was asked for.
    pub impersonated: Option<String>,
    /// From where.
    pub origin: AuditOrigin,
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
    /// How often, where it was counted; 0 is once.
    pub times: i64,
    /// What of an object changed: a list of fields as JSON, bounded by whoever makes it.
    pub changes: Option<String>,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Beyond this number; 0 is from the beginning.
    pub after: i64,
    /// The newest first; then only numbers below `after`.
    pub newest_first: bool,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Older than this.
    pub until: Option<Timestamp>,
    /// Of this user, or of who was taken for another one; empty for all.
    pub username: String,
    /// With this verb; empty for all.
    pub verb: String,
    /// About objects of this kind, subresources included; empty for all.
    pub kind: String,
    /// In this namespace; empty for all.
    pub namespace: String,
    /// Of this name; empty for all.
    pub name: String,
    /// With this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Of this request; empty for all.
    pub request: String,
    /// By an administrator's credential only.
    pub administrator: bool,
}
