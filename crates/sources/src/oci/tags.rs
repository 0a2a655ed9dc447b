//! Which of a repository's tags is the newest in a range of versions. Tags are looked at one by one, so that a list of any
//! length takes the memory of one.

use std::cmp::Ordering;
use std::fmt;
use std::io::Read;

use regex::Regex;
use roadstead_go_regex::Limits;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::name::is_tag;
use super::unread::Unread;
use crate::tree::Measure;
use crate::version::{Constraint, Version};

/// What a compiled filter may take.
const FILTER: Limits = Limits { program: 1 << 20, tables: 1 << 20 };
/// Bytes of a filter.
const MOST_FILTER: usize = 4_096;

/// Which tag is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    /// A range of versions.
    pub(super) semver: String,
    /// What a tag must match somewhere, before it is looked at.
    pub(super) filter: Option<String>,
    /// Whether a `_` stands for the `+` that tags cannot have, as Helm's charts have it.
    pub(super) is_of_charts: bool,
    /// Tags that are looked at.
    pub(super) most: usize,
}

impl Range {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it, for whoever wrote it.
    pub(super) fn compile(&self) -> Result<Picker, String> {
        let constraint = Constraint::parse(&self.semver);
        let constraint =
            constraint.map_err(|error| format!("semver '{}' parse error: {error}", self.semver))?;
        let compile = |filter: &str| {
            if filter.len() > MOST_FILTER {
                return Err(format!("spec.ref.semverFilter is longer than {MOST_FILTER} bytes"));
            }
            roadstead_go_regex::compile(filter, FILTER)
                .map_err(|error| format!("spec.ref.semverFilter: {error}"))
        };
        let filter = self.filter.as_deref().filter(|filter| !filter.is_empty()).map(compile).transpose()?;
        let (charts, most) = (self.is_of_charts, self.most);
        Ok(Picker { constraint, filter, charts, most, seen: 0, best: None })
    }
}

/// Looks at tags.
pub(super) struct Picker {
    constraint: Constraint,
    filter: Option<Regex>,
    charts: bool,
    most: usize,
    seen: usize,
    best: Option<(Version, String)>,
}

impl Picker {
    /// Looks at all tags of a repository's lists, one JSON document after the other; gives the newest that fits.
    pub(super) fn pick(mut self, lists: impl Read) -> Result<Option<String>, Unread> {
        let mut documents = serde_json::Deserializer::from_reader(lists);
        loop {
            match documents.end() {
                Ok(()) => return Ok(self.best.map(|(_, tag)| tag)),
                Err(error) if error.is_io() => return Err(Unread::Internal { detail: error.to_string() }),
                Err(_) => {}
            }
            match (List { picker: &mut self }).deserialize(&mut documents) {
                Ok(()) => {}
                Err(_) if self.seen > self.most => {
                    return Err(Unread::TooLarge { measure: Measure::Tags, limit: self.most as u64 });
                }
                Err(error) => return Err(Unread::Corrupt { detail: format!("its list of tags: {error}") }),
            }
        }
    }

    fn look(&mut self, tag: &str) {
        if !is_tag(tag) || self.filter.as_ref().is_some_and(|filter| !filter.is_match(tag)) {
            return;
        }
        let read = if self.charts { tag.replace('_', "+") } else { tag.to_owned() };
        let Some(version) = Version::parse(&read).filter(|version| self.constraint.matches(version)) else {
            return;
        };
        // Of versions that are equal but for build metadata the tag decides, so that the answer is the same each time.
        let is_newer = self.best.as_ref().is_none_or(|(best, own)| {
            version.precedence(best).then_with(|| tag.cmp(own)) == Ordering::Greater
        });
        if is_newer {
            self.best = Some((version, tag.to_owned()));
        }
    }
}

/// `{"name": …, "tags": […]}`.
struct List<'a> {
    picker: &'a mut Picker,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tags")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "tags" {
                map.next_value_seed(Tags { picker: self.picker })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct Tags<'a> {
    picker: &'a mut Picker,
}

impl<'de> DeserializeSeed<'de> for Tags<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // It is null where there are none.
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Tags<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tags")
    }
    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(tag) = seq.next_element::<String>()? {
            self.picker.seen += 1;
            if self.picker.seen > self.picker.most {
                return Err(A::Error::custom("too many tags"));
            }
            self.picker.look(&tag);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Range;

    fn range(semver: &str, filter: Option<&str>) -> Range {
        Range { semver: semver.to_owned(), filter: filter.map(str::to_owned), is_of_charts: false, most: 100 }
    }

    fn pick(range: &Range, lists: &str) -> Result<Option<String>, String> {
        range.compile()?.pick(lists.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_newest_tag_of_all_pages_is_taken() {
        let lists = r#"{"name": "a", "tags": ["1.2.0", "latest", "v1.10.0", "1.9.0"]}
            {"tags": ["1.3.0", "2.0.0-rc.1"], "name": "a"} {"name": "a", "tags": null}"#;
        let taken = |semver: &str, filter: Option<&str>| pick(&range(semver, filter), lists).unwrap();
        assert_eq!(taken("*", None).as_deref(), Some("v1.10.0"));
        assert_eq!(taken(">=2.0.0-0", None).as_deref(), Some("2.0.0-rc.1"));
        assert_eq!(taken("1.x", Some("\\.[0-9]\\.")).as_deref(), Some("1.9.0"));
        assert_eq!(taken("3.x", None), None);
    }

    #[test]
    fn equal_versions_are_told_apart_by_their_tag() {
        let mut charts = range("*", None);
        charts.is_of_charts = true;
        for tags in ["\"1.0.0_a\", \"1.0.0_b\", \"1.0.0\"", "\"1.0.0\", \"1.0.0_b\", \"1.0.0_a\""] {
            let lists = format!("{{\"tags\": [{tags}]}}");
            assert_eq!(pick(&charts, &lists).unwrap().as_deref(), Some("1.0.0_b"));
            assert_eq!(pick(&range("*", None), &lists).unwrap().as_deref(), Some("1.0.0"));
        }
    }

    #[test]
    fn bad_lists_ranges_and_filters_are_refused() {
        let many = format!("{{\"tags\": [{}]}}", vec!["\"1.0.0\""; 101].join(","));
        assert!(pick(&range("*", None), &many).unwrap_err().contains("more than 100 tags"));
        for bad in ["[]", "{\"tags\": [1]}", "{\"tags\": [\"1.0.0\"", "x", "{\"tags\": \"1.0.0\"}"] {
            assert!(pick(&range("*", None), bad).is_err(), "{bad}");
        }
        assert_eq!(pick(&range("*", None), "").unwrap(), None);
        let error = pick(&range("latest", None), "").unwrap_err();
        assert!(error.contains("improper constraint: \"latest\""), "{error}");
        assert!(pick(&range("*", Some("(")), "").unwrap_err().contains("semverFilter"));
        assert!(pick(&range("*", Some(&"a".repeat(5_000))), "").is_err());
    }
}
