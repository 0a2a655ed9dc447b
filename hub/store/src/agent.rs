//! What agents are told to do with themselves: to run another image, or to remove themselves.

use jiff::Timestamp;
use roadstead_model::{AgentOrder, ClusterUid, OrderKind, OrderState, SessionId, Topic};
use serde_json::Value;
use sqlx::FromRow;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::{Store, StoreError, Tx};

/// One replica at a time decides whose turn it is.
const ROLLOUT_LOCK: i64 = 0x726f_6164_7374_6561;

/// A Cluster as the roll-out of agents sees it.
#[derive(Debug, Clone)]
pub struct FleetAgent {
    /// The cluster.
    pub cluster: ClusterUid,
    /// Its name.
    pub name: String,
    /// The Cluster's `spec.agent`, as it is stored.
    pub spec: Value,
    /// The Cluster's annotations.
    pub annotations: Value,
    /// The Cluster's condition of the type that was asked for; null where there is none.
    pub condition: Value,
    /// The image of its agent, where that is known.
    pub image: Option<String>,
    /// Whether an agent was ever connected.
    pub joined: bool,
    /// Since when its agent is connected, if it is.
    pub connected: Option<Timestamp>,
    /// What its agent was told last.
    pub order: Option<AgentOrder>,
}

#[derive(FromRow)]
struct OrderRow {
    image: Option<String>,
    request: Option<String>,
    given_at: OffsetDateTime,
    sent: bool,
    state: String,
    message: String,
}

/// What of an order is signed.
pub(crate) fn order_row(
    cluster: Uuid,
    image: Option<&str>,
    request: Option<&str>,
    given: OffsetDateTime,
) -> Row {
    let row = Row::of("agent_order").bytes(cluster.as_bytes());
    row.optional(image, Row::text).optional(request, Row::text).time(given)
}

impl OrderRow {
    fn order(self) -> Result<AgentOrder, StoreError> {
        Ok(AgentOrder {
            kind: self.image.map_or(OrderKind::Remove, OrderKind::Run),
            request: self.request,
            given: from_sql("read an agent's order", self.given_at)?,
            sent: self.sent,
            state: match self.state.as_str() {
                "told" => OrderState::Told,
                "under_way" => OrderState::UnderWay,
                "refused" => OrderState::Refused(self.message),
                _ => OrderState::Failed(self.message),
            },
        })
    }
}

#[derive(FromRow)]
struct SignedOrder {
    #[sqlx(flatten)]
    order: OrderRow,
    mac: Option<Vec<u8>>,
}

#[derive(FromRow)]
struct AgentRow {
    uid: Uuid,
    name: String,
    spec: Value,
    annotations: Value,
    condition: Value,
    running: Option<String>,
    joined: bool,
    connected_at: Option<OffsetDateTime>,
    ordered: bool,
    image: Option<String>,
    request: Option<String>,
    given_at: Option<OffsetDateTime>,
    sent: bool,
    state: Option<String>,
    message: Option<String>,
}

impl Tx {
    /// Whether this unit of work is the one that decides about the roll-out, until its end.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn hold_rollout(&mut self) -> Result<bool, StoreError> {
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
            .bind(ROLLOUT_LOCK)
            .fetch_one(self.written().await?)
            .await
            .map_err(StoreError::query("take the roll-out's lock"))
    }

    /// A number for each of `images`, drawn when the image was first asked for; those of other images are forgotten.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn rollout_seeds(&mut self, images: &[String]) -> Result<Vec<(String, u64)>, StoreError> {
        let what = || StoreError::query("draw the order of a roll-out");
        sqlx::query("DELETE FROM agent_rollout WHERE image <> ALL($1)")
            .bind(images)
            .execute(self.written().await?)
            .await
            .map_err(what())?;
        let drawn: Vec<i64> = images.iter().map(|_| Uuid::new_v4().as_u64_pair().0.cast_signed()).collect();
        sqlx::query(
            "INSERT INTO agent_rollout (image, seed) SELECT * FROM unnest($1::text[], $2::bigint[])
             ON CONFLICT (image) DO NOTHING",
        )
        .bind(images)
        .bind(&drawn)
        .execute(self.written().await?)
        .await
        .map_err(what())?;
        let seeds: Vec<(String, i64)> = sqlx::query_as("SELECT image, seed FROM agent_rollout")
            .fetch_all(self.written().await?)
            .await
            .map_err(what())?;
        Ok(seeds.into_iter().map(|(image, seed)| (image, seed.cast_unsigned())).collect())
    }

    /// All Clusters that stay, with their agents; with their conditions of the type `condition`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn fleet_agents(&mut self, condition: &str) -> Result<Vec<FleetAgent>, StoreError> {
        let rows: Vec<AgentRow> = sqlx::query_as(
            "SELECT r.uid, r.name, coalesce(r.object #> '{spec,agent}', 'null') AS spec,
                    coalesce(r.object #> '{metadata,annotations}', 'null') AS annotations,
                    coalesce(jsonb_path_query_first(r.object, '$.status.conditions[*] ? (@.type == $type)',
                                                    jsonb_build_object('type', $1::text)), 'null') AS condition,
                    s.image AS running, s.session IS NOT NULL AS joined,
                    CASE WHEN s.disconnected_at IS NULL THEN s.connected_at END AS connected_at,
                    o.cluster_uid IS NOT NULL AS ordered, o.image, o.request, o.given_at,
                    o.sent_in IS NOT NULL AS sent, o.state, o.message
             FROM resource r LEFT JOIN agent_session s ON s.cluster_uid = r.uid
                  LEFT JOIN agent_order o ON o.cluster_uid = r.uid
             WHERE r.kind = 'Cluster' AND r.api_group = 'fleet.roadstead.dev' AND r.deletion_timestamp IS NULL",
        )
        .bind(condition)
        .fetch_all(self.written().await?)
        .await
        .map_err(StoreError::query("list agents"))?;
        rows.into_iter()
            .map(|row| {
                let order = match (row.ordered, row.given_at, row.state) {
                    (true, Some(given_at), Some(state)) => {
                        let (image, request, sent) = (row.image, row.request, row.sent);
                        let message = row.message.unwrap_or_default();
                        Some(OrderRow { image, request, given_at, sent, state, message }.order()?)
                    }
                    _ => None,
                };
                Ok(FleetAgent {
                    cluster: ClusterUid(row.uid),
                    name: row.name,
                    spec: row.spec,
                    annotations: row.annotations,
                    condition: row.condition,
                    image: row.running,
                    joined: row.joined,
                    connected: row.connected_at.map(|at| from_sql("list agents", at)).transpose()?,
                    order,
                })
            })
            .collect()
    }

    /// Gives a cluster's agent an order, in place of any that it had.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn give_order(
        &mut self,
        cluster: ClusterUid,
        kind: &OrderKind,
        request: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let image = match kind {
            OrderKind::Run(image) => Some(image),
            OrderKind::Remove => None,
        };
        let given = to_sql(at);
        let mac = self.sealer.sign(&order_row(cluster.0, image.map(String::as_str), request, given));
        sqlx::query(
            "INSERT INTO agent_order (cluster_uid, image, request, given_at, state, mac)
             VALUES ($1, $2, $3, $4, 'told', $5)
             ON CONFLICT (cluster_uid) DO UPDATE SET image = $2, request = $3, given_at = $4, sent_in = NULL,
                 state = 'told', message = '', mac = $5",
        )
        .bind(cluster.0)
        .bind(image)
        .bind(request)
        .bind(given)
        .bind(mac)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("give an agent an order"))?;
        self.wake(Topic::Dispatch);
        Ok(())
    }

    /// Records where an order stands; false where the agent has another one, that order is over, or nothing changes.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_order(
        &mut self,
        cluster: ClusterUid,
        kind: &OrderKind,
        state: &OrderState,
    ) -> Result<bool, StoreError> {
        let image = match kind {
            OrderKind::Run(image) => Some(image),
            OrderKind::Remove => None,
        };
        let (state, message) = match state {
            OrderState::Told => ("told", ""),
            OrderState::UnderWay => ("under_way", ""),
            OrderState::Failed(why) => ("failed", why.as_str()),
            OrderState::Refused(why) => ("refused", why.as_str()),
        };
        let noted = sqlx::query(
            "UPDATE agent_order SET state = $3, message = $4
             WHERE cluster_uid = $1 AND image IS NOT DISTINCT FROM $2 AND sent_in IS NOT NULL
                   AND state NOT IN ('failed', 'refused') AND (state, message) IS DISTINCT FROM ($3, $4)",
        )
        .bind(cluster.0)
        .bind(image)
        .bind(state)
        .bind(message)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("note what came of an agent's order"))?;
        Ok(noted.rows_affected() == 1)
    }
}

const ORDER: &str = "image, request, given_at, sent_in IS NOT NULL AS sent, state, message";

impl Store {
    /// What a cluster's agent was told last.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn order(&self, cluster: ClusterUid) -> Result<Option<AgentOrder>, StoreError> {
        let sql = format!("SELECT {ORDER} FROM agent_order WHERE cluster_uid = $1");
        let row: Option<OrderRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(cluster.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query("look up an agent's order"))?;
        row.map(OrderRow::order).transpose()
    }

    /// The order that `session` has not been sent yet, if there is one; from now on it has. One that no hub with this key gave
    /// is none.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn take_order(
        &self,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<Option<AgentOrder>, StoreError> {
        let sql = format!(
            "UPDATE agent_order SET sent_in = $2
             WHERE cluster_uid = $1 AND state = 'told' AND sent_in IS DISTINCT FROM $2 RETURNING {ORDER}, mac"
        );
        let what = "take an agent's order";
        let taken: Option<SignedOrder> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(cluster.0)
            .bind(session.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::query(what))?;
        let Some(SignedOrder { order, mac }) = taken else { return Ok(None) };
        let row = order_row(cluster.0, order.image.as_deref(), order.request.as_deref(), order.given_at);
        if !self.sealer.is_signed(what, &row, mac.as_deref()) {
            // Else it would wait for an answer of the agent's, which was told nothing, and count as its failure.
            sqlx::query("DELETE FROM agent_order WHERE cluster_uid = $1 AND sent_in = $2 AND mac IS NOT DISTINCT FROM $3")
                .bind(cluster.0)
                .bind(session.0)
                .bind(mac)
                .execute(&self.pool)
                .await
                .map_err(StoreError::query(what))?;
            return Ok(None);
        }
        order.order().map(Some)
    }
}
