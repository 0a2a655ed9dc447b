//! Events that are published on NATS, and what is said of servers that do not take them.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::KindId;
use roadstead_test_gitserver::install_crypto;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{Alerted, CANARY, happens, options, pass, provider};
use crate::support::Site;

/// A server that takes what is published, and says this where there is something to say; and the lines that it heard.
async fn server(answer: &'static str) -> Result<(String, Arc<Mutex<Vec<String>>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("nats://{}", listener.local_addr()?);
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let shared = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let heard = Arc::clone(&shared);
            // Whoever goes away ends it.
            tokio::spawn(async move { serve(stream, answer, &heard).await.ok() });
        }
    });
    Ok((address, heard))
}

async fn serve(stream: TcpStream, answer: &str, heard: &Mutex<Vec<String>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(b"INFO {\"max_payload\":1048576,\"headers\":true}\r\n").await?;
    let (mut line, mut pings) = (String::new(), 0);
    while stream.read_line(&mut line).await? > 0 {
        if line.starts_with("PING") {
            pings += 1;
            stream.get_mut().write_all(if pings == 1 { b"PONG\r\n" } else { answer.as_bytes() }).await?;
        }
        heard.lock().unwrap_or_else(PoisonError::into_inner).push(line.trim_end().to_owned());
        line.clear();
    }
    Ok(())
}

fn lines(heard: &Mutex<Vec<String>>) -> Vec<String> {
    heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn secret(site: &Site, key: &str, value: &str) -> Result<()> {
    let metadata = json!({ "namespace": "apps", "name": "login" });
    let data = json!({ key: STANDARD.encode(value) });
    site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data })).await?;
    Ok(())
}

#[tokio::test]
async fn events_are_published_and_a_repeat_has_the_same_id() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let (address, heard) = server("PONG\r\n").await?;
    let spec = json!({ "type": "nats", "address": address, "channel": "fleet.events" });
    alerted.site.apply(provider("apps", spec)).await?;
    alerted.happens("it fails").await?;
    alerted.pass().await?;
    ensure!(alerted.is_ready().await?.0 == "Succeeded", "{:?}", alerted.is_ready().await?);
    let said = lines(&heard);
    let at = said.iter().position(|line| line.starts_with("HPUB fleet.events ")).unwrap_or_default();
    ensure!(said[at + 1] == "NATS/1.0" && said[at + 2].starts_with("Nats-Msg-Id: "), "{said:?}");
    let body: Value = serde_json::from_str(&said[at + 4])?;
    ensure!(body["message"] == "it fails" && body["metadata"]["cluster"] == "edge-1", "{body}");
    // As after a hub that went in the middle.
    sqlx::query("UPDATE delivery SET state = 'waiting', began_at = now()")
        .execute(&mut alerted.site.database.connect().await?)
        .await?;
    alerted.pass().await?;
    let again = lines(&heard)[said.len()..].to_vec();
    ensure!(
        again.contains(&said[at + 2]) && again.contains(&"X-Roadstead-Repeat: true".to_owned()),
        "{again:?}"
    );
    Ok(())
}

#[tokio::test]
async fn what_a_server_does_not_take_is_told_without_its_words() -> Result<()> {
    let alerted = Alerted::new("generic").await?;
    let refuses = "-ERR 'Permissions Violation for Publish to \"c4n4ry\"'\r\nPONG\r\n";
    let (address, _) = server(refuses).await?;
    let spec = json!({ "type": "nats", "address": address, "channel": "fleet.events" });
    alerted.site.apply(provider("apps", spec)).await?;
    alerted.happens("it fails").await?;
    alerted.pass().await?;
    let (reason, message) = alerted.is_ready().await?;
    ensure!(reason == "NotificationDispatchFailed" && message.contains("may not publish"), "{message}");
    ensure!(!message.contains("c4n4ry"), "{message}");
    ensure!(alerted.states().await? == [("waiting".to_owned(), 1)]);
    Ok(())
}

#[tokio::test]
async fn a_provider_says_what_is_wrong_with_its_servers_and_login() -> Result<()> {
    install_crypto();
    let site = Site::with(options(false)).await?;
    site.namespace("apps").await?;
    let (address, heard) = server("PONG\r\n").await?;
    let spec = |address: &str, channel: &str, login: bool| {
        let mut spec = json!({ "type": "nats", "address": address, "channel": channel });
        if login {
            spec["secretRef"] = json!({ "name": "login" });
        }
        spec
    };
    for (spec, key, part) in [
        (spec(&address, "", false), "", "spec.channel is needed"),
        (spec("", "fleet", false), "", "no address is set"),
        (spec(&address, "fleet.>", false), "", "wildcard"),
        (spec(&address, "fleet..events", false), "", "not a subject"),
        (spec("wss://bus.test", "fleet", false), "", "WebSockets"),
        (spec("http://bus.test", "fleet", false), "", "nats://HOST"),
        (spec(&address, "fleet", true), "nkey", "key nkey: it is not the seed"),
        (spec(&address, "fleet", true), "creds", "key creds: it has no block"),
    ] {
        if !key.is_empty() {
            secret(&site, key, CANARY).await?;
        }
        site.apply(provider("apps", spec.clone())).await?;
        let uid = site.stored(KindId::Provider, "apps", "chat").await?.uid;
        site.hub.notify.process_provider(uid).await?;
        let (reason, message) = site.ready(KindId::Provider, "apps", "chat").await?;
        ensure!(reason == "ValidationFailed" && message.contains(part), "{spec}: {reason}: {message}");
        ensure!(!message.contains(CANARY), "{message}");
        site.delete(KindId::Provider, "apps", "chat").await?;
        if !key.is_empty() {
            site.delete(KindId::Secret, "apps", "login").await?;
        }
    }
    // What a Secret holds is not said in the clear.
    secret(&site, "token", CANARY).await?;
    site.apply(provider("apps", spec(&address, "fleet", true))).await?;
    site.apply(super::alert("apps", json!({ "eventSources": [{ "kind": "Kustomization", "name": "*" }] })))
        .await?;
    happens(&site, "apps", "web", "it fails").await?;
    pass(&site.hub, &site, "apps").await?;
    let (_, message) = site.ready(KindId::Alert, "apps", "alert").await?;
    ensure!(message.contains("in the clear") && lines(&heard).is_empty(), "{message} {:?}", lines(&heard));
    Ok(())
}
