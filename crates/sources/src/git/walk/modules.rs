//! Submodules that the walk comes across: those that are there are walked, others are noted as wanted.

use std::collections::BTreeMap;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use gix::objs::{Find, FindHeader, Header};

use super::{Folder, Walk, Wanted};
use crate::attempt::Note;
use crate::git::objects::{self, corrupt, tree_of};
use crate::git::unread::Unread;
use crate::git::{gitmodules, submodule};

impl<O: Find + FindHeader> Walk<'_, O> {
    /// The root of a submodule, if it is there; notes that it is wanted, or left out.
    pub(super) fn submodule(
        &mut self,
        path: &str,
        repository: usize,
        commit: ObjectId,
        excluded: bool,
    ) -> Result<Option<Folder>, Unread> {
        let id = commit.to_string();
        if !self.order.recurse {
            if !excluded {
                self.note(Note::Submodule { path: path.to_owned(), commit: id });
            }
            return Ok(None);
        }
        let number = self.order.modules.iter().position(|module| module.path == path && module.commit == id);
        if let Some(number) = number.map(|number| number + 1) {
            let objects = self.repository(number)?;
            let tree = tree_of(objects, commit, self.order)?;
            if let Some(root) = self.roots.get_mut(number) {
                *root = Some(tree);
            }
            return Ok(Some(Folder::Git { repository: number, tree }));
        }
        let within = match self.prefix(repository) {
            "" => path,
            prefix => path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default(),
        };
        match self.urls(repository)?.get(within).cloned() {
            None if excluded => {}
            None => self.note(Note::SubmoduleWithoutUrl { path: path.to_owned() }),
            // Whoever fetches them counts them.
            Some(url) if self.wanted.len() <= submodule::MOST => {
                self.wanted.push(Wanted { path: path.to_owned(), commit: id, url, parent: repository });
            }
            Some(_) => {}
        }
        Ok(None)
    }

    /// The folder of a repository.
    fn prefix(&self, repository: usize) -> &str {
        let module = repository.checked_sub(1).and_then(|number| self.order.modules.get(number));
        module.map_or("", |module| module.path.as_str())
    }

    /// What a repository says of its submodules.
    fn urls(&mut self, repository: usize) -> Result<&BTreeMap<String, String>, Unread> {
        if !self.urls.contains_key(&repository) {
            let root = self.roots.get(repository).copied().flatten();
            let root = root.ok_or_else(|| corrupt("a submodule is not there".to_owned()))?;
            let urls = self.read_urls(repository, root)?;
            self.urls.insert(repository, urls);
        }
        Ok(self.urls.entry(repository).or_default())
    }

    fn read_urls(&mut self, repository: usize, root: ObjectId) -> Result<BTreeMap<String, String>, Unread> {
        let refused =
            |walk: &Self, why: String| Unread::Submodule { path: walk.prefix(repository).to_owned(), why };
        let lines = self.tree_lines(repository, root)?;
        let Some((kind, _, id)) = lines.into_iter().find(|(_, name, _)| name == gitmodules::FILE.as_bytes())
        else {
            return Ok(BTreeMap::new());
        };
        if !matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable) {
            return Err(refused(self, format!("its {} is not a file", gitmodules::FILE)));
        }
        let Header { size, .. } = self.measured(repository, id, gitmodules::FILE)?;
        if size > gitmodules::MOST_BYTES {
            let why = format!("its {} has more than {} bytes", gitmodules::FILE, gitmodules::MOST_BYTES);
            return Err(refused(self, why));
        }
        let bytes = objects::bytes(self.repository(repository)?, id, size, self.stop)?;
        gitmodules::urls(&bytes).map_err(|why| refused(self, why))
    }
}
