//! Asking those who issued certificates whether they are revoked. Where they are is what a certificate says that a user trusts; they are
//! asked over the guarded way out, without any credentials, and nothing they answer is read here.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use roadstead_outbound::Client;
use tokio::time::timeout;
use url::Url;

use super::error::OciError;
use super::verify::{Inquiry, MOST_ANSWER, MOST_LIST};
use super::wire::{AGENT, Bound, Sink, Wire};
use crate::attempt::{Answer, AttemptError, chain};
use crate::tree::Measure;

/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl Wire<'_> {
    /// What one of them answers, or why it does not.
    ///
    /// # Errors
    /// What is wrong here, and not with them.
    pub(super) async fn authority(&mut self, inquiry: &Inquiry) -> Result<Result<Answer, String>, OciError> {
        let asked = timeout(PATIENCE, self.ask_authority(inquiry)).await;
        let seconds = PATIENCE.as_secs();
        match asked {
            Err(_) => Ok(Err(format!("no answer within {seconds} s"))),
            Ok(Err(Refused::Here(error))) => Err(error),
            Ok(Err(Refused::There(why))) => Ok(Err(why)),
            Ok(Ok(answer)) => Ok(Ok(answer)),
        }
    }

    async fn ask_authority(&mut self, inquiry: &Inquiry) -> Result<Answer, Refused> {
        let there = |why: &str| Refused::There(why.to_owned());
        let url = Url::parse(&inquiry.url).map_err(|_| there("it is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some()
        {
            return Err(there("it is not an http URL without credentials"));
        }
        // Neither the user's authorities nor their certificate are for it.
        let client = Client::new(self.request.guard.clone(), None)
            .map_err(|error| Refused::Here(self.internal(&chain(&error))))?;
        self.stop.hide_behind(client.veil());
        let sent = Request::builder().uri(url.as_str()).header(USER_AGENT, AGENT);
        let sent = match &inquiry.question {
            None => sent.method(Method::GET).body(Full::default()),
            Some(question) => sent
                .method(Method::POST)
                .header(CONTENT_TYPE, "application/ocsp-request")
                .body(Full::new(Bytes::from(question.clone()))),
        };
        let sent = sent.map_err(|error| Refused::Here(self.internal(&error)))?;
        let response = client.send(sent).await.map_err(|error| Refused::There(chain(&error)))?;
        if response.status() != StatusCode::OK {
            return Err(Refused::There(format!("it answered HTTP {}", response.status().as_u16())));
        }
        let limit = if inquiry.question.is_some() { MOST_ANSWER } else { MOST_LIST };
        let bound = Bound { measure: Measure::TransferBytes, limit };
        let mut sink = Sink::default();
        match self.receive(response, &mut sink, &bound, None).await {
            Ok(()) => self.answer(sink).await.map_err(Refused::Here),
            Err(OciError::TooLarge { .. }) => {
                Err(Refused::There(format!("it sends more than {limit} bytes")))
            }
            Err(OciError::Attempt(AttemptError::Unreachable { detail, .. })) => {
                Err(Refused::There(format!("it broke off: {detail}")))
            }
            Err(error) => Err(Refused::Here(error)),
        }
    }
}

/// Why there is no answer.
enum Refused {
    There(String),
    Here(OciError),
}
