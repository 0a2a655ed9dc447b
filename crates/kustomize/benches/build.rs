//! `cargo bench -p roadstead-kustomize [FILTER]`: how long whole builds take inside a running process.
//!
//! A harness of a page instead of a library of forty crates: the shapes differ by factors, which the best of several runs
//! shows well enough. `BENCH_RUNS` says how many runs of each (7 without it).

mod trees;

use std::time::{Duration, Instant};

use roadstead_kustomize::{MemoryTree, Options, TreePath, build};
use trees::{SHAPES, Shape};

/// Sizes of the mixed tree; the others are measured at the middle ones.
const SIZES: [usize; 4] = [10, 400, 1_000, 10_000];
/// Short builds are measured many at a time.
const AT_LEAST: Duration = Duration::from_millis(20);

fn main() -> Result<(), String> {
    // Cargo adds `--bench` of its own.
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let runs = std::env::var("BENCH_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(7);
    println!("{:<28} {:>12} {:>12} {:>12} {:>12}", "tree", "best", "median", "per object", "output");
    for shape in SHAPES {
        for objects in SIZES {
            let name = format!("{shape:?}/{objects}").to_lowercase();
            let wanted = filters.is_empty() || filters.iter().any(|filter| fits(&name, filter));
            if wanted && (shape == Shape::Mixed || (400..=1_000).contains(&objects)) {
                measure(&name, &shape.tree(objects), objects, runs)?;
            }
        }
    }
    Ok(())
}

/// A filter is part of a name; one with a slash is its end.
fn fits(name: &str, filter: &str) -> bool {
    if filter.contains('/') { name.ends_with(filter) } else { name.contains(filter) }
}

fn measure(name: &str, tree: &MemoryTree, objects: usize, runs: usize) -> Result<(), String> {
    let path = TreePath::new("overlay").ok_or("the path leaves the root")?;
    let options = Options::default();
    let run = || build(tree, &path, &options).map(|build| build.to_yaml().len());
    let first = Instant::now();
    let bytes = run().map_err(|error| format!("{name}: {error}"))?;
    let times = AT_LEAST.as_nanos() / first.elapsed().as_nanos().max(1);
    let times = u32::try_from(times).unwrap_or(u32::MAX).max(1);
    let mut took: Vec<Duration> = (0..runs.max(1))
        .map(|_| {
            let start = Instant::now();
            for _ in 0..times {
                let _ = std::hint::black_box(run());
            }
            start.elapsed() / times
        })
        .collect();
    took.sort_unstable();
    let (best, median) = (took[0], took[took.len() / 2]);
    let each = best / u32::try_from(objects).unwrap_or(u32::MAX).max(1);
    println!("{name:<28} {best:>12.2?} {median:>12.2?} {each:>12.2?} {:>9} kB", bytes.div_ceil(1_000));
    Ok(())
}
