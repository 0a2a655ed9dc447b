//! What it costs to know who asks and what they may do: requests by people of a real OpenID provider whose roles decide, beside the
//! same ones by a master; how soon a right that is taken away ends a watch; and what the audit log takes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::Method;
use roadstead_tests::{HubProcess, HubSetup, OpenIdProvider, TestDatabase, eventually};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::task::JoinSet;

use crate::Plan;
use crate::api::{Api, NAMESPACES, path};
use crate::figures::{Figure, Report};
use crate::load;
use crate::memory::Processes;

/// People, each with a token of the provider's; `tests/oidc/provider.mjs` knows as many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct People {
    pub(crate) people: usize,
    pub(crate) bindings: usize,
    /// Rights that are taken away while somebody watches.
    pub(crate) taken: usize,
}

/// Teams that the provider puts people into, each with a role in one namespace.
const TEAMS: usize = 50;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// Watches of one connection: the hub lets a connection have some more requests at once, and what is beyond would wait for its turn.
const WATCHES_OF_A_CONNECTION: usize = 25;
const PATIENCE: Duration = Duration::from_secs(60);
/// What keeps the log from being sealed while it is held (`hub/store/src/audit/batches.rs`).
const SEALER: i64 = 0x726f_6164_6175_6469;

pub(crate) async fn measure(report: &mut Report, plan: &Plan) -> Result<()> {
    let provider = OpenIdProvider::start().await?;
    let setup = HubSetup::new("bench-rights").await?;
    let file = setup.folder().join("authentication.json");
    std::fs::write(&file, trusting(&provider).to_string())?;
    let setup = setup.arg(&format!("--authentication-config={}", file.display()));
    let hub = HubProcess::start(&setup).await?;
    let master = Api::of(hub.kubectl()).await?;
    let processes = Processes::hub(hub.id(), setup.database().url())?;
    let mut add = |figure| report.add("roadstead-hub", figure);

    load::create(&master, plan).await?;
    load::settle(&master).await?;
    add(asked("master", plan, std::slice::from_ref(&master), Method::GET).await?);
    add(asked("master", plan, std::slice::from_ref(&master), Method::PATCH).await?);

    bind(&master, plan).await?;
    let people: Vec<Api> = futures::stream::iter(0..plan.people.people)
        .map(|index| {
            let (provider, master) = (&provider, &master);
            async move {
                let token = provider.sign_in("kubernetes", &format!("user-{index}")).await?;
                Ok::<_, anyhow::Error>(master.by(token))
            }
        })
        .buffered(plan.clients)
        .try_collect()
        .await?;
    eventually("the roles are known", PATIENCE, || async { people[0].get(&path(Some(0))).await }).await?;
    let name = format!("{} people of an issuer, {} bindings", people.len(), plan.people.bindings);
    add(asked(&name, plan, &people, Method::GET).await?);
    add(asked(&name, plan, &people, Method::PATCH).await?);
    add(first(&people).await?);

    add(taken(&master, &people[..1], plan).await?);
    add(taken(&master, &people, &Plan { people: People { taken: 5, ..plan.people }, ..*plan }).await?);
    for figure in audit(&master, plan, setup.database(), &processes).await? {
        add(figure);
    }
    Ok(())
}

fn trusting(provider: &OpenIdProvider) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": provider.url(), "certificateAuthority": provider.ca_pem(), "audiences": ["kubernetes"],
            },
            "claimMappings": {
                "username": { "claim": "sub", "prefix": "oidc:" }, "groups": { "claim": "groups", "prefix": "oidc:" },
            },
        }],
    })
}

/// Each team may edit one namespace; of the other bindings four fifths are a person's in a namespace, and one fifth for the whole hub.
async fn bind(master: &Api, plan: &Plan) -> Result<()> {
    let of = |subject: Value, kind: &str, role: &str, name: String| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [subject],
        })
    };
    let subject = |kind: &str, name: String| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reads-namespaces" },
        "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }],
    });
    create(master, "clusterroles", &role).await?;
    for index in 0..plan.people.bindings {
        let namespace = format!("namespaces/bench-{}/rolebindings", index % NAMESPACES);
        let person = subject("User", format!("oidc:user-{index}"));
        if index < TEAMS {
            let team = subject("Group", format!("oidc:team-{index}"));
            create(master, &namespace, &of(team, "RoleBinding", "edit", format!("team-{index}"))).await?;
        } else if index % 5 == 0 {
            let binding = of(person, "ClusterRoleBinding", "reads-namespaces", format!("bench-{index}"));
            create(master, "clusterrolebindings", &binding).await?;
        } else {
            create(master, &namespace, &of(person, "RoleBinding", "view", format!("person-{index}"))).await?;
        }
    }
    Ok(())
}

async fn create(master: &Api, to: &str, object: &Value) -> Result<()> {
    master.ask(Method::POST, &format!("{RBAC}/{to}"), "application/json", object.to_string()).await.map(drop)
}

/// Requests for objects that whoever asks may have: the people take turns, each with objects of the namespace of their team.
async fn asked(by: &str, plan: &Plan, people: &[Api], method: Method) -> Result<Figure> {
    let tokens: Vec<Option<String>> = people.iter().map(|one| one.token().map(str::to_owned)).collect();
    let (first, plan_of) = (people.first().context("nobody asks")?, *plan);
    let name = format!("{} by {by}", if method == Method::GET { "get" } else { "merge patch" });
    let (times, took) = load::run(first, plan, None, move |api, index| {
        let person = index % tokens.len();
        let api = tokens[person].clone().map_or_else(|| api.clone(), |token| api.by(token));
        // Of the objects of bench-N every tenth one is in it.
        let turn = index.wrapping_mul(7919) % (plan_of.objects / NAMESPACES);
        let of = path(Some(turn * NAMESPACES + person % NAMESPACES));
        let method = method.clone();
        async move {
            if method == Method::GET {
                return api.ask(method, &of, "", String::new()).await;
            }
            let patch =
                json!({ "metadata": { "annotations": { "bench/value": format!("rights {index}") } } });
            api.ask(method, &of, "application/merge-patch+json", patch.to_string()).await
        }
    })
    .await
    .with_context(|| name.clone())?;
    Ok(Figure::rate(&name, times, took))
}

/// The whole way of a person's first request: a connection, the token's signature, the roles.
async fn first(people: &[Api]) -> Result<Figure> {
    let mut times = Vec::new();
    for (index, person) in people.iter().enumerate().take(200) {
        let person = person.another()?;
        let begin = Instant::now();
        person.ask(Method::GET, &path(Some(index % NAMESPACES)), "", String::new()).await?;
        times.push(begin.elapsed());
    }
    Ok(Figure::latency("get on a connection of its own", times))
}

/// From the moment a binding's deletion is answered to the end of the last of the watches that it allowed.
async fn taken(master: &Api, people: &[Api], plan: &Plan) -> Result<Figure> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "watchers" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated" }],
    });
    let watch = "/apis/source.toolkit.fluxcd.io/v1/gitrepositories?watch=true&timeoutSeconds=600";
    let doors = people.len().div_ceil(WATCHES_OF_A_CONNECTION);
    let doors: Vec<Api> = (0..doors).map(|_| master.another()).collect::<Result<_>>()?;
    let (mut times, mut early) = (Vec::new(), 0);
    for _ in 0..plan.people.taken {
        create(master, "clusterrolebindings", &binding).await?;
        eventually("the binding is known", PATIENCE, || async {
            people[0].request(Method::GET, watch).send().await?.error_for_status()?;
            Ok(())
        })
        .await?;
        let mut watches = JoinSet::new();
        for (index, person) in people.iter().enumerate() {
            let door = doors[index % doors.len()].by(person.token().context("a token")?.to_owned());
            let answer = door.request(Method::GET, watch).send().await?.error_for_status()?;
            watches.spawn(async move {
                let mut body = answer.bytes_stream();
                while let Some(Ok(_)) = body.next().await {}
                Instant::now()
            });
        }
        early += usize::from(watches.try_join_next().is_some());
        let of = format!("{RBAC}/clusterrolebindings/watchers");
        master.ask(Method::DELETE, &of, "", String::new()).await?;
        let begin = Instant::now();
        let mut last = begin;
        while let Some(end) =
            tokio::time::timeout(PATIENCE, watches.join_next()).await.context("a watch goes on")?
        {
            last = last.max(end?);
        }
        times.push(last - begin);
    }
    ensure!(early == 0, "a watch ended before its right was taken");
    Ok(Figure::latency(&format!("right taken away to the end of {} watches", people.len()), times))
}

/// What entries take: their number a second, their bytes, and what it costs to seal them.
async fn audit(
    master: &Api,
    plan: &Plan,
    database: &TestDatabase,
    processes: &Processes,
) -> Result<Vec<Figure>> {
    let (mut asks, mut holds) = (database.connect().await?, database.connect().await?);
    let before = sizes(&mut asks).await?;
    // As long as this holds the lock nobody seals.
    sqlx::query("SELECT pg_advisory_lock($1)").bind(SEALER).execute(&mut holds).await?;
    let already = pending(&mut asks).await?;
    let begin = Instant::now();
    let written =
        asked("master, with nothing sealed", plan, std::slice::from_ref(master), Method::PATCH).await?;
    let took = begin.elapsed().as_secs_f64();
    load::settle(master).await?;
    let rows = pending(&mut asks).await?;
    ensure!(rows > already, "nothing was written");
    let (front, back) = processes.seconds()?;
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(SEALER).execute(&mut holds).await?;
    let begin = Instant::now();
    while pending(&mut asks).await? > 0 {
        ensure!(begin.elapsed() < PATIENCE, "the log is not sealed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let until_sealed = begin.elapsed();
    let busy = processes.seconds()?;
    // As much time in which nothing happens.
    tokio::time::sleep(until_sealed).await;
    let idle = processes.seconds()?;
    let seconds = (busy.0 - front + busy.1 - back) - (idle.0 - busy.0 + idle.1 - busy.1);
    let after = sizes(&mut asks).await?;
    let of_a_row =
        |of: fn(&Sizes) -> i64| (of(&after) - of(&before)) as f64 / (after.rows - before.rows) as f64;
    let log = Figure {
        name: "audit log".to_owned(),
        values: vec![
            ("rows per second".into(), (rows - already) as f64 / took),
            ("bytes a row".into(), of_a_row(|sizes| sizes.table)),
            ("index bytes a row".into(), of_a_row(|sizes| sizes.indexes)),
            ("CPU µs a row, sealing".into(), seconds * 1e6 / rows as f64),
            ("s until sealed".into(), until_sealed.as_secs_f64()),
        ],
    };
    Ok(vec![written, log])
}

/// How many entries of the log are in no batch yet.
async fn pending(connection: &mut PgConnection) -> Result<i64> {
    let query = sqlx::query_scalar("SELECT count(*) FROM audit WHERE batch IS NULL");
    query.fetch_one(connection).await.context("count what is not sealed")
}

#[derive(sqlx::FromRow)]
struct Sizes {
    rows: i64,
    table: i64,
    indexes: i64,
}

/// What the log takes, without what was in use before.
async fn sizes(connection: &mut PgConnection) -> Result<Sizes> {
    sqlx::query("VACUUM FULL audit").execute(&mut *connection).await?;
    let query = sqlx::query_as(
        "SELECT count(*) AS rows, pg_table_size('audit') AS table, pg_indexes_size('audit') AS indexes FROM audit",
    );
    query.fetch_one(connection).await.context("measure the log")
}
