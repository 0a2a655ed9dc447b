//! Tokens of versions that made such without an end: they go on for 30 days, and whoever uses one is told.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::SignedDuration;
use reqwest::StatusCode;
use roadstead_hub_core::{HubOptions, identity::Identity};

use crate::oidc::Ahead;
use crate::support::{Replica, Site, client};

/// The status of an answer, and its warnings.
async fn ask(replica: &Replica, http: &reqwest::Client, token: &str) -> Result<(StatusCode, String)> {
    let request = http.get(format!("{}/api/v1/secrets", replica.url)).bearer_auth(token);
    let answer = request.send().await?;
    let warnings = answer.headers().get_all("warning").iter().map(|one| one.to_str().unwrap_or_default());
    Ok((answer.status(), warnings.collect()))
}

#[tokio::test]
async fn tokens_without_an_end_go_on_for_thirty_days_and_say_so() -> Result<()> {
    let (site, clock) = (Site::new().await?, Arc::<Ahead>::default());
    let replica = site.replica_by(clock.clone(), HubOptions::default()).await?;
    let (http, identity) = (client(&replica)?, &replica.hub.identity);
    let masters = ["system:masters".to_owned()];
    let old = identity.create_access_token("old", &masters, None).await?;
    let fresh = replica.token.as_str();
    let mut database = site.database.connect().await?;
    sqlx::query(
        "INSERT INTO access_token (id, hash, username, groups) \
         VALUES (gen_random_uuid(), '\\x00', 'forged', ARRAY['system:masters'])",
    )
    .execute(&mut database)
    .await?;
    let begin = replica.hub.now();
    identity.end_endless_tokens().await?;
    // Where it is done again at a later start, it prolongs nothing.
    clock.by(SignedDuration::from_hours(24));
    identity.end_endless_tokens().await?;

    let listed = identity.list_tokens(&Identity::hub(), false).await?;
    let of = |user: &str| listed.iter().find(|item| item.username == user).context("it is listed");
    let end: jiff::Timestamp = of("old")?.expires.as_ref().context("an end")?.parse()?;
    let days = end.duration_since(begin).as_hours() / 24;
    ensure!((29..=30).contains(&days) && of("old")?.had_no_end && of("old")?.valid, "{:?}", of("old")?);
    ensure!(of("forged")?.expires.is_none() && !of("forged")?.valid, "one that no hub made has got an end");
    ensure!(!of("roadstead-admin")?.had_no_end);

    ensure!(identity.old_token_uses() == 0);
    for uses in 1..=3 {
        let (status, warning) = ask(&replica, &http, old.expose()).await?;
        ensure!(status == StatusCode::OK && identity.old_token_uses() == uses, "{status}");
        let until = end.to_string();
        ensure!(warning.contains(&until) && warning.contains("roadstead token create"), "{warning}");
        ensure!(warning.contains(&of("old")?.id) && !warning.contains(old.expose()), "{warning}");
    }
    // That of the hub's own was for a day.
    ensure!(ask(&replica, &http, fresh).await?.0 == StatusCode::UNAUTHORIZED);
    let (fresh, _) = identity.create_admin_token("for a test").await?;
    ensure!(ask(&replica, &http, &fresh).await? == (StatusCode::OK, String::new()));
    clock.by(SignedDuration::from_hours(30 * 24));
    ensure!(ask(&replica, &http, old.expose()).await?.0 == StatusCode::UNAUTHORIZED);
    Ok(())
}
