//! Reading an index, version by version. The same rules for YAML and JSON, but that YAML may not have fields that nobody knows: Helm
//! itself is as strict, and where JSON is concerned as lenient.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::Item;
use super::bounded::{Allowance, Bounded};
use super::write::write;
use crate::attempt::plain;
use crate::helm::chart::check_name;
use crate::helm::request::HelmLimits;
use crate::helm::unread::{Stage, Unread};
use crate::tree::Measure;
use crate::version::Version;

/// What one version of a chart may have.
const VERSION_NODES: usize = 20_000;
const VERSION_BYTES: usize = 1 << 20;
const DEPTH: usize = 32;
/// Values of the whole of an index: of 50 MiB, each of some bytes.
const NODES: usize = 20_000_000;
/// Anchors in an index, and how often they are used.
const ANCHORS: usize = 1_000;
const ALIASES: usize = 10_000;
/// Bytes of a chart's name.
const MOST_NAME: usize = 250;

/// What an index has besides its charts, and what of that is passed over.
const PASSED_OVER: [&str; 4] = ["generated", "serverInfo", "publicKeys", "annotations"];
/// What a version of a chart has.
const FIELDS: [&str; 26] = [
    "name",
    "home",
    "sources",
    "version",
    "description",
    "keywords",
    "maintainers",
    "icon",
    "apiVersion",
    "condition",
    "tags",
    "appVersion",
    "deprecated",
    "annotations",
    "kubeVersion",
    "dependencies",
    "type",
    "urls",
    "created",
    "removed",
    "digest",
    "checksum",
    "engine",
    "tillerVersion",
    "url",
    "apiversion",
];

/// An index that was read and written again.
pub(in crate::helm) struct Loaded {
    /// The artifact, at its end.
    pub(in crate::helm) file: File,
    /// Versions of charts that it has.
    pub(in crate::helm) versions: usize,
    /// Versions that were left out since they are none.
    pub(in crate::helm) dropped: u64,
}

/// Reads an index and writes it again, with `folder` for what is too large for memory.
pub(in crate::helm) fn load(
    mut bytes: impl BufRead,
    limits: &HelmLimits,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Loaded, Unread> {
    let is_json = first_byte(&mut bytes).map_err(|error| Unread::internal(&error))? == Some(b'{');
    let parts = File::options().read(true).write(true).create_new(true).open(folder.join("versions"));
    let mut loader = Loader {
        charts: BTreeMap::new(),
        to: BufWriter::new(parts.map_err(|error| Unread::internal(&error))?),
        written: 0,
        versions: 0,
        dropped: 0,
        has_api_version: false,
        is_strict: !is_json,
        limits,
        stop,
        failed: None,
    };
    let read = if is_json {
        let mut json = serde_json::Deserializer::from_reader(bytes);
        loader.read(&mut json).and_then(|()| json.end()).map_err(|error| error.to_string())
    } else {
        yaml(bytes, &mut loader)
    };
    if let Some(failed) = loader.failed.take() {
        return Err(failed);
    }
    // What a parser says may go over several lines, and quote the text.
    read.map_err(|why| unread(plain(why.lines().next().unwrap_or_default())))?;
    if !loader.has_api_version {
        return Err(unread("no API version specified"));
    }
    let Loader { charts, to, versions, dropped, .. } = loader;
    let mut parts = to.into_inner().map_err(|error| Unread::internal(error.error()))?;
    let file = write(charts, &mut parts, limits, folder)?;
    Ok(Loaded { file, versions, dropped })
}

/// Reads YAML, of which no more is in memory than what is being looked at, and what anchors name.
fn yaml(bytes: impl BufRead, loader: &mut Loader<'_>) -> Result<(), String> {
    let most = usize::try_from(loader.limits.index_bytes).unwrap_or(usize::MAX);
    let budget = serde_saphyr::budget! {
        max_reader_input_bytes: Some(most),
        max_depth: DEPTH,
        max_events: 2 * NODES,
        max_nodes: NODES,
        max_total_scalar_bytes: most,
        max_anchors: ANCHORS,
        max_aliases: ALIASES,
        max_recorded_anchor_events: 10 * ALIASES,
        max_recorded_anchor_bytes: 4 << 20,
    };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    serde_saphyr::with_deserializer_from_reader_with_options(bytes, options, |from| loader.read(from))
        .map_err(|error| error.to_string())
}

fn unread(why: impl Into<String>) -> Unread {
    Unread::Failed(Stage::LoadIndex, why.into())
}

/// The first byte that is not white space, which stays where it is.
fn first_byte(bytes: &mut impl BufRead) -> std::io::Result<Option<u8>> {
    let buffer = bytes.fill_buf()?;
    Ok(buffer.iter().copied().find(|byte| !byte.is_ascii_whitespace()))
}

/// An index that is being read.
struct Loader<'a> {
    charts: BTreeMap<String, Vec<Item>>,
    to: BufWriter<File>,
    written: u64,
    versions: usize,
    dropped: u64,
    has_api_version: bool,
    is_strict: bool,
    limits: &'a HelmLimits,
    stop: &'a AtomicBool,
    /// What is wrong, where that is not for the parser to say.
    failed: Option<Unread>,
}

impl Loader<'_> {
    fn read<'de, D: Deserializer<'de>>(&mut self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(Index(self))
    }

    fn fail<E: Error>(&mut self, unread: Unread) -> E {
        self.failed.get_or_insert(unread);
        E::custom("not read")
    }

    /// Takes a version of a chart, or leaves it out where it is none.
    fn take<E: Error>(&mut self, chart: &str, value: &Value) -> Result<(), E> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(self.fail(Unread::Stopped));
        }
        if self.is_strict
            && let Some(fields) = value.as_object()
            && let Some(field) = fields.keys().find(|field| !FIELDS.contains(&field.as_str()))
        {
            return Err(E::custom(format!("unknown field {field:?} of chart {chart:?}")));
        }
        let Some(version) = version_of(chart, value) else {
            self.dropped += 1;
            return Ok(());
        };
        self.versions += 1;
        let limit = self.limits.versions;
        if self.versions > limit {
            let measure = Measure::ChartVersions;
            return Err(self.fail(Unread::TooLarge { measure, limit: limit as u64, path: None }));
        }
        // Texts, numbers and lists of them: they always become JSON.
        let bytes = serde_json::to_vec(value).map_err(E::custom)?;
        let created = value["created"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let size = u32::try_from(bytes.len()).map_err(E::custom)?;
        let item = Item { version, created, offset: self.written, size };
        self.written += u64::from(size);
        let limit = self.limits.index_artifact_bytes;
        if self.written > limit {
            return Err(self.fail(Unread::TooLarge { measure: Measure::ArtifactBytes, limit, path: None }));
        }
        self.to.write_all(&bytes).map_err(|error| self.fail(Unread::internal(&error)))?;
        self.charts.entry(chart.to_owned()).or_default().push(item);
        Ok(())
    }
}

/// The version that an entry is of; none of an entry that Helm leaves out.
fn version_of(chart: &str, value: &Value) -> Option<Version> {
    let text = |field: &str| value[field].as_str();
    // An index of older tools says the name only once.
    let name = text("name").unwrap_or(chart);
    let kind = text("type").unwrap_or_default();
    let has_urls = value
        .get("urls")
        .is_none_or(|urls| urls.as_array().is_some_and(|urls| urls.iter().all(Value::is_string)));
    let has_digest = value.get("digest").is_none_or(|digest| digest.is_null() || digest.is_string());
    let is_one =
        check_name(name).is_ok() && matches!(kind, "" | "application" | "library") && has_urls && has_digest;
    Version::coerced(text("version")?).filter(|_| is_one)
}

/// The document.
struct Index<'l, 'a>(&'l mut Loader<'a>);

impl<'de> Visitor<'de> for Index<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index of a Helm repository")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (loader, mut seen) = (self.0, Vec::new());
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("key {key:?} already set in map")));
            }
            match key.as_str() {
                "apiVersion" => {
                    let text: Option<String> = map.next_value()?;
                    loader.has_api_version = text.is_some_and(|text| !text.is_empty());
                }
                "entries" => map.next_value_seed(Entries(&mut *loader))?,
                known if PASSED_OVER.contains(&known) => map.next_value::<IgnoredAny>().map(|_| ())?,
                _ if loader.is_strict => {
                    return Err(A::Error::custom(format!("unknown field {:?}", crate::tree::shown(&key))));
                }
                _ => map.next_value::<IgnoredAny>().map(|_| ())?,
            }
            if seen.len() < 16 {
                seen.push(key);
            }
        }
        Ok(())
    }
}

/// Charts by their names.
struct Entries<'l, 'a>(&'l mut Loader<'a>);

impl<'de> DeserializeSeed<'de> for Entries<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("charts by their names")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let loader = self.0;
        while let Some(chart) = map.next_key::<String>()? {
            if chart.len() > MOST_NAME {
                return Err(A::Error::custom(format!("a chart's name has more than {MOST_NAME} bytes")));
            }
            if loader.charts.contains_key(&chart) {
                return Err(A::Error::custom(format!("key {chart:?} already set in map")));
            }
            if loader.charts.len() >= loader.limits.versions {
                let (measure, limit) = (Measure::ChartVersions, loader.limits.versions as u64);
                return Err(loader.fail(Unread::TooLarge { measure, limit, path: None }));
            }
            loader.charts.insert(chart.clone(), Vec::new());
            map.next_value_seed(Versions { loader: &mut *loader, chart: &chart })?;
        }
        loader.charts.retain(|_, versions| !versions.is_empty());
        Ok(())
    }
}

/// The versions of one.
struct Versions<'l, 'a> {
    loader: &'l mut Loader<'a>,
    chart: &'l str,
}

impl<'de> DeserializeSeed<'de> for Versions<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Versions<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the versions of a chart")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        loop {
            let mut left = Allowance { nodes: VERSION_NODES, bytes: VERSION_BYTES };
            let version = Bounded { left: &mut left, depth: DEPTH };
            let Some(value) = seq.next_element_seed(version)? else { return Ok(()) };
            self.loader.take(self.chart, &value)?;
        }
    }
}
