-- Sources that had an artifact when the hub began to check the addresses that it connects to. Where the check would refuse
-- theirs they go on for seven days, so that an upgrade stops nothing overnight. Bound to the URL: another one is checked.
CREATE TABLE source_grace (
    source uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    url    text        NOT NULL,
    until  timestamptz NOT NULL
);
INSERT INTO source_grace (source, url, until)
    SELECT uid, object #>> '{spec,url}', now() + interval '7 days'
    FROM resource
    WHERE kind = 'GitRepository'
      AND object #> '{status,artifact}' IS NOT NULL
      AND object #>> '{spec,url}' IS NOT NULL
      AND deletion_timestamp IS NULL;
