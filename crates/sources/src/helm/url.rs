//! URLs of Helm repositories and of their charts. Pure.

use url::Url;

/// Bytes of a URL.
const MOST: usize = 2_048;
/// What an index is called.
const INDEX: &str = "index.yaml";

/// The URL of a repository in the form in which two of them are compared: one `/` at its end, or none for an OCI registry.
///
/// # Errors
/// What is wrong with it.
pub fn normalised(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Ok(String::new());
    }
    let mut url = parse(text)?;
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&if url.scheme() == "oci" { path } else { format!("{path}/") });
    Ok(url.to_string())
}

fn parse(text: &str) -> Result<Url, String> {
    if text.len() > MOST {
        return Err(format!("it is longer than {MOST} bytes"));
    }
    Url::parse(text).map_err(|_| "it is not a URL".to_owned())
}

/// The URL of a repository over HTTP.
///
/// # Errors
/// What is wrong with it.
pub(super) fn repository(text: &str) -> Result<Url, String> {
    let url = parse(&normalised(text)?)?;
    match url.scheme() {
        "http" | "https" => {}
        "oci" => return Err("'oci' URL scheme cannot be used with 'default' HelmRepository type".to_owned()),
        _ => return Err("the scheme must be `http` or `https`".to_owned()),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds credentials; put them into the Secret that `spec.secretRef` names".to_owned());
    }
    Ok(url)
}

/// Where a repository's index is.
pub(super) fn index(repository: &Url) -> Url {
    let mut url = repository.clone();
    url.set_path(&format!("{}{INDEX}", repository.path()));
    url
}

/// Where it says who packed the chart at this URL: beside it.
pub(super) fn provenance(chart: &Url) -> Url {
    let mut url = chart.clone();
    url.set_path(&format!("{}.prov", chart.path()));
    url
}

/// What the chart at this URL is called as a file.
pub(super) fn file_name(chart: &Url) -> String {
    let last = chart.path().rsplit('/').next().unwrap_or_default();
    percent_encoding::percent_decode_str(last).decode_utf8_lossy().into_owned()
}

/// Where a chart is of which the index of a repository gives this URL.
///
/// # Errors
/// What is wrong with it.
pub(super) fn chart(repository: &Url, text: &str) -> Result<Url, String> {
    if text.len() > MOST {
        return Err(format!("its URL is longer than {MOST} bytes"));
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            let mut url = repository.join(text).map_err(|_| "its URL is not a URL".to_owned())?;
            // What lets someone into the repository lets them at its charts.
            url.set_query(repository.query());
            url
        }
        Err(_) => return Err("its URL is not a URL".to_owned()),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its URL holds credentials".to_owned());
    }
    match url.scheme() {
        "http" | "https" | "oci" => Ok(url),
        _ => Err("the scheme of its URL must be `http`, `https` or `oci`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::source_cases::{source_cases, tell};

    proptest! {
        #[test]
        fn any_text_is_a_url_or_refused(text in ".{0,60}", path in ".{0,60}") {
            if let Ok(own) = repository(&text) {
                prop_assert!(matches!(own.scheme(), "http" | "https") && own.path().ends_with('/'));
                if let Ok(url) = chart(&own, &path) {
                    prop_assert!(matches!(url.scheme(), "http" | "https" | "oci"));
                    prop_assert!(url.username().is_empty() && url.password().is_none());
                }
            }
        }
    }

    #[test]
    fn repositories_are_compared_as_flux_compares_them() {
        let Some(files) = source_cases("Helm repositories' URLs") else { return };
        let cases: Value = serde_json::from_slice(&files["helm/url.json"]).unwrap();
        let mut run = 0;
        for case in cases["normalise"].as_array().unwrap() {
            let found = normalised(case[0].as_str().unwrap());
            assert_eq!(found.ok().as_deref(), case[1].as_str(), "{case}");
            run += 1;
        }
        tell(format_args!("helm/url.json: {run} URLs"));
    }

    #[test]
    fn an_index_lies_beneath_its_repository_and_charts_beside_it() {
        let at = |text: &str| repository(text).unwrap();
        assert_eq!(index(&at("https://h/charts?token=1")).as_str(), "https://h/charts/index.yaml?token=1");
        let own = at("https://h/charts?token=1");
        for (text, found) in [
            ("app-1.0.0.tgz", "https://h/charts/app-1.0.0.tgz?token=1"),
            ("/app-1.0.0.tgz", "https://h/app-1.0.0.tgz?token=1"),
            ("../x/app.tgz", "https://h/x/app.tgz?token=1"),
            ("https://other/app.tgz?a=b", "https://other/app.tgz?a=b"),
            ("oci://other/app:1.0.0", "oci://other/app:1.0.0"),
        ] {
            assert_eq!(chart(&own, text).unwrap().as_str(), found);
        }
        for text in ["file:///etc/passwd", "ftp://h/x", "https://u:p@h/x", "https://[", &"x".repeat(5_000)] {
            assert!(chart(&own, text).is_err(), "{text}");
        }
        for text in ["oci://h/charts", "ftp://h/", "https://user:hunter2@h/", "", "h/charts"] {
            let why = repository(text).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
