//! `spec.sparseCheckout`: the folders that are taken of a commit, by whole names. Files that lie above them are not, their
//! `.sourceignore` included.

/// The longest list.
const MOST: usize = 100;

/// The folders that are asked for, and which of them were seen.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    folders: Vec<(String, bool)>,
}

/// Where something lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the way to a folder that is asked for.
    Above,
    /// One of them, or in one.
    Inside,
    /// It is not asked for.
    Outside,
}

impl Sparse {
    pub(super) fn new(folders: &[String]) -> Self {
        let clean = folders.iter().map(|folder| (clean(folder).to_owned(), false));
        Self { folders: clean.collect() }
    }

    /// What is wrong with a list.
    pub(super) fn check(folders: &[String]) -> Result<(), String> {
        if folders.len() > MOST {
            return Err(format!("it has more than {MOST} folders"));
        }
        let bad =
            |folder: &&String| folder.len() > 1_024 || clean(folder).split('/').any(|name| name == "..");
        match folders.iter().find(bad) {
            Some(folder) => Err(format!("`{}` is not a folder of a repository", crate::tree::shown(folder))),
            None => Ok(()),
        }
    }

    pub(super) fn place(&self, path: &str) -> Place {
        if self.folders.is_empty() {
            return Place::Inside;
        }
        let mut place = Place::Outside;
        for (folder, _) in &self.folders {
            if is_in(path, folder) {
                return Place::Inside;
            }
            if is_in(folder, path) {
                place = Place::Above;
            }
        }
        place
    }

    /// Whether it is one of the folders themselves: a file of that name is not.
    pub(super) fn is_one(&self, path: &str) -> bool {
        self.folders.iter().any(|(folder, _)| folder == path)
    }

    /// Notes that a folder is there.
    pub(super) fn see(&mut self, path: &str) {
        for (folder, seen) in &mut self.folders {
            *seen |= folder == path;
        }
    }

    /// The first that was not seen.
    pub(super) fn missing(&self) -> Option<&str> {
        self.folders.iter().find(|(_, seen)| !seen).map(|(folder, _)| folder.as_str())
    }
}

/// Without what says that it begins at the root, or ends as a folder.
fn clean(folder: &str) -> &str {
    let folder = folder.strip_prefix("./").unwrap_or(folder).trim_matches('/');
    if folder == "." { "" } else { folder }
}

/// Whether `path` is `folder` or lies in it. Everything lies in the root.
fn is_in(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::{Place, Sparse};

    #[test]
    fn folders_are_matched_by_whole_names() {
        let sparse = Sparse::new(&["./apps/web/".to_owned(), "base".to_owned()]);
        for (path, place) in [
            ("", Place::Above),
            ("apps", Place::Above),
            ("apps/web", Place::Inside),
            ("apps/web/a", Place::Inside),
            ("apps/webs", Place::Outside),
            ("app", Place::Outside),
            ("base", Place::Inside),
            ("base-2", Place::Outside),
        ] {
            assert_eq!(sparse.place(path), place, "{path}");
        }
        assert_eq!(Sparse::new(&[]).place("any"), Place::Inside);
        assert_eq!(Sparse::new(&[".".to_owned()]).place("any"), Place::Inside);
        for bad in ["..", "a/../b", "./.."] {
            assert!(Sparse::check(&[bad.to_owned()]).is_err(), "{bad}");
        }
        assert!(Sparse::check(&vec!["a".to_owned(); 101]).is_err());
    }
}
