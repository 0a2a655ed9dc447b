//! Input that means harm: each is an error that names the place, after bounded work, and none is a panic.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use roadstead_kustomize::{Error, Limits, MemoryTree, Options, TreePath, build};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {a: [1]}\n";
const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n";

/// Generous: a busy machine and a debug build. What is not bounded takes hours.
const PATIENCE: Duration = Duration::from_secs(60);

fn tree<T: AsRef<[u8]>>(files: &[(&str, T)]) -> MemoryTree {
    let mut tree = MemoryTree::new();
    for (path, bytes) in files {
        tree.insert_file(TreePath::new(path).unwrap(), bytes.as_ref());
    }
    tree
}

fn refused(tree: &MemoryTree, options: &Options) -> Error {
    let start = Instant::now();
    let error = build(tree, &TreePath::root(), options).unwrap_err();
    assert!(start.elapsed() < PATIENCE, "{:?} for {error}", start.elapsed());
    let text = error.to_string();
    assert!(text.len() < 2_000, "a message of {} bytes: {text:.200}", text.len());
    error
}

/// Builds what must fail, and checks what the message names.
fn fails<T: AsRef<[u8]>>(files: &[(&str, T)], parts: &[&str]) {
    fails_within(&Limits::default(), files, parts);
}

fn fails_within<T: AsRef<[u8]>>(limits: &Limits, files: &[(&str, T)], parts: &[&str]) {
    let options = Options { limits: limits.clone(), ..Options::default() };
    let message = refused(&tree(files), &options).to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message}");
    }
}

fn small() -> Limits {
    let mut limits = Limits::default();
    limits.work = 1_000_000;
    limits.made_bytes = 4 << 20;
    limits
}

/// A kustomization over one object.
fn over(kustomization: &str, object: &str, parts: &[&str]) {
    fails(&[("kustomization.yaml", kustomization), ("o.yaml", object)], parts);
}

#[test]
fn cycles_of_bases_and_components() {
    fails(
        &[
            ("kustomization.yaml", "resources: [a]\n"),
            ("a/kustomization.yaml", "resources: [../b]\n"),
            ("b/kustomization.yaml", "resources: [../a]\n"),
        ],
        &["cycle", "\".\" -> \"a\" -> \"b\" -> \"a\""],
    );
    let component = "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n";
    fails(
        &[
            ("kustomization.yaml", "components: [a]\n"),
            ("a/kustomization.yaml", &format!("{component}components: [../b]\n")),
            ("b/kustomization.yaml", &format!("{component}components: [../a]\n")),
        ],
        &["cycle", "\"a\" -> \"b\" -> \"a\""],
    );
    fails(
        &[
            ("kustomization.yaml", "components: [a]\n"),
            ("a/kustomization.yaml", &format!("{component}resources: [..]\n")),
        ],
        &["cycle"],
    );
    fails(
        &[("kustomization.yaml", "generators: [a]\n"), ("a/kustomization.yaml", "transformers: [../a]\n")],
        &["cycle"],
    );
    // A tree of bases that doubles with each level is not a cycle, and is bounded.
    let doubled: Vec<(String, String)> = (0..40)
        .map(|i| {
            let dir = if i == 0 { String::new() } else { format!("d{i}/") };
            let up = if i == 0 { "" } else { "../" };
            let next = i + 1;
            let text = if i == 39 {
                "namePrefix: x\n".to_owned()
            } else {
                format!("resources: [{up}d{next}, {up}d{next}/.]\n")
            };
            (format!("{dir}kustomization.yaml"), text)
        })
        .collect();
    let files: Vec<_> = doubled.iter().map(|(path, text)| (path.as_str(), text)).collect();
    fails(&files, &["more than 10000 kustomizations"]);
}

#[test]
fn alias_bombs() {
    let mut nodes = String::from("kind: A\nmetadata: {name: a}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    let mut text = format!("kind: A\nmetadata: {{name: a}}\na0: &a0 [{}]\n", "x".repeat(1 << 20));
    for i in 1..12 {
        let before = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(nodes, "a{i}: &a{i} [{before}]").unwrap();
        writeln!(text, "a{i}: &a{i} [{before}]").unwrap();
    }
    for bomb in [&nodes, &text] {
        over("resources: [o.yaml]\n", bomb, &["o.yaml:", "with aliases expanded"]);
        fails(&[("kustomization.yaml", bomb)], &["kustomization.yaml:", "with aliases expanded"]);
        over("resources: [o.yaml]\npatches: [{path: p.yaml}]\n", POD, &["p.yaml"]);
    }
    // Many bombs, each of which is within the bounds of one file.
    let mut one = String::from(
        "apiVersion: v1\nkind: A\nmetadata: {name: NAME}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n",
    );
    for i in 1..5 {
        writeln!(one, "a{i}: &a{i} [{}]", vec![format!("*a{}", i - 1); 10].join(", ")).unwrap();
    }
    let mut limits = Limits::default();
    limits.total_nodes = 1_000_000;
    let files: Vec<(String, String)> =
        (0..30).map(|i| (format!("o{i}.yaml"), one.replace("NAME", &format!("n{i}")))).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text)).collect();
    fails_within(&limits, &files, &["more than 1000000 values read in all"]);
}

#[test]
fn large_files() {
    let large = format!("{MAP}  large: {}\n", "x".repeat(100 << 20));
    over("resources: [o.yaml]\n", &large, &["\"o.yaml\" is larger than 33554432 bytes"]);
    over("configMapGenerator: [{name: c, files: [o.yaml]}]\n", &large, &["\"o.yaml\" is larger"]);
    fails(&[("kustomization.yaml", &large)], &["\"kustomization.yaml\" is larger"]);
    let mut limits = Limits::default();
    limits.file_bytes = 200 << 20;
    limits.total_bytes = 400 << 20;
    let mut many = String::from("apiVersion: v1\nkind: A\nmetadata: {name: a}\nlist:\n");
    many.push_str(&"- x\n".repeat(25 << 20));
    let files = [("kustomization.yaml", "resources: [o.yaml]\n"), ("o.yaml", &many)];
    fails_within(&limits, &files, &["o.yaml:", "more than 2000000 values"]);
    let documents = "---\nx\n".repeat(30_000);
    over("resources: [o.yaml]\n", &documents, &["o.yaml:", "more than 20000 documents"]);
}

#[test]
fn depth() {
    const DEPTH: usize = 10_000;
    let flow = format!("kind: A\nmetadata: {{name: a}}\nx: {}1{}\n", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let maps = format!("kind: A\nmetadata: {{name: a}}\nx: {}1{}\n", "{a: ".repeat(DEPTH), "}".repeat(DEPTH));
    let dashes = format!("kind: A\nmetadata: {{name: a}}\nx:\n{}x\n", "- ".repeat(DEPTH));
    let mut block = String::from("kind: A\nmetadata: {name: a}\n");
    for i in 0..DEPTH / 10 {
        writeln!(block, "{}a:", " ".repeat(i)).unwrap();
    }
    for deep in [&flow, &maps, &dashes, &block] {
        over("resources: [o.yaml]\n", deep, &["o.yaml:", "nested deeper than 200"]);
        fails(&[("kustomization.yaml", deep)], &["kustomization.yaml:", "nested deeper than 200"]);
        let files = [
            ("kustomization.yaml", "resources: [o.yaml]\npatches: [{path: p.yaml}]\n"),
            ("o.yaml", POD),
            ("p.yaml", deep),
        ];
        fails(&files, &["p.yaml:", "nested deeper than 200"]);
    }
    let json = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let patch = |patch: &str| {
        format!("resources: [o.yaml]\npatches: [{{target: {{kind: Pod}}, patch: {patch:?}}}]\n")
    };
    over(&patch(&json), POD, &["patches[0]", "recursion limit"]);
    over(&patch(&format!("- {{op: add, path: /x, value: {json}}}")), POD, &["patches[0]", "nested deeper"]);
    let path = "/a".repeat(DEPTH);
    over(&patch(&format!("- {{op: add, path: {path}, value: 1}}")), POD, &["patches[0]"]);
    // Each operation goes one deeper than the one before.
    let mut steps = String::new();
    for i in 1..1_000 {
        writeln!(steps, "- {{op: add, path: {}, value: {{}}}}", "/x".repeat(i)).unwrap();
    }
    over(&patch(&steps), POD, &["patches[0]", "more than 200 lists and mappings inside of each other"]);
    let field = path.replace('/', ".");
    let replace = |source: &str, target: &str| {
        format!(
            "resources: [o.yaml]\nreplacements: [{{source: {{kind: Pod, fieldPath: {source}}}, \
             targets: [{{select: {{kind: Pod}}, fieldPaths: [{target}], options: {{create: true}}}}]}}]\n"
        )
    };
    over(&replace(&field, "spec.x"), POD, &["replacements[0]", "more than 200 parts"]);
    over(&replace("metadata.name", &field), POD, &["replacements[0]", "more than 200 parts"]);
    over(
        &format!(
            "resources: [o.yaml]\nlabels: [{{pairs: {{a: b}}, fields: [{{path: {path}, create: true}}]}}]\n"
        ),
        POD,
        &["labels[0].fields[0]", "parts"],
    );
    let dirs = "d/".repeat(DEPTH);
    fails(&[(format!("{dirs}o.yaml").as_str(), POD)], &["directories inside of each other"]);
    over(&format!("resources: [{dirs}o.yaml]\n"), POD, &["resources[0]", "no file or directory"]);
}

/// Changes that double what is there, again and again.
#[test]
fn growth() {
    let copies =
        "- {op: copy, from: /spec, path: /spec/b}\n- {op: copy, from: /spec/b, path: /spec/a/-}\n".repeat(60);
    let patch = format!("resources: [o.yaml]\npatches: [{{target: {{kind: Pod}}, patch: {copies:?}}}]\n");
    over(&patch, POD, &["patches[0]", "more than"]);
    let mut texts = String::from("resources: [o.yaml]\nreplacements:\n");
    for _ in 0..60 {
        texts.push_str(
            "- {source: {kind: ConfigMap, fieldPath: data.a}, targets: [{select: {kind: ConfigMap}, \
             fieldPaths: [data.a], options: {delimiter: '|', index: 999}}]}\n",
        );
    }
    fails_within(
        &small(),
        &[("kustomization.yaml", &*texts), ("o.yaml", MAP)],
        &["replacements", "bytes made"],
    );
    let maps = texts.replace("fieldPath: data.a", "fieldPath: data").replace(
        "fieldPaths: [data.a], options: {delimiter: '|', index: 999}",
        "fieldPaths: [data.b, data.c], options: {create: true}",
    );
    fails_within(
        &small(),
        &[("kustomization.yaml", &*maps), ("o.yaml", MAP)],
        &["replacements", "more than"],
    );
    let vars = format!(
        "resources: [o.yaml]\nvars: [{{name: V, objref: {{apiVersion: v1, kind: ConfigMap, name: c}}, fieldref: {{fieldPath: data.a}}}}]\n\
         commonAnnotations: {{x: '{}'}}\nconfigurations: [conf.yaml]\n",
        "$(V)".repeat(5_000)
    );
    let long = MAP.replace("a: b", &format!("a: {}", "x".repeat(50_000)));
    let files = [
        ("kustomization.yaml", &*vars),
        ("o.yaml", &*long),
        ("conf.yaml", "varReference: [{path: metadata/annotations}]\n"),
    ];
    fails_within(&small(), &files, &["vars", "bytes made"]);
    let mut many = String::new();
    for i in 0..1_000 {
        writeln!(many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{i}}}").unwrap();
    }
    for field in [
        "namePrefix: X",
        "nameSuffix: X",
        "namespace: X",
        "commonLabels: {a: X}",
        "labels: [{pairs: {a: X}}]",
    ] {
        let text = format!("resources: [o.yaml]\n{}\n", field.replace('X', &"x".repeat(100_000)));
        fails_within(&small(), &[("kustomization.yaml", &text), ("o.yaml", &many)], &["bytes made"]);
    }
}

/// Many changes of many objects.
#[test]
fn work() {
    let mut many = String::new();
    for i in 0..1_000 {
        writeln!(many, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{i}, labels: {{a: b}}}}")
            .unwrap();
        many.push_str("containers: [{image: z}]\n");
    }
    for (field, entry) in [
        ("patches", "{target: {name: .*x}, patch: '[{\"op\": \"test\", \"path\": \"/a\", \"value\": 1}]'}"),
        ("patches", "{target: {labelSelector: a=c}, patch: '{kind: A, metadata: {name: a}}'}"),
        ("replacements", "{sourceValue: x, targets: [{select: {kind: None}}]}"),
        ("images", "{name: (x|y), newTag: v2}"),
        ("labels", "{pairs: {a: b}}"),
    ] {
        let text = format!("resources: [o.yaml]\n{field}: [{}]\n", vec![entry; 2_000].join(", "));
        fails_within(
            &small(),
            &[("kustomization.yaml", &text), ("o.yaml", &many)],
            &[field, "steps of work"],
        );
    }
    // Keys in the order that is worst for a sorted list.
    let mut keys = String::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nbase: &b\n");
    let mut env = String::new();
    for i in (0..200_000).rev() {
        writeln!(keys, "  k{i:06}: v").unwrap();
        writeln!(env, "k{i:06}=v").unwrap();
    }
    keys.push_str("data:\n  <<: *b\n  z: z\n");
    let files = [
        ("kustomization.yaml", "resources: [o.yaml]\nconfigMapGenerator: [{name: e, envs: [e.env]}]\n"),
        ("o.yaml", &*keys),
        ("e.env", &*env),
    ];
    let start = Instant::now();
    build(&tree(&files), &TreePath::root(), &Options::default()).unwrap();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    // Texts without a newline at the end, after many blocks.
    let blocks = format!("{MAP}l:\n{}  - {}", "  - |\n    a\n".repeat(20_000), "y".repeat(1 << 20));
    let files = [("kustomization.yaml", "resources: [o.yaml]\n"), ("o.yaml", &*blocks)];
    let start = Instant::now();
    build(&tree(&files), &TreePath::root(), &Options::default()).unwrap();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn a_source_within_its_target() {
    // The source is found once, and not among all elements for each of them.
    let mut object = String::from("apiVersion: v1\nkind: B\nmetadata: {name: b}\nspec:\n");
    for i in 0..100_000 {
        let _ = writeln!(object, "- {{n: e{i}}}");
    }
    let kustomization = "resources: [o.yaml]\nreplacements:\n\
        - source: {kind: B, name: b, fieldPath: 'spec.[n=e99999].n'}\n  \
          targets: [{select: {kind: B}, fieldPaths: ['spec.*.m'], options: {create: true}}]\n";
    let start = Instant::now();
    let files = tree(&[("kustomization.yaml", kustomization), ("o.yaml", &object)]);
    let built = build(&files, &TreePath::root(), &Options::default()).unwrap().to_yaml();
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert_eq!(built.matches("m: e99999").count(), 100_000);

    // Each field doubles what the next one is set to.
    let paths: String = (0..64).map(|i| format!("spec.a.x{i}, ")).collect();
    let kustomization = format!(
        "resources: [o.yaml]\nreplacements:\n- source: {{kind: Pod, name: p, fieldPath: spec.a}}\n  \
         targets: [{{select: {{kind: Pod}}, fieldPaths: [{paths}], options: {{create: true}}}}]\n"
    );
    let object = POD.replace("[1]", "{b: c}");
    over(&kustomization, &object, &["replacements[0]"]);
}

#[test]
fn regular_expressions() {
    let huge = r"(\pL{100}){10}";
    let slow = format!("({})*$", "(a|a)".repeat(30));
    let text = "a".repeat(200_000);
    let place = |pattern: &str| {
        [
            (format!("resources: [o.yaml]\nimages: [{{name: '{pattern}', newTag: x}}]\n"), "images[0]: name"),
            (
                format!("resources: [o.yaml]\npatches: [{{target: {{name: '{pattern}'}}, patch: '[]'}}]\n"),
                "patches[0]: target.name",
            ),
            (
                format!(
                    "resources: [o.yaml]\nreplacements: [{{sourceValue: x, targets: [{{select: {{kind: '{pattern}'}}}}]}}]\n"
                ),
                "targets[0]: target.kind",
            ),
            (
                format!(
                    "resources: [o.yaml]\nreplacements: [{{sourceValue: x, targets: [{{select: {{kind: Pod}}, \
                     fieldPaths: ['spec.a.[b={pattern}]']}}]}}]\n"
                ),
                "replacements[0]",
            ),
        ]
    };
    for (kustomization, field) in place(huge) {
        over(&kustomization, POD, &[field, "needs more than 1048576 bytes"]);
    }
    for (kustomization, field) in place("((") {
        over(&kustomization, POD, &[field, "is not a regular expression"]);
    }
    for (kustomization, _) in place(&slow) {
        let object = POD.replace("name: p", &format!("name: {text}b"));
        let start = Instant::now();
        let files = [("kustomization.yaml", kustomization.as_str()), ("o.yaml", object.as_str())];
        let _ = build(&tree(&files), &TreePath::root(), &Options::default());
        assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    }
}

#[test]
fn bytes_that_are_no_text() {
    fails(
        &[("kustomization.yaml", &b"resources: [o.yaml]\n"[..]), ("o.yaml", b"kind: A\nx: \xff\n")],
        &["o.yaml:2", "UTF-8"],
    );
    fails(&[("kustomization.yaml", &b"a\xc3"[..])], &["kustomization.yaml:1", "UTF-8"]);
    let patch = b"resources: [o.yaml]\npatches: [{path: p.yaml}]\n";
    fails(
        &[("kustomization.yaml", &patch[..]), ("o.yaml", POD.as_bytes()), ("p.yaml", b"\n\n\x80")],
        &["p.yaml:3", "UTF-8"],
    );
    let env = b"configMapGenerator: [{name: c, envs: [e]}]\n";
    fails(&[("kustomization.yaml", &env[..]), ("e", b"A=1\nB=\xfe\n")], &["e:2", "UTF-8"]);
}

#[test]
fn paths_and_links_out_of_the_root() {
    for (kustomization, field) in [
        ("resources: [../x.yaml]\n", "resources[0]"),
        ("resources: [a/../../x.yaml]\n", "resources[0]"),
        ("components: [../x]\n", "components[0]"),
        ("resources: [o.yaml]\npatches: [{path: ../../p.yaml}]\n", "patches[0].path"),
        ("configMapGenerator: [{name: c, files: [a=../../etc/passwd]}]\n", "configMapGenerator[0].files[0]"),
        ("configMapGenerator: [{name: c, envs: [../e]}]\n", "configMapGenerator[0].envs[0]"),
        ("crds: [../x]\n", "crds[0]"),
        ("configurations: [../x]\n", "configurations[0]"),
        ("openapi: {path: ../x}\n", "openapi.path"),
        ("transformers: [../x]\n", "transformers[0]"),
        ("resources: [o.yaml]\nreplacements: [{path: ../x}]\n", "replacements[0].path"),
    ] {
        over(kustomization, POD, &[field, "leaves the root"]);
    }
    for target in ["../../etc/passwd", "/etc/passwd", "dir/../../../x", "out2"] {
        let mut tree = tree(&[("kustomization.yaml", "resources: [out]\n")]);
        tree.insert_symlink(TreePath::new("out").unwrap(), target);
        tree.insert_symlink(TreePath::new("out2").unwrap(), "../..");
        let message = refused(&tree, &Options::default()).to_string();
        assert!(message.contains("resources[0]") && message.contains("outside the root"), "{message}");
    }
    let mut tree = tree(&[("kustomization.yaml", "resources: [a]\n")]);
    tree.insert_symlink(TreePath::new("a").unwrap(), "b");
    tree.insert_symlink(TreePath::new("b").unwrap(), "a");
    let message = refused(&tree, &Options::default()).to_string();
    assert!(message.contains("too many symbolic links"), "{message}");
}

#[test]
fn a_patch_that_deletes_the_whole_object() {
    for patch in [
        "'{apiVersion: v1, kind: Pod, metadata: {name: p}, $patch: delete}'",
        "'{apiVersion: v1, kind: Pod, metadata: {name: p}, $patch: delete}', target: {kind: Pod}",
    ] {
        let text = format!("resources: [o.yaml]\npatches: [{{patch: {patch}}}]\nnamePrefix: x-\n");
        let files = [("kustomization.yaml", text.as_str()), ("o.yaml", POD)];
        assert!(build(&tree(&files), &TreePath::root(), &Options::default()).unwrap().objects.is_empty());
    }
    for (operation, part) in [
        ("{op: remove, path: \"\"}", "operation 0"),
        ("{op: replace, path: \"\", value: null}", "makes it null"),
        ("{op: replace, path: \"\", value: []}", "makes it a list"),
        ("{op: add, path: \"\", value: text}", "operation 0"),
    ] {
        let text =
            format!("resources: [o.yaml]\npatches: [{{target: {{kind: Pod}}, patch: '- {operation}'}}]\n");
        over(&text, POD, &["patches[0]", "Pod/p", part]);
    }
}

#[test]
fn names_that_collide() {
    over("resources: [o.yaml]\n", &format!("{POD}---\n{POD}"), &["o.yaml:", "Pod/p", "twice"]);
    over("resources: [o.yaml, ./o.yaml]\n", POD, &["resources[1]", "Pod/p", "o.yaml:1"]);
    let two = format!("{POD}---\n{}", POD.replace("name: p", "name: p, namespace: other"));
    over(
        "resources: [o.yaml]\nnamespace: ns\n",
        &two,
        &["namespace", "Pod/p in namespace ns", "o.yaml:1", "o.yaml:"],
    );
    over(
        "resources: [o.yaml]\nconfigMapGenerator: [{name: c}]\n",
        MAP,
        &["configMapGenerator[0]", "ConfigMap/c", "exists"],
    );
    over("configMapGenerator: [{name: c}, {name: c}]\n", MAP, &["configMapGenerator[1]", "exists"]);
    over(
        "configMapGenerator: [{name: c, literals: [a=1, a=2]}]\n",
        MAP,
        &["configMapGenerator[0]", "duplicate key \"a\""],
    );
}
