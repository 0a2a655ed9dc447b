//! What a token must claim besides being signed: from whom it is, for whom, and for when.

use serde_json::Value;

use crate::TokenError;

/// So many seconds another clock may be ahead: the five minutes that kube-apiserver allows.
const SKEW: f64 = 300.0;

/// What is expected of a token.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a, T> {
    /// From whom: any of these.
    pub issuers: &'a [&'a str],
    /// For whom: any of these.
    pub audiences: &'a [T],
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// Checks that claims are of this issuer, for this audience, and for now. A token is taken until the second that it names, with no
/// time added: kube-apiserver adds none either.
///
/// # Errors
/// [`TokenError`] where they are not.
pub fn check<T: AsRef<str>>(claims: &Value, expected: &Expected<'_, T>) -> Result<(), TokenError> {
    if !claims["iss"].as_str().is_some_and(|issuer| expected.issuers.contains(&issuer)) {
        return Err(TokenError::Issuer);
    }
    let wanted = |one: &Value| {
        one.as_str().is_some_and(|one| expected.audiences.iter().any(|wanted| wanted.as_ref() == one))
    };
    let is_for = match &claims["aud"] {
        Value::Array(many) => many.iter().all(Value::is_string) && many.iter().any(wanted),
        one => wanted(one),
    };
    if !is_for {
        return Err(TokenError::Audience);
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds of this era are exact")]
    let now = expected.now as f64;
    match claims["exp"].as_f64() {
        Some(end) if now < end => {}
        Some(_) => return Err(TokenError::Expired),
        None => return Err(TokenError::Endless),
    }
    match &claims["nbf"] {
        Value::Null => Ok(()),
        begin if begin.as_f64().is_some_and(|begin| begin <= now + SKEW) => Ok(()),
        _ => Err(TokenError::NotYet),
    }
}
