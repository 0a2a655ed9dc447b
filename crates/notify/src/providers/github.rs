//! `github`, `githubpullrequestcomment` and `githubdispatch`: a commit's status, a comment on a pull request, and an event that starts
//! workflows. GitHub Enterprise has the same API below `/api/v3`.

use serde::Deserialize;
use serde_json::json;

use super::comment::Thread;
use super::status::{CommitStatus, Said, listed};
use crate::event::Event;
use crate::repository::{Api, Repository, Status};
use crate::request::{Method, Request};
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};
use crate::text;

/// Statuses that are looked through for the newest of this id.
const LISTED: &str = "50";
/// Characters of a dispatch's type.
const EVENT_TYPE: usize = 100;

/// A status, as it is listed: the newest first.
#[derive(Deserialize)]
struct Listed {
    context: String,
    #[serde(flatten)]
    said: Said,
}

fn api(target: &Target, repository: &Repository) -> Result<Api, Unsendable> {
    let token = [&target.token, &target.password].into_iter().flatten().find(|token| !token.is_empty());
    let token = match token {
        Some(token) => token.expose(),
        // Nothing is sent with it.
        None if target.is_app => "",
        None => {
            return Err(Unsendable::Missing(
                "the Secret of spec.secretRef must have a `token`, or the keys of a GitHub App",
            ));
        }
    };
    let credential = ("Authorization", format!("Bearer {token}").into());
    let mut api = match repository.site.host_str() {
        Some("github.com") => repository.api(&[], credential),
        _ => repository.api(&["api", "v3"], credential),
    };
    if repository.site.host_str() == Some("github.com") {
        // A host name in the place of another, which is why it cannot fail.
        let _ = api.base.set_host(Some("api.github.com"));
    }
    Ok(api)
}

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let ([owner, name], api) = (repository.owner_and_name()?, api(target, &repository)?);
    let state = match status.verdict {
        Verdict::Pending => "pending",
        Verdict::Success => "success",
        Verdict::Failure => "failure",
        Verdict::Superseded => "error",
    };
    let body = json!({ "state": state, "context": status.context, "description": status.description });
    Ok(CommitStatus {
        ask: api.get(&["repos", owner, name, "commits", &status.commit, "statuses"], &[("per_page", LISTED)]),
        tell: api.send(Method::Post, &["repos", owner, name, "statuses", &status.commit], &body),
        said: Said::new(state, &status.description),
        instead: None,
        known: Box::new(move |answer| {
            let mut of_id = listed::<Listed>(answer).into_iter().filter(|one| one.context == status.context);
            of_id.next().map(|newest| newest.said).into_iter().collect()
        }),
    })
}

pub(super) fn thread(target: &Target, number: u64) -> Result<Thread, Unsendable> {
    let repository = Repository::of(target)?;
    let thread = Thread::of_issue(&repository, api(target, &repository)?, number)?;
    // A token of an App does not belong to a user: what it writes is by the App's bot.
    Ok(Thread { login: target.app_slug.as_ref().map(|slug| format!("{slug}[bot]")), ..thread })
}

pub(super) fn dispatch(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    let repository = Repository::of(target)?;
    let [owner, name] = repository.owner_and_name()?;
    let object = &event.involved_object;
    let type_ = format!("{}/{}.{}", object.kind, object.name, object.namespace);
    let body = json!({ "event_type": text::cut(&type_, EVENT_TYPE), "client_payload": event });
    Ok(api(target, &repository)?.send(Method::Post, &["repos", owner, name, "dispatches"], &body))
}
