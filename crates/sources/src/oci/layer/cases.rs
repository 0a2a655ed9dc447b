//! The cases beside the repository (`../shared/source-cases`): what stays of a tree, by the lines of its artifact, and an artifact as Flux packs
//! it, byte for byte.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::unpack;
use crate::source_cases::{source_cases, tell};
use crate::tree::TreeLimits;

/// The artifact of a layer.
fn packed(layer: &[u8], ignore: Option<&str>) -> Vec<u8> {
    let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let unpacked = unpack(layer, &TreeLimits::default(), folder.path(), &stop).unwrap();
    let packed = unpacked.pack(ignore, &TreeLimits::default(), folder.path(), &stop).unwrap();
    let mut bytes = vec![0; usize::try_from(packed.file.metadata().unwrap().len()).unwrap()];
    packed.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

fn zipped(tar: &[u8]) -> Vec<u8> {
    let mut zipped = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zipped, tar).unwrap();
    zipped.finish().unwrap()
}

/// Its lines in their order, folders with a slash, the root as `./`.
fn lines(artifact: &[u8]) -> Vec<String> {
    let plain = unzipped(artifact);
    let mut archive = tar::Archive::new(plain.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let slash = if entry.header().entry_type().is_dir() { "/" } else { "" };
        format!("{}{slash}", String::from_utf8(entry.path_bytes().into_owned()).unwrap())
    });
    entries.collect()
}

/// A tar of what a case has.
fn tree(files: &Value) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files.as_object().unwrap() {
        let content = content.as_str().unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        if let Some(target) = content.strip_prefix("->") {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, path, target.trim()).unwrap();
        } else {
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
    }
    tar.into_inner().unwrap()
}

#[test]
fn what_is_left_out_is_what_flux_leaves_out() {
    let Some(all) = source_cases("ignore.json") else { return };
    let cases: Value = serde_json::from_slice(&all["ignore.json"]).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    let wrong = cases.iter().filter_map(|case| {
        let found = lines(&packed(&zipped(&tree(&case["files"])), case["ignore"].as_str()));
        let want: Vec<String> = serde_json::from_value(case["archived"].clone()).unwrap();
        (found != want).then(|| format!("{}: {found:?}, want {want:?}", case["name"]))
    });
    let wrong: Vec<String> = wrong.collect();
    tell(format_args!("ignore.json: {} of {} as expected", cases.len() - wrong.len(), cases.len()));
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn an_artifact_is_what_flux_makes_of_it() {
    let Some(all) = source_cases("artifact") else { return };
    let (golden, own) =
        (&all["artifact/golden.tar.gz"], packed(&zipped(&all["artifact/input-tree.tar"]), None));
    assert_eq!(lines(&own), lines(golden));
    assert!(unzipped(&own) == unzipped(golden), "the tars differ");
    // The fixed part of the header: no name, no time, no system.
    assert_eq!(own[..10], golden[..10]);
    tell(format_args!("artifact/golden.tar.gz: as expected"));
}

/// A tar.gz of one entry, as a case has it.
fn of_entry(case: &Value) -> Vec<u8> {
    // Where only a kind of entry is given, its name is of no account.
    let name = case["entry"].as_str().unwrap_or("a");
    let kind = match case["entry_type"].as_str() {
        Some("symlink") => tar::EntryType::Symlink,
        Some(other) => panic!("{other}"),
        None if name.ends_with('/') => tar::EntryType::Directory,
        None => tar::EntryType::Regular,
    };
    let size = case["size"].as_u64().unwrap_or_default();
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    if kind == tar::EntryType::Symlink {
        header.set_link_name("b").unwrap();
    }
    header.set_mode(case["mode"].as_str().map_or(0o644, |mode| u32::from_str_radix(mode, 8).unwrap()));
    header.set_size(size);
    header.set_cksum();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append(&header, std::io::repeat(b'x').take(size)).unwrap();
    zipped(&tar.into_inner().unwrap())
}

/// Nothing is unpacked to a disk, so there is no target that may be a link.
const OF_A_DISK: &str = "is a symlink to a folder";

/// `untar.json`: names, kinds and sizes of entries. Of one that is taken the artifact has a line, with the mode that Flux gives to it.
#[test]
fn entries_are_refused_that_flux_refuses() {
    let Some(all) = source_cases("untar.json") else { return };
    let cases: Value = serde_json::from_slice(&all["untar.json"]).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    let mut left_out = Vec::new();
    for case in cases {
        if let Some(target) = case["target"].as_str() {
            left_out.push(target);
            continue;
        }
        // Where the original has no bound, there is one here.
        let mut limits = TreeLimits::default();
        if let Some(most) = case["max"].as_u64() {
            limits.total_bytes = most;
        }
        let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let unpacked = unpack(of_entry(case).as_slice(), &limits, folder.path(), &stop);
        // A layer's links are left out, as by the option of the original.
        let is_taken = case["ok"] == true || case["with skip option"] == "left out";
        assert_eq!(unpacked.is_ok(), is_taken, "{case}");
        let Ok(layer) = unpacked else { continue };
        let links = u64::from(case["entry_type"] == "symlink");
        assert_eq!(
            (layer.0.links, layer.0.files.len() as u64),
            (links, u64::from(case["entry"].is_string() && !is_folder(case)))
        );
        let mut packed = layer.pack(None, &limits, folder.path(), &stop).unwrap().file;
        std::io::Seek::rewind(&mut packed).unwrap();
        let mut modes = std::collections::BTreeMap::new();
        for entry in tar::Archive::new(GzDecoder::new(packed)).entries().unwrap() {
            let entry = entry.unwrap();
            modes.insert(entry.path().unwrap().into_owned(), entry.header().mode().unwrap());
        }
        let Some(name) = case["entry"].as_str() else { continue };
        let mode = modes[std::path::Path::new(name.trim_end_matches('/'))];
        let has = case["mode_after_has"].as_str().map_or(0o600, |mode| u32::from_str_radix(mode, 8).unwrap());
        assert_eq!(mode & has, has, "{case}: {mode:o}");
    }
    assert_eq!(left_out, [OF_A_DISK]);
    tell(format_args!(
        "untar.json: {} of {} as expected, {} of a disk",
        cases.len() - 1,
        cases.len(),
        left_out.len()
    ));
}

fn is_folder(case: &Value) -> bool {
    case["entry"].as_str().is_some_and(|name| name.ends_with('/'))
}
