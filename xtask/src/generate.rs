//! `cargo xtask generate`: makes the files that are generated and checked in. `--check` compares instead of writing.

use std::path::Path;

use anyhow::{Context, Result, bail};

const PROTO_ROOT: &str = "proto/proto";
const PROTO_FILE: &str = "roadstead/link/v1/link.proto";
const PROTO_OUT: &str = "proto/src/generated";

/// Generates everything beneath `root` or, with `check`, fails where what is checked in differs.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let fresh = root.join("target/xtask-generate");
    std::fs::create_dir_all(&fresh).with_context(|| format!("make {}", fresh.display()))?;
    let descriptors = protox::compile([PROTO_FILE], [root.join(PROTO_ROOT)])
        .with_context(|| format!("compile {PROTO_ROOT}/{PROTO_FILE}"))?;
    tonic_prost_build::configure()
        .out_dir(&fresh)
        .compile_fds(descriptors)
        .context("generate Rust from the protocol's descriptors")?;
    let name = "roadstead.link.v1.rs";
    let text = std::fs::read_to_string(fresh.join(name)).with_context(|| format!("read generated {name}"))?;
    let target = root.join(PROTO_OUT).join(name);
    if check {
        let held = std::fs::read_to_string(&target).unwrap_or_default();
        if held != text {
            bail!(
                "{} is not what {PROTO_FILE} generates: run `cargo xtask generate` and commit",
                target.display()
            );
        }
        return Ok(());
    }
    std::fs::create_dir_all(root.join(PROTO_OUT)).context("make the folder for generated files")?;
    std::fs::write(&target, text).with_context(|| format!("write {}", target.display()))
}
