//! What a chart's version has after its `+` where the hub changes the chart. Pure.

/// Characters of a revision that are taken.
const TAKEN: usize = 12;

/// The revision of the source that a chart lies in, where it is part of the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionOf<'a> {
    /// It is none of it: of a chart of a repository, and of one that is followed by its version.
    Nothing,
    /// It is: of one that is followed by its source's revision.
    Source(&'a str),
}

/// What the version of a chart is to have as build metadata; none where it stays as it is. `has_values` is whether files of values are
/// merged into it, by a spec of this `generation`.
#[must_use]
pub fn build_metadata(revision: RevisionOf<'_>, has_values: bool, generation: i64) -> Option<String> {
    let generation = has_values.then(|| generation.to_string());
    match (revision, generation) {
        (RevisionOf::Nothing, generation) => generation,
        (RevisionOf::Source(revision), generation) => {
            // The content of any form: `main@sha1:<commit>`, `sha256:<digest>`, `main/<commit>`.
            let content = revision.rsplit([':', '/']).next().unwrap_or(revision);
            let taken: String = content.chars().take(TAKEN).collect();
            Some(generation.map_or_else(|| taken.clone(), |generation| format!("{taken}.{generation}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::helm::ValuesFiles;
    use crate::source_cases::{source_cases, tell};
    use crate::version::Version;

    #[test]
    fn versions_are_changed_as_flux_changes_them() {
        let Some(files) = source_cases("charts' versions") else { return };
        let cases: Value = serde_json::from_slice(&files["helm/choose.json"]).unwrap();
        let mut run = 0;
        for case in cases["version_rewrite"].as_array().unwrap() {
            let paths = serde_json::from_value(case["valuesFiles"].clone()).unwrap();
            let has_values = ValuesFiles { paths, ignore_missing: false }.are_any();
            let revision = case["source_revision"].as_str().unwrap_or_default();
            let is_of_source = case["source"] != "HelmRepository" && case["strategy"] == "Revision";
            let revision = if is_of_source { RevisionOf::Source(revision) } else { RevisionOf::Nothing };
            let build = build_metadata(revision, has_values, case["generation"].as_i64().unwrap());
            let version = Version::coerced(case["chart"].as_str().unwrap()).unwrap();
            let found = build.map_or_else(|| version.clone(), |build| version.with_build(&build).unwrap());
            assert_eq!(found.to_string(), case["result"].as_str().unwrap(), "{case}");
            run += 1;
        }
        tell(format_args!("helm/choose.json: {run} versions that are changed"));
    }
}
