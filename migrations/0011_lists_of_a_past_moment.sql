-- What stood at a version: the objects that have not changed since, and of each that has, the version before its first change
-- since. So the log keeps, besides what watches may still ask for, one row of each object that is there.
ALTER TABLE resource_event ADD COLUMN before_version bigint;

-- What was logged until now does not say it: watches and lists that go on from there begin again.
UPDATE hub_state SET compacted = last_version;
DELETE FROM resource_event;
INSERT INTO resource_event (resource_version, type, uid, api_group, kind, namespace, name, generation, created_at,
    deletion_timestamp, object, sealed)
SELECT resource_version, 'MODIFIED', uid, api_group, kind, namespace, name, generation, created_at, deletion_timestamp,
    object, sealed FROM resource;
