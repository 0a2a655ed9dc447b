//! Statuses of commits: a commit is asked for what it has of an id, and given the status unless that says the same.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Next;
use crate::request::Request;

/// Reads an answer.
type Known = Box<dyn Fn(&[u8]) -> Vec<Said>>;

/// The status that a commit is to have.
pub(super) struct CommitStatus {
    /// Asks for those that it has.
    pub(super) ask: Request,
    /// Gives it to the commit.
    pub(super) tell: Request,
    /// What it says.
    pub(super) said: Said,
    /// What those of its id say that count, of an answer to the question.
    pub(super) known: Known,
    /// What is told in its place where those that count say this: of services that refuse to be told the same state with other words.
    pub(super) instead: Option<Instead>,
}

/// What is told where there is a status, if anything; none where nothing is there that would be in the way.
pub(super) type Instead = Box<dyn Fn(&[Said]) -> Option<Vec<Request>>>;

/// What a status says, in the service's words; GitLab and Gitea list the state as `status`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Said {
    #[serde(alias = "status")]
    pub(super) state: String,
    description: Option<String>,
}

impl Said {
    pub(super) fn new(state: &str, description: &str) -> Self {
        Self { state: state.to_owned(), description: Some(description.to_owned()) }
    }
}

impl CommitStatus {
    /// What is left to be told. An answer that cannot be read knows of none: telling a status once more does no harm.
    pub(super) fn heard(self, answer: &[u8]) -> Next {
        let known = (self.known)(answer);
        if known.contains(&self.said) {
            return Next::Tell(Vec::new());
        }
        let instead = self.instead.and_then(|instead| instead(&known));
        Next::Tell(instead.unwrap_or_else(|| vec![self.tell]))
    }
}

/// A list of statuses, as far as it can be read.
pub(super) fn listed<T: DeserializeOwned>(answer: &[u8]) -> Vec<T> {
    serde_json::from_slice(answer).unwrap_or_default()
}

/// The only status that a service gives by its id.
pub(super) fn only(answer: &[u8]) -> Vec<Said> {
    serde_json::from_slice(answer).into_iter().collect()
}
