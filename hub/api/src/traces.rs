//! Traces that callers have begun (W3C's `traceparent`): continued for those who have proven who they are, and else not looked at.

use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use roadstead_model::TraceContext;

/// The header.
const TRACEPARENT: &str = "traceparent";

/// What a request is part of, as it says itself: where it says so once, and says something.
pub(crate) fn parent(headers: &HeaderMap) -> Option<TraceContext> {
    if !roadstead_trace::is_on() {
        return None;
    }
    read(headers)
}

fn read(headers: &HeaderMap) -> Option<TraceContext> {
    let mut given = headers.get_all(TRACEPARENT).into_iter();
    match (given.next(), given.next()) {
        (Some(only), None) => only.to_str().ok()?.parse().ok(),
        _ => None,
    }
}

/// The same of a request that writes something: reads lead to nothing.
pub(crate) fn of_write(request: &Request) -> Option<TraceContext> {
    let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
    if writes { parent(request.headers()) } else { None }
}

/// Answers a request as part of its trace, if it is of one.
pub(crate) async fn traced<T>(
    trace: Option<TraceContext>,
    method: &str,
    answer: impl Future<Output = T>,
) -> T {
    let Some(trace) = trace else { return answer.await };
    let answer = async {
        roadstead_trace::keep();
        roadstead_trace::describe("method", method);
        answer.await
    };
    roadstead_trace::pass("request", Some(trace), answer).await.0
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const CONTEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_told_once_and_in_its_form() {
        let of = |values: &[&'static [u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRACEPARENT, HeaderValue::from_bytes(value).unwrap());
            }
            read(&headers)
        };
        assert_eq!(of(&[CONTEXT.as_bytes()]), CONTEXT.parse().ok());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[CONTEXT.as_bytes(), CONTEXT.as_bytes()]), None);
        assert_eq!(of(&[b"00-not-a-trace"]), None);
        assert_eq!(of(&[b"\xff"]), None);
    }

    #[test]
    fn nothing_is_read_while_no_traces_are_made() {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(CONTEXT));
        assert_eq!(parent(&headers), None);
    }
}
