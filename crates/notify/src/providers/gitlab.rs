//! `gitlab` and `gitlabmergerequestcomment`: a commit's status, and a note on a merge request. The project may be named by its path, of
//! any depth, or by its number.

use serde::Deserialize;
use serde_json::json;

use super::comment::Thread;
use super::status::{CommitStatus, Said, listed};
use crate::event::Event;
use crate::repository::{Api, Repository, Status};
use crate::request::Method;
use crate::target::{Target, Unsendable};

/// A status, as it is listed.
#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(flatten)]
    said: Said,
}

fn api(target: &Target, repository: &Repository) -> Result<Api, Unsendable> {
    let credential = ("PRIVATE-TOKEN", target.needed_token()?.clone());
    Ok(repository.api(&["api", "v4"], credential))
}

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let (project, api) = (repository.path.join("/"), api(target, &repository)?);
    let state = if event.is_error() { "failed" } else { "success" };
    let body = json!({ "name": status.context, "state": state, "description": status.description });
    let all = ["projects", &project, "repository", "commits", &status.commit, "statuses"];
    Ok(CommitStatus {
        ask: api.get(&all, &[("name", &status.context)]),
        tell: api.send(Method::Post, &["projects", &project, "statuses", &status.commit], &body),
        said: Said::new(state, &status.description),
        // One for each pipeline: any of them will do.
        known: Box::new(move |answer| {
            let all = listed::<Listed>(answer).into_iter();
            all.filter(|one| one.name == status.context).map(|one| one.said).collect()
        }),
    })
}

pub(super) fn thread(target: &Target, number: u64) -> Result<Thread, Unsendable> {
    let repository = Repository::of(target)?;
    let number = number.to_string();
    let notes = ["projects", &repository.path.join("/"), "merge_requests", &number, "notes"]
        .map(str::to_owned)
        .to_vec();
    Ok(Thread {
        api: api(target, &repository)?,
        all: notes.clone(),
        one: notes,
        edit: Method::Put,
        query: &[("sort", "asc"), ("order_by", "created_at")],
        page_size: Some("per_page"),
        marker: "flux-mr-comment-key:",
    })
}
