-- The health that an agent told of what it waited for, by object: as it stood when the attempt ended.
ALTER TABLE reconciliation ADD COLUMN health jsonb;
-- The newest events of the whole fleet. Times are all of one form, so that they sort as texts.
CREATE INDEX resource_event_last ON resource ((object ->> 'lastTimestamp')) WHERE kind = 'Event';
