//! Rules of Alerts and Providers: what their expressions may be, and which fields belong to which type.

use roadstead_go_regex::{Limits, compile};
use serde_json::Value;

use super::{Verdict, is_dns_subdomain};
use crate::cron::{CronError, CronSchedule, Times};
use crate::kind::KindId;
use crate::silence::{MAX_WINDOW, SilenceSpec};
use crate::validate::FieldError;

/// So many entries each list of expressions has at most: each is held against each message.
pub const MAX_PATTERNS: usize = 50;
/// The longest expression, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1024;
/// What a compiled expression may take.
pub const MAX_PATTERN: Limits = Limits { program: 128 << 10, tables: 128 << 10 };

/// So many entries `spec.eventSources` has at most.
const MAX_SOURCES: usize = 100;
/// So many labels the selectors of all sources ask for at most: of each namespace and each Cluster that news is about, so many are read.
const MAX_TERMS: usize = 50;
/// So many entries `spec.eventMetadata` has at most: each event that is sent has them.
const MAX_METADATA: usize = 50;
/// And so many bytes in all.
pub const MAX_METADATA_BYTES: usize = 8 << 10;
/// So many expressions make values of the metadata: each is evaluated for each event.
const MAX_EXPRESSIONS: usize = 10;
/// Bytes of what a Silence says, in JSON: those of a namespace are read together.
const MAX_SILENCE: usize = 8 << 10;
/// The types that make a commit's status.
const OF_COMMITS: [&str; 6] = ["github", "gitlab", "gitea", "bitbucket", "bitbucketserver", "azuredevops"];
/// The types that keep what is open, or comment on a request: a digest is about neither.
const NOT_FOR_DIGESTS: [&str; 8] = [
    "pagerduty",
    "incident.io",
    "opsgenie",
    "alertmanager",
    "githubpullrequestcomment",
    "gitlabmergerequestcomment",
    "giteapullrequestcomment",
    "githubdispatch",
];
/// The types that know a cloud's identities.
const OF_CLOUDS: [&str; 3] = ["azuredevops", "azureeventhub", "googlepubsub"];

pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    for list in ["inclusionList", "exclusionList"] {
        let items = items(&spec[list]);
        at_most(&format!("spec.{list}"), items.len(), MAX_PATTERNS, &mut verdict.errors);
        for (index, item) in items.iter().enumerate().take(MAX_PATTERNS) {
            let Some(pattern) = item.as_str() else { continue };
            let field = format!("spec.{list}[{index}]");
            if pattern.len() > MAX_PATTERN_BYTES {
                let why = format!("must be at most {MAX_PATTERN_BYTES} bytes long");
                verdict.errors.push(FieldError::forbidden(field, why));
            } else if let Err(error) = compile(pattern, MAX_PATTERN) {
                verdict.errors.push(FieldError::invalid(field, item, error));
            }
        }
    }
    let metadata = spec["eventMetadata"].as_object();
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    at_most(
        "spec.eventMetadata",
        metadata.map_or(0, serde_json::Map::len),
        MAX_METADATA,
        &mut verdict.errors,
    );
    if metadata.is_some_and(|metadata| metadata.iter().map(bytes).sum::<usize>() > MAX_METADATA_BYTES) {
        let why = format!("must be at most {MAX_METADATA_BYTES} bytes in all");
        verdict.errors.push(FieldError::forbidden("spec.eventMetadata", why));
    }
    let expressions = spec["eventMetadataExprs"].as_object().map_or(0, serde_json::Map::len);
    at_most("spec.eventMetadataExprs", expressions, MAX_EXPRESSIONS, &mut verdict.errors);
    sources(items(&spec["eventSources"]), verdict);
    for (index, source) in items(&spec["eventSources"]).iter().enumerate() {
        if source["statusesAndComments"] != true {
            continue;
        }
        let why = match (&source["cluster"], &spec["group"]) {
            (Value::String(_), Value::Null) => continue,
            (Value::String(_), _) => {
                "may not be set beside spec.group: what is grouped is counted by the hub"
            }
            _ => "is for sources with cluster: the hub's own objects need no leave",
        };
        let field = format!("spec.eventSources[{index}].statusesAndComments");
        verdict.errors.push(FieldError::forbidden(field, why));
    }
}

fn sources(sources: &[Value], verdict: &mut Verdict) {
    at_most("spec.eventSources", sources.len(), MAX_SOURCES, &mut verdict.errors);
    let mut terms = 0;
    for (index, source) in sources.iter().enumerate() {
        terms += selectors(&format!("spec.eventSources[{index}]"), source, &mut verdict.errors);
        let Some(kind) = source["kind"].as_str() else { continue };
        let is_relayed = source["cluster"].is_string();
        // As in Flux its version says nothing.
        if !is_relayed && KindId::named(kind).is_none() {
            verdict.warnings.push(format!(
                "spec.eventSources[{index}]: this hub has no objects of kind {kind}, and so no events of them"
            ));
        }
    }
    if terms > MAX_TERMS {
        let why = format!("its selectors may ask for at most {MAX_TERMS} labels in all");
        verdict.errors.push(FieldError::forbidden("spec.eventSources", why));
    }
}

/// Checks what a source says of the labels of namespaces and clusters, and gives how many it asks for.
fn selectors(field: &str, source: &Value, errors: &mut Vec<FieldError>) -> usize {
    let mut terms = 0;
    for name in ["namespaceSelector", "clusterSelector"] {
        let (selector, field) = (&source[name], format!("{field}.{name}"));
        super::rbac::selector(selector, &field, errors);
        terms += selector["matchLabels"].as_object().map_or(0, serde_json::Map::len);
        terms += items(&selector["matchExpressions"]).len();
    }
    if let Some(cluster) = source["cluster"].as_str() {
        of_cluster(field, source, cluster, errors);
    } else if source["namespaceSelector"].is_object() && source["namespace"] != "*" {
        let why = "selects among all namespaces: set namespace to '*'";
        errors.push(FieldError::forbidden(format!("{field}.namespaceSelector"), why));
    }
    terms
}

/// Checks a source of what a cluster's Flux tells: of its objects the hub knows what is in the events, and no labels.
fn of_cluster(field: &str, source: &Value, cluster: &str, errors: &mut Vec<FieldError>) {
    if cluster != "*" && !is_dns_subdomain(cluster) {
        let why = "must be the name of a Cluster, or * for all";
        errors.push(FieldError::invalid(format!("{field}.cluster"), &source["cluster"], why));
    }
    for labels in ["matchLabels", "namespaceSelector"] {
        if source[labels].as_object().is_some_and(|labels| !labels.is_empty()) {
            let why = "may not be set beside cluster: the hub does not know labels in a cluster";
            errors.push(FieldError::forbidden(format!("{field}.{labels}"), why));
        }
    }
    if source["clusterSelector"].is_object() && cluster != "*" {
        let why = "selects among all Clusters: set cluster to '*'";
        errors.push(FieldError::forbidden(format!("{field}.clusterSelector"), why));
    }
}

pub(super) fn provider(spec: &Value, errors: &mut Vec<FieldError>) {
    let type_ = spec["type"].as_str().unwrap_or_default();
    if !spec["commitStatusExpr"].is_null() && !OF_COMMITS.contains(&type_) {
        let why = format!("only these types make commit statuses: {}", OF_COMMITS.join(", "));
        errors.push(FieldError::forbidden("spec.commitStatusExpr", why));
    }
    if !spec["serviceAccountName"].is_null() && !OF_CLOUDS.contains(&type_) {
        let why = format!("only these types know a cloud's identities: {}", OF_CLOUDS.join(", "));
        errors.push(FieldError::forbidden("spec.serviceAccountName", why));
    }
    if let Ok(digest) = serde_json::from_value::<CronSchedule>(spec["digest"].clone()) {
        times("spec.digest", &spec["digest"], &digest, errors);
        if NOT_FOR_DIGESTS.contains(&type_) || OF_COMMITS.contains(&type_) {
            let why = format!("type {type_} is for single objects; it takes no digests");
            errors.push(FieldError::forbidden("spec.digest", why));
        }
    }
}

/// Rules of Silences: those that would never begin or never end are mistakes.
pub(super) fn silence(spec: &Value, errors: &mut Vec<FieldError>) {
    if spec.to_string().len() > MAX_SILENCE {
        errors.push(FieldError::forbidden("spec", format!("must be at most {MAX_SILENCE} bytes in all")));
        return;
    }
    // What has another form is told of by the schema.
    let Ok(read) = serde_json::from_value::<SilenceSpec>(spec.clone()) else { return };
    if read.reason.trim().is_empty() {
        errors.push(FieldError::invalid("spec.reason", &spec["reason"], "must say why"));
    }
    match (read.from, read.until) {
        (_, None) if read.schedule.is_none() => {
            let why =
                "spec.until says when it ends, or spec.schedule when it begins again and how long it lasts";
            errors.push(FieldError::forbidden("spec", why));
        }
        (Some(from), Some(until)) if until <= from => {
            errors.push(FieldError::invalid("spec.until", &spec["until"], "must be after spec.from"));
        }
        _ => {}
    }
    let Some(schedule) = &read.schedule else { return };
    if schedule.duration.0.is_zero() || schedule.duration.0 > MAX_WINDOW {
        let why = "must be more than 0s, and at most 168h";
        errors.push(FieldError::invalid("spec.schedule.duration", &spec["schedule"]["duration"], why));
    }
    times("spec.schedule", &spec["schedule"], &schedule.begins(), errors);
}

fn times(field: &str, value: &Value, schedule: &CronSchedule, errors: &mut Vec<FieldError>) {
    if let Err(error) = Times::of(schedule) {
        let part = if error == CronError::TimeZone { "timeZone" } else { "cron" };
        errors.push(FieldError::invalid(format!("{field}.{part}"), &value[part], error));
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn at_most(field: &str, count: usize, most: usize, errors: &mut Vec<FieldError>) {
    if count > most {
        errors.push(FieldError::invalid(field, &count.into(), format!("must have at most {most} items")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Verdict, check, provider, silence};

    fn errors(spec: &Value) -> Vec<String> {
        let mut verdict = Verdict::default();
        check(spec, &mut verdict);
        verdict.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_held_against_each_message_is_bounded() {
        let good = json!({ "inclusionList": ["^a.*\\d$"], "exclusionList": ["x|y"], "eventMetadata": { "env": "prod" },
            "eventSources": [{ "kind": "Kustomization", "name": "*" }] });
        assert_eq!(errors(&good), Vec::<String>::new());
        for (spec, field) in [
            (json!({ "inclusionList": ["fine", "("] }), "spec.inclusionList[1]: Invalid"),
            (json!({ "exclusionList": ["x".repeat(1025)] }), "spec.exclusionList[0]: Forbidden"),
            (json!({ "inclusionList": ["((a{1,1000}){1,1000})"] }), "spec.inclusionList[0]: Invalid"),
            (json!({ "inclusionList": vec!["a"; 51] }), "spec.inclusionList: Invalid"),
            (json!({ "eventMetadata": { "a": "x".repeat(9_000) } }), "spec.eventMetadata: Forbidden"),
            (
                json!({ "eventMetadataExprs": (0..11).map(|n| (n.to_string(), "'x'".into())).collect::<serde_json::Map<_, _>>() }),
                "spec.eventMetadataExprs: Invalid",
            ),
            (
                json!({ "eventSources": vec![json!({ "kind": "Bucket", "name": "b" }); 101] }),
                "spec.eventSources: Invalid",
            ),
        ] {
            let errors = errors(&spec);
            assert!(errors.iter().any(|error| error.starts_with(field)), "{field}: {errors:?}");
        }
    }

    #[test]
    fn only_what_clusters_tell_needs_leave_to_write_statuses() {
        let source = |more: Value| {
            let mut source = json!({ "kind": "Kustomization", "name": "*", "statusesAndComments": true });
            source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            source
        };
        for (source, group, why) in [
            (source(json!({ "cluster": "*" })), Value::Null, None),
            (source(json!({ "statusesAndComments": false })), Value::Null, None),
            (source(json!({})), Value::Null, Some("is for sources with cluster")),
            (source(json!({ "cluster": "*" })), json!({}), Some("may not be set beside spec.group")),
        ] {
            let errors = errors(&json!({ "eventSources": [source], "group": group }));
            let told = errors.first().is_some_and(|error| {
                error.starts_with("spec.eventSources[0].statusesAndComments: Forbidden: ")
                    && why.is_some_and(|why| error.contains(why))
            });
            assert_eq!((errors.len(), told), (usize::from(why.is_some()), why.is_some()), "{errors:?}");
        }
    }

    #[test]
    fn kinds_that_are_not_on_the_hub_are_told() {
        for (kind, told) in [("ImagePolicy", true), ("HelmRelease", true), ("Kustomization", false)] {
            let mut verdict = Verdict::default();
            check(&json!({ "eventSources": [{ "kind": kind, "name": "*" }] }), &mut verdict);
            assert_eq!(!verdict.warnings.is_empty(), told, "{kind}");
        }
    }

    #[test]
    fn fields_belong_to_types() {
        for (spec, expected) in [
            (json!({ "type": "github", "commitStatusExpr": "'x'" }), None),
            (json!({ "type": "slack", "commitStatusExpr": "'x'" }), Some("spec.commitStatusExpr: Forbidden")),
            (
                json!({ "type": "slack", "serviceAccountName": "x" }),
                Some("spec.serviceAccountName: Forbidden"),
            ),
        ] {
            let mut errors = Vec::new();
            provider(&spec, &mut errors);
            let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(
                told.first().map(|error| error.starts_with(expected.unwrap_or("-"))),
                expected.map(|_| true)
            );
        }
    }

    #[test]
    fn a_silence_begins_ends_and_says_why() {
        let window = |cron: &str, zone: &str, duration: &str| json!({ "reason": "r", "schedule": { "cron": cron, "timeZone": zone, "duration": duration } });
        for (spec, expected) in [
            (json!({ "reason": "r", "until": "2026-11-28T12:00:00Z" }), None),
            (window("0 22 * * FRI", "Europe/Berlin", "8h"), None),
            (json!({ "reason": "r" }), Some("spec: Forbidden: spec.until says when it ends")),
            (json!({ "reason": " ", "until": "2026-11-28T12:00:00Z" }), Some("spec.reason: Invalid")),
            (
                json!({ "reason": "r", "from": "2026-11-28T12:00:00Z", "until": "2026-11-28T13:00:00+01:00" }),
                Some("spec.until: Invalid"),
            ),
            (window("0 22 * *", "UTC", "8h"), Some("spec.schedule.cron: Invalid")),
            (window("0 22 31 2 *", "UTC", "8h"), Some("spec.schedule.cron: Invalid")),
            (window("0 22 * * *", "Europe/Atlantis", "8h"), Some("spec.schedule.timeZone: Invalid")),
            (window("0 22 * * *", "UTC", "169h"), Some("spec.schedule.duration: Invalid")),
            (window("0 22 * * *", "UTC", "0s"), Some("spec.schedule.duration: Invalid")),
            (
                json!({ "reason": "r", "until": "2026-11-28T12:00:00Z",
                        "objects": [{ "matchLabels": { "a": "x".repeat(9_000) } }] }),
                Some("spec: Forbidden: must be at most"),
            ),
        ] {
            let mut errors = Vec::new();
            silence(&spec, &mut errors);
            let first = errors.first().map(ToString::to_string);
            match expected {
                None => assert_eq!(first, None, "{spec}"),
                Some(start) => {
                    assert!(first.as_deref().is_some_and(|first| first.starts_with(start)), "{first:?}");
                }
            }
        }
    }

    #[test]
    fn digests_are_for_what_people_read() {
        for (type_, cron, expected) in [
            ("slack", "0 8 * * *", None),
            ("slack", "0 8 * *", Some("spec.digest.cron: Invalid")),
            ("pagerduty", "0 8 * * *", Some("spec.digest: Forbidden")),
            ("github", "0 8 * * *", Some("spec.digest: Forbidden")),
        ] {
            let mut errors = Vec::new();
            provider(&json!({ "type": type_, "digest": { "cron": cron } }), &mut errors);
            let first = errors.first().map(ToString::to_string);
            assert_eq!(first.is_some(), expected.is_some(), "{first:?}");
            assert!(expected.is_none_or(|start| first.unwrap_or_default().starts_with(start)));
        }
    }
}
