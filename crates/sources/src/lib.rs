//! From a source to a verified artifact.
//!
//! [`git::fetch`] takes one Git repository at one reference and gives an [`Artifact`]: a tar.gz that depends on nothing
//! but the files in it, addressed by its digest. [`unpack`] reads such an artifact back into a [`Tree`] in memory.
//! Polling, storing and telling others is the hub's; here lies one attempt, bounded in bytes, files and time.
//!
//! The rooms: [`tree`] is what an artifact holds and which rules hold for it, [`artifact`] packs and unpacks it,
//! [`ignore`] leaves files out, [`git`] reads it from a repository. All but `git` are pure.
//!
//! Nothing here is written to disk but what a server sent, Git's own pack and the artifact that is made of it, in private
//! temporary folders that go away with the attempt ([`sweep_scratch`] removes what a killed process left).

pub mod artifact;
pub mod git;
pub mod ignore;
pub mod secret;
pub mod tree;

pub use artifact::{Artifact, ArtifactError, pack, unpack, unpack_from};
pub use git::{
    Credentials, Fetched, GitError, GitLimits, GitReference, GitRequest, Note, Outcome, fetch, fetch_with,
    resolve, sweep_scratch,
};
pub use secret::Secret;
pub use tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits};
