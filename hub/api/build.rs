//! Lists the built dashboard (`web/dist`) for `src/dashboard.rs`, with its compressed forms. Where npm has not run the list
//! is empty, and the hub shows `web/placeholder.html` instead.

use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let web = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../web");
    let dist = web.join("dist");
    let mut files = Vec::new();
    if dist.is_dir() {
        println!("cargo:rerun-if-changed={}", dist.display());
        walk(&dist, &mut files)?;
        files.sort();
    } else {
        // A path that is not there would have this run, and the crate built, each time.
        println!("cargo:rerun-if-changed={}", web.display());
    }
    let mut text = String::from("&[\n");
    for file in files.iter().filter(|file| !is_compressed(file)) {
        let bytes = fs::read(file)?;
        let name = file.strip_prefix(&dist)?.to_string_lossy().replace('\\', "/");
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let form = |extension: &str| {
            let path = PathBuf::from(format!("{}.{extension}", file.display()));
            let known = files.contains(&path);
            if known { format!("Some(include_bytes!({path:?}))") } else { "None".to_owned() }
        };
        writeln!(
            text,
            "File {{ path: {name:?}, tag: \"\\\"{:016x}\\\"\", plain: include_bytes!({file:?}), brotli: {}, gzip: {} }},",
            hasher.finish(),
            form("br"),
            form("gz"),
        )?;
    }
    text.push(']');
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("dashboard.rs"), text)?;
    Ok(())
}

fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "br" || extension == "gz")
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
