//! Secrets among manifests: values of theirs that anyone can read.

use roadstead_kustomize::yaml::{Dialect, read_documents};
use roadstead_sops::Format;
use serde_json::Value as Json;

use super::Report;

/// Looks for Secrets in a file that is not encrypted.
pub(super) fn plain(path: &str, bytes: &[u8], format: Format, report: &mut Report) {
    for secret in secrets(bytes, format) {
        if fields(&secret).next().is_some() {
            report
                .problem(path, &format!("Secret {:?} is in plain text: encrypt it with sops", name(&secret)));
        }
    }
}

/// Looks for Secrets in an encrypted file with values that its rules leave out.
pub(super) fn encrypted(path: &str, bytes: &[u8], format: Format, report: &mut Report) {
    for secret in secrets(bytes, format) {
        let open: Vec<String> = fields(&secret)
            .filter(|(_, value)| {
                !value.as_str().is_some_and(|text| text.is_empty() || text.starts_with("ENC["))
            })
            .map(|(field, _)| field)
            .collect();
        if !open.is_empty() {
            let message = format!(
                "Secret {:?} has values in plain text, which the rules of the file leave out: {}",
                name(&secret),
                super::list(open.into_iter())
            );
            report.problem(path, &message);
        }
    }
}

fn secrets(bytes: &[u8], format: Format) -> Vec<Json> {
    if !matches!(format, Format::Yaml | Format::Json) || !super::contains(bytes, b"Secret") {
        return Vec::new();
    }
    // A file that is not YAML, such as a Helm template, has no manifests.
    let documents = read_documents(bytes, Dialect::Object, &roadstead_kustomize::Limits::default());
    let objects = documents.unwrap_or_default().into_iter().map(|document| document.value.to_json());
    objects.filter(|object| object["kind"] == "Secret" && object["apiVersion"] == "v1").collect()
}

fn name(secret: &Json) -> String {
    secret["metadata"]["name"].as_str().unwrap_or_default().chars().take(100).collect()
}

/// What a Secret holds: the path of each value, and the value.
fn fields(secret: &Json) -> impl Iterator<Item = (String, &Json)> {
    ["data", "stringData"].into_iter().flat_map(move |part| {
        let values = secret.get(part).and_then(Json::as_object).into_iter().flatten();
        values
            .filter(|(_, value)| !value.is_null())
            .map(move |(field, value)| (format!("{part}.{field}"), value))
    })
}
