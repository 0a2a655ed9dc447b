//! Remote resources as a render needs them: what a URL leads to, or why it is not to be had.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_hub_store::HeldRemote;

use crate::HubError;
use crate::delivery::Delivery;
use crate::delivery::applier::{Given, GivenRemote, Need};
use crate::delivery::seen::SeenApplier;
use crate::remotes::{self, Asked, Known, UNAVAILABLE, Wanted};

/// Remote resources of one render.
const MOST: usize = 32;
/// Who asks for a reconciliation wants to have what is there now.
const JUST_NOW: Duration = Duration::from_secs(5);
/// What is rendered again goes by what was seen less than this ago: who changes a base and then what builds on it wants both.
const RECENTLY: Duration = Duration::from_secs(30);
/// A render that waits for a check is made again after this, at the latest. (It is told when that is done.)
pub(super) const CHECK_TIME: Duration = Duration::from_secs(5);

/// What is given to a render for a remote resource.
pub(super) enum Remote {
    Given(Given),
    /// It is being checked.
    Pending,
    /// Why there is none, for the condition.
    Failed(String),
}

impl Delivery {
    /// What a URL leads to. Notes in `by` what the render goes by; `given` is what it has already.
    pub(super) async fn remote(
        &self,
        seen: &SeenApplier,
        url: &str,
        given: &[Given],
        by: &mut BTreeMap<String, String>,
    ) -> Result<Remote, HubError> {
        let asked = match Asked::of(url) {
            Ok(asked) => asked,
            Err(why) => return Ok(Remote::Failed(why)),
        };
        let shown = roadstead_kustomize::RemoteUrl::shown(url);
        let name = remotes::name_of(&asked);
        if let Err(unlisted) = self.remotes.allows(&asked) {
            by.insert(name, UNAVAILABLE.to_owned());
            let (host, flag) = (unlisted.host, unlisted.flag);
            return Ok(Remote::Failed(format!(
                "remote resource {shown:?} is not fetched: its host is not among those that the operator lists; start the hub with {flag} {host} to allow it, or copy it into the source"
            )));
        }
        let is_asked_for = seen.is_asked_for();
        let (interval, retry) = (seen.situation.interval, seen.situation.retry_interval / 2);
        let wanted = Wanted {
            by: seen.stored.uid,
            namespace: &seen.stored.namespace,
            fresh: if is_asked_for { JUST_NOW } else { interval.min(RECENTLY) },
            retry: if is_asked_for { JUST_NOW } else { retry.min(interval) },
            is_asked_for,
        };
        let held = match self.remotes.known(&asked, &wanted).await? {
            Known::Held(held) => held,
            Known::Pending => return Ok(Remote::Pending),
            Known::Failed(why) => {
                by.insert(name, UNAVAILABLE.to_owned());
                return Ok(Remote::Failed(format!("cannot fetch remote resource {shown:?}: {why}")));
            }
        };
        if let Some(why) = self.too_much(given, &held) {
            return Ok(Remote::Failed(why));
        }
        let identity = remotes::identity_of(&held);
        by.insert(name, identity.clone());
        let found = GivenRemote { digest: held.digest, is_file: held.is_file, bytes: held.bytes };
        let found = serde_json::to_value(found)
            .map_err(|error| HubError::Internal(format!("a remote resource has no JSON: {error}")))?;
        Ok(Remote::Given(Given { need: Need::Remote { url: url.to_owned() }, found: Some(found), identity }))
    }

    /// Why a render that was given all of this is not given one more.
    fn too_much(&self, given: &[Given], more: &HeldRemote) -> Option<String> {
        let of_all: Vec<GivenRemote> = given.iter().filter_map(|given| Some(given.remote()?.1)).collect();
        if of_all.len() >= MOST {
            return Some(format!("its build names more than {MOST} remote resources"));
        }
        // Directories of one repository share its files.
        let mut bytes: BTreeMap<_, u64> = of_all.iter().map(|remote| (remote.digest, remote.bytes)).collect();
        bytes.insert(more.digest, more.bytes);
        let limit = self.remotes.most_bytes();
        (bytes.values().sum::<u64>() > limit)
            .then(|| format!("its remote resources have more than {limit} bytes together, or the hub too little memory (--memory-budget)"))
    }
}
