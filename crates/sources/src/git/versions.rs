//! `spec.ref.semver`: which of a repository's tags is the newest in a range of versions.
//!
//! Tags that are not versions are passed over, and so is one that leads to something other than a commit. Of versions that are equal
//! but for build metadata the one whose commit was made last is taken, whenever the tags were made.

use gix::ObjectId;
use gix::objs::{Find, FindExt as _, FindHeader};
use serde::{Deserialize, Serialize};

use super::error::git_chain;
use super::objects as found;
use super::reader::Order;
use super::unread::Unread;
use crate::version::{Constraint, Version};

/// Tags of one version that are looked at: more than have ever been meant.
const MOST_OF_ONE_VERSION: usize = 16;
/// Packs that are asked for before one is found that leads to a commit.
pub(super) const MOST_PACKS: usize = 4;
/// Objects that are remembered from one look to the next.
pub(super) const MOST_REMEMBERED: usize = 32;

/// A tag, by its short name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: String,
    /// What it points to: a commit, an annotated tag, or anything else.
    pub(super) object: ObjectId,
    /// What that leads to, as far as the server says.
    pub(super) commit: ObjectId,
}

/// What an object was found to be. An object never changes, so this stays true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) object: String,
    /// When the commit that it leads to was made, in seconds since 1970; none where it leads to no commit.
    pub(super) made: Option<i64>,
}

/// The newest of `tags` in `range`. `made` tells for each of some tags of one version when its commit was made, and none of one
/// that leads to no commit.
pub(super) fn newest(
    range: &str,
    tags: impl IntoIterator<Item = Tag>,
    mut made: impl FnMut(&[Tag]) -> Result<Vec<Option<i64>>, Unread>,
) -> Result<Tag, Unread> {
    let none = || Unread::ReferenceNotFound { detail: format!("no match found for semver: {range}") };
    let constraint = Constraint::parse(range)
        .map_err(|error| Unread::ReferenceNotFound { detail: format!("semver parse error: {error}") })?;
    let versions = tags.into_iter().filter_map(|tag| Some((Version::parse(&tag.name)?, tag)));
    let mut versions: Vec<_> = versions.filter(|(version, _)| constraint.matches(version)).collect();
    // The newest at the end, and of one version the greatest name.
    versions
        .sort_by(|(one, tag), (other, than)| one.precedence(other).then_with(|| tag.name.cmp(&than.name)));
    while let Some((version, tag)) = versions.pop() {
        let mut equal = vec![tag];
        while let Some((_, tag)) = versions.pop_if(|(other, _)| other.precedence(&version).is_eq()) {
            equal.push(tag);
        }
        equal.truncate(MOST_OF_ONE_VERSION);
        let times = made(&equal)?;
        let commits = equal.into_iter().zip(times).filter_map(|(tag, made)| Some((made?, tag)));
        if let Some((_, tag)) =
            commits.max_by(|(one, tag), (other, than)| (one, &tag.name).cmp(&(other, &than.name)))
        {
            return Ok(tag);
        }
    }
    Err(none())
}

/// When the commit that an object leads to was made; none where it leads to none.
pub(super) fn made(
    objects: &(impl Find + FindHeader),
    object: ObjectId,
    order: &Order,
) -> Result<Option<i64>, Unread> {
    let Some(commit) = found::peel_to_commit(objects, object, order)? else { return Ok(None) };
    let mut buffer = Vec::new();
    let commit =
        objects.find_commit(&commit, &mut buffer).map_err(|error| found::corrupt(git_chain(&error)))?;
    // A time that cannot be read is before all others.
    Ok(Some(commit.committer().ok().and_then(|by| by.time().ok()).map_or(i64::MIN, |time| time.seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(name: &str, number: u8) -> Tag {
        let object = ObjectId::from_bytes_or_panic(&[number; 20]);
        Tag { name: name.to_owned(), object, commit: object }
    }

    /// The newest, where an object's number says when it was made, and 0 that it is something other than a commit.
    fn pick(range: &str, tags: &[(&str, u8)]) -> Result<String, String> {
        let tags: Vec<_> = tags.iter().map(|(name, number)| tag(name, *number)).collect();
        let times = |tags: &[Tag]| {
            let number = |tag: &Tag| i64::from(tag.object.as_bytes()[0]);
            Ok(tags.iter().map(|tag| Some(number(tag)).filter(|number| *number > 0)).collect())
        };
        newest(range, tags, times).map(|tag| tag.name).map_err(|error| error.to_string())
    }

    #[test]
    fn the_newest_in_the_range_is_taken() {
        let tags =
            [("v1.2.0", 3), ("1.10.0", 1), ("v2.0.0-rc.1", 4), ("latest", 5), ("v1.2", 6), ("v3.0.0", 2)];
        assert_eq!(pick("1.x", &tags).unwrap(), "1.10.0");
        assert_eq!(pick("*", &tags).unwrap(), "v3.0.0");
        assert_eq!(pick(">=1.0.0 <2.0.0-0", &tags).unwrap(), "1.10.0");
        assert_eq!(pick(">=2.0.0-0 <3", &tags).unwrap(), "v2.0.0-rc.1");
        assert!(pick(">=4", &tags).unwrap_err().ends_with("no match found for semver: >=4"));
        assert!(pick("newest", &tags).unwrap_err().contains("improper constraint: \"newest\""));
    }

    #[test]
    fn of_equal_versions_the_last_commit_and_then_the_name_decide() {
        assert_eq!(pick("*", &[("1.0.0+a", 1), ("1.0.0+c", 2), ("1.0.0+b", 3)]).unwrap(), "1.0.0+b");
        assert_eq!(pick("*", &[("1.0.0+a", 1), ("1.0.0+c", 1), ("1.0.0+b", 1)]).unwrap(), "1.0.0+c");
    }

    #[test]
    fn what_is_no_commit_is_passed_over() {
        assert_eq!(
            pick("*", &[("1.0.0", 1), ("1.1.0", 0), ("1.2.0+a", 0), ("1.2.0+b", 0)]).unwrap(),
            "1.0.0"
        );
        assert!(pick("*", &[("1.0.0", 0)]).is_err());
    }
}
