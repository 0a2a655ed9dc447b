//! `gitlab` and `gitlabmergerequestcomment`: a commit's status, and a note on a merge request. The project may be named by its path, of
//! any depth, or by its number.

use serde::Deserialize;
use serde_json::json;

use super::comment::Thread;
use super::status::{CommitStatus, Instead, Said, listed};
use crate::event::Event;
use crate::repository::{Api, Repository, Status};
use crate::request::Method;
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};

/// The states of what is under way: from the first to the second there is a step, and neither may be told once more.
const WAITS: &str = "pending";
const RUNS: &str = "running";

/// A status, as it is listed. Later ones have higher numbers.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    id: i64,
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
    let state = match status.verdict {
        Verdict::Pending => WAITS,
        Verdict::Success => "success",
        Verdict::Failure => "failed",
        Verdict::Superseded => "canceled",
    };
    let body =
        |state: &str| json!({ "name": status.context, "state": state, "description": status.description });
    let tells = ["projects", &project, "statuses", &status.commit];
    let tell = |state: &str| api.send(Method::Post, &tells, &body(state));
    let runs = (status.verdict == Verdict::Pending).then(|| tell(RUNS));
    let instead = event.rollout.is_some().then(|| -> Instead {
        Box::new(move |known| match (known.first()?.state.as_str(), &runs) {
            (WAITS, Some(runs)) => Some(vec![runs.clone()]),
            (RUNS, Some(_)) => Some(Vec::new()),
            (known, None) if known == state => Some(Vec::new()),
            _ => None,
        })
    });
    let all = ["projects", &project, "repository", "commits", &status.commit, "statuses"];
    Ok(CommitStatus {
        ask: api.get(&all, &[("name", &status.context)]),
        tell: tell(state),
        said: Said::new(state, &status.description),
        instead,
        // One for each pipeline: any of them will do, the newest first.
        known: Box::new(move |answer| {
            let mut all = listed::<Listed>(answer);
            all.sort_by_key(|one| std::cmp::Reverse(one.id));
            all.into_iter().filter(|one| one.name == status.context).map(|one| one.said).collect()
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
        login: None,
    })
}
