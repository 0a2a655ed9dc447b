//! Watches and streams end when what their client came with is taken back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use reqwest::{Response, StatusCode};
use roadstead_hub_api::ApiOptions;
use roadstead_hub_core::identity::Identity;
use roadstead_tests::eventually;
use serde_json::json;

use crate::support::{Replica, Site, client};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const WATCH: &str = "/api/v1/namespaces?watch=true&allowWatchBookmarks=true";
const STREAM: &str = "/fleet/v1/changes";

/// A client's name, and whether it comes with a session of the dashboard.
struct Client {
    token: String,
    session: Option<String>,
}

impl Client {
    async fn opens(&self, replica: &Replica, path: &str) -> Result<Response> {
        let request = client(replica)?.get(format!("{}{path}", replica.url));
        let request = match &self.session {
            None => request.bearer_auth(&self.token),
            Some(session) => request
                .header("cookie", format!("__Host-roadstead-session={session}"))
                .header("sec-fetch-site", "same-origin")
                .header("x-roadstead-dashboard", "1"),
        };
        let answer = request.send().await?;
        ensure!(answer.status() == StatusCode::OK, "{path}: {}", answer.status());
        Ok(answer)
    }
}

/// A user of this name, with a token that may see everything.
async fn user(replica: &Replica, name: &str) -> Result<Client> {
    let user = format!("--user={name}");
    replica.kubectl.run(&["create", "clusterrolebinding", name, "--clusterrole=fleet-admin", &user]).await?;
    let token = replica.hub.identity.create_access_token(name, &[], None).await?.expose().to_owned();
    let found = Client { token, session: None };
    eventually("the binding is known", PATIENCE, || async { found.opens(replica, WATCH).await.map(drop) })
        .await?;
    Ok(found)
}

async fn takes_back(replica: &Replica, name: &str) -> Result<()> {
    let identity = &replica.hub.identity;
    let all = identity.list_tokens(&Identity::hub(), false).await?;
    let id = all.iter().find(|item| item.username == name).context("the token")?.id.clone();
    identity.revoke_token(&Identity::hub(), &id).await?;
    Ok(())
}

/// Reads until there is nothing more to come.
async fn end(answer: Response) -> Result<()> {
    let read = answer.bytes_stream().for_each(|_| std::future::ready(()));
    tokio::time::timeout(PATIENCE, read).await.context("it goes on")
}

#[tokio::test]
async fn who_is_not_known_any_more_sees_nothing_more() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { check_credentials: Duration::from_millis(200), ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let (jane, ada) = (user(&replica, "jane").await?, user(&replica, "ada").await?);
    let start = format!("{}/fleet/v1/sign-in/token", replica.url);
    let begins = client(&replica)?.post(start).header("sec-fetch-site", "same-origin");
    let begun =
        begins.header("x-roadstead-dashboard", "1").json(&json!({ "token": ada.token })).send().await?;
    let cookie = begun.headers().get("set-cookie").context("a cookie")?.to_str()?.to_owned();
    let session = cookie.split(['=', ';']).nth(1).context("a session")?.to_owned();
    let dashboard = Client { token: String::new(), session: Some(session) };
    let (mut watch, stream) = (jane.opens(&replica, WATCH).await?, jane.opens(&replica, STREAM).await?);
    let of_dashboard = dashboard.opens(&replica, STREAM).await?;
    let mut of_master = Client { token: replica.token.clone(), session: None }.opens(&replica, WATCH).await?;
    // It was looked at several times that they are known.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(watch.chunk().await?.is_some() && of_master.chunk().await?.is_some());

    takes_back(&replica, "jane").await?;
    end(watch).await.context("the watch")?;
    end(stream).await.context("the stream")?;

    let out = client(&replica)?.post(format!("{}/fleet/v1/sign-in/end", replica.url));
    let out = out.header("cookie", format!("__Host-roadstead-session={}", dashboard.session.context("it")?));
    let out = out.header("sec-fetch-site", "same-origin").header("x-roadstead-dashboard", "1").send().await?;
    ensure!(out.status() == StatusCode::OK, "{}", out.status());
    end(of_dashboard).await.context("the dashboard's stream")?;

    // Whoever is known as before sees what goes on.
    replica.kubectl.run(&["create", "namespace", "later"]).await?;
    let mut seen = String::new();
    while !seen.contains("\"later\"") {
        let chunk = tokio::time::timeout(PATIENCE, of_master.chunk()).await.context("nothing comes")??;
        seen.push_str(std::str::from_utf8(&chunk.context("it has ended")?)?);
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_ends_after_a_while_whatever_its_client_came_with() -> Result<()> {
    let site = Site::new().await?;
    let options = ApiOptions { longest_answer: Duration::from_millis(300), ..ApiOptions::default() };
    let replica = site.replica_with(options).await?;
    let jane = user(&replica, "jane").await?;
    for path in [STREAM, WATCH] {
        end(jane.opens(&replica, path).await?).await.context(path)?;
    }
    Ok(())
}

/// Who is taken for somebody else sees what goes on as long as both rights are there: also where that one may do everything.
#[tokio::test]
async fn what_is_watched_by_impersonation_ends_with_the_right_to_impersonate() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let (ada, _) = (user(&replica, "ada").await?, user(&replica, "bob").await?);
    let opens = async |path: &str, group: Option<&str>| {
        let request = client(&replica)?.get(format!("{}{path}", replica.url)).bearer_auth(&ada.token);
        let request = request.header("impersonate-user", "bob");
        let request = match group {
            Some(group) => request.header("impersonate-group", group),
            None => request,
        };
        let answer = request.send().await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        Ok(answer)
    };
    // Ada may do what a fleet-admin may, which this is not.
    ensure!(opens(WATCH, None).await.is_err());
    let kubectl = &replica.kubectl;
    let rights = ["--verb=impersonate", "--resource=users,groups"];
    kubectl.run(&[&["create", "clusterrole", "as-bob"][..], &rights].concat()).await?;
    kubectl.run(&["create", "clusterrolebinding", "as-bob", "--clusterrole=as-bob", "--user=ada"]).await?;
    eventually("the binding is known", PATIENCE, || async { opens(WATCH, None).await.map(drop) }).await?;
    let mut opened = Vec::new();
    for (path, group) in
        [WATCH, STREAM].into_iter().flat_map(|path| [(path, None), (path, Some("system:masters"))])
    {
        opened.push((path, group, opens(path, group).await?));
    }
    kubectl.run(&["delete", "clusterrolebinding", "as-bob"]).await?;
    for (path, group, answer) in opened {
        end(answer).await.with_context(|| format!("{path} with {group:?}"))?;
    }
    Ok(())
}
