//! Twice the objects take twice the time, whatever a tree has much of: a list that is searched for each object, or a table
//! that is made again for each rule, would make it four times.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../benches/trees/mod.rs"]
mod trees;

use std::time::{Duration, Instant};

use roadstead_kustomize::{MemoryTree, Options, TreePath, build};
use trees::SHAPES;

/// Where a quadratic part would outgrow the rest, and a run without optimisation is still short.
const OBJECTS: usize = 400;
/// Half-way between what a linear and a quadratic build take.
const MOST: f64 = 3.0;
/// Other processes may take the processor: the best of some runs counts, and they may be as many as this.
const RUNS: usize = 12;

const OVERLAY: &str = "overlay";

fn time(tree: &MemoryTree) -> Duration {
    let start = Instant::now();
    let built = build(tree, &TreePath::new(OVERLAY).unwrap(), &Options::default()).unwrap();
    std::hint::black_box(built.to_yaml().len());
    start.elapsed()
}

/// The second tree is twice the first.
#[track_caller]
fn check(what: &str, small: &MemoryTree, large: &MemoryTree) {
    let (mut best_small, mut best_large) = (Duration::MAX, Duration::MAX);
    let mut ratio = f64::MAX;
    for run in 0..RUNS {
        best_small = best_small.min(time(small));
        best_large = best_large.min(time(large));
        ratio = best_large.as_secs_f64() / best_small.as_secs_f64();
        if run > 0 && ratio < MOST {
            return;
        }
    }
    panic!("{what}: twice as much takes {ratio:.1} times as long ({best_large:?})");
}

#[test]
fn time_is_linear_in_the_objects() {
    for shape in SHAPES {
        check(&format!("objects of {shape:?}"), &shape.tree(OBJECTS), &shape.tree(2 * OBJECTS));
    }
}

/// One object whose content stands on one line, behind which a comment has a schema.
fn line(item: impl Fn(usize) -> String, count: usize) -> MemoryTree {
    let items: Vec<String> = (0..count).map(item).collect();
    let object = format!(
        "apiVersion: example.com/v1\nkind: A\nmetadata: {{name: a}}\nspec: {{{}}} # {{\"type\": \"object\"}}\n",
        items.join(", ")
    );
    let mut tree = MemoryTree::new();
    tree.insert_file(TreePath::new("overlay/a.yaml").unwrap(), object);
    tree.insert_file(TreePath::new("overlay/kustomization.yaml").unwrap(), "resources: [a.yaml]\n");
    tree
}

#[test]
fn time_is_linear_in_a_line_with_a_schema_in_its_comment() {
    for (what, item) in [("keys", "1"), ("brackets", "[]")] {
        let entry = |number: usize| format!("key-{number:06}: {item}");
        check(what, &line(entry, 5_000), &line(entry, 10_000));
    }
}

#[test]
fn every_tree_has_the_objects_that_it_says() {
    for shape in SHAPES {
        let built = build(&shape.tree(20), &TreePath::new(OVERLAY).unwrap(), &Options::default()).unwrap();
        assert_eq!(built.objects.len(), 20, "{shape:?}");
    }
}
