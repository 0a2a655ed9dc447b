//! Schemas in comments: after `items: # {"x-kubernetes-patch-strategy": "merge"}`, a strategic merge joins the list.
//!
//! kustomize looks at comments when it merges, those that YAML's reader counts for the key or for its value.

use std::cell::Cell;
use std::rc::Rc;

use super::scan::Mark;
use crate::value::{Map, Str, Value};

/// A schema that a comment gives for a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hint {
    /// The key of the field: no other has this very text.
    pub(crate) key: Str,
    /// Is the comment one of the value, rather than of the key?
    pub(crate) on_value: bool,
    pub(crate) schema: Rc<Map>,
    /// The line of the comment, from 0.
    pub(super) line: usize,
}

/// The lines of a text in which such a comment may be.
pub(super) struct Comments<'t> {
    lines: Vec<&'t str>,
    /// The place that was asked for last. The reader goes on from there, so that no line is counted through for each of its
    /// keys.
    last: Cell<Place>,
}

/// A place on a line.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    line: usize,
    /// In characters.
    column: usize,
    /// The same in bytes.
    at: usize,
}

impl<'t> Comments<'t> {
    /// None for a text that has none.
    pub(super) fn find(text: &'t str) -> Option<Self> {
        let begins = |(at, _): (usize, &str)| {
            let hashes = &text[at..];
            // Each run of these signs is looked at once.
            !text[..at].ends_with('#') && content(hashes).starts_with('{')
        };
        let some = text.match_indices('#').any(begins);
        // Lines are counted as the reader counts them.
        some.then(|| Self {
            lines: text.split(['\n', '\u{85}', '\u{2028}', '\u{2029}']).collect(),
            last: Cell::default(),
        })
    }

    /// Lines, each of which takes a place.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// What stands on a line from a place on.
    fn rest(&self, from: Mark) -> &'t str {
        let line = self.lines.get(from.line).copied().unwrap_or_default();
        let last = self.last.get();
        let begin = if last.line == from.line && last.column <= from.column {
            last
        } else {
            Place { line: from.line, ..Place::default() }
        };
        let rest = &line[begin.at..];
        let further = rest.char_indices().nth(from.column - begin.column).map_or(rest.len(), |(at, _)| at);
        let at = begin.at + further;
        self.last.set(Place { line: from.line, column: from.column, at });
        &line[at..]
    }

    /// The comment after a key that ends here, and its colon.
    pub(super) fn after_key(&self, end: Mark) -> Option<&'t str> {
        let rest = self.rest(end).trim_start_matches(BLANK).strip_prefix(':')?;
        let comment = rest.trim_start_matches(BLANK);
        (comment.len() < rest.len() && comment.starts_with('#')).then_some(comment)
    }

    /// The comment after a value in brackets that ends here.
    pub(super) fn after_brackets(&self, end: Mark) -> Option<&'t str> {
        let comment = self.rest(end).trim_start_matches([' ', '\t', ',']);
        comment.starts_with('#').then_some(comment)
    }

    /// The first line of the comment above a key that begins here. What came before it ended there; a comment with a gap
    /// below it belongs to that, if there is something in the same mapping.
    pub(super) fn above(&self, start: Mark, before: Mark, first: bool) -> Option<&'t str> {
        let line = self.lines.get(start.line)?;
        if !line.chars().take(start.column).all(|c| c == ' ') {
            return None;
        }
        let from = before.line + usize::from(before.column > 0);
        let above = self.lines.get(from..start.line)?;
        let is_gap = |line: &&&str| line.trim_matches(['\r', ' ', '\t']).is_empty();
        let gap = above.iter().rev().take_while(is_gap).count();
        if gap > 0 && !first {
            return None;
        }
        let mut comment = None;
        for line in above[..above.len() - gap].iter().rev() {
            let line = line.trim_start_matches(BLANK);
            if !line.starts_with('#') {
                break;
            }
            comment = Some(line);
        }
        comment
    }
}

const BLANK: [char; 2] = [' ', '\t'];

/// A comment without the signs that make it one.
fn content(comment: &str) -> &str {
    comment.trim_start_matches('#').trim_start_matches(BLANK)
}

/// The schema that a comment is. What follows the JSON does not count.
pub(super) fn schema(comment: &str) -> Option<Map> {
    let content = content(comment);
    if !content.starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(content).into_iter::<Value>();
    match values.next()? {
        Ok(Value::Map(map)) if !map.is_empty() && is_schema(&map) => Some(map),
        _ => None,
    }
}

/// Has each part the type that a schema's parts have? If not, the comment says nothing.
fn is_schema(map: &Map) -> bool {
    let of_texts = |items: &[Value]| items.iter().all(|item| item.as_str().is_some());
    let of_schemas = |map: &Map| map.iter().all(|(_, value)| value.as_map().is_some_and(is_schema));
    map.iter().all(|(key, value)| match (&**key, value) {
        ("$ref" | "description" | "format" | "title" | "pattern", value) => value.as_str().is_some(),
        ("type", Value::String(_)) => true,
        ("type" | "required", Value::List(items)) => of_texts(items),
        ("type" | "required", _) => false,
        ("properties", Value::Map(map)) => of_schemas(map),
        ("properties", _) => false,
        ("items", Value::Map(map)) => is_schema(map),
        ("items", value) => matches!(value, Value::List(_)),
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_are_schemas() {
        assert!(schema("# {\"type\": \"array\"} and more").is_some());
        for other in
            ["# {}", "# x", "# {\"type\": 5}", "# {\"type\"", "# []", "# {\"properties\": {\"a\": 1}}"]
        {
            assert_eq!(schema(other), None, "{other}");
        }
        assert!(Comments::find("a: 1 # x\nb: '# x'\n").is_none());
        assert!(Comments::find("a: 1\n##  {\"type\": \"x\"}\n").is_some());
    }

    #[test]
    fn places_are_found_in_any_order() {
        let comments = Comments::find("äöü: 1 # {}\n\nb: é").unwrap();
        let rest = |line, column| comments.rest(Mark { index: 0, line, column });
        for _ in 0..2 {
            assert_eq!(rest(0, 1), "öü: 1 # {}");
            assert_eq!(rest(0, 3), ": 1 # {}");
            assert_eq!(rest(0, 3), ": 1 # {}");
            assert_eq!(rest(0, 99), "");
            assert_eq!(rest(2, 3), "é");
            assert_eq!(rest(2, 0), "b: é");
            assert_eq!(rest(1, 0), "");
            assert_eq!(rest(7, 7), "");
        }
    }
}
