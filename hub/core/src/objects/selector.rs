//! Label and field selectors.

use std::collections::BTreeMap;

use roadstead_api::KindId;

use crate::HubError;
use crate::objects::fields;

/// What must hold of a map of texts: all requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

/// Longer selectors are refused.
const MAX_LENGTH: usize = 16 * 1024;

impl Selector {
    /// Reads a label selector: `app=web,tier!=db,env in (a, b),!old`.
    ///
    /// # Errors
    /// [`HubError::BadRequest`] where it is none.
    pub fn labels(text: &str) -> Result<Self, HubError> {
        let refuse =
            |why: &str| HubError::BadRequest(format!("unable to parse the label selector `{text}`: {why}"));
        if text.len() > MAX_LENGTH {
            return Err(HubError::BadRequest("the label selector is too long".to_owned()));
        }
        let mut requirements = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                if text.trim().is_empty() {
                    continue;
                }
                return Err(refuse("an empty requirement"));
            }
            let requirement = one(part).ok_or_else(|| refuse(part))?;
            let (key, values) = match &requirement {
                Requirement::In(key, values) | Requirement::NotIn(key, values) => (key, values.as_slice()),
                Requirement::Exists(key) | Requirement::Missing(key) => (key, [].as_slice()),
            };
            if !roadstead_api::rules::is_qualified_name(key) {
                return Err(refuse("not a valid label key"));
            }
            if !values.iter().all(|value| roadstead_api::rules::is_label_value(value)) {
                return Err(refuse("not a valid label value"));
            }
            requirements.push(requirement);
        }
        Ok(Self(requirements))
    }

    /// Reads a field selector: `metadata.name=web`.
    ///
    /// # Errors
    /// [`HubError::BadRequest`] where it is none, or names a field that objects of `kind` cannot be selected by.
    pub fn fields(kind: KindId, text: &str) -> Result<Self, HubError> {
        if text.len() > MAX_LENGTH {
            return Err(HubError::BadRequest("the field selector is too long".to_owned()));
        }
        let mut requirements = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let requirement = equality(part).ok_or_else(|| {
                HubError::BadRequest(format!("invalid field selector `{text}`: can't understand `{part}`"))
            })?;
            if let Requirement::In(key, values) | Requirement::NotIn(key, values) = &requirement {
                if values.iter().any(|value| value.contains(char::is_control)) {
                    return Err(HubError::BadRequest(
                        "the field selector holds a control character".to_owned(),
                    ));
                }
                if !fields::is_selectable(kind, key) {
                    return Err(HubError::BadRequest(format!("field label not supported: {key}")));
                }
            }
            requirements.push(requirement);
        }
        Ok(Self(requirements))
    }

    /// The keys that must have one value, with it.
    #[must_use]
    pub fn equalities(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .filter_map(|requirement| match requirement {
                Requirement::In(key, values) if values.len() == 1 => Some((key.clone(), values[0].clone())),
                _ => None,
            })
            .collect()
    }

    /// Whether it selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one value that `key` must have, where there is one.
    #[must_use]
    pub fn exact(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|requirement| match requirement {
            Requirement::In(present, values) if present == key && values.len() == 1 => {
                Some(values[0].as_str())
            }
            _ => None,
        })
    }

    /// Whether all requirements hold.
    #[must_use]
    pub fn matches(&self, map: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => map.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => map.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => map.contains_key(key),
            Requirement::Missing(key) => !map.contains_key(key),
        })
    }
}

/// At commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' => inside = true,
            ')' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn equality(part: &str) -> Option<Requirement> {
    let (key, value, equal) = if let Some((key, value)) = part.split_once("!=") {
        (key, value, false)
    } else if let Some((key, value)) = part.split_once("==") {
        (key, value, true)
    } else {
        let (key, value) = part.split_once('=')?;
        (key, value, true)
    };
    let (key, values) = (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if key.is_empty() {
        return None;
    }
    Some(if equal { Requirement::In(key, values) } else { Requirement::NotIn(key, values) })
}

fn one(part: &str) -> Option<Requirement> {
    if let Some(list) = part.strip_suffix(')') {
        let (head, list) = list.split_once('(')?;
        let values: Vec<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        let (key, operator) = (words.next()?.to_owned(), words.next()?);
        if words.next().is_some() {
            return None;
        }
        return match operator {
            "in" => Some(Requirement::In(key, values)),
            "notin" => Some(Requirement::NotIn(key, values)),
            _ => None,
        };
    }
    if part.contains('=') {
        return equality(part);
    }
    match part.strip_prefix('!') {
        Some(key) => Some(Requirement::Missing(key.trim().to_owned())),
        None => Some(Requirement::Exists(part.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use roadstead_api::KindId;

    use super::Selector;

    #[test]
    fn selects_as_kubectl_does() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("env", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for yes in [
            "",
            "app",
            "app=web",
            "app==web,env!=b",
            "env in (a, b),!old",
            "tier notin (x)",
            "x.io/y notin (a)",
        ] {
            assert!(Selector::labels(yes).unwrap().matches(&labels), "{yes}");
        }
        for no in ["old", "app=db", "!app", "env notin (a,b)", "tier in (x)"] {
            assert!(!Selector::labels(no).unwrap().matches(&labels), "{no}");
        }
        for bad in
            [",", "a=b=c", "a in b", "a within (b)", "-a", "a=-", "a,,b", "(a)", "'; DROP TABLE resource; --"]
        {
            assert!(Selector::labels(bad).is_err(), "{bad}");
        }
        assert_eq!(
            Selector::fields(KindId::Secret, "metadata.name=web").unwrap().exact("metadata.name"),
            Some("web")
        );
        assert!(Selector::fields(KindId::Secret, "type=Opaque").is_ok());
        for bad in ["spec.path=x", "type", "=x", "metadata.name=a\u{0}"] {
            assert!(Selector::fields(KindId::Secret, bad).is_err(), "{bad}");
        }
        assert!(Selector::fields(KindId::Cluster, "type=Opaque").is_err());
    }
}
