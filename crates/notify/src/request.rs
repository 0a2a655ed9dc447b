//! What is sent.

use std::fmt;

use serde::Serialize;

use roadstead_model::Secret;

/// How a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `GET`
    Get,
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Get => "GET",
        }
    }
}

/// A request that tells an event. Neither its URL nor its headers print: many of those are credentials.
#[derive(Clone)]
pub struct Request {
    /// How it is made.
    pub method: Method,
    /// Where to.
    pub url: Secret,
    /// Headers.
    pub headers: Vec<(String, Secret)>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether what is secret of a Secret stands in its headers.
    pub shows_credentials: bool,
}

impl Request {
    /// A JSON body, posted.
    pub(crate) fn json(url: impl Into<String>, body: &impl Serialize) -> Self {
        // Texts, numbers and maps with texts as keys always have a JSON form.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let headers = vec![("Content-Type".to_owned(), "application/json".into())];
        Self { method: Method::Post, url: Secret::new(url.into()), headers, body, shows_credentials: false }
    }

    /// A question, which changes nothing.
    pub(crate) fn get(url: impl Into<String>) -> Self {
        let url = Secret::new(url.into());
        Self { method: Method::Get, url, headers: Vec::new(), body: Vec::new(), shows_credentials: false }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<Secret>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// A header that is a credential.
    pub(crate) fn credential(mut self, name: &str, value: impl Into<Secret>) -> Self {
        self.shows_credentials = true;
        self.header(name, value)
    }

    /// The `Authorization` of a target, if it has one.
    pub(crate) fn authorized(self, value: Option<Secret>) -> Self {
        match value {
            Some(value) => self.credential("Authorization", value),
            None => self,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.method.as_str(), self.body.len())
    }
}
