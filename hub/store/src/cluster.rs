//! Clusters as the hub knows them: join tokens, identities, agents' keys and sessions.

use jiff::Timestamp;
use roadstead_model::{Capabilities, ClusterUid, KubeSystemUid, ReplicaId, SessionId, Topic};
use uuid::Uuid;

use crate::mac::Row;
use crate::time::{from_sql, to_sql};
use crate::together::Answers;
use crate::{Store, StoreError, Tx, dispatched, newer};

/// A join token as it is stored: without the token.
#[derive(Debug, Clone)]
pub struct JoinToken {
    /// Its id, by which it is marked as used.
    pub id: Uuid,
    /// The cluster that it lets an agent join as.
    pub cluster: ClusterUid,
    /// After this it is worth nothing.
    pub expires: Timestamp,
    /// When it was used, and the public key that was enrolled with it.
    pub used: Option<(Timestamp, Vec<u8>)>,
}

/// The newest session of a cluster's agent.
#[derive(Debug, Clone)]
pub struct AgentSession {
    /// The session.
    pub session: SessionId,
    /// The replica that holds it.
    pub replica: ReplicaId,
    /// The agent's version.
    pub agent_version: String,
    /// The image that the agent runs, where it knows.
    pub image: Option<String>,
    /// The cluster's version.
    pub kubernetes_version: String,
    /// What the agent can do that one of the first version cannot.
    pub capabilities: Capabilities,
    /// When it began.
    pub connected: Timestamp,
    /// When it ended, if it has.
    pub disconnected: Option<Timestamp>,
    /// Why the cluster's apiserver does not answer the agent, where it told so.
    pub unreachable: Option<String>,
}

/// What of a join token is signed. That it was used is not: it takes the token itself to make use of that.
pub(crate) fn join_row(id: Uuid, hash: &[u8], cluster: Uuid, expires: ::time::OffsetDateTime) -> Row {
    Row::of("join_token").bytes(id.as_bytes()).bytes(hash).bytes(cluster.as_bytes()).time(expires)
}

impl Tx {
    /// Stores a join token's hash.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn add_join_token(
        &mut self,
        cluster: ClusterUid,
        hash: &[u8],
        created: Timestamp,
        expires: Timestamp,
    ) -> Result<(), StoreError> {
        let (id, expires) = (Uuid::new_v4(), to_sql(expires));
        let mac = self.sealer.sign(&join_row(id, hash, cluster.0, expires));
        sqlx::query(
            "INSERT INTO join_token (id, hash, cluster_uid, created_at, expires_at, mac) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(id)
        .bind(hash)
        .bind(cluster.0)
        .bind(to_sql(created))
        .bind(expires)
        .bind(mac)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("store a join token"))?;
        Ok(())
    }

    /// The join token with this hash, if a hub with this key made it. No other enrolment can use it until this unit of work
    /// ends.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn join_token(&mut self, hash: &[u8]) -> Result<Option<JoinToken>, StoreError> {
        let what = "look up a join token";
        type Found = (
            Uuid,
            Uuid,
            ::time::OffsetDateTime,
            Option<::time::OffsetDateTime>,
            Option<Vec<u8>>,
            Option<Vec<u8>>,
        );
        let found: Option<Found> = sqlx::query_as(
            "SELECT id, cluster_uid, expires_at, used_at, used_by_key, mac FROM join_token WHERE hash = $1 FOR UPDATE",
        )
        .bind(hash)
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        let Some((id, cluster, expires, used_at, key, mac)) = found else { return Ok(None) };
        if !self.sealer.is_signed(what, &join_row(id, hash, cluster, expires), mac.as_deref()) {
            return Ok(None);
        }
        let used = match (used_at, key) {
            (Some(at), Some(key)) => Some((from_sql(what, at)?, key)),
            _ => None,
        };
        Ok(Some(JoinToken { id, cluster: ClusterUid(cluster), expires: from_sql(what, expires)?, used }))
    }

    /// Marks a join token as used, by the agent with this public key.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn use_join_token(&mut self, id: Uuid, key: &[u8], at: Timestamp) -> Result<(), StoreError> {
        sqlx::query("UPDATE join_token SET used_at = $2, used_by_key = $3 WHERE id = $1")
            .bind(id)
            .bind(to_sql(at))
            .bind(key)
            .execute(self.written().await?)
            .await
            .map_err(StoreError::query("mark a join token as used"))?;
        Ok(())
    }

    /// Records which cluster this is. Returns the name of the Cluster that is registered for the same `kube-system`
    /// already, if that is another one; then nothing is recorded.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn identify_cluster(
        &mut self,
        cluster: ClusterUid,
        kube_system: KubeSystemUid,
        at: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let what = "record a cluster's identity";
        sqlx::query(
            "INSERT INTO cluster_identity (cluster_uid, kube_system_uid, joined_at) VALUES ($1, $2, $3)
             ON CONFLICT DO NOTHING",
        )
        .bind(cluster.0)
        .bind(kube_system.0)
        .bind(to_sql(at))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query(what))?;
        sqlx::query_scalar(
            "SELECT resource.name FROM cluster_identity JOIN resource ON resource.uid = cluster_uid
             WHERE kube_system_uid = $1 AND cluster_uid <> $2",
        )
        .bind(kube_system.0)
        .bind(cluster.0)
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query(what))
    }

    /// The `kube-system` uid that was recorded for a cluster.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn cluster_identity(
        &mut self,
        cluster: ClusterUid,
    ) -> Result<Option<KubeSystemUid>, StoreError> {
        let uid: Option<Uuid> =
            sqlx::query_scalar("SELECT kube_system_uid FROM cluster_identity WHERE cluster_uid = $1")
                .bind(cluster.0)
                .fetch_optional(self.written().await?)
                .await
                .map_err(StoreError::query("look up a cluster's identity"))?;
        Ok(uid.map(KubeSystemUid))
    }

    /// Records the public key of a cluster's agent; the newest enrolment counts.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn set_agent_key(
        &mut self,
        cluster: ClusterUid,
        key: &[u8],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO agent_key (cluster_uid, public_key, enrolled_at) VALUES ($1, $2, $3)
             ON CONFLICT (cluster_uid) DO UPDATE SET public_key = $2, enrolled_at = $3",
        )
        .bind(cluster.0)
        .bind(key)
        .bind(to_sql(at))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("record an agent's key"))?;
        Ok(())
    }

    /// The public key that a cluster's agent enrolled with last.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn agent_key(&mut self, cluster: ClusterUid) -> Result<Option<Vec<u8>>, StoreError> {
        agent_key(self.written().await?, cluster).await
    }

    /// Takes a cluster's session from whoever has it: no session is the cluster's newest until another begins. False where
    /// none was open.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn cut_session(&mut self, cluster: ClusterUid, at: Timestamp) -> Result<bool, StoreError> {
        let was_open: Option<bool> = sqlx::query_scalar(
            "WITH before AS (SELECT cluster_uid, disconnected_at IS NULL AS open FROM agent_session WHERE cluster_uid = $1)
             UPDATE agent_session s SET session = gen_random_uuid(), disconnected_at = coalesce(disconnected_at, $2)
             FROM before WHERE s.cluster_uid = before.cluster_uid RETURNING before.open",
        )
        .bind(cluster.0)
        .bind(to_sql(at))
        .fetch_optional(self.written().await?)
        .await
        .map_err(StoreError::query("cut an agent's session"))?;
        Ok(was_open == Some(true))
    }

    /// Makes `session` the cluster's session: the newest one counts.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn begin_session(
        &mut self,
        cluster: ClusterUid,
        session: &AgentSession,
    ) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO agent_session (cluster_uid, session, replica, agent_version, kubernetes_version, connected_at,
                                        last_seen, image, capabilities)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8)
             ON CONFLICT (cluster_uid) DO UPDATE SET session = $2, replica = $3, agent_version = $4,
                 kubernetes_version = $5, connected_at = $6, last_seen = $6, disconnected_at = NULL, image = $7,
                 capabilities = $8, unreachable = NULL",
        )
        .bind(cluster.0)
        .bind(session.session.0)
        .bind(session.replica.0)
        .bind(&session.agent_version)
        .bind(&session.kubernetes_version)
        .bind(to_sql(session.connected))
        .bind(&session.image)
        .bind(session.capabilities.names())
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("begin an agent's session"))?;
        self.end_tending(cluster, session.connected, true).await?;
        self.wake(Topic::Dispatch);
        Ok(())
    }

    /// Records why a cluster's apiserver does not answer its agent; none where it does. False where that was known, or the session is not
    /// the cluster's newest any more, or has ended.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn note_unreachable(
        &mut self,
        cluster: ClusterUid,
        session: SessionId,
        why: Option<&str>,
    ) -> Result<bool, StoreError> {
        let noted = sqlx::query(
            "UPDATE agent_session SET unreachable = $3,
                 unreachable_at = CASE WHEN $3::text IS NULL THEN NULL
                                       WHEN unreachable IS NULL THEN clock_timestamp() ELSE unreachable_at END
             WHERE cluster_uid = $1 AND session = $2 AND disconnected_at IS NULL AND unreachable IS DISTINCT FROM $3",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(why)
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("record whether an apiserver answers"))?;
        Ok(noted.rows_affected() > 0)
    }

    /// Ends a session. False where it was not the cluster's newest any more.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn end_session(
        &mut self,
        cluster: ClusterUid,
        session: SessionId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let ended = sqlx::query(
            "UPDATE agent_session SET disconnected_at = $3
             WHERE cluster_uid = $1 AND session = $2 AND disconnected_at IS NULL",
        )
        .bind(cluster.0)
        .bind(session.0)
        .bind(to_sql(at))
        .execute(self.written().await?)
        .await
        .map_err(StoreError::query("end an agent's session"))?;
        let is_ended = ended.rows_affected() == 1;
        if is_ended {
            self.end_tending(cluster, at, false).await?;
        }
        Ok(is_ended)
    }

    /// The cluster's newest session.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn newest_session(&mut self, cluster: ClusterUid) -> Result<Option<AgentSession>, StoreError> {
        sessions_of(self.written().await?, &[cluster]).await?.remove(&cluster).transpose()
    }
}

#[derive(sqlx::FromRow)]
struct SessionRow {
    cluster_uid: Uuid,
    session: Uuid,
    replica: Uuid,
    agent_version: String,
    kubernetes_version: String,
    connected_at: ::time::OffsetDateTime,
    disconnected_at: Option<::time::OffsetDateTime>,
    image: Option<String>,
    capabilities: Vec<String>,
    unreachable: Option<String>,
}

/// The newest sessions of these clusters' agents.
async fn sessions_of<'c, E>(
    executor: E,
    clusters: &[ClusterUid],
) -> Result<Answers<ClusterUid, AgentSession>, StoreError>
where
    E: sqlx::Executor<'c, Database = sqlx::Postgres>,
{
    let what = "read agents' sessions";
    let rows: Vec<SessionRow> = sqlx::query_as(
        "SELECT cluster_uid, session, replica, agent_version, kubernetes_version, connected_at, disconnected_at, image,
                capabilities, unreachable
         FROM agent_session WHERE cluster_uid = ANY($1)",
    )
    .bind(clusters.iter().map(|cluster| cluster.0).collect::<Vec<_>>())
    .fetch_all(executor)
    .await
    .map_err(StoreError::query(what))?;
    let read = |row: SessionRow| {
        Ok(AgentSession {
            session: SessionId(row.session),
            replica: ReplicaId(row.replica),
            agent_version: row.agent_version,
            image: row.image,
            kubernetes_version: row.kubernetes_version,
            capabilities: Capabilities::named(&row.capabilities),
            connected: from_sql(what, row.connected_at)?,
            disconnected: row.disconnected_at.map(|at| from_sql(what, at)).transpose()?,
            unreachable: row.unreachable,
        })
    };
    Ok(rows.into_iter().map(|row| (ClusterUid(row.cluster_uid), read(row))).collect())
}

async fn agent_key<'c, E>(executor: E, cluster: ClusterUid) -> Result<Option<Vec<u8>>, StoreError>
where
    E: sqlx::Executor<'c, Database = sqlx::Postgres>,
{
    sqlx::query_scalar("SELECT public_key FROM agent_key WHERE cluster_uid = $1")
        .bind(cluster.0)
        .fetch_optional(executor)
        .await
        .map_err(StoreError::query("look up an agent's key"))
}

impl Store {
    /// The cluster's newest session; asked [together](crate::together) with those of others.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn session(&self, cluster: ClusterUid) -> Result<Option<AgentSession>, StoreError> {
        let ask = |this: Self, clusters: Vec<_>| async move { sessions_of(&this.pool, &clusters).await };
        self.together.sessions.ask(&self.health, self, cluster, ask).await
    }

    /// Whether `session` is still the cluster's newest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn is_newest_session(
        &self,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<bool, StoreError> {
        let newest: Option<Uuid> =
            sqlx::query_scalar("SELECT session FROM agent_session WHERE cluster_uid = $1")
                .bind(cluster.0)
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::query("look up a cluster's newest session"))?;
        Ok(newest == Some(session.0))
    }

    /// Whether `session` is still the cluster's newest; whether its agent was not told of some [resting](Tx::rest) applier yet; and
    /// whether it was not told what it is ordered.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn session_standing(
        &self,
        cluster: ClusterUid,
        session: SessionId,
    ) -> Result<(bool, bool, bool), StoreError> {
        let standing: Option<(bool, bool, bool)> = sqlx::query_as(
            "SELECT session = $2, EXISTS (SELECT FROM resting WHERE cluster_uid = $1 AND sent_in IS DISTINCT FROM $2),
                    EXISTS (SELECT FROM agent_order WHERE cluster_uid = $1 AND state = 'told' AND sent_in IS DISTINCT FROM $2)
             FROM agent_session WHERE cluster_uid = $1",
        )
        .bind(cluster.0)
        .bind(session.0)
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::query("look up a cluster's newest session"))?;
        Ok(standing.unwrap_or_default())
    }

    /// The sessions at `replica` that are their clusters' newest.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn newest_sessions(&self, replica: ReplicaId) -> Result<Vec<SessionId>, StoreError> {
        let sessions: Vec<Uuid> = sqlx::query_scalar("SELECT session FROM agent_session WHERE replica = $1")
            .bind(replica.0)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::query("list a replica's sessions"))?;
        Ok(sessions.into_iter().map(SessionId).collect())
    }

    /// Those of them that have not been sent all that is open for their clusters, or what their agents are told.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sessions_with_dispatches(&self, replica: ReplicaId) -> Result<Vec<SessionId>, StoreError> {
        let sessions: Vec<Uuid> = sqlx::query_scalar(
            "SELECT DISTINCT s.session FROM reconciliation r JOIN agent_session s ON s.cluster_uid = r.cluster_uid
             WHERE r.finished_at IS NULL AND s.replica = $1 AND r.sent_in IS DISTINCT FROM s.session
                   AND r.dispatch_format <= $2 AND coalesce(r.dispatch ->> 'kind' = ANY ($3), true)
             UNION
             SELECT s.session FROM (SELECT * FROM agent_order WHERE state = 'told' OFFSET 0) o
             JOIN agent_session s ON s.cluster_uid = o.cluster_uid
             WHERE s.replica = $1 AND o.sent_in IS DISTINCT FROM s.session
             UNION
             SELECT s.session FROM resting t JOIN agent_session s ON s.cluster_uid = t.cluster_uid
             WHERE s.replica = $1 AND t.sent_in IS DISTINCT FROM s.session",
        )
        .bind(replica.0)
        .bind(dispatched::FORMAT)
        .bind(newer::known_kinds())
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for sessions with dispatches to send"))?;
        Ok(sessions.into_iter().map(SessionId).collect())
    }

    /// The public key that a cluster's agent enrolled with last.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn agent_key(&self, cluster: ClusterUid) -> Result<Option<Vec<u8>>, StoreError> {
        agent_key(&self.pool, cluster).await
    }

    /// The sessions that count as open but whose replica was not seen since `alive_since`.
    ///
    /// # Errors
    /// Where the database refuses.
    pub async fn sessions_of_dead_replicas(
        &self,
        alive_since: Timestamp,
    ) -> Result<Vec<(ClusterUid, SessionId)>, StoreError> {
        let rows: Vec<(Uuid, Uuid)> = sqlx::query_as(
            "SELECT cluster_uid, session FROM agent_session
             WHERE disconnected_at IS NULL
               AND replica NOT IN (SELECT id FROM hub_replica WHERE last_seen >= $1)",
        )
        .bind(to_sql(alive_since))
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::query("look for sessions of dead replicas"))?;
        Ok(rows.into_iter().map(|(cluster, session)| (ClusterUid(cluster), SessionId(session))).collect())
    }
}
