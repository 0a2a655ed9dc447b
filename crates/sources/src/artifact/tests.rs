use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::{ArtifactError, pack, unpack};
use crate::tree::{Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits};

fn build(entries: impl IntoIterator<Item = (String, Entry)>) -> Tree {
    let mut builder = TreeBuilder::new(TreeLimits::default());
    for (path, entry) in entries {
        builder.insert(path, entry).unwrap();
    }
    builder.finish().unwrap()
}

fn file(bytes: &[u8]) -> Entry {
    Entry::File { bytes: bytes.to_vec(), executable: false }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A tar.gz with one entry whose name is written as it is, which tar's own builder would refuse.
fn raw(name: &[u8], kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut tar = tar::Builder::new(Vec::new());
    tar.append(&header, content).unwrap();
    gzip(&tar.into_inner().unwrap())
}

#[test]
fn the_same_tree_has_the_same_digest() {
    let a = [("b/x".to_owned(), file(b"1")), ("a".to_owned(), file(b"2"))];
    let mut b = a.clone();
    b.reverse();
    let artifact = pack(&build(a)).unwrap();
    assert_eq!(artifact, pack(&build(b)).unwrap());
    assert_ne!(artifact.digest, pack(&build([("a".to_owned(), file(b"2"))])).unwrap().digest);
    // Pinned: a change of the packer (or of the compressor beneath it) gives every source a new digest, which should be
    // a decision and not an accident.
    assert_eq!(
        artifact.digest.to_string(),
        "sha256:6341a5e4e6cad12a35aec33d0667dc6baeb1708a43e0b4ba9b039ea132aab3b0"
    );
    assert_eq!(
        (artifact.files, artifact.unpacked_bytes, artifact.size()),
        (2, 2, artifact.bytes.len() as u64)
    );
}

#[test]
fn tar_itself_reads_it() {
    let long = format!("{}/{}/file.yaml", "d".repeat(90), "e".repeat(90));
    let tree = build([
        (long.clone(), file(b"deep")),
        ("run.sh".to_owned(), Entry::File { bytes: b"#!".to_vec(), executable: true }),
        ("link".to_owned(), Entry::Symlink { target: format!("./{long}") }),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("artifact.tar.gz");
    std::fs::write(&path, pack(&tree).unwrap().bytes).unwrap();
    let status =
        std::process::Command::new("tar").arg("xzf").arg(&path).current_dir(folder.path()).status().unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read(folder.path().join("link")).unwrap(), b"deep");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &folder.path().join("run.sh").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn hostile_names_are_refused() {
    for name in [b"../x".as_slice(), b"/etc/passwd", b"a/../../x", b"a//b", b"\xff", b""] {
        let result = unpack(&raw(name, tar::EntryType::Regular, b"x"), &TreeLimits::default());
        assert!(result.is_err(), "{name:?}: {result:?}");
    }
    assert!(
        unpack(&raw(b"./a", tar::EntryType::Regular, b"x"), &TreeLimits::default())
            .unwrap()
            .get("a")
            .is_some()
    );
}

#[test]
fn other_kinds_are_refused() {
    for kind in [tar::EntryType::Link, tar::EntryType::Fifo, tar::EntryType::Char, tar::EntryType::GNUSparse]
    {
        let result = unpack(&raw(b"a", kind, b""), &TreeLimits::default());
        assert!(result.is_err(), "{kind:?}: {result:?}");
    }
}

#[test]
fn bombs_end_early() {
    let limits = TreeLimits { entries: 10, file_bytes: 1_000, total_bytes: 2_000, ..TreeLimits::default() };
    // A header that says how large it is.
    let big = raw(b"a", tar::EntryType::Regular, &vec![0; 100_000]);
    let measure = |bytes: &[u8]| match unpack(bytes, &limits) {
        Err(ArtifactError::Tree(TreeError::TooLarge { measure, .. })) => Some(measure),
        other => panic!("{other:?}"),
    };
    assert_eq!(measure(&big), Some(Measure::FileBytes));
    // A long name without end: nothing in its header is checked before it is read.
    let name = raw(b"././@LongLink", tar::EntryType::GNULongName, &vec![b'x'; 50_000_000]);
    assert_eq!(measure(&name), Some(Measure::UnpackedBytes));
    let pax = raw(b"pax", tar::EntryType::XHeader, &vec![b'x'; 50_000_000]);
    assert_eq!(measure(&pax), Some(Measure::UnpackedBytes));
    // Many folders.
    let mut tar = tar::Builder::new(Vec::new());
    for n in 0..100 {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        tar.append_data(&mut header, format!("d{n}"), std::io::empty()).unwrap();
    }
    assert_eq!(measure(&gzip(&tar.into_inner().unwrap())), Some(Measure::Entries));
}

#[test]
fn damage_is_noticed() {
    let whole = pack(&build([("a".to_owned(), file(b"hello"))])).unwrap().bytes;
    let limits = TreeLimits::default();
    assert!(unpack(&whole, &limits).is_ok());
    for length in 0..whole.len() {
        assert!(unpack(&whole[..length], &limits).is_err(), "cut at {length}");
    }
    let mut longer = whole.clone();
    longer.extend_from_slice(b"more");
    assert!(unpack(&longer, &limits).is_err());
    let at = whole.len() - 6;
    let mut wrong = whole;
    wrong[at] ^= 1;
    assert!(unpack(&wrong, &limits).is_err(), "the checksum was not looked at");
}

fn any_entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        4 => (prop::collection::vec(any::<u8>(), 0..2_000), any::<bool>())
            .prop_map(|(bytes, executable)| Entry::File { bytes, executable }),
        1 => "[a-z]{1,8}(/[a-zé .]{1,60}){0,3}".prop_map(|target| Entry::Symlink { target }),
    ]
}

proptest! {
    #[test]
    fn unpack_gives_back_what_was_packed(
        entries in prop::collection::btree_map("[a-zé][a-z .\\-]{0,60}(/[a-z][a-zA-Z0-9ü]{0,70}){0,3}", any_entry(), 0..12)
    ) {
        let mut builder = TreeBuilder::new(TreeLimits::default());
        for (path, entry) in entries {
            builder.insert(path, entry).unwrap();
        }
        // Not every such set of entries is a tree (one may lie beneath another, a link may lead out by `..`).
        if let Ok(tree) = builder.finish() {
            let artifact = pack(&tree).unwrap();
            prop_assert_eq!(unpack(&artifact.bytes, &TreeLimits::default()).unwrap(), tree);
        }
    }

    #[test]
    fn unpack_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let limits = TreeLimits { entries: 10, file_bytes: 1_000, total_bytes: 2_000, ..TreeLimits::default() };
        let _ = unpack(&bytes, &limits);
        let _ = unpack(&gzip(&bytes), &limits);
    }
}
