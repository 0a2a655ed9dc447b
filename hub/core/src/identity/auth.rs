//! Who asks, and whether they may.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{AnyApplier, ChildRule, KINDS, Kind, KindId, annotated};
use roadstead_hub_store::{Store, Stored, TokenText};
use roadstead_model::{ApplierRef, AuditOrigin};
pub use roadstead_rbac::MASTERS;
use roadstead_rbac::{
    Attributes, Decision, GrantError, Named, PolicyRule, Reach, Resource, User, Write, rule_allows,
};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::HubError;
use crate::address::named;
use crate::clock::Clock;
use crate::context::Context;
use crate::identity::TokenOrder;
use crate::identity::accounts::Accounts;
use crate::identity::fixed;
use crate::identity::impersonate::Behind;
use crate::identity::issuers::Issuers;
use crate::identity::old_tokens::OldTokenUses;
use crate::identity::permissions::{AllowedRules, Granted, Permissions};
use crate::identity::tokens::{OldToken, Tokens};

/// An administrator's token that the hub makes by itself lasts for so long.
pub const ADMIN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// All whom the hub knows.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of appliers that write their children. No token is of it.
const APPLIERS: &str = "system:roadstead:appliers";
/// How their usernames begin: the kind, the namespace and the name follow.
const APPLIER_USER: &str = "system:roadstead:";

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name.
    pub username: String,
    /// What tells the user from another of the same name, where that is known.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// What else is known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
    /// Who really asks, where that one asked to be taken for this one.
    pub impersonator: Option<String>,
    /// Where the request comes from, for the record.
    pub origin: AuditOrigin,
    /// The one who really asks, and the impersonation that was asked for: watches end when the right to it is taken away.
    pub(super) behind: Option<Arc<Behind>>,
    /// What this one came with, where that is to be replaced.
    pub old_token: Option<OldToken>,
    /// The stored roles and bindings; none where nothing is allowed by them.
    permissions: Granted,
}

impl Identity {
    /// A user who may do what everybody may.
    #[must_use]
    pub fn user(username: &str, groups: Vec<String>) -> Self {
        Self {
            username: username.to_owned(),
            uid: String::new(),
            groups,
            extra: BTreeMap::new(),
            impersonator: None,
            behind: None,
            origin: AuditOrigin::default(),
            old_token: None,
            permissions: Granted::default(),
        }
    }

    /// The hub itself: its background tasks.
    #[must_use]
    pub fn hub() -> Self {
        Self::user("system:roadstead:hub", vec![MASTERS.to_owned()])
    }

    /// Somebody whom the hub knows: as in Kubernetes in the group of all such, too.
    pub(crate) fn authenticated(username: &str, groups: Vec<String>) -> Self {
        let mut user = Self::user(username, groups);
        if !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }

    /// Whom an issuer vouches for.
    pub(super) fn of_issuer(user: roadstead_oidc::User) -> Self {
        let roadstead_oidc::User { username, uid, groups, extra, .. } = user;
        Self { uid, extra, ..Self::authenticated(&username, groups) }
    }

    /// This one, with what the stored roles and bindings allow.
    pub(super) fn with(mut self, permissions: &Arc<Permissions>) -> Self {
        self.permissions = Granted(Some(Arc::clone(permissions)));
        self
    }

    /// This one, who asks in a request that comes from there. An administrator's credential is noted.
    #[must_use]
    pub fn asks_from(mut self, origin: &AuditOrigin) -> Self {
        self.origin = AuditOrigin { administrator: self.is_master(), ..origin.clone() };
        self
    }

    /// An applier that writes what of its build at a revision goes to the hub.
    pub(crate) fn applier(applier: &ApplierRef, revision: &str) -> Self {
        let ApplierRef { kind, namespace, name } = applier;
        let username = format!("{APPLIER_USER}{}:{namespace}:{name}@{revision}", kind.to_ascii_lowercase());
        Self::user(&username, vec![APPLIERS.to_owned()])
    }

    /// A Receiver that was called. It may do nothing by itself: what it has reconciled is decided before.
    pub(crate) fn receiver(namespace: &str, name: &str) -> Self {
        Self::user(&format!("{APPLIER_USER}receiver:{namespace}:{name}"), Vec::new())
    }

    /// Who did something, for the record.
    #[must_use]
    pub fn recorded(&self) -> Cow<'_, str> {
        match &self.impersonator {
            None => Cow::Borrowed(&self.username),
            Some(really) => Cow::Owned(format!("{} (impersonated by {really})", self.username)),
        }
    }

    /// Whether this one may do everything, whatever is stored.
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    pub(super) fn subject(&self) -> User<'_> {
        User { name: &self.username, groups: &self.groups }
    }

    /// What this one may do besides what is stored.
    fn fixed(&self) -> &'static [PolicyRule] {
        if self.is_master() {
            &fixed::ALL
        } else if self.is_applier() {
            &fixed::CHILDREN
        } else if self.is_in(AUTHENTICATED) {
            &fixed::OWN
        } else {
            &[]
        }
    }

    /// All that this identity may do in a namespace, cluster-wide rights included.
    #[must_use]
    pub fn rules(&self, namespace: &str) -> AllowedRules {
        let mut found = match self.permissions.of(self) {
            Some(permissions) => permissions.rules_for(self.subject(), namespace),
            None => AllowedRules::default(),
        };
        found.rules.extend_from_slice(self.fixed());
        found
    }

    /// Whether this identity may do that, and why.
    #[must_use]
    pub fn decide(&self, asked: &Attributes<'_>) -> Decision {
        if self.is_master() {
            return Decision { allowed: true, reason: String::new() };
        }
        let decision = match self.permissions.of(self) {
            Some(permissions) => permissions.authorize(self.subject(), asked),
            None => Decision { allowed: false, reason: String::new() },
        };
        if !decision.allowed && self.fixed().iter().any(|rule| rule_allows(rule, asked)) {
            return Decision { allowed: true, reason: format!("allowed for everybody in {AUTHENTICATED}") };
        }
        decision
    }

    /// Whether this identity may do that.
    #[must_use]
    pub fn may(&self, asked: &Attributes<'_>) -> bool {
        self.is_master()
            || self.fixed().iter().any(|rule| rule_allows(rule, asked))
            || self.permissions.of(self).is_some_and(|permissions| permissions.allows(self.subject(), asked))
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
        // As in Kubernetes a request for one Namespace is one within it, so that those who have a role there may read it.
        let within = kind.id == KindId::Namespace && !matches!(verb, "list" | "watch");
        let namespace = if within { name } else { namespace };
        let asked =
            Resource { verb, group: kind.group(), resource: kind.plural, subresource, namespace, name };
        self.authorize_resource(&asked)
    }

    /// Whether this identity may do that.
    ///
    /// # Errors
    /// [`HubError::Forbidden`] where it may not, with who wanted what where.
    pub fn authorize_resource(&self, asked: &Resource<'_>) -> Result<(), HubError> {
        if self.may(&Attributes::Resource(*asked)) { Ok(()) } else { Err(self.refusal(asked)) }
    }

    /// In which namespaces this identity may do this with all objects of a namespaced kind.
    #[must_use]
    pub fn reach(&self, verb: &str, kind: &Kind) -> Reach {
        let asked = Resource { verb, group: kind.group(), resource: kind.plural, ..Resource::default() };
        match self.permissions.of(self) {
            _ if self.may(&Attributes::Resource(asked)) => Reach::All,
            Some(permissions) => permissions.reach(self.subject(), asked),
            None => Reach::Namespaces(Vec::new()),
        }
    }

    /// With which objects of a kind of the cluster scope this identity may do this.
    #[must_use]
    pub fn named(&self, verb: &str, kind: &Kind) -> Named {
        self.named_in(verb, kind, "")
    }

    /// The same with a subresource of theirs; of the objects themselves where it is empty.
    #[must_use]
    pub fn named_in(&self, verb: &str, kind: &Kind, subresource: &str) -> Named {
        let (group, resource) = (kind.group(), kind.plural);
        let asked = Resource { verb, group, resource, subresource, ..Resource::default() };
        match self.permissions.of(self) {
            _ if self.may(&Attributes::Resource(asked)) => Named::All,
            Some(permissions) => permissions.named(self.subject(), asked),
            None => Named::Names(Vec::new()),
        }
    }

    /// Tells each time that the stored roles and bindings change; none where this identity's rights do not lie in them.
    pub(crate) fn changes_of_rights(&self) -> Option<watch::Receiver<u64>> {
        self.permissions.of(self).map(Permissions::changes)
    }

    /// The refusal of a request for objects, in Kubernetes' words.
    fn refusal(&self, asked: &Resource<'_>) -> HubError {
        let Resource { verb, group, resource, subresource, namespace, name } = asked;
        let whole =
            if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
        let qualified = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
        let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let place = match *namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let reason = self.decide(&Attributes::Resource(*asked)).reason;
        let reason = if reason.is_empty() { reason } else { format!(": {reason}") };
        HubError::Forbidden(format!(
            "{qualified}{object} is forbidden: User \"{}\" cannot {verb} resource \"{whole}\" in API group \"{group}\" \
             {place}{reason}",
            self.username
        ))
    }

    /// Ends when this identity may no longer do this with objects of a kind; never as long as it may.
    pub async fn until_refused(&self, verb: &str, kind: &Kind, namespace: &str, name: &str) {
        tokio::select! {
            () = self.until(|| self.authorize(verb, kind, "", namespace, name).is_err()) => {}
            () = self.until_not_impersonated() => {}
        }
    }

    /// Ends when whoever asked to be taken for this identity may not any longer; never where nobody did.
    pub(crate) async fn until_not_impersonated(&self) {
        match &self.behind {
            None => std::future::pending().await,
            Some(behind) => behind.who.until(|| behind.may_be().is_err()).await,
        }
    }

    /// Ends once this holds, which is looked at whenever roles or bindings change.
    async fn until(&self, holds: impl Fn() -> bool) {
        let Some(permissions) = self.permissions.of(self) else { return std::future::pending().await };
        let mut changes = permissions.changes();
        while !holds() {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns once all roles and bindings are known that were stored before, where an object of this kind grants rights and is
    /// to be compared with them by [`Self::check_grant`]. Asks the database, so not within a transaction.
    pub(crate) async fn prepare_grant(&self, kind: KindId) -> Result<(), HubError> {
        match self.permissions.of(self) {
            Some(permissions) if grants(kind) => permissions.up_to_date().await,
            _ => Ok(()),
        }
    }

    /// Whether this identity may write an object that grants rights: a role of rights that it holds itself, a binding to such a
    /// role, or an applier with `spec.delegation`. `name` is the one in the request's path.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], [`HubError::NotFound`] for the role that is bound.
    pub(crate) fn check_grant(
        &self,
        name: &str,
        before: Option<&Stored>,
        after: &Stored,
    ) -> Result<(), HubError> {
        if self.is_master() {
            return Ok(());
        }
        if after.kind.is_applier() {
            return self.check_delegation(before, after);
        }
        if !grants(after.kind) {
            return Ok(());
        }
        let write = Write {
            kind: after.kind,
            namespace: &after.namespace,
            name,
            object: &after.object,
            before: before.map(|before| &before.object),
            held: self.fixed(),
        };
        let what = format!("{} \"{}\"", after.kind.get().qualified(), after.name);
        let Some(permissions) = self.permissions.of(self) else {
            return Err(HubError::Forbidden(format!("{what} is forbidden: its author may grant no rights")));
        };
        permissions.check_grant(self.subject(), &write).map_err(|error| match error {
            GrantError::RoleNotFound(missing) => {
                HubError::NotFound { what: missing.strip_suffix(" not found").unwrap_or(&missing).to_owned() }
            }
            error => HubError::Forbidden(format!("{what} is forbidden: {error}")),
        })
    }

    /// What is built by an applier with `spec.delegation` may act beyond its namespace. So the verb `delegate` is needed to set that,
    /// and to change anything of what has it.
    fn check_delegation(&self, before: Option<&Stored>, after: &Stored) -> Result<(), HubError> {
        let delegates = |stored: &Stored| !stored.object["spec"]["delegation"].is_null();
        let is_same = before.is_some_and(|before| wants_the_same(before, after, None));
        if is_same || !(delegates(after) || before.is_some_and(delegates)) {
            return Ok(());
        }
        self.authorize("delegate", after.kind.get(), "", &after.namespace, &after.name)?;
        self.check_delegated(after)
    }

    /// Nobody delegates what they may not do themselves: to use Clusters, to write what children are in other namespaces, and to read
    /// Secrets and ConfigMaps. Which accounts of a cluster there are is for the Cluster's `spec.access`.
    fn check_delegated(&self, after: &Stored) -> Result<(), HubError> {
        let Some(delegation) = after.decode::<AnyApplier>()?.spec.delegation else { return Ok(()) };
        let may = |field: &str, verb: &str, kind: KindId, namespace: &str, name: &str| {
            // All of them, by no name.
            let name = if name == "*" { "" } else { name };
            self.authorize(verb, kind.get(), "", namespace, name).map_err(|error| match error {
                HubError::Forbidden(why) => HubError::Forbidden(format!(
                    "{why}: spec.delegation.{field} of {} asks for it",
                    named(after.kind.get(), &after.name)
                )),
                error => error,
            })
        };
        for cluster in &delegation.clusters {
            may("clusters", "use", KindId::Cluster, "", cluster)?;
        }
        let places: BTreeSet<&str> = delegation.namespaces.values().map(String::as_str).collect();
        let own = after.namespace.as_str();
        for place in places.iter().filter(|place| **place != own) {
            for kind in KINDS.iter().filter(|kind| kind.namespaced() && kind.child != ChildRule::Never) {
                for verb in ["create", "patch", "delete"] {
                    may("namespaces", verb, kind.id, place, "")?;
                }
            }
        }
        for secret in &delegation.secrets {
            for place in places.iter().copied().chain([own]) {
                may("secrets", "get", KindId::Secret, place, secret)?;
                may("secrets", "get", KindId::ConfigMap, place, secret)?;
            }
        }
        Ok(())
    }

    /// Whether this identity may write an applier that deploys to this cluster, the default one included: that needs the verb `use` on
    /// the Cluster. A ConfigMap that names one can be changed later, so that needs the verb on all of them; a kubeconfig Secret of the
    /// namespace is a right by itself. What was there before may be suspended and resumed.
    ///
    /// # Errors
    /// [`HubError::Forbidden`].
    pub(crate) fn check_use(&self, before: Option<&Stored>, after: &Stored) -> Result<(), HubError> {
        if self.is_master() || !after.kind.is_applier() {
            return Ok(());
        }
        // A child is held to what its root may, at each reconciliation.
        if self.is_applier() || before.is_some_and(|before| wants_the_same(before, after, Some("suspend"))) {
            return Ok(());
        }
        let spec = &after.object["spec"];
        let name = match spec["clusterRef"]["name"].as_str() {
            Some(name) => name,
            None if spec["kubeConfig"]["configMapRef"].is_object() => "",
            None => return Ok(()),
        };
        self.authorize("use", KindId::Cluster.get(), "", "", name)
    }

    /// Whether this is an applier that writes its children.
    pub(crate) fn is_applier(&self) -> bool {
        self.is_in(APPLIERS) && self.username.starts_with(APPLIER_USER)
    }
}

/// Whether an applier asks for the same as before, a field of its spec aside.
pub(crate) fn wants_the_same(before: &Stored, after: &Stored, aside: Option<&str>) -> bool {
    let spec = |stored: &Stored| {
        let mut spec = stored.object["spec"].clone();
        if let (Some(fields), Some(aside)) = (spec.as_object_mut(), aside) {
            fields.remove(aside);
        }
        spec
    };
    spec(before) == spec(after) && annotated::wanted(&before.object) == annotated::wanted(&after.object)
}

/// Whether objects of a kind grant rights.
fn grants(kind: KindId) -> bool {
    matches!(kind, KindId::Role | KindId::ClusterRole | KindId::RoleBinding | KindId::ClusterRoleBinding)
}

/// The user that a service account is.
#[must_use]
pub fn account_user(namespace: &str, name: &str) -> Identity {
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        AUTHENTICATED.to_owned(),
    ];
    Identity::user(&format!("system:serviceaccount:{namespace}:{name}"), groups)
}

/// Tokens, and whom they stand for.
pub struct Authenticator {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tokens: Arc<Tokens>,
    pub(super) issuers: Issuers,
    pub(super) accounts: Accounts,
    old_tokens: OldTokenUses,
    pub(super) permissions: Arc<Permissions>,
}

impl Authenticator {
    pub(crate) fn new(context: &Context, tokens: &Arc<Tokens>) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            tokens: Arc::clone(tokens),
            issuers: Issuers::new(context),
            accounts: Accounts::new(context),
            old_tokens: OldTokenUses::new(&context.meters),
            permissions: Arc::new(Permissions::new(context)),
        }
    }

    /// The names of the aggregated ClusterRoles whose stored rules are not those that they are made of.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn outdated_roles(&self) -> Result<Vec<String>, HubError> {
        self.permissions.ready().await?;
        Ok(self.permissions.out_of_date())
    }

    /// The rules that an aggregated ClusterRole is made of; none where it is not aggregated.
    pub(crate) fn aggregated_rules(&self, name: &str) -> Option<Vec<PolicyRule>> {
        self.permissions.aggregated(name)
    }

    /// Tells each time that roles or bindings changed.
    #[must_use]
    pub fn role_changes(&self) -> watch::Receiver<u64> {
        self.permissions.changes()
    }

    /// Asks the issuers that are trusted for their keys, where those that are known are not fresh. Does not wait for them.
    pub fn refresh_issuers(&self) {
        self.issuers.refresh();
    }

    /// Whom a bearer token stands for: one of the hub's own, of one of its service accounts, or of an issuer that is trusted. One of the
    /// hub's own that was taken back, or whose account is gone, may still be taken for two seconds.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`] where it is unknown or expired, [`HubError::TooMany`] where as many tokens are being
    /// looked up as may.
    pub async fn authenticate(&self, token: &str) -> Result<Identity, HubError> {
        let now = self.clock.now();
        let identity = if self.accounts.may_know(token) {
            self.accounts.identity(token, now).await?
        } else {
            self.of_no_account(token, now).await?
        };
        let identity = identity.ok_or_else(|| HubError::Unauthenticated("Unauthorized".to_owned()))?;
        if let Some(token) = &identity.old_token {
            self.old_tokens.count(token, &identity.username, now);
        }
        self.permitted(identity).await
    }

    /// This one with what the stored roles and bindings allow, which are read the first time that somebody needs them.
    pub(super) async fn permitted(&self, identity: Identity) -> Result<Identity, HubError> {
        if identity.is_master() {
            return Ok(identity);
        }
        self.permissions.ready().await?;
        Ok(identity.with(&self.permissions))
    }

    /// Whether a bearer token is one that this hub gave out, though it may have been taken back since; asks no database. Of
    /// use for answers that hold no data, while the database is away.
    #[must_use]
    pub fn was_given_out(&self, token: &str) -> bool {
        let now = self.clock.now();
        self.tokens.was_good(&self.store, token, now) || self.accounts.was_good(token, now)
    }

    /// Makes an administrator's token: one that may do all, for a day. Says when it ends; `why` goes into the audit log.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn create_admin_token(&self, why: &str) -> Result<(Zeroizing<String>, Timestamp), HubError> {
        let order = TokenOrder { lasts: Some(ADMIN_LIFE), why: why.to_owned(), ..TokenOrder::default() };
        let made = self.order_token(&Identity::hub(), order).await?;
        Ok((Zeroizing::new(made.token.expose().to_owned()), made.expires))
    }

    /// How often tokens without an end of their own were used since the start of this process.
    #[must_use]
    pub fn old_token_uses(&self) -> u64 {
        self.old_tokens.uses()
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
        Ok(self.make_token(&Identity::hub(), (username, groups), expires_at, "").await?.1)
    }
}
