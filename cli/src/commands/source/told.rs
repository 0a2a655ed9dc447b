//! What is printed about a source that was fetched.

use std::collections::BTreeMap;

use anyhow::Result;
use roadstead_sources::Fetched;
use serde::Serialize;

use super::asked::Kind;
use crate::output::Format;

/// What was fetched; the names are those of an artifact in a source's status.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    kind: &'static str,
    url: String,
    revision: String,
    digest: String,
    size: u64,
    files: usize,
    unpacked_size: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    /// What may surprise.
    pub(super) warnings: Vec<String>,
}

impl Told {
    pub(super) fn of(kind: Kind, url: &str, fetched: &Fetched) -> Self {
        let artifact = &fetched.artifact;
        Self {
            kind: kind.of_hub(),
            url: url.to_owned(),
            revision: fetched.revision.to_string(),
            digest: artifact.digest.to_string(),
            size: artifact.size(),
            files: artifact.files,
            unpacked_size: artifact.unpacked_bytes,
            metadata: fetched.metadata.clone(),
            warnings: fetched.notes.iter().map(ToString::to_string).collect(),
        }
    }

    pub(super) fn text(&self, format: Option<Format>) -> Result<String> {
        format.map_or_else(|| Ok(self.plain()), |format| format.text(self))
    }

    fn plain(&self) -> String {
        let mut text = format!(
            "Kind:      {}\nURL:       {}\nRevision:  {}\nDigest:    {}\nSize:      {} bytes ({} unpacked)\nFiles:     {}\n",
            self.kind, self.url, self.revision, self.digest, self.size, self.unpacked_size, self.files
        );
        for (index, (key, value)) in self.metadata.iter().enumerate() {
            let heading = if index == 0 { "Metadata:" } else { "" };
            // It is untrusted: a terminal does what control characters say.
            let value: String = value.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
            let key: String = key.chars().filter(|one| !one.is_control()).collect();
            text.push_str(&format!("{heading:<11}{key}={value}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        Told {
            kind: "OCIRepository",
            url: "oci://registry.example/app".to_owned(),
            revision: "v1@sha256:ab".to_owned(),
            digest: "sha256:cd".to_owned(),
            size: 10,
            files: 2,
            unpacked_size: 20,
            metadata: [("org.example/a".to_owned(), "x\u{1b}[31m".to_owned())].into(),
            warnings: vec!["a: b".to_owned()],
        }
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        let text = told().text(None).unwrap();
        assert!(
            text.contains("Revision:  v1@sha256:ab\n") && text.contains("10 bytes (20 unpacked)"),
            "{text}"
        );
        assert!(text.ends_with("Metadata:  org.example/a=x [31m\n"), "{text:?}");
    }

    #[test]
    fn programs_get_all_of_it() {
        let json: serde_json::Value =
            serde_json::from_str(&told().text(Some(Format::Json)).unwrap()).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&told().text(Some(Format::Yaml)).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json["warnings"][0], "a: b");
        assert_eq!(json["unpackedSize"], 20);
    }
}
