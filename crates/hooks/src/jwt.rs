//! Tokens that issuers of `OpenID` Connect sign, as a call shows one in its Authorization header.

use roadstead_oidc::Token;

use crate::{Call, NotProven};

/// The token of a call. Nothing of it is believed yet.
///
/// # Errors
/// [`NotProven`] where there is none.
pub fn bearer<'a>(call: &Call<'a>) -> Result<Token<'a>, NotProven> {
    let header = call.header("authorization").ok_or(NotProven::Absent("Authorization"))?;
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Token::parse(token.trim())?),
        _ => Err(NotProven::Form("Authorization")),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn a_call_shows_a_token_or_none() {
        let (headers, mut basic, mut other) = (HeaderMap::new(), HeaderMap::new(), HeaderMap::new());
        basic.insert("authorization", "Basic eDp5".parse().unwrap());
        other.insert("authorization", "Bearer secret".parse().unwrap());
        let refused = |headers| bearer(&Call { headers, body: b"" }).unwrap_err();
        assert_eq!(refused(&headers), NotProven::Absent("Authorization"));
        assert_eq!(refused(&basic), NotProven::Form("Authorization"));
        assert!(matches!(refused(&other), NotProven::Token(_)));
    }
}
