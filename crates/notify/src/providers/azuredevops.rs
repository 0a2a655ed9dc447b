//! `azuredevops`: a status of a commit in a repository of Azure DevOps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::status::{CommitStatus, Said};
use crate::event::Event;
use crate::repository::{Repository, Status};
use crate::request::Method;
use crate::rollout::Verdict;
use crate::target::{Target, Unsendable};

/// The version of the API that is asked for.
const VERSION: &[(&str, &str)] = &[("api-version", "7.1")];
/// What stands before the repository's name in its URL.
const BEFORE_NAME: &str = "_git";
/// What statuses belong to.
const GENRE: &str = "fluxcd";

/// Statuses of a commit.
#[derive(Deserialize)]
struct Page {
    value: Vec<Listed>,
}

/// A status. Later ones have higher numbers.
#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    id: i64,
    context: Context,
    #[serde(flatten)]
    said: Said,
}

#[derive(Deserialize, PartialEq, Eq)]
struct Context {
    genre: Option<String>,
    name: String,
}

pub(super) fn status(target: &Target, event: &Event) -> Result<CommitStatus, Unsendable> {
    let (repository, status) = (Repository::of(target)?, Status::of(target, event)?);
    let wanted = Unsendable::Address(
        "that of a repository: want https://dev.azure.com/ORGANIZATION/PROJECT/_git/NAME",
    );
    let Some(at) = repository.path.iter().position(|part| part == BEFORE_NAME) else { return Err(wanted) };
    let [name] = &repository.path[at + 1..] else { return Err(wanted) };
    let authorization = if target.is_identity {
        format!("Bearer {}", target.bearer_token()?)
    } else {
        let token = Zeroizing::new(format!(":{}", target.needed_token()?.expose()));
        format!("Basic {}", STANDARD.encode(token.as_bytes()))
    };
    let credential = ("Authorization", authorization.into());
    let below: Vec<&str> = repository.path[..at].iter().map(String::as_str).collect();
    let mut api = repository.api(&below, credential);
    api.query = VERSION;
    let statuses = ["_apis", "git", "repositories", name, "commits", &status.commit, "statuses"];
    let state = match status.verdict {
        Verdict::Pending => "pending",
        Verdict::Success => "succeeded",
        Verdict::Failure => "error",
        Verdict::Superseded => "notApplicable",
    };
    let genre = match event.metadata.get("summary") {
        Some(summary) => format!("{GENRE}:{summary}"),
        None => GENRE.to_owned(),
    };
    let body = json!({
        "state": state, "description": status.description,
        "context": { "genre": genre, "name": status.context },
    });
    let context = Context { genre: Some(genre), name: status.context };
    Ok(CommitStatus {
        ask: api.get(&statuses, &[]),
        tell: api.send(Method::Post, &statuses, &body),
        said: Said::new(state, &status.description),
        instead: None,
        known: Box::new(move |answer| {
            let all = serde_json::from_slice::<Page>(answer).map(|page| page.value).unwrap_or_default();
            let of_id = all.into_iter().filter(|one| one.context == context);
            of_id.max_by_key(|one| one.id).map(|newest| newest.said).into_iter().collect()
        }),
    })
}
