//! Who may do what, for every route that there is: the routes come from the tables that the router is made from, and the answers
//! are compared with `matrix/expected.txt`, which a person has reviewed. A route without a line there fails, and so does a line
//! without a route. What must hold whatever that file says is in `rules`.

mod objects;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::future::try_join_all;
use http_body_util::{BodyExt as _, Limited};
use roadstead_api::{KINDS, KindId};
use roadstead_hub_api::{ApiOptions, Route, routes};
use roadstead_tests::eventually;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::support::{Replica, Site};
use objects::{NAMESPACE, name_of, object, path_of, sent};

/// What was reviewed.
const EXPECTED: &str = "tests/api/matrix/expected.txt";
const PATIENCE: Duration = Duration::from_secs(10);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// More than any answer here has.
const MOST: usize = 4 << 20;

/// Who asks, in the order of the columns.
const COLUMNS: [&str; 9] =
    ["none", "foreign", "view", "other", "edit", "operator", "admin", "fleet-admin", "master"];

/// A hub of which everything is asked, without a network between.
struct Asked {
    router: Router,
    replica: Replica,
    /// By column; none for nobody.
    tokens: BTreeMap<&'static str, Option<String>>,
    /// The objects that the paths name, as they are stored, by kind.
    current: BTreeMap<&'static str, Value>,
    _site: Site,
    _stop: tokio_util::sync::DropGuard,
}

/// An answer: its status, and its text where it ends.
struct Answer {
    status: StatusCode,
    text: String,
}

/// The answers to one route, by column.
struct Row {
    route: Route,
    answers: Vec<Answer>,
}

impl Row {
    /// What is done: RBAC's verb, or the HTTP method.
    fn verb(&self) -> &'static str {
        self.route.objects.map_or(self.route.method, |objects| objects.verb)
    }

    fn key(&self) -> String {
        format!("{} {}", self.verb(), self.route.path)
    }

    fn of(&self, column: &str) -> &Answer {
        let place = COLUMNS.iter().position(|known| *known == column);
        &self.answers[place.unwrap_or_default()]
    }

    fn codes(&self) -> String {
        self.answers.iter().map(|answer| answer.status.as_str().to_owned()).collect::<Vec<_>>().join(" ")
    }
}

impl Asked {
    async fn new() -> Result<Self> {
        let (site, another) = (Site::new().await?, Site::new().await?);
        let replica = site.replica().await?;
        // A token that is good, at another hub.
        let foreign = another.replica().await?.token;
        let stop = CancellationToken::new();
        let router = roadstead_hub_api::router(replica.hub.clone(), ApiOptions::default(), stop.clone());
        let mut tokens = BTreeMap::from([
            ("none", None),
            ("foreign", Some(foreign)),
            ("master", Some(replica.token.clone())),
        ]);
        for column in COLUMNS {
            if !tokens.contains_key(column) {
                let token = replica.hub.identity.create_access_token(column, &[], None).await?;
                tokens.insert(column, Some(token.expose().to_owned()));
            }
        }
        let mut asked =
            Self { router, replica, tokens, current: BTreeMap::new(), _site: site, _stop: stop.drop_guard() };
        asked.fill().await?;
        Ok(asked)
    }

    /// Makes what the paths name, and binds everybody to a role.
    async fn fill(&mut self) -> Result<()> {
        for namespace in [NAMESPACE, "elsewhere"] {
            self.make("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).await?;
        }
        for kind in KINDS {
            let version = kind.storage_version();
            let prefix = match version.group {
                "" => format!("/api/{}", version.name),
                group => format!("/apis/{group}/{}", version.name),
            };
            let place = if kind.namespaced() { format!("namespaces/{NAMESPACE}/") } else { String::new() };
            let collection = format!("{prefix}/{place}{}", kind.plural);
            if kind.id != KindId::Namespace {
                self.make(&collection, &object(kind, name_of(kind.id))).await?;
            }
            let path = format!("{collection}/{}", name_of(kind.id));
            let answer = self.ask("master", "GET", &path, "application/json", &Value::Null).await?;
            let mut current: Value = serde_json::from_str(&answer.text)?;
            if let Some(metadata) = current["metadata"].as_object_mut() {
                // Whatever else changes it meanwhile does not make a conflict.
                metadata.remove("resourceVersion");
            }
            self.current.insert(kind.kind, current);
        }
        let group = "rbac.authorization.k8s.io";
        let binding = |role: &str, user: &str| {
            json!({
                "metadata": { "name": format!("matrix-{user}") },
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
                "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
            })
        };
        for (namespace, role, user) in [
            (NAMESPACE, "view", "view"),
            ("elsewhere", "edit", "other"),
            (NAMESPACE, "edit", "edit"),
            (NAMESPACE, "admin", "admin"),
        ] {
            let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
            self.make(&path, &binding(role, user)).await?;
        }
        let path = format!("{RBAC}/clusterrolebindings");
        self.make(&path, &binding("cluster-operator", "operator")).await?;
        self.make(&path, &binding("fleet-admin", "fleet-admin")).await?;
        // They are known in the order in which they were made.
        eventually("the last binding is known", PATIENCE, || async {
            let answer = self.ask("fleet-admin", "GET", "/api/v1/secrets", "", &Value::Null).await?;
            ensure!(answer.status == StatusCode::OK, "{}", answer.text);
            Ok(())
        })
        .await
    }

    async fn make(&self, collection: &str, object: &Value) -> Result<()> {
        let answer = self.ask("master", "POST", collection, "application/json", object).await?;
        ensure!(answer.status == StatusCode::CREATED, "{collection}: {}", answer.text);
        Ok(())
    }

    async fn ask(
        &self,
        column: &str,
        method: &str,
        path: &str,
        media_type: &str,
        body: &Value,
    ) -> Result<Answer> {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes())?).uri(path);
        if let Some(token) = self.tokens.get(column).context("a column")? {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = if body.is_null() {
            Body::empty()
        } else {
            request = request.header("content-type", media_type);
            Body::from(body.to_string())
        };
        let response = self.router.clone().oneshot(request.body(body)?).await?;
        let status = response.status();
        // Those that go on until they are ended are told by their status.
        let goes_on = status == StatusCode::OK && (path.contains("watch=true") || path.ends_with("/changes"));
        let text = if goes_on {
            String::new()
        } else {
            let whole = Limited::new(response.into_body(), MOST).collect().await;
            let bytes = whole.map_err(|error| anyhow::anyhow!("{path}: {error}"))?.to_bytes();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Answer { status, text })
    }

    /// What a column is answered to each route.
    async fn walk(&self, column: &str, routes: &[Route]) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(routes.len());
        for route in routes {
            let current = route.objects.and_then(|objects| self.current.get(objects.kind.get().kind));
            let mut current = current.cloned().unwrap_or_default();
            if let (Some(version), Some(_)) = (api_version(&route.path), current.get("apiVersion")) {
                current["apiVersion"] = version.into();
            }
            let (query, media_type, body) = sent(route, &current);
            let path = format!("{}{query}", path_of(route));
            let method = if route.method == "*" { "POST" } else { route.method };
            answers.push(self.ask(column, method, &path, media_type, &body).await?);
        }
        Ok(answers)
    }
}

/// The `apiVersion` of objects under this path.
fn api_version(path: &str) -> Option<String> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "api", version, ..] => Some(version.to_owned()),
        ["", "apis", group, version, ..] => Some(format!("{group}/{version}")),
        _ => None,
    }
}

fn written(rows: &[Row]) -> String {
    let mut text = format!("# {}\n", COLUMNS.join(" "));
    for row in rows {
        let _ = writeln!(text, "{} {:<17}{}", row.codes(), row.verb(), row.route.path);
    }
    text
}

/// The lines of the file, by verb and path.
fn expected(text: &str) -> Result<BTreeMap<String, String>> {
    let mut lines = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        ensure!(words.len() == COLUMNS.len() + 2, "{line:?}: want a code for each column, a verb and a path");
        let key = words.split_off(COLUMNS.len()).join(" ");
        ensure!(lines.insert(key, words.join(" ")).is_none(), "{line:?} is there twice");
    }
    Ok(lines)
}

/// In what the answers differ from the lines.
fn differences(rows: &[Row], lines: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut unused: BTreeSet<&String> = lines.keys().collect();
    for row in rows {
        let key = row.key();
        unused.remove(&key);
        match lines.get(&key) {
            None => found.push(format!("{key}: no line, and the answers are {}", row.codes())),
            Some(codes) if *codes != row.codes() => {
                found.push(format!("{key}: the line says {codes}, and the answers are {}", row.codes()));
            }
            Some(_) => {}
        }
    }
    found.extend(unused.into_iter().map(|key| format!("{key}: there is no such route")));
    found
}

#[tokio::test]
async fn every_route_answers_each_as_reviewed() -> Result<()> {
    let asked = Asked::new().await?;
    let routes = routes();
    let began = Instant::now();
    let columns = try_join_all(COLUMNS.map(|column| asked.walk(column, &routes))).await?;
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let mut rows = Vec::with_capacity(routes.len());
    for route in routes {
        let answers = columns.iter_mut().map(|column| column.next().context("an answer"));
        let answers = answers.collect::<Result<Vec<_>>>()?;
        rows.push(Row { route, answers });
    }
    let count = rows.len() * COLUMNS.len();
    eprintln!("{} routes, {count} answers in {:?}", rows.len(), began.elapsed());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("matrix.txt");
    std::fs::write(&path, written(&rows))?;
    rules::check(&rows, &asked.replica.hub).await?;
    let reviewed = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(EXPECTED))?;
    let differ = differences(&rows, &expected(&reviewed)?);
    let found = path.display();
    ensure!(differ.is_empty(), "{}\n\nall is in {found}: review each line that is new", differ.join("\n"));
    Ok(())
}

/// What is in none of the tables is not there: neither a method of a path that has others, nor a path.
#[tokio::test]
async fn what_is_in_no_table_is_not_served() -> Result<()> {
    let asked = Asked::new().await?;
    let mut methods: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for route in routes().iter().filter(|route| route.method != "*") {
        methods.entry(path_of(route)).or_default().insert(route.method);
    }
    for (path, known) in &methods {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"] {
            // A browser's `HEAD` of what is open is its `GET`.
            if known.contains(method) || (method == "HEAD" && asked_openly(path)) {
                continue;
            }
            let answer = asked.ask("master", method, path, "application/json", &Value::Null).await?;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}: {}", answer.text);
        }
    }
    for path in [
        "/metrics/x",
        "/debug/pprof",
        "/fleet/v1",
        "/fleet/v1/other",
        "/fleet/v1/tokens/none/more",
        "/fleet/v1/appliers/Kustomization/apps/one-of-apps",
        "/fleet/v1/appliers/Kustomization/apps/one-of-apps/other",
        "/api/v1/namespaces/apps/configmaps/one-of-apps/status",
        "/api/v1/namespaces/apps/finalize",
        "/apis/authorization.k8s.io/v1/namespaces/apps/selfsubjectaccessreviews",
        "/hook",
    ] {
        for (column, want) in [
            ("none", StatusCode::UNAUTHORIZED),
            ("foreign", StatusCode::UNAUTHORIZED),
            ("master", StatusCode::NOT_FOUND),
        ] {
            let answer = asked.ask(column, "GET", path, "", &Value::Null).await?;
            assert_eq!(answer.status, want, "{column} {path}: {}", answer.text);
        }
    }
    Ok(())
}

fn asked_openly(path: &str) -> bool {
    routes().iter().any(|route| route.open && path_of(route) == path)
}

/// The comparison itself: a route without a line, a line without a route, and another answer.
#[test]
fn differences_are_found() -> Result<()> {
    let row = |path: &str, code: StatusCode| Row {
        route: Route { method: "GET", path: path.to_owned(), open: false, objects: None },
        answers: COLUMNS.iter().map(|_| Answer { status: code, text: String::new() }).collect(),
    };
    let rows = [row("/a", StatusCode::OK), row("/b", StatusCode::OK)];
    let text = written(&rows);
    assert!(differences(&rows, &expected(&text)?).is_empty());
    let changed = [row("/a", StatusCode::OK), row("/b", StatusCode::FORBIDDEN)];
    assert_eq!(differences(&changed, &expected(&text)?).len(), 1);
    let more = [row("/a", StatusCode::OK), row("/b", StatusCode::OK), row("/c", StatusCode::OK)];
    let found = differences(&more, &expected(&text)?);
    assert!(matches!(&found[..], [only] if only.contains("GET /c: no line")), "{found:?}");
    let found = differences(&rows[..1], &expected(&text)?);
    assert!(matches!(&found[..], [only] if only.contains("GET /b: there is no such route")), "{found:?}");
    let twice = format!("{text}{}", text.lines().last().unwrap_or_default());
    assert!(expected(&twice).is_err() && expected("200 GET /a").is_err());
    Ok(())
}
