-- OCIRepositories that ask for signatures, and that an older version therefore did not fetch, are fetched.
INSERT INTO schedule (uid, kind, due_at)
SELECT uid, 'source', now() FROM resource WHERE kind = 'OCIRepository' AND object #> '{spec,verify}' IS NOT NULL
ON CONFLICT (uid, kind) DO UPDATE SET due_at = least(schedule.due_at, excluded.due_at);
