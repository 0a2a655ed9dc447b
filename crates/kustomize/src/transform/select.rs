//! Which objects a patch is for.

use std::collections::HashSet;

use crate::budget::{Budget, Held};
use crate::kustomization::Selector;
use crate::pattern;
use crate::resource::{Id, Resource};
use crate::resources::Resources;
use crate::value::{Map, Value};

/// A selector, compiled.
pub(super) struct Matcher {
    group: Pattern,
    version: Pattern,
    kind: Pattern,
    name: Pattern,
    namespace: Pattern,
    labels: LabelSelector,
    annotations: LabelSelector,
    _held: Held,
}

enum Pattern {
    Any,
    /// Without anything that is special to a regular expression: a name, so that the index can be asked.
    Text(String),
    Regex(pattern::Pattern),
}

impl Pattern {
    fn new(field: &str, text: &str, budget: &Budget) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::Any);
        }
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'/')) {
            return Ok(Self::Text(text.to_owned()));
        }
        pattern::compile(&format!("^(?:{text})$"), text, budget)
            .map(Self::Regex)
            .map_err(|message| format!("target.{field}: {message}"))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Text(wanted) => wanted == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

impl Matcher {
    pub(super) fn new(selector: &Selector, budget: &Budget) -> Result<Self, String> {
        /// Of a byte of a label selector: `a in (b,c,d)` becomes a set of texts.
        const BYTE: usize = 96;
        let texts = selector.label_selector.len() + selector.annotation_selector.len();
        let held = budget.hold(texts.saturating_mul(BYTE))?;
        let pattern = |field, text: &str| Pattern::new(field, text, budget);
        let labels = |field, text: &str| {
            LabelSelector::parse(text).map_err(|message| format!("target.{field} {text:?}: {message}"))
        };
        Ok(Self {
            group: pattern("group", &selector.group)?,
            version: pattern("version", &selector.version)?,
            kind: pattern("kind", &selector.kind)?,
            name: pattern("name", &selector.name)?,
            namespace: pattern("namespace", &selector.namespace)?,
            labels: labels("labelSelector", &selector.label_selector)?,
            annotations: labels("annotationSelector", &selector.annotation_selector)?,
            _held: held,
        })
    }

    /// Objects that may match: all, or those of the name.
    fn candidates(&self, objects: &mut Resources) -> Vec<usize> {
        match &self.name {
            Pattern::Text(name) => objects.by_name(name).to_vec(),
            // What a patch left empty is not there any more.
            Pattern::Any | Pattern::Regex(_) => {
                (0..objects.len()).filter(|at| !objects.get(*at).value().is_empty()).collect()
            }
        }
    }

    /// How many objects are looked at.
    pub(super) fn cost(&self, objects: &mut Resources) -> usize {
        match &self.name {
            Pattern::Text(name) => 1 + objects.by_name(name).len(),
            Pattern::Any | Pattern::Regex(_) => 1 + objects.len(),
        }
    }

    /// The objects that match, in order.
    pub(super) fn select(&self, objects: &mut Resources) -> Vec<usize> {
        let candidates = self.candidates(objects);
        candidates.into_iter().filter(|at| self.matches(objects.get(*at))).collect()
    }

    /// The objects that have or had an id which matches, in order; of the selectors, nothing is asked.
    pub(super) fn select_ids(&self, objects: &mut Resources) -> Vec<usize> {
        let candidates = self.candidates(objects);
        candidates.into_iter().filter(|at| self.matches_ids(objects.get(*at))).collect()
    }

    /// Does any id of the object match in all parts? Its present namespace counts as it is written.
    pub(super) fn matches_ids(&self, resource: &Resource) -> bool {
        let matches = |id: &Id, namespace: &str| {
            self.namespace.matches(namespace)
                && self.name.matches(&id.name)
                && self.group.matches(&id.gvk.group)
                && self.version.matches(&id.gvk.version)
                && self.kind.matches(&id.gvk.kind)
        };
        matches(resource.id(), resource.namespace())
            || resource.previous_ids().iter().any(|id| matches(id, &id.effective_namespace))
    }

    /// Do the labels and annotations match?
    pub(super) fn matches_texts(&self, resource: &Resource) -> bool {
        self.labels.matches_map(resource.texts("labels"))
            && self.annotations.matches_map(resource.texts("annotations"))
    }

    fn matches(&self, resource: &Resource) -> bool {
        let (original, current) = (resource.original_id(), resource.id());
        let either = |pattern: &Pattern, a: &str, b: &str| pattern.matches(a) || pattern.matches(b);
        either(&self.namespace, &original.effective_namespace, &current.effective_namespace)
            && either(&self.name, &original.name, &current.name)
            && self.group.matches(&current.gvk.group)
            && self.version.matches(&current.gvk.version)
            && self.kind.matches(&current.gvk.kind)
            && self.matches_texts(resource)
    }
}

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
    /// `>` or `<`, with the number.
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Reads a selector; an empty one matches everything.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // A comma inside of parentheses belongs to the requirement.
            let mut depth = 0_i32;
            let end = rest.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                c == ',' && depth <= 0
            });
            let (one, tail) = end.map_or((rest, ""), |i| (&rest[..i], &rest[i + 1..]));
            requirements.push(Requirement::parse(one.trim())?);
            if end.is_some() && tail.trim().is_empty() {
                return Err("ends with a comma".into());
            }
            rest = tail.trim_start();
        }
        Ok(Self { requirements })
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
                Operator::Greater(bound) => number().is_some_and(|n| n > *bound),
                Operator::Less(bound) => number().is_some_and(|n| n < *bound),
            }
        })
    }

    fn matches_map(&self, map: Option<&Map>) -> bool {
        self.requirements.is_empty() || self.matches(|key| map?.get(key).and_then(Value::as_str))
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let new = |key: &str, operator| {
            let key = key.trim();
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
            if key.is_empty() || !key.chars().all(good) {
                return Err(format!("{key:?} is not a label key"));
            }
            Ok(Self { key: key.to_owned(), operator })
        };
        let set = |values: &str| -> Result<HashSet<String>, String> {
            let inner = values.trim().strip_prefix('(').and_then(|values| values.strip_suffix(')'));
            let inner = inner.ok_or_else(|| format!("{values:?} should be a list in parentheses"))?;
            Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
        };
        let one = |value: &str| HashSet::from([value.trim().to_owned()]);
        let number = |value: &str| value.trim().parse().map_err(|_| format!("{value:?} is not an integer"));
        if let Some(key) = text.strip_prefix('!') {
            return new(key, Operator::Missing);
        }
        if let Some((key, value)) = text.split_once("!=") {
            return new(key, Operator::NotIn(one(value)));
        }
        if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return new(key, Operator::In(one(value)));
        }
        if let Some((key, values)) = text.split_once(" notin ").or_else(|| text.split_once(" notin(")) {
            let values =
                if values.trim_start().starts_with('(') { values.to_owned() } else { format!("({values}") };
            return new(key, Operator::NotIn(set(&values)?));
        }
        if let Some((key, values)) = text.split_once(" in ").or_else(|| text.split_once(" in(")) {
            let values =
                if values.trim_start().starts_with('(') { values.to_owned() } else { format!("({values}") };
            return new(key, Operator::In(set(&values)?));
        }
        if let Some((key, value)) = text.split_once('>') {
            return new(key, Operator::Greater(number(value)?));
        }
        if let Some((key, value)) = text.split_once('<') {
            return new(key, Operator::Less(number(value)?));
        }
        new(text, Operator::Exists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "tier" => Some("3"),
            _ => None,
        };
        for (selector, want) in [
            ("", true),
            ("app=web", true),
            ("app == web , tier", true),
            ("app!=web", false),
            ("none!=x", true),
            ("app in (api, web),!none", true),
            ("app notin (api,web)", false),
            ("tier>2,tier<4", true),
            ("none", false),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap().matches(labels), want, "{selector}");
        }
        for bad in ["app in web", "a b", "=x", "app=web,", "tier>x"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }
}
