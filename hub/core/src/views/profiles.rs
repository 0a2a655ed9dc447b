//! Profiles of this replica, for whoever looks for where its time goes: only where the operator has asked for them, and only
//! for members of system:masters, since they show what a process does for everybody.

use std::time::Duration;

use roadstead_profile::{ProfileError, Profiler};

use crate::HubError;
use crate::context::Context;
use crate::identity::Identity;

/// Where profiles of CPU time are served.
pub const CPU_PROFILE: &str = "/debug/pprof/profile";
/// Seconds that a profile of CPU time takes if nobody says how many: as with Go's.
const SECONDS: u64 = 30;
/// The most that it takes.
const MOST_SECONDS: u64 = 60;

/// Profiles of this process.
#[derive(Debug)]
pub struct Profiles {
    /// None: they are off.
    profiler: Option<Profiler>,
}

impl Profiles {
    pub(crate) fn new(context: &Context) -> Self {
        Self { profiler: context.options.profiling.then(Profiler::default) }
    }

    /// Where CPU time goes, from now on for as many seconds as the query of a URL says.
    ///
    /// # Errors
    /// [`HubError::Forbidden`], [`HubError::BadRequest`] where the number is none or too high, [`HubError::TooMany`] while another is
    /// made, [`HubError::NotFound`] where profiles are off.
    pub async fn cpu(&self, who: &Identity, query: Option<&str>) -> Result<Vec<u8>, HubError> {
        let profiler = self.profiler(who)?;
        let duration = Duration::from_secs(seconds(query)?);
        tracing::info!(who = %who.recorded(), ?duration, "a profile of CPU time is made");
        profiler.cpu(duration).await.map_err(refused)
    }

    fn profiler(&self, who: &Identity) -> Result<&Profiler, HubError> {
        if !who.is_master() {
            let name = &who.username;
            let why = format!(
                "User \"{name}\" cannot get path \"{CPU_PROFILE}\": profiles are for members of system:masters only"
            );
            return Err(HubError::Forbidden(why));
        }
        let off = || HubError::NotFound {
            what: format!("\"{CPU_PROFILE}\" (start the hub with --profiling to have it)"),
        };
        self.profiler.as_ref().ok_or_else(off)
    }
}

/// What a query says of how long.
fn seconds(query: Option<&str>) -> Result<u64, HubError> {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    let Some((_, text)) = pairs.find(|(name, _)| name == "seconds") else {
        return Ok(SECONDS);
    };
    let seconds = text.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| {
        HubError::BadRequest(format!("seconds: {text:?}: must be a whole number from 1 to {MOST_SECONDS}"))
    })
}

fn refused(error: ProfileError) -> HubError {
    match error {
        ProfileError::Busy => HubError::TooMany(error.to_string()),
        other => HubError::Internal(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_bounded() {
        let of = |query| seconds(query).map_err(|error| error.to_string());
        assert_eq!(of(None), Ok(30));
        assert_eq!(of(Some("")), Ok(30));
        assert_eq!(of(Some("debug=0&seconds=5")), Ok(5));
        for wrong in ["seconds=0", "seconds=61", "seconds=-1", "seconds=1.5", "seconds=", "seconds=x"] {
            assert!(of(Some(wrong)).unwrap_err().contains("from 1 to 60"), "{wrong}");
        }
    }
}
