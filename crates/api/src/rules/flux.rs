//! Rules of Flux's kinds.

use std::sync::OnceLock;
use std::time::Duration;

use regex::Regex;
use roadstead_model::Revision;
use serde_json::Value;

use super::{
    ADVISED_INTERVAL, LABEL, MIN_INTERVAL, SUBDOMAIN, Verdict, at_least_a_second, duration, entries,
    is_dns_label, is_dns_subdomain, names, pattern,
};
use crate::kustomization::{MAX_DEPENDENCIES, known_api_version};
use crate::validate::FieldError;

/// The longest a fetch of a source may take.
const LONGEST_FETCH: Duration = Duration::from_secs(600);

pub(super) fn kustomization(spec: &Value, verdict: &mut Verdict) {
    let errors = &mut verdict.errors;
    at_least_a_second(spec, &["interval", "retryInterval", "timeout"], errors);
    if duration(&spec["interval"])
        .is_some_and(|interval| (MIN_INTERVAL..ADVISED_INTERVAL).contains(&interval))
    {
        let interval = spec["interval"].as_str().unwrap_or_default();
        verdict.warnings.push(format!("spec.interval: {interval} is short; at least 60s is advised"));
    }
    names(
        spec,
        &[
            "clusterRef.name",
            "decryption.secretRef.name",
            "decryption.serviceAccountName",
            "dependsOn[].name",
            "kubeConfig.configMapRef.name",
            "kubeConfig.secretRef.name",
            "serviceAccount.name",
            "sourceRef.name",
            "postBuild.substituteFrom[].name",
        ],
        is_dns_subdomain,
        SUBDOMAIN,
        errors,
    );
    names(
        spec,
        &["dependsOn[].namespace", "serviceAccount.namespace", "sourceRef.namespace", "targetNamespace"],
        is_dns_label,
        LABEL,
        errors,
    );
    delegation(&spec["delegation"], errors);
    let pin = &spec["pin"]["revision"];
    if let Some(Err(error)) = pin.as_str().map(str::parse::<Revision>) {
        errors.push(FieldError::invalid("spec.pin.revision", pin, error));
    }
    if spec.get("clusterRef").is_some() && spec.get("kubeConfig").is_some() {
        errors.push(FieldError::forbidden(
            "spec.kubeConfig",
            "cannot be combined with spec.clusterRef: set one of them",
        ));
    }
    if let Some(kube_config) = spec.get("kubeConfig") {
        match (kube_config.get("secretRef"), kube_config.get("configMapRef")) {
            (None, None) => errors.push(FieldError::required("spec.kubeConfig.secretRef", "")),
            (Some(_), Some(_)) => errors.push(FieldError::forbidden(
                "spec.kubeConfig.configMapRef",
                "cannot be combined with spec.kubeConfig.secretRef: set one of them",
            )),
            _ => {}
        }
    }
    if let Some(path) = spec["path"].as_str()
        && leaves_its_root(path)
    {
        errors.push(FieldError::invalid("spec.path", &spec["path"], "points outside the source's root"));
    }
    for (index, component) in spec["components"].as_array().into_iter().flatten().enumerate() {
        if component.as_str().is_some_and(str::is_empty) {
            errors.push(FieldError::invalid(
                format!("spec.components[{index}]"),
                component,
                "must not be empty",
            ));
        }
    }
    for (index, check) in spec["healthChecks"].as_array().into_iter().flatten().enumerate() {
        let known = check["kind"].as_str().and_then(known_api_version).is_some();
        if !known && check["apiVersion"].as_str().is_none_or(str::is_empty) {
            let why = format!("the default API version of kind {} is not known", check["kind"]);
            errors.push(FieldError::required(format!("spec.healthChecks[{index}].apiVersion"), &why));
        }
    }
    static VARIABLE: OnceLock<Option<Regex>> = OnceLock::new();
    for (key, _) in entries(&spec["postBuild"]["substitute"]) {
        if !pattern(&VARIABLE, "^[_A-Za-z][_A-Za-z0-9]*$").is_some_and(|pattern| pattern.is_match(key)) {
            let why = "a variable's name has letters, digits and `_`, and no digit first";
            errors.push(FieldError::invalid("spec.postBuild.substitute", &key.as_str().into(), why));
        }
    }
}

fn delegation(delegation: &Value, errors: &mut Vec<FieldError>) {
    accounts(&delegation["serviceAccounts"], "spec.delegation.serviceAccounts", errors);
    for (from, to) in entries(&delegation["namespaces"]) {
        if !is_dns_label(from) || !to.as_str().is_some_and(is_dns_label) {
            errors.push(FieldError::invalid(format!("spec.delegation.namespaces[{from}]"), to, LABEL));
        }
    }
}

/// Patterns of service accounts.
pub(super) fn accounts(list: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (index, account) in list.as_array().into_iter().flatten().enumerate() {
        let text = account.as_str().unwrap_or_default();
        let is_name = |(namespace, name): (&str, &str)| {
            is_dns_label(namespace) && (name == "*" || is_dns_subdomain(name))
        };
        if text != "*" && !text.split_once('/').is_some_and(is_name) {
            let why = "want NAMESPACE/NAME or NAMESPACE/* of the cluster, or *";
            errors.push(FieldError::invalid(format!("{field}[{index}]"), account, why));
        }
    }
}

/// Who may use a Cluster.
pub(super) fn cluster(spec: &Value, verdict: &mut Verdict) {
    default_account(spec, verdict);
    event_readers(spec, &mut verdict.errors);
    for (index, grant) in spec["access"].as_array().into_iter().flatten().enumerate() {
        let field = format!("spec.access[{index}]");
        namespaces(grant, &field, &mut verdict.errors);
        accounts(&grant["serviceAccounts"], &format!("{field}.serviceAccounts"), &mut verdict.errors);
    }
}

/// Namespaces of the hub that may read the cluster's events.
fn event_readers(spec: &Value, errors: &mut Vec<FieldError>) {
    for (index, reader) in spec["eventReaders"].as_array().into_iter().flatten().enumerate() {
        let name = reader.as_str().unwrap_or_default();
        if name != "*" && !is_dns_label(name) {
            let why = format!("{LABEL}; or * for all namespaces of the hub");
            errors.push(FieldError::invalid(format!("spec.eventReaders[{index}]"), reader, why));
        }
    }
}

/// Which namespaces of the hub an entry of `spec.access` means.
fn namespaces(grant: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let (namespace, labels) = (&grant["namespace"], &grant["namespaceSelector"]);
    match (namespace.as_str(), labels.is_object()) {
        (None, true) => super::rbac::selector(labels, &format!("{field}.namespaceSelector"), errors),
        (Some(_), true) => {
            let why = "may not be set beside namespaceSelector";
            errors.push(FieldError::forbidden(format!("{field}.namespace"), why));
        }
        (Some(name), false) if name == "*" || is_dns_label(name) => {}
        _ => {
            let why = format!("{LABEL}; or * for all namespaces of the hub; or set namespaceSelector");
            errors.push(FieldError::invalid(format!("{field}.namespace"), namespace, why));
        }
    }
}

/// The account of those that name none.
fn default_account(spec: &Value, verdict: &mut Verdict) {
    let Some(account) = spec["defaultServiceAccount"].as_str() else { return };
    let (namespace, name) = account.split_once('/').map_or((None, account), |(of, name)| (Some(of), name));
    if !is_dns_subdomain(name) || namespace.is_some_and(|namespace| !is_dns_label(namespace)) {
        let why = "must be the name of a ServiceAccount, or NAMESPACE/NAME";
        let value = &spec["defaultServiceAccount"];
        verdict.errors.push(FieldError::invalid("spec.defaultServiceAccount".to_owned(), value, why));
    }
}

/// At most so many dependencies. One that was stored before there was a bound can be changed as long as it gets no more of them.
pub(super) fn dependencies(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let count = |spec: &Value| spec["dependsOn"].as_array().map_or(0, Vec::len);
    let (now, before) = (count(spec), old.map_or(0, count));
    if now > MAX_DEPENDENCIES.max(before) {
        let message = format!("Too many: {now}: must have at most {MAX_DEPENDENCIES} items");
        errors.push(FieldError { field: "spec.dependsOn".to_owned(), reason: "FieldValueTooMany", message });
    }
}

/// Whether `..` leads out of the directory that the path starts in. A leading `/` means that directory, as in Flux.
pub(super) fn leaves_its_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    path.contains('\0')
}

/// Credentials have a place of their own, which is encrypted: in a URL they would be stored, listed and logged. Who has them
/// there already can still write the object, which is not Ready.
pub(super) fn url_without_credentials(object: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    for field in ["url", "endpoint"] {
        let text = |object: &Value| object["spec"][field].as_str().map(str::to_owned);
        let Some(url) = text(object).filter(|url| holds_credentials(url)) else { continue };
        // The value is not repeated: it is the credential.
        let why =
            "must not hold a user name or a password: put them into the Secret that spec.secretRef names";
        if old.and_then(text).as_deref() == Some(url.as_str()) {
            verdict.warnings.push(format!("spec.{field} {why}"));
        } else {
            verdict.errors.push(FieldError::forbidden(format!("spec.{field}"), why));
        }
    }
}

/// Whether there is something in front of the host. Over SSH that is a user, as `git@`, but no password.
fn holds_credentials(url: &str) -> bool {
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    // However many slashes there are, of either kind, and control characters between them: that is how URLs are read.
    let rest: String = rest.chars().filter(|c| !c.is_control()).collect();
    let authority =
        rest.trim_start_matches(['/', '\\', ' ']).split(['/', '\\', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => !scheme.eq_ignore_ascii_case("ssh") || user.contains(':'),
        None => false,
    }
}

/// How Flux's sources write the time between looks, and that of one. One look is not given hours, and cannot be written so.
const INTERVAL: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";
const TIMEOUT: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";
/// How charts of a HelmRepository are called.
const CHART_NAME: &str = r"^([-a-z0-9]+/?\.?)+$";

/// What a field of `spec` must match. What was stored before there was this rule may stay, as long as nobody changes it.
fn must_match(
    spec: &Value,
    old: Option<&Value>,
    field: &str,
    (wanted, text): (Option<&Regex>, &str),
    errors: &mut Vec<FieldError>,
) {
    let value = &spec[field];
    let fits = value.as_str().is_none_or(|value| wanted.is_some_and(|wanted| wanted.is_match(value)));
    if !fits && old.is_none_or(|old| old[field] != *value) {
        errors.push(FieldError::invalid(
            format!("spec.{field}"),
            value,
            format_args!("should match '{text}'"),
        ));
    }
}

/// The durations of a source of Flux's, of any kind.
pub(super) fn durations(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    static OF_INTERVAL: OnceLock<Option<Regex>> = OnceLock::new();
    static OF_TIMEOUT: OnceLock<Option<Regex>> = OnceLock::new();
    must_match(spec, old, "interval", (pattern(&OF_INTERVAL, INTERVAL), INTERVAL), errors);
    must_match(spec, old, "timeout", (pattern(&OF_TIMEOUT, TIMEOUT), TIMEOUT), errors);
}

pub(super) fn git_repository(spec: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    let errors = &mut verdict.errors;
    at_least_a_second(spec, &["interval", "timeout"], errors);
    durations(spec, old, errors);
    if duration(&spec["timeout"]).is_some_and(|timeout| timeout > LONGEST_FETCH) {
        verdict
            .warnings
            .push("spec.timeout: a fetch may take 10m at most, and is ended after that".to_owned());
    }
    names(
        spec,
        &[
            "include[].repository.name",
            "proxySecretRef.name",
            "secretRef.name",
            "serviceAccountName",
            "verify.secretRef.name",
        ],
        is_dns_subdomain,
        SUBDOMAIN,
        errors,
    );
    names(spec, &["include[].repository.namespace"], is_dns_label, LABEL, errors);
    if !spec["serviceAccountName"].is_null() && !matches!(spec["provider"].as_str(), Some("aws" | "azure")) {
        let why = "serviceAccountName can only be set when provider is 'azure' or 'aws'";
        errors.push(FieldError::invalid("spec", &Value::from("object"), why));
    }
    let commit = &spec["ref"]["commit"];
    if commit
        .as_str()
        .is_some_and(|id| !matches!(id.len(), 40 | 64) || !id.bytes().all(|c| c.is_ascii_hexdigit()))
    {
        errors.push(FieldError::invalid(
            "spec.ref.commit",
            commit,
            "want the 40 (or 64) digits of a commit's id",
        ));
    }
    let name = &spec["ref"]["name"];
    let has_slash = name.as_str().is_some_and(|name| name.starts_with('/') || name.ends_with('/'));
    if has_slash && old.is_none_or(|old| old["ref"]["name"] != *name) {
        let why = "Git refs cannot begin or end with a slash '/'";
        errors.push(FieldError::invalid("spec.ref.name", name, why));
    }
    let given = |field: &str| spec["ref"][field].as_str().is_some_and(|text| !text.is_empty());
    if given("tag") && given("semver") {
        verdict.warnings.push(
            "spec.ref.semver is not looked at: spec.ref.tag is set too, and comes before it".to_owned(),
        );
    }
    let errors = &mut verdict.errors;
    for (field, value) in entries(&spec["ref"]) {
        // A reference that starts so would be read as an option by Git.
        if value.as_str().is_some_and(|text| text.starts_with('-') || text.contains(char::is_control)) {
            errors.push(FieldError::invalid(
                format!("spec.ref.{field}"),
                value,
                "is not a valid name of a reference",
            ));
        }
    }
}

/// Bucket, OCIRepository, HelmRepository, HelmChart.
pub(super) fn source(spec: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    let errors = &mut verdict.errors;
    at_least_a_second(spec, &["interval", "timeout"], errors);
    durations(spec, old, errors);
    let references = [
        "certSecretRef.name",
        "proxySecretRef.name",
        "secretRef.name",
        "serviceAccountName",
        "sourceRef.name",
        "sts.certSecretRef.name",
        "sts.secretRef.name",
        "verify.secretRef.name",
        "verify.trustedRootSecretRef.name",
    ];
    names(spec, &references, is_dns_subdomain, SUBDOMAIN, errors);
    let verify = &spec["verify"];
    for field in ["matchOIDCIdentity", "trustedRootSecretRef"] {
        if !verify["secretRef"].is_null() && !verify[field].is_null() {
            verdict.warnings.push(format!(
                "spec.verify.{field} is not looked at: spec.verify.secretRef is set too, and its keys count"
            ));
        }
    }
    unanchored(verify, &mut verdict.warnings);
    let errors = &mut verdict.errors;
    let helm_path = spec["url"].as_str().is_some_and(|url| url.starts_with("oci://"));
    if spec["type"] == "oci" && !helm_path {
        errors.push(FieldError::invalid(
            "spec.url",
            &spec["url"],
            "type oci wants a URL that begins with oci://",
        ));
    }
}

/// Warns of expressions for identities that also match what merely contains what they are meant for.
fn unanchored(verify: &Value, warnings: &mut Vec<String>) {
    for (number, identity) in verify["matchOIDCIdentity"].as_array().into_iter().flatten().enumerate() {
        for field in ["issuer", "subject"] {
            let Some(text) = identity[field].as_str() else { continue };
            let begins = text.starts_with('^') || text.starts_with("\\A");
            let is_last = |end: &str| text.strip_suffix(end).is_some_and(|before| !before.ends_with('\\'));
            let ends = is_last("$") || is_last(".*") || text.ends_with("\\z");
            // Of alternatives, the first and the last would be anchored at one end only.
            let is_one = !text.contains('|') || text.starts_with("^(") && text.ends_with(")$");
            if !(begins && ends && is_one) {
                warnings.push(format!(
                    "spec.verify.matchOIDCIdentity[{number}].{field} matches any text that contains what it matches: begin it with ^ and end \
                     it with $, with parentheses around alternatives"
                ));
            }
        }
    }
}

/// What an ExternalArtifact says of its origin, which may be an object of any kind.
pub(super) fn external_artifact(spec: &Value, errors: &mut Vec<FieldError>) {
    names(spec, &["sourceRef.name"], is_dns_subdomain, SUBDOMAIN, errors);
    names(spec, &["sourceRef.namespace"], is_dns_label, LABEL, errors);
}

/// What an ArtifactGenerator names. What of its texts does not fit together is its condition.
pub(super) fn generator(spec: &Value, errors: &mut Vec<FieldError>) {
    names(spec, &["sources[].name"], is_dns_subdomain, SUBDOMAIN, errors);
    names(spec, &["sources[].namespace"], is_dns_label, LABEL, errors);
}

/// What Flux's own rules say of a Bucket, in its words; and that no signature is in a URL that everyone may read.
pub(super) fn bucket(spec: &Value, errors: &mut Vec<FieldError>) {
    let (provider, sts) = (spec["provider"].as_str().unwrap_or("generic"), &spec["sts"]);
    let has_account = !spec["serviceAccountName"].is_null();
    let rules = [
        (
            matches!(provider, "gcp" | "azure") && !sts.is_null(),
            "STS configuration is only supported for the 'aws' and 'generic' Bucket providers",
        ),
        (
            provider == "aws" && !sts.is_null() && sts["provider"] != "aws",
            "'aws' is the only supported STS provider for the 'aws' Bucket provider",
        ),
        (
            provider == "generic" && !sts.is_null() && sts["provider"] != "ldap",
            "'ldap' is the only supported STS provider for the 'generic' Bucket provider",
        ),
        (
            sts["provider"] == "aws" && !sts["secretRef"].is_null(),
            "spec.sts.secretRef is not required for the 'aws' STS provider",
        ),
        (
            sts["provider"] == "aws" && !sts["certSecretRef"].is_null(),
            "spec.sts.certSecretRef is not required for the 'aws' STS provider",
        ),
        (
            provider == "generic" && has_account,
            "ServiceAccountName is not supported for the 'generic' Bucket provider",
        ),
        (
            has_account && !spec["secretRef"].is_null(),
            "cannot set both .spec.secretRef and .spec.serviceAccountName",
        ),
    ];
    let what = Value::from("object");
    let broken = rules.iter().filter(|(broken, _)| *broken);
    errors.extend(broken.map(|(_, why)| FieldError::invalid("spec", &what, why)));
    if spec["endpoint"].as_str().is_some_and(|endpoint| endpoint.contains('?')) {
        // The value is not repeated: it may be a signature.
        let why =
            "must not have a query: put a shared access signature into the Secret that spec.secretRef names";
        errors.push(FieldError::forbidden("spec.endpoint", why));
    }
}

/// What Flux's own rules say of a HelmChart, in its words.
pub(super) fn helm_chart(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if spec["sourceRef"]["kind"] == "HelmRepository" {
        static NAME: OnceLock<Option<Regex>> = OnceLock::new();
        // Of another source it is a path.
        let old = old.filter(|old| old["sourceRef"]["kind"] == "HelmRepository");
        must_match(spec, old, "chart", (pattern(&NAME, CHART_NAME), CHART_NAME), errors);
    }
    if !spec["verify"].is_null() && spec["sourceRef"]["kind"] != "HelmRepository" {
        let why = "spec.verify is only supported when spec.sourceRef.kind is 'HelmRepository'";
        errors.push(FieldError::invalid("spec", &Value::from("object"), why));
    }
    let verify = &spec["verify"];
    if verify["provider"] == "provenance" {
        if verify["secretRef"].is_null() {
            let why = "is required with spec.verify.provider provenance: a Secret with OpenPGP public keys";
            errors.push(FieldError::invalid("spec.verify.secretRef", &Value::Null, why));
        }
        for field in ["matchOIDCIdentity", "trustedRootSecretRef"] {
            if !verify[field].is_null() {
                let why = "is not for spec.verify.provider provenance: it has keys only";
                errors.push(FieldError::forbidden(format!("spec.verify.{field}"), why));
            }
        }
    }
    if spec["chart"].as_str().is_some_and(|chart| chart.is_empty() || chart.contains(char::is_control)) {
        errors.push(FieldError::invalid("spec.chart", &spec["chart"], "must be a name or a path"));
    }
}

/// Provider, Alert, Receiver.
pub(super) fn notification(spec: &Value, errors: &mut Vec<FieldError>) {
    at_least_a_second(spec, &["interval"], errors);
    let references = ["certSecretRef.name", "providerRef.name", "proxySecretRef.name", "secretRef.name"];
    names(spec, &references, is_dns_subdomain, SUBDOMAIN, errors);
}

#[cfg(test)]
mod tests;
