-- Closing messages of incidents whose Alert was deleted or given another Provider. And what is noted so that changed labels, or a clock that is set back, hold nothing up.

-- The Provider that was last sent a message of it, or may have been.
ALTER TABLE incident ADD COLUMN told_to uuid;
UPDATE incident SET told_to = provider.uid
FROM resource AS alert JOIN resource AS provider ON provider.api_group = alert.api_group AND provider.kind = 'Provider'
     AND provider.namespace = alert.namespace AND provider.name = alert.object #>> '{spec,providerRef,name}'
WHERE alert.uid = incident.alert AND incident.told_at IS NOT NULL;

-- The closing message of each incident that its Alert no longer reports where it was reported. It is sent apart from what Alerts send: the Alert may be gone, and so may the
-- Provider.
CREATE TABLE incident_closing (
    incident      uuid        PRIMARY KEY,
    alert         uuid        NOT NULL,
    provider      uuid        NOT NULL,
    -- Why it is no longer reported there.
    why           text        NOT NULL,
    -- What is known of the incident: its first failure, as the Alert told it, when that was, how many objects fail and failed and on how many clusters, and what
    -- the service calls the first message.
    first         jsonb       NOT NULL,
    opened_at     timestamptz NOT NULL,
    failing       bigint      NOT NULL,
    failed        bigint      NOT NULL,
    clusters      bigint      NOT NULL,
    thread        text,
    -- The message itself where it was over, and that had not arrived.
    event         jsonb,
    -- When it was first tried. It is given up so long after that.
    since         timestamptz,
    attempts      integer     NOT NULL DEFAULT 0,
    -- When the attempt that is under way began: where nothing came of it, it may have arrived.
    began_at      timestamptz,
    due_at        timestamptz NOT NULL DEFAULT '-infinity',
    -- When the last attempt ended: where that is to come, the clock was put back.
    tried_at      timestamptz,
    -- Whoever tries it has it until then.
    claimed_until timestamptz,
    -- Why the last attempt failed. Never holds what is secret.
    error         text        NOT NULL DEFAULT ''
);
CREATE INDEX incident_closing_of ON incident_closing (provider, due_at);

-- Alerts and Providers that are no more, as long as a message may have to be sent for them.
CREATE TABLE deleted_object (
    uid        uuid        PRIMARY KEY,
    kind       text        NOT NULL,
    namespace  text        NOT NULL,
    name       text        NOT NULL,
    created_at timestamptz NOT NULL,
    object     jsonb       NOT NULL,
    -- The objects that it referred to, of which others may have the names by now: none of those is used for it.
    uses       uuid[]      NOT NULL,
    -- Whether a Kustomization had made it, or taken it over.
    by_git     boolean     NOT NULL,
    left_at    timestamptz NOT NULL DEFAULT now()
);

-- Alerts that are to look again which of the objects that fail they are for: labels have changed. Rows are only added and taken, so that whoever changes labels waits for no
-- pass; nor would a reference to the Alert let it be deleted meanwhile.
CREATE TABLE reselection (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert uuid   NOT NULL
);
CREATE INDEX reselection_of ON reselection (alert, id);

-- The text that news of many objects has in common, without what differs: what is told where the first of them may not be told of any more.
ALTER TABLE news_group ADD COLUMN shared text;

-- When it was said when the next pass is due, by the clock by which that was said: where that is to come, the clock was put back.
ALTER TABLE schedule ADD COLUMN set_at timestamptz;
