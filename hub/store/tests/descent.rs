//! For which URLs a person used a Secret: a source that Git wrote may send it there too, and nowhere else.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Child, Key, Parent, Sealer, Store, Stored};
use roadstead_model::ApplierUid;
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};

fn stored(kind: KindId, namespace: &str, name: &str, spec: &Value) -> Stored {
    Stored::new(kind, namespace, name, Timestamp::now(), json!({ "spec": spec }))
}

#[tokio::test]
async fn only_what_a_person_wrote_says_where_a_secret_goes() -> Result<()> {
    let database = TestDatabase::new().await?;
    let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
    let login = json!({ "name": "login" });
    let git = |host: &str| json!({ "url": format!("https://{host}"), "secretRef": login });
    let bucket =
        |endpoint: &str, insecure| json!({ "endpoint": endpoint, "insecure": insecure, "secretRef": login });
    let mut tx = store.begin().await?;
    let root = stored(KindId::Kustomization, "apps", "root", &json!({}));
    let made = stored(KindId::GitRepository, "apps", "made", &git("made.example.com"));
    let sts = json!({ "endpoint": "https://sts.example.com", "secretRef": login });
    for one in [
        stored(KindId::GitRepository, "apps", "git", &git("git.example.com")),
        stored(KindId::Bucket, "apps", "plain", &bucket("minio:9000", true)),
        stored(KindId::Bucket, "apps", "tls", &bucket("minio.example.com", false)),
        stored(KindId::Bucket, "apps", "sts", &json!({ "endpoint": "s3.example.com", "sts": sts })),
        stored(
            KindId::Provider,
            "apps",
            "chat",
            &json!({ "address": "https://chat.example.com", "secretRef": login }),
        ),
        // Of another namespace, by another Secret, and by none.
        stored(KindId::GitRepository, "other", "git", &git("other.example.com")),
        stored(
            KindId::GitRepository,
            "apps",
            "key",
            &json!({ "url": "https://key", "secretRef": { "name": "key" } }),
        ),
        stored(KindId::GitRepository, "apps", "open", &json!({ "url": "https://open.example.com" })),
        root.clone(),
        made.clone(),
    ] {
        tx.put(one).await?;
    }
    let child = Child {
        kind: KindId::GitRepository,
        namespace: "apps".to_owned(),
        name: "made".to_owned(),
        wanted: true,
        git_namespace: String::new(),
        kept: false,
        adopted: false,
        object: None,
    };
    let uid = ApplierUid::from(root.uid);
    let parent = Parent { uid, name: "apps/root", account: "" };
    tx.own_children(&parent, &[child]).await?;
    ensure!(tx.note_made(uid, &made).await?);
    tx.commit().await?;

    let urls = |secret| {
        let store = store.clone();
        async move {
            Ok::<BTreeSet<String>, anyhow::Error>(
                store.urls_of_secret("apps", secret).await?.into_iter().collect(),
            )
        }
    };
    let expected = [
        "http://minio:9000",
        "https://chat.example.com",
        "https://git.example.com",
        "https://minio.example.com",
        "https://sts.example.com",
    ];
    let found = urls("login").await?;
    ensure!(found.iter().eq(expected.iter()), "{found:?}");
    ensure!(urls("key").await?.iter().eq(["https://key"]));
    ensure!(urls("log").await?.is_empty());
    Ok(())
}
