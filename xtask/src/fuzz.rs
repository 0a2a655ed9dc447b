//! `cargo xtask fuzz`: every target of `fuzz/` for some time each, and what came of it.
//!
//! A finding is a panic, a run that does not end, or an input that takes more memory or time than its length allows
//! (`fuzz/oracle.rs`). What a fuzzer has learnt is kept in the cache, so that the next run goes on from there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::process::Runner;
use crate::tool;

const VERSION: &str = "0.13.2";
/// Large enough that quadratic time stands out against the allowance for each byte.
const MAX_INPUT: usize = 64 << 10;
/// Seconds for one input, and MiB for the whole process: what the allowances for each byte do not catch.
const INPUT_SECONDS: u32 = 25;
const PROCESS_MIB: u32 = 2048;

/// What one target's run came to.
struct Outcome {
    target: String,
    executions: u64,
    edges: u64,
    findings: Vec<PathBuf>,
}

/// Fuzzes the targets whose names contain `only`, or all, `seconds` each.
///
/// # Errors
/// Where a target does not build, cannot run, or has a finding.
pub(crate) fn run(root: &Path, runner: &Runner, seconds: u32, only: Option<&str>) -> Result<()> {
    let program = tool::installed(runner, "cargo-fuzz", VERSION)?;
    let folder = root.join("fuzz");
    let targets = targets(&folder)?;
    let chosen: Vec<&String> =
        targets.iter().filter(|target| only.is_none_or(|only| target.contains(only))).collect();
    if chosen.is_empty() {
        bail!("no such target; there are {}", targets.join(", "));
    }
    runner.say("build the fuzz targets");
    runner.run(cargo_fuzz(&program, root).args(["build", "-s", "none"]))?;
    let mut outcomes = Vec::with_capacity(chosen.len());
    for target in chosen {
        runner.say(&format!("{target}: {seconds} s"));
        outcomes.push(one(&program, root, runner, target, seconds)?);
    }
    println!("{:28} {:>12} {:>8} findings", "target", "executions", "edges");
    for outcome in &outcomes {
        println!(
            "{:28} {:>12} {:>8} {}",
            outcome.target,
            outcome.executions,
            outcome.edges,
            outcome.findings.len()
        );
    }
    let findings: Vec<String> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.findings)
        .map(|path| format!("  {}", path.display()))
        .collect();
    if !findings.is_empty() {
        bail!(
            "findings; each runs again with `cargo fuzz run -s none TARGET FILE`:\n{}",
            findings.join("\n")
        );
    }
    Ok(())
}

/// The names in `fuzz/targets`.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("targets")).context("list the fuzz targets")? {
        let path = entry.context("list the fuzz targets")?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn cargo_fuzz(program: &Path, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).arg("fuzz");
    command
}

fn one(program: &Path, root: &Path, runner: &Runner, target: &str, seconds: u32) -> Result<Outcome> {
    let kept = cache::folder("fuzz")?;
    let corpus = kept.join("corpus").join(target);
    let artifacts = kept.join("findings").join(target);
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let before = files(&artifacts)?;
    let log = kept.join(format!("{target}.log"));
    let output = File::create(&log).with_context(|| format!("make {}", log.display()))?;
    let mut command = cargo_fuzz(program, root);
    // `cargo fuzz run` takes options first, then the target, the corpora, and behind `--` libFuzzer's own options.
    command.args(["run", "-s", "none", target]).arg(&corpus).arg(root.join("fuzz/seeds").join(target));
    command.arg("--").args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={MAX_INPUT}"),
        format!("-timeout={INPUT_SECONDS}"),
        format!("-rss_limit_mb={PROCESS_MIB}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        "-print_final_stats=1".to_owned(),
    ]);
    command.stdout(output.try_clone().context("write the fuzzer's log")?).stderr(output);
    let status = runner.status(&mut command)?;
    let text = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    let mut findings = files(&artifacts)?;
    findings.retain(|finding| !before.contains(finding));
    if !status.success() && findings.is_empty() {
        bail!("{target} did not run; its log is {}", log.display());
    }
    Ok(Outcome {
        target: target.to_owned(),
        executions: number_after(&text, "stat::number_of_executed_units:").unwrap_or_default(),
        edges: number_after(&text, " cov: ").unwrap_or_default(),
        findings,
    })
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    entries.map(|entry| Ok(entry.with_context(|| format!("list {}", folder.display()))?.path())).collect()
}

/// The number that follows the last mention of `word`.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(word)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::number_after;

    #[test]
    fn reads_what_the_fuzzer_says_last() {
        let log = "#2 INITED cov: 10 ft: 11\n#99 NEW    cov: 345 ft: 400 corp: 3\nstat::number_of_executed_units: 1234\n";
        assert_eq!(number_after(log, " cov: "), Some(345));
        assert_eq!(number_after(log, "stat::number_of_executed_units:"), Some(1234));
        assert_eq!(number_after(log, "absent"), None);
    }
}
