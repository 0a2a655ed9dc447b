//! Rules of Receivers: which fields belong to which type, and which objects can be named.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Verdict;
use crate::kind::KindId;
use crate::validate::FieldError;

/// So many entries `spec.resources` has at most: each is looked up at each call.
const MAX_RESOURCES: usize = 100;
/// So many issuers one Receiver trusts.
const MAX_ISSUERS: usize = 10;
/// So many variables, and so many validations, one issuer has: each is evaluated at each call.
const MAX_EXPRESSIONS: usize = 50;

pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    let errors = &mut verdict.errors;
    let is_oidc = spec["type"] == "generic-oidc";
    let has_secret = !spec["secretRef"].is_null();
    let providers = items(&spec["oidcProviders"]);
    if is_oidc && has_secret {
        let why = "type generic-oidc has no token: callers show one of an issuer of spec.oidcProviders";
        errors.push(FieldError::forbidden("spec.secretRef", why));
    }
    if !is_oidc && !has_secret {
        errors.push(FieldError::required(
            "spec.secretRef",
            "it names the Secret whose key `token` callers know",
        ));
    }
    if is_oidc && providers.is_empty() {
        errors.push(FieldError::required("spec.oidcProviders", "type generic-oidc needs one at least"));
    }
    if !is_oidc && !providers.is_empty() {
        errors.push(FieldError::forbidden("spec.oidcProviders", "only type generic-oidc has them"));
    }
    issuers(providers, errors);
    resources(items(&spec["resources"]), verdict);
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn issuers(providers: &[Value], errors: &mut Vec<FieldError>) {
    at_most("spec.oidcProviders", providers, MAX_ISSUERS, errors);
    let mut known = BTreeSet::new();
    for (index, provider) in providers.iter().enumerate() {
        let field = |name: &str| format!("spec.oidcProviders[{index}].{name}");
        if provider["issuerURL"].as_str().is_some_and(|url| !known.insert(url)) {
            errors.push(FieldError::invalid(
                field("issuerURL"),
                &provider["issuerURL"],
                "stands there twice",
            ));
        }
        let validations = items(&provider["validations"]);
        if validations.is_empty() {
            let why = "without one, any token of the issuer would do";
            errors.push(FieldError::required(field("validations"), why));
        }
        at_most(&field("validations"), validations, MAX_EXPRESSIONS, errors);
        at_most(&field("variables"), items(&provider["variables"]), MAX_EXPRESSIONS, errors);
    }
}

fn at_most(field: &str, items: &[Value], most: usize, errors: &mut Vec<FieldError>) {
    if items.len() > most {
        let count = Value::from(items.len());
        errors.push(FieldError::invalid(field, &count, format!("must have at most {most} items")));
    }
}

fn resources(resources: &[Value], verdict: &mut Verdict) {
    at_most("spec.resources", resources, MAX_RESOURCES, &mut verdict.errors);
    for (index, resource) in resources.iter().enumerate() {
        let field = format!("spec.resources[{index}]");
        let labels = resource["matchLabels"].as_object().is_some_and(|labels| !labels.is_empty());
        if resource["name"] == "*" && !labels {
            let why = "needed where the name is `*`";
            verdict.errors.push(FieldError::required(format!("{field}.matchLabels"), why));
        }
        let Some(kind) = resource["kind"].as_str() else { continue };
        match KindId::referred(resource["apiVersion"].as_str(), kind) {
            Some(kind) if kind.is_in_pipeline() => {}
            Some(_) | None => verdict.warnings.push(format!(
                "{field}: this hub has no objects of kind {kind}; a call does nothing for them"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Verdict, check};

    fn verdict(spec: &Value) -> (Vec<String>, Vec<String>) {
        let mut verdict = Verdict::default();
        check(spec, &mut verdict);
        (verdict.errors.iter().map(ToString::to_string).collect(), verdict.warnings)
    }

    #[test]
    fn each_type_has_its_fields() {
        let provider = json!({ "issuerURL": "https://a.test", "validations": [{ "expression": "true", "message": "x" }] });
        let (secret, resources) =
            (json!({ "name": "token" }), json!([{ "kind": "GitRepository", "name": "app" }]));
        let good = [
            json!({ "type": "github", "secretRef": secret, "resources": resources }),
            json!({ "type": "generic-oidc", "oidcProviders": [provider], "resources": resources }),
        ];
        for spec in &good {
            assert_eq!(verdict(spec), (Vec::new(), Vec::new()), "{spec}");
        }
        for (spec, field) in [
            (json!({ "type": "github", "resources": resources }), "spec.secretRef: Required"),
            (
                json!({ "type": "github", "secretRef": secret, "oidcProviders": [provider] }),
                "spec.oidcProviders: Forbidden",
            ),
            (json!({ "type": "generic-oidc" }), "spec.oidcProviders: Required"),
            (
                json!({ "type": "generic-oidc", "secretRef": secret, "oidcProviders": [provider] }),
                "spec.secretRef: Forbidden",
            ),
            (
                json!({ "type": "generic-oidc", "oidcProviders": [provider, provider] }),
                "spec.oidcProviders[1].issuerURL: Invalid",
            ),
            (
                json!({ "type": "generic-oidc", "oidcProviders": [{ "issuerURL": "https://a.test", "validations": [] }] }),
                "spec.oidcProviders[0].validations: Required",
            ),
            (
                json!({ "type": "quay", "secretRef": secret, "resources": [{ "kind": "Bucket", "name": "*" }] }),
                "spec.resources[0].matchLabels: Required",
            ),
            (
                json!({ "type": "quay", "secretRef": secret, "resources": vec![json!({ "kind": "Bucket", "name": "b" }); 101] }),
                "spec.resources: Invalid",
            ),
        ] {
            let (errors, _) = verdict(&spec);
            assert!(errors.iter().any(|error| error.starts_with(field)), "{field}: {errors:?}");
        }
    }

    #[test]
    fn kinds_that_are_not_on_the_hub_are_told() {
        for (resource, told) in [
            (json!({ "kind": "ImageRepository", "name": "a" }), true),
            (
                json!({ "kind": "GitRepository", "name": "a", "apiVersion": "source.toolkit.fluxcd.io/v1beta2" }),
                false,
            ),
            (json!({ "kind": "Kustomization", "name": "a" }), false),
            (json!({ "kind": "Bucket", "name": "a", "apiVersion": "other.test/v1" }), true),
        ] {
            let spec = json!({ "type": "quay", "secretRef": { "name": "t" }, "resources": [resource] });
            assert_eq!(!verdict(&spec).1.is_empty(), told, "{spec}");
        }
    }
}
