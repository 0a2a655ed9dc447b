//! Signatures of requests.

use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use roadstead_outbound::secret_header;
use roadstead_signing::{AwsKeys, AwsRequest, Scope};
use url::Url;
use zeroize::Zeroizing;

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const AMZ_CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const AMZ_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Signs a request for S3; `body` is the SHA-256 of what it sends, as hexadecimal digits. None where the keys have characters that no
/// header may have.
#[must_use]
pub fn sign(
    keys: &AwsKeys,
    (method, url): (&Method, &Url),
    body: &str,
    headers: &mut HeaderMap,
    region: &str,
    now: Timestamp,
) -> Option<()> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    headers.insert(AMZ_DATE, HeaderValue::from_str(&time).ok()?);
    headers.insert(AMZ_CONTENT, HeaderValue::from_str(body).ok()?);
    if let Some(session) = &keys.session {
        // Exposed to be sent.
        headers.insert(AMZ_TOKEN, secret_header(session.expose()).ok()?);
    }
    let mut signed = vec![("host".to_owned(), Zeroizing::new(host(url)))];
    for name in [AMZ_DATE, AMZ_CONTENT, AMZ_TOKEN] {
        if let Some(value) = headers.get(&name) {
            signed.push((name.as_str().to_owned(), Zeroizing::new(value.to_str().ok()?.to_owned())));
        }
    }
    let query = url.query().unwrap_or_default();
    let request = AwsRequest { method: method.as_str(), path: url.path(), query, headers: signed, body };
    let value = keys.authorization(request, Scope { region, service: "s3" }, &time);
    headers.insert(AUTHORIZATION, secret_header(&value).ok()?);
    Some(())
}

/// As it stands in the `Host` header.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
