//! Who somebody is and what is allowed by that: tokens, the hub's own and those of issuers, and the users behind them, the audit log of what was done and refused,
//! and by which rights a Kustomization acts.

pub(crate) mod access;
mod account_keys;
mod account_tokens;
mod accounts;
pub(crate) mod audit;
pub(crate) mod auth;
mod certificates;
pub(crate) mod clouds;
mod credentials;
mod fixed;
mod impersonate;
mod issuers;
mod old_tokens;
pub(crate) mod permissions;
pub(crate) mod references;
mod review;
mod sign_in;
pub(crate) mod tokens;

pub use access::AccessRules;
pub(crate) use access::NAME_LABEL;
pub use account_keys::AccountKeyItem;
pub use account_tokens::{AccountToken, AccountTokenOrder, BoundObject, MOST_REVOKED};
pub use audit::{
    AuditChange, AuditComparison, AuditImpersonation, AuditItem, AuditLines, AuditLog, AuditReport,
    AuditSink, AuditStream, HEAD_PERIOD, REFUSALS_PERIOD, SEAL_ALL_PERIOD, SEAL_PERIOD, authorize_path,
    by as entry_by, query_time,
};
pub use auth::{ADMIN_LIFE, Authenticator, Identity, MASTERS, account_user};
pub use certificates::{BadCertificate, ClientCertificate};
pub use credentials::{MadeToken, TokenItem, TokenOrder};
pub use impersonate::Impersonation;
pub use permissions::AllowedRules;
pub use review::ReviewedToken;
pub use roadstead_rbac::{Attributes, Decision, Named, Reach, Resource};
pub use sign_in::{
    Answered, Begun, OfferedProvider, SIGN_IN_BACK, SignIn, SignInOptions, SignInRefused, Signed, SignedIn,
};
pub use tokens::{LookUp, OldToken};
