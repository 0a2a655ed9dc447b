//! The dashboard's files over HTTP: who gets them, and what a browser is held to.

use crate::support::{Replica, Site};
use anyhow::{Context as _, Result};
use reqwest::{Client, redirect::Policy};

fn browser(replica: &Replica) -> Result<Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let roots = reqwest::Certificate::from_pem_bundle(replica.hub.pki().server_ca_pem().as_bytes())?;
    Ok(Client::builder().tls_certs_only(roots).no_proxy().redirect(Policy::none()).build()?)
}

#[tokio::test]
async fn pages_are_public_and_guarded() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let client = browser(&replica)?;
    for path in ["/", "/ui"] {
        let answer = client.get(format!("{}{path}", replica.url)).send().await?;
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["location"]),
            (307, &"/ui/".parse()?),
            "{path}"
        );
    }
    // What is not a file is a page's own address.
    for path in ["/ui/", "/ui/index.html", "/ui/kustomizations/a/b?x=1"] {
        let answer = client.get(format!("{}{path}", replica.url)).send().await?;
        assert_eq!(answer.status(), 200, "{path}");
        let policy = answer.headers()["content-security-policy"].to_str()?.to_owned();
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        for (header, want) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.headers()[header], want, "{path}");
        }
        assert!(answer.text().await?.contains("<title>Roadstead</title>"), "{path}");
    }
    let none = client.get(format!("{}/ui/assets/none.js", replica.url)).send().await?;
    assert_eq!(none.status(), 404);
    let post = client.post(format!("{}/ui/", replica.url)).send().await?;
    assert_eq!(post.status(), 405);
    Ok(())
}

#[tokio::test]
async fn a_built_page_is_compressed_and_asked_for_once() -> Result<()> {
    let site = Site::new().await?;
    let replica = site.replica().await?;
    let client = browser(&replica)?;
    let page = client.get(format!("{}/ui/", replica.url)).send().await?;
    let tag = page.headers().get("etag").cloned();
    let text = page.text().await?;
    let Some(tag) = tag else {
        // npm has not run: the page that stands in says how to go on without a dashboard.
        assert!(text.contains("kubectl get clusters"));
        return Ok(());
    };
    let again = client.get(format!("{}/ui/", replica.url)).header("if-none-match", tag).send().await?;
    assert_eq!(again.status(), 304);
    let script = text.split('"').find(|part| part.ends_with(".js")).context("a script")?;
    let script =
        client.get(format!("{}{script}", replica.url)).header("accept-encoding", "gzip, br").send().await?;
    let header =
        |name: &str| script.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert_eq!((header("content-encoding"), header("vary")), ("br", "accept-encoding"));
    assert_eq!(header("content-type"), "text/javascript; charset=utf-8");
    assert!(header("cache-control").contains("immutable"));
    Ok(())
}
