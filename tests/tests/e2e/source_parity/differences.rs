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
    Difference {
        at: "*",
        what: "Reconciling.message",
        flux: "*",
        hub: "*",
        why: "Flux leaves the stage there at which it stopped. A hub says why it is tried again.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "Normal GitOperationSucceeded no changes since last reconciliation: *",
        hub: "",
        why: "A look that finds nothing new costs a hub no write.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "Normal ArtifactUpToDate *",
        hub: "",
        why: "The same of the other kinds.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "",
        hub: "Warning FilesLeftOut *",
        why: "Flux leaves symbolic links out without a word.",
    },
    Difference {
        at: "*",
        what: "*.message",
        flux: "failed to checkout and determine revision: *",
        hub: "failed to checkout and determine revision: *",
        why: "The hub's message also names the repository and what is missing; it contains the words that tools look for.",
    },
    Difference {
        at: "sparse/missing",
        what: "*.message",
        flux: "failed to sparse checkout directories : *",
        hub: "failed to checkout and determine revision: *failed to sparse checkout directories: *",
        why: "No folder of a controller is named.",
    },
    Difference {
        at: "vacant/empty",
        what: "*.message",
        flux: "git repository is empty",
        hub: "git repository is empty: *",
        why: "The hub's message also names the repository and what is missing; it contains the words that tools look for.",
    },
    Difference {
        at: "locked/missing",
        what: "*.message",
        flux: "failed to get secret 'NAMESPACE/locked': *",
        hub: "Secret 'NAMESPACE/locked' of spec.secretRef not found",
        why: "The hub names the field, and the Secret once.",
    },
    Difference {
        at: "locked/half",
        what: "*.message",
        flux: "failed to configure authentication options: *",
        hub: "Secret 'NAMESPACE/locked': *",
        why: "The Secret is named.",
    },
    Difference {
        at: "objects/half",
        what: "*.message",
        flux: "invalid 'half' secret data: *",
        hub: "Secret 'NAMESPACE/half': *",
        why: "The Secret is named as in all other messages.",
    },
    Difference {
        at: "image/missing",
        what: "*.message",
        flux: "failed to determine artifact digest: *",
        hub: "*has no tag `v9`*",
        why: "The hub says what is missing, and not the registry's error code.",
    },
    Difference {
        at: "image/no-layer",
        what: "*.message",
        flux: "failed to find layer *",
        hub: "*failed to find layer *",
        why: "The repository is named.",
    },
    Difference {
        at: "image/address",
        what: "*.message",
        flux: "URL validation failed for *",
        hub: "*image:v1*",
        why: "The hub says what to do.",
    },
    Difference {
        at: "index/missing",
        what: "*.message",
        flux: "failed to fetch Helm repository index: *",
        hub: "failed to fetch Helm repository index: *",
        why: "No temporary file is named.",
    },
    Difference {
        at: "index/broken",
        what: "*.message",
        flux: "failed to load Helm repository from index YAML: *",
        hub: "failed to load Helm repository from index YAML: *",
        why: "Each has its own reader of YAML.",
    },
    Difference {
        at: "index/address",
        what: "*.message",
        flux: "invalid Helm repository URL: *",
        hub: "failed to fetch Helm repository index: *",
        why: "The URL is named.",
    },
    Difference {
        at: "chart/missing",
        what: "*.message",
        flux: "failed to get source: *",
        hub: "failed to get source: HelmRepository 'NAMESPACE/charts' not found",
        why: "The namespace is named, too.",
    },
    Difference {
        at: "tree/missing",
        what: "*.message",
        flux: "invalid chart reference: stat *",
        hub: "invalid chart reference: no chart found at *",
        why: "No folder of a controller is named.",
    },
    Difference {
        at: "signed/*",
        what: "*.message",
        flux: "*signature*",
        hub: "*is not verified: *",
        why: "The repository is named, who signed, and what to do.",
    },
    Difference {
        at: "composed/missing",
        what: "*.message",
        flux: "could not get resource for include 'part': *",
        hub: "could not get resource for include 'part': GitRepository NAMESPACE/part not found",
        why: "The namespace is named, too.",
    },
    Difference {
        at: "chart/no-values",
        what: "*.message",
        flux: "values files merge error: *",
        hub: "values files merge error: *",
        why: "The file is named once.",
    },
    Difference { at: "*", what: "Event", flux: "Warning *", hub: "", why: "It has the message of Ready." },
    Difference {
        at: "*",
        what: "Event",
        flux: "",
        hub: "Warning *",
        why: "It has the message of Ready; repeats of a failure are counted in one Event.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "Normal NotFound could not get resource for include *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "",
        hub: "Normal NotFound could not get resource for include *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "branch/there-again",
        what: "Event",
        flux: "Normal Succeeded stored artifact for commit '*",
        hub: "",
        why: "Flux seldom fetches the commit again, and where it has not, names its revision for a subject.",
    },
    Difference {
        at: "branch/there-again",
        what: "Event",
        flux: "",
        hub: "Normal Succeeded stored artifact for revision 'main@sha1:*",
        why: "The message of Ready.",
    },
    Difference {
        at: "signed/*",
        what: "Event",
        flux: "Normal Succeeded verified signature of*",
        hub: "",
        why: "The condition SourceVerified has it.",
    },
    Difference {
        at: "signed/unasked",
        what: "Event",
        flux: "",
        hub: "Normal Succeeded stored artifact for commit 'More' *",
        why: "The end of a failure is told; Flux tells of the new artifact.",
    },
    Difference {
        at: "removed/gone",
        what: "Event",
        flux: "Normal GarbageCollectionSucceeded *",
        hub: "",
        why: "The object and what is stored of it go together.",
    },
    Difference {
        at: "signed/*",
        what: "observedVerificationKeys",
        flux: "",
        hub: "sha256:*",
        why: "A digest of the keys that verified it: when they change, it is verified again at once.",
    },
    Difference {
        at: "chart/values",
        what: "observedValuesFiles",
        flux: "",
        hub: "*",
        why: "Flux notes them only where missing ones are ignored.",
    },
    Difference {
        at: "tree/missing",
        what: "observedSourceArtifactRevision",
        flux: "main@sha1:*",
        hub: "",
        why: "A hub notes what an artifact was made of.",
    },
    Difference {
        at: "index/*",
        what: "artifact.revision",
        flux: "*",
        hub: "*",
        why: "Some servers change `generated` with each answer, although nothing else is new: a hub leaves it out.",
    },
    Difference {
        at: "index/*",
        what: "artifact.content",
        flux: "*",
        hub: "*",
        why: "Some servers change `generated` with each answer, although nothing else is new: a hub leaves it out.",
    },
    Difference {
        at: "index/*",
        what: "*.message",
        flux: "stored artifact: revision '*",
        hub: "stored artifact: revision '*",
        why: "The revision differs because the content does.",
    },
    Difference {
        at: "index/*",
        what: "Event",
        flux: "Normal NewArtifact stored fetched index of size *",
        hub: "",
        why: "The size differs because the content does.",
    },
    Difference {
        at: "index/*",
        what: "Event",
        flux: "",
        hub: "Normal NewArtifact stored fetched index of size *",
        why: "The size differs because the content does.",
    },
    Difference {
        at: "chart/*",
        what: "observedSourceArtifactRevision",
        flux: "sha256:*",
        hub: "sha256:*",
        why: "It is the revision of the index.",
    },
    Difference {
        at: "resting/suspended",
        what: "Suspended*",
        flux: "",
        hub: "*",
        why: "A condition of a hub's own while spec.suspend is set.",
    },
    Difference {
        at: "signed/foreign",
        what: "ArtifactOutdated*",
        flux: "",
        hub: "*",
        why: "Flux says so of a Git repository only once a commit is verified; that there is a new one is known before.",
    },
    Difference {
        at: "chart/no-values",
        what: "ArtifactOutdated*",
        flux: "",
        hub: "*",
        why: "Flux forgets which chart it was where making it fails.",
    },
    Difference {
        at: "*",
        what: "events.Normal GitOperationSucceeded",
        flux: "told",
        hub: "",
        why: "A look that finds nothing new costs a hub no write.",
    },
    Difference {
        at: "*",
        what: "events.Normal ArtifactUpToDate",
        flux: "told",
        hub: "",
        why: "The same of the other kinds.",
    },
    Difference {
        at: "*",
        what: "events.Warning FilesLeftOut",
        flux: "",
        hub: "told",
        why: "Flux leaves symbolic links out without a word.",
    },
    Difference {
        at: "removed/gone",
        what: "events.Normal GarbageCollectionSucceeded",
        flux: "told",
        hub: "",
        why: "The object and what is stored of it go together.",
    },
    Difference {
        at: "signed/*",
        what: "events.Normal Succeeded",
        flux: "told",
        hub: "",
        why: "Flux tells of each verified commit; a hub has the condition SourceVerified.",
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
