//! `/livez`, `/readyz` and `/healthz`, as kube-apiserver has them: `?verbose` lists all parts, `?exclude=PART` leaves one aside, and
//! `/readyz/PART` is about one. Anybody may ask.

use std::fmt::Write as _;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use roadstead_hub_core::readiness::{Probe, Standing};

use crate::Api;

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    is_verbose: bool,
    exclude: Vec<String>,
}

impl Asked {
    /// What cannot be read asks for nothing.
    fn of(uri: &Uri) -> Self {
        let mut asked = Self::default();
        let pairs =
            Query::<Vec<(String, String)>>::try_from_uri(uri).map(|pairs| pairs.0).unwrap_or_default();
        for (name, value) in pairs {
            match &*name {
                "verbose" => asked.is_verbose = !matches!(&*value, "false" | "0"),
                "exclude" => asked.exclude.push(value),
                _ => {}
            }
        }
        asked
    }
}

pub(crate) async fn live(State(api): State<Api>, uri: Uri) -> Response {
    of_all(&api, "livez", Probe::Live, &uri).await
}

pub(crate) async fn health(State(api): State<Api>, uri: Uri) -> Response {
    of_all(&api, "healthz", Probe::Live, &uri).await
}

pub(crate) async fn ready(State(api): State<Api>, uri: Uri) -> Response {
    of_all(&api, "readyz", Probe::Ready, &uri).await
}

pub(crate) async fn live_part(State(api): State<Api>, Path(part): Path<String>) -> Response {
    of_one(&api, Probe::Live, &part).await
}

pub(crate) async fn ready_part(State(api): State<Api>, Path(part): Path<String>) -> Response {
    of_one(&api, Probe::Ready, &part).await
}

async fn parts(api: &Api, probe: Probe) -> Vec<(&'static str, Standing)> {
    let mut parts = api.hub.readiness.check(probe).await;
    if probe == Probe::Ready {
        let stops = api.stop.is_cancelled().then(|| "this replica is shutting down".to_owned());
        parts.push(("shutdown", stops));
    }
    parts
}

/// Parts that do not count for the whole.
fn told_only(api: &Api, probe: Probe) -> Vec<(&'static str, Standing)> {
    if probe == Probe::Ready { api.hub.readiness.told_only() } else { Vec::new() }
}

async fn of_all(api: &Api, name: &str, probe: Probe, uri: &Uri) -> Response {
    let asked = Asked::of(uri);
    let (passed, text) = told(name, &parts(api, probe).await, &told_only(api, probe), &asked);
    answer(passed, text)
}

async fn of_one(api: &Api, probe: Probe, name: &str) -> Response {
    let mut all = parts(api, probe).await.into_iter().chain(told_only(api, probe));
    match all.find(|(part, _)| *part == name) {
        None => {
            (StatusCode::NOT_FOUND, "part not found; ?verbose lists those that there are\n").into_response()
        }
        Some((_, None)) => answer(true, "ok".to_owned()),
        Some((part, Some(why))) => answer(false, format!("[-]{part} failed: {why}\n")),
    }
}

/// Whether all is well, and what is said.
fn told(
    name: &str,
    parts: &[(&'static str, Standing)],
    told_only: &[(&'static str, Standing)],
    asked: &Asked,
) -> (bool, String) {
    let is_excluded = |part: &str| asked.exclude.iter().any(|exclude| exclude == part);
    let passed = parts.iter().all(|(part, standing)| standing.is_none() || is_excluded(part));
    if passed && !asked.is_verbose {
        return (true, "ok".to_owned());
    }
    let mut text = String::new();
    for (part, standing) in parts {
        // Writing to a text cannot fail.
        let _ = match standing {
            _ if is_excluded(part) && asked.is_verbose => writeln!(text, "[+]{part} excluded: ok"),
            Some(why) if !is_excluded(part) => writeln!(text, "[-]{part} failed: {why}"),
            None if asked.is_verbose => writeln!(text, "[+]{part} ok"),
            _ => Ok(()),
        };
    }
    for (part, standing) in told_only.iter().filter(|_| asked.is_verbose) {
        let _ = match standing {
            _ if is_excluded(part) => writeln!(text, "[+]{part} excluded: ok"),
            Some(why) => writeln!(text, "[!]{part} does not count, and fails: {why}"),
            None => writeln!(text, "[+]{part} ok"),
        };
    }
    let is_known = |exclude: &&String| parts.iter().chain(told_only).any(|(part, _)| part == *exclude);
    if asked.is_verbose && !asked.exclude.iter().all(|exclude| is_known(&exclude)) {
        text.push_str("warn: some of what is to be excluded is not a part\n");
    }
    let _ = writeln!(text, "{name} check {}", if passed { "passed" } else { "failed" });
    (passed, text)
}

fn answer(passed: bool, text: String) -> Response {
    if passed {
        return text.into_response();
    }
    let retry = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
    (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(query: &str, parts: &[(&'static str, Standing)]) -> (bool, String) {
        let uri = format!("/readyz?{query}").parse().unwrap();
        told("readyz", parts, &[], &Asked::of(&uri))
    }

    #[test]
    fn what_is_wrong_is_told_as_kube_apiserver_tells_it() {
        let well = [("ping", None), ("database", None)];
        assert_eq!(text("", &well), (true, "ok".to_owned()));
        let verbose = "[+]ping ok\n[+]database ok\nreadyz check passed\n";
        assert_eq!(text("verbose", &well), (true, verbose.to_owned()));
        let wrong = [("ping", None), ("database", Some("it does not answer".to_owned()))];
        let failed = "[-]database failed: it does not answer\nreadyz check failed\n";
        assert_eq!(text("verbose=false", &wrong), (false, failed.to_owned()));
        assert_eq!(text("verbose=true", &wrong), (false, format!("[+]ping ok\n{failed}")));
        assert_eq!(text("exclude=database", &wrong), (true, "ok".to_owned()));
        assert_eq!(text("exclude=ping&exclude=no", &wrong), (false, failed.to_owned()));
        let excluded = "[+]ping ok\n[+]database excluded: ok\nreadyz check passed\n";
        assert_eq!(text("verbose&exclude=database", &wrong), (true, excluded.to_owned()));
        // What whoever asks has made up is not repeated.
        let (_, unknown) = text("verbose&exclude=%3Cb%3E", &well);
        assert_eq!(
            unknown,
            "[+]ping ok\n[+]database ok\nwarn: some of what is to be excluded is not a part\nreadyz check passed\n"
        );
    }
    #[test]
    fn a_part_that_does_not_count_is_told_of_where_all_are() {
        let well = [("ping", None)];
        let told = |query: &str, standing: Standing| {
            let uri = format!("/readyz?{query}").parse().unwrap();
            told("readyz", &well, &[("artifact-store", standing)], &Asked::of(&uri))
        };
        let away = || Some("it is away".to_owned());
        assert_eq!(told("", away()), (true, "ok".to_owned()));
        let verbose =
            "[+]ping ok\n[!]artifact-store does not count, and fails: it is away\nreadyz check passed\n";
        assert_eq!(told("verbose", away()), (true, verbose.to_owned()));
        let excluded = "[+]ping ok\n[+]artifact-store excluded: ok\nreadyz check passed\n";
        assert_eq!(told("verbose&exclude=artifact-store", away()), (true, excluded.to_owned()));
        let ok = "[+]ping ok\n[+]artifact-store ok\nreadyz check passed\n";
        assert_eq!(told("verbose", None), (true, ok.to_owned()));
    }
}
