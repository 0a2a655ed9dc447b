//! Rules of RBAC's kinds.

use serde_json::Value;

use crate::kind::KindId;
use crate::rbac::GROUP;
use crate::validate::FieldError;

pub(super) fn role(kind: KindId, object: &Value, errors: &mut Vec<FieldError>) {
    aggregation(&object["aggregationRule"], errors);
    let present = |rule: &Value, field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
    for (index, rule) in object["rules"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("rules[{index}].{field}");
        if !present(rule, "verbs") {
            errors.push(FieldError::required(at("verbs"), "verbs must contain at least one value"));
        }
        if present(rule, "nonResourceURLs") {
            if kind == KindId::Role {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], why));
            } else if ["apiGroups", "resources", "resourceNames"].iter().any(|field| present(rule, field)) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(at("nonResourceURLs"), &rule["nonResourceURLs"], why));
            }
            continue;
        }
        if !present(rule, "apiGroups") {
            errors.push(FieldError::required(
                at("apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if !present(rule, "resources") {
            errors.push(FieldError::required(
                at("resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

/// From which other roles one is put together.
fn aggregation(rule: &Value, errors: &mut Vec<FieldError>) {
    if rule.is_null() {
        return;
    }
    let selectors = rule["clusterRoleSelectors"].as_array().map_or(&[][..], Vec::as_slice);
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required("aggregationRule.clusterRoleSelectors", why));
    }
    for (index, one) in selectors.iter().enumerate() {
        selector(one, &format!("aggregationRule.clusterRoleSelectors[{index}]"), errors);
    }
}

/// A LabelSelector.
pub(super) fn selector(selector: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (index, expression) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        let at = |name: &str| format!("{field}.matchExpressions[{index}].{name}");
        let values = expression["values"].as_array().is_some_and(|values| !values.is_empty());
        match expression["operator"].as_str() {
            Some("In" | "NotIn") if !values => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(at("values"), why));
            }
            Some("Exists" | "DoesNotExist") if values => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(at("values"), why));
            }
            Some("In" | "NotIn" | "Exists" | "DoesNotExist") => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(at("operator"), &expression["operator"], why));
            }
        }
    }
}

pub(super) fn binding(kind: KindId, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let role = &object["roleRef"];
    let kinds: &[&str] =
        if kind == KindId::RoleBinding { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let supported = |list: &[&str]| list.iter().map(|kind| Value::from(*kind)).collect::<Vec<_>>();
    if role["apiGroup"] != GROUP {
        errors.push(FieldError::unsupported("roleRef.apiGroup", &role["apiGroup"], &supported(&[GROUP])));
    }
    if !role["kind"].as_str().is_some_and(|kind| kinds.contains(&kind)) {
        errors.push(FieldError::unsupported("roleRef.kind", &role["kind"], &supported(kinds)));
    }
    if role["name"].as_str().is_none_or(str::is_empty) {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        errors.push(FieldError::invalid(
            "roleRef",
            role,
            "cannot change roleRef: delete the binding and create it again",
        ));
    }
    for (index, subject) in object["subjects"].as_array().into_iter().flatten().enumerate() {
        let at = |field: &str| format!("subjects[{index}].{field}");
        if subject["name"].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(at("name"), ""));
        }
        let group = subject["apiGroup"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                if !group.is_empty() {
                    errors.push(FieldError::unsupported(
                        &at("apiGroup"),
                        &subject["apiGroup"],
                        &supported(&[""]),
                    ));
                }
                if kind == KindId::ClusterRoleBinding
                    && subject["namespace"].as_str().is_none_or(str::is_empty)
                {
                    errors.push(FieldError::required(at("namespace"), ""));
                }
            }
            Some("User" | "Group") => {
                if group != GROUP {
                    errors.push(FieldError::unsupported(
                        &at("apiGroup"),
                        &subject["apiGroup"],
                        &supported(&[GROUP]),
                    ));
                }
            }
            _ => {
                let known = supported(&["Group", "ServiceAccount", "User"]);
                errors.push(FieldError::unsupported(&at("kind"), &subject["kind"], &known));
            }
        }
    }
}
