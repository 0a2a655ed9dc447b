//! What a Receiver's Secret holds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::{KindId, ReceiverSpec, ReceiverType};
use roadstead_hooks::{Token, WebhookPath};
use roadstead_hub_store::{SecretData, StoreError, Stored};

use crate::hooks::Hooks;

/// By what callers are known.
pub(super) struct Credentials {
    /// None where callers show a token of an issuer.
    pub(super) token: Option<Token>,
    /// Of type gcr: whose tokens of Google's are taken, and for which audience.
    pub(super) google: Option<GoogleCaller>,
}

/// Who pushes for Google.
pub(super) struct GoogleCaller {
    pub(super) email: String,
    pub(super) audience: String,
}

impl Credentials {
    /// Where the Receiver is called.
    pub(super) fn path(&self, receiver: &Stored) -> WebhookPath {
        WebhookPath::of(self.token.as_ref(), &receiver.name, &receiver.namespace)
    }
}

impl Hooks {
    /// What the Secret of a Receiver holds, or why that is nothing by which callers could be known.
    pub(super) async fn credentials(
        &self,
        receiver: &Stored,
        spec: &ReceiverSpec,
    ) -> Result<Result<Credentials, String>, StoreError> {
        let Some(reference) = &spec.secret_ref else {
            return Ok(Ok(Credentials { token: None, google: None }));
        };
        let full = format!("Secret '{}/{}'", receiver.namespace, reference.name);
        let Some(found) = self.store.get(KindId::Secret, &receiver.namespace, &reference.name).await? else {
            return Ok(Err(format!("{full} of spec.secretRef not found")));
        };
        let data = found.secret.unwrap_or_default();
        Ok(read(spec.type_, &data).map_err(|why| format!("{full} {why}")))
    }
}

fn read(type_: ReceiverType, data: &SecretData) -> Result<Credentials, String> {
    let bytes = |key: &str| {
        let encoded = data.expose(key).ok_or_else(|| format!("has no key '{key}'"))?;
        STANDARD.decode(encoded).map_err(|_| format!("has no base64 under key '{key}'"))
    };
    let text = |key: &str| {
        let text = String::from_utf8(bytes(key)?).map_err(|_| format!("has no text under key '{key}'"))?;
        if text.is_empty() { Err(format!("has nothing under key '{key}'")) } else { Ok(text) }
    };
    let token = Token::new(bytes("token")?).ok_or("has an empty token, which anybody could compute")?;
    let google = match type_ {
        ReceiverType::Gcr => Some(GoogleCaller { email: text("email")?, audience: text("audience")? }),
        _ => None,
    };
    Ok(Credentials { token: Some(token), google })
}
