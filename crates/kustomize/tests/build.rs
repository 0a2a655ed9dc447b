//! Builds from trees in memory: overlays of Flux, plain directories, bounds and bad input.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::Arc;

use roadstead_kustomize::{
    Build, Error, Fetched, Generate, Image, Limits, MemoryTree, Options, Overlay, Patch, Remote, Selector,
    TreePath, build,
};

fn tree(files: &[(&str, &str)]) -> MemoryTree {
    let mut tree = MemoryTree::new();
    for (path, text) in files {
        tree.insert_file(TreePath::new(path).unwrap(), *text);
    }
    tree
}

fn run(files: &[(&str, &str)], options: &Options) -> Result<Build, Error> {
    build(&tree(files), &TreePath::root(), options)
}

fn error(files: &[(&str, &str)]) -> String {
    run(files, &Options::default()).unwrap_err().to_string()
}

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i:1}]}\n";

#[test]
fn an_overlay_edits_the_root() {
    let overlay = Overlay {
        namespace: "tenant".into(),
        name_prefix: "x-".into(),
        patches: vec![Patch {
            patch: Some("- {op: add, path: /spec/hostname, value: h}".into()),
            target: Some(Selector { kind: "Pod".into(), ..Selector::default() }),
            ..Patch::default()
        }],
        images: vec![Image { name: "i".into(), new_tag: "2".into(), ..Image::default() }],
        labels: vec![("team".into(), "fleet".into())],
        annotations: vec![("note".into(), "yes".into())],
        ..Overlay::default()
    };
    let options = Options { overlay, ..Options::default() };
    let files = [
        ("kustomization.yaml", "namespace: own\nresources: [pod.yaml]\nimages: [{name: i, newTag: '9'}]\n"),
        ("pod.yaml", POD),
    ];
    let build = run(&files, &options).unwrap();
    let want = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "x-p",
            "namespace": "tenant",
            "labels": {"team": "fleet"},
            "annotations": {"note": "yes"},
        },
        "spec": {"containers": [{"name": "c", "image": "i:2"}], "hostname": "h"},
    });
    assert_eq!(build.objects[0].to_json(), want);
    assert_eq!((build.objects[0].source(), build.objects[0].name()), ("pod.yaml:1", "x-p"));
}

#[test]
fn an_overlay_adds_components_and_asks_for_origins() {
    let files = [
        ("app/kustomization.yaml", "resources: [pod.yaml]\n"),
        ("app/pod.yaml", POD),
        (
            "extra/kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: extra-\n",
        ),
    ];
    let build = |components: &[&str], ignore_missing_components| {
        let overlay = Overlay {
            components: components.iter().map(|path| (*path).to_owned()).collect(),
            ignore_missing_components,
            build_metadata: vec!["originAnnotations".to_owned()],
            ..Overlay::default()
        };
        build(&tree(&files), &TreePath::new("app").unwrap(), &Options { overlay, ..Options::default() })
    };
    let built = build(&["../extra", "../gone"], true).unwrap();
    let pod = built.objects[0].to_json();
    assert_eq!(pod["metadata"]["name"], "extra-p");
    assert_eq!(pod["metadata"]["annotations"]["config.kubernetes.io/origin"], "path: pod.yaml\n");
    let error = build(&["../extra", "../gone"], false).unwrap_err().to_string();
    assert!(error.contains("components[1]") && error.contains("gone"), "{error}");
    // What leaves the tree is not a missing component.
    let error = build(&["../../out"], true).unwrap_err().to_string();
    assert!(error.contains("components[0]"), "{error}");
}

#[test]
fn a_plain_directory() {
    let files = [
        ("a/pod.yaml", POD),
        ("values.yml", "replicas: 1\n"),
        ("README.md", "# no"),
        ("nested/kustomization.yaml", "nameSuffix: -n\nresources: [pod.yaml]\n"),
        ("nested/pod.yaml", POD),
    ];
    let names: Vec<String> =
        run(&files, &Options::default()).unwrap().objects.iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["p", "p-n"]);
    let refused = run(&files, &Options { generate: Generate::Never, ..Options::default() }).unwrap_err();
    assert!(matches!(refused, Error::NoKustomization(_)), "{refused}");
    assert_eq!(
        error(&[("bad.yaml", "a: b: c\n")]),
        "bad.yaml:1: mapping values are not allowed in this context"
    );
}

#[test]
fn a_plain_directory_holds_all_sorts_of_files() {
    let named = |name: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n");
    let mut tree = MemoryTree::new();
    for (path, text) in [
        ("b/c/deep.yml", named("deep")),
        ("a.yaml", format!("# two\n---\n{}---\n{}", named("one"), named("two"))),
        (
            "list.yaml",
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: item}}]\n"
                .into(),
        ),
        ("pod.json", named("json")),
        ("pod.yaml.tmpl", "{{ template }}".into()),
        ("empty.yaml", "# nothing\n".into()),
        ("list-of-values.yaml", "- a\n- b\n".into()),
        ("no-version.yaml", "kind: Pod\nmetadata: {name: no}\n".into()),
        (".github/workflows/ci.yaml", "on: push\njobs: {}\n".into()),
        ("n/nested/Kustomization", "resources: [used.yaml]\n".into()),
        ("n/nested/used.yaml", named("used")),
        ("n/nested/unused.yaml", named("unused")),
        ("n/nested/below/unused.yaml", "{{ no YAML }}: :".into()),
        ("n/dir/kustomization.yaml/pod.yaml", named("in-a-directory-of-that-name")),
    ] {
        tree.insert_file(TreePath::new(path).unwrap(), text);
    }
    tree.insert_symlink(TreePath::new("again").unwrap(), "b");
    tree.insert_symlink(TreePath::new("gone.yaml").unwrap(), "nowhere.yaml");
    let build = build(&tree, &TreePath::root(), &Options::default()).unwrap();
    let mut names: Vec<_> = build.objects.iter().map(roadstead_kustomize::Object::name).collect();
    names.sort_unstable();
    assert_eq!(names, ["deep", "in-a-directory-of-that-name", "item", "one", "two", "used"]);
}

#[test]
fn fields_that_are_not_done_are_refused_by_name() {
    for field in ["helmCharts", "helmChartInflationGenerator"] {
        let text = format!("resources: [pod.yaml]\n{field}: [x]\n");
        let message = error(&[("kustomization.yaml", &text), ("pod.yaml", POD)]);
        assert!(message.contains(&format!("field \"{field}\" is not supported")), "{message}");
    }
}

#[test]
fn links_out_of_the_root_are_named() {
    let mut tree = tree(&[("app/kustomization.yaml", "resources: [pod.yaml, dir]\n"), ("pod.yaml", POD)]);
    tree.insert_symlink(TreePath::new("app/dir").unwrap(), "../../../etc");
    tree.insert_symlink(TreePath::new("app/pod.yaml").unwrap(), "../pod.yaml");
    let app = TreePath::new("app").unwrap();
    let message = build(&tree, &app, &Options::default()).unwrap_err().to_string();
    assert!(message.contains("load restrictor"), "{message}");
    let options =
        Options { load_restrictor: roadstead_kustomize::LoadRestrictor::None, ..Options::default() };
    let message = build(&tree, &app, &options).unwrap_err().to_string();
    assert!(
        message.contains("the link \"app/dir\" points to \"../../../etc\", outside the root"),
        "{message}"
    );
    let message = error(&[("kustomization.yaml", "resources: [../x]\n")]);
    assert!(message.contains("leaves the root"), "{message}");
}

#[test]
fn bounds() {
    let many = POD.replace("name: p", "name: p1") + "---\n" + POD;
    let files = [("kustomization.yaml", "resources: [pod.yaml]\n"), ("pod.yaml", many.as_str())];
    let mut limits = Limits::default();
    limits.objects = 1;
    assert!(matches!(run(&files, &Options { limits, ..Options::default() }), Err(Error::Limit { .. })));
    let mut limits = Limits::default();
    limits.file_bytes = 64;
    let message = run(&files, &Options { limits, ..Options::default() }).unwrap_err().to_string();
    assert_eq!(message, "file \"pod.yaml\" is larger than 64 bytes");
    let mut limits = Limits::default();
    limits.bases_depth = 3;
    let deep: Vec<(String, String)> = (0..6)
        .map(|i| (format!("d{i}/kustomization.yaml"), format!("resources: [../d{}]\n", i + 1)))
        .collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
    let start = TreePath::new("d0").unwrap();
    let result = build(&tree(&deep), &start, &Options { limits, ..Options::default() });
    assert!(matches!(result, Err(Error::Limit { .. })), "{result:?}");
}

#[test]
fn bad_input_is_an_error_that_names_the_place() {
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: text\n";
    for (kustomization, object, part) in [
        ("resources: [o.yaml]\nimages: [{name: '((', newTag: x}]\n", POD, "images[0]"),
        ("resources: [o.yaml]\nimages: [{name: '(a{1000}){1000}', newTag: x}]\n", POD, "images[0]"),
        ("resources: [o.yaml]\npatches: [{target: {name: '['}, patch: '[]'}]\n", POD, "target.name"),
        ("resources: [o.yaml]\ncommonLabels: {a: b}\n", deployment, "Deployment.apps/d"),
        ("resources: [o.yaml]\nreplicas: [{name: none, count: 1}]\n", POD, "replicas[0]"),
        ("resources: [o.yaml]\nreplicas: [{name: p, count: x}]\n", POD, "replicas[0].count"),
        ("resources: [{a: b}]\n", POD, "resources[0]"),
        ("resources: [https://example.org/x.yaml]\n", POD, "remote resources are off"),
        ("resources: [o.yaml, o.yaml]\n", POD, "defined twice"),
        ("resources: [.]\n", POD, "cycle"),
        ("- a\n", POD, "a mapping is needed"),
        ("", POD, "the file is empty"),
        ("resources: [o.yaml]\n", "- a\n", "o.yaml:1"),
        ("resources: [o.yaml]\n", "kind: Pod\nmetadata: []\n", "metadata must be a mapping"),
        ("resources: [o.yaml]\n", "kind: Pod\nmetadata: {}\n", "metadata.name is missing"),
        (
            "resources: [o.yaml]\npatches: [{patch: '- {op: remove, path: /x/y}', target: {kind: Pod}}]\n",
            POD,
            "/x/y",
        ),
        (
            "resources: [o.yaml]\npatches: [{patch: '- {op: remove, path: \"\"}', target: {kind: Pod}}]\n",
            POD,
            "operation 0",
        ),
        (
            "resources: [o.yaml]\npatches: [{patch: '- {op: replace, path: \"\", value: 1}', target: {kind: Pod}}]\n",
            POD,
            "makes it",
        ),
        (
            "resources: [o.yaml]\nconfigMapGenerator: [{name: c, literals: [x]}]\n",
            POD,
            "configMapGenerator[0].literals[0]",
        ),
        ("resources: [o.yaml]\nconfigMapGenerator: [{literals: [x=y]}]\n", POD, "name is missing"),
    ] {
        let message = error(&[("kustomization.yaml", kustomization), ("o.yaml", object)]);
        assert!(message.contains(part), "{kustomization:?}: {message}");
    }
    let deleted = [
        (
            "kustomization.yaml",
            "resources: [o.yaml]\npatches: [{patch: '{apiVersion: v1, kind: Pod, metadata: {name: p}, $patch: delete}'}]\n",
        ),
        ("o.yaml", POD),
    ];
    assert!(run(&deleted, &Options::default()).unwrap().objects.is_empty());
}

/// A web of two repositories and a file.
#[derive(Debug)]
struct Web;

impl Remote for Web {
    fn fetch(&self, url: &str) -> Result<Fetched, String> {
        let (files, path): (&[(&str, &str)], &str) = match url {
            "https://example.org/pod.yaml" => (&[("pod.yaml", POD)], "pod.yaml"),
            "https://example.org/org/repo//app?ref=v1" => (
                &[
                    (
                        "app/kustomization.yaml",
                        "namePrefix: far-\nresources: [../base, https://example.org/pod.yaml]\n",
                    ),
                    ("base/kustomization.yaml", "resources: [cm.yaml]\n"),
                    ("base/cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"),
                ],
                "app",
            ),
            "https://example.org/bad" => (&[("kustomization.yaml", "resources: [../secret.yaml]\n")], ""),
            "https://example.org/self" => {
                (&[("kustomization.yaml", "resources: [https://example.org/self]\n")], "")
            }
            "https://example.org/patch" => {
                (&[("p.yaml", "- {op: add, path: /spec/hostname, value: patched}\n")], "p.yaml")
            }
            _ => return Err("status 404".into()),
        };
        Ok(Fetched { tree: Arc::new(tree(files)), path: TreePath::new(path).unwrap() })
    }
}

#[test]
fn urls_are_fetched_where_that_is_wanted() {
    let options = Options { remote: Some(Arc::new(Web)), ..Options::default() };
    let all = "resources: ['https://example.org/org/repo//app?ref=v1']\n\
               patches: [{path: https://example.org/patch, target: {kind: Pod}}]\n";
    let build = run(&[("kustomization.yaml", all)], &options).unwrap();
    let names: Vec<_> = build.objects.iter().map(|o| o.name().to_owned()).collect();
    assert_eq!(names, ["far-c", "far-p"]);
    assert!(build.to_yaml().contains("hostname: patched"));
    for (url, part) in [
        ("https://example.org/none", "cannot fetch \"https://example.org/none\": status 404"),
        ("https://example.org/bad", "leaves the root"),
        ("https://example.org/self", "cycle"),
    ] {
        let text = format!("resources: [{url}]\n");
        let error =
            run(&[("kustomization.yaml", &text), ("secret.yaml", POD)], &options).unwrap_err().to_string();
        assert!(error.contains(part), "{url}: {error}");
    }
}

#[test]
fn a_build_can_be_sent_to_another_thread() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Build>();
    check::<Options>();
    check::<Error>();
    check::<MemoryTree>();
    check::<Overlay>();
    check::<Fetched>();
    check::<Arc<dyn Remote>>();
    check::<Box<dyn roadstead_kustomize::FileTree>>();
    check::<roadstead_kustomize::value::Value>();
}
