//! Long answers go compressed to clients that take it, as kube-apiserver's do: lists, documents, the fleet views.
//!
//! A stream is never compressed: what has happened must not wait until there is enough of it.

use axum::http::{Response, header};
use hyper::body::Body;
use tower_http::CompressionLevel;
use tower_http::compression::{CompressionLayer, Predicate};

/// Bytes from which an answer is long. What is shorter costs more time than it saves.
const LONG: u64 = 16 * 1024;

/// Whether an answer is compressed: where it is known to be long, and there is memory for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Long;

/// Says of an answer that there is memory for compressing it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Compressed;

/// Says of an answer that its bytes are packed already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed;

/// Whether an answer is known to be long, and would be less if it were compressed.
pub(crate) fn is_long<B: Body>(response: &Response<B>) -> bool {
    if response.extensions().get::<Packed>().is_some() {
        return false;
    }
    let told = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(told).is_some_and(|length| length >= LONG)
}

impl Predicate for Long {
    fn should_compress<B: Body>(&self, response: &Response<B>) -> bool {
        response.extensions().get::<Compressed>().is_some() && is_long(response)
    }
}

pub(crate) fn layer() -> CompressionLayer<Long> {
    // The least effort makes these texts a tenth of what they are; more effort takes longer than most networks.
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(Long)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn what_is_long() {
        let stream = || Body::from_stream(tokio_stream::iter([Ok::<_, std::convert::Infallible>("x")]));
        let told = |length: u64| {
            let mut response = Response::new(stream());
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            response
        };
        assert!(!is_long(&Response::new(Body::from("short"))));
        assert!(is_long(&Response::new(Body::from("x".repeat(20_000)))));
        assert!(!is_long(&told(LONG - 1)));
        assert!(is_long(&told(LONG)));
        assert!(!is_long(&Response::new(stream())), "who knows how long it goes on");
        let mut long = told(LONG);
        assert!(!Long.should_compress(&long), "without memory for it");
        long.extensions_mut().insert(Compressed);
        assert!(Long.should_compress(&long));
    }
}
