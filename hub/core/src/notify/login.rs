//! Tokens that are asked for before something is sent: of a GitHub App, and of a cloud.

use std::time::Duration;

use roadstead_notify::{Event, Target, begin};

use crate::HubError;
use crate::notify::Notifier;
use crate::notify::way::Way;

impl Notifier {
    /// The target with a token, where the Provider sends as somebody who is given one; or why there is none, and when to ask again.
    pub(super) async fn log_in(
        &self,
        way: &Way,
        target: &Target,
        event: &Event,
    ) -> Result<Result<Option<Target>, (String, Option<Duration>)>, HubError> {
        if way.app.is_none() && way.cloud.is_none() {
            return Ok(Ok(None));
        }
        // A token is not even asked for where it may not be sent.
        let Ok(first) = begin(way.type_, target, event) else { return Ok(Ok(None)) };
        let first = first.requests();
        if let Err((_, why)) = self.may_send_all(way, &first).await? {
            return Ok(Err((why, None)));
        }
        if let Some(app) = &way.app {
            return Ok(match self.app_token(way, app).await {
                Ok((token, app_slug)) => Ok(Some(Target { token: Some(token), app_slug, ..target.clone() })),
                Err(error) => Err(self.told(app, &error)),
            });
        }
        let (Some(identity), Some(request)) = (&way.cloud, first.first()) else { return Ok(Ok(None)) };
        // Exposed to see where it goes.
        let token = self.cloud_token(way, identity, request.url.expose()).await;
        Ok(token
            .map(|token| Some(Target { token: Some(token), ..target.clone() }))
            .map_err(|why| (why, None)))
    }

    /// Forgets the token that was not taken: what it was given for may have been changed since.
    pub(super) fn forget_login(&self, way: &Way) {
        if let Some(app) = &way.app {
            self.forget_app_token(app);
        }
        if let Some(identity) = &way.cloud {
            identity.forget();
        }
    }
}
