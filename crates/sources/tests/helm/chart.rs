//! Charts of repositories and registries.

use roadstead_model::{Digest, Revision};
use roadstead_sources::helm::{AskedTogether, ChartOrigin, HelmServer};
use roadstead_sources::{Fetched, HelmChartRequest, OciRequest, Outcome};
use serde_json::{Value, json};

use crate::kit::{
    RIGHT, chart_of, error, fetch, fetched, file, files, index, index_of, login, names, packed, request,
    stored, values,
};
use crate::registry::{Registry, Wants};
use crate::server::{Seen, Server, way_to};
use crate::source_cases::{source_cases, tell};

/// A server with a chart in some versions, and its index as it is kept.
async fn served(versions: &[&str], more: &[(&str, &str)]) -> (Server, Fetched) {
    let server = Server::start(true).await;
    let charts: Vec<(String, Vec<u8>)> =
        versions.iter().map(|version| ((*version).to_owned(), packed("app", version, more))).collect();
    let mut entries = Vec::new();
    for (version, bytes) in &charts {
        server.put(&format!("/app-{version}.tgz"), bytes.clone());
        entries.push(("app", version.as_str(), format!("app-{version}.tgz"), bytes.as_slice()));
    }
    let entries: Vec<(&str, &str, &str, &[u8])> =
        entries.iter().map(|(name, version, url, bytes)| (*name, *version, url.as_str(), *bytes)).collect();
    server.put("/index.yaml", index(&entries));
    let kept = fetched(&index_of(&server)).await;
    server.seen();
    (server, kept)
}

fn unchanged(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unchanged(_))
}

#[tokio::test]
async fn a_chart_comes_as_it_is_and_once() {
    let (server, kept) = served(&["1.2.0", "1.10.0", "2.0.0-rc.1"], &[("values.yaml", "a: 1\n")]).await;
    let request = chart_of(server.repository(), &kept, "app", "1.x");
    let chart = fetched(&request).await;
    assert_eq!(chart.artifact.bytes, packed("app", "1.10.0", &[("values.yaml", "a: 1\n")]));
    assert_eq!(chart.artifact.digest, Digest::of(&chart.artifact.bytes));
    assert_eq!(chart.revision.to_string(), "1.10.0");
    let facts = chart.chart().unwrap();
    assert_eq!((facts.name.as_str(), facts.is_packaged), ("app", false));
    assert_eq!(server.paths(), ["/app-1.10.0.tgz"]);
    // What the caller has is not asked for again.
    let known: Revision = "1.10.0".parse().unwrap();
    assert!(unchanged(&fetch(&request, Some(&known)).await.unwrap()));
    let settled = HelmChartRequest { is_settled: true, ..request.clone() };
    assert!(unchanged(&fetch(&settled, Some(&known)).await.unwrap()));
    assert!(server.paths().is_empty());
    assert!(!unchanged(&fetch(&settled, None).await.unwrap()));
    let older: Revision = "1.2.0".parse().unwrap();
    assert!(!unchanged(&fetch(&request, Some(&older)).await.unwrap()));
}

#[tokio::test]
async fn versions_are_chosen_as_flux_chooses_them() {
    let Some(cases) = source_cases("the choice of charts' versions") else { return };
    let cases: Value = serde_json::from_slice(&cases["helm/choose.json"]).unwrap();
    let server = Server::start(false).await;
    let name = cases["http"]["chart"].as_str().unwrap();
    let mut text = format!("apiVersion: v1\nentries:\n  {name}:\n");
    for version in cases["http"]["versions"].as_array().unwrap() {
        let (version, since) = (version[0].as_str().unwrap(), version[1].as_str());
        let created = match since {
            None => "2026-11-26T10:00:00Z",
            Some("0") => "2026-11-26T12:00:00Z",
            Some("-1m") => "2026-11-26T11:59:00Z",
            Some("-1h") => "2026-11-26T11:00:00Z",
            Some(other) => panic!("{other}"),
        };
        text.push_str(&format!(
            "  - {{name: {name}, version: {version}, created: {created}, urls: [chart.tgz]}}\n"
        ));
    }
    server.put("/index.yaml", text);
    let kept = fetched(&index_of(&server)).await;
    server.put("/chart.tgz", packed(name, "0.0.1", &[]));
    let mut run = 0;
    for case in cases["http"]["expect"].as_array().unwrap() {
        let asked = case[0].as_str().unwrap();
        let found = fetch(&chart_of(server.repository(), &kept, name, asked), None).await;
        match (found, case[1].as_str()) {
            (Ok(Outcome::Fetched(fetched)), Some(expected)) => {
                assert_eq!(fetched.revision.to_string(), expected, "{case}");
            }
            (Err(error), None) => {
                let said = case[1]["error"].as_str().unwrap();
                assert!(error.to_string().contains(said), "{error}");
                assert_eq!(error.reason().unwrap().as_str(), "InvalidChartReference");
                assert!(error.is_stalled());
            }
            (other, _) => panic!("{case}: {other:?}"),
        }
        run += 1;
    }
    let none = error(&chart_of(server.repository(), &kept, "other", "")).await;
    assert!(none.to_string().contains(cases["http"]["unknown_chart"].as_str().unwrap()), "{none}");
    let improper = error(&chart_of(server.repository(), &kept, name, ">>1")).await;
    assert!(improper.to_string().contains("improper constraint: \">>1\""), "{improper}");
    tell(format_args!("helm/choose.json: {run} versions of an index"));
}

#[tokio::test]
async fn files_of_values_and_a_generation_make_a_chart_of_its_own() {
    let more = [
        ("values.yaml", "a: 1\nb: {c: 2}\n"),
        ("prod.yaml", "b: {d: 3}\n"),
        ("templates/a.yaml", "{{ . }}\n"),
    ];
    let (server, kept) = served(&["1.2.0+x"], &more).await;
    let plain = chart_of(server.repository(), &kept, "app", "");
    let with = |paths: &[&str], ignore_missing| HelmChartRequest {
        values: values(paths, ignore_missing),
        build_metadata: Some("7".to_owned()),
        ..plain.clone()
    };
    let chart = fetched(&with(&["values.yaml", "prod.yaml"], false)).await;
    assert_eq!(chart.revision.to_string(), "1.2.0+7");
    let facts = chart.chart().cloned().unwrap();
    assert!(facts.is_packaged && facts.values_files == ["values.yaml", "prod.yaml"], "{facts:?}");
    let bytes = &chart.artifact.bytes;
    assert_eq!(names(bytes), ["app/Chart.yaml", "app/prod.yaml", "app/templates/a.yaml", "app/values.yaml"]);
    assert_eq!(file(bytes, "app/values.yaml"), "a: 1\nb:\n  c: 2\n  d: 3\n");
    assert!(file(bytes, "app/Chart.yaml").contains("version: 1.2.0+7\n"));
    // The same each time, whoever packs it.
    assert_eq!(
        fetched(&with(&["values.yaml", "prod.yaml"], false)).await.artifact.digest,
        chart.artifact.digest
    );
    // Replicas and releases agree on what is packed: another digest is another artifact for all who use it.
    assert_eq!(chart.artifact.digest.to_string(), PACKED);
    let known: Revision = "1.2.0+7".parse().unwrap();
    assert!(unchanged(&fetch(&with(&["prod.yaml"], false), Some(&known)).await.unwrap()));
    // One that is not there is an error for good, or is passed over; without any the chart's own values stay.
    let missing = error(&with(&["none.yaml"], false)).await;
    assert!(missing.to_string().contains("no values file found at path 'none.yaml'"), "{missing}");
    assert!(missing.is_stalled() && missing.reason().unwrap().as_str() == "ValuesFilesError");
    let some = fetched(&with(&["none.yaml", "./prod.yaml"], true)).await;
    assert_eq!(some.chart().unwrap().values_files, ["./prod.yaml"]);
    let none = fetched(&with(&["none.yaml", "more.yaml"], true)).await;
    assert_eq!(file(&none.artifact.bytes, "app/values.yaml"), more[0].1);
    // Its own values alone are none.
    let own = HelmChartRequest { values: values(&["./values.yaml"], false), ..plain.clone() };
    assert!(!fetched(&own).await.chart().unwrap().is_packaged);
    let (server, kept) = served(&["1.0.0"], &[("prod.yaml", "a: 1\n")]).await;
    let bare = HelmChartRequest {
        values: values(&["prod.yaml"], false),
        ..chart_of(server.repository(), &kept, "app", "")
    };
    let without = error(&bare).await;
    assert!(without.to_string().contains("failed to locate values file: values.yaml"), "{without}");
    assert_eq!(without.reason().unwrap().as_str(), "ChartPackageError");
}

const PACKED: &str = "sha256:82539f8b1306e9d4eaf290adae7dcd4a42815d3a46a838b53ed4c9ef05b33343";

#[tokio::test]
async fn credentials_go_to_charts_on_other_hosts_only_where_they_are_passed_on() {
    let (server, other) = (Server::start(true).await, Server::start(true).await);
    let bytes = packed("app", "1.0.0", &[]);
    for one in [&server, &other] {
        one.put("/app.tgz", bytes.clone());
        one.put("/index.yaml", index(&[("app", "1.0.0", &format!("{}/app.tgz", other.url()), &bytes)]));
        one.wants(RIGHT);
    }
    let trusted = [&server, &other].map(|one| one.authority.as_ref().unwrap().pem()).concat().into_bytes();
    let repository = |pass_credentials| HelmServer {
        login: login("right"),
        pass_credentials,
        ca: Some(trusted.clone()),
        guard: way_to(&[server.address, other.address]),
        ..HelmServer::new(server.url())
    };
    let mut request = index_of(&server);
    request.server = repository(false);
    let kept = fetched(&request).await;
    let denied = error(&chart_of(repository(false), &kept, "app", "")).await;
    assert_eq!(denied.reason().unwrap().as_str(), "AuthenticationFailed", "{denied}");
    assert!(denied.to_string().contains("spec.passCredentials"), "{denied}");
    assert!(!other.seen().iter().any(Seen::has_credentials));
    fetched(&chart_of(repository(true), &kept, "app", "")).await;
    assert!(other.seen().iter().any(Seen::has_credentials));
    // On its own host they are shown, and not to where that redirects.
    server.put("/index.yaml", index(&[("app", "1.0.0", "app.tgz", &bytes)]));
    let kept = fetched(&request).await;
    fetched(&chart_of(repository(false), &kept, "app", "")).await;
    server.fault("/app.tgz", crate::server::Fault::At(format!("{}/app.tgz", other.url())));
    other.seen();
    for pass_credentials in [false, true] {
        let denied = error(&chart_of(repository(pass_credentials), &kept, "app", "")).await;
        assert_eq!(denied.reason().unwrap().as_str(), "AuthenticationFailed", "{denied}");
        assert!(!other.seen().iter().any(Seen::has_credentials));
    }
}

/// Pushes a chart as Helm does; its version is its tag, with `_` for `+`.
pub(crate) fn push(registry: &Registry, repository: &str, version: &str, chart: &[u8]) -> String {
    let kind = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let manifest = registry.manifest(&[(kind, chart)], &json!({}));
    let digest = manifest["digest"].as_str().unwrap().to_owned();
    registry.tag(repository, &version.replace('+', "_"), &digest);
    digest
}

fn of_registry(registry: &Registry, chart: &str, version: &str) -> HelmChartRequest {
    let own = registry.request();
    let url = format!("oci://{}/charts/{chart}", registry.address);
    request(ChartOrigin::Registry(Box::new(OciRequest { url, ..own })), chart, version)
}

#[tokio::test]
async fn charts_of_registries_are_chosen_by_their_tags() {
    let Some(cases) = source_cases("the choice of charts in registries") else { return };
    let cases: Value = serde_json::from_slice(&cases["helm/choose.json"]).unwrap();
    let registry = Registry::start(true, Wants::Nothing).await;
    for version in cases["oci"]["tags"].as_array().unwrap() {
        let version = version.as_str().unwrap();
        push(&registry, "charts/app", version, &packed("app", version, &[]));
    }
    let mut run = 0;
    for case in cases["oci"]["expect"].as_array().unwrap() {
        let asked = case[0].as_str().unwrap();
        registry.seen();
        let found = fetch(&of_registry(&registry, "app", asked), None).await;
        match (found, case[1].as_str()) {
            (Ok(Outcome::Fetched(fetched)), Some(expected)) => {
                let (expected, listed) = match expected.strip_suffix(" (no request made)") {
                    Some(expected) => (expected, false),
                    None => (expected, true),
                };
                assert_eq!(fetched.revision.to_string(), expected, "{case}");
                assert_eq!(fetched.artifact.bytes, packed("app", expected, &[]));
                let seen = registry.seen();
                assert_eq!(seen.iter().any(|seen| seen.what.contains("tags/list")), listed, "{seen:?}");
            }
            (Err(error), None) => {
                assert!(error.to_string().contains(case[1]["error"].as_str().unwrap()), "{error}");
                assert_eq!(error.reason().unwrap().as_str(), "InvalidChartReference");
            }
            (other, _) => panic!("{case}: {other:?}"),
        }
        run += 1;
    }
    tell(format_args!("helm/choose.json: {run} versions of a registry"));
    // Build metadata is in a tag as `_`.
    let exact = fetched(&of_registry(&registry, "app", "0.1.5+c.now")).await;
    assert_eq!(exact.revision.to_string(), "0.1.5+c.now");
    let known: Revision = "1.0.0".parse().unwrap();
    registry.seen();
    assert!(unchanged(&fetch(&of_registry(&registry, "app", "*"), Some(&known)).await.unwrap()));
    assert_eq!(registry.seen().len(), 1, "a list of tags");
}

#[tokio::test]
async fn an_index_may_say_that_a_chart_is_in_a_registry() {
    let (server, registry) = (Server::start(true).await, Registry::start(true, Wants::Nothing).await);
    let bytes = packed("app", "1.0.0+a", &[]);
    push(&registry, "charts/app", "1.0.0+a", &bytes);
    for url in ["charts/app:1.0.0_a", "charts/app"] {
        let url = format!("oci://{}/{url}", registry.address);
        server.put("/index.yaml", index(&[("app", "1.0.0+a", &url, &bytes)]));
        let kept = fetched(&index_of(&server)).await;
        let origin = ChartOrigin::Repository {
            server: Box::new(HelmServer { login: login("right"), ..server.repository() }),
            index: stored(kept.artifact.bytes.clone()),
            together: AskedTogether::default(),
            registry: Box::new(registry.request()),
        };
        let chart = fetched(&request(origin, "app", "")).await;
        assert_eq!((chart.artifact.bytes, chart.revision.to_string().as_str()), (bytes.clone(), "1.0.0+a"));
    }
    assert!(registry.seen().iter().all(|seen| seen.authorization.is_none()), "it is another host");
}

#[tokio::test]
async fn charts_of_real_tools_are_read() {
    let Some(cases) = source_cases("packed charts") else { return };
    let server = Server::start(false).await;
    let mut run = 0;
    for (name, version, said) in [
        ("helmchart", "0.1.0", None),
        ("helmchart-badname", "0.1.0", Some("chart.metadata.name \"../../data/helmchart\" is invalid")),
        ("helmchartwithdeps-v1", "0.3.0", None),
    ] {
        let bytes = &cases[&format!("helm/charts/{name}-{version}.tgz")];
        server.put("/chart.tgz", bytes.clone());
        server.put("/index.yaml", index(&[(name, version, "chart.tgz", bytes)]));
        let kept = fetched(&index_of(&server)).await;
        let request = chart_of(server.repository(), &kept, name, "");
        match said {
            None => assert_eq!(&fetched(&request).await.artifact.bytes, bytes),
            Some(said) => {
                let error = error(&request).await;
                assert!(error.to_string().contains(said), "{error}");
                assert_eq!(error.reason().unwrap().as_str(), "ChartPullError");
            }
        }
        run += 1;
    }
    let whole = &cases["helm/charts/helmchart-0.1.0.tgz"];
    server.put("/chart.tgz", whole.clone());
    server.put("/index.yaml", index(&[("helmchart", "0.1.0", "chart.tgz", whole)]));
    let kept = fetched(&index_of(&server)).await;
    let changed = HelmChartRequest {
        values: values(&["a.yaml", "b.yaml", "c.yaml"], false),
        build_metadata: Some("3".to_owned()),
        ..chart_of(server.repository(), &kept, "helmchart", "")
    };
    let changed = fetched(&changed).await.artifact.bytes;
    assert_eq!(file(&changed, "helmchart/values.yaml"), "a: b\nb: d\n");
    assert_eq!(files(&changed).len(), files(whole).len());
    tell(format_args!("helm/charts: {run} packed charts"));
}
