use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::EntryType;

use super::*;
use crate::attempt::InProcess;
use crate::tree::{Entry, TreeBuilder};

fn limits() -> TreeLimits {
    TreeLimits { entries: 4, file_bytes: 1 << 20, total_bytes: 1 << 20, ..TreeLimits::default() }
}

async fn uploaded(bytes: &[u8]) -> Uploaded {
    let mut intake = Intake::new(16 << 20, None, None);
    for piece in bytes.chunks(1_000) {
        intake.take(piece).await.unwrap();
    }
    intake.finish().await.unwrap()
}

async fn looked(bytes: &[u8]) -> Result<Looked, String> {
    let uploaded = uploaded(bytes).await;
    assert_eq!((uploaded.digest(), uploaded.bytes()), (Digest::of(bytes), bytes.len() as u64));
    let looked = uploaded.look(&limits(), &InProcess::default(), &CancellationToken::new()).await;
    looked.map_err(|error| error.to_string())
}

/// A tar.gz of these entries, by their bare headers.
fn packed(entries: &[(&str, EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, kind, target, content) in entries {
        let mut header = tar::Header::new_ustar();
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[tokio::test]
async fn what_is_brought_is_kept_as_it_came() {
    let mut builder = TreeBuilder::new(limits());
    let file = Entry::File { bytes: b"a: 1\n".to_vec(), executable: false };
    builder.insert("deploy/a.yaml".to_owned(), file).unwrap();
    let artifact = crate::pack(&builder.finish().unwrap()).unwrap();
    assert_eq!(looked(&artifact.bytes).await, Ok(Looked { files: 1, unpacked_bytes: 5 }));
    let room = Room { pool: Pool::new("artifacts", 1 << 20), copies: 2 };
    let (bytes, held) = uploaded(&artifact.bytes).await.read(&room).await.unwrap();
    assert_eq!(bytes, artifact.bytes);
    assert!(room.pool.used() >= 2 * bytes.len() as u64);
    drop(held);
    assert_eq!(room.pool.used(), 0);
}

#[tokio::test]
async fn what_other_tools_pack_is_taken() {
    // As `git archive` and `tar` do it: a note of the commit, folders, links within.
    let entries: [(&str, EntryType, &str, &[u8]); 5] = [
        (
            "pax_global_header",
            EntryType::XGlobalHeader,
            "",
            b"52 comment=0123456789012345678901234567890123456789\n",
        ),
        ("./", EntryType::Directory, "", b""),
        ("./base/", EntryType::Directory, "", b""),
        ("./base/a.yaml", EntryType::Regular, "", b"a: 1\n"),
        ("./current", EntryType::Symlink, "base/a.yaml", b""),
    ];
    assert_eq!(looked(&packed(&entries)).await, Ok(Looked { files: 2, unpacked_bytes: 5 }));
}

#[tokio::test]
async fn what_is_no_artifact_is_refused_by_name() {
    let file = |name| (name, EntryType::Regular, "", b"x".as_slice());
    let five = ["a", "b", "c", "d", "e"].map(file);
    for (bytes, said) in [
        (b"not a tarball at all".to_vec(), "not a complete tar.gz"),
        (Vec::new(), "not a complete tar.gz"),
        (packed(&[file("../outside")]), "`../outside` is refused"),
        (packed(&[file("/etc/passwd")]), "`/etc/passwd` is refused"),
        (packed(&[file("a/../../b")]), "`a/../../b` is refused"),
        (packed(&[file("a"), file("a")]), "occurs twice"),
        (packed(&[("out", EntryType::Symlink, "../secret", b"")]), "leads out"),
        (packed(&[file("a"), ("b", EntryType::Link, "a", b"")]), "`b` of kind Link"),
        (packed(&[("dev", EntryType::Char, "", b"")]), "`dev` of kind Char"),
        (packed(&five), "more than 4 files"),
        (packed(&[("big", EntryType::Regular, "", &[0; (1 << 20) + 1])]), "bytes in one file"),
    ] {
        let why = looked(&bytes).await.unwrap_err();
        assert!(why.contains(said), "{said}: {why}");
    }
    // Cut, and with something behind it.
    let whole = packed(&[file("a")]);
    for broken in [&whole[..whole.len() - 3], [whole.as_slice(), b"more"].concat().as_slice()] {
        assert!(looked(broken).await.unwrap_err().contains("not a complete tar.gz"));
    }
}

#[tokio::test]
async fn a_bomb_is_not_unpacked_to_its_end() {
    // A thousand times as long when it is unpacked, of zeros that no header announces.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        bomb.write_all(&zeros).unwrap();
    }
    let why = looked(&bomb.finish().unwrap()).await.unwrap_err();
    assert!(why.contains("not a complete tar.gz") || why.contains("bytes unpacked"), "{why}");
    // And within an entry that says so.
    let large = packed(&[("big", EntryType::Regular, "", &vec![0; 8 << 20])]);
    assert!(large.len() < 256 << 10);
    assert!(looked(&large).await.unwrap_err().contains("bytes in one file"));
}

#[tokio::test]
async fn what_is_too_long_ends_where_it_is() {
    let mut intake = Intake::new(10, None, None);
    intake.take(b"1234567890").await.unwrap();
    let refused = intake.take(b"1").await.unwrap_err();
    assert!(matches!(refused, UploadError::TooLarge { most: 10 }), "{refused}");
    // All uploads have so much of the disk, and what one had is free again.
    let disk = Pool::new("disk", 1 << 20);
    let mut first = Intake::new(u64::MAX, Some(disk.clone()), None);
    first.take(&vec![0; 1 << 20]).await.unwrap();
    let mut second = Intake::new(u64::MAX, Some(disk.clone()), None);
    let refused = second.take(b"1").await.unwrap_err();
    assert!(matches!(refused, UploadError::NoDisk), "{refused}");
    drop(first);
    assert_eq!(disk.used(), 0);
}
