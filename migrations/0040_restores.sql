-- Which database this is: the server's system identifier and timeline, and the identity of this very table. It differs once a
-- backup was put back or a standby was promoted, which begins a new epoch. None until a hub has recorded it, and where the
-- server does not tell.
ALTER TABLE hub_state ADD COLUMN identity text;

-- Sources that nobody has looked at since the epoch began: what is known of them may be older than what clusters have.
CREATE TABLE unseen_source (
    uid uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE
);

-- The newest attempt that a cluster's agent has seen of an applier, where this database knows of none so new: it was lost with what
-- came after the backup. `found_generation` and `found_request` are what the applier's object had when that was noticed.
CREATE TABLE lost_attempt (
    applier          uuid   NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    cluster_uid      uuid   NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    epoch            bigint NOT NULL,
    attempt          bigint NOT NULL,
    generation       bigint NOT NULL,
    found_generation bigint NOT NULL,
    found_request    text,
    PRIMARY KEY (applier, cluster_uid)
);
CREATE INDEX lost_attempt_cluster ON lost_attempt (cluster_uid);

-- Whether something newer may have been applied than by this attempt: it was made before the database was restored, or an agent has seen a
-- newer one that was lost.
CREATE FUNCTION is_past(of uuid, of_attempt bigint, of_epoch bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT of_epoch < (SELECT epoch FROM hub_state)
           OR EXISTS (SELECT FROM lost_attempt l WHERE l.applier = of AND (l.epoch, l.attempt) > (of_epoch, of_attempt))
$$;
