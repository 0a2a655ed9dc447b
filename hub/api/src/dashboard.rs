//! The dashboard's files, which are part of the program: pages under `/ui/`, which no path of the API begins with.
//!
//! The pages are public and hold no data; what they show they ask of the API, with the user's own token. What they may do is
//! said by the policy that is sent with each of them: scripts and styles from this hub only, nothing inline, requests to this
//! hub only.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};

/// A file of the built dashboard.
struct File {
    /// Beneath `/ui/`.
    path: &'static str,
    /// Its ETag.
    tag: &'static str,
    plain: &'static [u8],
    brotli: Option<&'static [u8]>,
    gzip: Option<&'static [u8]>,
}

/// By path; empty where the dashboard was not built.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Where the pages are.
pub(crate) const HOME: &str = "/ui/";
const INDEX: &str = "index.html";
/// Files beneath have the digest of their content in their names.
const HASHED: &str = "assets/";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
/// The placeholder has no scripts, and its styles inline.
pub(crate) const PLACEHOLDER_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Whoever asks for nothing is shown the first page.
pub(crate) async fn home() -> Redirect {
    Redirect::temporary(HOME)
}

/// The first page.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    page(INDEX, &headers)
}

/// A file, or a page.
pub(crate) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    page(&path, &headers)
}

/// The file of this path, or the page that shows itself according to its address.
fn page(path: &str, headers: &HeaderMap) -> Response {
    let known = |path: &str| FILES.iter().find(|file| file.path == path);
    match known(path) {
        Some(file) => answer(file, headers),
        // Of an older or newer build: a page in its place would be run as a script.
        None if path.starts_with(HASHED) => {
            guarded(StatusCode::NOT_FOUND.into_response(), PLACEHOLDER_POLICY)
        }
        None => match known(INDEX) {
            Some(index) => answer(index, headers),
            None => placeholder(),
        },
    }
}

fn placeholder() -> Response {
    let text = include_str!("../../../web/placeholder.html");
    guarded(axum::response::Html(text).into_response(), PLACEHOLDER_POLICY)
}

fn answer(file: &'static File, headers: &HeaderMap) -> Response {
    let hashed = file.path.starts_with(HASHED);
    let cache = if hashed { "public, max-age=31536000, immutable" } else { "no-cache" };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if known.is_some_and(|tags| tags.split(',').any(|tag| matches(tag, file.tag))) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let (body, coding) = body(file, headers);
        let mut response = body.into_response();
        let type_ = HeaderValue::from_static(media_type(file.path));
        response.headers_mut().insert(header::CONTENT_TYPE, type_);
        if let Some(coding) = coding {
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        response
    };
    let said = response.headers_mut();
    said.insert(header::ETAG, HeaderValue::from_static(file.tag));
    said.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    said.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    guarded(response, POLICY)
}

/// What a client has, by weak comparison.
fn matches(tag: &str, ours: &str) -> bool {
    let tag = tag.trim();
    tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == ours
}

/// In the smallest form that the client takes.
fn body(file: &'static File, headers: &HeaderMap) -> (&'static [u8], Option<&'static str>) {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let takes =
        |coding: &str| accepted.is_some_and(|accepted| accepted.split(',').any(|one| takes(one, coding)));
    match (file.brotli, file.gzip) {
        (Some(brotli), _) if takes("br") => (brotli, Some("br")),
        (_, Some(gzip)) if takes("gzip") => (gzip, Some("gzip")),
        _ => (file.plain, None),
    }
}

/// Whether one member of `Accept-Encoding` allows `coding`.
fn takes(member: &str, coding: &str) -> bool {
    let (name, parameters) = member.split_once(';').unwrap_or((member, ""));
    let quality = parameters.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
    name.trim().eq_ignore_ascii_case(coding) && quality.is_ok_and(|quality| quality > 0.0)
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// With what a browser is to hold the answer to.
pub(crate) fn guarded(mut response: Response, policy: &'static str) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCRIPT: File = File {
        path: "assets/index-1.js",
        tag: "\"1\"",
        plain: b"plain",
        brotli: Some(b"br"),
        gzip: Some(b"gz"),
    };

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn the_smallest_form_that_the_client_takes() {
        for (accepted, want) in [
            ("gzip, deflate, br, zstd", Some("br")),
            ("gzip", Some("gzip")),
            ("br;q=0, GZIP;q=0.5", Some("gzip")),
            ("br;q=x", None),
            ("identity", None),
            ("", None),
        ] {
            assert_eq!(body(&SCRIPT, &with(header::ACCEPT_ENCODING, accepted)).1, want, "{accepted}");
        }
    }

    #[test]
    fn what_the_client_has_is_not_sent_again() {
        for (tags, want) in [
            ("\"1\"", StatusCode::NOT_MODIFIED),
            ("\"0\", W/\"1\"", StatusCode::NOT_MODIFIED),
            ("\"0\"", StatusCode::OK),
        ] {
            let response = answer(&SCRIPT, &with(header::IF_NONE_MATCH, tags));
            assert_eq!(response.status(), want, "{tags}");
            assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
            assert!(response.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
        }
    }

    #[test]
    fn an_unknown_script_is_no_page() {
        assert_eq!(page("assets/index-0.js", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
        assert_eq!(page("kustomizations/apps/web", &HeaderMap::new()).status(), StatusCode::OK);
    }
}
