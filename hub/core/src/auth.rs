//! Who asks, and whether they may.

use std::borrow::Cow;

use jiff::Timestamp;
use roadstead_api::Kind;
use roadstead_hub_store::TokenText;
use zeroize::Zeroizing;

use crate::{Hub, HubError, account_user};

/// The group that may do all.
pub const MASTERS: &str = "system:masters";

/// What everyone with a token may create: (group, resource). Nothing of it is stored.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// What everyone with a token may read: health, and what is served.
const OPEN_PATHS: [&str; 10] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
];

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
        /// In the plural.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// (verb, group, resource).
    pub resources: Vec<(&'static str, &'static str, &'static str)>,
    /// (verb, path).
    pub paths: Vec<(&'static str, &'static str)>,
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

    /// Whom this one is taken for from here on; `groups` are those that were asked for.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where this one may not be taken for another.
    pub fn impersonate(self, username: &str, groups: Vec<String>) -> Result<Self, HubError> {
        if !self.may_all() {
            return Err(HubError::Forbidden(format!(
                "users \"{username}\" is forbidden: User \"{}\" cannot impersonate resource \"users\" in API group \"\" \
                 at the cluster scope",
                self.username
            )));
        }
        let account = username.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        let mut taken_for = match account {
            Some((namespace, name)) if groups.is_empty() => account_user(namespace, name),
            _ => Self { username: username.to_owned(), groups, impersonator: None },
        };
        let class =
            if username == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
        if !taken_for.groups.iter().any(|group| group == class) {
            taken_for.groups.push(class.to_owned());
        }
        Ok(Self { impersonator: Some(self.username), ..taken_for })
    }

    /// Who did something, for the record.
    #[must_use]
    pub fn recorded(&self) -> Cow<'_, str> {
        match &self.impersonator {
            None => Cow::Borrowed(&self.username),
            Some(really) => Cow::Owned(format!("{} (impersonated by {really})", self.username)),
        }
    }

    fn may_all(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// All that this identity may do.
    #[must_use]
    pub fn rules(&self) -> Rules {
        if self.may_all() {
            return Rules { resources: vec![("*", "*", "*")], paths: vec![("*", "*")] };
        }
        Rules {
            resources: SELF_REVIEWS.map(|(group, resource)| ("create", group, resource)).to_vec(),
            paths: OPEN_PATHS.map(|path| ("get", path)).to_vec(),
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
        if self.may_all() {
            return Ok(());
        }
        let resource = if subresource.is_empty() {
            kind.plural.to_owned()
        } else {
            format!("{}/{subresource}", kind.plural)
        };
        let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let place = match (kind.namespaced(), namespace) {
            (true, "") => " at the cluster scope".to_owned(),
            (true, namespace) => format!(" in the namespace \"{namespace}\""),
            (false, _) => " at the cluster scope".to_owned(),
        };
        Err(HubError::Forbidden(format!(
            "{}{object} is forbidden: User \"{}\" cannot {verb} resource \"{resource}\" in API group \"{}\"{place}",
            kind.qualified(),
            self.username,
            kind.group(),
        )))
    }
}

impl Hub {
    /// Whom a bearer token stands for. One that was taken back may still be taken for two seconds.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`] where it is unknown or expired.
    pub async fn authenticate(&self, token: &str) -> Result<Identity, HubError> {
        let identity = self.tokens.identity(&self.store, token, self.now()).await?;
        identity.ok_or_else(|| HubError::Unauthenticated("Unauthorized".to_owned()))
    }

    /// Makes an administrator's token: one that may do all and does not expire.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_admin_token(&self) -> Result<Zeroizing<String>, HubError> {
        let token = self.create_access_token("roadstead-admin", &[MASTERS.to_owned()], None).await?;
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
        Ok(self.store.create_token(username, groups, expires_at, None).await?.1)
    }
}
