//! How much may be deleted, and what of it waits.

use roadstead_model::guard::MAX_HELD_NAMED;
use roadstead_model::{Digest, Guard, GuardMode, Held};

use super::{ConvertError, Result, digest, list, text};
use crate::limits::MAX_HELD;
use crate::v1;

impl From<Guard> for v1::Guard {
    fn from(guard: Guard) -> Self {
        // Whether it is required is said by what the steps need.
        let Guard { mode, max_percent, max_deletions, required: _, confirmed } = guard;
        Self {
            stop: mode == GuardMode::Stop,
            max_percent: max_percent.into(),
            max_deletions,
            confirmed: confirmed.iter().map(Digest::to_string).collect(),
        }
    }
}

impl TryFrom<v1::Guard> for Guard {
    type Error = ConvertError;

    fn try_from(guard: v1::Guard) -> Result<Self> {
        let v1::Guard { stop, max_percent, max_deletions, confirmed } = guard;
        let max_percent = u8::try_from(max_percent).ok().filter(|percent| *percent <= 100);
        let max_percent = max_percent.ok_or_else(|| ConvertError::invalid("max_percent", "more than 100"))?;
        if confirmed.len() > MAX_HELD {
            let (field, length) = ("confirmed".to_owned(), confirmed.len());
            return Err(ConvertError::TooLong { field, length, unit: "entries", max: MAX_HELD });
        }
        let confirmed = confirmed.iter().map(|one| digest("confirmed", one)).collect::<Result<_>>()?;
        let mode = if stop { GuardMode::Stop } else { GuardMode::Deletions };
        Ok(Self { mode, max_percent, max_deletions, required: false, confirmed })
    }
}

impl From<Held> for v1::Held {
    fn from(held: Held) -> Self {
        let Held { digest, why, objects, total } = held;
        Self {
            digest: digest.to_string(),
            why,
            objects: super::messages(objects),
            total: u64::try_from(total).unwrap_or(u64::MAX),
        }
    }
}

impl TryFrom<v1::Held> for Held {
    type Error = ConvertError;

    fn try_from(held: v1::Held) -> Result<Self> {
        let v1::Held { digest: of, why, objects, total } = held;
        Ok(Self {
            digest: digest("digest", &of)?,
            why: text("why", why)?,
            objects: list("objects", objects, MAX_HELD_NAMED)?,
            total: usize::try_from(total).unwrap_or(usize::MAX),
        })
    }
}
