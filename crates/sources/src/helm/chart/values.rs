//! Files of values, merged into the one that a chart has.

use roadstead_kustomize::Limits;
use roadstead_kustomize::value::{Map, Value};
use roadstead_kustomize::yaml::{Dialect, read_documents, write_map};

use super::{Chart, Part, VALUES_YAML, clean};
use crate::helm::request::ValuesFiles;
use crate::helm::unread::{Stage, Unread};
use crate::tree::shown;

/// Merges files of values.
pub(in crate::helm) struct Values<'a> {
    pub(in crate::helm) files: &'a ValuesFiles,
    /// Memory for it.
    pub(in crate::helm) memory: usize,
}

impl Values<'_> {
    /// Merges what `find` gives for each path; tells with it which files were there.
    pub(super) fn merge(
        &self,
        find: impl Fn(&str) -> Option<Part>,
        named: impl Fn(&str) -> String,
    ) -> Result<(Map, Vec<String>), Unread> {
        let fail = |why: String| Unread::Failed(Stage::Values, why);
        let (mut merged, mut used) = (Map::new(), Vec::new());
        for path in &self.files.paths {
            let Some(part) = find(&clean(path)) else {
                if self.files.ignore_missing {
                    continue;
                }
                return Err(fail(format!("no values file found at path '{}'", shown(&named(path)))));
            };
            let bytes = part.read().map_err(|error| Unread::internal(&error))?;
            let values = self
                .read(&bytes)
                .map_err(|why| fail(format!("unmarshaling values from '{}' failed: {why}", shown(path))))?;
            merge(&mut merged, values);
            used.push(path.clone());
        }
        Ok((merged, used))
    }

    fn read(&self, bytes: &[u8]) -> Result<Map, String> {
        // What is merged is held beside what is being read.
        let limits = Limits::within(self.memory / 3);
        let documents = read_documents(bytes, Dialect::Kustomization, &limits);
        match documents.map_err(|error| error.to_string())?.pop().map(|document| document.value) {
            Some(Value::Map(map)) => Ok(map),
            None | Some(Value::Null(_)) => Ok(Map::new()),
            Some(other) => Err(format!("it is {}; it must be a mapping", other.type_name())),
        }
    }

    /// Puts what was merged in the place of the chart's own values. Where none of the files is there, those stay.
    pub(in crate::helm) fn put_into(
        &self,
        chart: &mut Chart,
        find: impl Fn(&Chart, &str) -> Option<Part>,
        named: impl Fn(&str) -> String,
    ) -> Result<Vec<String>, Unread> {
        let (merged, used) = self.merge(|path| find(chart, path), named)?;
        if used.is_empty() {
            return Ok(used);
        }
        if !chart.files.contains_key(VALUES_YAML) {
            let why = format!("failed to locate values file: {VALUES_YAML}");
            return Err(Unread::Failed(Stage::Package, why));
        }
        let mut text = String::new();
        write_map(&mut text, &merged);
        chart.files.insert(VALUES_YAML.to_owned(), Part::Made(text.into_bytes()));
        Ok(used)
    }
}

/// Lays values over others: mappings are merged, and all else is replaced; a null stays one.
fn merge(under: &mut Map, over: Map) {
    for (key, value) in over.into_entries() {
        match (under.get_mut(&key), value) {
            (Some(Value::Map(under)), Value::Map(over)) => merge(under, over),
            (Some(place), value) => *place = value,
            (None, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value as Json;

    use super::*;
    use crate::source_cases::{source_cases, tell};

    const MEMORY: usize = 32 << 20;

    fn merged(
        files: &BTreeMap<String, String>,
        paths: &[&str],
        ignore_missing: bool,
    ) -> Result<(Map, Vec<String>), String> {
        let wanted =
            ValuesFiles { paths: paths.iter().map(|path| (*path).to_owned()).collect(), ignore_missing };
        let values = Values { files: &wanted, memory: MEMORY };
        let find = |path: &str| files.get(path).map(|text| Part::Made(text.clone().into_bytes()));
        values.merge(find, |path| format!("/{}", clean(path))).map_err(|unread| format!("{unread:?}"))
    }

    #[test]
    fn files_of_values_are_merged_as_helm_merges_them() {
        let Some(cases) = source_cases("Helm values") else { return };
        let cases: Json = serde_json::from_slice(&cases["helm/choose.json"]).unwrap();
        let mut run = 0;
        for case in cases["values_merge"].as_array().unwrap() {
            let files: BTreeMap<String, String> = serde_json::from_value(case["files"].clone()).unwrap();
            let paths: Vec<&str> =
                case["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
            let found = merged(&files, &paths, case["ignoreMissing"] == true);
            match case["error"].as_str() {
                Some(error) => assert!(found.unwrap_err().contains(error), "{case}"),
                None => {
                    let (map, used) = found.unwrap();
                    assert_eq!(Value::Map(map).to_json(), case["result"], "{case}");
                    assert_eq!(Json::from(used), case["used"], "{case}");
                }
            }
            run += 1;
        }
        tell(format_args!("helm/choose.json: {run} lists of values files"));
    }

    #[test]
    fn maps_are_merged_lists_replaced_and_nulls_kept() {
        let files = [
            ("a", "image: {name: app, tag: 1}\nlist: [1, 2]\ngone: x\nkept: 1.10\n"),
            ("b", "image: {tag: two}\nlist: [3]\ngone: null\n"),
            ("empty", ""),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let (map, used) = merged(&files, &["a", "./b", "empty"], false).unwrap();
        let mut text = String::new();
        write_map(&mut text, &map);
        assert_eq!(text, "gone: null\nimage:\n  name: app\n  tag: two\nkept: 1.1\nlist:\n- 3\n");
        assert_eq!(used, ["a", "./b", "empty"]);
    }

    #[test]
    fn bombs_are_refused_within_memory() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let before = format!("*a{}, ", n - 1).repeat(10);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
        }
        let files = [("bomb", bomb), ("deep", "[".repeat(100_000))];
        let files = files.map(|(name, text)| (name.to_owned(), text)).into();
        for name in ["bomb", "deep"] {
            let why = merged(&files, &[name], false).unwrap_err();
            assert!(why.contains(&format!("unmarshaling values from '{name}' failed")), "{why}");
        }
    }
}
