-- What led to an attempt, and who.
ALTER TABLE reconciliation
    ADD COLUMN trigger text,
    -- As the audit log has them.
    ADD COLUMN actor   text;
CREATE INDEX audit_by_object ON audit (kind, namespace, name, id DESC);
