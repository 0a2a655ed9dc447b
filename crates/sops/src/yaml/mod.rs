//! YAML as SOPS reads and writes it: by go-yaml 3, with comments.

mod analyze;
mod compose;
mod emit;
mod nodes;
mod parse;
mod resolve;
mod scalars;
mod scan;
mod text;
mod tree;

use zeroize::Zeroizing;

use crate::error::Error;
use crate::format::Tally;
use crate::tree::Map;

/// Reads all documents of a file.
pub(crate) fn read(file: &[u8], tally: &mut Tally<'_>) -> Result<Vec<Map>, Error> {
    let text = text::decode(file, tally)?;
    let mut composer = compose::Composer::new(&text, tally.depth(), tally.nodes());
    let malformed = |problem: scan::Problem, tally: &Tally<'_>| {
        tally.malformed(format!("line {}: {}", problem.line, problem.what))
    };
    let mut documents = Vec::new();
    while let Some(document) = composer.document().map_err(|problem| malformed(problem, tally))? {
        documents.push(tree::document(&composer, &document, documents.is_empty(), tally)?);
        tally.count(0)?;
    }
    Ok(documents)
}

/// Writes documents, with `---` between them.
pub(crate) fn write(documents: &[Map]) -> Zeroizing<Vec<u8>> {
    let mut emitter = emit::Emitter::default();
    for document in documents {
        emitter.document(&nodes::of_map(document));
    }
    emitter.finish()
}
