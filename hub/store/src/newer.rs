//! Rows that a replica of a newer version wrote and that this one cannot read: of a kind that it does not know. They are passed
//! over, wherever rows are read and not asked for by their kind, and left to that replica.

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use roadstead_api::KINDS;

/// So many kinds are told of: what the database holds does not fill memory.
const MOST_TOLD: usize = 100;

/// Those that were told of.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

static KNOWN: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| KINDS.iter().map(|kind| kind.kind).collect::<BTreeSet<_>>().into_iter().collect());

/// The names of all kinds that this version knows, for `= ANY`.
pub(crate) fn known_kinds() -> &'static [&'static str] {
    &KNOWN
}

/// Tells, once for each kind, that its objects are passed over: there may be a row of it every second.
pub(crate) fn tell(kind: &str) {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if is_news(&mut told, kind) {
        tracing::warn!(
            kind,
            "the database holds objects of a kind that this version does not know: they are left to replicas of a newer version"
        );
    }
}

fn is_news(told: &mut BTreeSet<String>, kind: &str) -> bool {
    told.len() < MOST_TOLD && told.insert(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_of_once_and_not_more_than_so_many() {
        let mut told = BTreeSet::new();
        assert!(is_news(&mut told, "Ferry"));
        assert!(!is_news(&mut told, "Ferry"));
        let more = (0..1_000).filter(|number| is_news(&mut told, &number.to_string())).count();
        assert_eq!(more, MOST_TOLD - 1);
    }
}
