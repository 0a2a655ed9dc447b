//! Silences, as people see them.

use jiff::Timestamp;
use roadstead_model::{SilenceFilter, Visible};
use serde_json::Value;

use crate::time::from_sql;
use crate::{Store, StoreError};

type Moment = ::time::OffsetDateTime;

/// A Silence, for people.
#[derive(Debug, Clone)]
pub struct FleetSilence {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its spec.
    pub spec: Value,
    /// Of how many objects it keeps something back.
    pub kept_back: i64,
}

impl Store {
    /// The Silences that are not over for more than a day, by namespace and name.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn fleet_silences(
        &self,
        filter: &SilenceFilter,
        visible: Option<&Visible>,
        now: Timestamp,
        limit: i64,
    ) -> Result<Vec<FleetSilence>, StoreError> {
        let what = "list Silences";
        // As texts: what cannot be read as a time would fail the statement, and zones make less than a day.
        let day = now - jiff::SignedDuration::from_hours(48);
        let rows: Vec<(String, String, Moment, Value, i64)> = sqlx::query_as(
            "SELECT namespace, name, created_at, object -> 'spec',
                    (SELECT count(DISTINCT (gathered.kind, gathered.namespace, gathered.name))
                     FROM gathered JOIN resource AS alert ON alert.uid = gathered.alert
                     WHERE gathered.silence = silence.name AND alert.namespace = silence.namespace AND gathered.name <> '')
             FROM resource AS silence
             WHERE api_group = 'fleet.roadstead.dev' AND kind = 'Silence' AND deletion_timestamp IS NULL
               AND ($1 = '' OR namespace = $1) AND coalesce(object #>> '{spec,until}' > $2, true)
               AND ($3::text[] IS NULL OR 'Silence/' || namespace = ANY($3))
             ORDER BY namespace COLLATE \"C\", name COLLATE \"C\" LIMIT $4",
        )
        .bind(&filter.namespace)
        .bind(day.to_string())
        .bind(visible.map(|visible| visible.places.clone()))
        .bind(limit)
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query(what))?;
        let read = |(namespace, name, created_at, spec, kept_back): (String, String, Moment, Value, i64)| {
            Ok(FleetSilence { namespace, name, created_at: from_sql(what, created_at)?, spec, kept_back })
        };
        rows.into_iter().map(read).collect()
    }
}
