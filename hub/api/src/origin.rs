//! Where a request comes from, as the audit log has it: the client's address and an id that the answer names, too.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use roadstead_model::AuditOrigin;
use uuid::Uuid;

use crate::serve::Peer;

/// The header that bears a request's id, as kube-apiserver has it.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Bytes of an id that a client chose.
const MAX_ID: usize = 64;

/// Gives a request its origin, and its answer the id.
pub(crate) async fn identified(mut request: Request, next: Next) -> Response {
    let id = chosen(request.headers()).unwrap_or_else(|| Uuid::new_v4().to_string());
    let address = request.extensions().get::<Peer>().map(|peer| peer.0.to_canonical().to_string());
    // What was chosen is ASCII, and so is a UUID.
    let header = HeaderValue::from_str(&id);
    let origin = AuditOrigin { address: address.unwrap_or_default(), request: id, administrator: false };
    request.extensions_mut().insert(origin);
    let mut response = next.run(request).await;
    if let Ok(header) = header {
        response.headers_mut().insert(AUDIT_ID, header);
    }
    response
}

/// The id that the client wants, as in kube-apiserver; none where it is none that is safe to show everywhere.
fn chosen(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(AUDIT_ID)?.to_str().ok()?;
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    ((1..=MAX_ID).contains(&id.len()) && id.bytes().all(plain)).then(|| id.to_owned())
}

/// Where a request comes from.
pub(crate) fn of(request: &axum::http::Extensions) -> AuditOrigin {
    request.get::<AuditOrigin>().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_clients_choose() {
        let of = |id: &str| {
            let headers = [(AUDIT_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap())];
            chosen(&headers.into_iter().collect())
        };
        assert_eq!(of("a-1.B_2").as_deref(), Some("a-1.B_2"));
        for bad in ["", "a b", "<b>", "\u{e4}", "a\"", &"x".repeat(MAX_ID + 1)] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
