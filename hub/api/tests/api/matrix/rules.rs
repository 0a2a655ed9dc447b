//! What must hold of the answers whatever the reviewed file says, so that nobody takes a hole over into it by mistake.

use anyhow::{Result, ensure};
use axum::http::StatusCode;
use roadstead_api::{KindId, Scope};
use roadstead_hub_api::Route;
use roadstead_hub_core::Hub;
use roadstead_hub_core::identity::{Attributes, Resource};

use super::objects::{NAME, NAMESPACE, SECRET, name_of};
use super::{COLUMNS, Row};

/// All that may be asked for without a token.
const OPEN: [&str; 16] = [
    "/",
    "/ui",
    "/ui/",
    "/ui/{*path}",
    "/healthz",
    "/livez",
    "/livez/{part}",
    "/readyz",
    "/readyz/{part}",
    "/fleet/v1/enrol",
    "/fleet/v1/sign-in",
    "/fleet/v1/sign-in/start",
    "/fleet/v1/sign-in/callback",
    "/fleet/v1/sign-in/token",
    "/fleet/v1/sign-in/end",
    "/hook/{digest}",
];
const READING: [&str; 5] = ["get", "list", "watch", "GET", "HEAD"];
/// What everybody may ask about themselves.
const ABOUT_ONESELF: [&str; 3] =
    ["/selfsubjectreviews", "/selfsubjectaccessreviews", "/selfsubjectrulesreviews"];

pub(super) async fn check(rows: &[Row], hub: &Hub) -> Result<()> {
    ensure!(rows.len() > 300, "only {} routes", rows.len());
    let mut broken = Vec::new();
    for row in rows {
        let found = [
            served(row),
            without_a_token(row),
            secrets(row),
            viewer(row),
            editor_of_another_namespace(row),
            of_one_namespace(row),
            operator(row),
            masters(row),
            more_is_not_less(row),
            as_decided(row, hub).await,
            as_decided_by_path(row, hub).await,
        ];
        broken.extend(found.into_iter().filter_map(|one| one.err().map(|error| error.to_string())));
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

fn is_open(row: &Row) -> bool {
    OPEN.contains(&row.route.path.as_str())
}

/// A bug is nobody's answer, and what is listed is there.
fn served(row: &Row) -> Result<()> {
    for (column, answer) in COLUMNS.iter().zip(&row.answers) {
        let code = answer.status;
        ensure!(!code.is_server_error(), "{column} {}: {code} {}", row.key(), answer.text);
        ensure!(code != StatusCode::METHOD_NOT_ALLOWED, "{column} {}: {code}", row.key());
    }
    Ok(())
}

/// Whoever may do more may do this, too.
fn more_is_not_less(row: &Row) -> Result<()> {
    let less_and_more =
        [("view", "edit"), ("edit", "admin"), ("admin", "fleet-admin"), ("operator", "master")];
    for (less, more) in less_and_more {
        ensure!(!passes(row, less) || passes(row, more), "{less} may, and {more} may not: {}", row.key());
    }
    Ok(())
}

/// Whether a column was let do it. What names no namespace where one is needed is done by nobody.
fn passes(row: &Row, column: &str) -> bool {
    let code = row.of(column).status;
    match code {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => false,
        StatusCode::BAD_REQUEST => !lacks_namespace(&row.route),
        _ => true,
    }
}

fn lacks_namespace(route: &Route) -> bool {
    route.objects.is_some_and(|objects| {
        objects.kind.get().namespaced()
            && !objects.namespace
            && matches!(objects.verb, "create" | "deletecollection")
    })
}

fn without_a_token(row: &Row) -> Result<()> {
    let open = is_open(row);
    ensure!(row.route.open == open, "{}: open, or not", row.key());
    for column in ["none", "foreign"] {
        let code = row.of(column).status;
        ensure!((code == StatusCode::UNAUTHORIZED) != open, "{column} {}: {code}", row.key());
    }
    Ok(())
}

fn is_of(row: &Row, kind: KindId) -> bool {
    row.route.objects.is_some_and(|objects| objects.kind == kind)
}

fn secrets(row: &Row) -> Result<()> {
    let may_read = ["edit", "admin", "fleet-admin", "master"];
    for (column, answer) in COLUMNS.iter().zip(&row.answers) {
        if is_of(row, KindId::Secret) && !may_read.contains(column) {
            ensure!(!passes(row, column), "{column} {}: {}", row.key(), answer.status);
        }
        if !is_of(row, KindId::Secret) || !may_read.contains(column) {
            ensure!(!answer.text.contains(SECRET), "{column} {}: the Secret's value is told", row.key());
        }
    }
    Ok(())
}

fn viewer(row: &Row) -> Result<()> {
    let about_oneself = ABOUT_ONESELF.iter().any(|end| row.route.path.ends_with(end));
    let reads = READING.contains(&row.verb()) || about_oneself;
    ensure!(reads || is_open(row) || !passes(row, "view"), "view {}: {}", row.key(), row.of("view").status);
    Ok(())
}

fn editor_of_another_namespace(row: &Row) -> Result<()> {
    let answer = row.of("other");
    let here = row.route.path.contains("{namespace}")
        || (is_of(row, KindId::Namespace) && row.route.path.contains("{name}"));
    if here {
        ensure!(answer.status == StatusCode::FORBIDDEN, "other {}: {}", row.key(), answer.status);
    }
    // Neither objects of all namespaces nor any that are in none.
    ensure!(row.route.objects.is_none() || !passes(row, "other"), "other {}: {}", row.key(), answer.status);
    let tells = answer.status.is_success() && answer.text.contains(NAME);
    ensure!(!tells, "other {}: what lies in {NAMESPACE} is told: {}", row.key(), answer.text);
    Ok(())
}

/// Roles that are bound in one namespace reach nothing beyond it, but the Namespace itself.
fn of_one_namespace(row: &Row) -> Result<()> {
    let Some(objects) = row.route.objects else { return Ok(()) };
    let itself = objects.kind == KindId::Namespace && objects.verb == "get";
    for column in ["view", "edit", "admin"] {
        if passes(row, column) {
            ensure!(objects.namespace || itself, "{column} {}: {}", row.key(), row.of(column).status);
        }
    }
    let rbac = objects.kind.get().group() == "rbac.authorization.k8s.io";
    ensure!(!rbac || !passes(row, "edit"), "edit {}: who may do what", row.key());
    Ok(())
}

/// Those who run the clusters change nothing else, and hand out no tokens but those by which agents join.
fn operator(row: &Row) -> Result<()> {
    let about_oneself = ABOUT_ONESELF.iter().any(|end| row.route.path.ends_with(end));
    let fleet = row.route.objects.is_some_and(|objects| objects.kind.get().group() == "fleet.roadstead.dev");
    let fine = READING.contains(&row.verb()) || about_oneself || fleet || is_open(row);
    ensure!(fine || !passes(row, "operator"), "operator {}: {}", row.key(), row.of("operator").status);
    Ok(())
}

/// The hub's own tokens, its keys, its audit log and profiles of it are for the masters alone; and what they ask for is there.
fn masters(row: &Row) -> Result<()> {
    let theirs = ["/fleet/v1/tokens", "/fleet/v1/account-keys", "/fleet/v1/audit", "/debug/"];
    let theirs = theirs.iter().any(|path| row.route.path.starts_with(path));
    for column in COLUMNS.iter().filter(|column| **column != "master") {
        ensure!(!theirs || !passes(row, column), "{column} {}: {}", row.key(), row.of(column).status);
    }
    let answer = row.of("master");
    ensure!(passes(row, "master") || lacks_namespace(&row.route), "master {}: {}", row.key(), answer.text);
    // A confirmation needs deletions that wait.
    let is_there = row.route.objects.is_some_and(|objects| objects.subresource != "confirm");
    if is_there && !lacks_namespace(&row.route) {
        ensure!(answer.status.is_success(), "master {}: {} {}", row.key(), answer.status, answer.text);
    }
    Ok(())
}

/// The answer is what the stored roles decide, whichever use case was to ask them.
async fn as_decided(row: &Row, hub: &Hub) -> Result<()> {
    let Some(objects) = row.route.objects.filter(|_| !lacks_namespace(&row.route)) else { return Ok(()) };
    let kind = objects.kind.get();
    let name = if objects.name { name_of(objects.kind) } else { "" };
    let itself = kind.id == KindId::Namespace && objects.name;
    let namespace = if objects.namespace || itself { NAMESPACE } else { "" };
    ensure!((kind.scope == Scope::Namespaced) || !objects.namespace, "{}: no namespace", row.key());
    for column in COLUMNS.iter().filter(|column| !matches!(**column, "none" | "foreign" | "master")) {
        let may = hub.identity.somebody(column, Vec::new()).await?.may(&Attributes::Resource(Resource {
            verb: objects.verb,
            group: kind.group(),
            resource: kind.plural,
            subresource: objects.subresource,
            namespace,
            name,
        }));
        let answer = row.of(column);
        ensure!(passes(row, column) == may, "{column} {}: {} {}", row.key(), answer.status, answer.text);
    }
    Ok(())
}

/// What is served at a path and decided by rights on objects besides: an artifact is uploaded by whoever may patch its source, a
/// token of an account is taken back by whoever may make one, and questions are objects that are created.
fn is_decided_by_objects(row: &Row) -> bool {
    let path = row.route.path.as_str();
    match row.route.method {
        "PUT" => path.ends_with("/artifact"),
        "DELETE" => path.contains("/serviceaccounts/"),
        "POST" => {
            path.starts_with("/apis/authentication.k8s.io/")
                || path.starts_with("/apis/authorization.k8s.io/")
        }
        _ => false,
    }
}

/// So it is of what is served at a path and holds no stored object: who may not, as `kubectl auth can-i VERB PATH` says, is refused.
async fn as_decided_by_path(row: &Row, hub: &Hub) -> Result<()> {
    if row.route.objects.is_some() || is_open(row) || is_decided_by_objects(row) {
        return Ok(());
    }
    let path = row.route.path.replace(['{', '}'], "");
    // Who may read what is there may ask whether it is.
    let verb = match row.route.method {
        "HEAD" => "get".to_owned(),
        method => method.to_ascii_lowercase(),
    };
    let asked = Attributes::Path { verb: &verb, path: &path };
    for column in COLUMNS.iter().filter(|column| !matches!(**column, "none" | "foreign" | "master")) {
        let groups = vec!["system:authenticated".to_owned()];
        let may = hub.identity.somebody(column, groups).await?.may(&asked);
        let answer = row.of(column);
        // Of objects less may be shown than the path alone allows.
        ensure!(may || !passes(row, column), "{column} {}: {} {}", row.key(), answer.status, answer.text);
    }
    ensure!(!hub.identity.anonymous().await?.may(&asked), "anonymous: {}", row.key());
    Ok(())
}
