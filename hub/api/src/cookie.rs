//! The cookies of the dashboard, and which requests they count for: those of its own pages only.
//!
//! A browser sends a cookie with whatever request a page makes it send. So a session counts only where the browser says that a page of this
//! very hub asks, and where something may change by it only with a header that no other page can have sent.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};

/// Holds a session.
pub(crate) const SESSION: &str = "__Host-roadstead-session";
/// Holds a sign-in that is under way.
pub(crate) const SIGN_IN: &str = "__Host-roadstead-sign-in";
/// What the dashboard sends with each request: another page cannot without being asked first whether it may, and it may not.
const BY_DASHBOARD: &str = "x-roadstead-dashboard";
/// Pairs of cookies that are looked at.
const MOST: usize = 64;

/// The value of a cookie; none where it is absent, or there more than once: whose that is would not be clear.
pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).take(MOST);
    let mut values = pairs.filter_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    });
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// A cookie that is to be kept for so long: sent to this host alone, over TLS alone, and shown to no script. One that is `strict` is sent with
/// no request that another site leads to.
pub(crate) fn set(name: &str, value: &str, lasts: Duration, strict: bool) -> Option<HeaderValue> {
    let same_site = if strict { "Strict" } else { "Lax" };
    let text = format!(
        "{name}={value}; Path=/; Secure; HttpOnly; SameSite={same_site}; Max-Age={}",
        lasts.as_secs()
    );
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Takes a cookie away.
pub(crate) fn unset(name: &str) -> Option<HeaderValue> {
    set(name, "", Duration::ZERO, true)
}

/// The session's cookie, where it counts for this request.
pub(crate) fn session<'a>(method: &Method, uri: &Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let cookie = value(headers, SESSION)?;
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let counts = if reads { may_read(uri, headers) } else { may_write(uri, headers) };
    counts.then_some(cookie)
}

/// Whether a page of this hub asks, or a person by typing the address.
fn may_read(uri: &Uri, headers: &HeaderMap) -> bool {
    match said(headers, "sec-fetch-site") {
        Some(Some(site)) => site == "same-origin" || site == "none",
        Some(None) => false,
        // A browser from before that header says at least which page asks, where that is another one.
        None => !headers.contains_key(header::ORIGIN) || is_same_origin(uri, headers),
    }
}

/// Whether the dashboard asks for something that may change what there is.
pub(crate) fn may_write(uri: &Uri, headers: &HeaderMap) -> bool {
    let is_same = match said(headers, "sec-fetch-site") {
        Some(site) => site == Some("same-origin"),
        None => is_same_origin(uri, headers),
    };
    is_same && said(headers, BY_DASHBOARD) == Some(Some("1"))
}

/// What a header says that may be there once; inner none where it is not text, or there more than once.
fn said<'a>(headers: &'a HeaderMap, name: &str) -> Option<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    Some(first.to_str().ok().filter(|_| values.next().is_none()))
}

/// Whether the page that asks has the host that is asked.
fn is_same_origin(uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(Some(origin)) = said(headers, header::ORIGIN.as_str()) else { return false };
    // HTTP/2 has it in the address.
    let host = match uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => said(headers, header::HOST.as_str()).flatten(),
    };
    host.is_some_and(|host| origin.strip_prefix("https://").is_some_and(|of| of.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_cookie_is_found_among_others_and_not_where_there_are_two() {
        for (cookies, want) in [
            (&["__Host-roadstead-session=a"][..], Some("a")),
            (&["x=1; __Host-roadstead-session=a=b ; y"], Some("a=b")),
            (&["x=1", "__Host-roadstead-session=a"], Some("a")),
            (&["__Host-roadstead-session=a; __Host-roadstead-session=b"], None),
            (&["__Host-roadstead-session=a", "__Host-roadstead-session=a"], None),
            (&["roadstead-session=a; __host-roadstead-session=b"], None),
            (&["", ";;;=", "__Host-roadstead-session"], None),
        ] {
            let pairs: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
            assert_eq!(value(&headers(&pairs), SESSION), want, "{cookies:?}");
        }
        let many = "a=b; ".repeat(10_000) + "__Host-roadstead-session=a";
        assert_eq!(value(&headers(&[("cookie", &many)]), SESSION), None);
    }

    #[test]
    fn what_is_set_is_of_this_host_alone() {
        let text = set(SESSION, "a", Duration::from_secs(60), true).unwrap();
        let text = text.to_str().unwrap();
        assert_eq!(text, "__Host-roadstead-session=a; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=60");
        assert!(unset(SIGN_IN).unwrap().to_str().unwrap().ends_with("Max-Age=0"));
        assert!(set(SESSION, "a\r\nSet-Cookie: b=c", Duration::ZERO, true).is_none());
    }

    #[test]
    fn only_pages_of_this_hub_are_let_read() {
        let uri = Uri::from_static("/fleet/v1/clusters");
        for (pairs, want) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            (&[("origin", "https://hub.test"), ("host", "hub.test")], true),
            (&[("origin", "https://evil.test"), ("host", "hub.test")], false),
            (&[("origin", "null"), ("host", "hub.test")], false),
        ] {
            assert_eq!(may_read(&uri, &headers(pairs)), want, "{pairs:?}");
        }
    }

    #[test]
    fn only_the_dashboard_is_let_write() {
        let own = ("x-roadstead-dashboard", "1");
        let uri = Uri::from_static("/fleet/v1/tokens");
        for (pairs, want) in [
            (&[own, ("sec-fetch-site", "same-origin")][..], true),
            (&[own, ("origin", "https://hub.test:7443"), ("host", "Hub.test:7443")], true),
            (&[own], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[own, own, ("sec-fetch-site", "same-origin")], false),
            (&[("x-roadstead-dashboard", "0"), ("sec-fetch-site", "same-origin")], false),
            (&[own, ("sec-fetch-site", "none")], false),
            (&[own, ("sec-fetch-site", "same-site")], false),
            (
                &[
                    own,
                    ("sec-fetch-site", "cross-site"),
                    ("origin", "https://hub.test"),
                    ("host", "hub.test"),
                ],
                false,
            ),
            (&[own, ("origin", "http://hub.test"), ("host", "hub.test")], false),
            (&[own, ("origin", "https://hub.test:7444"), ("host", "hub.test:7443")], false),
            (&[own, ("origin", "https://hub.test.evil.test"), ("host", "hub.test")], false),
            (&[own, ("origin", "https://hub.test")], false),
        ] {
            assert_eq!(may_write(&uri, &headers(pairs)), want, "{pairs:?}");
        }
        let uri = Uri::from_static("https://hub.test/fleet/v1/tokens");
        assert!(may_write(&uri, &headers(&[own, ("origin", "https://hub.test"), ("host", "evil.test")])));
    }
}
