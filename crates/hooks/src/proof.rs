//! What shows that a caller knows a Receiver's token.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use roadstead_api::ReceiverType;
use roadstead_oidc::TokenError;

use crate::{Call, Token};

/// The longest signature that is looked at: SHA-512 with its name before it.
const MAX_SIGNATURE: usize = 7 + 2 * 64;

/// Why a call is not taken. It says nothing of what the call had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotProven {
    /// A header that proves it is absent, or stands there several times.
    #[error("the call has no {0} header, or several")]
    Absent(&'static str),
    /// A header is not of the form that callers of this type send.
    #[error("the {0} header is not of the form that callers of this type send")]
    Form(&'static str),
    /// It is signed by another token, or over another body; or it shows another token.
    #[error("the {0} header does not fit the token and the body")]
    Wrong(&'static str),
    /// What is shown in the Authorization header was not issued for this Receiver.
    #[error("the bearer token is not taken: {0}")]
    Bearer(&'static str),
    /// The token in the Authorization header is not taken by anybody, or for something else.
    #[error("the bearer token is not taken: {0}")]
    Token(#[from] TokenError),
}

/// Checks that a call comes from somebody who knows the token, as callers of this type show it, and looks at the body only to
/// compute its signature. Of the types that show nothing but the path, and of those that show a token of an issuer
/// ([`bearer`](crate::bearer)), it says nothing.
///
/// # Errors
/// [`NotProven`] where they do not.
pub fn prove(type_: ReceiverType, token: &Token, call: &Call<'_>) -> Result<(), NotProven> {
    use ReceiverType as T;
    match type_ {
        T::GenericHmac => signed(call, token, "x-signature", "X-Signature"),
        T::Github if call.headers.contains_key("x-hub-signature-256") => {
            signed(call, token, "x-hub-signature-256", "X-Hub-Signature-256")
        }
        T::Github | T::Bitbucket => signed(call, token, "x-hub-signature", "X-Hub-Signature"),
        T::Gitlab => shown(call, token, "x-gitlab-token", "X-Gitlab-Token"),
        T::Harbor => shown(call, token, "authorization", "Authorization"),
        T::Nexus => {
            let name = "X-Nexus-Webhook-Signature";
            let signature = call.header("x-nexus-webhook-signature").ok_or(NotProven::Absent(name))?;
            fits(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, token, call.body, signature, name)
        }
        T::Generic | T::GenericOidc | T::Gcr | T::Dockerhub | T::Quay | T::Acr | T::Cdevents => Ok(()),
    }
}

/// `sha256=<hex>`, or another of the algorithms that senders use.
fn signed(call: &Call<'_>, token: &Token, header: &str, name: &'static str) -> Result<(), NotProven> {
    let value = call.header(header).ok_or(NotProven::Absent(name))?;
    let (algorithm, signature) = value.split_once('=').ok_or(NotProven::Form(name))?;
    let algorithm = match algorithm {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha512" => hmac::HMAC_SHA512,
        _ => return Err(NotProven::Form(name)),
    };
    fits(algorithm, token, call.body, signature, name)
}

fn fits(
    algorithm: hmac::Algorithm,
    token: &Token,
    body: &[u8],
    signature: &str,
    name: &'static str,
) -> Result<(), NotProven> {
    let tag = hex(signature).ok_or(NotProven::Form(name))?;
    let key = hmac::Key::new(algorithm, token.expose());
    // A tag of another length fits nothing.
    hmac::verify(&key, body, &tag).map_err(|_| NotProven::Wrong(name))
}

/// A header that is the token. Digests are compared, so that the time says nothing of how long the token is.
fn shown(call: &Call<'_>, token: &Token, header: &str, name: &'static str) -> Result<(), NotProven> {
    let mut values = call.headers.get_all(header).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(NotProven::Absent(name)) };
    let (shown, expected) = (digest(&SHA256, value.as_bytes()), digest(&SHA256, token.expose()));
    verify_slices_are_equal(shown.as_ref(), expected.as_ref()).map_err(|_| NotProven::Wrong(name))
}

/// Digits of either case, as Go reads them.
fn hex(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_SIGNATURE || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    const BODY: &[u8] = br#"{"ref":"refs/heads/main"}"#;
    // printf '%s' '{"ref":"refs/heads/main"}' | openssl dgst -sha1 -hmac token
    const SHA1: &str = "d20219e8afabbeb7443367f130ab7a248cf7827d";
    const SHA256_TAG: &str = "1421a657e5058cedfcfb30a62bd261dc6553d5b29eaa583ebfaebe0304baf69d";
    const SHA512_TAG: &str = "30f65526de9ffa54e96e90256c484010e75043cddcc97072ac5b81ad496d3f8c9c81da4cc7c14a62150d32ac1378fb9bef2f0fd3dcd86165bda05a86485f7adc";

    fn check(type_: ReceiverType, headers: &[(&'static str, &str)], body: &[u8]) -> Result<(), NotProven> {
        let token = Token::new(b"token".to_vec()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        prove(type_, &token, &Call { headers: &map, body })
    }

    /// What holds of all types that sign: right, and every way of being wrong.
    fn signs(type_: ReceiverType, header: &'static str, right: &str) {
        let wrong = |value: &str, body: &[u8]| check(type_, &[(header, value)], body).unwrap_err();
        let (prefix, tag) =
            right.split_once('=').map_or(("", right), |(name, tag)| (&right[..=name.len()], tag));
        assert_eq!(check(type_, &[(header, right)], BODY), Ok(()), "{type_:?}");
        assert_eq!(check(type_, &[(header, &format!("{prefix}{}", tag.to_uppercase()))], BODY), Ok(()));
        let flipped = if tag.ends_with('0') { '1' } else { '0' };
        let last = format!("{prefix}{}{flipped}", &tag[..tag.len() - 1]);
        let is = |error| matches!(error, NotProven::Wrong(_));
        assert!(is(wrong(&last, BODY)), "the last digit");
        assert!(is(wrong(right, b"{}")), "another body");
        assert!(is(wrong(right, b"")), "no body");
        assert!(is(wrong(&format!("{prefix}{}", &tag[2..]), BODY)), "a byte short");
        assert!(is(wrong(&format!("{prefix}{tag}00"), BODY)), "a byte too many");
        assert!(is(wrong(prefix, BODY)), "nothing at all");
        for broken in [
            format!("{prefix}{}", &tag[1..]),
            format!("{prefix}zz{}", &tag[2..]),
            format!("{prefix}{}", "0".repeat(4096)),
        ] {
            assert!(matches!(wrong(&broken, BODY), NotProven::Form(_)), "{broken}");
        }
        assert!(matches!(check(type_, &[], BODY), Err(NotProven::Absent(_))), "no header");
        let twice = check(type_, &[(header, right), (header, right)], BODY);
        assert!(matches!(twice, Err(NotProven::Absent(_))), "twice");
    }

    #[test]
    fn generic_hmac_github_and_bitbucket_sign_the_body() {
        let all = [format!("sha1={SHA1}"), format!("sha256={SHA256_TAG}"), format!("sha512={SHA512_TAG}")];
        for right in &all {
            signs(ReceiverType::GenericHmac, "x-signature", right);
            signs(ReceiverType::Github, "x-hub-signature-256", right);
            signs(ReceiverType::Github, "x-hub-signature", right);
            signs(ReceiverType::Bitbucket, "x-hub-signature", right);
        }
        for value in [
            SHA256_TAG.to_owned(),
            format!("md5={SHA1}"),
            format!("SHA256={SHA256_TAG}"),
            format!("sha256:{SHA256_TAG}"),
        ] {
            let answer = check(ReceiverType::GenericHmac, &[("x-signature", &value)], BODY);
            assert!(matches!(answer, Err(NotProven::Form(_))), "{value}");
        }
        // Each is looked for under its own name.
        let answer = check(ReceiverType::Bitbucket, &[("x-signature", &all[1])], BODY);
        assert!(matches!(answer, Err(NotProven::Absent(_))));
    }

    #[test]
    fn the_stronger_signature_counts_where_github_sends_both() {
        let (weak, wrong) = (format!("sha1={SHA1}"), format!("sha256={}", "0".repeat(64)));
        let both = [("x-hub-signature", weak.as_str()), ("x-hub-signature-256", wrong.as_str())];
        assert!(check(ReceiverType::Github, &both, BODY).is_err());
    }

    #[test]
    fn nexus_signs_the_body_without_saying_how() {
        signs(ReceiverType::Nexus, "x-nexus-webhook-signature", SHA1);
    }

    #[test]
    fn gitlab_and_harbor_show_the_token() {
        for (type_, header) in
            [(ReceiverType::Gitlab, "x-gitlab-token"), (ReceiverType::Harbor, "authorization")]
        {
            assert_eq!(check(type_, &[(header, "token")], BODY), Ok(()));
            for wrong in ["", "toke", "token ", "tokens", "Token", "Bearer token"] {
                let answer = check(type_, &[(header, wrong)], BODY);
                assert!(matches!(answer, Err(NotProven::Wrong(_))), "{wrong}");
            }
            assert!(matches!(check(type_, &[], BODY), Err(NotProven::Absent(_))));
            let twice = check(type_, &[(header, "token"), (header, "other")], BODY);
            assert!(matches!(twice, Err(NotProven::Absent(_))));
        }
    }

    #[test]
    fn an_empty_token_is_none() {
        assert!(Token::new(Vec::new()).is_none());
        assert_eq!(format!("{:?}", Token::new(b"hush".to_vec())), "Some(Token)");
    }
}
