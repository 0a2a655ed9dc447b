//! YAML as kustomize reads and writes it.
//!
//! kustomize is made of two YAML libraries: objects are read with the rules of go-yaml 3, `kustomization.yaml` with those
//! of go-yaml 2 and then as JSON, and everything is written by go-yaml 2. These rooms hold the facts of the three.

mod fold;
mod read;
mod resolve;
mod write;

pub(crate) use resolve::is_text;

pub use read::{Dialect, Document, ReadError, read_documents};
pub use write::{write_document, write_map};
