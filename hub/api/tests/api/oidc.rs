//! Tokens of issuers that the operator trusts: as whom they are taken, and that neither a token nor an issuer keeps the hub from others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use roadstead_hub_core::{Clock, HubOptions};
use roadstead_oidc::Configuration;
use roadstead_tests::eventually;
use serde_json::{Value, json};

use crate::issuer::{Issuer, Mode, SigningKey};
use crate::support::{Replica, Site, client};

const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const PATIENCE: Duration = Duration::from_secs(20);
/// For so long an issuer is left alone after it was asked.
const REST: SignedDuration = SignedDuration::from_secs(11);

/// A clock that is put forward.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<SignedDuration>);

impl Ahead {
    pub(crate) fn by(&self, more: SignedDuration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += more;
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::now() + *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn trusted(issuer: &Issuer) -> Value {
    json!({
        "issuer": { "url": issuer.url, "audiences": ["hub"], "certificateAuthority": issuer.ca_pem },
        "claimMappings": {
            "username": { "claim": "sub", "prefix": "oidc:" },
            "groups": { "claim": "groups", "prefix": "" },
            "uid": { "expression": "claims.?oid.orValue('')" },
            "extra": [{ "key": "example.org/team", "valueExpression": "claims.?team.orValue('')" }],
        },
    })
}

/// A hub that trusts these issuers, and its clock.
struct Trusting {
    replica: Replica,
    client: reqwest::Client,
    clock: Arc<Ahead>,
}

impl Trusting {
    async fn new(site: &Site, jwt: Value) -> Result<Self> {
        let file = json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt });
        let authentication = Arc::new(Configuration::parse(file.to_string().as_bytes())?);
        let options = HubOptions { authentication, ..HubOptions::default() };
        let clock = Arc::<Ahead>::default();
        let replica = site.replica_by(clock.clone(), options).await?;
        Ok(Self { client: client(&replica)?, replica, clock })
    }

    fn claims(&self, issuer: &Issuer) -> Value {
        let end = self.clock.now().as_second() + 3600;
        json!({ "iss": issuer.url, "aud": "hub", "sub": "jane", "groups": ["dev"], "exp": end })
    }

    async fn ask(&self, token: &str) -> Result<(StatusCode, Value)> {
        self.ask_by(&self.client, token).await
    }

    /// The same by another client, on connections of its own.
    async fn ask_by(&self, client: &reqwest::Client, token: &str) -> Result<(StatusCode, Value)> {
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let request = client.post(format!("{}{WHOAMI}", self.replica.url)).bearer_auth(token);
        let answer = request.json(&body).send().await?;
        Ok((answer.status(), answer.json().await?))
    }

    /// As whom a token is taken.
    async fn user(&self, token: &str) -> Result<Value> {
        match self.ask(token).await? {
            (StatusCode::CREATED, mut answer) => Ok(answer["status"]["userInfo"].take()),
            (status, answer) => bail!("{status}: {answer}"),
        }
    }

    /// That a token is not taken, and what is said of that.
    async fn refused(&self, token: &str) -> Result<Value> {
        match self.ask(token).await? {
            (StatusCode::UNAUTHORIZED, answer) => Ok(answer),
            (status, answer) => bail!("{status}: {answer}"),
        }
    }
}

#[tokio::test]
async fn a_token_of_a_trusted_issuer_is_its_user_and_roles_decide() -> Result<()> {
    let (site, key) = (Site::new().await?, SigningKey::new("one")?);
    let issuer = Issuer::start(&[&key]).await?;
    let hub = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    let mut claims = hub.claims(&issuer);
    for (field, value) in [
        ("groups", json!(["dev", "system:masters", "System:Masters"])),
        ("oid", json!("7")),
        ("team", json!("web")),
        ("jti", json!("abc")),
    ] {
        claims[field] = value;
    }
    let token = key.sign(&claims)?;
    let want = json!({
        "username": "oidc:jane", "uid": "7", "groups": ["dev", "system:authenticated"],
        "extra": { "example.org/team": ["web"], "authentication.kubernetes.io/credential-id": ["JTI=abc"] },
    });
    ensure!(hub.user(&token).await? == want);
    let list = || async {
        let url = format!("{}/api/v1/namespaces/apps/configmaps", hub.replica.url);
        anyhow::Ok(hub.client.get(url).bearer_auth(&token).send().await?.status())
    };
    ensure!(list().await? == StatusCode::FORBIDDEN, "a token made somebody an administrator");
    let kubectl = &hub.replica.kubectl;
    kubectl.run(&["create", "namespace", "apps"]).await?;
    kubectl.run(&["create", "rolebinding", "dev", "--clusterrole=view", "--group=dev", "-n", "apps"]).await?;
    eventually("the group's role decides", PATIENCE, || async {
        ensure!(list().await? == StatusCode::OK, "it is not allowed yet");
        Ok(())
    })
    .await?;
    // The hub's own tokens go on to be taken.
    ensure!(hub.user(&hub.replica.token).await?["username"] != "oidc:jane");
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_quite_right_is_refused_without_a_reason() -> Result<()> {
    let (site, key, other) = (Site::new().await?, SigningKey::new("one")?, SigningKey::new("one")?);
    let issuer = Issuer::start(&[&key]).await?;
    let hub = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    let good = hub.claims(&issuer);
    let now = hub.clock.now().as_second();
    hub.user(&key.sign(&good)?).await?;
    let unknown = hub.refused("no token at all").await?;
    let mut wrong = vec![other.sign(&good)?, key.sign_as("two", &good)?];
    for (field, value) in [
        ("exp", json!(now - 1)),
        ("exp", json!(null)),
        ("nbf", json!(now + 1000)),
        ("aud", json!("another")),
        ("iss", json!(format!("{}/", issuer.url))),
        ("iss", json!("https://issuer.test")),
        ("sub", json!("")),
        ("sub", json!(["jane"])),
        ("sub", json!("ja\0ne")),
        ("groups", json!({ "dev": true })),
    ] {
        let mut claims = good.clone();
        claims[field] = value;
        wrong.push(key.sign(&claims)?);
    }
    let mut elsewhere = good.clone();
    elsewhere.as_object_mut().context("claims")?.remove("groups");
    elsewhere["_claim_names"] = json!({ "groups": "src1" });
    wrong.push(key.sign(&elsewhere)?);
    let right = key.sign(&good)?;
    let parts: Vec<&str> = right.split('.').collect();
    // {"alg":"none"}
    wrong.push(format!("eyJhbGciOiJub25lIn0.{}.", parts[1]));
    wrong.push(format!("{}.{}.", parts[0], parts[1]));
    wrong.push(format!("{}.{}.{}", parts[0], parts[1], "A".repeat(86)));
    for (index, token) in wrong.iter().enumerate() {
        let said = hub.refused(token).await.with_context(|| format!("token {index}"))?;
        ensure!(said == unknown, "token {index}: {said}");
    }
    hub.user(&right).await?;
    // With ten thousand groups it is longer than any that is looked at, and than the head of a request.
    let mut many = good;
    many["groups"] = json!((0..10_000).map(|n| format!("group-{n}")).collect::<Vec<_>>());
    let request = hub.client.get(format!("{}/version", hub.replica.url)).bearer_auth(key.sign(&many)?);
    if let Ok(answer) = request.send().await {
        ensure!(answer.status().is_client_error(), "{}", answer.status());
    }
    hub.user(&right).await?;
    Ok(())
}

#[tokio::test]
async fn keys_that_change_are_asked_for_and_not_at_the_will_of_tokens() -> Result<()> {
    let (site, old, new) = (Site::new().await?, SigningKey::new("old")?, SigningKey::new("new")?);
    let issuer = Issuer::start(&[&old]).await?;
    let hub = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    let claims = hub.claims(&issuer);
    let number = |jti: usize| {
        let mut claims = claims.clone();
        claims["jti"] = json!(jti.to_string());
        claims
    };
    // Many at once, before a key is known: one asks.
    let tokens = (0..20).map(|jti| old.sign(&number(jti))).collect::<Result<Vec<_>>>()?;
    for user in join_all(tokens.iter().map(|token| hub.user(token))).await {
        user?;
    }
    ensure!(issuer.asked() == 1, "asked {} times", issuer.asked());
    // Made-up names of keys, and made-up signatures under a good name.
    for jti in 0..30 {
        hub.refused(&new.sign_as(&format!("made-up-{jti}"), &claims)?).await?;
        hub.refused(&new.sign_as("old", &number(jti))?).await?;
    }
    ensure!(issuer.asked() == 1, "asked {} times", issuer.asked());
    hub.clock.by(REST);
    hub.refused(&new.sign_as("made-up", &claims)?).await?;
    hub.refused(&new.sign_as("made-up-again", &claims)?).await?;
    ensure!(issuer.asked() == 2, "asked {} times", issuer.asked());
    // A new key beside the old one, then alone.
    issuer.publish(&[&old, &new]);
    hub.clock.by(REST);
    hub.user(&new.sign(&number(1))?).await?;
    hub.user(&old.sign(&number(2))?).await?;
    ensure!(issuer.asked() == 3, "asked {} times", issuer.asked());
    issuer.publish(&[&new]);
    hub.clock.by(REST);
    hub.refused(&old.sign_as("made-up", &claims)?).await?;
    hub.refused(&old.sign(&number(3))?).await.context("a key that was taken back serves")?;
    hub.user(&new.sign(&number(4))?).await?;
    // Another key under the same name.
    let again = SigningKey::new("new")?;
    issuer.publish(&[&again]);
    hub.clock.by(REST);
    hub.user(&again.sign(&number(5))?).await?;
    hub.refused(&new.sign(&number(6))?).await?;
    Ok(())
}

#[tokio::test]
async fn keys_that_rotate_while_requests_wait_for_them() -> Result<()> {
    let (site, old, new) = (Site::new().await?, SigningKey::new("old")?, SigningKey::new("new")?);
    let issuer = Issuer::start(&[&old]).await?;
    let hub = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    let claims = hub.claims(&issuer);
    let number = |jti: usize| {
        let mut claims = claims.clone();
        claims["jti"] = json!(jti.to_string());
        claims
    };
    hub.user(&old.sign(&number(0))?).await?;
    issuer.turn(Mode::Waits);
    hub.clock.by(REST);
    let tokens = (1..20).map(|jti| new.sign(&number(jti))).collect::<Result<Vec<_>>>()?;
    let waiting = join_all(tokens.iter().map(|token| hub.user(token)));
    let meanwhile = async {
        eventually("the keys are asked for", PATIENCE, || async {
            ensure!(issuer.asked() == 2, "asked {} times", issuer.asked());
            Ok(())
        })
        .await?;
        // Nobody with a key that is known waits for the others.
        hub.user(&old.sign(&number(20))?).await?;
        issuer.publish(&[&new]);
        issuer.turn(Mode::Serves);
        anyhow::Ok(())
    };
    let (users, meanwhile) = tokio::join!(waiting, meanwhile);
    meanwhile?;
    for user in users {
        ensure!(user?["username"] == "oidc:jane");
    }
    hub.refused(&old.sign(&number(21))?).await.context("a key that was taken back serves")?;
    ensure!(issuer.asked() == 2, "asked {} times", issuer.asked());
    Ok(())
}

#[tokio::test]
async fn a_hub_that_starts_while_an_issuer_is_down_knows_its_keys_for_a_day() -> Result<()> {
    let (site, key, other) = (Site::new().await?, SigningKey::new("one")?, SigningKey::new("one")?);
    let issuer = Issuer::start(&[&key]).await?;
    let first = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    let mut claims = first.claims(&issuer);
    claims["exp"] = json!(first.clock.now().as_second() + 48 * 3600);
    let token = key.sign(&claims)?;
    first.user(&token).await?;
    let mut connection = site.database.connect().await?;
    let (keys, received) = eventually("the keys are stored", PATIENCE, || async {
        let mut connection = site.database.connect().await?;
        let stored = sqlx::query_as("SELECT keys, received_at::text FROM issuer_answer WHERE issuer = $1");
        let row: (Vec<u8>, String) = stored.bind(&issuer.url).fetch_one(&mut connection).await?;
        Ok(row)
    })
    .await?;
    for mode in [Mode::Hangs, Mode::Fails] {
        issuer.turn(mode.clone());
        let again = Trusting::new(&site, json!([trusted(&issuer)])).await?;
        let begin = Instant::now();
        again.user(&token).await.with_context(|| format!("{mode:?}"))?;
        ensure!(begin.elapsed() < Duration::from_secs(4), "it waits for an issuer that {mode:?}");
        again.refused(&other.sign(&claims)?).await?;
    }
    // They are of the issuer as the operator's file has it.
    let mut changed = trusted(&issuer);
    changed["issuer"]["discoveryURL"] = json!(format!("{}/elsewhere", issuer.url));
    Trusting::new(&site, json!([changed])).await?.refused(&token).await?;
    // Whoever writes the database puts in none of his own, and makes none last.
    for change in [
        "UPDATE issuer_answer SET keys = convert_to(replace(convert_from(keys, 'UTF8'), '\"one\"', '\"two\"'), 'UTF8')",
        "UPDATE issuer_answer SET received_at = received_at + interval '1 hour'",
    ] {
        sqlx::query(change).execute(&mut connection).await?;
        let again = Trusting::new(&site, json!([trusted(&issuer)])).await?;
        again.refused(&token).await.context(change)?;
        let back = sqlx::query("UPDATE issuer_answer SET keys = $1, received_at = $2::timestamptz");
        back.bind(&keys).bind(&received).execute(&mut connection).await?;
    }
    let last = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    last.user(&token).await.context("as it was")?;
    let old = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    old.clock.by(SignedDuration::from_hours(25));
    old.refused(&token).await.context("a day later")?;
    Ok(())
}

#[tokio::test]
async fn while_an_issuer_is_down_its_tokens_go_on_for_a_day() -> Result<()> {
    let (site, key, other) = (Site::new().await?, SigningKey::new("one")?, SigningKey::new("two")?);
    let issuer = Issuer::start(&[&key]).await?;
    let hub = Trusting::new(&site, json!([trusted(&issuer)])).await?;
    hub.replica.hub.identity.refresh_issuers();
    eventually("the keys are asked for before somebody comes", PATIENCE, || async {
        ensure!(issuer.asked() == 1, "asked {} times", issuer.asked());
        Ok(())
    })
    .await?;
    issuer.turn(Mode::Fails);
    let mut claims = hub.claims(&issuer);
    claims["exp"] = json!(hub.clock.now().as_second() + 48 * 3600);
    let token = key.sign(&claims)?;
    for hours in [0, 1, 22] {
        hub.clock.by(SignedDuration::from_hours(hours));
        hub.replica.hub.identity.refresh_issuers();
        hub.user(&token).await.with_context(|| format!("{hours} hours later"))?;
    }
    hub.refused(&other.sign(&claims)?).await?;
    hub.clock.by(SignedDuration::from_hours(2));
    hub.refused(&token).await.context("its keys are a day old")?;
    issuer.turn(Mode::Serves);
    hub.clock.by(REST);
    hub.user(&token).await?;
    Ok(())
}

#[tokio::test]
async fn what_an_issuer_sends_is_bounded_and_the_others_are_not_held_up() -> Result<()> {
    let (site, key) = (Site::new().await?, SigningKey::new("one")?);
    let (issuer, good) = (Issuer::start(&[&key]).await?, Issuer::start(&[&key]).await?);
    let hub = Trusting::new(&site, json!([trusted(&issuer), trusted(&good)])).await?;
    let (token, other) = (key.sign(&hub.claims(&issuer))?, key.sign(&hub.claims(&good))?);
    hub.user(&other).await?;
    let asked = good.asked();
    for mode in [
        Mode::Redirects(format!("{}/keys", good.url)),
        Mode::Fails,
        Mode::Another,
        Mode::InTheClear,
        Mode::Page,
        Mode::Huge,
    ] {
        issuer.turn(mode.clone());
        let before = issuer.asked();
        hub.refused(&token).await.with_context(|| format!("{mode:?}"))?;
        ensure!(issuer.asked() == before + 1, "{mode:?} was not tried");
        hub.clock.by(REST);
    }
    ensure!(good.asked() == asked, "a redirect was followed");
    ensure!(issuer.sent() < 20_000_000, "{} bytes were taken", issuer.sent());
    issuer.turn(Mode::Hangs);
    let begin = Instant::now();
    // More than may wait for one issuer: the others are told to come again, and none waits for long.
    let many = (0..80).map(|jti| {
        let mut claims = hub.claims(&issuer);
        claims["jti"] = json!(jti.to_string());
        key.sign(&claims)
    });
    let many = many.collect::<Result<Vec<_>>>()?;
    // A connection takes some requests at a time, and one on which nobody was known yet may be ended sooner than they wait.
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let one = client(&hub.replica)?;
        ensure!(hub.ask_by(&one, &other).await?.0 == StatusCode::CREATED);
        crowd.push(one);
    }
    let waiting = join_all(
        many.iter().enumerate().map(|(index, token)| hub.ask_by(&crowd[index % crowd.len()], token)),
    );
    let beside = async {
        for jti in 0..10 {
            let mut claims = hub.claims(&good);
            claims["jti"] = json!(jti.to_string());
            hub.user(&key.sign(&claims)?).await?;
        }
        anyhow::Ok(begin.elapsed())
    };
    let (answers, beside) = tokio::join!(waiting, beside);
    ensure!(beside? < Duration::from_secs(4), "the other issuer's tokens waited");
    ensure!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let codes: Vec<StatusCode> = answers.into_iter().map(|answer| Ok(answer?.0)).collect::<Result<_>>()?;
    let count = |code| codes.iter().filter(|one| **one == code).count();
    let (waited, sent_away) = (count(StatusCode::UNAUTHORIZED), count(StatusCode::TOO_MANY_REQUESTS));
    ensure!(sent_away > 0 && waited >= 64 && waited + sent_away == codes.len(), "{codes:?}");
    Ok(())
}

#[tokio::test]
async fn an_issuer_is_known_by_its_own_authority_alone() -> Result<()> {
    let (site, key) = (Site::new().await?, SigningKey::new("one")?);
    let (issuer, another) = (Issuer::start(&[&key]).await?, Issuer::start(&[&key]).await?);
    let mut wrong = trusted(&issuer);
    wrong["issuer"]["certificateAuthority"] = json!(another.ca_pem);
    let hub = Trusting::new(&site, json!([wrong])).await?;
    hub.refused(&key.sign(&hub.claims(&issuer))?).await?;
    ensure!(issuer.asked() == 0);
    // What it says of itself is asked for elsewhere, and its keys are there, too.
    let mut elsewhere = trusted(&issuer);
    elsewhere["issuer"]["discoveryURL"] = json!(format!("{}/.well-known/openid-configuration", another.url));
    elsewhere["issuer"]["certificateAuthority"] = json!(another.ca_pem);
    let hub = Trusting::new(&site, json!([elsewhere])).await?;
    // The other one says of itself that it is another.
    hub.refused(&key.sign(&hub.claims(&issuer))?).await?;
    Ok(())
}
