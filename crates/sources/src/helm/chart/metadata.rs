//! `Chart.yaml`: which chart it is, in which version, and what it depends on.

use std::borrow::Cow;

use roadstead_kustomize::Limits;
use roadstead_kustomize::value::{Map, Value};
use roadstead_kustomize::yaml::{Dialect, read_documents, write_map};

use super::{CHART_YAML, MOST_METADATA, NotRead, Part};
use crate::tree::{Content as _, shown};
use crate::version::Version;

/// Memory for reading it.
const MEMORY: usize = 16 << 20;
/// Bytes of a name, and of a version.
const MOST: usize = 250;

/// What it says.
#[derive(Debug, Clone)]
pub(in crate::helm) struct Metadata {
    map: Map,
    pub(in crate::helm) name: String,
    pub(in crate::helm) version: String,
}

impl Metadata {
    pub(super) fn read(part: &Part) -> Result<Self, NotRead> {
        Self::parse(&whole(part, CHART_YAML)?).map_err(NotRead::Bad)
    }

    pub(in crate::helm) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let map = map(bytes).map_err(|why| format!("cannot load {CHART_YAML}: {why}"))?;
        let text = |field: &str| match map.get(field) {
            None | Some(Value::Null(_)) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.to_string()),
            Some(other) => Err(format!(
                "cannot load {CHART_YAML}: {field} is {}; it must be a string",
                other.type_name()
            )),
        };
        if text("apiVersion")?.is_empty() {
            return Err("validation: chart.metadata.apiVersion is required".to_owned());
        }
        let (name, version, kind) = (text("name")?, text("version")?, text("type")?);
        check_name(&name)?;
        if version.is_empty() {
            return Err("validation: chart.metadata.version is required".to_owned());
        }
        if version.len() > MOST || Version::coerced(&version).is_none() {
            return Err(format!("validation: chart.metadata.version \"{}\" is invalid", shown(&version)));
        }
        if !matches!(kind.as_str(), "" | "application" | "library") {
            return Err("validation: chart.metadata.type must be application or library".to_owned());
        }
        Ok(Self { map, name, version })
    }

    /// Gives the version other build metadata, and all of it as text.
    pub(in crate::helm) fn with_build(&mut self, build: &str) -> Result<String, String> {
        let version = Version::coerced(&self.version).ok_or("its version is invalid")?;
        self.version = version.with_build(build).map_err(|error| error.to_string())?.to_string();
        self.map.insert("version", Value::string(self.version.clone()));
        let mut text = String::new();
        write_map(&mut text, &self.map);
        Ok(text)
    }
}

fn whole<'p>(part: &'p Part, name: &str) -> Result<Cow<'p, [u8]>, NotRead> {
    if part.size() > MOST_METADATA {
        return Err(NotRead::Bad(format!("{name} has more than {MOST_METADATA} bytes")));
    }
    part.read().map_err(NotRead::Here)
}

/// The mapping that a file is.
pub(super) fn map_of(part: &Part, name: &str) -> Result<Map, NotRead> {
    map(&whole(part, name)?).map_err(|why| NotRead::Bad(format!("cannot load {name}: {why}")))
}

/// Reads a mapping of anyone's, as Helm does.
fn map(bytes: &[u8]) -> Result<Map, String> {
    map_in(bytes, Dialect::Kustomization)
}

/// Reads a mapping that has each key once.
pub(in crate::helm) fn strict_map(bytes: &[u8]) -> Result<Map, String> {
    map_in(bytes, Dialect::Object)
}

fn map_in(bytes: &[u8], dialect: Dialect) -> Result<Map, String> {
    let documents = read_documents(bytes, dialect, &Limits::within(MEMORY));
    match documents.map_err(|error| error.to_string())?.pop().map(|document| document.value) {
        Some(Value::Map(map)) => Ok(map),
        None | Some(Value::Null(_)) => Ok(Map::new()),
        Some(other) => Err(format!("it is {}; it must be a mapping", other.type_name())),
    }
}

/// What a chart is called becomes a name of a folder and of a file: it is one name, and no way to anywhere.
pub(in crate::helm) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("validation: chart.metadata.name is required".to_owned());
    }
    let is_way = matches!(name, "." | "..") || name.contains(['/', '\\']);
    if is_way || name.len() > MOST || name.chars().any(char::is_control) {
        return Err(format!("validation: chart.metadata.name \"{}\" is invalid", shown(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_chart_must_say() {
        let good = "apiVersion: v2\nname: app\nversion: v1.2\ntype: library\nmore: [kept]\n";
        let mut metadata = Metadata::parse(good.as_bytes()).unwrap();
        assert_eq!((metadata.name.as_str(), metadata.version.as_str()), ("app", "v1.2"));
        let text = metadata.with_build("7").unwrap();
        assert_eq!(metadata.version, "1.2.0+7");
        assert_eq!(text, "apiVersion: v2\nmore:\n- kept\nname: app\ntype: library\nversion: 1.2.0+7\n");
        assert!(metadata.with_build("a/b").is_err());
        for (text, said) in [
            ("", "apiVersion is required"),
            ("apiVersion: v2\nversion: 1.0.0\n", "name is required"),
            ("apiVersion: v2\nname: app\n", "version is required"),
            ("apiVersion: v2\nname: app\nversion: 1.0\n", "version is a number"),
            ("apiVersion: v2\nname: app\nversion: one\n", "version \"one\" is invalid"),
            ("apiVersion: v2\nname: app\nversion: 1.0.0\ntype: x\n", "application or library"),
            ("apiVersion: v2\nname: ../../data/x\nversion: 1.0.0\n", "name \"../../data/x\" is invalid"),
            ("apiVersion: v2\nname: '..'\nversion: 1.0.0\n", "name \"..\" is invalid"),
            ("apiVersion: v2\nname: 'a\\b'\nversion: 1.0.0\n", "is invalid"),
            ("[]", "must be a mapping"),
            ("a: [", "cannot load Chart.yaml"),
        ] {
            let why = Metadata::parse(text.as_bytes()).unwrap_err();
            assert!(why.contains(said), "{text:?}: {why}");
        }
    }
}
