//! Kustomizations over objects, with patches and replacements.

use std::fmt::Write as _;

use super::{Files, NAMES, Random, plain_body};

fn head(object: &str) -> String {
    let field = |name: &str| {
        let line = object.lines().find(|line| line.trim_start().starts_with(name));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    // Of a list, the first item counts.
    let kind =
        |kind: String| if kind == "kind: List" { "apiVersion: x/v1\nkind: B".to_owned() } else { kind };
    let both = if object.contains("kind: List\n") {
        kind(field("kind:"))
    } else {
        format!("{}\n{}", field("apiVersion:"), field("kind:"))
    };
    format!("{both}\nmetadata: {{{}}}\n", field("name:"))
}

fn patch(random: &mut Random, objects: &[String]) -> String {
    let object = &objects[random.below(objects.len())];
    let change = match random.below(10) {
        9 => random.pick(&[
            "data: {k: 5, t: 2020-01-02}\n",
            "spec:\n  a: true\n  b: # {\"type\": \"array\", \"x-kubernetes-patch-strategy\": \"merge\"}\n  - z\n",
            "spec: {a: >-\n}\n",
            "spec:\n  a: 7\n  c: 1.50\n  name: 2020-01-02T03:04:05Z\n  b:\n  -\n  - >\n    one\n      two\n",
            "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        image: 5\n        env: [{name: A, value: 7}, {name: B, value: off}]\n        args:\n        - >\n          a\n            b\n        -\n",
            "data:\n  k: >\n    one\n      two\n  \"<<\": x\n",
        ]).to_owned(),
        6 => "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        ports:\n        - containerPort: 80\n          name: n\n        - {containerPort: 81}\n        volumeMounts: [{mountPath: /a, name: w}, {mountPath: /b, name: v}]\n        args: [z]\n      volumes:\n      - {name: v, configMap: null, emptyDir: {}}\n".to_owned(),
        7 => random.pick(&[
            "$patch: delete\n",
            "$patch: replace\nspec:\n  a: 1\n",
            "spec:\n  $patch: replace\n  a: 1\n",
            "spec: {$patch: delete}\n",
            "spec:\n  ports:\n  - $patch: replace\n  - port: 80\n",
            "spec: null\n",
            "data: ~\n",
            "spec:\n",
        ]).to_owned(),
        8 => random.pick(&[
            "data: {1: x, true: y}\n",
            "data:\n  9110: foo\n  \"6443\": bar\n  t: >\n    one\n      two\n",
            "data: &a {k: w}\nbinaryData: *a\n",
            "spec:\n  replicas: '3'\n  template: {metadata: {labels: {app: 1}}}\n",
            "data: {k: NULL}\n",
            "spec:\n  selector: {app: ~, b: 1.0}\n",
            "finalizers: [c]\n",
        ]).to_owned(),
        0 => "spec:\n  replicas: 3\n".to_owned(),
        1 => "spec:\n  ports: [{name: z, port: 80}, {port: 82, protocol: UDP}]\n".to_owned(),
        2 => "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        env: [{name: A, value: x}, {name: C, $patch: delete}]\n      - {name: side, image: s}\n".to_owned(),
        3 => "data: {k: null, n: \"5\", t: }\n".to_owned(),
        _ => plain_body(random, "spec") + "\n",
    };
    let mut head = head(object);
    if random.one_in(6) {
        let meta = random.pick(&[
            "labels: {app: new, \"n\": ~}",
            "annotations: {a: c, u: 2}",
            "annotations: {t: null}",
            "labels:",
            "namespace: ns",
            "finalizers: [b, c]",
            "annotations: {t: 2.50, z: 2020-01-02}",
        ]);
        head = head.replace("}\n", &format!(", {meta}}}\n"));
    }
    head + &change
}

fn operations(random: &mut Random) -> String {
    let mut out = String::new();
    for _ in 0..1 + random.below(3) {
        let path = random.pick(&[
            "/spec/a",
            "/spec/replicas",
            "/metadata/labels",
            "/data/k",
            "/spec/b/0",
            "/spec/c/-",
            "x/spec/a",
            "/metadata/annotations/n",
            "/metadata/labels/app",
            "/metadata/name",
            "/spec/template/spec/containers/0/env/-",
            "/spec/template/spec/containers/0/image",
            "/spec/ports/0",
            "/spec/a~1b",
        ]);
        let value = random.pick(&[
            "1",
            "x",
            "[1, 2]",
            "{a: b}",
            "null",
            "''",
            "1.0",
            "1000000",
            "1.5e10",
            "true",
            "\"y\"",
            "2020-01-02",
            "",
            "{name: Z, value: 'on'}",
            "[{a: }]",
            "9007199254740993",
            "\"a\\nb\"",
            "yes",
        ]);
        let _ = match random.below(8) {
            5 => writeln!(out, "- {{op: test, path: {path}, value: {value}}}"),
            6 => writeln!(out, "- {{op: move, from: {path}, path: /spec/new}}"),
            0 => writeln!(out, "- {{op: remove, path: {path}}}"),
            1 => writeln!(out, "- {{op: copy, from: /metadata/name, path: {path}}}"),
            2 => writeln!(out, "- op: replace\n  path: {path}\n  value: {value}"),
            _ => writeln!(out, "- {{op: add, path: {path}, value: {value}}}"),
        };
    }
    out
}

fn indented(text: &str, by: usize) -> String {
    let indent = " ".repeat(by);
    text.lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{indent}{line}\n") })
        .collect()
}

/// The names of the objects; of a kind, if there are some.
fn names(objects: &[String], kind: &str) -> Vec<String> {
    let name = |object: &String| {
        let mut lines = object.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix("name: ")).unwrap_or("none").to_owned()
    };
    let of_kind = |object: &&String| object.contains(&format!("kind: {kind}\n"));
    let found: Vec<String> = objects.iter().filter(of_kind).map(name).collect();
    if found.is_empty() { objects.iter().map(name).collect() } else { found }
}

fn name(random: &mut Random, objects: &[String], kind: &str) -> String {
    if random.one_in(30) {
        return random.pick(&NAMES).to_owned();
    }
    let names = names(objects, kind);
    names[random.below(names.len())].clone()
}

fn replacement(random: &mut Random, objects: &[String]) -> String {
    let (from, source) = match random.below(7) {
        0 => (name(random, objects, "B"), "spec.a"),
        1 => (name(random, objects, "ConfigMap"), "data.k"),
        2 => (name(random, objects, "ConfigMap"), "data.t"),
        3 => (name(random, objects, "Deployment"), "spec.template.spec.containers.0.image"),
        4 | 5 => (name(random, objects, "Service"), "spec.selector.app"),
        _ => (name(random, objects, "B"), "metadata.name"),
    };
    let (kind, target) = match random.below(10) {
        0 => ("B", "spec.b"),
        1 => ("B", "spec.m.k"),
        2 => ("Deployment", "metadata.labels.app"),
        3 => ("ConfigMap", "data.new"),
        4 => ("ConfigMap", "data.t"),
        5 => ("Deployment", "spec.template.spec.containers.[name=main].image"),
        6 => ("Deployment", "spec.template.spec.containers.*.env.[name=A].value"),
        7 => ("Service", "spec.ports.0.name"),
        8 => ("Service", "spec.selector"),
        _ => ("B", "metadata.annotations.[x.y/z]"),
    };
    let options = random.pick(&[
        "    options: {create: true}\n",
        "    options: {create: true}\n",
        "",
        "    options: {delimiter: ':', index: 0}\n",
        "    options: {delimiter: '/', index: -1, create: true}\n",
    ]);
    format!(
        "- source: {{name: {from}, fieldPath: {source}}}\n  targets:\n  - select: {{kind: {kind}}}\n    fieldPaths: ['{target}']\n{options}",
    )
}

/// A text as the value of a label or annotation of a kustomization.
fn text(random: &mut Random) -> &'static str {
    random.pick(&[
        "new",
        "'1'",
        "web",
        "x",
        "'a: b'",
        "\"a\\nb\"",
        "'yes'",
        "''",
        "'1.0'",
        "'null'",
        "! x",
        "!!str 1",
        "'é'",
    ])
}

pub(super) fn kustomization(random: &mut Random, objects: &[String], files: &mut Files) -> String {
    let mut out = String::new();
    let mut lists: [String; 4] = Default::default();
    let mut seen = [false; 22];
    for i in 0..random.below(5) {
        let which = random.below(22);
        if std::mem::replace(&mut seen[which], true) && !matches!(which, 9..=11) {
            continue;
        }
        let _ = match which {
            0 => writeln!(out, "namePrefix: p-"),
            1 => writeln!(out, "nameSuffix: -s{i}"),
            2 => writeln!(out, "namespace: {}", random.pick(&["ns", "other"])),
            3 => writeln!(out, "commonLabels: {{app: {}}}", text(random)),
            4 => writeln!(
                out,
                "labels: [{{pairs: {{l: {}}}, includeSelectors: {}, includeTemplates: {}}}]",
                text(random),
                random.one_in(2),
                random.one_in(2)
            ),
            5 => writeln!(out, "commonAnnotations: {{note: {}}}", text(random)),
            6 => writeln!(
                out,
                "images: [{{name: nginx, {}}}]",
                random.pick(&[
                    "newTag: '2'",
                    "newTag: v3",
                    "newName: a/b",
                    "digest: 'sha256:00'",
                    "newTag: '', newName: c"
                ])
            ),
            7 => writeln!(out, "replicas: [{{name: {}, count: 5}}]", name(random, objects, "Deployment")),
            8 => {
                let options = random.pick(&[
                    "",
                    ", options: {disableNameSuffixHash: true}",
                    ", options: {labels: {g: '1'}, immutable: true}",
                ]);
                let kind = random.pick(&["configMapGenerator", "secretGenerator"]);
                let literals = random.pick(&["a=1, 'b=x y'", "'a=\"q\"', b=true", "c=", "'d=a=b'"]);
                writeln!(out, "{kind}: [{{name: gen, literals: [{literals}], files: [f.txt]{options}}}]")
            }
            9 => {
                lists[1] += &replacement(random, objects);
                Ok(())
            }
            10 => {
                let patch = patch(random, objects);
                files.push((format!("p{i}.yaml"), patch));
                writeln!(lists[0], "- path: p{i}.yaml")
            }
            11 => {
                let target = random.pick(&[
                    "{kind: B}",
                    "{kind: ConfigMap}",
                    "{name: 't.*'}",
                    "{labelSelector: app=web}",
                    "{kind: Deployment}",
                    "{version: v1}",
                ]);
                let patch = if random.one_in(2) { operations(random) } else { patch(random, objects) };
                let chomp = random.pick(&["", "-"]);
                write!(lists[0], "- target: {target}\n  patch: |{chomp}\n{}", indented(&patch, 4))
            }
            12 => writeln!(
                out,
                "vars: [{{name: V, objref: {{apiVersion: x/v1, kind: B, name: {}}}, fieldref: {{fieldPath: {}}}}}]",
                name(random, objects, "B"),
                random.pick(&["metadata.name", "metadata.name", "spec.a", "kind"])
            ),
            13 => {
                let patch = patch(random, objects);
                write!(lists[2], "- |-\n{}", indented(&patch, 2))
            }
            14 => {
                files.push((format!("j{i}.yaml"), operations(random)));
                write!(
                    lists[3],
                    "- target: {{version: v1, kind: B, group: x, name: {}}}\n  path: j{i}.yaml\n",
                    name(random, objects, "B")
                )
            }
            15 => writeln!(out, "sortOptions: {{order: {}}}", random.pick(&["fifo", "legacy"])),
            16 => writeln!(out, "generatorOptions: {{annotations: {{g: {}}}}}", text(random)),
            17 => {
                let patch = patch(random, objects);
                files.push((
                    "comp/kustomization.yaml".to_owned(),
                    format!("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- patch: |-\n{}", indented(&patch, 4)),
                ));
                writeln!(out, "components: [comp]")
            }
            18 => writeln!(out, "buildMetadata: [managedByLabel]"),
            19 => writeln!(
                out,
                "configMapGenerator: [{{name: {}, behavior: merge, literals: [k=merged]}}]",
                name(random, objects, "ConfigMap")
            ),
            20 => writeln!(
                out,
                "labels: [{{pairs: {{l: {}}}, fields: [{{path: spec/a, create: true, kind: B}}]}}]",
                text(random)
            ),
            _ => writeln!(out, "buildMetadata: [originAnnotations]"),
        };
    }
    for (name, list) in
        ["patches", "replacements", "patchesStrategicMerge", "patchesJson6902"].iter().zip(&lists)
    {
        if !list.is_empty() {
            let _ = write!(out, "{name}:\n{list}");
        }
    }
    out
}
