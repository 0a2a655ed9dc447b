//! Bounds on what a build may read and make.

/// How much a build may take. Every bound ends the build with an error that names it.
///
/// The defaults let pass what people keep in repositories (a hundred thousand objects), and end everything else within
/// some seconds and four gigabytes. Whoever builds what is untrusted derives them from the memory that a build may take:
///
/// ```
/// use roadstead_kustomize::{Limits, Options};
///
/// let mut limits = Limits::within(200 << 20);
/// limits.objects = 5_000;
/// let options = Options { limits, ..Options::default() };
/// # let _ = options;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Memory of a build in bytes: what it holds at any one time, from the first file read to the finished objects.
    ///
    /// Not counted: the tree itself, the builtin tables (about 4 MiB, once per process), and what the caller makes of the
    /// objects afterwards. What a build makes is counted before it is made, by estimates that are at least what the
    /// allocator hands out, so the heap stays below this figure whatever the input is.
    pub memory: usize,
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Bytes read in all, counting a file as often as it is read.
    pub total_bytes: usize,
    /// How deep lists and mappings may nest.
    pub depth: usize,
    /// Values in one file, with aliases expanded.
    pub nodes: usize,
    /// Values in all files together, with aliases expanded, counting a file as often as it is read.
    pub total_nodes: usize,
    /// Bytes that patches, replacements and other changes put into objects, counting them as often as they are put
    /// somewhere; and bytes of the objects of a finished build.
    pub made_bytes: usize,
    /// Work of all changes: values and objects that are looked at or moved, each once for each change.
    ///
    /// A tree of 10,000 objects with an overlay over all of them takes a quarter of a million. The default is two thousand
    /// times that: it leaves room for a hundred thousand objects with a patch for each twentieth.
    pub work: u64,
    /// Anchors in one file. What an anchor names is counted among the values and the memory once more.
    pub anchors: usize,
    /// Documents in one file.
    pub documents: usize,
    /// Objects in the build.
    pub objects: usize,
    /// Kustomizations that are built, counting one as often as it is used.
    pub kustomizations: usize,
    /// How deep bases may nest.
    pub bases_depth: usize,
    /// Memory of one compiled regular expression of an image or a patch target, in bytes.
    pub regex_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            file_bytes: 32 << 20,
            total_bytes: 256 << 20,
            depth: 200,
            nodes: 2_000_000,
            total_nodes: 16_000_000,
            made_bytes: 1 << 30,
            work: 500_000_000,
            anchors: 10_000,
            documents: 20_000,
            objects: 100_000,
            kustomizations: 10_000,
            bases_depth: 64,
            regex_bytes: 1 << 20,
        }
    }
}

impl Limits {
    /// The bounds of a build that may take this much memory, in bytes: the defaults, lowered to what can fit at all.
    ///
    /// The smallest figure that builds anything of use is about 4 MiB.
    pub fn within(memory: usize) -> Self {
        let all = Self::default();
        Self {
            memory: memory.min(all.memory),
            file_bytes: all.file_bytes.min(memory / 4),
            made_bytes: all.made_bytes.min(memory),
            regex_bytes: all.regex_bytes.min(memory / 32),
            ..all
        }
    }
    /// The bounds of an annotation that is read: a few lines.
    pub(crate) fn few_lines() -> Self {
        Self::within(4 << 20)
    }
}
