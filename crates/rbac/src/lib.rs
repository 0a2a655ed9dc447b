//! Kubernetes' role-based access control as values: a [`Policy`] holds the rules of the stored Roles, ClusterRoles and
//! their bindings, and decides requests as kube-apiserver does, with its reasons and its words.
//!
//! Nothing here reads a clock, a network or a database. A policy is changed by what was stored ([`Policy::apply`]) and asked
//! by [`Policy::authorize`], [`Policy::rules_for`] and, before a role or a binding is written, [`Policy::check_grant`].
//! What a policy keeps is bounded ([`Limits`]), and what does not fit is left out: rules only ever add rights, so
//! that leaving one out refuses more and never less.
//!
//! Decisions are compared with those of a real kube-apiserver by `tests/tests/rbac`.
//!
//! ```
//! use roadstead_api::KindId;
//! use roadstead_rbac::{Attributes, Change, Policy, Resource, User};
//! use serde_json::json;
//!
//! let mut policy = Policy::default();
//! let role = json!({ "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }] });
//! let binding = json!({
//!     "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
//!     "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane" }],
//! });
//! policy.apply([
//!     Change::Put { kind: KindId::Role, namespace: "apps", name: "reader", object: &role },
//!     Change::Put { kind: KindId::RoleBinding, namespace: "apps", name: "jane-reads", object: &binding },
//! ]);
//! let get = Resource { verb: "get", resource: "configmaps", namespace: "apps", name: "a", ..Resource::default() };
//! let decision = policy.authorize(User { name: "jane", groups: &[] }, &Attributes::Resource(get));
//! assert!(decision.allowed);
//! assert_eq!(
//!     decision.reason,
//!     r#"RBAC: allowed by RoleBinding "jane-reads/apps" of Role "reader" to User "jane""#
//! );
//! ```

mod aggregate;
mod cover;
mod decide;
mod defaults;
mod grant;
mod matching;
mod policy;
mod reach;

pub use cover::{Missing, TooComplex, covers};
pub use decide::{Decision, UserRules};
pub use defaults::{AUTOUPDATE, built_in, reconciled};
pub use grant::{GrantError, Write};
pub use matching::rule_allows;
pub use policy::{Change, Limits, Policy, PutError};
pub use reach::{Named, Reach};
pub use roadstead_api::rbac::PolicyRule;

/// The group that may do everything, whatever is stored.
pub const MASTERS: &str = "system:masters";

/// Who asks: what RBAC knows of a user.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    /// The user's name; that of a service account is `system:serviceaccount:NAMESPACE:NAME`.
    pub name: &'a str,
    /// The groups that the user is in.
    pub groups: &'a [String],
}

impl User<'_> {
    /// Whether the user is in [`MASTERS`].
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes<'a> {
    /// Something with objects.
    Resource(Resource<'a>),
    /// Something with a path at which there are none.
    Path {
        /// The HTTP method, in lower case.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// A request for objects.
///
/// A request that names no object (`create`, and `deletecollection`, `list` and `watch` without the field selector
/// `metadata.name=NAME`) has an empty name. A rule with `resourceNames` does not allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resource<'a> {
    /// `get`, `list`, `create`, …
    pub verb: &'a str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// The kind's plural.
    pub resource: &'a str,
    /// `status`, for one; empty for the object itself.
    pub subresource: &'a str,
    /// Empty for objects of the cluster scope, and for those of all namespaces.
    pub namespace: &'a str,
    /// The object's name, where the request names one.
    pub name: &'a str,
}

/// A text in double quotes, as Go's `%q` writes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// Texts as Go's `%q` writes a list of them.
pub(crate) fn quoted_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", texts.into_iter().map(quoted).collect::<Vec<_>>().join(" "))
}
