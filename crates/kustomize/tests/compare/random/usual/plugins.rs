//! Configurations of builtin plugins.

use std::fmt::Write as _;

use super::fields::replacement;
use super::{Random, SPACES, Tree, fill, indented};

/// One or two transformers, as documents.
pub(super) fn transformers(tree: &Tree, random: &mut Random) -> String {
    let mut out = String::new();
    for i in 0..1 + usize::from(random.one_in(4)) {
        if i > 0 {
            out += "---\n";
        }
        let made = tree.any(random);
        let (kind, body) = match random.below(12) {
            0 => ("PrefixTransformer", "prefix: q-\nfieldSpecs: [{path: metadata/name}]\n".to_owned()),
            1 => ("SuffixTransformer", "suffix: -z\nfieldSpecs:\n- {path: metadata/name, kind: ConfigMap}\n- {path: spec/text, kind: Thing}\n".into()),
            2 => (
                "LabelTransformer",
                "labels: {t: u}\nfieldSpecs:\n- {path: metadata/labels, create: true}\n- path: spec/template/metadata/labels\n  create: true\n  kind: Deployment\n".into(),
            ),
            3 => ("AnnotationsTransformer", "annotations: {t: \"1\"}\nfieldSpecs: [{path: metadata/annotations, create: true}]\n".into()),
            4 | 5 => {
                let mut body = random.pick(&["", "unsetOnly: true\n", "setRoleBindingSubjects: allServiceAccounts\n", "setRoleBindingSubjects: none\n", "setRoleBindingSubjects: defaultOnly\n"]).to_owned();
                body += random.pick(&["", "fieldSpecs:\n- {path: metadata/namespace, create: true}\n", "fieldSpecs:\n- {path: metadata/name, kind: Namespace, create: true}\n- {path: spec/namespace, kind: Thing}\n"]);
                ("NamespaceTransformer", body)
            }
            6 => ("ImageTagTransformer", "imageTag: {name: nginx, newTag: v9}\nfieldSpecs: [{path: spec/image, kind: Thing}]\n".into()),
            7 => ("ReplicaCountTransformer", format!("replica: {{name: {}, count: 4}}\nfieldSpecs: [{{path: spec/replicas, create: true, kind: Deployment}}]\n", made.name)),
            8 => ("PatchTransformer", format!("target: {{kind: {}}}\npatch: |-\n  - {{op: add, path: /metadata/annotations, value: {{by: plugin}}}}\n", made.kind)),
            9 => ("PatchJson6902Transformer", format!("target: {{group: '{}', version: {}, kind: {}, name: {}}}\njsonOp: '[{{\"op\": \"add\", \"path\": \"/metadata/labels\", \"value\": {{\"j\": \"k\"}}}}]'\n", made.group(), made.version.rsplit('/').next().unwrap_or_default(), made.kind, made.name)),
            10 => ("PatchStrategicMergeTransformer", format!("patches: |-\n  apiVersion: {}\n  kind: {}\n  metadata: {{name: {}, annotations: {{m: n}}}}\n", made.version, made.kind, made.name)),
            _ => ("ReplacementTransformer", format!("replacements:\n{}", indented(&replacement(tree, random), 0))),
        };
        let space = if kind == "NamespaceTransformer" { random.pick(&SPACES) } else { "" };
        let _ = write!(out, "apiVersion: builtin\nkind: {kind}\nmetadata:\n  name: t{i}\n");
        if !space.is_empty() {
            let _ = writeln!(out, "  namespace: {space}");
        }
        out += &body;
    }
    fill(random, &out)
}

/// A generator.
pub(super) fn generators(random: &mut Random) -> String {
    let body = random.pick(&[
        "kind: ConfigMapGenerator\nmetadata: {name: made}\nliterals: [a=b]\n",
        "kind: ConfigMapGenerator\nmetadata: {name: gen, namespace: ns1}\nfiles: [f.txt]\noptions: {disableNameSuffixHash: true}\n",
        "kind: ConfigMapGenerator\nmetadata: {name: gen}\nbehavior: merge\nliterals: [a=b]\n",
        "kind: SecretGenerator\nmetadata: {name: made}\nliterals: [a=b]\ntype: x\n",
        "kind: SecretGenerator\nmetadata: {name: app}\nenvs: [e.env]\noptions: {labels: {o: p}}\n",
    ]);
    format!("apiVersion: builtin\n{body}")
}
