//! Tokens of service accounts and reviews of tokens: what the hub answers beside what a real kube-apiserver answers to the same requests.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use roadstead_tests::{HubProcess, HubSetup, Kubectl, TestCluster, binary};
use serde_json::{Value, json};

/// A server, and the account whose tokens are asked for there.
struct Asked<'a> {
    kubectl: &'a Kubectl,
    namespace: &'a str,
    uid: String,
    issuer: String,
}

fn claims_of(token: &str) -> Result<Value> {
    let claims = token.split('.').nth(1).context("claims")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?)
}

impl<'a> Asked<'a> {
    async fn new(kubectl: &'a Kubectl, namespace: &'a str) -> Result<Self> {
        kubectl.run(&["create", "serviceaccount", "robot", "-n", namespace]).await?;
        let account = kubectl.get(&["serviceaccount", "robot", "-n", namespace]).await?;
        let uid = account["metadata"]["uid"].as_str().context("a uid")?.to_owned();
        let token = kubectl.run(&["create", "token", "robot", "-n", namespace]).await?;
        let issuer = claims_of(&token)?["iss"].as_str().context("an issuer")?.to_owned();
        Ok(Self { kubectl, namespace, uid, issuer })
    }

    /// An answer, or what kubectl says of a refusal, with what differs by nature replaced.
    async fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string().replace("ISSUER", &self.issuer);
        match self.kubectl.run_with(&["create", "--raw", path, "-f", "-"], &body).await {
            Ok(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
            Err(error) => json!({ "refused": format!("{error:#}") }),
        }
    }

    fn plain(&self, value: &Value) -> Result<Value> {
        let text = value.to_string().replace(&self.issuer, "ISSUER").replace(&self.uid, "UID");
        Ok(serde_json::from_str(&text)?)
    }

    async fn request(&self, body: &Value) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/robot/token", self.namespace);
        let mut answer = self.post(&path, body).await;
        if let Some(token) = answer["status"]["token"].as_str() {
            let mut claims = claims_of(token)?;
            let begin = claims["iat"].as_i64().context("a time")?;
            for claim in ["exp", "nbf", "iat"] {
                claims[claim] = (claims[claim].as_i64().context("a time")? - begin).into();
            }
            ensure!(claims["jti"].as_str().is_some_and(|id| id.len() == 36), "{claims}");
            claims["jti"] = "JTI".into();
            answer["status"]["token"] = claims;
            answer["status"]["expirationTimestamp"] = "TIME".into();
        }
        // Who wrote it, which the hub keeps of stored objects only.
        if let Some(metadata) = answer["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.entry("creationTimestamp").and_modify(|at| *at = "TIME".into());
        }
        self.plain(&answer)
    }

    /// A token for these audiences.
    async fn token(&self, audiences: &[&str]) -> Result<String> {
        let mut arguments = vec!["create", "token", "robot", "-n", self.namespace];
        let audiences: Vec<String> = audiences.iter().map(|one| format!("--audience={one}")).collect();
        arguments.extend(audiences.iter().map(String::as_str));
        Ok(self.kubectl.run(&arguments).await?.trim().to_owned())
    }

    async fn review(&self, token: &str, audiences: &[&str]) -> Result<Value> {
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let body = json!({ "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
            "spec": { "token": token, "audiences": audiences } });
        let mut answer = self.post(path, &body).await;
        // Who wrote it, which the hub keeps of stored objects only.
        if let Some(metadata) = answer["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            metadata.remove("creationTimestamp");
        }
        if let Some(credential) =
            answer.pointer_mut("/status/user/extra/authentication.kubernetes.io~1credential-id")
        {
            let id = credential[0].as_str().context("a credential's id")?;
            ensure!(id.starts_with("JTI=") && id.len() == 40, "{id}");
            *credential = "JTI".into();
        }
        answer["spec"]["token"] = Value::Null;
        self.plain(&answer)
    }
}

#[tokio::test]
async fn tokens_and_reviews_are_as_kube_apiservers() -> Result<()> {
    let setup = HubSetup::new("account-tokens").await?;
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let namespace = cluster.namespace("account-tokens").await?;
    hub.kubectl().run(&["create", "namespace", namespace.name()]).await?;
    let ours = Asked::new(hub.kubectl(), namespace.name()).await?;
    let theirs = Asked::new(cluster.kubectl(), namespace.name()).await?;

    let mut differ = Vec::new();
    let mut compare = |what: &Value, own: Value, real: Value| {
        if own != real {
            differ.push(format!("{what}\n  hub:  {own}\n  kube: {real}"));
        }
    };
    for spec in [
        json!({}),
        json!({ "expirationSeconds": 600 }),
        json!({ "expirationSeconds": 7200, "audiences": ["vault", "other"] }),
        json!({ "audiences": ["ISSUER", "other"] }),
        json!({ "expirationSeconds": 599 }),
        json!({ "expirationSeconds": 8_589_934_592_u64 }),
    ] {
        let body = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec });
        compare(&spec, ours.request(&body).await?, theirs.request(&body).await?);
    }
    let named = json!({ "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": { "name": "another" }, "spec": {} });
    compare(&named, ours.request(&named).await?, theirs.request(&named).await?);

    for made_for in [&[][..], &["vault", "other"]] {
        let (own, real) = (ours.token(made_for).await?, theirs.token(made_for).await?);
        for asked in [&[][..], &["vault"], &["vault", "ISSUER", "third"], &["third"]] {
            let what = json!([made_for, asked]);
            compare(&what, ours.review(&own, asked).await?, theirs.review(&real, asked).await?);
        }
    }
    compare(&json!("made-up"), ours.review("made-up", &[]).await?, theirs.review("made-up", &[]).await?);
    compare(&json!("none"), ours.review("", &[]).await?, theirs.review("", &[]).await?);
    let (own, real) = (ours.token(&[]).await?, theirs.token(&[]).await?);
    for asked in [&ours, &theirs] {
        asked.kubectl.run(&["delete", "serviceaccount", "robot", "-n", namespace.name()]).await?;
    }
    compare(&json!("deleted"), ours.review(&own, &[]).await?, theirs.review(&real, &[]).await?);
    ensure!(differ.is_empty(), "{} answers differ:\n{}", differ.len(), differ.join("\n"));
    Ok(())
}

/// What a kubeconfig says of its token's end.
fn expires(kubeconfig: &[u8]) -> Result<jiff::Timestamp> {
    let config: Value = serde_json::from_slice(kubeconfig)?;
    let end = config.pointer("/users/0/user/extensions/0/extension/tokenExpires").and_then(Value::as_str);
    Ok(end.context("it says when its token ends")?.parse()?)
}

#[tokio::test]
async fn the_administrators_token_is_short_lived_and_whoever_has_the_key_makes_another() -> Result<()> {
    // An issuer that nobody can ask keeps nobody out.
    let setup = HubSetup::new("admin-token").await?;
    let path = setup.folder().join("authentication.json");
    let jwt = json!([{
        "issuer": { "url": "https://127.0.0.1:1", "audiences": ["hub"] },
        "claimMappings": { "username": { "claim": "sub", "prefix": "oidc:" } },
    }]);
    let file = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt });
    std::fs::write(&path, file.to_string())?;
    let setup = setup.arg(&format!("--authentication-config={}", path.display()));
    let hub = HubProcess::start(&setup).await?;
    let day = |end: jiff::Timestamp| {
        let lasts = end.duration_since(jiff::Timestamp::now()).as_hours();
        ensure!((22..=24).contains(&lasts), "{lasts} hours");
        anyhow::Ok(())
    };
    let written = std::fs::read(setup.folder().join("admin.kubeconfig"))?;
    day(expires(&written)?)?;
    ensure!(hub.logs().contains("its token is short-lived"), "{}", hub.logs());

    let mut command = tokio::process::Command::new(binary("roadstead-hub")?);
    command.arg("--database-url").arg(setup.database().url());
    command.arg("--key-file").arg(setup.folder().join("hub.key"));
    command.arg(format!("--listen=127.0.0.1:{}", hub.api_port())).arg("--print-admin-kubeconfig");
    let output = command.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(String::from_utf8_lossy(&output.stderr).contains("is taken until"));
    day(expires(&output.stdout)?)?;
    let printed = setup.folder().join("printed.kubeconfig");
    std::fs::write(&printed, &output.stdout)?;
    let printed = Kubectl::new(&printed)?;
    let who = printed.run(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    ensure!(who == "roadstead-admin", "{who}");
    // Both are on record.
    let log = hub.kubectl().run(&["get", "--raw", "/fleet/v1/audit?limit=1000"]).await?;
    let log: Value = serde_json::from_str(&log)?;
    let made = log["items"].as_array().into_iter().flatten().filter(|entry| entry["kind"] == "AccessToken");
    let made = made.filter(|entry| entry["verb"] == "create").filter_map(|entry| entry["detail"].as_str());
    let [renewed, by_hand] = made.collect::<Vec<_>>()[..] else { anyhow::bail!("not two: {log}") };
    ensure!(renewed.contains("for the administrator's kubeconfig"), "{renewed}");
    ensure!(by_hand.contains("printed by --print-admin-kubeconfig, by user id "), "{by_hand}");
    Ok(())
}
