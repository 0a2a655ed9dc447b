//! What the audit log costs.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_model::{AuditEntry, AuditFilter, AuditOrigin, AuditOutcome};
use roadstead_tests::TestDatabase;
use tokio::task::JoinSet;

/// A change of a few fields by one of many.
fn entry(number: usize) -> AuditEntry {
    let field = r#"{"path":".spec.path","from":"./deploy/production","to":"./deploy/staging"}"#;
    AuditEntry {
        username: format!("user-{}@example.com", number % 500),
        origin: AuditOrigin {
            address: format!("192.0.2.{}", number % 250),
            request: format!("00000000-0000-4000-8000-{number:012}"),
            administrator: number.is_multiple_of(100),
        },
        verb: ["create", "patch", "get", "delete"][number % 4].to_owned(),
        group: "kustomize.toolkit.fluxcd.io".to_owned(),
        kind: "Kustomization".to_owned(),
        namespace: format!("team-{}", number % 200),
        name: format!("app-{}", number % 5_000),
        outcome: if number.is_multiple_of(50) { AuditOutcome::Refused } else { AuditOutcome::Ok },
        changes: Some(format!("[{field},{field}]")),
        ..AuditEntry::default()
    }
}

#[tokio::test]
#[ignore = "a measurement: cargo test --test audit -- --ignored --nocapture"]
async fn what_a_row_costs() -> Result<()> {
    const ROWS: usize = 100_000;
    const ALONE: usize = 4_000;
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 16).await?;
    let began = Instant::now();
    for numbers in (0..ALONE).collect::<Vec<_>>().chunks(8) {
        let mut writes = JoinSet::new();
        for number in numbers {
            let (store, entries) = (store.clone(), [entry(*number)]);
            writes.spawn(async move { store.note(&entries).await });
        }
        while let Some(written) = writes.join_next().await {
            written??;
        }
    }
    let rate = |rows: usize, began: Instant| (rows as f64 / began.elapsed().as_secs_f64()).round();
    println!("one in each transaction, 8 at once: {} rows/s", rate(ALONE, began));
    let began = Instant::now();
    for numbers in (ALONE..ROWS).collect::<Vec<_>>().chunks(500) {
        store.note(&numbers.iter().map(|number| entry(*number)).collect::<Vec<_>>()).await?;
    }
    println!("500 in each transaction, one after the other: {} rows/s", rate(ROWS - ALONE, began));
    let began = Instant::now();
    let mut batches = 0;
    while store.seal_audit(Timestamp::now(), None).await?.context("a batch")?.newest.batch > batches {
        batches += 1;
    }
    println!("sealed: {} rows/s in {batches} batches", rate(ROWS, began));
    let began = Instant::now();
    let check = store.check_audit().await?;
    ensure!(check.problems.is_empty() && check.entries == i64::try_from(ROWS)?, "{check:?}");
    println!("checked: {} rows/s", rate(ROWS, began));
    let mut connection = database.connect().await?;
    sqlx::query("VACUUM ANALYZE audit").execute(&mut connection).await?;
    let (table, indexes): (i64, i64) =
        sqlx::query_as("SELECT pg_relation_size('audit'), pg_indexes_size('audit')")
            .fetch_one(&mut connection)
            .await?;
    let each = |bytes: i64| bytes / i64::try_from(ROWS).unwrap_or(1);
    println!("bytes of a row, after it was sealed: {} and {} of indexes", each(table), each(indexes));
    let all = || AuditFilter { newest_first: true, ..AuditFilter::default() };
    let now = Timestamp::now();
    for (what, filter) in [
        ("all", all()),
        ("user", AuditFilter { username: "user-7@example.com".into(), ..all() }),
        ("user, unknown", AuditFilter { username: "nobody".into(), ..all() }),
        ("verb, unknown", AuditFilter { verb: "enrol".into(), ..all() }),
        ("kind, unknown", AuditFilter { kind: "Secret".into(), ..all() }),
        (
            "object",
            AuditFilter {
                kind: "Kustomization".into(),
                namespace: "team-7".into(),
                name: "app-7".into(),
                ..all()
            },
        ),
        ("namespace", AuditFilter { namespace: "team-7".into(), ..all() }),
        ("refused", AuditFilter { outcome: Some(AuditOutcome::Refused), ..all() }),
        ("request", AuditFilter { request: entry(77).origin.request, ..all() }),
        ("administrators", AuditFilter { administrator: true, ..all() }),
        (
            "the last second, oldest first",
            AuditFilter {
                since: Some(now.saturating_sub(SignedDuration::from_secs(1))?),
                ..AuditFilter::default()
            },
        ),
        (
            "before it began",
            AuditFilter { until: Some(now.saturating_sub(SignedDuration::from_hours(48))?), ..all() },
        ),
    ] {
        // The first time plans and fills caches.
        store.audit_log(&filter, 100).await?;
        let began = Instant::now();
        let found = store.audit_log(&filter, 100).await?.len();
        println!("{what}: {found} rows in {:.1} ms", began.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(())
}
