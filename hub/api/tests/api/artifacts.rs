//! Artifacts of sources over HTTP: who gets which, whole or in part.

use std::time::Duration;

use anyhow::{Context as _, Result};
use reqwest::{Response, StatusCode};
use roadstead_hub_store::AtRest;
use roadstead_model::{Digest, ResourceUid};
use serde_json::json;

use crate::support::{Replica, Site, client};

const PATH: &str = "/fleet/v1/sources/GitRepository/default/web/artifact";
const SOURCE: &str = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: web}\n\
                      spec: {interval: 5m, url: https://git.test/web}\n";

async fn ask(replica: &Replica, query: &str, headers: &[(&str, &str)]) -> Result<Response> {
    let url = format!("{}{PATH}{query}", replica.url);
    let request = client(replica)?.get(url).bearer_auth(&replica.token).header("accept-encoding", "gzip");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.send().await.context("ask the hub")
}

fn header(response: &Response, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_artifact_is_had_by_digest_revision_and_time_whole_or_in_part() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    replica.kubectl.apply(SOURCE).await?;
    assert_eq!(ask(&replica, "", &[]).await?.status(), StatusCode::NOT_FOUND, "nothing was fetched yet");

    // Long enough to be worth compressing, if that were done; and sealed, as fetched ones are.
    let store = site.store().await?;
    let object = replica.kubectl.get(&["gitrepository", "web"]).await?;
    let uid = ResourceUid(object["metadata"]["uid"].as_str().context("a uid")?.parse()?);
    let now = store.now().await?;
    let (older, newer) = (vec![b'o'; 100_000], (0..200_000_u32).map(|n| n as u8).collect::<Vec<_>>());
    let (first, second) = (format!("main@sha1:{}", "1".repeat(40)), format!("main@sha1:{}", "2".repeat(40)));
    for (bytes, revision, ago) in [(&older, &first, 3600), (&newer, &second, 60)] {
        let digest = Digest::of(bytes);
        store.put_blob(digest, bytes, AtRest::Sealed, now).await?;
        let mut tx = store.begin().await?;
        tx.keep_artifact(uid, &revision.parse()?, Ok(digest), now - Duration::from_secs(ago)).await?;
        tx.commit().await?;
    }
    let artifact = json!({ "digest": Digest::of(&newer).to_string(), "revision": second, "path": "x", "url": "",
                           "lastUpdateTime": "2026-01-01T00:00:00Z" });
    sqlx::query("UPDATE resource SET object = jsonb_set(object, '{status}', $1) WHERE name = 'web'")
        .bind(json!({ "artifact": artifact }))
        .execute(&mut site.database.connect().await?)
        .await?;

    let whole = ask(&replica, "", &[]).await?;
    assert_eq!(whole.status(), StatusCode::OK);
    let tag = header(&whole, "etag");
    assert_eq!(tag, format!("\"{}\"", Digest::of(&newer)));
    assert_eq!(header(&whole, "content-type"), "application/gzip");
    assert_eq!(
        (header(&whole, "content-encoding"), header(&whole, "content-length")),
        (String::new(), "200000".into())
    );
    assert_eq!(
        (header(&whole, "accept-ranges"), header(&whole, "roadstead-revision")),
        ("bytes".into(), second.clone())
    );
    assert_eq!(whole.bytes().await?, newer);

    let before = (now - Duration::from_secs(1800)).to_string();
    for query in [
        format!("?digest={}", Digest::of(&older)),
        format!("?revision={first}"),
        // Whatever branch it was found by.
        format!("?revision=sha1:{}", "1".repeat(40)),
        format!("?at={before}"),
    ] {
        let found = ask(&replica, &query, &[]).await?;
        assert_eq!(found.status(), StatusCode::OK, "{query}");
        assert_eq!(found.bytes().await?, older, "{query}");
    }
    assert_eq!(ask(&replica, &format!("?at={now}"), &[]).await?.bytes().await?, newer);
    for (query, code) in [
        (format!("?digest={}", Digest::of(b"another's")), StatusCode::NOT_FOUND),
        (format!("?revision=sha1:{}", "3".repeat(40)), StatusCode::NOT_FOUND),
        ("?at=2020-01-01T00:00:00Z".to_owned(), StatusCode::NOT_FOUND),
        ("?digest=sha256:1234".to_owned(), StatusCode::BAD_REQUEST),
        ("?at=yesterday".to_owned(), StatusCode::BAD_REQUEST),
        (format!("?at={now}&revision={first}"), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(ask(&replica, &query, &[]).await?.status(), code, "{query}");
    }

    let part = ask(&replica, "", &[("range", "bytes=10-19")]).await?;
    assert_eq!(
        (part.status(), header(&part, "content-range")),
        (StatusCode::PARTIAL_CONTENT, "bytes 10-19/200000".into())
    );
    assert_eq!(part.bytes().await?, newer[10..20]);
    let outside = ask(&replica, "", &[("range", "bytes=200000-")]).await?;
    assert_eq!(outside.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    let another = ask(&replica, "", &[("range", "bytes=10-19"), ("if-range", "\"other\"")]).await?;
    assert_eq!((another.status(), another.bytes().await?.len()), (StatusCode::OK, newer.len()));
    let known = ask(&replica, "", &[("if-none-match", &tag)]).await?;
    assert_eq!((known.status(), header(&known, "etag")), (StatusCode::NOT_MODIFIED, tag));
    assert!(known.bytes().await?.is_empty());

    // It takes to be allowed to read the source.
    let bob = replica.hub.identity.create_access_token("bob", &["dev".to_owned()], None).await?;
    let url = format!("{}{PATH}", replica.url);
    let refused = client(&replica)?.get(&url).bearer_auth(bob.expose()).send().await?;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    assert_eq!(client(&replica)?.get(&url).send().await?.status(), StatusCode::UNAUTHORIZED);
    // And as a line that people use.
    let raw = replica.kubectl.run(&["get", "--raw", &format!("{PATH}?revision={first}")]).await?;
    assert_eq!(raw.as_bytes(), older);
    Ok(())
}
