//! Health by expressions: for kinds that say by CEL when their objects are healthy, in the order that Flux asks them.

use std::collections::BTreeMap;

use roadstead_cel::{CelError, Expression};
use roadstead_kstatus::{Health, Status};
use roadstead_model::{HealthExpr, ObjectRef};
use serde_json::Value;

/// How many entries there may be.
pub const MAX_HEALTH_EXPRS: usize = 256;

/// An object is judged whenever it changes, among those of all others who deploy to the cluster: each expression has the fifth part of
/// what one may take.
const SHARE: u32 = 5;

/// Compiled rules, for [`crate::Engine::with_health`].
#[derive(Debug, Clone, Default)]
pub struct HealthRules {
    /// By group and kind; an empty kind stands for those of the group that have no rule of their own.
    rules: BTreeMap<(String, String), Rule>,
}

/// The expressions of one kind.
#[derive(Debug, Clone)]
struct Rule {
    in_progress: Option<Expression>,
    failed: Option<Expression>,
    current: Expression,
}

/// Which entry of `healthCheckExprs` is wrong, and why; in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthRulesError {
    /// There are too many entries.
    #[error("{count} healthchecks are more than the limit of {MAX_HEALTH_EXPRS}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// Two entries are for the same kind.
    #[error("duplicate custom health check for GroupKind {kind} at healthchecks[{index}]")]
    Duplicate {
        /// The second of them, from 0.
        index: usize,
        /// The kind and its group: `Deployment.apps`.
        kind: String,
    },
    /// An entry lacks what every entry needs.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: expression Current not specified"
    )]
    NoCurrent {
        /// Which, from 0.
        index: usize,
    },
    /// An expression does not parse.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: failed to parse the expression {field}: \
         {error}"
    )]
    Expression {
        /// The entry, from 0.
        index: usize,
        /// `InProgress`, `Failed` or `Current`.
        field: &'static str,
        /// What is wrong with it.
        error: CelError,
    },
}

impl HealthRules {
    /// Compiles the entries of `spec.healthCheckExprs`.
    ///
    /// # Errors
    /// The first entry that is wrong: its expression does not parse, or its kind has an entry already.
    pub fn new(entries: &[HealthExpr]) -> Result<Self, HealthRulesError> {
        if entries.len() > MAX_HEALTH_EXPRS {
            return Err(HealthRulesError::TooMany { count: entries.len() });
        }
        let mut rules = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let group = entry.api_version.split_once('/').map_or("", |(group, _)| group);
            let key = (group.to_owned(), entry.kind.clone());
            if rules.contains_key(&key) {
                let kind =
                    if group.is_empty() { entry.kind.clone() } else { format!("{}.{group}", entry.kind) };
                return Err(HealthRulesError::Duplicate { index, kind });
            }
            rules.insert(key, Rule::new(index, entry)?);
        }
        Ok(Self { rules })
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether an object's health is told by expressions.
    #[must_use]
    pub fn applies_to(&self, object: &ObjectRef) -> bool {
        self.rule(&object.group, &object.kind).is_some()
    }

    /// The health of `object` by its expressions; `None` where there are none for its kind, and kstatus knows.
    pub(crate) fn judge(&self, object: &Value) -> Option<Health> {
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        self.rule(group, text("kind")).map(|rule| rule.judge(object))
    }

    fn rule(&self, group: &str, kind: &str) -> Option<&Rule> {
        let rule = |kind: &str| self.rules.get(&(group.to_owned(), kind.to_owned()));
        rule(kind).or_else(|| rule(""))
    }
}

impl Rule {
    fn new(index: usize, entry: &HealthExpr) -> Result<Self, HealthRulesError> {
        let parse = |field, text: &str| {
            Expression::parse(text).map_err(|error| HealthRulesError::Expression { index, field, error })
        };
        let optional = |field, text: &Option<String>| {
            text.as_deref().filter(|text| !text.is_empty()).map(|text| parse(field, text)).transpose()
        };
        if entry.current.is_empty() {
            return Err(HealthRulesError::NoCurrent { index });
        }
        Ok(Self {
            current: parse("Current", &entry.current)?,
            failed: optional("Failed", &entry.failed)?,
            in_progress: optional("InProgress", &entry.in_progress)?,
        })
    }

    /// As Flux asks: the observed generation, then `inProgress`, `failed`, `current`. An expression that fails, most often
    /// because the status is not there yet, ends the questions; it says that nothing is known, and so the object is waited
    /// for.
    fn judge(&self, object: &Value) -> Health {
        let integer = |pointer| object.pointer(pointer).and_then(Value::as_i64);
        if let Some(observed) = integer("/status/observedGeneration")
            && let Some(generation) = integer("/metadata/generation")
            && observed != generation
        {
            return Health::in_progress(format!("Generation: observed {observed}, latest {generation}"));
        }
        let variables: Vec<(&str, &Value)> =
            object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)).collect();
        let questions = [
            (self.in_progress.as_ref(), Status::InProgress, "inProgress"),
            (self.failed.as_ref(), Status::Failed, "failed"),
            (Some(&self.current), Status::Current, "current"),
        ];
        for (expression, status, field) in questions {
            let Some(expression) = expression else { continue };
            match expression.evaluate_bool_among(&variables, SHARE) {
                Ok(true) => {
                    let message = format!("by the health check expression {field}");
                    return Health { status, message };
                }
                Ok(false) => {}
                Err(error) => return Health::in_progress(error.to_string()),
            }
        }
        Health::in_progress("the health check expression current does not hold yet")
    }
}

#[cfg(test)]
mod tests {
    use roadstead_model::HealthExpr;
    use serde_json::{Value, json};

    use super::{HealthRules, HealthRulesError, MAX_HEALTH_EXPRS, Status};

    fn entry(api_version: &str, kind: &str, current: &str) -> HealthExpr {
        HealthExpr {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            current: current.to_owned(),
            ..HealthExpr::default()
        }
    }

    fn database(status: &Value) -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Database", "metadata": { "generation": 2 }, "status": status,
        })
    }

    fn rules() -> HealthRules {
        HealthRules::new(&[HealthExpr {
            in_progress: Some("has(status.phase) && status.phase == 'Busy'".to_owned()),
            failed: Some("status.phase == 'Broken'".to_owned()),
            ..entry("example.com/v1beta1", "Database", "status.phase == 'Ready'")
        }])
        .unwrap()
    }

    #[test]
    fn the_expressions_are_asked_in_order() {
        for (status, want) in [
            (json!({ "phase": "Busy" }), Status::InProgress),
            (json!({ "phase": "Broken" }), Status::Failed),
            (json!({ "phase": "Ready" }), Status::Current),
            (json!({ "phase": "Other" }), Status::InProgress),
            (json!({ "phase": "Ready", "observedGeneration": 1 }), Status::InProgress),
            (json!({ "phase": "Ready", "observedGeneration": 2 }), Status::Current),
            // Only integers are compared.
            (json!({ "phase": "Ready", "observedGeneration": "1" }), Status::Current),
            // No status yet: the expression fails.
            (json!({}), Status::InProgress),
            (Value::Null, Status::InProgress),
        ] {
            let health = rules().judge(&database(&status)).unwrap();
            assert_eq!(health.status, want, "{status}: {health}");
        }
    }

    #[test]
    fn what_fails_is_told_without_the_objects_values() {
        let health = rules().judge(&database(&json!({ "secret": "hunter2" }))).unwrap();
        assert_eq!(
            health.message,
            "failed to evaluate the CEL expression 'status.phase == 'Broken'': no such key: phase"
        );
        let not_boolean = HealthRules::new(&[entry("v1", "Secret", "data")]).unwrap();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "data": { "a": "hunter2" } });
        let health = not_boolean.judge(&secret).unwrap();
        assert_eq!(health.status, Status::InProgress);
        assert!(!health.message.contains("hunter2"), "{health}");
    }

    #[test]
    fn a_rule_is_for_a_group_and_a_kind_or_for_a_group() {
        let rules =
            HealthRules::new(&[entry("example.com/v1", "", "false"), entry("example.com/v1", "A", "true")])
                .unwrap();
        let health = |api_version: &str, kind: &str| {
            rules.judge(&json!({ "apiVersion": api_version, "kind": kind })).map(|health| health.status)
        };
        assert_eq!(health("example.com/v2", "A"), Some(Status::Current));
        assert_eq!(health("example.com/v1", "B"), Some(Status::InProgress));
        assert_eq!(health("other.com/v1", "A"), None);
        assert_eq!(health("v1", "A"), None);
    }

    #[test]
    fn what_is_wrong_names_the_entry_and_the_field() {
        let error = HealthRules::new(&[entry("v1", "A", "true"), entry("v1", "B", "status.")]).unwrap_err();
        let want = "failed to create custom status evaluator for healthchecks[1]: failed to parse the expression \
                    Current: failed to parse the CEL expression 'status.': ";
        assert!(error.to_string().starts_with(want), "{error}");
        let bad = HealthExpr { failed: Some("((".to_owned()), ..entry("v1", "A", "true") };
        let error = HealthRules::new(&[bad]).unwrap_err();
        assert!(matches!(error, HealthRulesError::Expression { index: 0, field: "Failed", .. }), "{error}");
        let error =
            HealthRules::new(&[entry("apps/v1", "A", "true"), entry("apps/v2", "A", "true")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "duplicate custom health check for GroupKind A.apps at healthchecks[1]"
        );
        let error = HealthRules::new(&[entry("v1", "A", "")]).unwrap_err();
        assert!(matches!(error, HealthRulesError::NoCurrent { index: 0 }), "{error}");
        let many = vec![entry("v1", "A", "true"); MAX_HEALTH_EXPRS + 1];
        assert!(matches!(HealthRules::new(&many), Err(HealthRulesError::TooMany { .. })));
        assert!(HealthRules::new(&[]).unwrap().is_empty());
    }
}
