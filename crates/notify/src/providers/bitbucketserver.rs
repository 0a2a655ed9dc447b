//! `bitbucketserver`: a build status of a commit at Bitbucket Server and Data Center, which may be below a path of its host.

use serde_json::json;

use super::status::{CommitStatus, Said, only};
use crate::event::Event;
use crate::repository::{Repository, Status};
use crate::request::{Method, Request};
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};

/// What stands before the project in a clone URL.
const BEFORE_PROJECT: &str = "scm";

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let wanted = Unsendable::Address("the clone URL of a repository: want https://HOST/scm/PROJECT/NAME.git");
    let Some(at) = repository.path.iter().rposition(|part| part == BEFORE_PROJECT) else {
        return Err(wanted);
    };
    let [project, name] = &repository.path[at + 1..] else { return Err(wanted) };
    let credential = target.authorization().ok_or(Unsendable::Missing(
        "the Secret of spec.secretRef must have a `token`, or `username` and `password`",
    ))?;
    let context = repository.path[..at].iter().map(String::as_str);
    let below: Vec<&str> = context.chain(["rest", "api", "latest"]).collect();
    let api = repository.api(&below, ("Authorization", credential));
    let builds = ["projects", project, "repos", name, "commits", &status.commit, "builds"];
    let state = match status.verdict {
        Verdict::Pending => "INPROGRESS",
        Verdict::Success => "SUCCESSFUL",
        Verdict::Failure => "FAILED",
        Verdict::Superseded => "CANCELLED",
    };
    let key = status.key();
    let object = &event.involved_object;
    let body = json!({
        "key": key, "state": state, "url": format!("{}{}", repository.site, repository.path.join("/")),
        "name": format!("{}/{} [{}]", object.kind.to_lowercase(), object.name, status.description),
        "description": status.description,
    });
    Ok(CommitStatus {
        ask: not_a_page(api.get(&builds, &[("key", &key)])),
        tell: not_a_page(api.send(Method::Post, &builds, &body)),
        said: Said::new(state, &status.description),
        instead: None,
        known: Box::new(only),
    })
}

/// Without these it takes a request for that of a page that was led here.
fn not_a_page(request: Request) -> Request {
    request.header("x-atlassian-token", "no-check").header("x-requested-with", "XMLHttpRequest")
}
