//! `gitea` and `giteapullrequestcomment`, which are Forgejo's as well: a commit's status, and a comment on a pull request.

use serde::Deserialize;
use serde_json::json;

use super::comment::Thread;
use super::status::{CommitStatus, Said, listed};
use crate::event::Event;
use crate::repository::{Api, Repository, Status};
use crate::request::Method;
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};

/// Statuses that are looked through for the newest of this id.
const LISTED: &str = "50";

/// A status, as it is listed. Later ones have higher numbers.
#[derive(Deserialize)]
struct Listed {
    id: i64,
    context: String,
    #[serde(flatten)]
    said: Said,
}

fn api(target: &Target, repository: &Repository) -> Result<Api, Unsendable> {
    let credential = ("Authorization", format!("token {}", target.needed_token()?.expose()).into());
    Ok(repository.api(&["api", "v1"], credential))
}

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let ([owner, name], api) = (repository.owner_and_name()?, api(target, &repository)?);
    let state = match status.verdict {
        Verdict::Pending => "pending",
        Verdict::Success => "success",
        Verdict::Failure => "failure",
        Verdict::Superseded => "warning",
    };
    let body = json!({
        "state": state, "context": status.context, "description": status.description, "target_url": "",
    });
    let newest_first = [("sort", "recentupdate"), ("limit", LISTED)];
    Ok(CommitStatus {
        ask: api.get(&["repos", owner, name, "commits", &status.commit, "statuses"], &newest_first),
        tell: api.send(Method::Post, &["repos", owner, name, "statuses", &status.commit], &body),
        said: Said::new(state, &status.description),
        // Not every version heeds the order.
        instead: None,
        known: Box::new(move |answer| {
            let of_id = listed::<Listed>(answer).into_iter().filter(|one| one.context == status.context);
            of_id.max_by_key(|one| one.id).map(|newest| newest.said).into_iter().collect()
        }),
    })
}

pub(super) fn thread(target: &Target, number: u64) -> Result<Thread, Unsendable> {
    let repository = Repository::of(target)?;
    // It gives all of them at once.
    Ok(Thread { page_size: None, ..Thread::of_issue(&repository, api(target, &repository)?, number)? })
}
