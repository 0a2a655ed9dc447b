//! Submodules of a repository that is being fetched: each is asked for at its own server, by the commit that the repository which
//! names it is at. Bytes and time are those of the whole fetch.

use super::error::GitError;
use super::fetching::{Attempt, about};
use super::intake::Intake;
use super::reader::{Module, Order, Reply};
use super::request::{GitReference, GitRequest};
use super::submodule::{self, MOST, MOST_DEEP};
use super::url::Location;
use super::walk::Wanted;
use super::wire::{Ask, What, Wire, is_object_id};
use crate::attempt::plain;
use crate::reading::Job;
use crate::tree::{Measure, TreeError, check_path};

/// The greeting, and the pack.
const MOST_REQUESTS: usize = 2;

/// A submodule that was fetched.
pub(super) struct FetchedModule {
    url: String,
    /// How many repositories it lies in.
    level: usize,
}

impl Attempt<'_> {
    /// Fetches what a reader wants to have. It is untrusted: where each is, and whether it is asked at all, is decided here.
    pub(super) async fn fetch_modules(
        &mut self,
        wanted: Vec<Wanted>,
        mut intake: Intake,
    ) -> Result<Intake, GitError> {
        for wanted in wanted {
            if self.modules.len() >= MOST {
                return Err(self.too_many(Measure::Submodules, MOST, None));
            }
            let Wanted { path, commit, url, parent } = wanted;
            let is_there = self.order.modules.iter().any(|module| module.path == path);
            if is_there || !is_object_id(&commit) || check_path(&path, &self.request.limits.tree).is_err() {
                return Err(self.internal("the reader asks for a submodule that cannot be"));
            }
            let above = match parent.checked_sub(1) {
                None => Some((self.request.url.clone(), 0)),
                Some(number) => self.modules.get(number).map(|module| (module.url.clone(), module.level)),
            };
            let (above, level) = above.ok_or_else(|| self.internal("the reader names no repository"))?;
            if level >= MOST_DEEP {
                return Err(self.too_many(Measure::SubmoduleLevels, MOST_DEEP, Some(path)));
            }
            let url = submodule::resolve(&above, &url).map_err(|why| GitError::SubmoduleRefused {
                url: self.request.shown_url(),
                path: plain(&path),
                why,
            })?;
            let first = self.desk.answers.len();
            let (fetched, elsewhere) = self.fetch_module(&url, &commit, intake).await;
            let headings;
            (intake, headings) = fetched.map_err(|source| GitError::Submodule {
                url: self.request.shown_url(),
                path: plain(&path),
                elsewhere,
                source: Box::new(source),
            })?;
            self.modules.push(FetchedModule { url, level: level + 1 });
            self.order.modules.push(Module { path, commit, first, headings });
        }
        Ok(intake)
    }

    /// Asks for a submodule's commit. Gives the content types of the answers, and tells whether it is at another server.
    async fn fetch_module(
        &mut self,
        url: &str,
        commit: &str,
        intake: Intake,
    ) -> (Result<(Intake, Vec<String>), GitError>, bool) {
        match submodule::request(self.request, self.location, url.to_owned(), commit) {
            Err(error) => (Err(error), false),
            Ok((request, Location::Ssh(_), true)) => {
                let why = "it is reached over SSH, and the key of `spec.secretRef` is shown to the server of `spec.url` only";
                let url = request.shown_url();
                (Err(GitError::LoginUnusable { url, why: why.to_owned() }), true)
            }
            Ok((request, location, elsewhere)) => {
                (self.ask_module(&request, &location, commit, intake).await, elsewhere)
            }
        }
    }

    async fn ask_module(
        &mut self,
        request: &GitRequest,
        location: &Location,
        commit: &str,
        intake: Intake,
    ) -> Result<(Intake, Vec<String>), GitError> {
        let mut wire: Wire = Self::wire(location, request, self.stop, intake)?;
        let mut order = Order {
            reference: GitReference::Commit { id: commit.to_owned(), branch: None },
            first: self.desk.answers.len(),
            ..Order::plain(request)
        };
        let mut ask = Ask::Greeting;
        for _ in 0..MOST_REQUESTS {
            let about = about(&ask);
            let answer;
            (wire, answer) = self.ask(wire, ask, &about).await?;
            let answer = answer?;
            order.headings.push(answer.heading.clone());
            self.desk.answers.push(answer);
            if is_object_id(&about) {
                return Ok((wire.into_intake(), order.headings));
            }
            let job = Job::Git(&order).encode().map_err(|error| self.internal(&error.to_string()))?;
            match self.read_by(&about, job).await?.reply {
                Reply::Ask(next @ Ask::UploadPack { what: What::Pack(_), .. })
                    if next.is_sound() && super::fetching::about(&next) == commit =>
                {
                    ask = next;
                }
                Reply::Unread(unread) => return Err(unread.of(request)),
                _ => return Err(self.internal("the reader does not ask for the submodule's commit")),
            }
        }
        Err(self.internal("the reader asks too many questions"))
    }

    fn too_many(&self, measure: Measure, limit: usize, path: Option<String>) -> GitError {
        GitError::tree(self.request, None, TreeError::TooLarge { measure, limit: limit as u64, path })
    }
}
