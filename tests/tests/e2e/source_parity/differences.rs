//! The differences between what Flux's source-controller tells of a source and what the hub tells of the same one, each with why it is meant.

use crate::parity::Difference;
use crate::parity::difference::{holds, table};

/// All of them.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        at: "*",
        what: "events.source",
        flux: "source-controller",
        hub: "roadstead-hub",
        why: "It is the one who reports.",
    },
    Difference {
        at: "*",
        what: "finalizers",
        flux: "[\"finalizers.fluxcd.io\"]",
        hub: "",
        why: "What is stored of a source goes with it, in the same transaction.",
    },
    Difference {
        at: "*",
        what: "observedGeneration",
        flux: "-1",
        hub: "",
        why: "The CRD of Flux has -1 as the default until a fetch went through; a hub leaves it out until then.",
    },
];

/// The list for people: `docs/source-parity.md`.
fn document() -> String {
    let text = "# Sources: what Flux's source-controller and a hub report\n\n\
        `tests/tests/e2e/source_parity.rs` has Flux's own source-controller and a hub fetch the same sources from the same servers, and compares what\n\
        both report at each stage: conditions, `observedGeneration`, what the status notes of the spec, revisions, the contents of artifacts, and Events\n\
        with their annotations. This is everything that differs. The list is the test's own (`source_parity/differences.rs`); the test fails when anything\n\
        else differs, or when a listed difference is gone. `…` stands for any text; a stage is `SCENARIO/STAGE`. Differences that this does not\n\
        show are in [source-differences.md](source-differences.md).\n\n";
    text.to_owned() + &table(DIFFERENCES)
}

#[test]
fn the_document_lists_the_differences() -> anyhow::Result<()> {
    holds("source-parity.md", &document())
}
