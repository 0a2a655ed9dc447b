//! Roles, bindings, users and requests from a seed. Names are of one world alone, and nothing binds anybody outside it.

use roadstead_api::KindId;
use roadstead_rbac::{Attributes, Change, Resource, User};
use roadstead_tests::unique;
use serde_json::{Map, Value, json};

const VERBS: &[&str] = &[
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "escalate",
    "bind",
    "use",
    "*",
];
const GROUPS: &[&str] = &["", "apps", "rbac.authorization.k8s.io", "example.com", "*"];
const RESOURCES: &[&str] = &[
    "pods",
    "pods/log",
    "pods/*",
    "*/log",
    "deployments",
    "deployments/scale",
    "*/scale",
    "secrets",
    "roles",
    "clusterroles",
    "*",
    "*/*",
    "a/b/c",
];
const PLAIN: &[&str] =
    &["pods", "deployments", "secrets", "roles", "clusterroles", "a", "a/b", "pods/log", "*"];
const SUBRESOURCES: &[&str] = &["", "", "", "log", "scale", "status", "*", "b/c"];
const NAMES: &[&str] = &["a", "b", "system:c"];
const URLS: &[&str] = &["*", "/healthz", "/healthz/*", "/heal*", "/x/**", "/a/*/b", "/logs/", "*/x"];
const PATHS: &[&str] =
    &["/healthz", "/healthz/etcd", "/x/y", "/x/", "/x", "/a/q/b", "/a/*/b", "/logs/", "/logs", "/", "*"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or(0)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn some(&mut self, from: &[&str], least: usize, most: usize) -> Vec<String> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| self.pick(from).to_owned()).collect()
    }
}

/// An object of RBAC's kinds.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) kind: KindId,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) object: Value,
}

impl Stored {
    pub(crate) fn change(&self) -> Change<'_> {
        let Self { kind, namespace, name, object } = self;
        Change::Put { kind: *kind, namespace, name, object }
    }
}

/// A user, and what is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) asked: Asked,
}

#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Resource {
        verb: String,
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    },
    Path {
        verb: String,
        path: String,
    },
}

impl Request {
    pub(crate) fn user(&self) -> User<'_> {
        User { name: &self.name, groups: &self.groups }
    }

    pub(crate) fn attributes(&self) -> Attributes<'_> {
        match &self.asked {
            Asked::Resource { verb, group, resource, subresource, namespace, name } => {
                Attributes::Resource(Resource { verb, group, resource, subresource, namespace, name })
            }
            Asked::Path { verb, path } => Attributes::Path { verb, path },
        }
    }
}

/// A user who writes an object that grants rights.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) kind: KindId,
    pub(crate) namespace: String,
    pub(crate) object: Value,
}

impl Granted {
    pub(crate) fn user(&self) -> User<'_> {
        User { name: &self.name, groups: &self.groups }
    }
}

/// All of one round.
pub(crate) struct World {
    random: Random,
    prefix: String,
    namespaces: Vec<String>,
    /// Names and groups.
    users: Vec<(String, Vec<String>)>,
    roles: Vec<String>,
    cluster_roles: Vec<String>,
    aggregated: Vec<String>,
    objects: Vec<Stored>,
    last: Vec<Stored>,
}

impl World {
    pub(crate) fn generate(seed: u64) -> Self {
        let prefix = unique("rbac");
        let mut world = Self {
            random: Random(seed),
            namespaces: vec![format!("{prefix}-a"), format!("{prefix}-b")],
            prefix,
            users: Vec::new(),
            roles: (0..6).map(|n| format!("role-{n}")).collect(),
            cluster_roles: Vec::new(),
            aggregated: Vec::new(),
            objects: Vec::new(),
            last: Vec::new(),
        };
        world.cluster_roles = (0..14).map(|n| format!("{}-{n}", world.prefix)).collect();
        world.make_users();
        world.make_roles();
        world.make_bindings();
        world.make_last();
        world
    }

    pub(crate) fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    pub(crate) fn objects(&self) -> &[Stored] {
        &self.objects
    }

    /// What is stored last.
    pub(crate) fn last(&self) -> &[Stored] {
        &self.last
    }

    pub(crate) fn aggregated(&self) -> &[String] {
        &self.aggregated
    }

    fn group(&self, number: usize) -> String {
        format!("{}:group-{number}", self.prefix)
    }

    fn make_users(&mut self) {
        let authenticated = "system:authenticated".to_owned();
        for number in 0..8 {
            let count = self.random.below(3);
            let mut groups = vec![authenticated.clone()];
            for _ in 0..count {
                let number = self.random.below(4);
                groups.push(self.group(number));
            }
            self.users.push((format!("{}:user-{number}", self.prefix), groups));
        }
        for namespace in self.namespaces.clone() {
            for name in ["robot", "robot.b"] {
                let user = format!("system:serviceaccount:{namespace}:{name}");
                let own = format!("system:serviceaccounts:{namespace}");
                let groups = vec!["system:serviceaccounts".to_owned(), own, authenticated.clone()];
                self.users.push((user, groups));
            }
        }
        // One whose name only looks like a service account's.
        self.users.push((format!("system:serviceaccount:{}", self.namespaces[0]), vec![authenticated]));
    }

    fn rules(&mut self, paths: bool) -> Value {
        let count = self.random.below(7);
        let rules: Vec<Value> = (0..count).map(|_| self.rule(paths)).collect();
        rules.into()
    }

    fn rule(&mut self, paths: bool) -> Value {
        let random = &mut self.random;
        if paths && random.chance(25) {
            let verbs = random.some(&["get", "post", "*"], 1, 2);
            return json!({ "nonResourceURLs": random.some(URLS, 1, 2), "verbs": verbs });
        }
        let mut rule = json!({
            "apiGroups": random.some(GROUPS, 1, 2), "resources": random.some(RESOURCES, 1, 3),
            "verbs": random.some(VERBS, 1, 4),
        });
        if random.chance(25) {
            rule["resourceNames"] = random.some(NAMES, 1, 2).into();
        }
        rule
    }

    fn label(&self, name: &str) -> String {
        format!("{}.test/{name}", self.prefix)
    }

    fn make_roles(&mut self) {
        for namespace in self.namespaces.clone() {
            for name in self.roles.clone() {
                // Some bindings have no role.
                if self.random.chance(85) {
                    let object = json!({ "rules": self.rules(false) });
                    self.objects.push(Stored {
                        kind: KindId::Role,
                        namespace: namespace.clone(),
                        name,
                        object,
                    });
                }
            }
        }
        let own = self.label("world");
        for (number, name) in self.cluster_roles.clone().into_iter().enumerate() {
            if !self.random.chance(90) {
                continue;
            }
            let mut labels = Map::new();
            labels.insert(own.clone(), "yes".into());
            for to in ["x", "y", "z"] {
                if self.random.chance(35) {
                    labels.insert(self.label(to), self.random.pick(&["true", "false"]).into());
                }
            }
            let mut object = json!({ "metadata": { "labels": labels } });
            if number < 4 {
                let count = 1 + self.random.below(2);
                let selectors: Vec<Value> = (0..count).map(|_| self.selector(&own)).collect();
                object["aggregationRule"] = json!({ "clusterRoleSelectors": selectors });
                // Without rules of their own: aggregated roles that select each other would hand those on to each other for ever.
                self.aggregated.push(name.clone());
            } else {
                object["rules"] = self.rules(true);
            }
            self.objects.push(Stored { kind: KindId::ClusterRole, namespace: String::new(), name, object });
        }
    }

    /// A selector of roles of this world only.
    fn selector(&mut self, own: &str) -> Value {
        let key = self.random.pick(&["x", "y", "z"]);
        let key = self.label(key);
        let mut labels = Map::new();
        labels.insert(own.to_owned(), "yes".into());
        let expression = match self.random.below(6) {
            0 => json!({ "key": key, "operator": "In", "values": ["true"] }),
            1 => json!({ "key": key, "operator": "NotIn", "values": ["true"] }),
            2 => json!({ "key": key, "operator": "Exists" }),
            3 => json!({ "key": key, "operator": "DoesNotExist" }),
            _ => {
                labels.insert(key, "true".into());
                return json!({ "matchLabels": labels });
            }
        };
        json!({ "matchLabels": labels, "matchExpressions": [expression] })
    }

    /// `everybody`: whether it may be a group of others than this world's.
    fn subject(&mut self, everybody: bool) -> Value {
        let group = "rbac.authorization.k8s.io";
        match self.random.below(if everybody { 8 } else { 7 }) {
            0..3 => {
                let name = format!("{}:user-{}", self.prefix, self.random.below(8));
                json!({ "kind": "User", "apiGroup": group, "name": name })
            }
            3 => {
                let number = self.random.below(4);
                json!({ "kind": "Group", "apiGroup": group, "name": self.group(number) })
            }
            4 => {
                let user = self.users[8 + self.random.below(5)].0.clone();
                json!({ "kind": "User", "apiGroup": group, "name": user })
            }
            5 | 6 => {
                let name = self.random.pick(&["robot", "robot.b"]);
                let namespace = self.namespaces[self.random.below(2)].clone();
                json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
            }
            _ => {
                let own = format!("system:serviceaccounts:{}", self.namespaces[0]);
                let name =
                    self.random.pick(&["system:authenticated", "system:serviceaccounts", own.as_str()]);
                json!({ "kind": "Group", "apiGroup": group, "name": name })
            }
        }
    }

    fn binding(&mut self, cluster_role: bool, everybody: bool) -> Value {
        let count = 1 + self.random.below(5);
        let subjects: Vec<Value> = (0..count).map(|_| self.subject(everybody)).collect();
        let names = if cluster_role { &self.cluster_roles } else { &self.roles };
        let name = names[self.random.below(names.len())].clone();
        let kind = if cluster_role { "ClusterRole" } else { "Role" };
        let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
        json!({ "roleRef": reference, "subjects": subjects })
    }

    fn make_bindings(&mut self) {
        for namespace in self.namespaces.clone() {
            for number in 0..12 {
                let cluster_role = self.random.chance(50);
                let everybody = self.random.chance(20);
                let object = self.binding(cluster_role, everybody);
                let (kind, namespace) = (KindId::RoleBinding, namespace.clone());
                self.objects.push(Stored { kind, namespace, name: format!("binding-{number}"), object });
            }
        }
        for number in 0..6 {
            let object = self.binding(true, false);
            let name = format!("{}-binding-{number}", self.prefix);
            self.objects.push(Stored {
                kind: KindId::ClusterRoleBinding,
                namespace: String::new(),
                name,
                object,
            });
        }
    }

    /// A role and a binding of each sort for a user who has nothing else: once that user may do what they allow, all is known. And
    /// that everybody here may write roles and bindings, which alone says nothing of what may be in them.
    fn make_last(&mut self) {
        let (namespace, cluster_name) = (self.namespaces[0].clone(), format!("{}-last", self.prefix));
        let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["create"] });
        let subject =
            json!([{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": self.last_user() }]);
        let reference = |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
        let everybody: Vec<Value> = self
            .users
            .iter()
            .map(|(name, _)| json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name }))
            .collect();
        let writer = format!("{}-writer", self.prefix);
        let kinds = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
        let cluster = String::new;
        let last = [
            (
                KindId::ClusterRole,
                cluster(),
                writer.clone(),
                json!({ "rules": [rule("rbac.authorization.k8s.io", &kinds)] }),
            ),
            (
                KindId::ClusterRoleBinding,
                cluster(),
                writer.clone(),
                json!({ "roleRef": reference("ClusterRole", &writer), "subjects": everybody }),
            ),
            (
                KindId::Role,
                namespace.clone(),
                "last".to_owned(),
                json!({ "rules": [rule("last", &["there"])] }),
            ),
            (
                KindId::ClusterRole,
                cluster(),
                cluster_name.clone(),
                json!({ "rules": [rule("last", &["everywhere"])] }),
            ),
            (
                KindId::RoleBinding,
                namespace,
                "last".to_owned(),
                json!({ "roleRef": reference("Role", "last"), "subjects": subject }),
            ),
            (
                KindId::ClusterRoleBinding,
                cluster(),
                cluster_name.clone(),
                json!({ "roleRef": reference("ClusterRole", &cluster_name), "subjects": subject }),
            ),
        ];
        self.last.extend(last.map(|(kind, namespace, name, object)| Stored {
            kind,
            namespace,
            name,
            object,
        }));
    }

    fn last_user(&self) -> String {
        format!("{}:last", self.prefix)
    }

    pub(crate) fn last_requests(&self) -> [Request; 2] {
        ["there", "everywhere"].map(|resource| Request {
            name: self.last_user(),
            groups: Vec::new(),
            asked: Asked::Resource {
                verb: "create".to_owned(),
                group: "last".to_owned(),
                resource: resource.to_owned(),
                subresource: String::new(),
                namespace: self.namespaces[0].clone(),
                name: String::new(),
            },
        })
    }

    fn somebody(&mut self) -> (String, Vec<String>) {
        self.users[self.random.below(self.users.len())].clone()
    }

    pub(crate) fn request(&mut self) -> Request {
        let (name, groups) = self.somebody();
        let random = &mut self.random;
        let asked = if random.chance(15) {
            let verb = random.pick(&["get", "post", "delete"]).to_owned();
            Asked::Path { verb, path: random.pick(PATHS).to_owned() }
        } else {
            let namespace = match random.below(8) {
                0 => String::new(),
                1 => "kube-system".to_owned(),
                2..4 => self.namespaces[1].clone(),
                _ => self.namespaces[0].clone(),
            };
            Asked::Resource {
                verb: random.pick(VERBS).to_owned(),
                group: random.pick(GROUPS).to_owned(),
                resource: random.pick(PLAIN).to_owned(),
                subresource: random.pick(SUBRESOURCES).to_owned(),
                namespace,
                name: if random.chance(50) { String::new() } else { random.pick(NAMES).to_owned() },
            }
        };
        Request { name, groups, asked }
    }

    pub(crate) fn grant(&mut self) -> Granted {
        let (name, groups) = self.somebody();
        let namespace = self.namespaces[0].clone();
        let (kind, namespace, object) = match self.random.below(8) {
            0..3 => (KindId::Role, namespace, json!({ "rules": self.small_rules(false) })),
            3 => (KindId::ClusterRole, String::new(), json!({ "rules": self.small_rules(true) })),
            4 => {
                let selectors = json!({ "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] });
                (KindId::ClusterRole, String::new(), json!({ "aggregationRule": selectors }))
            }
            5 => (KindId::ClusterRoleBinding, String::new(), self.binding(true, false)),
            _ => {
                let cluster_role = self.random.chance(50);
                (KindId::RoleBinding, namespace, self.binding(cluster_role, false))
            }
        };
        Granted { name, groups, kind, namespace, object }
    }

    /// Rules that somebody may well hold already.
    fn small_rules(&mut self, paths: bool) -> Value {
        if self.random.chance(30) {
            return self.rules(paths);
        }
        let random = &mut self.random;
        let mut rule = json!({
            "apiGroups": random.some(GROUPS, 1, 1), "resources": random.some(RESOURCES, 1, 1), "verbs": random.some(VERBS, 1, 2),
        });
        if random.chance(40) {
            rule["resourceNames"] = random.some(NAMES, 1, 1).into();
        }
        json!([rule])
    }
}

/// Roles and bindings for a measurement: teams that may view or edit namespaces, by Roles and ClusterRoles.
pub(crate) fn crowd(users: usize, bindings: usize) -> impl Iterator<Item = Stored> {
    let built_in = roadstead_rbac::built_in();
    let roles = built_in.into_iter().map(|(kind, name, object)| Stored {
        kind,
        namespace: String::new(),
        name,
        object,
    });
    let bound = (0..bindings).map(move |number| {
        let subjects = json!([
            { "kind": "User", "name": format!("user-{}", number % users) },
            { "kind": "Group", "name": format!("team-{}", number % 100) },
        ]);
        let role = if number % 2 == 0 { "view" } else { "admin" };
        let object = json!({ "roleRef": { "kind": "ClusterRole", "name": role }, "subjects": subjects });
        let (namespace, name) = (format!("ns-{}", number % 50), format!("binding-{number}"));
        Stored { kind: KindId::RoleBinding, namespace, name, object }
    });
    roles.chain(bound)
}
