-- Where one namespace has all the places that it may have, those of the others are found without reading all that waits for it; and what
-- replicas that are gone had claimed without reading all that is scheduled.
ALTER TABLE schedule ADD COLUMN namespace text;
UPDATE schedule SET namespace = resource.namespace FROM resource WHERE resource.uid = schedule.uid;
-- Replicas one version back do not say it.
CREATE FUNCTION schedule_namespace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.namespace := coalesce((SELECT namespace FROM resource WHERE uid = NEW.uid), '');
    RETURN NEW;
END $$;
CREATE TRIGGER schedule_namespace BEFORE INSERT ON schedule
    FOR EACH ROW WHEN (NEW.namespace IS NULL) EXECUTE FUNCTION schedule_namespace();
ALTER TABLE schedule ALTER COLUMN namespace SET NOT NULL;
CREATE INDEX schedule_due_of ON schedule (kind, namespace, due_at) WHERE lost = 0;
CREATE INDEX schedule_claimed ON schedule (claimed_by) WHERE claimed_by IS NOT NULL;
