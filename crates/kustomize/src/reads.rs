//! What a build asks of its tree. A tree that gives the same answers builds to the same objects, so the build need not run again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::tree::{Entry, EntryKind, FileTree, MemoryTree, TreeError, TreePath};

/// Questions that are recorded of one build. Where it asks more, what it read counts as unknown.
const MOST: usize = 20_000;

/// Something that a build asks of its tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Kind(TreePath),
    Content(TreePath),
    Entries(TreePath),
}

/// All that a build asked of its tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads(BTreeSet<Question>);

/// A tree that remembers what it was asked.
#[derive(Debug)]
pub struct Recorder<'a> {
    tree: &'a MemoryTree,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    reads: Reads,
    /// It asked for too much, or what is not told by content alone.
    unknown: bool,
}

impl<'a> Recorder<'a> {
    /// Remembers what is asked of `tree` from now on.
    pub fn new(tree: &'a MemoryTree) -> Self {
        Self { tree, asked: Mutex::default() }
    }

    /// What was asked; none where that is not known.
    pub fn finish(self) -> Option<Reads> {
        let Asked { reads, unknown } = self.asked.into_inner().unwrap_or_else(PoisonError::into_inner);
        (!unknown).then_some(reads)
    }

    fn note(&self, question: Question) {
        // A set is whole at any time.
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.reads.0.len() < MOST || asked.reads.0.contains(&question) {
            asked.reads.0.insert(question);
        } else {
            asked.unknown = true;
        }
    }
}

impl FileTree for Recorder<'_> {
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
        self.note(Question::Kind(path.clone()));
        self.tree.kind(path)
    }

    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
        self.note(Question::Content(path.clone()));
        let read = self.tree.read(path, limit);
        if matches!(read, Err(TreeError::TooLarge { .. })) {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).unknown = true;
        }
        read
    }

    fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError> {
        self.note(Question::Entries(dir.clone()));
        self.tree.entries(dir)
    }
}

/// A tree of which only the digests of its files are known.
#[derive(Debug, Clone, Default)]
pub struct TreeIndex(MemoryTree);

/// SHA-256 of a file's bytes.
pub type ContentDigest = [u8; 32];

impl TreeIndex {
    /// The index of a tree without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file.
    pub fn insert_file(&mut self, path: TreePath, digest: ContentDigest) {
        self.0.insert_file(path, digest);
    }

    /// Adds a symbolic link.
    pub fn insert_symlink(&mut self, path: TreePath, target: impl Into<String>) {
        self.0.insert_symlink(path, target);
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|(path, _)| 160 + path.as_str().len()).sum()
    }
}

/// What a file's bytes are.
pub fn content_digest(bytes: &[u8]) -> ContentDigest {
    Sha256::digest(bytes).into()
}

impl Reads {
    /// A digest of a tree's answers to all of it.
    pub fn answers_of(&self, tree: &MemoryTree) -> ContentDigest {
        self.answers(tree, content_digest)
    }

    /// The same of a tree of which the index is known.
    pub fn answers_by(&self, index: &TreeIndex) -> ContentDigest {
        // Its files hold the digests.
        self.answers(&index.0, |digest| digest.try_into().unwrap_or_default())
    }

    fn answers(&self, tree: &MemoryTree, digest: impl Fn(&[u8]) -> ContentDigest) -> ContentDigest {
        let mut hash = Sha256::new();
        // Each part with its length, so that no two lists of answers are one.
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for question in &self.0 {
            match question {
                Question::Kind(path) => match tree.kind(path) {
                    Ok(Some(kind)) => told(&kind, &mut part),
                    Ok(None) => part(b"nothing"),
                    Err(_) => part(b"error"),
                },
                Question::Content(path) => match tree.read(path, usize::MAX) {
                    Ok(bytes) => part(&digest(&bytes)),
                    Err(_) => part(b"no file"),
                },
                Question::Entries(path) => {
                    for Entry { name, kind } in tree.entries(path).unwrap_or_default() {
                        part(name.as_bytes());
                        told(&kind, &mut part);
                    }
                }
            }
            part(b"");
        }
        hash.finalize().into()
    }

    /// As text: a line for each question. None where a path has a line break.
    pub fn to_text(&self) -> Option<String> {
        let mut text = String::new();
        for question in &self.0 {
            let (sign, path) = match question {
                Question::Kind(path) => ('k', path),
                Question::Content(path) => ('c', path),
                Question::Entries(path) => ('e', path),
            };
            if path.as_str().contains('\n') {
                return None;
            }
            text.push(sign);
            text.push_str(path.as_str());
            text.push('\n');
        }
        Some(text)
    }

    /// Reads what [`Self::to_text`] wrote; none where it is something else, or too much.
    pub fn from_text(text: &str) -> Option<Self> {
        let question = |line: &str| {
            let (sign, path) = line.split_at_checked(1)?;
            let path = TreePath::new(path).filter(|read| read.as_str() == path)?;
            Some(match sign {
                "k" => Question::Kind(path),
                "c" => Question::Content(path),
                "e" => Question::Entries(path),
                _ => return None,
            })
        };
        let questions: BTreeSet<_> = text.lines().take(MOST + 1).map(question).collect::<Option<_>>()?;
        (questions.len() <= MOST).then_some(Self(questions))
    }
}

fn told(kind: &EntryKind, mut part: impl FnMut(&[u8])) {
    match kind {
        EntryKind::File => part(b"file"),
        EntryKind::Directory => part(b"directory"),
        EntryKind::Symlink { target } => {
            part(b"link");
            part(target.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Node;
    use crate::{Options, build};

    fn path(text: &str) -> TreePath {
        TreePath::new(text).unwrap()
    }

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        let mut tree = MemoryTree::new();
        for (name, text) in files {
            match text.strip_prefix("-> ") {
                Some(target) => tree.insert_symlink(path(name), target),
                None => tree.insert_file(path(name), *text),
            }
        }
        tree
    }

    fn index(tree: &MemoryTree) -> TreeIndex {
        let mut index = TreeIndex::new();
        for (path, node) in tree.iter() {
            match node {
                Node::File(bytes) => index.insert_file(path.clone(), content_digest(bytes)),
                Node::Symlink(target) => index.insert_symlink(path.clone(), target),
                Node::Directory => {}
            }
        }
        index
    }

    fn reads(tree: &MemoryTree, dir: &str) -> Reads {
        let recorder = Recorder::new(tree);
        build(&recorder, &path(dir), &Options::default()).unwrap();
        recorder.finish().unwrap()
    }

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: '1'}\n";
    const FILES: [(&str, &str); 5] = [
        ("base/kustomization.yaml", "resources: [map.yaml]\n"),
        ("base/map.yaml", MAP),
        ("app/kustomization.yaml", "resources: [../base]\nnamePrefix: x-\n"),
        ("app/readme.md", "of no concern\n"),
        ("other/kustomization.yaml", "resources: []\n"),
    ];

    fn with(changes: &[(&str, &str)]) -> MemoryTree {
        tree(&[&FILES, changes].concat())
    }

    #[test]
    fn only_what_a_build_read_changes_its_answers() {
        let first = with(&[]);
        let reads = reads(&first, "app");
        let answers = reads.answers_of(&first);
        assert_eq!(reads.answers_by(&index(&first)), answers);
        for same in [
            &[("other/kustomization.yaml", "namePrefix: y-\n")][..],
            &[("app/readme.md", "changed")],
            &[("app/more.md", "new"), ("new/deep/file", "x")],
        ] {
            let second = with(same);
            assert_eq!(reads.answers_of(&second), answers, "{same:?}");
            assert_eq!(reads.answers_by(&index(&second)), answers, "{same:?}");
        }
        for other in [
            &[("base/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n")][..],
            &[("app/kustomization.yaml", "resources: [../base]\n")],
            // It is looked for before the one that is there.
            &[("app/kustomization.yml", "resources: []\n")],
            &[("base/Kustomization", "resources: []\n")],
            &[("base/map.yaml", "-> ../app/readme.md")],
        ] {
            let second = with(other);
            assert_ne!(reads.answers_of(&second), answers, "{other:?}");
            assert_eq!(reads.answers_by(&index(&second)), reads.answers_of(&second), "{other:?}");
        }
        let gone = tree(&FILES[1..]);
        assert_ne!(reads.answers_of(&gone), answers);
    }

    #[test]
    fn a_text_is_read_back_and_anything_else_is_refused() {
        let reads = reads(&with(&[]), "app");
        let text = reads.to_text().unwrap();
        assert_eq!(Reads::from_text(&text), Some(reads));
        for bad in ["x", "kapp/../..", "k/abs", "ka//b", "é", "k../x"] {
            assert_eq!(Reads::from_text(bad), None, "{bad}");
        }
        let many = (0..=MOST).map(|number| format!("kf{number}\n")).collect::<String>();
        assert_eq!(Reads::from_text(&many), None);
        let odd = tree(&[("a\nb", MAP)]);
        let recorder = Recorder::new(&odd);
        recorder.kind(&path("a\nb")).unwrap();
        assert_eq!(recorder.finish().unwrap().to_text(), None);
    }

    #[test]
    fn what_is_too_large_or_too_much_is_not_known() {
        let tree = with(&[]);
        let recorder = Recorder::new(&tree);
        assert!(recorder.read(&path("base/map.yaml"), 3).is_err());
        assert_eq!(recorder.finish(), None);
        let recorder = Recorder::new(&tree);
        for number in 0..=MOST {
            recorder.kind(&path(&number.to_string())).unwrap();
        }
        assert_eq!(recorder.finish(), None);
    }
}
