//! From a source to a verified artifact.
//!
//! A [`Source`] is fetched into an [`Artifact`]: a tar.gz that depends on nothing but the files in it, addressed by its
//! digest. [`git::fetch`] does so for one Git repository at one reference, [`oci::fetch_with`] for one OCI repository,
//! [`bucket::fetch_with`] for one bucket, [`helm`] for the indexes of Helm repositories and for charts. ([`file::fetch_file`] fetches a single file, which is kept as it came.) [`unpack`] reads such an artifact back into a [`Tree`] in memory. Polling, storing and telling others is the hub's; here lies one attempt, bounded in bytes, files and
//! time.
//!
//! The rooms: [`source`] is what all kinds have in common for those who fetch, `attempt` what a fetch stands on, [`git`], [`oci`], [`bucket`] and [`helm`] fetch one of their kind, [`tree`] is what an artifact
//! holds and which rules hold for it, [`artifact`] packs and unpacks it, [`ignore`] leaves files out. All but `git`, `oci`,
//! `bucket` and `helm` are pure.
//!
//! Nothing here is written to disk but what a server sent, Git's own pack and the artifact that is made of it, in private
//! temporary folders that go away with the attempt ([`sweep_scratch`] removes what a killed process left).

pub mod artifact;
mod attempt;
pub mod bucket;
mod cloud;
pub mod file;
pub mod generate;
pub mod git;
mod glob;
mod gzip;
pub mod helm;
pub mod ignore;
pub mod oci;
mod reading;
pub mod source;
#[cfg(test)]
#[path = "../tests/common/source_cases.rs"]
mod source_cases;
pub mod tree;
mod untar;
pub mod upload;
mod ustar;
pub mod version;

pub use artifact::{Artifact, ArtifactError, pack, unpack, unpack_from};
pub use attempt::{
    AttemptError, Desk, Ended, Engine, InProcess, Line, MOST_QUESTION, Note, Room, Scratch, TrustedBy,
    sweep_scratch,
};
pub use bucket::{BucketError, BucketRequest};
pub use git::{Credentials, GitError, GitLimits, GitReference, GitRequest, fetch, fetch_with, resolve};
pub use helm::{HelmChartRequest, HelmError, HelmIndexRequest};
pub use oci::{OciError, OciReference, OciRequest};
pub use reading::read;
pub use roadstead_outbound::Secret;
pub use source::{ChartFacts, Facts, Failed, FetchError, Fetched, Learned, Outcome, Source};
pub use tree::{Content, Entry, Measure, Tree, TreeBuilder, TreeError, TreeLimits};
