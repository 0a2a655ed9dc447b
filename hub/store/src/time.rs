//! Between the domain's timestamps and the database driver's.

use jiff::Timestamp;
use time::OffsetDateTime;

use crate::StoreError;

/// For binding. Microseconds are what Postgres keeps.
pub(crate) fn to_sql(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.as_microsecond()) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// For reading.
pub(crate) fn from_sql(what: &'static str, at: OffsetDateTime) -> Result<Timestamp, StoreError> {
    let micros = i64::try_from(at.unix_timestamp_nanos() / 1_000)
        .map_err(|error| StoreError::Corrupt { what, why: error.to_string() })?;
    Timestamp::from_microsecond(micros).map_err(|error| StoreError::Corrupt { what, why: error.to_string() })
}
