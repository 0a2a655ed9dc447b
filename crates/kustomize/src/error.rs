//! What can be wrong with a build, with the place where it is wrong.

use crate::tree::{FileTree, TreeError, TreePath, resolve};
use crate::yaml::line_of;

/// Why a build failed. The text is fit for a `BuildFailed` condition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, directory or link could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),

    /// A file is not YAML, or YAML that no Kubernetes object can be.
    #[error("{file}:{line}: {message}")]
    Yaml {
        /// The file, from the root of the tree.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },

    /// The directory to build, or a base, holds no kustomization.
    #[error("no kustomization.yaml, kustomization.yml or Kustomization in {0}")]
    NoKustomization(Quoted),

    /// A directory holds several of the names that a kustomization may have.
    #[error("{dir} holds more than one kustomization file: {}", files.join(", "))]
    ManyKustomizations {
        /// The directory.
        dir: Quoted,
        /// The file names found.
        files: Vec<&'static str>,
    },

    /// A field of a kustomization has a wrong value, or what it asks for failed.
    #[error("{file} in {dir}: {field}: {message}")]
    Field {
        /// File name of the kustomization, with the line of the field where it is known.
        file: String,
        /// Its directory.
        dir: Quoted,
        /// The field, as `resources[2]`.
        field: String,
        /// What is wrong.
        message: String,
    },

    /// A field that kustomize does not have.
    #[error("{file} in {dir}: unknown field \"{field}\"")]
    UnknownField {
        /// File name of the kustomization, with the line of the field where it is known.
        file: String,
        /// Its directory.
        dir: Quoted,
        /// The field, with the fields that it stands in.
        field: String,
    },

    /// A field that kustomize has and this engine does not support.
    #[error("{file} in {dir}: field \"{field}\" is not supported: {hint}")]
    Unsupported {
        /// File name of the kustomization, with the line of the field where it is known.
        file: String,
        /// Its directory.
        dir: Quoted,
        /// The field.
        field: String,
        /// What to do instead.
        hint: &'static str,
    },

    /// Kustomizations that contain each other.
    #[error("cycle of kustomizations: {}", chain.iter().map(ToString::to_string).collect::<Vec<_>>().join(" -> "))]
    Cycle {
        /// From the root of the build to the directory that closes the cycle.
        chain: Vec<Quoted>,
    },

    /// An object is not one, or does not fit its place.
    #[error("{file}: {message}")]
    Object {
        /// File it came from, with a line where known.
        file: String,
        /// What is wrong, with the object's id.
        message: String,
    },

    /// A step after all kustomizations were read failed.
    #[error("{step}: {message}")]
    Finish {
        /// Which step.
        step: &'static str,
        /// What is wrong, with the object's id.
        message: String,
    },

    /// A bound of [`Limits`](crate::Limits) was met.
    #[error("{place}: more than {limit} {what}")]
    Limit {
        /// Where.
        place: String,
        /// What there was too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
}

/// As much of a text as a message holds.
const MOST: usize = 1_000;

impl Error {
    /// Looks for the line of the field that is wrong.
    pub(crate) fn locate(mut self, tree: &dyn FileTree, most: usize) -> Self {
        if let Self::Field { file, dir, field, .. }
        | Self::UnknownField { file, dir, field }
        | Self::Unsupported { file, dir, field, .. } = &mut self
        {
            let real = dir.0.join(file).and_then(|path| resolve(tree, &path).ok());
            let bytes = real.and_then(|(path, _)| tree.read(&path, most).ok());
            if let Some(line) = bytes.and_then(|bytes| line_of(&bytes, field)) {
                *file = format!("{file}:{line}");
            }
        }
        self
    }

    /// Cuts texts that are not fit for a message: values and paths in it come from the source, and may be of any length.
    pub(crate) fn shorten(mut self) -> Self {
        let texts: [Option<&mut String>; 2] = match &mut self {
            Self::Yaml { file, message, .. } | Self::Object { file, message } => [Some(file), Some(message)],
            Self::Field { field, message, .. } => [Some(field), Some(message)],
            Self::UnknownField { field, .. } => [Some(field), None],
            Self::Finish { message, .. } => [Some(message), None],
            Self::Limit { place, .. } => [Some(place), None],
            Self::Tree(_)
            | Self::NoKustomization(_)
            | Self::ManyKustomizations { .. }
            | Self::Unsupported { .. }
            | Self::Cycle { .. } => [None, None],
        };
        for text in texts.into_iter().flatten().filter(|text| text.len() > MOST) {
            // What is wrong often stands at the end, so both ends are kept.
            let (head, tail) =
                (text.floor_char_boundary(MOST / 2), text.ceil_char_boundary(text.len() - MOST / 2));
            text.replace_range(head..tail, " … ");
        }
        self
    }
}

/// A path that shows in quotes, the root as `"."`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quoted(pub TreePath);

impl std::fmt::Display for Quoted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.display())
    }
}
