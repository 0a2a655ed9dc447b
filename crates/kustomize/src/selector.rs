//! Label selectors, in the form that kubectl takes, and as strict: `app=web,tier!=db,env in (a, b),!old,n>3`.

use std::collections::HashSet;

/// A label selector in the form that kubectl takes: `a=b,c!=d,e in (f,g),h,!i`.
///
/// ```
/// use roadstead_kustomize::LabelSelector;
///
/// let selector = LabelSelector::parse("app in (web, api), !canary")?;
/// assert!(selector.matches(|key| (key == "app").then_some("web")));
/// assert!(!selector.matches(|_| None));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    Exists,
    Missing,
    In(HashSet<String>),
    NotIn(HashSet<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector; an empty one matches everything. The error says what is wrong, and how long it may be is for the caller to say.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirements = parts(text).map(|part| Requirement::parse(part.trim()));
        Ok(Self { requirements: requirements.collect::<Result<_, _>>()? })
    }

    /// Whether it has no requirement, and so matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Does a set of labels match?
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = get(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::Exists => value.is_some(),
                Operator::Missing => value.is_none(),
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Greater(than) => number().is_some_and(|number| number > *than),
                Operator::Less(than) => number().is_some_and(|number| number < *than),
            }
        })
    }
}

impl Requirement {
    fn parse(part: &str) -> Result<Self, String> {
        let one = |value: &str| HashSet::from([value.trim().to_owned()]);
        let (key, operator) = if let Some(key) = part.strip_prefix('!') {
            (key, Operator::Missing)
        } else if let Some(list) = part.strip_suffix(')') {
            set(list).ok_or_else(|| format!("`{part}` is not a requirement"))?
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Operator::NotIn(one(value)))
        } else if let Some((key, value)) = part.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key, Operator::In(one(value)))
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
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c| {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    })
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
    use super::LabelSelector;

    #[test]
    fn what_selectors_match() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "tier" => Some("front"),
            "n" => Some("5"),
            "example.com/x" => Some(""),
            _ => None,
        };
        for (text, want) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("none", false),
            ("! none", true),
            ("app=web", true),
            ("app == web", true),
            ("app == web , tier", true),
            ("app in (api, web),!none", true),
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
            assert_eq!(LabelSelector::parse(text).unwrap().matches(labels), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector() {
        for text in [
            ",",
            "app=web,",
            "app in web",
            "a=b,,c",
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
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
