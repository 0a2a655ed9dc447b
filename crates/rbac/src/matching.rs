//! Whether one rule allows one request: kube-apiserver's comparisons, word for word.

use roadstead_api::rbac::PolicyRule;

use crate::{Attributes, Resource};

/// Whether a rule allows what is asked for.
#[must_use]
pub fn rule_allows(rule: &PolicyRule, asked: &Attributes<'_>) -> bool {
    match asked {
        Attributes::Resource(asked) => {
            rule_allows_some(rule, asked)
                // An empty list is all names; a name that is not asked for is in no list.
                && (rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == asked.name))
        }
        Attributes::Path { verb, path } => {
            has_or_all(&rule.verbs, verb) && rule.non_resource_urls.iter().any(|url| url_covers(url, path))
        }
    }
}

/// Whether a rule allows what is asked for with some objects at least, whatever their names.
pub(crate) fn rule_allows_some(rule: &PolicyRule, asked: &Resource<'_>) -> bool {
    has_or_all(&rule.verbs, asked.verb)
        && has_or_all(&rule.api_groups, asked.group)
        && rule.resources.iter().any(|resource| resource_matches(resource, asked))
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == wanted)
}

/// `*` is every resource and subresource, `*/scale` is that subresource of every resource.
fn resource_matches(entry: &str, asked: &Resource<'_>) -> bool {
    if entry == "*" {
        return true;
    }
    if asked.subresource.is_empty() {
        return entry == asked.resource;
    }
    if entry.strip_prefix("*/") == Some(asked.subresource) {
        return true;
    }
    // A resource's own name does not hold a slash, but a request may say anything: compared as one text, as Kubernetes does.
    entry
        .strip_prefix(asked.resource)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|rest| rest == asked.subresource)
}

/// Whether a rule's path is this path, or ends with `*` and begins it.
pub(crate) fn url_covers(entry: &str, path: &str) -> bool {
    entry == path || (entry.ends_with('*') && path.starts_with(entry.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> PolicyRule {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    fn asked<'a>(verb: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes::Resource(Resource { verb, resource, subresource, name, ..Resource::default() })
    }

    #[test]
    fn resources_and_their_subresources() {
        for (entry, resource, subresource, want) in [
            ("*", "pods", "log", true),
            ("pods", "pods", "", true),
            ("pods", "pods", "log", false),
            ("pods/log", "pods", "log", true),
            ("pods/log", "pods", "", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*/scale", "deployments", "status", false),
            ("pods/*", "pods", "log", false),
            ("*/*", "pods", "log", false),
            ("*/*", "pods", "*", true),
            ("pods/a/b", "pods", "a/b", true),
            ("pods/", "pods", "", false),
            ("", "", "", true),
        ] {
            let rule = rule(&["get"], &[""], &[entry], &[]);
            assert_eq!(
                rule_allows(&rule, &asked("get", resource, subresource, "x")),
                want,
                "{entry} {resource}"
            );
        }
    }

    #[test]
    fn names_and_what_has_none() {
        let named = rule(&["*"], &["*"], &["*"], &["a"]);
        assert!(rule_allows(&named, &asked("get", "secrets", "", "a")));
        assert!(!rule_allows(&named, &asked("get", "secrets", "", "b")));
        for verb in ["create", "list", "watch", "deletecollection"] {
            assert!(!rule_allows(&named, &asked(verb, "secrets", "", "")), "{verb}");
        }
        // With metadata.name=a as the field selector.
        assert!(rule_allows(&named, &asked("list", "secrets", "", "a")));
    }

    #[test]
    fn paths() {
        for (url, path, want) in [
            ("*", "/anything", true),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz", false),
            ("/health*", "/healthz", true),
            ("/a**", "/ab", true),
            ("/*/b", "/a/b", false),
        ] {
            let rule =
                PolicyRule { non_resource_urls: vec![url.to_owned()], ..rule(&["get"], &[], &[], &[]) };
            assert_eq!(rule_allows(&rule, &Attributes::Path { verb: "get", path }), want, "{url} {path}");
            assert!(!rule_allows(&rule, &Attributes::Path { verb: "post", path }));
        }
    }
}
