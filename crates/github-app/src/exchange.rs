//! The requests by which a GitHub App is given a token, each bounded in time and bytes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, DATE, HeaderMap, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use roadstead_outbound::{Client, Secret, SendError, secret_header};
use url::Url;
use zeroize::Zeroizing;

use crate::answer::{self, Bad, Given};
use crate::app::{App, Installation};
use crate::error::AppError;

/// Bytes of an answer.
const ANSWER: usize = 64 << 10;
/// How long one request takes at most, with its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Services answer nobody who does not say who asks.
const AGENT: &str = "roadstead";
/// Seconds that clocks may be apart without being worth a word.
const APART: i64 = 30;
/// Headers that say until when no requests are taken.
const LIMITS: [&str; 5] =
    ["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-remaining", "ratelimit-reset"];

/// Asks for a token of the App's installation.
pub(crate) async fn token(app: &App, client: &Client) -> Result<Given, AppError> {
    let asking = Asking::new(app, client)?;
    let id = match app.installation() {
        Installation::Id(id) => *id,
        Installation::Owner(owner) => asking.installation_of(owner).await?,
    };
    let body = asking.ask(Method::POST, &["app", "installations", &id.to_string(), "access_tokens"]).await?;
    let body = body.ok_or_else(|| asking.not_installed(format!("installation {id}")))?;
    answer::read_token(&body, Timestamp::now()).map_err(|why| asking.bad(why))
}

/// Asks what the App is called in names of users.
pub(crate) async fn slug(app: &App, client: &Client) -> Result<String, AppError> {
    let asking = Asking::new(app, client)?;
    let body = asking.ask(Method::GET, &["app"]).await?;
    answer::slug(&body.unwrap_or_default()).map_err(|why| asking.bad(why))
}

struct Asking<'a> {
    app: &'a App,
    client: &'a Client,
    assertion: Secret,
}

impl<'a> Asking<'a> {
    fn new(app: &'a App, client: &'a Client) -> Result<Self, AppError> {
        Ok(Self { app, client, assertion: app.assertion(Timestamp::now())? })
    }

    fn api(&self) -> String {
        self.app.api().as_str().trim_end_matches('/').to_owned()
    }

    fn bad(&self, why: Bad) -> AppError {
        AppError::Answer { api: self.api(), why }
    }

    fn not_installed(&self, installation: String) -> AppError {
        AppError::NotInstalled { api: self.api(), app: self.app.id().to_owned(), installation }
    }

    /// The number of the installation that an organisation, or else a user, has.
    async fn installation_of(&self, owner: &str) -> Result<u64, AppError> {
        for kind in ["orgs", "users"] {
            if let Some(body) = self.ask(Method::GET, &[kind, owner, "installation"]).await? {
                return answer::installation(&body).map_err(|why| self.bad(why));
            }
        }
        Err(self.not_installed(format!("installation of the organisation or user `{owner}`")))
    }

    /// Asks, and gives the answer; none where there is no such thing.
    async fn ask(&self, method: Method, path: &[&str]) -> Result<Option<Zeroizing<Vec<u8>>>, AppError> {
        match tokio::time::timeout(PATIENCE, self.exchange(method, path)).await {
            Ok(answered) => answered,
            // That something takes its time there is not for everyone to know.
            Err(_) if self.client.veil().is_drawn() => Err(self.unreachable("not answered in time", true)),
            Err(_) => Err(AppError::TimedOut { api: self.api() }),
        }
    }

    fn unreachable(&self, why: &'static str, veiled: bool) -> AppError {
        let source = SendError { refusal: None, veiled, source: why.into() };
        AppError::Unreachable { api: self.api(), source }
    }

    async fn exchange(&self, method: Method, path: &[&str]) -> Result<Option<Zeroizing<Vec<u8>>>, AppError> {
        let unsendable = || self.unreachable("the request cannot be put into HTTP", false);
        // Exposed to become a header, which is marked as sensitive.
        let bearer = Zeroizing::new(format!("Bearer {}", self.assertion.expose()));
        let request = Request::builder()
            .method(method)
            .uri(below(self.app.api(), path).as_str())
            .header(AUTHORIZATION, secret_header(&bearer).map_err(|_| unsendable())?)
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28")
            .header(USER_AGENT, AGENT)
            .body(Full::new(Bytes::new()))
            .map_err(|_| unsendable())?;
        let sent = self.client.send(request).await;
        let response = sent.map_err(|source| AppError::Unreachable { api: self.api(), source })?;
        let (head, body) = response.into_parts();
        match head.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => self.read(body).await.map(Some),
            status => Err(self.refused(status, &head.headers, body).await),
        }
    }

    async fn refused(&self, status: StatusCode, headers: &HeaderMap, body: Incoming) -> AppError {
        let (api, code, app) = (self.api(), status.as_u16(), self.app.id().to_owned());
        if let Some(headers) = limits(status, headers) {
            return AppError::Limited { api, status: code, headers: Box::new(headers) };
        }
        match status {
            StatusCode::UNAUTHORIZED => {
                AppError::Unauthorized { api, app, clock: apart(headers, Timestamp::now()) }
            }
            StatusCode::FORBIDDEN if self.read(body).await.is_ok_and(|body| answer::is_suspension(&body)) => {
                AppError::Suspended { api, status: code, app }
            }
            _ => AppError::Refused { api, status: code },
        }
    }

    async fn read(&self, mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, AppError> {
        // Of its full size at once: a copy that growing leaves behind would not be wiped.
        let mut bytes = Zeroizing::new(Vec::with_capacity(ANSWER));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| self.unreachable("the answer broke off", false))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > ANSWER {
                return Err(AppError::TooLarge { api: self.api(), most: ANSWER });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }
}

/// The URL of something below the API's, each segment of it escaped.
fn below(api: &Url, path: &[&str]) -> Url {
    let mut url = api.clone();
    // URLs of a host always have segments.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

/// The headers that say until when no requests are taken, where that is what an answer is about.
fn limits(status: StatusCode, headers: &HeaderMap) -> Option<HeaderMap> {
    let is_used_up = headers.get(LIMITS[1]).is_some_and(|value| value.as_bytes() == b"0");
    let is_limit = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => headers.contains_key(RETRY_AFTER),
        StatusCode::FORBIDDEN => is_used_up || headers.contains_key(RETRY_AFTER),
        _ => false,
    };
    let kept = LIMITS.into_iter().filter_map(|name| {
        let value = headers.get(name)?.clone();
        Some((http::HeaderName::from_static(name), value))
    });
    is_limit.then(|| kept.collect())
}

/// How far the server's clock is from this machine's, where that is worth a word.
fn apart(headers: &HeaderMap, now: Timestamp) -> Option<String> {
    let said = headers.get(DATE)?.to_str().ok()?;
    let there = DateTimeParser::new().parse_timestamp(said).ok()?;
    let seconds = now.as_second() - there.as_second();
    let which = if seconds > 0 { "ahead of" } else { "behind" };
    (seconds.abs() > APART).then(|| format!("the hub's is {} s {which} the API's", seconds.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_stay_segments() {
        let api = Url::parse("https://ghe.test/api/v3/").unwrap();
        assert_eq!(
            below(&api, &["orgs", "a/b", "installation"]).as_str(),
            "https://ghe.test/api/v3/orgs/a%2Fb/installation"
        );
    }

    #[test]
    fn clocks_that_are_apart() {
        let now = "2026-11-29T09:00:00Z".parse().unwrap();
        let of = |date: &'static str| {
            apart(&HeaderMap::from_iter([(DATE, http::HeaderValue::from_static(date))]), now)
        };
        assert_eq!(of("Sun, 29 Nov 2026 09:00:10 GMT"), None);
        assert_eq!(of("Sun, 29 Nov 2026 08:50:00 GMT").unwrap(), "the hub's is 600 s ahead of the API's");
        assert_eq!(of("Sun, 29 Nov 2026 09:10:00 GMT").unwrap(), "the hub's is 600 s behind the API's");
        assert_eq!(of("never"), None);
    }
}
