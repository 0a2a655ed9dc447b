//! Which version of a chart an index has that is asked for.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::helm::unread::{Stage, Unread};
use crate::tree::shown;
use crate::version::{Constraint, Version};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

impl Choice {
    /// Looks for it in an index that was written by [`super::load`]: newer versions come first.
    pub(in crate::helm) fn look(&self, index: impl Read) -> Result<Chosen, Unread> {
        let fail = |why: String| {
            let what = "failed to get chart version for remote reference";
            Unread::Failed(Stage::Reference, format!("{what}: {why}"))
        };
        let range = if self.version.is_empty() { "*" } else { &self.version };
        // A version that stands there as it is counts, whatever it looks like.
        let constraint = Constraint::parse(range);
        let mut look = Look { choice: self, constraint: constraint.as_ref().ok(), found: None, seen: false };
        let mut json = serde_json::Deserializer::from_reader(index);
        let read = (&mut json).deserialize_map(Document(&mut look)).and_then(|()| json.end());
        read.map_err(|error| Unread::Internal(format!("the stored index: {error}")))?;
        let (found, seen) = (look.found.take(), look.seen);
        match (found, &constraint) {
            (Some(found), _) => Ok(found),
            (None, _) if !seen => Err(fail("no chart name found".to_owned())),
            (None, Err(error)) => Err(fail(error.to_string())),
            (None, Ok(_)) => {
                let (chart, range) = (shown(&self.chart), shown(range));
                Err(fail(format!("no '{chart}' chart with version matching '{range}' found")))
            }
        }
    }
}

/// A look that is under way.
struct Look<'a> {
    choice: &'a Choice,
    constraint: Option<&'a Constraint>,
    found: Option<Chosen>,
    /// Whether there is such a chart.
    seen: bool,
}

impl Look<'_> {
    fn version(&mut self, chosen: Chosen) {
        let is_exact = |one: &Chosen| one.version == self.choice.version;
        let fits = || {
            let version = Version::parse(&chosen.version);
            version.zip(self.constraint).is_some_and(|(version, constraint)| constraint.matches(&version))
        };
        let takes = match &self.found {
            Some(found) => !is_exact(found) && is_exact(&chosen),
            None => is_exact(&chosen) || fits(),
        };
        if takes {
            self.found = Some(chosen);
        }
    }
}

struct Document<'l, 'a>(&'l mut Look<'a>);

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

struct Entries<'l, 'a>(&'l mut Look<'a>);

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
            if chart == self.0.choice.chart {
                self.0.seen = true;
                map.next_value_seed(Versions(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Versions<'l, 'a>(&'l mut Look<'a>);

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
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(chosen) = seq.next_element::<Chosen>()? {
            self.0.version(chosen);
        }
        Ok(())
    }
}
