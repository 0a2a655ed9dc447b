//! What is kept of the stored roles and bindings, and where a user's bindings are found in it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use roadstead_api::KindId;
use roadstead_api::rbac::{AggregationRule, LabelSelector, PolicyRule, RoleRef, Subject};
use serde::Deserialize;
use serde_json::Value;

use crate::User;
use crate::aggregate::{self, Parts};

/// How much a policy keeps, in bytes of its texts and what holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all roles and bindings together.
    pub all: usize,
    /// Of the Roles and RoleBindings of one namespace, so that a tenant who makes many takes no room from others.
    pub namespace: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { all: 64 << 20, namespace: 2 << 20 }
    }
}

/// What a text costs beside its bytes.
const TEXT: usize = 48;
/// What a rule, a subject or an object costs beside its texts.
const ITEM: usize = 160;

/// Why an object's rights are not known to a policy: nothing is allowed by it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It is not what its kind says.
    #[error("{kind} {name} cannot be read: {why}")]
    Malformed {
        /// Its kind.
        kind: KindId,
        /// Its name, with its namespace before it.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// There is no room for it.
    #[error(
        "{kind} {name} is not in force: the roles and bindings of {place} are larger than {limit} bytes: delete some"
    )]
    Full {
        /// Its kind.
        kind: KindId,
        /// Its name, with its namespace before it.
        name: String,
        /// Of what there are too many.
        place: String,
        /// How much there may be.
        limit: usize,
    },
}

/// A change of what is stored.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// An object was made or replaced. Objects of other kinds than RBAC's four are ignored.
    Put {
        /// Its kind.
        kind: KindId,
        /// Its namespace; empty for those of the cluster scope.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
        /// The object, as `rbac.authorization.k8s.io/v1` has it.
        object: &'a Value,
    },
    /// An object is gone.
    Remove {
        /// Its kind.
        kind: KindId,
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
}

/// What a ClusterRole grants.
#[derive(Debug, Default)]
pub(crate) struct ClusterRole {
    pub(crate) rules: Arc<[PolicyRule]>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Where it is put together from others; then its own rules are theirs, whatever is stored.
    pub(crate) selectors: Option<Vec<LabelSelector>>,
    /// Where it is, the digest of the rules that are stored all the same.
    stored: u64,
    size: usize,
}

/// What a Role grants.
#[derive(Debug)]
struct Role {
    rules: Arc<[PolicyRule]>,
    size: usize,
}

/// A binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) role: RoleRef,
    pub(crate) subjects: Vec<Subject>,
    size: usize,
}

/// The bindings of a namespace or of the cluster, by whom they bind.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    by_name: BTreeMap<Arc<str>, Binding>,
    /// By the user's name, service accounts by theirs as users: to each binding the first subject that is this one.
    users: HashMap<String, BTreeMap<Arc<str>, usize>>,
    groups: HashMap<String, BTreeMap<Arc<str>, usize>>,
}

/// Roles and bindings of one namespace.
#[derive(Debug, Default)]
struct Namespace {
    roles: BTreeMap<String, Role>,
    bindings: Bindings,
    size: usize,
}

/// The rules and bindings of all stored objects.
#[derive(Debug, Default)]
pub struct Policy {
    limits: Limits,
    size: usize,
    /// Of these what is in namespaces.
    namespaced: usize,
    cluster_roles: BTreeMap<String, ClusterRole>,
    cluster_bindings: Bindings,
    namespaces: HashMap<String, Namespace>,
    parts: Parts,
}

/// The rules of a role, in their pieces.
pub(crate) type Pieces<'a> = &'a [Arc<[PolicyRule]>];

impl Policy {
    /// An empty policy that keeps no more than this.
    #[must_use]
    pub fn within(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes changes over, in their order. Returns those objects whose rights are not in force.
    pub fn apply<'a>(&mut self, changes: impl IntoIterator<Item = Change<'a>>) -> Vec<PutError> {
        let mut errors = Vec::new();
        let mut aggregated = false;
        for change in changes {
            let (kind, namespace, name) = match change {
                Change::Put { kind, namespace, name, .. } | Change::Remove { kind, namespace, name } => {
                    (kind, namespace, name)
                }
            };
            aggregated |= kind == KindId::ClusterRole;
            self.remove(kind, namespace, name);
            if let Change::Put { object, .. } = change
                && let Err(error) = self.put(kind, namespace, name, object)
            {
                errors.push(error);
            }
        }
        if aggregated {
            self.parts = aggregate::resolve(&self.cluster_roles);
        }
        errors
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The rules of an aggregated ClusterRole, put together from those that it selects, each once; none where it is not
    /// aggregated.
    #[must_use]
    pub fn aggregated(&self, name: &str) -> Option<Vec<PolicyRule>> {
        self.cluster_roles.get(name)?.selectors.as_ref()?;
        Some(aggregate::each_once(self.parts.of(name)).cloned().collect())
    }

    /// The names of the aggregated ClusterRoles whose stored rules are not those that they are put together from.
    #[must_use]
    pub fn out_of_date(&self) -> Vec<String> {
        let aggregated = self.cluster_roles.iter().filter(|(_, role)| role.selectors.is_some());
        let stale = aggregated
            .filter(|(name, role)| role.stored != digest(aggregate::each_once(self.parts.of(name))));
        stale.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn cluster_bindings(&self) -> &Bindings {
        &self.cluster_bindings
    }

    pub(crate) fn bindings(&self, namespace: &str) -> Option<&Bindings> {
        Some(&self.namespaces.get(namespace)?.bindings)
    }

    /// The namespaces that have a binding of this user, by name.
    pub(crate) fn namespaces_of(&self, user: User<'_>) -> Vec<&str> {
        let bound = self.namespaces.iter().filter(|(_, namespace)| namespace.bindings.binds(user));
        let mut names: Vec<&str> = bound.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// The rules of the role that a binding of this namespace, or of none, names.
    ///
    /// # Errors
    /// In kube-apiserver's words, where there is no such role.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<Pieces<'_>, String> {
        let missing =
            |kind: &str| format!("{kind}.rbac.authorization.k8s.io {} not found", crate::quoted(&role.name));
        match role.kind.as_str() {
            "Role" => {
                let found = self.namespaces.get(namespace).and_then(|of| of.roles.get(&role.name));
                found.map(|role| std::slice::from_ref(&role.rules)).ok_or_else(|| missing("role"))
            }
            "ClusterRole" => match self.cluster_roles.get(&role.name) {
                None => Err(missing("clusterrole")),
                Some(found) if found.selectors.is_some() => Ok(self.parts.of(&role.name)),
                Some(found) => Ok(std::slice::from_ref(&found.rules)),
            },
            other => Err(format!("unsupported role reference kind: {}", crate::quoted(other))),
        }
    }

    fn put(&mut self, kind: KindId, namespace: &str, name: &str, object: &Value) -> Result<(), PutError> {
        let full_name = || if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let malformed = |error: serde_json::Error| PutError::Malformed {
            kind,
            name: full_name(),
            why: error.to_string(),
        };
        match kind {
            KindId::Role | KindId::ClusterRole => {
                let stored = StoredRole::deserialize(object).map_err(malformed)?;
                let size = stored.size() + name.len() + namespace.len() + ITEM;
                self.room(kind, namespace, full_name, size)?;
                if kind == KindId::Role {
                    let role = Role { rules: stored.rules.unwrap_or_default().into(), size };
                    self.namespace(namespace).roles.insert(name.to_owned(), role);
                } else {
                    self.cluster_roles.insert(name.to_owned(), stored.cluster_role(size));
                }
            }
            KindId::RoleBinding | KindId::ClusterRoleBinding => {
                let stored = StoredBinding::deserialize(object).map_err(malformed)?;
                let size = stored.size() + name.len() + namespace.len() + ITEM;
                self.room(kind, namespace, full_name, size)?;
                let subjects = stored.subjects.unwrap_or_default();
                let binding = Binding { role: stored.role_ref, subjects, size };
                let bindings = if kind == KindId::RoleBinding {
                    &mut self.namespace(namespace).bindings
                } else {
                    &mut self.cluster_bindings
                };
                bindings.insert(namespace, name, binding);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the room for an object.
    fn room(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: impl Fn() -> String,
        size: usize,
    ) -> Result<(), PutError> {
        let full = |place: String, limit| PutError::Full { kind, name: name(), place, limit };
        if self.size.saturating_add(size) > self.limits.all {
            return Err(full("this hub".to_owned(), self.limits.all));
        }
        if !namespace.is_empty() {
            // Many namespaces together take no room from what is for the whole hub.
            let most = self.limits.all / 4 * 3;
            if self.namespaced.saturating_add(size) > most {
                return Err(full("all namespaces together".to_owned(), most));
            }
            let held = self.namespaces.get(namespace).map_or(0, |of| of.size);
            if held.saturating_add(size) > self.limits.namespace {
                return Err(full(format!("namespace {namespace}"), self.limits.namespace));
            }
            self.namespace(namespace).size += size;
            self.namespaced += size;
        }
        self.size += size;
        Ok(())
    }

    fn namespace(&mut self, name: &str) -> &mut Namespace {
        self.namespaces.entry(name.to_owned()).or_default()
    }

    fn remove(&mut self, kind: KindId, namespace: &str, name: &str) {
        let size = match kind {
            KindId::ClusterRole => self.cluster_roles.remove(name).map(|role| role.size),
            KindId::ClusterRoleBinding => self.cluster_bindings.remove("", name),
            KindId::Role | KindId::RoleBinding => {
                let Some(of) = self.namespaces.get_mut(namespace) else { return };
                let size = if kind == KindId::Role {
                    of.roles.remove(name).map(|role| role.size)
                } else {
                    of.bindings.remove(namespace, name)
                };
                of.size -= size.unwrap_or(0);
                self.namespaced -= size.unwrap_or(0);
                if of.roles.is_empty() && of.bindings.by_name.is_empty() {
                    self.namespaces.remove(namespace);
                }
                size
            }
            _ => None,
        };
        self.size -= size.unwrap_or(0);
    }
}

impl Bindings {
    /// The bindings that bind a user, by name, each with the first of its subjects that is this user or a group of theirs.
    pub(crate) fn of(&self, user: User<'_>) -> BTreeMap<&str, usize> {
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        let by_groups = user.groups.iter().filter_map(|group| self.groups.get(group));
        for (binding, subject) in self.users.get(user.name).into_iter().chain(by_groups).flatten() {
            found.entry(binding).and_modify(|first| *first = (*first).min(*subject)).or_insert(*subject);
        }
        found
    }

    /// Whether any binds the user.
    fn binds(&self, user: User<'_>) -> bool {
        self.users.contains_key(user.name) || user.groups.iter().any(|group| self.groups.contains_key(group))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Binding> {
        self.by_name.get(name)
    }

    fn insert(&mut self, namespace: &str, name: &str, binding: Binding) {
        let name: Arc<str> = name.into();
        for (index, subject) in binding.subjects.iter().enumerate() {
            let (map, key) = match subject.kind.as_str() {
                "Group" => (&mut self.groups, Some(subject.name.clone())),
                _ => (&mut self.users, user_of(subject, namespace)),
            };
            let Some(key) = key else { continue };
            map.entry(key).or_default().entry(Arc::clone(&name)).or_insert(index);
        }
        self.by_name.insert(name, binding);
    }

    /// Returns how large it was.
    fn remove(&mut self, namespace: &str, name: &str) -> Option<usize> {
        let binding = self.by_name.remove(name)?;
        for subject in &binding.subjects {
            let (map, key) = match subject.kind.as_str() {
                "Group" => (&mut self.groups, Some(subject.name.clone())),
                _ => (&mut self.users, user_of(subject, namespace)),
            };
            let Some(key) = key else { continue };
            if let Some(bindings) = map.get_mut(&key) {
                bindings.remove(name);
                if bindings.is_empty() {
                    map.remove(&key);
                }
            }
        }
        Some(binding.size)
    }
}

/// The name of the user that a subject is: a service account without a namespace is one of the binding's, and in a
/// ClusterRoleBinding none.
fn user_of(subject: &Subject, namespace: &str) -> Option<String> {
    match subject.kind.as_str() {
        "User" => Some(subject.name.clone()),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|own| !own.is_empty()).unwrap_or(namespace);
            (!own.is_empty()).then(|| format!("system:serviceaccount:{own}:{}", subject.name))
        }
        _ => None,
    }
}

/// The parts of a stored role that count here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRole {
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
    #[serde(default)]
    aggregation_rule: Option<AggregationRule>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// The parts of a stored binding that count here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredBinding {
    role_ref: RoleRef,
    #[serde(default)]
    subjects: Option<Vec<Subject>>,
}

/// Tells whether two lists of rules are the same, within a process.
fn digest<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for PolicyRule { verbs, api_groups, resources, resource_names, non_resource_urls } in rules {
        (verbs, api_groups, resources, resource_names, non_resource_urls).hash(&mut hasher);
    }
    hasher.finish()
}

fn texts<'a>(list: impl IntoIterator<Item = &'a String>) -> usize {
    list.into_iter().map(|text| text.len() + TEXT).sum()
}

impl StoredRole {
    /// Bytes of what is kept: of an aggregated one not its rules.
    fn size(&self) -> usize {
        let kept = self.rules.iter().flatten().filter(|_| self.aggregation_rule.is_none());
        let rules = kept.map(|rule| {
            let lists = [
                &rule.verbs,
                &rule.api_groups,
                &rule.resources,
                &rule.resource_names,
                &rule.non_resource_urls,
            ];
            ITEM + lists.into_iter().map(texts).sum::<usize>()
        });
        let labels = self.metadata.labels.iter().flatten().map(|(key, value)| texts([key, value]));
        let selectors = self.aggregation_rule.iter().flat_map(|rule| &rule.cluster_role_selectors);
        let selectors = selectors.map(|selector| {
            let labels = selector.match_labels.iter().map(|(key, value)| texts([key, value]));
            let expressions = selector.match_expressions.iter().map(|expression| {
                ITEM + texts([&expression.key, &expression.operator]) + texts(&expression.values)
            });
            ITEM + labels.sum::<usize>() + expressions.sum::<usize>()
        });
        rules.sum::<usize>() + labels.sum::<usize>() + selectors.sum::<usize>()
    }

    fn cluster_role(self, size: usize) -> ClusterRole {
        let selectors = self.aggregation_rule.map(|rule| rule.cluster_role_selectors);
        let mut rules = self.rules.unwrap_or_default();
        let stored = digest(&rules);
        // What is stored of an aggregated one is what was put together last: only the present counts.
        if selectors.is_some() {
            rules = Vec::new();
        }
        let labels = self.metadata.labels.unwrap_or_default();
        ClusterRole { rules: rules.into(), labels, selectors, stored, size }
    }
}

impl StoredBinding {
    fn size(&self) -> usize {
        let subjects = self.subjects.iter().flatten().map(|subject| {
            // The name is a key of the index, too.
            ITEM + 2 * texts([&subject.name]) + texts(&subject.namespace) + texts([&subject.kind])
        });
        texts([&self.role_ref.kind, &self.role_ref.name]) + subjects.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(verbs: usize) -> Value {
        let verbs: Vec<String> = (0..verbs).map(|verb| format!("verb-{verb}")).collect();
        json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs }] })
    }

    fn put<'a>(kind: KindId, namespace: &'a str, name: &'a str, object: &'a Value) -> Change<'a> {
        Change::Put { kind, namespace, name, object }
    }

    #[test]
    fn a_namespace_that_is_full_takes_no_room_from_others() {
        let mut policy = Policy::within(Limits { all: 100_000, namespace: 10_000 });
        let (small, large) = (role(1), role(200));
        let errors = policy.apply([
            put(KindId::Role, "a", "large", &large),
            put(KindId::Role, "a", "small", &small),
            put(KindId::Role, "b", "small", &small),
        ]);
        assert!(matches!(&errors[..], [PutError::Full { name, .. }] if name == "a/large"), "{errors:?}");
        let reference =
            RoleRef { api_group: String::new(), kind: "Role".to_owned(), name: "small".to_owned() };
        assert!(policy.rules_of(&reference, "a").is_ok() && policy.rules_of(&reference, "b").is_ok());
        for namespace in ["a", "b"] {
            policy.apply([Change::Remove { kind: KindId::Role, namespace, name: "small" }]);
        }
        assert_eq!((policy.size(), policy.namespaces.len()), (0, 0));
    }

    #[test]
    fn namespaces_take_no_room_from_what_is_for_the_whole_hub() {
        let mut policy = Policy::within(Limits { all: 40_000, namespace: 10_000 });
        let role = role(40);
        let names: Vec<String> = (0..40).map(|index| format!("n{index}")).collect();
        let errors = policy.apply(names.iter().map(|name| put(KindId::Role, name, "r", &role)));
        let full = |error: &PutError| matches!(error, PutError::Full { place, .. } if place == "all namespaces together");
        assert!(!errors.is_empty() && errors.iter().all(full), "{errors:?}");
        assert!(policy.size() <= 30_000);
        assert_eq!(policy.apply([put(KindId::ClusterRole, "", "r", &role)]), []);
        for namespace in &names {
            policy.apply([Change::Remove { kind: KindId::Role, namespace, name: "r" }]);
        }
        assert_eq!(policy.namespaced, 0);
        assert_eq!(policy.apply([put(KindId::Role, "n39", "r", &role)]), []);
    }

    #[test]
    fn what_cannot_be_read_grants_nothing_and_what_it_was_before_neither() {
        let mut policy = Policy::default();
        let good = role(1);
        policy.apply([put(KindId::ClusterRole, "", "a", &good)]);
        for bad in [json!({ "rules": {} }), json!({ "rules": [{ "verbs": "get" }] }), json!("x")] {
            let errors = policy.apply([put(KindId::ClusterRole, "", "a", &bad)]);
            assert!(matches!(errors[..], [PutError::Malformed { .. }]), "{bad}: {errors:?}");
            assert_eq!(policy.cluster_roles.len(), 0);
        }
        let errors = policy.apply([put(KindId::RoleBinding, "a", "b", &json!({ "subjects": [] }))]);
        assert_eq!(errors.len(), 1);
        assert_eq!(policy.size(), 0);
    }

    #[test]
    fn a_binding_that_is_replaced_leaves_nothing_in_the_index() {
        let mut policy = Policy::default();
        let binding = |name: &str| {
            json!({ "roleRef": { "kind": "ClusterRole", "name": "x" }, "subjects": [
                { "kind": "User", "name": name }, { "kind": "Group", "name": name }, { "kind": "User", "name": name },
                { "kind": "ServiceAccount", "name": name }, { "kind": "Other", "name": name } ] })
        };
        let (jane, joe) = (binding("jane"), binding("joe"));
        policy.apply([put(KindId::RoleBinding, "a", "b", &jane), put(KindId::RoleBinding, "a", "b", &joe)]);
        let bindings = policy.bindings("a").unwrap();
        let user = |name| User { name, groups: &[] };
        assert!(bindings.of(user("jane")).is_empty());
        assert_eq!(bindings.of(user("joe")), BTreeMap::from([("b", 0)]));
        assert_eq!(bindings.of(user("system:serviceaccount:a:joe")), BTreeMap::from([("b", 3)]));
        let groups = ["joe".to_owned()];
        assert_eq!(bindings.of(User { name: "x", groups: &groups }), BTreeMap::from([("b", 1)]));
        policy.apply([Change::Remove { kind: KindId::RoleBinding, namespace: "a", name: "b" }]);
        assert_eq!((policy.size(), policy.namespaces.len()), (0, 0));
    }
}
