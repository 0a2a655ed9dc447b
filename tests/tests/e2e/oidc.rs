//! People sign in at a real OpenID provider, and use kubectl with its tokens.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::{HubProcess, HubSetup, Kubectl, OpenIdProvider, eventually};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Who asks with a token, as the hub says it.
async fn whoami(kubectl: &Kubectl) -> Result<Value> {
    let text = kubectl.run(&["auth", "whoami", "-o", "json"]).await?;
    let mut answer: Value = serde_json::from_str(&text)?;
    Ok(answer["status"]["userInfo"].take())
}

/// That a token is not taken.
async fn refused(kubectl: &Kubectl) -> Result<()> {
    match kubectl.run(&["auth", "whoami"]).await {
        Ok(answer) => bail!("it is taken: {answer}"),
        Err(error) => {
            let error = format!("{error:#}");
            ensure!(error.contains("nauthorized") || error.contains("must be logged in"), "{error}");
            Ok(())
        }
    }
}

/// A hub that trusts the provider.
async fn hub(provider: &OpenIdProvider) -> Result<(HubSetup, HubProcess)> {
    let setup = HubSetup::new("oidc").await?;
    let path = setup.folder().join("authentication.json");
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": provider.url(), "certificateAuthority": provider.ca_pem(),
                "audiences": ["kubernetes", "by-ec", "by-ed"], "audienceMatchPolicy": "MatchAny",
            },
            "claimValidationRules": [{ "expression": "claims.sub != 'joe' || claims.email_verified == false" }],
            "claimMappings": {
                "username": { "claim": "sub", "prefix": "oidc:" },
                "groups": { "claim": "groups", "prefix": "" },
            },
        }],
    });
    std::fs::write(&path, file.to_string())?;
    let flag = format!("--authentication-config={}", path.display());
    let setup = setup.arg(&flag);
    let hub = HubProcess::start(&setup).await?;
    Ok((setup, hub))
}

/// A kubectl of somebody who has this token.
async fn kubectl(setup: &HubSetup, hub: &HubProcess, name: &str, token: &str) -> Result<Kubectl> {
    let text = hub.kubectl().run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
    let mut config: Value = serde_json::from_str(&text)?;
    config["users"][0]["user"] = json!({ "token": token });
    let path = setup.folder().join(format!("{name}.kubeconfig"));
    std::fs::write(&path, config.to_string())?;
    Kubectl::new(&path)
}

#[tokio::test]
async fn people_of_a_real_provider_use_kubectl_also_while_its_keys_change_and_it_is_down() -> Result<()> {
    let mut provider = OpenIdProvider::start().await?;
    let (setup, hub) = hub(&provider).await?;
    // By a key of each kind.
    for client in ["kubernetes", "by-ec", "by-ed"] {
        let token = provider.sign_in(client, "jane").await?;
        let user = whoami(&kubectl(&setup, &hub, client, &token).await?).await.context(client)?;
        ensure!(user["username"] == "oidc:jane", "{user}");
        ensure!(user["groups"] == json!(["dev", "system:authenticated"]), "{user}");
        let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
        ensure!(id.starts_with("JTI="), "{user}");
    }
    let for_another = provider.sign_in("another", "jane").await?;
    refused(&kubectl(&setup, &hub, "another", &for_another).await?).await?;
    let token = provider.sign_in("kubernetes", "jane").await?;
    let jane = kubectl(&setup, &hub, "jane", &token).await?;
    let joe = provider.sign_in("kubernetes", "joe").await?;
    let joe = kubectl(&setup, &hub, "joe", &joe).await?;

    // The group's binding lets jane, and the user's joe.
    let admin = hub.kubectl();
    admin.run(&["create", "namespace", "apps"]).await?;
    let list = ["get", "configmaps", "-n", "apps"];
    ensure!(jane.run(&list).await.is_err() && joe.run(&list).await.is_err(), "allowed without a binding");
    admin.run(&["create", "rolebinding", "dev", "--clusterrole=view", "--group=dev", "-n", "apps"]).await?;
    eventually("jane may", PATIENCE, || async { jane.run(&list).await.map(drop) }).await?;
    let error = joe.run(&list).await.err().context("joe may by a group that he is not in")?;
    ensure!(format!("{error:#}").contains(r#"User "oidc:joe" cannot list"#), "{error:#}");
    admin
        .run(&["create", "rolebinding", "joe", "--clusterrole=view", "--user=oidc:joe", "-n", "apps"])
        .await?;
    eventually("joe may", PATIENCE, || async { joe.run(&list).await.map(drop) }).await?;
    ensure!(jane.run(&["get", "secrets", "-n", "apps"]).await.is_err(), "view shows Secrets");

    // Down: what was signed before goes on.
    provider.stop().await?;
    jane.run(&list).await.context("the provider is down")?;

    // Back with other keys, of which the hub learns by the first token.
    provider.start_again().await?;
    let token = provider.sign_in("kubernetes", "jane").await?;
    let again = kubectl(&setup, &hub, "jane-again", &token).await?;
    eventually("a token of the new key is taken", PATIENCE, || async { again.run(&list).await.map(drop) })
        .await?;
    eventually("one of the old key is not", PATIENCE, || async { refused(&jane).await }).await?;

    let log = hub.logs();
    ensure!(log.contains("it is for another audience"), "the log does not say why a token was refused");
    ensure!(log.contains("begin with system:"), "the log does not say that a group was left out");
    for secret in [&token, &for_another] {
        let signature = secret.rsplit('.').next().context("a signature")?;
        ensure!(!log.contains(signature), "a token is in the log");
    }
    Ok(())
}

#[tokio::test]
async fn a_hub_does_not_start_with_a_configuration_that_is_not_right() -> Result<()> {
    let setup = HubSetup::new("oidc-wrong").await?;
    let path = setup.folder().join("authentication.yaml");
    let flag = format!("--authentication-config={}", path.display());
    let setup = setup.arg(&flag);
    for (text, want) in [
        (
            "kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\njwt: [{issuer: {url: 'http://a.test'}}]\n",
            "jwt[0].issuer.url: must be an https URL",
        ),
        (
            "kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\njwt: [{issuer: {url: 'https://a.test', \
          audiences: [a], certificateAuthority: nonsense}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n",
            "jwt[0].issuer.certificateAuthority: ",
        ),
    ] {
        std::fs::write(&path, text)?;
        let error = HubProcess::start(&setup).await.err().context("it started")?;
        ensure!(format!("{error:#}").contains(want), "{error:#}");
    }
    Ok(())
}
