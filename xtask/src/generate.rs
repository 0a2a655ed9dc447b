//! `cargo xtask generate`: makes the files that are generated and checked in: the protocol, the fleet views, JSON schemas. `--check` compares instead of writing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Runner;
use crate::{cache, web};

const PROTO_ROOT: &str = "proto/proto";
const PROTO_FILE: &str = "roadstead/link/v1/link.proto";
const PROTO_OUT: &str = "proto/src/generated";
/// What the hub says of its fleet views, and the dashboard's types for them.
const FLEET_DOCUMENT: &str = "web/src/api/fleet.openapi.json";
const FLEET_TYPES: &str = "web/src/api/fleet.d.ts";
/// The JSON schemas of our kinds, in the layout that kubeconform's catalogues have.
const SCHEMAS: &str = "deploy/schemas";

/// Generates everything beneath `root` or, with `check`, fails where what is checked in differs.
pub(crate) fn run(root: &Path, runner: &Runner, check: bool) -> Result<()> {
    let fresh = root.join("target/xtask-generate");
    std::fs::create_dir_all(&fresh).with_context(|| format!("make {}", fresh.display()))?;
    protocol(root, &fresh, check)?;
    fleet_client(root, runner, &fresh, check)?;
    schemas(root, runner, check)
}

/// The JSON schemas of the kinds that people write.
fn schemas(root: &Path, runner: &Runner, check: bool) -> Result<()> {
    let program = cache::target(root)?.join("debug/examples").join("schemas");
    let text = runner.capture(&mut Command::new(program))?;
    let all: BTreeMap<String, Value> = serde_json::from_str(&text).context("read the schemas")?;
    for (name, schema) in &all {
        put(root, &format!("{SCHEMAS}/{name}"), &format!("{schema:#}\n"), "crates/api", check)?;
    }
    let folder = root.join(SCHEMAS);
    for group in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let group = group.context("list the schemas")?;
        for file in std::fs::read_dir(group.path()).context("list the schemas of a group")? {
            let file = file.context("list the schemas of a group")?.file_name();
            let name = format!("{}/{}", group.file_name().display(), file.display());
            if !all.contains_key(&name) {
                bail!("{SCHEMAS}/{name} is of a kind that is not served: delete it");
            }
        }
    }
    Ok(())
}

fn protocol(root: &Path, fresh: &Path, check: bool) -> Result<()> {
    let descriptors = protox::compile([PROTO_FILE], [root.join(PROTO_ROOT)])
        .with_context(|| format!("compile {PROTO_ROOT}/{PROTO_FILE}"))?;
    tonic_prost_build::configure()
        .out_dir(fresh)
        .codec_path("crate::codec::BoundedCodec")
        // It holds values of Secrets.
        .skip_debug(["GivenKey", "GivenVariables"])
        .compile_fds(descriptors)
        .context("generate Rust from the protocol's descriptors")?;
    let name = "roadstead.link.v1.rs";
    let text = std::fs::read_to_string(fresh.join(name)).with_context(|| format!("read generated {name}"))?;
    put(root, &format!("{PROTO_OUT}/{name}"), &text, PROTO_FILE, check)
}

fn fleet_client(root: &Path, runner: &Runner, fresh: &Path, check: bool) -> Result<()> {
    runner.run(&mut cache::build_programs(root))?;
    let program = cache::target(root)?.join("debug/examples/fleet-openapi");
    let document = runner.capture(&mut Command::new(program))?;
    put(root, FLEET_DOCUMENT, &format!("{document}\n"), "the hub's fleet views", check)?;
    let out = fresh.join("fleet.d.ts");
    web::generate_types(root, runner, &out)?;
    let text = std::fs::read_to_string(&out).with_context(|| format!("read {}", out.display()))?;
    put(root, FLEET_TYPES, &text, FLEET_DOCUMENT, check)
}

/// Writes a generated file, or compares it with what is checked in.
fn put(root: &Path, name: &str, text: &str, from: &str, check: bool) -> Result<()> {
    let target = root.join(name);
    if check {
        if std::fs::read_to_string(&target).unwrap_or_default() != text {
            bail!("{name} is not what is generated from {from}: run `cargo xtask generate` and commit");
        }
        return Ok(());
    }
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    std::fs::write(&target, text).with_context(|| format!("write {}", target.display()))
}
