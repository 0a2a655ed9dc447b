-- The MAC of the newest batch of the audit log that was dropped for its age: what follows is checked against it, and not
-- against a row that somebody without the key may have changed.
ALTER TABLE audit_trimmed ADD COLUMN batch_mac bytea;
