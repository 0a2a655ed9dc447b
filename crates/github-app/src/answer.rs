//! What the GitHub API answers, read from bytes of a bounded number.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_outbound::Secret;
use serde::Deserialize;

/// Bytes of a token: GitHub's have some hundred at most.
const MOST_TOKEN: usize = 4_096;
/// No token is said to last longer; GitHub's last an hour.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Why an answer is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// It has not the form that is documented.
    #[error("it is not what the GitHub API is documented to answer")]
    Form,
    /// The token has characters that no header has, or too many.
    #[error("the token in it is none that could be used")]
    Token,
    /// It is no longer good, by this machine's clock.
    #[error("the token in it has expired already: the clocks differ")]
    Expired,
}

/// A token, and for how long it is good.
#[derive(Debug, Clone)]
pub struct Given {
    /// The token.
    pub token: Secret,
    /// How long it is good from now on.
    pub lasts: Duration,
}

/// Reads the answer to a request for a token.
///
/// # Errors
/// [`Bad`].
pub fn read_token(body: &[u8], now: Timestamp) -> Result<Given, Bad> {
    #[derive(Deserialize)]
    struct Answer {
        token: Secret,
        expires_at: String,
    }
    let Answer { token, expires_at } = serde_json::from_slice(body).map_err(|_| Bad::Form)?;
    // Exposed to be measured.
    let text = token.expose();
    if text.is_empty() || text.len() > MOST_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Bad::Token);
    }
    let until: Timestamp = expires_at.parse().map_err(|_| Bad::Form)?;
    let lasts = Duration::try_from(until.duration_since(now)).map_err(|_| Bad::Expired)?;
    if lasts.is_zero() { Err(Bad::Expired) } else { Ok(Given { token, lasts: lasts.min(LONGEST) }) }
}

/// The number of an installation.
pub(crate) fn installation(body: &[u8]) -> Result<u64, Bad> {
    #[derive(Deserialize)]
    struct Answer {
        id: u64,
    }
    serde_json::from_slice::<Answer>(body).map(|answer| answer.id).map_err(|_| Bad::Form)
}

/// What an App is called in names of users.
pub(crate) fn slug(body: &[u8]) -> Result<String, Bad> {
    #[derive(Deserialize)]
    struct Answer {
        slug: String,
    }
    let Answer { slug } = serde_json::from_slice(body).map_err(|_| Bad::Form)?;
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if slug.is_empty() || slug.len() > 100 || !slug.bytes().all(fine) { Err(Bad::Form) } else { Ok(slug) }
}

/// Whether an answer that refuses says that the installation is suspended.
pub(crate) fn is_suspension(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        message: String,
    }
    let said = serde_json::from_slice::<Answer>(body).map(|answer| answer.message).unwrap_or_default();
    said.to_ascii_lowercase().contains("suspended")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-29T09:00:00Z".parse().unwrap()
    }

    fn read(json: &str) -> Result<(String, u64), Bad> {
        let given = read_token(json.as_bytes(), now())?;
        Ok((given.token.expose().to_owned(), given.lasts.as_secs()))
    }

    #[test]
    fn answers() {
        let token = |token: &str, until: &str| {
            format!(r#"{{"token":"{token}","expires_at":"{until}","permissions":{{}}}}"#)
        };
        assert_eq!(read(&token("ghs_1", "2026-11-29T09:30:00Z")), Ok(("ghs_1".to_owned(), 1_800)));
        assert_eq!(read(&token("ghs_1", "2126-11-29T09:30:00Z")), Ok(("ghs_1".to_owned(), 3_600)));
        assert_eq!(read(&token("ghs_1", "2026-11-29T09:00:00Z")), Err(Bad::Expired));
        assert_eq!(read(&token("ghs_1", "2026-11-29T08:00:00Z")), Err(Bad::Expired));
        assert_eq!(read(&token("ghs_1", "soon")), Err(Bad::Form));
        for wrong in ["", "a b", "a\\nb", "\u{e4}", &"x".repeat(5_000)] {
            assert_eq!(read(&token(wrong, "2026-11-29T09:30:00Z")), Err(Bad::Token), "{wrong}");
        }
        for wrong in ["", "[]", "{}", r#"{"token":1}"#] {
            assert_eq!(read(wrong), Err(Bad::Form), "{wrong}");
        }
        assert!(is_suspension(br#"{"message":"This installation has been suspended"}"#));
        assert!(!is_suspension(br#"{"message":"Not Found"}"#));
        assert_eq!(slug(br#"{"slug":"our-app"}"#).as_deref(), Ok("our-app"));
        assert_eq!(slug(br#"{"slug":"a/../b"}"#), Err(Bad::Form));
    }

    proptest! {
        #[test]
        fn whatever_is_answered_nothing_breaks(body in any::<Vec<u8>>(), until in "\\PC{0,30}") {
            let _ = read_token(&body, now());
            let json = serde_json::json!({ "token": "t", "expires_at": until }).to_string();
            if let Ok(given) = read_token(json.as_bytes(), now()) {
                prop_assert!(!given.lasts.is_zero() && given.lasts <= LONGEST);
            }
        }
    }
}
