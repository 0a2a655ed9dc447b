//! GitRepositories that are fetched as a GitHub App: what is said of specs and Secrets that do not fit together.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_hub_core::HubOptions;
use roadstead_hub_core::sources::FetchPlan;
use roadstead_test_gitserver::APP_KEY;
use serde_json::{Value, json};

use crate::support::{Site, git_repository};

const G: KindId = KindId::GitRepository;

fn secret(name: &str, keys: &[(&str, &str)]) -> Value {
    let data = keys.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text).into()));
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "apps", "name": name },
        "data": data.collect::<serde_json::Map<_, _>>() })
}

#[tokio::test]
async fn a_provider_and_a_secret_that_do_not_fit_together_are_told_as_flux_tells_them() -> Result<()> {
    let site = Site::with(HubOptions::default()).await?;
    site.namespace("apps").await?;
    let own = [("githubAppID", "7"), ("githubAppInstallationID", "42"), ("githubAppPrivateKey", APP_KEY)];
    site.apply(secret("app", &own)).await?;
    site.apply(secret("keyless", &own[..2])).await?;
    site.apply(secret("plain", &[("username", "u"), ("password", "p")])).await?;
    let https = "https://github.com/o/r.git";
    let misfit = "InvalidProviderConfiguration";
    for (name, url, provider, secret, told) in [
        ("fits", https, "github", Some("app"), None),
        (
            "secretless",
            https,
            "github",
            None,
            Some((misfit, "secretRef with github app data must be specified")),
        ),
        (
            "login",
            https,
            "github",
            Some("plain"),
            Some((misfit, "secretRef with github app data must be specified")),
        ),
        ("generic", https, "generic", Some("app"), Some((misfit, "provider is not set to github"))),
        ("ssh", "ssh://git@github.com/o/r.git", "github", Some("app"), Some((misfit, "over https:// only"))),
        (
            "keyless",
            https,
            "github",
            Some("keyless"),
            Some(("AuthenticationFailed", "has no githubAppPrivateKey")),
        ),
    ] {
        let mut object = git_repository("apps", name, url);
        object["spec"]["provider"] = provider.into();
        if let Some(secret) = secret {
            object["spec"]["secretRef"] = json!({ "name": secret });
        }
        site.apply(object).await?;
        let planned = site.hub.sources.plan_fetch(site.stored(G, "apps", name).await?.uid).await?;
        let Some((reason, part)) = told else {
            ensure!(matches!(planned, FetchPlan::Fetch(job) if job.source.has_credentials()), "{name}");
            continue;
        };
        ensure!(matches!(planned, FetchPlan::Nothing(_)), "{name} is fetched");
        let found = site.ready(G, "apps", name).await?;
        ensure!(found.0 == reason && found.1.contains(part), "{name}: {found:?}");
        let stored = site.stored(G, "apps", name).await?;
        let conditions = stored.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_stalled = conditions.iter().any(|one| one["type"] == "Stalled" && one["status"] == "True");
        ensure!(is_stalled == (name == "secretless"), "{name}: {conditions:#?}");
    }
    Ok(())
}
