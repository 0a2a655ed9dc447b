//! Who asks, and whether they may.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use roadstead_api::Kind;
use roadstead_hub_store::{Store, TokenText};
use roadstead_model::ApplierRef;
use zeroize::Zeroizing;

use crate::HubError;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::TokenOrder;
use crate::identity::tokens::Tokens;

/// The group that may do all.
pub const MASTERS: &str = "system:masters";
/// All whom the hub knows.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of appliers that write their children. No token is of it.
const APPLIERS: &str = "system:roadstead:appliers";
/// How their usernames begin: the kind, the namespace and the name follow.
const APPLIER_USER: &str = "system:roadstead:";

/// What the masters may do.
static ALL: Rules = Rules { resources: &[("*", "*", "*")], paths: &[("*", "*")] };
/// What an applier may do with what of its build goes to the hub. Which objects these are, and in which namespaces, is
/// decided before.
static CHILDREN: Rules = Rules {
    resources: &[
        ("*", "kustomize.toolkit.fluxcd.io", "kustomizations"),
        ("*", "source.toolkit.fluxcd.io", "*"),
        ("*", "source.extensions.fluxcd.io", "artifactgenerators"),
        ("*", "notification.toolkit.fluxcd.io", "*"),
        ("*", "", "configmaps"),
        ("*", "", "secrets"),
    ],
    paths: &[],
};
/// What everyone with a token may do: ask about itself, of which nothing is stored, and read what is served.
static OWN: Rules = Rules {
    resources: &[
        ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
        ("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
    ],
    paths: &[
        ("get", "/api"),
        ("get", "/api/*"),
        ("get", "/apis"),
        ("get", "/apis/*"),
        ("get", "/healthz"),
        ("get", "/livez"),
        ("get", "/openapi"),
        ("get", "/openapi/*"),
        ("get", "/readyz"),
        ("get", "/version"),
    ],
};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Who really asks, where that one asked to be taken for this one.
    pub impersonator: Option<String>,
}

/// Something that somebody may or may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access<'a> {
    /// With objects.
    Resource {
        /// `get`, `create`, …, or `*`.
        verb: &'a str,
        /// API group.
        group: &'a str,
        /// In the plural, with a subresource as `kustomizations/status`.
        resource: &'a str,
    },
    /// With a path at which there are none.
    Path {
        /// `get`, `post`, …, or `*`.
        verb: &'a str,
        /// The path.
        path: &'a str,
    },
}

/// All that somebody may do, as RBAC writes it: what is `*` is all.
#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// (verb, group, resource).
    pub resources: &'static [(&'static str, &'static str, &'static str)],
    /// (verb, path); one that ends with `*` is of all paths that begin so.
    pub paths: &'static [(&'static str, &'static str)],
}

impl Identity {
    /// The hub itself: its background tasks.
    #[must_use]
    pub fn hub() -> Self {
        Self {
            username: "system:roadstead:hub".to_owned(),
            groups: vec![MASTERS.to_owned()],
            impersonator: None,
        }
    }

    /// Somebody whom the hub knows: as in Kubernetes in the group of all such, too.
    pub(crate) fn authenticated(username: String, groups: Vec<String>) -> Self {
        Self { username, groups, impersonator: None }.in_group(AUTHENTICATED)
    }

    fn in_group(mut self, group: &str) -> Self {
        if !self.groups.iter().any(|own| own == group) {
            self.groups.push(group.to_owned());
        }
        self
    }

    /// An applier that writes what of its build at a revision goes to the hub.
    pub(crate) fn applier(applier: &ApplierRef, revision: &str) -> Self {
        let ApplierRef { kind, namespace, name } = applier;
        Self {
            username: format!("{APPLIER_USER}{}:{namespace}:{name}@{revision}", kind.to_ascii_lowercase()),
            groups: vec![APPLIERS.to_owned()],
            impersonator: None,
        }
    }

    /// A Receiver that was called. It may do nothing by itself: what it has reconciled is decided before.
    pub(crate) fn receiver(namespace: &str, name: &str) -> Self {
        Self {
            username: format!("{APPLIER_USER}receiver:{namespace}:{name}"),
            groups: Vec::new(),
            impersonator: None,
        }
    }

    /// Whom this one is taken for from here on; `groups` are those that were asked for.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where this one may not be taken for another.
    pub fn impersonate(self, username: &str, groups: Vec<String>) -> Result<Self, HubError> {
        let (verb, group, resource) = ("impersonate", "", "users");
        if !self.may(Access::Resource { verb, group, resource }) {
            return Err(self.refused(&format!("users \"{username}\""), verb, group, resource, None));
        }
        let account = username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let taken_for = match account {
            Some((namespace, name)) if groups.is_empty() => account_user(namespace, name),
            _ => Self { username: username.to_owned(), groups, impersonator: None },
        };
        let class = if username == "system:anonymous" { "system:unauthenticated" } else { AUTHENTICATED };
        Ok(Self { impersonator: Some(self.username), ..taken_for.in_group(class) })
    }

    /// Who did something, for the record.
    #[must_use]
    pub fn recorded(&self) -> Cow<'_, str> {
        match &self.impersonator {
            None => Cow::Borrowed(&self.username),
            Some(really) => Cow::Owned(format!("{} (impersonated by {really})", self.username)),
        }
    }

    /// All that this identity may do.
    #[must_use]
    pub fn rules(&self) -> &'static Rules {
        let is_in = |group: &str| self.groups.iter().any(|own| own == group);
        if is_in(MASTERS) {
            &ALL
        } else if is_in(APPLIERS) && self.username.starts_with(APPLIER_USER) {
            &CHILDREN
        } else {
            &OWN
        }
    }

    /// Whether this identity may do that.
    #[must_use]
    pub fn may(&self, access: Access<'_>) -> bool {
        let is = |rule: &str, asked: &str| rule == "*" || rule == asked;
        let rules = self.rules();
        match access {
            Access::Resource { verb, group, resource } => rules
                .resources
                .iter()
                .any(|rule| is(rule.0, verb) && is(rule.1, group) && is(rule.2, resource)),
            Access::Path { verb, path } => rules.paths.iter().any(|(allowed, rule)| {
                is(allowed, verb)
                    && rule.strip_suffix('*').map_or(*rule == path, |prefix| path.starts_with(prefix))
            }),
        }
    }

    /// Whether this identity may do that.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where it may not, with who wanted what where.
    pub fn authorize(
        &self,
        verb: &str,
        kind: &Kind,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), HubError> {
        let resource = if subresource.is_empty() {
            Cow::Borrowed(kind.plural)
        } else {
            Cow::Owned(format!("{}/{subresource}", kind.plural))
        };
        if self.may(Access::Resource { verb, group: kind.group(), resource: &resource }) {
            return Ok(());
        }
        let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let what = format!("{}{object}", kind.qualified());
        let namespace = Some(namespace).filter(|namespace| kind.namespaced() && !namespace.is_empty());
        Err(self.refused(&what, verb, kind.group(), &resource, namespace))
    }

    fn refused(
        &self,
        what: &str,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> HubError {
        let place = match namespace {
            None => "at the cluster scope".to_owned(),
            Some(namespace) => format!("in the namespace \"{namespace}\""),
        };
        HubError::Forbidden(format!(
            "{what} is forbidden: User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
            self.username
        ))
    }
}

/// The user that a service account is.
#[must_use]
pub fn account_user(namespace: &str, name: &str) -> Identity {
    Identity {
        username: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            AUTHENTICATED.to_owned(),
        ],
        impersonator: None,
    }
}

/// Tokens, and whom they stand for.
pub struct Authenticator {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    tokens: Arc<Tokens>,
}

impl Authenticator {
    pub(crate) fn new(context: &Context, tokens: &Arc<Tokens>) -> Self {
        Self { store: context.store.clone(), clock: Arc::clone(&context.clock), tokens: Arc::clone(tokens) }
    }

    /// Whom a bearer token stands for. One that was taken back may still be taken for two seconds.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`] where it is unknown or expired, [`HubError::TooMany`] where as many tokens are being
    /// looked up as may.
    pub async fn authenticate(&self, token: &str) -> Result<Identity, HubError> {
        let identity = self.tokens.identity(&self.store, token, self.clock.now()).await?;
        identity.ok_or_else(|| HubError::Unauthenticated("Unauthorized".to_owned()))
    }

    /// Whether a bearer token is one that this hub gave out, though it may have been taken back since; asks no database. Of
    /// use for answers that hold no data, while the database is away.
    #[must_use]
    pub fn was_given_out(&self, token: &str) -> bool {
        self.tokens.was_good(&self.store, token, self.clock.now())
    }

    /// Makes an administrator's token: one that may do all, for 90 days.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_admin_token(&self) -> Result<Zeroizing<String>, HubError> {
        let token = self.order_token(&Identity::hub(), TokenOrder::default()).await?.token;
        Ok(Zeroizing::new(token.expose().to_owned()))
    }

    /// Makes a bearer token. Its text is given out here and never again.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_access_token(
        &self,
        username: &str,
        groups: &[String],
        expires_at: Option<Timestamp>,
    ) -> Result<TokenText, HubError> {
        Ok(self.make_token(&Identity::hub(), username, groups, expires_at).await?.1)
    }
}
