//! Asking a provider: where people sign in, and for tokens.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_oidc::SignInProvider;
use roadstead_oidc::code::{self, Endpoints, NoTokens, Tokens};
use roadstead_outbound::{Secret, secret_header};
use zeroize::Zeroizing;

use super::{SignIn, SignInRefused};
use crate::publisher::NoKeys;

/// Why a provider gave no tokens.
#[derive(Debug)]
pub(super) enum Unredeemed {
    /// It cannot be asked.
    Away(String),
    /// It says no.
    NoTokens(NoTokens),
}

impl SignIn {
    /// The provider at this place, and its client's secret; the place again, since that is what it is found by.
    pub(super) fn provider(&self, place: usize) -> Option<(usize, &SignInProvider, Option<&Secret>)> {
        let provider = self.options.configuration.providers().get(place)?;
        let secret = self.options.secrets.get(place).filter(|secret| !secret.is_empty());
        Some((place, provider, secret))
    }

    /// Where people sign in there.
    pub(super) async fn endpoints(&self, provider: &SignInProvider) -> Result<Arc<Endpoints>, SignInRefused> {
        let publisher =
            self.identity.issuers.publisher(provider.issuer()).ok_or(SignInRefused::NoProvider)?;
        publisher.endpoints().await.map_err(|error: NoKeys| SignInRefused::Away(error.to_string()))
    }

    /// What the provider at this place gives for what it is shown.
    pub(super) async fn tokens(
        &self,
        place: usize,
        endpoints: &Endpoints,
        shown: &[(&str, &str)],
    ) -> Result<Tokens, Unredeemed> {
        let away = |why: &str| Unredeemed::Away(why.to_owned());
        let (_, provider, secret) = self.provider(place).ok_or_else(|| away("it is not known"))?;
        let publisher = self.identity.issuers.publisher(provider.issuer());
        let publisher = publisher.ok_or_else(|| away("it is not known"))?;
        let url = endpoints.token.as_deref().ok_or_else(|| away("it does not say where tokens are given"))?;
        let mut fields = shown.to_vec();
        let authorization = match secret {
            Some(secret) if !endpoints.secret_in_body => {
                let text = basic(provider.client_id(), secret);
                Some(secret_header(&text).map_err(|_| away("the client's secret is not text of a header"))?)
            }
            Some(secret) => {
                // Only the provider sees it.
                fields.extend([("client_id", provider.client_id()), ("client_secret", secret.expose())]);
                None
            }
            None => {
                fields.push(("client_id", provider.client_id()));
                None
            }
        };
        let form = code::form(&fields);
        let (is_success, answer) =
            publisher.post(url, authorization, &form).await.map_err(Unredeemed::Away)?;
        Tokens::parse(is_success, &answer).map_err(Unredeemed::NoTokens)
    }
}

/// A client's id and secret, as RFC 6749 puts them into a header: each encoded as in a form.
fn basic(client: &str, secret: &Secret) -> Zeroizing<String> {
    let encode = |text: &str| -> String { url::form_urlencoded::byte_serialize(text.as_bytes()).collect() };
    // Only the provider sees it.
    let pair = Zeroizing::new(format!("{}:{}", encode(client), encode(secret.expose())));
    Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_secret_is_encoded_before_it_is_joined() {
        let text = basic("a:b", &Secret::from("of the client%"));
        let pair = STANDARD.decode(text.strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(pair, b"a%3Ab:of+the+client%25");
    }
}
