//! Comments on pull and merge requests: one of each Provider and object, which each event rewrites. It is found again by a
//! mark in it that nobody sees, and by who wrote it.

use serde::Deserialize;
use serde_json::json;

use super::post::post;
use super::{Next, Question};
use crate::event::Event;
use crate::repository::{Api, Repository};
use crate::request::{Method, Request};
use crate::target::{Target, Unsendable};

/// Comments that are read at once: each has up to 64 KiB.
const PAGE: usize = 10;
/// Pages that are looked through.
const MOST_PAGES: u32 = 50;

/// The comments of one request.
pub(super) struct Thread {
    pub(super) api: Api,
    /// Where all of them are, and new ones come.
    pub(super) all: Vec<String>,
    /// Below which each is, by its number.
    pub(super) one: Vec<String>,
    /// How one is changed.
    pub(super) edit: Method,
    /// What their order is asked by.
    pub(super) query: &'static [(&'static str, &'static str)],
    /// How the service calls the size of a page, where it has pages.
    pub(super) page_size: Option<&'static str>,
    /// What the mark begins with.
    pub(super) marker: &'static str,
    /// The user that the token is of, where the service does not say so by the token.
    pub(super) login: Option<String>,
}

#[derive(Deserialize)]
struct Person {
    id: u64,
}

/// A comment; GitLab says `author`.
#[derive(Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: String,
    #[serde(alias = "author")]
    user: Option<Person>,
}

/// The number of the request that an event is about.
pub(super) fn number(event: &Event) -> Result<u64, Unsendable> {
    let number = event.metadata.get("change_request").and_then(|number| number.trim().parse().ok());
    number.ok_or(Unsendable::Event(
        "the `change_request` of the event is not the number of a pull or merge request",
    ))
}

impl Thread {
    /// That of a pull request at GitHub and what follows it, where pull requests are issues.
    pub(super) fn of_issue(repository: &Repository, api: Api, number: u64) -> Result<Self, Unsendable> {
        let [owner, name] = repository.owner_and_name()?;
        let number = number.to_string();
        Ok(Self {
            api,
            all: ["repos", owner, name, "issues", &number, "comments"].map(str::to_owned).to_vec(),
            one: ["repos", owner, name, "issues", "comments"].map(str::to_owned).to_vec(),
            edit: Method::Patch,
            query: &[],
            page_size: Some("per_page"),
            marker: "flux-pr-comment-key:",
            login: None,
        })
    }

    /// Who the token's user is.
    pub(super) fn author(&self) -> Request {
        match &self.login {
            Some(login) => self.api.get(&["users", login], &[]),
            None => self.api.get(&["user"], &[]),
        }
    }

    pub(super) fn author_is(&self, answer: &[u8]) -> Result<Next, Unsendable> {
        let person: Person = serde_json::from_slice(answer)
            .map_err(|_| Unsendable::Answer("the service did not say who the token's user is"))?;
        Ok(self.page(person.id, 1))
    }

    fn page(&self, author: u64, page: u32) -> Next {
        let path: Vec<&str> = self.all.iter().map(String::as_str).collect();
        let (size, number) = (PAGE.to_string(), page.to_string());
        let mut query = self.query.to_vec();
        if let Some(name) = self.page_size {
            query.extend([(name, size.as_str()), ("page", &number)]);
        }
        Next::Ask(self.api.get(&path, &query), Question::Comments { author, page })
    }

    /// What is to be done once it is known which comments there are.
    pub(super) fn listed(
        &self,
        target: &Target,
        event: &Event,
        author: u64,
        page: u32,
        answer: &[u8],
    ) -> Result<Next, Unsendable> {
        let comments: Vec<Comment> = serde_json::from_slice(answer)
            .map_err(|_| Unsendable::Answer("the service's list of comments cannot be read"))?;
        let mark = format!("<!-- {} {}/{} -->", self.marker, target.uid, event.unique_path());
        let body = format!("{mark}\n\n{}", post(event));
        let is_own = |comment: &&Comment| {
            comment.user.as_ref().is_some_and(|user| user.id == author) && comment.body.starts_with(&mark)
        };
        let told = json!({ "body": body });
        if let Some(own) = comments.iter().find(is_own) {
            // Services may end lines otherwise, and drop the last one's end.
            if own.body.replace("\r\n", "\n").trim_end() == body.trim_end() {
                return Ok(Next::Tell(Vec::new()));
            }
            let id = own.id.to_string();
            let path: Vec<&str> = self.one.iter().map(String::as_str).chain([id.as_str()]).collect();
            return Ok(Next::Tell(vec![self.api.send(self.edit, &path, &told)]));
        }
        if self.page_size.is_some() && comments.len() >= PAGE {
            if page >= MOST_PAGES {
                return Err(Unsendable::Event(
                    "the pull or merge request has more than 500 comments, and none of the first 500 is this Provider's",
                ));
            }
            return Ok(self.page(author, page + 1));
        }
        let path: Vec<&str> = self.all.iter().map(String::as_str).collect();
        Ok(Next::Tell(vec![self.api.send(Method::Post, &path, &told)]))
    }
}
