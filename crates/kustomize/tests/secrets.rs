//! Errors end up in conditions, Events and logs: none repeats a value that was found in a file or an object.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use roadstead_kustomize::{MemoryTree, Options, TreePath, build};

/// What no message may hold.
const CANARY: &str = "hunter2";

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  p: hunter2\n  n: 4711\n  y: |\n    hunter2: 1\n    hunter2: 2\n  l: [hunter2]\n";

fn error(files: &[(&str, &str)]) -> String {
    let mut tree = MemoryTree::new();
    for (path, text) in files {
        tree.insert_file(TreePath::new(path).unwrap(), *text);
    }
    build(&tree, &TreePath::root(), &Options::default()).unwrap_err().to_string()
}

/// The error of a kustomization over a Secret, which names this and not the canary.
fn over(kustomization: &str, part: &str) {
    let text = error(&[
        ("kustomization.yaml", &format!("resources: [s.yaml]\n{kustomization}")),
        ("s.yaml", SECRET),
        ("e.env", "hunter2\nhunter2\n"),
        ("utf8.env", "a=hunter2\n\u{0}"),
    ]);
    assert!(text.contains(part), "{part:?} is not in {text}");
    assert!(!text.contains(CANARY) && !text.contains("4711"), "{text}");
}

#[test]
fn errors_of_json_patches_do_not_tell_values() {
    let patch =
        |operation: &str| format!("patches: [{{target: {{kind: Secret}}, patch: '- {operation}'}}]\n");
    over(&patch("{op: test, path: /stringData/p, value: x}"), "test failed");
    over(&patch("{op: test, path: /stringData/n, value: hunter2}"), "test failed");
    over(&patch("{op: test, path: /stringData/none, value: hunter2}"), "test failed");
    over(&patch("{op: hunter2, path: /stringData/p}"), "op is not one of");
    over(&patch("{op: add, path: /stringData/p/x, value: hunter2}"), "a string");
    over(&patch("{op: add, path: /stringData/l/9, value: hunter2}"), "out of range for a list");
    over(&patch("{op: replace, path: stringData, value: hunter2}"), "'/'");
    over(&patch("hunter2"), "");
}

#[test]
fn errors_of_strategic_merges_do_not_tell_values() {
    let patch = |body: &str| {
        format!(
            "patches:\n- patch: |\n    apiVersion: v1\n    kind: Secret\n    metadata: {{name: s}}\n    {body}\n"
        )
    };
    over(&patch("stringData: hunter2"), "in stringData");
    over(&patch("stringData: {p: {x: hunter2}}"), "in stringData.p");
    over(&patch("stringData: {$patch: hunter2}"), "$patch");
    over(&patch("stringData: {p: 'hunter2}"), "patches[0].patch");
    over("patchesStrategicMerge:\n- |\n  kind: Secret\n  data: {a: 'hunter2}\n", "patchesStrategicMerge[0]");
    over("patchesStrategicMerge:\n- |\n  - hunter2\n  - b\n", "patchesStrategicMerge[0]");
}

#[test]
fn errors_of_replacements_do_not_tell_values() {
    let replace = |source: &str, target: &str| {
        format!("replacements:\n- {source}\n  targets: [{{select: {{kind: Secret}}, {target}}}]\n")
    };
    let from =
        |options: &str| format!("source: {{kind: Secret, fieldPath: stringData.p, options: {options}}}");
    let to = |path: &str| format!("fieldPaths: [{path}]");
    over(
        &replace(&from("{delimiter: u, index: 9}"), &to("stringData.n")),
        "options.index 9 is out of bounds",
    );
    over(&replace("source: {kind: Secret, fieldPath: stringData.p}", &to("stringData.n")), "does not fit");
    over(&replace("sourceValue: hunter2", &to("stringData.n")), "does not fit");
    over(&replace("sourceValue: x", &to("stringData.p.a")), "");
    over(&replace("sourceValue: x", &to("stringData.y.hunter3")), "");
    over(
        &replace("source: {kind: Secret, fieldPath: stringData.p.x}", &to("stringData.n")),
        "a mapping is needed",
    );
}

#[test]
fn errors_of_generators_do_not_tell_values() {
    over("secretGenerator: [{name: g, literals: [hunter2]}]\n", "literals[0]");
    over("secretGenerator: [{name: g, literals: [=hunter2]}]\n", "literals[0]");
    over("secretGenerator: [{name: g, literals: [a=1, a=hunter2]}]\n", "duplicate key");
    over("secretGenerator: [{name: g, envs: [e.env]}]\n", "duplicate key");
    over("secretGenerator: [{name: g, files: [p=hunter2=3]}]\n", "files[0]");
    over("secretGenerator: [{name: g, behavior: merge, literals: [a=hunter2]}]\n", "nothing to merge");
    over("generators:\n- |\n  - hunter2\n  - b\n", "generators[0]");
    over("transformers:\n- |\n  kind: 'hunter2\n", "transformers[0]");
    over("resources:\n- |\n  apiVersion: v1\n  password: hunter2\n", "");
}

#[test]
fn errors_of_files_do_not_tell_values() {
    let object = |body: &str| {
        let text = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{body}\n");
        let text = error(&[("kustomization.yaml", "resources: [o.yaml]\n"), ("o.yaml", &text)]);
        assert!(text.starts_with("o.yaml") && !text.contains(CANARY), "{text}");
    };
    for body in [
        "data: 'hunter2",
        "data: \"hunter2\\q\"",
        "data: hunter2: x",
        "data: {a: !!binary hunter2}",
        "data: {a: !!null hunter2}",
        "data: {a: *b, c: hunter2}",
        "data: [hunter2",
        "data: |9x\n  hunter2",
        "data: \u{1}hunter2",
    ] {
        object(body);
    }
}
