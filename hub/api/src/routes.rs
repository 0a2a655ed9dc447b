//! All that the API serves, as tables: the router is made from them, and what is in none of them is not found. So a test can
//! walk every path with every method ([`routes`]) and compare who may do what with what a person has reviewed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use axum::routing::{MethodRouter, get, post};
use roadstead_api::{KINDS, Kind, KindId};
use roadstead_hub_core::identity::SIGN_IN_BACK;

use crate::administration::Administered;
use crate::path::{self, SUBRESOURCES, Subresource, Target};
use crate::published::{PUBLISHED, Published};
use crate::questions::{self, QUESTIONS, Question};
use crate::resources::VERBS;
use crate::views::View;
use crate::{Api, dashboard, discovery, hooks, onboarding, openapi, probes, sign_in};

/// A path with a method, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The HTTP method; `*` is any.
    pub method: &'static str,
    /// The path, with `{namespace}`, `{name}` and the like for what differs.
    pub path: String,
    /// Whether it is answered without a token.
    pub open: bool,
    /// Of a path of objects, what is done with which.
    pub objects: Option<RouteObjects>,
}

/// What is done with objects by a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteObjects {
    /// The verb, as RBAC knows it.
    pub verb: &'static str,
    /// Their kind.
    pub kind: KindId,
    /// The subresource; empty for the objects themselves.
    pub subresource: &'static str,
    /// Whether the path names a namespace that they are in.
    pub namespace: bool,
    /// Whether the path names one of them.
    pub name: bool,
}

/// A path that is open to whoever reaches the hub.
pub(crate) struct Open {
    pub(crate) path: &'static str,
    method: &'static str,
    pub(crate) handler: fn() -> MethodRouter<Api>,
}

/// All of them but [`hooks::PATH`], which has a state of its own.
pub(crate) static OPEN: [Open; 15] = [
    Open { path: "/healthz", method: "GET", handler: || get(probes::health) },
    Open { path: "/livez", method: "GET", handler: || get(probes::live) },
    Open { path: "/livez/{part}", method: "GET", handler: || get(probes::live_part) },
    Open { path: "/readyz", method: "GET", handler: || get(probes::ready) },
    Open { path: "/readyz/{part}", method: "GET", handler: || get(probes::ready_part) },
    Open { path: "/fleet/v1/enrol", method: "POST", handler: || post(onboarding::enrol) },
    Open { path: "/fleet/v1/sign-in", method: "GET", handler: || get(sign_in::offered) },
    Open { path: "/fleet/v1/sign-in/start", method: "GET", handler: || get(sign_in::start) },
    Open { path: SIGN_IN_BACK, method: "GET", handler: || get(sign_in::back) },
    Open { path: "/fleet/v1/sign-in/token", method: "POST", handler: || post(sign_in::with_token) },
    Open { path: "/fleet/v1/sign-in/end", method: "POST", handler: || post(sign_in::end) },
    Open { path: "/", method: "GET", handler: || get(dashboard::home) },
    Open { path: "/ui", method: "GET", handler: || get(dashboard::home) },
    Open { path: dashboard::HOME, method: "GET", handler: || get(dashboard::index) },
    Open { path: "/ui/{*path}", method: "GET", handler: || get(dashboard::file) },
];

/// What is asked for under `/fleet/v1/`, with a token.
pub(crate) enum Fleet<'a> {
    View(View<'a>),
    Administered(Administered<'a>),
}

/// A path under `/fleet/v1/`.
pub(crate) struct FleetRoute {
    path: &'static str,
    pub(crate) methods: &'static [&'static str],
    /// What the path names, by those of its segments that differ.
    to: for<'a> fn([&'a str; 3]) -> Fleet<'a>,
}

const fn view(path: &'static str, to: for<'a> fn([&'a str; 3]) -> Fleet<'a>) -> FleetRoute {
    FleetRoute { path, methods: &["GET"], to }
}

/// All of them.
static FLEET: [FleetRoute; 27] = [
    view("openapi.json", |_| Fleet::View(View::Document)),
    view("clusters", |_| Fleet::View(View::Clusters)),
    view("health", |_| Fleet::View(View::Health)),
    view("appliers", |_| Fleet::View(View::Appliers)),
    view("kustomizations", |_| Fleet::View(View::Kustomizations)),
    view("sources", |_| Fleet::View(View::Sources)),
    view("events", |_| Fleet::View(View::Events)),
    view("inventory", |_| Fleet::View(View::Inventory)),
    view("reconciliations", |_| Fleet::View(View::Attempts)),
    view("drift", |_| Fleet::View(View::Drift)),
    view("drift/objects", |_| Fleet::View(View::DriftedObjects)),
    view("deliveries", |_| Fleet::View(View::Deliveries)),
    view("incidents", |_| Fleet::View(View::Incidents)),
    view("silences", |_| Fleet::View(View::Silences)),
    view("changes", |_| Fleet::View(View::Changes)),
    view("appliers/{kind}/{namespace}/{name}/reconciliations", |[kind, namespace, name]| {
        Fleet::View(View::Reconciliations { kind, namespace, name })
    }),
    view("appliers/{kind}/{namespace}/{name}/diff", |[kind, namespace, name]| {
        Fleet::View(View::Diff { kind, namespace, name })
    }),
    // From before there were other kinds than Kustomization.
    view("namespaces/{namespace}/kustomizations/{name}/reconciliations", |[namespace, name, _]| {
        Fleet::View(View::Reconciliations { kind: KindId::Kustomization.get().kind, namespace, name })
    }),
    view("namespaces/{namespace}/kustomizations/{name}/diff", |[namespace, name, _]| {
        Fleet::View(View::Diff { kind: KindId::Kustomization.get().kind, namespace, name })
    }),
    FleetRoute {
        path: "sources/{kind}/{namespace}/{name}/artifact",
        methods: &["GET", "HEAD", "PUT"],
        to: |[kind, namespace, name]| Fleet::View(View::Artifact { kind, namespace, name }),
    },
    FleetRoute {
        path: "tokens",
        methods: &["GET", "POST"],
        to: |_| Fleet::Administered(Administered::Tokens),
    },
    FleetRoute {
        path: "tokens/{id}",
        methods: &["DELETE"],
        to: |[id, ..]| Fleet::Administered(Administered::Token(id)),
    },
    FleetRoute {
        path: "namespaces/{namespace}/serviceaccounts/{name}/tokens/{id}",
        methods: &["DELETE"],
        to: |[namespace, name, jti]| Fleet::Administered(Administered::AccountToken { namespace, name, jti }),
    },
    FleetRoute {
        path: "account-keys",
        methods: &["GET", "POST"],
        to: |_| Fleet::Administered(Administered::AccountKeys),
    },
    view("audit", |_| Fleet::Administered(Administered::Audit)),
    view("audit/check", |_| Fleet::Administered(Administered::AuditCheck)),
    FleetRoute {
        path: "audit/heads",
        methods: &["POST"],
        to: |_| Fleet::Administered(Administered::AuditHeads),
    },
];

/// What a path with a token names.
pub(crate) enum Place<'a> {
    Fleet(&'static FleetRoute, Fleet<'a>),
    /// What is the same for everybody.
    Document,
    Published(Published),
    Question(&'static Question, &'a str),
    Objects(Target),
}

impl<'a> Place<'a> {
    /// What is there; none where nothing is. The path does not end in a slash.
    pub(crate) fn at(path: &'a str) -> Option<Self> {
        if let Some(rest) = path.strip_prefix("/fleet/v1/") {
            return FLEET.iter().find_map(|route| {
                let differing = matched(route.path, rest)?;
                Some(Self::Fleet(route, (route.to)(differing)))
            });
        }
        if is_document(path) {
            return Some(Self::Document);
        }
        if let Some(published) = Published::at(path) {
            return Some(Self::Published(published));
        }
        if let Some((question, namespace)) = questions::at(path) {
            return Some(Self::Question(question, namespace));
        }
        path::parse(path).map(Self::Objects)
    }
}

/// The segments of a path that stand where the pattern has braces. Names are DNS names and the like, so that nothing in them is
/// ever percent-encoded: what is, is not a name.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<[&'a str; 3]> {
    let mut differing = [""; 3];
    let mut places = differing.iter_mut();
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(differing),
            (Some(want), Some(part)) if want.starts_with('{') => {
                if part.is_empty() || part.contains('%') {
                    return None;
                }
                *places.next()? = part;
            }
            (Some(want), Some(part)) if want == part => {}
            _ => return None,
        }
    }
}

/// Whether a document is served at this path that is the same for everybody with a token.
pub(crate) fn is_document(path: &str) -> bool {
    static PATHS: LazyLock<BTreeSet<String>> =
        LazyLock::new(|| discovery::paths().into_iter().chain(openapi::paths()).collect());
    PATHS.contains(path)
}

/// All that the API serves: every method of every path, and for objects every verb.
#[must_use]
pub fn routes() -> Vec<Route> {
    let route = |method, path: String, open| Route { method, path, open, objects: None };
    let open = OPEN.iter().map(|open| route(open.method, open.path.to_owned(), true));
    let mut all: Vec<Route> = open.chain([route("*", hooks::PATH.to_owned(), true)]).collect();
    let documents: BTreeSet<String> = discovery::paths().into_iter().chain(openapi::paths()).collect();
    all.extend(documents.into_iter().map(|path| route("GET", path, false)));
    all.extend(PUBLISHED.iter().map(|(path, _)| route("GET", (*path).to_owned(), false)));
    for fleet in &FLEET {
        let methods = fleet.methods.iter();
        all.extend(methods.map(|method| route(method, format!("/fleet/v1/{}", fleet.path), false)));
    }
    for Question { group, version, plural, namespaced, .. } in &QUESTIONS {
        let place = if *namespaced { "namespaces/{namespace}/" } else { "" };
        all.push(route("POST", format!("/apis/{group}/{version}/{place}{plural}"), false));
    }
    for kind in KINDS {
        for version in kind.versions {
            let prefix = match version.group {
                "" => format!("/api/{}", version.name),
                group => format!("/apis/{group}/{}", version.name),
            };
            of_kind(&mut all, kind, &prefix);
        }
    }
    all
}

/// The routes of a kind in one of its versions.
fn of_kind(all: &mut Vec<Route>, kind: &Kind, prefix: &str) {
    let plural = kind.plural;
    let mut add = |path: &str, (subresource, name, namespace): (&(&'static str, Subresource), bool, bool)| {
        for (_, _, method, verb) in VERBS.iter().filter(|(of, one, ..)| (*of, *one) == (subresource.1, name))
        {
            let objects = RouteObjects {
                verb: verb.name(),
                kind: kind.id,
                subresource: subresource.0,
                namespace,
                name,
            };
            all.push(Route { method, path: path.to_owned(), open: false, objects: Some(objects) });
        }
    };
    let main = ("", Subresource::None);
    let within = if kind.namespaced() {
        add(&format!("{prefix}/{plural}"), (&main, false, false));
        format!("{prefix}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{prefix}/{plural}")
    };
    add(&within, (&main, false, kind.namespaced()));
    add(&format!("{within}/{{name}}"), (&main, true, kind.namespaced()));
    for (name, subresource, _) in SUBRESOURCES.iter().filter(|(.., has)| has(kind)) {
        add(&format!("{within}/{{name}}/{name}"), (&(*name, *subresource), true, kind.namespaced()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Fleet, Place, View, matched, routes};
    use crate::administration::Administered;

    fn fleet(path: &str) -> Option<Fleet<'_>> {
        match Place::at(path) {
            Some(Place::Fleet(_, fleet)) => Some(fleet),
            _ => None,
        }
    }

    #[test]
    fn paths_of_views() {
        assert!(matches!(fleet("/fleet/v1/health"), Some(Fleet::View(View::Health))));
        let of = |path| match fleet(path) {
            Some(Fleet::View(View::Reconciliations { kind, namespace, name })) => {
                Some((kind, namespace, name))
            }
            _ => None,
        };
        let path = "/fleet/v1/namespaces/a/kustomizations/b/reconciliations";
        assert_eq!(of(path), Some(("Kustomization", "a", "b")));
        assert_eq!(of("/fleet/v1/appliers/Any/a/b/reconciliations"), Some(("Any", "a", "b")));
        for bad in [
            "/fleet/v1",
            "/fleet/v1/",
            "/fleet/v2/health",
            "/fleet/v1/namespaces//kustomizations/b/reconciliations",
            "/fleet/v1/appliers/",
            "/fleet/v1/appliers/Any/a/b",
            "/fleet/v1/appliers/a/b/reconciliations",
            "/fleet/v1/appliers//a/b/reconciliations",
            "/fleet/v1/appliers/Any/a//reconciliations",
            "/fleet/v1/appliers/Any/a/b/c/reconciliations",
            "/fleet/v1/appliers/Any/a/b%2f/reconciliations",
        ] {
            assert!(Place::at(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn paths_of_what_is_administered() {
        let of = |path| match fleet(path) {
            Some(Fleet::Administered(administered)) => Some(administered),
            _ => None,
        };
        assert!(matches!(of("/fleet/v1/tokens"), Some(Administered::Tokens)));
        assert!(matches!(of("/fleet/v1/tokens/a"), Some(Administered::Token("a"))));
        assert!(matches!(of("/fleet/v1/account-keys"), Some(Administered::AccountKeys)));
        assert!(matches!(
            of("/fleet/v1/namespaces/a/serviceaccounts/b/tokens/c"),
            Some(Administered::AccountToken { namespace: "a", name: "b", jti: "c" })
        ));
        assert!(matches!(of("/fleet/v1/audit/check"), Some(Administered::AuditCheck)));
        for other in ["/fleet/v1/token", "/fleet/v1/tokens/", "/fleet/v1/tokens/a/b", "/fleet/v1/audit/x"] {
            assert!(Place::at(other).is_none(), "{other}");
        }
    }

    /// What is listed is what is found at the path, and nothing is found that is not listed under its own pattern.
    #[test]
    fn every_route_that_needs_a_token_leads_somewhere() {
        for route in routes().iter().filter(|route| !route.open) {
            let path = route.path.replace("{namespace}", "apps").replace("{name}", "one");
            let place = Place::at(&path);
            match (&route.objects, place) {
                (Some(objects), Some(Place::Objects(target))) => {
                    let found = (target.address.kind, target.subresource.name());
                    assert_eq!(found, (objects.kind, objects.subresource), "{path}");
                    assert_eq!(!target.address.namespace.is_empty(), objects.namespace, "{path}");
                    assert_eq!(!target.address.name.is_empty(), objects.name, "{path}");
                }
                (
                    None,
                    Some(Place::Fleet(..) | Place::Document | Place::Published(_) | Place::Question(..)),
                ) => {}
                _ => panic!("{path}"),
            }
        }
    }

    #[test]
    fn all_that_is_described_is_served() {
        let routes = routes();
        let described = crate::fleet_document()["paths"].as_object().unwrap();
        assert!(described.len() > 10);
        for (path, operations) in described {
            for method in operations.as_object().unwrap().keys() {
                let is_it =
                    |route: &super::Route| route.path == *path && route.method.eq_ignore_ascii_case(method);
                assert!(routes.iter().any(is_it), "{method} {path}");
            }
        }
    }

    /// The router is made from the tables here, and nowhere else.
    #[test]
    fn no_route_is_made_elsewhere() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut made = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for call in [".route(", ".nest(", ".route_service(", ".nest_service("] {
                let count = text.matches(call).count();
                if count > 0 && name != "routes.rs" {
                    made.push((name.clone(), call, count));
                }
            }
        }
        made.sort();
        // `OPEN` becomes routes in `lib.rs`, which also has the path of the hooks' own listener.
        let known = [("hooks.rs".to_owned(), ".route(", 1), ("lib.rs".to_owned(), ".route(", 2)];
        assert_eq!(made, known);
    }

    #[test]
    fn segments_that_differ() {
        assert_eq!(matched("a/{x}/b/{y}", "a/1/b/2"), Some(["1", "2", ""]));
        for other in ["a/1/b", "a/1/b/2/3", "a//b/2", "b/1/b/2", "a/%31/b/2"] {
            assert_eq!(matched("a/{x}/b/{y}", other), None, "{other}");
        }
    }
}
