//! Providers that a cloud knows: a token is asked for, kept, and shown to that cloud's service alone.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_cloud::{Address, OwnHosts, TokenServices};
use roadstead_hub_core::sources::CloudOptions;
use roadstead_hub_core::{HubOptions, Outbound};
use roadstead_outbound::{Policy, Proxies};
use roadstead_test_gitserver::{APP_KEY, install_crypto};
use roadstead_tests::sink::{Answer, Sink};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{alert, happens, news, pass, provider};
use crate::support::Site;

const TOKEN: &str = r#"{"access_token":"cl0ud-t0ken","expires_in":3600}"#;

fn options(tokens: &Sink, own: Option<&Sink>) -> Result<HubOptions> {
    let policy = ["notify=127.0.0.1/32", "cloud=127.0.0.1/32"].map(str::parse);
    let policy = Arc::new(Policy::new(policy.into_iter().collect::<Result<Vec<_>, _>>()?));
    let outbound = Outbound { policy, proxies: Arc::new(Proxies::none()), plain_http_credentials: true };
    let hosts: OwnHosts = match own {
        Some(sink) => format!("azure={}", sink.url.trim_start_matches("http://")).parse()?,
        None => OwnHosts::default(),
    };
    let services =
        TokenServices { azure_authority: Some(Address::parse(&tokens.url)?), ..TokenServices::default() };
    let clouds = CloudOptions { services, hosts, ..CloudOptions::default() };
    Ok(HubOptions { outbound, clouds, object_level_workload_identity: true, ..HubOptions::default() })
}

/// A proxy behind which a host is a sink: its URL, and the sink's certificate.
async fn beyond(sink: &Sink, host: &str) -> Result<(String, String)> {
    let own = rcgen::generate_simple_self_signed(vec![host.to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let to = sink.url.trim_start_matches("http://").to_owned();
    let asked = format!("CONNECT {host}:443 HTTP/1.1\r\n");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (acceptor, to, asked) = (acceptor.clone(), to.clone(), asked.clone());
            // Whoever goes away ends it.
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await?);
                }
                if !head.starts_with(asked.as_bytes()) {
                    return stream.write_all(b"HTTP/1.1 403 X\r\n\r\n").await;
                }
                stream.write_all(b"HTTP/1.1 200 X\r\n\r\n").await?;
                let mut stream = acceptor.accept(stream).await?;
                let mut sink = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut stream, &mut sink).await.map(drop)
            });
        }
    });
    Ok((url, own.cert.pem()))
}

async fn secret(site: &Site, name: &str, data: Value) -> Result<()> {
    let data: serde_json::Map<String, Value> = data
        .as_object()
        .context("a map")?
        .iter()
        .map(|(key, value)| (key.clone(), STANDARD.encode(value.as_str().unwrap_or_default()).into()))
        .collect();
    let metadata = json!({ "namespace": "apps", "name": name });
    site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data })).await?;
    Ok(())
}

async fn account(site: &Site) -> Result<()> {
    let annotations = json!({ "azure.workload.identity/tenant-id": "11111111-2222-3333-4444-555555555555",
        "azure.workload.identity/client-id": "66666666-7777-8888-9999-000000000000" });
    let metadata = json!({ "namespace": "apps", "name": "sender", "annotations": annotations });
    site.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata })).await?;
    Ok(())
}

async fn listen(site: &Site) -> Result<()> {
    site.apply(alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] }))).await?;
    Ok(())
}

async fn provider_says(site: &Site, spec: Value) -> Result<(String, String)> {
    site.apply(provider("apps", spec)).await?;
    let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid;
    site.hub.notify.process_provider(uid).await?;
    site.ready(KindId::Provider, "apps", "chat").await
}

#[tokio::test]
async fn a_topic_of_google_is_published_to_by_a_service_accounts_key() -> Result<()> {
    install_crypto();
    let (sink, tokens) = (Sink::start().await?, Sink::start().await?);
    let site = Site::with(options(&tokens, None)?).await?;
    site.namespace("apps").await?;
    let (proxy, ca) = beyond(&sink, "pubsub.googleapis.com").await?;
    let key = json!({ "type": "service_account", "client_email": "sender@p.iam.gserviceaccount.com", "private_key_id": "k",
        "private_key": APP_KEY, "token_uri": format!("{}/token", tokens.url) });
    secret(&site, "key", json!({ "token": key.to_string(), "headers": "env: production" })).await?;
    secret(&site, "proxy", json!({ "address": proxy })).await?;
    secret(&site, "ca", json!({ "ca.crt": ca })).await?;
    let spec = json!({ "type": "googlepubsub", "address": "my-project", "channel": "fleet-events", "secretRef": { "name": "key" },
        "proxySecretRef": { "name": "proxy" }, "certSecretRef": { "name": "ca" } });
    let (reason, message) = provider_says(&site, spec).await?;
    ensure!(reason == "Succeeded" && tokens.posts().is_empty(), "{reason}: {message}");
    listen(&site).await?;
    tokens.answers_always(Answer::Http(200, "", TOKEN));
    for what in ["it fails", "it fails again"] {
        happens(&site, "apps", "web", what).await?;
        pass(&site.hub, &site, "apps").await?;
    }
    let got = sink.got();
    ensure!(got.len() == 2, "{got:?} {:?}", site.ready(KindId::Alert, "apps", "alert").await?);
    let (head, body) = &got[0];
    ensure!(head.starts_with("post /v1/projects/my-project/topics/fleet-events:publish http/1.1"), "{head}");
    ensure!(head.contains("authorization: bearer cl0ud-t0ken"), "{head}");
    let sent = &body["messages"][0];
    let event: Value = serde_json::from_slice(&STANDARD.decode(sent["data"].as_str().context("data")?)?)?;
    ensure!(event["message"] == "it fails" && event["involvedObject"]["name"] == "web", "{event}");
    ensure!(sent["attributes"]["env"] == "production" && !body.to_string().contains("private"), "{sent}");
    // One token for both, which shows the key to nobody.
    let asked = tokens.posts();
    ensure!(asked.len() == 1 && !String::from_utf8_lossy(&asked[0].1).contains("PRIVATE"), "{asked:?}");
    // A token that is not taken is not kept.
    sink.answers(&[Answer::Http(401, "", "")]);
    happens(&site, "apps", "web", "with another token").await?;
    pass(&site.hub, &site, "apps").await?;
    let (_, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(message.contains("HTTP 401"), "{message}");
    Ok(())
}

#[tokio::test]
async fn an_account_of_the_namespace_sends_to_azure() -> Result<()> {
    install_crypto();
    let (sink, tokens) = (Sink::start().await?, Sink::start().await?);
    let site = Site::with(options(&tokens, Some(&sink))?).await?;
    site.namespace("apps").await?;
    account(&site).await?;
    tokens.answers_always(Answer::Http(200, "", TOKEN));
    listen(&site).await?;
    let (proxy, ca) = beyond(&sink, "space.servicebus.windows.net").await?;
    secret(&site, "proxy", json!({ "address": proxy })).await?;
    secret(&site, "ca", json!({ "ca.crt": ca })).await?;
    let hub = json!({ "type": "azureeventhub", "address": "fleet", "channel": "space", "serviceAccountName": "sender",
        "proxySecretRef": { "name": "proxy" }, "certSecretRef": { "name": "ca" } });
    let (reason, message) = provider_says(&site, hub).await?;
    ensure!(reason == "Succeeded", "{reason}: {message}");
    happens(&site, "apps", "web", "to the hub").await?;
    pass(&site.hub, &site, "apps").await?;
    let got = sink.got();
    ensure!(got.len() == 1, "{got:?} {:?}", site.ready(KindId::Alert, "apps", "alert").await?);
    let (head, body) = &got[0];
    ensure!(
        head.starts_with("post /fleet/messages ") && head.contains("authorization: bearer cl0ud-t0ken"),
        "{head}"
    );
    ensure!(body["message"] == "to the hub", "{body}");
    let asked = String::from_utf8_lossy(&tokens.posts()[0].1).into_owned();
    ensure!(asked.contains("eventhubs.azure.net") && asked.contains("client_assertion="), "{asked}");
    // The status of a commit, by the same account: the token is another one's.
    sink.answers(&[Answer::Http(200, "", r#"{"value":[]}"#)]);
    let devops = json!({ "type": "azuredevops", "address": format!("{}/org/project/_git/r", sink.url), "serviceAccountName": "sender" });
    let (reason, message) = provider_says(&site, devops).await?;
    ensure!(reason == "Succeeded", "{reason}: {message}");
    let mut of_commit = news("apps", "web", "it fails", "error");
    of_commit.event["metadata"] =
        json!({ "kustomize.toolkit.fluxcd.io/revision": format!("main@sha1:{}", "a".repeat(40)) });
    let mut tx = site.store.begin().await?;
    tx.tell(of_commit);
    tx.commit().await?;
    pass(&site.hub, &site, "apps").await?;
    let got = sink.got();
    ensure!(got.len() == 3, "{got:?} {:?}", site.ready(KindId::Alert, "apps", "alert").await?);
    ensure!(got[2].0.starts_with("post /org/project/_apis/git/repositories/r/commits/"), "{}", got[2].0);
    ensure!(got.iter().all(|(head, _)| head.contains("authorization: bearer cl0ud-t0ken")), "{got:?}");
    let asked = String::from_utf8_lossy(&tokens.posts()[1].1).into_owned();
    ensure!(asked.contains("499b84ac-1321-427f-aa17-267ca6975798"), "{asked}");
    Ok(())
}

#[tokio::test]
async fn nobody_sends_as_somebody_that_they_are_not() -> Result<()> {
    install_crypto();
    let (sink, tokens) = (Sink::start().await?, Sink::start().await?);
    let gated = HubOptions { object_level_workload_identity: false, ..options(&tokens, None)? };
    let devops = |more: Value| {
        let mut spec =
            json!({ "type": "azuredevops", "address": format!("{}/org/project/_git/r", sink.url) });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    };
    let sender = || devops(json!({ "serviceAccountName": "sender" }));
    let site = Site::with(gated).await?;
    site.namespace("apps").await?;
    let (reason, message) = provider_says(&site, sender()).await?;
    ensure!(
        reason == "FeatureGateDisabled" && message.contains("--object-level-workload-identity"),
        "{message}"
    );
    let site = Site::with(options(&tokens, None)?).await?;
    site.namespace("apps").await?;
    secret(&site, "wrong", json!({ "token": "c4n4ry" })).await?;
    for (spec, reason, part) in [
        (sender(), "AuthenticationFailed", "'apps/sender' of spec.serviceAccountName not found"),
        (devops(json!({})), "AccessDenied", "--hub-cloud-identity"),
        (
            json!({ "type": "googlepubsub", "address": "my-project", "channel": "topic" }),
            "AccessDenied",
            "put a token there, or name a ServiceAccount",
        ),
        (
            json!({ "type": "googlepubsub", "address": "my-project", "channel": "topic", "secretRef": { "name": "wrong" } }),
            "ValidationFailed",
            "key token: it is not the JSON",
        ),
    ] {
        let (told, message) = provider_says(&site, spec.clone()).await?;
        ensure!(
            told == reason && message.contains(part) && !message.contains("c4n4ry"),
            "{spec}: {told}: {message}"
        );
    }
    // An account's token goes to its cloud alone, whatever the address is.
    account(&site).await?;
    listen(&site).await?;
    let (reason, message) = provider_says(&site, sender()).await?;
    ensure!(reason == "Succeeded", "{reason}: {message}");
    let mut of_commit = news("apps", "web", "it fails", "error");
    of_commit.event["metadata"] =
        json!({ "kustomize.toolkit.fluxcd.io/revision": format!("main@sha1:{}", "a".repeat(40)) });
    let mut tx = site.store.begin().await?;
    tx.tell(of_commit);
    tx.commit().await?;
    pass(&site.hub, &site, "apps").await?;
    let (_, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(message.contains("--allow-cloud-host azure="), "{message}");
    ensure!(sink.posts().is_empty() && tokens.posts().is_empty());
    Ok(())
}
