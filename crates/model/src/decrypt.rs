//! Where the data keys of a group's encrypted objects come from: Flux's `decryption`.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::Digest;

/// That the agent decrypts a group's objects, and by which keys. It holds none of them: a dispatch is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decrypt {
    /// The namespace of the cluster in which the agent looks up the Secret, where the hub does not have it.
    pub namespace: String,
    /// The name of the Secret with the master keys.
    pub secret: String,
    /// Where the hub has it: its uid and resource version there. Then the data keys come with the dispatch, and no master key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_hub: Option<String>,
    /// Decrypt files whose MACs show that they may have been changed, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lenient: bool,
}

/// A data key that the hub has unwrapped. It is sent with a dispatch and never stored. It does not print, and is wiped when it goes.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenKey {
    /// Of what it was wrapped as.
    pub wrapped: Digest,
    /// The key.
    pub key: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenKey").field("wrapped", &self.wrapped).finish_non_exhaustive()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_false(value: &bool) -> bool {
    !*value
}
