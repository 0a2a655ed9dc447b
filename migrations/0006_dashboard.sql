-- The health that an agent told of what it waited for, by object: as it stood when the attempt ended.
ALTER TABLE reconciliation ADD COLUMN health jsonb;
-- The newest events of the whole fleet. Times are all of one form, so that they sort as texts.
CREATE INDEX resource_event_last ON resource ((object ->> 'lastTimestamp')) WHERE kind = 'Event';
-- Labels of the objects of each build, so that owned objects can be looked for by them. `objects` is an array of
-- {g: group, k: kind, ns: namespace as the build has it, n: name, l: labels}.
CREATE TABLE build_labels (
    build_digest bytea PRIMARY KEY REFERENCES blob (digest) ON DELETE CASCADE,
    objects      jsonb NOT NULL
);
-- As they were applied last.
ALTER TABLE inventory ADD COLUMN labels jsonb NOT NULL DEFAULT '{}';
