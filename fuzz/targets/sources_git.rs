//! Fuzzes the reader of what Git servers send: greetings, answers, packs and what is in them. The first byte says which, and how much of
//! what a fuzzer would hardly find by itself (lengths, checksums, ids of objects) is made here.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use std::io::Write as _;
use std::sync::atomic::AtomicBool;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use oracle::{Allowance, hold};
use roadstead_sources::{GitLimits, Line, read};
use serde_json::json;
use sha1::{Digest as _, Sha1};

/// Packs lie on the disk; of an object as much is in memory as the limits below allow.
const ALLOWANCE: Allowance = Allowance { bytes: 10_000, nanos: 200_000 };

/// The commit of the seeds' packs.
const COMMIT: &str = "3344334798f7de87f6a1ed290b68a8786823e359";
const GREETING: &[&str] = &[
    "version 2\n",
    "agent=git/2.47.3\n",
    "ls-refs=unborn\n",
    "fetch=shallow wait-for-done\n",
    "object-format=sha1\n",
];

/// The number that a pack has for a kind of object, and what its id is computed with.
const KINDS: [(u8, &str); 3] = [(1, "commit"), (2, "tree"), (3, "blob")];

/// A line of Git's protocol.
fn line(to: &mut Vec<u8>, content: &[&[u8]]) {
    let length = 4 + content.iter().map(|part| part.len()).sum::<usize>();
    to.extend_from_slice(format!("{length:04x}").as_bytes());
    content.iter().for_each(|part| to.extend_from_slice(part));
}

fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    line(&mut bytes, &[b"# service=git-upload-pack\n"]);
    bytes.extend_from_slice(b"0000");
    GREETING.iter().for_each(|text| line(&mut bytes, &[text.as_bytes()]));
    bytes.extend_from_slice(b"0000");
    bytes
}

/// The answer that brings a pack.
fn in_band(pack: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    line(&mut bytes, &[b"packfile\n"]);
    pack.chunks(60_000).for_each(|part| line(&mut bytes, &[&[1], part]));
    bytes.extend_from_slice(b"0000");
    bytes
}

/// A pack of so many entries, which are there already.
fn pack(count: u32, entries: &[u8]) -> Vec<u8> {
    let mut bytes = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &count.to_be_bytes(), entries].concat();
    let trailer = Sha1::digest(&bytes);
    bytes.extend_from_slice(&trailer);
    bytes
}

/// Adds an object to the entries of a pack, and gives its id.
fn object(entries: &mut Vec<u8>, kind: usize, content: &[u8]) -> [u8; 20] {
    let (number, name) = KINDS[kind];
    let mut size = content.len();
    let mut byte = number << 4 | (size & 15) as u8;
    size >>= 4;
    while size > 0 {
        entries.push(byte | 0x80);
        byte = (size & 0x7f) as u8;
        size >>= 7;
    }
    entries.push(byte);
    let mut packed = ZlibEncoder::new(entries, Compression::fast());
    packed.write_all(content).and_then(|()| packed.finish().map(drop)).expect("memory takes all");
    let mut hash = Sha1::new();
    hash.update(format!("{name} {}\0", content.len()));
    hash.update(content);
    hash.finalize().into()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A commit whose tree has these lines, each a mode, a space and a name; what comes behind an empty line is in all files.
fn tree(text: &[u8]) -> (String, Vec<u8>) {
    let end = text.windows(2).position(|pair| pair == b"\n\n").unwrap_or(text.len());
    let (lines, content) = (&text[..end], text.get(end + 2..).unwrap_or_default());
    let mut entries = Vec::new();
    let blob = object(&mut entries, 2, content);
    let below = object(
        &mut entries,
        1,
        &[b"100644 .sourceignore\0".as_slice(), &blob, b"100755 run\0", &blob].concat(),
    );
    let mut all = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(1_000) {
        let id = if line.starts_with(b"4") { &below } else { &blob };
        all.extend_from_slice(line);
        all.push(0);
        all.extend_from_slice(id);
    }
    let root = object(&mut entries, 1, &all);
    let commit = format!("tree {}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nseed\n", hex(&root));
    let commit = object(&mut entries, 0, commit.as_bytes());
    (hex(&commit), pack(4, &entries))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, sent)) = bytes.split_first() else { return };
    let mut answers = vec![greeting()];
    let mut commit = COMMIT.to_owned();
    let by_name = which % 6 >= 4;
    match which % 6 {
        0 => answers.push(sent.to_vec()),
        1 => answers.push(in_band(sent)),
        2 => {
            let Some((count, entries)) = sent.split_first() else { return };
            answers.push(in_band(&pack(u32::from(*count), entries)));
        }
        3 => {
            let (id, pack) = tree(sent);
            commit = id;
            answers.push(in_band(&pack));
        }
        4 => answers = vec![sent.to_vec()],
        // What a server says of its references.
        _ => answers.push(sent.to_vec()),
    }
    let mut limits =
        GitLimits { objects: 5_000, object_bytes: 1 << 20, artifact_bytes: 4 << 20, ..GitLimits::default() };
    limits.tree.total_bytes = 4 << 20;
    limits.tree.file_bytes = 1 << 20;
    let reference = if by_name {
        json!({ "Name": "refs/heads/main" })
    } else {
        json!({ "Commit": { "id": commit, "branch": null } })
    };
    let mut headings = vec!["application/x-git-upload-pack-advertisement"];
    headings.resize(answers.len(), "application/x-git-upload-pack-result");
    let order = json!({ "Git": {
        "reference": reference, "known": null, "ignore": null, "sparse": [], "limits": limits, "verify": null, "unverified": null,
        "remembered": [], "now": 1_800_000_000, "find_only": false, "recurse": true, "first": 0, "headings": headings, "modules": [],
        "includes": 0, "include": [],
    } });
    let line = Line::new(move |question| {
        // Bytes of an answer from there on; whatever is brought is taken.
        let Some((1, rest)) = question.split_first() else { return Ok(Vec::new()) };
        let answer = rest.first().and_then(|number| answers.get(usize::from(*number)));
        let from = rest.get(1..9).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        let from = from.and_then(|from| usize::try_from(from).ok()).unwrap_or(usize::MAX);
        Ok(answer.and_then(|answer| answer.get(from..)).unwrap_or_default().to_vec())
    });
    let Ok(folder) = tempfile::tempdir() else { return };
    let reply = read(order.to_string().as_bytes(), folder.path(), &line, &AtomicBool::new(false));
    assert!(!reply.is_empty(), "an order that cannot be read");
}));
