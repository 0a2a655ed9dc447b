//! What an object must be beyond its structure: names, ranges, fields that exclude each other, fields that stay.

mod alert;
mod core_v1;
mod flux;
mod rbac;
mod receiver;

use std::sync::OnceLock;
use std::time::Duration;

use regex::Regex;
use serde_json::{Map, Value};

use crate::kind::{KindId, NameRule, Scope};
use crate::validate::FieldError;
use roadstead_model::parse_size;

use crate::{annotated, resource_quota};

/// What the rules say about an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Broken rules: the object is refused.
    pub errors: Vec<FieldError>,
    /// What the user should know, though the object is taken.
    pub warnings: Vec<String>,
}

pub use alert::{MAX_METADATA_BYTES, MAX_PATTERN, MAX_PATTERN_BYTES, MAX_PATTERNS};

/// All annotations together, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// An interval shorter than this would be nothing but load.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// What one ResourceQuota counts at most: each is counted when an object is made.
const MAX_COUNTED: usize = 32;
/// The specification: «the minimum value should be over 60 seconds».
const ADVISED_INTERVAL: Duration = Duration::from_secs(60);

/// Checks an object in its storage form, a Secret with its data. `old` is what it replaces.
#[must_use]
pub fn check(kind: KindId, object: &Value, old: Option<&Value>) -> Verdict {
    let mut verdict = Verdict::default();
    metadata(kind, &object["metadata"], &mut verdict.errors);
    match kind {
        KindId::Kustomization => {
            flux::kustomization(&object["spec"], &mut verdict);
            verdict.errors.extend(annotated::check(object));
            flux::dependencies(&object["spec"], old.map(|old| &old["spec"]), &mut verdict.errors);
        }
        KindId::GitRepository => {
            flux::git_repository(&object["spec"], old.map(|old| &old["spec"]), &mut verdict);
            flux::url_without_credentials(object, old, &mut verdict);
        }
        KindId::Bucket | KindId::OciRepository | KindId::HelmRepository | KindId::HelmChart => {
            let old_spec = old.map(|old| &old["spec"]);
            flux::source(&object["spec"], old_spec, &mut verdict);
            match kind {
                KindId::Bucket => flux::bucket(&object["spec"], &mut verdict.errors),
                KindId::HelmChart => flux::helm_chart(&object["spec"], old_spec, &mut verdict.errors),
                _ => {}
            }
            flux::url_without_credentials(object, old, &mut verdict);
        }
        KindId::ExternalArtifact => flux::external_artifact(&object["spec"], &mut verdict.errors),
        KindId::ArtifactGenerator => flux::generator(&object["spec"], &mut verdict.errors),
        KindId::Provider | KindId::Alert | KindId::Receiver => {
            flux::notification(&object["spec"], &mut verdict.errors);
            match kind {
                KindId::Alert => alert::check(&object["spec"], &mut verdict),
                KindId::Provider => alert::provider(&object["spec"], &mut verdict.errors),
                _ => receiver::check(&object["spec"], &mut verdict),
            }
        }
        KindId::Secret => core_v1::secret(object, old, &mut verdict.errors),
        KindId::ConfigMap => core_v1::config_map(object, old, &mut verdict.errors),
        KindId::Event => core_v1::event(object, &mut verdict.errors),
        KindId::Role | KindId::ClusterRole => rbac::role(kind, object, &mut verdict.errors),
        KindId::RoleBinding | KindId::ClusterRoleBinding => {
            rbac::binding(kind, object, old, &mut verdict.errors);
        }
        KindId::Cluster => flux::cluster(&object["spec"], &mut verdict),
        KindId::ResourceQuota => resource_quota(&object["spec"], &mut verdict.errors),
        KindId::ReferenceGrant => reference_grant(&object["spec"], &mut verdict.errors),
        KindId::Silence => alert::silence(&object["spec"], &mut verdict.errors),
        KindId::Namespace | KindId::ServiceAccount | KindId::ManagementCluster => {}
        #[cfg(debug_assertions)]
        KindId::Rehearsal => {
            flux::dependencies(&object["spec"], old.map(|old| &old["spec"]), &mut verdict.errors);
        }
    }
    verdict
}

/// A ResourceQuota counts what the hub has: one that would be kept and bind nobody is refused.
fn resource_quota(spec: &Value, errors: &mut Vec<FieldError>) {
    let hard = spec["hard"].as_object();
    if hard.is_some_and(|hard| hard.len() > MAX_COUNTED) {
        errors.push(FieldError::forbidden("spec.hard", format_args!("at most {MAX_COUNTED} entries")));
        return;
    }
    for (what, limit) in hard.into_iter().flatten() {
        let field = format!("spec.hard[{what}]");
        if what == resource_quota::ARTIFACT_BYTES {
            if limit.as_str().is_none_or(|limit| parse_size(limit).is_err()) {
                let why = "must be a non-negative whole number of bytes, as 500Mi";
                errors.push(FieldError::invalid(field, limit, why));
            }
        } else if what != resource_quota::RUNNING_BUILDS && resource_quota::counted(what).is_none() {
            let why = "the hub counts objects of its kinds only: count/PLURAL.GROUP, count/PLURAL of the core group, \
                       count/sources.fleet.roadstead.dev, bytes/artifacts.fleet.roadstead.dev, and \
                       running/builds.fleet.roadstead.dev";
            errors.push(FieldError::invalid(field, &what.as_str().into(), why));
        } else if limit.as_str().and_then(resource_quota::number).is_none() {
            errors.push(FieldError::invalid(field, limit, "must be a non-negative integer"));
        }
    }
}

/// A ReferenceGrant names kinds that the hub has, and namespaces one by one.
fn reference_grant(spec: &Value, errors: &mut Vec<FieldError>) {
    for side in ["from", "to"] {
        for (index, entry) in spec[side].as_array().into_iter().flatten().enumerate() {
            let field = |name: &str| format!("spec.{side}[{index}].{name}");
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let known = KindId::parse(text("group"), text("kind"));
            if known.is_none_or(|kind| kind.get().scope != Scope::Namespaced) {
                let why = "the hub has no such kind in this group whose objects lie in namespaces";
                errors.push(FieldError::invalid(field("kind"), &entry["kind"], why));
            }
            if side == "from" && !is_dns_label(text("namespace")) {
                let why = "must be the name of a namespace: there is no entry for all of them";
                errors.push(FieldError::invalid(field("namespace"), &entry["namespace"], why));
            }
        }
    }
}

fn pattern(cell: &'static OnceLock<Option<Regex>>, text: &str) -> Option<&'static Regex> {
    cell.get_or_init(|| Regex::new(text).ok()).as_ref()
}

/// A DNS label: what namespaces' names are.
#[must_use]
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.is_empty() && !name.contains('.') && is_dns_subdomain(name)
}

/// DNS labels with dots between: what most names are.
#[must_use]
pub fn is_dns_subdomain(name: &str) -> bool {
    static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
    name.len() <= 253
        && pattern(&PATTERN, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
            .is_some_and(|pattern| pattern.is_match(name))
}

/// A name that can stand in a URL's path as it is.
fn is_path_segment(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| matches!(c, '/' | '%') || c.is_control())
}

/// The name part of a label's key, or a label's value.
fn is_label_text(text: &str) -> bool {
    static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
    text.len() <= 63
        && pattern(&PATTERN, r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
            .is_some_and(|pattern| pattern.is_match(text))
}

/// A label's key: `name` or `dns.sub.domain/name`.
#[must_use]
pub fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_text(name),
        None => is_label_text(key),
    }
}

/// A label's value.
#[must_use]
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_label_text(value)
}

const SUBDOMAIN: &str = "want a lower-case DNS name: letters, digits, `-` and `.`, at most 253 characters, with a letter or \
                         digit at both ends, such as `my-name` or `example.com`";
const LABEL: &str = "want a lower-case DNS label: letters, digits and `-`, at most 63 characters, with a letter or digit at \
                     both ends, such as `my-name`";

fn metadata(kind: KindId, metadata: &Value, errors: &mut Vec<FieldError>) {
    let name = &metadata["name"];
    match name.as_str() {
        None | Some("") => {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"));
        }
        Some(text) => {
            let (valid, why): (fn(&str) -> bool, _) = match kind.get().names {
                NameRule::Label => (is_dns_label, LABEL),
                NameRule::Subdomain => (is_dns_subdomain, SUBDOMAIN),
                NameRule::PathSegment => {
                    (is_path_segment, "want a name without `/` and `%` that is not `.` or `..`")
                }
            };
            if !valid(text) {
                errors.push(FieldError::invalid("metadata.name", name, why));
            }
        }
    }
    for (key, value) in entries(&metadata["labels"]) {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid("metadata.labels", &key.as_str().into(), KEY));
        }
        if !value.as_str().is_some_and(is_label_value) {
            let why = "a label's value is at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends";
            errors.push(FieldError::invalid("metadata.labels", value, why));
        }
    }
    let mut size = 0;
    for (key, value) in entries(&metadata["annotations"]) {
        size += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &key.as_str().into(), KEY));
        }
    }
    if size > MAX_ANNOTATIONS {
        let message = format!("Too long: must have at most {MAX_ANNOTATIONS} bytes");
        errors.push(FieldError {
            field: "metadata.annotations".to_owned(),
            reason: "FieldValueTooLong",
            message,
        });
    }
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        if !finalizer.as_str().is_some_and(is_qualified_name) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, KEY));
        }
    }
}

const KEY: &str = "want a name of at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends, perhaps \
                   after a DNS name and `/`, such as `example.com/my-name`";

fn entries(map: &Value) -> impl Iterator<Item = (&String, &Value)> {
    map.as_object().into_iter().flat_map(Map::iter)
}

fn duration(value: &Value) -> Option<Duration> {
    value.as_str()?.parse::<roadstead_model::GoDuration>().ok().map(|duration| duration.0)
}

fn at_least_a_second(spec: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        if duration(&spec[field]).is_some_and(|duration| duration < MIN_INTERVAL) {
            errors.push(FieldError::invalid(format!("spec.{field}"), &spec[field], "must be at least 1s"));
        }
    }
}

/// The names of other objects: `[]` stands for each item of a list.
fn names(spec: &Value, paths: &[&str], valid: fn(&str) -> bool, why: &str, errors: &mut Vec<FieldError>) {
    for path in paths {
        let (list, rest) = path.split_once("[].").map_or((None, *path), |(list, rest)| (Some(list), rest));
        let pointer = format!("/{}", rest.replace('.', "/"));
        match list {
            None => name(spec.pointer(&pointer), || format!("spec.{path}"), valid, why, errors),
            Some(list) => {
                for (index, item) in spec[list].as_array().into_iter().flatten().enumerate() {
                    let field = || format!("spec.{list}[{index}].{rest}");
                    name(item.pointer(&pointer), field, valid, why, errors);
                }
            }
        }
    }
}

fn name(
    value: Option<&Value>,
    field: impl FnOnce() -> String,
    valid: fn(&str) -> bool,
    why: &str,
    errors: &mut Vec<FieldError>,
) {
    if let Some(value) = value
        && !value.as_str().is_some_and(valid)
    {
        errors.push(FieldError::invalid(field(), value, why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::flux::leaves_its_root;
    use super::{check, is_dns_label, is_dns_subdomain, is_qualified_name};
    use crate::KindId;

    #[test]
    fn names() {
        for good in ["a", "a-b", "a.b-c.0"] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a\n", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
        assert!(!is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
        for good in ["app", "fluxcd.io/reconcileAt", "reconcile.fluxcd.io/requestedAt"] {
            assert!(is_qualified_name(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "a b"] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
    }

    #[test]
    fn paths() {
        for good in ["", "./", "/", "./a/../b", "a/b/"] {
            assert!(!leaves_its_root(good), "{good}");
        }
        for bad in ["..", "./../a", "a/../../b", "/.."] {
            assert!(leaves_its_root(bad), "{bad}");
        }
    }

    #[test]
    fn a_kustomization_that_breaks_rules() {
        let object = json!({ "metadata": { "name": "Web" }, "spec": {
            "interval": "500ms", "path": "../x", "prune": true,
            "clusterRef": { "name": "edge-1" }, "kubeConfig": {},
            "sourceRef": { "kind": "GitRepository", "name": "we b" },
            "healthChecks": [{ "kind": "Widget", "name": "a" }],
            "postBuild": { "substitute": { "1a": "x" } },
        }});
        let errors: Vec<String> =
            check(KindId::Kustomization, &object, None).errors.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(errors.join("\n"), @r#"
        metadata.name: Invalid value: "Web": want a lower-case DNS name: letters, digits, `-` and `.`, at most 253 characters, with a letter or digit at both ends, such as `my-name` or `example.com`
        spec.interval: Invalid value: "500ms": must be at least 1s
        spec.sourceRef.name: Invalid value: "we b": want a lower-case DNS name: letters, digits, `-` and `.`, at most 253 characters, with a letter or digit at both ends, such as `my-name` or `example.com`
        spec.kubeConfig: Forbidden: cannot be combined with spec.clusterRef: set one of them
        spec.kubeConfig.secretRef: Required value
        spec.path: Invalid value: "../x": points outside the source's root
        spec.healthChecks[0].apiVersion: Required value: the default API version of kind "Widget" is not known
        spec.postBuild.substitute: Invalid value: "1a": a variable's name has letters, digits and `_`, and no digit first
        "#);
    }

    #[test]
    fn a_url_with_credentials_is_refused_unless_it_is_there_already() {
        let source =
            |url: &str| json!({ "metadata": { "name": "a" }, "spec": { "url": url, "interval": "1m" } });
        for url in [
            "https://u:hunter2@git.example/x",
            "https://hunter2@git.example/x",
            "http:///u:hunter2@git.example/x",
            "https:\\\\u:hunter2@git.example/x",
            "https:/\t/u:hunter2@git.example/x",
            "https://u:a@b:hunter2@git.example",
            "ssh://git:hunter2@git.example/x",
            "oci://u:hunter2@git.example/x",
        ] {
            for kind in [KindId::GitRepository, KindId::HelmRepository, KindId::OciRepository] {
                let new = check(kind, &source(url), Some(&source("https://git.example/x")));
                let errors: Vec<String> = new.errors.iter().map(ToString::to_string).collect();
                assert!(
                    errors.iter().any(|error| error.contains("spec.url: Forbidden")),
                    "{url}: {errors:?}"
                );
                assert!(!errors.concat().contains("hunter2") || url.starts_with("oci"), "{errors:?}");
                let same = check(kind, &source(url), Some(&source(url)));
                assert!(!same.errors.iter().any(|error| error.to_string().contains("Forbidden")), "{url}");
                assert!(same.warnings.iter().any(|warning| warning.contains("spec.secretRef")), "{url}");
            }
        }
        for url in ["https://git.example/a@b", "ssh://git@git.example/x", "https://git.example/?a=b@c", "a@b"]
        {
            let verdict = check(KindId::GitRepository, &source(url), None);
            let refused = verdict.errors.iter().any(|error| error.to_string().contains("Forbidden"));
            assert_eq!(refused, url == "a@b", "{url}: {:?}", verdict.errors);
        }
    }

    #[test]
    fn fields_that_do_not_count_beside_keys_are_warned_about() {
        let warnings = |verify: &serde_json::Value| {
            let spec = json!({ "url": "oci://registry.example/app", "interval": "1m", "verify": verify });
            let object = json!({ "metadata": { "name": "a" }, "spec": spec });
            check(KindId::OciRepository, &object, None).warnings
        };
        let (keys, root) = (json!({ "name": "keys" }), json!({ "name": "root" }));
        let identity = json!([{ "issuer": "^a$", "subject": "^b$" }]);
        let both = warnings(
            &json!({ "secretRef": keys, "trustedRootSecretRef": root, "matchOIDCIdentity": identity }),
        );
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[0].starts_with("spec.verify.matchOIDCIdentity is not looked at"), "{both:?}");
        for alone in [
            json!({ "secretRef": keys }),
            json!({ "trustedRootSecretRef": root, "matchOIDCIdentity": identity }),
        ] {
            assert_eq!(warnings(&alone), Vec::<String>::new());
        }
    }

    #[test]
    fn identities_that_match_more_than_the_whole_are_warned_about() {
        let warnings = |issuer: &str, subject: &str| {
            let verify = json!({ "provider": "cosign", "matchOIDCIdentity": [{ "issuer": issuer, "subject": subject }] });
            let spec = json!({ "url": "oci://registry.example/app", "interval": "1m", "verify": verify });
            check(KindId::OciRepository, &json!({ "metadata": { "name": "a" }, "spec": spec }), None).warnings
        };
        for good in ["^a$", "\\Aa\\z", "^(a|b)$", "^a.*"] {
            assert_eq!(warnings(good, good), Vec::<String>::new());
        }
        for bad in ["a", "^a", "a$", "^a\\$", "^a|b$", "^a\\.*", ""] {
            let told = warnings("^a$", bad);
            assert!(
                told.len() == 1
                    && told[0].starts_with("spec.verify.matchOIDCIdentity[0].subject matches any"),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_secrets_value_is_never_shown() {
        let object =
            json!({ "metadata": { "name": "a" }, "type": "Opaque", "data": { "k": "not base64: hush" } });
        let errors = check(KindId::Secret, &object, None).errors;
        assert_eq!(errors.len(), 1);
        assert!(!errors[0].to_string().contains("hush"), "{}", errors[0]);
    }
}
