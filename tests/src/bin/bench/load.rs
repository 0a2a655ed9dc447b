//! Reads and writes by several clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use reqwest::Method;
use roadstead_tests::eventually;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Plan;
use crate::api::{Api, NAMESPACES, folder, namespace_object, object, path};
use crate::figures::Figure;

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Lets every client ask again and again until the time is over, or `count` requests were made.
pub(crate) async fn run<F, R>(
    api: &Api,
    plan: &Plan,
    count: Option<usize>,
    ask: F,
) -> Result<(Vec<Duration>, Duration)>
where
    F: Fn(Api, usize) -> R + Clone + Send + 'static,
    R: Future<Output = Result<usize>> + Send,
{
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let deadline = count.is_none().then(|| begin + plan.time);
    let count = count.unwrap_or(usize::MAX);
    let mut clients = JoinSet::new();
    for _ in 0..plan.clients {
        let (api, next, ask) = (api.another()?, Arc::clone(&next), ask.clone());
        clients.spawn(async move {
            let mut times = Vec::new();
            while deadline.is_none_or(|deadline| Instant::now() < deadline) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    break;
                }
                let begin = Instant::now();
                ask(api.clone(), index).await?;
                times.push(begin.elapsed());
            }
            Ok::<_, anyhow::Error>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    Ok((times, begin.elapsed()))
}

/// Objects in an order that no cache can guess.
fn scattered(index: usize, plan: &Plan) -> usize {
    index.wrapping_mul(7919) % plan.objects
}

pub(crate) async fn create(api: &Api, plan: &Plan) -> Result<Figure> {
    for index in 0..NAMESPACES {
        let body = namespace_object(index).to_string();
        api.ask(Method::POST, "/api/v1/namespaces", "application/json", body).await?;
    }
    let (times, took) = run(api, plan, Some(plan.objects), |api, index| async move {
        let body = object(index, "first").to_string();
        api.ask(Method::POST, &folder(index), "application/json", body).await
    })
    .await
    .context("create")?;
    Ok(Figure::rate("create", times, took))
}

/// Waits until the server is done with what writes set off: no change for two seconds.
pub(crate) async fn settle(api: &Api) -> Result<()> {
    let path = format!("{}?limit=1", path(None));
    let last = std::cell::RefCell::new((String::new(), Instant::now()));
    eventually("nothing changes any more", Duration::from_secs(600), || async {
        let list = api.get(&path).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut last = last.borrow_mut();
        if last.0 != version {
            *last = (version, Instant::now());
        }
        if last.1.elapsed() < Duration::from_secs(2) {
            bail!("it still changes")
        }
        Ok(())
    })
    .await
}

pub(crate) async fn get(api: &Api, plan: &Plan) -> Result<Figure> {
    let plan_of = *plan;
    let (times, took) = run(api, plan, None, move |api, index| async move {
        api.ask(Method::GET, &path(Some(scattered(index, &plan_of))), "", String::new()).await
    })
    .await
    .context("get")?;
    Ok(Figure::rate("get", times, took))
}

pub(crate) async fn list_all(api: &Api, plan: &Plan) -> Result<Figure> {
    let few = Plan { clients: 2, ..*plan };
    let (times, took) =
        run(
            api,
            &few,
            None,
            |api, _| async move { api.ask(Method::GET, &path(None), "", String::new()).await },
        )
        .await
        .context("list")?;
    let mut figure = Figure::rate("list of all objects, 2 clients", times, took);
    if let Some(rate) = figure.values.first().map(|(_, rate)| *rate) {
        figure.values.push(("objects per second".into(), rate * plan.objects as f64));
    }
    Ok(figure)
}

pub(crate) async fn list_page(api: &Api, plan: &Plan) -> Result<Figure> {
    let (times, took) = run(api, plan, None, |api, index| async move {
        api.ask(Method::GET, &format!("{}?limit=100", folder(index)), "", String::new()).await
    })
    .await
    .context("list a page")?;
    Ok(Figure::rate("list of 100 objects of a namespace", times, took))
}

/// All objects as kubectl reads them, while somebody writes: the later pages are of a moment that is over.
pub(crate) async fn list_in_pages(api: &Api, plan: &Plan) -> Result<Figure> {
    let few = Plan { clients: 2, ..*plan };
    let (writer, objects) = (api.another()?, plan.objects);
    let writer = tokio::spawn(async move {
        for index in 0.. {
            let patch = json!({ "metadata": { "annotations": { "bench/value": format!("page {index}") } } });
            let path = path(Some(index * 7919 % objects));
            writer.ask(Method::PATCH, &path, MERGE, patch.to_string()).await?;
        }
        Ok::<_, anyhow::Error>(())
    });
    let (times, took) = run(api, &few, None, |api, _| async move {
        let (mut token, mut bytes) = (String::new(), 0);
        loop {
            let path = format!("{}?limit=500&continue={token}", path(None));
            let answer = api.request(Method::GET, &path).send().await?.error_for_status()?.bytes().await?;
            bytes += answer.len();
            let metadata = serde_json::from_slice::<Page>(&answer).context("a page")?.metadata;
            match metadata.next {
                Some(next) if !next.is_empty() => token = next,
                _ => return Ok(bytes),
            }
        }
    })
    .await
    .context("list in pages")?;
    if writer.is_finished() {
        writer.await??;
        bail!("the writer stopped");
    }
    writer.abort();
    Ok(Figure::rate("list of all in pages of 500, 2 clients, 1 writer", times, took))
}

/// What of a page says where the next one is.
#[derive(serde::Deserialize)]
struct Page {
    metadata: PageMetadata,
}

#[derive(serde::Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

pub(crate) async fn merge(api: &Api, plan: &Plan) -> Result<Figure> {
    let plan_of = *plan;
    let (times, took) = run(api, plan, None, move |api, index| async move {
        let patch = json!({ "metadata": { "annotations": { "bench/value": format!("merge {index}") } } });
        api.ask(Method::PATCH, &path(Some(scattered(index, &plan_of))), MERGE, patch.to_string()).await
    })
    .await
    .context("patch")?;
    Ok(Figure::rate("merge patch", times, took))
}

/// Server-side apply; nothing where the server does not take it.
pub(crate) async fn apply(api: &Api, plan: &Plan) -> Result<Option<Figure>> {
    let probe = api.request(Method::PATCH, &format!("{}?fieldManager=bench&force=true", path(Some(0))));
    let probe = probe.header("content-type", APPLY).body(object(0, "probe").to_string()).send().await?;
    if probe.status() == reqwest::StatusCode::UNSUPPORTED_MEDIA_TYPE {
        eprintln!("  server-side apply is not served");
        return Ok(None);
    }
    let plan_of = *plan;
    let (times, took) = run(api, plan, None, move |api, index| async move {
        let which = scattered(index, &plan_of);
        let path = format!("{}?fieldManager=bench&force=true", path(Some(which)));
        api.ask(Method::PATCH, &path, APPLY, object(which, &format!("apply {index}")).to_string()).await
    })
    .await
    .context("apply")?;
    Ok(Some(Figure::rate("server-side apply", times, took)))
}
