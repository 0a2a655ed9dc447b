//! Which fields of which objects are left as they are on the cluster: rules, compiled and bounded.

use std::sync::Arc;

use roadstead_go_regex::Limits;
use roadstead_kustomize::LabelSelector;
use roadstead_model::{Digest, IgnoreRule, IgnoreTarget, ObjectRef};
use serde_json::Value;

use crate::pointer::Pointer;

/// How many rules there may be.
pub const MAX_IGNORE_RULES: usize = 100;
/// How many paths a rule may have.
pub const MAX_IGNORE_PATHS: usize = 100;
/// The most bytes of a path, of each regular expression and of each selector.
pub const MAX_IGNORE_TEXT: usize = 1024;

/// The fields that say which object it is and whose; without them there is none.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// Compiled rules, for [`crate::Desired::ignore`]. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct IgnoreRules {
    rules: Arc<[Rule]>,
    /// Of the entries; none where there are none.
    digest: Option<Digest>,
}

#[derive(Debug, Clone)]
struct Rule {
    paths: Vec<Pointer>,
    target: Option<Target>,
}

/// What an object must match; a part that is not there matches everything.
#[derive(Debug, Clone)]
struct Target {
    group: Option<regex::Regex>,
    version: Option<regex::Regex>,
    kind: Option<regex::Regex>,
    name: Option<regex::Regex>,
    namespace: Option<regex::Regex>,
    labels: LabelSelector,
    annotations: LabelSelector,
}

/// Which rule is wrong, and what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IgnoreError {
    /// There are too many rules.
    #[error("{count} ignore rules are more than the limit of {MAX_IGNORE_RULES}")]
    TooManyRules {
        /// How many there are.
        count: usize,
    },
    /// A rule has too many paths.
    #[error("ignore[{index}]: {count} paths are more than the limit of {MAX_IGNORE_PATHS}")]
    TooManyPaths {
        /// The rule, from 0.
        index: usize,
        /// How many it has.
        count: usize,
    },
    /// A path is not a JSON pointer, or points to a field that cannot be ignored.
    #[error("ignore[{index}]: path '{path}': {problem}")]
    Path {
        /// The rule, from 0.
        index: usize,
        /// The path, shortened where it is long.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A part of the target is wrong.
    #[error("ignore[{index}]: invalid {field}: {problem}")]
    Target {
        /// The rule, from 0.
        index: usize,
        /// `group regex`, `label selector`, …
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl IgnoreRules {
    /// Compiles the entries of `spec.ignore`.
    ///
    /// # Errors
    /// The first rule that is wrong: a path that is not a JSON pointer, a regular expression or a selector that does not parse.
    pub fn new(rules: &[IgnoreRule]) -> Result<Self, IgnoreError> {
        if rules.len() > MAX_IGNORE_RULES {
            return Err(IgnoreError::TooManyRules { count: rules.len() });
        }
        let compiled = rules.iter().enumerate().map(|(index, rule)| Rule::new(index, rule));
        let compiled = compiled.collect::<Result<_, _>>()?;
        // Texts and lists of them are JSON whatever they hold.
        let entries = serde_json::to_vec(rules).unwrap_or_default();
        Ok(Self { rules: compiled, digest: (!rules.is_empty()).then(|| Digest::of(&entries)) })
    }

    /// The same for the same entries.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The fields of `object` that are ignored, which is looked up under `reference`.
    pub(crate) fn fields(&self, reference: &ObjectRef, object: &Value) -> Vec<Pointer> {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.target.as_ref().is_none_or(|target| target.matches(reference, object)));
        rules.flat_map(|rule| rule.paths.iter().cloned()).collect()
    }
}

impl Rule {
    fn new(index: usize, rule: &IgnoreRule) -> Result<Self, IgnoreError> {
        if rule.paths.len() > MAX_IGNORE_PATHS {
            return Err(IgnoreError::TooManyPaths { index, count: rule.paths.len() });
        }
        let paths = rule.paths.iter().map(|path| {
            checked(path).map_err(|problem| IgnoreError::Path {
                index,
                path: path.chars().take(100).collect(),
                problem,
            })
        });
        Ok(Self {
            paths: paths.collect::<Result<_, _>>()?,
            target: rule.target.as_ref().map(|target| Target::new(index, target)).transpose()?,
        })
    }
}

/// A path that can be ignored.
fn checked(path: &str) -> Result<Pointer, &'static str> {
    if path.len() > MAX_IGNORE_TEXT {
        return Err("it is longer than 1024 bytes");
    }
    let pointer = Pointer::parse(path)?;
    let names =
        |field: &str| field == path || field.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    if IDENTITY.iter().any(|field| names(field)) {
        return Err("which object it is cannot be ignored");
    }
    Ok(pointer)
}

impl Target {
    fn new(index: usize, target: &IgnoreTarget) -> Result<Self, IgnoreError> {
        let wrong = |field, problem| IgnoreError::Target { index, field, problem };
        let regex = |field, text: &Option<String>| {
            let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
            pattern(text).map(Some).map_err(|problem| wrong(field, problem))
        };
        let selector = |field, text: &Option<String>| {
            let text = text.as_deref().unwrap_or_default();
            if text.len() > MAX_IGNORE_TEXT {
                return Err(wrong(field, format!("it is longer than {MAX_IGNORE_TEXT} bytes")));
            }
            LabelSelector::parse(text).map_err(|problem| wrong(field, problem))
        };
        Ok(Self {
            group: regex("group regex", &target.group)?,
            version: regex("version regex", &target.version)?,
            kind: regex("kind regex", &target.kind)?,
            name: regex("name regex", &target.name)?,
            namespace: regex("namespace regex", &target.namespace)?,
            labels: selector("label selector", &target.label_selector)?,
            annotations: selector("annotation selector", &target.annotation_selector)?,
        })
    }

    fn matches(&self, reference: &ObjectRef, object: &Value) -> bool {
        let all = [
            (&self.group, &reference.group),
            (&self.version, &reference.version),
            (&self.kind, &reference.kind),
            (&self.name, &reference.name),
            (&self.namespace, &reference.namespace),
        ];
        let matches = |selector: &LabelSelector, map: &str| {
            let texts = object.get("metadata").and_then(|metadata| metadata.get(map)?.as_object());
            selector.matches(|key| texts?.get(key)?.as_str())
        };
        all.into_iter().all(|(regex, text)| regex.as_ref().is_none_or(|regex| regex.is_match(text)))
            && matches(&self.labels, "labels")
            && matches(&self.annotations, "annotations")
    }
}

/// A regular expression of Go's for a whole text.
fn pattern(text: &str) -> Result<regex::Regex, String> {
    /// Of a compiled one; there can be five for each rule.
    const LIMITS: Limits = Limits { program: 64 << 10, tables: 64 << 10 };
    if text.len() > MAX_IGNORE_TEXT {
        return Err(format!("it is longer than {MAX_IGNORE_TEXT} bytes"));
    }
    // By itself first, so that a bracket too many does not end the one that is around it.
    roadstead_go_regex::compile(text, LIMITS)
        .and_then(|_| roadstead_go_regex::compile(&format!("^(?:{text})$"), LIMITS))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use roadstead_model::{IgnoreRule, IgnoreTarget, ObjectRef};
    use serde_json::{Value, json};

    use super::{IgnoreError, IgnoreRules};

    fn deployment() -> (ObjectRef, Value) {
        let reference = ObjectRef {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: "dev".to_owned(),
            name: "web-1".to_owned(),
        };
        (reference, json!({ "metadata": { "labels": { "app": "web" }, "annotations": { "scaled": "yes" } } }))
    }

    fn rule(path: &str, target: Option<IgnoreTarget>) -> IgnoreRule {
        IgnoreRule { paths: vec![path.to_owned()], target }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn rules_are_for_what_matches_their_target() {
        let (reference, object) = deployment();
        let any = IgnoreTarget::default;
        for (target, want) in [
            (None, true),
            (Some(any()), true),
            (Some(IgnoreTarget { kind: text("Deployment"), group: text("apps"), ..any() }), true),
            (Some(IgnoreTarget { kind: text("Deploy"), ..any() }), false),
            (Some(IgnoreTarget { kind: text("Deploy|Deployment"), ..any() }), true),
            (Some(IgnoreTarget { name: text(r"web-\d+"), namespace: text("dev|test"), ..any() }), true),
            (Some(IgnoreTarget { name: text("web"), ..any() }), false),
            (Some(IgnoreTarget { version: text("v2"), ..any() }), false),
            (Some(IgnoreTarget { label_selector: text("app in (web)"), ..any() }), true),
            (Some(IgnoreTarget { label_selector: text("!app"), ..any() }), false),
            (Some(IgnoreTarget { annotation_selector: text("scaled=yes"), ..any() }), true),
            (Some(IgnoreTarget { annotation_selector: text("scaled!=yes"), ..any() }), false),
            (Some(IgnoreTarget { name: text(""), label_selector: text(""), ..any() }), true),
        ] {
            let rules = IgnoreRules::new(&[rule("/spec/replicas", target.clone())]).unwrap();
            assert_eq!(rules.fields(&reference, &object).len(), usize::from(want), "{target:?}");
        }
    }

    #[test]
    fn what_is_wrong_names_the_rule() {
        let any = IgnoreTarget::default;
        for (bad, want) in [
            (rule("spec", None), "ignore[1]: path 'spec': it does not begin with a slash"),
            (rule("", None), "ignore[1]: path '': it does not begin with a slash"),
            (rule("/a~2", None), "ignore[1]: path '/a~2': after a tilde comes 0 or 1"),
            (rule("/metadata", None), "ignore[1]: path '/metadata': which object it is cannot be ignored"),
            (rule("/kind", None), "ignore[1]: path '/kind': which object it is cannot be ignored"),
            (
                rule("/a", Some(IgnoreTarget { name: text("("), ..any() })),
                "ignore[1]: invalid name regex: error parsing regexp",
            ),
            (
                rule("/a", Some(IgnoreTarget { name: text("a)(b"), ..any() })),
                "ignore[1]: invalid name regex: error parsing regexp",
            ),
            (
                rule("/a", Some(IgnoreTarget { label_selector: text("a b"), ..any() })),
                "ignore[1]: invalid label selector: `a b` is not a valid label key",
            ),
        ] {
            let error = IgnoreRules::new(&[rule("/spec", None), bad]).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn rules_are_bounded() {
        let many = vec![rule("/a", None); 101];
        assert!(matches!(IgnoreRules::new(&many), Err(IgnoreError::TooManyRules { count: 101 })));
        let paths = IgnoreRule { paths: vec!["/a".to_owned(); 101], target: None };
        assert!(matches!(IgnoreRules::new(&[paths]), Err(IgnoreError::TooManyPaths { .. })));
        assert!(IgnoreRules::new(&[rule(&format!("/{}", "a".repeat(1024)), None)]).is_err());
        let long = IgnoreTarget { name: text(&"a".repeat(1025)), ..IgnoreTarget::default() };
        assert!(IgnoreRules::new(&[rule("/a", Some(long))]).is_err());
    }
}
