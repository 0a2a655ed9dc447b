//! A repository that is fetched as a GitHub App, by a Secret and a GitRepository that the real `flux` makes.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{APP_KEY, Commit, GitHubApi, GitServer, Mood, Options, install_crypto};
use roadstead_tests::{HubSetup, PATIENCE, config_map, eventually, folder, unique};

use crate::flux_command::Site;

#[tokio::test]
async fn what_flux_makes_for_an_app_is_fetched_with_its_tokens() -> Result<()> {
    install_crypto();
    let login = Some(("x-access-token".to_owned(), "no token was given out yet".to_owned()));
    let git = GitServer::start(Options { login, ..Options::default() }).await?;
    let repository = git.add_repository("app.git")?;
    let commit = |word| Commit::new().file("a.yaml", config_map("x", "a", word));
    repository.commit("main", "First", &commit("one"))?;
    // Whatever token it gives out last is the one that the repository takes.
    let api = GitHubApi::start(git.gate()).await?;
    let site = Site::start(HubSetup::new("github-app").await?).await?;
    let at = folder()?;
    let key = at.path().join("app.pem");
    std::fs::write(&key, APP_KEY)?;

    let line = format!(
        "create secret githubapp app --app-id=7 --app-installation-id=42 --app-private-key={} --app-base-url={}",
        key.display(),
        api.url()
    );
    site.says(&line, &["secret 'app' created"]).await?;
    // The two servers have authorities of their own, for which `flux` has no flag.
    let pem = format!("{}{}", git.ca_pem().context("an authority")?, api.ca_pem());
    let patch = serde_json::json!({ "stringData": { "ca.crt": pem } }).to_string();
    site.kubectl().run(&["patch", "secret", "app", "--namespace=apps", "--type=merge", "-p", &patch]).await?;
    let url = git.url("app.git");
    let line = format!(
        "create source git app --url={url} --branch=main --provider=github --secret-ref=app --interval=1h"
    );
    site.says(&line, &["GitRepository source created", "fetched revision: main@sha1:"]).await?;
    ensure!(api.given() == 1, "{} tokens", api.given());
    let (asked, _) = api.asked().pop().context("a question")?;
    ensure!(asked.ends_with("/app/installations/42/access_tokens"), "{asked}");

    // What was given out serves for the next commit.
    let second = repository.commit("main", "Second", &commit("two"))?;
    site.says("reconcile source git app", &[&format!("fetched revision main@sha1:{second}")]).await?;
    ensure!(api.given() == 1, "{} tokens", api.given());

    // The App was taken away: said with what is to be done, and the artifact stays.
    let message = "This installation has been suspended";
    let body = serde_json::json!({ "message": message }).to_string();
    api.mood(Mood::Says(403, String::new(), body));
    git.gate()("x-access-token", "none");
    let third = repository.commit("main", "Third", &commit("three"))?;
    let ask = async || {
        let at = format!("reconcile.fluxcd.io/requestedAt={}", unique("at"));
        let args = ["annotate", "--overwrite", "gitrepository", "app", "--namespace=apps", &at];
        site.kubectl().run(&args).await
    };
    ask().await?;
    eventually("it is told that the App was taken away", PATIENCE, || async {
        let source = site.get("gitrepository/app").await?;
        let told = source["status"]["conditions"].to_string();
        ensure!(told.contains("the installation of App 7 is suspended"), "{told}");
        ensure!(told.contains("AuthenticationFailed"), "{told}");
        let revision = source["status"]["artifact"]["revision"].as_str().unwrap_or_default();
        ensure!(revision == format!("main@sha1:{second}"), "{revision}");
        Ok(())
    })
    .await?;
    api.mood(Mood::Well);
    ask().await?;
    eventually("it is fetched with a new token", PATIENCE, || async {
        let source = site.get("gitrepository/app").await?;
        let revision = source["status"]["artifact"]["revision"].as_str().unwrap_or_default();
        ensure!(revision == format!("main@sha1:{third}"), "{source:#}");
        Ok(())
    })
    .await?;
    ensure!(api.given() == 2, "{} tokens", api.given());
    let source = site.get("gitrepository/app").await?.to_string();
    ensure!(!source.contains("ghs_"), "{source}");
    Ok(())
}
