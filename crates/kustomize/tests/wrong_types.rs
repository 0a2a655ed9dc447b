//! Every field of a kustomization with values of every wrong type: an error that names the file and the field, never a
//! panic and never silence.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use roadstead_kustomize::{MemoryTree, Options, TreePath, build};

/// What a field takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    Flag,
    Integer,
    Texts,
    Pairs,
    Map,
    Maps,
}
use Takes::{Flag, Integer, Map, Maps, Pairs, Text, Texts};

/// Fields, each with the text around it: `@` is where the value stands.
const FIELDS: &[(&str, &str, Takes)] = &[
    ("apiVersion", "apiVersion: @", Text),
    ("kind", "kind: @", Text),
    ("metadata", "metadata: @", Map),
    ("metadata.name", "metadata: {name: @}", Text),
    ("metadata.labels", "metadata: {labels: @}", Pairs),
    ("resources", "resources: @", Texts),
    ("bases", "bases: @", Texts),
    ("components", "components: @", Texts),
    ("crds", "crds: @", Texts),
    ("configurations", "configurations: @", Texts),
    ("generators", "generators: @", Texts),
    ("transformers", "transformers: @", Texts),
    ("validators", "validators: @", Texts),
    ("patchesStrategicMerge", "patchesStrategicMerge: @", Texts),
    ("buildMetadata", "buildMetadata: @", Texts),
    ("namespace", "namespace: @", Text),
    ("namePrefix", "namePrefix: @", Text),
    ("nameSuffix", "nameSuffix: @", Text),
    ("commonLabels", "commonLabels: @", Pairs),
    ("commonAnnotations", "commonAnnotations: @", Pairs),
    ("openapi", "openapi: @", Pairs),
    ("labels", "labels: @", Maps),
    ("labels[0].pairs", "labels: [{pairs: @}]", Pairs),
    ("labels[0].includeSelectors", "labels: [{includeSelectors: @}]", Flag),
    ("labels[0].includeTemplates", "labels: [{includeTemplates: @}]", Flag),
    ("labels[0].fields", "labels: [{fields: @}]", Maps),
    ("labels[0].fields[0].path", "labels: [{fields: [{path: @}]}]", Text),
    ("labels[0].fields[0].create", "labels: [{fields: [{path: a, create: @}]}]", Flag),
    ("patches", "patches: @", Maps),
    ("patches[0].path", "patches: [{path: @}]", Text),
    ("patches[0].patch", "patches: [{patch: @}]", Text),
    ("patches[0].target", "patches: [{target: @}]", Map),
    ("patches[0].target.name", "patches: [{target: {name: @}}]", Text),
    ("patches[0].target.labelSelector", "patches: [{target: {labelSelector: @}}]", Text),
    ("patches[0].options", "patches: [{options: @}]", Map),
    ("patches[0].options.allowNameChange", "patches: [{options: {allowNameChange: @}}]", Flag),
    ("patchesJson6902", "patchesJson6902: @", Maps),
    ("patchesJson6902[0].target", "patchesJson6902: [{target: @}]", Map),
    ("images", "images: @", Maps),
    ("images[0].name", "images: [{name: @}]", Text),
    ("images[0].newName", "images: [{newName: @}]", Text),
    ("images[0].newTag", "images: [{newTag: @}]", Text),
    ("images[0].digest", "images: [{digest: @}]", Text),
    ("images[0].tagSuffix", "images: [{tagSuffix: @}]", Text),
    ("replicas", "replicas: @", Maps),
    ("replicas[0].name", "replicas: [{name: @}]", Text),
    ("replicas[0].count", "replicas: [{name: x, count: @}]", Integer),
    ("replacements", "replacements: @", Maps),
    ("replacements[0].path", "replacements: [{path: @}]", Text),
    ("replacements[0].source", "replacements: [{source: @}]", Map),
    ("replacements[0].source.fieldPath", "replacements: [{source: {fieldPath: @}}]", Text),
    ("replacements[0].source.options.index", "replacements: [{source: {options: {index: @}}}]", Integer),
    ("replacements[0].targets", "replacements: [{targets: @}]", Maps),
    ("replacements[0].targets[0].select", "replacements: [{targets: [{select: @}]}]", Map),
    ("replacements[0].targets[0].reject", "replacements: [{targets: [{reject: @}]}]", Maps),
    ("replacements[0].targets[0].fieldPaths", "replacements: [{targets: [{fieldPaths: @}]}]", Texts),
    ("replacements[0].targets[0].options", "replacements: [{targets: [{options: @}]}]", Map),
    (
        "replacements[0].targets[0].options.create",
        "replacements: [{targets: [{options: {create: @}}]}]",
        Flag,
    ),
    ("configMapGenerator", "configMapGenerator: @", Maps),
    ("configMapGenerator[0].name", "configMapGenerator: [{name: @}]", Text),
    ("configMapGenerator[0].literals", "configMapGenerator: [{name: c, literals: @}]", Texts),
    ("configMapGenerator[0].files", "configMapGenerator: [{name: c, files: @}]", Texts),
    ("configMapGenerator[0].envs", "configMapGenerator: [{name: c, envs: @}]", Texts),
    ("configMapGenerator[0].env", "configMapGenerator: [{name: c, env: @}]", Text),
    ("configMapGenerator[0].behavior", "configMapGenerator: [{name: c, behavior: @}]", Text),
    ("configMapGenerator[0].options", "configMapGenerator: [{name: c, options: @}]", Map),
    ("secretGenerator", "secretGenerator: @", Maps),
    ("secretGenerator[0].type", "secretGenerator: [{name: c, type: @}]", Text),
    ("generatorOptions", "generatorOptions: @", Map),
    ("generatorOptions.labels", "generatorOptions: {labels: @}", Pairs),
    ("generatorOptions.annotations", "generatorOptions: {annotations: @}", Pairs),
    ("generatorOptions.disableNameSuffixHash", "generatorOptions: {disableNameSuffixHash: @}", Flag),
    ("generatorOptions.immutable", "generatorOptions: {immutable: @}", Flag),
    ("sortOptions", "sortOptions: @", Map),
    ("sortOptions.order", "sortOptions: {order: @}", Text),
    ("sortOptions.legacySortOptions", "sortOptions: {order: legacy, legacySortOptions: @}", Map),
    (
        "sortOptions.legacySortOptions.orderFirst",
        "sortOptions: {order: legacy, legacySortOptions: {orderFirst: @}}",
        Texts,
    ),
    ("vars", "vars: @", Maps),
    ("vars[0].name", "vars: [{name: @}]", Text),
    ("vars[0].objref", "vars: [{objref: @}]", Map),
    ("vars[0].fieldref", "vars: [{fieldref: @}]", Map),
    ("vars[0].fieldref.fieldPath", "vars: [{fieldref: {fieldPath: @}}]", Text),
    ("helmGlobals", "helmGlobals: @", Map),
];

/// A value, with what could take it.
const VALUES: &[(&str, &[Takes])] = &[
    ("word", &[Text]),
    ("true", &[Flag]),
    ("7", &[Integer]),
    ("1.5", &[]),
    ("[word]", &[Texts]),
    ("[7]", &[]),
    ("[[]]", &[]),
    ("[{}]", &[Maps]),
    ("{a: word}", &[Pairs, Map]),
    ("{a: {}}", &[Map]),
    ("{a: [x]}", &[Map]),
];

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";

fn run(kustomization: &str) -> Result<String, String> {
    let mut tree = MemoryTree::new();
    tree.insert_file(TreePath::new("kustomization.yaml").unwrap(), kustomization);
    tree.insert_file(TreePath::new("o.yaml").unwrap(), POD);
    build(&tree, &TreePath::root(), &Options::default())
        .map(|build| build.to_yaml())
        .map_err(|error| error.to_string())
}

#[test]
fn wrong_types_are_named() {
    let mut wrong = Vec::new();
    for (field, text, takes) in FIELDS {
        for (value, fit) in VALUES.iter().filter(|(_, fit)| !fit.contains(takes)) {
            let text = text.replace('@', value);
            let rest = if text.starts_with("resources") { "" } else { "resources: [o.yaml]\n" };
            let text = format!("{rest}{text}\n");
            assert!(!fit.contains(takes));
            match run(&text) {
                Ok(_) => wrong.push(format!("{text:?} is accepted")),
                Err(message)
                    if (message.starts_with("kustomization.yaml:2 in \".\": ")
                        || message.starts_with("kustomization.yaml:1 in \".\": "))
                        && message.contains(field)
                        && message.contains("is needed, not") => {}
                Err(message) => wrong.push(format!("{text:?}: {message}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Fields of objects that changes look into.
#[test]
fn wrong_types_in_objects_are_named() {
    let deployment =
        |part: &str| format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n{part}\n");
    for (kustomization, part, field) in [
        ("commonLabels: {a: b}", "spec: text", "spec"),
        ("commonLabels: {a: b}", "spec: {selector: [1]}", "spec/selector"),
        (
            "commonLabels: {a: b}",
            "spec: {template: {metadata: {labels: x}}}",
            "spec/template/metadata/labels",
        ),
        (
            "commonAnnotations: {a: b}",
            "spec: {template: {metadata: 7}}",
            "spec/template/metadata/annotations",
        ),
        ("replicas: [{name: d, count: 1}]", "spec: text", "spec"),
        ("replicas: [{name: d, count: 1}]", "spec: {replicas: {}}", "spec/replicas"),
        ("namePrefix: x-", "metadata2: 1", ""),
        (
            "patches: [{patch: '{kind: Deployment, apiVersion: apps/v1, metadata: {name: d}, spec: {template: []}}'}]",
            "spec: {template: {a: b}}",
            "spec.template",
        ),
    ] {
        let mut tree = MemoryTree::new();
        tree.insert_file(
            TreePath::new("kustomization.yaml").unwrap(),
            format!("resources: [o.yaml]\n{kustomization}\n"),
        );
        tree.insert_file(TreePath::new("o.yaml").unwrap(), deployment(part));
        let result = build(&tree, &TreePath::root(), &Options::default());
        match result {
            Ok(_) => assert!(field.is_empty(), "{kustomization} over {part} is accepted"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("Deployment.apps/d") && error.contains(field), "{part}: {error}");
            }
        }
    }
}
