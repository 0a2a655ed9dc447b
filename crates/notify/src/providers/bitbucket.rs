//! `bitbucket`: a build status of a commit at Bitbucket Cloud.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::status::{CommitStatus, Said, only};
use crate::event::Event;
use crate::repository::{Api, Repository, Status};
use crate::request::Method;
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};

/// The only service of this type.
const HOST: &str = "bitbucket.org";

fn api(target: &Target, repository: &Repository) -> Result<Api, Unsendable> {
    if repository.site.host_str() != Some(HOST) {
        return Err(Unsendable::Address(
            "that of a repository at https://bitbucket.org: use type bitbucketserver for others",
        ));
    }
    let token = target.needed_token()?.expose();
    if !token.contains(':') {
        return Err(Unsendable::Missing(
            "the `token` in the Secret of spec.secretRef must be USERNAME:APP-PASSWORD",
        ));
    }
    let mut api =
        repository.api(&["2.0"], ("Authorization", format!("Basic {}", STANDARD.encode(token)).into()));
    // A host name in the place of another, which is why it cannot fail.
    let _ = api.base.set_host(Some("api.bitbucket.org"));
    Ok(api)
}

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let ([owner, name], api) = (repository.owner_and_name()?, api(target, &repository)?);
    let state = match status.verdict {
        Verdict::Pending => "INPROGRESS",
        Verdict::Success => "SUCCESSFUL",
        Verdict::Failure => "FAILED",
        Verdict::Superseded => "STOPPED",
    };
    let key = status.key();
    let body = json!({
        "state": state, "key": key, "name": status.context, "description": status.description,
        "url": repository.site.as_str().trim_end_matches('/'),
    });
    let all = ["repositories", owner, name, "commit", &status.commit, "statuses", "build"];
    Ok(CommitStatus {
        ask: api.get(&[&all[..], &[&key]].concat(), &[]),
        tell: api.send(Method::Post, &all, &body),
        said: Said::new(state, &status.description),
        instead: None,
        known: Box::new(only),
    })
}
