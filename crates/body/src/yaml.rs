//! Bodies in YAML, read by the rules that an apiserver has (YAML 1.1's words, then as JSON), and bounded.

use roadstead_kustomize::Limits;
use roadstead_kustomize::yaml::read_strict;
use serde_json::Value;

use crate::{BodyError, json};

/// How deep lists and mappings may nest: as deep as JSON bodies may.
const MAX_DEPTH: usize = 127;
/// With aliases expanded.
const MAX_VALUES: usize = 200_000;
/// Bytes of text, with aliases expanded: as large as a body may be.
const MAX_TEXT: usize = 3 * 1024 * 1024;
/// Documents, empty ones included: a `---` at either end makes one.
const MAX_DOCUMENTS: usize = 8;

/// How the reader's messages about what more memory would allow end.
const LIMITS: [&str; 2] = ["with aliases expanded", "of memory"];
/// What the JSON value costs in memory, at most, that is made of one which was read: a map of one entry.
const VALUE: usize = 900;

/// The value of a text of one YAML document, which may take `memory` bytes. JSON is YAML: it is read as JSON, whose escapes
/// YAML does not all have.
///
/// # Errors
/// [`BodyError`] for what is not YAML, is too large or too deep, has a key twice, or is not one document.
pub(crate) fn parse(bytes: &[u8], memory: usize) -> Result<Value, BodyError> {
    let bad = |why: String| BodyError::Malformed { form: "YAML", why };
    if bytes.len() > MAX_TEXT {
        return Err(bad(format!("more than {MAX_TEXT} bytes")));
    }
    let mut not_json = None;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
        match json::parse(bytes, memory) {
            Ok(parsed) => match parsed.duplicates.first() {
                None => return Ok(parsed.value),
                Some(twice) => return Err(bad(format!("duplicate key {twice}"))),
            },
            Err(BodyError::Malformed { why, .. }) => not_json = Some(why),
            Err(error) => return Err(error),
        }
    }
    let mut limits = Limits::default();
    // Half for what is read, half for the JSON that is made of it.
    let text = (memory / 8).min(MAX_TEXT);
    let values = ((memory / 2 - text) / VALUE).min(MAX_VALUES);
    limits.memory = memory / 2;
    limits.depth = MAX_DEPTH;
    limits.nodes = values;
    limits.total_bytes = text;
    limits.documents = MAX_DOCUMENTS;
    if bytes.len() > text {
        return Err(BodyError::Memory { memory });
    }
    let (documents, _) = match read_strict(bytes, &limits) {
        Ok(read) => read,
        // With more memory it may get further.
        Err(error)
            if LIMITS.iter().any(|limit| error.message.ends_with(limit))
                && (values < MAX_VALUES || text < MAX_TEXT) =>
        {
            return Err(BodyError::Memory { memory });
        }
        Err(error) => {
            return Err(bad(not_json.unwrap_or_else(|| format!("line {}: {}", error.line, error.message))));
        }
    };
    match documents.as_slice() {
        [document] => Ok(document.value.to_json()),
        [] => Err(BodyError::Empty),
        more => Err(bad(format!("{} documents, want one", more.len()))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use serde_json::Value;

    use crate::BodyError;

    fn parse(bytes: &[u8]) -> Result<Value, BodyError> {
        super::parse(bytes, 1 << 30)
    }

    proptest! {
        /// No panic, and JSON is read as JSON.
        #[test]
        fn any_text(text in "[-{}\\[\\]:,&*!|>'\"#%@a-c0-9 \n\t~?=.]{0,60}") {
            let read = parse(text.as_bytes());
            if text.trim_start().starts_with('{')
                && let Ok(parsed) = crate::json::parse(text.as_bytes(), 1 << 20)
                && parsed.duplicates.is_empty()
            {
                prop_assert_eq!(read.ok(), Some(parsed.value));
            }
        }
    }

    #[test]
    fn one_document_by_the_rules_of_an_apiserver() {
        let text = "---\n# a note\na: yes\nb: 'yes'\nc: 0o17\nd: 012\ne: 1.0\nf: 1e3\ng: ~\nh: |\n  x\n  y\ni: &i [1, on]\n\
                    j: *i\n2: two\nk: 2020-01-02\nl: 18446744073709551615\n---\n";
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            json!({ "a": true, "b": "yes", "c": 15, "d": 10, "e": 1, "f": 1000, "g": null, "h": "x\ny\n",
                "i": [1, true], "j": [1, true], "2": "two", "k": "2020-01-02", "l": 18_446_744_073_709_551_615_u64 })
        );
        let json = b"\t{ \"a\":\t\"\\ud83d\\ude00\\/\", \"b\": [1.5, null, -3] }\n";
        assert_eq!(parse(json).unwrap(), json!({ "a": "\u{1f600}/", "b": [1.5, null, -3] }));
        assert_eq!(parse(b"{a: b}").unwrap(), json!({ "a": "b" }), "flow style that is not JSON");
    }

    #[test]
    fn what_is_refused() {
        let bomb = (1..30).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, i| {
            text + &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 8].join(", "))
        });
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        let deep_json = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
        for (text, part) in [
            (b"a: 1\na: 2\n".as_slice(), "duplicate key"),
            (b"{\"a\": 1, \"a\": 2}", "duplicate key"),
            (b"a: 1\n---\nb: 2\n", "2 documents"),
            (b"", "no body"),
            (b"# nothing\n", "no body"),
            (b"a: b: c\n", "line 1"),
            (b"a: \xff\n", "UTF-8"),
            (b"a: .inf\n", "JSON"),
            (bomb.as_bytes(), "aliases"),
            (deep.as_bytes(), "deeper"),
            (deep_json.as_bytes(), "recursion"),
            (b"{\"a\": 1", "EOF"),
            (&[b' '; 4 << 20], "bytes"),
        ] {
            let error = parse(text).expect_err(part).to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_does_not_fit_the_memory_is_told_apart_from_what_is_no_yaml() {
        let many = "- {}\n".repeat(10_000);
        let anchors = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(100), "*a, ".repeat(100));
        for text in [many.as_str(), anchors.as_str(), &"x".repeat(200_000)] {
            let error = super::parse(text.as_bytes(), 1 << 20).unwrap_err();
            assert!(matches!(error, BodyError::Memory { .. }), "{error}");
            assert!(super::parse(text.as_bytes(), 64 << 20).is_ok());
        }
        assert!(matches!(super::parse(b"a: b: c", 1 << 20), Err(BodyError::Malformed { .. })));
        assert!(matches!(super::parse(b"a: b", 0), Err(BodyError::Memory { .. })));
    }
}
