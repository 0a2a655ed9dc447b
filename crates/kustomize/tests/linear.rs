//! Twice the objects take twice the time, whatever a tree has much of: a list that is searched for each object, or a table
//! that is made anew for each rule, would make it four times.

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

fn time(tree: &MemoryTree) -> Duration {
    let start = Instant::now();
    let built = build(tree, &TreePath::new("overlay").unwrap(), &Options::default()).unwrap();
    std::hint::black_box(built.to_yaml().len());
    start.elapsed()
}

#[test]
fn time_is_linear_in_the_objects() {
    for shape in SHAPES {
        let (small, large) = (shape.tree(OBJECTS), shape.tree(2 * OBJECTS));
        let (mut best_small, mut best_large) = (Duration::MAX, Duration::MAX);
        let mut ratio = f64::MAX;
        for run in 0..RUNS {
            best_small = best_small.min(time(&small));
            best_large = best_large.min(time(&large));
            ratio = best_large.as_secs_f64() / best_small.as_secs_f64();
            if run > 0 && ratio < MOST {
                break;
            }
        }
        assert!(ratio < MOST, "{shape:?}: twice the objects take {ratio:.1} times as long ({best_large:?})");
    }
}

#[test]
fn every_tree_has_the_objects_that_it_says() {
    for shape in SHAPES {
        let built = build(&shape.tree(20), &TreePath::new("overlay").unwrap(), &Options::default()).unwrap();
        assert_eq!(built.objects.len(), 20, "{shape:?}");
    }
}
