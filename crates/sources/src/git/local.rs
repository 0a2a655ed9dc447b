//! A repository on this machine, for development: opened directly, without Git's programs, hooks or settings.

use std::path::Path;

use super::error::{GitError, git_chain};
use super::reader::Order;
use super::remote::Target;
use super::request::{GitReference, GitRequest};
use super::versions::{self, Tag};

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
        if let GitReference::SemVer(range) = reference {
            return self.newest(range, order);
        }
        let url = || self.request.shown_url();
        let missing = || GitError::ReferenceNotFound {
            url: url(),
            reference: reference.to_string(),
            detail: String::new(),
        };
        let local = |error: gix::Error| GitError::Local { url: url(), detail: git_chain(&error) };
        let object = match reference {
            GitReference::Commit { id, .. } => {
                let id = gix::ObjectId::from_hex(id.as_bytes()).map_err(|_| missing())?;
                if !self.repository.has_object(id) {
                    return Err(missing());
                }
                id
            }
            reference => {
                let mut first = None;
                for name in reference.full_names() {
                    let found = self.repository.try_find_reference(name.as_str()).map_err(local)?;
                    first = first.or(found.filter(|found| found.name().as_bstr() == name));
                }
                first.ok_or_else(missing)?.follow_to_object().map_err(local)?.detach()
            }
        };
        let commit =
            super::objects::peel(self.objects(), object, order).map_err(|error| error.of(self.request))?;
        Ok(Target { object, commit: commit.to_string(), tag: None })
    }

    /// The newest tag in a range of versions.
    fn newest(&self, range: &str, order: &Order) -> Result<Target, GitError> {
        let url = || self.request.shown_url();
        let local = |error: gix::Error| GitError::Local { url: url(), detail: git_chain(&error) };
        let all = self.repository.references().map_err(local)?;
        let tags = all.tags().map_err(local)?.filter_map(|reference| {
            let mut reference = reference.ok()?;
            let name = reference.name().as_bstr().to_string();
            let object = reference.follow_to_object().ok()?.detach();
            Some(Tag { name: name.strip_prefix("refs/tags/")?.to_owned(), object, commit: object })
        });
        let objects = self.objects();
        let made = |tags: &[Tag]| tags.iter().map(|tag| versions::made(objects, tag.object, order)).collect();
        let found = versions::newest(range, tags.collect::<Vec<_>>(), made);
        let found = found.map_err(|error| error.of(self.request))?;
        let commit =
            super::objects::peel(objects, found.object, order).map_err(|error| error.of(self.request))?;
        Ok(Target { commit: commit.to_string(), ..Target::of_tag(found) })
    }
}
