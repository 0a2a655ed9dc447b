//! Receivers: whose objects they have reconciled, and whom issuers vouch for.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderMap;
use roadstead_api::KindId;
use roadstead_hooks::Call;
use roadstead_hub_core::hooks::NotTaken;
use roadstead_hub_core::{HubOptions, Outbound};
use roadstead_outbound::{Policy, Proxies};
use roadstead_test_gitserver::install_crypto;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{FLEET, Site, child, file, git_repository, team_a, web};

const ASKED: &str = "/metadata/annotations/reconcile.fluxcd.io~1requestedAt";

fn receiver(namespace: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "type": "generic", "secretRef": { "name": "hook" } },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn secret(namespace: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": "hook" },
            "data": { "token": STANDARD.encode(format!("token of {namespace}")) } })
}

/// A pass over a Receiver: its path, or the reason and the message of its Ready condition.
async fn path(site: &Site, namespace: &str, name: &str) -> Result<Result<String, (String, String)>> {
    let uid = site.stored(KindId::Receiver, namespace, name).await?.uid;
    site.hub.hooks.process_receiver(uid).await?;
    let stored = site.stored(KindId::Receiver, namespace, name).await?;
    Ok(match stored.object["status"]["webhookPath"].as_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(site.ready(KindId::Receiver, namespace, name).await?),
    })
}

/// What comes of a call with these headers.
async fn call(site: &Site, path: &str, headers: &HeaderMap) -> Result<Result<usize, NotTaken>> {
    let called = site.hub.hooks.called(path).await?.context("nothing is called there")?;
    let call = Call { headers, body: b"" };
    let proven = match site.hub.hooks.prove(&called, &call).await {
        Ok(proven) => proven,
        Err(why) => return Ok(Err(why)),
    };
    Ok(Ok(site.hub.hooks.act(called, proven, json!({})).await?.objects))
}

async fn is_asked(site: &Site, namespace: &str, name: &str) -> Result<bool> {
    let stored = site.stored(KindId::GitRepository, namespace, name).await?;
    Ok(stored.object.pointer(ASKED).is_some())
}

#[tokio::test]
async fn a_receiver_has_nothing_of_another_namespace_reconciled() -> Result<()> {
    let site = Site::new().await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
        site.apply(secret(namespace)).await?;
        site.apply(git_repository(namespace, "app", "https://git.example.com/app.git")).await?;
    }
    let elsewhere = json!({ "resources": [
        { "kind": "GitRepository", "name": "app" }, { "kind": "GitRepository", "name": "app", "namespace": "team-b" },
    ] });
    let member = site.member("team-a").await?;
    site.apply_as(&member, receiver("team-a", "hook", &elsewhere)).await?;
    let (reason, message) = path(&site, "team-a", "hook").await?.err().context("it has a path")?;
    ensure!(reason == "AccessDenied" && message.contains("spec.resources[1]"), "{reason}: {message}");
    ensure!(message.contains("'team-b'"), "{message}");
    // Named in so many words, its own namespace is its own.
    let own = json!({ "resources": [{ "kind": "GitRepository", "name": "app", "namespace": "team-a" }] });
    site.apply(receiver("team-a", "hook", &own)).await?;
    let path = path(&site, "team-a", "hook").await?.ok().context("no path")?;
    ensure!(call(&site, &path, &HeaderMap::new()).await?? == 1);
    ensure!(is_asked(&site, "team-a", "app").await? && !is_asked(&site, "team-b", "app").await?);
    Ok(())
}

#[tokio::test]
async fn a_receiver_reaches_another_namespace_by_its_writers_right_or_a_grant() -> Result<()> {
    let site = Site::new().await?;
    for namespace in ["team-a", "team-b"] {
        site.namespace(namespace).await?;
    }
    site.apply(secret("team-a")).await?;
    for name in ["app", "other"] {
        let mut source = git_repository("team-b", name, "https://git.example.com/app.git");
        source["metadata"]["labels"] = json!({ "hook": "yes" });
        site.apply(source).await?;
    }
    let all = json!({ "resources": [
        { "kind": "GitRepository", "name": "*", "namespace": "team-b", "matchLabels": { "hook": "yes" } },
    ] });
    let member = site.member("team-a").await?;
    site.apply_as(&member, receiver("team-a", "hook", &all)).await?;
    ensure!(path(&site, "team-a", "hook").await?.is_err(), "it has a path");
    // A grant for one of them is for that one.
    site.apply(json!({ "apiVersion": FLEET, "kind": "ReferenceGrant", "metadata": { "namespace": "team-b", "name": "hooks" },
        "spec": { "from": [{ "group": "notification.toolkit.fluxcd.io", "kind": "Receiver", "namespace": "team-a" }],
            "to": [{ "group": "source.toolkit.fluxcd.io", "kind": "GitRepository", "name": "app" }] } }))
        .await?;
    let by_grant = path(&site, "team-a", "hook").await?.map_err(|why| anyhow::anyhow!("{why:?}"))?;
    ensure!(call(&site, &by_grant, &HeaderMap::new()).await?? == 1);
    ensure!(is_asked(&site, "team-b", "app").await? && !is_asked(&site, "team-b", "other").await?);
    site.delete(KindId::ReferenceGrant, "team-b", "hooks").await?;
    ensure!(path(&site, "team-a", "hook").await?.is_err(), "it has a path without the grant");
    // Whoever may list them writes that all are meant.
    site.apply(receiver("team-a", "all", &all)).await?;
    let by_right = path(&site, "team-a", "all").await?.map_err(|why| anyhow::anyhow!("{why:?}"))?;
    ensure!(call(&site, &by_right, &HeaderMap::new()).await?? == 2);
    ensure!(is_asked(&site, "team-b", "other").await?);
    Ok(())
}

#[tokio::test]
async fn a_receiver_from_git_acts_on_its_family_and_on_nobody_else() -> Result<()> {
    let of_git = receiver(
        "flux-system",
        "push",
        &json!({ "resources": [
            { "kind": "GitRepository", "name": "fleet", "namespace": "flux-system" },
            { "kind": "Kustomization", "name": "web" },
            { "kind": "GitRepository", "name": "*", "namespace": "team-b", "matchLabels": { "hook": "yes" } },
        ] }),
    );
    let site = team_a(json!({}), &[file("root/all.yaml", &[of_git, child("web", json!({}))]), web()]).await?;
    site.apply(secret("team-a")).await?;
    let mut other = git_repository("team-b", "theirs", "https://git.example.com/b.git");
    other["metadata"]["labels"] = json!({ "hook": "yes" });
    site.apply(other).await?;
    site.process("team-a", "app").await?;
    let path = path(&site, "team-a", "push").await?.map_err(|why| anyhow::anyhow!("{why:?}"))?;
    ensure!(call(&site, &path, &HeaderMap::new()).await?? == 2, "its source, and its sibling");
    ensure!(is_asked(&site, "team-a", "fleet").await?);
    ensure!(site.stored(KindId::Kustomization, "team-a", "web").await?.object.pointer(ASKED).is_some());
    ensure!(!is_asked(&site, "team-b", "theirs").await?, "another team's source was fetched");
    Ok(())
}

/// An issuer that publishes one key, over plain HTTP.
async fn issuer(key: &EcdsaKeyPair) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let point = key.public_key().as_ref();
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "one", "x": part(&point[1..33]), "y": part(&point[33..]) }] });
    let configuration = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let read = stream.read(&mut request).await.unwrap_or_default();
            let is_keys = request[..read].starts_with(b"GET /keys ");
            let body = if is_keys { keys.to_string() } else { configuration.to_string() };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            // Whoever has gone needs no answer.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    Ok(url)
}

fn bearer(key: &EcdsaKeyPair, claims: &Value) -> Result<HeaderMap> {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let text = format!("{}.{}", part(&json!({ "alg": "ES256", "kid": "one" })), part(claims));
    let signed = key.sign(&SystemRandom::new(), text.as_bytes()).ok().context("sign")?;
    let mut headers = HeaderMap::new();
    let value = format!("Bearer {text}.{}", URL_SAFE_NO_PAD.encode(signed.as_ref()));
    headers.insert("authorization", value.parse()?);
    Ok(headers)
}

fn outbound(networks: &[&str], plain_http_credentials: bool) -> Result<HubOptions> {
    let rules = networks.iter().map(|network| network.parse()).collect::<Result<Vec<_>, _>>()?;
    let policy = Arc::new(Policy::new(rules));
    let outbound = Outbound { policy, proxies: Arc::new(Proxies::none()), plain_http_credentials };
    Ok(HubOptions { outbound, ..HubOptions::default() })
}

async fn with_issuer(options: HubOptions, url: &str) -> Result<Site> {
    install_crypto();
    let site = Site::with(options).await?;
    site.namespace("team-a").await?;
    site.apply(git_repository("team-a", "app", "https://git.example.com/app.git")).await?;
    let mut object = receiver(
        "team-a",
        "ci",
        &json!({
            "type": "generic-oidc",
            "resources": [{ "kind": "GitRepository", "name": "app", "filter": "claims.sub.endsWith(res.metadata.name)" }],
            "oidcProviders": [{
                "issuerURL": url, "audience": "hub",
                "variables": [{ "name": "owner", "expression": "claims.sub.split('/')[0]" }],
                "validations": [{ "expression": "vars.owner == 'acme'", "message": "another owner" }],
            }],
        }),
    );
    object["spec"].as_object_mut().context("a spec")?.remove("secretRef");
    site.apply(object).await?;
    Ok(site)
}

#[tokio::test]
async fn an_issuer_vouches_for_callers_by_its_own_keys_only() -> Result<()> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok().context("a key")?;
    let other = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok().context("a key")?;
    let url = issuer(&key).await?;
    let site = with_issuer(outbound(&["oidc=127.0.0.0/8"], true)?, &url).await?;
    let path = path(&site, "team-a", "ci").await?.map_err(|why| anyhow::anyhow!("{why:?}"))?;
    let now = site.hub.now().as_second();
    let claims = |sub: &str| json!({ "iss": url, "aud": "hub", "exp": now + 60, "sub": sub });
    ensure!(call(&site, &path, &bearer(&key, &claims("acme/app"))?).await?? == 1);
    ensure!(is_asked(&site, "team-a", "app").await?);
    ensure!(
        call(&site, &path, &bearer(&key, &claims("acme/other"))?).await?? == 0,
        "the filter sees the claims"
    );
    let mut late = claims("acme/app");
    late["exp"] = json!(now - 1);
    let mut elsewhere = claims("acme/app");
    elsewhere["aud"] = json!("another");
    let mut unknown = claims("acme/app");
    unknown["iss"] = json!("https://unknown.test");
    for wrong in [
        bearer(&other, &claims("acme/app"))?,
        bearer(&key, &claims("evil/app"))?,
        bearer(&key, &late)?,
        bearer(&key, &elsewhere)?,
        bearer(&key, &unknown)?,
        HeaderMap::new(),
    ] {
        let why = call(&site, &path, &wrong).await?.err().context("it was taken")?;
        ensure!(matches!(why, NotTaken::NotProven(_)), "{why}");
    }
    Ok(())
}

#[tokio::test]
async fn issuers_are_asked_by_the_guarded_way_out_and_not_in_the_clear() -> Result<()> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok().context("a key")?;
    let url = issuer(&key).await?;
    let site = with_issuer(outbound(&["oidc=127.0.0.0/8"], false)?, &url).await?;
    let (reason, message) = path(&site, "team-a", "ci").await?.err().context("it has a path")?;
    ensure!(
        reason == "ValidationFailed" && message.contains("--allow-plain-http-credentials"),
        "{reason}: {message}"
    );
    let site = with_issuer(outbound(&["git=127.0.0.0/8"], true)?, &url).await?;
    let path = path(&site, "team-a", "ci").await?.map_err(|why| anyhow::anyhow!("{why:?}"))?;
    let claims =
        json!({ "iss": url, "aud": "hub", "exp": site.hub.now().as_second() + 60, "sub": "acme/app" });
    let why = call(&site, &path, &bearer(&key, &claims)?).await?.err().context("it was taken")?;
    ensure!(matches!(why, NotTaken::Issuer { .. }) && why.to_string().contains("--allow-network"), "{why}");
    Ok(())
}

#[tokio::test]
async fn what_a_call_is_shown_of_objects_is_bounded() -> Result<()> {
    const COUNT: usize = 20;
    let site = Site::new().await?;
    site.namespace("team-a").await?;
    site.apply(secret("team-a")).await?;
    let long = "x".repeat(240 << 10);
    for number in 0..COUNT {
        let url = format!("https://git.example.com/{number}.git");
        let mut source = git_repository("team-a", &format!("app-{number}"), &url);
        source["metadata"]["labels"] = json!({ "hook": "yes" });
        source["metadata"]["annotations"] = json!({ "long": long });
        site.apply(source).await?;
    }
    let all =
        json!({ "resources": [{ "kind": "GitRepository", "name": "*", "matchLabels": { "hook": "yes" } }] });
    site.apply(receiver("team-a", "hook", &all)).await?;
    let path = path(&site, "team-a", "hook").await?.ok().context("no path")?;
    let called = site.hub.hooks.called(&path).await?.context("nothing is called there")?;
    let proven = site.hub.hooks.prove(&called, &Call { headers: &HeaderMap::new(), body: b"" }).await?;
    let acted = site.hub.hooks.act(called, proven, json!({})).await?;
    // Some are reconciled, and it is told that not all are.
    ensure!(!acted.in_full && (1..COUNT).contains(&acted.objects), "{acted:?}");
    Ok(())
}
