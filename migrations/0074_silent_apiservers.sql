-- Since when the agent's apiserver does not answer it, while that is so. What is on such a cluster cannot be seen, though its agent is
-- connected.
ALTER TABLE agent_session ADD COLUMN unreachable_at timestamptz;
UPDATE agent_session SET unreachable_at = clock_timestamp() WHERE unreachable IS NOT NULL;

-- Clusters that cannot be seen, and since when.
CREATE OR REPLACE VIEW lost_cluster AS
    SELECT c.uid, c.name, least(s.disconnected_at, CASE WHEN s.unreachable IS NOT NULL THEN s.unreachable_at END) AS since
    FROM agent_session s JOIN resource c ON c.uid = s.cluster_uid
    WHERE s.disconnected_at IS NOT NULL OR s.unreachable IS NOT NULL;

CREATE OR REPLACE FUNCTION shown_ready(ready jsonb, object jsonb, lost timestamptz) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN is_unseen(object, lost) THEN jsonb_build_object(
        'type', 'Ready', 'status', 'Unknown', 'reason', 'NotSeen',
        'lastTransitionTime', to_char(lost AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        'message', 'not seen since ' || to_char(lost AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') ||
            ' UTC, when its cluster was last reached; before that Ready was ' ||
            coalesce(ready ->> 'status', 'Unknown') || coalesce(': ' || (ready ->> 'message'), ''))
        ELSE ready END
$$;
