//! A bucket of the operator's: what is put there comes back, and whatever its server does ends in an answer, within its time and bytes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use roadstead_outbound::{Guard, Policy, Purpose};
use roadstead_s3::{BadObject, Bucket, BucketError, BucketOptions, Credential, CredentialFile, Limits};
use roadstead_test_gitserver::install_crypto;
use roadstead_tests::{FakeS3, S3Fault};

/// So long it may take in these tests.
const QUICK: Limits = Limits { request: Duration::from_secs(1), bytes_per_second: 1 << 20 };

fn options(server: &FakeS3, credentials: &Path) -> Result<BucketOptions> {
    Ok(BucketOptions {
        bucket: "artifacts".to_owned(),
        prefix: "hubs/one".to_owned(),
        endpoint: Some(server.url().parse()?),
        region: None,
        ca: None,
        credential: Credential::File(CredentialFile::new(credentials.to_owned())),
        limits: QUICK,
    })
}

/// A server, and a bucket of it.
async fn start() -> Result<(FakeS3, Bucket, tempfile::TempDir)> {
    install_crypto();
    let (server, folder) = (FakeS3::start().await?, tempfile::tempdir()?);
    let file = folder.path().join("credentials");
    std::fs::write(&file, "[default]\naws_access_key_id = hub\naws_secret_access_key = hunter2\n")?;
    let options = options(&server, &file)?;
    let host = server.url().replace("http://", "");
    let policy = Policy::new(vec![host.parse().context("a rule")?]);
    let bucket = Bucket::new(options, Guard::new(Arc::new(policy), Purpose::Bucket))?;
    Ok((server, bucket, folder))
}

async fn fails(bucket: &Bucket, name: &str, bytes: u64) -> Result<BucketError> {
    bucket.get(name, bytes).await.err().context("it was read")
}

#[tokio::test]
async fn what_is_put_is_read_listed_and_removed() -> Result<()> {
    let (server, bucket, _folder) = start().await?;
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    bucket.put("a/x", bytes.clone().into()).await?;
    ensure!(server.keys() == ["artifacts/hubs/one/a/x"], "{:?}", server.keys());
    ensure!(bucket.get("a/x", bytes.len() as u64).await?.as_ref() == Ok(&bytes));
    ensure!(bucket.get("a/x", 5).await? == Err(BadObject::OtherLength));
    ensure!(bucket.get("a/y", 5).await? == Err(BadObject::Missing));

    // In pages, and nothing of others.
    server.put("artifacts/hubs/two/a/x", b"of another hub");
    for at in 0..5 {
        bucket.put(&format!("a/{at}"), Bytes::from_static(b"x")).await?;
    }
    server.page(2);
    let (mut names, mut next, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = bucket.names("a/", next.as_deref()).await?;
        names.extend(page.names);
        pages += 1;
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    ensure!(names == ["a/0", "a/1", "a/2", "a/3", "a/4", "a/x"] && pages == 3, "{names:?} in {pages} pages");

    bucket.remove("a/x").await?;
    bucket.remove("a/x").await?;
    ensure!(bucket.get("a/x", 5).await? == Err(BadObject::Missing));
    Ok(())
}

#[tokio::test]
async fn whatever_a_server_does_ends() -> Result<()> {
    let (server, bucket, _folder) = start().await?;
    let bytes = vec![7; 100];
    bucket.put("x", bytes.clone().into()).await?;
    let read = async |fault: S3Fault| {
        server.fault(fault);
        let began = Instant::now();
        let read = bucket.get("x", 100).await;
        ensure!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        Ok(read)
    };
    let other =
        |read: Result<Result<Vec<u8>, BadObject>, BucketError>| read == Ok(Err(BadObject::OtherLength));
    ensure!(other(read(S3Fault::Longer).await?), "longer");
    // A gigabyte, or more: no more of it is taken than the object has.
    ensure!(other(read(S3Fault::Endless).await?), "endless");
    // What is changed is for whoever knows the digest.
    ensure!(read(S3Fault::Changes).await?.is_ok_and(|read| read.is_ok_and(|read| read != bytes)));
    let unreachable = read(S3Fault::BreaksOff).await?;
    ensure!(matches!(unreachable, Err(BucketError::Unreachable { .. })), "{unreachable:?}");
    for slow in [S3Fault::Drips, S3Fault::Hangs] {
        let read = read(slow.clone()).await?;
        ensure!(matches!(read, Err(BucketError::TooSlow { .. })), "{slow:?}: {read:?}");
    }
    let elsewhere = FakeS3::start().await?;
    let refused = read(S3Fault::Redirects(format!("{}/artifacts/hubs/one/x", elsewhere.url()))).await?;
    ensure!(matches!(refused, Err(BucketError::Refused { status: 307, .. })), "{refused:?}");
    ensure!(elsewhere.seen().is_empty(), "a redirect was followed");

    server.fault(S3Fault::HoldsPuts);
    let held = bucket.put("y", bytes.clone().into()).await;
    ensure!(matches!(held, Err(BucketError::TooSlow { .. })), "{held:?}");
    for list in ["<html/>", "", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"] {
        server.fault(S3Fault::Lists(list));
        let listed = bucket.names("", None).await;
        ensure!(matches!(listed, Err(BucketError::Malformed { .. })), "{list}: {listed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn that_a_bucket_is_not_there_says_nothing_of_its_objects() -> Result<()> {
    let (server, bucket, folder) = start().await?;
    bucket.put("x", Bytes::from_static(b"x")).await?;
    ensure!(bucket.outage().is_none());
    for (status, code) in [(404, "NoSuchBucket"), (404, "hunter 2"), (403, "AccessDenied"), (503, "SlowDown")]
    {
        server.fault(S3Fault::Refuses(status, code));
        let error = fails(&bucket, "x", 1).await?;
        ensure!(matches!(error, BucketError::Refused { status: told, .. } if told == status), "{error}");
        let text = error.to_string();
        ensure!(text.contains("s3://artifacts/hubs/one") && !text.contains("hunter"), "{text}");
        ensure!(bucket.outage().is_some_and(|why| why == text));
        ensure!(bucket.remove("x").await.is_err() && bucket.probe().await.is_err());
    }
    server.fault(S3Fault::None);
    bucket.probe().await?;
    ensure!(bucket.outage().is_none());
    // A key that is taken away is told, and no server is asked without one.
    std::fs::write(folder.path().join("credentials"), "nothing")?;
    ensure!(!server.seen().is_empty());
    let error = fails(&bucket, "x", 1).await?;
    ensure!(matches!(error, BucketError::Credentials { .. }), "{error}");
    ensure!(server.seen().is_empty(), "it was asked");
    Ok(())
}

#[tokio::test]
async fn the_token_of_a_session_is_not_sent_in_the_clear() -> Result<()> {
    let (server, bucket, folder) = start().await?;
    let session = "aws_access_key_id=A\naws_secret_access_key=s\naws_session_token=t\n";
    std::fs::write(folder.path().join("credentials"), session)?;
    let error = fails(&bucket, "x", 1).await?;
    ensure!(error.to_string().contains("plain HTTP"), "{error}");
    ensure!(server.seen().is_empty(), "it was asked");
    Ok(())
}

#[tokio::test]
async fn what_names_no_bucket_is_refused() -> Result<()> {
    let server = FakeS3::start().await?;
    let refused = |change: &dyn Fn(&mut BucketOptions)| {
        let mut options = options(&server, Path::new("/nowhere"))?;
        change(&mut options);
        options.server().err().context("it was taken")
    };
    refused(&|options| options.bucket = "a/b".to_owned())?;
    refused(&|options| options.bucket = String::new())?;
    refused(&|options| options.region = Some("a b".to_owned()))?;
    for prefix in ["/a", "a//b", "a/../b", "a b", "a?b"] {
        refused(&|options| options.prefix = prefix.to_owned())?;
    }
    for endpoint in ["ftp://host", "https://host/path", "https://host/?a", "https://me:hunter2@host"] {
        let error = refused(&|options| options.endpoint = endpoint.parse().ok())?;
        ensure!(!error.to_string().contains("hunter2"), "{error}");
    }
    // Without an endpoint it is Amazon's, at the bucket's own host.
    let mut amazon = options(&server, Path::new("/nowhere"))?;
    (amazon.endpoint, amazon.region) = (None, Some("eu-west-1".to_owned()));
    ensure!(amazon.server()?.as_str() == "https://artifacts.s3.eu-west-1.amazonaws.com/");
    Ok(())
}
