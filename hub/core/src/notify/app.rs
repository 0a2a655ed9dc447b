//! Providers whose Secret has a GitHub App: a token of it is asked for before something is sent.

use std::time::Duration;

use http::header::RETRY_AFTER;
use jiff::Timestamp;
use roadstead_api::ProviderType;
use roadstead_github_app::{App, AppError, KEYS, Tokens, Want};
use roadstead_hub_store::Stored;
use roadstead_model::Secret;
use roadstead_notify::{Target, after};

use crate::notify::Notifier;
use crate::notify::way::Way;
use crate::sources::SourceSecret;

/// A GitHub App to send as.
pub(super) struct AppWay {
    app: App,
    /// Whom to trust besides the system's authorities, where `spec.certSecretRef` does not say so.
    pub(super) ca: Option<Vec<u8>>,
    /// What tells this way out from others.
    way: String,
}

/// Whether a Provider of this type sends as the App that its Secret has: where there is a token, that is sent.
pub(super) fn is_app(type_: ProviderType, stored: &Stored, target: &Target) -> bool {
    use ProviderType as T;
    let is_github = matches!(type_, T::Github | T::Githubdispatch | T::Githubpullrequestcomment);
    let has_token = [&target.token, &target.password].into_iter().flatten().any(|token| !token.is_empty());
    let secret = SourceSecret::of(stored);
    is_github && !has_token && KEYS.iter().any(|key| secret.has(key))
}

impl AppWay {
    /// That of a Secret; the others say how it is reached.
    pub(super) fn of(stored: &Stored, others: [Option<&Stored>; 2]) -> Result<Self, String> {
        let secret = SourceSecret::of(stored);
        let app = App::read(|key| secret.text(key))?;
        let ca = secret.text("ca.crt")?.map(String::into_bytes);
        let [certificates, proxy] = others.map(|other| other.map_or(0, |other| other.resource_version));
        // The proxy may stand in the Secret itself, too.
        let way = format!("notify {} {certificates} {proxy}", stored.resource_version);
        Ok(Self { app, ca, way })
    }
}

impl Notifier {
    /// A token of an App, and what the App is called where that counts.
    pub(super) async fn app_token(
        &self,
        way: &Way,
        app: &AppWay,
    ) -> Result<(Secret, Option<String>), AppError> {
        let parts = [app.way.as_bytes()];
        let want = Want { app: &app.app, way: &parts };
        let token = self.app_tokens.token(want, || Ok(way.client.clone())).await?;
        // Its comments are found again by who wrote them.
        let slug = match way.type_ {
            ProviderType::Githubpullrequestcomment => Some(Tokens::slug(&app.app, &way.client).await?),
            _ => None,
        };
        Ok((token, slug))
    }

    /// Why there is no token, and when to ask again.
    pub(super) fn told(&self, app: &AppWay, error: &AppError) -> (String, Option<Duration>) {
        match error {
            AppError::Unreachable { source, .. } => {
                let why =
                    source.refusal.as_ref().map_or("the connection failed".to_owned(), ToString::to_string);
                (format!("{error}: {why}"), None)
            }
            AppError::Limited { headers, .. } => {
                let asked = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                let wait = asked.and_then(|asked| after(asked, self.clock.now()));
                if let Some(until) = wait.and_then(|wait| Timestamp::now().checked_add(wait).ok()) {
                    self.app_tokens.rest(&app.app, until);
                }
                (error.to_string(), wait)
            }
            AppError::Resting { until, .. } => {
                let left = until.as_second().saturating_sub(Timestamp::now().as_second());
                (error.to_string(), u64::try_from(left).ok().map(Duration::from_secs))
            }
            _ => (error.to_string(), None),
        }
    }

    /// Forgets the token of an App.
    pub(super) fn forget_app_token(&self, app: &AppWay) {
        self.app_tokens.forget(Want { app: &app.app, way: &[app.way.as_bytes()] });
    }
}
