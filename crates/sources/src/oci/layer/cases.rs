//! The cases beside the repository (`../shared/source-cases`): what stays of a tree, by the lines of its artifact, and an artifact as Flux packs
//! it, byte for byte.

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicBool;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::unpack;
use crate::source_cases::source_cases;
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
    eprintln!("source-cases: ignore.json: {} of {} as expected", cases.len() - wrong.len(), cases.len());
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
    eprintln!("source-cases: artifact/golden.tar.gz: as expected");
}

/// `untar.json`: names and kinds of entries. Folders that nobody may write to are of no account here: nothing is unpacked to a disk.
#[test]
fn entries_are_refused_that_flux_refuses() {
    let Some(all) = source_cases("untar.json") else { return };
    let cases: Value = serde_json::from_slice(&all["untar.json"]).unwrap();
    let mut run = 0;
    for case in cases["cases"].as_array().unwrap() {
        let (Some(name), true) = (case["entry"].as_str(), case["max"].is_null()) else { continue };
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(if name.ends_with('/') {
            tar::EntryType::Directory
        } else {
            tar::EntryType::Regular
        });
        header.set_mode(0o644);
        header.set_size(0);
        header.set_cksum();
        let mut tar = tar::Builder::new(Vec::new());
        tar.append(&header, std::io::empty()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let layer = zipped(&tar.into_inner().unwrap());
        let unpacked =
            unpack(layer.as_slice(), &TreeLimits::default(), folder.path(), &AtomicBool::new(false));
        assert_eq!(unpacked.is_ok(), case["ok"] == true, "{case}");
        run += 1;
    }
    assert!(run >= 7, "{run}");
    eprintln!("source-cases: untar.json: {run} names as expected");
}
