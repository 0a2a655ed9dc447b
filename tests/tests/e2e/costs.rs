//! What a change costs the database, as Postgres counts it, and the apiserver, as the agent does.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{AgentRequests, PATIENCE, config_map, eventually, kustomization};
use sqlx::PgConnection;
use tokio::sync::Mutex;

/// Kustomizations that one commit changes: no more than may build, or wait for that, at once. Others come again, how often depends
/// on how fast builds are.
const COUNT: usize = 16;

/// Statements of one reconciliation: from the source's fetch, which all share, until nothing is due any more. What is on a timer comes
/// as often as the machine is slow, and is not in it, nor is what is `GROUPED`. Whoever needs more says why here; who needs less
/// lowers it.
const MOST_STATEMENTS: f64 = 32.0;
/// How statements begin that serve all who wait for them at once: how many there are depends on what happens to come together.
const GROUPED: [&str; 15] = [
    "SELECT pg_notify(",
    "SELECT h.last_version, h.compacted, e.*",
    "UPDATE reconciliation SET sent_in",
    "SELECT DISTINCT s.session FROM reconciliation",
    "SELECT session = $2, EXISTS (SELECT FROM resting",
    "WITH RECURSIVE usual",
    // What passes gather.
    "SELECT place, uid, api_group",
    "SELECT uid, api_group, kind, namespace, name, generation, resource_version, created_at, deletion_timestamp, object, sealed FROM resource WHERE uid = ANY",
    "SELECT newest.* FROM",
    "SELECT asked.applier, owned.*",
    "SELECT asked.applier, asked.cluster, owned.*",
    "SELECT cluster_uid, session, replica, agent_version",
    "WITH RECURSIVE up AS ( SELECT place",
    "SELECT inputs, why, since, until FROM set_aside",
    "SELECT asked.recipe, asked.most",
];
/// Of these, together. 9 were seen; if nothing came together, there would be more than 20.
const MOST_GROUPED: f64 = 16.0;
/// How long statements are counted while nothing happens: what is on a timer of some seconds is in it.
const IDLE: Duration = Duration::from_secs(20);
/// Of the statements, the explicit transactions.
const MOST_TRANSACTIONS: f64 = 3.0;
/// Requests to the apiserver of one reconciliation of one object that changed, by what they do. The object is not read: the dry-run's answer
/// tells enough. The cluster's policy is, and whether the agent is paused. Besides the object, what is kept for a restart is written: taken
/// back before, and put there afterwards. Reconciliations share both as they happen to come together.
const MOST_REQUESTS: [(&str, usize); 3] = [("dry_run", 1), ("read", 2), ("apply", 3)];

/// What seals the audit log, in each second in which something was written to it: that is on a timer as well, which rests while nothing
/// happens. It is one transaction, and takes this lock of its own with one of these statements.
const SEALING: [&str; 3] = ["audit_batch", "UPDATE audit SET batch", "audit_trimmed"];
const SEALS: &str = "SELECT batch, mac FROM audit_batch ORDER BY batch DESC LIMIT";

/// Takes the sealing of the audit log out of what was counted.
fn without_sealing(counted: &mut BTreeMap<String, f64>) {
    let sealings: f64 =
        counted.iter().filter(|(query, _)| query.starts_with(SEALS)).map(|(_, calls)| calls).sum();
    counted.retain(|query, _| !SEALING.iter().any(|part| query.contains(part)));
    for query in ["BEGIN", "COMMIT", "SELECT pg_try_advisory_xact_lock($1)"] {
        if let Some(calls) = counted.get_mut(query) {
            *calls = (*calls - sealings).max(0.0);
        }
    }
}

#[tokio::test]
async fn a_reconciliation_takes_so_many_statements() -> Result<()> {
    let (fleet, requests) = AgentRequests::of_fleet("costs").await?;
    let space = fleet.cluster.namespace("costs").await?;
    let repository = fleet.repository("app", &files(space.name(), "one")).await?;
    let all: Vec<String> = (0..COUNT)
        .map(|number| kustomization(&format!("app-{number}"), "app", &format!("./app-{number}/"), &[]))
        .collect();
    fleet.apply(&all.concat()).await?;
    let database = Mutex::new(fleet.setup.database().connect().await?);
    settled(&database, &repository.git(["rev-parse", "main"], &[], b"")?).await?;
    sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&mut *database.lock().await).await?;

    let second = repository.commit("main", "Second", &files(space.name(), "two"))?;
    sqlx::query(RESET).execute(&mut *database.lock().await).await?;
    let began = Instant::now();
    fleet.run(&["annotate", "gitrepository/app", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    settled(&database, &second).await?;
    let (took, mut counted) = (began.elapsed(), counted(&mut *database.lock().await).await?);
    let mut idle = idle(&database).await?;
    without_sealing(&mut counted);
    without_sealing(&mut idle);
    for (query, calls) in &mut counted {
        *calls -= idle.get(query).map_or(0.0, |rate| rate * took.as_secs_f64());
        *calls = calls.max(0.0) / COUNT as f64;
    }
    let of = |is_it: &dyn Fn(&str) -> bool| {
        counted.iter().filter(|(query, _)| is_it(query)).map(|(_, calls)| calls).sum::<f64>()
    };
    let is_grouped = |query: &str| GROUPED.iter().any(|begin| query.starts_with(begin));
    let (grouped, transactions) = (of(&is_grouped), of(&|query| query == "BEGIN"));
    let statements = of(&|query| !is_grouped(query));
    let mut listed: Vec<_> = counted.iter().map(|(query, calls)| format!("{calls:5.2} {query}")).collect();
    listed.sort_unstable_by(|one, other| other.cmp(one));
    let listed = listed.join("\n");
    println!("{statements} statements and {grouped} for all at once, {transactions} transactions:\n{listed}");
    ensure!(statements <= MOST_STATEMENTS, "{statements} statements for each:\n{listed}");
    ensure!(grouped <= MOST_GROUPED, "{grouped} statements for all at once for each:\n{listed}");
    ensure!(transactions <= MOST_TRANSACTIONS, "{transactions} transactions for each:\n{listed}");
    // It counts what it is about.
    ensure!(
        transactions >= 1.5
            && GROUPED.iter().all(|begin| counted.keys().any(|query| query.starts_with(begin)))
            && listed.contains("INSERT INTO reconciliation"),
        "it did not count:\n{listed}"
    );
    // What the agent keeps of the first two has its place by now.
    let before = requests.by_verb().await?;
    let third = repository.commit("main", "Third", &files(space.name(), "three"))?;
    fleet
        .run(&["annotate", "--overwrite", "gitrepository/app", "reconcile.fluxcd.io/requestedAt=later"])
        .await?;
    settled(&database, &third).await?;
    let sent = requests.since(&before).await?;
    println!("requests to the apiserver: {sent:?}");
    for (verb, most) in MOST_REQUESTS {
        let count = usize::try_from(sent.get(verb).copied().unwrap_or_default())?;
        // With what the agent does on a timer; one more for each would be twice that.
        ensure!(count <= most * COUNT + COUNT / 2, "more than {most} `{verb}` for each: {sent:?}");
    }
    ensure!(sent["apply"] >= COUNT as u64, "it did not count: {sent:?}");
    let others = sent.keys().filter(|verb| MOST_REQUESTS.iter().all(|(known, _)| known != verb));
    let others: u64 = others.filter(|verb| *verb != "watch").map(|verb| sent[verb]).sum();
    ensure!(others < COUNT as u64 / 2, "of other verbs: {sent:?}");
    // The next pass is due at the interval, of most of them: one that was under way when the result came looks at its deadline.
    let rest: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM schedule WHERE kind = 'applier' AND due_at > now() + interval '50 minutes'",
    )
    .fetch_one(&mut *database.lock().await)
    .await?;
    ensure!(usize::try_from(rest)? > COUNT / 2, "{rest} of {COUNT} rest until their interval is over");
    Ok(())
}

fn files(namespace: &str, word: &str) -> Commit {
    (0..COUNT).fold(Commit::new(), |files, number| {
        let map = config_map(namespace, &format!("map-{number}"), word);
        files.file(&format!("app-{number}/map.yaml"), map)
    })
}

const RESET: &str =
    "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()";

/// How often each statement was called in this database; without the test's own.
async fn counted(database: &mut PgConnection) -> Result<BTreeMap<String, f64>> {
    let counted: Vec<(String, f64)> = sqlx::query_as(
        "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 200) AS query, sum(calls)::float8 FROM pg_stat_statements
         WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%of_the_test%'
         GROUP BY 1",
    )
    .fetch_all(database)
    .await?;
    Ok(counted.into_iter().collect())
}

/// How often each statement is called in a second in which nothing happens.
async fn idle(database: &Mutex<PgConnection>) -> Result<BTreeMap<String, f64>> {
    sqlx::query(RESET).execute(&mut *database.lock().await).await?;
    let began = Instant::now();
    tokio::time::sleep(IDLE).await;
    let (took, counted) = (began.elapsed().as_secs_f64(), counted(&mut *database.lock().await).await?);
    Ok(counted.into_iter().map(|(query, calls)| (query, calls / took)).collect())
}

/// Waits until all are Ready at this commit and nothing is due any more, without asking the hub.
async fn settled(database: &Mutex<PgConnection>, commit: &str) -> Result<()> {
    eventually("all is applied and nothing is due", PATIENCE, || async {
        let mut database = database.lock().await;
        let (ready, due): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM resource WHERE kind = 'Kustomization' AND ready ->> 'status' = 'True'
                       AND object #>> '{status,lastAppliedRevision}' = 'main@sha1:' || $1) AS of_the_test,
                    (SELECT count(*) FROM schedule WHERE due_at <= now() OR claimed_by IS NOT NULL)",
        )
        .bind(commit)
        .fetch_one(&mut *database)
        .await?;
        ensure!(usize::try_from(ready)? == COUNT && due == 0, "{ready} of {COUNT} are Ready, {due} passes are due");
        Ok(())
    })
    .await
}
