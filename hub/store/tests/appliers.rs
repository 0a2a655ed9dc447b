//! Lists of appliers: pages across kinds, in one order.

use anyhow::Result;
use roadstead_api::{KindId, Reference};
use roadstead_hub_store::{Key, Sealer, Store};
use roadstead_model::{ApplierFilter, ListKey, Visible};
use roadstead_tests::TestDatabase;

/// Kinds that stand for those of appliers, whichever of those there are: the statement is given its kinds.
const KINDS: [KindId; 3] = [KindId::Kustomization, KindId::GitRepository, KindId::Bucket];

/// An object; each kind has a group of its own or shares it.
async fn insert(database: &TestDatabase, kind: KindId, namespace: &str, name: &str) -> Result<()> {
    let source =
        Reference { kind: KindId::GitRepository, namespace: "infra".to_owned(), name: format!("of-{name}") };
    let secret =
        Reference { kind: KindId::Secret, namespace: namespace.to_owned(), name: "of-all".to_owned() };
    let object =
        serde_json::json!({ "metadata": { "name": name }, "spec": { "suspend": kind == KindId::Bucket } });
    sqlx::query(
        "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object, \
         refers_to) VALUES ($1, $2, $3, $4, $5, 1, 1, now(), $6, $7)",
    )
    .bind(uuid::Uuid::new_v4())
    .bind(kind.get().kind)
    .bind(kind.get().group())
    .bind(namespace)
    .bind(name)
    .bind(object)
    .bind(vec![source.key(), secret.key()])
    .execute(&mut database.connect().await?)
    .await?;
    Ok(())
}

/// All that there is, page by page, as `namespace/name Kind`.
async fn pages(store: &Store, kinds: &[KindId], filter: &ApplierFilter, size: i64) -> Result<Vec<String>> {
    pages_of(store, kinds, filter, None, size).await
}

/// The same, of what is visible.
async fn pages_of(
    store: &Store,
    kinds: &[KindId],
    filter: &ApplierFilter,
    visible: Option<&Visible>,
    size: i64,
) -> Result<Vec<String>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let rows = store.applier_rows(kinds, filter, visible, after.as_ref(), size).await?;
        let Some(last) = rows.last() else { return Ok(found) };
        assert!(i64::try_from(rows.len())? <= size);
        after = Some(ListKey(last.namespace.clone(), last.name.clone(), last.kind.clone()));
        found.extend(rows.iter().map(|row| format!("{}/{} {}", row.namespace, row.name, row.kind)));
    }
}

#[tokio::test]
async fn pages_across_kinds_have_one_order_and_miss_nothing() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::generate()?)?, 4).await?;
    let mut all = Vec::new();
    for (kind, names) in [
        (KindId::GitRepository, ["a/web", "b/db", "b/web"].as_slice()),
        (KindId::Kustomization, &["a/db", "a/web", "a/web-2", "b/Z", "b/web"]),
        (KindId::Bucket, &["a/web", "c/last"]),
        // Of a kind that is not asked for.
        (KindId::HelmChart, &["a/web"]),
    ] {
        for name in names {
            let (namespace, own) = name.split_once('/').unwrap_or_default();
            insert(&database, kind, namespace, own).await?;
            if KINDS.contains(&kind) {
                all.push((namespace.to_owned(), own.to_owned(), kind.to_string()));
            }
        }
    }
    all.sort();
    let all: Vec<String> =
        all.iter().map(|(namespace, name, kind)| format!("{namespace}/{name} {kind}")).collect();
    assert_eq!(all.len(), 10);
    let every = ApplierFilter::default();
    for size in 1..=11 {
        assert_eq!(pages(&store, &KINDS, &every, size).await?, all, "pages of {size}");
    }
    // Whatever the order in which the kinds are given.
    let backwards: Vec<KindId> = KINDS.into_iter().rev().collect();
    assert_eq!(pages(&store, &backwards, &every, 2).await?, all);
    assert!(pages(&store, &[], &every, 2).await?.is_empty());

    let of = |part: &str| -> Vec<String> { all.iter().filter(|name| name.contains(part)).cloned().collect() };
    assert_eq!(pages(&store, &[KindId::GitRepository], &every, 1).await?, of(" GitRepository"));
    for (filter, want) in [
        (ApplierFilter { namespace: "b".to_owned(), ..every.clone() }, of("b/")),
        (ApplierFilter { name: "web".to_owned(), ..every.clone() }, of("/web")),
        (ApplierFilter { state: "Suspended".to_owned(), ..every.clone() }, of(" Bucket")),
        (ApplierFilter { source_name: "of-web".to_owned(), ..every.clone() }, of("/web ")),
        (
            ApplierFilter {
                source_kind: "GitRepository".to_owned(),
                source_namespace: "infra".to_owned(),
                source_name: "of-Z".to_owned(),
                ..every.clone()
            },
            of("b/Z"),
        ),
        // A Secret that it refers to is not one of its sources.
        (ApplierFilter { source_kind: "Secret".to_owned(), ..every.clone() }, Vec::new()),
        (ApplierFilter { source_name: "of-all".to_owned(), ..every.clone() }, Vec::new()),
        (
            ApplierFilter {
                source_kind: "Bucket".to_owned(),
                source_name: "of-web".to_owned(),
                ..every.clone()
            },
            Vec::new(),
        ),
    ] {
        assert_eq!(pages(&store, &KINDS, &filter, 2).await?, want, "{filter:?}");
    }
    // A kind everywhere, and others in some namespaces: each page is full, whatever lies between.
    let visible = Visible {
        kinds: vec!["Bucket".to_owned()],
        places: vec!["Kustomization/b".to_owned(), "GitRepository/none".to_owned()],
        ..Visible::default()
    };
    let want = ["a/web Bucket", "b/Z Kustomization", "b/web Kustomization", "c/last Bucket"];
    for size in 1..=5 {
        assert_eq!(pages_of(&store, &KINDS, &every, Some(&visible), size).await?, want, "pages of {size}");
    }
    let nothing = Visible::default();
    assert!(pages_of(&store, &KINDS, &every, Some(&nothing), 2).await?.is_empty());
    let rows = store.applier_rows(&KINDS, &every, None, None, 1).await?;
    assert_eq!(rows[0].sources, ["GitRepository/infra/of-db"]);
    Ok(())
}
