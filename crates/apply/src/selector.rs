//! Label selectors, in the form that kubectl takes: `app=web,tier!=db,env in (a, b),!old,n>3`.

use serde_json::{Map, Value};

/// The most bytes of a selector.
const MOST_BYTES: usize = 4 << 10;

/// What must hold of labels: all requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Reads a selector; an empty one selects everything. The error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err(format!("it is longer than {MOST_BYTES} bytes"));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        parts(text)
            .into_iter()
            .map(|part| Requirement::parse(part.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Do all requirements hold of these labels?
    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)?.as_str());
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::Exists => value.is_some(),
                Operator::Missing => value.is_none(),
                Operator::In(values) => {
                    value.is_some_and(|value| values.iter().any(|wanted| wanted == value))
                }
                Operator::NotIn(values) => {
                    value.is_none_or(|value| values.iter().all(|wanted| wanted != value))
                }
                Operator::Greater(than) => number().is_some_and(|number| number > *than),
                Operator::Less(than) => number().is_some_and(|number| number < *than),
            }
        })
    }
}

impl Requirement {
    fn parse(part: &str) -> Result<Self, String> {
        let (key, operator) = if let Some(key) = part.strip_prefix('!') {
            (key, Operator::Missing)
        } else if let Some(list) = part.strip_suffix(')') {
            set(list).ok_or_else(|| format!("`{part}` is not a requirement"))?
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Operator::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Operator::In(vec![value.trim().to_owned()]))
        } else if let Some((key, than)) = part.split_once('>') {
            (key, Operator::Greater(number(than)?))
        } else if let Some((key, than)) = part.split_once('<') {
            (key, Operator::Less(number(than)?))
        } else {
            (part, Operator::Exists)
        };
        let key = key.trim();
        if !is_key(key) {
            return Err(format!("`{key}` is not a valid label key"));
        }
        if let Operator::In(values) | Operator::NotIn(values) = &operator
            && let Some(value) = values.iter().find(|value| !is_value(value))
        {
            return Err(format!("`{value}` is not a valid label value"));
        }
        Ok(Self { key: key.to_owned(), operator })
    }
}

/// `key in (a, b` and `key notin (a, b`.
fn set(text: &str) -> Option<(&str, Operator)> {
    let (before, values) = text.split_once('(')?;
    let values = values.split(',').map(|value| value.trim().to_owned()).collect();
    let (key, word) = before.trim_end().rsplit_once(char::is_whitespace)?;
    match word {
        "in" => Some((key, Operator::In(values))),
        "notin" => Some((key, Operator::NotIn(values))),
        _ => None,
    }
}

fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{}` is not an integer", text.trim()))
}

/// At commas outside of brackets.
fn parts(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|c| {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    })
    .collect()
}

/// A name, with a prefix before a slash or without.
fn is_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let label = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && is_value(label)
            && !label.is_empty()
    };
    let is_prefix = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(label);
    !name.is_empty() && is_value(name) && prefix.is_none_or(is_prefix)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_value(text: &str) -> bool {
    let at_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        && at_end(bytes.first())
        && at_end(bytes.last())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Selector;

    #[test]
    fn what_selectors_match() {
        let labels = json!({ "app": "web", "tier": "front", "n": "5", "example.com/x": "", "odd": "x y" });
        let labels = labels.as_object();
        for (text, want) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("none", false),
            ("! none", true),
            ("app=web", true),
            ("app == web", true),
            ("app!=web", false),
            ("none!=web", true),
            ("app in (web, api)", true),
            ("app in (api)", false),
            ("app notin (api,db)", true),
            ("none notin (a)", true),
            ("example.com/x=", true),
            ("example.com/x", true),
            ("n>4,n<6", true),
            ("n>5", false),
            ("app>1", false),
            ("app=web,tier in (front,back),!none", true),
            ("app=web,tier=back", false),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(labels), want, "{text}");
        }
        assert!(!Selector::parse("app").unwrap().matches(None));
    }

    #[test]
    fn what_is_no_selector() {
        for text in [
            ",",
            "a,",
            "=x",
            "a=b=c",
            "a in b",
            "a in (",
            "in (a)",
            "a within (b)",
            "a b",
            "a=b c",
            "-a",
            "a/b/c",
            "A.b/c",
            "a=-",
            "n>x",
            "!",
            "a in (b)c",
            "a=b)",
        ] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
        assert!(Selector::parse(&"a,".repeat(5_000)).is_err());
    }
}
