//! The heap of a build stays below `Limits::memory`, whatever the input makes the build do: each input here is small, or
//! as large as is allowed, and would take many times its size.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fmt::Write as _;

use peak_alloc::PeakAlloc;
use roadstead_kustomize::yaml::{Dialect, read_documents, read_strict};
use roadstead_kustomize::{Error, Limits, MemoryTree, Options, TreePath, build};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
/// Of a build: small enough that a debug build comes to the bound soon.
const MEMORY: usize = 64 * MIB;

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n";

type Files = Vec<(String, String)>;

fn files<const N: usize>(files: [(&str, String); N]) -> Files {
    files.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()
}

/// The peak of the heap while something is done.
fn peak<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let out = run();
    (out, HEAP.peak_usage().saturating_sub(before))
}

/// What an alias or an anchor may stand for: lists inside of each other, each with an anchor.
fn nested_anchors(depth: usize, scalars: usize) -> String {
    let mut text = String::from("a: ");
    (0..depth).for_each(|i| write!(text, "&a{i} [").unwrap());
    text.push_str(&"x,".repeat(scalars));
    text + &"]".repeat(depth) + "\n"
}

/// A patch of an object of the kind A, whose list `l` is merged by these keys.
fn merged_by(keys: &[String], object: &str, patch: &str) -> Files {
    let schema = format!(
        "{{\"definitions\": {{\"v1.A\": {{\"x-kubernetes-group-version-kind\": [{{\"group\": \"\", \"version\": \"v1\", \"kind\": \"A\"}}], \
         \"properties\": {{\"l\": {{\"type\": \"array\", \"items\": {{\"$ref\": \"#/definitions/v1.A\"}}, \"x-kubernetes-patch-strategy\": \"merge\", \
         \"x-kubernetes-list-map-keys\": [\"{}\"]}}}}}}}}}}",
        keys.join("\", \"")
    );
    let kustomization = "resources: [o.yaml]\nopenapi: {path: s.json}\npatches: [{path: p.yaml}]\n";
    files([
        ("kustomization.yaml", kustomization.to_owned()),
        ("s.json", schema),
        ("o.yaml", object.to_owned()),
        ("p.yaml", patch.to_owned()),
    ])
}

fn inputs() -> Vec<(&'static str, Files)> {
    let object = |body: &str| format!("apiVersion: v1\nkind: A\nmetadata: {{name: a}}\n{body}");
    let one = || "resources: [o.yaml]\n".to_owned();
    let over = |kustomization: &str, body: &str| {
        files([("kustomization.yaml", kustomization.to_owned()), ("o.yaml", object(body))])
    };
    let maps = |count: usize| {
        (0..count).fold(String::new(), |mut text, i| {
            write!(text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{i}}}\n").unwrap();
            text
        })
    };
    let long = "x".repeat(MIB);
    let mut all = vec![
        ("anchors inside of each other", over(&one(), &nested_anchors(120, 199_000))),
        ("anchors in a kustomization", files([("kustomization.yaml", nested_anchors(120, 199_000))])),
        ("many anchors", over(&one(), &format!("l: [{}]\n", "&a x,".repeat(1 << 19)))),
        ("an alias again and again", {
            let list = format!("a: &a [{}]\nl: [{}]\n", "x,".repeat(1_000), "*a,".repeat(100_000));
            over(&one(), &list)
        }),
        ("merged mappings", {
            let base = (0..1_000).fold(String::new(), |text, i| text + &format!("k{i}: x,"));
            over(&one(), &format!("a: &a {{{base}}}\nl: [{}]\n", "{<<: *a},".repeat(50_000)))
        }),
        ("a flat list", over(&one(), &format!("l: [{}]\n", "x,".repeat(3 << 20)))),
        ("a flat mapping", {
            let entries = (0..1_000_000).fold(String::new(), |mut text, i| {
                write!(text, "{i:x}k: x,").unwrap();
                text
            });
            over(&one(), &format!("l: {{{entries}}}\n"))
        }),
        ("small mappings", over(&one(), &format!("l: [{}]\n", "{a: b},".repeat(1 << 20)))),
        ("a long text", over(&one(), &format!("l: \"{}\"\n", "x\\n".repeat(4 << 20)))),
        ("directives", files([("kustomization.yaml", one()), ("o.yaml", "%TAG !a! b\n".repeat(1 << 20))])),
        ("JSON", {
            let patch = format!("[{}]", vec!["{\"a\":0}"; 1 << 20].join(","));
            let mut files = over("resources: [o.yaml]\npatches: [{path: p.json, target: {name: a}}]\n", "");
            files.push(("p.json".into(), patch));
            files
        }),
        ("tiny objects", over(&one(), &maps(200_000))),
        ("tiny patches", {
            let patches = "- {target: {name: c1}, patch: 'kind: A'}\n".repeat(300_000);
            files([
                ("kustomization.yaml", format!("resources: [o.yaml]\npatches:\n{patches}")),
                ("o.yaml", maps(2)),
            ])
        }),
        ("empty entries", {
            let text = format!("resources: [o.yaml]\npatches: [{}]\n", "{},".repeat(1 << 20));
            files([("kustomization.yaml", text), ("o.yaml", maps(2))])
        }),
        ("empty replacements", {
            let targets = "{},".repeat(1 << 20);
            let text =
                format!("resources: [o.yaml]\nreplacements: [{{sourceValue: x, targets: [{targets}]}}]\n");
            files([("kustomization.yaml", text), ("o.yaml", maps(2))])
        }),
        ("a long prefix", {
            files([
                ("kustomization.yaml", format!("namePrefix: {long}\nresources: [o.yaml]\n")),
                ("o.yaml", maps(1_000)),
            ])
        }),
        ("prefixes of components", {
            let mut files = files([("o.yaml", maps(2_000))]);
            let mut text = String::from("resources: [o.yaml]\ncomponents:\n");
            for i in 0..1_000 {
                writeln!(text, "- c{i}").unwrap();
                files.push((
                    format!("c{i}/kustomization.yaml"),
                    "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: x\n".into(),
                ));
            }
            files.push(("kustomization.yaml".into(), text));
            files
        }),
        ("labels in many places", {
            let labels = (0..100).fold(String::new(), |text, i| text + &format!("  l{i}: v\n"));
            let fields = "[{path: l/m, create: true}]";
            let text = format!(
                "resources: [o.yaml]\nlabels:\n- pairs:\n{}  fields: {fields}\n",
                labels.replace("  l", "    l")
            );
            over(&text, &format!("l: [{}]\n", "{},".repeat(30_000)))
        }),
        ("labels of generators", {
            let labels = (0..5_000).fold(String::new(), |text, i| text + &format!("l{i}: v,"));
            let generators = (0..5_000).fold(String::new(), |text, i| text + &format!("- name: g{i}\n"));
            let text =
                format!("generatorOptions: {{labels: {{{labels}}}}}\nconfigMapGenerator:\n{generators}");
            files([("kustomization.yaml", text)])
        }),
        ("lines of an env file", {
            let text = "secretGenerator: [{name: s, envs: [e.env]}]\n".to_owned();
            let env = (0..1_000_000).fold(String::new(), |mut text, i| {
                writeln!(text, "{i:x}").unwrap();
                text
            });
            files([("kustomization.yaml", text), ("e.env", env)])
        }),
        ("files of a generator", {
            let sources = (0..200).fold(String::new(), |text, i| text + &format!("- k{i}=f.txt\n"));
            let text = format!("secretGenerator:\n- name: s\n  files:\n{}", sources.replace("- k", "  - k"));
            files([("kustomization.yaml", text), ("f.txt", long.clone())])
        }),
        ("references to a var", {
            let text = "resources: [o.yaml]\nvars: [{name: V, objref: {kind: A, name: a, apiVersion: v1}, fieldref: {fieldPath: v}}]\n\
                        configurations: [c.yaml]\n";
            let mut files = over(text, &format!("v: {long}\nt: {}\n", "$(V)".repeat(100_000)));
            files.push(("c.yaml".into(), "varReference: [{path: t, kind: A}]\n".into()));
            files
        }),
        ("a replacement into itself", {
            let entry = "- source: {kind: A, fieldPath: l}\n  targets: [{select: {kind: A}, fieldPaths: [l.x, l.y], options: {create: true}}]\n";
            over(&format!("resources: [o.yaml]\nreplacements:\n{}", entry.repeat(60)), "l: {a: b}\n")
        }),
        ("a replacement inside of a text", {
            let inner = format!("k: v\nl: [{}]\n", "a,".repeat(400_000)).replace('\n', "\n    ");
            let text = "resources: [o.yaml]\nreplacements:\n- sourceValue: x\n  targets: [{select: {kind: A}, fieldPaths: [t.k]}]\n";
            over(text, &format!("t: |\n    {inner}\n"))
        }),
        ("regular expressions", {
            let paths = (0..2_000)
                .fold(String::new(), |text, i| text + &format!("l.[n=(a{{1000}}){{{}}}],", i % 20 + 1));
            let text = format!(
                "resources: [o.yaml]\nreplacements:\n- sourceValue: x\n  targets: [{{select: {{kind: A}}, fieldPaths: [{}]}}]\n",
                paths.trim_end_matches(',').replace("l.[", "'l.[").replace("],", "]',") + "'"
            );
            over(&text, "l: [{n: a}]\n")
        }),
        ("a JSON patch that copies", {
            let copies = (0..40)
                .fold(String::new(), |text, i| text + &format!("- {{op: copy, from: /l, path: /l/k{i}}}\n"));
            let mut files =
                over("resources: [o.yaml]\npatches: [{path: p.yaml, target: {kind: A}}]\n", "l: {a: b}\n");
            files.push(("p.yaml".into(), copies));
            files
        }),
        ("a large patch for all", {
            let patch = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\nl: [{}]\n",
                "x,".repeat(10_000)
            );
            files([
                (
                    "kustomization.yaml",
                    "resources: [o.yaml]\npatches: [{path: p.yaml, target: {kind: ConfigMap}}]\n".into(),
                ),
                ("o.yaml", maps(5_000)),
                ("p.yaml", patch),
            ])
        }),
        ("notes of transformers", {
            let mut kustomization =
                String::from("buildMetadata: [transformerAnnotations]\nresources: [o.yaml]\ntransformers:\n");
            (0..500).for_each(|i| writeln!(kustomization, "- t{i}.yaml").unwrap());
            let mut files = files([("o.yaml", maps(500))]);
            for i in 0..500 {
                files.push((
                    format!("t{i}.yaml"),
                    format!("apiVersion: builtin\nkind: LabelTransformer\nmetadata: {{name: t{i}}}\nlabels: {{a: b}}\n"),
                ));
            }
            files.push(("kustomization.yaml".into(), kustomization));
            files
        }),
        ("notes in an object", {
            let names = "a,".repeat(500_000);
            let notes: String = ["previousNames", "previousNamespaces", "previousKinds"]
                .iter()
                .fold(String::new(), |text, name| {
                    text + &format!("    internal.config.kubernetes.io/{name}: {names}\n")
                });
            files([
                ("kustomization.yaml", one()),
                ("o.yaml", format!("apiVersion: v1\nkind: A\nmetadata:\n  name: a\n  annotations:\n{notes}")),
            ])
        }),
        ("a long label selector", {
            let text = format!(
                "resources: [o.yaml]\npatches: [{{patch: \"kind: A\", target: {{labelSelector: \"a in ({})\"}}}}]\n",
                "b,".repeat(1 << 20)
            );
            files([("kustomization.yaml", text), ("o.yaml", MAP.into())])
        }),
        ("many names of images", {
            let images = (0..200_000).fold(String::new(), |mut text, i| {
                writeln!(text, "- name: an/image/with/a/long/name/{i}").unwrap();
                text
            });
            files([
                ("kustomization.yaml", format!("resources: [o.yaml]\nimages:\n{images}")),
                ("o.yaml", MAP.into()),
            ])
        }),
        ("a text of escapes under a hash", {
            let text = "secretGenerator: [{name: s, files: [f.txt]}]\nconfigMapGenerator: [{name: s, files: [f.txt]}]\n";
            files([("kustomization.yaml", text.into()), ("f.txt", "<".repeat(9 * MIB))])
        }),
    ];
    all.push(("an element found by many keys", {
        let element = |set: u32| {
            let keys = (0..9)
                .filter(|k| set >> k & 1 == 1)
                .fold(String::new(), |text, k| text + &format!("k{k}: v, "));
            format!("{{{keys}")
        };
        let small: Vec<String> = (1..510).map(|set| element(set) + "}").collect();
        let patch = format!("l: [{}m: [{}]}}, {}]\n", element(511), "x,".repeat(50_000), small.join(", "));
        merged_by(
            &(0..9).map(|k| format!("k{k}")).collect::<Vec<_>>(),
            &object("l: [{z: z}]\n"),
            &object(&patch),
        )
    }));
    all.push(("lists that double inside of each other", {
        let list =
            (0..60).fold(String::new(), |inner, _| format!("l: [{{k1: w, {inner}}}, {{k0: v, k1: v}}]"));
        let keys = ["k0".to_owned(), "k1".to_owned()];
        merged_by(&keys, &object(&format!("{list}\n")), &object(""))
    }));
    all.push(("many merge keys", {
        let keys: Vec<String> = (0..100_000).map(|k| format!("k{k}")).collect();
        let elements: Vec<String> = (0..500).map(|i| format!("{{k{i}: v}}")).collect();
        merged_by(&keys, &object("l: [{z: z}]\n"), &object(&format!("l: [{}]\n", elements.join(", "))))
    }));
    // What replacements create has no tag, and is read once more at the end of each overlay.
    for (what, source) in [
        ("a created text in many overlays", "x".repeat(MIB / 2)),
        ("a created number in many overlays", format!("\"0x{}1\"", "0".repeat(MIB / 2))),
    ] {
        let fields: Vec<String> = (0..20).map(|i| format!("m.f{i}")).collect();
        let base = format!(
            "resources: [o.yaml]\nreplacements:\n- source: {{kind: A, fieldPath: t}}\n  targets:\n  - select: {{kind: A}}\n    \
             fieldPaths: [{}]\n    options: {{create: true}}\n",
            fields.join(", ")
        );
        let mut all_files =
            files([("base/kustomization.yaml", base), ("base/o.yaml", object(&format!("t: {source}\n")))]);
        let overlays: Vec<String> = (0..20).map(|i| format!("o{i}")).collect();
        all_files.push(("kustomization.yaml".into(), format!("resources: [{}]\n", overlays.join(", "))));
        for name in &overlays {
            let text = format!("resources: [../base]\nnamePrefix: {name}-\n");
            all_files.push((format!("{name}/kustomization.yaml"), text));
        }
        all.push((what, all_files));
    }
    let deep = format!("{}{}", "[".repeat(190), "x,".repeat(1_000_000));
    all.push(("a list deep down", over(&one(), &format!("l: {deep}{}\n", "]".repeat(190)))));
    all
}

/// One test, so that nothing else is on the heap meanwhile.
#[test]
fn a_build_stays_below_its_memory_whatever_the_input() {
    // What is made once and kept is not part of a build.
    let mut warm = MemoryTree::new();
    warm.insert_file(TreePath::new("a.yaml").unwrap(), MAP);
    build(&warm, &TreePath::root(), &Options::default()).unwrap();

    let wanted = std::env::var("ATTACK").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, files) in inputs().into_iter().filter(|(name, _)| name.contains(&wanted)) {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            tree.insert_file(TreePath::new(&path).unwrap(), text);
        }
        let options = Options { limits: Limits::within(MEMORY), ..Options::default() };
        let start = std::time::Instant::now();
        let (built, peak) = peak(|| {
            let built = build(&tree, &TreePath::root(), &options);
            // The objects are dropped after the peak is taken.
            built.map(|built| built.objects.len())
        });
        let outcome = match &built {
            Ok(objects) => format!("{objects} objects"),
            Err(error) => error.to_string().chars().take(160).collect(),
        };
        eprintln!(
            "{:6.1} MiB {:5.1} s  {name}: {outcome}",
            peak as f64 / MIB as f64,
            start.elapsed().as_secs_f64()
        );
        if peak > MEMORY {
            failed.push(format!("{name}: {} MiB", peak / MIB));
        }
        if let Err(error) = built {
            let bounded = matches!(error, Error::Limit { .. }) || error.to_string().contains("more than");
            let other = error.to_string().len() < 2_000;
            assert!(bounded || other, "{name}: {error:.300}");
        }
    }
    assert!(failed.is_empty(), "more than {} MiB: {failed:?}", MEMORY / MIB);

    // What reads the bodies of requests: with bounds of its own it takes little, whatever the anchors are.
    let mut limits = Limits::within(16 * MIB);
    limits.depth = 127;
    limits.nodes = 200_000;
    limits.total_bytes = 3 * MIB;
    for text in [nested_anchors(126, 199_000), nested_anchors(2, 199_000), "&a x: ".repeat(100_000)] {
        let (read, taken) =
            peak(|| read_strict(text.as_bytes(), &limits).map(|(documents, _)| documents.len()));
        assert!(taken < 16 * MIB, "{taken} bytes for {} bytes: {read:?}", text.len());
        let (_, taken) =
            peak(|| read_documents(text.as_bytes(), Dialect::Patch, &limits).map(|read| read.len()));
        assert!(taken < 16 * MIB, "{taken} bytes for {} bytes", text.len());
    }
}
