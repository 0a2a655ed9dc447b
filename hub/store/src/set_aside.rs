//! What is not tried again for now, because it ended a worker process or the hub's own.

use jiff::Timestamp;
use roadstead_model::Digest;

use crate::blob::digest;
use crate::counted::Connections;
use crate::time::{from_sql, to_sql};
use crate::together::Answers;
use crate::{Store, StoreError};

/// Why something is not tried again, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Why, for people.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// What of these inputs is set aside, or was until a while ago.
async fn set_aside_of(
    pool: &Connections,
    inputs: &[Digest],
) -> Result<Answers<Digest, SetAside>, StoreError> {
    type Row = (Vec<u8>, String, time::OffsetDateTime, time::OffsetDateTime);
    let what = "look up what is set aside";
    let rows: Vec<Row> =
        sqlx::query_as("SELECT inputs, why, since, until FROM set_aside WHERE inputs = ANY($1)")
            .bind(inputs.iter().map(|inputs| inputs.as_bytes().as_slice()).collect::<Vec<_>>())
            .fetch_all(pool)
            .await
            .map_err(StoreError::query(what))?;
    let read = |(inputs, why, since, until): Row| {
        let aside = || Ok(SetAside { why, since: from_sql(what, since)?, until: from_sql(what, until)? });
        Ok((digest(what, &inputs)?, aside()))
    };
    rows.into_iter().map(read).collect()
}

impl Store {
    /// Sets aside what was tried with `inputs`. Setting it aside again replaces what was known.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn set_aside(&self, inputs: Digest, aside: &SetAside) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO set_aside (inputs, why, since, until) VALUES ($1, $2, $3, $4)
             ON CONFLICT (inputs) DO UPDATE SET why = $2, since = $3, until = $4",
        )
        .bind(inputs.as_bytes().as_slice())
        .bind(&aside.why)
        .bind(to_sql(aside.since))
        .bind(to_sql(aside.until))
        .execute(&self.pool)
        .await
        .map_err(StoreError::query("set an input aside"))?;
        Ok(())
    }

    /// Whether what is tried with `inputs` is set aside at `now`; asked [together](crate::together) with what others try.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_set_aside(&self, inputs: Digest, now: Timestamp) -> Result<Option<SetAside>, StoreError> {
        let ask = |this: Self, inputs: Vec<_>| async move { set_aside_of(&this.pool, &inputs).await };
        let aside = self.together.set_aside.ask(&self.health, self, inputs, ask).await?;
        Ok(aside.filter(|aside| aside.until > now))
    }

    /// Takes `inputs` back: they went well.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_back(&self, inputs: Digest) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM set_aside WHERE inputs = $1")
            .bind(inputs.as_bytes().as_slice())
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("take back an input that was set aside"))?;
        Ok(())
    }

    /// Forgets what was set aside until before `now`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn forget_set_aside(&self, now: Timestamp) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM set_aside WHERE until <= $1")
            .bind(to_sql(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::query("forget what was set aside"))?;
        Ok(())
    }
}
