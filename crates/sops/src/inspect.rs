//! A look at a file that tells all there is to say about it, for people who keep it.

use crate::error::{Error, MacProblem, Place};
use crate::keys::{GroupResult, KeyProvider, NoDataKey, recover};
use crate::limits::Limits;
use crate::metadata::Metadata;
use crate::walk::{self, Watcher};
use crate::{Format, read};

/// What was found in an encrypted file. It holds nothing of what is encrypted.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What the file says about its encryption.
    pub metadata: Metadata,
    /// What came of each group of master keys.
    pub groups: Vec<GroupResult>,
    /// Whether its data key was recovered; the rest is empty where it was not.
    pub key: Result<(), NoDataKey>,
    /// A value that does not open. There may be more.
    pub value: Option<Error>,
    /// What is wrong with its MAC.
    pub mac: Option<MacProblem>,
    /// Values that look encrypted where the file's rules say that they are not. They are handed on as they are.
    pub misplaced: Vec<Place>,
}

/// Looks at a file.
///
/// # Errors
/// It is not of its format, or not encrypted.
pub fn inspect(
    file: &[u8],
    format: Format,
    limits: &Limits,
    provider: &(impl KeyProvider + ?Sized),
) -> Result<Inspection, Error> {
    let (mut documents, metadata) = read(file, format, limits)?;
    let (groups, key) = recover(metadata.wrapped(), provider);
    let mut found =
        Inspection { metadata, groups, key: Ok(()), value: None, mac: None, misplaced: Vec::new() };
    let key = match key {
        Ok(key) => key,
        Err(error) => {
            found.key = Err(error);
            return Ok(found);
        }
    };
    let mut misplaced = Misplaced(Vec::new());
    match walk::decrypt(&mut documents, &found.metadata, &key, &mut misplaced) {
        Ok(mac) => found.mac = mac.err(),
        Err(error) => found.value = Some(error),
    }
    found.misplaced = misplaced.0;
    Ok(found)
}

/// The first places of misplaced values.
struct Misplaced(Vec<Place>);

impl Watcher for Misplaced {
    fn misplaced(&mut self, place: Place) {
        /// More say nothing new.
        const MOST: usize = 20;
        if self.0.len() < MOST {
            self.0.push(place);
        }
    }
}
