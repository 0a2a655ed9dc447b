//! What may be applied and deleted.

use roadstead_model::{ObjectRef, PendingDeletion};
use serde_json::Value;

use crate::account::{Account, Rights};
use crate::policy::{Policy, Setting};
use crate::refused::{Refused, Rule};
use crate::{confirm, workload};

/// What is to be done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Create it or change it.
    Apply,
    /// Delete it.
    Delete,
    /// Tell the hub what it holds.
    Read,
}

/// An object that something is to be done to.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// Which.
    pub reference: &'a ObjectRef,
    /// What is sent; none where it is deleted.
    pub content: Option<&'a Value>,
}

const RBAC: &str = "rbac.authorization.k8s.io";

impl Policy {
    /// Whether a dispatch may act as `account`, or with the agent's own rights where none is named.
    ///
    /// # Errors
    /// [`Refused`], by the rule that forbids it.
    pub fn check_account(&self, account: Option<&Account>) -> Result<(), Refused> {
        let Some(account) = account else {
            if self.account_required {
                let why = "the Kustomization has no service account (spec.serviceAccountName), and the agent's own rights \
                           may not be used";
                return Err(self.refuse(Rule::AccountRequired, why.to_owned(), None));
            }
            return Ok(());
        };
        let is_allowed =
            self.accounts.iter().any(|allowed| allowed.is_match(&account.namespace, &account.name));
        if !account.is_well_formed() || !is_allowed {
            let why = format!("the agent may not act as service account {account}");
            return Err(self.refuse(Rule::AccountAllowed, why, None));
        }
        if self.check_rights && account.namespace == self.namespace {
            let why = format!("service account {account} is in the agent's own namespace");
            return Err(self.refuse(Rule::AccountRights, why, None));
        }
        Ok(())
    }

    /// Whether the rights of `account` in the agent's namespace are to be asked for, to be given to [`Self::check_rights`].
    #[must_use]
    pub fn wants_rights(&self, account: &Account) -> bool {
        self.check_rights
            && !self.trusted.iter().any(|trusted| trusted.is_match(&account.namespace, &account.name))
    }

    /// Whether an account that has these rights in the agent's namespace may be acted as, or run a workload; `rights` is the
    /// reason where they could not be found out.
    ///
    /// # Errors
    /// [`Refused`], where it has any that count.
    pub fn check_rights(&self, account: &Account, rights: &Result<Rights, String>) -> Result<(), Refused> {
        let found = match rights {
            Ok(rights) => match rights.first_that_counts() {
                None => return Ok(()),
                Some(found) => format!("has rights in the agent's namespace ({found})"),
            },
            Err(why) => {
                format!("may have rights in the agent's namespace, which could not be checked: {why}")
            }
        };
        let why =
            format!("service account {account} {found}; to allow it, list it in serviceAccounts.trusted");
        Err(self.refuse(Rule::AccountRights, why, None))
    }

    /// The accounts, beside the one acted as, whose rights an object would make use of: those that its pods run as. In order.
    #[must_use]
    pub fn accounts_used(&self, object: &Object<'_>) -> Vec<Account> {
        let Some(content) = object.content.filter(|_| self.check_rights) else { return Vec::new() };
        let names = workload::accounts(&object.reference.kind, content).into_iter();
        names.map(|name| Account { namespace: object.reference.namespace.clone(), name }).collect()
    }

    /// Whether `account` (or the agent's own rights) may be used to do that to this object.
    ///
    /// # Errors
    /// [`Refused`], by the first rule that forbids it.
    pub fn evaluate(
        &self,
        action: Action,
        object: &Object<'_>,
        account: Option<&Account>,
    ) -> Result<(), Refused> {
        self.check_account(account)?;
        let reference = object.reference;
        if self.is_own(action, reference) {
            let why = format!("{} {reference}: it is the agent's own", doing(action));
            return Err(self.refuse(Rule::AgentNamespace, why, None));
        }
        let Some((rule, why)) = self.forbidden(action, object) else { return Ok(()) };
        let line = confirm::line(action, reference, object.content);
        if self.confirmed.has(&line) {
            return Ok(());
        }
        Err(self.refuse(rule, format!("{} {reference}: {why}", doing(action)), Some(line)))
    }

    /// Whether a deletion was confirmed by name: then it is not counted either.
    #[must_use]
    pub fn is_confirmed_deletion(&self, object: &ObjectRef) -> bool {
        self.confirmed.has(&confirm::line(Action::Delete, object, None))
    }

    /// The refusal of a deletion that is one too many.
    #[must_use]
    pub fn too_many_deletions(&self, object: &ObjectRef, limit: u32) -> Refused {
        let why = format!("delete {object}: there were {limit} deletions within the last hour");
        self.refuse(Rule::DeletionsPerHour, why, Some(confirm::line(Action::Delete, object, None)))
    }

    /// Whether all of these may be deleted at once. `owned` is what the applier owns, `keep` what is to stay of it, and what is new.
    ///
    /// # Errors
    /// [`Refused`], where they are beyond the policy's bounds and nobody in the cluster has confirmed just them.
    pub fn check_deletions(
        &self,
        owned: &[ObjectRef],
        keep: &[ObjectRef],
        deletions: &[PendingDeletion],
    ) -> Result<(), Refused> {
        let held = self.deletions_at_once.as_ref().and_then(|bounds| bounds.holds(owned, keep, deletions));
        let Some(held) = held else { return Ok(()) };
        let line = confirm::deletions(&held.digest);
        if self.confirmed.has(&line) {
            return Ok(());
        }
        Err(self.refuse(Rule::DeletionsAtOnce, held.why, Some(line)))
    }

    /// Whether deletions at once have bounds here.
    #[must_use]
    pub fn bounds_deletions(&self) -> bool {
        self.deletions_at_once.is_some()
    }

    /// Whether an object is in the agent's namespace, or is that, or one of those that the agent is installed with.
    fn is_own(&self, action: Action, object: &ObjectRef) -> bool {
        let own = self.namespace.as_str();
        let is_namespace = object.group.is_empty() && object.kind == "Namespace" && object.name == own;
        if self.manage_own && !(is_namespace && action == Action::Delete) {
            return false;
        }
        let is_rbac = object.group == RBAC && object.namespace.is_empty();
        is_namespace
            || (!own.is_empty() && object.namespace == own)
            || (is_rbac && self.own_cluster_scoped().contains(&object.name))
    }

    /// The names of the agent's ClusterRole and ClusterRoleBindings.
    fn own_cluster_scoped(&self) -> [String; 2] {
        let suffix =
            if self.namespace == "roadstead-system" { String::new() } else { format!("-{}", self.namespace) };
        ["roadstead-agent", "roadstead-agent-cluster-admin"].map(|name| format!("{name}{suffix}"))
    }

    /// The rule that forbids it whoever does it, and why.
    fn forbidden(&self, action: Action, object: &Object<'_>) -> Option<(Rule, String)> {
        let Object { reference, content } = *object;
        let group = if reference.group.is_empty() { "core" } else { &reference.group };
        if !self.kinds.allow(|pattern| pattern.is_match(group, &reference.kind)) {
            return Some((
                Rule::Kinds,
                format!("objects of kind {group}/{} may not be changed", reference.kind),
            ));
        }
        let is_namespace = reference.group.is_empty() && reference.kind == "Namespace";
        let namespace = if is_namespace { &reference.name } else { &reference.namespace };
        if !namespace.is_empty()
            && !self.namespaces.allow(|pattern| crate::pattern::matches(pattern, namespace))
        {
            return Some((Rule::Namespaces, format!("namespace {namespace} may not be changed")));
        }
        if action == Action::Delete && is_namespace && self.namespace_deletions == Setting::Refuse {
            return Some((
                Rule::DeletedNamespaces,
                "namespaces may not be deleted, because everything in them would be deleted too".to_owned(),
            ));
        }
        if self.deletions_by_owner == Setting::Refuse && content.is_some_and(has_owner) {
            return Some((
                Rule::Owners,
                "metadata.ownerReferences would let the cluster delete it, without being counted, once its owner is gone"
                    .to_owned(),
            ));
        }
        let content = content.filter(|_| self.privileged == Setting::Refuse)?;
        let what = workload::first_privilege(&reference.kind, content)?;
        Some((Rule::Privileged, format!("{what} breaks a container's isolation, or weakens that of others")))
    }
}

/// Whether the garbage collector may come to delete it. What is not a list is refused as well: the apiserver may be of another
/// mind.
fn has_owner(content: &Value) -> bool {
    match &content["metadata"]["ownerReferences"] {
        Value::Null => false,
        Value::Array(owners) => !owners.is_empty(),
        _ => true,
    }
}

fn doing(action: Action) -> &'static str {
    match action {
        Action::Apply => "apply",
        Action::Delete => "delete",
        Action::Read => "read",
    }
}
