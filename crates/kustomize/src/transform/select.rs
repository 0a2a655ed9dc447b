//! Which objects a patch is for.

use crate::budget::{Budget, Held};
use crate::kustomization::Selector;
use crate::pattern;
use crate::resource::{Id, Resource};
use crate::resources::Resources;
use crate::selector::LabelSelector;
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
        let matches = |selector: &LabelSelector, map: Option<&Map>| {
            selector.is_empty() || selector.matches(|key| map?.get(key).and_then(Value::as_str))
        };
        matches(&self.labels, resource.texts("labels"))
            && matches(&self.annotations, resource.texts("annotations"))
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
