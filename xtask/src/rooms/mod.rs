//! `cargo xtask rooms`: which room may import which, held over cargo's metadata and over what the sources name.
//!
//! The rules are those of ARCHITECTURE.md. A package that no rule knows is refused, so that a new room is a decision.
//! Dev-dependencies are held less: tests of a room may use external crates of any kind (a pure room's tests read
//! fixtures from disk), the end-to-end kit with real Postgres and Git, and the hub's tests other rooms of the hub. They may never join what is
//! meant to be apart: `crates/*` with the hub, the hub with the agent.

mod facts;
mod source;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use facts::{Facts, Package};

/// What each room may import of the workspace's own, the first match counting; `*` at an end stands for anything.
const ROOMS: &[(&str, &[&str])] = &[
    // For development only: reachable from nothing that a user runs but `roadstead-hub --dev`.
    ("crates/devpostgres", &[]),
    ("crates/*", &["crates/*"]),
    ("proto", &["crates/*"]),
    ("hub/plan", &["crates/*"]),
    ("hub/store", &["crates/*"]),
    ("hub/core", &["crates/*", "hub/plan", "hub/store"]),
    ("hub/api", &["crates/*", "hub/core"]),
    ("hub/link", &["crates/*", "hub/core", "proto"]),
    ("hub/tasks", &["crates/*", "hub/core", "hub/plan"]),
    ("hub", &["crates/*", "hub/*", "proto"]),
    ("agent", &["crates/*", "proto"]),
    ("cli", &["crates/*"]),
    ("tests/gitserver", &[]),
    // The kit runs programs and knows none of their code, so that every room's tests may use it; the bench's simulated
    // agents speak the protocol.
    ("tests", &["crates/*", "tests/gitserver", "proto"]),
    ("xtask", &["crates/devpostgres"]),
];

/// Who may use what is for development.
const DEVELOPMENT: &[&str] = &["hub", "tests", "xtask"];

/// Rooms that compute and do nothing else.
const PURE: &[&str] = &[
    "crates/agent-policy",
    "crates/body",
    "crates/cel",
    "crates/deploy",
    "crates/finish",
    "crates/go-regex",
    "crates/hooks",
    "crates/kubeconfig",
    "crates/model",
    "crates/kustomize",
    "crates/kstatus",
    "crates/managed-fields",
    "crates/notify",
    "crates/oidc",
    "crates/rbac",
    "crates/sops",
    "hub/plan",
];

/// What a pure room's builds must not hold, at any depth: runtimes, and what speaks to a network or a database.
const IMPURE_PACKAGES: &[&str] = &[
    "async-std",
    "axum",
    "gix",
    "hyper",
    "hyper-util",
    "kube",
    "kube-client",
    "mio",
    "object_store",
    "reqwest",
    "rustls",
    "socket2",
    "sqlx",
    "tokio",
    "tokio-rustls",
    "tonic",
];

/// What a pure room must not name: threads of control, network, files, environment, clocks.
const IMPURE_PATHS: &[&str] = &[
    "tokio",
    "std::env",
    "std::fs",
    "std::net",
    "std::os::unix::net",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "jiff::tz::TimeZone::system",
    "time::OffsetDateTime::now_local",
    "time::OffsetDateTime::now_utc",
    "time::UtcDateTime::now",
    "chrono::Local",
    "chrono::Utc::now",
];

/// Crates that only some rooms may depend on.
const RESERVED: &[(&str, &[&str])] = &[
    ("sqlx", &["hub/store", "tests"]),
    ("axum", &["hub/api"]),
    ("tonic", &["proto", "hub/link", "agent", "tests"]),
    ("tonic-prost", &["proto", "hub/link", "agent"]),
    ("kube", &["crates/apply", "crates/onboard", "agent", "tests"]),
    ("kube-client", &["crates/apply", "crates/onboard", "agent"]),
];

/// Within a room, paths that only some of its files may name: (room's sources, path, files that may).
const CONFINED: &[(&str, &str, &[&str])] = &[
    ("agent/src/", "tonic", &["agent/src/link.rs", "agent/src/link/*"]),
    ("tests/src/", "roadstead_proto", SIMULATED),
    ("tests/src/", "tonic", &["tests/src/link.rs"]),
];

/// The folders of `hub/core`: each may name those before it, and none after it.
const LAYERS: &[&str] =
    &["identity", "objects", "clusters", "sources", "remotes", "delivery", "hooks", "notify", "views"];
const LAYERED: &str = "hub/core/src/";
/// What puts the layers together, and may name all of them. Other files beside the folders may name none.
const ABOVE_LAYERS: &[&str] = &["lib.rs", "jobs.rs", "schedule.rs", "upkeep.rs"];

/// Agents by hand, and the bench's simulated ones.
const SIMULATED: &[&str] = &["tests/src/link.rs", "tests/src/bin/bench/fleet/*"];

/// Checks the workspace at `root` and lists every violation.
pub(crate) fn run(root: &Path) -> Result<()> {
    let facts = facts::gather(root)?;
    let mut violations = check(&facts);
    let told = root.join("ARCHITECTURE.md");
    let told = std::fs::read_to_string(&told).with_context(|| format!("read {}", told.display()))?;
    violations.extend(is_told(&told));
    for violation in &violations {
        eprintln!("error: {violation}");
    }
    if !violations.is_empty() {
        bail!("{} imports that the rooms do not allow (ARCHITECTURE.md has the rules)", violations.len());
    }
    eprintln!("rooms: {} packages and {} files keep the rules", facts.packages.len(), facts.files.len());
    Ok(())
}

fn check(facts: &Facts) -> Vec<String> {
    let mut violations = Vec::new();
    for package in &facts.packages {
        neighbours(package, &mut violations);
        reserved(package, &mut violations);
        if PURE.contains(&package.room.as_str()) {
            held(package, &mut violations);
        }
    }
    names(facts, &mut violations);
    layers(facts, &mut violations);
    violations
}

fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or_else(|| pattern == text, |start| text.starts_with(start))
}

fn matches_any(patterns: &[&str], text: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, text))
}

/// Imports between the workspace's own packages.
fn neighbours(package: &Package, violations: &mut Vec<String>) {
    let room = package.room.as_str();
    let Some((_, allowed)) = ROOMS.iter().find(|(pattern, _)| matches(pattern, room)) else {
        violations.push(format!("{room} is a new room: say in xtask/src/rooms/mod.rs what it may import"));
        return;
    };
    for dependency in &package.dependencies {
        let Some(other) = dependency.room.as_deref() else { continue };
        let development = other == "crates/devpostgres";
        let mut ok = if development { DEVELOPMENT.contains(&room) } else { matches_any(allowed, other) };
        if dependency.dev {
            let within_hub = room.starts_with("hub") && other.starts_with("hub/");
            ok |= development || matches!(other, "tests" | "tests/gitserver") || within_hub;
        }
        if !ok {
            let how = if dependency.dev { " for its tests" } else { "" };
            violations.push(format!("{room} depends on {other}{how}"));
        }
    }
}

/// External crates that belong to certain rooms.
fn reserved(package: &Package, violations: &mut Vec<String>) {
    for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
        for (name, rooms) in RESERVED {
            if dependency.name == *name && !rooms.contains(&package.room.as_str()) {
                let rooms = rooms.join(", ");
                violations.push(format!("{} depends on {name}, which belongs to {rooms}", package.room));
            }
        }
    }
}

/// What a pure room's builds hold.
fn held(package: &Package, violations: &mut Vec<String>) {
    let impure: BTreeSet<String> = IMPURE_PACKAGES.iter().map(|name| (*name).to_owned()).collect();
    for name in package.reaches.intersection(&impure) {
        violations
            .push(format!("{} is pure, and holds {name} (cargo tree -e normal -i {name})", package.room));
    }
}

/// What the sources name.
fn names(facts: &Facts, violations: &mut Vec<String>) {
    for file in &facts.files {
        let pure = PURE.iter().any(|room| file.path.starts_with(&format!("{room}/src/")));
        for named in &file.named {
            let at = format!("{}:{}", file.path, named.line);
            if pure && let Some(path) = IMPURE_PATHS.iter().find(|path| brings(&named.path, path)) {
                violations.push(format!("{at}: a pure room names {} ({path})", named.path));
            }
            for (sources, path, allowed) in CONFINED {
                let here = file.path.starts_with(sources) && !matches_any(allowed, &file.path);
                if here && brings(&named.path, path) {
                    let allowed = allowed.join(", ");
                    violations.push(format!("{at}: {} belongs to {allowed}", named.path));
                }
            }
        }
    }
}

/// What the folders of `hub/core` name of each other.
fn layers(facts: &Facts, violations: &mut Vec<String>) {
    let place = |name: &str| LAYERS.iter().position(|layer| *layer == name);
    for file in &facts.files {
        let Some(inner) = file.path.strip_prefix(LAYERED) else { continue };
        if ABOVE_LAYERS.contains(&inner) {
            continue;
        }
        let folder = inner.split(['/', '.']).next().unwrap_or(inner);
        let own = place(folder);
        for named in &file.named {
            let Some(path) = named.path.strip_prefix("crate::") else { continue };
            let other = path.split("::").next().unwrap_or(path);
            let at = format!("{}:{}", file.path, named.line);
            if matches!(other, "Hub" | "*") {
                violations.push(format!(
                    "{at}: crate::{other} gives all of hub/core; name the part that is needed"
                ));
            }
            let Some(theirs) = place(other) else { continue };
            if own.is_none_or(|own| theirs > own) {
                violations.push(format!("{at}: {folder} comes before {other}, and names {}", named.path));
            }
        }
    }
}

/// Whether ARCHITECTURE.md tells the folders of `hub/core` as they are, in their order.
fn is_told(architecture: &str) -> Option<String> {
    let rows = architecture.lines().skip_while(|line| !line.starts_with("| folder | structs |")).skip(2);
    let names = rows.map_while(|row| row.strip_prefix("| `")?.split('`').next());
    let told: Vec<&str> = names.collect();
    (told != LAYERS).then(|| {
        format!(
            "ARCHITECTURE.md tells the folders of hub/core as {}; they are {}",
            told.join(", "),
            LAYERS.join(", ")
        )
    })
}

/// Whether naming `named` gives access to `forbidden`: it is it, something in it, or a glob or an alias (`use std as s`)
/// above it.
fn brings(named: &str, forbidden: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    if inside(named, forbidden) {
        return true;
    }
    let above = named.strip_suffix("::*").unwrap_or(named);
    (named.ends_with("::*") || named == "std") && inside(forbidden, above)
}

#[cfg(test)]
mod tests {
    use super::facts::{Dependency, File};
    use super::*;

    fn package(room: &str, dependencies: &[(&str, bool)], reaches: &[&str]) -> Facts {
        let dependencies = dependencies
            .iter()
            .map(|(name, dev)| {
                let own = name.contains('/') || ["hub", "agent", "proto", "cli", "tests"].contains(name);
                Dependency { name: (*name).to_owned(), room: own.then(|| (*name).to_owned()), dev: *dev }
            })
            .collect();
        let reaches = reaches.iter().map(|name| (*name).to_owned()).collect();
        Facts { packages: vec![Package { room: room.to_owned(), dependencies, reaches }], files: Vec::new() }
    }

    fn file(path: &str, text: &str) -> Facts {
        let named = source::read(text).unwrap().named;
        Facts { packages: Vec::new(), files: vec![File { path: path.to_owned(), named }] }
    }

    #[track_caller]
    fn refused(facts: &Facts, expected: &str) {
        let violations = check(facts);
        assert!(
            violations.iter().any(|text| text.contains(expected)),
            "{expected:?} is not in {violations:?}"
        );
    }

    #[track_caller]
    fn allowed(facts: &Facts) {
        assert_eq!(check(facts), Vec::<String>::new());
    }

    #[test]
    fn hub_and_agent_are_apart_in_tests_too() {
        for (room, other) in
            [("hub", "agent"), ("agent", "hub"), ("hub/link", "agent"), ("agent", "hub/core")]
        {
            for dev in [false, true] {
                refused(&package(room, &[(other, dev)], &[]), &format!("{room} depends on {other}"));
            }
        }
        allowed(&package("agent", &[("proto", false), ("crates/apply", false)], &[]));
    }

    #[test]
    fn crates_know_neither_hub_nor_agent_nor_proto() {
        for other in ["hub", "hub/core", "agent", "proto", "cli"] {
            for dev in [false, true] {
                refused(&package("crates/model", &[(other, dev)], &[]), &format!("depends on {other}"));
            }
        }
        allowed(&package("crates/sources", &[("crates/model", false), ("tests/gitserver", true)], &[]));
    }

    #[test]
    fn the_hubs_edges_go_through_core() {
        let rooms = ["hub/api", "hub/link", "hub/tasks"];
        for room in rooms {
            for other in rooms.iter().chain(&["hub/store"]).filter(|other| **other != room) {
                refused(&package(room, &[(other, false)], &[]), &format!("{room} depends on {other}"));
            }
            allowed(&package(room, &[("hub/core", false), ("hub/store", true)], &[]));
        }
        refused(&package("hub/core", &[("hub/api", false)], &[]), "hub/core depends on hub/api");
        refused(&package("hub/store", &[("hub/core", false)], &[]), "hub/store depends on hub/core");
        refused(&package("hub/plan", &[("hub/store", false)], &[]), "hub/plan depends on hub/store");
    }

    #[test]
    fn the_kit_of_the_tests_knows_programs_only() {
        for other in ["hub", "hub/core", "agent", "cli"] {
            refused(&package("tests", &[(other, false)], &[]), &format!("tests depends on {other}"));
        }
        // Only agents by hand and the bench's simulated ones speak the protocol.
        allowed(&package("tests", &[("proto", false)], &[]));
        let text = "use roadstead_proto::v1::Hello;";
        allowed(&file("tests/src/bin/bench/fleet/agent.rs", text));
        allowed(&file("tests/src/link.rs", text));
        refused(
            &file("tests/src/agent.rs", text),
            "tests/src/agent.rs:1: roadstead_proto::v1::Hello belongs to",
        );
        allowed(&package("tests", &[("tests/gitserver", false), ("sqlx", false)], &[]));
        allowed(&package("hub/api", &[("tests", true)], &[]));
        refused(&package("hub/api", &[("tests", false)], &[]), "hub/api depends on tests");
    }

    #[test]
    fn cli_uses_the_public_api() {
        for other in ["hub", "hub/core", "agent", "proto"] {
            refused(&package("cli", &[(other, false)], &[]), &format!("cli depends on {other}"));
        }
        allowed(&package("cli", &[("crates/kustomize", false)], &[]));
    }

    #[test]
    fn the_private_postgres_is_for_development() {
        for room in ["agent", "cli", "hub/core", "crates/model"] {
            refused(&package(room, &[("crates/devpostgres", false)], &[]), "depends on crates/devpostgres");
        }
        for room in ["hub", "tests", "xtask"] {
            allowed(&package(room, &[("crates/devpostgres", false)], &[]));
        }
        allowed(&package("hub/store", &[("crates/devpostgres", true)], &[]));
    }

    #[test]
    fn the_table_of_folders_is_the_order_that_is_held() {
        let table = |layers: &[&str]| {
            let rows: Vec<String> =
                layers.iter().map(|layer| format!("| `{layer}` | `A`, `B` | c |\n")).collect();
            format!(
                "# A\n\n| folder | structs | what they do |\n|---|---|---|\n{}\n| `other` |\n",
                rows.concat()
            )
        };
        assert_eq!(is_told(&table(LAYERS)), None);
        let mut swapped = LAYERS.to_vec();
        swapped.swap(3, 4);
        for wrong in
            [table(&LAYERS[1..]), table(&swapped), table(&[LAYERS, &["more"]].concat()), String::new()]
        {
            assert!(
                is_told(&wrong).is_some_and(|told| told.contains("sources, remotes, delivery")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn some_crates_belong_to_some_rooms() {
        for (name, room) in [
            ("sqlx", "hub/core"),
            ("axum", "hub/link"),
            ("axum", "hub"),
            ("tonic", "hub/api"),
            ("tonic", "cli"),
            ("tonic-prost", "hub/core"),
            ("kube", "hub/tasks"),
            ("kube", "cli"),
        ] {
            refused(&package(room, &[(name, false)], &[]), &format!("{room} depends on {name}"));
            allowed(&package(room, &[(name, true)], &[]));
        }
        for (name, room) in
            [("sqlx", "hub/store"), ("axum", "hub/api"), ("tonic", "agent"), ("kube", "agent")]
        {
            allowed(&package(room, &[(name, false)], &[]));
        }
    }

    #[test]
    fn pure_rooms_hold_no_runtime_at_any_depth() {
        for room in PURE {
            refused(&package(room, &[], &["serde", "tokio"]), &format!("{room} is pure, and holds tokio"));
        }
        allowed(&package("crates/apply", &[], &["tokio"]));
    }

    #[test]
    fn pure_rooms_name_no_clock_file_network_or_environment() {
        for path in IMPURE_PATHS {
            for room in PURE {
                let facts = file(&format!("{room}/src/a/b.rs"), &format!("fn f() {{ {path}::x(); }}"));
                refused(&facts, &format!("{room}/src/a/b.rs:1: a pure room names {path}::x"));
            }
        }
        for text in [
            "use std::{fmt, time::{Duration, Instant}};",
            "use std::time; fn f() { time::SystemTime::now(); }",
            "use std::time::*;",
            "use std as s;",
            "use jiff::Timestamp as T; fn f() { T::now(); }",
            "fn f() { println!(\"{:?}\", std::env::var(\"X\")); }",
            "pub use std::fs;",
        ] {
            refused(&file("hub/plan/src/lib.rs", text), "a pure room names");
        }
        for text in ["use std::time::Duration;", "use jiff::Timestamp;", "use std::collections::*;"] {
            allowed(&file("hub/plan/src/lib.rs", text));
        }
        allowed(&file("hub/store/src/lib.rs", "use std::fs;"));
    }

    #[test]
    fn the_agent_speaks_grpc_in_its_link_only() {
        let text = "use tonic::transport::Channel;";
        refused(
            &file("agent/src/engine.rs", text),
            "agent/src/engine.rs:1: tonic::transport::Channel belongs to",
        );
        for path in ["agent/src/link.rs", "agent/src/link/session.rs"] {
            allowed(&file(path, text));
        }
    }

    #[test]
    fn the_folders_of_the_core_know_those_before_them_only() {
        let text = "use crate::objects::status; use crate::HubError;";
        for path in ["objects/reads.rs", "objects.rs", "delivery/build/job.rs", "views.rs", "schedule.rs"] {
            allowed(&file(&format!("hub/core/src/{path}"), text));
        }
        for path in ["identity/auth.rs", "identity.rs", "quarantine.rs"] {
            refused(&file(&format!("hub/core/src/{path}"), text), "comes before objects, and names");
        }
        refused(
            &file("hub/core/src/clusters/a.rs", "fn f() { crate::delivery::g(); }"),
            "clusters comes before",
        );
        refused(&file("hub/core/src/views/a.rs", "use crate::{Hub, HubError};"), "crate::Hub gives all");
        allowed(&file("hub/core/src/upkeep.rs", "use crate::{Hub, HubError};"));
    }

    #[test]
    fn a_new_room_is_a_decision() {
        refused(&package("operator", &[], &[]), "operator is a new room");
    }
}
