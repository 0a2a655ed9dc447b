//! The fields of a kustomization, over the objects that are there.

use std::fmt::Write as _;

use super::objects::Made;
use super::{NAMES, Random, SPACES, Tree, fill, indented, plugins};

/// What selects an object, or several.
fn target(random: &mut Random, made: &Made) -> String {
    let Made { kind, name, .. } = made;
    match random.below(9) {
        0 => format!("{{kind: {kind}}}"),
        1 => format!("{{kind: {kind}, name: {name}}}"),
        2 => format!("{{kind: {kind}, labelSelector: \"app=web\"}}"),
        3 => format!("{{kind: {kind}, labelSelector: \"app in (web, x),!tier\"}}"),
        4 => format!("{{kind: {kind}, annotationSelector: a=b}}"),
        5 => format!("{{kind: '{}.*', name: '.*{}'}}", &kind[..3], &name[1..]),
        6 => format!("{{kind: {kind}, namespace: '{}'}}", random.pick(&["ns1", "ns.*", "default", "^ns1$"])),
        7 => format!("{{group: '{}', version: {}, kind: {kind}}}", made.group(), version(made)),
        _ => format!("{{kind: {kind}, name: \"{name}|other\"}}"),
    }
}

fn version(made: &Made) -> &'static str {
    made.version.rsplit('/').next().unwrap_or_default()
}

/// A strategic merge patch of an object.
fn merge(random: &mut Random, made: &Made) -> String {
    let mut out = format!(
        "apiVersion: {}\nkind: {}\nmetadata:\n  name: {}\n",
        made.version,
        made.kind,
        if random.one_in(20) { random.pick(&NAMES) } else { made.name }
    );
    if !made.space.is_empty() {
        let _ = writeln!(out, "  namespace: {}", made.space);
    }
    if random.one_in(4) {
        out += random.pick(&[
            "  annotations: {a: c, new: \"1\"}\n",
            "  annotations: {a: null}\n",
            "  annotations:\n    config.kubernetes.io/local-config: \"true\"\n",
            "  labels: {app: web, tier: null}\n",
            "  labels:\n    $patch: replace\n    y: z\n",
        ]);
    }
    let body = match made.kind {
        _ if random.one_in(30) => "$patch: delete\n",
        "ConfigMap" => random.pick(&["data: {k: w, z: \"1\", n: null}\n", "data:\n  f.conf: |\n    b\n", "data: {$patch: replace, q: r}\n", "binaryData: {b: null}\n"]),
        "Secret" => random.pick(&["data: {p: bmV3}\n", "stringData: {u: null, w: x}\n", "type: x\n"]),
        "Service" => random.pick(&["spec:\n  ports:\n  - {port: 443, name: tls}\n  - port: 8080\n", "spec: {type: NodePort, selector: {tier: x}}\n", "spec:\n  ports:\n  - {port: 80, $patch: delete}\n"]),
        "Namespace" | "ServiceAccount" | "StorageClass" => random.pick(&["", "secrets: [{name: @N}]\n", "x: @N\n"]),
        "RoleBinding" | "ClusterRoleBinding" => random.pick(&["subjects:\n- kind: ServiceAccount\n  name: @N\n  namespace: @S\n", "roleRef: {name: @N}\n"]),
        "Role" | "ClusterRole" => "rules:\n- resources: [pods]\n  verbs: [\"*\"]\n",
        "Ingress" => random.pick(&["spec:\n  tls: [{secretName: @N}]\n", "spec:\n  rules: [{host: c.d}]\n  defaultBackend: null\n"]),
        "Thing" => random.pick(&["spec: {refs: [{name: @N}], size: 3}\n", "spec:\n  text: $(V)\n  configRef: null\n", "spec:\n  containers: [{name: x, image: @I}]\n"]),
        _ if made.has_pods() => random.pick(&[
            "spec:\n  replicas: 3\n",
            "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        image: @I\n        env:\n        - {name: A, $patch: delete}\n        - name: NEW\n          valueFrom: {configMapKeyRef: {name: @N, key: a}}\n",
            "spec:\n  template:\n    metadata:\n      annotations: {x: \"2\"}\n    spec:\n      containers:\n      - name: extra\n        image: @I\n      - name: main\n        args: [b]\n        ports: [{containerPort: 80, name: web}, {containerPort: 81}]\n",
            "spec:\n  template:\n    spec:\n      $setElementOrder/containers: [{name: side}, {name: main}]\n      containers: [{name: side, image: x}]\n",
            "spec:\n  template:\n    spec:\n      volumes:\n      - name: v\n        emptyDir: {}\n        configMap: null\n      - $patch: delete\n        name: w\n      - {name: new, secret: {secretName: @N}}\n",
            "spec:\n  template:\n    spec:\n      containers:\n      - $patch: replace\n      - name: only\n        image: @I\n",
            "spec:\n  template:\n    spec:\n      tolerations: [{key: b}]\n      nodeSelector: null\n      serviceAccountName: @N\n      imagePullSecrets: [{name: @N}]\n",
            "spec:\n  strategy: {$retainKeys: [type], type: Recreate}\n",
            "spec:\n  template:\n    spec:\n      initContainers:\n      - name: first\n        image: @I\n      - name: init\n        command: [x]\n",
            "spec:\n  template:\n    spec:\n      containers:\n      - name: main\n        volumeMounts:\n        - {mountPath: /a, name: w}\n        - mountPath: /c\n          name: v\n        resources: {limits: {cpu: null, memory: 2Gi}}\n        env: [{name: URL, value: null, valueFrom: {fieldRef: {fieldPath: x}}}]\n",
        ]),
        _ => random.pick(&["spec:\n  extra: {a: 1}\n", "spec: {podSelector: null}\n", "spec:\n  minAvailable: 1\n"]),
    };
    out += body;
    fill(random, &out)
}

/// JSON patch operations that fit an object.
fn operations(random: &mut Random, made: &Made) -> String {
    let mut out = String::new();
    for _ in 0..1 + random.below(2) {
        out += match (random.below(3), made.kind) {
            (0, _) => random.pick(&[
                "- {op: add, path: /metadata/annotations, value: {a: b, p: '1'}}\n",
                "- {op: add, path: /metadata/annotations/a~1b, value: x}\n",
                "- {op: add, path: /metadata/labels/app, value: web}\n",
                "- {op: replace, path: /metadata/name, value: renamed}\n",
                "- {op: add, path: /metadata/namespace, value: ns2}\n",
                "- {op: remove, path: /metadata/labels}\n",
                "- {op: copy, from: /metadata/name, path: /metadata/annotations/n}\n",
            ]),
            (_, "ConfigMap") => random.pick(&[
                "- {op: replace, path: /data/k, value: w}\n",
                "- op: add\n  path: /data/new.conf\n  value: |\n    a\n    b\n",
                "- {op: remove, path: /data/k}\n",
            ]),
            (_, "Service") => random.pick(&[
                "- {op: add, path: /spec/ports/-, value: {port: 9}}\n",
                "- {op: replace, path: /spec/ports/0/port, value: 81}\n",
                "- {op: add, path: /spec/type, value: NodePort}\n",
            ]),
            (_, "Role") => "- {op: add, path: /rules/0/resourceNames/-, value: @N}\n",
            (_, "RoleBinding" | "ClusterRoleBinding") => random.pick(&[
                "- {op: replace, path: /subjects/0/namespace, value: @S}\n",
                "- {op: add, path: /subjects/-, value: {kind: ServiceAccount, name: @N, namespace: @S}}\n",
            ]),
            (_, "Ingress") => random.pick(&[
                "- {op: replace, path: /spec/rules/0/host, value: e.f}\n",
                "- {op: replace, path: /spec/tls/0/secretName, value: @N}\n",
            ]),
            (_, "Thing") => random.pick(&[
                "- {op: add, path: /spec/configRef, value: {name: @N}}\n",
                "- {op: add, path: /spec/text, value: '$(V)'}\n",
            ]),
            _ if made.has_pods() => random.pick(&[
                "- {op: add, path: /spec/template/spec/containers/-, value: {name: last, image: @I}}\n",
                "- {op: replace, path: /spec/template/spec/containers/0/image, value: @I}\n",
                "- {op: add, path: /spec/template/spec/containers/0/env, value: [{name: Z, value: '1'}]}\n",
                "- {op: add, path: /spec/replicas, value: 4}\n",
                "- {op: add, path: /spec/template/spec/serviceAccountName, value: @N}\n",
                "- {op: test, path: /spec/template/spec/containers/0/name, value: main}\n",
            ]),
            _ => "- {op: add, path: /spec, value: {a: @N}}\n",
        };
    }
    if random.one_in(8) {
        // As JSON.
        out = "[{\"op\": \"add\", \"path\": \"/metadata/annotations\", \"value\": {\"j\": \"1\"}}]\n".into();
    }
    fill(random, &out)
}

fn patch(tree: &mut Tree, random: &mut Random, dir: &str) -> String {
    let made = tree.any(random);
    let is_json = random.one_in(3);
    let text = if is_json { operations(random, &made) } else { merge(random, &made) };
    let mut out = if random.one_in(2) {
        let path = tree.file(dir, "p", text);
        format!("- path: {path}\n")
    } else {
        format!("- patch: |-\n{}", indented(&text, 4))
    };
    if is_json || random.one_in(3) {
        let _ = writeln!(out, "  target: {}", target(random, &made));
        if random.one_in(8) {
            out += random.pick(&[
                "  options: {allowNameChange: true}\n",
                "  options:\n    allowKindChange: true\n    allowNameChange: true\n",
            ]);
        }
    }
    out
}

/// One entry of `replacements`.
pub(super) fn replacement(tree: &Tree, random: &mut Random) -> String {
    let from = tree.any(random);
    let path = match from.kind {
        _ if random.one_in(3) => random.pick(&[
            "metadata.name",
            "metadata.namespace",
            "kind",
            "metadata.labels.app",
            "metadata.annotations.[x.y/z]",
        ]),
        "ConfigMap" => random.pick(&["data.k", "data.url", "data.[f.conf]", "data"]),
        "Secret" => "data.p",
        "Service" => random.pick(&[
            "spec.ports.[name=http].port",
            "spec.ports.0.port",
            "spec.ports.0",
            "spec.selector",
        ]),
        "Thing" => random.pick(&[
            "spec.text",
            "spec.size",
            "spec.refs.[name=app].kind",
            "spec.list",
            "spec.refs.*.name",
        ]),
        _ if from.has_pods() => random.pick(&[
            "spec.template.spec.containers.[name=main].image",
            "spec.replicas",
            "spec.template.spec.containers.0",
            "spec.template.spec.containers",
        ]),
        _ => "metadata.name",
    };
    let mut out = match random.below(12) {
        0 => "- sourceValue: fixed-x-y\n".to_owned(),
        1 => format!("- source: {{kind: {}}}\n", from.kind),
        n => {
            let options = match n {
                2 => ", options: {delimiter: '-', index: 1}",
                3 => ", options: {delimiter: ':'}",
                4 => ", options: {delimiter: '/', index: 2}",
                _ => "",
            };
            format!("- source: {{kind: {}, name: {}, fieldPath: '{path}'{options}}}\n", from.kind, from.name)
        }
    };
    out += "  targets:\n";
    for _ in 0..1 + random.below(2) {
        let to = tree.any(random);
        let path = match to.kind {
            _ if random.one_in(3) => random.pick(&[
                "metadata.annotations.r",
                "metadata.labels.[a.b/c]",
                "metadata.name",
                "metadata.namespace",
                "metadata.annotations.a",
            ]),
            "ConfigMap" => random.pick(&["data.k", "data.new", "data.[f.conf]", "data.url"]),
            "Ingress" => {
                random.pick(&["spec.rules.0.host", "spec.rules.*.http.paths.[path=/].backend.service.name"])
            }
            "Thing" => random.pick(&[
                "spec.text",
                "spec.list.1",
                "spec.refs.*.name",
                "spec.refs.[name=app].kind",
                "spec.list.-",
                "spec.refs.[name=zz].kind",
                "spec.new.deep",
            ]),
            "Service" => {
                random.pick(&["spec.ports.[port=443].name", "spec.selector", "spec.ports.*.targetPort"])
            }
            "RoleBinding" | "ClusterRoleBinding" => {
                random.pick(&["subjects.*.namespace", "subjects.[kind=ServiceAccount].name", "roleRef.name"])
            }
            _ if to.has_pods() => random.pick(&[
                "spec.template.spec.containers.[name=main].image",
                "spec.template.spec.containers.*.image",
                "spec.template.spec.containers.[name=main].env.[name=A].value",
                "spec.template.spec.containers.[name=added].image",
                "spec.template.spec.containers.0.env.-",
                "spec.replicas",
                "spec.template.metadata.annotations.[x/y]",
            ]),
            _ => "metadata.annotations.r",
        };
        let select = match random.below(5) {
            0 => format!("{{kind: {}, name: {}}}", to.kind, to.name),
            1 => format!("{{group: '{}', kind: {}}}", to.group(), to.kind),
            2 => format!("{{name: '{}'}}", to.name),
            3 if !to.space.is_empty() => format!("{{kind: {}, namespace: {}}}", to.kind, to.space),
            _ => format!("{{kind: {}}}", to.kind),
        };
        let _ = writeln!(out, "  - select: {select}");
        if random.one_in(5) {
            let _ = writeln!(out, "    reject: [{{name: {}}}]", random.pick(&NAMES));
        }
        let _ = writeln!(out, "    fieldPaths: ['{path}']");
        out += random.pick(&[
            "    options: {create: true}\n",
            "    options: {create: true}\n",
            "",
            "    options: {delimiter: '-', index: 1}\n",
            "    options: {delimiter: ':', index: 1, create: true}\n",
            "    options: {delimiter: '/', index: -1}\n",
            "    options: {delimiter: '.', index: 9}\n",
        ]);
    }
    out
}

/// An entry of a generator of ConfigMaps or Secrets.
pub(super) fn generator(random: &mut Random, secret: bool) -> String {
    let mut out = format!("- name: {}\n", random.pick(&["gen", "gen", "made", "conf"]));
    out += random.pick(&[
        "  literals: [a=1, 'b=x y']\n",
        "  literals:\n  - k=merged\n  - \"q='z'\"\n",
        "  files: [f.txt]\n",
        "  files: [key=f.txt, e.env]\n  literals: [e=]\n",
        "  envs: [e.env]\n  files: [f.txt]\n",
        "  env: e.env\n",
        "",
    ]);
    out += random.pick(&[
        "",
        "",
        "",
        "",
        "  behavior: create\n",
        "  behavior: merge\n",
        "  behavior: replace\n",
    ]);
    if random.one_in(6) {
        let _ = writeln!(out, "  namespace: {}", random.pick(&SPACES));
    }
    if secret && random.one_in(3) {
        out += random.pick(&["  type: kubernetes.io/tls\n", "  type: Opaque\n"]);
    }
    if random.one_in(4) {
        out += random.pick(&[
            "  options: {disableNameSuffixHash: true}\n",
            "  options:\n    labels: {g: x}\n    annotations: {h: \"1\"}\n",
            "  options: {immutable: true}\n",
        ]);
    }
    out
}

fn configuration(random: &mut Random) -> String {
    let mut out = String::new();
    for part in [
        "nameReference:\n- kind: ConfigMap\n  version: v1\n  fieldSpecs:\n  - {kind: Thing, path: spec/configRef/name}\n  - path: spec/refs/name\n    kind: Thing\n- kind: Service\n  fieldSpecs: [{kind: Thing, path: spec/text}]\n",
        "varReference:\n- {kind: Thing, path: spec/text}\n- {path: metadata/annotations}\n- {kind: ConfigMap, path: data}\n",
        "namePrefix:\n- {kind: Thing, path: spec/text}\n",
        "namespace:\n- {kind: Thing, path: spec/namespace, create: true}\n",
        "commonLabels:\n- {kind: Thing, path: spec/selector/matchLabels, create: true}\n",
        "commonAnnotations:\n- {kind: Thing, path: spec/notes, create: true}\n",
        "images:\n- {kind: Thing, path: spec/image}\n",
        "replicas:\n- {kind: Thing, path: spec/size, create: true}\n",
        "templateLabels:\n- {kind: Thing, path: spec/selector/matchLabels, create: true}\n",
    ] {
        if random.one_in(3) {
            out += part;
        }
    }
    out
}

fn images(random: &mut Random) -> String {
    let name = random.pick(&["nginx", "nginx", "a/nginx", "localhost:5000/a/nginx", "side", ".*nginx"]);
    let change = random.pick(&[
        "newTag: v3",
        "newTag: \"2.0\"",
        "newName: b/c",
        "digest: sha256:def",
        "newName: reg:5000/x\n  newTag: \"1\"",
        "newTag: t\n  digest: sha256:00",
        "tagSuffix: -alpine",
        "newName: b/c\n  tagSuffix: -x",
    ]);
    format!("- name: {name}\n  {change}\n")
}

fn labels(random: &mut Random) -> &'static str {
    random.pick(&[
        "- pairs: {l: x}\n",
        "- pairs: {l: x}\n  includeSelectors: true\n",
        "- pairs: {app: other, m: \"1\"}\n  includeTemplates: true\n",
        "- pairs: {l: x}\n  fields: [{kind: Thing, path: spec/labels, create: true}]\n",
        "- pairs: {l: x}\n  includeSelectors: true\n  fields:\n  - path: spec/selector/matchLabels\n    group: x.io\n    create: false\n",
        "- pairs: {l: x}\n- pairs: {app: y}\n  includeSelectors: true\n",
        "- includeSelectors: true\n  pairs: {}\n",
    ])
}

fn component(tree: &mut Tree, random: &mut Random, dir: &str) -> String {
    let sub = format!("{dir}comp/");
    let mut text = String::from("apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n");
    if random.one_in(3) {
        let objects = super::objects::objects(random, 1, &mut tree.made);
        for object in objects {
            let path = tree.file(&sub, "o", object);
            let _ = writeln!(text, "resources: [{path}]");
        }
    }
    text += &fields(tree, random, &sub, false);
    let path = format!("{sub}kustomization.yaml");
    if tree.files.iter().all(|(other, _)| *other != path) {
        tree.files.push((path, text));
    }
    "components: [comp]\n".into()
}

/// Some fields of a kustomization in a folder.
pub(super) fn fields(tree: &mut Tree, random: &mut Random, dir: &str, may_nest: bool) -> String {
    let mut lists: Vec<(&str, String)> = Vec::new();
    let mut once = String::new();
    let mut seen = [false; 26];
    let mut add = |name: &'static str, text: String| match lists.iter_mut().find(|(other, _)| *other == name)
    {
        Some((_, list)) => *list += &text,
        None => lists.push((name, text)),
    };
    if tree.made.is_empty() {
        return "namePrefix: none-\n".into();
    }
    for _ in 0..1 + random.below(4) {
        let which = random.below(26);
        let again = std::mem::replace(&mut seen[which], true);
        match which {
            0..=2 => add("patches", patch(tree, random, dir)),
            3 | 4 => add("replacements", replacement(tree, random)),
            5 => add("configMapGenerator", generator(random, false)),
            6 => add("secretGenerator", generator(random, true)),
            7 => add("images", images(random)),
            8 => add("labels", labels(random).into()),
            9 => {
                let made = tree.any(random);
                add("replicas", format!("- {{name: {}, count: {}}}\n", made.name, random.below(5)));
            }
            10 => {
                let made = tree.any(random);
                let text = merge(random, &made);
                let path = tree.file(dir, "s", text);
                add("patchesStrategicMerge", format!("- {path}\n"));
            }
            11 => {
                let made = tree.any(random);
                let text = operations(random, &made);
                let path = tree.file(dir, "j", text);
                add(
                    "patchesJson6902",
                    format!(
                        "- target: {{group: '{}', version: {}, kind: {}, name: {}}}\n  path: {path}\n",
                        made.group(),
                        version(&made),
                        made.kind,
                        made.name
                    ),
                );
            }
            12 if !again => {
                let of = if random.one_in(2) { "V" } else { "W" };
                let made = tree.any(random);
                let field = random.pick(&["", "", "\n  fieldref: {fieldPath: metadata.namespace}", "\n  fieldref: {fieldPath: kind}", "\n  fieldref:\n    fieldpath: metadata.labels.app"]);
                add(
                    "vars",
                    format!(
                        "- name: {of}\n  objref: {{kind: {}, name: {}, apiVersion: {}}}{field}\n",
                        made.kind, made.name, made.version
                    ),
                );
            }
            13 => {
                let text = configuration(random);
                let path = tree.file(dir, "c", text);
                add("configurations", format!("- {path}\n"));
            }
            14 | 15 => {
                let text = plugins::transformers(tree, random);
                if random.one_in(2) {
                    add("transformers", format!("- |-\n{}", indented(&text, 2)));
                } else {
                    let path = tree.file(dir, "t", text);
                    add("transformers", format!("- {path}\n"));
                }
            }
            16 => {
                let text = plugins::generators(random);
                let path = tree.file(dir, "g", text);
                add("generators", format!("- {path}\n"));
            }
            17 if random.one_in(3) => {
                let text = plugins::transformers(tree, random);
                let path = tree.file(dir, "v", text);
                add("validators", format!("- {path}\n"));
            }
            _ if again => {}
            18 | 19 => {
                let _ = writeln!(once, "namespace: {}", random.pick(&SPACES));
            }
            20 => once += random.pick(&["namePrefix: p-\n", "nameSuffix: -s\n", "namePrefix: p-\nnameSuffix: \"-1\"\n"]),
            21 => once += random.pick(&["commonLabels: {app: web}\n", "commonLabels: {c: \"1\", app: new}\n", "commonAnnotations: {note: x}\n", "commonAnnotations: {a: \"true\"}\n"]),
            22 => once += random.pick(&["generatorOptions: {disableNameSuffixHash: true}\n", "generatorOptions: {labels: {g: y}, annotations: {i: j}}\n", "generatorOptions: {immutable: true}\n"]),
            23 if may_nest => once += &component(tree, random, dir),
            24 => once += random.pick(&["sortOptions: {order: legacy}\n", "sortOptions: {order: fifo}\n", "sortOptions:\n  order: legacy\n  legacySortOptions:\n    orderFirst: [Namespace, Secret, ConfigMap]\n    orderLast: [Deployment]\n"]),
            25 => once += random.pick(&["buildMetadata: [originAnnotations]\n", "buildMetadata: [managedByLabel, transformerAnnotations]\n", "buildMetadata: [originAnnotations, transformerAnnotations]\n"]),
            _ => {}
        }
    }
    for (name, list) in lists {
        let _ = write!(once, "{name}:\n{list}");
    }
    once
}
