//! The archive of public cases, and the names that it has for things.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use roadstead_sops::Format;

/// Its files, by their paths.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Unpacks it in memory.
pub(crate) fn unpack(archive: &Path) -> Files {
    let mut files = Files::new();
    for entry in
        tar::Archive::new(flate2::read::GzDecoder::new(File::open(archive).unwrap())).entries().unwrap()
    {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        let path = entry.path().unwrap().to_str().unwrap().trim_start_matches("./").to_owned();
        files.insert(path, bytes);
    }
    files
}

/// A format by its name.
pub(crate) fn format(name: &str) -> Format {
    match name {
        "yaml" => Format::Yaml,
        "json" => Format::Json,
        "dotenv" => Format::Dotenv,
        "ini" => Format::Ini,
        "binary" => Format::Binary,
        other => panic!("unknown format {other}"),
    }
}
