//! The decisions of `roadstead-rbac` beside those of a real kube-apiserver: roles, bindings, users and requests are generated
//! from a seed, stored in a cluster, and asked about there and here.
//!
//! A run compares ten thousand pairs of a user and a request, or as many as `ROADSTEAD_RBAC_PAIRS` says;
//! `ROADSTEAD_RBAC_SEED` begins with another seed than the one that is the same in every run.

mod cluster;
mod generate;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use roadstead_rbac::{Attributes, GrantError, MASTERS, Policy, Resource, Write};
use roadstead_tests::eventually;
use serde_json::{Value, json};

use cluster::{Cluster, reviewed};
use generate::{Granted, Request, World};

/// Pairs of a run that says nothing else: some 15 s of them.
const PAIRS: usize = 10_000;
/// After so many pairs, other roles and bindings are generated.
const PAIRS_OF_A_WORLD: usize = 1_000;
/// Writes that grant rights, for each world.
const GRANTS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests to the apiserver at once.
const AT_ONCE: usize = 12;

fn number(variable: &str, otherwise: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}: want a number")),
        Err(_) => Ok(otherwise),
    }
}

/// What all comparisons of a run saw.
#[derive(Debug, Default)]
struct Seen {
    allowed: usize,
    refused: usize,
    /// Of decisions that name a binding, or roles that do not exist: how many named the same one, in the same words.
    same_reason: usize,
    granted: usize,
    escalated: usize,
    without_role: usize,
}

#[tokio::test]
async fn decisions_are_those_of_kubernetes() -> Result<()> {
    let cluster = Cluster::connect().await?;
    let pairs = number("ROADSTEAD_RBAC_PAIRS", PAIRS)?;
    let seed = u64::try_from(number("ROADSTEAD_RBAC_SEED", 1)?)?;
    let mut seen = Seen::default();
    let mut left = pairs;
    for round in 0.. {
        let of_this = left.min(PAIRS_OF_A_WORLD);
        if of_this == 0 {
            break;
        }
        left -= of_this;
        let mut world = World::generate(seed + round);
        cluster.create(&world).await?;
        let compared = compare(&cluster, &mut world, of_this, &mut seen).await;
        cluster.delete(&world).await;
        compared.with_context(|| format!("with ROADSTEAD_RBAC_SEED={}", seed + round))?;
    }
    eprintln!("{pairs} pairs compared: {seen:?}");
    // A run that only saw refusals would prove little.
    ensure!(seen.allowed >= pairs / 10 && seen.refused >= pairs / 10, "{seen:?}");
    ensure!(seen.same_reason >= pairs / 16, "{seen:?}");
    ensure!(seen.granted >= 5 && seen.escalated >= 5, "{seen:?}");
    Ok(())
}

async fn compare(cluster: &Cluster, world: &mut World, pairs: usize, seen: &mut Seen) -> Result<()> {
    let policy = settled(cluster, world).await?;
    let requests: Vec<Request> = (0..pairs).map(|_| world.request()).collect();
    let answers: Vec<(bool, String)> = futures::stream::iter(&requests)
        .map(|request| cluster.review(request))
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for (request, (allowed, reason)) in requests.iter().zip(answers) {
        let ours = policy.authorize(request.user(), &request.attributes());
        ensure!(ours.allowed == allowed, "{request:?}: Kubernetes: {allowed} {reason:?}, here: {ours:?}");
        ensure!(policy.allows(request.user(), &request.attributes()) == allowed, "{request:?}");
        seen.same_reason += usize::from(same_reason(&reason, &ours.reason)?);
        if allowed {
            seen.allowed += 1;
        } else {
            seen.refused += 1;
        }
    }
    for _ in 0..GRANTS.min(pairs / 4) {
        grant(cluster, &policy, &world.grant(), seen).await?;
    }
    Ok(())
}

/// Whether two reasons are the same text. Of several bindings that allow something Kubernetes names any one; where both name the
/// same, all of the text must be the same.
fn same_reason(theirs: &str, ours: &str) -> Result<bool> {
    if let (Some(theirs), Some(ours)) = (theirs.strip_prefix("RBAC: ["), ours.strip_prefix("RBAC: [")) {
        let parts = |text: &str| -> BTreeSet<String> {
            text.trim_end_matches(']').split(", ").map(str::to_owned).collect()
        };
        ensure!(parts(theirs) == parts(ours) || ours.contains("more]"), "{theirs}\n{ours}");
        return Ok(true);
    }
    let binding =
        |text: &str| text.split_once(" of ").map_or(text.to_owned(), |(binding, _)| binding.to_owned());
    if binding(theirs) == binding(ours) {
        ensure!(theirs == ours, "{theirs}\n{ours}");
        return Ok(!theirs.is_empty());
    }
    ensure!(theirs.is_empty() == ours.is_empty(), "{theirs}\n{ours}");
    Ok(false)
}

/// The policy of all that is stored in the cluster, once the apiserver's authorizer knows it too, and the aggregated roles are put
/// together, there as here.
async fn settled(cluster: &Cluster, world: &World) -> Result<Policy> {
    eventually("aggregated roles are the same", PATIENCE, || async {
        let (policy, stored) = cluster.policy().await?;
        for name in world.aggregated() {
            let rules = policy.aggregated(name).with_context(|| format!("{name} is aggregated"))?;
            let ours: BTreeSet<String> = rules.iter().map(|rule| json!(rule).to_string()).collect();
            let found = stored.iter().find(|role| role["metadata"]["name"] == name.as_str());
            let theirs: BTreeSet<String> = found
                .and_then(|role| role["rules"].as_array())
                .into_iter()
                .flatten()
                .map(|rule| in_our_form(rule).to_string())
                .collect();
            ensure!(ours == theirs, "{name}: {ours:?}, in the cluster {theirs:?}");
        }
        Ok(())
    })
    .await?;
    // Objects of a kind become known in the order in which they were stored: the last of each kind tells of all.
    cluster.create_last(world).await?;
    for request in world.last_requests() {
        eventually("the authorizer knows what was stored last", PATIENCE, || async {
            ensure!(cluster.review(&request).await?.0, "{request:?}");
            Ok(())
        })
        .await?;
    }
    Ok(cluster.policy().await?.0)
}

/// A rule with its fields in the order in which ours are written.
fn in_our_form(rule: &Value) -> Value {
    serde_json::from_value::<roadstead_rbac::PolicyRule>(rule.clone()).map_or(Value::Null, |rule| json!(rule))
}

/// Tries a write that grants rights, there as a dry run.
async fn grant(cluster: &Cluster, policy: &Policy, granted: &Granted, seen: &mut Seen) -> Result<()> {
    let (code, message) = cluster.try_write(granted).await?;
    let write = Write {
        kind: granted.kind,
        namespace: &granted.namespace,
        name: "",
        object: &granted.object,
        before: None,
        held: &[],
    };
    let ours = policy.check_grant(granted.user(), &write);
    let about = || format!("{granted:?}: Kubernetes: {code} {message}, here: {ours:?}");
    match &ours {
        Ok(()) => {
            seen.granted += 1;
            ensure!(code == 201, "{}", about());
        }
        Err(GrantError::RoleNotFound(why)) => {
            seen.without_role += 1;
            // Kubernetes says of a role that is missing that a binding of its name is.
            let end = why.split_once(' ').map_or(why.as_str(), |(_, end)| end);
            ensure!(code == 404 && message.ends_with(end), "{}", about());
        }
        Err(GrantError::Escalation(why)) => {
            seen.escalated += 1;
            ensure!(code == 403, "{}", about());
            // Kubernetes may name errors in another order, and lists more than we do.
            if !why.contains("resolution errors") && !why.contains(" more") {
                let said = message.split_once(" is forbidden: ").map_or("", |(_, said)| said);
                ensure!(words(said) == words(why), "{}", about());
            }
        }
        Err(_) => ensure!(false, "{}", about()),
    }
    Ok(())
}

/// The words of each line: in which order verbs are missing, and how often, depends on the order of an aggregated role's rules.
fn words(text: &str) -> BTreeSet<BTreeSet<&str>> {
    text.lines().map(|line| line.split([' ', ',', '[', ']', '{', '}']).collect()).collect()
}

/// How long a decision takes, with a thousand users and five hundred bindings.
#[tokio::test]
#[ignore = "a measurement: cargo test --test rbac -- --ignored --nocapture"]
async fn the_cost_of_a_decision() -> Result<()> {
    let mut policy = Policy::default();
    let objects: Vec<_> = generate::crowd(1_000, 500).collect();
    let errors = policy.apply(objects.iter().map(generate::Stored::change));
    ensure!(errors.is_empty(), "{errors:?}");
    let users: Vec<String> = (0..1_000).map(|n| format!("user-{n}")).collect();
    let groups: Vec<Vec<String>> =
        (0..1_000).map(|n| vec![format!("team-{}", n % 100), "system:authenticated".to_owned()]).collect();
    let began = std::time::Instant::now();
    let (mut allowed, rounds) = (0_u32, 200_u32);
    for round in 0..rounds {
        for (n, name) in users.iter().enumerate() {
            let namespace = format!("ns-{}", (n + round as usize) % 100);
            let (verb, group, resource) = ("list", "kustomize.toolkit.fluxcd.io", "kustomizations");
            let asked = Resource { verb, group, resource, namespace: &namespace, ..Resource::default() };
            let user = roadstead_rbac::User { name, groups: &groups[n] };
            allowed += u32::from(policy.allows(user, &Attributes::Resource(asked)));
        }
    }
    let each = began.elapsed() / (rounds * 1_000);
    eprintln!(
        "{each:?} for a decision, {allowed} of {} allowed, {} bytes kept",
        rounds * 1_000,
        policy.size()
    );
    ensure!(allowed > 0 && allowed < rounds * 1_000);
    let masters = vec![MASTERS.to_owned()];
    ensure!(policy.allows(
        roadstead_rbac::User { name: "x", groups: &masters },
        &Attributes::Path { verb: "get", path: "/" }
    ));
    Ok(())
}

#[test]
fn reviews_are_read() {
    let status = json!({ "status": { "allowed": true, "reason": "x" } });
    assert_eq!(reviewed(&status), (true, "x".to_owned()));
    assert_eq!(reviewed(&json!({ "status": { "allowed": false } })), (false, String::new()));
}
