//! Paths to fields, as kustomize's field specifications have them, and the walk along them.

use crate::resource::Gvk;
use crate::value::{List, Map, Str, Value};

/// Which field of which objects. Empty parts of the group, version and kind match all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldSpec {
    pub(crate) group: Str,
    pub(crate) version: Str,
    pub(crate) kind: Str,
    /// Keys on the way; lists on the way are passed through.
    pub(crate) path: Vec<Step>,
    /// Make what is missing on the way.
    pub(crate) create: bool,
}

/// One key of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) key: Str,
    /// Written with `[]`: a list must stand there, so nothing is made.
    pub(crate) list: bool,
}

/// What a missing last field is made as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    /// Nothing is made, whatever the specification says.
    Nothing,
    /// A scalar, empty until it is set.
    Scalar,
    /// A mapping.
    Mapping,
}

impl Step {
    fn new(text: &str) -> Self {
        let key = text.strip_suffix("[]");
        Self { key: key.unwrap_or(text).into(), list: key.is_some() }
    }
}

impl FieldSpec {
    /// Reads `spec/template/metadata/labels`; `\/` is a slash inside of a key. A slash may come first.
    pub(crate) fn new(group: &str, version: &str, kind: &str, path: &str, create: bool) -> Self {
        // Most have an empty part, and the default text is one that all share.
        let part = |text: &str| if text.is_empty() { Str::default() } else { text.into() };
        Self {
            group: part(group),
            version: part(version),
            kind: part(kind),
            path: parse_path(path.strip_prefix('/').unwrap_or(path)),
            create,
        }
    }

    pub(crate) fn matches(&self, gvk: &Gvk) -> bool {
        gvk.is_selected(&self.group, &self.version, &self.kind)
    }

    /// Are its objects among those of another specification?
    pub(crate) fn is_selected_by(&self, other: &Self) -> bool {
        let fits = |own: &str, wanted: &str| wanted.is_empty() || own == wanted;
        fits(&self.group, &other.group)
            && fits(&self.version, &other.version)
            && fits(&self.kind, &other.kind)
    }

    /// Is this its path?
    pub(crate) fn is(&self, path: &[&str]) -> bool {
        self.path.iter().map(|step| &*step.key).eq(path.iter().copied())
    }

    /// The path as it is written.
    pub(crate) fn path_text(&self) -> String {
        let steps: Vec<&str> = self.path.iter().map(|step| &*step.key).collect();
        steps.join("/")
    }

    /// Calls `set` on every field that the path leads to.
    pub(crate) fn apply(
        &self,
        object: &mut Map,
        make: Create,
        set: &mut dyn FnMut(&mut Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let make = if self.create { make } else { Create::Nothing };
        walk_map(object, &self.path, make, set)
            .map_err(|message| format!("field {}: {message}", self.path_text()))
    }
}

fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::with_capacity(1 + path.bytes().filter(|byte| *byte == b'/').count());
    // A key of which a part is read: its slash has a backslash before it.
    let mut open: Option<String> = None;
    for part in path.split('/') {
        let text = open.take().map(|key| key + part);
        let text = text.as_deref().unwrap_or(part);
        match text.strip_suffix('\\') {
            Some(key) => open = Some(format!("{key}/")),
            None => steps.push(Step::new(text)),
        }
    }
    // A backslash at the end escapes nothing.
    steps.extend(open.map(|key| Step::new(&format!("{}\\", &key[..key.len() - 1]))));
    steps
}

fn walk(
    value: &mut Value,
    path: &[Step],
    make: Create,
    set: &mut dyn FnMut(&mut Value) -> Result<(), String>,
) -> Result<(), String> {
    if path.is_empty() {
        return set(value);
    }
    match value {
        Value::Null(_) => Ok(()),
        Value::List(items) => items.iter_mut().try_for_each(|item| walk(item, path, make, set)),
        Value::Map(map) => walk_map(map, path, make, set),
        other => {
            Err(format!("a mapping or a list is needed above {:?}, not {}", path[0].key, other.type_name()))
        }
    }
}

fn walk_map(
    map: &mut Map,
    path: &[Step],
    make: Create,
    set: &mut dyn FnMut(&mut Value) -> Result<(), String>,
) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else { return Ok(()) };
    if step.key.is_empty() {
        return Err("the path has an empty key in it".into());
    }
    if &*step.key == "*" {
        return Err("*: a path of a field specification has no wildcards".into());
    }
    let missing = || match (make, rest.is_empty()) {
        (Create::Scalar, true) => Value::string(""),
        _ => Value::Map(Map::new()),
    };
    let value = if make == Create::Nothing || step.list {
        let Some(value) = map.get_mut(&step.key) else { return Ok(()) };
        if step.list && value.is_null() {
            *value = Value::List(List::default());
        }
        value
    } else {
        let value = map.get_or_insert_with(&step.key, missing);
        if value.is_null() {
            *value = missing();
        }
        value
    };
    walk(value, rest, make, set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Map {
        let json = serde_json::json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {}]}});
        match Value::from_json(&json) {
            Value::Map(map) => map,
            _ => Map::new(),
        }
    }

    #[test]
    fn lists_are_passed_through() {
        let mut hosts = Vec::new();
        let spec = FieldSpec::new("", "", "", "spec/rules/host", false);
        spec.apply(&mut object(), Create::Nothing, &mut |value| {
            hosts.push(value.as_str().unwrap().to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(hosts, ["a", "b"]);
    }

    #[test]
    fn what_is_missing_is_made() {
        let mut map = object();
        let spec = FieldSpec::new("", "", "", r"metadata/annotations/a.b\/c", true);
        spec.apply(&mut map, Create::Scalar, &mut |value| {
            *value = Value::string("x");
            Ok(())
        })
        .unwrap();
        assert_eq!(map.get("metadata").unwrap().at(&["annotations", "a.b/c"]), Some(&Value::string("x")));
    }

    #[test]
    fn paths_are_split() {
        for (path, want) in [
            ("a/b", vec!["a", "b"]),
            (r"a\/b/c\/d\/e", vec!["a/b", "c/d/e"]),
            (r"a/b\", vec!["a", r"b\"]),
            ("a//b/", vec!["a", "", "b", ""]),
            ("", vec![""]),
        ] {
            let keys: Vec<Str> = parse_path(path).into_iter().map(|step| step.key).collect();
            assert_eq!(keys, want.into_iter().map(Str::from).collect::<Vec<_>>(), "{path}");
        }
        assert_eq!(parse_path("a[]/b").iter().map(|step| step.list).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_scalar_on_the_way_is_an_error() {
        let spec = FieldSpec::new("", "", "", "spec/rules/host/deep", false);
        assert!(spec.apply(&mut object(), Create::Nothing, &mut |_| Ok(())).is_err());
    }
}
