//! From whom a call comes: by the Receiver's token, or by one that an issuer signed.

use roadstead_api::{OidcProvider, ReceiverSpec, ReceiverType};
use roadstead_cel::Expression;
use roadstead_hooks::{Call, NotProven, bearer, prove};
use roadstead_model::chain;
use roadstead_oidc::{Expected, Keys, Token, TokenError, check};
use serde_json::{Map, Value, json};

use crate::hooks::Hooks;
use crate::hooks::call::{Called, NotTaken, Proven};
use crate::hooks::secret::GoogleCaller;

/// The audience of tokens where a Receiver names none.
const AUDIENCE: &str = "notification-controller";
/// Of Google's tokens: what they say to be from, and where its keys are asked for.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];
/// An expression may take this part of what a single evaluation may otherwise.
const SHARE: u32 = 64;
/// What is said where an expression of the Receiver's refuses a token. Its own message is in the log.
const INVALID: NotProven = NotProven::Bearer("it does not fit what the Receiver asks for");

/// What a Receiver asks of one issuer's tokens.
pub(super) struct IssuerRules<'a> {
    provider: &'a OidcProvider,
    variables: Vec<(&'a str, Expression)>,
    validations: Vec<(Expression, &'a str)>,
}

impl<'a> IssuerRules<'a> {
    /// Those of a spec's issuers, or what is wrong with one of their expressions.
    pub(super) fn parse_all(spec: &'a ReceiverSpec) -> Result<Vec<Self>, String> {
        let all = spec.oidc_providers.iter().enumerate();
        all.map(|(index, provider)| {
            Self::parse(provider).map_err(|why| format!("spec.oidcProviders[{index}].{why}"))
        })
        .collect()
    }

    fn parse(provider: &'a OidcProvider) -> Result<Self, String> {
        let parse = |field: &str, index: usize, text: &str| {
            Expression::parse_over(text, &["claims", "vars"])
                .map_err(|error| format!("{field}[{index}]: {}", chain(&error)))
        };
        let variables = provider.variables.iter().enumerate().map(|(index, variable)| {
            Ok((variable.name.as_str(), parse("variables", index, &variable.expression)?))
        });
        let validations = provider.validations.iter().enumerate().map(|(index, validation)| {
            Ok((parse("validations", index, &validation.expression)?, validation.message.as_str()))
        });
        Ok(Self {
            provider,
            variables: variables.collect::<Result<_, String>>()?,
            validations: validations.collect::<Result<_, String>>()?,
        })
    }

    /// Whether claims fit; if not, what is said of that in the log. Without a validation nothing would.
    fn accept(&self, claims: &Value) -> Result<(), String> {
        let mut vars = Value::Object(Map::new());
        for (name, expression) in &self.variables {
            let made = expression.evaluate_json(&[("claims", claims), ("vars", &vars)], SHARE);
            vars[*name] = made.map_err(|error| format!("variable {name}: {}", chain(&error)))?;
        }
        for (expression, message) in &self.validations {
            match expression.evaluate_bool_among(&[("claims", claims), ("vars", &vars)], SHARE) {
                Ok(true) => {}
                Ok(false) => return Err((*message).to_owned()),
                Err(error) => return Err(chain(&error)),
            }
        }
        if self.validations.is_empty() { Err("there is no validation".to_owned()) } else { Ok(()) }
    }
}

impl Hooks {
    pub(super) async fn proven(&self, called: &Called, call: &Call<'_>) -> Result<Proven, NotTaken> {
        let claims = match (called.spec.type_, &called.credentials.google, &called.credentials.token) {
            (ReceiverType::GenericOidc, ..) => self.by_issuer(&called.spec, call).await?,
            (ReceiverType::Gcr, Some(google), _) => {
                self.by_google(google, call).await?;
                Value::Null
            }
            (type_, _, Some(token)) => {
                prove(type_, token, call)?;
                Value::Null
            }
            (_, _, None) => return Err(NotProven::Absent("token").into()),
        };
        Ok(Proven { claims })
    }

    async fn by_issuer(&self, spec: &ReceiverSpec, call: &Call<'_>) -> Result<Value, NotTaken> {
        let token = bearer(call)?;
        let provider = spec.oidc_providers.iter().find(|provider| provider.issuer_url == token.issuer());
        let provider = provider.ok_or(NotProven::Token(TokenError::Issuer))?;
        let rules = IssuerRules::parse(provider).map_err(|_| INVALID)?;
        let keys = self.issuers.keys(&provider.issuer_url, token.key()).await?;
        let audience = provider.audience.as_deref().unwrap_or(AUDIENCE);
        let claims = self.claims(&token, &keys, &[&provider.issuer_url], audience)?;
        if let Err(why) = rules.accept(&claims) {
            let issuer = &rules.provider.issuer_url;
            tracing::info!(issuer, why, "a token that its issuer signed is not taken");
            return Err(INVALID.into());
        }
        Ok(claims)
    }

    async fn by_google(&self, caller: &GoogleCaller, call: &Call<'_>) -> Result<(), NotTaken> {
        let token = bearer(call)?;
        if !GOOGLE.contains(&token.issuer()) {
            return Err(NotProven::Token(TokenError::Issuer).into());
        }
        let keys = self.issuers.keys(GOOGLE[0], token.key()).await?;
        let claims = self.claims(&token, &keys, &GOOGLE, &caller.audience)?;
        Ok(pushes_for(caller, &claims)?)
    }

    fn claims(
        &self,
        token: &Token<'_>,
        keys: &Keys,
        issuers: &[&str],
        audience: &str,
    ) -> Result<Value, NotProven> {
        let claims = token.verify(keys)?;
        check(&claims, &Expected { issuers, audiences: &[audience], now: self.clock.now().as_second() })?;
        Ok(claims)
    }
}

/// Whether Google says that it pushes for this account.
fn pushes_for(caller: &GoogleCaller, claims: &Value) -> Result<(), NotProven> {
    let is_verified = claims["email_verified"] == json!(true);
    if is_verified && claims["email"].as_str() == Some(caller.email.as_str()) {
        return Ok(());
    }
    Err(NotProven::Bearer("it is not the service account's of the Secret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_fit_where_all_validations_hold() {
        let spec: ReceiverSpec = serde_json::from_value(json!({
            "type": "generic-oidc", "resources": [],
            "oidcProviders": [{
                "issuerURL": "https://issuer.test",
                "variables": [
                    { "name": "repository", "expression": "claims.sub.split(':')[1]" },
                    { "name": "owner", "expression": "vars.repository.split('/')[0]" },
                ],
                "validations": [
                    { "expression": "vars.owner == 'acme'", "message": "of another owner" },
                    { "expression": "claims.ref in ['refs/heads/main']", "message": "of another branch" },
                ],
            }],
        }))
        .unwrap();
        let rules = IssuerRules::parse_all(&spec).unwrap();
        let accept = |sub: &str, branch: &str| rules[0].accept(&json!({ "sub": sub, "ref": branch }));
        assert_eq!(accept("repo:acme/web", "refs/heads/main"), Ok(()));
        assert_eq!(accept("repo:evil/web", "refs/heads/main"), Err("of another owner".to_owned()));
        assert_eq!(accept("repo:acme/web", "refs/heads/x"), Err("of another branch".to_owned()));
        assert!(accept("acme", "refs/heads/main").unwrap_err().starts_with("variable repository"));
        assert!(rules[0].accept(&json!({})).is_err());
        let mut none = spec.clone();
        none.oidc_providers[0].validations.clear();
        assert!(
            IssuerRules::parse_all(&none).unwrap()[0].accept(&json!({ "sub": "repo:acme/web" })).is_err()
        );
        let mut broken = spec.clone();
        broken.oidc_providers[0].validations[1].expression = "req.ref == 'x'".to_owned();
        let why = IssuerRules::parse_all(&broken).err().unwrap_or_default();
        assert!(why.starts_with("spec.oidcProviders[0].validations[1]"), "{why}");
    }

    #[test]
    fn google_pushes_for_the_account_of_the_secret_only() {
        let caller = GoogleCaller { email: "pusher@project.iam.test".to_owned(), audience: "me".to_owned() };
        let of = |claims: Value| pushes_for(&caller, &claims).is_ok();
        assert!(of(json!({ "email": "pusher@project.iam.test", "email_verified": true })));
        for wrong in [
            json!({ "email": "other@project.iam.test", "email_verified": true }),
            json!({ "email": "pusher@project.iam.test", "email_verified": false }),
            json!({ "email": "pusher@project.iam.test", "email_verified": "true" }),
            json!({ "email": "pusher@project.iam.test" }),
            json!({ "email_verified": true }),
        ] {
            assert!(!of(wrong.clone()), "{wrong}");
        }
    }
}
