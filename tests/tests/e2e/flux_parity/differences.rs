//! The differences between what Flux's kustomize-controller tells of a Kustomization and what the hub tells of the same one, each with
//! why it is meant.

use std::fmt;

use super::told::Told;

/// A difference that is meant. Texts may have `*` for anything.
pub(super) struct Difference {
    /// `SCENARIO/STAGE`.
    pub(super) at: &'static str,
    /// A field of the status, or `Event`.
    pub(super) what: &'static str,
    /// What Flux tells; empty for nothing.
    pub(super) flux: &'static str,
    /// What the hub tells; empty for nothing.
    pub(super) hub: &'static str,
    /// Why.
    pub(super) why: &'static str,
}

/// All of them.
pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        at: "*",
        what: "events.source",
        flux: "kustomize-controller",
        hub: "roadstead-hub",
        why: "It is the one who reports.",
    },
    Difference {
        at: "*",
        what: "observedGeneration",
        flux: "-1",
        hub: "",
        why: "The CRD of Flux has -1 as the default until a reconciliation went through; a hub leaves it out until then.",
    },
    Difference {
        at: "*",
        what: "Reconciling.message",
        flux: "* for revision REVISION-* with a timeout of *",
        hub: "*",
        why: "Flux leaves the stage there at which it stopped. A hub says why it is tried again, or that it is under way.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "Normal ReconciliationSucceeded Reconciliation finished in DURATION, next run in 1h0m0s *",
        hub: "",
        why: "Flux tells of each reconciliation, also of one that found nothing to do, and how long it took, so that no two are alike. How long it took stands in the history.",
    },
    Difference {
        at: "*",
        what: "Event",
        flux: "",
        hub: "Normal ReconciliationSucceeded Applied revision: REVISION-* *",
        why: "In place of that: one Event for each revision, with a count.",
    },
    Difference {
        at: "success/elsewhere",
        what: "Ready.passed",
        flux: "True ReconciliationSucceeded, Unknown Progressing",
        hub: "True ReconciliationSucceeded",
        why: "Nothing of the build is new, so nothing is applied: Ready stays True, and what depends on it does not stall.",
    },
    Difference {
        at: "broken/failed",
        what: "Ready.message",
        flux: "kustomize build failed: accumulating resources: *missing.yaml*",
        hub: "kustomization.yaml:1 in \"app\": resources[0]: no file or directory \"app/missing.yaml\"",
        why: "The hub's own build names the file, the line and the field, and no folder of a controller.",
    },
    Difference {
        at: "broken/*",
        what: "Event",
        flux: "Warning BuildFailed kustomize build failed: accumulating resources: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "broken/*",
        what: "Event",
        flux: "",
        hub: "Warning BuildFailed kustomization.yaml:1 in *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/missing",
        what: "Ready.message",
        flux: "kustomization path not found: stat *",
        hub: "kustomization path not found: no file or directory \"app\"",
        why: "No folder of a controller is named.",
    },
    Difference {
        at: "nowhere/*",
        what: "Event",
        flux: "Warning ArtifactFailed kustomization path not found: stat *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/*",
        what: "Event",
        flux: "",
        hub: "Warning ArtifactFailed kustomization path not found: no file or directory *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "nowhere/missing",
        what: "lastAttemptedRevision",
        flux: "",
        hub: "REVISION-1",
        why: "This revision was tried, and has no such path.",
    },
    Difference {
        at: "refused/refused",
        what: "Ready",
        flux: "False ReconciliationFailed",
        hub: "False ValidationFailed",
        why: "The reason that v1alpha1 documents for objects that the API server refuses before anything is applied.",
    },
    Difference {
        at: "refused/*",
        what: "history[*]",
        flux: "build-* ReconciliationFailed REVISION-2",
        hub: "build-* ValidationFailed REVISION-2",
        why: "It has the reason of Ready.",
    },
    Difference {
        at: "refused/refused",
        what: "Ready.message",
        flux: "Service/NAMESPACE/refused dry-run failed (Invalid): Service \"refused\" is invalid: *",
        hub: "Service/NAMESPACE/refused is invalid: *",
        why: "The object is named once; the rest is the API server's.",
    },
    Difference {
        at: "refused/*",
        what: "Event",
        flux: "Warning ReconciliationFailed Service/NAMESPACE/refused dry-run failed (Invalid): *",
        hub: "",
        why: "It has the reason and the message of Ready.",
    },
    Difference {
        at: "refused/*",
        what: "Event",
        flux: "",
        hub: "Warning ValidationFailed Service/NAMESPACE/refused is invalid: *",
        why: "It has the reason and the message of Ready.",
    },
    Difference {
        at: "rightless/no-rights",
        what: "Ready.message",
        flux: "ConfigMap/NAMESPACE/rightless-one dry-run failed (Forbidden): configmaps \"rightless-one\" is forbidden: *",
        hub: "ConfigMap/NAMESPACE/rightless-one is forbidden: *",
        why: "The object is named once; the rest is the API server's.",
    },
    Difference {
        at: "rightless/*",
        what: "Event",
        flux: "Warning ReconciliationFailed ConfigMap/NAMESPACE/rightless-one dry-run failed (Forbidden): *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "rightless/*",
        what: "Event",
        flux: "",
        hub: "Warning ReconciliationFailed ConfigMap/NAMESPACE/rightless-one is forbidden: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "sick/waiting",
        what: "Healthy.message",
        flux: "Running health checks for revision REVISION-2 with a timeout of 30s",
        hub: "Running health checks for revision REVISION-2 with a timeout of 30s: Deployment sick: *",
        why: "A hub says what is waited for.",
    },
    Difference {
        at: "sick/waiting",
        what: "Event",
        flux: "Normal Progressing Deployment/NAMESPACE/sick configured *",
        hub: "",
        why: "On a hub the change set comes with the end of the attempt, and so does its Event.",
    },
    Difference {
        at: "sick/failed",
        what: "Healthy.message",
        flux: "timeout waiting for: [*]",
        hub: "timed out waiting for: Deployment/NAMESPACE/sick status: 'InProgress' (*)",
        why: "A hub says what was missing.",
    },
    Difference {
        at: "sick/failed",
        what: "Ready.message",
        flux: "health check failed after DURATION: timeout waiting for: [*]",
        hub: "timed out waiting for: Deployment/NAMESPACE/sick status: 'InProgress' (*)",
        why: "A hub says what was missing; how long it was waited for is spec.timeout.",
    },
    Difference {
        at: "sick/*",
        what: "Event",
        flux: "Warning HealthCheckFailed health check failed after DURATION: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "sick/*",
        what: "Event",
        flux: "",
        hub: "Warning HealthCheckFailed timed out waiting for: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "depends/missing",
        what: "Ready.message",
        flux: "dependency 'NAMESPACE/first' not found: kustomizations.kustomize.toolkit.fluxcd.io \"first\" not found",
        hub: "dependency 'NAMESPACE/first' not found",
        why: "The rest says the same once more.",
    },
    Difference {
        at: "depends/*",
        what: "Event",
        flux: "Normal DependencyNotReady Dependencies do not meet ready condition, retrying in 5s *",
        hub: "",
        why: "Flux tells of each try, and not of what it waits for. A hub tries when the dependency changes.",
    },
    Difference {
        at: "depends/*",
        what: "Event",
        flux: "",
        hub: "Normal DependencyNotReady dependency 'NAMESPACE/first' *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "suspend/suspended",
        what: "Suspended*",
        flux: "",
        hub: "*",
        why: "A condition of a hub's own while spec.suspend is set. Ready stays as it is, as Flux has it.",
    },
    Difference {
        at: "suspend/suspended",
        what: "observedGeneration",
        flux: "2",
        hub: "1",
        why: "With Flux the change of spec.suspend counts as reconciled where Ready was True. A hub moves it by a success and by Stalled only.",
    },
    Difference {
        at: "unsourced/no-source",
        what: "Ready.message",
        flux: "GitRepository.source.toolkit.fluxcd.io \"unsourced\" not found",
        hub: "GitRepository 'NAMESPACE/unsourced' not found",
        why: "The namespace is named, which may be another one.",
    },
    Difference {
        at: "unsourced/no-artifact",
        what: "Ready.message",
        flux: "Source artifact not found, retrying in 5s",
        hub: "GitRepository 'NAMESPACE/unsourced' has no artifact: *",
        why: "A hub says why there is none. It tries when there is one.",
    },
    Difference {
        at: "unsourced/*",
        what: "Event",
        flux: "",
        hub: "Warning ArtifactFailed GitRepository 'NAMESPACE/unsourced' *",
        why: "Flux tells of it in the condition only.",
    },
    Difference {
        at: "variables/missing",
        what: "Ready.message",
        flux: "post build failed for 'ConfigMap.v1.[noGrp]/variables-one': substitute from 'ConfigMap/values' error: configmaps \"values\" not found",
        hub: "post build failed: substitute from 'ConfigMap/values' error: not found on the hub, nor in namespace 'NAMESPACE' of the cluster",
        why: "There are two places where a hub looks for it. It is looked up once, and not for each object.",
    },
    Difference {
        at: "variables/*",
        what: "Event",
        flux: "Warning BuildFailed post build failed for *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "variables/*",
        what: "Event",
        flux: "",
        hub: "Warning BuildFailed post build failed: substitute from *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "variables/*",
        what: "lookups",
        flux: "",
        hub: "*",
        why: "A field of a hub's own: where each of them was found.",
    },
    Difference {
        at: "deleted/*",
        what: "Event",
        flux: "Normal ReconciliationSucceeded ConfigMap/NAMESPACE/deleted-one deleted *",
        hub: "",
        why: "Flux takes the reason that Ready has; a hub's Ready says by then that it is being deleted.",
    },
    Difference {
        at: "deleted/*",
        what: "Event",
        flux: "",
        hub: "Normal Progressing ConfigMap/NAMESPACE/deleted-one deleted *",
        why: "The same Event with the reason of all changes.",
    },
    Difference {
        at: "expression/invalid",
        what: "Ready.message",
        flux: "Reconciliation failed terminally due to configuration error: failed to create custom status evaluator for healthchecks[0]: *",
        hub: "spec.healthCheckExprs[0].current: failed to parse the CEL expression 'data.word ==': *",
        why: "The field is named; that it is terminal is what Stalled says.",
    },
    Difference {
        at: "expression/invalid",
        what: "Stalled.message",
        flux: "Reconciliation failed terminally due to configuration error: *",
        hub: "spec.healthCheckExprs[0].current: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/*",
        what: "Event",
        flux: "Warning InvalidCELExpression Reconciliation failed terminally due to configuration error: *",
        hub: "",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/*",
        what: "Event",
        flux: "",
        hub: "Warning InvalidCELExpression spec.healthCheckExprs[0].current: *",
        why: "It has the message of Ready.",
    },
    Difference {
        at: "expression/invalid",
        what: "lastAttemptedRevision",
        flux: "",
        hub: "REVISION-1",
        why: "It was tried at this revision; Flux looks at expressions before the source.",
    },
];

/// Something that was seen to differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    at: String,
    what: String,
    flux: String,
    hub: String,
}

impl Finding {
    /// All that differs.
    pub(super) fn all(at: &str, flux: &Told, hub: &Told) -> Vec<Self> {
        let new = |what: &str, flux: &str, hub: &str| Self {
            at: at.to_owned(),
            what: what.to_owned(),
            flux: flux.to_owned(),
            hub: hub.to_owned(),
        };
        let of = |told: &Told, key: &str| told.fields.get(key).cloned().unwrap_or_default();
        let mut keys: Vec<&String> = flux.fields.keys().chain(hub.fields.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let fields = keys.into_iter().map(|key| new(key, &of(flux, key), &of(hub, key)));
        // Who tells nothing has no name.
        let is_known =
            |one: &Self| one.what != "events.source" || !one.flux.is_empty() && !one.hub.is_empty();
        let mut all: Vec<Self> = fields.filter(|one| one.flux != one.hub && is_known(one)).collect();
        all.extend(flux.events.difference(&hub.events).map(|event| new("Event", event, "")));
        all.extend(hub.events.difference(&flux.events).map(|event| new("Event", "", event)));
        all
    }

    /// The index of the listed difference that this is.
    pub(super) fn listed(&self) -> Option<usize> {
        DIFFERENCES.iter().position(|known| {
            let pairs = [
                (known.at, &self.at),
                (known.what, &self.what),
                (known.flux, &self.flux),
                (known.hub, &self.hub),
            ];
            pairs.iter().all(|(pattern, text)| is_like(pattern, text))
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} | {} | Flux: {:?} | hub: {:?}", self.at, self.what, self.flux, self.hub)
    }
}

/// Whether a text is like a pattern, in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(rest, &text[at..]))
}

#[test]
fn a_star_stands_for_anything() {
    assert!(is_like("a*c", "abc") && is_like("*", "") && is_like("a*", "a") && is_like("*b*", "abc"));
    assert!(!is_like("a*c", "abd") && !is_like("", "a") && !is_like("ab", "a"));
}

/// The list for people: `docs/flux-differences.md`.
fn document() -> String {
    let mut text = "# Differences from Flux\n\n\
        `tests/tests/e2e/flux_parity.rs` runs the same Kustomizations with the same content through Flux's own kustomize-controller and through a\n\
        hub, and compares what both report at each stage: conditions, `observedGeneration`, revisions, inventory, history, and Events with\n\
        their annotations. This is everything that differs. The list is the test's own (`flux_parity/differences.rs`); the test fails when anything else\n\
        differs, or when a listed difference is gone. `…` stands for any text; a stage is `SCENARIO/STAGE`.\n\n\
        | stage | what | Flux | hub | why |\n|---|---|---|---|---|\n"
        .to_owned();
    let code = |text: &str| match text {
        "" => "nothing".to_owned(),
        text => format!("`{}`", text.replace('*', "…").replace('|', "\\|").replace('\n', " ")),
    };
    for Difference { at, what, flux, hub, why } in DIFFERENCES {
        let at = if *at == "*" { "all".to_owned() } else { code(at) };
        let row = [at, code(what), code(flux), code(hub), (*why).to_owned()].join(" | ");
        text.push_str(&format!("| {row} |\n"));
    }
    text
}

#[test]
fn the_document_lists_the_differences() -> anyhow::Result<()> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/flux-differences.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, document())?;
    }
    let written = std::fs::read_to_string(&path)?;
    anyhow::ensure!(
        written == document(),
        "docs/flux-differences.md is another one: run this with INSTA_UPDATE=always"
    );
    Ok(())
}
