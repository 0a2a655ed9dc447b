//! What an attempt that fails has learned by then of an index and of a chart.

use roadstead_sources::{HelmChartRequest, InProcess, Source};
use tokio_util::sync::CancellationToken;

use crate::kit::{artifact, chart_of, fetched, in_tree, index, index_of, packed, values};
use crate::server::{Fault, Server};

/// What a fetch that must fail has learned: a chart's name where it is one, and the revision.
async fn learned(source: &dyn Source) -> Option<(String, String)> {
    let outcome = source.fetch(None, &InProcess::default(), &CancellationToken::new()).await;
    let learned = *outcome.unwrap_err().learned?;
    Some((learned.chart.unwrap_or_default(), learned.revision.to_string()))
}

fn of(name: &str, version: &str) -> Option<(String, String)> {
    Some((name.to_owned(), version.to_owned()))
}

#[tokio::test]
async fn the_version_that_an_index_has_is_known_before_the_chart_is() {
    let server = Server::start(true).await;
    let chart = packed("app", "1.2.0", &[]);
    server.put("/app-1.2.0.tgz", chart.clone());
    server.put("/index.yaml", index(&[("app", "1.2.0", "app-1.2.0.tgz", &chart)]));
    let kept = fetched(&index_of(&server)).await;
    let request = chart_of(server.repository(), &kept, "app", "1.x");
    let packaged = HelmChartRequest {
        build_metadata: Some("7".to_owned()),
        values: values(&["nothing.yaml"], false),
        ..request.clone()
    };
    assert_eq!(learned(&packaged).await, of("app", "1.2.0+7"), "as it would be called");
    server.fault("/app-1.2.0.tgz", Fault::Status(500));
    assert_eq!(learned(&request).await, of("app", "1.2.0"));
    let none = chart_of(server.repository(), &kept, "app", "9.x");
    assert_eq!(learned(&none).await, None);
}

#[tokio::test]
async fn a_chart_in_a_tree_is_known_once_it_is_found() {
    let tree = artifact(&[
        ("charts/app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 0.1.0\n"),
        ("charts/app/values.yaml", "a: 1\n"),
    ]);
    let request = HelmChartRequest {
        build_metadata: Some("7".to_owned()),
        values: values(&["nothing.yaml"], false),
        ..in_tree(tree.clone(), "charts/app")
    };
    assert_eq!(learned(&request).await, of("app", "0.1.0+7"));
    assert_eq!(learned(&in_tree(tree, "charts/none")).await, None);
}
