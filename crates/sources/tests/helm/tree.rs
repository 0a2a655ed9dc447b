//! Charts in the artifacts of other sources.

use roadstead_model::Revision;
use roadstead_sources::{HelmChartRequest, Outcome};

use crate::kit::{artifact, error, fetch, fetched, file, in_tree, names, packed, values};
use crate::source_cases::{source_cases, tell};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 0.1.0\n";

#[tokio::test]
async fn a_folder_is_packed_the_same_each_time() {
    let tree = artifact(&[
        ("charts/app/Chart.yaml", CHART),
        ("charts/app/values.yaml", "a: 1\n"),
        ("charts/app/templates/a.yaml", "{{ . }}"),
        ("charts/app/templates/.dotfile", "x"),
        ("charts/app/.helmignore", "*.md\n/ci/\n"),
        ("charts/app/README.md", "x"),
        ("charts/app/ci/test.yaml", "x"),
        ("charts/other/Chart.yaml", CHART),
        ("prod.yaml", "b: 2\n"),
    ]);
    let chart = fetched(&in_tree(tree.clone(), "./charts/app")).await;
    assert_eq!(chart.revision.to_string(), "0.1.0");
    let expected = ["app/.helmignore", "app/Chart.yaml", "app/templates/a.yaml", "app/values.yaml"];
    assert_eq!(names(&chart.artifact.bytes), expected);
    assert_eq!(file(&chart.artifact.bytes, "app/Chart.yaml"), CHART, "what is not changed stays as it is");
    assert!(chart.chart().unwrap().is_packaged);
    let again = fetched(&in_tree(tree.clone(), "/charts/../charts/app/")).await;
    assert_eq!(again.artifact.digest, chart.artifact.digest);

    // A version that is known is not made again, whatever else changed, unless its name is another one.
    let known: Revision = "0.1.0".parse().unwrap();
    let request = |name: &str| HelmChartRequest {
        known_name: Some(name.to_owned()),
        ..in_tree(tree.clone(), "charts/app")
    };
    assert!(matches!(fetch(&request("app"), Some(&known)).await.unwrap(), Outcome::Unchanged(_)));
    assert!(matches!(fetch(&request("old"), Some(&known)).await.unwrap(), Outcome::Fetched(_)));
    let follows = HelmChartRequest { build_metadata: Some("5394cb7f4833".to_owned()), ..request("app") };
    let followed = fetched(&follows).await;
    assert_eq!(followed.revision.to_string(), "0.1.0+5394cb7f4833");

    // Files of values are those of the source's root.
    let with = |paths: &[&str]| HelmChartRequest {
        values: values(paths, false),
        build_metadata: Some("2".to_owned()),
        ..in_tree(tree.clone(), "charts/app")
    };
    let chart = fetched(&with(&["charts/app/values.yaml", "prod.yaml"])).await;
    assert_eq!(file(&chart.artifact.bytes, "app/values.yaml"), "a: 1\nb: 2\n");
    let missing = error(&with(&["../../values.yaml"])).await;
    assert!(missing.to_string().contains("no values file found at path '/values.yaml'"), "{missing}");
}

#[tokio::test]
async fn what_is_no_chart_is_said_so() {
    let tree = artifact(&[
        ("empty/readme.md", "x"),
        ("bad/Chart.yaml", "apiVersion: v2\nname: ../x\nversion: 1.0.0\n"),
        ("stars/Chart.yaml", CHART),
        ("stars/.helmignore", "a/**\n"),
        ("file.tgz", "not a chart"),
        ("linked/Chart.yaml", CHART),
        ("linked/nowhere", "-> gone"),
        ("around/Chart.yaml", CHART),
        ("around/all", "-> .."),
    ]);
    for (path, said) in [
        ("none", "no chart found at '/none'"),
        ("../../x", "no chart found at '/x'"),
        ("empty", "no Chart.yaml at '/empty'"),
        ("bad", "chart.metadata.name \"../x\" is invalid"),
        ("stars", "double-star"),
        ("file.tgz", "is not a complete tar.gz"),
        ("linked", "symbolic link `linked/nowhere` points to nothing"),
        ("around", "points to nothing, or to a folder that contains it"),
    ] {
        let error = error(&in_tree(tree.clone(), path)).await;
        assert!(error.to_string().starts_with("invalid chart reference: "), "{error}");
        assert!(error.to_string().contains(said), "{path}: {error}");
        assert_eq!(error.reason().unwrap().as_str(), "InvalidChartReference");
        assert!(error.is_stalled());
    }
}

#[tokio::test]
async fn links_within_the_source_are_followed() {
    let tree = artifact(&[
        ("app/Chart.yaml", "-> ../shared/Chart.yaml"),
        ("app/templates", "-> ../shared/templates"),
        ("app/values.yaml", "a: 1\n"),
        ("shared/Chart.yaml", CHART),
        ("shared/templates/a.yaml", "a"),
        ("shared/templates/.hidden", "x"),
        ("shared/templates/b.yaml", "-> a.yaml"),
        ("link", "-> app"),
    ]);
    for path in ["app", "link"] {
        let chart = fetched(&in_tree(tree.clone(), path)).await;
        let expected = ["app/Chart.yaml", "app/templates/a.yaml", "app/templates/b.yaml", "app/values.yaml"];
        assert_eq!(names(&chart.artifact.bytes), expected);
        assert_eq!(file(&chart.artifact.bytes, "app/templates/b.yaml"), "a");
    }
}

#[tokio::test]
async fn a_packed_chart_in_a_source_comes_as_it_is() {
    let packed = packed("app", "1.0.0", &[("values.yaml", "a: 1\n")]);
    // It is not text: it is put in by a tree of bytes.
    let mut builder = roadstead_sources::TreeBuilder::new(roadstead_sources::TreeLimits::default());
    let file_of = |bytes: &[u8]| roadstead_sources::Entry::File { bytes: bytes.to_vec(), executable: false };
    builder.insert("charts/app.tgz".to_owned(), file_of(&packed)).unwrap();
    builder.insert("prod.yaml".to_owned(), file_of(b"b: 2\n")).unwrap();
    let tree = roadstead_sources::pack(&builder.finish().unwrap()).unwrap().bytes;
    let chart = fetched(&in_tree(tree.clone(), "charts/app.tgz")).await;
    assert!(chart.artifact.bytes == packed && !chart.chart().unwrap().is_packaged);
    let with = HelmChartRequest {
        values: values(&["prod.yaml"], false),
        build_metadata: Some("4".to_owned()),
        ..in_tree(tree, "charts/app.tgz")
    };
    let chart = fetched(&with).await;
    assert_eq!(chart.revision.to_string(), "1.0.0+4");
    assert_eq!(file(&chart.artifact.bytes, "app/values.yaml"), "b: 2\n");
}

#[tokio::test]
async fn charts_of_the_same_source_are_put_into_those_that_depend_on_them() {
    let of = |dependencies: &str| format!("{CHART}dependencies:\n{dependencies}");
    let build = async |chart: &str, more: &[(&str, &str)]| {
        let mut files = vec![
            ("own/Chart.yaml", chart),
            ("lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 1.2.3\n"),
            ("lib/templates/a.yaml", "a"),
            ("bad.tgz", "not a chart"),
        ];
        files.extend_from_slice(more);
        fetch(&in_tree(artifact(&files), "own"), None).await
    };
    let lib = of(
        "- {name: lib, version: 1.x, repository: \"file://../lib\"}\n- {name: lib, alias: more, version: 1.x, repository: \"file://../lib\"}\n",
    );
    let Outcome::Fetched(chart) = build(&lib, &[]).await.unwrap() else { panic!("unchanged") };
    let expected = ["app/Chart.yaml", "app/charts/lib/Chart.yaml", "app/charts/lib/templates/a.yaml"];
    assert_eq!(names(&chart.artifact.bytes), expected);
    // What is locked counts, and so does what is there already.
    let locked =
        [("own/Chart.lock", "dependencies:\n- {name: lib, version: 9.9.9, repository: \"file://../lib\"}\n")];
    let why = build(&lib, &locked).await.unwrap_err().to_string();
    assert!(why.contains("can't get a valid version for constraint '9.9.9'"), "{why}");
    let there = [("own/charts/grafana-6.17.4.tgz", "x")];
    let remote = of("- {name: grafana, version: 6.x, repository: \"https://charts.example\"}\n");
    build(&remote, &there).await.unwrap();
    for (dependency, said) in [
        (
            "{name: grafana, version: 6.x, repository: \"@charts\"}",
            "aliased repository dependency is not supported",
        ),
        ("{name: grafana, version: 6.x, repository: \"ftp://x\"}", "invalid dependency repository URL"),
        (
            "{name: lib, version: 1.x, repository: \"file://../bad.tgz\"}",
            "failed to load chart from '/bad.tgz'",
        ),
        (
            "{name: lib, version: odd, repository: \"file://../lib\"}",
            "invalid version/constraint format 'odd'",
        ),
        ("{name: lib, version: 1.x, repository: \"file://../../../gone\"}", "no chart found at '/gone'"),
        ("{name: none, version: 1.x}", "no chart found at '/own/charts/none'"),
        ("{name: ../x, version: 1.x}", "\"../x\" is invalid"),
    ] {
        let error = build(&of(&format!("- {dependency}\n")), &[]).await.unwrap_err();
        assert!(error.to_string().starts_with("dependency build error: "), "{error}");
        assert!(error.to_string().contains(said), "{dependency}: {error}");
        assert_eq!(error.reason().unwrap().as_str(), "DependencyBuildError");
    }
}

#[tokio::test]
async fn local_dependencies_are_found_as_flux_finds_them() {
    let Some(cases) = source_cases("charts that charts depend on") else { return };
    let all: serde_json::Value = serde_json::from_slice(&cases["helm/choose.json"]).unwrap();
    let mut run = 0;
    for case in all["local_dependency"].as_array().unwrap() {
        let chart = case["chart"].as_str().unwrap();
        let name = case["name"].as_str().unwrap_or("helmchart");
        let version = case["version"].as_str().unwrap_or("0.1.0");
        let repository = case["repository"].as_str().unwrap();
        let mut files: Vec<(String, String)> = cases
            .iter()
            .filter(|(path, bytes)| {
                path.starts_with("helm/charts/") && !path.ends_with(".tgz") && !bytes.is_empty()
            })
            .map(|(path, bytes)| {
                (path["helm/charts/".len()..].to_owned(), String::from_utf8(bytes.clone()).unwrap())
            })
            .filter(|(path, _)| !path.contains("/charts/") && !path.ends_with(".lock"))
            .collect();
        files.push(("empty.tgz".to_owned(), "empty".to_owned()));
        let own = chart.trim_start_matches("charts/");
        let text = format!(
            "{CHART}dependencies:\n- {{name: {name}, version: {version:?}, repository: {repository:?}}}\n"
        );
        for (path, content) in &mut files {
            if *path == format!("{own}/Chart.yaml") {
                content.clone_from(&text);
            }
        }
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let found = fetch(&in_tree(artifact(&files), own), None).await;
        match case["error"].as_str() {
            None => assert!(found.is_ok(), "{case}: {found:?}"),
            Some(said) => {
                let error = found.unwrap_err().to_string();
                assert!(error.contains(said), "{case}: {error}");
            }
        }
        run += 1;
    }
    tell(format_args!("helm/choose.json: {run} local dependencies"));
}

#[tokio::test]
async fn charts_of_the_original_are_packed() {
    let Some(cases) = source_cases("charts in folders") else { return };
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    let of = |prefix: &str| -> Vec<(String, String)> {
        let all = cases
            .iter()
            .filter(|(name, bytes)| name.starts_with(prefix) && !name.ends_with('/') && !bytes.is_empty());
        all.filter(|(name, _)| !name.ends_with(".tgz"))
            .map(|(name, bytes)| (name.trim_start_matches("helm/").to_owned(), text(bytes)))
            .collect()
    };
    let files = of("helm/charts/");
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let tree = artifact(&files);
    let mut run = 0;
    for (path, version) in
        [("helmchart", "0.1.0"), ("helmchart-v1", "0.2.0"), ("helmchart-with-extra-values", "0.1.0")]
    {
        let chart = fetched(&in_tree(tree.clone(), &format!("charts/{path}"))).await;
        assert_eq!(chart.revision.to_string(), version, "{path}");
        run += 1;
    }
    tell(format_args!("helm/charts: {run} folders"));
    // The tree of Helm's own tests of its patterns, with a chart's file in it.
    let mut ignored = of("helm/helmignore/");
    ignored.push(("helmignore/Chart.yaml".to_owned(), CHART.to_owned()));
    let ignored: Vec<(&str, &str)> =
        ignored.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let found = names(&fetched(&in_tree(artifact(&ignored), "helmignore")).await.artifact.bytes);
    assert!(!found.iter().any(|name| name == "app/mast/a.txt" || name.contains(".dotfile")), "{found:?}");
    tell(format_args!("helm/helmignore: {} files stay", found.len()));
}
