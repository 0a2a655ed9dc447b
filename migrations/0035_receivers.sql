-- Where Receivers are called: by the digest in the path, so that a call finds its Receiver by one look-up, and two Receivers never
-- have one path.
CREATE TABLE hook (
    digest   bytea PRIMARY KEY CHECK (length(digest) = 32),
    receiver uuid  NOT NULL UNIQUE REFERENCES resource (uid) ON DELETE CASCADE
);

-- Receivers that an older version stored refer to their Secrets, and are looked at.
UPDATE resource
SET refers_to = ARRAY['Secret/' || namespace || '/' || (object #>> '{spec,secretRef,name}')]
WHERE kind = 'Receiver' AND object #>> '{spec,secretRef,name}' IS NOT NULL;

INSERT INTO schedule (uid, kind, due_at)
SELECT uid, 'receiver', now() FROM resource WHERE kind = 'Receiver'
ON CONFLICT DO NOTHING;
