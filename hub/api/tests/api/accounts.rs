//! Tokens of service accounts: made by kubectl, taken by the hub and by whoever trusts it as an issuer, and by nobody once they are not
//! quite right; and what TokenReview says of tokens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use reqwest::StatusCode;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::{HubOptions, SystemClock};
use roadstead_hub_store::AccountKey;
use roadstead_model::AuditFilter;
use roadstead_oidc::{Configuration, SigningKey};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::support::{Replica, Site, client};

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/openid/v1/jwks";
const PATIENCE: Duration = Duration::from_secs(20);

/// A hub, and a client without a token of its own.
pub(crate) struct Asked {
    pub(crate) replica: Replica,
    pub(crate) client: reqwest::Client,
}

impl Asked {
    pub(crate) async fn new(site: &Site) -> Result<Self> {
        Self::with(site, HubOptions::default()).await
    }

    pub(crate) async fn with(site: &Site, options: HubOptions) -> Result<Self> {
        let replica = site.replica_by(Arc::new(SystemClock), options).await?;
        Ok(Self { client: client(&replica)?, replica })
    }

    /// A token of a service account, which kubectl has made.
    pub(crate) async fn token(&self, arguments: &[&str]) -> Result<String> {
        let all = [&["create", "token"], arguments].concat();
        Ok(self.replica.kubectl.run(&all).await?.trim().to_owned())
    }

    pub(crate) async fn post(&self, token: &str, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
        let request = self.client.post(format!("{}{path}", self.replica.url)).bearer_auth(token);
        let answer = request.json(body).send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    async fn who(&self, token: &str) -> Result<(StatusCode, Value)> {
        self.post(token, &format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await
    }

    /// As whom a token is taken.
    pub(crate) async fn user(&self, token: &str) -> Result<Value> {
        match self.who(token).await? {
            (StatusCode::CREATED, mut answer) => Ok(answer["status"]["userInfo"].take()),
            (status, answer) => bail!("{status}: {answer}"),
        }
    }

    /// That a token is not taken, and what is said of that.
    pub(crate) async fn refused(&self, token: &str) -> Result<Value> {
        match self.who(token).await? {
            (StatusCode::UNAUTHORIZED, answer) => Ok(answer),
            (status, answer) => bail!("{status}: {answer}"),
        }
    }

    pub(crate) async fn get(&self, token: Option<&str>, path: &str) -> Result<(StatusCode, Value)> {
        let request = self.client.get(format!("{}{path}", self.replica.url));
        let request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
        let answer = request.send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    /// What a review says of a token.
    pub(crate) async fn review(&self, token: &str, audiences: &[&str]) -> Result<Value> {
        let body = json!({ "spec": { "token": token, "audiences": audiences } });
        match self.post(&self.replica.token, &format!("{AUTHENTICATION}/tokenreviews"), &body).await? {
            (StatusCode::CREATED, mut answer) => Ok(answer["status"].take()),
            (status, answer) => bail!("{status}: {answer}"),
        }
    }
}

pub(crate) fn claims_of(token: &str) -> Result<Value> {
    let claims = token.split('.').nth(1).context("claims")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?)
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The key that signs at present, as only the hub has it.
async fn signing_key(site: &Site) -> Result<SigningKey> {
    let (keys, _) = site.store().await?.account_keys().await?;
    Ok(SigningKey::read(&keys.last().context("a key")?.key)?)
}

#[tokio::test]
async fn kubectl_makes_tokens_that_are_their_account() -> Result<()> {
    let site = Site::new().await?;
    let hub = Asked::new(&site).await?;
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let uid = kubectl.run(&["get", "serviceaccount", "robot", "-o", "jsonpath={.metadata.uid}"]).await?;
    let token = hub.token(&["robot", "--duration=20m"]).await?;
    let claims = claims_of(&token)?;
    let begin = claims["iat"].as_i64().context("a time")?;
    let issuer = &hub.replica.url;
    let user = "system:serviceaccount:default:robot";
    let want = json!({
        "aud": [issuer], "exp": begin + 1200, "iat": begin, "iss": issuer, "jti": claims["jti"], "nbf": begin, "sub": user,
        "kubernetes.io": { "namespace": "default", "serviceaccount": { "name": "robot", "uid": uid } },
    });
    ensure!(claims == want, "{claims}");
    ensure!((begin - Timestamp::now().as_second()).abs() < 60);
    let jti = claims["jti"].as_str().context("an id")?;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    let want = json!({
        "username": user, "uid": uid, "groups": groups,
        "extra": { "authentication.kubernetes.io/credential-id": [format!("JTI={jti}")] },
    });
    ensure!(hub.user(&token).await? == want);
    let other = hub.token(&["robot"]).await?;
    ensure!(claims_of(&other)?["jti"] != claims["jti"]);
    // The record tells who made which, and never a token.
    let (log, _) = hub.replica.hub.audit.entries(&Identity::hub(), &AuditFilter::default(), 500).await?;
    let log = serde_json::to_string(&log)?;
    ensure!(log.contains(&format!("token JTI={jti} for")) && !log.contains(&token[..40]), "{log}");

    // What is asked for is bounded, and said so.
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let ask = async |spec: &Value| hub.post(&hub.replica.token, path, &json!({ "spec": spec })).await;
    let (status, made) = ask(&json!({ "expirationSeconds": 40_000_000 })).await?;
    ensure!(status == StatusCode::CREATED && made["spec"]["expirationSeconds"] == 366 * 24 * 3600, "{made}");
    for (spec, status, why) in [
        (json!({ "expirationSeconds": 599 }), 422, "less than 10 minutes"),
        (json!({ "expirationSeconds": 1_u64 << 33 }), 422, "larger than 2^32 seconds"),
        (json!({ "audiences": vec!["x"; 33] }), 422, "spec.audiences"),
        (json!({ "audiences": ["x".repeat(5000)] }), 422, "spec.audiences"),
        (json!({ "audiences": ["a\u{0}b"] }), 422, "spec.audiences"),
        (json!({ "audiences": "one" }), 400, "audiences must be a list"),
        (json!({ "boundObjectRef": "x" }), 400, "boundObjectRef must be an object"),
    ] {
        let (code, answer) = ask(&spec).await?;
        ensure!(code.as_u16() == status && answer.to_string().contains(why), "{spec}: {code} {answer}");
    }
    let elsewhere = json!({ "metadata": { "name": "another" } });
    let (code, answer) = hub.post(&hub.replica.token, path, &elsewhere).await?;
    ensure!(
        code == StatusCode::UNPROCESSABLE_ENTITY && answer["details"]["kind"] == "TokenRequest",
        "{answer}"
    );
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_quite_right_is_nobodys() -> Result<()> {
    let site = Site::new().await?;
    let hub = Asked::new(&site).await?;
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    kubectl.run(&["create", "serviceaccount", "other"]).await?;
    let good = hub.token(&["robot"]).await?;
    hub.user(&good).await?;
    let unknown = hub.refused("no token at all").await?;
    let (key, claims) = (signing_key(&site).await?, claims_of(&good)?);
    let parts: Vec<&str> = good.split('.').collect();
    let mut wrong = vec![hub.token(&["robot", "--audience=vault"]).await?];
    // Who may not sign: no algorithm, a secret that is public, another key under this one's name, and names of keys that lead elsewhere.
    let head = |alg: &str, kid: Value| part(&json!({ "alg": alg, "kid": kid }));
    for alg in ["none", "None", "", "HS256", "RS256", "es256", "ES384"] {
        for signature in ["", parts[2]] {
            wrong.push(format!("{}.{}.{signature}", head(alg, key.id().into()), parts[1]));
        }
    }
    let text = format!("{}.{}", head("HS256", key.id().into()), parts[1]);
    for secret in [key.published().to_string(), key.published()["x"].to_string(), String::new()] {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), text.as_bytes());
        wrong.push(format!("{text}.{}", URL_SAFE_NO_PAD.encode(mac)));
    }
    let another = SigningKey::read(&SigningKey::generate()?)?.sign(&claims)?;
    wrong.push(another.to_string());
    let signed_by_another = another.rsplit('.').next().context("a signature")?;
    wrong.push(format!("{}.{}.{signed_by_another}", parts[0], parts[1]));
    for kid in
        [json!(null), json!(""), json!("../../keys"), json!("' OR 1=1"), json!("x".repeat(4000)), json!(1)]
    {
        wrong.push(format!("{}.{}.{}", head("ES256", kid), parts[1], parts[2]));
    }
    wrong.push(format!("{}.{}.{}", part(&json!({ "alg": "ES256" })), parts[1], parts[2]));
    // What is signed is not what was.
    let mut other = claims.clone();
    other["sub"] = json!("system:serviceaccount:default:other");
    wrong.push(format!("{}.{}.{}", parts[0], part(&other), parts[2]));
    // Signed by the hub's very key, and not for now, not for the hub, or of no account that there is.
    let now = Timestamp::now().as_second();
    let uid_of_other =
        kubectl.run(&["get", "serviceaccount", "other", "-o", "jsonpath={.metadata.uid}"]).await?;
    for (pointer, value) in [
        ("/exp", json!(now - 1)),
        ("/exp", json!(null)),
        ("/exp", json!("9999999999")),
        ("/nbf", json!(now + 1000)),
        ("/iss", json!("https://issuer.test")),
        ("/iss", json!(format!("{}/", hub.replica.url))),
        ("/iss", json!(hub.replica.url.to_uppercase())),
        ("/aud", json!(["vault"])),
        ("/aud", json!([])),
        ("/aud", json!(hub.replica.url)),
        ("/aud", json!([hub.replica.url, 1])),
        ("/sub", json!("system:serviceaccount:default:other")),
        ("/sub", json!("system:serviceaccount:default:Robot")),
        ("/sub", json!("system:admin")),
        ("/jti", json!(null)),
        ("/kubernetes.io", json!(null)),
        ("/kubernetes.io/namespace", json!("kube-system")),
        ("/kubernetes.io/serviceaccount/name", json!("other")),
        ("/kubernetes.io/serviceaccount/uid", json!(uid_of_other)),
        ("/kubernetes.io/serviceaccount/uid", json!("")),
        ("/kubernetes.io/serviceaccount/uid", json!(null)),
    ] {
        let mut changed = claims.clone();
        *changed.pointer_mut(pointer).context("a claim")? = value;
        wrong.push(key.sign(&changed)?.to_string());
    }
    // Names that look the same, or would be the same in another case or with another separator.
    for name in ["Robot", "rоbot", "robot\u{200b}", "robot:x", "robot/../other", "robot\0", " robot", ""] {
        let mut changed = claims.clone();
        changed["sub"] = json!(format!("system:serviceaccount:default:{name}"));
        changed["kubernetes.io"]["serviceaccount"]["name"] = json!(name);
        wrong.push(key.sign(&changed)?.to_string());
    }
    for (index, token) in wrong.iter().enumerate() {
        let said = hub.refused(token).await.with_context(|| format!("token {index}: {token}"))?;
        ensure!(said == unknown, "token {index}: {said}");
    }
    ensure!(wrong.len() > 50, "{}", wrong.len());
    hub.user(&good).await?;
    hub.user(&key.sign(&claims)?).await.context("signed again as it was")?;
    Ok(())
}

#[tokio::test]
async fn a_token_ends_with_its_account_and_not_with_another_of_its_name() -> Result<()> {
    let site = Site::new().await?;
    let hub = Asked::new(&site).await?;
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let old = hub.token(&["robot"]).await?;
    hub.user(&old).await?;
    kubectl.run(&["delete", "serviceaccount", "robot"]).await?;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    // A replica remembers a token for two seconds.
    eventually("the token has ended", Duration::from_secs(10), || async {
        hub.refused(&old).await.map(drop)
    })
    .await?;
    let new = hub.token(&["robot"]).await?;
    ensure!(hub.user(&new).await?["username"] == "system:serviceaccount:default:robot");
    hub.refused(&old).await?;
    // One that is only on its way out has none either.
    let patch = r#"{"metadata":{"finalizers":["example.com/wait"]}}"#;
    kubectl.run(&["patch", "serviceaccount", "robot", "--type=merge", "-p", patch]).await?;
    kubectl.run(&["delete", "serviceaccount", "robot", "--wait=false"]).await?;
    eventually("the token has ended", Duration::from_secs(10), || async {
        hub.refused(&new).await.map(drop)
    })
    .await?;
    let error = hub.token(&["robot"]).await.unwrap_err().to_string();
    ensure!(error.contains("is being deleted"), "{error}");
    Ok(())
}

#[tokio::test]
async fn replicas_take_each_others_tokens_also_by_a_key_that_is_new() -> Result<()> {
    let site = Site::new().await?;
    let options = || HubOptions {
        account_issuers: vec!["https://hub.test".to_owned(), "https://old.hub.test".to_owned()],
        ..HubOptions::default()
    };
    let (one, two) = (Asked::with(&site, options()).await?, Asked::with(&site, options()).await?);
    one.replica.kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let before = one.token(&["robot"]).await?;
    ensure!(claims_of(&before)?["iss"] == "https://hub.test");
    two.user(&before).await?;
    // A third one, which replicas have not read yet, signs at once.
    let store = site.store().await?;
    let (_, last) = store.account_keys().await?;
    let now = Timestamp::now();
    let key = SigningKey::generate()?;
    let id = SigningKey::read(&key)?.id().to_owned();
    ensure!(
        store.add_account_key(&AccountKey { number: last + 1, id, made: now, signs_from: now, key }).await?
    );
    let key = signing_key(&site).await?;
    let mut claims = claims_of(&before)?;
    claims["iss"] = json!("https://old.hub.test");
    let after = key.sign(&claims)?;
    for hub in [&one, &two] {
        // A key that nobody knows may have been asked for just before.
        eventually("the new key is known", PATIENCE, || async { hub.user(&after).await.map(drop) }).await?;
        hub.user(&before).await.context("a token of the key before")?;
    }
    one.replica.hub.identity.tend_account_keys().await?;
    let fresh = one.token(&["robot"]).await?;
    ensure!(fresh.split('.').next() == after.split('.').next(), "it is signed by the new key");
    two.user(&fresh).await?;
    // A row that no hub wrote counts for nothing.
    let forged = SigningKey::generate()?;
    let id = SigningKey::read(&forged)?.id().to_owned();
    sqlx::query("INSERT INTO account_key (number, id, key_sealed) VALUES (1000, $1, $2)")
        .bind(&id)
        .bind(forged.to_vec())
        .execute(&mut site.database.connect().await?)
        .await?;
    let forged = SigningKey::read(&forged)?.sign(&claims)?;
    one.replica.hub.identity.tend_account_keys().await?;
    one.refused(&forged).await?;
    ensure!(!String::from_utf8_lossy(&one.replica.hub.identity.issuer_keys().await?).contains(&id));
    Ok(())
}

#[tokio::test]
async fn who_trusts_the_hub_as_an_issuer_takes_tokens_for_itself() -> Result<()> {
    let (site, elsewhere) = (Site::new().await?, Site::new().await?);
    let hub = Asked::new(&site).await?;
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let robot = hub.token(&["robot"]).await?;
    let jane = hub.replica.hub.identity.create_access_token("jane", &[], None).await?;
    for path in [CONFIGURATION, KEYS] {
        ensure!(hub.get(None, path).await?.0 == StatusCode::UNAUTHORIZED, "{path}");
        ensure!(hub.get(Some(jane.expose()), path).await?.0 == StatusCode::FORBIDDEN, "{path}");
        ensure!(hub.get(Some(&robot), path).await?.0 == StatusCode::OK, "{path}");
    }
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": hub.replica.url, "audiences": ["elsewhere"],
                "certificateAuthority": hub.replica.hub.pki().server_ca_pem(),
            },
            "claimMappings": { "username": { "claim": "sub", "prefix": "hub:" } },
        }],
    });
    let authentication = Arc::new(Configuration::parse(file.to_string().as_bytes())?);
    let own = HubOptions {
        authentication: authentication.clone(),
        api_url: hub.replica.url.clone(),
        ..HubOptions::default()
    };
    ensure!(own.check_issuers().is_err_and(|why| why.contains("--service-account-issuer")));
    // The other one comes without a token, so a role has to let everybody read the keys.
    let role = "--clusterrole=system:service-account-issuer-discovery";
    kubectl.run(&["create", "clusterrolebinding", "all", role, "--group=system:unauthenticated"]).await?;
    eventually("anybody may read the keys", PATIENCE, || async {
        ensure!(hub.get(None, KEYS).await?.0 == StatusCode::OK);
        Ok(())
    })
    .await?;
    let (_, said) = hub.get(None, CONFIGURATION).await?;
    let keys = format!("{}{KEYS}", hub.replica.url);
    ensure!(said["issuer"] == hub.replica.url && said["jwks_uri"] == keys, "{said}");
    // Nothing else is for those without a token.
    ensure!(hub.get(None, "/version").await?.0 == StatusCode::UNAUTHORIZED);

    let other = Asked::with(&elsewhere, HubOptions { authentication, ..HubOptions::default() }).await?;
    let token = hub.token(&["robot", "--audience=elsewhere"]).await?;
    let user = other.user(&token).await?;
    ensure!(user["username"] == "hub:system:serviceaccount:default:robot", "{user}");
    other.refused(&robot).await.context("one for the hub itself")?;
    hub.refused(&token).await.context("one for elsewhere")?;
    Ok(())
}

#[tokio::test]
async fn a_review_tells_whom_a_token_stands_for_to_those_who_may_ask() -> Result<()> {
    let site = Site::new().await?;
    let hub = Asked::new(&site).await?;
    let (kubectl, issuer) = (&hub.replica.kubectl, hub.replica.url.as_str());
    kubectl.run(&["create", "serviceaccount", "robot"]).await?;
    let robot = hub.token(&["robot"]).await?;
    let vault = hub.token(&["robot", "--audience=vault", "--audience=other"]).await?;
    let jane = hub.replica.hub.identity.create_access_token("jane", &["dev".to_owned()], None).await?;
    let user = hub.user(&robot).await?;
    let good = |user: Value, audiences: &[&str]| json!({ "authenticated": true, "user": user, "audiences": audiences });
    ensure!(hub.review(&robot, &[]).await? == good(user.clone(), &[issuer]));
    ensure!(hub.review(&robot, &["x", issuer]).await? == good(user.clone(), &[issuer]));
    let of_vault = hub.review(&vault, &["vault"]).await?;
    ensure!(of_vault["user"]["username"] == user["username"] && of_vault["audiences"] == json!(["vault"]));
    let jane_is = json!({ "username": "jane", "groups": ["dev", "system:authenticated"] });
    ensure!(hub.review(jane.expose(), &[]).await? == good(jane_is, &[issuer]));
    // For others than those who ask, and what is none.
    for (token, audiences) in [
        (robot.as_str(), &["vault"][..]),
        (&vault, &[]),
        (&vault, &[issuer]),
        (jane.expose(), &["vault"]),
        ("made-up", &[]),
        ("a.b.c", &[]),
        (&robot[..robot.len() - 2], &[]),
    ] {
        let said = hub.review(token, audiences).await?;
        let error = said["error"].as_str().unwrap_or_default();
        ensure!(said["user"] == json!({}) && said.get("authenticated").is_none(), "{said}");
        ensure!(error.contains("invalid bearer token") && !error.contains(token), "{said}");
    }
    let path = format!("{AUTHENTICATION}/tokenreviews");
    let (code, said) = hub.post(&hub.replica.token, &path, &json!({ "spec": {} })).await?;
    ensure!(code == StatusCode::BAD_REQUEST && said.to_string().contains("token is required"), "{said}");
    // Whoever may not ask learns nothing, whatever the token is.
    let mut told = Vec::new();
    for token in [robot.as_str(), &hub.replica.token, "made-up", ""] {
        let body = json!({ "spec": { "token": token } });
        let (code, said) = hub.post(jane.expose(), &path, &body).await?;
        ensure!(code == StatusCode::FORBIDDEN, "{code} {said}");
        told.push(said);
    }
    told.dedup();
    ensure!(told.len() == 1, "{told:?}");
    kubectl
        .run(&["create", "clusterrolebinding", "ask", "--clusterrole=system:auth-delegator", "--user=jane"])
        .await?;
    eventually("jane may ask", PATIENCE, || async {
        let (code, said) = hub.post(jane.expose(), &path, &json!({ "spec": { "token": robot } })).await?;
        ensure!(code == StatusCode::CREATED, "{code} {said}");
        Ok(())
    })
    .await?;
    // Nothing of it is remembered.
    kubectl.run(&["delete", "serviceaccount", "robot"]).await?;
    let said = hub.review(&robot, &[]).await?;
    ensure!(said["error"] == "[invalid bearer token, serviceaccounts \"robot\" not found]", "{said}");
    Ok(())
}
