-- Notifications: which Alerts listen to what, events that wait to be sorted, and what is sent of them.

-- What Alerts listen to, so that an event that nobody listens to costs one look at an index. A namespace or name of `*` is for all.
CREATE TABLE alert_source (
    alert       uuid    NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    kind        text    NOT NULL,
    namespace   text    NOT NULL,
    name        text    NOT NULL,
    only_errors boolean NOT NULL,
    PRIMARY KEY (alert, kind, namespace, name)
);
CREATE INDEX alert_source_of ON alert_source (kind, namespace, name);

-- Events that somebody listens to, each written with the state that it tells of; gone once it is known for which Alerts they are.
CREATE TABLE news (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event   jsonb NOT NULL,
    -- The object's, when it happened.
    labels  jsonb NOT NULL,
    cluster text,
    -- The condition whose news it is, where it is one's.
    condition text
);

-- Events that Alerts send, or sent.
CREATE TABLE delivery (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    alert    uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- Of which news it is: sorted twice, it is sent once.
    news     bigint      NOT NULL,
    -- What the same news of the same object has in common.
    key      bytea       NOT NULL,
    -- As the Alert tells it.
    event    jsonb       NOT NULL,
    made_at  timestamptz NOT NULL,
    state    text        NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'failed')),
    attempts integer     NOT NULL DEFAULT 0,
    -- When the attempt that is under way began: where nothing came of it, it may have arrived.
    began_at timestamptz,
    due_at   timestamptz NOT NULL DEFAULT '-infinity',
    ended_at timestamptz,
    provider text        NOT NULL DEFAULT '',
    -- Why the last attempt failed. Never holds what is secret.
    error    text        NOT NULL DEFAULT '',
    UNIQUE (alert, news)
);
CREATE INDEX delivery_waiting ON delivery (alert, id) WHERE state = 'waiting';
CREATE INDEX delivery_ended ON delivery (ended_at) WHERE state <> 'waiting';
CREATE INDEX delivery_same ON delivery (alert, key, id);

-- Objects of whose failure an Alert has told, and not yet that it is over.
CREATE TABLE alert_failing (
    alert     uuid NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    kind      text NOT NULL,
    namespace text NOT NULL,
    name      text NOT NULL,
    PRIMARY KEY (alert, kind, namespace, name)
);

-- Alerts that got more than may wait: since when, and how many were left out.
CREATE TABLE delivery_left_out (
    alert uuid        PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    since timestamptz NOT NULL,
    count bigint      NOT NULL
);

-- Providers and Alerts that are stored refer to others, listen, and are looked at.
UPDATE resource
SET refers_to = (SELECT array_agg(DISTINCT 'Secret/' || namespace || '/' || name)
                 FROM (VALUES (object #>> '{spec,secretRef,name}'), (object #>> '{spec,certSecretRef,name}'),
                              (object #>> '{spec,proxySecretRef,name}')) AS named (name)
                 WHERE named.name IS NOT NULL)
WHERE kind = 'Provider' AND api_group = 'notification.toolkit.fluxcd.io';

UPDATE resource
SET refers_to = ARRAY['Provider/' || namespace || '/' || (object #>> '{spec,providerRef,name}')]
WHERE kind = 'Alert' AND api_group = 'notification.toolkit.fluxcd.io'
  AND object #>> '{spec,providerRef,name}' IS NOT NULL;

INSERT INTO alert_source (alert, kind, namespace, name, only_errors)
SELECT uid, source ->> 'kind', coalesce(source ->> 'namespace', namespace), source ->> 'name',
       coalesce(object #>> '{spec,eventSeverity}', 'info') = 'error'
FROM resource, jsonb_array_elements(CASE jsonb_typeof(object #> '{spec,eventSources}') WHEN 'array'
                                    THEN object #> '{spec,eventSources}' ELSE '[]' END) AS source
WHERE resource.kind = 'Alert' AND api_group = 'notification.toolkit.fluxcd.io'
  AND object #>> '{spec,suspend}' IS DISTINCT FROM 'true'
  AND source ->> 'kind' IS NOT NULL AND source ->> 'name' IS NOT NULL
ON CONFLICT DO NOTHING;

INSERT INTO schedule (uid, kind, namespace, due_at)
SELECT uid, lower(kind), namespace, now() FROM resource
WHERE kind IN ('Provider', 'Alert') AND api_group = 'notification.toolkit.fluxcd.io'
ON CONFLICT DO NOTHING;
