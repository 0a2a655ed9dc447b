-- What could not be seen for longer than twice its interval is Unknown in views, whatever was known of it last.

-- Clusters whose agents are not connected, and since when.
CREATE VIEW lost_cluster AS
    SELECT c.uid, c.name, s.disconnected_at AS since
    FROM agent_session s JOIN resource c ON c.uid = s.cluster_uid
    WHERE s.disconnected_at IS NOT NULL;

-- Whether something with this spec cannot be seen for that long. The interval is a Go duration; one in units that no schedule has counts as
-- an hour.
CREATE FUNCTION is_unseen(object jsonb, lost timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT lost IS NOT NULL AND now() >= lost + 2 * CASE
        WHEN object #>> '{spec,interval}' ~ '^([0-9]+([.][0-9]+)?(h|m|s|ms))+$' THEN (object #>> '{spec,interval}')::interval
        ELSE interval '1 hour' END
$$;

-- The Ready condition as views show it.
CREATE FUNCTION shown_ready(ready jsonb, object jsonb, lost timestamptz) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN is_unseen(object, lost) THEN jsonb_build_object(
        'type', 'Ready', 'status', 'Unknown', 'reason', 'NotSeen',
        'lastTransitionTime', to_char(lost AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        'message', 'not seen since ' || to_char(lost AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') ||
            ' UTC, when the agent of its cluster was last connected; before that Ready was ' ||
            coalesce(ready ->> 'status', 'Unknown') || coalesce(': ' || (ready ->> 'message'), ''))
        ELSE ready END
$$;
