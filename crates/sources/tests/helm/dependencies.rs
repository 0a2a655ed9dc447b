//! Charts of other repositories that a chart in a folder depends on.

use std::collections::BTreeSet;

use roadstead_model::Digest;
use roadstead_sources::helm::HelmServer;
use roadstead_sources::{Entry, HelmIndexRequest, TreeBuilder, TreeLimits, pack};

use crate::chart::push;
use crate::kit::{
    Lenders, RIGHT, archive, artifact, error, fetched, files, in_tree_with, index, index_of, login, names,
    packed, zeros,
};
use crate::registry::{Registry, Wants};
use crate::server::{Fault, Seen, Server};
use crate::source_cases::{source_cases, tell};

/// The artifact of a source that has a chart with these dependencies in its root, and these files.
fn tree(dependencies: &[(&str, &str, &str)], more: &[(&str, &str)]) -> Vec<u8> {
    let mut chart = "apiVersion: v2\nname: app\nversion: 0.1.0\ndependencies:\n".to_owned();
    for (name, version, repository) in dependencies {
        chart
            .push_str(&format!("- {{name: {name}, version: \"{version}\", repository: \"{repository}\"}}\n"));
    }
    let mut builder = TreeBuilder::new(TreeLimits::default());
    for (path, text) in [("Chart.yaml", chart.as_str())].iter().chain(more) {
        let file = Entry::File { bytes: text.as_bytes().to_vec(), executable: false };
        builder.insert((*path).to_owned(), file).unwrap();
    }
    pack(&builder.finish().unwrap()).unwrap().bytes
}

fn lock(dependencies: &[(&str, &str)], repository: &str) -> String {
    let entry = |(name, version): &(&str, &str)| {
        format!("- {{name: {name}, version: {version}, repository: \"{repository}\"}}\n")
    };
    format!("dependencies:\n{}", dependencies.iter().map(entry).collect::<String>())
}

/// Serves `db` in these versions, and `cache` in one.
fn serve(server: &Server, versions: &[&str]) -> Vec<u8> {
    let mut charts = Vec::new();
    for version in versions {
        charts.push(("db", *version, packed("db", version, &[("values.yaml", "a: 1\n")])));
    }
    charts.push(("cache", "2.0.0", packed("cache", "2.0.0", &[])));
    let urls: Vec<String> = charts.iter().map(|(name, version, _)| format!("{name}-{version}.tgz")).collect();
    for ((_, _, bytes), url) in charts.iter().zip(&urls) {
        server.put(&format!("/{url}"), bytes.clone());
    }
    let entries: Vec<(&str, &str, &str, &[u8])> = charts
        .iter()
        .zip(&urls)
        .map(|((name, version, bytes), url)| (*name, *version, url.as_str(), bytes.as_slice()))
        .collect();
    server.put("/index.yaml", index(&entries));
    charts.swap_remove(0).2
}

#[tokio::test]
async fn charts_of_public_repositories_are_fetched_once_each() {
    let server = Server::start(false).await;
    serve(&server, &["1.2.0", "1.1.0", "2.0.0"]);
    let url = format!("{}/", server.url());
    // One with two aliases, and in two versions.
    let wanted =
        [("db", "1.x", url.as_str()), ("db", "1.x", &url), ("cache", "", &url), ("db", "2.0.0", &url)];
    let request = in_tree_with(tree(&wanted, &[]), ".", Lenders::none(&[&server]));
    let chart = fetched(&request).await;
    let expected = [
        "app/Chart.yaml",
        "app/charts/cache-2.0.0.tgz",
        "app/charts/db-1.2.0.tgz",
        "app/charts/db-2.0.0.tgz",
    ];
    assert_eq!(names(&chart.artifact.bytes), expected);
    assert_eq!(chart.revision.to_string(), "0.1.0");
    let mut asked = server.paths();
    asked.sort_unstable();
    assert_eq!(asked, ["/cache-2.0.0.tgz", "/db-1.2.0.tgz", "/db-2.0.0.tgz", "/index.yaml"]);
    let again = fetched(&request).await;
    assert_eq!(again.artifact.digest, chart.artifact.digest, "the same each time");
    // What is in `charts/` is not asked for.
    server.seen();
    let there = [("charts/db-9.9.9.tgz", "not looked into")];
    let wanted = [("db", "1.x", url.as_str()), ("cache", ">=1", &url)];
    let chart = fetched(&in_tree_with(tree(&wanted, &there), ".", Lenders::none(&[&server]))).await;
    let expected = ["app/Chart.yaml", "app/charts/cache-2.0.0.tgz", "app/charts/db-9.9.9.tgz"];
    assert_eq!(names(&chart.artifact.bytes), expected);
    assert_eq!(server.paths(), ["/index.yaml", "/cache-2.0.0.tgz"]);
}

/// The charts of `../shared/source-cases` that depend on others: in folders beside them, in `charts/`, in a lock, in `requirements.yaml`. The
/// repository that one of them names is a server of the test.
#[tokio::test]
async fn charts_of_the_original_get_what_they_depend_on() {
    let Some(cases) = source_cases("charts that charts depend on") else { return };
    let server = Server::start(false).await;
    let charts = ["6.17.4", "6.20.0"].map(|version| (version, packed("grafana", version, &[])));
    for (version, bytes) in &charts {
        server.put(&format!("/grafana-{version}.tgz"), bytes.clone());
    }
    let urls = charts.each_ref().map(|(version, _)| format!("grafana-{version}.tgz"));
    let entries: Vec<(&str, &str, &str, &[u8])> = charts
        .iter()
        .zip(&urls)
        .map(|((version, bytes), url)| ("grafana", *version, url.as_str(), bytes.as_slice()))
        .collect();
    server.put("/index.yaml", index(&entries));
    let own = |text: String| text.replace("https://grafana.github.io/helm-charts", &server.url());
    let files: Vec<(String, String)> = cases
        .iter()
        .filter(|(path, _)| {
            path.starts_with("helm/charts/") && !path.ends_with(".tgz") && !path.ends_with('/')
        })
        .map(|(path, bytes)| {
            (path["helm/charts/".len()..].to_owned(), own(String::from_utf8(bytes.clone()).unwrap()))
        })
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let tree = artifact(&files);
    let wanted: [(&str, &str, &[&str]); 3] = [
        // Of what is locked, the version, although there is a newer one.
        ("helmchartwithdeps", "0.1.0", &["grafana-6.17.4.tgz", "helmchart"]),
        // The lock is what counts: it names one more than the chart itself.
        ("helmchartwithdepsnorepo", "0.1.0", &["grafana-6.17.4.tgz", "helmchart"]),
        ("helmchartwithdeps-v1", "0.3.0", &["helmchart-v1"]),
    ];
    for (name, version, charts) in wanted {
        let chart = fetched(&in_tree_with(tree.clone(), name, Lenders::none(&[&server]))).await;
        assert_eq!(chart.revision.to_string(), version, "{name}");
        let within = chart.chart().unwrap().name.clone() + "/charts/";
        let names = names(&chart.artifact.bytes);
        let inside = names.iter().filter_map(|path| path.strip_prefix(&within)?.split('/').next());
        assert_eq!(inside.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), charts, "{names:?}");
    }
    tell(format_args!("helm/charts: {} charts that depend on others", wanted.len()));
}

#[tokio::test]
async fn a_dependency_comes_as_it_is_and_by_the_digest_of_the_index() {
    let server = Server::start(false).await;
    let bytes = serve(&server, &["1.0.0"]);
    let url = server.url();
    let wanted = [("db", "1.0.0", url.as_str())];
    let request = in_tree_with(tree(&wanted, &[]), ".", Lenders::none(&[&server]));
    let chart = fetched(&request).await;
    let unpacked =
        roadstead_sources::unpack(chart.artifact.bytes.as_slice(), &TreeLimits::default()).unwrap();
    let Some(Entry::File { bytes: own, .. }) = unpacked.get("app/charts/db-1.0.0.tgz") else { panic!() };
    assert_eq!(Digest::of(own), Digest::of(&bytes));
    server.put("/db-1.0.0.tgz", packed("db", "1.0.0", &[("evil", "x")]));
    let error = error(&request).await;
    let start = "dependency build error: failed to add remote dependency 'db': chart download of version '1.0.0' failed: ";
    assert!(error.to_string().starts_with(start), "{error}");
    assert!(error.to_string().contains("and the index says"), "{error}");
    assert_eq!(error.reason().unwrap().as_str(), "DependencyBuildError");
    assert!(!error.is_stalled());
}

#[tokio::test]
async fn the_lock_file_decides_and_must_fit() {
    let server = Server::start(false).await;
    serve(&server, &["1.2.0", "1.1.0", "1.0.0"]);
    let url = server.url();
    let wanted = [("db", "1.x", url.as_str()), ("cache", "*", &url)];
    let locked = |locked: &[(&str, &str)]| {
        let text = lock(locked, &url);
        in_tree_with(tree(&wanted, &[("Chart.lock", &text)]), ".", Lenders::none(&[&server]))
    };
    let chart = fetched(&locked(&[("db", "1.1.0"), ("cache", "2.0.0")])).await;
    assert!(names(&chart.artifact.bytes).contains(&"app/charts/db-1.1.0.tgz".to_owned()));
    for (entries, said) in [
        (&[("db", "1.1.0")][..], "it has no version of 'cache' that is in '*'"),
        (&[("db", "2.1.0"), ("cache", "2.0.0")], "it has no version of 'db' that is in '1.x'"),
        (
            &[("db", "1.3.0"), ("cache", "2.0.0")],
            "failed to get chart 'db' version '1.3.0' from 'http://127.0.0.1:",
        ),
    ] {
        let error = error(&locked(entries)).await;
        assert!(error.to_string().starts_with("dependency build error: "), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_repository_lends_its_credentials_and_its_index() {
    let server = Server::start(true).await;
    server.wants(RIGHT);
    serve(&server, &["1.0.0"]);
    let url = server.url();
    let wanted = [("db", "1.x", url.as_str())];
    let request = |lenders: Lenders| in_tree_with(tree(&wanted, &[]), ".", lenders);
    let ca = server.authority.as_ref().map(|authority| authority.pem().as_bytes().to_vec());
    let anonymous = Lenders { ca, ..Lenders::none(&[&server]) };
    let denied = error(&request(anonymous)).await;
    let start = format!(
        "dependency build error: failed to add remote dependency 'db': failed to get chart repository for URL '{url}/': "
    );
    assert!(denied.to_string().starts_with(&start) && denied.to_string().contains("401"), "{denied}");
    assert_eq!(denied.reason().unwrap().as_str(), "DependencyBuildError");
    assert!(server.seen().iter().all(|seen| !seen.has_credentials()));

    let lender = HelmServer { login: login("right"), ..server.repository() };
    let chart = fetched(&request(Lenders::default().lend(lender.clone(), None))).await;
    assert!(names(&chart.artifact.bytes).contains(&"app/charts/db-1.0.0.tgz".to_owned()));
    assert_eq!(server.paths(), ["/index.yaml", "/db-1.0.0.tgz"]);
    // The index that is stored is not fetched once more.
    let of_lender = HelmIndexRequest { server: lender.clone(), ..index_of(&server) };
    let kept = fetched(&of_lender).await;
    server.seen();
    fetched(&request(Lenders::default().lend(lender, Some(&kept)))).await;
    assert_eq!(server.paths(), ["/db-1.0.0.tgz"]);
}

#[tokio::test]
async fn credentials_that_are_lent_go_nowhere_else() {
    let (home, other) = (Server::start(true).await, Server::start(true).await);
    let bytes = packed("db", "1.0.0", &[]);
    other.put("/db.tgz", bytes.clone());
    let elsewhere = format!("{}/db.tgz", other.url());
    home.put("/index.yaml", index(&[("db", "1.0.0", &elsewhere, &bytes)]));
    home.fault("/moved.tgz", Fault::At(elsewhere.clone()));
    let url = home.url();
    let wanted = [("db", "1.x", url.as_str())];
    let ca = [&home, &other].map(|server| server.authority.as_ref().unwrap().pem().to_owned()).concat();
    let lender = HelmServer {
        login: login("right"),
        ca: Some(ca.into_bytes()),
        guard: crate::server::way_to(&[home.address, other.address]),
        ..home.repository()
    };
    let request = in_tree_with(tree(&wanted, &[]), ".", Lenders::default().lend(lender, None));
    fetched(&request).await;
    home.put("/index.yaml", index(&[("db", "1.0.0", "moved.tgz", &bytes)]));
    fetched(&request).await;
    assert!(home.seen().iter().all(Seen::has_credentials));
    let seen = other.seen();
    assert!(seen.len() == 2 && seen.iter().all(|seen| !seen.has_credentials()), "{seen:?}");
}

#[tokio::test]
async fn charts_of_a_registry_are_fetched_as_dependencies() {
    let registry = Registry::start(true, Wants::Nothing).await;
    for version in ["1.0.0", "1.1.0+a", "2.0.0"] {
        push(&registry, "charts/db", version, &packed("db", version, &[]));
    }
    let url = format!("oci://{}/charts", registry.address);
    let ca = registry.authority.as_ref().map(|authority| authority.pem().as_bytes().to_vec());
    let lenders = || Lenders { reach: vec![registry.address], ca: ca.clone(), ..Lenders::default() };
    for (version, came) in [("1.x", "1.1.0+a"), ("1.0.0", "1.0.0"), ("1.1.0+a", "1.1.0+a")] {
        let wanted = [("db", version, url.as_str())];
        let chart = fetched(&in_tree_with(tree(&wanted, &[]), ".", lenders())).await;
        let expected = ["app/Chart.yaml".to_owned(), format!("app/charts/db-{came}.tgz")];
        assert_eq!(names(&chart.artifact.bytes), expected);
    }
    let wanted = [("db", ">3", url.as_str())];
    let error = error(&in_tree_with(tree(&wanted, &[]), ".", lenders())).await;
    let said = "failed to get chart 'db' version '>3' from 'oci://";
    assert!(error.to_string().contains(said), "{error}");
    assert!(error.to_string().contains("could not locate a version matching provided version"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_had_is_said_so() {
    let server = Server::start(false).await;
    serve(&server, &["1.0.0"]);
    let url = server.url();
    let refuse = async |dependency: (&str, &str, &str)| {
        let request = in_tree_with(tree(&[dependency], &[]), ".", Lenders::none(&[&server]));
        error(&request).await
    };
    let private = "http://169.254.169.254/charts";
    for (dependency, said) in [
        (("db", ">5", url.as_str()), "no 'db' chart with version matching '>5' found"),
        (("none", "1.0.0", &url), "no chart name found"),
        (("db", "1.0.0", &format!("{url}/elsewhere")), "answered HTTP 404"),
        (("db", "1.0.0", "https://forbidden.example"), "Secret 'apps/login' of spec.secretRef not found"),
        (("db", "1.0.0", private), "--allow-network helm=169.254.169.254/32"),
        (("db", "1.0.0", "https://user:hunter2@charts.example"), "it holds credentials"),
        (("db", "1.0.0", "https://[bad"), "it is not a URL"),
    ] {
        let error = refuse(dependency).await;
        let start = "dependency build error: failed to add remote dependency";
        assert!(error.to_string().starts_with(start), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert_eq!(error.reason().unwrap().as_str(), "DependencyBuildError", "{error}");
        assert!(!error.is_stalled());
    }
    // What comes is another chart, or none.
    for (bytes, said) in [
        (packed("other", "1.0.0", &[]), "it is a chart with the name 'other'"),
        (packed("db", "7.0.0", &[]), "can't get a valid version for constraint '1.x'"),
        (b"no archive".to_vec(), "is not a complete tar.gz"),
        (archive(&[("db/../../x".to_owned(), "x")]), "failed to load downloaded archive of version '1.x'"),
    ] {
        server.put("/db-1.0.0.tgz", bytes.clone());
        server.put("/index.yaml", index(&[("db", "1.0.0", "db-1.0.0.tgz", &bytes)]));
        let error = refuse(("db", "1.x", &url)).await;
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.reason().unwrap().as_str(), "DependencyBuildError", "{error}");
    }
    server.fault("/db-1.0.0.tgz", Fault::Status(503));
    assert!(refuse(("db", "1.x", &url)).await.is_transient());
}

#[tokio::test]
async fn dependencies_are_bounded_together() {
    let server = Server::start(false).await;
    let url = server.url();
    let many: Vec<(&str, &str, &str)> = (0..101).map(|_| ("db", "1.0.0", url.as_str())).collect();
    let request = in_tree_with(tree(&many, &[]), ".", Lenders::none(&[&server]));
    assert!(error(&request).await.to_string().contains("names more than 100 dependencies"));
    assert!(server.seen().is_empty(), "nothing is asked for");
    // Each of them is small enough, and all of them are not.
    let random: String = (0..2_000_u32).map(|n| Digest::of(&n.to_le_bytes()).hex()).collect();
    let charts = ["a", "b", "c"].map(|name| (name, packed(name, "1.0.0", &[("random", &random)])));
    let urls = charts.each_ref().map(|(name, _)| format!("{name}.tgz"));
    let mut entries: Vec<(&str, &str, &str, &[u8])> = Vec::new();
    for ((name, bytes), path) in charts.iter().zip(&urls) {
        server.put(&format!("/{path}"), bytes.clone());
        entries.push((name, "1.0.0", path, bytes));
    }
    server.put("/index.yaml", index(&entries));
    let wanted = ["a", "b", "c"].map(|name| (name, "1.0.0", url.as_str()));
    let mut request = in_tree_with(tree(&wanted, &[]), ".", Lenders::none(&[&server]));
    let limit = charts[0].1.len() as u64 * 2 + 100;
    request.bounds.limits.chart_bytes = limit;
    let error_of_all = error(&request).await.to_string();
    assert!(error_of_all.contains(&format!("more than {limit} bytes")), "{error_of_all}");
    // So are indexes.
    request.bounds.limits.chart_bytes = 10 << 20;
    request.bounds.limits.index_bytes = 100;
    let large = error(&request).await.to_string();
    assert!(large.contains("more than 100 bytes in the index"), "{large}");
    // And what they unpack to.
    let bomb = zeros(200);
    server.put("/a.tgz", bomb.clone());
    server.put("/index.yaml", index(&[("a", "1.0.0", "a.tgz", &bomb)]));
    let wanted = [("a", "1.0.0", url.as_str())];
    let refused = error(&in_tree_with(tree(&wanted, &[]), ".", Lenders::none(&[&server]))).await;
    assert!(refused.to_string().starts_with("dependency build error: "), "{refused}");
}

#[tokio::test]
async fn values_and_the_version_change_beside_dependencies() {
    let server = Server::start(false).await;
    serve(&server, &["1.0.0"]);
    let url = server.url();
    let wanted = [("db", "1.x", url.as_str())];
    let more = [("values.yaml", "a: 1\n"), ("prod.yaml", "b: 2\n")];
    let mut request = in_tree_with(tree(&wanted, &more), ".", Lenders::none(&[&server]));
    request.values = crate::kit::values(&["values.yaml", "prod.yaml"], false);
    request.build_metadata = Some("3".to_owned());
    let chart = fetched(&request).await;
    assert_eq!(chart.revision.to_string(), "0.1.0+3");
    let names = names(&chart.artifact.bytes);
    assert!(names.contains(&"app/charts/db-1.0.0.tgz".to_owned()), "{names:?}");
    let text = files(&chart.artifact.bytes).into_iter().find(|(name, _)| name == "app/values.yaml");
    assert_eq!(text.unwrap().1, "a: 1\nb: 2\n");
    // A version that the hub has is not asked for again, and neither are its dependencies.
    server.seen();
    request.known_name = Some("app".to_owned());
    let known = chart.revision;
    let again = crate::kit::fetch(&request, Some(&known)).await.unwrap();
    assert!(matches!(again, roadstead_sources::Outcome::Unchanged(_)));
    assert!(server.seen().is_empty());
}
