use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use flate2::write::GzEncoder;

use super::{Packed, unpack};
use crate::tree::{Entry, TreeLimits};

/// A tar.gz of these entries, by their bare headers: the library's own writer refuses some of what is tested.
struct Layer(tar::Builder<GzEncoder<Vec<u8>>>);

impl Layer {
    fn new() -> Self {
        Self(tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::fast())))
    }

    fn entry(mut self, name: &str, kind: tar::EntryType, mode: u32, content: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(name, tar::EntryType::Regular, 0o640, content.as_bytes())
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap().finish().unwrap()
    }
}

fn packed(layer: &[u8], ignore: Option<&str>, limits: &TreeLimits) -> Result<Packed, String> {
    let folder = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let unpacked = unpack(layer, limits, folder.path(), &stop);
    unpacked
        .and_then(|unpacked| unpacked.pack(ignore, limits, folder.path(), &stop))
        .map_err(|error| error.to_string())
}

/// Path, content and mode of all files that the layer comes to.
fn files(layer: &[u8], ignore: Option<&str>) -> Result<Vec<(String, String, bool)>, String> {
    use std::os::unix::fs::FileExt as _;
    let packed = packed(layer, ignore, &TreeLimits::default())?;
    let mut bytes = vec![0; usize::try_from(packed.file.metadata().unwrap().len()).unwrap()];
    packed.file.read_exact_at(&mut bytes, 0).unwrap();
    let tree = crate::unpack(&bytes, &TreeLimits::default()).unwrap();
    assert_eq!((packed.files, packed.unpacked_bytes), (tree.len(), tree.bytes()));
    let line = |(path, entry): (String, Entry)| match entry {
        Entry::File { bytes, executable } => (path, String::from_utf8(bytes).unwrap(), executable),
        Entry::Symlink { .. } => panic!("a link came through"),
    };
    Ok(tree.into_iter().map(line).collect())
}

fn names(layer: Layer, ignore: Option<&str>) -> Vec<String> {
    files(&layer.bytes(), ignore).unwrap().into_iter().map(|(path, _, _)| path).collect()
}

#[test]
fn files_come_as_they_are_whatever_their_order_and_the_last_of_a_name_counts() {
    let layer = Layer::new()
        .entry("./", tar::EntryType::Directory, 0o755, b"")
        .file("./z.yaml", "z")
        .entry("b/", tar::EntryType::Directory, 0o555, b"")
        .file("b/run.sh", "old")
        .file("a.yaml", "a")
        .entry("b/run.sh", tar::EntryType::Regular, 0o755, b"new");
    let expected = [("a.yaml", "a", false), ("b/run.sh", "new", true), ("z.yaml", "z", false)];
    let expected = expected.map(|(path, text, executable)| (path.to_owned(), text.to_owned(), executable));
    assert_eq!(files(&layer.bytes(), None).unwrap(), expected);
}

#[test]
fn patterns_of_folders_and_of_the_spec_leave_files_out() {
    let layer = || {
        Layer::new()
            .file("apps/deep/drop.yaml", "")
            .file("apps/deep/keep.yaml", "")
            .file("apps/.sourceignore", "drop.yaml\n")
            .file("apps.yaml", "")
            .file("logo.png", "")
            .file("drop.yaml", "")
    };
    let kept = names(layer(), None);
    assert_eq!(kept[..3], ["apps.yaml", "apps/.sourceignore", "apps/deep/keep.yaml"].map(str::to_owned));
    assert!(kept.contains(&"drop.yaml".to_owned()), "{kept:?}");
    assert_eq!(
        names(layer(), Some("/*\n!/apps\n")),
        ["apps/.sourceignore", "apps/deep/drop.yaml", "apps/deep/keep.yaml"]
    );
}

#[test]
fn links_are_left_out_and_counted() {
    let layer = Layer::new().entry("link", tar::EntryType::Symlink, 0o777, b"").file("a", "a").bytes();
    let packed = packed(&layer, None, &TreeLimits::default()).unwrap();
    assert_eq!(packed.files, 1);
    let notes: Vec<String> = packed.notes.iter().map(ToString::to_string).collect();
    assert!(notes.len() == 1 && notes[0].contains("`link`"), "{notes:?}");
}

#[test]
fn names_that_lead_elsewhere_and_other_kinds_are_refused() {
    for name in ["../abc/file", "/abs", "a\\b", "", "a/../../b", "a/..", "a//b", "a/./b", "..", ".", "./"] {
        let layer = Layer::new().file("ok", "").file(name, "").bytes();
        assert!(files(&layer, None).is_err(), "{name:?} was taken");
    }
    for kind in [tar::EntryType::Link, tar::EntryType::Char, tar::EntryType::Fifo, tar::EntryType::Block] {
        let layer = Layer::new().entry("x", kind, 0o644, b"").bytes();
        assert!(files(&layer, None).unwrap_err().contains("only files and folders"), "{kind:?}");
    }
    let beneath = Layer::new().file("a", "").file("a/b", "").bytes();
    assert!(files(&beneath, None).is_err(), "a file was taken for a folder");
}

#[test]
fn long_names_are_read_and_bounded() {
    let name = format!("{}/{}", "d".repeat(150), "f".repeat(150));
    let gnu = Layer::new()
        .entry("././@LongLink", tar::EntryType::GNULongName, 0o644, format!("{name}\0").as_bytes())
        .file("short", "1");
    assert_eq!(names(gnu, None), [name.as_str()]);
    let record = |key: &str, value: &str| {
        let body = format!(" {key}={value}\n");
        let length = (body.len() + 3).to_string();
        assert_eq!(length.len(), 3);
        format!("{length}{body}")
    };
    let pax = Layer::new()
        .entry("pax", tar::EntryType::XHeader, 0o644, record("path", &name).as_bytes())
        .file("short", "1");
    assert_eq!(names(pax, None), [name.as_str()]);
    let sized = record("size", &"1".repeat(100));
    for (kind, content) in [
        (tar::EntryType::XHeader, sized.into_bytes()),
        (tar::EntryType::XHeader, vec![b'x'; 70 << 10]),
        (tar::EntryType::GNULongName, vec![b'x'; 70 << 10]),
        (tar::EntryType::GNULongName, b"../../escaped".to_vec()),
    ] {
        let layer = Layer::new().entry("x", kind, 0o644, &content).file("short", "1").bytes();
        assert!(files(&layer, None).is_err(), "{kind:?} of {} bytes", content.len());
    }
}

#[test]
fn sizes_and_counts_are_bounded_before_they_are_kept() {
    let limits = TreeLimits { entries: 3, total_bytes: 1_000, file_bytes: 500, ..TreeLimits::default() };
    let told = |layer: &[u8]| packed(layer, None, &limits).map(|_| ()).unwrap_err();
    let large = Layer::new().file("a", &"x".repeat(600)).bytes();
    assert!(told(&large).contains("in one file"), "{}", told(&large));
    let all = Layer::new().file("a", &"x".repeat(500)).file("b", &"x".repeat(501)).bytes();
    assert!(told(&all).contains("in all files"), "{}", told(&all));
    let many = (0..4).fold(Layer::new(), |layer, n| layer.file(&n.to_string(), "")).bytes();
    assert!(told(&many).contains("3 files"), "{}", told(&many));
    // Nothing but zeros after its end: a bomb that no entry announces.
    let mut bomb = GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![0; 4 << 20]).unwrap();
    assert!(told(&bomb.finish().unwrap()).contains("unpacked"));
    // What is left out may be large, as long as all of it is not.
    let left_out = Layer::new().file("a.zip", &"x".repeat(600)).file("b", "").bytes();
    assert_eq!(packed(&left_out, None, &limits).unwrap().files, 1);
}

#[test]
fn what_is_no_whole_archive_is_refused() {
    let whole = Layer::new().file("a", &"x".repeat(10_000)).bytes();
    for bytes in [&whole[..whole.len() - 4], &whole[..whole.len() / 2], b"not gzip", b""] {
        assert!(files(bytes, None).unwrap_err().contains("not a complete tar.gz"), "{} bytes", bytes.len());
    }
    let mut changed = whole.clone();
    let end = changed.len() - 6;
    changed[end] ^= 1;
    assert!(files(&changed, None).is_err(), "the checksum was not looked at");
}
