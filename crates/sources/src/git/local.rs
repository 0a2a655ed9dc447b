//! A repository on this machine, for development: opened directly, without Git's programs, hooks or settings.

use std::path::Path;

use super::error::{GitError, git_chain};
use super::reader::Order;
use super::remote::Target;
use super::request::{GitReference, GitRequest};

/// An open local repository.
pub(super) struct Local<'a> {
    repository: gix::Repository,
    request: &'a GitRequest,
}

impl<'a> Local<'a> {
    pub(super) fn open(path: &Path, request: &'a GitRequest) -> Result<Self, GitError> {
        // Isolated: neither the environment nor the machine's or user's Git settings have a say.
        let repository = gix::open_opts(path, gix::open::Options::isolated())
            .map_err(|error| GitError::Local { url: request.shown_url(), detail: git_chain(&error) })?;
        Ok(Self { repository, request })
    }

    pub(super) fn objects(&self) -> &gix::OdbHandle {
        &self.repository.objects
    }

    pub(super) fn find(&self, order: &Order) -> Result<Target, GitError> {
        let reference = &self.request.reference;
        let url = || self.request.shown_url();
        let missing = || GitError::ReferenceNotFound {
            url: url(),
            reference: reference.to_string(),
            detail: String::new(),
        };
        let local = |error: gix::Error| GitError::Local { url: url(), detail: git_chain(&error) };
        let object = match (reference, reference.full_name()) {
            (GitReference::Commit { id, .. }, _) => {
                let id = gix::ObjectId::from_hex(id.as_bytes()).map_err(|_| missing())?;
                if !self.repository.has_object(id) {
                    return Err(missing());
                }
                id
            }
            (_, Some(name)) => {
                let found = self.repository.try_find_reference(name.as_str()).map_err(local)?;
                let mut found = found.filter(|found| found.name().as_bstr() == name).ok_or_else(missing)?;
                found.follow_to_object().map_err(local)?.detach()
            }
            (_, None) => return Err(missing()),
        };
        let commit =
            super::walk::peel(self.objects(), object, order).map_err(|error| error.of(self.request))?;
        Ok(Target { object, commit: commit.to_string() })
    }
}
