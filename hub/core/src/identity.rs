//! Who somebody is and what is allowed by that: tokens, the hub's own and those of issuers, and the users behind them, the audit log of what was done and refused,
//! and by which rights a Kustomization acts.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod auth;
mod credentials;
mod fixed;
mod impersonate;
mod issuers;
pub(crate) mod permissions;
pub(crate) mod tokens;

pub use access::AccessRules;
pub use audit::{AuditItem, AuditLog, AuditReport, REFUSALS_PERIOD, query_time};
pub use auth::{Authenticator, Identity, MASTERS, account_user};
pub use credentials::{MadeToken, TokenItem, TokenOrder};
pub use impersonate::Impersonation;
pub use permissions::AllowedRules;
pub use roadstead_rbac::{Attributes, Decision, Named, Reach, Resource};
pub use tokens::LookUp;
