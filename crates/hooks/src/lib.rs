//! Calls of webhooks, as Flux's Receivers take them: at which path, what proves them, which event they tell, and what of their
//! bodies expressions see.
//!
//! All of it is computation over bytes that anybody may have sent. What proves a call is compared in constant time, and before
//! anything of its body is parsed. Nothing that is said of a call that was refused repeats any of it.
//!
//! ```
//! use http::HeaderMap;
//! use roadstead_api::ReceiverType;
//! use roadstead_hooks::{Call, Token, prove};
//!
//! let token = Token::new(b"a secret that GitLab was given".to_vec()).unwrap();
//! let mut headers = HeaderMap::new();
//! headers.insert("x-gitlab-token", "a guess".parse().unwrap());
//! let call = Call { headers: &headers, body: b"{}" };
//! assert!(prove(ReceiverType::Gitlab, &token, &call).is_err());
//! ```

mod event;
mod jwt;
mod path;
mod payload;
mod proof;
mod token;

use http::HeaderMap;

pub use event::{event, is_listened_to};
pub use jwt::bearer;
pub use path::{PREFIX, WebhookPath};
pub use payload::{BadPayload, Payload, is_always_read, is_cd_event, payload};
pub use proof::{NotProven, prove};
pub use token::Token;

/// A call as it came.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: &'a [u8],
}

impl<'a> Call<'a> {
    /// The value of a header that stands there once, where it is text.
    fn header(&self, name: &str) -> Option<&'a str> {
        let mut values = self.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    }

    /// The media type, in small letters and without its parameters.
    fn media_type(&self) -> String {
        let text = self.header("content-type").unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }
}
