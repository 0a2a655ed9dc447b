//! Which versions of charts an index has that are asked for.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::helm::unread::Unread;
use crate::tree::shown;
use crate::version::{Constraint, ImproperConstraint, Version};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::helm) struct Choice {
    pub(in crate::helm) chart: String,
    /// A version or a range of versions; the newest that is stable where it is empty.
    pub(in crate::helm) version: String,
}

/// What an index says of a version of a chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::helm) struct Chosen {
    pub(in crate::helm) version: String,
    #[serde(default)]
    pub(in crate::helm) urls: Vec<String>,
    #[serde(default)]
    pub(in crate::helm) digest: Option<String>,
}

/// Looks for several at once in an index that was written by [`super::load`], in which newer versions come first. Of each the version, or why
/// there is none.
pub(in crate::helm) fn choose(
    choices: &[Choice],
    index: impl Read,
) -> Result<Vec<Result<Chosen, String>>, Unread> {
    let mut searches: Vec<Search<'_>> = choices.iter().map(Search::new).collect();
    let mut json = serde_json::Deserializer::from_reader(index);
    let read = (&mut json).deserialize_map(Document(&mut searches)).and_then(|()| json.end());
    read.map_err(|error| Unread::Internal(format!("the stored index: {error}")))?;
    Ok(searches.into_iter().map(Search::result).collect())
}

/// A search for one chart.
struct Search<'a> {
    choice: &'a Choice,
    range: &'a str,
    constraint: Result<Constraint, ImproperConstraint>,
    found: Option<Chosen>,
    /// Whether there is such a chart.
    seen: bool,
}

impl<'a> Search<'a> {
    fn new(choice: &'a Choice) -> Self {
        let range = if choice.version.is_empty() { "*" } else { &choice.version };
        // A version that stands there as it is counts, whatever its form.
        Self { choice, range, constraint: Constraint::parse(range), found: None, seen: false }
    }

    fn version(&mut self, chosen: &Chosen) {
        let is_exact = |one: &Chosen| one.version == self.choice.version;
        let fits = || {
            let version = Version::parse(&chosen.version);
            let constraint = self.constraint.as_ref().ok();
            version.zip(constraint).is_some_and(|(version, constraint)| constraint.matches(&version))
        };
        let takes = match &self.found {
            Some(found) => !is_exact(found) && is_exact(chosen),
            None => is_exact(chosen) || fits(),
        };
        if takes {
            self.found = Some(chosen.clone());
        }
    }

    fn result(self) -> Result<Chosen, String> {
        match (self.found, self.constraint) {
            (Some(found), _) => Ok(found),
            (None, _) if !self.seen => Err("no chart name found".to_owned()),
            (None, Err(error)) => Err(error.to_string()),
            (None, Ok(_)) => {
                let (chart, range) = (shown(&self.choice.chart), shown(self.range));
                Err(format!("no '{chart}' chart with version matching '{range}' found"))
            }
        }
    }
}

struct Document<'l, 'a>(&'l mut [Search<'a>]);

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an index")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "entries" => map.next_value_seed(Entries(&mut *self.0))?,
                _ => map.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
        Ok(())
    }
}

struct Entries<'l, 'a>(&'l mut [Search<'a>]);

impl<'de> DeserializeSeed<'de> for Entries<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("charts")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(chart) = map.next_key::<String>()? {
            let mut searches: Vec<_> =
                self.0.iter_mut().filter(|search| search.choice.chart == chart).collect();
            if searches.is_empty() {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            searches.iter_mut().for_each(|search| search.seen = true);
            map.next_value_seed(Versions(searches))?;
        }
        Ok(())
    }
}

/// The versions of a chart, and those who search for it.
struct Versions<'l, 'a>(Vec<&'l mut Search<'a>>);

impl<'de> DeserializeSeed<'de> for Versions<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Versions<'_, '_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("versions")
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(mut chosen) = seq.next_element::<Chosen>()? {
            // Only the first one is ever asked.
            chosen.urls.truncate(1);
            self.0.iter_mut().for_each(|search| search.version(&chosen));
        }
        Ok(())
    }
}
