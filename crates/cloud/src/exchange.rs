//! What is asked of the token endpoints of Google and Azure, and what they answer, as values. By which way it goes there, whether it may, and
//! what is told where it fails is for whoever asks: identities of clouds ([`crate::CloudIdentity`]), and buckets with credentials of their own.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_outbound::Secret;
use roadstead_signing::{CannotSign, GoogleAccount, azure_assertion};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

/// What a form is said to be.
pub const FORM: &str = "application/x-www-form-urlencoded";

/// A form of these fields, which is wiped when it was sent.
#[must_use]
pub fn form(fields: &[(&str, &str)]) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(Serializer::new(String::new()).extend_pairs(fields).finish().into_bytes())
}

/// What a service account of Google's asks for a token for `scope`, at the endpoint `audience`.
///
/// # Errors
/// Its key cannot sign.
pub fn google_form(
    account: &GoogleAccount<'_>,
    scope: &str,
    audience: &str,
) -> Result<Zeroizing<Vec<u8>>, CannotSign> {
    let assertion = account.assertion(scope, audience, Timestamp::now().as_second())?;
    let grant = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    // Exposed to be sent.
    Ok(form(&[("grant_type", grant), ("assertion", assertion.expose())]))
}

/// An application of a tenant of Azure's.
pub struct Application<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The application.
    pub client_id: &'a str,
    /// What it shows.
    pub shows: Shows<'a>,
}

/// What an application shows to be known.
pub enum Shows<'a> {
    /// A password.
    Secret(&'a Secret),
    /// A text that its certificate signs: both it and its key are in PEM.
    Certificate {
        /// The certificate, with those that it was issued by, and the key.
        pem: &'a Secret,
        /// Whether the issuers are sent too.
        send_chain: bool,
    },
    /// A text that somebody else signed.
    Assertion(&'a Secret),
}

impl Application<'_> {
    /// Where an authority has the endpoint of the tenant: `/TENANT/oauth2/v2.0/token`; none if the tenant is not valid.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let is_tenant =
            !self.tenant.is_empty() && self.tenant.chars().all(fine) && !self.tenant.contains("..");
        is_tenant.then(|| format!("/{}/oauth2/v2.0/token", self.tenant))
    }

    /// What it asks for a token for `scope`, at this endpoint.
    ///
    /// # Errors
    /// Its certificate's key cannot sign.
    pub fn form(&self, scope: &str, endpoint: &Url) -> Result<Zeroizing<Vec<u8>>, CannotSign> {
        let mut fields =
            vec![("grant_type", "client_credentials"), ("client_id", self.client_id), ("scope", scope)];
        let signed;
        let assertion = match self.shows {
            Shows::Secret(secret) => {
                // Exposed to be sent, as are the others.
                fields.push(("client_secret", secret.expose()));
                None
            }
            Shows::Certificate { pem, send_chain } => {
                let now = Timestamp::now().as_second();
                signed = azure_assertion(pem, send_chain, self.client_id, endpoint.as_str(), now)?;
                Some(&signed)
            }
            Shows::Assertion(text) => Some(text),
        };
        if let Some(assertion) = assertion {
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            fields.extend([("client_assertion_type", kind), ("client_assertion", assertion.expose())]);
        }
        Ok(form(&fields))
    }
}

/// A token that was given out. Some say how long it lasts as a number and some as a text, and some when it expires.
#[derive(Deserialize)]
pub struct Token {
    /// The token.
    pub access_token: Secret,
    expires_in: Option<serde_json::Value>,
    expires_on: Option<serde_json::Value>,
}

impl Token {
    /// What an endpoint answers; none where that is something else.
    #[must_use]
    pub fn read(answer: &[u8]) -> Option<Self> {
        serde_json::from_slice(answer).ok()
    }

    /// How long it lasts, where that is said.
    #[must_use]
    pub fn lasts(&self) -> Option<Duration> {
        let number = |value: &Option<serde_json::Value>| match value {
            Some(serde_json::Value::Number(number)) => number.as_i64(),
            Some(serde_json::Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        let left = number(&self.expires_in)
            .or_else(|| number(&self.expires_on).map(|on| on.saturating_sub(Timestamp::now().as_second())));
        left.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_a_token_lasts() {
        let lasts = |json: &str| Token::read(json.as_bytes()).unwrap().lasts().map(|lasts| lasts.as_secs());
        assert_eq!(lasts(r#"{"access_token":"x","expires_in":3599}"#), Some(3599));
        assert_eq!(lasts(r#"{"access_token":"x","expires_in":"3599"}"#), Some(3599));
        assert!(lasts(r#"{"access_token":"x","expires_on":"4102444800"}"#) > Some(3600));
        assert_eq!(lasts(r#"{"access_token":"x","expires_on":"5"}"#), Some(0));
        assert_eq!(lasts(r#"{"access_token":"x"}"#), None);
        assert!(Token::read(b"{}").is_none());
    }

    #[test]
    fn what_is_shown_is_asked_with() {
        let (secret, url) =
            (Secret::new("a b".to_owned()), Url::parse("https://login.test/t/oauth2/v2.0/token").unwrap());
        let of = |tenant, shows| Application { tenant, client_id: "c", shows };
        let text =
            |shows| String::from_utf8(of("t", shows).form("s/.default", &url).unwrap().to_vec()).unwrap();
        let start = "grant_type=client_credentials&client_id=c&scope=s%2F.default";
        assert_eq!(text(Shows::Secret(&secret)), format!("{start}&client_secret=a+b"));
        let kind = "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
        assert_eq!(text(Shows::Assertion(&secret)), format!("{start}&{kind}&client_assertion=a+b"));
        let certificate = Shows::Certificate { pem: &secret, send_chain: false };
        assert!(of("t", certificate).form("s", &url).is_err());
        assert_eq!(of("a-1.b", Shows::Secret(&secret)).path().unwrap(), "/a-1.b/oauth2/v2.0/token");
        for tenant in ["", "a/b", "a..b", "a b", "a?b"] {
            assert!(of(tenant, Shows::Secret(&secret)).path().is_none(), "{tenant}");
        }
    }
}
